//! Holds back events that report a state until the state has lasted for a while.
//!
//! Many states pass at once: a group waits for a pod that ends a second after its TaskRun, a claim is
//! bound, a taint is removed after a cordon. Events about them only distract, so they are recorded if
//! they are still planned after [`PATIENCE`]. Events about steps are in one plan only, and are recorded
//! at once.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::systems::plan::{Action, Target};

/// How long a state lasts before it is reported.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// The states ([`Action::lasting`]) that the latest plan reports: the object and the reason, and since
/// when. Another text about the same reason is the same state.
#[derive(Debug, Default)]
pub(super) struct Reports {
    since: HashMap<(Target, &'static str), Instant>,
}

impl Reports {
    /// Takes the actions without a write of the latest plan, and removes from them the events that are
    /// not due.
    pub(super) fn take(&mut self, mut actions: Vec<Action>, now: Instant) -> Vec<Action> {
        let mut since = HashMap::new();
        for action in &mut actions {
            let lasting = action.lasting;
            action.events.retain(|event| {
                if !lasting.contains(&event.reason) {
                    return true;
                }
                let key = (action.target.clone(), event.reason);
                let first = self.since.get(&key).copied().unwrap_or(now);
                since.insert(key, first);
                first + PATIENCE <= now
            });
        }
        self.since = since;
        actions
    }

    /// When the next event is due.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.since.values().map(|first| *first + PATIENCE).filter(|due| now < *due).min()
    }
}
