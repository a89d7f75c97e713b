//! Decides whether a pod fits on a node: for pools, for groups that share a node, for the webhook
//! and for `stowplan check`.
//!
//! A [`Question`] is about one pod and one node. Callers need different checks, so each passes a
//! list of [`Check`]s: a member of a pool needs no free resources; the View of the webhook has no
//! taints. A property of the node that the View does not know is never an obstacle.
//!
//! The scheduler looks at more, which is no obstacle here (the suite `scheduler` of `tests/outcomes` compares both):
//! - other pods: the pod's own terms of pod affinity and anti-affinity, those of pods on the node, topology spread
//!   constraints, host ports, and room that is kept for pods that are nominated;
//! - claims that do not exist, are lost, are being deleted, have no volume yet, or are used by another pod where
//!   only one may use them; zones that a volume has as labels, and how many volumes a node can attach;
//! - scheduling gates, devices of ResourceClaims, and features that nodes declare.

mod group;
mod obstacle;
#[cfg(test)]
mod tests;
mod volumes;

pub(crate) use group::{Group, Joining};
pub use obstacle::{Obstacle, Shortage};
pub(crate) use volumes::{Volume, Volumes};

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Toleration};

use crate::kubernetes::{self, HOSTNAME};
use crate::placement::affinity::{bound_to, matches_nothing};
use crate::placement::pod::Pod;
use crate::placement::toleration::{tolerates, tolerates_cordon};
use crate::systems::View;
use crate::view::node::{NodeDetails, Taint};
use crate::view::{Node, NodeUsage, Resources, selector};
use crate::wire::TextMap;

/// The requirements of a pod for its node. The default has no requirements and no tolerations.
#[derive(Clone, Debug, Default)]
pub struct PodNeeds<'p> {
    /// `spec.nodeSelector`: keys and values.
    pub node_selector: Vec<(&'p str, &'p str)>,
    /// The required node affinity terms; `None`: every node is allowed.
    pub node_terms: Option<Cow<'p, [NodeSelectorTerm]>>,
    /// `spec.tolerations`.
    pub tolerations: &'p [Toleration],
    /// The requested resources; `None`: they do not matter.
    pub requests: Option<Cow<'p, Resources>>,
}

impl<'p> PodNeeds<'p> {
    /// The requirements of a pod spec.
    #[must_use]
    pub fn of_spec(spec: &'p PodSpec) -> Self {
        let selector = spec.node_selector.iter().flatten();
        let terms = kubernetes::required_node_terms(spec.affinity.as_ref());
        Self {
            node_selector: selector.map(|(key, value)| (key.as_str(), value.as_str())).collect(),
            node_terms: terms.map(Cow::Borrowed),
            tolerations: spec.tolerations.as_deref().unwrap_or_default(),
            requests: Some(Cow::Owned(Resources::requested(spec))),
        }
    }

    /// The choice of nodes by the author of a pod at admission; resources do not matter. Terms that
    /// match no node at all are left out: the merge reports them.
    #[must_use]
    pub(crate) fn of_admitted(pod: &'p Pod<'_>) -> Self {
        let terms = kubernetes::required_node_terms(Some(&pod.affinity));
        let terms = terms.filter(|terms| !terms.iter().all(matches_nothing));
        Self {
            node_selector: pod.node_selector.iter().flat_map(TextMap::iter).collect(),
            node_terms: terms.map(Cow::Borrowed),
            tolerations: pod.tolerations.as_deref().unwrap_or_default(),
            requests: None,
        }
    }
}

/// The node terms of a pod without the node name that stowplan added: the last `In` on a field of
/// each term. `None`: there are no other requirements.
#[must_use]
pub(crate) fn unbound_terms(terms: &[NodeSelectorTerm]) -> Option<Cow<'_, [NodeSelectorTerm]>> {
    if bound_to(terms).is_none() {
        return Some(Cow::Borrowed(terms));
    }
    let mut terms = terms.to_vec();
    for term in &mut terms {
        let names = |field: &NodeSelectorRequirement| field.operator == "In";
        let mut fields = term.match_fields.take().unwrap_or_default();
        if let Some(binding) = fields.iter().rposition(names) {
            fields.remove(binding);
        }
        if fields.is_empty() && term.match_expressions.as_ref().is_none_or(Vec::is_empty) {
            return None;
        }
        term.match_fields = Some(fields);
    }
    Some(Cow::Owned(terms))
}

/// A node with the resources that the pods on it use.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'n> {
    pub name: &'n str,
    pub node: &'n Node,
    /// The View that contains the node and its labels.
    pub view: &'n View,
    /// The resources that the pods on it use; `None`: there are no pods.
    pub usage: Option<&'n NodeUsage>,
}

impl<'n> Candidate<'n> {
    /// Finds the node of this name.
    #[must_use]
    pub(crate) fn find(name: &'n str, view: &'n View) -> Option<Self> {
        Some(Self { name, node: view.node(name)?, view, usage: view.node_usage(name) })
    }

    /// All nodes, as if there were no pods on them.
    pub fn all_empty(view: &'n View) -> impl Iterator<Item = Self> {
        view.nodes().map(move |(name, node)| Self { name, node, view, usage: None })
    }

    /// A label of the node, as [`View::node_label`] returns it.
    fn label(self, key: &str) -> Option<Option<&'n str>> {
        match self.details() {
            Some(details) => Some(details.labels.get(key).map(AsRef::as_ref)),
            None => self.view.node_label(self.name, key),
        }
    }

    fn details(self) -> Option<&'n NodeDetails> {
        self.node.details.as_deref()
    }
}

/// Pods that are assigned to the node before the pod in question.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before<'b> {
    /// The number of pods.
    pub pods: usize,
    /// The sum of their requests.
    pub requests: Option<&'b Resources>,
}

/// Does this pod fit on this node?
#[derive(Clone, Copy, Debug)]
pub struct Question<'q> {
    pub candidate: Candidate<'q>,
    pub pod: &'q PodNeeds<'q>,
    /// The volumes that the pod mounts.
    pub volumes: Option<&'q Volumes<'q>>,
    /// Pods that are assigned to the node first.
    pub before: Before<'q>,
}

impl<'q> Question<'q> {
    /// The question for a pod without volumes that is the next pod on the node.
    #[must_use]
    pub fn new(candidate: Candidate<'q>, pod: &'q PodNeeds<'q>) -> Self {
        Self { candidate, pod, volumes: None, before: Before::default() }
    }
}

/// Looks for one kind of obstacle.
pub type Check = for<'q> fn(&Question<'q>) -> Option<Obstacle<'q>>;

/// For a member of a pool: the requirements of any pod.
pub const POOL: &[Check] = &[being_deleted, not_ready, cordoned, tainted, no_hostname];

/// For the webhook, whose View contains only cordons and some labels of nodes.
pub(crate) const WEBHOOK: &[Check] = &[cordoned, node_selector, node_affinity];

/// For the nodes that the author of a pod allows.
pub const CHOICE: &[Check] = &[node_selector, node_affinity];

/// For a group whose placeholder is on the node already: whether it can stay there.
pub(crate) const STAY: &[Check] =
    &[being_deleted, not_ready, cordoned, tainted, no_hostname, volume];

/// For a pod that joins its placeholder, in addition to [`STAY`].
pub(crate) const JOIN: &[Check] =
    &[cordoned, tainted, node_selector, node_affinity, volume, too_many_pods, insufficient];

/// The checks for what other pods leave of a node.
pub const ROOM: &[Check] = &[too_many_pods, insufficient];

/// The scheduler's checks for any pod, except those for resources and volumes.
pub const SCHEDULER: &[Check] = &[not_ready, cordoned, tainted, node_selector, node_affinity];

/// The scheduler's checks for a pod that must be on the same node as others.
pub const SCHEDULER_BESIDE: &[Check] =
    &[not_ready, cordoned, tainted, no_hostname, node_selector, node_affinity];

/// All checks.
pub const ALL: &[Check] = &[
    being_deleted,
    not_ready,
    cordoned,
    tainted,
    no_hostname,
    node_selector,
    node_affinity,
    volume,
    too_many_pods,
    insufficient,
];

/// Runs the checks and returns the obstacles in order.
pub fn obstacles<'q>(
    question: &Question<'q>,
    checks: &[Check],
) -> impl Iterator<Item = Obstacle<'q>> {
    checks.iter().filter_map(move |check| check(question))
}

/// Runs the checks until one finds an obstacle.
#[must_use]
pub fn first_obstacle<'q>(question: &Question<'q>, checks: &[Check]) -> Option<Obstacle<'q>> {
    obstacles(question, checks).next()
}

/// Finds the cordon or taint of a node that a pod with these tolerations does not tolerate.
#[must_use]
pub(crate) fn closed_by<'n>(
    node: &'n NodeDetails,
    tolerations: &[Toleration],
) -> Option<Obstacle<'n>> {
    let is_cordoned = node.cordoned && !tolerates_cordon(tolerations);
    is_cordoned.then_some(Obstacle::Cordoned).or_else(|| first_taint(node, tolerations))
}

fn first_taint<'n>(node: &'n NodeDetails, tolerations: &[Toleration]) -> Option<Obstacle<'n>> {
    let is_tolerated = |Taint { key, value, effect, .. }: &Taint| {
        tolerations.iter().any(|toleration| tolerates(toleration, key, value, effect))
    };
    let keeps_out = |taint: &&Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute");
    let mut taints = node.taints.iter().filter(keeps_out);
    taints.find(|taint| !is_tolerated(taint)).map(Obstacle::Taint)
}

fn being_deleted<'q>(question: &Question<'q>) -> Option<Obstacle<'q>> {
    question.candidate.details()?.identity.deleting.then_some(Obstacle::BeingDeleted)
}

fn not_ready<'q>(question: &Question<'q>) -> Option<Obstacle<'q>> {
    (!question.candidate.details()?.ready).then_some(Obstacle::NotReady)
}

fn cordoned<'q>(question: &Question<'q>) -> Option<Obstacle<'q>> {
    let is_cordoned = question.candidate.node.cordoned;
    (is_cordoned && !tolerates_cordon(question.pod.tolerations)).then_some(Obstacle::Cordoned)
}

fn tainted<'q>(question: &Question<'q>) -> Option<Obstacle<'q>> {
    first_taint(question.candidate.details()?, question.pod.tolerations)
}

/// Checks for the label that pod affinity to one node needs.
fn no_hostname<'q>(question: &Question<'q>) -> Option<Obstacle<'q>> {
    let details = question.candidate.details()?;
    (!details.labels.contains_key(HOSTNAME)).then_some(Obstacle::NoHostname)
}

fn node_selector<'q>(question: &Question<'q>) -> Option<Obstacle<'q>> {
    let may_have = |(key, value): &(&str, &str)| {
        question.candidate.label(key).is_none_or(|own| own == Some(value))
    };
    (!question.pod.node_selector.iter().all(may_have)).then_some(Obstacle::NodeSelector)
}

fn node_affinity<'q>(question: &Question<'q>) -> Option<Obstacle<'q>> {
    let candidate = question.candidate;
    let terms = question.pod.node_terms.as_deref()?;
    let may_select = selector::may_select(terms, Some(candidate.name), |key| candidate.label(key));
    (!may_select).then_some(Obstacle::NodeAffinity)
}

/// Returns true if the node lacks only the label `kubernetes.io/hostname` to match the required node affinity.
/// Terms against other pods make stowplan require that label.
#[must_use]
pub fn lacks_only_hostname(question: &Question<'_>) -> bool {
    let candidate = question.candidate;
    let label = |key: &str| match candidate.label(key) {
        Some(None) if key == HOSTNAME => Some(Some(candidate.name)),
        known => known,
    };
    let terms = question.pod.node_terms.as_deref().unwrap_or_default();
    candidate.label(HOSTNAME) == Some(None)
        && selector::may_select(terms, Some(candidate.name), label)
}

fn volume<'q>(question: &Question<'q>) -> Option<Obstacle<'q>> {
    let candidate = question.candidate;
    let volume = question.volumes?.iter().find(|volume| !volume.reaches(candidate))?;
    Some(Obstacle::Volume { claim: &volume.claim, volume: volume.name })
}

fn too_many_pods<'q>(question: &Question<'q>) -> Option<Obstacle<'q>> {
    let limit = question.candidate.details()?.pod_limit;
    let present = question.candidate.usage.map_or(0, |usage| usage.pods);
    let all = present + question.before.pods + 1;
    (all > limit).then_some(Obstacle::TooManyPods { limit })
}

fn insufficient<'q>(question: &Question<'q>) -> Option<Obstacle<'q>> {
    let allocatable = &question.candidate.details()?.allocatable;
    let requests: &'q Resources = question.pod.requests.as_deref()?;
    let none = Resources::default();
    let used = question.candidate.usage.map_or(&none, |usage| &usage.requested);
    let before = question.before.requests.unwrap_or(&none);
    if allocatable.covers_beside(&[used, before], requests) {
        return None;
    }
    let shortage = |resource: &'q str, amount: &dyn Fn(&Resources) -> i64| {
        let (requested, allocatable) = (amount(requests), amount(allocatable));
        let free = allocatable.saturating_sub(amount(used)).saturating_sub(amount(before));
        let shortage = Shortage { resource, free, requested, allocatable };
        (requested > 0 && requested > free).then_some(shortage)
    };
    let cpu = shortage("cpu", &|of| of.milli_cpu);
    let memory = shortage("memory", &|of| of.memory);
    let others = requests.other.iter();
    let others = others.filter_map(|(name, _)| shortage(name, &|of| of.other(name)));
    Some(Obstacle::Insufficient(cpu.into_iter().chain(memory).chain(others).collect()))
}
