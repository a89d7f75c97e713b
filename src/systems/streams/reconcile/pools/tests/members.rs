//! Which nodes become members of a pool, in which order, and which obstacles exclude nodes.

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::labels;
use super::simulator::World;
use crate::systems::policy::Policy;
use crate::systems::streams::resources::HOST_POOL;
use crate::view::resource::NODE;

#[test]
fn a_sized_shared_pool_takes_nodes_by_name_with_few_writes() {
    let mut world = World::new(&["n3", "n1", "n2"]);
    world.pool("p", json!({"size": 2}));
    let first = world.plan();
    assert!(
        first.actions.iter().all(|action| action.target.resource == HOST_POOL),
        "the status records the members before a node is written: {first:#?}"
    );
    world.settle();
    assert_eq!(world.members("p"), ["0 n1 Ready", "1 n2 Ready"]);
    assert_eq!(world.ready("p"), "True Allocated: 2 nodes are allocated");
    assert_eq!(world.condition("p", "Accepted"), "True Accepted: the pool can be served");
    assert_eq!(world.labels("n1"), [(world.hash("p"), "0".to_owned())]);
    assert_eq!(world.labels("n2"), [(world.hash("p"), "1".to_owned())]);
    assert!(world.labels("n3").is_empty() && world.taints("n1").is_empty());
    assert_eq!((world.take_count(HOST_POOL), world.take_count(NODE)), (2, 2));
    assert_eq!(world.event_reasons("p"), ["Allocated"]);
    let hash = world.hash("p");
    let status = &world.document("p")["status"];
    assert_eq!(status["nodeLabel"], format!("pool.stowplan.node-restriction.kubernetes.io/{hash}"));
    assert!(status["exclusiveTaint"].is_null());
}

#[test]
fn a_shared_pool_that_lists_its_hosts_has_members_without_marks() {
    let mut world = World::new(&["n1", "n2"]);
    world.node(
        "n3",
        json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.3"}]}}),
    );
    world.pool("p", json!({"hosts": ["n2", "10.0.0.3", "n1"]}));
    world.settle();
    assert_eq!(world.members("p"), ["0 n2 Ready", "1 n3 Ready", "2 n1 Ready"]);
    assert_eq!(world.ready("p"), "True Allocated: 3 hosts are nodes");
    assert_eq!((world.take_count(HOST_POOL), world.take_count(NODE)), (1, 0));

    let before = world.document("p")["status"]["members"].clone();
    world.nodes.remove("n3");
    world.now += SignedDuration::from_hours(1);
    world.settle();
    assert_eq!(world.members("p"), ["0 n2 Ready", "2 n1 Ready"]);
    assert_eq!(world.ready("p"), "False UnknownHost: no node has the address 10.0.0.3 (hosts[1])");
    let after = &world.document("p")["status"]["members"];
    assert_eq!((&before[0], &before[2]), (&after[0], &after[1]), "their time does not move");
    assert_eq!(world.event_reasons("p"), ["Allocated", "UnknownHost"]);
}

#[test]
fn listed_hosts_that_are_not_one_node_each_are_reported() {
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
        "False UnknownHost: several nodes have the address 10.0.0.9 (hosts[1]): a and b"
    );
    assert_eq!(world.members("twice"), ["0 n4 Ready", "1 n1 Ready"]);
    assert_eq!(world.ready("twice"), "False UnknownHost: hosts[0] and hosts[2] are one node, n4");
    assert!(world.members("exclusive").is_empty());
    assert_eq!(
        world.ready("exclusive"),
        "False UnknownHost: hosts[1] and another listed host are one node, n4"
    );
    assert_eq!(world.take_count(NODE), 0);
}

#[test]
fn a_pool_without_a_size_records_no_members() {
    let mut world = World::new(&["n1"]);
    world.pool("any", json!({}));
    world.pool("tagged", json!({"tags": ["ib"]}));
    world.node("n2", labels(json!({"streams.ibm.com/hostpool": "ib"})));
    world.settle();
    assert!(world.members("any").is_empty() && world.members("tagged").is_empty());
    assert_eq!(world.ready("any"), "True Allocated: every node belongs to the pool");
    assert_eq!(
        world.ready("tagged"),
        "True Allocated: every node that has the tags belongs to the pool"
    );
    assert_eq!((world.take_count(HOST_POOL), world.take_count(NODE)), (2, 0));
}

#[test]
fn too_few_nodes_are_reported_with_the_number_of_each_obstacle() {
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
    world.take_count(NODE);
    let obstacles = "1 is being deleted, 2 are control-plane nodes, \
                  1 is outside the policy's hostPools.nodeSelector, 1 is not Ready, 2 are cordoned, \
                  2 have taints, 1 lacks the label kubernetes.io/hostname";
    world.pool("shared", json!({"size": 4}));
    world.pool("exclusive", json!({"size": 2, "exclusivity": "Exclusive"}));
    world.settle();
    assert_eq!(
        world.ready("shared"),
        format!(
            "False InsufficientNodes: needs 4 nodes, 3 are eligible; {obstacles}, 1 belongs to an exclusive pool"
        )
    );
    assert_eq!(
        world.ready("exclusive"),
        format!(
            "False InsufficientNodes: needs 2 nodes, 1 is eligible; {obstacles}, \
             1 belongs to an exclusive pool, 1 belongs to another pool, 1 runs pods of other jobs"
        )
    );
    assert!(world.members("shared").is_empty() && world.members("exclusive").is_empty());
    assert_eq!(world.take_count(NODE), 0, "no node is labelled or tainted");
    assert_eq!(world.event_reasons("shared"), ["InsufficientNodes"]);

    world.node("n04", labels(json!({"zone": "a"})));
    world.settle();
    assert_eq!(
        world.members("shared"),
        ["0 n02 Ready", "1 n03 Ready", "2 n04 Ready", "3 n01 Ready"],
        "nodes of the fewest pools come first"
    );
    assert!(world.ready("exclusive").starts_with("False InsufficientNodes"));
    assert_eq!(world.event_reasons("shared"), ["InsufficientNodes", "Allocated"]);
}

#[test]
fn one_tag_is_a_label_value_and_several_are_label_keys() {
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
    assert_eq!(world.ready("many"), "False InsufficientNodes: needs 2 nodes, 1 is eligible");
    assert_eq!(
        world.ready("none"),
        "False InsufficientNodes: needs 1 node, 0 are eligible; \
         no other node has streams.ibm.com/hostpool=red"
    );
}

#[test]
fn pools_that_are_created_together_share_no_exclusive_node() {
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
        "False InsufficientNodes: needs 4 nodes, 2 are eligible; 4 belong to exclusive pools"
    );
    assert!(world.ready("e").starts_with("False InsufficientNodes: needs 3 nodes, 2 are eligible"));
    world.delete_pool("c");
    world.settle();
    assert_eq!(world.members("d"), ["0 n04 Ready", "1 n05 Ready", "2 n02 Ready", "3 n03 Ready"]);
    assert_eq!(world.labels("n02").len(), 3, "b, d and e share it");
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
        assert_eq!(world.ready("p"), "False InsufficientNodes: needs 4 more nodes, 3 are eligible");
        assert_eq!((world.take_count(HOST_POOL), world.take_count(NODE)), (1, 0));
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
        assert_eq!((world.take_count(HOST_POOL), world.take_count(NODE)), (2, patches));
    }
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
