//! Limits the number of requests per second, and sends fewer after the API server asked for that.
//!
//! The API server protects itself: it queues requests by their accounts, and answers 429 if a queue is
//! full (API Priority and Fairness). A slow API server gets fewer requests by itself, because only
//! [`CONCURRENCY`](super::CONCURRENCY) are in flight. What is left for a limit is an API server that is
//! quick and yet should not be given everything at once: its etcd, its audit log, and the watches of
//! others, to all of which each write is sent. So the limit is high, and each 429 halves it for a while.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

/// The limit is never lowered below the highest one divided by this, nor below one request per
/// second.
const MOST_LOWERED: f64 = 16.0;

/// How long a limit needs to grow from nothing to the highest one.
const RECOVERY: Duration = Duration::from_secs(30);

/// The requests of so much time may be sent at once.
const BURST: Duration = Duration::from_secs(2);

/// A bucket of tokens, as the time at which the next token would be taken if all were taken as they
/// come, and the pause that the API server requested.
#[derive(Debug)]
pub(crate) struct Limiter {
    /// The highest number of requests per second in the long run.
    highest: f64,
    /// The number of requests per second that is allowed now.
    rate: f64,
    /// When the rate was raised last.
    since: Option<Instant>,
    /// The turn of the next request if it came at once. In the past, by at most [`BURST`]: tokens
    /// are left. `None`: no request has been sent.
    next: Option<Instant>,
    /// No writes before this time.
    pub(super) busy_until: Option<Instant>,
}

impl Limiter {
    pub(crate) fn new(per_second: NonZeroU32) -> Self {
        let highest = f64::from(per_second.get());
        Self { highest, rate: highest, since: None, next: None, busy_until: None }
    }

    /// Takes a token. Returns the earliest time at which the request may be sent.
    pub(super) fn take(&mut self, now: Instant) -> Instant {
        self.raise(now);
        let one = Duration::from_secs_f64(self.rate.recip());
        let earliest = (now + one).checked_sub(BURST).unwrap_or(now);
        let turn = self.next.map_or(earliest, |next| next.max(earliest));
        self.next = Some(turn + one);
        turn.max(now)
    }

    /// Records that the API server accepts no writes before `until`. Requests that were in flight
    /// together are refused together: they lower the limit once.
    pub(super) fn pause(&mut self, now: Instant, until: Instant) {
        self.raise(now);
        if self.busy_until.is_none_or(|busy_until| busy_until <= now) {
            self.rate = (self.rate / 2.0).max(self.highest / MOST_LOWERED).max(1.0);
        }
        // What was saved for a burst would be sent at once after the pause.
        self.next = Some(self.next.map_or(until, |next| next.max(until)));
        self.busy_until = Some(self.busy_until.map_or(until, |present| present.max(until)));
    }

    /// Raises the rate by the time that has passed.
    fn raise(&mut self, now: Instant) {
        let passed = self.since.map_or(Duration::ZERO, |since| now.duration_since(since));
        self.since = Some(now);
        let grown = self.highest * passed.div_duration_f64(RECOVERY);
        self.rate = (self.rate + grown).min(self.highest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limiter(per_second: u32) -> Limiter {
        Limiter::new(NonZeroU32::new(per_second).unwrap())
    }

    /// How many of as many requests as possible may be sent within a second from `from` on.
    fn sent_within_a_second(limiter: &mut Limiter, from: Instant) -> usize {
        (0..1000).take_while(|_| limiter.take(from) < from + SECOND).count()
    }

    #[test]
    fn two_seconds_requests_at_once_and_then_the_limit() {
        let start = Instant::now();
        let mut limiter = limiter(50);
        let turns: Vec<Duration> = (0..200).map(|_| limiter.take(start) - start).collect();
        assert!(turns[..100].iter().all(|wait| wait.is_zero()), "{turns:?}");
        assert_eq!(turns[100].as_millis(), 20);
        assert_eq!(turns[149].as_millis(), 1000);
        // The bucket is full again after a minute.
        let later = start + 60 * SECOND;
        assert!((0..100).all(|_| limiter.take(later) == later));
        assert!(limiter.take(later) > later);
    }

    #[test]
    fn answers_of_429_halve_the_limit_and_it_recovers() {
        let start = Instant::now();
        let mut limiter = limiter(160);
        limiter.pause(start, start + SECOND);
        // Those that were in flight at the same time.
        limiter.pause(start, start + SECOND);
        assert_eq!(limiter.busy_until, Some(start + SECOND));
        let within = sent_within_a_second(&mut limiter, start + SECOND);
        assert!((80..=90).contains(&within), "half, and no burst: {within}");
        // What is asked for again and again is not lowered for ever.
        let mut now = start;
        for _ in 0..20 {
            now += Duration::from_millis(1001);
            limiter.pause(now, now + SECOND);
        }
        let lowest = sent_within_a_second(&mut limiter, now + SECOND);
        assert!((9..=20).contains(&lowest), "{lowest}");
        let recovered = now + RECOVERY + 2 * SECOND;
        assert_eq!(limiter.take(recovered), recovered);
        assert_eq!(limiter.rate, 160.0);
    }

    proptest! {
        /// Whatever happens: in no span are more requests sent than the limit allows for it, beside
        /// one burst; and a request that waits is sent in the end.
        #[test]
        fn no_span_has_more_than_its_requests(
            per_second in prop_oneof![1_u32..20, 20_u32..500],
            steps in prop::collection::vec((0_u64..2000, 0_usize..40, prop::bool::weighted(0.1)), 1..40),
        ) {
            let mut limiter = limiter(per_second);
            let mut now = Instant::now();
            let mut turns = Vec::new();
            for (millis, requests, is_busy) in steps {
                now += Duration::from_millis(millis);
                if is_busy {
                    limiter.pause(now, now + SECOND);
                    prop_assert!(limiter.rate >= 1.0, "{}", limiter.rate);
                }
                turns.extend((0..requests).map(|_| limiter.take(now)));
                // Each waits for the others, at the lowest limit, and for each pause.
                let longest = SECOND * u32::try_from(turns.len() + 41).unwrap();
                prop_assert!(turns.iter().all(|turn| *turn <= now + longest), "{turns:?}");
                prop_assert!(turns.is_sorted(), "{turns:?}");
            }
            let limit = f64::from(per_second);
            for (index, from) in turns.iter().enumerate() {
                for (sent, to) in turns[index..].iter().enumerate() {
                    let allowed = limit * (BURST + (*to - *from)).as_secs_f64() + 1.0;
                    prop_assert!((sent as f64) < allowed + 1e-3, "{sent} in {:?}", *to - *from);
                }
            }
        }
    }
}
