//! An exclusive pool and the hosts of pools that mark none of theirs.

use serde_json::{Value, json};

use super::simulator::{Pace, World};
use super::{exclusive, labels, shared};

/// The spec of a pool that lists these hosts.
fn listed(hosts: &[&str]) -> Value {
    json!({"hosts": hosts})
}

/// The spec of a pool of all nodes with the tag `source`.
fn tagged() -> Value {
    json!({"tags": ["source"]})
}

/// A cluster of nodes of which the first ones have the tag `source`.
fn world(nodes: usize, with_tag: usize) -> World {
    let mut world = World::sized(nodes);
    for node in 0..with_tag {
        let tag = labels(json!({"streams.ibm.com/hostpool": "source"}));
        world.change_node(&format!("n{node:02}"), tag);
    }
    world
}

#[test]
fn an_exclusive_pool_takes_no_host_of_another_pool() {
    for pace in [Pace::All, Pace::First, Pace::Last] {
        let mut world = world(5, 1);
        world.pool_in("other", "ingest", tagged()).pool("before", listed(&["n01"]));
        world.pool("fast", exclusive(2)).pool("after", listed(&["n02"])).settle_at(pace);
        world.expect_nodes("fast", "n03, n04");
        world.expect(
            "ingest",
            "",
            "True Allocated: every node that has the tags belongs to the pool",
        );
        world.expect("before", "n01", "True…").expect("after", "n02", "True…");
    }
}

#[test]
fn a_pool_that_comes_while_nodes_are_being_reserved_keeps_its_hosts() {
    let mut world = World::sized(2);
    world.pool("fast", exclusive(1)).step().step();
    assert_eq!(world.taints("n00"), [world.exclusive_taint("fast")]);
    world.pool("names", listed(&["n00"])).settle().expect_nodes("fast", "n01");
    assert!(world.is_unmarked("n00"));
    world.expect("names", "n00", "True Allocated: 1 host is a node");
}

#[test]
fn a_pool_without_nodes_names_the_pools_that_have_them() {
    let mut world = world(4, 3);
    let few = |what: &str| format!("False InsufficientNodes: needs {what}");
    world.pool("ingest", tagged()).pool("names", listed(&["n03"]));
    world.pool_in("other", "fast", exclusive(5)).add([("own", exclusive(2))]);
    let theirs = "4 belong to a pool of another namespace";
    world.expect("fast", "", &few(&format!("5 nodes, 0 are eligible; {theirs}")));
    let theirs = "4 belong to HostPool ingest and HostPool names";
    world.expect("own", "", &few(&format!("2 nodes, 0 are eligible; {theirs}")));

    world.add([("these", json!({"hosts": ["n03"], "exclusivity": "Exclusive"}))]);
    let problem = "hosts[0], node n03, belongs to HostPool names";
    world.expect("these", "", &format!("False InsufficientNodes: {problem}"));
    world.delete_pool("names").settle().expect_nodes("these", "n03");
}

#[test]
fn a_pool_of_any_node_a_refused_one_and_tags_without_an_allocation_own_no_node() {
    let mut world = world(3, 3);
    let sized = json!({"size": 1, "tags": ["source"]});
    world.set_policy("hostPools: {maxPoolsPerNamespace: 3}");
    world.add([("any", json!({})), ("sized", sized), ("fast", exclusive(2)), ("late", tagged())]);
    assert!(world.ready("late").starts_with("False TooManyPools"), "{}", world.ready("late"));
    world.expect_nodes("sized", "n00").expect_nodes("fast", "n01, n02");
}

#[test]
fn a_pool_whose_hosts_are_exclusive_to_an_earlier_one_says_so() {
    let mut world = world(3, 1);
    world.add([("fast", exclusive(2))]).expect_nodes("fast", "n00, n01");
    world.add([
        ("ingest", tagged()),
        ("names", listed(&["n00", "n01"])),
        ("both", listed(&["n01", "n02"])),
    ]);
    world.pool_in("other", "theirs", listed(&["n01"])).settle();
    let none = |of: &str, taken: &str| {
        format!("False InsufficientNodes: the pool has none of the {of}: {taken}")
    };
    world.expect("ingest", "", &none("nodes with the tags", "1 is exclusive to HostPool fast"));
    let taken = "2 are exclusive to HostPool fast";
    world.expect("names", "", &none("hosts that it lists", taken));
    let taken = "1 is exclusive to a pool of another namespace";
    world.expect("theirs", "", &none("hosts that it lists", taken));
    let part = "True Allocated: 1 host is a node, but 1 is exclusive to HostPool fast";
    world.expect("both", "1: n02", part);
    world.expect_events("names", &["InsufficientNodes"]);

    let tag = labels(json!({"streams.ibm.com/hostpool": "source"}));
    world.change_node("n02", tag).settle();
    let most = "every node that has the tags belongs to the pool";
    let part = format!("True Allocated: {most}, but 1 is exclusive to HostPool fast");
    world.expect("ingest", "", &part).expect_nodes("fast", "n00, n01");
    world.delete_pool("fast").settle().expect_nodes("names", "n00, n01");
    world.expect("ingest", "", &format!("True Allocated: {most}")).expect_nodes("theirs", "n01");
    world.add([("more", shared(1))]).expect_nodes("more", "n00");
}
