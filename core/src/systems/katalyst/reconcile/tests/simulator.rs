//! Random clusters with a scheduler and agents that know nothing of the reconciler: they bind pods to any
//! node that is left to them, and give them a feasible NUMA node of it or reject them. Before the deadlines
//! no pod is ever rejected, whatever the order of bindings and reports.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::systems::fit::CHOICE;
use crate::systems::katalyst::feasibility::{Machine, Newcomer, Occupant, Socket};
use crate::systems::katalyst::machines::check_node;
use crate::systems::test_cases::cases;

/// The next step, with a choice among those that are possible.
#[derive(Clone, Debug)]
enum Step {
    /// A workload creates a pod of this kind.
    Create(usize),
    /// The scheduler binds one of the pods that may start.
    Bind(Index, Index),
    /// An agent reports.
    Report(Index),
    /// Nothing, for some seconds.
    Wait(i64),
}

/// Role, affinity and anti-affinity of the pods of a workload.
const KINDS: [[&str; 3]; 5] = [
    ["ps", "", "ps"],
    ["ps", "", "worker"],
    ["worker", "", "ps"],
    ["ring", "ring", ""],
    ["ring", "ring", "ps"],
];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..KINDS.len()).prop_map(Step::Create),
        4 => any::<(Index, Index)>().prop_map(|(pod, node)| Step::Bind(pod, node)),
        4 => any::<Index>().prop_map(Step::Report),
        1 => (1..3_i64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..40)
}

struct World {
    cluster: Cluster,
    nodes: Vec<String>,
    /// The node and the number of the NUMA node that each pod really has.
    places: BTreeMap<String, (String, u8)>,
}

impl World {
    fn new(nodes: usize) -> Self {
        let nodes: Vec<String> = (1..=nodes).map(|node| format!("n{node}")).collect();
        Self { cluster: Cluster::new(&texts(&nodes), &[]), nodes, places: BTreeMap::new() }
    }

    /// The pods that the scheduler may bind.
    fn startable(&self) -> Vec<String> {
        let pods = self.cluster.view().numa_pods();
        let may_start = pods.filter(|(_, pod)| pod.gate().is_none() && pod.node.is_none());
        let mut names: Vec<String> = may_start.map(|(name, _)| name.name.to_string()).collect();
        names.sort();
        names
    }

    /// Binds a pod, if there is one, to a node that is left to it, and lets the agent there place it.
    fn bind(&mut self, pod: &Index, node: &Index, now: i64) -> Result<(), String> {
        let startable = self.startable();
        if startable.is_empty() {
            return Ok(());
        }
        let name = pod.get(&startable).clone();
        let view = self.cluster.view();
        let row = view.numa_pod(&Name::new("ns", &name)).unwrap().clone();
        let needs = row.needs();
        let left = |node: &&String| check_node(view, node, &needs, CHOICE).is_ok();
        let left: Vec<&String> = self.nodes.iter().filter(left).collect();
        let chosen = (*node.get(&left)).clone();
        let zone = self.place(&name, &chosen);
        let zone = zone.ok_or_else(|| format!("{chosen} rejects {name}: {:?}", self.places))?;
        self.places.insert(name.clone(), (chosen.clone(), zone));
        self.cluster.bind(&name, &chosen, now);
        Ok(())
    }

    /// The NUMA node that an agent gives a pod, by the pods that are really there.
    fn place(&self, name: &str, node: &str) -> Option<u8> {
        let names: Vec<(Name, &(String, u8))> =
            self.places.iter().map(|(pod, place)| (Name::new("ns", pod), place)).collect();
        let view = self.cluster.view();
        let sockets = [0_u8, 1].map(|zone| {
            let there = names.iter().filter(|(_, (on, at))| on == node && *at == zone);
            let pods = there.map(|(name, _)| Occupant { name, pod: view.numa_pod(name).unwrap() });
            Socket { name: "", zones: vec![(zone, pods.collect())] }
        });
        let machine = Machine { sockets: sockets.into(), anywhere: Vec::new() };
        let pod = view.numa_pod(&Name::new("ns", name)).unwrap();
        let policy = &self.cluster.0.policy.katalyst;
        machine.find_feasible(Newcomer { pod, policy, leads: false })
    }

    /// Lets an agent report.
    fn report(&mut self, node: &str) {
        let zones = [0, 1].map(|zone| -> Vec<String> {
            let there = self.places.iter().filter(|(_, place)| **place == (node.to_owned(), zone));
            there.map(|(pod, _)| format!("{pod}/u{}", &pod[1..])).collect()
        });
        self.cluster.report(node, [&texts(&zones[0]), &texts(&zones[1])]);
    }
}

fn texts(of: &[String]) -> Vec<&str> {
    of.iter().map(String::as_str).collect()
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn no_pod_is_rejected_before_the_deadlines(nodes in 1_usize..4, steps in steps()) {
        let mut world = World::new(nodes);
        let (mut now, mut created, mut leaders) = (10, 0, 0);
        for step in &steps {
            match step {
                Step::Create(kind) => {
                    created += 1;
                    let [role, affinity, anti_affinity] = KINDS[*kind];
                    world.cluster.pod(created, role, affinity, anti_affinity);
                    world.cluster.change(&format!("p{created}"), |pod| {
                        pod["metadata"]["creationTimestamp"] = at(now).to_string().into();
                    });
                }
                Step::Bind(pod, node) => world.bind(pod, node, now).map_err(TestCaseError::fail)?,
                Step::Report(node) => world.report(&node.get(&world.nodes).clone()),
                Step::Wait(seconds) => now += seconds,
            }
            let events = world.cluster.carry_out(now);
            leaders += events.iter().filter(|event| event.ends_with("NumaLeader")).count();
            prop_assert!(leaders <= 1, "the pods of one group have {leaders} leaders");
            prop_assert!(now < 120, "before the deadlines");
            let again = world.cluster.plan(now);
            let writes = again.actions.iter().filter(|action| action.write != Write::None);
            prop_assert_eq!(writes.count(), 0, "a second plan changes nothing");
        }
        // Everything is reported, and what is left waits only for what is there, or for the deadline.
        for node in world.nodes.clone() {
            world.report(&node);
        }
        world.cluster.carry_out(5_000);
        let gated = world.cluster.view().numa_pods().filter(|(_, pod)| pod.gate().is_some()).count();
        prop_assert_eq!(gated, 0, "no gate outlives the deadlines");
    }
}
