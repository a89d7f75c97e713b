//! Decides the next step for a placeholder. A [`Decision`] is a value: deciding writes nothing, and
//! `carry_out` turns the value into actions without deciding anything.
//!
//! # Order
//! The first rule that applies decides. The cluster must show the effect of a step before the next.
//!
//! 0. A placeholder that has stepped aside stays so (`quota`).
//! 1. Remove outdated annotations, and restore the one replica of the StatefulSet.
//! 2. Write a plan into a template without a valid one, restore the hold to members, and record the group
//!    of a placeholder without a valid record (`template`).
//!    Step aside for pods that a quota refuses (`quota`).
//! 3. While no member runs: add new claims, and remove those of other groups (`template`).
//! 4. No pod: after a while record that, so that new members no longer wait for it, and later release
//!    those that wait (`unplaced`).
//!    A pod that a queue holds, or that it counts while it holds a member: step aside after a while (`quota`).
//! 5. A pod without a node: leave it alone while a scheduling gate of others holds it. Recreate it if its plan
//!    differs from the template's. Else change the template if another one would give it a node (`unplaced`).
//! 6. A pod on a node: it stays while members run there. It leaves a node that was deleted, is
//!    NotReady or takes no new pods, that is not the node of its members or its leader, or where
//!    waiting members do not fit. If it would come back, the template is changed first; then the pod
//!    is deleted (`on_node`).
//!
//! `members` decides what happens to the members: gates, wake-ups and recreation; `keep`, whether
//! autoscalers leave the node alone.

mod keep;
mod members;
mod on_node;
mod quota;
mod room;
mod template;
mod unplaced;

use std::fmt;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::Why;
use super::group_pod::GroupPod;
use super::state::{Facts, State};
use crate::systems::coschedule::placeholder::Desired;
use crate::systems::coschedule::pod_plan::PodPlan;
use crate::view::Resources;
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
    Release(String),
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
    /// Returns true if its kubelet may never report the end of a pod.
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
            // A queue takes one that is created again for a new one. It changes once it is released.
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

    /// The node on which the placeholder must be because of its leaders; `Some(None)`: any. `None` if that is not
    /// known yet, which is reported.
    fn follow(&mut self, desired: &Desired<'_>) -> Option<Option<Box<str>>> {
        let follow = self.facts.follow(desired);
        if let Err(why) = &follow {
            self.wait(why.clone());
        }
        follow.ok()
    }
}
