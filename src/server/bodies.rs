//! Counts the bytes of all request bodies, and decides which body is given up when they are spent.
//!
//! There are two stores: one for the first part of each body, which an ordinary pod fits into, and
//! one for the rest of large ones. When a store is spent, a body that arrives too slowly gives way
//! to one that needs bytes: of the address that holds the most bytes first, and of these the
//! oldest. An address is only an order, never a limit: all API servers may call from one address,
//! behind a proxy. A body that has arrived completely is never given up.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::limits::{Limits, MAX_BODY};

/// The client of a request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Client {
    /// The address that it calls from.
    pub address: IpAddr,
    /// The number of its connection.
    pub connection: u64,
}

/// A body that has not arrived after this time is slow, unless it arrives at [`RATE`].
const GRACE: Duration = Duration::from_millis(250);

/// The bytes a second at which a body is not slow.
const RATE: usize = 1024 * 1024;

/// How long a body waits for bytes that others hold.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a body that waits checks whether another has become slow.
const CHECK: Duration = Duration::from_millis(50);

/// The bytes of all bodies.
#[derive(Debug)]
pub(super) struct Bodies {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the next body.
    next: u64,
    bodies: BTreeMap<Id, Entry>,
    /// How many bytes of each store are in use.
    used: [usize; 2],
    /// The bodies that wait for bytes, in the order of their arrival.
    waiting: Vec<Waiting>,
}

/// A body. In this order the bodies of one connection follow each other.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Id {
    connection: u64,
    /// Older bodies have smaller numbers.
    number: u64,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    held: [usize; 2],
    /// When the first byte arrived. The time that the body waited for bytes does not count.
    began: Option<Instant>,
    is_complete: bool,
    /// `None`: the body was given up.
    give_up: Option<oneshot::Sender<()>>,
}

#[derive(Debug)]
struct Waiting {
    body: Id,
    address: IpAddr,
    store: usize,
    bytes: usize,
    since: Instant,
    granted: oneshot::Sender<()>,
}

/// A body whose bytes are counted until this is dropped.
#[derive(Debug)]
pub(super) struct Counted<'b> {
    bodies: &'b Bodies,
    id: Id,
}

/// Completes when a body is given up for another.
pub(super) type GivenUp = oneshot::Receiver<()>;

/// Why a body gets no bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Spent {
    /// Other bodies hold the bytes, and none of them is slow.
    Store,
    /// The other requests of the same connection hold them.
    Connection,
}

const SMALL: usize = 0;
const LARGE: usize = 1;

impl Bodies {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a body of `client`.
    pub(super) fn begin(&self, client: Client) -> (Counted<'_>, GivenUp) {
        let (give_up, given_up) = oneshot::channel();
        let mut state = self.state();
        let id = Id { connection: client.connection, number: state.next };
        state.next += 1;
        let entry = Entry {
            address: client.address,
            held: [0; 2],
            began: None,
            is_complete: false,
            give_up: Some(give_up),
        };
        state.bodies.insert(id, entry);
        drop(state);
        (Counted { bodies: self, id }, given_up)
    }

    fn capacity(&self, store: usize) -> usize {
        [self.limits.small_bytes, self.limits.large_bytes][store]
    }

    /// Gives bytes to those that wait: first to the address that holds the fewest. If they do not
    /// suffice, slow bodies are given up.
    fn grant(&self, state: &mut State, now: Instant) {
        for store in [SMALL, LARGE] {
            while let Some(first) = state.first_waiting(store) {
                let bytes = state.waiting[first].bytes;
                if state.used[store] + bytes > self.capacity(store) {
                    state.give_up_slow(store, bytes, self.capacity(store), now);
                    break;
                }
                let waiting = state.waiting.swap_remove(first);
                state.take(waiting.body, store, bytes);
                if let Some(entry) = state.bodies.get_mut(&waiting.body) {
                    entry.began = entry.began.map(|began| began + (now - waiting.since));
                }
                // A receiver that is gone has a body that is about to be dropped, with its bytes.
                let _ = waiting.granted.send(());
            }
        }
    }
}

impl State {
    fn first_waiting(&self, store: usize) -> Option<usize> {
        let waiting = self.waiting.iter().enumerate().filter(|(_, one)| one.store == store);
        let mut waiting = waiting.peekable();
        waiting.peek()?;
        let held = self.held_by_address();
        let held = |address: &IpAddr| held.get(address).copied().unwrap_or_default();
        let first = waiting.min_by_key(|(_, one)| (held(&one.address), one.body.number));
        first.map(|(index, _)| index)
    }

    /// How many bytes the bodies of each address hold. Counted when bytes are short, not for each
    /// body.
    fn held_by_address(&self) -> HashMap<IpAddr, usize> {
        let mut held = HashMap::new();
        for entry in self.bodies.values() {
            *held.entry(entry.address).or_default() += entry.total();
        }
        held
    }

    fn held_by_connection(&self, connection: u64) -> usize {
        let of = |number| Id { connection, number };
        self.bodies.range(of(0)..=of(u64::MAX)).map(|(_, entry)| entry.total()).sum()
    }

    fn take(&mut self, body: Id, store: usize, bytes: usize) {
        let Some(entry) = self.bodies.get_mut(&body) else { return };
        entry.held[store] += bytes;
        self.used[store] += bytes;
    }

    /// Gives up slow bodies until `bytes` will be free.
    fn give_up_slow(&mut self, store: usize, bytes: usize, capacity: usize, now: Instant) {
        // Bytes of bodies that were given up and are not dropped yet.
        let leaving = |entry: &&Entry| entry.give_up.is_none();
        let leaving: usize =
            self.bodies.values().filter(leaving).map(|entry| entry.held[store]).sum();
        let mut missing = (self.used[store] + bytes).saturating_sub(capacity + leaving);
        if missing == 0 {
            return;
        }
        let waits = |body: Id| self.waiting.iter().any(|waiting| waiting.body == body);
        let mut slow: Vec<_> = self
            .bodies
            .iter()
            .filter(|(body, entry)| entry.held[store] > 0 && entry.is_slow(now) && !waits(**body))
            .map(|(body, entry)| (entry.address, *body))
            .collect();
        // The oldest last, so that it is taken first.
        slow.sort_unstable_by_key(|(_, body)| std::cmp::Reverse(body.number));
        let mut held = self.held_by_address();
        while missing > 0 {
            let most = slow.iter().map(|(address, _)| *address).max_by_key(|one| held[one]);
            let Some(most) = most else { return };
            let Some(index) = slow.iter().rposition(|(address, _)| *address == most) else {
                return;
            };
            let (_, body) = slow.remove(index);
            let Some(entry) = self.bodies.get_mut(&body) else { return };
            if let Some(give_up) = entry.give_up.take() {
                // A receiver that is gone has a body that is about to be dropped.
                let _ = give_up.send(());
            }
            missing = missing.saturating_sub(entry.held[store]);
            if let Some(held) = held.get_mut(&most) {
                *held -= entry.total().min(*held);
            }
        }
    }
}

impl Entry {
    fn total(&self) -> usize {
        self.held.iter().sum()
    }

    fn is_slow(&self, now: Instant) -> bool {
        let received = self.total();
        let allowed = GRACE + Duration::from_secs(1) * u32_of(received) / u32_of(RATE);
        let is_late = self.began.is_some_and(|began| now.duration_since(began) > allowed);
        is_late && !self.is_complete && self.give_up.is_some()
    }
}

fn u32_of(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Counted<'_> {
    /// Counts that `length` bytes of the body have arrived in all; waits while others hold the
    /// bytes.
    pub(super) async fn grow(&self, length: usize) -> Result<(), Spent> {
        let small = length.min(self.bodies.limits.small_body);
        for (store, length) in [(SMALL, small), (LARGE, length - small)] {
            if length > 0
                && let Some(granted) = self.take_or_wait(store, length)?
            {
                self.wait_for_bytes(granted).await?;
            }
        }
        Ok(())
    }

    /// Takes the bytes that the body lacks to hold `length` bytes of a store. If they are not free,
    /// the body waits for them, and what completes when it is granted them is returned.
    fn take_or_wait(
        &self,
        store: usize,
        length: usize,
    ) -> Result<Option<oneshot::Receiver<()>>, Spent> {
        let mut state = self.bodies.state();
        let Some(entry) = state.bodies.get_mut(&self.id) else { return Ok(None) };
        entry.began.get_or_insert_with(Instant::now);
        let address = entry.address;
        let Some(bytes) = length.checked_sub(entry.held[store]).filter(|bytes| *bytes > 0) else {
            return Ok(None);
        };
        if state.held_by_connection(self.id.connection) + bytes > MAX_BODY {
            return Err(Spent::Connection);
        }
        let is_free = state.used[store] + bytes <= self.bodies.capacity(store);
        if is_free && state.waiting.iter().all(|waiting| waiting.store != store) {
            state.take(self.id, store, bytes);
            return Ok(None);
        }
        let (granted, receiver) = oneshot::channel();
        let (body, since) = (self.id, Instant::now());
        state.waiting.push(Waiting { body, address, store, bytes, since, granted });
        Ok(Some(receiver))
    }

    async fn wait_for_bytes(&self, mut granted: oneshot::Receiver<()>) -> Result<(), Spent> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = Instant::now();
            self.bodies.grant(&mut self.bodies.state(), now);
            if let Ok(granted) = timeout_at(deadline.min(now + CHECK), &mut granted).await {
                return granted.map_err(|_| Spent::Store);
            }
            if Instant::now() >= deadline {
                return Err(Spent::Store);
            }
        }
    }

    /// The body has arrived: it is not given up any more.
    pub(super) fn complete(&self) {
        if let Some(entry) = self.bodies.state().bodies.get_mut(&self.id) {
            entry.is_complete = true;
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut state = self.bodies.state();
        state.waiting.retain(|waiting| waiting.body != self.id);
        let Some(entry) = state.bodies.remove(&self.id) else { return };
        for (store, bytes) in entry.held.into_iter().enumerate() {
            state.used[store] -= bytes;
        }
        if !state.waiting.is_empty() {
            self.bodies.grant(&mut state, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    const KIB: usize = 1024;

    fn bodies() -> Bodies {
        Bodies::new(Limits {
            small_body: 64 * KIB,
            small_bytes: 256 * KIB,
            large_bytes: 1024 * KIB,
            ..Limits::DEFAULT
        })
    }

    fn client(address: u8, connection: u64) -> Client {
        Client { address: [10, 0, 0, address].into(), connection }
    }

    /// A body of which only the bytes matter.
    fn begin(bodies: &Bodies, client: Client) -> Counted<'_> {
        bodies.begin(client).0
    }

    /// So many bodies from one address that have arrived in full.
    async fn complete(bodies: &Bodies, count: u64) -> Vec<Counted<'_>> {
        let mut held = Vec::new();
        for connection in 0..count {
            let body = begin(bodies, client(1, connection));
            body.grow(64 * KIB).await.unwrap();
            body.complete();
            held.push(body);
        }
        held
    }

    fn is_given_up(given_up: &mut GivenUp) -> bool {
        given_up.try_recv().is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_slow_body_of_the_address_that_holds_most_gives_way() {
        let bodies = bodies();
        let mut lone = bodies.begin(client(1, 1));
        lone.0.grow(64 * KIB).await.unwrap();
        let many = (2..5).map(|connection| bodies.begin(client(2, connection)));
        let mut many: Vec<_> = many.collect();
        for (body, _) in &many {
            body.grow(64 * KIB).await.unwrap();
        }
        advance(Duration::from_secs(2)).await;
        let new = begin(&bodies, client(3, 9));
        // It is given the bytes once the body that was given up has been dropped.
        let (granted, many) = tokio::join!(new.grow(18 * KIB), async move {
            let (oldest, given_up) = many.remove(0);
            given_up.await.unwrap();
            assert!(!many.iter_mut().any(|(_, given_up)| is_given_up(given_up)));
            drop(oldest);
            many
        });
        assert_eq!(granted, Ok(()));
        assert!(!is_given_up(&mut lone.1));
        drop((lone, many, new));
        let state = bodies.state();
        assert_eq!(state.used, [0, 0]);
        assert!(state.bodies.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn complete_bodies_and_quick_ones_are_never_given_up() {
        let bodies = bodies();
        let _held = complete(&bodies, 3).await;
        advance(Duration::from_secs(2)).await;
        let (quick, mut given_up) = bodies.begin(client(1, 3));
        quick.grow(64 * KIB).await.unwrap();
        let new = begin(&bodies, client(2, 4));
        let asked = Instant::now();
        let grown = timeout(Duration::from_millis(200), new.grow(KIB)).await;
        assert!(grown.is_err(), "nothing is slow yet");
        assert!(!is_given_up(&mut given_up));
        // The cancelled attempt waits for nothing any more. Nor does the next one for ever.
        drop(new);
        quick.complete();
        let new = begin(&bodies, client(2, 5));
        assert_eq!(new.grow(KIB).await, Err(Spent::Store));
        assert!(asked.elapsed() >= PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_holds_little_is_served_before_one_that_holds_much() {
        let bodies = bodies();
        let mut held = complete(&bodies, 4).await;
        let (greedy, modest) = (begin(&bodies, client(1, 8)), begin(&bodies, client(2, 9)));
        let one = async {
            advance(Duration::from_millis(10)).await;
            held.pop();
        };
        let (greedy, modest, ()) = tokio::join!(greedy.grow(64 * KIB), modest.grow(64 * KIB), one);
        assert_eq!((greedy, modest), (Err(Spent::Store), Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_holds_no_more_than_one_body_may_have() {
        let bodies = Bodies::new(Limits::DEFAULT);
        let (one, two) = (begin(&bodies, client(1, 1)), begin(&bodies, client(1, 1)));
        one.grow(MAX_BODY - KIB).await.unwrap();
        assert_eq!(two.grow(2 * KIB).await, Err(Spent::Connection));
        drop(one);
        assert_eq!(two.grow(2 * KIB).await, Ok(()));
    }
}
