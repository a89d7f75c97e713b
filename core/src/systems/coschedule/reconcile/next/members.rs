//! Steps for the members of a placeholder.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::on_node::Placed;
use super::{Decider, Step};
use crate::systems::coschedule::groups::{self, Membership};
use crate::systems::coschedule::kinds::placeholder::PlaceholderPod;
use crate::systems::coschedule::placeholder::Desired;
use crate::systems::coschedule::reconcile::group_pod::GroupPod;
use crate::systems::coschedule::reconcile::reason;
use crate::systems::coschedule::reconcile::state::PATIENCE;
use crate::systems::wake;

impl<'v> Decider<'_, 'v> {
    /// Recreates waiting members that now belong to another group of their run. When they were
    /// admitted, it was not yet known which nodes can mount the run's volumes.
    pub(super) fn recreate_members_of_other_groups(&mut self) {
        let Some(run) = self.state.desired.and_then(Desired::run) else { return };
        let groups = &run.groups;
        if groups.groups.len() < 2 {
            return;
        }
        let view = self.facts.view;
        for &pod in &self.state.waiting {
            let GroupPod { name, member, details } = pod;
            // Users can set the label.
            if !pod.is_placed() || member.group.is_some() {
                continue;
            }
            let Some(task_run) = pod.recreating_task_run(view) else { continue };
            let claims: Vec<&str> = details.claims.iter().map(AsRef::as_ref).collect();
            let selector: Vec<(&str, &str)> =
                details.node_selector.iter().map(|(key, value)| (&**key, &**value)).collect();
            let is_free = groups::needs_no_node(&name.namespace, view);
            let task = task_run.task.as_deref();
            if let Membership::Of(group) = groups.membership(task, &claims, &selector, is_free)
                && *group.name != *self.state.name.name
            {
                let why = format!(
                    "no node can mount all volumes of its run, and it now belongs to placeholder {}",
                    group.name
                );
                self.step(pod, Step::Release(why));
            }
        }
    }

    /// Recreates waiting members that require a node by name which the placeholder has left: they
    /// cannot run on any other. Most are recreated before it leaves (`on_node`); these are of a
    /// placeholder whose pod was evicted or ended.
    ///
    /// stowplan added that requirement, so the policy's `repair` need not allow it.
    pub(super) fn recreate_members_bound_elsewhere(&mut self) {
        let state = self.state;
        let node = state.pod.and_then(PlaceholderPod::place);
        for (pod, bound) in state.bound_by_name().filter(|of| Some(of.1) != node) {
            if pod.is_created_again(self.facts.view) {
                let why = format!("it requires node {bound}, which its group has left");
                self.step(pod, Step::Release(why));
            } else if let Some(node) = node {
                let note = format!(
                    "it requires node {bound}, and its group is now on node {node}: it must be deleted and created again"
                );
                self.step(pod, Step::Strand(reason::BOUND_ELSEWHERE, note));
            }
        }
    }

    /// Lets waiting members run on the placeholder's node: removes gates, and wakes members that the
    /// scheduler refused. A member that does not follow the placeholder by pod affinity requires the node
    /// from then on, so the node must be eligible for it. Returns whether a gate is removed.
    pub(super) fn admit_and_wake(&mut self, placed: &Placed<'_>) -> bool {
        let state = self.state;
        let mut admits = false;
        for &pod in state.waiting.iter().filter(|pod| pod.is_gated()) {
            let has_room = placed.lets_in(pod);
            let follows = pod.details.follows;
            // While others hold it, the placeholder may leave the node that it would require by name.
            let is_bindable = follows || pod.member.other_gate().is_none();
            if (has_room || follows) && is_bindable && !self.is_handing_over(placed, pod, has_room)
            {
                let node = (!follows).then(|| placed.node.into());
                self.step(pod, Step::Admit(node));
                admits = true;
            }
        }
        for (pod, since) in state.unschedulable(placed.pod.scheduled_since) {
            // A wake-up helps only a member that fits here.
            let is_bound_elsewhere = pod.bound_by_name().is_some_and(|on| on != placed.node);
            if !is_bound_elsewhere && placed.lets_in(pod) {
                self.wake_member(pod, since);
            }
        }
        admits
    }

    /// Wakes a member that has been unschedulable since `since`, once that is due.
    pub(super) fn wake_member(&mut self, pod: GroupPod<'v>, since: Timestamp) {
        if self.is_to_wake(since, pod.details.woken) {
            self.step(pod, Step::Wake);
        }
    }

    /// Returns true if it is time to wake a pod that has been unschedulable since `since`, and was woken at `woken`.
    pub(super) fn is_to_wake(&mut self, since: Timestamp, woken: Option<i64>) -> bool {
        let due = wake::due(since, woken, PATIENCE);
        due.is_some_and(|due| self.elapsed_or_recheck(due, SignedDuration::ZERO))
    }

    /// Returns since when the first of the members waits that have waited longer than the grace period.
    pub(super) fn first_overdue(&mut self, placed: &Placed<'_>) -> Option<Timestamp> {
        let (state, scheduled) = (self.state, placed.pod.scheduled_since);
        let unschedulable = state.unschedulable(scheduled);
        let unschedulable = unschedulable.filter(|(pod, _)| pod.can_follow(state.view));
        let unschedulable = unschedulable.map(|(_, since)| since);
        // The scheduler does not report on gated pods.
        let gated = state.waiting.iter().filter(|pod| pod.is_gated());
        let gated = gated.filter(|pod| !pod.details.follows && !placed.lets_in(**pod));
        let gated = gated.filter_map(|pod| pod.member.identity.created.max(scheduled));
        let since = unschedulable.chain(gated).min()?;
        self.elapsed_or_recheck(since, self.facts.grace()).then_some(since)
    }
}
