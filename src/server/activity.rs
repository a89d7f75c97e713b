//! The activity of a client's connection, and which of its deadlines has passed.
//!
//! hyper has one timer for two things: the head of a request, which should take seconds, and the
//! time between requests, which must be longer than the API server keeps a connection in its pool
//! (it does not repeat a call that meets a closed connection). So hyper's timer is off, and
//! [`Client`] distinguishes the two by recording when bytes arrive and when requests begin. A
//! third deadline is for a client that does not read its answer; hyper would wait for it forever.
//! The deadline for bodies is in the service, which knows the timeout of the call.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::limits::Limits;

/// A client, as the server sees it: its address, and what its connection is doing.
#[derive(Debug)]
pub struct Client {
    /// The address that it calls from.
    pub(super) address: IpAddr,
    /// Cancelled when the connection has to make room for another.
    pub(super) close: CancellationToken,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Since when the connection is idle, receives a head, or serves requests.
    since: Instant,
    /// Requests that have begun.
    requests: usize,
    /// Requests whose bodies are complete and that are not answered yet.
    unanswered: usize,
    /// Bytes have arrived, and no request has begun yet.
    is_in_head: bool,
    /// Bytes between requests are the beginning of a head. In HTTP/2 they may also be settings,
    /// window updates and pings, so there only the idle deadline applies.
    expects_heads: bool,
    /// A request was answered with a decision.
    was_useful: bool,
    /// Since when bytes wait to be read by the client.
    write_blocked_since: Option<Instant>,
}

/// A deadline that has passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Deadline {
    /// A request's head took too long.
    Head,
    /// No request arrived for too long.
    Idle,
    /// The client did not read its answer.
    Answer,
}

/// The part of the order of closing that a connection knows itself, the smallest first: true if it
/// was answered with a decision, and since when it is in its phase. `Slots` compares the addresses
/// in between.
pub(super) type CloseOrder = (bool, Instant);

impl Client {
    /// A client at `address`, whose connection is idle from now on.
    #[must_use]
    pub fn new(address: IpAddr) -> Self {
        let state = State {
            since: Instant::now(),
            requests: 0,
            unanswered: 0,
            is_in_head: false,
            expects_heads: false,
            was_useful: false,
            write_blocked_since: None,
        };
        Self { address, close: CancellationToken::new(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The changes are plain assignments, which do not panic, so none is ever half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the TLS handshake is complete.
    pub(super) fn finish_handshake(&self, http2: bool) {
        let mut state = self.state();
        state.expects_heads = !http2;
        state.since = Instant::now();
    }

    /// Notes that bytes have arrived.
    ///
    /// Bytes that arrive while a request is served are its body or, pipelined, the next head. They
    /// cannot be distinguished here, so after a partial head that arrived that early the connection
    /// counts as idle.
    pub(super) fn record_read(&self) {
        let mut state = self.state();
        if state.expects_heads && state.requests == 0 && !state.is_in_head {
            state.is_in_head = true;
            state.since = Instant::now();
        }
    }

    /// Notes that a write completed at once, or has to wait for the client.
    pub(super) fn record_write(&self, at_once: bool) {
        let mut state = self.state();
        state.write_blocked_since = match at_once {
            true => None,
            false => state.write_blocked_since.or_else(|| Some(Instant::now())),
        };
    }

    /// Begins a request, which ends when the result is dropped.
    pub(super) fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        let mut state = self.state();
        state.requests += 1;
        state.is_in_head = false;
        state.since = Instant::now();
        ActiveRequest(Arc::clone(self))
    }

    /// Notes that a body is complete: until the result is dropped, the connection is not closed to
    /// free slots.
    pub(super) fn owe_answer(&self) -> Owed<'_> {
        self.state().unanswered += 1;
        Owed(self)
    }

    /// Notes that a request is answered with a decision.
    pub(super) fn mark_useful(&self) {
        self.state().was_useful = true;
    }

    /// Returns the connection's part of the order of closing. `None` while a request is unanswered:
    /// such a connection is not closed to free slots.
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
        let next = match self.is_in_head {
            true => (self.since + limits.head, Deadline::Head),
            false => (self.since + limits.idle, Deadline::Idle),
        };
        // The service applies the deadlines of a request.
        let next = (self.requests == 0).then_some(next);
        let answer =
            self.write_blocked_since.map(|since| (since + limits.answer, Deadline::Answer));
        next.into_iter().chain(answer).min_by_key(|(deadline, _)| *deadline)
    }
}

/// A request that has begun.
#[derive(Debug)]
pub(super) struct ActiveRequest(Arc<Client>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.requests -= 1;
        state.since = Instant::now();
    }
}

/// An answer that a client waits for.
#[derive(Debug)]
pub(super) struct Owed<'c>(&'c Client);

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        self.0.state().unanswered -= 1;
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

    fn client(http2: bool) -> Arc<Client> {
        let client = Client::new(IpAddr::from([10, 0, 0, 1]));
        client.finish_handshake(http2);
        Arc::new(client)
    }

    /// Returns the deadline that passes, and after how many full seconds.
    async fn late(client: &Client) -> (Deadline, u64) {
        let from = Instant::now();
        (client.wait_for_deadline(LIMITS).await, from.elapsed().as_secs())
    }

    /// No deadline passes within so many seconds.
    async fn has_no_deadline(client: &Client, seconds: u64) -> bool {
        timeout(Duration::from_secs(seconds), client.wait_for_deadline(LIMITS)).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_begins_late_has_its_full_time_and_no_more() {
        // At many offsets to the checks, which are 5 s apart.
        for begin in [0, 1, 4999, 5000, 5001, 89_000] {
            let client = client(false);
            let watch = tokio::spawn({
                let client = Arc::clone(&client);
                async move { (client.wait_for_deadline(LIMITS).await, Instant::now()) }
            });
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(begin)).await;
            client.record_read();
            let began = Instant::now();
            // More bytes of the same head give it no more time.
            tokio::time::sleep(Duration::from_secs(3)).await;
            client.record_read();
            let (deadline, at) = watch.await.unwrap();
            assert_eq!(deadline, Deadline::Head, "{begin}");
            let late = (at - began).checked_sub(LIMITS.head);
            assert!(late.is_some_and(|late| late.as_millis() < 10), "{begin}: {late:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_has_neither_deadline_and_the_next_starts_them_again() {
        let client = client(false);
        client.record_read();
        advance(Duration::from_secs(4)).await;
        let serving = client.begin_request();
        assert!(has_no_deadline(&client, 1000).await);
        drop(serving);
        assert_eq!(late(&client).await, (Deadline::Idle, 150));
        client.record_read();
        assert_eq!(late(&client).await, (Deadline::Head, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_are_counted() {
        let client = client(true);
        // Settings, windows, pings.
        client.record_read();
        let (one, two) = (client.begin_request(), client.begin_request());
        drop(one);
        assert!(has_no_deadline(&client, 1000).await);
        drop(two);
        client.record_read();
        assert_eq!(late(&client).await, (Deadline::Idle, 150));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_the_client_does_not_read_has_a_deadline() {
        let client = client(false);
        client.record_write(false);
        advance(Duration::from_secs(3)).await;
        client.record_write(false);
        assert_eq!(late(&client).await, (Deadline::Answer, 4));
        client.record_write(true);
        assert_eq!(late(&client).await.0, Deadline::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_cancelled_before_its_body_is_not_counted() {
        let client = client(false);
        let (complete, half) = (client.begin_request(), client.begin_request());
        let owed = client.owe_answer();
        drop(half);
        assert_eq!(client.close_order(), None);
        drop((owed, complete));
        assert!(client.close_order().is_some());
        assert_eq!(late(&client).await, (Deadline::Idle, 150));
    }
}
