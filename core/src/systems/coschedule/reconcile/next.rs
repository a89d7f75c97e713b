//! Decides the next step for a placeholder. A [`Decision`] is a value: deciding writes nothing, and
//! `carry_out` turns the value into actions without deciding anything.
//!
//! # Order
//! The first rule that applies decides. The cluster must show the effect of a step before the next.
//!
//! 0. A placeholder that has stepped aside stays so.
//! 1. Remove outdated annotations, and restore the one replica of the StatefulSet.
//! 2. Write a plan into a template without a valid one, restore the hold to members, and record the group
//!    of a placeholder without a valid record. Step aside for pods that a quota refuses.
//! 3. While no member runs: add new claims, and remove those of other groups.
//! 4. No pod: after a while record that, so that new members no longer wait for it, and later release
//!    those that wait (`unplaced`).
//!    A pod that a queue holds, or counts while it holds a member: step aside after a while.
//! 5. A pod without a node: leave it alone while a scheduling gate of others holds it. Recreate it if its plan
//!    differs from the template's. Else change the template if another one would give it a node (`unplaced`).
//! 6. A pod on a node: it stays while members run there. It leaves a node that was deleted, is
//!    NotReady or takes no new pods, that is not the node of its members or its leader, or where
//!    waiting members do not fit. If it would come back, the template is changed first; then the pod
//!    is deleted (`on_node`).
//!
//! `on_node` also decides what happens to the members: gates, wake-ups and recreation; `room`, how much the
//! placeholder reserves for them.

mod on_node;
mod room;
mod unplaced;

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::desired::{ends, is_on_one_node};
use super::group_pod::GroupPod;
use super::state::{Facts, State};
use super::{duration, reason};
use crate::kubernetes::domain;
use crate::systems::coschedule::keys::{FAILED, RECORD};
use crate::systems::coschedule::kinds::{Access, Member, Placeholder, PlaceholderPod};
use crate::systems::coschedule::placeholder::{Cause, Desired};
use crate::systems::coschedule::pod_plan::PodPlan;
use crate::systems::plan::Event;
use crate::view::{Name, Resources};
pub(super) use room::needed as needed_room;

/// The next step for a placeholder and its members.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Decision<'v> {
    /// The next write to its StatefulSet or its pod.
    pub(crate) next: Next,
    /// The steps for its members.
    pub(crate) members: Vec<(GroupPod<'v>, Step)>,
    /// True if autoscalers are to leave its pod and node alone; `None`: nothing changes.
    pub(crate) keeps_node: Option<bool>,
    /// The reasons to report to waiting members.
    pub(crate) waits: Vec<Why>,
    /// The time to decide again even if nothing changes.
    pub(crate) recheck_at: Option<Timestamp>,
}

/// The next write to a placeholder.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Next {
    #[default]
    Nothing,
    /// Delete the StatefulSet: it is no longer needed.
    Delete,
    /// Remove these annotations from the StatefulSet.
    Unmark(Vec<&'static str>),
    /// Set this annotation on the StatefulSet.
    Mark(&'static str, String),
    /// Set `spec.replicas` to 1.
    Scale,
    /// Write the pod template by this plan. The pod is not affected until it is deleted.
    Rewrite(PodPlan),
    /// Delete the pod, so that the StatefulSet creates another.
    Recreate {
        /// The reason why it leaves its node; `None` if it has none.
        why: Option<Trouble>,
    },
    /// Let the pod request this in addition to what it keeps.
    Resize(Resources),
    /// Make the scheduler try the pod again.
    Wake,
    /// Delete the pod for good, and let new members be admitted without it.
    StepAside(Aside),
    /// Let the waiting members run without it.
    LetIn,
}

/// The reason why a placeholder steps aside.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Aside {
    /// A ResourceQuota has no room for a pod of the run.
    Quota,
    /// A queue has no room for the placeholder, or with it none for a pod of its group.
    Queue,
}

/// The next step for a member.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// Remove its gate, and require this node, unless it follows the placeholder by pod affinity.
    Admit(Option<Box<str>>),
    /// Make the scheduler try it again.
    Wake,
    /// Let the scheduler keep room for it on this node, or no longer.
    Nominate(Option<Box<str>>),
    /// Delete it for this reason, so that its owner creates it again.
    Recreate(String),
    /// Report with this reason and note that it cannot run, and that nothing creates it again.
    Strand(&'static str, String),
}

/// The reason why a placeholder should leave its node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Trouble {
    /// Its node was deleted.
    Deleted(Box<str>),
    /// Its node is NotReady.
    NotReady(Box<str>),
    /// Its node takes no new pods: the node, and its cordon or taint.
    Barred(Box<str>, String),
    /// The group shares a claim with its leader, which is on this node.
    Follows(Box<str>),
    /// All its members run on this node.
    Apart(Box<str>),
    /// Its template mounts other claims than its pod.
    OtherClaims,
    /// Members have been unschedulable on this node for longer than the grace period, or its template reserves more
    /// room than this node had.
    Full(Box<str>),
}

impl Trouble {
    /// Returns true if the node's kubelet may never report that a pod has ended.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Deleted(_) | Self::NotReady(_))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deleted(node) => write!(formatter, "node {node} was deleted"),
            Self::NotReady(node) => write!(formatter, "node {node} is NotReady"),
            Self::Barred(node, bar) => write!(formatter, "node {node} {bar}"),
            Self::Follows(node) => write!(formatter, "one of its claims is in use on node {node}"),
            Self::Apart(node) => write!(formatter, "its members run on node {node}"),
            Self::Full(node) => write!(formatter, "waiting pods do not fit on node {node}"),
            Self::OtherClaims => write!(formatter, "its template mounts other claims"),
        }
    }
}

/// The reasons why members of a group wait, each with the text of its event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Why {
    /// An earlier run or group uses one of its claims.
    SharedClaim(String),
    /// The StatefulSet has no pod.
    NotMade(String),
    /// The placeholder has no node, or should leave it and no other node is eligible.
    NotPlaced(String),
    /// A member still runs.
    Members(String),
    /// The placeholder should leave its node, but only that node can mount the group's volumes, which
    /// the second text describes.
    Pinned(String, String),
    /// The scheduler refuses the waiting pods on the group's node.
    Unschedulable(String),
}

impl Why {
    /// The reasons of all its events, which are about states.
    pub(super) const REASONS: &'static [&'static str] = &[
        reason::SHARED_CLAIM,
        reason::PLACEHOLDER_NOT_MADE,
        reason::PLACEHOLDER_NOT_PLACED,
        reason::WAITS_FOR_MEMBERS,
        reason::VOLUME_PINS_NODE,
        reason::MEMBERS_UNSCHEDULABLE,
    ];

    /// The event about an object that waits.
    pub(super) fn event(&self) -> Event {
        Event { warning: true, reason: self.reason(), note: self.to_string() }
    }

    /// The reason of its events.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::SharedClaim(_) => reason::SHARED_CLAIM,
            Self::NotMade(_) => reason::PLACEHOLDER_NOT_MADE,
            Self::NotPlaced(_) => reason::PLACEHOLDER_NOT_PLACED,
            Self::Members(_) => reason::WAITS_FOR_MEMBERS,
            Self::Pinned(..) => reason::VOLUME_PINS_NODE,
            Self::Unschedulable(_) => reason::MEMBERS_UNSCHEDULABLE,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::SharedClaim(note)
        | Self::NotMade(note)
        | Self::NotPlaced(note)
        | Self::Members(note)
        | Self::Pinned(note, _)
        | Self::Unschedulable(note)) = self;
        formatter.write_str(note)
    }
}

/// Decides the next step for a placeholder.
pub(super) fn decide<'v>(state: &State<'v>, facts: &Facts<'v>) -> Decision<'v> {
    let mut decider = Decider { state, facts, decision: Decision::default() };
    let next = decider.decide();
    decider.withdraw_nominations();
    let keeps_node = decider.keep_node();
    Decision { next, keeps_node, ..decider.decision }
}

/// A decision that is being built. Methods that return an `Option` return `None` if the following
/// rules decide.
struct Decider<'s, 'v> {
    state: &'s State<'v>,
    facts: &'s Facts<'v>,
    decision: Decision<'v>,
}

impl<'v> Decider<'_, 'v> {
    fn decide(&mut self) -> Next {
        let state = self.state;
        if let Some(next) = self.stay_aside() {
            return next;
        }
        let marks = state.outdated_marks();
        if !marks.is_empty() {
            return Next::Unmark(marks);
        }
        // Without a replica there is no pod, and further replicas would be on other nodes.
        if state.details.replicas.is_some_and(|replicas| replicas != 1) {
            return Next::Scale;
        }
        if let Some(next) = self.restore_plan().or_else(|| self.restore_record()) {
            return next;
        }
        if let Some(next) = self.step_aside() {
            return next;
        }
        self.recreate_members_of_other_groups();
        if let Some(claims) = self.changed_claims() {
            return Next::Rewrite(PodPlan { claims, ..state.plan().clone() });
        }
        self.recreate_members_bound_elsewhere();
        let Some(pod) = state.pod else { return self.without_pod() };
        if let Some(next) = self.leave_queue(pod) {
            return next;
        }
        match &pod.node {
            // The StatefulSet controller replaces it.
            _ if pod.finished => Next::Nothing,
            Some(node) => self.on_node(pod, node),
            None if pod.identity.deleting => Next::Nothing,
            // To a queue, a pod that is created again is a new one. So it is changed only once the queue has released
            // it.
            None if pod.is_gated => Next::Nothing,
            None => self.without_node(pod),
        }
    }

    /// Returns true if `patience` has passed since `since`. If not, requests a recheck for that time.
    fn elapsed_or_recheck(&mut self, since: Timestamp, patience: SignedDuration) -> bool {
        // A time beyond the range is never reached.
        let Ok(due) = since.checked_add(patience) else { return false };
        if due > self.facts.now {
            self.recheck_by(due);
        }
        due <= self.facts.now
    }

    fn recheck_by(&mut self, at: Timestamp) {
        let earlier = self.decision.recheck_at;
        self.decision.recheck_at = Some(earlier.map_or(at, |earlier| earlier.min(at)));
    }

    fn wait(&mut self, why: Why) -> Next {
        if !self.decision.waits.contains(&why) {
            self.decision.waits.push(why);
        }
        Next::Nothing
    }

    fn step(&mut self, pod: GroupPod<'v>, step: Step) {
        self.decision.members.push((pod, step));
    }

    /// Returns the node on which the placeholder must be because of its leaders; `Some(None)`: any. `None` if that is
    /// not known yet, which is reported.
    fn follow(&mut self, desired: &Desired<'_>) -> Option<Option<Box<str>>> {
        let follow = self.facts.follow(desired);
        if let Err(why) = &follow {
            self.wait(why.clone());
        }
        follow.ok()
    }

    /// Changes the template so that the pod must be on the node `only`, if given, and so that it reserves what the
    /// group needs now; `None` if nothing changes.
    fn rewrite(&self, only: Option<&str>) -> Option<Next> {
        let (only_node, room) = (only.map(Into::into), self.room(only));
        self.rewrite_to(PodPlan { only: only_node, room, ..self.state.plan().clone() })
    }

    /// Changes the template for a pod that leaves `node` and goes to another one if possible.
    fn rewrite_avoiding(&self, node: &str) -> Option<Next> {
        let (plan, room) = (self.state.plan(), self.room(None));
        self.rewrite_to(PodPlan { only: None, avoid: plan.avoiding(node), room, ..plan.clone() })
    }

    /// Drops the hold of a template that holds the pod to pods that it should leave.
    fn drop_hold(&self) -> Option<Next> {
        self.state.must_drop_hold().then(|| self.rewrite_to(self.state.plan().clone()))?
    }

    /// Changes the template to this plan, held to the members if it should be; `None` if it is so already.
    fn rewrite_to(&self, plan: PodPlan) -> Option<Next> {
        let desired = self.state.desired?;
        let added = desired.added.as_ref().unwrap_or(&plan.added).clone();
        let new = PodPlan { held: self.state.should_be_held(), added, ..plan };
        let is_new = self.state.placeholder.plan.as_deref() != Some(&new);
        is_new.then_some(Next::Rewrite(new))
    }

    /// Changes the template if others have added other node requirements to the members by now.
    fn follow_members(&self) -> Option<Next> {
        let plan = self.state.plan();
        let added = self.state.desired?.added.as_ref()?;
        (*added != plan.added).then(|| self.rewrite_to(plan.clone()))?
    }

    /// Writes a plan into a template without one, and restores a missing hold.
    fn restore_plan(&self) -> Option<Next> {
        let Placeholder { plan, claims, .. } = self.state.placeholder;
        match plan {
            None => self.rewrite_to(PodPlan { claims: claims.to_vec(), ..PodPlan::default() }),
            Some(plan) if !plan.held => self.rewrite_to(PodPlan::clone(plan)),
            Some(_) => None,
        }
    }

    /// Records the group of a placeholder without a valid record.
    fn restore_record(&self) -> Option<Next> {
        let Cause::Run(_, group) = self.state.desired?.cause else { return None };
        let is_missing = self.state.placeholder.record.is_none();
        is_missing.then(|| Next::Mark(RECORD, group.record().text()))
    }

    /// The claims that the template should mount, if it mounts others and no member runs: those that
    /// waiting members mount and those of the group, without those of other groups and those that
    /// only one pod may use.
    fn changed_claims(&self) -> Option<Vec<Box<str>>> {
        let state = self.state;
        let desired = state.desired.filter(|_| state.running.is_empty())?;
        let plan = state.plan();
        let is_new = |claim: &&str| !plan.mounts(claim) && !state.makes(claim);
        let of_waiting = state.waiting.iter().flat_map(|pod| &pod.details.claims);
        let of_waiting = of_waiting.map(AsRef::as_ref);
        let mut added: BTreeSet<&str> = of_waiting.filter(is_new).collect();
        added.retain(|claim| is_on_one_node(&state.name.namespace, claim, self.facts.view));
        added.extend(desired.claims.iter().copied().filter(is_new));
        let kept = plan.claims.iter().filter(|claim| !self.must_not_mount(desired, claim)).cloned();
        let mut claims: Vec<Box<str>> = kept.collect();
        added.retain(|claim| !self.must_not_mount(desired, claim));
        claims.extend(added.into_iter().map(Into::into));
        (claims != plan.claims).then_some(claims)
    }

    /// Returns true if the placeholder must not mount a claim.
    fn must_not_mount(&self, desired: &Desired<'_>, claim: &str) -> bool {
        let known = self.facts.view.claim(&Name::new(&self.state.name.namespace, claim));
        let is_unusable =
            known.is_some_and(|known| known.access == Access::OnePod || known.is_parked());
        let mut others = desired.run().into_iter().flat_map(|run| &run.groups.groups);
        let mut is_of_other_group =
            || others.any(|group| *group.name != *self.state.name.name && group.has(claim));
        // A plan can be edited, and may name a claim that does not exist.
        let is_foreign =
            !desired.claims.contains(&claim) && (known.is_none() || is_of_other_group());
        is_unusable || is_foreign
    }

    /// Keeps a placeholder aside that has stepped aside: its pod would take the room again that the next pod of its
    /// group needs. `None` if it has not stepped aside.
    fn stay_aside(&mut self) -> Option<Next> {
        let since = self.state.details.time(FAILED)?;
        // These members were admitted before the webhook saw that the placeholder has stepped aside.
        match self.state.desired {
            Some(_) => self.recreate_members(since, |pod| pod.needs_labels() && pod.keeps_labels()),
            None => self.recreate_members(since, |_| true),
        }
        Some(Next::LetIn)
    }

    /// Lets the placeholder step aside for pods of its group that would else wait in a queue for ever. A queue holds
    /// pods by a gate until it has quota for them, and is known by its labels on the placeholder. Either it holds the
    /// placeholder, and a pod of the group has what was left; or it holds a pod of the group, and counts what the
    /// placeholder has requested at first. `None` if that has not lasted for longer than the grace period.
    fn leave_queue(&mut self, pod: &PlaceholderPod) -> Option<Next> {
        self.state.desired.filter(|_| !pod.finished && !pod.identity.deleting)?;
        let is_kept = |waiting: &&GroupPod<'_>| match waiting.member.other_gate() {
            None => pod.is_queued,
            Some(gate) => {
                !pod.is_gated && domain(gate).is_some_and(|of| pod.label_domains.contains(of))
            }
        };
        let kept = self.state.waiting.iter().filter(is_kept);
        let since = kept.filter_map(|pod| pod.member.identity.created).min()?;
        let since = pod.identity.created.map_or(since, |created| created.max(since));
        let is_due = self.elapsed_or_recheck(since, self.facts.grace());
        is_due.then_some(Next::StepAside(Aside::Queue))
    }

    /// Lets the placeholder step aside if a TaskRun of its run gets no pod because of a quota for longer than the grace
    /// period, and no member needs the placeholder: without it the pod may be created. Of several in a namespace, only
    /// the first by name steps aside in each grace period: its room may be enough.
    ///
    /// A placeholder that creates claims stays: its members cannot run without them.
    fn step_aside(&mut self) -> Option<Next> {
        let state = self.state;
        let is_needed = !state.running.is_empty()
            || !state.waiting.is_empty()
            || !state.placeholder.templates.is_empty();
        let run = state.placeholder.run.as_ref()?;
        let since = self.facts.refused_since(&run.uid)?;
        if is_needed || state.pod.is_none() {
            return None;
        }
        let since = self.facts.last_aside(&state.name.namespace).map_or(since, |it| it.max(since));
        self.elapsed_or_recheck(since, self.facts.grace()).then_some(Next::StepAside(Aside::Quota))
    }

    /// Decides whether the annotations of the placeholder's pod that autoscalers read should be there. `None`: they
    /// are left as they are.
    fn keep_node(&mut self) -> Option<bool> {
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
