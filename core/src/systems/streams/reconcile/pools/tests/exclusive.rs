//! Exclusive pools: taint the nodes, wait, check their pods, label them.

use serde_json::{Value, json};

use super::super::SETTLE;
use super::exclusive;
use super::simulator::{self, World};
use crate::systems::plan::Write;
use crate::systems::streams::keys::EXCLUSIVE_TAINT;

/// A cluster in which pool `p` has tainted its nodes, and labelled none of them.
fn reserving(nodes: usize, size: u32) -> World {
    let mut world = World::sized(nodes);
    world.pool("p", exclusive(size)).step().step();
    world
}

#[test]
fn an_exclusive_pool_taints_waits_checks_and_labels() {
    let mut world = World::sized(3);
    world.pool("p", exclusive(2)).step();
    let reserving = "False Reserving: 2 nodes are being reserved";
    world.expect("p", "n00 Reserving, n01 Reserving", reserving);
    assert_eq!(world.plan().actions.len(), 2);
    world.step();
    let taint = world.exclusive_taint("p");
    assert_eq!(world.taints("n00"), [&*taint]);
    assert!(world.labels("n00").is_empty());

    let waiting = world.plan();
    assert!(waiting.actions.is_empty(), "{waiting:#?}");
    let at = waiting.recheck_at.unwrap();
    assert!(at.duration_since(world.store.now) >= SETTLE, "rounding never makes it shorter");
    assert_eq!(world.get("Node", "n00")["spec"]["taints"][0]["timeAdded"], "2026-01-01T00:00:01Z");
    world.settle().expect("p", "n00, n01", "True Allocated: 2 nodes are allocated");
    assert_eq!(world.labelled("p").len(), 2);
    world.expect_counts(2, 4);
    assert_eq!(world.document("p")["status"]["exclusiveTaint"], taint);
    world.pod("blanket", "n00");
    assert!(world.plan().actions.is_empty(), "another pod on a labelled node changes nothing");
}

#[test]
fn an_exclusive_literal_pool_reserves_the_hosts_in_their_order() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    // The author chose the hosts, so a cordon does not exclude them.
    world.change_node("n3", json!({"spec": {"unschedulable": true}})).pod("q", "n1");
    world.add([("p", json!({"hosts": ["n3", "n1"], "exclusivity": "Exclusive"}))]);
    let problem =
        "False InsufficientNodes: hosts[1], node n1, runs Streams pods outside of the pool";
    world.expect("p", "", problem);
    assert_eq!(world.take_counts().1, 0, "all or nothing");
    world.clear("Pod").settle().expect_nodes("p", "n3, n1");
    assert_eq!(world.taints("n3"), [world.exclusive_taint("p")]);

    world.delete_nodes(&["n1"]).settle();
    let problem = "False UnknownHost: member 1 is vacant; no node has the name n1 (hosts[1])";
    world.expect("p", "n3, n1 Vacant", problem);
    let addresses = json!([{"type": "Hostname", "address": "n1"}]);
    world.change_node("n2", json!({"status": {"addresses": addresses}})).settle();
    world.expect_nodes("p", "n3, n2");
}

#[test]
fn only_pods_of_the_pool_may_be_on_a_node_that_becomes_exclusive() {
    let mut world = World::sized(5);
    world.pool("p", exclusive(3));
    let blanket = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    world.pod("foreign", "n00").pod("blanket", "n01").change_pod("blanket", blanket.clone());
    world.pod_of("asks", "n02", "p", None).change_pod("asks", blanket).pod("ended", "n03");
    world.change_pod("ended", json!({"status": {"phase": "Succeeded"}})).pod("tolerates", "n04");
    let (key, value) = (EXCLUSIVE_TAINT, world.hash("p"));
    let tolerations = json!([{"key": key, "value": value, "effect": "NoSchedule"}]);
    world.change_pod("tolerates", json!({"spec": {"tolerations": tolerations}})).settle();
    world.expect_nodes("p", "n02, n03, n04");
}

#[test]
fn a_node_that_gets_another_pod_after_the_taint_is_replaced_before_any_is_labelled() {
    let mut world = reserving(3, 2);
    assert_eq!(world.taints("n01"), [world.exclusive_taint("p")]);
    world.store.now = world.plan().recheck_at.unwrap();
    world.pod("foreign", "n01");
    for written in [vec!["p"], vec!["n01", "n02"], vec![]] {
        let plan = world.plan();
        let targets: Vec<&str> = plan.actions.iter().map(|action| &*action.target.name).collect();
        assert_eq!(targets, written);
        world.step();
        assert!(world.labels("n00").is_empty());
    }
    world.settle().expect_nodes("p", "n00, n02");
    assert_eq!(world.labelled("p").len(), 2);
    world.expect_counts(3, 6);
    assert!(world.is_unmarked("n01"));
    world.expect_events("p", &["MemberReplaced", "Allocated"]);
    assert_eq!(world.events[0].1.note, "node n02 becomes member 1 in place of node n01");
}

#[test]
fn a_pool_that_cannot_be_completed_releases_its_nodes() {
    let mut world = reserving(2, 2);
    world.pod("foreign", "n01").settle();
    let problem = "needs 2 nodes, 1 is eligible; 1 runs Streams pods outside of the pool";
    world.expect("p", "", &format!("False InsufficientNodes: {problem}"));
    assert!(world.taints("n00").is_empty() && world.taints("n01").is_empty());
    world.expect_events("p", &["InsufficientNodes"]);
    assert_eq!(world.take_counts().0, 2);
    world.clear("Pod").settle().expect_nodes("p", "n00, n01");
}

#[test]
fn the_first_taint_never_replaces_one_that_was_added_meanwhile() {
    let mut world = World::new(&["n1"]);
    world.node("n2", json!({"metadata": {"labels": null}}));
    world.pool("p", json!({"hosts": ["n1", "n2"], "exclusivity": "Exclusive"})).step();
    let plan = world.plan();
    let Write::Patch(operations) = &plan.actions[0].write else { panic!("{plan:#?}") };
    let mut changed = world.get("Node", "n1").clone();
    changed["spec"]["taints"] = json!([{"key": "user", "effect": "NoSchedule"}]);
    assert!(simulator::patch(&mut changed, operations).is_err());
    world.settle();
    assert_eq!(world.labels("n2"), [(world.hash("p"), "1".to_owned())]);
}

#[test]
fn the_time_of_a_taint_is_set_again_if_it_is_missing_or_in_the_future() {
    for time in [Value::Null, json!("2030-01-01T00:00:00Z")] {
        let mut world = reserving(1, 1);
        world.edit("Node", "n00")["spec"]["taints"][0]["timeAdded"] = time;
        world.take_counts();
        let start = world.store.now;
        world.settle().expect_nodes("p", "n00");
        assert!(world.store.now.duration_since(start) >= SETTLE);
        assert_eq!(world.take_counts().1, 2);
    }
}
