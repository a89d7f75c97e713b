//! Random sequences of events, after each of which the pools are consistent.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::labels;
use super::simulator::{self, Pace, World};

#[test]
fn it_does_not_matter_where_a_controller_stops() {
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

/// Something that happens to a cluster.
#[derive(Clone, Debug)]
enum Happening {
    NodeGone(usize),
    NodeMade(usize),
    Cordoned(usize, bool),
    Tainted(usize, bool),
    LabelLost(usize),
    PoolMade(usize, u32, bool),
    PoolGone(usize),
    PoolGrown(usize),
    PodBound(usize, usize, Option<usize>, bool),
    PodGone(usize),
    /// The controller does this many writes, and no more for now.
    Progress(usize),
    Settled(Pace),
}

const NODES: usize = 6;

const POOLS: usize = 4;

fn happening() -> impl Strategy<Value = Happening> {
    let node = 0..NODES;
    let pool = 0..POOLS;
    prop_oneof![
        2 => node.clone().prop_map(Happening::NodeGone),
        3 => node.clone().prop_map(Happening::NodeMade),
        1 => (node.clone(), any::<bool>()).prop_map(|(n, on)| Happening::Cordoned(n, on)),
        1 => (node.clone(), any::<bool>()).prop_map(|(n, on)| Happening::Tainted(n, on)),
        1 => node.clone().prop_map(Happening::LabelLost),
        4 => (pool.clone(), 1..4u32, any::<bool>())
            .prop_map(|(p, size, exclusive)| Happening::PoolMade(p, size, exclusive)),
        1 => pool.clone().prop_map(Happening::PoolGone),
        1 => pool.clone().prop_map(Happening::PoolGrown),
        2 => (0..4usize, node, proptest::option::of(pool), any::<bool>())
            .prop_map(|(pod, n, p, indexed)| Happening::PodBound(pod, n, p, indexed)),
        1 => (0..4usize).prop_map(Happening::PodGone),
        3 => (1..6usize).prop_map(Happening::Progress),
        2 => prop_oneof![Just(Pace::All), Just(Pace::First), Just(Pace::Last)]
            .prop_map(Happening::Settled),
    ]
}

fn happen(world: &mut World, happening: &Happening) {
    let node = |n: &usize| format!("n{n:02}");
    let pool = |p: &usize| format!("p{p}");
    let has_pool = |world: &World, p: &usize| {
        world.pools.contains_key(&(simulator::NAMESPACE.to_owned(), pool(p)))
    };
    match happening {
        Happening::NodeGone(n) => {
            world.nodes.remove(&node(n));
        }
        Happening::NodeMade(n) if !world.nodes.contains_key(&node(n)) => {
            let taints = json!([{"key": "made", "effect": "PreferNoSchedule"}]);
            world.node(&node(n), json!({"spec": {"taints": taints}}));
            world.change_node(&node(n), labels(json!({"user": "label"})));
        }
        Happening::Cordoned(n, on) if world.nodes.contains_key(&node(n)) => {
            world.change_node(&node(n), json!({"spec": {"unschedulable": on}}));
        }
        Happening::Tainted(n, on) if world.nodes.contains_key(&node(n)) => {
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
        Happening::LabelLost(n) if world.nodes.contains_key(&node(n)) => {
            if let Some((hash, _)) = world.labels(&node(n)).first() {
                let key = format!("pool.stowplan.node-restriction.kubernetes.io/{hash}");
                world.change_node(&node(n), labels(json!({key: null})));
            }
        }
        Happening::PoolMade(p, size, exclusive) if !has_pool(world, p) => {
            let exclusivity = if *exclusive { "Exclusive" } else { "Shared" };
            world.pool(&pool(p), json!({"size": size, "exclusivity": exclusivity}));
        }
        Happening::PoolGone(p) if has_pool(world, p) => world.delete_pool(&pool(p)),
        Happening::PoolGrown(p) if has_pool(world, p) => {
            let size = world.document(&pool(p))["spec"]["size"].as_u64().unwrap();
            world.grow(&pool(p), u32::try_from(size).unwrap() + 1);
        }
        Happening::PodBound(pod, n, p, indexed) => match p.filter(|p| has_pool(world, p)) {
            None => world.pod(&format!("pod{pod}"), &node(n)),
            Some(p) => {
                world.pod_of(&format!("pod{pod}"), &node(n), &pool(&p), indexed.then_some(0))
            }
        },
        Happening::PodGone(pod) => {
            world.pods.remove(&format!("pod{pod}"));
        }
        Happening::Progress(writes) => {
            for _ in 0..*writes {
                let plan = world.plan();
                world.now = plan.recheck_at.unwrap_or(world.now);
                if let Some(action) = plan.actions.into_iter().next() {
                    world.act(action);
                }
            }
        }
        Happening::Settled(pace) => world.settle_at(*pace),
        _ => {}
    }
}

/// The Ready members: (pool, its UID, index) to (node, its UID).
type Seats = BTreeMap<(String, String, u64), (String, String)>;

fn seats(world: &World) -> Seats {
    let mut seats = Seats::new();
    for ((_, name), pool) in &world.pools {
        for member in pool["status"]["members"].as_array().into_iter().flatten() {
            if member["state"] == "Ready" {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let of = (name.clone(), text(&pool["metadata"]["uid"]));
                let key = (of.0, of.1, member["index"].as_u64().unwrap());
                seats.insert(key, (text(&member["node"]), text(&member["uid"])));
            }
        }
    }
    seats
}

/// Found by the property below: while the status of a pool that gave up a node could not be
/// written, the pool that had reserved the node wrote the same reservation again and again.
#[test]
fn a_claim_that_falls_in_the_same_plan_is_no_reason_to_reserve_again() {
    let mut world = World::new(&[]);
    for n in 0..NODES {
        happen(&mut world, &Happening::NodeMade(n));
    }
    for happening in [
        Happening::Cordoned(2, true),
        Happening::PodBound(0, 3, None, false),
        Happening::PoolMade(1, 3, true),
        Happening::PoolMade(0, 1, true),
        Happening::Cordoned(0, true),
        Happening::Progress(1),
        Happening::NodeGone(1),
        Happening::Settled(Pace::Last),
    ] {
        happen(&mut world, &happening);
    }
    assert!(world.plan().actions.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn pools_settle_in_a_consistent_state_after_any_events(
        happenings in proptest::collection::vec(happening(), 1..30),
    ) {
        let mut world = World::new(&[]);
        for n in 0..NODES {
            happen(&mut world, &Happening::NodeMade(n));
        }
        let mut before = Seats::new();
        for happening in happenings.iter().chain([&Happening::Settled(Pace::Last)]) {
            happen(&mut world, happening);
            let now = seats(&world);
            for (place, (node, uid)) in &before {
                let lives = world.nodes.get(node).is_some_and(|n| n["metadata"]["uid"] == **uid);
                let key = (simulator::NAMESPACE.to_owned(), place.0.clone());
                let pool = world.pools.get(&key);
                let stands = pool.is_some_and(|pool| pool["metadata"]["uid"] == *place.1);
                // A pool that a limit refuses loses its members, too.
                let accepted = stands && !pool.unwrap()["status"]["members"].is_null();
                if lives && accepted {
                    prop_assert_eq!(now.get(place), Some(&(node.clone(), uid.clone())));
                }
            }
            before = now;
        }
        let hashes: Vec<String> =
            world.pools.keys().map(|(_, name)| world.hash(name)).collect();
        for (name, node) in &world.nodes {
            let ours: Vec<String> = world
                .taints(name)
                .into_iter()
                .filter_map(|taint| Some(taint.strip_prefix("stowplan.dev/exclusive=")?.to_owned()))
                .collect();
            prop_assert!(ours.len() <= 1, "{:?}", ours);
            prop_assert!(world.taints(name).contains(&"made=:PreferNoSchedule".to_owned()));
            prop_assert_eq!(&node["metadata"]["labels"]["user"], "label");
            for (hash, _) in world.labels(name) {
                prop_assert!(hashes.contains(&hash), "a mark of a deleted pool");
                let tainted = ours.iter().any(|taint| !taint.starts_with(&*hash));
                prop_assert!(!tainted, "{} is shared and exclusive", name);
            }
            for taint in &ours {
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
            let members: BTreeMap<u32, String> = seats(&world)
                .into_iter()
                .filter(|((pool, ..), _)| pool == name)
                .map(|((.., index), (node, _))| (u32::try_from(index).unwrap(), node))
                .collect();
            prop_assert_eq!(&world.labelled(name), &members, "labels say what the status says");
            for node in members.values().filter(|_| world.pools
                [&(simulator::NAMESPACE.to_owned(), name.clone())]["spec"]["exclusivity"] == "Exclusive")
            {
                prop_assert!(world.taints(node).contains(&world.exclusive_taint(name)));
            }
            prop_assert!(!world.ready(name).contains("Reserving"), "{}", world.ready(name));
        }
    }
}
