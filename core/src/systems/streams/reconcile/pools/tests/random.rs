//! Random sequences of events, after each of which the pools are consistent.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::simulator::{Pace, World, pool_label};
use super::{exclusive, labels, shared};
use crate::simulation::CONTROLLER;
use crate::systems::streams::keys::EXCLUSIVE_TAINT;
use crate::systems::test_cases::cases;

#[test]
fn the_result_does_not_depend_on_where_a_controller_stops() {
    for spec in [shared(3), exclusive(3)] {
        let mut states = Vec::new();
        for pace in [Pace::All, Pace::First, Pace::Last] {
            let mut world = World::sized(8);
            world.pool("p", spec.clone()).settle_at(pace);
            world.delete_nodes(&["n01"]).grow("p", 4).settle_at(pace);
            world.pool("q", exclusive(2)).settle_at(pace).delete_pool("p").settle_at(pace);
            states.push((world.nodes_of("q"), world.ready("q"), world.marks()));
        }
        assert_eq!(states[0], states[1]);
        assert_eq!(states[0], states[2]);
    }
}

/// A change of the cluster, or progress of the controller.
#[derive(Clone, Debug)]
enum Event {
    NodeDeleted(usize),
    NodeCreated(usize),
    Cordoned(usize, bool),
    Tainted(usize, bool),
    LabelRemoved(usize),
    PoolCreated(usize, u32, bool),
    /// The pool lists these nodes.
    PoolLists(usize, usize, usize),
    /// The pool is all nodes with the tag.
    PoolOfTagged(usize),
    NodeTagged(usize, bool),
    PoolDeleted(usize),
    PoolGrown(usize),
    PodBound(usize, usize, Option<usize>, bool),
    /// The pod has no node, and names this one.
    PodWaits(usize, usize, Option<usize>, bool),
    PodDeleted(usize),
    /// The controller carries out this many writes.
    Progress(usize),
    Settled(Pace),
}

const NODES: usize = 6;

const POOLS: usize = 4;

fn any_event() -> impl Strategy<Value = Event> {
    let node = 0..NODES;
    let pool = 0..POOLS;
    let pod = (0..4usize, node.clone(), proptest::option::of(pool.clone()), any::<bool>());
    prop_oneof![
        2 => node.clone().prop_map(Event::NodeDeleted),
        3 => node.clone().prop_map(Event::NodeCreated),
        1 => (node.clone(), any::<bool>()).prop_map(|(n, on)| Event::Cordoned(n, on)),
        1 => (node.clone(), any::<bool>()).prop_map(|(n, on)| Event::Tainted(n, on)),
        1 => node.clone().prop_map(Event::LabelRemoved),
        4 => (pool.clone(), 1..4u32, any::<bool>())
            .prop_map(|(p, size, exclusive)| Event::PoolCreated(p, size, exclusive)),
        2 => (pool.clone(), node.clone(), node.clone())
            .prop_map(|(p, one, other)| Event::PoolLists(p, one, other)),
        1 => pool.clone().prop_map(Event::PoolOfTagged),
        1 => (node.clone(), any::<bool>()).prop_map(|(n, on)| Event::NodeTagged(n, on)),
        1 => pool.clone().prop_map(Event::PoolDeleted),
        1 => pool.clone().prop_map(Event::PoolGrown),
        2 => pod.clone().prop_map(|(pod, n, p, indexed)| Event::PodBound(pod, n, p, indexed)),
        2 => pod.prop_map(|(pod, n, p, indexed)| Event::PodWaits(pod, n, p, indexed)),
        1 => (0..4usize).prop_map(Event::PodDeleted),
        3 => (1..6usize).prop_map(Event::Progress),
        2 => prop_oneof![Just(Pace::All), Just(Pace::First), Just(Pace::Last)]
            .prop_map(Event::Settled),
    ]
}

fn apply(world: &mut World, event: &Event) {
    let node = |n: &usize| format!("n{n:02}");
    let pool = |p: &usize| format!("p{p}");
    let has_pool = |world: &World, p: &usize| world.has("HostPool", &pool(p));
    let has_node = |world: &World, n: &usize| world.has("Node", &node(n));
    match event {
        Event::NodeDeleted(n) => _ = world.delete_nodes(&[&node(n)]),
        Event::NodeCreated(n) if !has_node(world, n) => {
            let taints = json!([{"key": "made", "effect": "PreferNoSchedule"}]);
            world.node(&node(n), json!({"spec": {"taints": taints}}));
            world.change_node(&node(n), labels(json!({"user": "label"})));
        }
        Event::Cordoned(n, on) if has_node(world, n) => {
            world.change_node(&node(n), json!({"spec": {"unschedulable": on}}));
        }
        Event::Tainted(n, on) if has_node(world, n) => {
            let taints = world.get("Node", &node(n))["spec"]["taints"].as_array();
            let mut taints = taints.cloned().unwrap_or_default();
            taints.retain(|taint| taint["key"] != "user");
            if *on {
                // Before the pool's taint, whose index differs from the one that an earlier plan
                // saw.
                taints.insert(0, json!({"key": "user", "effect": "NoSchedule"}));
            }
            world.change_node(&node(n), json!({"spec": {"taints": taints}}));
        }
        Event::LabelRemoved(n) if has_node(world, n) => {
            if let Some((hash, _)) = world.labels(&node(n)).first() {
                world.change_node(&node(n), labels(json!({pool_label(hash): null})));
            }
        }
        Event::PoolCreated(p, size, is_exclusive) if !has_pool(world, p) => {
            let spec = if *is_exclusive { exclusive(*size) } else { shared(*size) };
            world.pool(&pool(p), spec);
        }
        Event::PoolLists(p, one, other) if !has_pool(world, p) => {
            let hosts: BTreeSet<String> = [node(one), node(other)].into();
            world.pool(&pool(p), json!({"hosts": hosts}));
        }
        Event::PoolOfTagged(p) if !has_pool(world, p) => {
            world.pool(&pool(p), json!({"tags": ["source"]}));
        }
        Event::NodeTagged(n, on) if has_node(world, n) => {
            let tag = if *on { json!("source") } else { Value::Null };
            world.change_node(&node(n), labels(json!({"streams.ibm.com/hostpool": tag})));
        }
        Event::PoolDeleted(p) if has_pool(world, p) => _ = world.delete_pool(&pool(p)),
        Event::PoolGrown(p) if has_pool(world, p) => {
            if let Some(size) = world.document(&pool(p))["spec"]["size"].as_u64() {
                world.grow(&pool(p), u32::try_from(size).unwrap() + 1);
            }
        }
        Event::PodBound(pod, n, p, indexed) => {
            let name = format!("pod{pod}");
            match p.filter(|p| has_pool(world, p)) {
                None => world.pod(&name, &node(n)),
                Some(p) => world.pod_of(&name, &node(n), &pool(&p), indexed.then_some(0)),
            };
        }
        Event::PodWaits(pod, n, p, indexed) => {
            apply(world, &Event::PodBound(*pod, *n, *p, *indexed));
            let selector = json!({"kubernetes.io/hostname": node(n)});
            let waits = json!({"spec": {"nodeName": null, "nodeSelector": selector}});
            world.change_pod(&format!("pod{pod}"), waits);
        }
        Event::PodDeleted(pod) => world.take("Pod", &format!("pod{pod}")),
        Event::Progress(writes) => {
            for _ in 0..*writes {
                let plan = world.plan();
                world.store.now = plan.recheck_at.unwrap_or(world.store.now);
                if let Some(action) = plan.actions.into_iter().next() {
                    world.act(action);
                }
            }
        }
        Event::Settled(pace) => _ = world.settle_at(*pace),
        _ => {}
    }
}

/// A cluster with all nodes.
fn start() -> World {
    let mut world = World::new(&[]);
    (0..NODES).for_each(|n| apply(&mut world, &Event::NodeCreated(n)));
    world
}

/// The Ready members: (pool, its UID, index) to (node, its UID).
type ReadyMembers = BTreeMap<(String, String, u32), (String, String)>;

fn ready_members(world: &World) -> ReadyMembers {
    let mut members = ReadyMembers::new();
    for pool in world.all("HostPool").filter(|pool| is_sized(pool)) {
        for member in pool["status"]["members"].as_array().into_iter().flatten() {
            if member["state"] == "Ready" {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let of = (text(&pool["metadata"]["name"]), text(&pool["metadata"]["uid"]));
                let index = u32::try_from(member["index"].as_u64().unwrap()).unwrap();
                let node = (text(&member["node"]), text(&member["uid"]));
                members.insert((of.0, of.1, index), node);
            }
        }
    }
    members
}

/// The nodes that a pool lists, or that have its tag.
fn unmarked_hosts(world: &World, pool: &Value) -> BTreeSet<String> {
    let listed = |node: &String| {
        let hosts = pool["spec"]["hosts"].as_array();
        hosts.is_some_and(|hosts| hosts.iter().any(|host| host == node))
    };
    let tagged = |node: &String| {
        let labels = &world.get("Node", node)["metadata"]["labels"];
        !pool["spec"]["tags"].is_null() && labels["streams.ibm.com/hostpool"] == "source"
    };
    world.names("Node").into_iter().filter(|node| listed(node) || tagged(node)).collect()
}

/// Returns true if the controller chooses the nodes of a pool.
fn is_sized(pool: &Value) -> bool {
    !pool["spec"]["size"].is_null()
}

/// The nodes that the statuses of exclusive pools record: the UID of the pool, the index and the node.
fn exclusive_nodes(world: &World) -> BTreeSet<(String, String, String)> {
    let pools = world.all("HostPool").filter(|pool| pool["spec"]["exclusivity"] == "Exclusive");
    let recorded = pools.flat_map(|pool| {
        let members = pool["status"]["members"].as_array().into_iter().flatten();
        let members = members.filter(|member| member["state"] != "Vacant");
        members.map(|of| {
            let node = of["node"].as_str().unwrap().to_owned();
            (pool["metadata"]["uid"].to_string(), of["index"].to_string(), node)
        })
    });
    recorded.collect()
}

/// A regression found by the property below: while the status of a pool that gave up a node was not
/// written yet, the pool that had reserved the node wrote the same reservation again and again.
#[test]
fn a_node_given_up_in_the_same_plan_is_not_reserved_again() {
    let mut world = start();
    for event in [
        Event::Cordoned(2, true),
        Event::PodBound(0, 3, None, false),
        Event::PoolCreated(1, 3, true),
        Event::PoolCreated(0, 1, true),
        Event::Cordoned(0, true),
        Event::Progress(1),
        Event::NodeDeleted(1),
        Event::Settled(Pace::Last),
    ] {
        apply(&mut world, &event);
    }
    assert!(world.plan().actions.is_empty());
}

proptest! {
    #![proptest_config(cases(192))]

    #[test]
    fn pools_settle_in_a_consistent_state_after_any_events(
        events in proptest::collection::vec(any_event(), 1..30),
    ) {
        let mut world = start();
        let mut before = ReadyMembers::new();
        for event in events.iter().chain([&Event::Settled(Pace::Last)]) {
            let recorded = exclusive_nodes(&world);
            apply(&mut world, event);
            for (_, _, node) in exclusive_nodes(&world).difference(&recorded) {
                for pool in world.all("HostPool").filter(|pool| !is_sized(pool)) {
                    let is_robbed = unmarked_hosts(&world, pool).contains(node);
                    prop_assert!(!is_robbed, "{} is a host of {:#}", node, pool);
                }
            }
            let now = ready_members(&world);
            for (member, (node, uid)) in &before {
                let is_of = |object: &&Value, uid: &str| object["metadata"]["uid"] == *uid;
                let has_node = world.find("Node", node).filter(|of| is_of(of, uid)).is_some();
                // A pool that a limit refuses loses its members, too.
                let pool = world.find("HostPool", &member.0).filter(|of| is_of(of, &member.1));
                if has_node && pool.is_some_and(|pool| !pool["status"]["members"].is_null()) {
                    prop_assert_eq!(now.get(member), Some(&(node.clone(), uid.clone())));
                }
            }
            before = now;
        }
        let pools = world.names("HostPool");
        let hashes: Vec<String> = pools.iter().map(|name| world.hash(name)).collect();
        world.catch_up(CONTROLLER);
        for name in world.names("Node") {
            let taints = world.taints(&name);
            let exclusive = |taint: &String| {
                let hash = taint.strip_prefix(EXCLUSIVE_TAINT)?.strip_prefix('=')?;
                hash.strip_suffix(":NoSchedule").map(str::to_owned)
            };
            let exclusive: Vec<String> = taints.iter().filter_map(exclusive).collect();
            prop_assert!(exclusive.len() <= 1, "{:?}", exclusive);
            prop_assert!(taints.contains(&"made=:PreferNoSchedule".to_owned()));
            prop_assert_eq!(&world.get("Node", &name)["metadata"]["labels"]["user"], "label");
            for (hash, _) in world.labels(&name) {
                prop_assert!(hashes.contains(&hash), "a mark of a deleted pool");
                let is_own = exclusive.iter().all(|of| *of == hash);
                prop_assert!(is_own, "{} is shared and exclusive", name);
            }
            for hash in &exclusive {
                let is_needed = world.view_of(CONTROLLER).pods().any(|(_, pod)| {
                    !pod.finished
                        && pod.node.as_deref() == Some(&*name)
                        && pod.tolerates.iter().any(|tolerated| **tolerated == **hash)
                });
                prop_assert!(hashes.contains(hash) || is_needed);
            }
        }
        for pool in world.all("HostPool").filter(|pool| !is_sized(pool)) {
            let mut hosts = unmarked_hosts(&world, pool);
            let all = pool["spec"]["hosts"].as_array().map_or(hosts.len(), Vec::len);
            let is_complete = all == hosts.len();
            hosts.retain(|node| !world.taints(node).iter().any(|of| of.contains(EXCLUSIVE_TAINT)));
            let name = pool["metadata"]["name"].as_str().unwrap();
            let is_ready = world.ready(name).starts_with("True");
            prop_assert_eq!(is_ready, is_complete && !hosts.is_empty(), "{}", world.ready(name));
        }
        for name in pools.iter().filter(|name| is_sized(world.document(name))) {
            let members = ready_members(&world).into_iter().filter(|((pool, ..), _)| pool == name);
            let members: BTreeMap<u32, String> =
                members.map(|((.., index), (node, _))| (index, node)).collect();
            prop_assert_eq!(&world.labelled(name), &members, "labels and status name the same members");
            let is_exclusive = world.document(name)["spec"]["exclusivity"] == "Exclusive";
            for node in members.values().filter(|_| is_exclusive) {
                prop_assert!(world.taints(node).contains(&world.exclusive_taint(name)));
            }
            prop_assert!(!world.ready(name).contains("Reserving"), "{}", world.ready(name));
        }
    }
}
