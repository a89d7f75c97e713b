//! Confirms that marks may be removed from a node: only those of pools that do not have the node.
//!
//! The plan already checks that in the View. But a watch can lag, and if the marks of a member are
//! removed by mistake, other pods may be bound to its node. So the pools are read again from the
//! API server before the patch is sent.

use json_patch::PatchOperation;
use kube_core::DeserializeGuard;
use kube_core::Resource as _;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::systems::plan::{Confirmation, Listed, Target};
use crate::systems::streams::api::HostPool;
use crate::systems::streams::api::host_pool::MemberState;
use crate::systems::streams::kinds::host_pool;
use crate::systems::streams::resources::HOST_POOL;

/// The confirmation of a patch that removes marks from a node.
pub(super) const CONFIRMATION: Confirmation =
    Confirmation::List(Listed { verb: "release", resource: HOST_POOL, reduce });

/// The operations of a patch to a node, without those that remove the marks of pools that have the
/// node. `pools` are all HostPools as the API server lists them.
fn reduce(
    pools: &[Value],
    node: &Target,
    operations: &[PatchOperation],
) -> Option<Vec<PatchOperation>> {
    let holder = |pool: &Value| {
        let hash = host_pool::hash(pool["metadata"]["uid"].as_str().unwrap_or_default());
        let is_named = operations.iter().any(|operation| mentions_pool(operation, &hash));
        (is_named && may_have(pool, &node.name, &node.uid)).then_some(hash)
    };
    let holders: Vec<String> = pools.iter().filter_map(holder).collect();
    without(operations, &holders)
}

/// Returns true if a listed pool may have the node with this name and UID. A pool that is being deleted has
/// no nodes, nor has a vacant member: its status keeps the node's name only as information. A pool
/// that cannot be decoded may have any node.
fn may_have(pool: &Value, name: &str, uid: &str) -> bool {
    let Ok(pool) = DeserializeGuard::<HostPool>::deserialize(pool) else { return true };
    if pool.meta().deletion_timestamp.is_some() {
        return false;
    }
    let Ok(pool) = &pool.0 else { return true };
    let members = pool.status.iter().flat_map(|status| &status.members);
    let mut placed = members.filter(|member| member.state != MemberState::Vacant);
    placed.any(|member| member.node.as_deref() == Some(name) && member.uid.as_deref() == Some(uid))
}

/// Returns `operations` without those that remove the marks of the pools with the hashes `holders`.
/// `None` if no operation is left that changes the node.
///
/// An operation concerns a pool if it contains the hash, as the key of a label and the `test` of a
/// taint do, or if it has the same path as such a `test`. Taints are removed from the last to the
/// first, so the positions of the others stay valid if some are kept.
fn without(operations: &[PatchOperation], holders: &[String]) -> Option<Vec<PatchOperation>> {
    let mut left = Vec::with_capacity(operations.len());
    let mut kept_paths: Vec<String> = Vec::new();
    for operation in operations {
        let path = operation.path().to_string();
        if holders.iter().any(|hash| mentions_pool(operation, hash)) {
            kept_paths.push(path);
        } else if !kept_paths.contains(&path) {
            left.push(operation.clone());
        }
    }
    left.iter().any(|operation| !matches!(operation, PatchOperation::Test(_))).then_some(left)
}

/// Returns true if the path or the value of an operation contains the hash of a pool.
fn mentions_pool(operation: &PatchOperation, hash: &str) -> bool {
    json!(operation).to_string().contains(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Name;
    use crate::view::resource::NODE;
    use json_patch::{Patch, patch};

    const A: &str = "aaaaaaaaaa";
    const B: &str = "bbbbbbbbbb";

    fn operations(value: Value) -> Vec<PatchOperation> {
        serde_json::from_value(value).unwrap()
    }

    /// The operations that remove the marks of two pools: labels, and taints from the last to the
    /// first.
    fn both() -> Vec<PatchOperation> {
        let taint = |hash| json!({"key": "stowplan.dev/exclusive", "value": hash});
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
    fn the_marks_of_pools_that_have_the_node_stay_and_others_are_removed() {
        let taint = |value| json!({"key": "stowplan.dev/exclusive", "value": value});
        let label = |hash: &str| format!("pool.stowplan.node-restriction.kubernetes.io/{hash}");
        let node = json!({
            "metadata": {"uid": "u1", "labels": {"mine": "x", label(A): "0", label(B): "4"}},
            "spec": {"taints": [{"key": "mine"}, taint(A), taint(B)]},
        });
        for held in [vec![], vec![A], vec![B]] {
            let mut node = node.clone();
            let holders: Vec<String> = held.iter().map(|hash| (*hash).to_owned()).collect();
            patch(&mut node, &Patch(without(&both(), &holders).unwrap())).unwrap();
            let (labels, taints) = (&node["metadata"]["labels"], &node["spec"]["taints"]);
            let has_label = |hash: &&str| labels[label(hash)].is_string();
            assert_eq!([A, B].into_iter().filter(has_label).collect::<Vec<_>>(), held);
            let values = taints.as_array().unwrap().iter().filter_map(|of| of["value"].as_str());
            assert_eq!(values.collect::<Vec<_>>(), held);
            assert_eq!((&labels["mine"], &taints[0]["key"]), (&json!("x"), &json!("mine")));
        }
        // Only the test of the UID is left.
        assert_eq!(without(&both(), &[A.to_owned(), B.to_owned()]), None);
    }

    #[test]
    fn an_operation_on_the_whole_list_of_taints_concerns_every_pool_in_it() {
        let taints = json!([{"key": "stowplan.dev/exclusive", "value": A, "effect": "NoSchedule"}]);
        let whole = operations(json!([
            {"op": "test", "path": "/spec/taints", "value": taints},
            {"op": "remove", "path": "/spec/taints"},
        ]));
        assert_eq!(without(&whole, &[A.to_owned()]), None);
        assert_eq!(without(&whole, &[B.to_owned()]), Some(whole.clone()));
    }

    #[test]
    fn a_pool_has_the_nodes_that_its_status_names_by_name_and_uid() {
        let pool = |uid: &str, with: Value| {
            let mut pool = json!({
                "apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
                "metadata": {"name": "p", "uid": uid}, "spec": {"size": 1},
            });
            json_patch::merge(&mut pool, &with);
            pool
        };
        let member = |state: &str| {
            let since = "2026-01-01T00:00:00Z";
            let member =
                json!({"index": 0, "node": "n1", "uid": "u1", "state": state, "since": since});
            json!({"status": {"members": [member]}})
        };
        let mut deleted = pool("deleted", member("Ready"));
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let pools = [
            pool("ready", member("Ready")),
            pool("reserving", member("Reserving")),
            pool("vacant", member("Vacant")),
            deleted,
            pool("new", json!({})),
            pool("unreadable", json!({"spec": {"size": "many"}})),
        ];
        let uids = ["ready", "reserving", "vacant", "deleted", "new", "unreadable", "unknown"];
        let label = |uid: &str| format!("/metadata/labels/{}", host_pool::hash(uid));
        let removals = uids.map(|uid| json!({"op": "remove", "path": label(uid)}));
        let removals = operations(json!(removals));
        let kept = |name: &str, uid: &str| {
            let node = Target::new(NODE, &Name::new("", name), uid);
            let left = reduce(&pools, &node, &removals).unwrap();
            let is_kept = |uid: &&str| !left.iter().any(|it| it.path().as_str() == label(uid));
            uids.into_iter().filter(is_kept).collect::<Vec<_>>()
        };
        assert_eq!(kept("n1", "u1"), ["ready", "reserving", "unreadable"]);
        assert_eq!(kept("n1", "u2"), ["unreadable"], "another node of the same name");
        assert_eq!(kept("n2", "u1"), ["unreadable"]);
    }
}
