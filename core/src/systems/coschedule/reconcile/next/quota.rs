//! Steps aside where a ResourceQuota or a queue has no room for a pod of the group beside its placeholder.

use super::{Aside, Decider, Next};
use crate::kubernetes::domain;
use crate::systems::coschedule::keys::FAILED;
use crate::systems::coschedule::kinds::placeholder::PlaceholderPod;
use crate::systems::coschedule::reconcile::group_pod::GroupPod;

impl Decider<'_, '_> {
    /// The placeholder has stepped aside. It does not come back: its pod would take the room again
    /// that the next pod of its group needs. `None` if it has not.
    pub(super) fn stay_aside(&mut self) -> Option<Next> {
        let since = self.state.details.time(FAILED)?;
        // They were admitted before the webhook saw that.
        match self.state.desired {
            Some(_) => self.release_members(since, |pod| pod.needs_labels() && pod.keeps_labels()),
            None => self.release_members(since, |_| true),
        }
        Some(Next::LetIn)
    }

    /// Lets the placeholder step aside for pods of its group that would else wait in a queue for ever. A queue holds
    /// pods by a gate until it has quota for them, and is known by its labels on the placeholder. Either it holds the
    /// placeholder, and a pod of the group has what was left; or it holds a pod of the group, and counts what the
    /// placeholder has requested at first. `None` if that has not lasted for longer than the grace period.
    pub(super) fn leave_queue(&mut self, pod: &PlaceholderPod) -> Option<Next> {
        self.state.desired.filter(|_| !pod.finished && !pod.identity.deleting)?;
        let is_kept = |waiting: &&GroupPod<'_>| match waiting.member.other_gate() {
            None => pod.is_queued,
            Some(gate) => {
                !pod.is_gated && domain(gate).is_some_and(|of| pod.label_domains.contains(of))
            }
        };
        let kept = self.state.waiting.iter().filter(is_kept);
        let since = kept.filter_map(|pod| pod.member.identity.created).min()?;
        let since = pod.identity.created.map_or(since, |created| created.max(since));
        let is_due = self.elapsed_or_recheck(since, self.facts.grace());
        is_due.then_some(Next::StepAside(Aside::Queue))
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
        self.elapsed_or_recheck(since, self.facts.grace()).then_some(Next::StepAside(Aside::Quota))
    }
}
