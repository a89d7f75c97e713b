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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::activity::Client;

/// The connection slots of a listener.
#[derive(Debug)]
pub(super) struct Slots {
    free: Arc<Semaphore>,
    open: Mutex<Vec<Weak<Client>>>,
}

/// A slot in use. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct Slot {
    /// The client that uses it.
    pub(super) client: Arc<Client>,
    _permit: OwnedSemaphorePermit,
}

impl Slots {
    pub(super) fn new(capacity: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(capacity.max(1))), open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Weak<Client>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a free slot for a connection from `address`, and closes other connections if there
    /// is none.
    pub(super) async fn acquire(&self, address: IpAddr) -> Slot {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
                break permit;
            }
            self.close_some();
            // If every connection has an unanswered request, none can be closed yet: try again
            // soon.
            let freed = Arc::clone(&self.free).acquire_owned();
            if let Ok(Ok(permit)) = timeout(Duration::from_millis(20), freed).await {
                break permit;
            }
        };
        let client = Arc::new(Client::new(address.to_canonical()));
        let mut open = self.open();
        open.retain(|client| client.strong_count() > 0);
        open.push(Arc::downgrade(&client));
        Slot { client, _permit: permit }
    }

    /// Asks the first connections in close order to close: one, and of more than 64 one in 64. So
    /// in a flood of connections, not every new one costs a search. Asks no others while some close.
    pub(super) fn close_some(&self) {
        let open: Vec<_> = self.open().iter().filter_map(Weak::upgrade).collect();
        if open.iter().any(|client| client.close.is_cancelled()) {
            return;
        }
        let mut by_address: HashMap<IpAddr, usize> = HashMap::new();
        for client in &open {
            *by_address.entry(client.address).or_default() += 1;
        }
        let close_order = |client: &Arc<Client>| {
            let (was_useful, since) = client.close_order()?;
            let most_first = Reverse(by_address[&client.address]);
            Some(((was_useful, most_first, since), Arc::clone(client)))
        };
        let mut candidates: Vec<_> = open.iter().filter_map(close_order).collect();
        candidates.sort_unstable_by_key(|(close_order, _)| *close_order);
        for (_, client) in candidates.into_iter().take(open.len().div_ceil(64)) {
            client.close.cancel();
        }
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
        timeout(Duration::from_secs(60), slot.client.close.cancelled()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_is_closed_for_a_new_one() {
        let slots = Arc::new(Slots::new(3));
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(slots.acquire(HERE).await);
            advance(Duration::from_secs(1)).await;
        }
        // The oldest has an unanswered request, the second was answered with a decision.
        let first = Arc::clone(&held[0].client);
        let _owed = first.owe_answer();
        held[1].client.mark_useful();
        let waiting = waiting(&slots, HERE);
        asked_to_close(&held[2]).await;
        assert!(!held[0].client.close.is_cancelled() && !held[1].client.close.is_cancelled());
        // No other connection is asked to close while one is closing.
        advance(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished() && !held[1].client.close.is_cancelled());
        held.pop();
        waiting.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_gets_the_slot_of_one_that_becomes_idle() {
        let slots = Arc::new(Slots::new(1));
        let slot = slots.acquire(HERE).await;
        let client = Arc::clone(&slot.client);
        let owed = client.owe_answer();
        let waiting = waiting(&slots, HERE);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished() && !slot.client.close.is_cancelled());
        drop(owed);
        asked_to_close(&slot).await;
        drop((slot, client));
        waiting.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_address_with_the_most_connections_gives_way_first() {
        let slots = Arc::new(Slots::new(4));
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
        assert!(!lone.client.close.is_cancelled(), "although it is idle for longer");
        held.remove(0);
        waiting.await.unwrap();
    }
}
