//! Pools choose members with regard to what waiting pods need: it changes the order, and nothing else.

use serde_json::{Value, json};

use super::labels;
use super::simulator::World;
use crate::systems::policy::Policy;
use crate::systems::streams::keys::{COLOCATION_LABEL_PREFIX, POOL_LABEL_PREFIX};

const TERMS: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                     /nodeSelectorTerms";

/// Changes a pod by the merge patch `with` (RFC 7396).
fn change(world: &mut World, pod: &str, with: Value) {
    json_patch::merge(world.pods.get_mut(pod).unwrap(), &with);
}

/// A Streams pod of the job `other` that has no node.
fn waits(world: &mut World, name: &str) {
    world.pod(name, "");
    change(world, name, json!({"spec": {"nodeName": null}, "status": {"phase": "Pending"}}));
}

/// A Streams pod that has no node and asks for a pool, or for one member of it.
fn waits_for(world: &mut World, name: &str, pool: &str, index: Option<u32>) {
    world.pod_of(name, "", pool, index);
    change(world, name, json!({"spec": {"nodeName": null}, "status": {"phase": "Pending"}}));
}

/// Adds a requirement to the pod's required node affinity, as the webhook does.
fn require(world: &mut World, pod: &str, kind: &str, requirement: &Value) {
    let document = world.pods.get_mut(pod).unwrap();
    if document.pointer(TERMS).is_none() {
        let required = json!({"nodeSelectorTerms": [{}]});
        document["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            required;
    }
    for term in document.pointer_mut(TERMS).unwrap().as_array_mut().unwrap() {
        let mut requirements = term[kind].as_array().cloned().unwrap_or_default();
        requirements.push(requirement.clone());
        term[kind] = json!(requirements);
    }
}

/// Lets the pod name a node.
fn name_node(world: &mut World, pod: &str, node: &str) {
    let requirement = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    require(world, pod, "matchFields", &requirement);
}

/// Colocates the pod with the others of its job that have this token.
fn colocate(world: &mut World, pod: &str, token: &str, enforcement: &str) {
    let key = format!("{COLOCATION_LABEL_PREFIX}{token}");
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [
        {"key": key, "operator": "In", "values": ["t"]},
        {"key": "streams.ibm.com/job", "operator": "In", "values": ["other"]},
    ]}});
    let affinity = match enforcement {
        "required" => json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]}),
        _ => json!({"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 100, "podAffinityTerm": term}]}),
    };
    change(world, pod, labels(json!({key: "t"})));
    change(world, pod, json!({"spec": {"affinity": {"podAffinity": affinity}}}));
}

/// The nodes of a pool's members, in the order of their indices; all must be Ready.
fn nodes(world: &World, pool: &str) -> Vec<String> {
    let members = world.members(pool).into_iter().enumerate();
    let node = |(index, member): (usize, String)| {
        let own = member.strip_prefix(&format!("{index} ")).map(str::to_owned);
        own.and_then(|own| own.strip_suffix(" Ready").map(str::to_owned)).unwrap_or(member)
    };
    members.map(node).collect()
}

#[test]
fn a_pool_takes_the_node_of_the_group_of_a_pod_that_waits_for_it() {
    for exclusivity in ["Shared", "Exclusive"] {
        let mut world = World::sized(4);
        world.pool("p", json!({"size": 1, "exclusivity": exclusivity}));
        // For an exclusive pool the mate is of the pool, too: it was admitted when the node was in it.
        world.pod_of("mate", "n02", "p", None);
        colocate(&mut world, "mate", "A", "required");
        waits_for(&mut world, "a", "p", None);
        colocate(&mut world, "a", "A", "required");
        world.settle();
        assert_eq!(nodes(&world, "p"), ["n02"], "{exclusivity}");
    }
}

#[test]
fn a_pool_takes_the_node_that_a_waiting_mate_names() {
    let mut world = World::sized(4);
    world.pool("p", json!({"size": 2}));
    waits(&mut world, "mate");
    name_node(&mut world, "mate", "n03");
    colocate(&mut world, "mate", "A", "required");
    change(
        &mut world,
        "mate",
        json!({"spec": {"schedulingGates": [{"name": "example.com/wait"}]}}),
    );
    waits_for(&mut world, "a", "p", None);
    colocate(&mut world, "a", "A", "required");
    world.settle();
    assert_eq!(nodes(&world, "p"), ["n03", "n00"]);
}

#[test]
fn a_pool_takes_the_node_that_a_pod_which_waits_for_it_names() {
    let hostname = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["h3"]});
    for by in ["name", "hostname", "selector"] {
        let mut world = World::sized(4);
        world.change_node("n03", labels(json!({"kubernetes.io/hostname": "h3"})));
        world.pool("p", json!({"size": 2}));
        waits_for(&mut world, "a", "p", None);
        match by {
            "name" => name_node(&mut world, "a", "n03"),
            "hostname" => require(&mut world, "a", "matchExpressions", &hostname),
            _ => {
                let selector = json!({"kubernetes.io/hostname": "h3"});
                change(&mut world, "a", json!({"spec": {"nodeSelector": selector}}));
            }
        }
        world.settle();
        assert_eq!(nodes(&world, "p"), ["n03", "n00"], "{by}");
    }
}

#[test]
fn the_node_that_more_pods_need_comes_first() {
    let mut world = World::sized(4);
    world.pool("p", json!({"size": 1}));
    for (pod, node) in [("a", "n01"), ("b", "n03"), ("c", "n03")] {
        waits_for(&mut world, pod, "p", None);
        name_node(&mut world, pod, node);
    }
    world.settle();
    assert_eq!(nodes(&world, "p"), ["n03"]);
    world.grow("p", 3);
    world.settle();
    assert_eq!(nodes(&world, "p"), ["n03", "n01", "n00"]);
}

#[test]
fn a_member_gets_the_node_where_the_pod_that_asks_for_it_must_be() {
    let mut world = World::sized(5);
    world.pool("p", json!({"size": 3}));
    waits_for(&mut world, "second", "p", Some(2));
    name_node(&mut world, "second", "n00");
    world.pod("mate", "n04");
    colocate(&mut world, "mate", "A", "required");
    waits_for(&mut world, "first", "p", Some(1));
    colocate(&mut world, "first", "A", "required");
    world.settle();
    assert_eq!(nodes(&world, "p"), ["n01", "n04", "n00"]);

    // Likewise if members are replaced: the one with a lower index does not take the node.
    world.pods.clear();
    ["n01", "n04"].iter().for_each(|node| _ = world.nodes.remove(*node));
    waits_for(&mut world, "again", "p", Some(1));
    name_node(&mut world, "again", "n02");
    world.settle();
    assert_eq!(nodes(&world, "p"), ["n03", "n02", "n00"]);
}

#[test]
fn a_vacant_member_gets_the_only_node_rather_than_another_one() {
    let mut world = World::sized(2);
    world.pool("p", json!({"size": 2}));
    world.settle();
    world.nodes.clear();
    waits_for(&mut world, "a", "p", Some(1));
    name_node(&mut world, "a", "n05");
    world.settle();
    world.node("n05", json!({}));
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Vacant", "1 n05 Ready"]);
    assert_eq!(
        world.ready("p"),
        "False InsufficientNodes: member 0 is vacant; needs 1 more node, 0 are eligible"
    );
}

#[test]
fn no_member_takes_the_node_of_a_pod_that_runs_for_another_one() {
    let mut world = World::sized(2);
    world.pool("p", json!({"size": 2}));
    world.settle();
    world.nodes.clear();
    world.settle();
    // The node of the pod is back, as another one, and it is the only one.
    world.pod_of("runs", "n01", "p", Some(1));
    world.node("n01", json!({}));
    waits_for(&mut world, "a", "p", None);
    name_node(&mut world, "a", "n01");
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Vacant", "1 n01 Ready"]);
}

#[test]
fn an_exclusive_pool_takes_nodes_that_others_name_last() {
    let build = |size: u32, exclusivity: &str| {
        let mut world = World::sized(4);
        world.pool("p", json!({"size": size, "exclusivity": exclusivity}));
        waits(&mut world, "foreign");
        name_node(&mut world, "foreign", "n00");
        // It asks for the pool itself, so it is in nobody's way there.
        waits_for(&mut world, "own", "p", None);
        name_node(&mut world, "own", "n03");
        world.settle();
        nodes(&world, "p")
    };
    assert_eq!(build(2, "Exclusive"), ["n03", "n01"]);
    assert_eq!(build(4, "Exclusive"), ["n03", "n01", "n02", "n00"], "none becomes ineligible");
    assert_eq!(build(2, "Shared"), ["n03", "n00"], "others may be there, too");
}

#[test]
fn a_pod_of_another_pool_or_namespace_is_another_one() {
    let mut world = World::sized(4);
    world.pool("old", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.pool("p", json!({"size": 1}));
    waits_for(&mut world, "a", "p", None);
    name_node(&mut world, "a", "n00");
    // It asks for the pool of a namespace that is not its own.
    waits_for(&mut world, "stranger", "old", None);
    name_node(&mut world, "stranger", "n01");
    change(&mut world, "stranger", json!({"metadata": {"namespace": "else"}}));
    world.settle();
    assert_eq!(
        (nodes(&world, "old"), nodes(&world, "p")),
        (vec!["n02".into()], vec!["n00".into()])
    );
}

/// What the case is about, its objects, and the node that the pool takes.
type Case<'c> = (&'c str, &'c dyn Fn(&mut World), &'c str);

#[test]
fn what_does_not_bind_a_pod_to_a_node_changes_no_order() {
    let near = |world: &mut World, enforcement: &str| {
        world.pod("mate", "n03");
        colocate(world, "mate", "A", "required");
        waits_for(world, "a", "p", None);
        colocate(world, "a", "A", enforcement);
    };
    let cases: [Case<'_>; 8] = [
        ("the case that counts", &|world| near(world, "required"), "n03"),
        ("preferred", &|world| near(world, "preferred"), "n00"),
        (
            "the mate has ended",
            &|world| {
                near(world, "required");
                change(world, "mate", json!({"status": {"phase": "Succeeded"}}));
            },
            "n00",
        ),
        (
            "the pod is being deleted",
            &|world| {
                near(world, "required");
                let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
                change(world, "a", deleted);
            },
            "n00",
        ),
        (
            "the mate is of another job",
            &|world| {
                near(world, "required");
                change(world, "mate", labels(json!({"streams.ibm.com/job": "second"})));
            },
            "n00",
        ),
        (
            "with compat: upstream, jobs share their tokens",
            &|world| {
                near(world, "required");
                change(world, "mate", labels(json!({"streams.ibm.com/job": "second"})));
                world.policy = Policy::from_yaml("streams: {compat: upstream}").unwrap();
            },
            "n03",
        ),
        (
            "another index than the pool has",
            &|world| {
                waits_for(world, "a", "p", Some(7));
                name_node(world, "a", "n03");
            },
            "n00",
        ),
        (
            "it may go to two nodes",
            &|world| {
                waits_for(world, "a", "p", None);
                let names =
                    json!({"key": "metadata.name", "operator": "In", "values": ["n02", "n03"]});
                require(world, "a", "matchFields", &names);
            },
            "n00",
        ),
    ];
    for (what, build, expected) in cases {
        let mut world = World::sized(4);
        world.pool("p", json!({"size": 1}));
        build(&mut world);
        world.settle();
        assert_eq!(nodes(&world, "p"), [expected], "{what}");
    }
}

#[test]
fn what_pods_need_makes_no_node_eligible_and_moves_no_member() {
    let mut world = World::sized(4);
    world.change_node("n02", json!({"spec": {"unschedulable": true}}));
    world.pool("p", json!({"size": 1}));
    waits_for(&mut world, "a", "p", None);
    name_node(&mut world, "a", "n02");
    world.settle();
    assert_eq!(nodes(&world, "p"), ["n00"], "n02 is cordoned");

    waits_for(&mut world, "b", "p", None);
    name_node(&mut world, "b", "n03");
    waits_for(&mut world, "c", "p", Some(0));
    name_node(&mut world, "c", "n01");
    world.writes.clear();
    world.settle();
    assert!(world.writes.is_empty(), "the pool keeps its member: {:?}", world.writes);
    world.grow("p", 2);
    world.settle();
    assert_eq!(nodes(&world, "p"), ["n00", "n03"]);
    world.grow("p", 4);
    world.settle();
    assert_eq!(
        world.ready("p"),
        "False InsufficientNodes: needs 2 more nodes, 1 is eligible; 1 is cordoned"
    );
}

#[test]
fn a_pod_without_the_labels_of_streams_counts_if_it_asks_for_the_pool() {
    let mut world = World::sized(4);
    world.pool("p", json!({"size": 1}));
    waits_for(&mut world, "a", "p", None);
    name_node(&mut world, "a", "n03");
    change(&mut world, "a", labels(json!({"app": null, "streams.ibm.com/job": null})));
    assert!(world.pods["a"].to_string().contains(POOL_LABEL_PREFIX));
    world.settle();
    assert_eq!(nodes(&world, "p"), ["n03"]);
}
