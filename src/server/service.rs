//! HTTP requests to decisions.
//!
//! Nothing here blocks, calls out or keeps anything of a request beyond its answer. An error of ours
//! is never a refusal: 503 with `Retry-After` where trying again helps (the API server does), 500
//! where it does not; the cluster's failurePolicy decides what becomes of the pod.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Bytes};
use hyper::header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument as _, debug, error, field, info, info_span, warn};

use super::limits::{Limits, MAX_BODY};
use crate::admission::{Decision, ParseError, Review, answer, decide};
use crate::cluster::Cluster;
use crate::policy::Policy;
use crate::telemetry::Metrics;

/// The one path.
pub const PATH: &str = "/mutate";

/// The unit in which body bytes are counted: a semaphore counts to 2³² on small machines.
const BODY_UNIT: usize = 1024;

/// Everything that an answer needs.
#[derive(Debug)]
pub struct Service {
    cluster: Arc<Cluster>,
    policy: Arc<ArcSwap<Policy>>,
    metrics: Arc<Metrics>,
    limits: Limits,
    requests: Semaphore,
    body_units: Semaphore,
}

/// Why a request is answered without a decision.
#[derive(Debug)]
enum Failure {
    NotFound,
    Method,
    ContentType,
    TooLarge,
    BodyTimeout,
    BodyBroken,
    Parse(ParseError),
    Busy(&'static str),
    Unsynced,
    Bug,
}

impl Service {
    /// A service that decides on `cluster` by `policy`.
    #[must_use]
    pub fn new(
        cluster: Arc<Cluster>,
        policy: Arc<ArcSwap<Policy>>,
        metrics: Arc<Metrics>,
        limits: Limits,
    ) -> Self {
        Self {
            cluster,
            policy,
            metrics,
            requests: Semaphore::new(limits.requests),
            body_units: Semaphore::new(limits.body_bytes / BODY_UNIT),
            limits,
        }
    }

    /// The metrics that the service counts in.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Answers one request.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
    {
        let started = Instant::now();
        let span = info_span!(
            "admission",
            uid = field::Empty,
            kind = field::Empty,
            namespace = field::Empty,
            outcome = field::Empty,
            reason = field::Empty,
        );
        let in_flight = self.metrics.begin_request();
        let answered = self.review(request, started).instrument(span).await;
        drop(in_flight);
        match answered {
            Ok(json) => {
                let mut response = Response::new(Full::new(Bytes::from(json)));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                response
            }
            Err(failure) => {
                self.metrics.failed(failure.reason());
                match &failure {
                    Failure::Bug => {}
                    Failure::Busy(_) | Failure::Unsynced => warn!(reason = failure.reason(), "not answered"),
                    _ => debug!(reason = failure.reason(), message = %failure.message(), "not answered"),
                }
                failure.response()
            }
        }
    }

    async fn review<B>(&self, request: Request<B>, started: Instant) -> Result<Vec<u8>, Failure>
    where
        B: Body<Data = Bytes>,
    {
        if request.uri().path() != PATH {
            return Err(Failure::NotFound);
        }
        if request.method() != Method::POST {
            return Err(Failure::Method);
        }
        if !is_json(request.headers().get(CONTENT_TYPE)) {
            return Err(Failure::ContentType);
        }
        let _slot = self.requests.try_acquire().map_err(|_| Failure::Busy("requests"))?;
        let budget = timeout(request.uri().query()).unwrap_or(self.limits.body).min(MAX_TIMEOUT);
        let announced = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let (_units, body) = timeout_at(started + budget, self.body(request.into_body(), announced))
            .await
            .map_err(|_| Failure::BodyTimeout)??;
        self.decide(&body, started, budget).await
    }

    /// Reads the body, and takes its bytes from the common store as they come.
    async fn body<B>(&self, body: B, announced: Option<usize>) -> Result<(Vec<SemaphorePermit<'_>>, Bytes), Failure>
    where
        B: Body<Data = Bytes>,
    {
        let announced = announced.unwrap_or(0);
        if announced > MAX_BODY {
            return Err(Failure::TooLarge);
        }
        let mut permits = Vec::new();
        let mut reserved = 0;
        let mut reserve = |bytes: usize| {
            if bytes > reserved {
                let units = (bytes - reserved).div_ceil(BODY_UNIT);
                let units = u32::try_from(units).map_err(|_| Failure::TooLarge)?;
                permits.push(self.body_units.try_acquire_many(units).map_err(|_| Failure::Busy("bytes"))?);
                reserved += units as usize * BODY_UNIT;
            }
            Ok(())
        };
        reserve(announced)?;
        let mut body = std::pin::pin!(body);
        let mut first = Bytes::new();
        let mut bytes: Vec<u8> = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return Err(Failure::BodyBroken) };
            let Ok(data) = frame.into_data() else { continue };
            let length = first.len() + bytes.len() + data.len();
            if length > MAX_BODY {
                return Err(Failure::TooLarge);
            }
            reserve(length)?;
            // A small body comes in one piece, and is not copied then.
            if first.is_empty() && bytes.is_empty() {
                first = data;
                continue;
            }
            if bytes.is_empty() {
                bytes.reserve(announced.max(length));
                bytes.extend_from_slice(&first);
                first = Bytes::new();
            }
            bytes.extend_from_slice(&data);
        }
        Ok((permits, if bytes.is_empty() { first } else { Bytes::from(bytes) }))
    }

    async fn decide(&self, body: &[u8], started: Instant, budget: Duration) -> Result<Vec<u8>, Failure> {
        let review = guarded(|| Review::parse(body))?.map_err(Failure::Parse)?;
        if !self.cluster.is_synced() {
            return Err(Failure::Unsynced);
        }
        let span = tracing::Span::current();
        span.record("uid", review.request.uid.as_str());
        span.record("namespace", review.request.namespace());
        let mut changes = self.cluster.changes();
        let patience = started + self.limits.wait.min(budget / 2);
        let decision = loop {
            changes.mark_unchanged();
            let decision = {
                let policy = self.policy.load();
                let view = self.cluster.view();
                guarded(|| decide(&review, &view, &policy))?.map_err(Failure::Parse)?
            };
            match decision {
                Decision::Wait { ref awaited, .. } if Instant::now() < patience => {
                    debug!(%awaited, "waiting");
                    if !matches!(timeout_at(patience, changes.changed()).await, Ok(Ok(()))) {
                        break decision.at_once();
                    }
                }
                decision => break decision.at_once(),
            }
        };
        let json = guarded(|| answer::write(&review, &decision))?;
        let (outcome, reason) = (decision.outcome(), decision.reason());
        span.record("outcome", outcome);
        span.record("reason", reason);
        match &decision {
            Decision::Refuse(refusal) => info!(message = %refusal.message(), "refused"),
            Decision::Admit(admission) if !admission.findings.is_empty() => {
                info!(message = %admission.findings[0], "admitted unplaced");
            }
            _ => debug!("decided"),
        }
        self.metrics.decided(review.request.operation(), outcome, reason, started.elapsed());
        Ok(json)
    }
}

/// A longer budget than any API server gives.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs our own code so that a panic in it is this request's 500 and nobody else's.
fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| {
        // The panic hook has told where.
        error!("a request panicked; this is a bug in stowplan");
        Failure::Bug
    })
}

fn is_json(content_type: Option<&HeaderValue>) -> bool {
    content_type
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
}

/// The API server's own deadline, as its query parameter `timeout` tells (a Go duration).
fn timeout(query: Option<&str>) -> Option<Duration> {
    let value = query?.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    let duration: jiff::SignedDuration = value.parse().ok()?;
    Duration::try_from(duration).ok().filter(|duration| !duration.is_zero())
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::BodyBroken | Self::Parse(_) => StatusCode::BAD_REQUEST,
            Self::Busy(_) | Self::Unsynced => StatusCode::SERVICE_UNAVAILABLE,
            Self::Bug => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotFound => "NotFound",
            Self::Method => "MethodNotAllowed",
            Self::ContentType => "UnsupportedMediaType",
            Self::TooLarge => "BodyTooLarge",
            Self::BodyTimeout => "BodyTimeout",
            Self::BodyBroken => "BodyBroken",
            Self::Parse(_) => "InvalidReview",
            Self::Busy(_) => "Overloaded",
            Self::Unsynced => "NotSynced",
            Self::Bug => "Panic",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::NotFound => format!("no such path; reviews go to {PATH}"),
            Self::Method => "send a POST".to_owned(),
            Self::ContentType => "send Content-Type: application/json".to_owned(),
            Self::TooLarge => format!("the body is larger than {MAX_BODY} bytes"),
            Self::BodyTimeout => "the body did not come in time".to_owned(),
            Self::BodyBroken => "the body broke off".to_owned(),
            Self::Parse(error) => error.to_string(),
            Self::Busy(what) => format!("too many {what} at once; try again"),
            Self::Unsynced => "the view of the cluster is not complete yet; try again".to_owned(),
            Self::Bug => "a bug in stowplan; its log tells where".to_owned(),
        }
    }

    fn response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(format!("stowplan: {}\n", self.message()))));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        match self {
            Self::Method => {
                headers.insert(ALLOW, HeaderValue::from_static("POST"));
            }
            // An integer: the API server reads nothing else here.
            Self::Busy(_) | Self::Unsynced => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            // The rest of the body is not read, so the connection cannot be used again.
            Self::TooLarge | Self::BodyTimeout | Self::BodyBroken => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read() {
        let read = |query: &str| timeout(Some(query));
        assert_eq!(read("timeout=10s"), Some(Duration::from_secs(10)));
        assert_eq!(read("a=b&timeout=1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(read("timeout=500ms"), Some(Duration::from_millis(500)));
        for nothing in ["", "timeout=", "timeout=0s", "timeout=-1s", "timeout=x", "timeout=1e999s", "timeouts=1s"] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
        assert_eq!(timeout(None), None);
    }

    #[test]
    fn content_types_are_compared_without_parameters() {
        let is = |value: &'static str| is_json(Some(&HeaderValue::from_static(value)));
        assert!(is("application/json"));
        assert!(is("Application/JSON; charset=utf-8"));
        assert!(!is("text/plain"));
        assert!(!is("application/jsonx"));
        assert!(!is_json(None));
    }

    #[test]
    fn a_panic_is_one_requests_failure() {
        assert!(matches!(guarded(|| -> () { panic!("seen in the test's output") }), Err(Failure::Bug)));
    }
}
