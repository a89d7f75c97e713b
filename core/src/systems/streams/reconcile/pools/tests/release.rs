//! Labels and taints of pools that were deleted.

use serde_json::{Value, json};

use super::simulator::{self, World};
use super::{exclusive, labels, tainted};
use crate::systems::plan::Write;

/// A pool that is deleted at once has no more marks either: `random.rs` deletes pools.
#[test]
fn a_pool_that_is_being_deleted_loses_its_marks_and_nothing_else_changes() {
    let mut world = World::sized(2);
    world.node("n01", tainted("user", "PreferNoSchedule")).add([("p", exclusive(2))]);
    assert_eq!(world.taints("n01").len(), 2);
    world.edit("HostPool", "p")["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.writes.clear();
    world.settle();
    assert!(world.is_unmarked("n00") && world.labels("n01").is_empty());
    assert_eq!(world.taints("n01"), ["user=:PreferNoSchedule"]);
    world.expect_counts(0, 2);
}

#[test]
fn one_patch_removes_all_marks_of_a_node_and_nothing_else() {
    let taint =
        |key: &str, value: &str| json!({"key": key, "value": value, "effect": "NoSchedule"});
    let taints = |taints: Value| json!({"spec": {"taints": taints}});
    let mark = "pool.stowplan.node-restriction.kubernetes.io";
    let (a, b) = (format!("{mark}/aaaaaaaaaa"), format!("{mark}/bbbbbbbbbb"));
    let group = "stowplan.dev/colocation-group";
    let others = json!({mark: "other", group: "g", "kubernetes.io/hostname": "n1"});
    let mut world = World::new(&[]);
    world.node("n1", labels(others.clone())).change_node("n1", labels(json!({&a: "0", &b: ""})));
    let exclusive = "stowplan.dev/exclusive";
    let all = json!([{"key": exclusive, "effect": "NoExecute"}, taint("user", "v"),
        taint(exclusive, "cccccccccc"), {"key": "other", "effect": "NoExecute"}]);
    world.change_node("n1", taints(all));
    let plan = world.plan();
    let [action] = plan.actions.as_slice() else { panic!("{plan:#?}") };
    let Write::Patch(operations) = &action.write else { panic!("{action:#?}") };
    assert_eq!(action.verb(), "release");
    for change in [
        json!({"metadata": {"uid": "another"}}),
        taints(json!([taint("user", "v")])),
        taints(json!([taint("new", "v"), taint("user", "v"), taint("x", "y")])),
        labels(json!({&a: "1"})),
    ] {
        let mut changed = world.get("Node", "n1").clone();
        json_patch::merge(&mut changed, &change);
        let before = changed.clone();
        assert!(simulator::patch(&mut changed, operations).is_err(), "{change}");
        assert_eq!(before, changed);
    }
    world.settle();
    assert_eq!(world.taints("n1"), ["user=v:NoSchedule", "other=:NoExecute"]);
    assert_eq!(world.get("Node", "n1")["metadata"]["labels"], others);
    assert_eq!(world.take_counts().1, 1);
}
