//! Builds the operations of a [`Write::Patch`](super::Write::Patch). Paths are given as unescaped tokens.

use json_patch::{PatchOperation, TestOperation};
use k8s_openapi::api::core::v1::NodeSelectorTerm;
use serde_json::{Value, json};

use crate::kubernetes::{AboveNodeTerms, NODE_TERMS};
use crate::placement::affinity::matches_nothing;
use crate::placement::patch::pointer;
pub use crate::placement::patch::{add, remove, replace};
use crate::view::Identity;

/// Tests the UID; the first operation of every patch.
#[must_use]
pub fn test_uid(uid: &str) -> PatchOperation {
    test(&["metadata", "uid"], uid)
}

/// Fails unless the field has this value. An absent field has the value null.
#[must_use]
pub fn test(path: &[&str], value: impl Into<Value>) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: pointer(path), value: value.into() })
}

/// Removes the scheduling gate `name` from a pod, after `others`. Tests the version of the pod: the
/// indexes of the gate and in `others` are those of that version.
#[must_use]
pub fn remove_gate(
    pod: &Identity,
    index: usize,
    name: &str,
    others: impl IntoIterator<Item = PatchOperation>,
) -> Vec<PatchOperation> {
    let index = index.to_string();
    let mut operations = vec![
        test_uid(&pod.uid),
        test(&["metadata", "resourceVersion"], &*pod.resource_version),
        test(&["spec", "schedulingGates", &index, "name"], name),
    ];
    operations.extend(others);
    operations.push(remove(&["spec", "schedulingGates", &index]));
    operations
}

/// Replaces the status of an object of this version. The operations set `metadata.resourceVersion`: the API
/// server answers 409 if the object has another version by now.
#[must_use]
pub fn replace_status(uid: &str, resource_version: &str, status: &Value) -> Vec<PatchOperation> {
    vec![
        test_uid(uid),
        replace(&["metadata", "resourceVersion"], resource_version),
        add(&["status"], status.clone()),
    ]
}

/// Adds requirements to each required node term of a gated pod, to the list `matchFields` or
/// `matchExpressions`. That is all that the API server lets change of these terms; a pod without any gets
/// its first. An empty term matches no node, and is left as it is: the API server refuses to fill it.
#[must_use]
pub(crate) fn require_nodes(
    terms: &[NodeSelectorTerm],
    above: AboveNodeTerms,
    list: &str,
    requirements: &[Value],
) -> Vec<PatchOperation> {
    if requirements.is_empty() {
        return Vec::new();
    }
    if terms.is_empty() {
        let (path, missing) = NODE_TERMS.split_at(match above {
            AboveNodeTerms::Spec => 2,
            AboveNodeTerms::Affinity => 3,
            AboveNodeTerms::NodeAffinity => 4,
        });
        let terms = json!([{list: requirements}]);
        let value = missing.iter().rev().fold(terms, |value, key| json!({*key: value}));
        return vec![add(path, value)];
    }
    let usable = terms.iter().enumerate().filter(|(_, term)| !matches_nothing(*term));
    usable
        .flat_map(|(index, term)| {
            let index = index.to_string();
            let path = [&NODE_TERMS[..], &[&index, list]].concat();
            let present = match list {
                "matchFields" => &term.match_fields,
                _ => &term.match_expressions,
            };
            match present.as_ref().is_some_and(|present| !present.is_empty()) {
                true => {
                    let item = [&path[..], &["-"]].concat();
                    requirements.iter().map(|of| add(&item, of.clone())).collect()
                }
                false => vec![add(&path, requirements.to_vec())],
            }
        })
        .collect()
}
