//! Who is connected, up to a number.
//!
//! When all places are taken, a newcomer does not go away: those who were quiet for the longest do.
//! Refusing newcomers would let anyone who opens connections and keeps silent lock the API server
//! out until those are given up; this way silence costs the silent. A connection that is owed an
//! answer is never given up, and those that were of use before go last.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::pace::Pace;

/// The places of a listener.
#[derive(Debug)]
pub(super) struct Room {
    places: usize,
    guests: Mutex<Guests>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Guests {
    /// Numbers the guests.
    next: u64,
    present: HashMap<u64, Guest>,
    /// How many of them were asked to leave.
    leaving: usize,
}

#[derive(Debug)]
struct Guest {
    pace: Arc<Pace>,
    leave: CancellationToken,
}

/// A taken place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    room: Arc<Room>,
    number: u64,
    /// What its guest is doing.
    pub(super) pace: Arc<Pace>,
    /// Cancelled when another needs the place.
    pub(super) leave: CancellationToken,
}

impl Room {
    pub(super) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { places: places.max(1), guests: Mutex::default(), left: Notify::new() })
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a newcomer, for which others may have to leave.
    pub(super) async fn enter(self: &Arc<Self>) -> Place {
        loop {
            let mut left = std::pin::pin!(self.left.notified());
            // Before the look: who leaves in between is not missed.
            left.as_mut().enable();
            if let Some(place) = self.try_enter() {
                return place;
            }
            // Where all are owed answers nobody can be asked, but soon somebody can.
            let _ = timeout(Duration::from_millis(20), left).await;
        }
    }

    fn try_enter(self: &Arc<Self>) -> Option<Place> {
        let mut guests = self.guests();
        if guests.present.len() >= self.places {
            if guests.leaving == 0 {
                guests.ask_some();
            }
            return None;
        }
        let number = guests.next;
        guests.next += 1;
        let (pace, leave) = (Arc::new(Pace::new()), CancellationToken::new());
        guests.present.insert(number, Guest { pace: Arc::clone(&pace), leave: leave.clone() });
        drop(guests);
        Some(Place { room: Arc::clone(self), number, pace, leave })
    }

    /// Asks some to leave: for who is out of file descriptors before the room is full.
    pub(super) fn make_room(&self) {
        self.guests().ask_some();
    }
}

impl Guests {
    /// Several at a time where there are many, so that in a flood not every newcomer pays for a
    /// search.
    fn ask_some(&mut self) {
        let number = self.present.len().div_ceil(64);
        let mut candidates: Vec<_> = self
            .present
            .values()
            .filter(|guest| !guest.leave.is_cancelled())
            .filter_map(|guest| Some((guest.pace.merit()?, &guest.leave)))
            .collect();
        candidates.sort_unstable_by_key(|(merit, _)| *merit);
        for (_, leave) in candidates.into_iter().take(number) {
            leave.cancel();
            self.leaving += 1;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut guests = self.room.guests();
        guests.present.remove(&self.number);
        if self.leave.is_cancelled() {
            guests.leaving -= 1;
        }
        drop(guests);
        self.room.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_quiet_makes_room() {
        let room = Room::new(3);
        let mut places = Vec::new();
        for _ in 0..3 {
            places.push(room.enter().await);
            advance(Duration::from_secs(1)).await;
        }
        // The oldest is owed an answer, the second was of use.
        let owed = places[0].pace.begin();
        owed.came_whole();
        places[1].pace.begin().was_useful();
        let newcomer = tokio::spawn({
            let room = Arc::clone(&room);
            async move { room.enter().await }
        });
        places[2].leave.cancelled().await;
        assert!(!places[0].leave.is_cancelled() && !places[1].leave.is_cancelled());
        // Nobody else is asked while one is on the way out.
        advance(Duration::from_secs(1)).await;
        assert!(!newcomer.is_finished() && !places[1].leave.is_cancelled());
        places.pop();
        newcomer.await.unwrap();
        assert_eq!(room.guests().leaving, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_the_place_of_one_that_becomes_quiet() {
        let room = Room::new(1);
        let place = room.enter().await;
        let owed = place.pace.begin();
        owed.came_whole();
        let newcomer = tokio::spawn({
            let room = Arc::clone(&room);
            async move { room.enter().await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!newcomer.is_finished() && !place.leave.is_cancelled());
        drop(owed);
        place.leave.cancelled().await;
        drop(place);
        newcomer.await.unwrap();
    }

    #[tokio::test]
    async fn an_empty_room_asks_nobody() {
        let room = Room::new(0);
        room.make_room();
        let place = room.enter().await;
        room.make_room();
        assert!(place.leave.is_cancelled());
        drop(place);
        let guests = room.guests();
        assert_eq!((guests.leaving, guests.present.len()), (0, 0));
    }
}
