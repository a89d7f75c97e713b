//! Whatever happens, everything comes to rest.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::simulator::{NAMESPACE, World, is_member};
use super::{LONG, SOON};
use crate::simulation::Pace;
use crate::systems::coschedule::keys;
use crate::systems::simulation::cases;

/// What may happen while runs go on.
#[derive(Clone, Debug)]
enum Happening {
    Task(usize, u32),
    Gated(usize, u32),
    Native,
    Finish(usize),
    Cordon(usize, bool),
    Ready(usize, bool),
    Stranger(usize, u32),
    Leave(usize),
    Gone(usize),
    Evicted(usize),
    Joins,
    Time(i64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (0..3_usize, 1..=1_000_u32).prop_map(|(run, cpu)| Happening::Task(run, cpu)),
        2 => (0..3_usize, 1..=1_000_u32).prop_map(|(run, cpu)| Happening::Gated(run, cpu)),
        2 => Just(Happening::Native),
        3 => (0..8_usize).prop_map(Happening::Finish),
        2 => (0..4_usize, any::<bool>()).prop_map(|(node, yes)| Happening::Cordon(node, yes)),
        2 => (0..4_usize, any::<bool>()).prop_map(|(node, yes)| Happening::Ready(node, yes)),
        2 => (0..4_usize, 100..900_u32).prop_map(|(node, cpu)| Happening::Stranger(node, cpu)),
        1 => (0..4_usize).prop_map(Happening::Leave),
        1 => (0..4_usize).prop_map(Happening::Gone),
        2 => (0..4_usize).prop_map(Happening::Evicted),
        1 => Just(Happening::Joins),
        2 => (1..200_i64).prop_map(Happening::Time),
    ]
}

const RUNS: [&str; 3] = ["r0", "r1", "r2"];

/// A native group beside them. Its pods may be on two nodes, while one of them takes no new pods.
const GROUP: &str = "g";

fn name_of(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap().to_owned()
}

fn happen(world: &mut World, happening: &Happening, number: usize) {
    let node = |world: &World, which: usize| world.names("Node").into_iter().nth(which);
    match *happening {
        Happening::Task(run, cpu) => world.member(&format!("m{number}"), RUNS[run], cpu),
        Happening::Gated(run, cpu) => {
            world.gated_with(&format!("m{number}"), RUNS[run], &Value::Null, cpu);
        }
        Happening::Native => _ = world.native(&format!("m{number}"), GROUP),
        Happening::Finish(which) => {
            let runs = |pod: &&Value| !pod["spec"]["nodeName"].is_null() && is_member(pod);
            let name = world.all("Pod").filter(runs).nth(which).map(name_of);
            if let Some(name) = name {
                world.finish(&name);
            }
        }
        Happening::Cordon(which, yes) => {
            node(world, which).iter().for_each(|node| world.cordon(node, yes))
        }
        Happening::Ready(which, yes) => {
            node(world, which).iter().for_each(|node| world.ready(node, yes))
        }
        Happening::Stranger(which, cpu) => {
            node(world, which)
                .iter()
                .for_each(|node| world.stranger(&format!("s{number}"), node, cpu));
        }
        Happening::Leave(which) => {
            let names = world.names("Pod").into_iter();
            let name = names.filter(|name| name.starts_with('s')).nth(which);
            name.iter().for_each(|name| world.remove("Pod", name));
        }
        Happening::Gone(which) => {
            let Some(gone) = node(world, which).filter(|_| world.count("Node") > 1) else { return };
            world.lose_node(&gone);
        }
        Happening::Evicted(which) => match RUNS.get(which) {
            Some(run) => world.evict(run),
            None => world.remove("Pod", &format!("{}-0", keys::of_native(NAMESPACE, GROUP))),
        },
        Happening::Joins => world.node(&format!("new{number}")),
        Happening::Time(seconds) => world.wait(seconds),
    }
}

proptest! {
    #![proptest_config(cases(96))]

    /// After any events, and at any pace of the executor: no running pod is deleted (the simulator
    /// checks that), each pod runs once there is capacity, each group is on one node, and at the end
    /// nothing is left.
    #[test]
    fn it_comes_to_rest(
        happenings in prop::collection::vec((happening(), any::<bool>()), 1..25),
        pace in prop_oneof![Just(Pace::All), Just(Pace::First), Just(Pace::Last)],
        shared in any::<bool>(),
    ) {
        let mut world = World::new(&["n0", "n1", "n2", "n3"]);
        world.pace = pace;
        world.claim("c");
        world.run("r0", &["c"], &[]);
        world.run("r1", &[], &["source", "cache"]);
        world.claim("d");
        world.run("r2", &[if shared { "c" } else { "d" }], &[]);
        world.template("r2", &json!({"tolerations": [{"operator": "Exists"}]}));
        for (number, (what, settles)) in happenings.iter().enumerate() {
            happen(&mut world, what, number);
            if *settles {
                world.settle(SOON);
            }
        }
        // Room for all: the nodes answer again, and a large one has joined.
        for name in world.names("Node") {
            world.ready(&name, true);
            world.cordon(&name, false);
        }
        // Members that were on a dead node and are bound go on there.
        for name in ["x0", "x1", "x2"] {
            world.node(name);
            let large = json!({"status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}}});
            world.change("Node", name, large);
        }
        for round in 0.. {
            world.settle(LONG);
            for run in RUNS {
                let placeholder = world.placeholder(run);
                let nodes: BTreeSet<_> = world.all("Pod")
                    .filter(|pod| is_member(pod))
                    .filter(|pod| pod["metadata"]["labels"][keys::MEMBER] == *placeholder)
                    .filter(|pod| pod["status"]["phase"] != "Succeeded")
                    .filter_map(|pod| pod["spec"]["nodeName"].as_str())
                    .collect();
                prop_assert!(nodes.len() < 2, "{} is on {:?}: {:#?}", run, nodes, world.writes);
            }
            // Members run to their ends; those that waited for them come in.
            let goes_on = |pod: &Value| is_member(pod) && pod["status"]["phase"] != "Succeeded";
            let running: Vec<String> = world
                .all("Pod")
                .filter(|pod| goes_on(pod) && !pod["spec"]["nodeName"].is_null())
                .map(name_of)
                .collect();
            if running.is_empty() {
                let waiting: Vec<_> = world.all("Pod").filter(|pod| goes_on(pod)).collect();
                // Who has gone first may be where the other does not fit: a run ends after its last task.
                let is_over = |run: &&str| {
                    let placeholder = world.placeholder(run);
                    let of_run = |pod: &Value| pod["metadata"]["labels"][keys::MEMBER] == *placeholder;
                    world.get("PipelineRun", run)["status"].is_null() && !waiting.iter().any(|pod| of_run(pod))
                };
                if let Some(over) = RUNS.into_iter().find(is_over).filter(|_| shared && !waiting.is_empty()) {
                    world.end(over);
                    continue;
                }
                prop_assert!(waiting.is_empty(), "{waiting:#?}\n{:#?}\n{:#?}", world.writes, world.events);
                break;
            }
            prop_assert!(round < 50);
            running.iter().for_each(|name| world.finish(name));
        }
        for run in RUNS {
            world.end(run);
        }
        world.settle(LONG);
        prop_assert!(world.count("StatefulSet") == 0);
        let writes = world.writes.len();
        world.settle(LONG);
        prop_assert_eq!(world.writes.len(), writes);
    }
}
