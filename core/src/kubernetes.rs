//! Accessors for fields of Kubernetes objects that are optional at every level, and constants of
//! Kubernetes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, NodeSelectorTerm, Pod, PodAffinityTerm, PodCondition, PodSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;

/// The label with a unique value on each node: the topology key for "on the same node".
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// The field with the required terms of an affinity of any kind.
pub const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// The field with the preferred terms.
pub(crate) const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// The path of the required node selector terms in a pod.
pub(crate) const NODE_TERMS: [&str; 5] =
    ["spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"];

/// The scheduler of pods without `spec.schedulerName`.
pub(crate) const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The kinds that create a pod again if it is deleted, by their API groups. Other projects have kinds of the same
/// names, which may not.
const CREATING_AGAIN: [(&str, &str); 5] = [
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("batch", "Job"),
    ("", "ReplicationController"),
];

/// The owner that manages an object.
#[must_use]
pub fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

/// Returns true if a controller of Kubernetes creates a pod again if it is deleted.
#[must_use]
pub fn is_created_again(metadata: &ObjectMeta) -> bool {
    controller(metadata).is_some_and(|owner| creates_again(&owner.api_version, &owner.kind))
}

/// Returns whether an owner of this `apiVersion` and `kind` creates a pod again if it is deleted.
#[must_use]
pub(crate) fn creates_again(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    CREATING_AGAIN.contains(&(group, kind))
}

/// Returns the domain of a key or of a scheduling gate: the part before the slash, if there is one.
#[must_use]
pub fn domain(key: &str) -> Option<&str> {
    key.split_once('/').map(|(domain, _)| domain)
}

#[must_use]
pub fn label<'m>(metadata: &'m ObjectMeta, key: &str) -> Option<&'m str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

#[must_use]
pub fn annotation<'m>(metadata: &'m ObjectMeta, key: &str) -> Option<&'m str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Copies labels, annotations or a node selector as a View keeps them.
#[must_use]
pub(crate) fn kept_texts(texts: Option<&BTreeMap<String, String>>) -> BTreeMap<Box<str>, Box<str>> {
    let texts = texts.into_iter().flatten();
    texts.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect()
}

/// The required node affinity terms; `None`: there is no required node affinity, so every node is
/// allowed.
#[must_use]
pub fn required_node_terms(affinity: Option<&Affinity>) -> Option<&[NodeSelectorTerm]> {
    let node = affinity?.node_affinity.as_ref()?;
    let required = node.required_during_scheduling_ignored_during_execution.as_ref()?;
    Some(&required.node_selector_terms)
}

/// The innermost object above the required node terms of a pod that exists: a patch that gives the pod
/// its first terms adds what is missing below it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum AboveNodeTerms {
    #[default]
    Spec,
    Affinity,
    NodeAffinity,
}

impl From<&Pod> for AboveNodeTerms {
    fn from(pod: &Pod) -> Self {
        match affinity(pod) {
            None => Self::Spec,
            Some(affinity) if affinity.node_affinity.is_none() => Self::Affinity,
            Some(_) => Self::NodeAffinity,
        }
    }
}

/// The required terms of pod affinity.
#[must_use]
pub fn required_pod_terms(affinity: Option<&Affinity>) -> &[PodAffinityTerm] {
    let toward = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    toward
        .and_then(|of| of.required_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default()
}

/// The required terms of pod anti-affinity.
#[must_use]
pub fn required_anti_terms(affinity: Option<&Affinity>) -> &[PodAffinityTerm] {
    let from = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    from.and_then(|of| of.required_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default()
}

/// `spec.affinity` of a pod.
#[must_use]
pub fn affinity(pod: &Pod) -> Option<&Affinity> {
    pod.spec.as_ref()?.affinity.as_ref()
}

/// The names of a pod's scheduling gates.
pub(crate) fn gates(pod: &Pod) -> impl Iterator<Item = &str> {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.into_iter().flatten().map(|gate| gate.name.as_str())
}

/// The names of the PersistentVolumeClaims that a pod mounts, in the order of its volumes.
pub fn claims(spec: &PodSpec) -> impl Iterator<Item = &str> {
    let volumes = spec.volumes.iter().flatten();
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
}

/// The node that a pod is bound to.
#[must_use]
pub fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

/// `spec.schedulerName`, or the name of the default scheduler.
#[must_use]
pub fn scheduler_name(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or(DEFAULT_SCHEDULER)
}

/// Returns true if a pod has finished: its phase is Succeeded or Failed.
#[must_use]
pub fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns true if the message of a 403 says that a right is missing: authorization answers like this. Others are of an
/// admission step, or of a proxy.
#[must_use]
pub fn is_missing_right(message: &str) -> bool {
    let rest = message.split_once("forbidden: User \"");
    rest.is_some_and(|(_, rest)| rest.contains("\" cannot "))
}

/// Who may have answered a 403 that does not say which right is missing.
pub const OTHER_DENIAL: &str =
    "no right is missing: a proxy on the way, or an admission step, may have answered 403";

/// The answer of a webhook of stowplan in the message of a request that it has denied, at most
/// [`REFUSAL_BYTES`] of it.
#[must_use]
pub fn own_refusal(message: &str) -> Option<&str> {
    let (_, answer) = message.split_once(".stowplan.dev\" denied the request: ")?;
    let answer = answer.strip_prefix("stowplan: ").unwrap_or(answer);
    Some(answer[..answer.floor_char_boundary(REFUSAL_BYTES)].trim_end())
}

/// The most that is kept of a refusal.
const REFUSAL_BYTES: usize = 2048;

/// The label of a Deployment's pods that is the end of their ReplicaSet's name.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The workload that makes a pod: its kind and name. That of a ReplicaSet with the name of one that a Deployment
/// makes is the Deployment.
#[must_use]
pub fn workload(metadata: &ObjectMeta) -> Option<(&str, &str)> {
    let OwnerReference { kind, name, .. } = controller(metadata)?;
    if kind == "ReplicaSet" {
        let hash = label(metadata, TEMPLATE_HASH).unwrap_or_default();
        let deployment = name.strip_suffix(hash).and_then(|rest| rest.strip_suffix('-'));
        if let Some(deployment) = deployment {
            return Some(("Deployment", deployment));
        }
    }
    Some((kind, name))
}

/// The condition of a pod with this type.
#[must_use]
pub(crate) fn condition<'p>(pod: &'p Pod, type_: &str) -> Option<&'p PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Since when a pod has a node, by its condition PodScheduled.
#[must_use]
pub(crate) fn scheduled_since(pod: &Pod) -> Option<Timestamp> {
    let scheduled = condition(pod, "PodScheduled").filter(|of| of.status == "True")?;
    scheduled.last_transition_time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn missing_fields_are_read_as_their_defaults() {
        for spec in [
            Value::Null,
            json!({"containers": [], "affinity": {}, "nodeName": ""}),
            json!({"containers": [], "volumes": [{"name": "v", "emptyDir": {}}],
                "affinity": {"nodeAffinity": {}, "podAffinity": {}, "podAntiAffinity": {}}}),
        ] {
            let pod: Pod = serde_json::from_value(json!({"spec": spec, "status": {}})).unwrap();
            assert_eq!(required_node_terms(affinity(&pod)), None, "every node is allowed");
            assert_eq!(required_pod_terms(affinity(&pod)), []);
            assert_eq!(required_anti_terms(affinity(&pod)), []);
            assert_eq!((gates(&pod).next(), node_name(&pod)), (None, None));
            assert_eq!(pod.spec.iter().flat_map(claims).next(), None);
            assert_eq!(scheduler_name(&pod), DEFAULT_SCHEDULER);
            assert!(!is_finished(&pod) && condition(&pod, "Ready").is_none());
        }
    }

    #[test]
    fn a_refusal_of_stowplan_is_found_in_the_message_of_an_error() {
        let long = format!("{}é", "x".repeat(REFUSAL_BYTES - 1));
        let of = |answer: &str| {
            format!("Error: admission webhook \"pods.stowplan.dev\" denied the request: {answer}")
        };
        for (message, expected) in [
            (of("stowplan: é: no; yes"), Some("é: no; yes")),
            (of("no"), Some("no")),
            (of(""), Some("")),
            (of(&long), Some(&long[..REFUSAL_BYTES - 1])),
            (of(&"x".repeat(262_144)), Some(&long[..REFUSAL_BYTES - 1])),
            (String::new(), None),
            ("admission webhook \"a.example\" denied the request: no".to_owned(), None),
        ] {
            let found = own_refusal(&message);
            match expected {
                Some(expected) if expected.len() > 9 => {
                    assert!(found.is_some_and(|found| found.starts_with(expected)), "{message}");
                    assert!(found.is_some_and(|found| found.len() <= REFUSAL_BYTES));
                }
                expected => assert_eq!(found, expected),
            }
        }
    }

    #[test]
    fn only_the_answer_of_authorization_says_that_a_right_is_missing() {
        for (message, expected) in [
            (
                "pods is forbidden: User \"ann\" cannot list resource \"pods\" in API group \"\" at the cluster scope",
                true,
            ),
            ("forbidden: User \"system:anonymous\" cannot get path \"/metrics\"", true),
            ("", false),
            ("resolve_deny: denied destination", false),
            ("pods \"p\" is forbidden: exceeded quota: q", false),
            (
                "admission webhook \"a.example\" denied the request: User \"ann\" cannot do it",
                false,
            ),
        ] {
            assert_eq!(is_missing_right(message), expected, "{message}");
        }
    }

    #[test]
    fn a_replica_sets_pod_is_of_the_deployment_whose_hash_it_has() {
        for (owner, hash, expected) in [
            (("ReplicaSet", "web-5d4f"), json!("5d4f"), Some(("Deployment", "web"))),
            (("ReplicaSet", "web-5d4f"), json!("other"), Some(("ReplicaSet", "web-5d4f"))),
            (("ReplicaSet", "web"), json!(""), Some(("ReplicaSet", "web"))),
            (("Job", "web-5d4f"), json!("5d4f"), Some(("Job", "web-5d4f"))),
        ] {
            let metadata: ObjectMeta = serde_json::from_value(json!({
                "labels": {TEMPLATE_HASH: hash},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner.0, "name": owner.1,
                    "uid": "u", "controller": true}],
            }))
            .unwrap();
            assert_eq!(workload(&metadata), expected);
        }
        assert_eq!(workload(&ObjectMeta::default()), None);
    }

    #[test]
    fn kinds_of_the_same_name_in_other_groups_do_not_count() {
        for (version, kind, expected) in [
            ("apps/v1", "ReplicaSet", true),
            ("batch/v1", "Job", true),
            ("batch/v1beta1", "Job", true),
            ("v1", "ReplicationController", true),
            ("batch.volcano.sh/v1alpha1", "Job", false),
            ("apps.kruise.io/v1beta1", "StatefulSet", false),
            ("v1", "Job", false),
            ("apps/v1", "Deployment", false),
            ("", "", false),
        ] {
            assert_eq!(creates_again(version, kind), expected, "{version} {kind}");
        }
    }
}
