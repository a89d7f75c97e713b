//! Counts the bytes of all request bodies, and decides which body is given up when they are spent.
//!
//! There are two stores: one for the first part of each body, which an ordinary pod fits into, and
//! one for the rest of large ones. When a store is spent, a body that arrives too slowly gives way
//! to one that needs bytes: of the address that holds the most bytes first, and of these the
//! oldest. An address is only an order, never a limit: all API servers may call from one address,
//! behind a proxy. A body that has arrived completely is never given up.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

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
    bodies: HashMap<u64, Entry>,
    /// How many bytes of each store are in use.
    used: [usize; 2],
    addresses: HashMap<IpAddr, [usize; 2]>,
    connections: HashMap<u64, usize>,
    /// The bodies that wait for bytes, in the order of their arrival.
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Entry {
    client: Client,
    held: [usize; 2],
    /// When the first byte arrived. The time that the body waited for bytes does not count.
    began: Option<Instant>,
    is_complete: bool,
    give_up: CancellationToken,
}

#[derive(Debug)]
struct Waiting {
    body: u64,
    store: usize,
    bytes: usize,
    since: Instant,
    granted: oneshot::Sender<()>,
}

/// A body whose bytes are counted until this is dropped.
#[derive(Debug)]
pub(super) struct Counted<'b> {
    bodies: &'b Bodies,
    number: u64,
    give_up: CancellationToken,
}

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
    pub(super) fn begin(&self, client: Client) -> Counted<'_> {
        let give_up = CancellationToken::new();
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let entry = Entry {
            client,
            held: [0; 2],
            began: None,
            is_complete: false,
            give_up: give_up.clone(),
        };
        state.bodies.insert(number, entry);
        drop(state);
        Counted { bodies: self, number, give_up }
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
        let first = waiting.min_by_key(|(_, one)| (self.bytes_of_address(one.body), one.body));
        first.map(|(index, _)| index)
    }

    fn bytes_of_address(&self, body: u64) -> usize {
        let address = self.bodies.get(&body).map(|entry| entry.client.address);
        let held = address.and_then(|address| self.addresses.get(&address));
        held.map_or(0, |held| held.iter().sum())
    }

    fn take(&mut self, body: u64, store: usize, bytes: usize) {
        let Some(entry) = self.bodies.get_mut(&body) else { return };
        entry.held[store] += bytes;
        self.used[store] += bytes;
        self.addresses.entry(entry.client.address).or_default()[store] += bytes;
        *self.connections.entry(entry.client.connection).or_default() += bytes;
    }

    /// Gives up slow bodies until `bytes` will be free.
    fn give_up_slow(&mut self, store: usize, bytes: usize, capacity: usize, now: Instant) {
        // Bytes of bodies that were given up and are not dropped yet.
        let leaving = |entry: &&Entry| entry.give_up.is_cancelled();
        let leaving: usize =
            self.bodies.values().filter(leaving).map(|entry| entry.held[store]).sum();
        let mut missing = (self.used[store] + bytes).saturating_sub(capacity + leaving);
        if missing == 0 {
            return;
        }
        let waits = |number: u64| self.waiting.iter().any(|waiting| waiting.body == number);
        let mut slow: Vec<_> = self
            .bodies
            .iter()
            .filter(|(number, entry)| {
                entry.held[store] > 0 && entry.is_slow(now) && !waits(**number)
            })
            .map(|(number, entry)| (entry.client.address, *number))
            .collect();
        // The oldest last, so that it is taken first.
        slow.sort_unstable_by_key(|(_, number)| std::cmp::Reverse(*number));
        let mut held: HashMap<IpAddr, usize> =
            self.addresses.iter().map(|(address, held)| (*address, held.iter().sum())).collect();
        while missing > 0 {
            let most = slow.iter().map(|(address, _)| *address).max_by_key(|one| held[one]);
            let Some(most) = most else { return };
            let Some(index) = slow.iter().rposition(|(address, _)| *address == most) else {
                return;
            };
            let (_, number) = slow.remove(index);
            let Some(entry) = self.bodies.get(&number) else { return };
            entry.give_up.cancel();
            missing = missing.saturating_sub(entry.held[store]);
            if let Some(held) = held.get_mut(&most) {
                *held -= entry.held.iter().sum::<usize>().min(*held);
            }
        }
    }
}

impl Entry {
    fn is_slow(&self, now: Instant) -> bool {
        let received = self.held.iter().sum::<usize>();
        let allowed = GRACE + Duration::from_secs(1) * u32_of(received) / u32_of(RATE);
        let is_late = self.began.is_some_and(|began| now.duration_since(began) > allowed);
        is_late && !self.is_complete && !self.give_up.is_cancelled()
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
        self.grow_store(SMALL, small).await?;
        self.grow_store(LARGE, length - small).await
    }

    async fn grow_store(&self, store: usize, length: usize) -> Result<(), Spent> {
        let now = Instant::now();
        let deadline = now + PATIENCE;
        let mut granted = {
            let mut state = self.bodies.state();
            let Some(entry) = state.bodies.get_mut(&self.number) else { return Ok(()) };
            entry.began.get_or_insert(now);
            let Some(bytes) = length.checked_sub(entry.held[store]).filter(|bytes| *bytes > 0)
            else {
                return Ok(());
            };
            let connection = entry.client.connection;
            let held = state.connections.get(&connection).copied().unwrap_or_default();
            if held + bytes > MAX_BODY {
                return Err(Spent::Connection);
            }
            let is_free = state.used[store] + bytes <= self.bodies.capacity(store);
            if is_free && state.waiting.iter().all(|waiting| waiting.store != store) {
                state.take(self.number, store, bytes);
                return Ok(());
            }
            let (sender, receiver) = oneshot::channel();
            let body = self.number;
            state.waiting.push(Waiting { body, store, bytes, since: now, granted: sender });
            receiver
        };
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
        if let Some(entry) = self.bodies.state().bodies.get_mut(&self.number) {
            entry.is_complete = true;
        }
    }

    /// Completes when the body is given up for another.
    pub(super) async fn given_up(&self) {
        self.give_up.cancelled().await;
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut state = self.bodies.state();
        state.waiting.retain(|waiting| waiting.body != self.number);
        let Some(entry) = state.bodies.remove(&self.number) else { return };
        let Client { address, connection } = entry.client;
        let total: usize = entry.held.iter().sum();
        for (store, bytes) in entry.held.into_iter().enumerate() {
            state.used[store] -= bytes;
        }
        if let Some(held) = state.addresses.get_mut(&address) {
            held.iter_mut().zip(entry.held).for_each(|(held, bytes)| *held -= bytes);
            if *held == [0; 2] {
                state.addresses.remove(&address);
            }
        }
        if let Some(held) = state.connections.get_mut(&connection) {
            *held -= total;
            if *held == 0 {
                state.connections.remove(&connection);
            }
        }
        self.bodies.grant(&mut state, Instant::now());
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

    async fn is_given_up(body: &Counted<'_>) -> bool {
        timeout(Duration::ZERO, body.given_up()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_slow_body_of_the_address_that_holds_most_gives_way() {
        let bodies = bodies();
        let lone = bodies.begin(client(1, 1));
        lone.grow(64 * KIB).await.unwrap();
        let many: Vec<_> = (2..5).map(|connection| bodies.begin(client(2, connection))).collect();
        for body in &many {
            body.grow(64 * KIB).await.unwrap();
        }
        advance(Duration::from_secs(2)).await;
        let new = bodies.begin(client(3, 9));
        // It is given the bytes once the body that was given up has been dropped.
        let (granted, many) = tokio::join!(new.grow(18 * KIB), async move {
            many[0].given_up().await;
            assert!(!is_given_up(&many[1]).await && !is_given_up(&many[2]).await);
            let mut many = many;
            many.remove(0);
            many
        });
        assert_eq!(granted, Ok(()));
        assert!(!is_given_up(&lone).await);
        drop((lone, many, new));
        let state = bodies.state();
        assert_eq!(state.used, [0, 0]);
        assert!(state.addresses.is_empty() && state.connections.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn complete_bodies_and_quick_ones_are_never_given_up() {
        let bodies = bodies();
        let complete: Vec<_> =
            (0..3).map(|connection| bodies.begin(client(1, connection))).collect();
        for body in &complete {
            body.grow(64 * KIB).await.unwrap();
            body.complete();
        }
        advance(Duration::from_secs(2)).await;
        let quick = bodies.begin(client(1, 3));
        quick.grow(64 * KIB).await.unwrap();
        let new = bodies.begin(client(2, 4));
        let asked = Instant::now();
        let grown = timeout(Duration::from_millis(200), new.grow(KIB)).await;
        assert!(grown.is_err(), "nothing is slow yet");
        assert!(!is_given_up(&quick).await);
        // The cancelled attempt waits for nothing any more. Nor does the next one for ever.
        drop(new);
        complete.iter().for_each(|body| body.complete());
        quick.complete();
        let new = bodies.begin(client(2, 5));
        assert_eq!(new.grow(KIB).await, Err(Spent::Store));
        assert!(asked.elapsed() >= PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_holds_little_is_served_before_one_that_holds_much() {
        let bodies = bodies();
        let held: Vec<_> = (0..4).map(|connection| bodies.begin(client(1, connection))).collect();
        for body in &held {
            body.grow(64 * KIB).await.unwrap();
            body.complete();
        }
        let (greedy, modest) = (bodies.begin(client(1, 8)), bodies.begin(client(2, 9)));
        let mut held = held;
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
        let (one, two) = (bodies.begin(client(1, 1)), bodies.begin(client(1, 1)));
        one.grow(MAX_BODY - KIB).await.unwrap();
        assert_eq!(two.grow(2 * KIB).await, Err(Spent::Connection));
        drop(one);
        assert_eq!(two.grow(2 * KIB).await, Ok(()));
    }
}
