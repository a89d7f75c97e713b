//! Steps aside where a ResourceQuota has no room for a pod of the run beside its placeholder.

use super::{Decider, Next};
use crate::systems::coschedule::keys::FAILED;

impl Decider<'_, '_> {
    /// The placeholder has stepped aside. It does not come back: its pod would take the room again
    /// that the run's next pod needs. `None` if it has not.
    pub(super) fn stay_aside(&mut self) -> Option<Next> {
        let since = self.state.details.time(FAILED)?;
        // They were admitted before the webhook saw that.
        self.release_members(since);
        Some(Next::Nothing)
    }

    /// Lets the placeholder step aside if a TaskRun of its run gets no pod because of a quota for longer
    /// than the grace period, and no member needs the placeholder: without it the pod may be created.
    /// Of several in a namespace the first by name does in each grace period, because its room may be enough.
    ///
    /// A placeholder that creates claims stays: its members cannot run without them.
    pub(super) fn step_aside(&mut self) -> Option<Next> {
        let state = self.state;
        let is_needed = !state.running.is_empty()
            || !state.waiting.is_empty()
            || !state.placeholder.templates.is_empty();
        let run = state.placeholder.run.as_ref()?;
        let since = self.facts.refused_since(&run.uid)?;
        if is_needed || state.pod.is_none() {
            return None;
        }
        let since = self.facts.last_aside(&state.name.namespace).map_or(since, |it| it.max(since));
        self.elapsed_or_recheck(since, self.facts.grace()).then_some(Next::StepAside)
    }
}
