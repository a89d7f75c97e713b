//! The next step for a placeholder whose pod is bound to a node, and the steps for its members.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Decider, Next, Step, Trouble, Why};
use crate::systems::coschedule::groups::{self, Membership};
use crate::systems::coschedule::kinds::PlaceholderPod;
use crate::systems::coschedule::placeholder::Desired;
use crate::systems::coschedule::pod_plan::MOST_AVOIDED;
use crate::systems::coschedule::reconcile::group_pod::{Demand, GroupPod};
use crate::systems::coschedule::reconcile::reason;
use crate::systems::coschedule::reconcile::state::PATIENCE;
use crate::systems::fit::{self, Candidate};
use crate::systems::wake;
use crate::view::{NodeDetails, Resources};

/// The number of grace periods that a placeholder stays on a node that refuses its members for a reason other than its
/// size, once it has tried as many nodes as it can avoid.
const REST: i32 = 10;

/// The pod of a placeholder on its node.
pub(super) struct Placed<'v> {
    pub(super) pod: &'v PlaceholderPod,
    pub(super) node: &'v str,
    demand: Demand<'v>,
    /// The node, if members wait and it can keep the placeholder.
    host: Option<Candidate<'v>>,
    /// The room that the pod reserves.
    pub(super) held: Resources,
    /// The room that it should reserve. `None`: it has limits, so that it cannot be changed.
    pub(super) room: Option<Resources>,
}

impl Placed<'_> {
    /// Returns true if the node could take this pod of the group.
    pub(super) fn lets_in(&self, pod: GroupPod<'_>) -> bool {
        self.host.is_some_and(|host| self.demand.joins(host, pod, |_| false))
    }

    /// Returns true if the node could take this pod of the group once it has capacity.
    pub(super) fn suits(&self, pod: GroupPod<'_>) -> bool {
        let joins = |host| self.demand.joins(host, pod, |of| of.is_lack_of_capacity());
        self.host.is_some_and(joins)
    }
}

impl<'v> Decider<'_, 'v> {
    /// Decides the next step for a pod that is bound to a node.
    pub(super) fn on_node(&mut self, pod: &'v PlaceholderPod, node: &'v str) -> Next {
        let (state, demand) = (self.state, self.state.demand());
        let host = if state.waiting.is_empty() { None } else { demand.host(node) };
        let held = pod.room_in(&pod.requests, &self.facts.kept);
        let mut placed = Placed { pod, node, demand, host, held, room: None };
        let known = state.view.node(node).and_then(|node| node.details.as_deref());
        let Some(details) = known.filter(|known| known.ready) else {
            return self.on_lost_node(&placed, known);
        };
        if pod.identity.deleting {
            return Next::Nothing;
        }
        placed.room = self.room_on_node(&placed, details);
        match self.on_ready_node(&placed, details) {
            Next::Nothing => self.adjust_room(&placed).unwrap_or_default(),
            next => next,
        }
    }

    /// Decides the next step for a pod that is bound to a node that is Ready.
    fn on_ready_node(&mut self, placed: &Placed<'_>, details: &NodeDetails) -> Next {
        let (state, Placed { node, demand, .. }) = (self.state, placed);
        // The members run on another node: the pod was deleted while they ran, or the scheduler first
        // chose their node for it, and then another because a claim changed before it was bound. It
        // does not follow members that are all being deleted: the group's next pods can be here.
        let has_stable = state.running.iter().any(|pod| !pod.member.identity.deleting);
        let apart = state.only_node().filter(|members| members != node && has_stable);
        if let Some(members) = apart.filter(|members| demand.takes_placeholder(members)) {
            let why = Some(Trouble::Apart(members.into()));
            let recreate = state.desired.map(|_| Next::Recreate { why });
            return self.rewrite(Some(members)).or(recreate).unwrap_or_default();
        }
        let Some(trouble) = self.find_trouble(placed, details) else { return self.serve(placed) };
        if let Trouble::Full(_) = &trouble
            && let Some(next) = self.stay(placed, details)
        {
            return next;
        }
        let may_wait = matches!(trouble, Trouble::Full(_) | Trouble::OtherClaims);
        if may_wait && !state.running.is_empty() && self.admit_and_wake(placed) {
            return Next::Nothing;
        }
        if let Some(next) = self.keep_on_node(node, &trouble) {
            return next;
        }
        let changed = match &trouble {
            Trouble::Follows(other) => self.rewrite(Some(other)),
            Trouble::Barred(..) => {
                if let Some(pin) = demand.pin_to(node) {
                    return self.wait(Why::Pinned(format!("{trouble}, and {pin}"), pin));
                }
                self.rewrite(None)
            }
            _ => None,
        };
        changed.unwrap_or_else(|| self.leave(placed, trouble))
    }

    /// Finds out why the pod should leave its node, which is Ready, apart from members that do not fit there.
    fn find_trouble(&mut self, placed: &Placed<'_>, details: &NodeDetails) -> Option<Trouble> {
        let (state, Placed { pod, node, .. }) = (self.state, placed);
        let follow = state.desired.and_then(|desired| self.follow(desired)).flatten();
        let plan = pod.plan.as_deref();
        let is_outdated = plan != state.placeholder.plan.as_deref();
        if let Some(bar) = fit::closed_by(details, &state.details.tolerations) {
            return Some(Trouble::Barred((*node).into(), bar.to_string()));
        }
        if let Some(other) = follow.filter(|other| **other != **node) {
            return Some(Trouble::Follows(other));
        }
        if is_outdated && plan.is_none_or(|plan| plan.claims != state.plan().claims) {
            return Some(Trouble::OtherClaims);
        }
        let leaves = is_outdated && state.plan().is_to_leave(plan, node);
        leaves.then(|| Trouble::Full((*node).into()))
    }

    /// Gives waiting members their room, lets them in, and leaves the node if they do not fit there.
    fn serve(&mut self, placed: &Placed<'_>) -> Next {
        let made = self.make_room(placed);
        if let Some(next @ (Next::Rewrite(_) | Next::Recreate { .. })) = made {
            return next;
        }
        // While members are admitted or get room, the others wait.
        let admits = self.admit_and_wake(placed);
        let is_overdue = !admits && made.is_none();
        let since = is_overdue.then(|| self.first_overdue(placed)).flatten();
        since.map_or(Next::Nothing, |since| self.leave_full_node(placed, since))
    }

    /// Restores the pod's own plan in a template that sends the pod away from a full node, if the node now has the room
    /// that the template asks for, or if a member was bound there before the pod left: otherwise the group would move
    /// for no reason once that member has ended. `None` if nothing has to be restored.
    fn stay(&self, placed: &Placed<'_>, details: &NodeDetails) -> Option<Next> {
        let (own, plan) = (placed.pod.plan.as_deref()?, self.state.plan());
        if own.claims != plan.claims || !own.allows(placed.node) {
            return None;
        }
        let has_member = self.state.nodes().any(|of| of == placed.node);
        let has_room = || {
            let room = self.free_beside(placed, details).plus(&placed.held);
            own.avoid == plan.avoid
                && plan.room.as_ref().is_none_or(|needed| room.covers(needed))
                && !placed.demand.lacks_capacity(placed.node)
        };
        (has_member || has_room()).then(|| self.rewrite_to(own.clone()))?
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
                "{trouble}, and pod {} still runs on {node} with claim {claim}: the group moves when that pod has ended",
                user.name
            );
            return Some(self.wait(Why::Members(note)));
        }
        self.drop_hold()
    }

    /// Lets the placeholder leave its node. The members that wait for this node by name are recreated before: they
    /// could run there afterwards, apart from their group. The template is changed first, so that new
    /// pods do not require the node again.
    fn leave(&mut self, placed: &Placed<'_>, trouble: Trouble) -> Next {
        let (state, Placed { pod, node, .. }) = (self.state, placed);
        let is_bound =
            |(member, on): &(GroupPod<'_>, &str)| on == node && member.is_created_again(state.view);
        let mut bound = state.bound_by_name().filter(is_bound).peekable();
        if state.desired.is_none() || bound.peek().is_none() {
            return Next::Recreate { why: Some(trouble) };
        }
        if !state.plan().is_to_leave(pod.plan.as_deref(), node)
            && let Some(next) = self.rewrite_avoiding(node)
        {
            return next;
        }
        for (member, _) in bound {
            let why = format!("it requires node {node}, which its group leaves");
            self.step(member, Step::Recreate(why));
        }
        Next::Nothing
    }

    /// Decides the next step for a pod that is bound to a node that was deleted or is NotReady.
    fn on_lost_node(&mut self, placed: &Placed<'_>, known: Option<&NodeDetails>) -> Next {
        let (state, Placed { pod, node, demand, .. }) = (self.state, placed);
        // The watch of nodes may be late.
        let is_new = |since| !self.elapsed_or_recheck(since, PATIENCE);
        if known.is_none() && pod.scheduled_since.is_some_and(is_new) {
            return Next::Nothing;
        }
        let trouble = match known {
            Some(_) => Trouble::NotReady((*node).into()),
            None => Trouble::Deleted((*node).into()),
        };
        if state.keeps(node) {
            return self.wait_for_members(node, &trouble.to_string());
        }
        if let Some(pin) = known.and_then(|_| demand.pin_to(node)) {
            return self.wait(Why::Pinned(format!("{trouble}, and {pin}"), pin));
        }
        // A pod that tolerates the taints of a NotReady node can be bound to it again.
        let tolerations = &state.details.tolerations;
        if known.is_some_and(|known| fit::closed_by(known, tolerations).is_none()) {
            let follows = state.desired.map(|desired| self.follow(desired));
            let takes = |(other, _): (&str, _)| {
                other != *node && state.view.is_node_ready(other) && demand.takes_placeholder(other)
            };
            // Without `desired` the template is not changed, so the pod could come back to this node.
            let must_be_here = follows.is_none_or(|of| of == Some(Some((*node).into())));
            if must_be_here || !state.view.nodes().any(takes) {
                let note = format!("{trouble}, and no other node is eligible for the placeholder");
                return self.wait(Why::NotPlaced(note));
            }
            if let Some(next) = self.rewrite_avoiding(node) {
                return next;
            }
            // Members that are being deleted there would hold it.
            if let Some(next) = self.drop_hold() {
                return next;
            }
            let since = pod.scheduled_since.filter(|_| pod.plan == state.placeholder.plan);
            if since.is_some_and(|since| !self.elapsed_or_recheck(since, self.facts.grace())) {
                return Next::Nothing;
            }
        }
        // A hold is dropped once this pod has gone. The kubelet may answer again before: then waiting members would
        // join this pod, and the next one would be free to go elsewhere.
        self.leave(placed, trouble)
    }

    /// Moves the placeholder from a node on which waiting members do not fit: writes what they need into the template,
    /// so that the next decision recreates the pod. A full node then excludes itself; other nodes are preferred if its
    /// size is not the reason.
    fn leave_full_node(&mut self, placed: &Placed<'_>, since: Timestamp) -> Next {
        let (state, Placed { pod, node, demand, .. }) = (self.state, placed);
        let trouble = Trouble::Full((*node).into());
        if let Some(next) = self.keep_on_node(node, &trouble) {
            return next;
        }
        // It would come back at once.
        let follow = state.desired.and_then(|desired| self.follow(desired)).flatten();
        if follow.is_some_and(|of| *of == **node) {
            let note = format!(
                "{trouble}, and another group or pod that shares a claim with this one is there: the group moves when that one has ended"
            );
            return self.wait(Why::Members(note));
        }
        if let Some(pin) = demand.pin_to(node).or_else(|| demand.unreachable()) {
            return self.wait(Why::Pinned(format!("{trouble}, and {pin}"), pin));
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
        if !self.has_given_up() && demand.lacks_capacity(node) {
            let sends_away = |next: &Next| match next {
                Next::Rewrite(plan) => plan.is_to_leave(pod.plan.as_deref(), node),
                _ => false,
            };
            if let Some(next) = self.rewrite(None).filter(sends_away) {
                return next;
            }
        } else {
            self.wait_unschedulable(node);
            let is_tried =
                plan.avoid.len() == MOST_AVOIDED || plan.avoid.iter().any(|of| **of == **node);
            let placed = pod.scheduled_since.unwrap_or(since);
            if is_tried && !self.elapsed_or_recheck(placed, times(REST)) {
                return Next::Nothing;
            }
        }
        self.rewrite_avoiding(node).unwrap_or_else(|| self.leave(placed, trouble))
    }

    fn wait_unschedulable(&mut self, node: &str) -> Next {
        let mut note = format!("node {node}, where the group is, does not take the waiting pods");
        // The scheduler does not look at gated pods.
        let mut refused = self.state.unschedulable(None);
        if let Some(it) = refused.find_map(|(pod, _)| pod.details.unschedulable.as_ref()) {
            let message = it.message.trim_end_matches('.');
            note += &format!("; the scheduler says: {message}");
        }
        self.wait(Why::Unschedulable(note))
    }

    /// Reports to the waiting members which running member keeps the group on its node.
    pub(super) fn wait_for_members(&mut self, node: &str, why: &str) -> Next {
        let state = self.state;
        let mut here = state.running.iter().filter(|pod| pod.member.place() == Some(node));
        let running = here.next().or_else(|| state.running.first());
        let Some(running) = running.filter(|_| !state.waiting.is_empty()) else {
            return Next::Nothing;
        };
        let until = match running.details.runs_for_ever {
            true => "no pod of it runs there, and that one does not end by itself",
            false => "that pod has ended",
        };
        let note = format!(
            "{why}, and pod {} of the group still runs on {}: the group moves when {until}",
            running.name.name,
            running.member.place().unwrap_or(node)
        );
        self.wait(Why::Members(note))
    }

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
            let needs_no_node = groups::needs_no_node(&name.namespace, view);
            let task = task_run.task.as_deref();
            if let Membership::Of(group) =
                groups.membership(task, &claims, &selector, needs_no_node)
                && *group.name != *self.state.name.name
            {
                let why = format!(
                    "no node can mount all volumes of its run, and it now belongs to placeholder {}",
                    group.name
                );
                self.step(pod, Step::Recreate(why));
            }
        }
    }

    /// Recreates waiting members that require a node by name which the placeholder has left: they
    /// cannot run on any other. Most are recreated before it leaves; these are of a
    /// placeholder whose pod was evicted or ended.
    ///
    /// stowplan added that requirement, so the policy's `repair` need not allow it.
    pub(super) fn recreate_members_bound_elsewhere(&mut self) {
        let state = self.state;
        let node = state.pod.and_then(PlaceholderPod::place);
        for (pod, bound) in state.bound_by_name().filter(|of| Some(of.1) != node) {
            if pod.is_created_again(self.facts.view) {
                let why = format!("it requires node {bound}, which its group has left");
                self.step(pod, Step::Recreate(why));
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
    fn admit_and_wake(&mut self, placed: &Placed<'_>) -> bool {
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

    /// Returns the time since when a member has waited here the longest, if that is longer than the grace period.
    fn first_overdue(&mut self, placed: &Placed<'_>) -> Option<Timestamp> {
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
