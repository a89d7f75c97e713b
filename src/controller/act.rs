//! Carries out what a plan asks for.
//!
//! At most one write an object is under way, and [`CONCURRENCY`] in all. A write is asked for by each
//! plan until the View shows that it is done, so nothing is queued beyond the latest plan and nothing
//! needs to be undone: what fails is simply planned again, after a pause.
//!
//! | Answer | What it means | Then |
//! | --- | --- | --- |
//! | success | done | the View learns the answered object; the events are told. If the next plan asks for the very same, somebody undoes it: a pause that doubles |
//! | 404 | the object is gone | nothing, once the watch has seen that |
//! | 409, or the 422 of a failed `test` | the object is another than the one that was planned on | a short pause |
//! | 403, 422, other 4xx | somebody has to act | an event, and a long pause |
//! | 409 to a creation, of reason AlreadyExists | the name is taken: by what the watch is about to show, or by what is not ours | a long pause, and an event from the second time on |
//! | 429 | the API server is busy | no write before it wants one |
//! | 401, 5xx, no answer | **it may have happened** | a pause that doubles |
//!
//! A write that may have happened is repeated without harm: each has a precondition (a UID, a version,
//! a name that is free), and by then the watch may have shown that it is not needed any more. Pauses
//! are forgotten when the write that is planned becomes another one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, ReplaceOperation, TestOperation};
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::client::Body;
use kube::core::{DeserializeGuard, ObjectList, Request, Status};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use super::causes;
use super::events::Events;
use super::lease::Leadership;
use super::release::{self, Claim};
use crate::api;
use crate::cluster::Cluster;
use crate::systems::coschedule::reconcile::reason::PLACEHOLDER_NOT_MADE;
use crate::systems::plan::{Action, Event, Kind, Target, Write};
use crate::telemetry::{Metrics, shown};
use crate::view::{Name, Object};

/// Writes that are under way at once.
pub const CONCURRENCY: usize = 8;

/// How long a write may take. Not longer than from the lease's renew deadline to its end.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a list may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(15);

/// Requests a second, in the long run and at once.
const RATE: u32 = 50;
const BURST: u32 = 100;

/// How long an object rests that was created or deleted, unless the watch shows it before.
const SETTLE: Duration = Duration::from_secs(2);

/// How long one list of HostPools confirms that nodes may be given back.
const ROUND: Duration = Duration::from_secs(1);

/// The longest wait that the API server can ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The field manager of all writes.
const MANAGER: &str = "stowplan-controller";

/// Carries out actions while one leadership lasts. What is under way ends when it is dropped.
#[derive(Debug)]
pub struct Executor {
    writer: Arc<Writer>,
    /// What the latest plan asks for and is not begun.
    waiting: VecDeque<Action>,
    running: FuturesUnordered<BoxFuture<'static, Done>>,
    busy: HashSet<Target>,
    resting: HashMap<Target, Rest>,
    round: Arc<Round>,
}

/// An object that is not written for a while.
#[derive(Debug)]
struct Rest {
    /// The write that failed, or that has to be seen by the watch.
    write: Write,
    until: Instant,
    trouble: Option<(Trouble, ExponentialBackoff)>,
}

/// What kind of failure a pause is for. Another kind begins with its shortest one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Trouble {
    Conflict,
    Refused,
    Unsure,
    /// It was done, and the plan asks for the same again: somebody takes it back each time.
    Futile,
}

impl Trouble {
    /// The pauses of this kind: from the first to the last, each with up to as much again by chance.
    fn pauses(self) -> ExponentialBackoff {
        let (first, last) = match self {
            Self::Conflict => (Duration::from_millis(100), Duration::from_millis(2500)),
            Self::Unsure | Self::Futile => (Duration::from_millis(500), Duration::from_secs(15)),
            Self::Refused => (Duration::from_secs(1), Duration::from_secs(150)),
        };
        let pauses = ExponentialBuilder::new().with_min_delay(first).with_max_delay(last);
        pauses.without_max_times().with_jitter().build()
    }
}

/// The actions of the plans of a second. They share one list of HostPools.
///
/// What the list guards against is a watch that stands still, and a leader before this one: both are
/// further back than that. What this process has written itself the View knows at once.
#[derive(Debug)]
struct Round {
    until: Instant,
    claims: OnceCell<Vec<Claim>>,
}

impl Round {
    fn beginning_at(now: Instant) -> Self {
        Self { until: now + ROUND, claims: OnceCell::new() }
    }
}

/// An action that ended.
#[derive(Debug)]
struct Done {
    action: Action,
    outcome: Outcome,
}

/// How an action ended.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Outcome {
    /// It is done.
    Done,
    /// There was nothing to do: pools still have the node.
    Kept,
    /// The object is gone.
    Gone,
    /// The object is another than it was.
    Conflict,
    /// It is not allowed or not possible.
    Refused(String),
    /// There is one of that name already.
    Taken(String),
    /// Not before so long.
    Throttled(Duration),
    /// Nobody knows whether it happened.
    Unsure(String),
    /// It was not sent: the lease is not held, or no write is wanted.
    Unsent,
}

impl Outcome {
    /// The stable word.
    fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Kept => "kept",
            Self::Gone => "gone",
            Self::Conflict => "conflict",
            Self::Refused(_) | Self::Taken(_) => "refused",
            Self::Throttled(_) => "throttled",
            Self::Unsure(_) => "unsure",
            Self::Unsent => "unsent",
        }
    }
}

impl Executor {
    /// Nothing to do yet. `client` must not repeat requests itself: a repetition would not ask for
    /// the lease again.
    #[must_use]
    pub fn new(
        client: Client,
        cluster: Arc<Cluster>,
        leadership: Leadership,
        events: Events,
        metrics: Arc<Metrics>,
    ) -> Self {
        let limiter = Mutex::default();
        Self {
            writer: Arc::new(Writer { client, cluster, leadership, events, metrics, limiter }),
            waiting: VecDeque::new(),
            running: FuturesUnordered::new(),
            busy: HashSet::new(),
            resting: HashMap::new(),
            round: Arc::new(Round::beginning_at(Instant::now())),
        }
    }

    /// Takes what the latest plan asks for in place of what the one before did.
    pub fn take(&mut self, actions: Vec<Action>) {
        let now = Instant::now();
        if self.round.until <= now {
            self.round = Arc::new(Round::beginning_at(now));
        }
        self.waiting.clear();
        let planned: HashSet<Target> = actions.iter().map(|action| action.target.clone()).collect();
        self.resting.retain(|target, rest| now < rest.until || planned.contains(target));
        let mut unfinished = self.busy.iter().filter(|target| !planned.contains(target)).count();
        for action in actions {
            if matches!(action.write, Write::None) {
                let regarding = regarding(&action);
                for event in &action.events {
                    self.writer.events.tell_once(&regarding, event);
                }
                continue;
            }
            unfinished += 1;
            // Planned again when it ends.
            if self.busy.contains(&action.target) {
                continue;
            }
            match self.resting.get(&action.target) {
                Some(rest) if !is_alike(&rest.write, &action.write) => {
                    self.resting.remove(&action.target);
                }
                Some(rest) if now < rest.until => continue,
                _ => {}
            }
            self.waiting.push_back(action);
        }
        self.writer.metrics.controller_actions.set(i64::try_from(unfinished).unwrap_or(i64::MAX));
    }

    /// Goes on until an object can be written that could not: then a new plan is due. Nothing is lost
    /// when it is dropped before.
    pub async fn next(&mut self) {
        loop {
            let now = Instant::now();
            let pause = self.writer.paused().filter(|until| now < *until);
            if pause.is_none() {
                self.begin();
            }
            let rested = self.resting.values().map(|rest| rest.until).filter(|until| now < *until);
            let wake = rested.chain(pause).min();
            tokio::select! {
                Some(done) = self.running.next() => return self.finish(done),
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => return,
                else => std::future::pending().await,
            }
        }
    }

    /// Waits for what is under way, and begins nothing more.
    pub async fn drain(mut self) {
        while self.running.next().await.is_some() {}
    }

    fn begin(&mut self) {
        while self.running.len() < CONCURRENCY
            && let Some(action) = self.waiting.pop_front()
        {
            // A plan that names an object twice gets one of its wishes after the other.
            if !self.busy.insert(action.target.clone()) {
                continue;
            }
            let (writer, round) = (Arc::clone(&self.writer), Arc::clone(&self.round));
            let before = self.resting.get(&action.target).and_then(|rest| rest.trouble.as_ref());
            let again = before.is_some_and(|(trouble, _)| *trouble == Trouble::Refused);
            self.running.push(Box::pin(async move {
                let outcome = writer.carry_out(&action, &round, again).await;
                Done { action, outcome }
            }));
        }
    }

    fn finish(&mut self, done: Done) {
        let Done { action, outcome } = done;
        self.busy.remove(&action.target);
        let now = Instant::now();
        let trouble = match outcome {
            Outcome::Done => match action.write {
                // The View does not show it yet: the same plan must not ask for it twice.
                Write::Create(_) | Write::Delete { .. } => None,
                _ => Some(Trouble::Futile),
            },
            Outcome::Gone | Outcome::Kept => None,
            Outcome::Conflict => Some(Trouble::Conflict),
            Outcome::Refused(_) | Outcome::Taken(_) => Some(Trouble::Refused),
            Outcome::Unsure(_) => Some(Trouble::Unsure),
            // It is the turn of others first, for as long as the pause lasts.
            Outcome::Throttled(_) | Outcome::Unsent => return,
        };
        let before = self.resting.remove(&action.target).and_then(|rest| rest.trouble);
        let (pause, trouble) = match trouble {
            None => (SETTLE, None),
            Some(trouble) => {
                let same = before.filter(|(before, _)| *before == trouble);
                // What is done once needs no pause: nearly always it is not planned again.
                let is_first = trouble == Trouble::Futile && same.is_none();
                let mut pauses = same.map_or_else(|| trouble.pauses(), |(_, pauses)| pauses);
                let pause = if is_first { Some(Duration::ZERO) } else { pauses.next() };
                (pause.unwrap_or(SETTLE), Some((trouble, pauses)))
            }
        };
        let rest = Rest { write: action.write, until: now + pause, trouble };
        self.resting.insert(action.target, rest);
    }
}

/// What all writes share.
struct Writer {
    client: Client,
    cluster: Arc<Cluster>,
    leadership: Leadership,
    events: Events,
    metrics: Arc<Metrics>,
    limiter: Mutex<Limiter>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Writer").finish_non_exhaustive()
    }
}

/// What the API server answered.
struct Answer {
    status: StatusCode,
    retry_after: Option<Duration>,
    body: Vec<u8>,
}

impl Writer {
    /// Carries an action out, and tells of it. `again`: it was refused before.
    async fn carry_out(&self, action: &Action, round: &Round, again: bool) -> Outcome {
        let outcome = match self.attempt(action, round).await {
            Ok(outcome) | Err(outcome) => outcome,
        };
        if let Outcome::Throttled(pause) = outcome {
            self.limiter().pause(Instant::now() + pause);
        }
        let Target { kind, namespace, name, .. } = &action.target;
        let (kind, verb, word) = (plural(*kind), verb(&action.write), outcome.as_str());
        self.metrics.wrote(kind, verb, word);
        match &outcome {
            Outcome::Refused(problem) | Outcome::Taken(problem) | Outcome::Unsure(problem) => {
                warn!(kind, %namespace, %name, verb, outcome = word, problem = &*shown(problem), "write");
            }
            _ => info!(kind, %namespace, %name, verb, outcome = word, "write"),
        }
        match &outcome {
            Outcome::Done => {
                let regarding = regarding(action);
                action.events.iter().for_each(|event| self.events.tell(&regarding, event));
            }
            Outcome::Refused(problem) => self.tell_refusal(action, problem),
            // At first it may be our own, which the watch has not shown yet.
            Outcome::Taken(problem) if again => {
                let problem = format!("{problem}, and it is not stowplan's: it stands in the way");
                self.tell_refusal(action, &problem);
            }
            _ => {}
        }
        outcome
    }

    /// Tells of a refused write whoever it matters to: who asked for it, and who waits for what is not
    /// made.
    fn tell_refusal(&self, action: &Action, problem: &str) {
        let waiting = self.waiting_for(action);
        let about = regarding(action);
        // What is to be made and belongs to nobody is not there to be looked at.
        if waiting.is_empty() || about.uid.is_some() {
            self.events.tell_once(&about, &refusal(action, problem));
        }
        let event = Event {
            warning: true,
            reason: PLACEHOLDER_NOT_MADE,
            note: format!("placeholder {} cannot be made: {problem}", action.target.name),
        };
        waiting.iter().for_each(|about| self.events.tell_once(about, &event));
    }

    /// The pods that wait for a placeholder which is to be made, and their TaskRuns.
    fn waiting_for(&self, action: &Action) -> Vec<core::ObjectReference> {
        let Target { kind: Kind::StatefulSet, namespace, name, .. } = &action.target else {
            return Vec::new();
        };
        if !matches!(action.write, Write::Create(_)) {
            return Vec::new();
        }
        let view = self.cluster.view();
        let mut found = Vec::new();
        for (pod, member) in view.members_of(&Name::new(namespace, name)) {
            if member.finished || member.node.is_some() {
                continue;
            }
            let uid = &member.identity.uid;
            found.push(reference(Kind::Pod, namespace, &pod.name, uid));
            let owner = member.task_run.as_ref();
            found.extend(
                owner.map(|owner| reference(Kind::TaskRun, namespace, &owner.name, &owner.uid)),
            );
        }
        found
    }

    /// Carries an action out. Both sides are how it ended.
    async fn attempt(&self, action: &Action, round: &Round) -> Result<Outcome, Outcome> {
        let Target { kind, name, uid, .. } = &action.target;
        let reduced;
        let write = match &action.write {
            Write::Release { operations, hashes } => {
                let claims = round.claims.get_or_try_init(|| self.claims()).await?;
                let held = release::held(claims, hashes, name, uid);
                let Some(operations) = release::without(operations, &held) else {
                    return Ok(Outcome::Kept);
                };
                reduced = Write::Patch(operations);
                &reduced
            }
            write => write,
        };
        let request = request(&action.target, write).map_err(Outcome::Refused)?;
        let answer = self.send(request, WRITE_TIMEOUT).await?;
        let outcome = judge(write, &answer);
        if outcome == Outcome::Done
            && let Some(object) = object(*kind, &answer.body)
        {
            self.cluster.learn(object);
        }
        Ok(outcome)
    }

    /// What all HostPools say of nodes, from the API server's own store and not from a cache.
    async fn claims(&self) -> Result<Vec<Claim>, Outcome> {
        let request = Request::new(api::HostPool::url_path(&(), None)).list(&ListParams::default());
        let request = request.map_err(|error| Outcome::Refused(error.to_string()))?;
        let answer = self.send(request, LIST_TIMEOUT).await?;
        if !answer.status.is_success() {
            return Err(judge(&Write::None, &answer));
        }
        let list: ObjectList<DeserializeGuard<api::HostPool>> =
            serde_json::from_slice(&answer.body)
                .map_err(|error| Outcome::Unsure(format!("the list of HostPools: {error}")))?;
        Ok(list.items.iter().map(Claim::of).collect())
    }

    /// Sends a request once its turn has come, if we still lead then.
    ///
    /// # Errors
    /// How it ended without an answer.
    async fn send(
        &self,
        request: hyper::Request<Vec<u8>>,
        patience: Duration,
    ) -> Result<Answer, Outcome> {
        let turn = self.limiter().turn(Instant::now());
        sleep_until(turn).await;
        if self.paused().is_some_and(|until| Instant::now() < until) {
            return Err(Outcome::Unsent);
        }
        let answer = async {
            // Nothing may come between this question and the request.
            if !self.leadership.is_held() {
                return Err(Outcome::Unsent);
            }
            let response = self.client.send(request.map(Body::from)).await;
            let (head, body) = response.map_err(|error| unsure(&error))?.into_parts();
            let body = body.collect().await.map_err(|error| unsure(&error))?;
            let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let seconds = retry_after.and_then(|value| value.parse().ok());
            Ok(Answer {
                status: head.status,
                retry_after: seconds.map(Duration::from_secs),
                body: body.to_bytes().to_vec(),
            })
        };
        match timeout(patience, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Outcome::Unsure(format!("no answer within {} s", patience.as_secs()))),
        }
    }

    fn limiter(&self) -> std::sync::MutexGuard<'_, Limiter> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when the API server wants no writes.
    fn paused(&self) -> Option<Instant> {
        self.limiter().paused_until
    }
}

fn unsure(error: &(dyn std::error::Error + 'static)) -> Outcome {
    Outcome::Unsure(causes(error))
}

/// A bucket of [`BURST`] tokens that is filled with [`RATE`] a second, and the API server's own wish.
#[derive(Debug, Default)]
struct Limiter {
    /// When the bucket is full again.
    full_at: Option<Instant>,
    paused_until: Option<Instant>,
}

impl Limiter {
    /// Takes a token, and says when it is there.
    fn turn(&mut self, now: Instant) -> Instant {
        let one = Duration::from_secs(1) / RATE;
        let full_at = self.full_at.map_or(now, |full_at| full_at.max(now)) + one;
        self.full_at = Some(full_at);
        full_at.checked_sub(one * BURST).map_or(now, |at| at.max(now))
    }

    fn pause(&mut self, until: Instant) {
        self.paused_until = Some(self.paused_until.map_or(until, |present| present.max(until)));
    }
}

/// The request that makes a write.
///
/// # Errors
/// Why there is none, for people.
fn request(target: &Target, write: &Write) -> Result<hyper::Request<Vec<u8>>, String> {
    let Target { kind, namespace, name, uid } = target;
    let namespace = Some(&**namespace).filter(|namespace| !namespace.is_empty());
    let request = Request::new(match kind {
        Kind::Node => core::Node::url_path(&(), None),
        Kind::Pod => core::Pod::url_path(&(), namespace),
        Kind::HostPool => api::HostPool::url_path(&(), namespace),
        Kind::StreamsJob => api::StreamsJob::url_path(&(), namespace),
        Kind::StatefulSet => apps::StatefulSet::url_path(&(), namespace),
        Kind::PersistentVolumeClaim => core::PersistentVolumeClaim::url_path(&(), namespace),
        Kind::PipelineRun | Kind::TaskRun => return Err("runs are only told of".to_owned()),
    });
    let manager = Some(MANAGER.to_owned());
    let patching = PatchParams { field_manager: manager.clone(), ..PatchParams::default() };
    let patch = |operations| Patch::<()>::Json(json_patch::Patch(operations));
    let request = match write {
        Write::Patch(operations) | Write::Release { operations, .. } => {
            request.patch(name, &patching, &patch(operations.clone()))
        }
        Write::Status { resource_version, status } => {
            let operations = status_patch(uid, resource_version, status);
            request.patch_subresource("status", name, &patching, &patch(operations))
        }
        Write::Create(object) => {
            let parameters = PostParams { field_manager: manager, ..PostParams::default() };
            request.create(&parameters, object.to_string().into_bytes())
        }
        Write::Delete { grace, version } => {
            let preconditions = Preconditions {
                uid: Some(uid.to_string()),
                resource_version: version.as_deref().map(str::to_owned),
            };
            let parameters = DeleteParams { grace_period_seconds: *grace, ..Default::default() };
            request.delete(name, &parameters.preconditions(preconditions))
        }
        Write::None => return Err("nothing is to be written".to_owned()),
    };
    request.map_err(|error| error.to_string())
}

/// A whole status, bound to a version: an object whose version is set to another than its present one
/// cannot be stored, and the API server answers 409.
fn status_patch(uid: &str, resource_version: &str, status: &Value) -> Vec<PatchOperation> {
    let at = |tokens: &[&str]| PointerBuf::from_tokens(tokens.iter().copied());
    vec![
        PatchOperation::Test(TestOperation { path: at(&["metadata", "uid"]), value: json!(uid) }),
        PatchOperation::Replace(ReplaceOperation {
            path: at(&["metadata", "resourceVersion"]),
            value: json!(resource_version),
        }),
        PatchOperation::Add(AddOperation { path: at(&["status"]), value: status.clone() }),
    ]
}

/// What an answer means for a write.
fn judge(write: &Write, answer: &Answer) -> Outcome {
    if answer.status.is_success() {
        return Outcome::Done;
    }
    let status = serde_json::from_slice::<Status>(&answer.body).ok();
    let problem = || {
        let message = status.as_ref().map(|status| status.message.clone());
        let message = message.filter(|message| !message.is_empty());
        message.unwrap_or_else(|| String::from_utf8_lossy(&answer.body).trim().to_owned())
    };
    let details = status.as_ref().and_then(|status| status.details.as_ref());
    match answer.status {
        // Of a namespace that is gone, or of a kind that is not installed.
        StatusCode::NOT_FOUND if matches!(write, Write::Create(_) | Write::None) => {
            Outcome::Refused(problem())
        }
        StatusCode::NOT_FOUND => Outcome::Gone,
        // A quota that another creation has just counted is a conflict, too.
        StatusCode::CONFLICT
            if matches!(write, Write::Create(_))
                && status.as_ref().is_some_and(|status| status.reason == "AlreadyExists") =>
        {
            Outcome::Taken(problem())
        }
        StatusCode::CONFLICT => Outcome::Conflict,
        // A failed `test` has no causes; a field that is not valid is one.
        StatusCode::UNPROCESSABLE_ENTITY
            if matches!(write, Write::Patch(_) | Write::Status { .. })
                && details.is_none_or(|details| details.causes.is_empty()) =>
        {
            Outcome::Conflict
        }
        StatusCode::TOO_MANY_REQUESTS => {
            let told = details.map(|details| u64::from(details.retry_after_seconds));
            let told = told.filter(|seconds| *seconds > 0).map(Duration::from_secs);
            let wait = answer.retry_after.or(told).unwrap_or(Duration::from_secs(1));
            Outcome::Throttled(wait.min(LONGEST_WAIT))
        }
        StatusCode::UNAUTHORIZED | StatusCode::REQUEST_TIMEOUT => Outcome::Unsure(problem()),
        status if status.is_client_error() => Outcome::Refused(problem()),
        status => Outcome::Unsure(format!("{status}: {}", problem())),
    }
}

/// The object that was answered, as the View takes it in.
fn object(kind: Kind, body: &[u8]) -> Option<Object> {
    fn read<K: DeserializeOwned>(body: &[u8]) -> Option<K> {
        // A Status after a deletion, or what the watch will tell of.
        serde_json::from_slice(body).ok()
    }
    match kind {
        Kind::Node => Object::whole_node(&read::<core::Node>(body)?),
        Kind::Pod => Object::whole_pod(&read::<core::Pod>(body)?),
        Kind::HostPool => Object::host_pool(&read::<api::HostPool>(body)?),
        Kind::StreamsJob => Object::streams_job(&read::<api::StreamsJob>(body)?),
        Kind::StatefulSet => Object::placeholder(&read::<apps::StatefulSet>(body)?, true),
        Kind::PersistentVolumeClaim => Object::claim(&read::<core::PersistentVolumeClaim>(body)?),
        Kind::PipelineRun | Kind::TaskRun => None,
    }
}

/// The object that an action's events are about: its target, or who owns one that is to be made.
fn regarding(action: &Action) -> core::ObjectReference {
    let Target { kind, namespace, name, uid } = &action.target;
    let reference = reference(*kind, namespace, name, uid);
    let Write::Create(object) = &action.write else { return reference };
    let owners = object["metadata"]["ownerReferences"].as_array();
    let owner = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
    let Some(owner) = owner else { return reference };
    let field = |name: &str| owner[name].as_str().map(str::to_owned);
    core::ObjectReference {
        api_version: field("apiVersion"),
        kind: field("kind"),
        name: field("name"),
        uid: field("uid"),
        ..reference
    }
}

fn reference(kind: Kind, namespace: &str, name: &str, uid: &str) -> core::ObjectReference {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let (version, kind) = match kind {
        Kind::Node => ("v1", "Node"),
        Kind::Pod => ("v1", "Pod"),
        Kind::HostPool => (api::VERSION, "HostPool"),
        Kind::StreamsJob => (api::VERSION, "StreamsJob"),
        Kind::StatefulSet => ("apps/v1", "StatefulSet"),
        Kind::PersistentVolumeClaim => ("v1", "PersistentVolumeClaim"),
        Kind::PipelineRun => ("tekton.dev/v1", "PipelineRun"),
        Kind::TaskRun => ("tekton.dev/v1", "TaskRun"),
    };
    core::ObjectReference {
        api_version: text(version),
        kind: text(kind),
        namespace: text(namespace),
        name: text(name),
        uid: text(uid),
        ..core::ObjectReference::default()
    }
}

/// What the users of an object are told of a write that was refused.
fn refusal(action: &Action, problem: &str) -> Event {
    let Target { kind, namespace, name, .. } = &action.target;
    let slash = if namespace.is_empty() { "" } else { "/" };
    let (verb, kind) = (verb(&action.write), plural(*kind));
    Event {
        warning: true,
        reason: "WriteRefused",
        note: format!(
            "the API server refuses to {verb} {kind} {namespace}{slash}{name}: {problem}; it is tried again, at least every 5 minutes"
        ),
    }
}

fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Node => "nodes",
        Kind::Pod => "pods",
        Kind::HostPool => "hostpools",
        Kind::StreamsJob => "streamsjobs",
        Kind::StatefulSet => "statefulsets",
        Kind::PersistentVolumeClaim => "persistentvolumeclaims",
        Kind::PipelineRun => "pipelineruns",
        Kind::TaskRun => "taskruns",
    }
}

fn verb(write: &Write) -> &'static str {
    match write {
        Write::Patch(_) => "patch",
        Write::Release { .. } => "release",
        Write::Status { .. } => "status",
        Write::Create(_) => "create",
        Write::Delete { .. } => "delete",
        Write::None => "none",
    }
}

/// Whether two writes are the same but for the times that are written, and but for the version that a
/// status is bound to: those of two plans differ, and a pause must outlast them.
fn is_alike(a: &Write, b: &Write) -> bool {
    let operations = |a: &[PatchOperation], b: &[PatchOperation]| {
        alike(
            &serde_json::to_value(a).unwrap_or_default(),
            &serde_json::to_value(b).unwrap_or_default(),
        )
    };
    match (a, b) {
        (Write::Patch(a), Write::Patch(b)) => operations(a, b),
        (
            Write::Release { operations: a, hashes: of_a },
            Write::Release { operations: b, hashes: of_b },
        ) => of_a == of_b && operations(a, b),
        (Write::Status { status: a, .. }, Write::Status { status: b, .. }) => alike(a, b),
        (Write::Create(a), Write::Create(b)) => alike(a, b),
        (Write::Delete { grace: a, .. }, Write::Delete { grace: b, .. }) => a == b,
        (a, b) => a == b,
    }
}

fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a == b || is_time(a) && is_time(b),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| alike(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Whether a text is a time, as RFC 3339 or in seconds since 1970.
fn is_time(text: &str) -> bool {
    let seconds = || text.len() >= 10 && text.bytes().all(|b| b.is_ascii_digit());
    seconds() || text.parse::<Timestamp>().is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::controller::fake::{Api as FakeApi, Reply};
    use crate::systems::coschedule::keys;
    use crate::view::{View, host_pool};

    const DELETE: Write = Write::Delete { grace: None, version: None };

    fn node(name: &str, version: u32, labels: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name, "uid": format!("uid-{name}"), "labels": labels,
                "resourceVersion": version.to_string(),
            },
        })
    }

    fn target(kind: Kind, name: &str) -> Target {
        let namespace = if kind == Kind::Node { "" } else { "ns" };
        Target {
            kind,
            namespace: namespace.into(),
            name: name.into(),
            uid: format!("uid-{name}").into(),
        }
    }

    fn label(name: &str, value: &str) -> Action {
        let operations = json!([
            {"op": "test", "path": "/metadata/uid", "value": format!("uid-{name}")},
            {"op": "add", "path": "/metadata/labels/x", "value": value},
        ]);
        Action {
            target: target(Kind::Node, name),
            write: Write::Patch(serde_json::from_value(operations).unwrap()),
            events: vec![event("Labelled", "done")],
        }
    }

    fn event(reason: &'static str, note: &str) -> Event {
        Event { warning: false, reason, note: note.to_owned() }
    }

    /// An executor with an API server, and a View of the nodes n0 to n29.
    struct Bench {
        api: FakeApi,
        cluster: Arc<Cluster>,
        leadership: Leadership,
        metrics: Arc<Metrics>,
        executor: Executor,
    }

    fn bench(
        answer: impl FnMut(&crate::controller::fake::Call) -> Reply + Send + 'static,
    ) -> Bench {
        let mut view = View::default();
        for number in 0..30 {
            let node = node(&format!("n{number}"), 1, &json!({}));
            view.apply(Object::whole_node(&serde_json::from_value(node).unwrap()).unwrap());
        }
        bench_with(view, answer)
    }

    fn bench_with(
        view: View,
        answer: impl FnMut(&crate::controller::fake::Call) -> Reply + Send + 'static,
    ) -> Bench {
        let api = FakeApi::new(answer);
        let metrics = Arc::new(Metrics::new());
        let cluster = Arc::new(Cluster::fixed(view, Arc::clone(&metrics)));
        let leadership = Leadership::none();
        leadership.set(Some(Instant::now() + Duration::from_secs(1_000_000)));
        let events = Events::start(api.client(), "me".to_owned(), Arc::clone(&metrics));
        let executor = Executor::new(
            api.client(),
            Arc::clone(&cluster),
            leadership.clone(),
            events,
            Arc::clone(&metrics),
        );
        Bench { api, cluster, leadership, metrics, executor }
    }

    impl Bench {
        /// Plans these actions again and again, as the loop does, for so long.
        async fn plan_for(&mut self, period: Duration, actions: impl Fn() -> Vec<Action>) {
            let end = Instant::now() + period;
            self.executor.take(actions());
            while timeout(end - Instant::now(), self.executor.next()).await.is_ok() {
                self.executor.take(actions());
            }
        }

        fn wrote(&self, kind: &'static str, verb: &'static str, outcome: &'static str) -> u64 {
            let labels = crate::telemetry::WriteLabels { kind, verb, outcome };
            self.metrics.controller_writes.get_or_create(&labels).get()
        }

        fn reasons(&self) -> Vec<String> {
            let events = self.api.events();
            events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn what_is_answered_is_learnt_and_only_then_told() {
        let mut bench = bench(|call| match call.method.as_str() {
            "PATCH" => Reply::json(200, &node("n1", 2, &json!({"x": "y"}))),
            _ => Reply::json(201, &call.body),
        });
        let mut changes = bench.cluster.changes();
        bench.executor.take(vec![label("n1", "y")]);
        assert_eq!(bench.metrics.controller_actions.get(), 1);
        bench.executor.next().await;
        assert!(changes.has_changed().unwrap(), "a new plan is due");
        changes.mark_unchanged();
        let labelled = bench.cluster.view().node("n1").unwrap().estate.clone().unwrap();
        assert_eq!(labelled.labels.get("x").map(AsRef::as_ref), Some("y"));
        tokio::time::sleep(SECOND).await;
        let calls = bench.api.calls();
        assert_eq!(calls.len(), 2, "{calls:?}");
        let (patch, event) = (&calls[0], &calls[1]);
        assert_eq!(
            (patch.path.as_str(), patch.query.as_str()),
            ("/api/v1/nodes/n1", "&fieldManager=stowplan-controller")
        );
        assert_eq!(patch.content_type, "application/json-patch+json");
        assert_eq!(
            patch.body[0],
            json!({"op": "test", "path": "/metadata/uid", "value": "uid-n1"})
        );
        assert_eq!(event.path, "/apis/events.k8s.io/v1/namespaces/default/events");
        assert_eq!(event.body["reason"], "Labelled");
        assert_eq!(
            event.body["regarding"],
            json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1"})
        );
        assert_eq!(event.body["reportingController"], "stowplan");
        assert_eq!(event.body["reportingInstance"], "me");
        assert_eq!(bench.wrote("nodes", "patch", "done"), 1);
        bench.executor.take(Vec::new());
        assert_eq!(bench.metrics.controller_actions.get(), 0);
    }

    fn answer(code: u16, body: &str) -> Answer {
        let status = StatusCode::from_u16(code).unwrap();
        Answer { status, retry_after: None, body: body.as_bytes().to_vec() }
    }

    #[test]
    fn answers_are_judged() {
        // As Kubernetes 1.36 words them.
        let failed_test = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server rejected our request due to an error in our request","reason":"Invalid","details":{},"code":422}"#;
        let invalid = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Node \"n1\" is invalid","reason":"Invalid","details":{"name":"n1","kind":"Node","causes":[{"reason":"FieldValueInvalid","message":"Invalid value","field":"metadata.labels"}]},"code":422}"#;
        let taken = r#"{"kind":"Status","status":"Failure","message":"there is one","reason":"AlreadyExists","code":409}"#;
        let counted = r#"{"kind":"Status","status":"Failure","message":"the object has been modified","reason":"Conflict","code":409}"#;
        let busy = r#"{"kind":"Status","status":"Failure","message":"later","reason":"TooManyRequests","details":{"retryAfterSeconds":7},"code":429}"#;
        let refused = |text: &str| Outcome::Refused(text.to_owned());
        let unsure = |text: &str| Outcome::Unsure(text.to_owned());
        let patch = label("n1", "y").write;
        let status = Write::Status { resource_version: "1".into(), status: json!({}) };
        let create = Write::Create(json!({}));
        for (write, answer, outcome) in [
            (&patch, answer(200, "{}"), Outcome::Done),
            (&create, answer(201, "{}"), Outcome::Done),
            (&DELETE, answer(202, "{}"), Outcome::Done),
            (&patch, answer(404, ""), Outcome::Gone),
            (&status, answer(404, ""), Outcome::Gone),
            (&DELETE, answer(404, ""), Outcome::Gone),
            (&create, answer(404, "no such namespace"), refused("no such namespace")),
            (&patch, answer(409, ""), Outcome::Conflict),
            (&status, answer(409, ""), Outcome::Conflict),
            (&create, answer(409, taken), Outcome::Taken("there is one".to_owned())),
            (&create, answer(409, counted), Outcome::Conflict),
            (&create, answer(409, ""), Outcome::Conflict),
            (&DELETE, answer(409, ""), Outcome::Conflict),
            (&patch, answer(422, failed_test), Outcome::Conflict),
            (&status, answer(422, failed_test), Outcome::Conflict),
            (&patch, answer(422, invalid), refused("Node \"n1\" is invalid")),
            (
                &create,
                answer(422, failed_test),
                refused("the server rejected our request due to an error in our request"),
            ),
            (&patch, answer(403, "no\n"), refused("no")),
            (&patch, answer(400, "what?"), refused("what?")),
            (&patch, answer(401, "who?"), unsure("who?")),
            (&patch, answer(429, "Too many requests"), Outcome::Throttled(SECOND)),
            (&patch, answer(429, busy), Outcome::Throttled(SECOND * 7)),
            (
                &patch,
                Answer { retry_after: Some(SECOND * 3), ..answer(429, busy) },
                Outcome::Throttled(SECOND * 3),
            ),
            (
                &patch,
                Answer { retry_after: Some(SECOND * 9999), ..answer(429, "") },
                Outcome::Throttled(LONGEST_WAIT),
            ),
            (&patch, answer(500, "oh"), unsure("500 Internal Server Error: oh")),
            (
                &patch,
                answer(504, failed_test),
                unsure(
                    "504 Gateway Timeout: the server rejected our request due to an error in our request",
                ),
            ),
            (&patch, answer(302, ""), unsure("302 Found: ")),
        ] {
            assert_eq!(judge(write, &answer), outcome, "{write:?} {}", answer.status);
        }
    }

    /// How often the write of one node is tried within a minute that is always answered so.
    async fn tries(reply: impl Fn() -> Reply + Send + 'static) -> (Vec<Duration>, Bench) {
        let start = Instant::now();
        let times = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&times);
        let mut bench = bench(move |call| {
            if call.path.contains("/events") {
                return Reply::json(201, &call.body);
            }
            seen.lock().unwrap().push(start.elapsed());
            reply()
        });
        bench.plan_for(SECOND * 60, || vec![label("n1", "y")]).await;
        let times = times.lock().unwrap().clone();
        (times, bench)
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_with_each_failure_of_a_kind() {
        // Each pause is up to twice as long as its kind says.
        let (times, bench) = tries(|| Reply::status(409, "Conflict")).await;
        assert!((15..=40).contains(&times.len()), "{times:?}");
        assert!(times[1] <= Duration::from_millis(250), "soon: {times:?}");
        assert!(bench.reasons().is_empty(), "nobody needs to know");

        let (times, bench) = tries(|| Reply::status(500, "InternalError")).await;
        assert!((5..=9).contains(&times.len()), "{times:?}");
        assert!(bench.reasons().is_empty());

        let (times, bench) = tries(|| Reply::Drop).await;
        assert!((5..=9).contains(&times.len()), "an answer that is lost: {times:?}");
        assert_eq!(bench.wrote("nodes", "patch", "unsure"), times.len() as u64);

        let (times, bench) = tries(|| Reply::Hang).await;
        assert!((3..=7).contains(&times.len()), "{times:?}");
        assert!(times[1] >= WRITE_TIMEOUT, "one at a time: {times:?}");
        drop(bench);

        let (times, bench) = tries(|| Reply::status(403, "Forbidden")).await;
        assert!((5..=6).contains(&times.len()), "{times:?}");
        assert_eq!(bench.reasons(), ["WriteRefused"], "told once");
        let note = bench.api.events()[0]["note"].as_str().unwrap().to_owned();
        assert!(note.contains("patch nodes n1: because of Forbidden; "), "{note}");

        let (times, bench) = tries(|| Reply::json(200, &node("n1", 2, &json!({})))).await;
        assert!((6..=10).contains(&times.len()), "somebody takes it back: {times:?}");
        assert_eq!(bench.wrote("nodes", "patch", "done"), times.len() as u64);

        let (times, _) = tries(|| Reply::status(404, "NotFound")).await;
        assert!((29..=31).contains(&times.len()), "until the watch shows it: {times:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_undone_once_is_done_again_at_once() {
        let mut bench = bench(|_| Reply::json(200, &node("n1", 2, &json!({}))));
        for _ in 0..5 {
            bench.executor.take(vec![label("n1", "y")]);
            bench.executor.next().await;
            // The View shows it.
            bench.executor.take(Vec::new());
        }
        assert_eq!(bench.api.writes().len(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_ends_with_another_write_but_not_with_another_time() {
        let mut bench = bench(|_| Reply::status(403, "Forbidden"));
        let times = AtomicU32::new(0);
        let status = |status: &str| {
            let seconds = times.fetch_add(1, Ordering::SeqCst) % 60;
            let since = format!("2026-01-01T00:00:{seconds:02}Z");
            let status = json!({"state": status, "members": [{"since": since}]});
            // Versions go on, too.
            let resource_version = (100 + seconds).to_string().into();
            let write = Write::Status { resource_version, status };
            vec![Action { target: target(Kind::HostPool, "p"), write, events: Vec::new() }]
        };
        bench.plan_for(SECOND / 2, || status("a")).await;
        for _ in 0..50 {
            bench.executor.take(status("a"));
            bench.executor.begin();
        }
        assert_eq!(bench.api.writes().len(), 1);
        bench.plan_for(SECOND / 2, || status("b")).await;
        let writes = bench.api.writes();
        assert_eq!(writes.len(), 2, "{writes:?}");
        assert_eq!(writes[1].path, "/apis/stowplan.dev/v1alpha1/namespaces/ns/hostpools/p/status");
        assert_eq!(
            writes[1].body[0],
            json!({"op": "test", "path": "/metadata/uid", "value": "uid-p"})
        );
        assert_eq!(
            writes[1].body[1],
            json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "152"})
        );
        assert_eq!(writes[1].body[2]["op"], "add");
        assert_eq!(writes[1].body[2]["path"], "/status");
        assert_eq!(writes[1].body[2]["value"]["state"], "b");
    }

    #[test]
    fn times_are_not_what_makes_a_write_another_one() {
        for (a, b, alike_) in [
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01.5Z", true),
            ("1790000000", "1790000001", true),
            ("1", "2", false),
            ("n1", "n2", false),
            ("2026-01-01T00:00:00Z", "n1", false),
        ] {
            let value = |text| json!({"a": [{"b": text}], "c": 1});
            assert_eq!(alike(&value(a), &value(b)), alike_, "{a} {b}");
        }
        assert!(!alike(&json!({"a": 1}), &json!({"a": 1, "b": 2})));
        assert!(!alike(&json!([1]), &json!([1, 1])));
        assert!(!is_alike(&label("n1", "a").write, &label("n1", "b").write));
        assert!(!is_alike(&label("n1", "a").write, &DELETE));
        assert!(is_alike(&DELETE, &DELETE));
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_api_server_is_busy_nothing_is_written() {
        let start = Instant::now();
        let times = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&times);
        let mut bench = bench(move |call| {
            if call.path.contains("/events") {
                return Reply::json(201, &call.body);
            }
            let mut seen = seen.lock().unwrap();
            seen.push(start.elapsed());
            match seen.len() {
                1 => Reply::Answer { code: 429, retry_after: Some("9"), body: b"later".to_vec() },
                _ => Reply::json(200, &node("n1", 2, &json!({}))),
            }
        });
        let busy = vec![label("n1", "y")];
        bench.plan_for(SECOND, || busy.clone()).await;
        bench.plan_for(SECOND * 7, || vec![label("n1", "y"), label("n2", "y")]).await;
        assert_eq!(times.lock().unwrap().len(), 1);
        bench.plan_for(SECOND * 3 / 2, || vec![label("n2", "y")]).await;
        let times = times.lock().unwrap().clone();
        assert!(times.len() > 1 && times[1] >= SECOND * 9, "{times:?}");
        assert_eq!(bench.wrote("nodes", "patch", "throttled"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_created_or_deleted_rests_until_the_watch_shows_it() {
        for (write, path) in [
            (
                Write::Create(json!({"metadata": {"name": "p"}})),
                "/apis/stowplan.dev/v1alpha1/namespaces/ns/hostpools",
            ),
            (DELETE, "/apis/stowplan.dev/v1alpha1/namespaces/ns/hostpools/p"),
        ] {
            let mut bench = bench(|_| Reply::status(200, "Success"));
            let plan = || {
                vec![Action {
                    target: target(Kind::HostPool, "p"),
                    write: write.clone(),
                    events: Vec::new(),
                }]
            };
            bench.plan_for(SETTLE - Duration::from_millis(1), plan).await;
            let writes = bench.api.writes();
            assert_eq!(writes.len(), 1, "{writes:?}");
            assert_eq!(writes[0].path, path);
            if write == DELETE {
                assert_eq!(writes[0].body["preconditions"], json!({"uid": "uid-p"}));
            }
            bench.plan_for(SECOND, plan).await;
            assert_eq!(bench.api.writes().len(), 2, "then it is asked for again");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_creation_is_told_to_who_asked_for_it() {
        let mut bench = bench(|call| match call.path.contains("/events") {
            true => Reply::json(201, &call.body),
            false => Reply::status(403, "Forbidden"),
        });
        let owner = json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob", "name": "j", "uid": "uid-j", "controller": true});
        let object = json!({"metadata": {"name": "p", "ownerReferences": [owner]}});
        let mut target = target(Kind::HostPool, "p");
        target.uid = "".into();
        let action = Action { target, write: Write::Create(object), events: Vec::new() };
        bench.plan_for(SECOND, || vec![action.clone()]).await;
        let events = bench.api.events();
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(
            events[0]["regarding"],
            json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob", "namespace": "ns", "name": "j", "uid": "uid-j"})
        );
    }

    /// A View with a member of the native group `g` that waits, and its placeholder's name.
    fn waiting_member() -> (View, String) {
        let mut view = View::default();
        let placeholder = keys::of_native("ns", "g");
        let pod = json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a",
                "labels": {keys::MEMBER: placeholder}, "annotations": {keys::GROUP: "g"}},
            "spec": {"containers": []},
        });
        let pod = Object::whole_pod(&serde_json::from_value(pod).unwrap()).unwrap();
        view.apply(pod);
        (view, placeholder)
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_placeholder_that_is_refused_those_who_wait_for_it_hear() {
        let (view, placeholder) = waiting_member();
        let mut bench = bench_with(view, |call| match call.path.contains("/events") {
            true => Reply::json(201, &call.body),
            false => Reply::status(403, "exceeded quota"),
        });
        let mut target = target(Kind::StatefulSet, &placeholder);
        target.uid = "".into();
        let write = Write::Create(json!({"metadata": {"name": placeholder}}));
        let action = Action { target, write, events: Vec::new() };
        bench.plan_for(SECOND * 30, || vec![action.clone()]).await;
        let events = bench.api.events();
        assert_eq!(events.len(), 1, "nothing about what is not there: {events:?}");
        assert_eq!(events[0]["reason"], "PlaceholderNotMade");
        assert_eq!(
            events[0]["regarding"],
            json!({"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "a", "uid": "uid-a"})
        );
        assert!(events[0]["note"].as_str().unwrap().contains("exceeded quota"), "{events:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_taken_is_told_and_tried_more_and_more_rarely() {
        let (view, placeholder) = waiting_member();
        let mut bench = bench_with(view, |call| match call.path.contains("/events") {
            true => Reply::json(201, &call.body),
            false => Reply::status(409, "AlreadyExists"),
        });
        let mut target = target(Kind::StatefulSet, &placeholder);
        target.uid = "".into();
        let write = Write::Create(json!({"metadata": {"name": placeholder}}));
        let action = Action { target, write, events: Vec::new() };
        bench.plan_for(SECOND / 2, || vec![action.clone()]).await;
        assert!(bench.api.events().is_empty(), "it may be our own");
        bench.plan_for(SECOND * 60, || vec![action.clone()]).await;
        assert!((5..=7).contains(&bench.api.writes().len()), "{:?}", bench.api.writes());
        let events = bench.api.events();
        assert_eq!(events.len(), 1, "{events:?}");
        let note = events[0]["note"].as_str().unwrap();
        assert!(note.contains(&placeholder) && note.contains("stands in the way"), "{note}");
    }

    #[test]
    fn a_deletion_says_of_which_object_in_which_version_and_how_soon() {
        let sent = |grace, version: Option<&str>| {
            let write = Write::Delete { grace, version: version.map(Into::into) };
            let request = request(&target(Kind::Pod, "p"), &write).unwrap();
            assert_eq!(request.method(), "DELETE");
            assert_eq!(request.uri().path(), "/api/v1/namespaces/ns/pods/p");
            let body: Value = serde_json::from_slice(request.body()).unwrap();
            (body["preconditions"].clone(), body["gracePeriodSeconds"].clone())
        };
        assert_eq!(sent(None, None), (json!({"uid": "uid-p"}), Value::Null));
        assert_eq!(
            sent(Some(0), Some("7")),
            (json!({"uid": "uid-p", "resourceVersion": "7"}), json!(0))
        );
    }

    #[test]
    fn the_kinds_of_groups_have_their_places_and_runs_are_never_written() {
        let path = |kind, write: &Write| {
            request(&target(kind, "x"), write).map(|request| request.uri().path().to_owned())
        };
        assert_eq!(
            path(Kind::StatefulSet, &Write::Create(json!({}))).unwrap(),
            "/apis/apps/v1/namespaces/ns/statefulsets"
        );
        assert_eq!(
            path(Kind::PersistentVolumeClaim, &DELETE).unwrap(),
            "/api/v1/namespaces/ns/persistentvolumeclaims/x"
        );
        for kind in [Kind::PipelineRun, Kind::TaskRun] {
            assert!(path(kind, &DELETE).is_err());
            let told = Action { target: target(kind, "x"), write: Write::None, events: vec![] };
            let about = regarding(&told);
            assert_eq!(about.api_version.as_deref(), Some("tekton.dev/v1"));
            assert_eq!(about.uid.as_deref(), Some("uid-x"));
        }
    }

    fn release(name: &str, hashes: &[String]) -> Action {
        let uid = json!({"op": "test", "path": "/metadata/uid", "value": format!("uid-{name}")});
        let labels = hashes.iter().map(|hash| {
            json!({"op": "remove", "path": format!("/metadata/labels/pool.stowplan.node-restriction.kubernetes.io~1{hash}")})
        });
        let operations = Value::Array([uid].into_iter().chain(labels).collect());
        Action {
            target: target(Kind::Node, name),
            write: Write::Release {
                operations: serde_json::from_value(operations).unwrap(),
                hashes: hashes.to_vec(),
            },
            events: Vec::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn marks_are_taken_back_only_where_the_api_server_itself_says_so() {
        let pool = json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
            "metadata": {"name": "p", "namespace": "ns", "uid": "p"}, "spec": {"size": 1},
            "status": {"members": [
                {"index": 0, "node": "n1", "uid": "uid-n1", "state": "Ready", "since": "2026-01-01T00:00:00Z"},
            ]},
        });
        let list = json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPoolList", "metadata": {}, "items": [pool]});
        let mut bench = bench(move |call| match call.method.as_str() {
            "GET" => Reply::json(200, &list),
            _ => Reply::json(200, &node("n2", 2, &json!({}))),
        });
        let (alive, dead) = (host_pool::hash("p"), host_pool::hash("q"));
        bench.executor.take(vec![
            release("n1", std::slice::from_ref(&alive)),
            release("n2", &[alive.clone(), dead.clone()]),
            release("n3", std::slice::from_ref(&dead)),
        ]);
        for _ in 0..3 {
            bench.executor.next().await;
        }
        let calls = bench.api.calls();
        let lists: Vec<_> = calls.iter().filter(|call| call.method == "GET").collect();
        assert_eq!(lists.len(), 1, "one for the round: {calls:?}");
        assert_eq!(lists[0].path, "/apis/stowplan.dev/v1alpha1/hostpools");
        assert!(!lists[0].query.contains("resourceVersion"), "{}", lists[0].query);
        let paths: Vec<_> = calls[1..].iter().map(|call| call.path.as_str()).collect();
        assert_eq!(paths, ["/api/v1/nodes/n2", "/api/v1/nodes/n3"]);
        assert_eq!(bench.wrote("nodes", "release", "kept"), 1);
        assert_eq!(bench.wrote("nodes", "release", "done"), 2);
        for (node, pause, lists) in [("n4", ROUND / 2, 1), ("n5", ROUND / 2, 2)] {
            tokio::time::sleep(pause).await;
            bench.executor.take(vec![release(node, std::slice::from_ref(&dead))]);
            bench.executor.next().await;
            let calls = bench.api.calls().into_iter().filter(|call| call.method == "GET");
            assert_eq!(calls.count(), lists, "the next plan of the second, and the one after it");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_list_no_mark_is_taken_back() {
        for reply in [
            || Reply::status(500, "InternalError"),
            || Reply::json(200, &json!("no list")),
            || Reply::Drop,
        ] {
            let mut bench = bench(move |_| reply());
            bench.plan_for(SECOND * 20, || vec![release("n1", &[host_pool::hash("q")])]).await;
            let calls = bench.api.calls();
            assert!((2..10).contains(&calls.len()), "{calls:?}");
            assert!(calls.iter().all(|call| call.method == "GET"), "{calls:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn eight_at_once_and_each_object_once() {
        let mut bench = bench(|call| match call.path.strip_prefix("/api/v1/nodes/") {
            Some(name) => Reply::Late(200, node(name, 2, &json!({}))),
            None => Reply::Late(201, call.body.clone()),
        });
        let all = || (0..30).map(|number| label(&format!("n{number}"), "y")).collect::<Vec<_>>();
        bench.executor.take(all());
        for _ in 0..30 {
            // Planned again in the middle of it: who is busy is left alone.
            assert!(bench.executor.running.len() <= CONCURRENCY);
            bench.executor.next().await;
        }
        assert!(bench.executor.running.is_empty() && bench.executor.waiting.is_empty());
        // The events have one place of their own.
        assert!(
            (CONCURRENCY..=CONCURRENCY + 1).contains(&bench.api.most()),
            "{}",
            bench.api.most()
        );
        let mut paths: Vec<_> = bench.api.writes().into_iter().map(|call| call.path).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!((paths.len(), bench.api.writes().len()), (30, 30));

        bench.executor.take(all());
        bench.executor.begin();
        bench.executor.take(all());
        assert_eq!(bench.executor.running.len(), CONCURRENCY);
        assert_eq!(
            bench.executor.waiting.len(),
            30 - CONCURRENCY,
            "who is busy does not wait, too"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn two_wishes_for_one_object_are_never_under_way_at_once() {
        let mut bench = bench(|_| Reply::Hang);
        bench.executor.take(vec![label("n1", "a"), label("n1", "b"), label("n2", "c")]);
        bench.executor.begin();
        assert_eq!(bench.executor.running.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_lead_writes_nothing() {
        let mut bench = bench(|_| Reply::json(200, &node("n1", 2, &json!({}))));
        bench.leadership.set(Some(Instant::now() + SECOND));
        tokio::time::advance(SECOND).await;
        bench.executor.take(vec![label("n1", "y")]);
        bench.executor.next().await;
        assert!(bench.api.calls().is_empty());
        assert_eq!(bench.wrote("nodes", "patch", "unsent"), 1);
        bench.leadership.set(Some(Instant::now() + SECOND));
        bench.executor.take(vec![label("n1", "y")]);
        bench.executor.next().await;
        assert_eq!(bench.wrote("nodes", "patch", "done"), 1);
    }

    #[test]
    fn a_hundred_at_once_and_fifty_a_second() {
        let start = Instant::now();
        let mut limiter = Limiter::default();
        let turns: Vec<Duration> = (0..200).map(|_| limiter.turn(start) - start).collect();
        assert!(turns[..100].iter().all(|wait| wait.is_zero()), "{turns:?}");
        assert_eq!(turns[100], Duration::from_millis(20));
        assert_eq!(turns[149], SECOND);
        // The bucket is full again after its time.
        let later = start + SECOND * 60;
        assert!((0..100).all(|_| limiter.turn(later) == later));
        assert!(limiter.turn(later) > later);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_only_told_is_told_once() {
        let mut bench = bench(|call| Reply::json(201, &call.body));
        let told = |note: &str| Action {
            target: target(Kind::Pod, "p"),
            write: Write::None,
            events: vec![Event { warning: true, reason: "NotPlaced", note: note.to_owned() }],
        };
        for note in ["a", "a", "b", "a", "b"] {
            bench.executor.take(vec![told(note)]);
            let _ = timeout(SECOND, bench.executor.next()).await;
        }
        let events = bench.api.events();
        let notes: Vec<_> = events.iter().map(|event| event["note"].as_str().unwrap()).collect();
        assert_eq!(notes, ["a", "b"]);
        assert_eq!(events[0]["type"], "Warning");
        assert!(bench.api.writes().is_empty());
        assert_eq!(bench.metrics.controller_actions.get(), 0);
    }

    #[test]
    fn an_answer_becomes_the_object_that_the_view_holds() {
        let meta =
            json!({"name": "x", "namespace": "ns", "uid": "u", "labels": {"app": "streams"}});
        let body = |version: &str, kind: &str| {
            let mut body =
                json!({"apiVersion": version, "kind": kind, "metadata": meta, "spec": {}});
            if kind == "Pod" {
                body["spec"] = json!({"containers": []});
            }
            body.to_string().into_bytes()
        };
        let name = Name::new("ns", "x");
        let pod = object(Kind::Pod, &body("v1", "Pod"));
        assert!(matches!(pod, Some(Object::Pod(found, _)) if found == name));
        let pool = object(Kind::HostPool, &body(api::VERSION, "HostPool"));
        assert!(matches!(pool, Some(Object::HostPool(found, _)) if found == name));
        let job = object(Kind::StreamsJob, &body(api::VERSION, "StreamsJob"));
        assert!(matches!(job, Some(Object::StreamsJob(found, _)) if found == name));
        assert!(matches!(object(Kind::Node, &body("v1", "Node")), Some(Object::Node(..))));
        for answer in [&body("v1", "Status")[..], b"{}", b"", b"\xff"] {
            assert!(object(Kind::Node, answer).is_none());
        }
    }
}
