//! Steps for the members of a placeholder.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::on_node::Placed;
use super::{Decider, Step};
use crate::systems::coschedule::groups::{self, Membership};
use crate::systems::coschedule::kinds::member::{Member, MemberDetails};
use crate::systems::coschedule::kinds::placeholder::PlaceholderPod;
use crate::systems::coschedule::placeholder::Desired;
use crate::systems::coschedule::reconcile::demand::bound_by_name;
use crate::systems::coschedule::reconcile::reason;
use crate::systems::coschedule::reconcile::state::{
    PATIENCE, can_follow, is_placed, recreating_task_run,
};
use crate::systems::wake;
use crate::view::Name;

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
        for &(name, member) in &self.state.waiting {
            let Some(details) = member.details.as_deref() else { continue };
            // Users can set the label.
            if !is_placed(member) || member.group.is_some() {
                continue;
            }
            let Some(task_run) = recreating_task_run(name, member, view) else { continue };
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
                self.step(name, member, Step::Release(why));
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
        for (name, member, bound) in state.bound_by_name().filter(|of| Some(of.2) != node) {
            if recreating_task_run(name, member, self.facts.view).is_some() {
                let why = format!("it requires node {bound}, which its group has left");
                self.step(name, member, Step::Release(why));
            } else if let Some(node) = node {
                let note = format!(
                    "it requires node {bound}, and its group is now on node {node}: it must be deleted and created again"
                );
                self.step(name, member, Step::Strand(reason::BOUND_ELSEWHERE, note));
            }
        }
    }

    /// Lets waiting members run on the placeholder's node: removes gates, and wakes members that the
    /// scheduler refused. A member that does not follow the placeholder by pod affinity requires the node
    /// from then on, so the node must be eligible for it. Returns whether a gate is removed.
    pub(super) fn admit_and_wake(&mut self, placed: &Placed<'_>) -> bool {
        let state = self.state;
        let mut admits = false;
        for &(name, member) in &state.waiting {
            let gated = member.details.as_deref().filter(|details| details.gate.is_some());
            let Some(details) = gated else { continue };
            let has_room = placed.lets_in(name, details);
            if (has_room || details.follows) && !self.is_handing_over(placed, member, has_room) {
                let node = (!details.follows).then(|| placed.node.into());
                self.step(name, member, Step::Admit(node));
                admits = true;
            }
        }
        for (name, member, details, since) in state.unschedulable(placed.pod.scheduled_since) {
            // A wake-up helps only a member that fits here.
            let is_bound_elsewhere = bound_by_name(details).is_some_and(|on| on != placed.node);
            if !is_bound_elsewhere && placed.lets_in(name, details) {
                self.wake_member(name, member, details, since);
            }
        }
        admits
    }

    /// Wakes a member that has been unschedulable since `since`, once that is due.
    pub(super) fn wake_member(
        &mut self,
        name: &'v Name,
        member: &'v Member,
        details: &MemberDetails,
        since: Timestamp,
    ) {
        if self.is_to_wake(since, details.woken) {
            self.step(name, member, Step::Wake);
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
        let unschedulable = state
            .unschedulable(scheduled)
            .filter(|(name, member, ..)| can_follow(name, member, state.view))
            .map(|(.., since)| since);
        // The scheduler does not report on gated pods.
        let gated = state.waiting.iter().filter_map(|(name, member)| {
            let details = member.details.as_deref().filter(|details| details.gate.is_some())?;
            let is_let_in = details.follows || placed.lets_in(name, details);
            member.identity.created.max(scheduled).filter(|_| !is_let_in)
        });
        let since = unschedulable.chain(gated).min()?;
        self.elapsed_or_recheck(since, self.facts.grace()).then_some(since)
    }
}
