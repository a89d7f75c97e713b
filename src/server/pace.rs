//! What a connection is doing, and which of its deadlines has passed.
//!
//! hyper has one timer for two things: the head of a request, which should take seconds, and the
//! time between requests, which must be longer than the API server keeps a connection in its pool
//! (it does not repeat a call that meets a closed connection). So hyper's timer is off, and [`Pace`]
//! tells the two apart by watching when bytes come and when requests begin. A third deadline is for
//! a client that does not take its answer, which hyper would wait for without end. Bodies have
//! theirs in the service, which knows the call's own timeout.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::{Instant, sleep_until};

use super::limits::Limits;

/// What a connection is doing, and since when.
#[derive(Debug)]
pub(super) struct Pace(Mutex<State>);

#[derive(Clone, Copy, Debug)]
struct State {
    phase: Phase,
    since: Instant,
    /// Whether bytes between requests begin the head of one. Not so in HTTP/2, where they are also
    /// settings, windows and pings: there the idle deadline counts alone.
    heads: bool,
    /// Requests that have come whole and are not answered yet.
    busy: usize,
    /// Whether a request was ever answered with a decision.
    useful: bool,
    /// Since when bytes wait for the client to take them.
    held_up: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// Between requests.
    Idle,
    /// Bytes have come, and no request has begun yet.
    Head,
    /// This many requests have begun. Their deadlines are their own.
    Serving(usize),
}

/// Which deadline has passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Late {
    /// A request's head took too long.
    Head,
    /// No request came for too long.
    Idle,
    /// The client did not take its answer.
    Answer,
}

/// In which order connections are given up when others need their places: the smallest first.
pub(super) type Merit = (bool, Instant);

impl Pace {
    /// Idle from now on.
    pub(super) fn new() -> Self {
        Self(Mutex::new(State {
            phase: Phase::Idle,
            since: Instant::now(),
            heads: false,
            busy: 0,
            useful: false,
            held_up: None,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment: nothing is left half done by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handshake is over.
    pub(super) fn greeted(&self, http2: bool) {
        let mut state = self.state();
        state.heads = !http2;
        state.since = Instant::now();
    }

    /// Bytes have come.
    ///
    /// Those that come while a request is served are its body or, pipelined, the next head: the two
    /// cannot be told apart from here, so half a head that came that early counts as idleness.
    pub(super) fn received(&self) {
        let mut state = self.state();
        if state.heads && state.phase == Phase::Idle {
            state.phase = Phase::Head;
            state.since = Instant::now();
        }
    }

    /// Bytes could be written at once, or could not.
    pub(super) fn wrote(&self, at_once: bool) {
        let mut state = self.state();
        state.held_up =
            if at_once { None } else { Some(state.held_up.unwrap_or_else(Instant::now)) };
    }

    /// A request has begun; it ends when the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Serving {
        let mut state = self.state();
        state.phase = Phase::Serving(match state.phase {
            Phase::Serving(requests) => requests + 1,
            Phase::Idle | Phase::Head => 1,
        });
        state.since = Instant::now();
        drop(state);
        Serving { pace: Arc::clone(self), whole: AtomicBool::new(false) }
    }

    /// What giving up this connection would cost: nothing can be said while it is owed an answer
    /// (`None`); then those that were never of use go first, and of equals the longest quiet.
    pub(super) fn merit(&self) -> Option<Merit> {
        let state = self.state();
        (state.busy == 0).then_some((state.useful, state.since))
    }

    /// Resolves when a deadline has passed.
    pub(super) async fn late(&self, limits: Limits) -> Late {
        // A deadline that does not exist yet is at least this far away, so a look this often misses
        // none, and a change needs to wake nobody.
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
    fn deadline(&self, limits: Limits) -> Option<(Instant, Late)> {
        let phase = match self.phase {
            Phase::Idle => Some((self.since + limits.idle, Late::Idle)),
            Phase::Head => Some((self.since + limits.head, Late::Head)),
            Phase::Serving(_) => None,
        };
        let answer = self.held_up.map(|since| (since + limits.answer, Late::Answer));
        phase.into_iter().chain(answer).min_by_key(|(deadline, _)| *deadline)
    }
}

/// A request that has begun.
#[derive(Debug)]
pub(super) struct Serving {
    pace: Arc<Pace>,
    whole: AtomicBool,
}

impl Serving {
    /// Its body has come: from now on it is owed an answer.
    pub(super) fn came_whole(&self) {
        if !self.whole.swap(true, Ordering::Relaxed) {
            self.pace.state().busy += 1;
        }
    }

    /// It is answered with a decision.
    pub(super) fn was_useful(&self) {
        self.pace.state().useful = true;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let mut state = self.pace.state();
        if *self.whole.get_mut() {
            state.busy -= 1;
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

    fn http1() -> Arc<Pace> {
        let pace = Pace::new();
        pace.greeted(false);
        Arc::new(pace)
    }

    /// What is late, and after how many whole seconds.
    async fn late(pace: &Pace) -> (Late, u64) {
        let from = Instant::now();
        (pace.late(LIMITS).await, from.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_outlives_the_pool_of_the_api_server() {
        let pace = http1();
        assert!(timeout(Duration::from_secs(91), pace.late(LIMITS)).await.is_err());
        assert_eq!(late(&pace).await, (Late::Idle, 59));
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_begins_late_has_its_whole_time_and_no_more() {
        // At many offsets to the looks, which come every 5 s.
        for begin in [0, 1, 4999, 5000, 5001, 89_000] {
            let pace = http1();
            let watch = tokio::spawn({
                let pace = Arc::clone(&pace);
                async move { (pace.late(LIMITS).await, Instant::now()) }
            });
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(begin)).await;
            pace.received();
            let began = Instant::now();
            // More bytes of the same head give it no more time.
            tokio::time::sleep(Duration::from_secs(3)).await;
            pace.received();
            let (late, at) = watch.await.unwrap();
            assert_eq!(late, Late::Head, "{begin}");
            let took = at - began;
            assert!(
                took >= LIMITS.head && took < LIMITS.head + Duration::from_millis(10),
                "{begin}: {took:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_has_neither_deadline_and_the_next_begins_anew() {
        let pace = http1();
        pace.received();
        advance(Duration::from_secs(4)).await;
        let serving = pace.begin();
        assert!(timeout(Duration::from_secs(1000), pace.late(LIMITS)).await.is_err());
        drop(serving);
        assert_eq!(late(&pace).await, (Late::Idle, 150));
        pace.received();
        assert_eq!(late(&pace).await, (Late::Head, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_at_once_are_counted() {
        let pace = Arc::new(Pace::new());
        pace.greeted(true);
        // Settings, windows, pings.
        pace.received();
        let (one, two) = (pace.begin(), pace.begin());
        drop(one);
        assert!(timeout(Duration::from_secs(1000), pace.late(LIMITS)).await.is_err());
        drop(two);
        pace.received();
        assert_eq!(late(&pace).await, (Late::Idle, 150));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_takes_is_late() {
        let pace = http1();
        pace.wrote(false);
        advance(Duration::from_secs(3)).await;
        pace.wrote(false);
        assert_eq!(late(&pace).await, (Late::Answer, 4));
        pace.wrote(true);
        assert_eq!(late(&pace).await.0, Late::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_owed_an_answer_stays_and_strangers_go_first() {
        let (stranger, regular) = (http1(), http1());
        let request = regular.begin();
        // A body that does not come is no reason to be kept.
        assert!(regular.merit().is_some());
        request.came_whole();
        request.came_whole();
        assert_eq!(regular.merit(), None);
        request.was_useful();
        drop(request);
        advance(Duration::from_secs(60)).await;
        let newcomer = http1();
        let mut order = [&newcomer, &regular, &stranger].map(|pace| pace.merit().unwrap());
        order.sort();
        assert_eq!(order, [&stranger, &newcomer, &regular].map(|pace| pace.merit().unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_given_up_half_way_is_not_counted_on() {
        let pace = http1();
        let (whole, half) = (pace.begin(), pace.begin());
        whole.came_whole();
        drop(half);
        assert_eq!(pace.merit(), None);
        drop(whole);
        assert!(pace.merit().is_some());
        assert_eq!(late(&pace).await, (Late::Idle, 150));
    }
}
