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
//!
//! Requests for other resources than cpu and memory, such as devices, cannot be changed in place. So when the first
//! member waits that requests one of them, the placeholder is created again on its node without that request.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::on_node::Placed;
use super::{Decider, Next, Step};
use crate::systems::coschedule::kinds::PlaceholderPod;
use crate::systems::coschedule::placeholder::Desired;
use crate::systems::coschedule::pod_plan::PodPlan;
use crate::systems::coschedule::policy::Reserve;
use crate::systems::coschedule::reconcile::group_pod::GroupPod;
use crate::systems::coschedule::reconcile::state::Facts;
use crate::view::{NodeDetails, Resources};

/// The time in which a bound pod should have given up room for which a member waits. If it still has all of it
/// afterwards, the API server refuses the change, and the pod is created again.
const RELEASE: SignedDuration = SignedDuration::from_secs(10);

/// The time that a member waits for its node to give up the room of its placeholder.
const HANDOVER: SignedDuration = SignedDuration::from_secs(60);

/// The time that a member has had its node when the placeholder requests room beside it.
const SETTLED: SignedDuration = SignedDuration::from_secs(5);

/// For how long after the creation of its newest waiting pod a group without Tekton asks for a node with
/// room for all of them. It covers a round of an autoscaler.
const SIDE_BY_SIDE: SignedDuration = SignedDuration::from_secs(15);

/// Returns when the room for several members becomes that of the largest one. `None`: it is by now.
fn several_until(waiting: &[GroupPod<'_>], facts: &Facts<'_>) -> Option<Timestamp> {
    let are_native = waiting.iter().all(|pod| pod.member.group.is_some());
    let asks = are_native || facts.policy.coschedule.reserve == Reserve::Peak;
    let newest = waiting.iter().filter_map(|pod| pod.member.identity.created).max()?;
    newest.checked_add(SIDE_BY_SIDE).ok().filter(|until| asks && *until > facts.now)
}

/// Returns the room that a group needs beside its placeholder, of which these members wait.
pub(in super::super) fn needed(
    desired: &Desired<'_>,
    waiting: &[GroupPod<'_>],
    facts: &Facts<'_>,
) -> Option<Resources> {
    let follow = waiting.iter().filter(|pod| pod.can_follow(facts.view));
    let requests = follow.map(|pod| &pod.details.requests);
    let (join, reserve): (fn(&Resources, &Resources) -> Resources, _) =
        match several_until(waiting, facts) {
            Some(_) => (Resources::plus, Reserve::Peak),
            None => (Resources::max, Reserve::Largest),
        };
    let room = requests.fold(Resources::default(), |room, one| join(&room, one));
    let room = room.max(&desired.room_to_come(reserve, facts.view));
    (!room.is_zero()).then_some(room)
}

impl Decider<'_, '_> {
    /// Returns true if the template reserves nothing on its nodes, because a quota leaves no room there or the node
    /// does not release it.
    pub(super) fn has_given_up(&self) -> bool {
        self.state.plan().room.as_ref().is_some_and(Resources::is_zero)
    }

    /// The room that the template should reserve: none on a node that it must be on, or if it is held to members
    /// that run, because others wait until those have ended.
    pub(super) fn room(&self, only: Option<&str>) -> Option<Resources> {
        let (state, plan) = (self.state, self.state.plan());
        if self.has_given_up() && plan.only.as_deref() == only {
            return plan.room.clone();
        }
        if only.is_some() || !state.running.is_empty() && state.should_be_held() {
            return None;
        }
        needed(state.desired?, &state.waiting, self.facts)
    }

    /// Changes the room of a template whose pod has no node, if that is too small, or if the scheduler finds
    /// no node for a pod that is larger than it needs to be.
    pub(super) fn fit_room(&mut self, pod: &PlaceholderPod) -> Option<Next> {
        let plan = self.state.plan();
        if let Some(until) = several_until(&self.state.waiting, self.facts) {
            self.recheck_by(until);
        }
        let room = self.room(plan.only.as_deref());
        let [needed, reserved] = [&room, &plan.room].map(|of| of.clone().unwrap_or_default());
        let is_due = !reserved.covers(&needed) || pod.unschedulable.is_some();
        let is_new = is_due && room != plan.room;
        is_new.then(|| self.rewrite_to(PodPlan { room, ..plan.clone() }))?
    }

    /// Creates a pod again on its node if it holds more room than it should and cannot give that up while it exists.
    /// [`Next::Nothing`]: it is giving it up to members that wait.
    pub(super) fn make_room(&mut self, placed: &Placed<'_>) -> Option<Next> {
        let (state, Placed { pod, node, held, .. }) = (self.state, placed);
        let room = placed.room.as_ref()?;
        let mut rest = Some(Resources::default());
        if !pod.is_fixed && room.other != held.other {
            rest = Some(room.clone()).filter(|room| !room.is_zero());
        } else if !pod.is_fixed {
            let kept_out = state.kept_out_since(pod.scheduled_since);
            let since = kept_out.filter(|_| !room.covers(held))?;
            let was_changed = pod.plan.as_ref().is_some_and(|of| of.room.as_ref() != Some(held));
            if was_changed || !self.elapsed_or_recheck(since, RELEASE) {
                return Some(Next::Nothing);
            }
        }
        if !state.running.is_empty() {
            return None;
        }
        self.nominate(placed);
        let only = Some((*node).into());
        let is_ready = || pod.plan != state.placeholder.plan;
        self.rewrite_to(PodPlan { only, room: rest, ..state.plan().clone() })
            .or_else(|| is_ready().then_some(Next::Recreate { why: None }))
    }

    /// Lets a pod on a node request the room that it should reserve, as far as it can while it exists.
    pub(super) fn adjust_room(&mut self, placed: &Placed<'_>) -> Option<Next> {
        let Placed { pod, held, .. } = placed;
        let room = placed.room.as_ref().filter(|_| !pod.is_fixed)?;
        let is_held_back = !room.covers(&pod.room_in(&pod.counted, &self.facts.kept));
        if is_held_back && self.nominate(placed) {
            return None;
        }
        let room = Resources { other: held.other.clone(), ..*room };
        (room != *held).then_some(Next::Resize(room))
    }

    /// Lets the scheduler keep room on a node for the members that are gated or that it has refused, until their
    /// placeholder has given up its own: a pod of others that has waited for longer would get it. An attempt to
    /// schedule a member that fails meanwhile ends that. Returns true if it is new for one of them.
    fn nominate(&mut self, placed: &Placed<'_>) -> bool {
        let is_new = |pod: &GroupPod<'_>| {
            let is_kept_out = match pod.is_gated() {
                true => !placed.lets_in(*pod),
                false => pod.details.unschedulable.is_some(),
            };
            is_kept_out
                && pod.details.nominated.as_deref() != Some(placed.node)
                && placed.suits(*pod)
        };
        let mut waiting = self.state.waiting.clone();
        waiting.retain(is_new);
        for &pod in &waiting {
            self.step(pod, Step::Nominate(Some(placed.node.into())));
        }
        !waiting.is_empty()
    }

    /// Gives up the room that the scheduler keeps for members elsewhere than on the node of their placeholder, or on
    /// that on which it is created again.
    pub(super) fn withdraw_nominations(&mut self) {
        let node = self.state.pod.and_then(PlaceholderPod::place);
        let node = node.or_else(|| self.state.plan().only.as_deref());
        for &pod in &self.state.waiting {
            let GroupPod { details, .. } = pod;
            let is_elsewhere = details.nominated.as_deref().is_some_and(|on| Some(on) != node);
            if details.follows && !details.is_beside_others && is_elsewhere {
                self.step(pod, Step::Nominate(None));
            }
        }
    }

    /// Returns true while a member stays behind its gate, because the node has not yet given up what the placeholder
    /// holds for it beyond its room. The scheduler, which knows only what the kubelet has reported, would refuse the
    /// member; or the kubelet would, and that ends it.
    pub(super) fn is_handing_over(
        &mut self,
        placed: &Placed<'_>,
        waiting: GroupPod<'_>,
        has_room: bool,
    ) -> bool {
        let (pod, Some(room)) = (placed.pod, &placed.room) else { return false };
        let has_given_up =
            pod.is_seen && (has_room || room.covers(&pod.room_in(&pod.counted, &self.facts.kept)));
        let since = waiting.member.identity.created.max(pod.scheduled_since);
        !has_given_up && since.is_some_and(|since| !self.elapsed_or_recheck(since, HANDOVER))
    }

    /// The room that a pod on a node should reserve. `None`: it has limits, so that it cannot be changed.
    pub(super) fn room_on_node(
        &mut self,
        placed: &Placed<'_>,
        details: &NodeDetails,
    ) -> Option<Resources> {
        let (state, facts, Placed { pod, held, .. }) = (self.state, self.facts, placed);
        pod.plan.as_ref()?.room.as_ref().filter(|room| !room.is_zero())?;
        let reserve = facts.policy.coschedule.reserve;
        // A quota counts what it requests.
        let is_released = reserve == Reserve::Place
            || self.has_given_up()
            || facts.has_refused(&state.name.namespace);
        let desired = state.desired.filter(|_| !is_released);
        let to_come = desired.map(|desired| desired.room_to_come(reserve, facts.view));
        let allocatable = &details.allocatable;
        // A node that is too small for a later task, which has become known since, cannot keep its room.
        let can_hold = |room: &Resources| !room.is_zero() && allocatable.covers(room);
        let Some(to_come) = to_come.filter(can_hold) else { return Some(Resources::default()) };
        let free = self.free_beside(placed, details);
        let waiting = state.waiting.iter().map(|pod| &pod.details.requests);
        let waiting = waiting.fold(Resources::default(), |sum, requests| sum.plus(requests));
        let mut may_grow = state.waiting.is_empty();
        for running in &state.running {
            let since = running.details.scheduled_since;
            may_grow &= since.is_none_or(|since| self.elapsed_or_recheck(since, SETTLED));
        }
        let (left, fits) = (held.beyond(&waiting.beyond(&free)), free.plus(held));
        let amount = |of: fn(&Resources) -> i64| {
            // Where a node can give more at once, the kubelet does, and refuses a pod that the scheduler has bound
            // there in the same moment: that pod fails. Where it cannot, it does when another pod has ended, and
            // the scheduler counts it from the start.
            let is_safe = may_grow && of(&to_come) > of(&fits);
            if is_safe { of(&to_come) } else { of(&to_come).min(of(&left)) }
        };
        // All of them: a further member could wait while the first one runs, and the pod could not be created again.
        let is_needed = held.other.iter().any(|(name, _)| waiting.other(name) > 0);
        Some(Resources {
            milli_cpu: amount(|of| of.milli_cpu),
            memory: amount(|of| of.memory),
            other: if is_needed { Box::default() } else { held.other.clone() },
        })
    }

    /// Returns what a node has free beside the placeholder.
    pub(super) fn free_beside(
        &self,
        Placed { pod, node, .. }: &Placed<'_>,
        NodeDetails { allocatable, .. }: &NodeDetails,
    ) -> Resources {
        let used = self.facts.view.node_usage(node).map(|of| of.requested.beyond(&pod.counted));
        allocatable.beyond(&used.unwrap_or_default().plus(&pod.requests))
    }

    /// Stops reserving room for a pod that cannot be created, as with a quota that leaves none.
    pub(super) fn give_up_room(&self) -> Option<Next> {
        let plan = self.state.plan();
        plan.room.as_ref().filter(|room| !room.is_zero())?;
        self.rewrite_to(PodPlan { room: Some(Resources::default()), ..plan.clone() })
    }
}
