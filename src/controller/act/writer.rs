//! Carries out one write: confirms it, sends the request, and records the outcome.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::header::RETRY_AFTER;
use kube::Client;
use kube::core::ObjectList;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::answer::{Answer, Outcome, judge};
use super::audience::{refusal_events, regarding};
use super::limit::Limiter;
use super::request;
use crate::cluster::Cluster;
use crate::controller::events::Events;
use crate::controller::lease::{Leadership, WRITE_TIMEOUT};
use crate::controller::send;
use crate::telemetry::{Metrics, shown};
use stowplan_core::systems;
use stowplan_core::systems::plan::{Action, Confirmation, Creation, IfTaken, Target, Write};
use stowplan_core::view::resource::Resource;

/// How long a list may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(15);

/// How long one list is used to confirm writes.
pub(super) const SHARED_FOR: Duration = Duration::from_secs(1);

/// The lists that confirm the actions of all plans within [`SHARED_FOR`]: one of each resource.
///
/// The list protects against a watch that lags and against writes of an earlier leader. Both are
/// older than a second, and the View shows this process's own writes at once, so a shared list is
/// fresh enough.
#[derive(Debug)]
pub(super) struct SharedLists {
    until: Instant,
    lists: Mutex<HashMap<Resource, Arc<OnceCell<Vec<Value>>>>>,
}

impl SharedLists {
    pub(super) fn beginning_at(now: Instant) -> Self {
        Self { until: now + SHARED_FOR, lists: Mutex::default() }
    }

    pub(super) fn has_ended(&self, now: Instant) -> bool {
        self.until <= now
    }

    fn list_of(&self, resource: Resource) -> Arc<OnceCell<Vec<Value>>> {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(lists.entry(resource).or_default())
    }
}

/// The parts that all writes share.
pub(crate) struct Writer {
    /// Sends the requests. It must not retry them itself: a retry would not check the lease again.
    pub(crate) client: Client,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) leadership: Leadership,
    pub(crate) events: Events,
    pub(crate) metrics: Arc<Metrics>,
    /// How many requests per second are sent in the long run.
    pub(crate) limiter: Mutex<Limiter>,
}

impl Writer {
    /// Records the events of an action, except those that this process has recorded before.
    pub(super) fn record_events_once(&self, action: &Action) {
        let regarding = regarding(action);
        for event in &action.events {
            self.events.record_once(&regarding, event);
        }
    }

    /// Carries out an action and records the outcome in logs and metrics, and the events of a success.
    pub(super) async fn carry_out(&self, action: &Action, shared: &SharedLists) -> Outcome {
        let outcome = match self.attempt(action, shared).await {
            Ok(outcome) | Err(outcome) => outcome,
        };
        if let Outcome::Throttled(pause) = outcome {
            let now = Instant::now();
            self.limiter().pause(now, now + pause);
        }
        let Target { resource, namespace, name, .. } = &action.target;
        let (kind, verb, word) = (resource.plural, action.verb(), outcome.as_str());
        self.metrics.count_write(kind, verb, word);
        match &outcome {
            Outcome::Refused(problem) | Outcome::Taken(problem) | Outcome::Unsure(problem) => {
                warn!(kind, %namespace, %name, verb, outcome = word, problem = &*shown(problem), "write");
            }
            _ => info!(kind, %namespace, %name, verb, outcome = word, "write"),
        }
        if outcome == Outcome::Done {
            let regarding = regarding(action);
            action.events.iter().for_each(|event| self.events.record(&regarding, event));
        }
        outcome
    }

    /// Records the events about a refused write, except those that this process has recorded before.
    pub(super) fn record_refusal(&self, action: &Action, problem: &str) {
        for (regarding, event) in refusal_events(action, problem) {
            self.events.record_once(&regarding, &event);
        }
    }

    /// Sends an action's write. `Ok` and `Err` both contain the outcome.
    async fn attempt(&self, action: &Action, shared: &SharedLists) -> Result<Outcome, Outcome> {
        let Some(write) = self.prepare(action, shared).await? else { return Ok(Outcome::Kept) };
        let request = request::request(&action.target, &write).map_err(Outcome::Refused)?;
        let answer = self.send(request, WRITE_TIMEOUT).await?;
        let outcome = judge(&write, &answer);
        if outcome == Outcome::Done
            && let Some(object) = systems::written(&action.target.resource, &answer.body)
        {
            self.cluster.learn(object);
        }
        Ok(outcome)
    }

    /// Confirms the precondition of a write and reduces the write to what it confirms. `None`: the
    /// write is not needed.
    async fn prepare<'a>(
        &self,
        action: &'a Action,
        shared: &SharedLists,
    ) -> Result<Option<Cow<'a, Write>>, Outcome> {
        match (&action.confirmation, &action.write) {
            (Some(Confirmation::List(listed)), Write::Patch(operations)) => {
                let list = shared.list_of(listed.resource);
                let objects = list.get_or_try_init(|| self.list(&listed.resource)).await?;
                let reduced = (listed.reduce)(objects, &action.target, operations);
                Ok(reduced.map(|operations| Cow::Owned(Write::Patch(operations))))
            }
            (Some(Confirmation::Creation(creation)), write) => {
                self.create_first(&action.target, creation, write).await
            }
            (_, write) => Ok(Some(Cow::Borrowed(write))),
        }
    }

    /// Creates the object on which a write depends, or tries it.
    async fn create_first<'a>(
        &self,
        target: &Target,
        creation: &Creation,
        write: &'a Write,
    ) -> Result<Option<Cow<'a, Write>>, Outcome> {
        let request = request::create_first(target, creation).map_err(Outcome::Refused)?;
        let answer = self.send(request, WRITE_TIMEOUT).await?;
        let outcome = judge(&Write::Create(Value::Null), &answer);
        let verb = if creation.is_trial { "try" } else { "create" };
        self.metrics.count_write(creation.resource.plural, verb, outcome.as_str());
        let created = match (outcome, creation.if_taken) {
            (Outcome::Done, _) => serde_json::from_slice::<Value>(&answer.body).ok(),
            (Outcome::Taken(_), IfTaken::Send) => None,
            (Outcome::Taken(_), IfTaken::Keep) => return Ok(None),
            (other, _) => return Err(other),
        };
        Ok(Some(creation.adapt(created.as_ref(), write)))
    }

    async fn list(&self, resource: &Resource) -> Result<Vec<Value>, Outcome> {
        let request = request::list(resource).map_err(Outcome::Refused)?;
        let answer = self.send(request, LIST_TIMEOUT).await?;
        if !answer.status.is_success() {
            return Err(judge(&Write::None, &answer));
        }
        let list: ObjectList<Value> = serde_json::from_slice(&answer.body)
            .map_err(|error| Outcome::Unsure(format!("the list of {resource}: {error}")))?;
        Ok(list.items)
    }

    /// Sends a request as soon as the limiter allows, if this process leads at that time.
    ///
    /// # Errors
    /// The outcome of a request without an answer.
    async fn send(
        &self,
        request: hyper::Request<Vec<u8>>,
        limit: Duration,
    ) -> Result<Answer, Outcome> {
        let asked = Instant::now();
        let turn = self.limiter().take(asked);
        self.metrics.controller_limit_wait.observe(turn.duration_since(asked).as_secs_f64());
        sleep_until(turn).await;
        if self.busy_until().is_some_and(|until| Instant::now() < until) {
            return Err(Outcome::Unsent);
        }
        // No await may come between this check and the request.
        if !self.leadership.is_held() {
            return Err(Outcome::Unsent);
        }
        let answer = send(&self.client, request, limit).await;
        let (head, body) = answer.map_err(Outcome::Unsure)?;
        let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|value| value.parse().ok()).map(Duration::from_secs);
        Ok(Answer { status: head.status, retry_after, body: body.to_vec() })
    }

    fn limiter(&self) -> MutexGuard<'_, Limiter> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The API server accepts no writes before this time.
    pub(super) fn busy_until(&self) -> Option<Instant> {
        self.limiter().busy_until
    }
}
