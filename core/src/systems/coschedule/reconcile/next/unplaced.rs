//! The next step for a placeholder without a pod, or whose pod has no node.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Decider, Next, Step, Why};
use crate::policy::Repair;
use crate::systems::coschedule::family;
use crate::systems::coschedule::keys::{FAILED, MISSING_SINCE};
use crate::systems::coschedule::kinds::{PlaceholderPod, Unschedulable};
use crate::systems::coschedule::reconcile::group_pod::GroupPod;
use crate::systems::coschedule::reconcile::reason;

/// The time that the StatefulSet controller gets to create a pod.
const CREATION: SignedDuration = SignedDuration::from_secs(30);

/// The time for a pod that reserves room, which a quota may refuse.
const WITH_ROOM: SignedDuration = SignedDuration::from_secs(5);

/// The longest time that a member waits before it is created again without its placeholder.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);

impl<'v> Decider<'_, 'v> {
    /// The StatefulSet has no pod. Either it will create one soon, or something prevents that: after a
    /// while this is reported, new members no longer wait for it, and waiting ones are released.
    pub(super) fn without_pod(&mut self) -> Next {
        let state = self.state;
        let Some(since) = state.details.time(MISSING_SINCE) else {
            let created = state.placeholder.identity.created;
            let patience = if state.plan().room.is_some() { WITH_ROOM } else { CREATION };
            return match created.is_some_and(|at| self.elapsed_or_recheck(at, patience)) {
                true => Next::Mark(MISSING_SINCE, self.facts.now_text()),
                false => Next::Nothing,
            };
        };
        if let Some(next) = self.give_up_room() {
            // An old placeholder may have lost its pod a moment ago.
            return match self.elapsed_or_recheck(since, WITH_ROOM) {
                true => next,
                false => Next::Nothing,
            };
        }
        if !self.elapsed_or_recheck(since, CREATION) {
            return Next::Nothing;
        }
        let name = &state.name.name;
        self.wait(Why::NotMade(format!("StatefulSet {name} has no pod; a quota, Pod Security or a priority class that does not exist may be the cause, see its events (kubectl describe statefulset {name})")));
        if !state.placeholder.failed {
            return Next::Mark(FAILED, "true".to_owned());
        }
        self.recreate_members(since, |_| true);
        Next::Nothing
    }

    /// Recreates the selected members that wait for a placeholder that has had no pod since `missing`. New members need
    /// none by now, so a member that is created again can run.
    ///
    /// If the webhook does not see that, the new pod waits like the old one. So each pod waits at least
    /// for the grace period, and for as long as the placeholder had been missing when the pod was
    /// created: twice as long each time.
    pub(super) fn recreate_members(
        &mut self,
        missing: Timestamp,
        is_selected: fn(&GroupPod<'v>) -> bool,
    ) {
        let state = self.state;
        self.wake_beside_others();
        for &pod in &state.waiting {
            let GroupPod { member, details, .. } = pod;
            // A new pod would need the same claim, which only the StatefulSet creates.
            let needs_claim = details.claims.iter().any(|claim| state.makes(claim));
            if details.is_beside_others || needs_claim || !is_selected(&pod) {
                continue;
            }
            let of_task_run = pod.recreating_task_run(self.facts.view).is_some();
            let is_at_once = of_task_run && self.facts.policy.repair == Repair::RecreatePending;
            let created = member.identity.created.unwrap_or(missing);
            let patience = created.duration_since(missing).min(LONGEST).max(self.facts.grace());
            // The time is an annotation, in which anything can be.
            let since = created.max(missing.checked_add(CREATION).unwrap_or(missing));
            if !is_at_once && !self.elapsed_or_recheck(since, patience) {
                continue;
            }
            let step = if pod.is_created_again(self.facts.view) {
                Step::Recreate("its group has no placeholder".to_owned())
            } else if member.group.is_some() {
                let note = "its group has no placeholder, and no owner creates it again: delete it and create it again, so that it needs none";
                Step::Strand(reason::PLACEHOLDER_NOT_MADE, note.to_owned())
            } else {
                continue;
            };
            self.step(pod, step);
        }
    }

    /// Wakes members that need no placeholder and were refused by the node of others, once these no longer exist: the
    /// scheduler would not try them again for five minutes (kubernetes#141354).
    fn wake_beside_others(&mut self) {
        let state = self.state;
        let mut members = GroupPod::living(state.name, state.view);
        if members.any(|pod| pod.member.place().is_some()) {
            return;
        }
        for (pod, since) in state.unschedulable(None) {
            let unschedulable = pod.details.unschedulable.as_ref();
            let was_refused = unschedulable.is_some_and(Unschedulable::lacks_affinity_match);
            if pod.details.is_beside_others && was_refused {
                self.wake_member(pod, since);
            }
        }
    }

    /// The placeholder's pod has no node.
    pub(super) fn without_node(&mut self, pod: &PlaceholderPod) -> Next {
        let state = self.state;
        // What others add when they release a member decides where it may be.
        if family::held_by(state.name, self.facts.view).is_some() {
            return Next::Nothing;
        }
        if let Some(next) = self.follow_members().or_else(|| self.fit_room(pod)) {
            return next;
        }
        if pod.plan != state.placeholder.plan {
            return Next::Recreate { why: None };
        }
        let Some(unschedulable) = &pod.unschedulable else { return Next::Nothing };
        let held = state.plan().held.then(|| self.held_without_node(pod, unschedulable)).flatten();
        if let Some(next) = held {
            return next;
        }
        if let Some(next) = self.find_node() {
            return next;
        }
        if self.elapsed_or_recheck(unschedulable.since, self.facts.grace()) {
            let room = state.plan().room.as_ref().filter(|room| !room.is_zero());
            let reserves = room.map(|room| format!(", which reserves {room} for its group,"));
            let reach = state.demand().group.volumes.describe_reach(state.view);
            let reach = reach.map(|reach| format!("{reach}; the scheduler says: "));
            return self.wait(Why::NotPlaced(format!(
                "placeholder {}{} has no node: {}{}",
                state.name.name,
                reserves.unwrap_or_default(),
                reach.unwrap_or_default(),
                unschedulable.message.trim_end_matches('.')
            )));
        }
        Next::Nothing
    }

    /// The pod has no node, and is held to members. If any run, it joins them or waits until they have
    /// ended: on another node it would split the group.
    pub(super) fn held_without_node(
        &mut self,
        pod: &PlaceholderPod,
        unschedulable: &Unschedulable,
    ) -> Option<Next> {
        let state = self.state;
        if let Some(next) = self.drop_hold() {
            return Some(next);
        }
        let Some(first) = state.nodes().next() else {
            // Its last member has ended: the scheduler would not try it again for five minutes (kubernetes#141354).
            let was_refused = unschedulable.lacks_affinity_match();
            let is_due = was_refused && self.is_to_wake(unschedulable.since, pod.woken);
            return is_due.then_some(Next::Wake);
        };
        // Waiting members were refused there, but the running ones were not.
        let is_kept_out = |node: &&str| !state.plan().allows(node);
        if let Some(node) = state.only_node().filter(is_kept_out)
            && state.demand().takes_placeholder(node)
            && let Some(next) = self.rewrite(Some(node))
        {
            return Some(next);
        }
        if self.elapsed_or_recheck(unschedulable.since, self.facts.grace()) {
            let message = unschedulable.message.trim_end_matches('.');
            let why = format!("placeholder {} has no node ({message})", state.name.name);
            self.wait_for_members(first, &why);
        }
        Some(Next::Nothing)
    }

    /// Changes the template to one with which the pod could get a node: that of its leader, or any if that has
    /// ended.
    fn find_node(&mut self) -> Option<Next> {
        let follow = self.follow(self.state.desired?)?;
        self.rewrite(follow.as_deref())
    }
}
