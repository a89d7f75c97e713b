//! The metrics that stowplan serves.

use std::time::{Duration, SystemTime};

use stowplan::testing::telemetry::{KindLabels, Metrics};

/// All metrics, in the text format. A family without a sample is not printed, so each gets one.
pub(crate) fn to_text() -> String {
    let metrics = Metrics::new();
    metrics.count_decision("CREATE", "placed", "Placed", Duration::ZERO, SystemTime::UNIX_EPOCH);
    metrics.count_failure("Overloaded");
    metrics.count_closed_connection("idle");
    metrics.count_certificate_reload(true);
    metrics.count_policy_reload(true);
    metrics.set_certificate_expiry("serving", SystemTime::UNIX_EPOCH);
    metrics.set_policy("e3b0c44298fc1c14");
    metrics.store_synced.get_or_create(&KindLabels { kind: "nodes" }).set(1);
    metrics.store_objects.get_or_create(&KindLabels { kind: "nodes" }).set(1);
    metrics.watch_errors.get_or_create(&KindLabels { kind: "nodes" }).inc();
    metrics.watch_age.get_or_create(&KindLabels { kind: "nodes" }).set(1);
    metrics.count_write("nodes", "patch", "done");
    metrics.count_event("NotPlaced");
    metrics.to_text()
}
