//! Log lines that clients can cause at any rate.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Limits log lines to one a second, for failures that clients can cause at any rate and that a
/// metric counts.
#[derive(Debug)]
pub(crate) struct Throttle(AtomicU64);

impl Throttle {
    /// A throttle that lets the first line pass.
    #[must_use]
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Lets a line pass if none has passed in this second.
    pub(crate) fn try_pass(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.0.swap(now, Ordering::Relaxed) != now
    }
}
