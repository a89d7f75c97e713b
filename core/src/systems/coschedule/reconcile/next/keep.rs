//! Keeps autoscalers from removing the node of a placeholder.

use k8s_openapi::jiff::Timestamp;

use super::Decider;
use crate::systems::coschedule::kinds::member::Member;
use crate::systems::coschedule::reconcile::desired::ends;
use crate::systems::coschedule::reconcile::duration;

impl Decider<'_, '_> {
    /// Decides whether the annotations of the placeholder's pod that autoscalers read should be there. `None`: they
    /// are left as they are.
    pub(super) fn keep_node(&mut self) -> Option<bool> {
        self.state.desired?;
        // A pod without a plan may have no annotations, and is created again.
        self.state.pod.filter(|pod| pod.place().is_some() && pod.plan.is_some())?;
        Some(self.should_keep_node())
    }

    /// Returns true if the group has work to do that ends, and has not waited for too long. Members that run for
    /// ever, as those of Deployments, are evicted and created again with their group.
    fn should_keep_node(&mut self) -> bool {
        let state = self.state;
        let period = duration(self.facts.policy.coschedule.keep_node_for);
        if period.is_zero()
            || !state.running.iter().chain(&state.waiting).all(|pod| ends(pod.member))
        {
            return false;
        }
        let quiet_since =
            self.facts.view.members_of(state.name).filter_map(|(_, of)| last_event(of));
        // Not since it got its node: it may move while its members wait.
        match quiet_since.chain(state.placeholder.identity.created).max() {
            Some(since) if state.running.is_empty() => !self.elapsed_or_recheck(since, period),
            _ => true,
        }
    }
}

/// Returns when a member was created or ended.
fn last_event(member: &Member) -> Option<Timestamp> {
    let ended = member.details.as_ref().and_then(|details| details.ended);
    ended.max(member.identity.created)
}
