//! Whatever happens, everything comes to rest.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::simulator::is_member;
use super::*;
use crate::systems::test_cases::cases;

/// An event that may happen while runs go on.
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
    let nodes = world.names("Node");
    let node = |which: usize| &*nodes[which % nodes.len()];
    let pod = format!("m{number}");
    match *happening {
        Happening::Task(run, cpu) => _ = world.member(&pod, RUNS[run], cpu),
        Happening::Gated(run, cpu) => _ = world.gated_with(&pod, RUNS[run], &Value::Null, cpu),
        Happening::Native => _ = world.native(&pod, GROUP),
        Happening::Finish(which) => {
            let runs = |pod: &&Value| !pod["spec"]["nodeName"].is_null() && is_member(pod);
            let name = world.all("Pod").filter(runs).nth(which).map(name_of);
            name.iter().for_each(|name| _ = world.finish(name));
        }
        Happening::Cordon(which, yes) => _ = world.cordon(node(which), yes),
        Happening::Ready(which, yes) => _ = world.ready(node(which), yes),
        Happening::Stranger(which, cpu) => {
            world.stranger(&format!("s{number}"), node(which), cpu);
        }
        Happening::Leave(which) => {
            let names = world.names("Pod").into_iter();
            let name = names.filter(|name| name.starts_with('s')).nth(which);
            name.iter().for_each(|name| _ = world.remove("Pod", name));
        }
        Happening::Gone(which) if nodes.len() > 1 => world.lose_node(node(which)),
        Happening::Gone(_) => {}
        Happening::Evicted(which) => _ = world.evict(RUNS.get(which).unwrap_or(&GROUP)),
        Happening::Joins => _ = world.node(&format!("new{number}")),
        Happening::Time(seconds) => _ = world.wait(seconds),
    }
}

/// Checks that after any events, and at any pace of the executor, no running pod is deleted (the simulator
/// checks that), each pod runs once there is capacity, each group is on one node, and at the end nothing is
/// left. Each event comes with whether everything takes its course before the next.
fn check_rest(
    happenings: &[(Happening, bool)],
    shared: bool,
    pace: Pace,
) -> Result<(), TestCaseError> {
    let mut world = World::new(&["n0", "n1", "n2", "n3"]);
    world.pace = pace;
    world.claim("c").run("r0", &["c"], &[]).run("r1", &[], &["source", "cache"]);
    world.claim("d").run("r2", &[if shared { "c" } else { "d" }], &[]);
    world.template("r2", &tolerating_all());
    for (number, (what, settles)) in happenings.iter().enumerate() {
        happen(&mut world, what, number);
        if *settles {
            world.settle(SOON);
        }
    }
    // Room for all: the nodes answer again, and a large one has joined.
    for name in world.names("Node") {
        world.ready(&name, true).cordon(&name, false);
    }
    // Members that were on a dead node and are bound go on there.
    for name in ["x0", "x1", "x2"] {
        let large =
            json!({"status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}}});
        world.node(name).change("Node", name, large);
    }
    let goes_on = |pod: &&Value| is_member(pod) && pod["status"]["phase"] != "Succeeded";
    for round in 0.. {
        world.settle(LONG);
        let of_run = |run: &str| {
            let placeholder = world.placeholder(run);
            let of_run =
                move |pod: &&Value| pod["metadata"]["labels"][keys::MEMBER] == *placeholder;
            world.all("Pod").filter(goes_on).filter(of_run)
        };
        for run in RUNS {
            let nodes: BTreeSet<_> =
                of_run(run).filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
            prop_assert!(nodes.len() < 2, "{} is on {:?}: {:#?}", run, nodes, world.writes);
        }
        // Members run to their ends; those that waited for them come in.
        let going: Vec<&Value> = world.all("Pod").filter(goes_on).collect();
        let running = going.iter().filter(|pod| !pod["spec"]["nodeName"].is_null());
        let running: Vec<String> = running.map(|pod| name_of(pod)).collect();
        if running.is_empty() {
            // Who has gone first may be where the other does not fit: a run ends after its last task.
            let is_over = |run: &&str| {
                world.get("PipelineRun", run)["status"].is_null() && of_run(run).next().is_none()
            };
            let over = RUNS.into_iter().find(is_over).filter(|_| shared && !going.is_empty());
            let Some(over) = over else {
                prop_assert!(
                    going.is_empty(),
                    "{going:#?}\n{:#?}\n{:#?}",
                    world.writes,
                    world.events
                );
                break;
            };
            world.end(over);
            continue;
        }
        prop_assert!(round < 50);
        running.iter().for_each(|name| _ = world.finish(name));
    }
    for run in RUNS {
        world.end(run);
    }
    world.settle(LONG);
    prop_assert!(world.count("StatefulSet") == 0);
    world.expect_rest();
    Ok(())
}

fn happenings() -> impl Strategy<Value = Vec<(Happening, bool)>> {
    prop::collection::vec((happening(), any::<bool>()), 1..25)
}

// A test for each pace, so that they run beside each other.
proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn it_comes_to_rest(happenings in happenings(), shared in any::<bool>()) {
        check_rest(&happenings, shared, Pace::All)?;
    }

    #[test]
    fn it_comes_to_rest_if_the_controller_stops_after_each_first_write(
        happenings in happenings(), shared in any::<bool>(),
    ) {
        check_rest(&happenings, shared, Pace::First)?;
    }

    #[test]
    fn it_comes_to_rest_if_the_controller_stops_after_each_last_write(
        happenings in happenings(), shared in any::<bool>(),
    ) {
        check_rest(&happenings, shared, Pace::Last)?;
    }
}
