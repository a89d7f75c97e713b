//! The next step for a placeholder whose pod is bound to a node.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::template::except;
use super::{Decider, Next, Step, Trouble};
use crate::systems::coschedule::kinds::member::Member;
use crate::systems::coschedule::kinds::placeholder::PlaceholderPod;
use crate::systems::coschedule::pod_plan::{Nodes, Room};
use crate::systems::coschedule::reconcile::Why;
use crate::systems::coschedule::reconcile::demand::{Demand, others};
use crate::systems::coschedule::reconcile::state::recreating_task_run;
use crate::view::Name;

/// The placeholder leaves a full node after so many grace periods even if no other node fits: only a
/// pending pod makes a cluster autoscaler act.
const GIVE_UP: i32 = 10;

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
        if let Some(next) = self.release_room(pod, node) {
            return next;
        }
        // The members run on another node: the pod was deleted while they ran, or the scheduler first
        // chose their node for it, and then another because a claim changed before it was bound. It
        // does not follow members that are all being deleted: the group's next pods can be here.
        let has_stable = state.running.iter().any(|(_, member)| !member.identity.deleting);
        let apart = state.only_node().filter(|members| *members != node && has_stable);
        if let Some(members) = apart.filter(|members| demand.takes_placeholder(members, view)) {
            let next = self.rewrite(Nodes::Only(members.into()));
            let why = Some(Trouble::Apart(members.into()));
            let recreate = state.desired.map(|_| Next::Recreate { why, is_forced: false });
            return next.or(recreate).unwrap_or_default();
        }
        if let Some(next) = self.allow_again(pod, node) {
            return next;
        }
        let follow = state.desired.and_then(|desired| self.follow(desired));
        let is_outdated = pod.plan != state.placeholder.plan;
        let claims = pod.plan.as_ref().map(|plan| &plan.claims);
        let trouble = if let Some(bar) = demand.barred_by(details) {
            Trouble::Barred(node.into(), bar.to_string())
        } else if let Some(Nodes::Only(other)) = follow
            && *other != *node
        {
            Trouble::Follows(other)
        } else if is_outdated && state.plan().nodes.excludes(node) {
            Trouble::Excluded(node.into())
        } else if claims != Some(&state.plan().claims) && is_outdated {
            Trouble::OtherClaims
        } else if let Some(since) = self.first_overdue(pod, node, &demand) {
            // While members are admitted, the others wait.
            return match self.admit_and_wake(pod, node, &demand) {
                true => Next::Nothing,
                false => self.leave_full_node(pod, node, since, &demand),
            };
        } else {
            self.admit_and_wake(pod, node, &demand);
            return Next::Nothing;
        };
        let may_wait = matches!(trouble, Trouble::Excluded(_) | Trouble::OtherClaims);
        if may_wait && !state.running.is_empty() && self.admit_and_wake(pod, node, &demand) {
            return Next::Nothing;
        }
        if let Some(next) = self.keep_on_node(node, &trouble) {
            return next;
        }
        let changed = match &trouble {
            Trouble::Excluded(_) | Trouble::OtherClaims => None,
            Trouble::Follows(other) => self.rewrite(Nodes::Only(other.clone())),
            _ => {
                if let Some(pin) = demand.pin_to(node, view) {
                    return self.wait(Why::Pinned(trouble, pin));
                }
                // A template that allows no other node is changed first.
                let is_fixed = state.plan().nodes.only().is_some();
                is_fixed.then(|| self.rewrite(Nodes::Any)).flatten()
            }
        };
        changed
            .or_else(|| self.recreate_members_bound_to(pod, node))
            .unwrap_or(Next::Recreate { why: Some(trouble), is_forced: false })
    }

    /// A template excludes a node because no waiting member fits there. If one was bound there all the same,
    /// before the pod left, the template gets back the nodes with which the pod was created: otherwise the
    /// group would move when that member has ended, for no reason.
    fn allow_again(&self, pod: &PlaceholderPod, node: &str) -> Option<Next> {
        let state = self.state;
        let is_excluded = state.plan().nodes.excludes(node);
        state.nodes().find(|of| is_excluded && *of == node)?;
        let own = pod.plan.as_ref().map(|plan| plan.nodes.clone());
        self.rewrite(own.filter(|nodes| nodes.allows(node)).unwrap_or(Nodes::Any))
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
        let desired = state.desired.filter(|_| !bound.is_empty())?;
        if !state.plan().is_to_leave(pod.plan.as_deref(), node) {
            return self.exclude(node, desired);
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
        if comes_back && !state.plan().nodes.excludes(node) {
            let here = Some(Nodes::Only(node.into()));
            let Some(desired) = state.desired.filter(|desired| self.follow(desired) != here) else {
                return self.wait(Why::NoOtherNode(trouble));
            };
            if let Some(next) = self.exclude(node, desired) {
                return next;
            }
        }
        let first = self.drop_hold().or_else(|| self.recreate_members_bound_to(pod, node));
        first.unwrap_or(Next::Recreate { why: Some(trouble), is_forced: true })
    }

    /// Waiting members do not fit on the placeholder's node: excludes all nodes on which they would not
    /// fit. First the template is changed; the next decision then recreates the pod.
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
            // The group could not move after the members' end either.
            if !demand.suits_an_empty_node(view) {
                self.wait_for_capacity();
            }
            return next;
        }
        if let Some(pin) = demand.pin_to(node, view) {
            return self.wait(Why::Pinned(trouble, pin));
        }
        let Some(desired) = state.desired else { return self.wait_unschedulable() };
        // The groups may fill the node together. If all left at once, they could meet on the next node
        // again and again: so the first leaves, and the others look after another grace period.
        let turn = self.facts.grace().checked_mul(2).unwrap_or(SignedDuration::MAX);
        if !self.facts.is_first_waiting(state.name, node) && !self.elapsed_or_recheck(since, turn) {
            return Next::Nothing;
        }
        let suitable = demand.suitable(view, self.facts.free_capacity(), node);
        // With room it finds a node on which they fit, or waits for one.
        if demand.lacks_capacity(node, view) && state.plan().room != Some(Room::NONE) {
            if let Some(apart) = demand.unreachable(view) {
                return self.wait(Why::Pinned(trouble, apart));
            }
            if suitable.is_empty() {
                self.wait_for_capacity();
            }
            if let Some(next) = self.rewrite(Nodes::Any) {
                return next;
            }
            if state.plan().is_to_leave(pod.plan.as_deref(), node) {
                let recreate = Next::Recreate { why: Some(trouble), is_forced: false };
                return self.recreate_members_bound_to(pod, node).unwrap_or(recreate);
            }
        }
        let patience = self.facts.grace().checked_mul(GIVE_UP).unwrap_or(SignedDuration::MAX);
        // By stowplan's own numbers the members fit here, but the scheduler refuses them. Each other
        // node is tried once: if the cause is not the node, trying them again soon does not help.
        let fits_here = demand.suits(node, view, true);
        if fits_here {
            self.wait_unschedulable();
        }
        let mut excluded = if suitable.is_empty() {
            if fits_here {
                return Next::Nothing;
            }
            // Another node would not help, nor a new one.
            if let Some(apart) = demand.unreachable(view) {
                return self.wait(Why::Pinned(trouble, apart));
            }
            self.wait_for_capacity();
            if !self.elapsed_or_recheck(since, patience) {
                return Next::Nothing;
            }
            others(view, &[])
        } else if fits_here {
            let is_tried = |name: &&str| state.plan().nodes.excludes(name);
            let untried: Vec<&str> =
                suitable.iter().copied().filter(|name| !is_tried(name)).collect();
            if !untried.is_empty() {
                others(view, &untried)
            } else if self.elapsed_or_recheck(pod.scheduled_since.unwrap_or(since), patience) {
                others(view, &suitable)
            } else {
                return Next::Nothing;
            }
        } else {
            others(view, &suitable)
        };
        // This node is first, so that it is kept if the list is cut: the pod would come back.
        excluded.retain(|other| *other != node);
        excluded.insert(0, node);
        self.rewrite(except(excluded, desired)).unwrap_or_default()
    }

    pub(super) fn wait_for_capacity(&mut self) {
        let largest = self.state.waiting.iter().filter_map(|(name, member)| {
            let requests = &member.details.as_ref()?.requests;
            Some((requests.milli_cpu, requests.memory, *name))
        });
        if let Some((milli_cpu, memory, name)) = largest.max() {
            self.wait(Why::NoNodeFits { pod: (*name.name).into(), milli_cpu, memory });
        }
    }

    pub(super) fn wait_unschedulable(&mut self) -> Next {
        let message = self.state.unschedulable(None).next().and_then(|(_, _, details, _)| {
            let message = &details.unschedulable.as_ref()?.message;
            Some(message.trim_end_matches('.').to_owned())
        });
        self.wait(Why::Unschedulable(message.unwrap_or_default()))
    }

    /// The group does not move while a member runs: reports to the waiting members which one.
    pub(super) fn wait_for_members(&mut self, node: &str, why: &str) -> Next {
        let state = self.state;
        let is_here = |(_, member): &&(&Name, &Member)| member.place() == Some(node);
        let running = state.running.iter().find(is_here).or_else(|| state.running.first());
        let Some((running, member)) = running.filter(|_| !state.waiting.is_empty()) else {
            return Next::Nothing;
        };
        let note = format!(
            "{why}, and pod {} of the group still runs on {}: the group moves when that pod has ended",
            running.name,
            member.place().unwrap_or(node)
        );
        self.wait(Why::Members(note))
    }
}
