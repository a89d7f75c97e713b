//! Carries out what a plan asks for.
//!
//! At most one write an object is under way, and [`CONCURRENCY`] in all. A write is asked for by each
//! plan until the View shows that it is done, so nothing is queued beyond the latest plan and nothing
//! needs to be undone: what fails is simply planned again, after a pause.
//!
//! | Answer | What it means | Then |
//! | --- | --- | --- |
//! | success | done | the View learns the answered object; the events are told |
//! | 404 | the object is gone | nothing, once the watch has seen that |
//! | 409, or the 422 of a failed `test` | the object is another than the one that was planned on | a short pause |
//! | 403, 422, other 4xx | somebody has to act | an event, and a long pause |
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
use tracing::{debug, info, warn};

use super::causes;
use super::events::Events;
use super::lease::Leadership;
use super::release::{self, Claim};
use crate::api;
use crate::cluster::Cluster;
use crate::systems::plan::{Action, Event, Kind, Target, Write};
use crate::telemetry::{Metrics, shown};
use crate::view::Object;

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
}

impl Trouble {
    /// The pauses of this kind: from the first to the last, each with up to as much again by chance.
    fn pauses(self) -> ExponentialBackoff {
        let (first, last) = match self {
            Self::Conflict => (Duration::from_millis(100), Duration::from_millis(2500)),
            Self::Unsure => (Duration::from_millis(500), Duration::from_secs(15)),
            Self::Refused => (Duration::from_secs(1), Duration::from_secs(150)),
        };
        let pauses = ExponentialBuilder::new().with_min_delay(first).with_max_delay(last);
        pauses.without_max_times().with_jitter().build()
    }
}

/// One plan's actions. They share one list of HostPools.
#[derive(Debug, Default)]
struct Round {
    claims: OnceCell<Vec<Claim>>,
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
            Self::Refused(_) => "refused",
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
            round: Arc::default(),
        }
    }

    /// Takes what the latest plan asks for in place of what the one before did.
    pub fn take(&mut self, actions: Vec<Action>) {
        let now = Instant::now();
        self.round = Arc::default();
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
            self.busy.insert(action.target.clone());
            let (writer, round) = (Arc::clone(&self.writer), Arc::clone(&self.round));
            self.running.push(Box::pin(async move {
                let outcome = writer.carry_out(&action, &round).await;
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
                Write::Create(_) | Write::Delete => None,
                _ => {
                    self.resting.remove(&action.target);
                    return;
                }
            },
            Outcome::Gone | Outcome::Kept => None,
            Outcome::Conflict => Some(Trouble::Conflict),
            Outcome::Refused(_) => Some(Trouble::Refused),
            Outcome::Unsure(_) => Some(Trouble::Unsure),
            // It is the turn of others first, for as long as the pause lasts.
            Outcome::Throttled(_) | Outcome::Unsent => return,
        };
        let before = self.resting.remove(&action.target).and_then(|rest| rest.trouble);
        let (pause, trouble) = match trouble {
            None => (SETTLE, None),
            Some(trouble) => {
                let same = before.filter(|(before, _)| *before == trouble);
                let mut pauses = same.map_or_else(|| trouble.pauses(), |(_, pauses)| pauses);
                (pauses.next().unwrap_or(SETTLE), Some((trouble, pauses)))
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
    async fn carry_out(&self, action: &Action, round: &Round) -> Outcome {
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
            Outcome::Refused(problem) | Outcome::Unsure(problem) => {
                warn!(kind, %namespace, %name, verb, outcome = word, problem = &*shown(problem), "write");
            }
            _ => info!(kind, %namespace, %name, verb, outcome = word, "write"),
        }
        match &outcome {
            Outcome::Done => {
                let regarding = regarding(action);
                action.events.iter().for_each(|event| self.events.tell(&regarding, event));
            }
            Outcome::Refused(problem) => {
                let event = refusal(action, problem);
                self.events.tell_once(&regarding(action), &event);
            }
            _ => {}
        }
        outcome
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
        Write::Delete => {
            let preconditions =
                Preconditions { uid: Some(uid.to_string()), ..Preconditions::default() };
            request.delete(name, &DeleteParams::default().preconditions(preconditions))
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
        // A Status after a deletion; else the watch will tell.
        serde_json::from_slice(body)
            .inspect_err(|error| debug!(%error, "an answer is not the object that was written"))
            .ok()
    }
    match kind {
        Kind::Node => Object::whole_node(&read::<core::Node>(body)?),
        Kind::Pod => Object::whole_pod(&read::<core::Pod>(body)?),
        Kind::HostPool => Object::host_pool(&read::<api::HostPool>(body)?),
        Kind::StreamsJob => Object::streams_job(&read::<api::StreamsJob>(body)?),
    }
}

/// The object that an action's events are about: its target, or who owns one that is to be made.
fn regarding(action: &Action) -> core::ObjectReference {
    let Target { kind, namespace, name, uid } = &action.target;
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let (version, kind) = match kind {
        Kind::Node => ("v1", "Node"),
        Kind::Pod => ("v1", "Pod"),
        Kind::HostPool => (api::VERSION, "HostPool"),
        Kind::StreamsJob => (api::VERSION, "StreamsJob"),
    };
    let reference = core::ObjectReference {
        api_version: text(version),
        kind: text(kind),
        namespace: text(namespace),
        name: text(name),
        uid: text(uid),
        ..core::ObjectReference::default()
    };
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
    }
}

fn verb(write: &Write) -> &'static str {
    match write {
        Write::Patch(_) => "patch",
        Write::Release { .. } => "release",
        Write::Status { .. } => "status",
        Write::Create(_) => "create",
        Write::Delete => "delete",
        Write::None => "none",
    }
}

/// Whether two writes are the same but for the times that are written: those of two plans always
/// differ, and a pause must outlast them.
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
        (
            Write::Status { resource_version: of_a, status: a },
            Write::Status { resource_version: of_b, status: b },
        ) => of_a == of_b && alike(a, b),
        (Write::Create(a), Write::Create(b)) => alike(a, b),
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
