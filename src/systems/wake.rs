//! Waiting pods that the scheduler has forgotten.
//!
//! When the last assigned pod goes that others wait for, the scheduler does not look at those again for
//! five minutes (kubernetes#141354). A changed label makes it look; a changed annotation does not.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::plan::operation::{add, test_uid};
use super::plan::{Action, Event, Kind, Target, Write};
use crate::view::Name;
use crate::view::streams_pod::WAKE;

/// The shortest time between two calls.
const INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// The longest: the scheduler itself looks at every waiting pod in this time.
const LONGEST: SignedDuration = SignedDuration::from_mins(5);

/// When who waits since then is to be woken: so long after that, and a while after the last time, which is
/// in seconds since 1970. `patience` is for the scheduler's own events, which come first. The longer it waits, the rarer it is tried: then it is not the scheduler's memory
/// that is at fault. `None`: never, as far as times go.
#[must_use]
pub fn due(since: Timestamp, woken: Option<i64>, patience: SignedDuration) -> Option<Timestamp> {
    let woken = woken.and_then(|seconds| Timestamp::from_second(seconds).ok());
    match woken.filter(|woken| *woken >= since) {
        None => since.checked_add(patience).ok(),
        Some(woken) => {
            let waited = woken.duration_since(since);
            woken.checked_add((waited / 4).clamp(INTERVAL, LONGEST)).ok()
        }
    }
}

/// Wakes a pod. `what` it waits with is for people: a group of some kind.
#[must_use]
pub fn call(name: &Name, uid: &str, now: Timestamp, what: &str) -> Action {
    let operations =
        vec![test_uid(uid), add(&["metadata", "labels", WAKE], now.as_second().to_string())];
    Action {
        target: Target {
            kind: Kind::Pod,
            namespace: name.namespace.clone(),
            name: name.name.clone(),
            uid: uid.into(),
        },
        write: Write::Patch(operations),
        events: vec![Event {
            warning: false,
            reason: "Woken",
            note: format!("the scheduler was made to look at the waiting {what} again"),
        }],
    }
}
