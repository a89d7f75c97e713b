//! What a connection is doing, and which of its deadlines has passed.
//!
//! hyper has one timer for two things: the head of a request, which should take seconds, and the
//! time between requests, which must be longer than the API server keeps a connection in its pool
//! (it does not repeat a call that meets a closed connection). So hyper's timer is off, and
//! [`Activity`] distinguishes the two by recording when bytes arrive and when requests begin. A
//! third deadline is for a client that does not read its answer; hyper would wait for it forever.
//! The deadline for bodies is in the service, which knows the timeout of the call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::{Instant, sleep_until};

use super::limits::Limits;

/// What a connection is doing, and since when.
#[derive(Debug)]
pub(super) struct Activity(Mutex<State>);

#[derive(Clone, Copy, Debug)]
struct State {
    phase: Phase,
    since: Instant,
    /// Whether bytes between requests are the beginning of a head. In HTTP/2 they may also be
    /// settings, window updates and pings, so there only the idle deadline applies.
    expects_heads: bool,
    /// Requests whose bodies are complete and that are not answered yet.
    unanswered: usize,
    /// Whether any request was answered with a decision.
    was_useful: bool,
    /// Since when bytes wait to be read by the client.
    write_blocked_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// Between requests.
    Idle,
    /// Bytes have arrived, and no request has begun yet.
    Head,
    /// This many requests have begun. The service applies their deadlines.
    Serving(usize),
}

/// Which deadline has passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Deadline {
    /// A request's head took too long.
    Head,
    /// No request arrived for too long.
    Idle,
    /// The client did not read its answer.
    Answer,
}

/// The order in which connections are closed to free slots: the smallest first. Whether a request
/// was answered with a decision, and since when the connection is in its phase.
pub(super) type CloseOrder = (bool, Instant);

impl Activity {
    /// A connection that is idle from now on.
    pub(super) fn new() -> Self {
        Self(Mutex::new(State {
            phase: Phase::Idle,
            since: Instant::now(),
            expects_heads: false,
            unanswered: 0,
            was_useful: false,
            write_blocked_since: None,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment, so a panic leaves no change half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The TLS handshake is complete.
    pub(super) fn finish_handshake(&self, http2: bool) {
        let mut state = self.state();
        state.expects_heads = !http2;
        state.since = Instant::now();
    }

    /// Bytes have arrived.
    ///
    /// Bytes that arrive while a request is served are its body or, pipelined, the next head. They
    /// cannot be distinguished here, so after a partial head that arrived that early the connection
    /// counts as idle.
    pub(super) fn record_read(&self) {
        let mut state = self.state();
        if state.expects_heads && state.phase == Phase::Idle {
            state.phase = Phase::Head;
            state.since = Instant::now();
        }
    }

    /// A write completed at once, or has to wait for the client.
    pub(super) fn record_write(&self, at_once: bool) {
        let mut state = self.state();
        state.write_blocked_since = if at_once {
            None
        } else {
            Some(state.write_blocked_since.unwrap_or_else(Instant::now))
        };
    }

    /// A request has begun; it ends when the result is dropped.
    pub(super) fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        let mut state = self.state();
        state.phase = Phase::Serving(match state.phase {
            Phase::Serving(requests) => requests + 1,
            Phase::Idle | Phase::Head => 1,
        });
        state.since = Instant::now();
        drop(state);
        ActiveRequest { activity: Arc::clone(self), body_complete: AtomicBool::new(false) }
    }

    /// When this connection is closed to free slots, compared with others. `None` while a request
    /// is unanswered: such a connection is not closed. Connections that were never answered with a
    /// decision come first, and of those the longest idle.
    pub(super) fn close_order(&self) -> Option<CloseOrder> {
        let state = self.state();
        (state.unanswered == 0).then_some((state.was_useful, state.since))
    }

    /// Waits until a deadline has passed.
    pub(super) async fn wait_for_deadline(&self, limits: Limits) -> Deadline {
        // A deadline that is not set yet is at least this far in the future. So checking this often
        // misses none, and changes need no wake-up.
        let nearest = limits.head.min(limits.answer);
        loop {
            let deadline = self.state().deadline(limits);
            let now = Instant::now();
            match deadline {
                Some((deadline, late)) if deadline <= now => return late,
                Some((deadline, _)) => sleep_until(deadline.min(now + nearest)).await,
                None => sleep_until(now + nearest).await,
            }
        }
    }
}

impl State {
    fn deadline(&self, limits: Limits) -> Option<(Instant, Deadline)> {
        let phase = match self.phase {
            Phase::Idle => Some((self.since + limits.idle, Deadline::Idle)),
            Phase::Head => Some((self.since + limits.head, Deadline::Head)),
            Phase::Serving(_) => None,
        };
        let answer =
            self.write_blocked_since.map(|since| (since + limits.answer, Deadline::Answer));
        phase.into_iter().chain(answer).min_by_key(|(deadline, _)| *deadline)
    }
}

/// A request that has begun.
#[derive(Debug)]
pub(super) struct ActiveRequest {
    activity: Arc<Activity>,
    body_complete: AtomicBool,
}

impl ActiveRequest {
    /// The body is complete: from now on the connection is not closed before the answer.
    pub(super) fn mark_body_complete(&self) {
        if !self.body_complete.swap(true, Ordering::Relaxed) {
            self.activity.state().unanswered += 1;
        }
    }

    /// The request is answered with a decision.
    pub(super) fn mark_useful(&self) {
        self.activity.state().was_useful = true;
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut state = self.activity.state();
        if *self.body_complete.get_mut() {
            state.unanswered -= 1;
        }
        state.phase = match state.phase {
            Phase::Serving(requests) if requests > 1 => Phase::Serving(requests - 1),
            _ => Phase::Idle,
        };
        state.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{advance, timeout};

    use super::*;

    const LIMITS: Limits = Limits {
        head: Duration::from_secs(5),
        answer: Duration::from_secs(7),
        idle: Duration::from_secs(150),
        ..Limits::DEFAULT
    };

    fn http1() -> Arc<Activity> {
        let activity = Activity::new();
        activity.finish_handshake(false);
        Arc::new(activity)
    }

    /// Which deadline passes, and after how many full seconds.
    async fn late(activity: &Activity) -> (Deadline, u64) {
        let from = Instant::now();
        (activity.wait_for_deadline(LIMITS).await, from.elapsed().as_secs())
    }

    /// No deadline passes within so many seconds.
    async fn has_no_deadline(activity: &Activity, seconds: u64) -> bool {
        timeout(Duration::from_secs(seconds), activity.wait_for_deadline(LIMITS)).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_begins_late_has_its_full_time_and_no_more() {
        // At many offsets to the checks, which are 5 s apart.
        for begin in [0, 1, 4999, 5000, 5001, 89_000] {
            let activity = http1();
            let watch = tokio::spawn({
                let activity = Arc::clone(&activity);
                async move { (activity.wait_for_deadline(LIMITS).await, Instant::now()) }
            });
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(begin)).await;
            activity.record_read();
            let began = Instant::now();
            // More bytes of the same head give it no more time.
            tokio::time::sleep(Duration::from_secs(3)).await;
            activity.record_read();
            let (deadline, at) = watch.await.unwrap();
            assert_eq!(deadline, Deadline::Head, "{begin}");
            let late = (at - began).checked_sub(LIMITS.head);
            assert!(late.is_some_and(|late| late.as_millis() < 10), "{begin}: {late:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_has_neither_deadline_and_the_next_starts_them_again() {
        let activity = http1();
        activity.record_read();
        advance(Duration::from_secs(4)).await;
        let serving = activity.begin_request();
        assert!(has_no_deadline(&activity, 1000).await);
        drop(serving);
        assert_eq!(late(&activity).await, (Deadline::Idle, 150));
        activity.record_read();
        assert_eq!(late(&activity).await, (Deadline::Head, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_are_counted() {
        let activity = Arc::new(Activity::new());
        activity.finish_handshake(true);
        // Settings, windows, pings.
        activity.record_read();
        let (one, two) = (activity.begin_request(), activity.begin_request());
        drop(one);
        assert!(has_no_deadline(&activity, 1000).await);
        drop(two);
        activity.record_read();
        assert_eq!(late(&activity).await, (Deadline::Idle, 150));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_the_client_does_not_read_has_a_deadline() {
        let activity = http1();
        activity.record_write(false);
        advance(Duration::from_secs(3)).await;
        activity.record_write(false);
        assert_eq!(late(&activity).await, (Deadline::Answer, 4));
        activity.record_write(true);
        assert_eq!(late(&activity).await.0, Deadline::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_cancelled_before_its_body_is_not_counted() {
        let activity = http1();
        let (body_complete, half) = (activity.begin_request(), activity.begin_request());
        body_complete.mark_body_complete();
        body_complete.mark_body_complete();
        drop(half);
        assert_eq!(activity.close_order(), None);
        drop(body_complete);
        assert!(activity.close_order().is_some());
        assert_eq!(late(&activity).await, (Deadline::Idle, 150));
    }
}
