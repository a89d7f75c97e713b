//! A pod of a group, with the details that the controller keeps; and what the placeholder and the waiting pods of a
//! group require of a node, and whether a node meets that.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::NodeSelectorTerm;
use k8s_openapi::jiff::Timestamp;

use super::state::State;
use crate::placement::affinity::bound_to;
use crate::systems::View;
use crate::systems::coschedule::kinds::{Member, MemberDetails, TaskRun};
use crate::systems::coschedule::volumes;
use crate::systems::fit::{self, Candidate, Group, Joining, Obstacle, PodNeeds, Volumes};
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

/// The requirements of a placeholder and of the pods that wait for it.
#[derive(Debug)]
pub(super) struct Demand<'v> {
    view: &'v View,
    pub(super) group: Group<'v>,
    /// The claims that the placeholder mounts.
    mounted: Vec<Name>,
}

impl<'v> Demand<'v> {
    /// Collects the requirements of a placeholder and of these pods of its group.
    pub(super) fn of<'s>(state: &State<'v>, waiting: impl Iterator<Item = &'s GroupPod<'v>>) -> Self
    where
        'v: 's,
    {
        let State { name, placeholder, details, view, .. } = state;
        // The placeholder of a native group follows its members only while it has no node: `follow_members`.
        let of_run = state.desired.filter(|desired| desired.run().is_some());
        let added = of_run.and_then(|desired| desired.added.as_ref());
        let added = added.unwrap_or_else(|| &state.plan().added);
        let selector = details.node_selector.iter().chain(&added.labels);
        let mounted: Vec<Name> = placeholder.mounted(name).collect();
        // Its members get the room that it reserves.
        let room = state.plan().room.clone().unwrap_or_default();
        let terms = state.desired.and_then(|desired| desired.node_terms(added));
        let group = Group {
            placeholder: PodNeeds {
                node_selector: selector.map(|(key, value)| (&**key, &**value)).collect(),
                node_terms: terms.map(Cow::Owned),
                tolerations: &details.tolerations,
                requests: Some(Cow::Owned(details.requests.beyond(&room))),
            },
            waiting: waiting
                .map(|pod| joining(pod.details, &name.namespace, &mounted, view))
                .collect(),
            volumes: volumes::of_claims(&mounted, view),
        };
        Self { view, group, mounted }
    }

    /// Returns true if the placeholder's node takes a waiting pod only with more capacity.
    pub(super) fn lacks_capacity(&self, node: &str) -> bool {
        let candidate = Candidate::find(node, self.view);
        let obstacle = candidate.and_then(|candidate| self.group.obstacle(candidate, true));
        obstacle.is_some_and(|obstacle| obstacle.is_lack_of_capacity())
    }

    /// The node of the placeholder; `None` if it could not keep the placeholder.
    pub(super) fn host(&self, node: &'v str) -> Option<Candidate<'v>> {
        let candidate = Candidate::find(node, self.view)?;
        self.group.placeholder_obstacle(candidate, true).is_none().then_some(candidate)
    }

    /// Returns true if the node of the placeholder could take this pod of the group, if some obstacles do not count.
    pub(super) fn joins(
        &self,
        host: Candidate<'_>,
        pod: GroupPod<'_>,
        is_ignored: fn(&Obstacle<'_>) -> bool,
    ) -> bool {
        let pod = joining(pod.details, &pod.name.namespace, &self.mounted, self.view);
        self.group.join_obstacle(&pod, host, true).is_none_or(|found| is_ignored(&found))
    }

    /// Returns true if a node could take the placeholder, whichever pods wait for it.
    pub(super) fn takes_placeholder(&self, node: &str) -> bool {
        Candidate::find(node, self.view)
            .is_some_and(|candidate| self.group.placeholder_obstacle(candidate, false).is_none())
    }

    /// Describes the volumes of the group and of a waiting pod that has further ones, if no node can
    /// mount all of them. `pin_to` checks those of the group alone.
    pub(super) fn unreachable(&self) -> Option<String> {
        let with = |pod: &Joining<'v>| -> Volumes<'v> {
            self.group.volumes.iter().chain(pod.volumes.iter()).cloned().collect()
        };
        let with_further = self.group.waiting.iter().filter(|pod| !pod.volumes.is_empty());
        let volumes = with_further.map(with).find(|volumes| !volumes.reach_a_node(self.view))?;
        volumes.describe_reach(self.view)
    }

    /// Describes the volumes that only `node` can mount. `None`: another node can mount all of them.
    pub(super) fn pin_to(&self, node: &str) -> Option<String> {
        self.group.volumes.pin_to(node, self.view)
    }
}

/// A waiting pod of this namespace, without a node name that stowplan added, and with its volumes
/// except those of the claims `mounted`, which the placeholder mounts.
pub(crate) fn joining<'v>(
    pod: &'v MemberDetails,
    namespace: &str,
    mounted: &[Name],
    view: &'v View,
) -> Joining<'v> {
    let selector = pod.node_selector.iter();
    let needs = PodNeeds {
        node_selector: selector.map(|(key, value)| (&**key, &**value)).collect(),
        node_terms: own_terms(pod),
        tolerations: &pod.tolerations,
        requests: Some(Cow::Borrowed(&pod.requests)),
    };
    let is_further = |claim: &&str| mounted.iter().all(|known| *known.name != **claim);
    let further = pod.claims.iter().map(AsRef::as_ref).filter(is_further);
    let further = further.map(|claim| Name::new(namespace, claim));
    Joining { needs, volumes: volumes::of_claims(further, view) }
}

/// The node that stowplan made a pod require by name, instead of adding the pod-affinity term.
fn bound_by_name(pod: &MemberDetails) -> Option<&str> {
    let terms = pod.terms.as_deref().filter(|_| pod.gate.is_none() && !pod.follows);
    bound_to(terms?)
}

/// The required node terms of a pod, without a node name that stowplan added.
pub(super) fn own_terms(pod: &MemberDetails) -> Option<Cow<'_, [NodeSelectorTerm]>> {
    let terms = pod.terms.as_deref()?;
    match bound_by_name(pod) {
        Some(_) => fit::unbound_terms(terms),
        None => Some(Cow::Borrowed(terms)),
    }
}
