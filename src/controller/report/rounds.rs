//! Bounds how often the pods of one owner are recreated.
//!
//! If the webhook does not get the new pods either, recreating them has no effect. So each owner's
//! pods are recreated in rounds: the first round has the pods that were seen before any deletion,
//! the next one has their replacements, and each round waits twice as long as the one before. The
//! leader counts; a new leader begins at zero.

use std::collections::HashMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The minimum age of a pending pod that is recreated in the first round.
const PATIENCE: SignedDuration = SignedDuration::from_mins(1);

/// The number of rounds.
const LIMIT: u32 = 5;

/// How long an owner without unplaced pods is remembered after its last recreation.
const MEMORY: SignedDuration = SignedDuration::from_hours(1);

/// The minimum age of a pod of this round that is recreated. `None`: it is not.
#[must_use]
pub(super) fn pause(round: u32) -> Option<SignedDuration> {
    (round < LIMIT).then(|| PATIENCE * 2_i32.pow(round))
}

/// The rounds of each owner, by its UID.
#[derive(Debug, Default)]
pub(super) struct Rounds(HashMap<Box<str>, Owner>);

#[derive(Debug)]
struct Owner {
    /// The number of rounds in which a pod was deleted.
    rounds: u32,
    /// The last deletion.
    last: Timestamp,
}

impl Rounds {
    /// The round of a pod that is seen first now.
    #[must_use]
    pub(super) fn of(&self, owner: Option<&str>) -> u32 {
        owner.and_then(|owner| self.0.get(owner)).map_or(0, |owner| owner.rounds)
    }

    /// Counts the deletion of a pod of this round. The same pod may be counted again.
    pub(super) fn count(&mut self, owner: Option<&str>, round: u32, now: Timestamp) {
        let Some(owner) = owner else { return };
        let counted = self.0.entry(owner.into()).or_insert(Owner { rounds: 0, last: now });
        counted.rounds = counted.rounds.max(round + 1);
        counted.last = now;
    }

    /// Forgets the owners without pods whose last recreation was long ago.
    pub(super) fn forget(&mut self, now: Timestamp, has_pods: impl Fn(&str) -> bool) {
        self.0.retain(|uid, owner| now.duration_since(owner.last) < MEMORY || has_pods(uid));
    }
}
