//! Pools that the policy does not allow, that are invalid, or that cannot be read.

use serde_json::json;

use super::simulator::World;
use super::{exclusive, labels, shared};
use crate::systems::streams::reconcile;
use crate::systems::streams::resources::HOST_POOL;
use crate::systems::{Object, TableType};
use crate::view::Name;

#[test]
fn a_pool_that_is_allowed_again_gets_the_nodes_of_its_running_pods() {
    let mut world = World::settled(4, [("p", exclusive(3))]);
    world.pod_of("two", "n02", "p", Some(2)).delete_nodes(&["n00"]);
    world.govern("hostPools: {enabled: false}").node("a", json!({})).govern("");
    world.expect_nodes("p", "a, n01, n02");
}

#[test]
fn a_pool_that_the_policy_forbids_loses_its_nodes() {
    for (yaml, message) in [
        ("hostPools: {enabled: false}", "the policy turns host pools off"),
        ("streams: {enabled: false}", "the policy turns Streams off"),
        (
            "hostPools: {namespaces: {team: a}}",
            "the policy allows host pools in namespaces labelled team=a, and ns is not",
        ),
    ] {
        let mut world = World::sized(3);
        let literal = json!({"hosts": ["n00"]});
        let pools = [("shared", shared(1)), ("exclusive", exclusive(1)), ("literal", literal)];
        world.namespace("b").add(pools);
        world.events.clear();
        let first = world.set_policy(yaml).plan();
        assert!(
            first.actions.iter().all(|action| action.target.resource == HOST_POOL),
            "a node that a status names keeps its marks: {first:#?}"
        );
        world.settle();
        for pool in ["shared", "exclusive", "literal"] {
            world.expect_refused(pool, "NotAllowed", message);
            let status = &world.document(pool)["status"];
            assert!(status["nodeLabel"].is_null() && status["exclusiveTaint"].is_null());
        }
        assert!(world.names("Node").iter().all(|node| world.is_unmarked(node)));
        world.govern("");
        assert_eq!((&*world.nodes_of("shared"), &*world.nodes_of("exclusive")), ("n01", "n02"));
    }
}

#[test]
fn a_pool_without_a_size_has_no_members_and_is_ready_while_a_node_has_its_tags() {
    let (one, two) = (json!({"tags": ["gpu"]}), json!({"tags": ["gpu", "fast"]}));
    let mut world = World::settled(1, [("any", json!({})), ("one", one), ("two", two)]);
    let without = |tags: &str, labels: &str| {
        format!("False NoTaggedNode: no node has the tags {tags}: label a node with {labels}")
    };
    let one = without("streams.ibm.com/hostpool=gpu", "streams.ibm.com/hostpool=gpu");
    let two = without(
        "hostpool.streams.ibm.com/gpu and hostpool.streams.ibm.com/fast",
        "hostpool.streams.ibm.com/gpu= and hostpool.streams.ibm.com/fast=",
    );
    world.expect("any", "", "True Allocated: every node belongs to the pool");
    world.expect("one", "", &one).expect("two", "", &two);
    let tags = json!({"streams.ibm.com/hostpool": "gpu"});
    world.node("n01", labels(tags)).settle();
    let all = "True Allocated: every node that has the tags belongs to the pool";
    let one_of_two = two.replace(
        ": label",
        " (streams.ibm.com/hostpool=gpu on node n01 counts only for a pool with one tag): label",
    );
    world.expect("one", "", all).expect("two", "", &one_of_two).delete_nodes(&["n01"]).settle();
    world.expect("one", "", &one);
    world.expect_events("one", &["NoTaggedNode", "Allocated", "NoTaggedNode"]).expect_counts(7, 0);
}

#[test]
fn nothing_changes_while_the_labels_of_a_namespace_are_unknown() {
    let mut world = World::settled(2, [("p", exclusive(1))]);
    world.set_policy("hostPools: {namespaces: {team: a}}").pool("q", shared(1));
    assert!(world.plan().actions.is_empty());
    world.namespace("a").settle().expect_nodes("q", "n01");
}

#[test]
fn a_namespace_has_no_more_exclusive_nodes_than_allowed() {
    let mut world = World::sized(9);
    world.set_policy("hostPools: {maxExclusiveNodesPerNamespace: 4}").pool("a", exclusive(2));
    world.pool("b", exclusive(3));
    world.pool("c", json!({"hosts": ["n08", "n07"], "exclusivity": "Exclusive"}));
    world.pool("shared", shared(5)).pool_in("other", "d", exclusive(1)).settle();
    world.expect_nodes("a", "n00, n01");
    let refused = "asks for 3 exclusive nodes; namespace ns may have 4, and 4 are taken";
    world.expect_refused("b", "TooManyExclusiveNodes", refused).expect_nodes("c", "n08, n07");
    assert_eq!(world.labelled("shared").len(), 5);

    // An older pool that grows takes nothing from a younger one, nor gives up what it has.
    world.grow("a", 3).settle();
    assert_eq!(world.condition("a", "Accepted"), "True Accepted: the pool can be served");
    let refused = "asks for 1 more exclusive node; namespace ns may have 4, and 4 are taken";
    world.expect("a", "n00, n01", &format!("False TooManyExclusiveNodes: {refused}"));
    world.expect("c", "n08, n07", "True…").govern("hostPools: {maxExclusiveNodesPerNamespace: 3}");
    assert!(world.ready("a").starts_with("True"), "{}", world.ready("a"));
    assert!(world.condition("c", "Accepted").starts_with("False TooManyExclusiveNodes"));
    assert!(world.labelled("c").is_empty());
    let taint = world.exclusive_taint("c");
    assert!(world.names("Node").iter().all(|node| !world.taints(node).contains(&taint)));
}

#[test]
fn an_invalid_form_is_refused_with_its_problem() {
    let form = json!({"exclusivity": "Exclusive"});
    let mut world = World::settled(1, [("p", shared(0)), ("q", form)]);
    world.expect_refused("p", "InvalidPool", "the pool has size 0; create a new one");
    let problem = "the pool is Exclusive without size or hosts; create a new one";
    world.expect_refused("q", "InvalidPool", problem);
}

#[test]
fn a_pool_that_cannot_be_decoded_keeps_its_nodes() {
    let world = World::settled(1, [("p", exclusive(1))]);
    let (policy, now) = (world.policy.clone(), world.store.now);
    let metadata = serde_json::from_value(world.document("p")["metadata"].clone()).unwrap();
    let pools = [TableType::HostPools];
    let mut view = world.into_view();
    view.apply(Object::unreadable(&pools, &metadata, "status of a newer release").unwrap());
    let plan = reconcile::plan(&view, &policy, now);
    assert!(plan.actions.is_empty(), "{plan:#?}");
    view.forget(&HOST_POOL, &Name::new("ns", "p"));
    let plan = reconcile::plan(&view, &policy, now);
    assert_eq!(plan.actions.len(), 1, "its marks are removed");
}

#[test]
fn a_namespace_has_no_more_pools_than_allowed() {
    let mut world = World::sized(4);
    world.set_policy("hostPools: {maxPoolsPerNamespace: 2}").pool_in("other", "d", shared(1));
    world.add([("a", shared(1)), ("b", json!({"hosts": ["n01"]})), ("c", shared(1))]);
    world.expect("a", "n02", "True…").expect("b", "n01", "True…");
    let refused = "namespace ns may have 2 host pools, and has older ones; \
                   delete one that is not needed, or ask the cluster's administrator \
                   (hostPools.maxPoolsPerNamespace)";
    world.expect_refused("c", "TooManyPools", refused).delete_pool("a").settle();
    assert!(world.ready("c").starts_with("True"), "{}", world.ready("c"));
}

#[test]
fn a_node_has_no_more_pools_than_allowed() {
    let mut world = World::sized(1);
    world.set_policy("hostPools: {maxPoolsPerNode: 2}");
    world.add(["a", "b", "c"].map(|pool| (pool, shared(1))));
    assert_eq!(world.labels("n00").len(), 2);
    let problem = "needs 1 node, 0 are eligible; \
                   1 has as many pools as the policy's hostPools.maxPoolsPerNode allows";
    world.expect("c", "", &format!("False InsufficientNodes: {problem}")).node("n01", json!({}));
    world.settle().expect_nodes("c", "n01");
}

/// Otherwise one could make a pool, start a pod, delete the pool, and repeat that on every node.
#[test]
fn a_node_counts_as_exclusive_until_its_taint_is_removed_with_the_last_pod() {
    let mut world = World::sized(4);
    world.set_policy("hostPools: {maxExclusiveNodesPerNamespace: 2}").add([("a", exclusive(2))]);
    let taint = world.exclusive_taint("a");
    world.pod_of("stays", "n00", "a", None).delete_pool("a").settle();
    assert_eq!((world.taints("n00"), world.taints("n01")), (vec![taint], vec![]));
    assert!(world.labels("n00").is_empty(), "no other pod is bound by the label");
    world.add([("b", exclusive(2)), ("shared", shared(4))]);
    let refused = "asks for 2 exclusive nodes; namespace ns may have 2, and 1 is taken, \
                   1 of them by pods of earlier pools: delete these pods, or wait until they end";
    world.expect_refused("b", "TooManyExclusiveNodes", refused);
    let few = "needs 4 nodes, 3 are eligible; 1 is exclusive to a deleted pool";
    world.expect("shared", "", &format!("False InsufficientNodes: {few}"));
    assert!(world.names("Node").iter().all(|node| world.labels(node).is_empty()));
    world.delete_pool("shared").clear("Pod").settle();
    assert!(world.ready("b").starts_with("True"), "{}", world.ready("b"));
}

/// A pool that is replaced keeps what it has, also while its pods still run on an old node.
#[test]
fn a_lingering_taint_takes_no_node_from_a_pool() {
    let mut world = World::sized(3);
    for (limit, pool) in [(1, "a"), (2, "b")] {
        world.govern(&format!("hostPools: {{maxExclusiveNodesPerNamespace: {limit}}}"));
        world.add([(pool, exclusive(1))]);
    }
    world.pod_of("stays", "n00", "a", None).delete_pool("a");
    world.govern("hostPools: {maxExclusiveNodesPerNamespace: 1}").expect_nodes("b", "n01");
}

#[test]
fn a_pod_of_another_namespace_belongs_to_no_pool() {
    let mut world = World::settled(2, [("p", exclusive(1))]);
    world.expect_nodes("p", "n00");
    // They ask for member 0 by a term of their own, and tolerate the taint.
    world.pod_of("forged", "n00", "p", Some(0));
    world.move_pod("forged", "other", &json!({}));
    world.pod_of("elsewhere", "n01", "p", Some(0));
    world.move_pod("elsewhere", "other", &json!({"metadata": {"labels": null}}));
    world.node("n02", json!({})).change_node("n00", json!({"metadata": {"uid": "another"}}));
    world.settle();
    // The forged pod neither holds the member vacant nor chooses its node.
    world.expect_nodes("p", "n01");
    assert_eq!(world.taints("n00"), [""; 0], "nor does it keep the taint of the node");
}
