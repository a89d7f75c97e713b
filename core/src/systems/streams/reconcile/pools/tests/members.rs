//! Tests of the nodes that become members of a pool, of their order, and of the obstacles that exclude nodes.

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::simulator::World;
use super::{exclusive, labels, shared, tainted};
use crate::systems::streams::resources::HOST_POOL;

/// A merge patch that gives a node this address.
fn address(address: &str) -> Value {
    json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}})
}

#[test]
fn a_sized_shared_pool_takes_nodes_by_name_with_few_writes() {
    let mut world = World::new(&["n3", "n1", "n2"]);
    world.pool("p", shared(2));
    let first = world.plan();
    assert!(
        first.actions.iter().all(|action| action.target.resource == HOST_POOL),
        "the status records the members before a node is written: {first:#?}"
    );
    world.settle().expect("p", "n1, n2", "True Allocated: 2 nodes are allocated");
    world.expect_counts(2, 2).expect_events("p", &["Allocated"]);
    assert!(world.taints("n1").is_empty());
    assert!(world.document("p")["status"]["exclusiveTaint"].is_null());
}

#[test]
fn a_shared_pool_that_lists_its_hosts_has_members_without_marks() {
    let mut world = World::new(&["n1", "n2"]);
    world.node("n3", address("10.0.0.3")).add([("p", json!({"hosts": ["n2", "10.0.0.3", "n1"]}))]);
    world.expect("p", "n2, n3, n1", "True Allocated: 3 hosts are nodes").expect_counts(1, 0);

    let before = world.document("p")["status"]["members"].clone();
    world.change_node("n3", address("10.0.0.9"));
    world.store.now += SignedDuration::from_hours(1);
    world.settle();
    let problem = "False UnknownHost: no node has the address 10.0.0.3 (hosts[1])";
    world.expect("p", "n2, 2: n1", problem);
    let after = &world.document("p")["status"]["members"];
    assert_eq!((&before[0], &before[2]), (&after[0], &after[1]), "their time does not move");
    world.expect_events("p", &["Allocated", "UnknownHost"]);
}

#[test]
fn listed_hosts_that_are_not_one_node_each_are_reported() {
    let mut world = World::new(&["n1"]);
    world.node("a", address("10.0.0.9")).node("b", address("10.0.0.9"));
    world.node("n4", address("10.0.0.4")).node("n5", address("10.0.0.5")).add([
        ("ambiguous", json!({"hosts": ["n1", "10.0.0.9"]})),
        ("twice", json!({"hosts": ["n4", "n1", "10.0.0.4"]})),
        ("exclusive", json!({"hosts": ["n5", "10.0.0.5"], "exclusivity": "Exclusive"})),
    ]);
    for (pool, nodes, problem) in [
        ("ambiguous", "n1", "several nodes have the address 10.0.0.9 (hosts[1]): a and b"),
        ("twice", "n4, n1", "hosts[0] and hosts[2] are one node, n4"),
        ("exclusive", "", "hosts[1] and another listed host are one node, n5"),
    ] {
        world.expect(pool, nodes, &format!("False UnknownHost: {problem}"));
    }
    assert_eq!(world.take_counts().1, 0);
}

#[test]
fn too_few_nodes_are_reported_with_the_number_of_each_obstacle() {
    let mut world = World::sized(4);
    for (name, with) in [
        ("c1", json!({"spec": {"unschedulable": true}})),
        ("c2", json!({"spec": {"unschedulable": true}})),
        ("d", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
        ("h", labels(json!({"kubernetes.io/hostname": null}))),
        ("m", labels(json!({"node-role.kubernetes.io/control-plane": ""}))),
        ("m2", labels(json!({"node-role.kubernetes.io/master": ""}))),
        ("r", json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})),
        ("t", tainted("user", "NoSchedule")),
        ("t2", tainted("ToBeDeletedByClusterAutoscaler", "NoSchedule")),
    ] {
        world.node(name, with);
    }
    for name in world.names("Node") {
        world.change_node(&name, labels(json!({"zone": "a"})));
    }
    world.node("s", labels(json!({"zone": "b"})));
    world.set_policy("hostPools: {nodeSelector: {zone: a}}");
    world.add([("x", json!({"hosts": ["n00"], "exclusivity": "Exclusive"}))]);
    world.add([("y", shared(1))]).expect_nodes("y", "n01").pod("q", "n02");
    world.take_counts();
    world.add([("shared", shared(4)), ("exclusive", exclusive(2))]);
    let obstacles = "1 is being deleted, 2 are control-plane nodes, \
                  1 is outside the policy's hostPools.nodeSelector, 1 is not Ready, 2 are cordoned, \
                  2 have taints, 1 lacks the label kubernetes.io/hostname, \
                  1 is exclusive to HostPool x";
    let few = |what| format!("False InsufficientNodes: needs {what}");
    world.expect("shared", "", &few(format!("4 nodes, 3 are eligible; {obstacles}")));
    let others = "1 belongs to HostPool y, 1 runs Streams pods outside of the pool";
    world.expect("exclusive", "", &few(format!("2 nodes, 1 is eligible; {obstacles}, {others}")));
    assert_eq!(world.take_counts().1, 0, "no node is labelled or tainted");
    world.expect_events("shared", &["InsufficientNodes"]);

    world.node("n04", labels(json!({"zone": "a"}))).settle();
    // The nodes of the fewest pools come first.
    world.expect_nodes("shared", "n02, n03, n04, n01");
    assert!(world.ready("exclusive").starts_with("False InsufficientNodes"));
    world.expect_events("shared", &["InsufficientNodes", "Allocated"]);
}

#[test]
fn one_tag_is_a_label_value_and_several_are_label_keys() {
    let (ib, blue) = ("hostpool.streams.ibm.com/ib", "hostpool.streams.ibm.com/blue");
    let mut world = World::new(&["n1"]);
    world.node("n2", labels(json!({"streams.ibm.com/hostpool": "ib"})));
    world.node("n3", labels(json!({ib: ""}))).node("n4", labels(json!({ib: "", blue: "x"})));
    world.add([
        ("one", json!({"size": 1, "tags": ["ib"]})),
        ("two", json!({"size": 1, "tags": ["ib", "blue"]})),
        ("many", json!({"size": 2, "tags": ["ib", "blue"]})),
        ("none", json!({"size": 1, "tags": ["red"]})),
    ]);
    assert_eq!((&*world.nodes_of("one"), &*world.nodes_of("two")), ("n2", "n4"));
    let few = "False InsufficientNodes: needs";
    let form = "(streams.ibm.com/hostpool=ib on node n2 counts only for a pool with one tag)";
    world.expect("many", "", &format!("{few} 2 nodes, 1 is eligible {form}"));
    let other = "no other node has streams.ibm.com/hostpool=red";
    world.expect("none", "", &format!("{few} 1 node, 0 are eligible; {other}"));
}

#[test]
fn a_pool_grows_at_its_end_and_by_all_or_nothing() {
    for (spec, patches) in [(shared(2), 4), (exclusive(2), 8)] {
        let mut world = World::settled(5, [("p", spec)]);
        world.grow("p", 6);
        world.writes.clear();
        world.settle();
        let few = "False InsufficientNodes: needs 4 more nodes, 3 are eligible";
        world.expect("p", "n00, n01", few).expect_counts(1, 0).node("m", json!({})).settle();
        world.expect_nodes("p", "n00, n01, m, n02, n03, n04").expect_counts(2, patches);
    }
}

#[test]
fn an_edited_status_gives_no_node_to_two_pools() {
    let mut world = World::settled(4, [("a", exclusive(1)), ("b", exclusive(1)), ("c", shared(2))]);
    let members = world.document("a")["status"]["members"].clone();
    let member = |index: u32, node: &Value| {
        let mut member = members[0].clone();
        (member["index"], member["node"]) = (json!(index), node.clone());
        member
    };
    let node = &members[0]["node"];
    world.edit("HostPool", "b")["status"]["members"] = members.clone();
    world.edit("HostPool", "c")["status"]["members"] =
        json!([member(0, node), member(1, &Value::Null), member(7, node)]);
    world.settle().expect_nodes("a", "n00");
    assert_eq!(world.labelled("b").len(), 1);
    assert_ne!(world.labelled("b"), world.labelled("a"));
    assert_eq!(world.labelled("c").len(), 2);
    assert_eq!(world.taints("n00"), [world.exclusive_taint("a")]);
    assert_eq!(world.labels("n00").len(), 1);
}
