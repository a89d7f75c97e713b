//! Makes the scheduler retry unschedulable pods that it would not retry soon.
//!
//! When the last bound pod that others wait for is deleted, the scheduler does not retry those for
//! five minutes (kubernetes#141354). A changed label makes it retry a pod; a changed annotation
//! does not.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::plan::operation::{add, test_uid};
use super::plan::{Action, Event, Target, Write};
use crate::view::Name;
use crate::view::resource::POD;
use k8s_openapi::api::core::v1 as core;

/// The label that is changed to make the scheduler retry a pod. Its value is the time of the
/// change, in seconds since 1970.
pub(crate) const WAKE: &str = "stowplan.dev/wake";

/// Reads from [`WAKE`] when a pod was last woken, in seconds since 1970.
pub(crate) fn woken(pod: &core::Pod) -> Option<i64> {
    pod.metadata.labels.as_ref()?.get(WAKE)?.parse().ok()
}

/// The shortest time between two wake-ups.
const INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// The longest time between two wake-ups: the scheduler retries every unschedulable pod within it.
const LONGEST: SignedDuration = SignedDuration::from_mins(5);

/// The time of the next wake-up of a pod that has been unschedulable since `since`. The first
/// wake-up is after `patience`, which leaves time for the scheduler's own retries; the intervals
/// grow afterwards. `woken` is the time of the last wake-up, in seconds since 1970. `None`: the
/// time is out of range.
#[must_use]
pub(crate) fn due(
    since: Timestamp,
    woken: Option<i64>,
    patience: SignedDuration,
) -> Option<Timestamp> {
    let woken = woken.and_then(|seconds| Timestamp::from_second(seconds).ok());
    match woken.filter(|woken| *woken >= since) {
        None => since.checked_add(patience).ok(),
        Some(woken) => {
            let waited = woken.duration_since(since);
            woken.checked_add((waited / 4).clamp(INTERVAL, LONGEST)).ok()
        }
    }
}

/// Plans to wake a pod. `group` is the kind of its group in the event's text.
#[must_use]
pub(crate) fn call(name: &Name, uid: &str, now: Timestamp, group: &str) -> Action {
    let operations =
        vec![test_uid(uid), add(&["metadata", "labels", WAKE], now.as_second().to_string())];
    let event = Event {
        warning: false,
        reason: "Woken",
        note: format!("the label {WAKE} was changed so that the scheduler tries the {group} again"),
    };
    let target = Target::new(POD, name, uid);
    Action::new(target, Write::Patch(operations), vec![event]).with_volatile(&[WAKE])
}
