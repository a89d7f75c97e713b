//! The next step for a placeholder whose pod is bound to a node.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Decider, Next, Step, Trouble};
use crate::systems::coschedule::kinds::member::Member;
use crate::systems::coschedule::kinds::placeholder::PlaceholderPod;
use crate::systems::coschedule::pod_plan::MOST_AVOIDED;
use crate::systems::coschedule::reconcile::Why;
use crate::systems::coschedule::reconcile::demand::Demand;
use crate::systems::coschedule::reconcile::state::recreating_task_run;
use crate::view::{Name, NodeDetails, Resources};

/// How many grace periods a placeholder stays on a node that refuses its members for a reason other than its
/// size, once it has tried as many nodes as it can avoid.
const REST: i32 = 10;

impl<'v> Decider<'_, 'v> {
    /// The pod is bound to a node.
    pub(super) fn on_node(&mut self, pod: &PlaceholderPod, node: &str) -> Next {
        let (state, view) = (self.state, self.facts.view);
        let demand = state.demand(view, state.desired);
        let known = view.node(node).and_then(|node| node.details.as_deref());
        let Some(details) = known.filter(|known| known.ready) else {
            return self.on_lost_node(pod, node, &demand);
        };
        if pod.identity.deleting {
            return Next::Nothing;
        }
        let room = self.room_on_node(pod, node, details);
        match self.on_ready_node(pod, node, details, &demand, room.as_ref()) {
            Next::Nothing => room
                .and_then(|room| self.adjust_room(pod, node, &demand, &room))
                .unwrap_or_default(),
            next => next,
        }
    }

    /// The pod is bound to a node that is Ready, and should reserve `room` there.
    fn on_ready_node(
        &mut self,
        pod: &PlaceholderPod,
        node: &str,
        details: &NodeDetails,
        demand: &Demand<'v>,
        room: Option<&Resources>,
    ) -> Next {
        let (state, view) = (self.state, self.facts.view);
        // The members run on another node: the pod was deleted while they ran, or the scheduler first
        // chose their node for it, and then another because a claim changed before it was bound. It
        // does not follow members that are all being deleted: the group's next pods can be here.
        let has_stable = state.running.iter().any(|(_, member)| !member.identity.deleting);
        let apart = state.only_node().filter(|members| *members != node && has_stable);
        if let Some(members) = apart.filter(|members| demand.takes_placeholder(members, view)) {
            let next = self.rewrite(Some(members));
            let why = Some(Trouble::Apart(members.into()));
            let recreate = state.desired.map(|_| Next::Recreate { why, is_forced: false });
            return next.or(recreate).unwrap_or_default();
        }
        if let Some(next) = self.stay(pod, node) {
            return next;
        }
        let follow = state.desired.and_then(|desired| self.follow(desired));
        let is_outdated = pod.plan != state.placeholder.plan;
        let claims = pod.plan.as_ref().map(|plan| &plan.claims);
        let trouble = if let Some(bar) = demand.barred_by(details) {
            Trouble::Barred(node.into(), bar.to_string())
        } else if let Some(Some(other)) = follow
            && *other != *node
        {
            Trouble::Follows(other)
        } else if is_outdated && claims != Some(&state.plan().claims) {
            Trouble::OtherClaims
        } else if is_outdated && state.plan().is_to_leave(pod.plan.as_deref(), node) {
            Trouble::Full(node.into())
        } else {
            let made = room.and_then(|room| self.make_room(pod, node, demand, room));
            if let Some(next @ (Next::Rewrite(_) | Next::Recreate { .. })) = made {
                return next;
            }
            // While members are admitted or get room, the others wait.
            let admits = self.admit_and_wake(pod, node, demand, room);
            let is_overdue = !admits && made.is_none();
            let since = is_overdue.then(|| self.first_overdue(pod, node, demand)).flatten();
            return since
                .map_or(Next::Nothing, |since| self.leave_full_node(pod, node, since, demand));
        };
        let may_wait = matches!(trouble, Trouble::Full(_) | Trouble::OtherClaims);
        if may_wait && !state.running.is_empty() && self.admit_and_wake(pod, node, demand, room) {
            return Next::Nothing;
        }
        if let Some(next) = self.keep_on_node(node, &trouble) {
            return next;
        }
        let changed = match &trouble {
            Trouble::Follows(other) => self.rewrite(Some(other)),
            Trouble::Barred(..) => {
                if let Some(pin) = demand.pin_to(node, view) {
                    return self.wait(Why::Pinned(trouble, pin));
                }
                self.rewrite(None)
            }
            _ => None,
        };
        changed
            .or_else(|| self.recreate_members_bound_to(pod, node))
            .unwrap_or(Next::Recreate { why: Some(trouble), is_forced: false })
    }

    /// A template sends the pod away because no waiting member fits on its node. If one was bound there all the
    /// same, before the pod left, the template becomes again as the pod is: otherwise the group would move when
    /// that member has ended, for no reason.
    fn stay(&self, pod: &PlaceholderPod, node: &str) -> Option<Next> {
        let (own, plan) = (pod.plan.as_deref()?, self.state.plan());
        let has_member = self.state.nodes().any(|of| of == node);
        let is_sent_away =
            own.claims == plan.claims && own.allows(node) && plan.is_to_leave(Some(own), node);
        let back = || self.rewrite_with(own.only.as_deref(), own.avoid.clone(), own.room.clone());
        (has_member && is_sent_away).then(back)?
    }

    /// Keeps the pod on its node in spite of `trouble` while members or followers run there; else
    /// drops a hold that would bring it back.
    pub(super) fn keep_on_node(&mut self, node: &str, trouble: &Trouble) -> Option<Next> {
        let state = self.state;
        if state.keeps(node) {
            return Some(self.wait_for_members(node, &trouble.to_string()));
        }
        if let Some((user, claim)) = self.facts.used_by_others(state, node) {
            let note = format!(
                "{trouble}, and pod {} of another group still runs on {node} with claim {claim}: the group moves when that pod has ended",
                user.name
            );
            return Some(self.wait(Why::Members(note)));
        }
        self.drop_hold()
    }

    /// Recreates the members that wait for this node by name, before the placeholder leaves it: they
    /// could run there afterwards, apart from their group. The template is changed first, so that new
    /// pods do not require the node again.
    fn recreate_members_bound_to(&mut self, pod: &PlaceholderPod, node: &str) -> Option<Next> {
        let (state, view) = (self.state, self.facts.view);
        let bound: Vec<_> = state
            .bound_by_name()
            .filter(|(name, member, bound)| {
                *bound == node && recreating_task_run(name, member, view).is_some()
            })
            .collect();
        state.desired.filter(|_| !bound.is_empty())?;
        if !state.plan().is_to_leave(pod.plan.as_deref(), node)
            && let Some(next) = self.rewrite_avoiding(node)
        {
            return Some(next);
        }
        for (name, member, _) in bound {
            let why = format!("it requires node {node}, which its group leaves");
            self.step(name, member, Step::Release(why));
        }
        Some(Next::Nothing)
    }

    /// The pod is bound to a node that was deleted or is NotReady.
    pub(super) fn on_lost_node(
        &mut self,
        pod: &PlaceholderPod,
        node: &str,
        demand: &Demand<'v>,
    ) -> Next {
        let (state, view) = (self.state, self.facts.view);
        let known = view.node(node).and_then(|node| node.details.as_deref());
        let trouble = match known {
            Some(_) => Trouble::NotReady(node.into()),
            None => Trouble::Deleted(node.into()),
        };
        if state.keeps(node) {
            return self.wait_for_members(node, &trouble.to_string());
        }
        if let Some(pin) = known.and_then(|_| demand.pin_to(node, view)) {
            return self.wait(Why::Pinned(trouble, pin));
        }
        // A pod that tolerates the taints of a NotReady node can be bound to it again.
        let comes_back = known.is_some_and(|known| demand.barred_by(known).is_none());
        if comes_back {
            let follows = state.desired.map(|desired| self.follow(desired));
            let takes = |(other, _): (&str, _)| {
                other != node && view.is_node_ready(other) && demand.takes_placeholder(other, view)
            };
            if follows.is_none_or(|of| of == Some(Some(node.into()))) || !view.nodes().any(takes) {
                return self.wait(Why::NoOtherNode(trouble));
            }
            if let Some(next) = self.rewrite_avoiding(node) {
                return next;
            }
            let since = pod.scheduled_since.filter(|_| pod.plan == state.placeholder.plan);
            if since.is_some_and(|since| !self.elapsed_or_recheck(since, self.facts.grace())) {
                return Next::Nothing;
            }
        }
        let first = self.drop_hold().or_else(|| self.recreate_members_bound_to(pod, node));
        first.unwrap_or(Next::Recreate { why: Some(trouble), is_forced: true })
    }

    /// Waiting members do not fit on the placeholder's node: writes what they need into the template, so that the
    /// next decision recreates the pod. A full node then excludes itself; other nodes are preferred if its size
    /// is not the reason.
    pub(super) fn leave_full_node(
        &mut self,
        pod: &PlaceholderPod,
        node: &str,
        since: Timestamp,
        demand: &Demand<'v>,
    ) -> Next {
        let (state, view) = (self.state, self.facts.view);
        let trouble = Trouble::Full(node.into());
        if let Some(next) = self.keep_on_node(node, &trouble) {
            return next;
        }
        let pin = demand.pin_to(node, view).or_else(|| demand.unreachable(view));
        if let Some(pin) = pin {
            return self.wait(Why::Pinned(trouble, pin));
        }
        if state.desired.is_none() {
            return self.wait_unschedulable(node);
        }
        // The groups may fill the node together. If all left at once, they could meet on the next node
        // again and again: so the first leaves, and the others look after another grace period.
        let grace = self.facts.grace();
        let times = |count| grace.checked_mul(count).unwrap_or(SignedDuration::MAX);
        if !self.facts.is_first_waiting(state.name, node)
            && !self.elapsed_or_recheck(since, times(2))
        {
            return Next::Nothing;
        }
        let plan = state.plan();
        if !self.has_given_up() && demand.lacks_capacity(node, view) {
            let is_larger = |next: &Next| matches!(next, Next::Rewrite(plan) if plan.is_to_leave(pod.plan.as_deref(), node));
            if let Some(next) = self.rewrite(None).filter(is_larger) {
                return next;
            }
        } else {
            self.wait_unschedulable(node);
            let is_tried =
                plan.avoid.len() == MOST_AVOIDED || plan.avoid.iter().any(|of| **of == *node);
            let placed = pod.scheduled_since.unwrap_or(since);
            if is_tried && !self.elapsed_or_recheck(placed, times(REST)) {
                return Next::Nothing;
            }
        }
        self.rewrite_avoiding(node)
            .or_else(|| self.recreate_members_bound_to(pod, node))
            .unwrap_or(Next::Recreate { why: Some(trouble), is_forced: false })
    }

    fn wait_unschedulable(&mut self, node: &str) -> Next {
        let message = self.state.unschedulable(None).next().and_then(|(_, _, details, _)| {
            let message = &details.unschedulable.as_ref()?.message;
            Some(message.trim_end_matches('.').to_owned())
        });
        self.wait(Why::Unschedulable { node: node.into(), message })
    }

    /// The group does not move while a member runs: reports to the waiting members which one.
    pub(super) fn wait_for_members(&mut self, node: &str, why: &str) -> Next {
        let state = self.state;
        let is_here = |(_, member): &&(&Name, &Member)| member.place() == Some(node);
        let running = state.running.iter().find(is_here).or_else(|| state.running.first());
        let Some((running, member)) = running.filter(|_| !state.waiting.is_empty()) else {
            return Next::Nothing;
        };
        let is_lasting = member.details.as_ref().is_some_and(|details| details.runs_for_ever);
        let until = match is_lasting {
            true => "no pod of it runs there, and that one does not end by itself",
            false => "that pod has ended",
        };
        let note = format!(
            "{why}, and pod {} of the group still runs on {}: the group moves when {until}",
            running.name,
            member.place().unwrap_or(node)
        );
        self.wait(Why::Members(note))
    }
}
