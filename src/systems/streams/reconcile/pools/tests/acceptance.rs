//! Pools that the policy does not allow, that are invalid, or that cannot be read.

use serde_json::json;

use super::simulator::World;
use super::{exclusive, labels, shared};
use crate::systems::policy::Policy;
use crate::systems::streams::kinds::host_pool::HostPools;
use crate::systems::streams::reconcile;
use crate::systems::streams::resources::HOST_POOL;
use crate::view::{Name, Object, TableType};

#[test]
fn a_pool_that_is_allowed_again_gets_the_nodes_of_its_running_pods() {
    let mut world = World::settled(4, [("p", exclusive(3))]);
    world.pod_of("two", "n02", "p", Some(2));
    world.nodes.remove("n00");
    world.govern("hostPools: {enabled: false}");
    world.node("a", json!({}));
    world.govern("");
    assert_eq!(world.nodes_of("p"), "a, n01, n02");
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
        let namespace = json!({"metadata": {"name": "ns", "labels": {"team": "b"}}});
        world.namespaces.insert("ns".to_owned(), namespace);
        let literal = json!({"hosts": ["n00"]});
        world.add([("shared", shared(1)), ("exclusive", exclusive(1)), ("literal", literal)]);
        world.events.clear();
        world.policy = Policy::from_yaml(yaml).unwrap();
        let first = world.plan();
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
        assert!(world.nodes.keys().all(|node| world.is_unmarked(node)));
        world.govern("");
        assert_eq!((&*world.nodes_of("shared"), &*world.nodes_of("exclusive")), ("n00", "n01"));
    }
}

#[test]
fn a_pool_without_a_size_has_no_members_and_is_ready_while_a_node_has_its_tags() {
    let (one, two) = (json!({"tags": ["gpu"]}), json!({"tags": ["gpu", "fast"]}));
    let mut world = World::settled(1, [("any", json!({})), ("one", one), ("two", two)]);
    let problem = "label a node (`kubectl label node NODE KEY=VALUE`)";
    let without =
        |tags: &str| format!("False NoTaggedNode: no node has the tags {tags}: {problem}");
    let one = without("streams.ibm.com/hostpool=gpu");
    let two = without("hostpool.streams.ibm.com/gpu and hostpool.streams.ibm.com/fast");
    world.expect("any", "", "True Allocated: every node belongs to the pool");
    world.expect("one", "", &one);
    world.expect("two", "", &two);
    let tags = json!({"streams.ibm.com/hostpool": "gpu", "hostpool.streams.ibm.com/gpu": ""});
    world.node("n01", labels(tags));
    world.settle();
    let all = "True Allocated: every node that has the tags belongs to the pool";
    world.expect("one", "", all);
    world.expect("two", "", &two);
    world.nodes.remove("n01");
    world.settle();
    world.expect("one", "", &one);
    assert_eq!(world.event_reasons("one"), ["NoTaggedNode", "Allocated", "NoTaggedNode"]);
    assert_eq!(world.take_counts(), (5, 0));
}

#[test]
fn nothing_changes_while_the_labels_of_a_namespace_are_unknown() {
    let mut world = World::settled(2, [("p", exclusive(1))]);
    world.policy = Policy::from_yaml("hostPools: {namespaces: {team: a}}").unwrap();
    world.pool("q", shared(1));
    assert!(world.plan().actions.is_empty());
    let namespace = json!({"metadata": {"name": "ns", "labels": {"team": "a"}}});
    world.namespaces.insert("ns".to_owned(), namespace);
    world.settle();
    assert_eq!(world.nodes_of("q"), "n01");
}

#[test]
fn a_namespace_has_no_more_exclusive_nodes_than_allowed() {
    let mut world = World::sized(9);
    world.policy = Policy::from_yaml("hostPools: {maxExclusiveNodesPerNamespace: 4}").unwrap();
    world.pool("a", exclusive(2));
    world.pool("b", exclusive(3));
    world.pool("c", json!({"hosts": ["n08", "n07"], "exclusivity": "Exclusive"}));
    world.pool("shared", shared(5));
    world.pool_in("other", "d", exclusive(1));
    world.settle();
    assert_eq!(world.nodes_of("a"), "n00, n01");
    let refused = "asks for 3 exclusive nodes; namespace ns may have 4, and 4 are taken";
    world.expect_refused("b", "TooManyExclusiveNodes", refused);
    assert_eq!(world.nodes_of("c"), "n08, n07");
    assert_eq!(world.members("shared").len(), 5);

    // An older pool that grows takes nothing from a younger one, nor gives up what it has.
    world.grow("a", 3);
    world.settle();
    assert_eq!(world.condition("a", "Accepted"), "True Accepted: the pool can be served");
    let refused = "asks for 1 more exclusive node; namespace ns may have 4, and 4 are taken";
    world.expect("a", "n00, n01", &format!("False TooManyExclusiveNodes: {refused}"));
    world.expect("c", "n08, n07", "True…");
    world.govern("hostPools: {maxExclusiveNodesPerNamespace: 3}");
    assert!(world.ready("a").starts_with("True"), "{}", world.ready("a"));
    assert!(world.condition("c", "Accepted").starts_with("False TooManyExclusiveNodes"));
    assert!(world.labelled("c").is_empty());
    assert!(world.nodes.keys().all(|n| !world.taints(n).contains(&world.exclusive_taint("c"))));
}

#[test]
fn an_invalid_form_is_refused_with_its_problem() {
    let form = json!({"exclusivity": "Exclusive"});
    let world = World::settled(1, [("p", shared(0)), ("q", form)]);
    world.expect_refused("p", "InvalidPool", "the pool has size 0; create a new one");
    let problem = "the pool is Exclusive without size or hosts; create a new one";
    world.expect_refused("q", "InvalidPool", problem);
}

#[test]
fn a_pool_that_cannot_be_decoded_keeps_its_nodes() {
    let mut world = World::settled(1, [("p", exclusive(1))]);
    let mut view = world.view();
    let metadata = serde_json::from_value(world.document("p")["metadata"].clone()).unwrap();
    let pools = [TableType::of::<HostPools>()];
    view.apply(Object::unreadable(&pools, &metadata, "status of a newer release").unwrap());
    let plan = reconcile::plan(&view, &world.policy, world.now);
    assert!(plan.actions.is_empty(), "{plan:#?}");
    view.forget(&HOST_POOL, &Name::new("ns", "p"));
    let plan = reconcile::plan(&view, &world.policy, world.now);
    assert_eq!(plan.actions.len(), 1, "its marks are removed");
}

#[test]
fn a_namespace_has_no_more_pools_than_allowed() {
    let mut world = World::sized(4);
    world.policy = Policy::from_yaml("hostPools: {maxPoolsPerNamespace: 2}").unwrap();
    world.pool_in("other", "d", shared(1));
    world.add([("a", shared(1)), ("b", json!({"hosts": ["n01"]})), ("c", shared(1))]);
    world.expect("a", "n01", "True…");
    world.expect("b", "n01", "True…");
    let refused = "namespace ns may have 2 host pools, and has older ones; \
                   delete one that is not needed, or ask the cluster's administrator \
                   (hostPools.maxPoolsPerNamespace)";
    world.expect_refused("c", "TooManyPools", refused);
    world.delete_pool("a");
    world.settle();
    assert!(world.ready("c").starts_with("True"), "{}", world.ready("c"));
}

#[test]
fn a_node_has_no_more_pools_than_allowed() {
    let mut world = World::sized(1);
    world.policy = Policy::from_yaml("hostPools: {maxPoolsPerNode: 2}").unwrap();
    world.add(["a", "b", "c"].map(|pool| (pool, shared(1))));
    assert_eq!(world.labels("n00").len(), 2);
    let problem = "needs 1 node, 0 are eligible; \
                   1 has as many pools as the policy's hostPools.maxPoolsPerNode allows";
    world.expect("c", "", &format!("False InsufficientNodes: {problem}"));
    world.node("n01", json!({}));
    world.settle();
    assert_eq!(world.nodes_of("c"), "n01");
}

/// Otherwise one could make a pool, start a pod, delete the pool, and repeat that on every node.
#[test]
fn a_node_counts_as_exclusive_until_its_taint_is_removed_with_the_last_pod() {
    let mut world = World::sized(4);
    world.policy = Policy::from_yaml("hostPools: {maxExclusiveNodesPerNamespace: 2}").unwrap();
    world.add([("a", exclusive(2))]);
    let taint = world.exclusive_taint("a");
    world.pod_of("stays", "n00", "a", None);
    world.delete_pool("a");
    world.settle();
    assert_eq!((world.taints("n00"), world.taints("n01")), (vec![taint], vec![]));
    assert!(world.labels("n00").is_empty(), "no other pod is bound by the label");
    world.add([("b", exclusive(2)), ("shared", shared(4))]);
    let refused = "asks for 2 exclusive nodes; namespace ns may have 2, and 1 is taken, \
                   1 of them by pods of earlier pools: delete these pods, or wait until they end";
    world.expect_refused("b", "TooManyExclusiveNodes", refused);
    let few = "needs 4 nodes, 3 are eligible; 1 belongs to an exclusive pool";
    world.expect("shared", "", &format!("False InsufficientNodes: {few}"));
    assert!(world.nodes.keys().all(|node| world.labels(node).is_empty()));
    world.delete_pool("shared");
    world.pods.clear();
    world.settle();
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
    world.pod_of("stays", "n00", "a", None);
    world.delete_pool("a");
    world.govern("hostPools: {maxExclusiveNodesPerNamespace: 1}");
    assert_eq!(world.nodes_of("b"), "n01");
}

#[test]
fn a_pod_of_another_namespace_belongs_to_no_pool() {
    let mut world = World::settled(2, [("p", exclusive(1))]);
    assert_eq!(world.nodes_of("p"), "n00");
    // They ask for member 0 by a term of their own, and tolerate the taint.
    world.pod_of("forged", "n00", "p", Some(0));
    world.change_pod("forged", json!({"metadata": {"namespace": "other"}}));
    world.pod_of("elsewhere", "n01", "p", Some(0));
    world.change_pod("elsewhere", json!({"metadata": {"namespace": "other", "labels": null}}));
    world.node("n02", json!({}));
    world.change_node("n00", json!({"metadata": {"uid": "another"}}));
    world.settle();
    // The forged pod neither holds the member vacant nor chooses its node.
    assert_eq!(world.nodes_of("p"), "n01");
    assert_eq!(world.taints("n00"), [""; 0], "nor does it keep the taint of the node");
}
