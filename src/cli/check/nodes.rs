//! Which nodes a pod may go to by its own words, and what keeps it from the others.
//!
//! The part of the scheduler that is about names, labels and taints; what it says itself, in the
//! pod's condition, covers the rest (resources, volumes, ports).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, Toleration};
use kube::core::{Selector, SelectorExt as _};

use crate::placement::affinity::bound_to;
use crate::placement::toleration::{tolerates, tolerates_cordon};
use crate::view::selector;

/// Why a pod may not go to a node, in a few words; `None` if it may.
pub(super) fn obstacle(pod: &Pod, name: &str, node: &Node) -> Option<String> {
    if !is_selected(pod, name, node) {
        return Some("not among the nodes that its node affinity selects".to_owned());
    }
    let spec = node.spec.as_ref();
    let tolerations =
        pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let is_cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or_default();
    if is_cordoned && !tolerates_cordon(tolerations) {
        return Some("cordoned".to_owned());
    }
    if !is_ready(node) {
        return Some("not Ready".to_owned());
    }
    let taints = spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
    let taint = taints.filter(|taint| taint.effect != "PreferNoSchedule").find(|taint| {
        let value = taint.value.as_deref().unwrap_or_default();
        let tolerated = |own: &Toleration| tolerates(own, &taint.key, value, &taint.effect);
        !tolerations.iter().any(tolerated)
    })?;
    let value = taint.value.as_deref().unwrap_or_default();
    Some(format!("tainted {}={value}:{}, which it does not tolerate", taint.key, taint.effect))
}

/// Whether the node's condition Ready is True.
pub(super) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether the pod's nodeSelector and required node affinity select the node.
pub(super) fn is_selected(pod: &Pod, name: &str, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let selector = spec.node_selector.iter().flatten();
    if selector.into_iter().any(|(key, value)| labels.get(key) != Some(value)) {
        return false;
    }
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|required| selector::selects(&required.node_selector_terms, name, labels))
}

/// The node that the pod must be on by name.
pub(super) fn node_named_by(pod: &Pod) -> Option<&str> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    bound_to(&required.node_selector_terms)
}

/// Whether a term of pod (anti-)affinity on one node is about `other`, a pod of the same namespace.
pub(super) fn is_about(term: &PodAffinityTerm, other: &Pod) -> bool {
    let Some(selector) = &term.label_selector else { return false };
    let Ok(selector) = Selector::try_from(selector.clone()) else { return false };
    term.topology_key == "kubernetes.io/hostname"
        && selector.matches(other.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()))
}

/// The required terms of a pod's affinity and anti-affinity.
pub(super) fn required_terms(pod: &Pod) -> (&[PodAffinityTerm], &[PodAffinityTerm]) {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let to = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let from = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    (
        to.and_then(|to| to.required_during_scheduling_ignored_during_execution.as_deref())
            .unwrap_or_default(),
        from.and_then(|from| from.required_during_scheduling_ignored_during_execution.as_deref())
            .unwrap_or_default(),
    )
}
