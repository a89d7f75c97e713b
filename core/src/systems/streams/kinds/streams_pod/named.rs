//! Reads from a pod without a node the one node on which it must run.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::NodeSelectorTerm;

use super::{COLOCATION_PREFIX, GROUP, PendingPod};
use crate::kubernetes::{
    HOSTNAME, affinity, required_anti_terms, required_node_terms, required_pod_terms,
};
use crate::placement::affinity::{bound_to, usable};

/// The one node that a pod names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Named<'p> {
    /// By the name of the node.
    Node(&'p str),
    /// By the label `kubernetes.io/hostname`.
    Hostname(&'p str),
}

impl PendingPod {
    /// The one node that its required node affinity or its node selector names, if any.
    pub(crate) fn named(&self) -> Option<Named<'_>> {
        let terms = self.terms.as_deref().unwrap_or_default();
        let selected = self.node_selector.get(HOSTNAME).map(|value| &**value);
        let hostname = || selected.or_else(|| hostname(terms)).map(Named::Hostname);
        bound_to(terms).map(Named::Node).or_else(hostname)
    }
}

/// The one hostname label that all of a pod's terms require, if any. Terms that match no node are ignored.
fn hostname(terms: &[NodeSelectorTerm]) -> Option<&str> {
    let mut names = usable(terms).map(hostname_of_term);
    let first = names.next()??;
    names.all(|name| name == Some(first)).then_some(first)
}

fn hostname_of_term(term: &NodeSelectorTerm) -> Option<&str> {
    let mut requirements = term.match_expressions.iter().flatten();
    requirements.find_map(|of| match of.values.as_deref() {
        Some([name]) if of.key == HOSTNAME && of.operator == "In" => Some(name.as_str()),
        _ => None,
    })
}

/// Returns whether the pod has a required anti-affinity by hostname and may run on a node without the
/// hostname label, where the scheduler ignores it.
pub(super) fn may_be_nameless(pod: &core::Pod) -> bool {
    let own = affinity(pod);
    let is_apart = required_anti_terms(own).iter().any(|term| term.topology_key == HOSTNAME);
    let requires = |term: &NodeSelectorTerm| {
        let mut requirements = term.match_expressions.iter().flatten();
        requirements.any(|of| of.key == HOSTNAME && matches!(of.operator.as_str(), "Exists" | "In"))
            || term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty())
    };
    let terms = required_node_terms(own).unwrap_or_default();
    is_apart && (terms.is_empty() || !usable(terms).all(requires))
}

/// Returns true if the pod must be on the node of the pods with a colocation label.
pub(super) fn is_near(pod: &core::Pod) -> bool {
    required_pod_terms(affinity(pod)).iter().any(|term| {
        let selector = term.label_selector.as_ref();
        let rules = selector.and_then(|selector| selector.match_expressions.as_ref());
        let is_group = |key: &str| key.starts_with(COLOCATION_PREFIX) || key == GROUP;
        term.topology_key == HOSTNAME && rules.into_iter().flatten().any(|rule| is_group(&rule.key))
    })
}
