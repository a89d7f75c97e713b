//! Pools that the policy does not allow, that are invalid, or that cannot be read.

use serde_json::json;

use super::simulator::World;
use crate::systems::policy::Policy;
use crate::systems::streams::kinds::host_pool::HostPools;
use crate::systems::streams::resources::HOST_POOL;
use crate::view::{Name, Object, TableType};

#[test]
fn a_pool_that_is_allowed_again_gets_the_nodes_of_its_running_pods() {
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
            first.actions.iter().all(|action| action.target.resource == HOST_POOL),
            "a node that a status names keeps its marks: {first:#?}"
        );
        world.settle();
        for pool in ["shared", "exclusive", "literal"] {
            assert_eq!(world.condition(pool, "Accepted"), format!("False NotAllowed: {message}"));
            assert_eq!(world.ready(pool), format!("False NotAllowed: {message}"));
            assert!(world.members(pool).is_empty());
            assert_eq!(world.event_reasons(pool), ["NotAllowed"]);
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
fn a_pool_of_tags_is_ready_while_a_node_has_them() {
    let mut world = World::sized(1);
    world.pool("one", json!({"tags": ["gpu"]}));
    world.pool("two", json!({"tags": ["gpu", "fast"]}));
    world.settle();
    let problem = "label a node (`kubectl label node NODE KEY=VALUE`)";
    let one =
        format!("False NoTaggedNode: no node has the tags streams.ibm.com/hostpool=gpu: {problem}");
    assert_eq!(world.ready("one"), one);
    let both = "hostpool.streams.ibm.com/gpu and hostpool.streams.ibm.com/fast";
    assert_eq!(
        world.ready("two"),
        format!("False NoTaggedNode: no node has the tags {both}: {problem}")
    );
    let labels = json!({"streams.ibm.com/hostpool": "gpu", "hostpool.streams.ibm.com/gpu": ""});
    world.node("n01", super::labels(labels));
    world.settle();
    assert_eq!(
        world.ready("one"),
        "True Allocated: every node that has the tags belongs to the pool"
    );
    assert!(world.ready("two").starts_with("False NoTaggedNode"));
    world.nodes.remove("n01");
    world.settle();
    assert_eq!(world.ready("one"), one);
    assert_eq!(world.event_reasons("one"), ["NoTaggedNode", "Allocated", "NoTaggedNode"]);
}

#[test]
fn nothing_changes_while_the_labels_of_a_namespace_are_unknown() {
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
    assert_eq!(world.event_reasons("b"), ["TooManyExclusiveNodes"]);
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
fn an_invalid_form_is_refused_with_its_problem() {
    let mut world = World::sized(1);
    world.pool("p", json!({"size": 0}));
    world.pool("q", json!({"exclusivity": "Exclusive"}));
    world.settle();
    assert_eq!(
        world.condition("p", "Accepted"),
        "False InvalidPool: the pool has size 0; create a new one"
    );
    assert_eq!(
        world.ready("q"),
        "False InvalidPool: the pool is Exclusive without size or hosts; create a new one"
    );
    assert_eq!(world.event_reasons("p"), ["InvalidPool"]);
}

#[test]
fn a_pool_that_cannot_be_decoded_keeps_its_nodes() {
    let mut world = World::sized(1);
    world.pool("p", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.settle();
    let mut view = world.view();
    let metadata = serde_json::from_value(world.document("p")["metadata"].clone()).unwrap();
    let pools = [TableType::of::<HostPools>()];
    view.apply(Object::unreadable(&pools, &metadata, "status of a newer release").unwrap());
    let plan = crate::systems::streams::reconcile::plan(&view, &world.policy, world.now);
    assert!(plan.actions.is_empty(), "{plan:#?}");
    view.forget(&HOST_POOL, &Name::new("ns", "p"));
    assert_eq!(
        crate::systems::streams::reconcile::plan(&view, &world.policy, world.now).actions.len(),
        1,
        "its marks are removed"
    );
}

#[test]
fn a_namespace_has_no_more_pools_than_allowed() {
    let mut world = World::sized(4);
    world.policy = Policy::from_yaml("hostPools: {maxPoolsPerNamespace: 2}").unwrap();
    world.pool("a", json!({"size": 1}));
    world.pool("b", json!({"hosts": ["n01"]}));
    world.pool("c", json!({"size": 1}));
    world.pool_in("other", "d", json!({"size": 1}));
    world.settle();
    assert_eq!(world.members("a"), ["0 n00 Ready"]);
    assert!(world.ready("b").starts_with("True"), "{}", world.ready("b"));
    let refused = "False TooManyPools: namespace ns may have 2 host pools, and has older ones; \
                   delete one that is not needed, or ask the cluster's administrator \
                   (hostPools.maxPoolsPerNamespace)";
    assert_eq!(world.condition("c", "Accepted"), refused);
    assert_eq!(world.ready("c"), refused);
    assert!(world.members("c").is_empty());
    assert_eq!(world.event_reasons("c"), ["TooManyPools"]);
    world.delete_pool("a");
    world.settle();
    assert!(world.ready("c").starts_with("True"), "{}", world.ready("c"));
}

#[test]
fn a_node_has_no_more_pools_than_allowed() {
    let mut world = World::sized(1);
    world.policy = Policy::from_yaml("hostPools: {maxPoolsPerNode: 2}").unwrap();
    for pool in ["a", "b", "c"] {
        world.pool(pool, json!({"size": 1}));
    }
    world.settle();
    assert_eq!(world.labels("n00").len(), 2);
    assert_eq!(
        world.ready("c"),
        "False InsufficientNodes: needs 1 node, 0 are eligible; 1 has as many pools as the policy's hostPools.maxPoolsPerNode allows"
    );
    world.node("n01", json!({}));
    world.settle();
    assert_eq!(world.members("c"), ["0 n01 Ready"]);
}

/// Otherwise one could make a pool, start a pod, delete the pool, and repeat that on every node.
#[test]
fn a_node_counts_as_exclusive_until_its_taint_is_removed() {
    let mut world = World::sized(4);
    world.policy = Policy::from_yaml("hostPools: {maxExclusiveNodesPerNamespace: 2}").unwrap();
    world.pool("a", json!({"size": 2, "exclusivity": "Exclusive"}));
    world.settle();
    world.pod_of("stays", "n00", "a", None);
    world.delete_pool("a");
    world.settle();
    assert_eq!((world.taints("n00").len(), world.taints("n01").len()), (1, 0));
    world.pool("b", json!({"size": 2, "exclusivity": "Exclusive"}));
    world.settle();
    assert_eq!(
        world.ready("b"),
        "False TooManyExclusiveNodes: asks for 2 exclusive nodes; namespace ns may have 2, and 1 is taken, \
         1 of them by pods of earlier pools: delete these pods, or wait until they end"
    );
    assert!(world.nodes.keys().all(|node| world.labels(node).is_empty()));
    world.pods.clear();
    world.settle();
    assert!(world.ready("b").starts_with("True"), "{}", world.ready("b"));
}

/// A pool that is replaced keeps what it has, also while its pods still run on an old node.
#[test]
fn a_lingering_taint_takes_no_node_from_a_pool() {
    let mut world = World::sized(3);
    world.policy = Policy::from_yaml("hostPools: {maxExclusiveNodesPerNamespace: 1}").unwrap();
    world.pool("a", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.settle();
    world.policy = Policy::from_yaml("hostPools: {maxExclusiveNodesPerNamespace: 2}").unwrap();
    world.pool("b", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.settle();
    world.pod_of("stays", "n00", "a", None);
    world.delete_pool("a");
    world.policy = Policy::from_yaml("hostPools: {maxExclusiveNodesPerNamespace: 1}").unwrap();
    world.settle();
    assert_eq!(world.members("b"), ["0 n01 Ready"]);
}

#[test]
fn a_pod_of_another_namespace_belongs_to_no_pool() {
    let mut world = World::sized(2);
    world.pool("p", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Ready"]);
    // It asks for member 0 by a term of its own, and tolerates the taint.
    world.pod_of("forged", "n00", "p", Some(0));
    world.pods.get_mut("forged").unwrap()["metadata"]["namespace"] = json!("other");
    world.pod_of("elsewhere", "n01", "p", Some(0));
    world.pods.get_mut("elsewhere").unwrap()["metadata"]["namespace"] = json!("other");
    world.pods.get_mut("elsewhere").unwrap()["metadata"]["labels"] = json!({});
    world.node("n02", json!({}));
    world.change_node("n00", json!({"metadata": {"uid": "another"}}));
    world.settle();
    // The forged pod neither holds the member vacant nor chooses its node.
    assert_eq!(world.members("p"), ["0 n01 Ready"]);
    assert_eq!(world.taints("n00"), [""; 0], "nor does it keep the taint of the node");
}
