//! Exclusive pools: taint the nodes, wait, check their pods, label them.

use serde_json::{Value, json};

use super::super::SETTLE;
use super::simulator::{self, World};
use crate::systems::plan::Write;
use crate::systems::streams::resources::HOST_POOL;
use crate::view::resource::NODE;

#[test]
fn an_exclusive_pool_taints_waits_checks_and_labels() {
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
    assert_eq!(world.ready("p"), "True Allocated: 2 nodes are allocated");
    assert_eq!(world.labelled("p").len(), 2);
    assert_eq!((world.take_count(HOST_POOL), world.take_count(NODE)), (2, 4));
    let taint = world.exclusive_taint("p");
    assert_eq!(world.document("p")["status"]["exclusiveTaint"], taint);
}

#[test]
fn an_exclusive_literal_pool_reserves_the_hosts_in_their_order() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    // The author chose the hosts, so a cordon does not exclude them.
    world.change_node("n3", json!({"spec": {"unschedulable": true}}));
    world.pool("p", json!({"hosts": ["n3", "n1"], "exclusivity": "Exclusive"}));
    world.pod("q", "n1");
    world.settle();
    assert_eq!(
        world.ready("p"),
        "False InsufficientNodes: hosts[1], node n1, runs pods of other jobs"
    );
    assert_eq!(world.take_count(NODE), 0, "all or nothing");
    world.pods.clear();
    world.settle();
    assert_eq!(world.members("p"), ["0 n3 Ready", "1 n1 Ready"]);
    assert_eq!(world.taints("n3"), [world.exclusive_taint("p")]);

    let (node, n2) = ("n1".to_owned(), json!([{"type": "Hostname", "address": "n1"}]));
    world.nodes.remove(&node);
    world.settle();
    assert_eq!(world.members("p"), ["0 n3 Ready", "1 n1 Vacant"]);
    assert_eq!(
        world.ready("p"),
        "False UnknownHost: member 1 is vacant; no node has the name n1 (hosts[1])"
    );
    world.change_node("n2", json!({"status": {"addresses": n2}}));
    world.settle();
    assert_eq!(world.members("p"), ["0 n3 Ready", "1 n2 Ready"], "n2 has the hostname n1 now");
}

#[test]
fn only_pods_of_the_pool_may_be_on_a_node_that_becomes_exclusive() {
    let mut world = World::sized(5);
    world.pool("p", json!({"size": 3, "exclusivity": "Exclusive"}));
    world.pod("foreign", "n00");
    world.pod("blanket", "n01");
    world.pods.get_mut("blanket").unwrap()["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    world.pod_of("asks", "n02", "p", None);
    world.pods.get_mut("asks").unwrap()["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    world.pod("ended", "n03");
    world.pods.get_mut("ended").unwrap()["status"]["phase"] = json!("Succeeded");
    world.pod("tolerates", "n04");
    let taint = world.exclusive_taint("p");
    let hash = world.hash("p");
    world.pods.get_mut("tolerates").unwrap()["spec"]["tolerations"] =
        json!([{"key": taint.split_once('=').unwrap().0, "value": hash, "effect": "NoSchedule"}]);
    world.settle();
    assert_eq!(world.members("p"), ["0 n02 Ready", "1 n03 Ready", "2 n04 Ready"]);
}

#[test]
fn a_node_that_gets_another_pod_after_the_taint_is_replaced() {
    let mut world = World::sized(3);
    world.pool("p", json!({"size": 2, "exclusivity": "Exclusive"}));
    for _ in 0..2 {
        world.plan().actions.into_iter().for_each(|action| world.act(action));
    }
    assert_eq!(world.taints("n01"), [world.exclusive_taint("p")]);
    world.pod("foreign", "n01");
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Ready", "1 n02 Ready"]);
    assert_eq!((world.take_count(HOST_POOL), world.take_count(NODE)), (3, 6));
    assert!(world.taints("n01").is_empty() && world.labels("n01").is_empty());
    assert_eq!(world.event_reasons("p"), ["MemberReplaced", "Allocated"]);
    assert_eq!(world.events[0].1.note, "node n02 becomes member 1 in place of node n01");
}

#[test]
fn no_reserved_node_is_labelled_before_the_wait_is_over_for_all() {
    let mut world = World::sized(3);
    world.pool("p", json!({"size": 2, "exclusivity": "Exclusive"}));
    for _ in 0..2 {
        world.plan().actions.into_iter().for_each(|action| world.act(action));
    }
    world.now = world.plan().recheck_at.unwrap();
    world.pod("foreign", "n01");
    for written in [vec!["p"], vec!["n01", "n02"], vec![]] {
        let plan = world.plan();
        let targets: Vec<&str> = plan.actions.iter().map(|action| &*action.target.name).collect();
        assert_eq!(targets, written);
        plan.actions.into_iter().for_each(|action| world.act(action));
        assert!(world.labels("n00").is_empty());
    }
    world.settle();
    assert_eq!(world.labelled("p").len(), 2);
}

#[test]
fn a_pool_that_cannot_be_completed_releases_its_nodes() {
    let mut world = World::sized(2);
    world.pool("p", json!({"size": 2, "exclusivity": "Exclusive"}));
    for _ in 0..2 {
        world.plan().actions.into_iter().for_each(|action| world.act(action));
    }
    world.pod("foreign", "n01");
    world.settle();
    assert!(world.members("p").is_empty());
    assert_eq!(
        world.ready("p"),
        "False InsufficientNodes: needs 2 nodes, 1 is eligible; 1 runs pods of other jobs"
    );
    assert!(world.taints("n00").is_empty() && world.taints("n01").is_empty());
    assert_eq!(world.event_reasons("p"), ["InsufficientNodes"]);
    assert_eq!(world.take_count(HOST_POOL), 2);
    world.pods.clear();
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Ready", "1 n01 Ready"]);
}

#[test]
fn another_pod_on_a_labelled_node_changes_nothing() {
    let mut world = World::sized(2);
    world.pool("p", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.settle();
    world.pod("blanket", "n00");
    assert!(world.plan().actions.is_empty());
}

#[test]
fn the_first_taint_never_replaces_one_that_was_added_meanwhile() {
    let mut world = World::new(&["n1"]);
    world.node("n2", json!({"metadata": {"labels": null}}));
    world.pool("p", json!({"hosts": ["n1", "n2"], "exclusivity": "Exclusive"}));
    let status = world.plan().actions.remove(0);
    world.act(status);
    let plan = world.plan();
    let Write::Patch(operations) = &plan.actions[0].write else { panic!("{plan:#?}") };
    let mut changed = world.nodes["n1"].clone();
    changed["spec"]["taints"] = json!([{"key": "user", "effect": "NoSchedule"}]);
    assert!(simulator::patch(&mut changed, operations).is_err());
    world.settle();
    assert_eq!(world.labels("n2"), [(world.hash("p"), "1".to_owned())]);
}

#[test]
fn the_time_of_a_taint_is_set_again_if_it_is_missing_or_in_the_future() {
    let mut world = World::sized(1);
    world.pool("p", json!({"size": 1, "exclusivity": "Exclusive"}));
    for _ in 0..2 {
        world.plan().actions.into_iter().for_each(|action| world.act(action));
    }
    for time in [Value::Null, json!("2030-01-01T00:00:00Z")] {
        let mut world = world.clone();
        world.nodes.get_mut("n00").unwrap()["spec"]["taints"][0]["timeAdded"] = time;
        world.take_count(NODE);
        let (start, pool) = (world.now, "p");
        world.settle();
        assert_eq!(world.members(pool), ["0 n00 Ready"]);
        assert!(world.now.duration_since(start) >= SETTLE);
        assert_eq!(world.take_count(NODE), 2);
    }
}
