//! Limits the number of requests per second.

use std::time::Duration;

use tokio::time::Instant;

/// Requests per second in the long run.
const RATE: u32 = 50;
/// Requests that may be sent at once.
const BURST: u32 = 100;

/// A token bucket of [`BURST`] tokens, refilled with [`RATE`] per second, and the pause that the
/// API server requested.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    /// When the bucket is full again; `None`: it has never been used.
    full_at: Option<Instant>,
    /// No writes before this time.
    pub(super) busy_until: Option<Instant>,
}

impl Limiter {
    /// Takes a token. Returns the earliest time at which the request may be sent.
    pub(super) fn take(&mut self, now: Instant) -> Instant {
        let one = Duration::from_secs(1) / RATE;
        let full_at = self.full_at.map_or(now, |full_at| full_at.max(now)) + one;
        self.full_at = Some(full_at);
        full_at.checked_sub(one * BURST).map_or(now, |at| at.max(now))
    }

    /// Records that the API server accepts no writes before `until`.
    pub(super) fn pause(&mut self, until: Instant) {
        self.busy_until = Some(self.busy_until.map_or(until, |present| present.max(until)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_100_then_50_per_second() {
        let start = Instant::now();
        let mut limiter = Limiter::default();
        let turns: Vec<Duration> = (0..200).map(|_| limiter.take(start) - start).collect();
        assert!(turns[..100].iter().all(|wait| wait.is_zero()), "{turns:?}");
        assert_eq!(turns[100], Duration::from_millis(20));
        assert_eq!(turns[149], Duration::from_secs(1));
        // The bucket is full again after a minute.
        let later = start + Duration::from_secs(60);
        assert!((0..100).all(|_| limiter.take(later) == later));
        assert!(limiter.take(later) > later);
    }
}
