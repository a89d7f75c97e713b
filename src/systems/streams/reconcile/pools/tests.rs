//! What pools come to, on a cluster of documents.

mod simulator;

use serde_json::json;

use super::SETTLE;
use crate::systems::plan::{Kind, Write};
use simulator::{Pace, World};

/// A node label of the policy's or a tag.
fn labels(labels: serde_json::Value) -> serde_json::Value {
    json!({"metadata": {"labels": labels}})
}

#[test]
fn a_sized_shared_pool_takes_nodes_by_name_within_its_budget() {
    let mut world = World::new(&["n3", "n1", "n2"]);
    world.pool("p", json!({"size": 2}));
    let first = world.plan();
    assert!(
        first.actions.iter().all(|action| action.target.kind == Kind::HostPool),
        "the status records the members before a node is written: {first:#?}"
    );
    world.settle();
    assert_eq!(world.members("p"), ["0 n1 Ready", "1 n2 Ready"]);
    assert_eq!(world.ready("p"), "True Allocated: 2 nodes are the pool's");
    assert_eq!(world.condition("p", "Accepted"), "True Accepted: the pool can be served");
    assert_eq!(world.labels("n1"), [(world.hash("p"), "0".to_owned())]);
    assert_eq!(world.labels("n2"), [(world.hash("p"), "1".to_owned())]);
    assert!(world.labels("n3").is_empty() && world.taints("n1").is_empty());
    assert_eq!((world.count(Kind::HostPool), world.count(Kind::Node)), (2, 2));
    assert_eq!(world.told("p"), ["Allocated"]);
    let hash = world.hash("p");
    let status = &world.document("p")["status"];
    assert_eq!(status["nodeLabel"], format!("pool.stowplan.node-restriction.kubernetes.io/{hash}"));
    assert!(status["exclusiveTaint"].is_null());
}

#[test]
fn an_exclusive_pool_taints_waits_looks_again_and_labels() {
    let mut world = World::sized(3);
    world.pool("p", json!({"size": 2, "exclusivity": "Exclusive"}));
    let status = world.plan().actions.remove(0);
    world.act(status);
    assert_eq!(world.members("p"), ["0 n00 Reserving", "1 n01 Reserving"]);
    assert_eq!(world.ready("p"), "False Reserving: 2 nodes are being reserved");
    let taints = world.plan().actions;
    assert_eq!(taints.len(), 2);
    taints.into_iter().for_each(|action| world.act(action));
    assert_eq!(world.taints("n00"), [world.exclusive_taint("p")]);
    assert!(world.labels("n00").is_empty());

    let waiting = world.plan();
    assert!(waiting.actions.is_empty(), "{waiting:#?}");
    let at = waiting.recheck_at.unwrap();
    assert!(at.duration_since(world.now) >= SETTLE, "rounding never makes it shorter");
    assert_eq!(world.nodes["n00"]["spec"]["taints"][0]["timeAdded"], "2026-01-01T00:00:01Z");
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Ready", "1 n01 Ready"]);
    assert_eq!(world.ready("p"), "True Allocated: 2 nodes are the pool's");
    assert_eq!(world.labelled("p").len(), 2);
    assert_eq!((world.count(Kind::HostPool), world.count(Kind::Node)), (2, 4));
    let taint = world.exclusive_taint("p");
    assert_eq!(world.document("p")["status"]["exclusiveTaint"], taint);
}

#[test]
fn the_marks_of_a_pool_that_is_gone_are_swept_and_nothing_else() {
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
fn it_does_not_matter_where_a_controller_stops() {
    for spec in [json!({"size": 3}), json!({"size": 3, "exclusivity": "Exclusive"})] {
        let mut states = Vec::new();
        for pace in [Pace::Whole, Pace::First, Pace::Last] {
            let mut world = World::sized(5);
            world.pool("p", spec.clone());
            world.settle_at(pace);
            world.nodes.remove("n01");
            world.grow("p", 4);
            world.settle_at(pace);
            states.push(world.state());
        }
        assert_eq!(states[0], states[1]);
        assert_eq!(states[0], states[2]);
    }
}
