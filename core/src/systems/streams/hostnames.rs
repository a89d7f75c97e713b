//! The members of a pool by the label `kubernetes.io/hostname` of their nodes.
//!
//! A cluster autoscaler copies the pool's label into the template of a new node, so a pod that requires
//! only that label would make it buy nodes that are no members. It leaves the hostname out.

use crate::systems::View;
use crate::systems::streams::api::host_pool::{Member, MemberState};
use crate::systems::streams::kinds::{HostPool, to_usize};

/// The most members that pods name by their hostnames. Pods of larger pools require only the label.
const MOST: usize = 64;

/// Returns the nodes of all members of a pool, or of the member with this index, each with its hostname.
/// `None` if a member has no node, if a node lacks the label, or if there are more than [`MOST`].
pub(super) fn of_members<'v>(
    pool: &'v HostPool,
    index: Option<u32>,
    view: &'v View,
) -> Option<Vec<(&'v str, &'v str)>> {
    let members: Vec<&Member> = pool
        .status
        .members
        .iter()
        .filter(|member| index.is_none_or(|index| member.index == index))
        .collect();
    let size = if index.is_some() { 1 } else { to_usize(pool.size()) };
    if size == 0 || size > MOST || members.len() != size {
        return None;
    }
    let named = |member: &&'v Member| {
        let node = member.node.as_deref().filter(|_| member.state != MemberState::Vacant)?;
        Some((node, view.hostname(node)?))
    };
    members.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::systems::test_objects::{node, watch};
    use crate::view::{Name, Scope};

    #[test]
    fn members_are_named_if_all_are_known_and_not_too_many() {
        let mut view = View::default();
        for number in 0..=MOST {
            watch(&mut view, node(&format!("n{number}"), &json!({})), Scope::Admission);
        }
        let bare = node("bare", &json!({"metadata": {"uid": "b", "labels": null}}));
        watch(&mut view, bare, Scope::Admission);
        let mut named = |size: usize, nodes: &[&str], index| {
            let member = |(index, node): (usize, &&str)| {
                let state = if *node == "lost" { "Vacant" } else { "Ready" };
                json!({"index": index, "node": node, "state": state, "since": "2026-01-01T00:00:00Z"})
            };
            let members: Vec<_> = nodes.iter().enumerate().map(member).collect();
            let pool = json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
                "metadata": {"name": "p", "namespace": "ns", "uid": "p"}, "spec": {"size": size},
                "status": {"members": members}});
            watch(&mut view, pool, Scope::Admission);
            let pool = view.host_pool(&Name::new("ns", "p")).unwrap();
            of_members(pool, index, &view).map(|names| names.len())
        };
        let all: Vec<String> = (0..=MOST).map(|number| format!("n{number}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        for (size, nodes, index, expected) in [
            (2, &["n0", "n1"][..], None, Some(2)),
            (2, &["n0", "n1"], Some(1), Some(1)),
            (2, &["n0", "n1"], Some(2), None),
            // Not all of them have a node, or a label.
            (2, &["n0"], None, None),
            (2, &["n0"], Some(0), Some(1)),
            (2, &["n0", "lost"], None, None),
            (2, &["n0", "gone"], None, None),
            (2, &["n0", "bare"], None, None),
            (0, &[], None, None),
            (MOST, &all[..MOST], None, Some(MOST)),
            (MOST + 1, &all, None, None),
            (MOST + 1, &all, Some(7), Some(1)),
        ] {
            assert_eq!(named(size, nodes, index), expected, "{size} {nodes:?} {index:?}");
        }
    }
}
