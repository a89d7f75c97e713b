//! Limits how many connections of a listener are open at once.
//!
//! When all slots are taken, a new connection is not refused: the connections that were idle for
//! the longest are closed instead. If new connections were refused, any client that opens
//! connections and sends nothing could lock the API server out until its connections time out. A
//! connection with an unanswered request is never closed, and those that were answered with a
//! decision are closed last. Among equals, those of the address with the most connections come
//! first; an address is only an order, because API servers may share one behind a proxy.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::activity::Activity;
use super::bodies::Client;

/// The connection slots of a listener.
#[derive(Debug)]
pub(super) struct Slots {
    capacity: usize,
    connections: Mutex<Connections>,
    released: Notify,
}

#[derive(Debug, Default)]
struct Connections {
    /// The number of the next connection.
    next: u64,
    open: HashMap<u64, Connection>,
    /// How many of the open connections were asked to close.
    closing: usize,
}

#[derive(Debug)]
struct Connection {
    address: IpAddr,
    activity: Arc<Activity>,
    close: CancellationToken,
}

/// A slot in use. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    /// The client that uses it.
    pub(super) client: Client,
    /// What the connection in this slot is doing.
    pub(super) activity: Arc<Activity>,
    /// Cancelled when the slot is needed for a new connection.
    pub(super) close: CancellationToken,
}

impl Slots {
    pub(super) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            capacity: capacity.max(1),
            connections: Mutex::default(),
            released: Notify::new(),
        })
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a free slot for a connection from `address`, and closes other connections if there
    /// is none.
    pub(super) async fn acquire(self: &Arc<Self>, address: IpAddr) -> Slot {
        let address = address.to_canonical();
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            // Enabled before the attempt, so that a slot which is freed in between is not missed.
            released.as_mut().enable();
            if let Some(slot) = self.try_acquire(address) {
                return slot;
            }
            // If every connection has an unanswered request, none can be closed yet: try again
            // soon.
            let _ = timeout(Duration::from_millis(20), released).await;
        }
    }

    fn try_acquire(self: &Arc<Self>, address: IpAddr) -> Option<Slot> {
        let mut connections = self.connections();
        if connections.open.len() >= self.capacity {
            if connections.closing == 0 {
                connections.close_some();
            }
            return None;
        }
        let number = connections.next;
        connections.next += 1;
        let (activity, close) = (Arc::new(Activity::new()), CancellationToken::new());
        let connection =
            Connection { address, activity: Arc::clone(&activity), close: close.clone() };
        connections.open.insert(number, connection);
        drop(connections);
        let client = Client { address, connection: number };
        Some(Slot { slots: Arc::clone(self), client, activity, close })
    }

    /// Closes some connections, for a process that has no file descriptors left although slots are
    /// free.
    pub(super) fn free_some(&self) {
        self.connections().close_some();
    }
}

impl Connections {
    /// Asks the first connections in close order to close: one, and of more than 64 one in 64. So
    /// in a flood of connections, not every new one costs a search.
    fn close_some(&mut self) {
        let number = self.open.len().div_ceil(64);
        let mut by_address: HashMap<IpAddr, usize> = HashMap::new();
        for connection in self.open.values() {
            *by_address.entry(connection.address).or_default() += 1;
        }
        let mut candidates: Vec<_> = self
            .open
            .values()
            .filter(|connection| !connection.close.is_cancelled())
            .filter_map(|connection| {
                let (was_useful, since) = connection.activity.close_order()?;
                let most_first = Reverse(by_address[&connection.address]);
                Some(((was_useful, most_first, since), &connection.close))
            })
            .collect();
        candidates.sort_unstable_by_key(|(close_order, _)| *close_order);
        for (_, close) in candidates.into_iter().take(number) {
            close.cancel();
            self.closing += 1;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut connections = self.slots.connections();
        connections.open.remove(&self.client.connection);
        if self.close.is_cancelled() {
            connections.closing -= 1;
        }
        drop(connections);
        self.slots.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// A connection that waits for a slot.
    fn waiting(slots: &Arc<Slots>, from: IpAddr) -> tokio::task::JoinHandle<Slot> {
        let slots = Arc::clone(slots);
        tokio::spawn(async move { slots.acquire(from).await })
    }

    /// Waits until a connection is asked to close. The clock is paused, so a failure takes no time.
    async fn asked_to_close(slot: &Slot) {
        timeout(Duration::from_secs(60), slot.close.cancelled()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_is_closed_for_a_new_one() {
        let slots = Slots::new(3);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(slots.acquire(HERE).await);
            advance(Duration::from_secs(1)).await;
        }
        // The oldest has an unanswered request, the second was answered with a decision.
        let owed = held[0].activity.begin_request();
        owed.mark_body_complete();
        held[1].activity.begin_request().mark_useful();
        let waiting = waiting(&slots, HERE);
        asked_to_close(&held[2]).await;
        assert!(!held[0].close.is_cancelled() && !held[1].close.is_cancelled());
        // No other connection is asked to close while one is closing.
        advance(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished() && !held[1].close.is_cancelled());
        held.pop();
        waiting.await.unwrap();
        assert_eq!(slots.connections().closing, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_gets_the_slot_of_one_that_becomes_idle() {
        let slots = Slots::new(1);
        let slot = slots.acquire(HERE).await;
        let owed = slot.activity.begin_request();
        owed.mark_body_complete();
        let waiting = waiting(&slots, HERE);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished() && !slot.close.is_cancelled());
        drop(owed);
        asked_to_close(&slot).await;
        drop(slot);
        waiting.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_address_with_the_most_connections_gives_way_first() {
        let slots = Slots::new(4);
        let lone = slots.acquire(HERE).await;
        advance(Duration::from_secs(1)).await;
        let crowd = IpAddr::from([10, 0, 0, 1]);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(slots.acquire(crowd).await);
            advance(Duration::from_secs(1)).await;
        }
        let waiting = waiting(&slots, crowd);
        asked_to_close(&held[0]).await;
        assert!(!lone.close.is_cancelled(), "although it is idle for longer");
        held.remove(0);
        waiting.await.unwrap();
    }
}
