//! The room that a placeholder reserves for its members until it has a node.
//!
//! It requests what the largest member requests that waits, or whose task has not begun, in addition to what it
//! keeps. So the scheduler chooses a node on which that member fits, and an autoscaler makes one. The pods of a
//! group without Tekton run side by side, so it asks for the sum first. Once it is bound to the node, it requests no more than it
//! keeps, and the members, whose gates are removed then, get the rest. An autoscaler that saw them earlier
//! would make a node for the sum of both.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Decider, Next};
use crate::systems::coschedule::kinds::member::Member;
use crate::systems::coschedule::kinds::placeholder::PlaceholderPod;
use crate::systems::coschedule::pod_plan::{PodPlan, Room};
use crate::systems::coschedule::reconcile::desired::Desired;
use crate::systems::coschedule::reconcile::state::can_follow;
use crate::view::{Name, View};

/// The time that a bound pod gets to give up its room. If it still has the room afterwards, the API server
/// refuses the change, and the pod is created again.
const RELEASE: SignedDuration = SignedDuration::from_secs(10);

/// For how long after the creation of its newest waiting pod a group without Tekton asks for a node with
/// room for all of them. It covers a round of an autoscaler.
const SIDE_BY_SIDE: SignedDuration = SignedDuration::from_secs(15);

/// Returns when the room that these waiting members need becomes that of the largest one. `None`: it is by now.
fn sum_until(waiting: &[(&Name, &Member)], now: Timestamp) -> Option<Timestamp> {
    let are_native = waiting.iter().all(|(_, member)| member.group.is_some());
    let newest = waiting.iter().filter_map(|(_, member)| member.identity.created).max()?;
    newest.checked_add(SIDE_BY_SIDE).ok().filter(|until| are_native && *until > now)
}

/// Returns the room that a group needs beside its placeholder, of which these members wait.
pub(in super::super) fn needed(
    desired: &Desired<'_>,
    waiting: &[(&Name, &Member)],
    now: Timestamp,
    view: &View,
) -> Option<Room> {
    let follow = waiting.iter().filter(|(name, member)| can_follow(name, member, view));
    let requests = follow.filter_map(|(_, member)| Some(&member.details.as_ref()?.requests));
    let room = match sum_until(waiting, now) {
        Some(_) => Room::of_all(requests),
        None => Room::of_any(requests),
    };
    let room = room.max(desired.room_to_come(view));
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
            _ => needed(state.desired?, &state.waiting, self.facts.now, self.facts.view),
        }
    }

    /// Changes the room of a template whose pod has no node, if that is too small, or if the scheduler finds
    /// no node for a pod that is larger than it needs to be.
    pub(super) fn fit_room(&mut self, pod: &PlaceholderPod) -> Option<Next> {
        let plan = self.state.plan();
        if let Some(until) = sum_until(&self.state.waiting, self.facts.now) {
            self.recheck_by(until);
        }
        let room = self.room(plan.only.as_deref());
        let [needed, reserved] = [room, plan.room].map(Option::unwrap_or_default);
        let is_due = !reserved.covers(needed) || pod.unschedulable.is_some();
        let rewrite = || self.rewrite_with(plan.only.as_deref(), plan.avoid.clone(), room);
        (is_due && room != plan.room).then(rewrite)?
    }

    /// Lets the members have the room of a pod that is bound to a node.
    pub(super) fn release_room(&mut self, pod: &PlaceholderPod, node: &str) -> Option<Next> {
        let kept = &self.facts.kept;
        let reserves = pod.plan.as_ref().is_some_and(|plan| plan.room.is_some());
        let is_larger =
            pod.requests.milli_cpu > kept.milli_cpu || pod.requests.memory > kept.memory;
        if !reserves || !is_larger && !pod.is_fixed {
            return None;
        }
        let since = pod.scheduled_since.or(pod.identity.created)?;
        if !pod.is_fixed && !self.elapsed_or_recheck(since, RELEASE) {
            return Some(Next::Shrink);
        }
        if !self.state.running.is_empty() {
            return None;
        }
        let is_ready = || pod.plan != self.state.placeholder.plan;
        let recreate = || is_ready().then_some(Next::Recreate { why: None, is_forced: false });
        let avoid = self.state.plan().avoid.clone();
        self.rewrite_with(Some(node), avoid, Some(Room::NONE)).or_else(recreate)
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
