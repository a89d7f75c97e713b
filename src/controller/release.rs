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
