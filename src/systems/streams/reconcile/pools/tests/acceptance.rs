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
    let plan = super::super::plan(&view, &world.policy, world.now);
    assert!(plan.actions.is_empty(), "{plan:#?}");
    view.forget(&HOST_POOL, &Name::new("ns", "p"));
    assert_eq!(
        super::super::plan(&view, &world.policy, world.now).actions.len(),
        1,
        "its marks are removed"
    );
}
