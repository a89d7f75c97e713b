//! Which marks on a node may be taken back: those of pools that do not have the node.
//!
//! The View says so when the plan is made, but a watch can be late, and marks that are taken from a
//! member by mistake let others in. So the pools are read once more, from the API server itself.

use json_patch::PatchOperation;
use kube::Resource as _;
use kube::core::DeserializeGuard;
use serde_json::Value;

use crate::api::HostPool;
use crate::api::host_pool::MemberState;
use crate::view::host_pool;

/// What a HostPool says of nodes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Claim {
    /// The pool's hash.
    hash: String,
    /// Its members, by name and UID. `None`: it cannot be read, so it may have any node.
    nodes: Option<Vec<(String, String)>>,
}

impl Claim {
    /// Reads a pool as it was listed. One that is about to go has no node any more, and neither has
    /// a place its node once that is lost: the status keeps the name only for people.
    pub(super) fn of(pool: &DeserializeGuard<HostPool>) -> Self {
        let metadata = pool.meta();
        let hash = host_pool::hash(metadata.uid.as_deref().unwrap_or_default());
        if metadata.deletion_timestamp.is_some() {
            return Self { hash, nodes: Some(Vec::new()) };
        }
        let nodes = pool.0.as_ref().ok().map(|pool| {
            let members = pool.status.iter().flat_map(|status| &status.members);
            let placed = members.filter(|member| member.state != MemberState::Vacant);
            placed
                .map(|member| {
                    let text = |text: &Option<String>| text.clone().unwrap_or_default();
                    (text(&member.node), text(&member.uid))
                })
                .collect()
        });
        Self { hash, nodes }
    }
}

/// Those of `hashes` whose pools have the node of this name and UID.
pub(super) fn held<'h>(
    claims: &[Claim],
    hashes: &'h [String],
    name: &str,
    uid: &str,
) -> Vec<&'h str> {
    let has = |claim: &Claim| match &claim.nodes {
        Some(nodes) => nodes.iter().any(|(node, of)| node == name && of == uid),
        None => true,
    };
    let held =
        hashes.iter().filter(|hash| claims.iter().any(|claim| claim.hash == **hash && has(claim)));
    held.map(String::as_str).collect()
}

/// `operations` without those that take back the marks of the pools that are `held`. `None`: nothing
/// is left that changes the node.
///
/// An operation is about a pool if its path or its value names the hash, as a label's key and a
/// taint's `test` do, or if it changes the very place that such a `test` is about. Taints are taken
/// from the last to the first, so that those which stay do not move the others.
pub(super) fn without(operations: &[PatchOperation], held: &[&str]) -> Option<Vec<PatchOperation>> {
    let mut left = Vec::with_capacity(operations.len());
    let mut kept_places: Vec<String> = Vec::new();
    for operation in operations {
        let path = operation.path().to_string();
        let value = match operation {
            PatchOperation::Test(test) => Some(&test.value),
            PatchOperation::Add(add) => Some(&add.value),
            PatchOperation::Replace(replace) => Some(&replace.value),
            _ => None,
        };
        let names = |hash: &&str| path.contains(*hash) || value.is_some_and(|v| mentions(v, hash));
        if held.iter().any(names) {
            kept_places.push(path);
        } else if !kept_places.contains(&path) {
            left.push(operation.clone());
        }
    }
    left.iter().any(|operation| !matches!(operation, PatchOperation::Test(_))).then_some(left)
}

fn mentions(value: &Value, hash: &str) -> bool {
    match value {
        Value::String(text) => text.contains(hash),
        Value::Array(items) => items.iter().any(|item| mentions(item, hash)),
        Value::Object(fields) => {
            fields.iter().any(|(key, value)| key.contains(hash) || mentions(value, hash))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use json_patch::{Patch, patch};
    use serde_json::json;

    use super::*;

    const A: &str = "aaaaaaaaaa";
    const B: &str = "bbbbbbbbbb";

    fn operations(value: Value) -> Vec<PatchOperation> {
        serde_json::from_value(value).unwrap()
    }

    /// What takes back the marks of two pools: labels, and the taints from the last to the first.
    fn both() -> Vec<PatchOperation> {
        let taint =
            |hash| json!({"key": "stowplan.dev/exclusive", "value": hash, "effect": "NoSchedule"});
        operations(json!([
            {"op": "test", "path": "/metadata/uid", "value": "u1"},
            {"op": "test", "path": "/spec/taints/2", "value": taint(B)},
            {"op": "remove", "path": "/spec/taints/2"},
            {"op": "test", "path": "/spec/taints/1", "value": taint(A)},
            {"op": "remove", "path": "/spec/taints/1"},
            {"op": "remove", "path": format!("/metadata/labels/pool.stowplan.node-restriction.kubernetes.io~1{A}")},
            {"op": "remove", "path": format!("/metadata/labels/pool.stowplan.node-restriction.kubernetes.io~1{B}")},
        ]))
    }

    #[test]
    fn the_marks_of_pools_that_have_the_node_stay_and_the_others_go() {
        let node = || {
            json!({
                "metadata": {"uid": "u1", "labels": {
                    "mine": "x",
                    format!("pool.stowplan.node-restriction.kubernetes.io/{A}"): "0",
                    format!("pool.stowplan.node-restriction.kubernetes.io/{B}"): "4",
                }},
                "spec": {"taints": [
                    {"key": "mine", "effect": "NoSchedule"},
                    {"key": "stowplan.dev/exclusive", "value": A, "effect": "NoSchedule"},
                    {"key": "stowplan.dev/exclusive", "value": B, "effect": "NoSchedule"},
                ]},
            })
        };
        for (held, left) in [(vec![], vec![]), (vec![A], vec![A]), (vec![B], vec![B])] {
            let mut node = node();
            patch(&mut node, &Patch(without(&both(), &held).unwrap())).unwrap();
            let labels: Vec<_> = node["metadata"]["labels"].as_object().unwrap().keys().collect();
            assert_eq!(labels.len(), 1 + left.len(), "{held:?}: {labels:?}");
            let taints = node["spec"]["taints"].as_array().unwrap().iter();
            let taints: Vec<_> = taints.filter_map(|taint| taint["value"].as_str()).collect();
            assert_eq!(taints, left, "{held:?}");
            assert_eq!(node["spec"]["taints"][0]["key"], "mine");
        }
        assert_eq!(without(&both(), &[A, B]), None, "only the test of the UID is left");
    }

    #[test]
    fn a_list_of_taints_that_is_replaced_as_a_whole_is_about_every_pool_in_it() {
        let taints = json!([{"key": "stowplan.dev/exclusive", "value": A, "effect": "NoSchedule"}]);
        let whole = operations(json!([
            {"op": "test", "path": "/spec/taints", "value": taints},
            {"op": "remove", "path": "/spec/taints"},
        ]));
        assert_eq!(without(&whole, &[A]), None);
        assert_eq!(without(&whole, &[B]), Some(whole.clone()));
    }

    fn pool(uid: &str, mut rest: Value) -> Claim {
        rest["apiVersion"] = json!("stowplan.dev/v1alpha1");
        rest["kind"] = json!("HostPool");
        rest["metadata"]["name"] = json!("p");
        rest["metadata"]["uid"] = json!(uid);
        Claim::of(&serde_json::from_value(rest).unwrap())
    }

    #[test]
    fn a_pool_has_the_nodes_that_its_status_names_by_name_and_uid() {
        let member = |state| {
            json!({"spec": {"size": 1}, "status": {"members": [
                {"index": 0, "node": "n1", "uid": "u1", "state": state, "since": "2026-01-01T00:00:00Z"},
            ]}})
        };
        let mut going = member("Ready");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let claims = [
            pool("ready", member("Ready")),
            pool("reserving", member("Reserving")),
            pool("vacant", member("Vacant")),
            pool("going", going),
            pool("new", json!({"spec": {"size": 1}})),
            pool("unreadable", json!({"spec": {"size": "many"}})),
        ];
        let uids = ["ready", "reserving", "vacant", "going", "new", "unreadable", "gone"];
        let hashes = uids.map(host_pool::hash);
        let named = |name, uid| {
            let held = held(&claims, &hashes, name, uid);
            let is_held = |&(_, hash): &(&&str, &String)| held.contains(&hash.as_str());
            uids.iter().zip(&hashes).filter(is_held).map(|(&uid, _)| uid).collect::<Vec<_>>()
        };
        assert_eq!(named("n1", "u1"), ["ready", "reserving", "unreadable"]);
        assert_eq!(named("n1", "u2"), ["unreadable"], "made again under its old name");
        assert_eq!(named("n2", "u1"), ["unreadable"]);
    }
}
