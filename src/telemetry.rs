//! Logs and metrics.
//!
//! Metrics carry no text of users: labels are the stable words of outcomes and reasons, so that the
//! number of series has a bound. The registry is made once and handed down; there are no globals.

pub mod log;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

pub use log::shown;

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

/// Why a request got no answer from the decision, a connection was closed or an event told.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct ReasonLabels {
    /// The stable word.
    pub reason: &'static str,
}

/// A kind of objects.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct KindLabels {
    /// The plural name.
    pub kind: &'static str,
}

/// What became of a write of the controller.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct WriteLabels {
    /// The plural name of what was written.
    pub kind: &'static str,
    /// `patch`, `release`, `status`, `create` or `delete`.
    pub verb: &'static str,
    /// The stable word: see [`controller::act`](crate::controller::act).
    pub outcome: &'static str,
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
    pub failures: Family<ReasonLabels, Counter>,
    /// Requests under way.
    pub in_flight: Gauge,
    /// Seconds since 1970 at which a request was last decided; 0 before the first. An API server
    /// that does not call shows here.
    pub last_admission: Gauge,
    /// Panics, each of which cost a request at most.
    pub panics: Counter,
    /// Log lines that nobody read in time.
    pub log_lines_dropped: Counter,
    /// Connections that are open.
    pub connections: Gauge,
    /// Connections that were closed by a limit, or that failed.
    pub connections_closed: Family<ReasonLabels, Counter>,
    /// Seconds since 1970 at which a certificate expires.
    pub certificate_not_after: Family<KindLabels, Gauge>,
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
    /// 1 while this process leads.
    pub controller_leader: Gauge,
    /// Writes of the controller.
    pub controller_writes: Family<WriteLabels, Counter>,
    /// What the controller has told of objects, by the words of its events.
    pub controller_events: Family<ReasonLabels, Counter>,
    /// The making of plans.
    pub controller_plan_duration: Histogram,
    /// What is planned and not done.
    pub controller_actions: Gauge,
    /// Pods that carry keys of ours and were admitted without us.
    pub unplaced_pods: Gauge,
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
            last_admission: Gauge::default(),
            panics: Counter::default(),
            log_lines_dropped: Counter::default(),
            connections: Gauge::default(),
            connections_closed: Family::default(),
            certificate_not_after: Family::default(),
            certificate_reloads: Family::default(),
            policy_reloads: Family::default(),
            store_objects: Family::default(),
            store_synced: Family::default(),
            watch_errors: Family::default(),
            controller_leader: Gauge::default(),
            controller_writes: Family::default(),
            controller_events: Family::default(),
            controller_plan_duration: Histogram::new(DURATION_BUCKETS),
            controller_actions: Gauge::default(),
            unplaced_pods: Gauge::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "admission_requests",
            "Requests that were decided",
            self.requests.clone(),
        );
        registry.register_with_unit(
            "admission_duration",
            "From a request's head to its answer",
            Unit::Seconds,
            self.duration.clone(),
        );
        registry.register(
            "admission_failures",
            "Requests that were answered without a decision",
            self.failures.clone(),
        );
        registry.register("admission_in_flight", "Requests under way", self.in_flight.clone());
        registry.register_with_unit(
            "last_admission_timestamp",
            "When a request was last decided, in seconds since 1970",
            Unit::Seconds,
            self.last_admission.clone(),
        );
        registry.register("panics", "Panics; each cost one request at most", self.panics.clone());
        registry.register(
            "log_lines_dropped",
            "Log lines that were dropped because nobody read them in time",
            self.log_lines_dropped.clone(),
        );
        registry.register("connections", "Connections that are open", self.connections.clone());
        registry.register(
            "connections_closed",
            "Connections that a limit closed, or that failed",
            self.connections_closed.clone(),
        );
        registry.register_with_unit(
            "certificate_not_after",
            "When a certificate expires, in seconds since 1970",
            Unit::Seconds,
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
        self.register_controller();
    }

    fn register_controller(&mut self) {
        let registry = self.registry.sub_registry_with_prefix("controller");
        registry.register(
            "leader",
            "Whether this process is the controller that leads",
            self.controller_leader.clone(),
        );
        registry.register(
            "writes",
            "Writes of the controller, by what became of them",
            self.controller_writes.clone(),
        );
        registry.register(
            "events",
            "Events that the controller has told, whether they were written or not",
            self.controller_events.clone(),
        );
        registry.register_with_unit(
            "plan_duration",
            "The making of a plan from the view of the cluster",
            Unit::Seconds,
            self.controller_plan_duration.clone(),
        );
        registry.register(
            "actions",
            "Objects that the plan wants to be written and that are not yet",
            self.controller_actions.clone(),
        );
        registry.register(
            "unplaced_pods",
            "Pods that carry keys of stowplan and were admitted without it",
            self.unplaced_pods.clone(),
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
    0.000_05, 0.000_1, 0.000_2, 0.000_4, 0.000_8, 0.001_6, 0.003_2, 0.006_4, 0.012_8, 0.025, 0.05,
    0.1, 0.25, 1.0, 2.5, 5.0,
];

impl Metrics {
    /// Counts a decision.
    pub fn decided(
        &self,
        operation: &str,
        outcome: &'static str,
        reason: &'static str,
        took: Duration,
        now: SystemTime,
    ) {
        let operation = ["CREATE", "UPDATE", "DELETE", "CONNECT"]
            .into_iter()
            .find(|known| *known == operation)
            .unwrap_or("other");
        self.requests.get_or_create(&RequestLabels { operation, outcome, reason }).inc();
        self.duration.get_or_create(&OutcomeLabels { outcome }).observe(took.as_secs_f64());
        self.last_admission.set(seconds(now));
    }

    /// Counts a request that got no decision.
    pub fn failed(&self, reason: &'static str) {
        self.failures.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Counts a connection that ended before its client wanted; returns the reason.
    pub fn closed(&self, reason: &'static str) -> &'static str {
        self.connections_closed.get_or_create(&ReasonLabels { reason }).inc();
        reason
    }

    /// Tells when the serving certificate expires.
    pub fn serving_certificate_expires(&self, at: SystemTime) {
        self.certificate_not_after.get_or_create(&KindLabels { kind: "serving" }).set(seconds(at));
    }

    /// Counts a reading of the certificate's files.
    pub fn reloaded_certificate(&self, good: bool) {
        self.certificate_reloads.get_or_create(&OutcomeLabels { outcome: word(good) }).inc();
    }

    /// Counts a reading of the policy's file.
    pub fn reloaded_policy(&self, good: bool) {
        self.policy_reloads.get_or_create(&OutcomeLabels { outcome: word(good) }).inc();
    }

    /// Counts a write of the controller.
    pub fn wrote(&self, kind: &'static str, verb: &'static str, outcome: &'static str) {
        self.controller_writes.get_or_create(&WriteLabels { kind, verb, outcome }).inc();
    }

    /// Counts an event of the controller.
    pub fn told(&self, reason: &'static str) {
        self.controller_events.get_or_create(&ReasonLabels { reason }).inc();
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

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Lets one pass in a second: for what anybody can cause at any rate, and a metric counts.
#[derive(Debug)]
pub struct Throttle(AtomicU64);

impl Throttle {
    /// Lets the first pass.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Whether this one passes.
    pub fn passes(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.0.swap(now, Ordering::Relaxed) != now
    }
}

impl Default for Throttle {
    fn default() -> Self {
        Self::new()
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
