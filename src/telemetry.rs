//! Logs and metrics.
//!
//! Metrics contain no text of users: labels are the stable words of outcomes and reasons, so that
//! the number of series is bounded. The registry is created once and passed down; there are no
//! globals.

pub(crate) mod log;
mod process;
mod throttle;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

pub(crate) use log::shown;
pub(crate) use throttle::Throttle;

/// The labels of a metric that one function counts: their keys, and stable words.
type Labels<const COUNT: usize> = [(&'static str, &'static str); COUNT];

/// The label of a kind of object.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct KindLabels {
    /// The plural name.
    pub kind: &'static str,
}

/// The labels of a write of the controller.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct WriteLabels {
    /// The plural name of the object's kind.
    pub kind: &'static str,
    /// `patch`, `release`, `status`, `create` or `delete`.
    pub verb: &'static str,
    /// The stable word: see [`controller::act`](crate::controller::act).
    pub outcome: &'static str,
}

/// Declares every metric: its help in one line, its field and type, and its unit (`seconds`, or none) with its
/// name and how it is made if not empty.
macro_rules! metrics {
    (@new) => { Default::default() };
    (@new $new:expr) => { $new };
    ($(#[doc = $help:literal] $field:ident: $type:ty = $unit:ident($name:literal $(, $new:expr)?);)*) => {
        /// Every metric.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            /// Metrics that have no prefix.
            customary: Registry,
            $(#[doc = $help] pub $field: $type,)*
        }

        impl Metrics {
            fn register(mut registry: Registry, customary: Registry) -> Self {
                $(
                    let $field: $type = metrics!(@new $($new)?);
                    $unit(&mut registry, $name, $help.trim(), $field.clone());
                )*
                Self { registry, customary, $($field,)* }
            }
        }
    };
}

metrics! {
    /// Requests that were decided
    requests: Family<Labels<3>, Counter> = number("admission_requests");
    /// From a request's head to its answer
    duration: Family<Labels<1>, Histogram> =
        seconds("admission_duration", Family::new_with_constructor(histogram));
    /// Requests that were answered without a decision
    failures: Family<Labels<1>, Counter> = number("admission_failures");
    /// Requests that are being handled
    in_flight: Gauge = number("admission_in_flight");
    /// When a request was last decided, in seconds since 1970
    last_admission: Gauge = seconds("last_admission_timestamp");
    /// Panics; each failed one request at most
    panics: Counter = number("panics");
    /// Log lines that were dropped because standard error was not read fast enough
    log_lines_dropped: Counter = number("log_lines_dropped");
    /// Open connections
    connections: Gauge = number("connections");
    /// Connections that were closed because of a limit, or that failed
    connections_closed: Family<Labels<1>, Counter> = number("connections_closed");
    /// When a certificate expires, in seconds since 1970
    certificate_not_after: Family<KindLabels, Gauge> = seconds("certificate_not_after");
    /// By how much the API server's clock is ahead of this process's
    clock_skew: Gauge = seconds("clock_skew");
    /// Changes of the certificate, by whether they were loaded
    certificate_reloads: Family<Labels<1>, Counter> = number("certificate_reloads");
    /// Changes of the policy, by whether it came into force
    policy_reloads: Family<Labels<1>, Counter> = number("policy_reloads");
    /// The policy in force, by the first 16 hexadecimal digits of the SHA-256 of its text
    policy_info: Family<[(&'static str, String); 1], Gauge> = number("policy_info");
    /// Objects in the View
    store_objects: Family<KindLabels, Gauge> = number("store_objects");
    /// 1 once the View has seen all objects of a kind
    store_synced: Family<KindLabels, Gauge> = number("store_synced");
    /// Watches that failed and were started again
    watch_errors: Family<KindLabels, Counter> = number("watch_errors");
    /// The time since a watch last heard from the API server: an event, a list or a bookmark
    watch_age: Family<KindLabels, Gauge> = seconds("watch_age");
    /// 1 while the policy is invalid or missing, and an older policy or none is in force
    policy_rejected: Gauge = number("policy_rejected");
    /// 1 while this process is the leader of the controllers
    controller_leader: Gauge = number("controller_leader");
    /// Writes of the controller, by outcome
    controller_writes: Family<WriteLabels, Counter> = number("controller_writes");
    /// Events that the controller reported, whether or not they were written
    controller_events: Family<Labels<1>, Counter> = number("controller_events");
    /// Computing a plan from the view of the cluster
    controller_plan_duration: Histogram = seconds("controller_plan_duration", histogram());
    /// How long requests waited for the limit of requests per second
    controller_limit_wait: Histogram = seconds("controller_limit_wait", histogram());
    /// Planned writes of objects that are not done yet
    controller_actions: Gauge = number("controller_actions");
    /// 1 in a webhook that knows of a controller that leads
    controller_present: Gauge = number("controller_present");
    /// Pods that have keys of stowplan and were admitted without its webhook
    unplaced_pods: Gauge = number("controller_unplaced_pods");
    /// Secrets that have the name of one of stowplan's, and are not stowplan's
    foreign_secrets: Gauge = number("controller_foreign_secrets");
    /// Pods whose placement was removed after stowplan's webhook had added it
    stripped_pods: Gauge = number("controller_stripped_pods");
}

impl Metrics {
    /// A registry with every metric at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("stowplan");
        let build = vec![("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "The version that runs", Info::new(build));
        let mut customary = Registry::default();
        customary.register_collector(Box::new(process::OwnProcess));
        Self::register(registry, customary)
    }

    /// All metrics in the OpenMetrics text format.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &self.customary))
            .and_then(|()| encode_eof(&mut text))
            .expect("a String takes any text");
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// In seconds. From 50 µs, because the API server's histogram of webhooks starts at 5 ms, which is
/// too coarse for a fast webhook, to 5 s, the timeout in the chart.
const DURATION_BUCKETS: [f64; 16] = [
    0.000_05, 0.000_1, 0.000_2, 0.000_4, 0.000_8, 0.001_6, 0.003_2, 0.006_4, 0.012_8, 0.025, 0.05,
    0.1, 0.25, 1.0, 2.5, 5.0,
];

impl Metrics {
    /// Counts a decision.
    pub fn count_decision(
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
        let labels = [("operation", operation), ("outcome", outcome), ("reason", reason)];
        self.requests.get_or_create(&labels).inc();
        self.duration.get_or_create(&[("outcome", outcome)]).observe(took.as_secs_f64());
        self.last_admission.set(seconds_since_1970(now));
    }

    /// Counts a request that was answered without a decision.
    pub fn count_failure(&self, reason: &'static str) {
        self.failures.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a connection that the server closed or that failed; returns `reason`.
    pub fn count_closed_connection(&self, reason: &'static str) -> &'static str {
        self.connections_closed.get_or_create(&[("reason", reason)]).inc();
        reason
    }

    /// Sets when the serving certificate expires.
    pub fn set_certificate_expiry(&self, kind: &'static str, at: SystemTime) {
        self.certificate_not_after.get_or_create(&KindLabels { kind }).set(seconds_since_1970(at));
    }

    /// Counts a change of the certificate's files.
    pub fn count_certificate_reload(&self, is_loaded: bool) {
        self.certificate_reloads.get_or_create(&reload_outcome(is_loaded)).inc();
    }

    /// Sets the digest of the policy in force.
    pub fn set_policy(&self, digest: &str) {
        self.policy_info.clear();
        self.policy_info.get_or_create(&[("digest", digest.to_owned())]).set(1);
    }

    /// Counts a change of the policy.
    pub fn count_policy_reload(&self, is_loaded: bool) {
        self.policy_reloads.get_or_create(&reload_outcome(is_loaded)).inc();
    }

    /// Counts a write of the controller.
    pub fn count_write(&self, kind: &'static str, verb: &'static str, outcome: &'static str) {
        self.controller_writes.get_or_create(&WriteLabels { kind, verb, outcome }).inc();
    }

    /// Counts an event of the controller.
    pub fn count_event(&self, reason: &'static str) {
        self.controller_events.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a request as being handled until the result is dropped.
    #[must_use]
    pub fn begin_request(&self) -> GaugeGuard<'_> {
        GaugeGuard::new(&self.in_flight)
    }

    /// Counts a connection as open until the result is dropped.
    #[must_use]
    pub fn open_connection(&self) -> GaugeGuard<'_> {
        GaugeGuard::new(&self.connections)
    }
}

fn histogram() -> Histogram {
    Histogram::new(DURATION_BUCKETS)
}

fn number(registry: &mut Registry, name: &str, help: &str, metric: impl Metric) {
    registry.register(name, help, metric);
}

fn seconds(registry: &mut Registry, name: &str, help: &str, metric: impl Metric) {
    registry.register_with_unit(name, help, Unit::Seconds, metric);
}

fn seconds_since_1970(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn reload_outcome(is_loaded: bool) -> Labels<1> {
    [("outcome", if is_loaded { "loaded" } else { "rejected" })]
}

/// Counts one in a gauge until it is dropped.
#[derive(Debug)]
pub struct GaugeGuard<'m>(&'m Gauge);

impl<'m> GaugeGuard<'m> {
    fn new(gauge: &'m Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
