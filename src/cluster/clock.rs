//! The API server's clock.
//!
//! API servers check the dates of certificates, so their time counts, not that of the node on which
//! this process runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use hyper::Request;
use hyper::header::{DATE, HeaderMap};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822::DateTimeParser;
use kube::Client;
use kube::client::Body;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::telemetry::Metrics;

/// A smaller difference is ignored: the header has full seconds, and answers take a while.
const IGNORED: i64 = 5;

/// A larger difference is logged.
const LOGGED: i64 = 5 * 60;

/// How often the clocks are compared.
const INTERVAL: Duration = Duration::from_secs(60);

/// How long one answer may take; a late one would look like a difference.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The time by the API server's clock, as the header `Date` of its answers shows it. Without such
/// an answer, the time by this machine's clock.
#[derive(Debug)]
pub(crate) struct Clock {
    /// How many seconds the API server's clock is ahead.
    ahead: AtomicI64,
    is_logged: AtomicBool,
    metrics: Arc<Metrics>,
}

impl Clock {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { ahead: AtomicI64::default(), is_logged: AtomicBool::default(), metrics }
    }

    /// The time, in full seconds.
    pub(crate) fn now(&self) -> SystemTime {
        self.at(SystemTime::now())
    }

    fn at(&self, own: SystemTime) -> SystemTime {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let difference = Duration::from_secs(ahead.unsigned_abs());
        let time = if ahead < 0 { own - difference } else { own + difference };
        let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// Compares the clocks, by an answer that has just arrived.
    pub(crate) fn observe(&self, headers: &HeaderMap) {
        self.observe_at(headers, SystemTime::now());
    }

    fn observe_at(&self, headers: &HeaderMap, own: SystemTime) {
        let own = Timestamp::try_from(own);
        let Some((time, own)) = read_date(headers).zip(own.ok()) else { return };
        let ahead = time.duration_since(own).as_secs();
        let ahead = if ahead.abs() <= IGNORED { 0 } else { ahead };
        self.ahead.store(ahead, Ordering::Relaxed);
        self.metrics.clock_skew.set(ahead);
        let is_large = ahead.abs() > LOGGED;
        if !self.is_logged.swap(is_large, Ordering::Relaxed) && is_large {
            warn!(
                seconds = ahead,
                "the API server's clock differs; certificates are judged by that one. Set this \
                 node's clock right"
            );
        }
    }

    /// Compares the clocks again and again.
    pub(crate) async fn follow(&self, client: &Client) {
        loop {
            if let Ok(Some(headers)) = timeout(TIMEOUT, ask(client)).await {
                self.observe(&headers);
            }
            sleep(INTERVAL).await;
        }
    }
}

/// Returns the headers of an answer. Whatever the API server answers, they have the time.
async fn ask(client: &Client) -> Option<HeaderMap> {
    let request = Request::get("/version").body(Body::empty()).ok()?;
    Some(client.send(request).await.ok()?.headers().clone())
}

/// Returns the time by the API server's clock. `None`: it does not answer, or its answer has no
/// date.
pub(crate) async fn time_of_server(client: &Client) -> Option<Timestamp> {
    read_date(&ask(client).await?)
}

/// Returns the time by the API server's clock, or by this machine's if that is not known. The two
/// may differ by minutes.
pub(crate) async fn time_of_cluster(client: &Client) -> Timestamp {
    time_of_server(client).await.unwrap_or_else(Timestamp::now)
}

fn read_date(headers: &HeaderMap) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(headers.get(DATE)?.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(date: &str) -> HeaderMap {
        HeaderMap::from_iter([(DATE, date.parse().unwrap())])
    }

    #[test]
    fn the_time_is_that_of_the_api_server() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let own = at(1_795_457_199);
        let clock = Clock::new(Arc::default());
        assert_eq!(clock.at(own + Duration::from_millis(300)), own, "without an answer");
        for (date, ahead) in [
            ("Mon, 23 Nov 2026 18:06:39 GMT", 0),
            ("Mon, 23 Nov 2026 18:06:42 GMT", 0),
            ("Mon, 23 Nov 2026 18:16:39 GMT", 600),
            ("Mon, 23 Nov 2026 16:06:39 GMT", -7200),
        ] {
            clock.observe_at(&headers(date), own);
            assert_eq!(clock.metrics.clock_skew.get(), ahead, "{date}");
            assert_eq!(clock.at(own), at(1_795_457_199_u64.saturating_add_signed(ahead)), "{date}");
        }
        // What cannot be read changes nothing.
        for date in ["", "now", "2026-11-23T18:06:39Z"] {
            clock.observe_at(&headers(date), own);
            assert_eq!(clock.metrics.clock_skew.get(), -7200, "{date}");
        }
        clock.observe_at(&HeaderMap::new(), own);
        assert_eq!(clock.metrics.clock_skew.get(), -7200);
    }
}
