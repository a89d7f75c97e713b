//! Reads the pods without a node: their requirements, and how the controller may change them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Toleration};

use super::is_colocation_key;
use crate::kubernetes::{self, AboveNodeTerms, HOSTNAME, affinity};
use crate::placement::affinity::{bound_to, usable};
use crate::placement::record;
use crate::systems::fit::{self, PodNeeds};
use crate::systems::streams::NAME;
use crate::systems::streams::keys::{EXLOCATED, GATE, ISOLATED, POOL_LABEL_PREFIX, RESERVED};
use crate::view::Resources;

/// A pod without a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PendingPod {
    /// The index of [`GATE`] among its scheduling gates.
    pub gate: Option<usize>,
    /// True if a controller of Kubernetes creates it again when it is deleted.
    pub is_created_again: bool,
    /// True if the webhook would hold it to the present nodes of its job, as it has held it to earlier ones
    /// according to its record.
    pub is_held: bool,
    /// True if its record says that it is kept apart from others, but it may run on a node without the label
    /// `kubernetes.io/hostname`, where the scheduler does not keep pods apart.
    pub may_be_nameless: bool,
    /// True if it must be on the node of a colocation group.
    pub is_near: bool,
    /// The terms of its required node affinity, without the hostnames of pool members.
    pub terms: Option<Box<[NodeSelectorTerm]>>,
    /// The hostnames of pool members that its required node affinity names.
    pub listed: Box<[Listed]>,
    /// The object below which a patch gives it its first term.
    pub above_terms: AboveNodeTerms,
    node_selector: BTreeMap<Box<str>, Box<str>>,
    tolerations: Box<[Toleration]>,
    /// The sum of its requests.
    pub requests: Resources,
}

/// The hostnames of the members of a pool that a pod may run on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Listed {
    /// The pool's hash.
    pub hash: Box<str>,
    /// The index, if the pod asks for one member.
    pub index: Option<u32>,
    pub hostnames: Box<[String]>,
}

/// The one node that a pod names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Named<'p> {
    /// By the name of the node.
    Node(&'p str),
    /// By the label `kubernetes.io/hostname`.
    Hostname(&'p str),
}

/// Returns whether the record of a pod has an entry with one of these beginnings.
fn has_entry(pod: &core::Pod, beginnings: &[&str]) -> bool {
    let record = kubernetes::annotation(&pod.metadata, record::KEY).unwrap_or_default();
    let entries = record::entries(record, NAME);
    entries.iter().any(|entry| beginnings.iter().any(|begin| entry.starts_with(begin)))
}

impl PendingPod {
    pub(crate) fn read(pod: &core::Pod) -> Self {
        let spec = pod.spec.as_ref();
        let tolerations = spec.and_then(|spec| spec.tolerations.as_deref());
        let terms = kubernetes::required_node_terms(affinity(pod));
        let mut terms: Option<Box<[NodeSelectorTerm]>> = terms.map(Into::into);
        let listed = take_listed(terms.as_deref_mut().unwrap_or_default());
        Self {
            gate: kubernetes::gates(pod).position(|gate| gate == GATE),
            is_created_again: kubernetes::is_created_again(&pod.metadata),
            is_held: has_entry(pod, &[RESERVED]),
            may_be_nameless: may_be_nameless(pod) && has_entry(pod, &[EXLOCATED, ISOLATED]),
            is_near: is_near(pod),
            terms,
            listed,
            above_terms: AboveNodeTerms::from(pod),
            node_selector: kubernetes::kept_texts(
                spec.and_then(|spec| spec.node_selector.as_ref()),
            ),
            tolerations: tolerations.unwrap_or_default().into(),
            requests: spec.map(Resources::requested).unwrap_or_default(),
        }
    }

    /// Returns the requirements on its node, without the name of a node in its required node affinity.
    pub(crate) fn needs(&self) -> PodNeeds<'_> {
        let selector = self.node_selector.iter();
        PodNeeds {
            node_selector: selector.map(|(key, value)| (&**key, &**value)).collect(),
            node_terms: self.terms.as_deref().and_then(fit::unbound_terms),
            tolerations: &self.tolerations,
            requests: Some(Cow::Borrowed(&self.requests)),
        }
    }

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
fn may_be_nameless(pod: &core::Pod) -> bool {
    let own = affinity(pod);
    let is_apart =
        kubernetes::required_anti_terms(own).iter().any(|term| term.topology_key == HOSTNAME);
    let requires = |term: &NodeSelectorTerm| {
        let mut requirements = term.match_expressions.iter().flatten();
        requirements.any(|of| of.key == HOSTNAME && matches!(of.operator.as_str(), "Exists" | "In"))
            || term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty())
    };
    let terms = kubernetes::required_node_terms(own).unwrap_or_default();
    is_apart && (terms.is_empty() || !usable(terms).all(requires))
}

/// Returns true if the pod must be on the node of the pods with a colocation label.
fn is_near(pod: &core::Pod) -> bool {
    kubernetes::required_pod_terms(affinity(pod)).iter().any(|term| {
        let selector = term.label_selector.as_ref();
        let rules = selector.and_then(|selector| selector.match_expressions.as_ref());
        let mut rules = rules.into_iter().flatten();
        term.topology_key == HOSTNAME && rules.any(|rule| is_colocation_key(&rule.key))
    })
}

/// Takes the requirements of hostnames that the webhook wrote out of the terms of a pod: each follows
/// that of the label of its pool. The pool says which members it has now.
fn take_listed(terms: &mut [NodeSelectorTerm]) -> Box<[Listed]> {
    let mut all: Vec<Listed> = Vec::new();
    for expressions in terms.iter_mut().filter_map(|term| term.match_expressions.as_mut()) {
        let mut pool: Option<(Box<str>, Option<u32>)> = None;
        expressions.retain(|requirement| {
            let own =
                pool.take().filter(|_| requirement.key == HOSTNAME && requirement.operator == "In");
            let Some((hash, index)) = own else {
                pool = pool_of(requirement);
                return true;
            };
            let hostnames = requirement.values.clone().unwrap_or_default().into();
            let listed = Listed { hash, index, hostnames };
            if !all.contains(&listed) {
                all.push(listed);
            }
            false
        });
    }
    all.into()
}

/// The hash of the pool whose label a requirement is about, and the index if it is for one member.
fn pool_of(requirement: &NodeSelectorRequirement) -> Option<(Box<str>, Option<u32>)> {
    let hash = requirement.key.strip_prefix(POOL_LABEL_PREFIX)?;
    let index = requirement.values.iter().flatten().find_map(|value| value.parse().ok());
    Some((hash.into(), index))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_hostnames_after_the_label_of_a_pool_are_taken() {
        let pool = json!({"key": format!("{POOL_LABEL_PREFIX}0123456789"), "operator": "Exists"});
        let member = json!({"key": format!("{POOL_LABEL_PREFIX}0123456789"), "operator": "In", "values": ["1"]});
        let names = json!({"key": HOSTNAME, "operator": "In", "values": ["a", "b"]});
        let exists = json!({"key": HOSTNAME, "operator": "Exists"});
        let listed = |index| {
            let hostnames = ["a".to_owned(), "b".to_owned()].into();
            Listed { hash: "0123456789".into(), index, hostnames }
        };
        for (expressions, kept, expected) in [
            (json!([pool, names]), json!([pool]), vec![listed(None)]),
            (json!([member, names]), json!([member]), vec![listed(Some(1))]),
            // The author's own, before and after.
            (json!([names, pool, names, names]), json!([names, pool, names]), vec![listed(None)]),
            (json!([names, pool]), json!([names, pool]), vec![]),
            (json!([pool, exists, names]), json!([pool, exists, names]), vec![]),
            (json!([pool]), json!([pool]), vec![]),
            (json!([]), json!([]), vec![]),
        ] {
            let term =
                |of: &Value| serde_json::from_value(json!({"matchExpressions": of})).unwrap();
            let mut terms: [NodeSelectorTerm; 2] = [term(&expressions), term(&expressions)];
            assert_eq!(*take_listed(&mut terms), *expected, "{expressions}");
            assert_eq!(terms, [term(&kept), term(&kept)], "{expressions}");
        }
    }
}
