//! Logs and metrics.
//!
//! Metrics carry no text of users: labels are the stable words of outcomes and reasons, so that the
//! number of series has a bound. The registry is made once and handed down; there are no globals.

use std::io::IsTerminal as _;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tracing_subscriber::EnvFilter;

/// The environment variable that filters logs, for example `info` or `stowplan=debug`.
pub const LOG_VARIABLE: &str = "STOWPLAN_LOG";

/// Starts logging to standard error: JSON, or lines for people where that is a terminal.
///
/// # Errors
/// The filter in [`LOG_VARIABLE`] is not one.
pub fn start_logging() -> Result<(), String> {
    let filter = match std::env::var(LOG_VARIABLE) {
        Ok(text) => EnvFilter::try_new(&text)
            .map_err(|error| format!("{LOG_VARIABLE}={text}: {error}; write for example info"))?,
        Err(_) => EnvFilter::new("info"),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        builder.init();
    } else {
        builder.json().flatten_event(true).with_current_span(true).with_span_list(false).init();
    }
    Ok(())
}

/// What an admission request came to.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct RequestLabels {
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT` or `other`.
    pub operation: &'static str,
    /// [`Decision::outcome`](crate::admission::Decision::outcome).
    pub outcome: &'static str,
    /// [`Decision::reason`](crate::admission::Decision::reason).
    pub reason: &'static str,
}

/// What became of a request.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct OutcomeLabels {
    /// The stable word.
    pub outcome: &'static str,
}

/// Why a request got no answer from the decision.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct FailureLabels {
    /// The stable word.
    pub reason: &'static str,
}

/// A kind of objects.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct KindLabels {
    /// The plural name.
    pub kind: &'static str,
}

/// Every metric.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Requests that were decided.
    pub requests: Family<RequestLabels, Counter>,
    /// From the request's head to its answer.
    pub duration: Family<OutcomeLabels, Histogram>,
    /// Requests that were answered without a decision.
    pub failures: Family<FailureLabels, Counter>,
    /// Requests under way.
    pub in_flight: Gauge,
    /// Connections that are open.
    pub connections: Gauge,
    /// Connections that were closed by a limit, or that failed.
    pub connections_closed: Family<FailureLabels, Counter>,
    /// Seconds since 1970 at which the serving certificate expires.
    pub certificate_not_after: Gauge,
    /// Certificate files that were read.
    pub certificate_reloads: Family<OutcomeLabels, Counter>,
    /// Policy files that were read.
    pub policy_reloads: Family<OutcomeLabels, Counter>,
    /// Objects in the View.
    pub store_objects: Family<KindLabels, Gauge>,
    /// Whether the View has seen all objects of a kind.
    pub store_synced: Family<KindLabels, Gauge>,
    /// Watches that failed and were started again.
    pub watch_errors: Family<KindLabels, Counter>,
}

impl Metrics {
    /// A registry with every metric at nothing.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("stowplan");
        let build = vec![("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "What runs", Info::new(build));
        let mut metrics = Self {
            registry,
            requests: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            failures: Family::default(),
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            connections_closed: Family::default(),
            certificate_not_after: Gauge::default(),
            certificate_reloads: Family::default(),
            policy_reloads: Family::default(),
            store_objects: Family::default(),
            store_synced: Family::default(),
            watch_errors: Family::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("admission_requests", "Requests that were decided", self.requests.clone());
        registry.register(
            "admission_duration_seconds",
            "From a request's head to its answer",
            self.duration.clone(),
        );
        registry.register(
            "admission_failures",
            "Requests that were answered without a decision",
            self.failures.clone(),
        );
        registry.register("admission_in_flight", "Requests under way", self.in_flight.clone());
        registry.register("connections", "Connections that are open", self.connections.clone());
        registry.register(
            "connections_closed",
            "Connections that a limit closed, or that failed",
            self.connections_closed.clone(),
        );
        registry.register(
            "certificate_not_after_seconds",
            "When the serving certificate expires, in seconds since 1970",
            self.certificate_not_after.clone(),
        );
        registry.register(
            "certificate_reloads",
            "Times that the certificate's files had changed",
            self.certificate_reloads.clone(),
        );
        registry.register(
            "policy_reloads",
            "Times that the policy's file had changed",
            self.policy_reloads.clone(),
        );
        registry.register("store_objects", "Objects in the View", self.store_objects.clone());
        registry.register(
            "store_synced",
            "Whether the View has seen all objects of a kind",
            self.store_synced.clone(),
        );
        registry.register(
            "watch_errors",
            "Watches that failed and were started again",
            self.watch_errors.clone(),
        );
    }

    /// All metrics in the OpenMetrics text format.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// From 50 µs, because the API server's own histogram of webhooks starts at 5 ms and says nothing of
/// a fast one, to 5 s, where the chart's timeout is.
const DURATION_BUCKETS: [f64; 16] = [
    0.000_05, 0.000_1, 0.000_2, 0.000_4, 0.000_8, 0.001_6, 0.003_2, 0.006_4, 0.012_8, 0.025, 0.05, 0.1,
    0.25, 1.0, 2.5, 5.0,
];

impl Metrics {
    /// Counts a decision.
    pub fn decided(&self, operation: &str, outcome: &'static str, reason: &'static str, took: std::time::Duration) {
        let operation = ["CREATE", "UPDATE", "DELETE", "CONNECT"]
            .into_iter()
            .find(|known| *known == operation)
            .unwrap_or("other");
        self.requests.get_or_create(&RequestLabels { operation, outcome, reason }).inc();
        self.duration.get_or_create(&OutcomeLabels { outcome }).observe(took.as_secs_f64());
    }

    /// Counts a request that got no decision.
    pub fn failed(&self, reason: &'static str) {
        self.failures.get_or_create(&FailureLabels { reason }).inc();
    }

    /// Counts a connection that ended before its client wanted; returns the reason.
    pub fn closed(&self, reason: &'static str) -> &'static str {
        self.connections_closed.get_or_create(&FailureLabels { reason }).inc();
        reason
    }

    /// Counts a reading of the certificate's files.
    pub fn reloaded_certificate(&self, good: bool) {
        self.certificate_reloads.get_or_create(&OutcomeLabels { outcome: word(good) }).inc();
    }

    /// Counts a reading of the policy's file.
    pub fn reloaded_policy(&self, good: bool) {
        self.policy_reloads.get_or_create(&OutcomeLabels { outcome: word(good) }).inc();
    }

    /// Counts a request as under way until the result is dropped.
    #[must_use]
    pub fn begin_request(&self) -> Counted<'_> {
        Counted::new(&self.in_flight)
    }

    /// Counts a connection as open until the result is dropped.
    #[must_use]
    pub fn open_connection(&self) -> Counted<'_> {
        Counted::new(&self.connections)
    }
}

fn word(good: bool) -> &'static str {
    if good { "loaded" } else { "rejected" }
}

/// One of those that a gauge counts.
#[derive(Debug)]
pub struct Counted<'m>(&'m Gauge);

impl<'m> Counted<'m> {
    fn new(gauge: &'m Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
