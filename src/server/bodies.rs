//! Admits the large request bodies: one at a time from each address, and as many as the memory for
//! them holds.
//!
//! The place of a connection includes a small body, so a client that stalls one takes nothing from
//! others. A large body needs memory beside that. While it arrives, it is the only one of its
//! address, and it has to keep up: so a client that stalls large bodies delays those of its own
//! address, and no others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout};

/// How far a large body may be behind [`RATE`].
const GRACE: Duration = Duration::from_secs(1);

/// The bytes a second at which a large body has to arrive.
const RATE: u32 = 1024 * 1024;

/// How long a large body waits for its turn: longer than one that has stalled may take it. The API server tries
/// again after a refusal.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often a large body looks for free bytes. A queue would keep bytes that are free for one that waits for more.
const PAUSE: Duration = Duration::from_millis(10);

/// The large bodies of a server.
#[derive(Debug)]
pub(super) struct LargeBodies {
    /// A permit for each byte.
    bytes: Semaphore,
    /// One permit for each address, while a body of it arrives or waits.
    by_address: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// The turn of a large body.
#[derive(Debug)]
pub(super) struct Turn<'b> {
    began: Instant,
    _of_address: OwnedSemaphorePermit,
    bytes: SemaphorePermit<'b>,
}

impl LargeBodies {
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes: Semaphore::new(bytes), by_address: Mutex::default() }
    }

    /// Waits for the turn of a body of `bytes` bytes from `address`. `None`: others take too long.
    pub(super) async fn begin(&self, address: IpAddr, bytes: usize) -> Option<Turn<'_>> {
        let of_address = {
            let mut all = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, one| Arc::strong_count(one) > 1);
            Arc::clone(all.entry(address).or_insert_with(|| Arc::new(Semaphore::new(1))))
        };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let turn = async {
            let of_address = of_address.acquire_owned().await.ok()?;
            loop {
                if let Ok(bytes) = self.bytes.try_acquire_many(bytes) {
                    return Some(Turn { began: Instant::now(), _of_address: of_address, bytes });
                }
                sleep(PAUSE).await;
            }
        };
        timeout(PATIENCE, turn).await.ok().flatten()
    }
}

impl<'b> Turn<'b> {
    /// When more than `received` bytes have to be there.
    pub(super) fn deadline(&self, received: usize) -> Instant {
        let received = u32::try_from(received).unwrap_or(u32::MAX);
        self.began + GRACE + Duration::from_secs(1) * received / RATE
    }

    /// Ends the turn of a body that has arrived, which still needs its bytes.
    pub(super) fn end(self) -> SemaphorePermit<'b> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_body_waits_for_those_of_its_own_address_only() {
        let bodies = LargeBodies::new(100);
        let stalled = bodies.begin(address(1), 40).await.unwrap();
        assert!(bodies.begin(address(1), 1).await.is_none());
        let other = bodies.begin(address(2), 40).await.unwrap();
        // One that has arrived makes room for the next of its address, and keeps its bytes.
        let arrived = other.end();
        assert!(bodies.begin(address(2), 21).await.is_none());
        assert!(bodies.begin(address(2), 20).await.is_some());
        // One that needs more than is free keeps nothing from one that needs less.
        let (large, small) =
            tokio::join!(bodies.begin(address(3), 21), bodies.begin(address(4), 20));
        assert!(large.is_none() && small.is_some());
        drop((stalled, arrived, small));
        assert!(bodies.begin(address(1), 100).await.is_some());
        assert_eq!(bodies.by_address.lock().unwrap().len(), 1, "addresses are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_time_for_the_bytes_that_it_sends() {
        let bodies = LargeBodies::new(1);
        let turn = bodies.begin(address(1), 1).await.unwrap();
        let after = |received| turn.deadline(received) - turn.began;
        assert_eq!(after(0), GRACE);
        assert_eq!(after(7 * 1024 * 1024), GRACE + Duration::from_secs(7));
    }
}
