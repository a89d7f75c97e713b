//! Random sequences of events, after each of which the pools are consistent.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::labels;
use super::simulator::{self, Pace, World};
use crate::systems::simulation::cases;
use crate::systems::streams::kinds::StreamsView as _;

#[test]
fn the_result_does_not_depend_on_where_a_controller_stops() {
    for exclusivity in ["Shared", "Exclusive"] {
        let mut states = Vec::new();
        for pace in [Pace::All, Pace::First, Pace::Last] {
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

/// A change of the cluster, or progress of the controller.
#[derive(Clone, Debug)]
enum Event {
    NodeDeleted(usize),
    NodeCreated(usize),
    Cordoned(usize, bool),
    Tainted(usize, bool),
    LabelRemoved(usize),
    PoolCreated(usize, u32, bool),
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
    prop_oneof![
        2 => node.clone().prop_map(Event::NodeDeleted),
        3 => node.clone().prop_map(Event::NodeCreated),
        1 => (node.clone(), any::<bool>()).prop_map(|(n, on)| Event::Cordoned(n, on)),
        1 => (node.clone(), any::<bool>()).prop_map(|(n, on)| Event::Tainted(n, on)),
        1 => node.clone().prop_map(Event::LabelRemoved),
        4 => (pool.clone(), 1..4u32, any::<bool>())
            .prop_map(|(p, size, exclusive)| Event::PoolCreated(p, size, exclusive)),
        1 => pool.clone().prop_map(Event::PoolDeleted),
        1 => pool.clone().prop_map(Event::PoolGrown),
        2 => (0..4usize, node.clone(), proptest::option::of(pool.clone()), any::<bool>())
            .prop_map(|(pod, n, p, indexed)| Event::PodBound(pod, n, p, indexed)),
        2 => (0..4usize, node, proptest::option::of(pool), any::<bool>())
            .prop_map(|(pod, n, p, indexed)| Event::PodWaits(pod, n, p, indexed)),
        1 => (0..4usize).prop_map(Event::PodDeleted),
        3 => (1..6usize).prop_map(Event::Progress),
        2 => prop_oneof![Just(Pace::All), Just(Pace::First), Just(Pace::Last)]
            .prop_map(Event::Settled),
    ]
}

fn apply(world: &mut World, event: &Event) {
    let node = |n: &usize| format!("n{n:02}");
    let pool = |p: &usize| format!("p{p}");
    let has_pool = |world: &World, p: &usize| {
        world.pools.contains_key(&(simulator::NAMESPACE.to_owned(), pool(p)))
    };
    match event {
        Event::NodeDeleted(n) => {
            world.nodes.remove(&node(n));
        }
        Event::NodeCreated(n) if !world.nodes.contains_key(&node(n)) => {
            let taints = json!([{"key": "made", "effect": "PreferNoSchedule"}]);
            world.node(&node(n), json!({"spec": {"taints": taints}}));
            world.change_node(&node(n), labels(json!({"user": "label"})));
        }
        Event::Cordoned(n, on) if world.nodes.contains_key(&node(n)) => {
            world.change_node(&node(n), json!({"spec": {"unschedulable": on}}));
        }
        Event::Tainted(n, on) if world.nodes.contains_key(&node(n)) => {
            let taints = world.nodes[&node(n)]["spec"]["taints"].as_array();
            let mut taints = taints.cloned().unwrap_or_default();
            taints.retain(|taint| taint["key"] != "user");
            if *on {
                // Before the pool's taint, whose index differs from the one that an earlier plan
                // saw.
                taints.insert(0, json!({"key": "user", "effect": "NoSchedule"}));
            }
            world.change_node(&node(n), json!({"spec": {"taints": taints}}));
        }
        Event::LabelRemoved(n) if world.nodes.contains_key(&node(n)) => {
            if let Some((hash, _)) = world.labels(&node(n)).first() {
                let key = format!("pool.stowplan.node-restriction.kubernetes.io/{hash}");
                world.change_node(&node(n), labels(json!({key: null})));
            }
        }
        Event::PoolCreated(p, size, exclusive) if !has_pool(world, p) => {
            let exclusivity = if *exclusive { "Exclusive" } else { "Shared" };
            world.pool(&pool(p), json!({"size": size, "exclusivity": exclusivity}));
        }
        Event::PoolDeleted(p) if has_pool(world, p) => world.delete_pool(&pool(p)),
        Event::PoolGrown(p) if has_pool(world, p) => {
            let size = world.document(&pool(p))["spec"]["size"].as_u64().unwrap();
            world.grow(&pool(p), u32::try_from(size).unwrap() + 1);
        }
        Event::PodBound(pod, n, p, indexed) => match p.filter(|p| has_pool(world, p)) {
            None => world.pod(&format!("pod{pod}"), &node(n)),
            Some(p) => {
                world.pod_of(&format!("pod{pod}"), &node(n), &pool(&p), indexed.then_some(0))
            }
        },
        Event::PodWaits(pod, n, p, indexed) => {
            apply(world, &Event::PodBound(*pod, *n, *p, *indexed));
            let selector = json!({"kubernetes.io/hostname": node(n)});
            let waits = json!({"spec": {"nodeName": null, "nodeSelector": selector}});
            json_patch::merge(world.pods.get_mut(&format!("pod{pod}")).unwrap(), &waits);
        }
        Event::PodDeleted(pod) => {
            world.pods.remove(&format!("pod{pod}"));
        }
        Event::Progress(writes) => {
            for _ in 0..*writes {
                let plan = world.plan();
                world.now = plan.recheck_at.unwrap_or(world.now);
                if let Some(action) = plan.actions.into_iter().next() {
                    world.act(action);
                }
            }
        }
        Event::Settled(pace) => world.settle_at(*pace),
        _ => {}
    }
}

/// The Ready members: (pool, its UID, index) to (node, its UID).
type ReadyMembers = BTreeMap<(String, String, u64), (String, String)>;

fn ready_members(world: &World) -> ReadyMembers {
    let mut members = ReadyMembers::new();
    for ((_, name), pool) in &world.pools {
        for member in pool["status"]["members"].as_array().into_iter().flatten() {
            if member["state"] == "Ready" {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let of = (name.clone(), text(&pool["metadata"]["uid"]));
                let key = (of.0, of.1, member["index"].as_u64().unwrap());
                members.insert(key, (text(&member["node"]), text(&member["uid"])));
            }
        }
    }
    members
}

/// A regression found by the property below: while the status of a pool that gave up a node was not
/// written yet, the pool that had reserved the node wrote the same reservation again and again.
#[test]
fn a_node_given_up_in_the_same_plan_is_not_reserved_again() {
    let mut world = World::new(&[]);
    for n in 0..NODES {
        apply(&mut world, &Event::NodeCreated(n));
    }
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
        let mut world = World::new(&[]);
        for n in 0..NODES {
            apply(&mut world, &Event::NodeCreated(n));
        }
        let mut before = ReadyMembers::new();
        for event in events.iter().chain([&Event::Settled(Pace::Last)]) {
            apply(&mut world, event);
            let now = ready_members(&world);
            for (member, (node, uid)) in &before {
                let node_exists = world.nodes.get(node).is_some_and(|n| n["metadata"]["uid"] == **uid);
                let key = (simulator::NAMESPACE.to_owned(), member.0.clone());
                let pool = world.pools.get(&key);
                let pool_exists = pool.is_some_and(|pool| pool["metadata"]["uid"] == *member.1);
                // A pool that a limit refuses loses its members, too.
                let accepted = pool_exists && !pool.unwrap()["status"]["members"].is_null();
                if node_exists && accepted {
                    prop_assert_eq!(now.get(member), Some(&(node.clone(), uid.clone())));
                }
            }
            before = now;
        }
        let hashes: Vec<String> =
            world.pools.keys().map(|(_, name)| world.hash(name)).collect();
        for (name, node) in &world.nodes {
            let exclusive: Vec<String> = world
                .taints(name)
                .into_iter()
                .filter_map(|taint| Some(taint.strip_prefix("stowplan.dev/exclusive=")?.to_owned()))
                .collect();
            prop_assert!(exclusive.len() <= 1, "{:?}", exclusive);
            prop_assert!(world.taints(name).contains(&"made=:PreferNoSchedule".to_owned()));
            prop_assert_eq!(&node["metadata"]["labels"]["user"], "label");
            for (hash, _) in world.labels(name) {
                prop_assert!(hashes.contains(&hash), "a mark of a deleted pool");
                let tainted = exclusive.iter().any(|taint| !taint.starts_with(&*hash));
                prop_assert!(!tainted, "{} is shared and exclusive", name);
            }
            for taint in &exclusive {
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
            let members: BTreeMap<u32, String> = ready_members(&world)
                .into_iter()
                .filter(|((pool, ..), _)| pool == name)
                .map(|((.., index), (node, _))| (u32::try_from(index).unwrap(), node))
                .collect();
            prop_assert_eq!(&world.labelled(name), &members, "labels and status name the same members");
            for node in members.values().filter(|_| world.pools
                [&(simulator::NAMESPACE.to_owned(), name.clone())]["spec"]["exclusivity"] == "Exclusive")
            {
                prop_assert!(world.taints(node).contains(&world.exclusive_taint(name)));
            }
            prop_assert!(!world.ready(name).contains("Reserving"), "{}", world.ready(name));
        }
    }
}
