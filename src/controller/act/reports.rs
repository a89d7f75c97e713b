//! Holds back events that report a state until the state has lasted for a while.
//!
//! Many states pass at once: a group waits for a pod that ends a second after its TaskRun, a claim is
//! bound, a taint is removed after a cordon. Events about them only distract, so they are recorded if
//! they are still planned after [`PATIENCE`], in the same words. A state whose text goes on changing is
//! reported every [`LONGEST`]. Events about steps are in one plan only, and are recorded at once.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use stowplan_core::systems::plan::{Action, Target};

/// How long a state lasts before it is reported.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// How long a state whose text changes waits for a text that lasts.
pub(super) const LONGEST: Duration = Duration::from_secs(15);

/// The states ([`Action::lasting`]) that the latest plan reports, by object and reason.
#[derive(Debug, Default)]
pub(super) struct Reports {
    states: HashMap<(Target, &'static str), State>,
}

/// A state that lasts, with the texts about it.
#[derive(Debug, Default)]
struct State {
    /// The texts of the latest plan, and when each is due.
    notes: HashMap<String, Instant>,
    /// When a text is due at the latest, if one has changed since all were due.
    latest: Option<Instant>,
}

impl Reports {
    /// Takes the actions without a write of the latest plan, and removes from them the events that are
    /// not due.
    pub(super) fn take(&mut self, mut actions: Vec<Action>, now: Instant) -> Vec<Action> {
        let mut states: HashMap<_, State> = HashMap::new();
        for action in &mut actions {
            let lasting = action.lasting;
            action.events.retain(|event| {
                if !lasting.contains(&event.reason) {
                    return true;
                }
                let key = (action.target.clone(), event.reason);
                let known = self.states.get(&key);
                let latest = known.and_then(|known| known.latest);
                let state = states.entry(key).or_default();
                state.latest = state.latest.or(latest);
                let due = known.and_then(|known| known.notes.get(&event.note)).copied();
                let due = due.unwrap_or_else(|| {
                    let latest = state.latest.get_or_insert(now + LONGEST);
                    (*latest).min(now + PATIENCE)
                });
                state.notes.insert(event.note.clone(), due);
                due <= now
            });
        }
        for state in states.values_mut() {
            if state.notes.values().all(|due| *due <= now) {
                state.latest = None;
            }
        }
        self.states = states;
        actions
    }

    /// When the next event is due.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let due = self.states.values().flat_map(|state| state.notes.values());
        due.filter(|due| now < **due).min().copied()
    }
}
