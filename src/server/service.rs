//! Answers the HTTP requests of the API server with decisions.
//!
//! Nothing here blocks, calls other services, or keeps data of a request after its answer. An
//! internal error is never a refusal: it is 503 with `Retry-After` if trying again can help (the
//! API server does), else 500, and the cluster's failurePolicy decides whether the object is
//! admitted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Bytes};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{Level, Span, debug, enabled, error, info, info_span, warn};

pub use super::activity::Client;
use super::bodies::{LargeBodies, Turn};
use super::failure::Failure;
use super::limits::{Limits, MAX_BODY};
use crate::cluster::Cluster;
use crate::telemetry::{Metrics, Throttle, shown};
use stowplan_core::admission::validate::validate;
use stowplan_core::admission::{Decision, ParseError, Review, answer, decide};
use stowplan_core::systems::View;
use stowplan_core::systems::policy::Policy;

/// The path to which the API server sends pods and claims.
pub const PATH: &str = "/mutate";

/// The path to which the API server sends stowplan's own objects for validation.
pub const VALIDATE: &str = "/validate";

/// The bytes for one permit of a semaphore; `acquire_many` takes a `u32`.
const BODY_UNIT: usize = 1024;

/// The function that decides: [`decide`] or `validate`, or in tests one that fails.
pub type Decide = fn(&Review<'_>, &View, &Policy) -> Result<Decision, ParseError>;

/// Answers requests, within the limits on memory and concurrency.
#[derive(Debug)]
pub struct Service {
    cluster: Arc<Cluster>,
    policy: Arc<ArcSwapOption<Policy>>,
    metrics: Arc<Metrics>,
    limits: Limits,
    decide: Decide,
    /// A permit for each request whose body is read.
    reading: Semaphore,
    /// A permit for each request that is decided.
    deciding: Semaphore,
    /// A permit for each request that waits for objects, and for the bytes of its body.
    waiting: Semaphore,
    waiting_bytes: Semaphore,
    large: LargeBodies,
    throttle: Throttle,
}

/// The body of a request, and the bytes of a large one that others may not use until this is dropped.
type Received<'s> = (Bytes, Option<SemaphorePermit<'s>>);

impl Service {
    /// A service that decides on `cluster` by `policy`, and decides nothing while there is none.
    #[must_use]
    pub fn new(
        cluster: Arc<Cluster>,
        policy: Arc<ArcSwapOption<Policy>>,
        metrics: Arc<Metrics>,
        limits: Limits,
    ) -> Self {
        Self {
            cluster,
            policy,
            metrics,
            decide,
            reading: Semaphore::new(limits.connections),
            deciding: Semaphore::new(limits.requests),
            waiting: Semaphore::new(limits.waiting),
            waiting_bytes: Semaphore::new(limits.waiting_bytes / BODY_UNIT),
            large: LargeBodies::new(limits.large_bytes),
            throttle: Throttle::new(),
            limits,
        }
    }

    /// Replaces the function that decides on pods and claims.
    #[must_use]
    pub fn deciding_by(mut self, decide: Decide) -> Self {
        self.decide = decide;
        self
    }

    /// The metrics in which the service counts requests.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Answers one request of `client`.
    pub async fn answer<B>(&self, request: Request<B>, client: &Client) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
    {
        let started = Instant::now();
        let _in_flight = self.metrics.begin_request();
        match self.handle(request, client, started).await {
            Ok(json) => respond(StatusCode::OK, "application/json", json),
            Err(failure) => {
                let (_, reason) = failure.describe();
                self.metrics.count_failure(reason);
                // Any client of the port can cause failures at any rate: the metric counts all of
                // them, the log shows some.
                if self.throttle.try_pass() {
                    warn!(reason, why = &*shown(&failure.to_string()), "no decision");
                }
                failure.response()
            }
        }
    }

    async fn handle<B>(
        &self,
        request: Request<B>,
        client: &Client,
        started: Instant,
    ) -> Result<Vec<u8>, Failure>
    where
        B: Body<Data = Bytes>,
    {
        let budget =
            parse_timeout(request.uri().query()).unwrap_or(self.limits.body).min(MAX_TIMEOUT);
        let decide = self.route(&request);
        let mut body = std::pin::pin!(request.into_body());
        if body.size_hint().lower() > MAX_BODY as u64 {
            return Err(Failure::TooLarge);
        }
        let received = async {
            let decide = decide?;
            let read = timeout_at(started + budget, self.read(body.as_mut(), client)).await;
            let (bytes, large) = read.unwrap_or(Err(Failure::BodyTimeout))?;
            Ok::<_, Failure>((decide, bytes, large))
        };
        let (decide, bytes, _large) = match received.await {
            Ok(received) => received,
            Err(failure) => {
                if failure.keeps_connection() {
                    // The body is read and discarded, so that the client can stop sending and read
                    // the answer, and the connection can be used again.
                    discard(body, started + budget.min(self.limits.head)).await;
                }
                return Err(failure);
            }
        };
        let _owed = client.owe_answer();
        if started.elapsed() >= budget {
            // The API server has given up on this call already: do not spend time on it.
            return Err(Failure::TooLate);
        }
        let deciding = self.try_begin_deciding()?;
        let review = catch_panic(Span::none, || Review::parse(&bytes))?.map_err(Failure::Parse)?;
        if !self.cluster.is_synced() {
            return Err(Failure::Unsynced);
        }
        let wait_until = started + self.limits.wait.min(budget / 2);
        let decision = self.decide(decide, &review, deciding, wait_until, bytes.len()).await?;
        let json = self.write_answer(&review, &decision, started)?;
        client.mark_useful();
        Ok(json)
    }

    /// Returns the function that decides on requests of this path.
    ///
    /// # Errors
    /// Returns the problem of the request's head.
    fn route<B>(&self, request: &Request<B>) -> Result<Decide, Failure> {
        let decide = match request.uri().path() {
            PATH => self.decide,
            VALIDATE => validate,
            _ => return Err(Failure::NotFound),
        };
        if request.method() != Method::POST {
            Err(Failure::Method)
        } else if !is_json(request.headers().get(CONTENT_TYPE)) {
            Err(Failure::ContentType)
        } else {
            Ok(decide)
        }
    }

    fn try_begin_deciding(&self) -> Result<SemaphorePermit<'_>, Failure> {
        self.deciding.try_acquire().map_err(|_| Failure::Busy("requests"))
    }

    /// Reads the body. The memory that is counted for a connection includes a small body; a large
    /// one waits for its turn before more of it is read.
    async fn read<B>(
        &self,
        mut body: std::pin::Pin<&mut B>,
        client: &Client,
    ) -> Result<Received<'_>, Failure>
    where
        B: Body<Data = Bytes>,
    {
        let _reading = self.reading.try_acquire().map_err(|_| Failure::Busy("requests"))?;
        let announced = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
        let announced = announced.unwrap_or(MAX_BODY);
        let mut turn: Option<Turn<'_>> = None;
        let mut first = Bytes::new();
        let mut bytes: Vec<u8> = Vec::new();
        loop {
            let frame = match &turn {
                None => body.frame().await,
                Some(turn) => timeout_at(turn.deadline(bytes.len()), body.frame())
                    .await
                    .map_err(|_| Failure::BodyTimeout)?,
            };
            let Some(frame) = frame else { break };
            let Ok(data) = frame.map_err(|_| Failure::BodyBroken)?.into_data() else { continue };
            let length = first.len() + bytes.len() + data.len();
            if length > MAX_BODY {
                return Err(Failure::TooLarge);
            }
            if length > self.limits.small_body && turn.is_none() {
                turn = self.large.begin(client.address, announced.max(length)).await;
                if turn.is_none() {
                    return Err(Failure::Busy("bytes"));
                }
            }
            // A small body arrives in one piece and is not copied.
            if first.is_empty() && bytes.is_empty() {
                first = data;
                continue;
            }
            // Reserved once: doubling would use more memory than is counted.
            let capacity = if turn.is_some() { announced } else { self.limits.small_body };
            bytes.reserve_exact(capacity.min(announced).saturating_sub(bytes.len()));
            bytes.extend_from_slice(&std::mem::take(&mut first));
            bytes.extend_from_slice(&data);
        }
        let bytes = if bytes.is_empty() { first } else { Bytes::from(bytes) };
        Ok((bytes, turn.map(Turn::end)))
    }

    /// Decides, and waits for objects that the decision needs. While it waits, it gives back its
    /// permit to decide.
    async fn decide(
        &self,
        decide: Decide,
        review: &Review<'_>,
        mut deciding: SemaphorePermit<'_>,
        wait_until: Instant,
        length: usize,
    ) -> Result<Decision, Failure> {
        let span = || build_span(review);
        let mut changes = self.cluster.changes();
        let mut waiting = None;
        loop {
            changes.mark_unchanged();
            let decision = {
                let policy = self.policy.load();
                let policy = policy.as_ref().ok_or(Failure::NoPolicy)?;
                let view = self.cluster.view();
                catch_panic(span, || decide(review, &view, policy))?.map_err(Failure::Parse)?
            };
            let Decision::Wait { ref awaited, .. } = decision else { return Ok(decision) };
            if waiting.is_none() {
                waiting = self.try_wait(length);
            }
            let now = Instant::now();
            if waiting.is_none() || now >= wait_until {
                return Ok(decision.at_once());
            }
            span().in_scope(|| debug!(%awaited, "waiting for an object"));
            drop(deciding);
            if !matches!(timeout_at(wait_until, changes.changed()).await, Ok(Ok(()))) {
                return Ok(decision.at_once());
            }
            // Many changes in a row are one reason to decide again.
            sleep_until((now + GATHER).min(wait_until)).await;
            let Ok(again) = self.deciding.try_acquire() else { return Ok(decision.at_once()) };
            deciding = again;
        }
    }

    /// The permits of a request that waits for objects. `None`: too many wait.
    fn try_wait(&self, length: usize) -> Option<(SemaphorePermit<'_>, SemaphorePermit<'_>)> {
        let units = u32::try_from(length.div_ceil(BODY_UNIT)).ok()?;
        let permits = (self.waiting.try_acquire(), self.waiting_bytes.try_acquire_many(units));
        let (Ok(one), Ok(bytes)) = permits else {
            if self.throttle.try_pass() {
                warn!("too many requests wait for objects; further ones are decided at once");
            }
            return None;
        };
        Some((one, bytes))
    }

    /// Writes the answer, logs and counts the decision.
    fn write_answer(
        &self,
        review: &Review<'_>,
        decision: &Decision,
        started: Instant,
    ) -> Result<Vec<u8>, Failure> {
        let span = || build_span(review);
        let json = catch_panic(span, || answer::write(review, decision))?;
        let (outcome, reason) = (decision.outcome(), decision.reason());
        let why = match decision {
            Decision::Refuse(refusal) => Some(refusal.message()),
            Decision::Admit(admission) => admission.findings.first().map(ToString::to_string),
            _ => None,
        };
        match why {
            Some(why) => {
                span().in_scope(|| info!(outcome, reason, why = &*shown(&why), "decided"));
            }
            None if enabled!(Level::DEBUG) => {
                span().in_scope(|| debug!(outcome, reason, "decided"));
            }
            None => {}
        }
        self.metrics.count_decision(
            review.request.operation(),
            outcome,
            reason,
            started.elapsed(),
            SystemTime::now(),
        );
        Ok(json)
    }
}

/// The shortest time between two decisions on a request that waits for an object.
const GATHER: Duration = Duration::from_millis(10);

/// Reads a body and discards it, up to [`MAX_BODY`] bytes and until this time.
async fn discard<B: Body<Data = Bytes>>(mut body: std::pin::Pin<&mut B>, until: Instant) {
    let mut left = MAX_BODY;
    while let Ok(Some(Ok(frame))) = timeout_at(until, body.frame()).await {
        left = match frame.data_ref().map_or(Some(left), |data| left.checked_sub(data.len())) {
            Some(left) => left,
            None => return,
        };
    }
}

/// The longest timeout that an API server sends.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// Builds the span with the fields that all log lines of a request share. Only called for a line:
/// most requests log none, and building a span costs as much as a small decision.
fn build_span(review: &Review<'_>) -> Span {
    info_span!(
        "admission",
        uid = &*shown(review.request.uid.as_str()),
        kind = &*shown(review.request.resource()),
        namespace = &*shown(review.request.namespace()),
    )
}

/// Runs `run`, and turns a panic into a 500 for this request alone.
fn catch_panic<T>(span: impl FnOnce() -> Span, run: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| {
        // The panic hook has logged the source line; this line names the request.
        span().in_scope(|| error!("a request panicked; this is a bug in stowplan"));
        Failure::Bug
    })
}

/// An answer with this content.
pub(super) fn respond(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn is_json(content_type: Option<&HeaderValue>) -> bool {
    content_type
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
}

/// Parses the API server's timeout for the call, the query parameter `timeout` (a Go duration).
fn parse_timeout(query: Option<&str>) -> Option<Duration> {
    let value = query?.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    let duration: jiff::SignedDuration = value.parse().ok()?;
    Duration::try_from(duration).ok().filter(|duration| !duration.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_parsed() {
        let read = |query: &str| parse_timeout(Some(query));
        assert_eq!(read("timeout=10s"), Some(Duration::from_secs(10)));
        assert_eq!(read("a=b&timeout=1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(read("timeout=500ms"), Some(Duration::from_millis(500)));
        for nothing in ["timeout=", "timeout=0s", "timeout=-1s", "timeout=x", "timeout=1e999s"] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
        assert_eq!([read(""), read("timeouts=1s")], [None, None]);
    }

    #[test]
    fn content_types_are_compared_without_parameters() {
        let is = |value: &'static str| is_json(Some(&HeaderValue::from_static(value)));
        assert!(is("Application/JSON; charset=utf-8"));
        assert!(!is("application/jsonx"));
    }
}
