//! Labels and taints of pools that were deleted.

use serde_json::json;

use super::labels;
use super::simulator::{self, World};
use crate::systems::plan::Write;
use crate::systems::streams::resources::HOST_POOL;
use crate::view::resource::NODE;

#[test]
fn the_marks_of_a_deleted_pool_are_removed_and_nothing_else() {
    let mut world = World::sized(2);
    world.node("n01", json!({"spec": {"taints": [{"key": "user", "effect": "PreferNoSchedule"}]}}));
    world.pool("p", json!({"size": 2, "exclusivity": "Exclusive"}));
    world.settle();
    assert_eq!(world.taints("n01").len(), 2);
    let before = world.nodes.clone();
    world.delete_pool("p");
    world.settle();
    assert_ne!(before, world.nodes);
    assert!(world.taints("n00").is_empty() && world.labels("n00").is_empty());
    assert_eq!(world.taints("n01"), ["user=:PreferNoSchedule"]);
    assert!(world.labels("n01").is_empty());
}

#[test]
fn a_taint_stays_while_a_pod_that_tolerates_it_runs() {
    let mut world = World::sized(1);
    world.pool("p", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.settle();
    let taint = world.exclusive_taint("p");
    world.pod_of("last", "n00", "p", None);
    world.delete_pool("p");
    world.settle();
    assert!(world.labels("n00").is_empty(), "no other pod is bound by the label");
    assert_eq!(world.taints("n00"), [taint]);
    world.pool("q", json!({"size": 1}));
    world.settle();
    assert_eq!(
        world.ready("q"),
        "False InsufficientNodes: needs 1 node, 0 are eligible; 1 belongs to an exclusive pool"
    );
    world.pods.clear();
    world.settle();
    assert!(world.taints("n00").is_empty());
    assert_eq!(world.members("q"), ["0 n00 Ready"]);
}

#[test]
fn a_pool_that_is_being_deleted_counts_as_deleted() {
    let mut world = World::sized(2);
    world.pool("p", json!({"size": 2, "exclusivity": "Exclusive"}));
    world.settle();
    world.document("p")["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.writes.clear();
    world.settle();
    assert!(world.taints("n00").is_empty() && world.labels("n01").is_empty());
    assert_eq!((world.take_count(HOST_POOL), world.take_count(NODE)), (0, 2));
}

#[test]
fn one_patch_removes_all_marks_of_a_node_and_nothing_else() {
    let mut world = World::new(&[]);
    let taint =
        |key: &str, value: &str| json!({"key": key, "value": value, "effect": "NoSchedule"});
    world.node(
        "n1",
        labels(json!({
            "pool.stowplan.node-restriction.kubernetes.io/aaaaaaaaaa": "0",
            "pool.stowplan.node-restriction.kubernetes.io/bbbbbbbbbb": "",
            "pool.stowplan.node-restriction.kubernetes.io": "other",
            "stowplan.dev/colocation-group": "g",
        })),
    );
    world.change_node(
        "n1",
        json!({"spec": {"taints": [
            {"key": "stowplan.dev/exclusive", "effect": "NoExecute"},
            taint("user", "v"),
            taint("stowplan.dev/exclusive", "cccccccccc"),
            {"key": "other", "effect": "NoExecute"},
        ]}}),
    );
    let plan = world.plan();
    let [action] = plan.actions.as_slice() else { panic!("{plan:#?}") };
    let Write::Patch(operations) = &action.write else { panic!("{action:#?}") };
    assert_eq!(action.verb(), "release");
    for change in [
        json!({"metadata": {"uid": "another"}}),
        json!({"spec": {"taints": [taint("user", "v")]}}),
        json!({"spec": {"taints": [taint("new", "v"), taint("user", "v"), taint("x", "y")]}}),
        json!({"metadata": {"labels": {"pool.stowplan.node-restriction.kubernetes.io/aaaaaaaaaa": "1"}}}),
    ] {
        let mut changed = world.nodes["n1"].clone();
        json_patch::merge(&mut changed, &change);
        let before = changed.clone();
        assert!(simulator::patch(&mut changed, operations).is_err(), "{change}");
        assert_eq!(before, changed);
    }
    world.settle();
    assert_eq!(world.taints("n1"), ["user=v:NoSchedule", "other=:NoExecute"]);
    assert_eq!(
        world.nodes["n1"]["metadata"]["labels"],
        json!({
            "kubernetes.io/hostname": "n1",
            "pool.stowplan.node-restriction.kubernetes.io": "other",
            "stowplan.dev/colocation-group": "g",
        })
    );
    assert_eq!(world.take_count(NODE), 1);
}
