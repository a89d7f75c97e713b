//! A pod of a group, with the details that the controller keeps.

use k8s_openapi::jiff::Timestamp;

use super::demand::bound_by_name;
use crate::systems::View;
use crate::systems::coschedule::kinds::member::{Member, MemberDetails};
use crate::systems::coschedule::kinds::task_run::TaskRun;
use crate::view::Name;

/// A pod of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GroupPod<'v> {
    pub(super) name: &'v Name,
    pub(super) member: &'v Member,
    pub(super) details: &'v MemberDetails,
}

impl<'v> GroupPod<'v> {
    pub(super) fn new((name, member): (&'v Name, &'v Member)) -> Option<Self> {
        Some(Self { name, member, details: member.details.as_deref()? })
    }

    /// Returns the pods with the label of a placeholder that have not ended.
    pub(super) fn living(placeholder: &Name, view: &'v View) -> impl Iterator<Item = Self> {
        let pods = view.members_of(placeholder).filter_map(Self::new);
        pods.filter(|pod| !pod.member.finished)
    }

    /// Returns true if stowplan's gate holds it.
    pub(super) fn is_gated(&self) -> bool {
        self.details.gate.is_some()
    }

    /// Returns true if stowplan's affinity, gate or node requirement places it with its placeholder.
    pub(super) fn is_placed(&self) -> bool {
        self.details.follows || self.is_gated() || self.bound_by_name().is_some()
    }

    /// Returns true if it must not get the labels of a placeholder's pod: its author has set one of them, by which a
    /// controller may know the pod. Tekton does not.
    pub(super) fn keeps_labels(&self) -> bool {
        self.details.is_labelled && self.member.task_run.is_none()
    }

    /// Returns true if it waits for a pod with the labels of its placeholder's pod.
    pub(super) fn needs_labels(&self) -> bool {
        self.details.follows_placeholder && !self.details.stands_in
    }

    /// Returns the node that stowplan made it require by name.
    pub(super) fn bound_by_name(&self) -> Option<&'v str> {
        bound_by_name(self.details)
    }

    /// Returns true if it can follow its placeholder to another node while it waits: unless it requires a node by name
    /// and would not be recreated.
    pub(super) fn can_follow(&self, view: &View) -> bool {
        self.bound_by_name().is_none() || self.is_created_again(view)
    }

    /// Returns true if its owner creates it again if it is deleted, and does not count that as a failure. Only while it
    /// has no node.
    pub(super) fn is_created_again(&self, view: &View) -> bool {
        let is_waiting = self.member.node.is_none();
        self.recreating_task_run(view).is_some() || is_waiting && self.details.runs_for_ever
    }

    /// Returns since when it has been unschedulable. The scheduler does not report on gated pods.
    pub(super) fn unschedulable_since(&self) -> Option<Timestamp> {
        self.details.unschedulable.as_ref().filter(|_| !self.is_gated()).map(|of| of.since)
    }

    /// Returns the TaskRun that recreates it if it is deleted. Only a TaskRun keeps the pod's name, and only while the
    /// pod has no node.
    pub(super) fn recreating_task_run<'w>(&self, view: &'w View) -> Option<&'w TaskRun> {
        let owner = self.member.task_run.as_ref().filter(|_| self.member.node.is_none())?;
        let known = view.task_run(&Name::new(&self.name.namespace, &owner.name))?;
        let is_active = !known.done && !known.identity.deleting;
        (is_active && known.identity.uid == owner.uid).then_some(known)
    }
}
