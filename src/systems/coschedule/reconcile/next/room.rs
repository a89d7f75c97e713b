//! The room that a placeholder reserves for its members.
//!
//! Until it has a node, it requests what the largest member requests that waits, or whose task has not begun, in
//! addition to what it keeps. So the scheduler chooses a node on which that member fits, and an autoscaler makes
//! one. Members are gated meanwhile: an autoscaler that saw them would make a node for the sum of both. The pods of
//! a group without Tekton run side by side, so it asks for the sum first.
//!
//! On its node it goes on requesting what the tasks need that have not begun, so that pods of others do not take the
//! room between two tasks. When a member waits that has no room beside it, the placeholder requests less, by what is
//! lacking. Once the member has had its node for a while, the placeholder requests what the next task needs, if the
//! node has no room for both: the kubelet defers that until the member has ended, but the scheduler counts it, and
//! gives the room to no other pod. Not at once: of many groups that begin together, the first would leave no room for
//! the others.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Decider, Next, Step};
use crate::systems::coschedule::kinds::member::{Member, MemberDetails};
use crate::systems::coschedule::kinds::placeholder::PlaceholderPod;
use crate::systems::coschedule::pod_plan::{PodPlan, Room};
use crate::systems::coschedule::policy::Reserve;
use crate::systems::coschedule::reconcile::demand::Demand;
use crate::systems::coschedule::reconcile::desired::Desired;
use crate::systems::coschedule::reconcile::state::{Facts, can_follow};
use crate::view::{Name, Resources};

/// The time in which a bound pod should have given up room for which a member waits. If it still has all of it
/// afterwards, the API server refuses the change, and the pod is created again.
const RELEASE: SignedDuration = SignedDuration::from_secs(10);

/// How long a member waits for its node to give up the room of its placeholder.
const HANDOVER: SignedDuration = SignedDuration::from_secs(60);

/// How long a member has had its node when the placeholder requests room beside it.
const SETTLED: SignedDuration = SignedDuration::from_secs(5);

/// For how long after the creation of its newest waiting pod a group without Tekton asks for a node with
/// room for all of them. It covers a round of an autoscaler.
const SIDE_BY_SIDE: SignedDuration = SignedDuration::from_secs(15);

/// Returns when the room for several members becomes that of the largest one. `None`: it is by now.
fn several_until(waiting: &[(&Name, &Member)], facts: &Facts<'_>) -> Option<Timestamp> {
    let are_native = waiting.iter().all(|(_, member)| member.group.is_some());
    let asks = are_native || facts.policy.coschedule.reserve == Reserve::Peak;
    let newest = waiting.iter().filter_map(|(_, member)| member.identity.created).max()?;
    newest.checked_add(SIDE_BY_SIDE).ok().filter(|until| asks && *until > facts.now)
}

/// Returns the room that a group needs beside its placeholder, of which these members wait.
pub(in super::super) fn needed(
    desired: &Desired<'_>,
    waiting: &[(&Name, &Member)],
    facts: &Facts<'_>,
) -> Option<Room> {
    let follow = waiting.iter().filter(|(name, member)| can_follow(name, member, facts.view));
    let requests = follow.filter_map(|(_, member)| Some(&member.details.as_ref()?.requests));
    let room = match several_until(waiting, facts) {
        Some(_) => Room::of_all(requests).max(desired.room_to_come(Reserve::Peak, facts.view)),
        None => Room::of_any(requests).max(desired.room_to_come(Reserve::Largest, facts.view)),
    };
    Some(room).filter(|room| *room != Room::NONE)
}

impl<'v> Decider<'_, 'v> {
    /// The room that the template should reserve: none on a node that it must be on, or if it is held to members
    /// that run, because others wait until those have ended.
    pub(super) fn room(&self, only: Option<&str>) -> Option<Room> {
        let state = self.state;
        match state.plan().room {
            Some(Room::NONE) => Some(Room::NONE),
            _ if only.is_some() || !state.running.is_empty() && state.should_be_held() => None,
            _ => needed(state.desired?, &state.waiting, self.facts),
        }
    }

    /// Changes the room of a template whose pod has no node, if that is too small, or if the scheduler finds
    /// no node for a pod that is larger than it needs to be.
    pub(super) fn fit_room(&mut self, pod: &PlaceholderPod) -> Option<Next> {
        let plan = self.state.plan();
        if let Some(until) = several_until(&self.state.waiting, self.facts) {
            self.recheck_by(until);
        }
        let room = self.room(plan.only.as_deref());
        let [needed, reserved] = [room, plan.room].map(Option::unwrap_or_default);
        let is_due = !reserved.covers(needed) || pod.unschedulable.is_some();
        let rewrite = || self.rewrite_with(plan.only.as_deref(), plan.avoid.clone(), room);
        (is_due && room != plan.room).then(rewrite)?
    }

    /// Waits while a pod on a node gives up room for which members wait, and creates it again if it cannot.
    pub(super) fn make_room(
        &mut self,
        pod: &PlaceholderPod,
        node: &str,
        demand: &Demand<'v>,
    ) -> Option<Next> {
        let state = self.state;
        let room = self.room_on_node(pod)?;
        let (waiting, since) = state.kept_out(pod.scheduled_since);
        if !pod.is_fixed {
            let held = self.held(&pod.requests);
            let is_in_the_way = waiting.is_some() && !room.covers(held);
            let was_changed = || pod.plan.as_ref().is_some_and(|plan| plan.room != Some(held));
            if !is_in_the_way || was_changed() || !self.elapsed_or_recheck(since?, RELEASE) {
                if is_in_the_way {
                    self.admit_and_wake(pod, node, demand);
                }
                return is_in_the_way.then_some(Next::Nothing);
            }
        }
        if !state.running.is_empty() {
            return None;
        }
        let is_ready = || pod.plan != state.placeholder.plan;
        let recreate = || is_ready().then_some(Next::Recreate { why: None, is_forced: false });
        let avoid = state.plan().avoid.clone();
        self.rewrite_with(Some(node), avoid, Some(Room::NONE)).or_else(recreate)
    }

    /// Lets a pod on a node request what is to be reserved there.
    pub(super) fn adjust_room(&mut self, pod: &PlaceholderPod, node: &str) -> Option<Next> {
        let room = self.room_on_node(pod).filter(|_| !pod.identity.deleting && !pod.is_fixed)?;
        let held = self.held(&pod.requests);
        let is_nominated = !room.covers(self.held(&pod.counted)) && self.nominate(node);
        (room != held && !is_nominated).then_some(Next::Resize(room))
    }

    /// Lets the scheduler keep room on a node for the members that are gated or that it has refused, until their
    /// placeholder has given up its own: a pod of others that has waited for longer would get it. An attempt to
    /// schedule a member that fails meanwhile ends that. Returns true if it is new for one of them.
    fn nominate(&mut self, node: &str) -> bool {
        let view = self.facts.view;
        let demand = self.state.demand(view, self.state.desired);
        let Some(host) = demand.host(node, view) else { return false };
        let is_new = |namespace: &str, details: &MemberDetails| {
            let is_kept_out = match details.gate {
                Some(_) => !host.lets_in(details, namespace),
                None => details.unschedulable.is_some(),
            };
            is_kept_out
                && details.nominated.as_deref() != Some(node)
                && host.suits(details, namespace)
        };
        let is_of_new = |(name, member): &&(&Name, &Member)| {
            member.details.as_deref().is_some_and(|details| is_new(&name.namespace, details))
        };
        let new: Vec<_> = self.state.waiting.iter().filter(is_of_new).collect();
        for &&(name, member) in &new {
            self.step(name, member, Step::Nominate(Some(node.into())));
        }
        !new.is_empty()
    }

    /// Gives up the room that the scheduler keeps for members elsewhere than on the node of their placeholder.
    pub(super) fn withdraw_nominations(&mut self) {
        let node = self.state.pod.and_then(PlaceholderPod::place);
        for &(name, member) in &self.state.waiting {
            let details = member.details.as_deref().filter(|of| of.follows && !of.is_beside_others);
            if details.and_then(|of| of.nominated.as_deref()).is_some_and(|on| Some(on) != node) {
                self.step(name, member, Step::Nominate(None));
            }
        }
    }

    /// Returns true while a member stays behind its gate, because the node has not yet given up the room that the
    /// placeholder held for it. The scheduler, which knows only what the kubelet has reported, would refuse the
    /// member; or the kubelet would, and that ends it.
    pub(super) fn is_handing_over(
        &mut self,
        pod: &PlaceholderPod,
        member: &Member,
        has_room: bool,
    ) -> bool {
        let Some(room) = self.room_on_node(pod) else { return false };
        let has_given_up = pod.is_seen && (has_room || room.covers(self.held(&pod.counted)));
        let since = member.identity.created.max(pod.scheduled_since);
        !has_given_up && since.is_some_and(|since| !self.elapsed_or_recheck(since, HANDOVER))
    }

    /// The room in a placeholder's requests, beside what it keeps.
    fn held(&self, requests: &Resources) -> Room {
        Room::of(requests).minus(Room::of(&self.facts.kept))
    }

    /// The room that a pod on a node should reserve. `None`: it has limits, so that it cannot be changed.
    fn room_on_node(&mut self, pod: &PlaceholderPod) -> Option<Room> {
        let (state, facts) = (self.state, self.facts);
        pod.plan.as_ref()?.room.filter(|room| *room != Room::NONE)?;
        let reserve = facts.policy.coschedule.reserve;
        // A quota counts what it requests.
        let is_released = reserve == Reserve::Place
            || state.plan().room == Some(Room::NONE)
            || facts.has_refused(&state.name.namespace);
        let desired = state.desired.filter(|_| !is_released);
        let to_come = desired.map(|desired| desired.room_to_come(reserve, facts.view));
        let node = pod.node.as_deref()?;
        let details = facts.view.node(node).and_then(|node| node.details.as_deref());
        let allocatable = details.map(|of| Room::of(&of.allocatable)).unwrap_or_default();
        // A node that is too small for a later task, which has become known since, cannot keep its room.
        let Some(to_come) = to_come.filter(|room| *room != Room::NONE && allocatable.covers(*room))
        else {
            return Some(Room::NONE);
        };
        let usage = facts.view.node_usage(node).map(|of| Room::of(&of.requested));
        let others = usage.unwrap_or_default().minus(Room::of(&pod.counted));
        let free = allocatable.minus(others).minus(Room::of(&pod.requests));
        let waiting = state.waiting.iter().filter_map(|(_, member)| member.details.as_deref());
        let waiting = Room::of_all(waiting.map(|details| &details.requests));
        let mut may_grow = state.waiting.is_empty();
        for (_, member) in &state.running {
            let since = member.details.as_ref().and_then(|details| details.scheduled_since);
            may_grow &= since.is_none_or(|since| self.elapsed_or_recheck(since, SETTLED));
        }
        let held = self.held(&pod.requests);
        let left = held.minus(waiting.minus(free));
        let room = left.each(to_come, free.plus(held), |left, to_come, fits| {
            // Where a node can give more at once, the kubelet does, and refuses a pod that the scheduler has bound
            // there in the same moment: that pod fails. Where it cannot, it does when another pod has ended, and
            // the scheduler counts it from the start.
            let is_safe = may_grow && to_come > fits;
            if is_safe { to_come } else { to_come.min(left) }
        });
        Some(room)
    }

    /// Stops reserving room for a pod that cannot be created, as with a quota that leaves none.
    pub(super) fn give_up_room(&self) -> Option<Next> {
        let plan = self.state.plan();
        plan.room.filter(|room| *room != Room::NONE)?;
        self.rewrite_with(plan.only.as_deref(), plan.avoid.clone(), Some(Room::NONE))
    }

    /// Changes nodes and room of the template; `None` if it has these already.
    pub(super) fn rewrite_with(
        &self,
        only: Option<&str>,
        avoid: Vec<Box<str>>,
        room: Option<Room>,
    ) -> Option<Next> {
        let plan = self.state.plan();
        let (only, held) = (only.map(Into::into), self.state.should_be_held());
        let new = PodPlan { only, avoid, held, claims: plan.claims.clone(), room };
        (self.state.desired.is_some() && new != *plan).then_some(Next::Rewrite(new))
    }
}
