//! What pools come to, on a cluster of documents.

#![allow(clippy::needless_pass_by_value, reason = "documents are written where they are given")]

mod simulator;

use std::collections::BTreeMap;

use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::SETTLE;
use crate::policy::Policy;
use crate::systems::plan::{Kind, Write};
use crate::view::{Name, Object};
use simulator::{Pace, World};

/// What gives a node these labels.
fn labels(labels: Value) -> Value {
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
fn a_literal_shared_pool_names_its_nodes_and_writes_none() {
    let mut world = World::new(&["n1", "n2"]);
    world.node(
        "n3",
        json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.3"}]}}),
    );
    world.pool("p", json!({"hosts": ["n2", "10.0.0.3", "n1"]}));
    world.settle();
    assert_eq!(world.members("p"), ["0 n2 Ready", "1 n3 Ready", "2 n1 Ready"]);
    assert_eq!(world.ready("p"), "True Allocated: 3 hosts are nodes");
    assert_eq!((world.count(Kind::HostPool), world.count(Kind::Node)), (1, 0));

    let before = world.document("p")["status"]["members"].clone();
    world.nodes.remove("n3");
    world.now += SignedDuration::from_hours(1);
    world.settle();
    assert_eq!(world.members("p"), ["0 n2 Ready", "2 n1 Ready"]);
    assert_eq!(world.ready("p"), "False UnknownHost: hosts[1], address 10.0.0.3, is no node");
    let after = &world.document("p")["status"]["members"];
    assert_eq!((&before[0], &before[2]), (&after[0], &after[1]), "their time does not move");
    assert_eq!(world.told("p"), ["Allocated", "UnknownHost"]);
}

#[test]
fn a_literal_pool_whose_names_do_not_mean_one_node_each_says_so() {
    let mut world = World::new(&["n1"]);
    for name in ["a", "b"] {
        let address = json!([{"type": "InternalIP", "address": "10.0.0.9"}]);
        world.node(name, json!({"status": {"addresses": address}}));
    }
    world.node(
        "n4",
        json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.4"}]}}),
    );
    world.pool("ambiguous", json!({"hosts": ["n1", "10.0.0.9"]}));
    world.pool("twice", json!({"hosts": ["n4", "n1", "10.0.0.4"]}));
    world.pool("exclusive", json!({"hosts": ["n4", "10.0.0.4"], "exclusivity": "Exclusive"}));
    world.settle();
    assert_eq!(world.members("ambiguous"), ["0 n1 Ready"]);
    assert_eq!(
        world.ready("ambiguous"),
        "False UnknownHost: hosts[1], address 10.0.0.9, is several nodes: a and b"
    );
    assert_eq!(world.members("twice"), ["0 n4 Ready", "1 n1 Ready"]);
    assert_eq!(world.ready("twice"), "False UnknownHost: hosts[0] and hosts[2] are one node, n4");
    assert!(world.members("exclusive").is_empty());
    assert_eq!(
        world.ready("exclusive"),
        "False UnknownHost: hosts[1] is node n4, as another of them is"
    );
    assert_eq!(world.count(Kind::Node), 0);
}

#[test]
fn a_pool_without_a_size_has_no_members_of_its_own() {
    let mut world = World::new(&["n1"]);
    world.pool("any", json!({}));
    world.pool("tagged", json!({"tags": ["ib"]}));
    world.settle();
    assert!(world.members("any").is_empty() && world.members("tagged").is_empty());
    assert_eq!(world.ready("any"), "True Allocated: every node belongs to the pool");
    assert_eq!(
        world.ready("tagged"),
        "True Allocated: every node that carries the tags belongs to the pool"
    );
    assert_eq!((world.count(Kind::HostPool), world.count(Kind::Node)), (2, 0));
}

#[test]
fn an_exclusive_literal_pool_reserves_the_hosts_in_their_order() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    // The author's choice: what only keeps others away now does not matter.
    world.change_node("n3", json!({"spec": {"unschedulable": true}}));
    world.pool("p", json!({"hosts": ["n3", "n1"], "exclusivity": "Exclusive"}));
    world.pod("q", "n1");
    world.settle();
    assert_eq!(
        world.ready("p"),
        "False InsufficientNodes: hosts[1], node n1, runs pods of other jobs"
    );
    assert_eq!(world.count(Kind::Node), 0, "all or nothing");
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
        "False UnknownHost: member 1 is vacant; hosts[1], name n1, is no node"
    );
    world.change_node("n2", json!({"status": {"addresses": n2}}));
    world.settle();
    assert_eq!(world.members("p"), ["0 n3 Ready", "1 n2 Ready"], "n2 is called n1 now");
}

#[test]
fn too_few_nodes_are_counted_by_what_stands_in_the_way() {
    let mut world = World::sized(4);
    let taint = |key: &str| json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}});
    world.node("c1", json!({"spec": {"unschedulable": true}}));
    world.node("c2", json!({"spec": {"unschedulable": true}}));
    world.node("d", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    world.node("h", labels(json!({"kubernetes.io/hostname": null})));
    world.node("m", labels(json!({"node-role.kubernetes.io/control-plane": ""})));
    world.node("m2", labels(json!({"node-role.kubernetes.io/master": ""})));
    world.node("r", json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}));
    world.node("s", labels(json!({"zone": "b"})));
    world.node("t", taint("user"));
    world.node("t2", taint("ToBeDeletedByClusterAutoscaler"));
    world.policy = Policy::from_yaml("hostPools: {nodeSelector: {zone: a}}").unwrap();
    for name in world.nodes.keys().cloned().collect::<Vec<_>>() {
        if name != "s" {
            world.change_node(&name, labels(json!({"zone": "a"})));
        }
    }
    world.pool("x", json!({"hosts": ["n00"], "exclusivity": "Exclusive"}));
    world.settle();
    world.pool("y", json!({"size": 1}));
    world.settle();
    assert_eq!(world.members("y"), ["0 n01 Ready"]);
    world.pod("q", "n02");
    world.count(Kind::Node);
    let census = "1 is being deleted, 2 are control-plane nodes, \
                  1 is outside the policy's hostPools.nodeSelector, 1 is not Ready, 2 are cordoned, \
                  2 have taints, 1 lacks the label kubernetes.io/hostname";
    world.pool("shared", json!({"size": 4}));
    world.pool("exclusive", json!({"size": 2, "exclusivity": "Exclusive"}));
    world.settle();
    assert_eq!(
        world.ready("shared"),
        format!(
            "False InsufficientNodes: needs 4 nodes, 3 are able; {census}, 1 belongs to an exclusive pool"
        )
    );
    assert_eq!(
        world.ready("exclusive"),
        format!(
            "False InsufficientNodes: needs 2 nodes, 1 is able; {census}, \
             1 belongs to an exclusive pool, 1 belongs to another pool, 1 runs pods of other jobs"
        )
    );
    assert!(world.members("shared").is_empty() && world.members("exclusive").is_empty());
    assert_eq!(world.count(Kind::Node), 0, "no node is labelled or tainted");
    assert_eq!(world.told("shared"), ["InsufficientNodes"]);

    world.node("n04", labels(json!({"zone": "a"})));
    world.settle();
    assert_eq!(
        world.members("shared"),
        ["0 n02 Ready", "1 n03 Ready", "2 n04 Ready", "3 n01 Ready"],
        "nodes of the fewest pools come first"
    );
    assert!(world.ready("exclusive").starts_with("False InsufficientNodes"));
    assert_eq!(world.told("shared"), ["InsufficientNodes", "Allocated"]);
}

#[test]
fn one_tag_is_a_value_and_several_are_keys() {
    let mut world = World::new(&["n1"]);
    world.node("n2", labels(json!({"streams.ibm.com/hostpool": "ib"})));
    world.node("n3", labels(json!({"hostpool.streams.ibm.com/ib": ""})));
    world.node(
        "n4",
        labels(json!({"hostpool.streams.ibm.com/ib": "", "hostpool.streams.ibm.com/blue": "x"})),
    );
    world.pool("one", json!({"size": 1, "tags": ["ib"]}));
    world.pool("two", json!({"size": 1, "tags": ["ib", "blue"]}));
    world.pool("many", json!({"size": 2, "tags": ["ib", "blue"]}));
    world.pool("none", json!({"size": 1, "tags": ["red"]}));
    world.settle();
    assert_eq!(world.members("one"), ["0 n2 Ready"]);
    assert_eq!(world.members("two"), ["0 n4 Ready"]);
    assert_eq!(world.ready("many"), "False InsufficientNodes: needs 2 nodes, 1 is able");
    assert_eq!(
        world.ready("none"),
        "False InsufficientNodes: needs 1 node, 0 are able; \
         no other node carries streams.ibm.com/hostpool=red"
    );
}

#[test]
fn pools_that_are_made_together_share_nothing_that_is_exclusive() {
    let mut world = World::sized(6);
    world.pool("a", json!({"size": 2, "exclusivity": "Exclusive"}));
    world.pool("b", json!({"size": 2}));
    world.pool("c", json!({"size": 2, "exclusivity": "Exclusive"}));
    world.pool("d", json!({"size": 4}));
    world.pool("e", json!({"size": 3}));
    world.settle();
    assert_eq!(world.members("a"), ["0 n00 Ready", "1 n01 Ready"]);
    assert_eq!(world.members("b"), ["0 n02 Ready", "1 n03 Ready"]);
    assert_eq!(world.members("c"), ["0 n04 Ready", "1 n05 Ready"]);
    assert_eq!(
        world.ready("d"),
        "False InsufficientNodes: needs 4 nodes, 2 are able; 4 belong to exclusive pools"
    );
    assert!(world.ready("e").starts_with("False InsufficientNodes: needs 3 nodes, 2 are able"));
    world.delete_pool("c");
    world.settle();
    assert_eq!(world.members("d"), ["0 n04 Ready", "1 n05 Ready", "2 n02 Ready", "3 n03 Ready"]);
    assert_eq!(world.labels("n02").len(), 3, "b, d and e share it");
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
fn a_pod_that_slips_in_behind_the_taint_makes_the_place_another_nodes() {
    let mut world = World::sized(3);
    world.pool("p", json!({"size": 2, "exclusivity": "Exclusive"}));
    for _ in 0..2 {
        world.plan().actions.into_iter().for_each(|action| world.act(action));
    }
    assert_eq!(world.taints("n01"), [world.exclusive_taint("p")]);
    world.pod("foreign", "n01");
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Ready", "1 n02 Ready"]);
    assert_eq!((world.count(Kind::HostPool), world.count(Kind::Node)), (3, 6));
    assert!(world.taints("n01").is_empty() && world.labels("n01").is_empty());
    assert_eq!(world.told("p"), ["MemberReplaced", "Allocated"]);
    assert_eq!(world.events[0].1.note, "node n02 becomes member 1 in place of node n01");
}

#[test]
fn no_reserved_node_is_labelled_before_all_have_stood_their_time() {
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
fn an_event_for_each_of_many_lost_members_is_too_many() {
    let mut world = World::sized(12);
    world.pool("p", json!({"size": 12}));
    world.settle();
    world.events.clear();
    world.nodes.clear();
    world.settle();
    assert_eq!(
        world.told("p"),
        ["MemberLost"; 6].into_iter().chain(["InsufficientNodes"]).collect::<Vec<_>>()
    );
    assert_eq!(world.events[5].1.note, "and 7 more members");
    assert_eq!(
        world.ready("p"),
        "False InsufficientNodes: members 0, 1, 2, 3, 4 and 7 more are vacant; \
         needs 12 nodes, 0 are able"
    );
}

#[test]
fn a_pool_that_is_allowed_again_finds_its_pods_where_they_are() {
    let mut world = World::sized(4);
    world.pool("p", json!({"size": 3, "exclusivity": "Exclusive"}));
    world.settle();
    world.pod_of("two", "n02", "p", Some(2));
    world.nodes.remove("n00");
    world.policy = Policy::from_yaml("hostPools: {enabled: false}").unwrap();
    world.settle();
    world.node("a", json!({}));
    world.policy = Policy::default();
    world.settle();
    assert_eq!(world.members("p"), ["0 a Ready", "1 n01 Ready", "2 n02 Ready"]);
}

#[test]
fn a_pool_that_cannot_be_completed_holds_nothing_up() {
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
        "False InsufficientNodes: needs 2 nodes, 1 is able; 1 runs pods of other jobs"
    );
    assert!(world.taints("n00").is_empty() && world.taints("n01").is_empty());
    assert_eq!(world.told("p"), ["InsufficientNodes"]);
    assert_eq!(world.count(Kind::HostPool), 2);
    world.pods.clear();
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Ready", "1 n01 Ready"]);
}

#[test]
fn a_pod_that_comes_once_the_label_is_there_changes_nothing() {
    let mut world = World::sized(2);
    world.pool("p", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.settle();
    world.pod("blanket", "n00");
    assert!(world.plan().actions.is_empty());
}

#[test]
fn a_lost_member_is_replaced_in_two_status_writes_and_the_others_stay() {
    for gone in [true, false] {
        for exclusivity in ["Shared", "Exclusive"] {
            let mut world = World::sized(4);
            world.pool("p", json!({"size": 3, "exclusivity": exclusivity}));
            world.settle();
            let before = world.document("p")["status"]["members"].clone();
            world.writes.clear();
            world.events.clear();
            world.now += SignedDuration::from_hours(1);
            world.nodes.remove("n01");
            if !gone {
                // Another node of the name; the label came back from somewhere.
                world.node("n01", json!({"spec": {"unschedulable": true}}));
                let label =
                    format!("pool.stowplan.node-restriction.kubernetes.io/{}", world.hash("p"));
                world.change_node("n01", labels(json!({label: "1"})));
            }
            world.settle();
            assert_eq!(world.members("p"), ["0 n00 Ready", "1 n03 Ready", "2 n02 Ready"]);
            let after = world.document("p")["status"]["members"].clone();
            assert_eq!((&before[0], &before[2]), (&after[0], &after[2]));
            assert_ne!(before[1]["since"], after[1]["since"]);
            assert_eq!(world.labelled("p").len(), 3);
            let patches = if exclusivity == "Shared" { 1 } else { 2 } + usize::from(!gone);
            assert_eq!((world.count(Kind::HostPool), world.count(Kind::Node)), (2, patches));
            assert_eq!(world.told("p"), ["MemberLost", "MemberReplaced", "Allocated"]);
            let why = if gone { "is gone" } else { "was deleted and made again" };
            assert_eq!(world.events[0].1.note, format!("node n01, member 1, {why}"));
        }
    }
}

#[test]
fn a_place_that_no_node_can_take_stays_vacant_and_is_named() {
    let mut world = World::sized(3);
    world.pool("p", json!({"size": 3}));
    world.settle();
    world.nodes.remove("n01");
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Ready", "1 n01 Vacant", "2 n02 Ready"]);
    assert_eq!(
        world.ready("p"),
        "False InsufficientNodes: member 1 is vacant; needs 1 more node, 0 are able"
    );
    let vacant = world.document("p")["status"]["members"][1].clone();
    assert!(vacant["uid"].is_null());
    world.now += SignedDuration::from_hours(1);
    world.nodes.remove("n02");
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Ready", "1 n01 Vacant", "2 n02 Vacant"]);
    assert_eq!(world.document("p")["status"]["members"][1], vacant);
    world.node("n09", json!({}));
    world.settle();
    assert_eq!(
        world.members("p"),
        ["0 n00 Ready", "1 n09 Ready", "2 n02 Vacant"],
        "each place for itself"
    );
    assert_eq!(
        world.ready("p"),
        "False InsufficientNodes: member 2 is vacant; needs 1 more node, 0 are able"
    );
    world.node("n02", json!({}));
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Ready", "1 n09 Ready", "2 n02 Ready"]);
}

#[test]
fn a_place_waits_for_the_pods_that_asked_for_it() {
    let mut world = World::sized(3);
    world.pool("p", json!({"size": 2}));
    world.settle();
    world.pod_of("zero", "n00", "p", Some(0));
    world.pod_of("any", "n01", "p", None);
    world.nodes.remove("n00");
    world.nodes.remove("n01");
    world.node("n08", json!({}));
    world.node("n09", json!({}));
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Vacant", "1 n02 Ready"]);
    assert_eq!(
        world.ready("p"),
        "False InsufficientNodes: \
         member 0 is vacant until pod ns/zero, which asked for it, leaves node n00"
    );
    let mut made_again = world.clone();
    made_again.node("n00", json!({}));
    made_again.settle();
    assert_eq!(made_again.members("p"), ["0 n00 Ready", "1 n02 Ready"], "where the pod is");

    world.pods.get_mut("zero").unwrap()["status"]["phase"] = json!("Failed");
    world.settle();
    assert_eq!(world.members("p"), ["0 n08 Ready", "1 n02 Ready"]);
}

#[test]
fn a_pool_grows_at_its_end_and_by_all_or_nothing() {
    for exclusivity in ["Shared", "Exclusive"] {
        let mut world = World::sized(5);
        world.pool("p", json!({"size": 2, "exclusivity": exclusivity}));
        world.settle();
        world.grow("p", 6);
        world.writes.clear();
        world.settle();
        assert_eq!(world.members("p"), ["0 n00 Ready", "1 n01 Ready"]);
        assert_eq!(world.ready("p"), "False InsufficientNodes: needs 4 more nodes, 3 are able");
        assert_eq!((world.count(Kind::HostPool), world.count(Kind::Node)), (1, 0));
        world.node("m", json!({}));
        world.settle();
        assert_eq!(
            world.members("p"),
            [
                "0 n00 Ready",
                "1 n01 Ready",
                "2 m Ready",
                "3 n02 Ready",
                "4 n03 Ready",
                "5 n04 Ready"
            ]
        );
        let patches = if exclusivity == "Shared" { 4 } else { 8 };
        assert_eq!((world.count(Kind::HostPool), world.count(Kind::Node)), (2, patches));
    }
}

#[test]
fn members_that_cannot_take_pods_for_now_stay_members() {
    let mut world = World::sized(4);
    world.pool("p", json!({"size": 3}));
    world.settle();
    world.change_node("n00", json!({"spec": {"unschedulable": true}}));
    world.change_node("n01", json!({"status": {"conditions": []}}));
    world.change_node("n02", json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}));
    assert!(world.plan().actions.is_empty());
}

#[test]
fn marks_that_a_ready_member_lost_are_given_again() {
    let mut world = World::sized(1);
    world.pool("p", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.settle();
    let state = world.state();
    let label = format!("pool.stowplan.node-restriction.kubernetes.io/{}", world.hash("p"));
    world.writes.clear();
    for with in [
        json!({"metadata": {"labels": {&label: null}}}),
        json!({"metadata": {"labels": {&label: "7"}}}),
        json!({"metadata": {"labels": {&label: "00"}}}),
        json!({"spec": {"taints": null}}),
        json!({"metadata": {"labels": {&label: null}}, "spec": {"taints": null}}),
    ] {
        world.change_node("n00", with);
        world.settle();
        assert_eq!(world.state(), state);
        assert_eq!((world.count(Kind::HostPool), world.count(Kind::Node)), (0, 1));
    }
    // Somebody else's taint of the key is in the way: it belongs to no pool.
    let stranger = json!([{"key": "stowplan.dev/exclusive", "value": "x", "effect": "NoSchedule"}]);
    world.change_node("n00", json!({"spec": {"taints": stranger}}));
    world.settle();
    assert_eq!(world.state(), state);
}

#[test]
fn a_taint_stays_as_long_as_a_pod_that_tolerates_it_by_name() {
    let mut world = World::sized(1);
    world.pool("p", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.settle();
    let taint = world.exclusive_taint("p");
    world.pod_of("last", "n00", "p", None);
    world.delete_pool("p");
    world.settle();
    assert!(world.labels("n00").is_empty(), "no other pod comes by the label");
    assert_eq!(world.taints("n00"), [taint]);
    world.pool("q", json!({"size": 1}));
    world.settle();
    assert_eq!(
        world.ready("q"),
        "False InsufficientNodes: needs 1 node, 0 are able; 1 belongs to an exclusive pool"
    );
    world.pods.clear();
    world.settle();
    assert!(world.taints("n00").is_empty());
    assert_eq!(world.members("q"), ["0 n00 Ready"]);
}

#[test]
fn a_pool_that_is_being_deleted_is_as_good_as_gone() {
    let mut world = World::sized(2);
    world.pool("p", json!({"size": 2, "exclusivity": "Exclusive"}));
    world.settle();
    world.document("p")["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.writes.clear();
    world.settle();
    assert!(world.taints("n00").is_empty() && world.labels("n01").is_empty());
    assert_eq!((world.count(Kind::HostPool), world.count(Kind::Node)), (0, 2));
}

#[test]
fn one_patch_takes_back_all_marks_of_a_node_and_leaves_the_rest() {
    let mut world = World::new(&[]);
    let taint =
        |key: &str, value: &str| json!({"key": key, "value": value, "effect": "NoSchedule"});
    world.node(
        "n1",
        labels(json!({
            "pool.stowplan.node-restriction.kubernetes.io/aaaaaaaaaa": "0",
            "pool.stowplan.node-restriction.kubernetes.io/bbbbbbbbbb": "",
            "pool.stowplan.node-restriction.kubernetes.io": "not ours",
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
    let Write::Release { operations, hashes } = &action.write else { panic!("{action:#?}") };
    assert_eq!(hashes, &["", "aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc"]);
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
            "pool.stowplan.node-restriction.kubernetes.io": "not ours",
            "stowplan.dev/colocation-group": "g",
        })
    );
    assert_eq!(world.count(Kind::Node), 1);
}

#[test]
fn a_first_taint_never_replaces_one_that_came_meanwhile() {
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
fn a_taint_whose_age_cannot_be_believed_is_timed_anew() {
    let mut world = World::sized(1);
    world.pool("p", json!({"size": 1, "exclusivity": "Exclusive"}));
    for _ in 0..2 {
        world.plan().actions.into_iter().for_each(|action| world.act(action));
    }
    for time in [Value::Null, json!("2030-01-01T00:00:00Z")] {
        let mut world = world.clone();
        world.nodes.get_mut("n00").unwrap()["spec"]["taints"][0]["timeAdded"] = time;
        world.count(Kind::Node);
        let (start, pool) = (world.now, "p");
        world.settle();
        assert_eq!(world.members(pool), ["0 n00 Ready"]);
        assert!(world.now.duration_since(start) >= SETTLE);
        assert_eq!(world.count(Kind::Node), 2);
    }
}

#[test]
fn what_the_policy_does_not_allow_is_taken_back() {
    for (yaml, message) in [
        ("hostPools: {enabled: false}", "the policy turns host pools off"),
        ("streams: {enabled: false}", "the policy turns Streams off"),
        (
            "hostPools: {namespaces: {team: a}}",
            "the policy allows host pools in namespaces labelled team=a, and ns is not",
        ),
    ] {
        let mut world = World::sized(3);
        world
            .namespaces
            .insert("ns".to_owned(), json!({"metadata": {"name": "ns", "labels": {"team": "b"}}}));
        world.pool("shared", json!({"size": 1}));
        world.pool("exclusive", json!({"size": 1, "exclusivity": "Exclusive"}));
        world.pool("literal", json!({"hosts": ["n00"]}));
        world.settle();
        world.events.clear();
        let allowed = std::mem::replace(&mut world.policy, Policy::from_yaml(yaml).unwrap());
        let first = world.plan();
        assert!(
            first.actions.iter().all(|action| action.target.kind == Kind::HostPool),
            "a node that a status names keeps its marks: {first:#?}"
        );
        world.settle();
        for pool in ["shared", "exclusive", "literal"] {
            assert_eq!(world.condition(pool, "Accepted"), format!("False NotAllowed: {message}"));
            assert_eq!(world.ready(pool), format!("False NotAllowed: {message}"));
            assert!(world.members(pool).is_empty());
            assert_eq!(world.told(pool), ["NotAllowed"]);
            let status = &world.document(pool)["status"];
            assert!(status["nodeLabel"].is_null() && status["exclusiveTaint"].is_null());
        }
        assert!(world.nodes.keys().all(|node| world.labels(node).is_empty()));
        assert!(world.nodes.keys().all(|node| world.taints(node).is_empty()));
        world.policy = allowed;
        world.settle();
        assert_eq!(world.members("shared"), ["0 n00 Ready"]);
        assert_eq!(world.members("exclusive"), ["0 n01 Ready"]);
    }
}

#[test]
fn a_namespace_that_is_not_known_yet_decides_nothing() {
    let mut world = World::sized(2);
    world.pool("p", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.settle();
    world.policy = Policy::from_yaml("hostPools: {namespaces: {team: a}}").unwrap();
    world.pool("q", json!({"size": 1}));
    assert!(world.plan().actions.is_empty());
    world
        .namespaces
        .insert("ns".to_owned(), json!({"metadata": {"name": "ns", "labels": {"team": "a"}}}));
    world.settle();
    assert_eq!(world.members("q"), ["0 n01 Ready"]);
}

#[test]
fn a_namespace_has_no_more_exclusive_nodes_than_allowed() {
    let mut world = World::sized(9);
    world.policy = Policy::from_yaml("hostPools: {maxExclusiveNodesPerNamespace: 4}").unwrap();
    world.pool("a", json!({"size": 2, "exclusivity": "Exclusive"}));
    world.pool("b", json!({"size": 3, "exclusivity": "Exclusive"}));
    world.pool("c", json!({"hosts": ["n08", "n07"], "exclusivity": "Exclusive"}));
    world.pool("shared", json!({"size": 5}));
    world.pool_in("other", "d", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.settle();
    assert_eq!(world.members("a"), ["0 n00 Ready", "1 n01 Ready"]);
    let refused = "False TooManyExclusiveNodes: \
                   asks for 3 exclusive nodes; namespace ns may have 4, and 4 are taken";
    assert_eq!(world.condition("b", "Accepted"), refused);
    assert_eq!(world.ready("b"), refused);
    assert_eq!(world.told("b"), ["TooManyExclusiveNodes"]);
    assert_eq!(world.members("c"), ["0 n08 Ready", "1 n07 Ready"]);
    assert_eq!(world.members("shared").len(), 5);

    // An older pool that grows takes nothing from a younger one, nor gives up what it has.
    world.grow("a", 3);
    world.settle();
    assert_eq!(world.members("a"), ["0 n00 Ready", "1 n01 Ready"]);
    assert_eq!(world.condition("a", "Accepted"), "True Accepted: the pool can be served");
    assert_eq!(
        world.ready("a"),
        "False TooManyExclusiveNodes: \
         asks for 1 more exclusive node; namespace ns may have 4, and 4 are taken"
    );
    assert!(world.ready("c").starts_with("True"));
    world.policy = Policy::from_yaml("hostPools: {maxExclusiveNodesPerNamespace: 3}").unwrap();
    world.settle();
    assert!(world.ready("a").starts_with("True"), "{}", world.ready("a"));
    assert!(world.condition("c", "Accepted").starts_with("False TooManyExclusiveNodes"));
    assert!(world.labelled("c").is_empty());
    assert!(world.nodes.keys().all(|n| !world.taints(n).contains(&world.exclusive_taint("c"))));
}

#[test]
fn a_form_that_is_none_is_refused_and_named() {
    let mut world = World::sized(1);
    world.pool("p", json!({"size": 0}));
    world.pool("q", json!({"exclusivity": "Exclusive"}));
    world.settle();
    assert_eq!(
        world.condition("p", "Accepted"),
        "False InvalidPool: the pool has size 0; make a new one"
    );
    assert_eq!(
        world.ready("q"),
        "False InvalidPool: the pool is Exclusive without size or hosts; make a new one"
    );
    assert_eq!(world.told("p"), ["InvalidPool"]);
}

#[test]
fn what_cannot_be_read_is_left_as_it_is() {
    let mut world = World::sized(1);
    world.pool("p", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.settle();
    let mut view = world.view();
    let metadata = serde_json::from_value(world.document("p")["metadata"].clone()).unwrap();
    view.apply(Object::unreadable_host_pool(&metadata, "status of a newer release").unwrap());
    let plan = super::plan(&view, &world.policy, world.now);
    assert!(plan.actions.is_empty(), "{plan:#?}");
    view.remove_host_pool(&Name::new("ns", "p"));
    assert_eq!(
        super::plan(&view, &world.policy, world.now).actions.len(),
        1,
        "its marks were there"
    );
}

#[test]
fn an_edited_status_gives_no_node_to_two_pools() {
    let mut world = World::sized(4);
    world.pool("a", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.pool("b", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.pool("c", json!({"size": 2}));
    world.settle();
    let members = world.document("a")["status"]["members"].clone();
    world.document("b")["status"]["members"] = members.clone();
    let ready = |index: u32, node: &Value, uid: &Value| {
        let since = "2026-01-01T00:00:00Z";
        json!({"index": index, "node": node, "uid": uid, "state": "Ready", "since": since})
    };
    let (node, uid) = (&members[0]["node"], &members[0]["uid"]);
    world.document("c")["status"]["members"] =
        json!([ready(0, node, uid), ready(1, &Value::Null, uid), ready(7, node, uid)]);
    world.settle();
    assert_eq!(world.members("a"), ["0 n00 Ready"]);
    assert_eq!(world.members("b").len(), 1);
    assert_ne!(world.members("b"), world.members("a"));
    assert_eq!(world.members("c").len(), 2);
    assert_eq!(world.taints("n00"), [world.exclusive_taint("a")]);
    assert_eq!(world.labels("n00").len(), 1);
}

#[test]
fn it_does_not_matter_where_a_controller_stops() {
    for exclusivity in ["Shared", "Exclusive"] {
        let mut states = Vec::new();
        for pace in [Pace::Whole, Pace::First, Pace::Last] {
            let mut world = World::sized(8);
            world.pool("p", json!({"size": 3, "exclusivity": exclusivity}));
            world.settle_at(pace);
            world.nodes.remove("n01");
            world.grow("p", 4);
            world.settle_at(pace);
            world.pool("q", json!({"size": 2, "exclusivity": "Exclusive"}));
            world.settle_at(pace);
            world.delete_pool("p");
            world.settle_at(pace);
            states.push(world.state());
        }
        assert_eq!(states[0], states[1]);
        assert_eq!(states[0], states[2]);
    }
}

/// Something that happens to a cluster.
#[derive(Clone, Debug)]
enum Happening {
    NodeGone(usize),
    NodeMade(usize),
    Cordoned(usize, bool),
    Tainted(usize, bool),
    LabelLost(usize),
    PoolMade(usize, u32, bool),
    PoolGone(usize),
    PoolGrown(usize),
    PodBound(usize, usize, Option<usize>, bool),
    PodGone(usize),
    /// The controller does this many writes, and no more for now.
    Progress(usize),
    Settled(Pace),
}

const NODES: usize = 6;
const POOLS: usize = 4;

fn happening() -> impl Strategy<Value = Happening> {
    let node = 0..NODES;
    let pool = 0..POOLS;
    prop_oneof![
        2 => node.clone().prop_map(Happening::NodeGone),
        3 => node.clone().prop_map(Happening::NodeMade),
        1 => (node.clone(), any::<bool>()).prop_map(|(n, on)| Happening::Cordoned(n, on)),
        1 => (node.clone(), any::<bool>()).prop_map(|(n, on)| Happening::Tainted(n, on)),
        1 => node.clone().prop_map(Happening::LabelLost),
        4 => (pool.clone(), 1..4u32, any::<bool>())
            .prop_map(|(p, size, exclusive)| Happening::PoolMade(p, size, exclusive)),
        1 => pool.clone().prop_map(Happening::PoolGone),
        1 => pool.clone().prop_map(Happening::PoolGrown),
        2 => (0..4usize, node, proptest::option::of(pool), any::<bool>())
            .prop_map(|(pod, n, p, indexed)| Happening::PodBound(pod, n, p, indexed)),
        1 => (0..4usize).prop_map(Happening::PodGone),
        3 => (1..6usize).prop_map(Happening::Progress),
        2 => prop_oneof![Just(Pace::Whole), Just(Pace::First), Just(Pace::Last)]
            .prop_map(Happening::Settled),
    ]
}

fn happen(world: &mut World, happening: &Happening) {
    let node = |n: &usize| format!("n{n:02}");
    let pool = |p: &usize| format!("p{p}");
    let has_pool = |world: &World, p: &usize| {
        world.pools.contains_key(&(simulator::NAMESPACE.to_owned(), pool(p)))
    };
    match happening {
        Happening::NodeGone(n) => {
            world.nodes.remove(&node(n));
        }
        Happening::NodeMade(n) if !world.nodes.contains_key(&node(n)) => {
            let taints = json!([{"key": "made", "effect": "PreferNoSchedule"}]);
            world.node(&node(n), json!({"spec": {"taints": taints}}));
            world.change_node(&node(n), labels(json!({"user": "label"})));
        }
        Happening::Cordoned(n, on) if world.nodes.contains_key(&node(n)) => {
            world.change_node(&node(n), json!({"spec": {"unschedulable": on}}));
        }
        Happening::Tainted(n, on) if world.nodes.contains_key(&node(n)) => {
            let taints = world.nodes[&node(n)]["spec"]["taints"].as_array();
            let mut taints = taints.cloned().unwrap_or_default();
            taints.retain(|taint| taint["key"] != "user");
            if *on {
                // In front of ours: its place is no longer what an earlier plan saw.
                taints.insert(0, json!({"key": "user", "effect": "NoSchedule"}));
            }
            world.change_node(&node(n), json!({"spec": {"taints": taints}}));
        }
        Happening::LabelLost(n) if world.nodes.contains_key(&node(n)) => {
            if let Some((hash, _)) = world.labels(&node(n)).first() {
                let key = format!("pool.stowplan.node-restriction.kubernetes.io/{hash}");
                world.change_node(&node(n), labels(json!({key: null})));
            }
        }
        Happening::PoolMade(p, size, exclusive) if !has_pool(world, p) => {
            let exclusivity = if *exclusive { "Exclusive" } else { "Shared" };
            world.pool(&pool(p), json!({"size": size, "exclusivity": exclusivity}));
        }
        Happening::PoolGone(p) if has_pool(world, p) => world.delete_pool(&pool(p)),
        Happening::PoolGrown(p) if has_pool(world, p) => {
            let size = world.document(&pool(p))["spec"]["size"].as_u64().unwrap();
            world.grow(&pool(p), u32::try_from(size).unwrap() + 1);
        }
        Happening::PodBound(pod, n, p, indexed) => match p.filter(|p| has_pool(world, p)) {
            None => world.pod(&format!("pod{pod}"), &node(n)),
            Some(p) => {
                world.pod_of(&format!("pod{pod}"), &node(n), &pool(&p), indexed.then_some(0))
            }
        },
        Happening::PodGone(pod) => {
            world.pods.remove(&format!("pod{pod}"));
        }
        Happening::Progress(writes) => {
            for _ in 0..*writes {
                let plan = world.plan();
                world.now = plan.recheck_at.unwrap_or(world.now);
                if let Some(action) = plan.actions.into_iter().next() {
                    world.act(action);
                }
            }
        }
        Happening::Settled(pace) => world.settle_at(*pace),
        _ => {}
    }
}

/// Who is at which place: pool, index, node and UID.
type Seats = BTreeMap<(String, String, u64), (String, String)>;

fn seats(world: &World) -> Seats {
    let mut seats = Seats::new();
    for ((_, name), pool) in &world.pools {
        for member in pool["status"]["members"].as_array().into_iter().flatten() {
            if member["state"] == "Ready" {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let of = (name.clone(), text(&pool["metadata"]["uid"]));
                let key = (of.0, of.1, member["index"].as_u64().unwrap());
                seats.insert(key, (text(&member["node"]), text(&member["uid"])));
            }
        }
    }
    seats
}

/// Found by the property below: while the status of the pool that gives a node up could not be written,
/// the one that has it reserved wrote the same reservation again and again.
#[test]
fn a_claim_that_falls_in_the_same_plan_is_no_reason_to_reserve_again() {
    let mut world = World::new(&[]);
    for n in 0..NODES {
        happen(&mut world, &Happening::NodeMade(n));
    }
    for happening in [
        Happening::Cordoned(2, true),
        Happening::PodBound(0, 3, None, false),
        Happening::PoolMade(1, 3, true),
        Happening::PoolMade(0, 1, true),
        Happening::Cordoned(0, true),
        Happening::Progress(1),
        Happening::NodeGone(1),
        Happening::Settled(Pace::Last),
    ] {
        happen(&mut world, &happening);
    }
    assert!(world.plan().actions.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn whatever_happens_it_comes_to_rest_in_order(
        happenings in proptest::collection::vec(happening(), 1..30),
    ) {
        let mut world = World::new(&[]);
        for n in 0..NODES {
            happen(&mut world, &Happening::NodeMade(n));
        }
        let mut before = Seats::new();
        for happening in happenings.iter().chain([&Happening::Settled(Pace::Last)]) {
            happen(&mut world, happening);
            let now = seats(&world);
            for (place, (node, uid)) in &before {
                let lives = world.nodes.get(node).is_some_and(|n| n["metadata"]["uid"] == **uid);
                let key = (simulator::NAMESPACE.to_owned(), place.0.clone());
                let pool = world.pools.get(&key);
                let stands = pool.is_some_and(|pool| pool["metadata"]["uid"] == *place.1);
                // A limit that refuses the pool is the only other reason.
                let accepted = stands && !pool.unwrap()["status"]["members"].is_null();
                if lives && accepted {
                    prop_assert_eq!(now.get(place), Some(&(node.clone(), uid.clone())));
                }
            }
            before = now;
        }
        let hashes: Vec<String> =
            world.pools.keys().map(|(_, name)| world.hash(name)).collect();
        for (name, node) in &world.nodes {
            let ours: Vec<String> = world
                .taints(name)
                .into_iter()
                .filter_map(|taint| Some(taint.strip_prefix("stowplan.dev/exclusive=")?.to_owned()))
                .collect();
            prop_assert!(ours.len() <= 1, "{:?}", ours);
            prop_assert!(world.taints(name).contains(&"made=:PreferNoSchedule".to_owned()));
            prop_assert_eq!(&node["metadata"]["labels"]["user"], "label");
            for (hash, _) in world.labels(name) {
                prop_assert!(hashes.contains(&hash), "a mark of a pool that is gone");
                let tainted = ours.iter().any(|taint| !taint.starts_with(&*hash));
                prop_assert!(!tainted, "{} is shared and exclusive", name);
            }
            for taint in &ours {
                let hash = taint.trim_end_matches(":NoSchedule");
                let needed = world.view().pods().any(|(_, pod)| {
                    !pod.finished
                        && pod.node.as_deref() == Some(&**name)
                        && pod.tolerates.iter().any(|tolerated| **tolerated == *hash)
                });
                prop_assert!(hashes.iter().any(|of| of == hash) || needed);
            }
        }
        for (_, name) in world.pools.keys() {
            let members: BTreeMap<u32, String> = seats(&world)
                .into_iter()
                .filter(|((pool, ..), _)| pool == name)
                .map(|((.., index), (node, _))| (u32::try_from(index).unwrap(), node))
                .collect();
            prop_assert_eq!(&world.labelled(name), &members, "labels say what the status says");
            for node in members.values().filter(|_| world.pools
                [&(simulator::NAMESPACE.to_owned(), name.clone())]["spec"]["exclusivity"] == "Exclusive")
            {
                prop_assert!(world.taints(node).contains(&world.exclusive_taint(name)));
            }
            prop_assert!(!world.ready(name).contains("Reserving"), "{}", world.ready(name));
        }
    }
}
