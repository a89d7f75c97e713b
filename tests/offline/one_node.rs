//! Pods that mount the claims of a namespace with the label `stowplan.dev/one-node-claims`, in random histories
//! of a simulated cluster.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use stowplan_core::admission::Decision;
use stowplan_core::simulation::{ALL, CONTROLLER, Event, Id, Pace, Simulation};
use stowplan_core::systems::policy::Policy;
use stowplan_core::systems::{self, View};
use stowplan_core::view::Scope;

use crate::pods::{decide_pod, patch_of, patched, random_cases};

const NAMESPACE: &str = "ns";
const NODES: [&str; 3] = ["n0", "n1", "n2"];
/// Claims of one node.
const CLAIMS: [&str; 4] = ["a", "b", "c", "d"];
/// A claim that is taken out.
const FREE: &str = "free";
const GATE: &str = "stowplan.dev/one-node-claims";

#[derive(Clone, Debug)]
enum Happening {
    /// A pod with these claims is created.
    Created {
        claims: Vec<usize>,
        is_free: bool,
        has_own_affinity: bool,
        cpu: u32,
    },
    /// A pod ends.
    Ended(usize),
    /// A pod without a node, or with one, is deleted.
    Deleted(usize),
    Cordoned(usize, bool),
    Time(i64),
}

fn happening() -> impl Strategy<Value = Happening> {
    let claims = prop::collection::vec(0..CLAIMS.len(), 1..=3);
    let created = (claims, any::<bool>(), prop::bool::weighted(0.2), 1..=1500_u32);
    prop_oneof![
        6 => created.prop_map(|(claims, is_free, has_own_affinity, cpu)| Happening::Created {
            claims, is_free, has_own_affinity, cpu
        }),
        4 => (0..8_usize).prop_map(Happening::Ended),
        1 => (0..8_usize).prop_map(Happening::Deleted),
        1 => (0..NODES.len(), any::<bool>()).prop_map(|(node, is)| Happening::Cordoned(node, is)),
        2 => (1..100_i64).prop_map(Happening::Time),
    ]
}

struct World {
    simulation: Simulation,
    webhook: usize,
    count: usize,
}

fn of_pod(pod: &Value) -> Id {
    Id::new("Pod", NAMESPACE, pod["metadata"]["name"].as_str().unwrap())
}

fn claims_of(pod: &Value) -> BTreeSet<&str> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let claims = volumes.filter_map(|of| of["persistentVolumeClaim"]["claimName"].as_str());
    claims.filter(|claim| *claim != FREE).collect()
}

impl World {
    /// A cluster in which one pod runs with claim `a`: it was created before its namespace had the label.
    fn new() -> Self {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut simulation = Simulation::new(Policy::default(), now);
        let webhook = simulation.add_reader(Scope::Admission);
        let mut world = Self { simulation, webhook, count: 0 };
        for name in NODES {
            world.create(json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
                },
            }));
        }
        for claim in CLAIMS.into_iter().chain([FREE]) {
            let annotations =
                if claim == FREE { json!({"stowplan.dev/one-node": "false"}) } else { json!({}) };
            world.create(json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim, "namespace": NAMESPACE, "annotations": annotations},
                "spec": {"accessModes": ["ReadWriteOnce"]}, "status": {"phase": "Pending"},
            }));
        }
        let mut before = world.pod(&[0], false, false, 100);
        before["spec"]["nodeName"] = json!("n1");
        before["status"] = json!({"phase": "Running"});
        world.create(before);
        world.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata":
            {"name": NAMESPACE, "labels": {"stowplan.dev/one-node-claims": "true"}}}));
        world.settle();
        world
    }

    fn create(&mut self, object: Value) {
        self.simulation.store.create(object).unwrap();
    }

    fn pod(&mut self, claims: &[usize], is_free: bool, has_own_affinity: bool, cpu: u32) -> Value {
        self.count += 1;
        let claims = claims.iter().map(|claim| CLAIMS[*claim]).chain(is_free.then_some(FREE));
        let volumes = claims.enumerate().map(|(number, claim)| {
            json!({"name": format!("v{number}"), "persistentVolumeClaim": {"claimName": claim}})
        });
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("p{}", self.count), "namespace": NAMESPACE},
            "spec": {
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": format!("{cpu}m")}}}],
                "volumes": volumes.collect::<Vec<_>>(),
            },
        });
        if has_own_affinity {
            pod["metadata"]["labels"] = json!({"own": "x"});
            pod["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([{"labelSelector": {"matchLabels": {"own": "x"}}, "topologyKey": "kubernetes.io/hostname"}]);
        }
        pod
    }

    /// Creates a pod as the webhook admits it.
    fn admit(&mut self, pod: &Value) {
        self.simulation.catch_up(self.webhook);
        let view = self.simulation.view_of(self.webhook);
        let decision = decide_pod(NAMESPACE, pod, view, &self.simulation.policy).unwrap();
        let pod = patched(pod, &patch_of(&decision).unwrap()).unwrap();
        self.create(pod);
    }

    fn living(&self) -> impl Iterator<Item = &Value> {
        self.simulation.store.all("Pod").filter(|pod| pod["status"]["phase"] != "Succeeded")
    }

    fn happen(&mut self, happening: &Happening) {
        let nth = |world: &Self, number: usize| {
            let count = world.living().count().max(1);
            world.living().nth(number % count).map(of_pod)
        };
        match *happening {
            Happening::Created { ref claims, is_free, has_own_affinity, cpu } => {
                let pod = self.pod(claims, is_free, has_own_affinity, cpu);
                self.admit(&pod);
            }
            Happening::Ended(number) => {
                let Some(id) = nth(self, number) else { return };
                if let Some(mut pod) = self.simulation.store.edit(&id)
                    && !pod["spec"]["nodeName"].is_null()
                {
                    pod["status"]["phase"] = json!("Succeeded");
                }
            }
            Happening::Deleted(number) => {
                if let Some(id) = nth(self, number) {
                    self.simulation.store.delete(&id);
                }
            }
            Happening::Cordoned(node, is_cordoned) => {
                let id = Id::new("Node", "", NODES[node]);
                let mut node = self.simulation.store.edit(&id).unwrap();
                node["spec"]["unschedulable"] = json!(is_cordoned);
            }
            Happening::Time(seconds) => {
                let end = self.simulation.store.now + SignedDuration::from_secs(seconds);
                self.run(end);
                self.simulation.store.now = end;
            }
        }
    }

    fn run(&mut self, end: Timestamp) {
        let choose = |simulation: &Simulation, events: &mut dyn Iterator<Item = Event>| {
            Pace::All.choose(simulation, events)
        };
        self.simulation.run(ALL, end, choose).unwrap();
    }

    fn settle(&mut self) {
        self.run(self.simulation.store.now + SignedDuration::from_secs(600));
    }

    /// Applies up to `count` of the next events, of which `choice` takes one each time. A plan knows all pods,
    /// and its writes arrive before the next pod is created: a pod that is created in the moment in which a
    /// gate is removed may be put elsewhere, which the documents say.
    fn advance(&mut self, count: usize, choice: usize) {
        for step in 0..count {
            let events: Vec<Event> = self.simulation.possible(ALL).take(8).collect();
            let Some(event) = events.get((choice + step) % events.len().max(1)) else { return };
            if *event == Event::Plan {
                self.simulation.catch_up(CONTROLLER);
            }
            self.simulation.apply(event.clone());
        }
        while !self.simulation.actions().is_empty() {
            self.simulation.apply(Event::Write(0));
        }
    }

    /// The nodes of the pods of each claim.
    fn nodes_by_claim(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut nodes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for pod in self.living() {
            let Some(node) = pod["spec"]["nodeName"].as_str() else { continue };
            claims_of(pod)
                .into_iter()
                .for_each(|claim| _ = nodes.entry(claim).or_default().insert(node));
        }
        nodes
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for (claim, nodes) in self.nodes_by_claim() {
            prop_assert!(nodes.len() < 2, "claim {} is on {:?}", claim, nodes);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(random_cases(100))]

    /// No claim is in use on two nodes, and each pod runs once its predecessors have ended and there is room.
    #[test]
    fn pods_of_a_claim_are_on_one_node_and_all_of_them_run(
        history in prop::collection::vec((happening(), 0..12_usize, any::<usize>()), 1..24)
    ) {
        let mut world = World::new();
        for (happening, count, choice) in &history {
            world.happen(happening);
            world.check()?;
            world.advance(*count, *choice % 8);
            world.check()?;
        }
        for node in 0..NODES.len() {
            world.happen(&Happening::Cordoned(node, false));
        }
        // The oldest pods run and end, until none is left.
        loop {
            world.settle();
            world.check()?;
            let ids: Vec<Id> = world.living().map(of_pod).collect();
            if ids.is_empty() {
                break;
            }
            let is_placed = |id: &&Id| !world.simulation.store.get(id).unwrap()["spec"]["nodeName"].is_null();
            let placed: Vec<Id> = ids.iter().filter(is_placed).cloned().collect();
            let waiting: Vec<&Value> = world.living().collect();
            prop_assert!(!placed.is_empty(), "nothing runs: {:#?} {:#?}", waiting, world.simulation.events);
            for id in placed {
                world.simulation.store.edit(&id).unwrap()["status"]["phase"] = json!("Succeeded");
            }
        }
    }
}

/// The gate, the labels and the term are those of the decision, and the controller removes what it has to.
#[test]
fn a_pod_with_two_claims_waits_until_their_pods_are_on_one_node() {
    let mut world = World::new();
    let labels = |world: &World, name: &str| {
        let pod = world.simulation.store.get(&Id::new("Pod", NAMESPACE, name)).unwrap();
        pod["metadata"]["labels"].clone()
    };
    // It ran before the namespace had the label.
    assert_eq!(labels(&world, "p1"), json!({"claim.stowplan.dev/a": "true"}));
    let node_of = |world: &World, name: &str| {
        let pod = world.simulation.store.get(&Id::new("Pod", NAMESPACE, name)).unwrap();
        pod["spec"]["nodeName"].as_str().map(ToOwned::to_owned)
    };
    for node in [0, 1] {
        world.happen(&Happening::Cordoned(node, true));
    }
    let of_b = world.pod(&[1], false, false, 100);
    world.admit(&of_b);
    world.settle();
    for node in [0, 1] {
        world.happen(&Happening::Cordoned(node, false));
    }
    let apart = node_of(&world, "p2").unwrap();
    assert_ne!(apart, "n1");
    let of_both = world.pod(&[0, 1], false, false, 100);
    world.admit(&of_both);
    world.settle();
    assert_eq!(node_of(&world, "p3"), None);
    let (_, event) = world.simulation.events.last().unwrap();
    let note =
        format!("claim b is in use by pod p2 on node {apart}, and claim a by pod p1 on node n1");
    let gated = world.simulation.store.get(&Id::new("Pod", NAMESPACE, "p3")).unwrap();
    assert_eq!(gated["spec"]["schedulingGates"], json!([{"name": GATE}]));
    assert_eq!(event.reason, "SharedClaim", "{note}: {}", event.note);
    for part in [format!("pod p2 on node {apart}"), "pod p1 on node n1".to_owned()] {
        assert!(event.note.contains(&part), "{}", event.note);
    }
    let p1 = Id::new("Pod", NAMESPACE, "p1");
    world.simulation.store.edit(&p1).unwrap()["status"]["phase"] = json!("Succeeded");
    world.settle();
    assert_eq!(node_of(&world, "p3"), Some(apart.clone()));
    // And the next pod of the first claim follows the one of both.
    let of_a = world.pod(&[0], false, false, 100);
    world.admit(&of_a);
    world.settle();
    assert_eq!(node_of(&world, "p4"), Some(apart));
}

/// The gate would hold the pod for ever if no controller decided about it.
#[test]
fn a_namespace_that_no_longer_asks_keeps_no_pod_behind_the_gate() {
    let mut world = World::new();
    let of_b = world.pod(&[1], false, false, 5_000);
    world.admit(&of_b);
    let of_both = world.pod(&[0, 1], false, false, 100);
    world.admit(&of_both);
    world.settle();
    let id = Id::new("Pod", NAMESPACE, "p3");
    let gates = |world: &World| {
        let pod = world.simulation.store.get(&id).unwrap();
        pod["spec"]["schedulingGates"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(gates(&world), 1, "the pod with claim b has no node");
    let namespace = Id::new("Namespace", "", NAMESPACE);
    world.simulation.store.edit(&namespace).unwrap()["metadata"]["labels"] = json!({});
    world.settle();
    assert_eq!(gates(&world), 0);
}

/// The webhook does not know the name of a pod that the API server names.
#[test]
fn the_pod_of_an_ephemeral_volume_is_labelled_and_followed() {
    let mut world = World::new();
    let mut runner = world.pod(&[], false, false, 100);
    let template = json!({"spec": {"accessModes": ["ReadWriteOnce"]}});
    runner["spec"]["volumes"] =
        json!([{"name": "work", "ephemeral": {"volumeClaimTemplate": template}}]);
    let mut unnamed = runner.clone();
    unnamed["metadata"] = json!({"generateName": "p", "namespace": NAMESPACE});
    let view = world.simulation.view_of(world.webhook);
    let decision = decide_pod(NAMESPACE, &unnamed, view, &world.simulation.policy).unwrap();
    assert_eq!(patch_of(&decision).unwrap(), []);
    // Else it would be on the node that the scheduler takes first.
    world.happen(&Happening::Cordoned(0, true));
    world.create(runner);
    world.settle();
    world.happen(&Happening::Cordoned(0, false));
    let get = |world: &World, name: &str| {
        world.simulation.store.get(&Id::new("Pod", NAMESPACE, name)).unwrap().clone()
    };
    let runner = get(&world, "p2");
    assert_eq!(runner["metadata"]["labels"], json!({"claim.stowplan.dev/p2-work": "true"}));
    world.create(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "p2-work", "namespace": NAMESPACE}, "spec": {"accessModes": ["ReadWriteOnce"]},
    }));
    let mut job = world.pod(&[], false, false, 100);
    let claim = json!({"claimName": "p2-work"});
    job["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": claim}]);
    world.admit(&job);
    world.settle();
    assert_eq!(get(&world, "p3")["spec"]["nodeName"], runner["spec"]["nodeName"]);
}

/// Without a controller nothing removes the gate; with `controllerAbsent: wait`, a later controller does.
#[test]
fn a_pod_with_two_claims_is_not_held_while_no_controller_leads() {
    let mut world = World::new();
    let pod = world.pod(&[0, 1], false, false, 100);
    let mut view = View::default();
    for object in ["Namespace", "PersistentVolumeClaim"] {
        for object in world.simulation.store.all(object) {
            view.apply(systems::object(object.clone()).unwrap().unwrap());
        }
    }
    view.set_controller_present(false);
    let gates = |policy: &str| {
        let policy = Policy::from_yaml(policy).unwrap();
        let decision = decide_pod(NAMESPACE, &pod, &view, &policy).unwrap();
        let admitted = patched(&pod, &patch_of(&decision).unwrap()).unwrap();
        let Decision::Admit(admission) = decision else { panic!("{decision:?}") };
        (admitted["spec"]["schedulingGates"].clone(), admission.warnings.len())
    };
    assert_eq!(gates("coschedule: {controllerAbsent: admit}"), (Value::Null, 1));
    assert_eq!(gates("coschedule: {controllerAbsent: wait}"), (json!([{"name": GATE}]), 0));
}

/// Otherwise the pod would wait for its node for ever, and all later pods of its claims for the pod.
#[test]
fn a_released_pod_does_not_wait_for_a_node_that_its_claims_have_left() {
    let mut world = World::new();
    let mut pod = world.pod(&[0], true, true, 100);
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]);
    pod["metadata"]["ownerReferences"] = owner;
    // More than the node of claim `a` has left.
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("3950m");
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    world.admit(&pod);
    world.settle();
    let id = Id::new("Pod", NAMESPACE, &name(&pod));
    let terms = |world: &World| {
        let pod = world.simulation.store.get(&id).unwrap();
        pod["spec"]["affinity"]["nodeAffinity"].to_string()
    };
    assert!(terms(&world).contains("n1"), "{}", terms(&world));
    // A pod of its claim waits behind the gate meanwhile.
    let later = world.pod(&[0], false, false, 100);
    world.admit(&later);
    let later = Id::new("Pod", NAMESPACE, &name(&later));
    let is_gated = |world: &World| {
        let pod = world.simulation.store.get(&later).unwrap();
        pod["spec"]["schedulingGates"].as_array().is_some_and(|of| !of.is_empty())
    };
    assert!(is_gated(&world));
    // Its node is open, and has no room for it beside another pod.
    let mut large = world.pod(&[], false, false, 500);
    large["spec"]["nodeName"] = json!("n1");
    world.create(large);
    world.simulation.store.remove(&Id::new("Pod", NAMESPACE, "p1"));
    world.settle();
    let events: Vec<_> = world.simulation.events.iter().map(|(_, event)| event.reason).collect();
    let is_deleted = world
        .simulation
        .store
        .get(&id)
        .is_none_or(|pod| !pod["metadata"]["deletionTimestamp"].is_null());
    assert!(is_deleted && events.contains(&"Recreated"), "{events:?}");
    assert!(!is_gated(&world), "{events:?}");
}

/// The volume stays attached, and the scheduler counts the pod: a wake-up would not help.
#[test]
fn a_pod_that_is_deleted_on_a_lost_node_is_reported_and_no_pod_is_woken() {
    let mut world = World::new();
    let next = world.pod(&[0], false, false, 100);
    world.simulation.store.delete(&Id::new("Pod", NAMESPACE, "p1"));
    let lost = Id::new("Node", "", "n1");
    let mut node = world.simulation.store.edit(&lost).unwrap();
    node["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
    node["spec"]["taints"] =
        json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]);
    drop(node);
    world.admit(&next);
    world.settle();
    let events: Vec<_> = world.simulation.events.iter().map(|(_, event)| event.reason).collect();
    assert_eq!(events, ["SharedClaim"], "{:?}", world.simulation.events);
    assert!(world.simulation.events[0].1.note.contains("out-of-service"));
}

fn replicated(mut pod: Value) -> Value {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]);
    pod["metadata"]["ownerReferences"] = owner;
    pod
}

fn is_gated(world: &World, id: &Id) -> bool {
    let pod = world.simulation.store.get(id).unwrap();
    pod["spec"]["schedulingGates"].as_array().is_some_and(|of| !of.is_empty())
}

fn is_deleted(world: &World, id: &Id) -> bool {
    let pod = world.simulation.store.get(id);
    pod.is_none_or(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
}

/// A wake-up would not help it, however often.
#[test]
fn a_released_pod_whose_own_pod_affinity_is_met_elsewhere_is_created_again() {
    let mut world = World::new();
    let mut db = world.pod(&[], false, false, 100);
    db["metadata"]["labels"] = json!({"app": "db"});
    db["spec"]["nodeName"] = json!("n2");
    world.create(db);
    let mut pod = replicated(world.pod(&[0], true, true, 100));
    let term = json!({"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"});
    pod["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!([term]);
    let id = of_pod(&pod);
    world.admit(&pod);
    world.settle();
    assert!(!is_gated(&world, &id) && !is_deleted(&world, &id), "it requires n1");
    world.simulation.store.remove(&Id::new("Pod", NAMESPACE, "p1"));
    world.settle();
    let reasons: Vec<_> = world.simulation.events.iter().map(|(_, event)| event.reason).collect();
    assert!(is_deleted(&world, &id), "{reasons:?}");
    let first = |reason: &str| reasons.iter().position(|of| *of == reason);
    assert!(
        first("Woken") < first("Recreated"),
        "the scheduler has tried it once more: {reasons:?}"
    );
}

#[test]
fn a_released_pod_whose_claims_have_moved_to_another_node_is_created_again() {
    let mut world = World::new();
    let mut pod = replicated(world.pod(&[0], true, true, 100));
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("3950m");
    let id = of_pod(&pod);
    world.admit(&pod);
    world.settle();
    assert!(!is_gated(&world, &id) && !is_deleted(&world, &id), "it requires n1");
    // Somebody binds another pod of the claim elsewhere.
    let mut other = world.pod(&[0], false, false, 100);
    other["spec"]["nodeName"] = json!("n2");
    let mut large = world.pod(&[], false, false, 500);
    large["spec"]["nodeName"] = json!("n1");
    world.create(other);
    world.create(large);
    world.simulation.store.remove(&Id::new("Pod", NAMESPACE, "p1"));
    world.settle();
    assert!(is_deleted(&world, &id), "{:?}", world.simulation.events);
}

/// Else it would wait for ever for a node that it excludes.
#[test]
fn a_pod_stays_behind_the_gate_while_its_claims_are_on_a_node_that_it_excludes() {
    for excludes in [
        json!({"nodeSelector": {"kubernetes.io/hostname": "n2"}}),
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}]},
        ]}}}}),
    ] {
        let mut world = World::new();
        let mut pod = world.pod(&[0, 1], false, false, 100);
        json_patch::merge(&mut pod["spec"], &excludes);
        let id = of_pod(&pod);
        world.admit(&pod);
        world.settle();
        assert!(is_gated(&world, &id));
        let note = &world.simulation.events.last().unwrap().1.note;
        assert!(note.contains("node affinity excludes"), "{note}");
        world.simulation.store.remove(&Id::new("Pod", NAMESPACE, "p1"));
        world.settle();
        let node = &world.simulation.store.get(&id).unwrap()["spec"]["nodeName"];
        assert!(node.is_string() && node != "n1", "{node}");
    }
}

/// The pod of a placeholder may be bound to any node.
#[test]
fn a_pod_stays_behind_the_gate_while_a_placeholder_with_its_claim_has_no_pod() {
    let mut world = World::new();
    world.simulation.policy.coschedule.placeholder.image = "stowplan:1".to_owned();
    let mut member = replicated(world.pod(&[1], false, false, 100));
    member["metadata"]["annotations"] = json!({"stowplan.dev/coschedule-group": "g"});
    world.admit(&member);
    world.settle();
    world.simulation.makes_pods = false;
    let is_placeholder =
        |pod: &&Value| !pod["metadata"]["labels"]["stowplan.dev/placeholder"].is_null();
    let placeholder = world.simulation.store.all("Pod").find(is_placeholder).map(Id::of).unwrap();
    world.simulation.store.remove(&of_pod(&member));
    world.simulation.store.remove(&placeholder);
    let pod = world.pod(&[0, 1], false, false, 100);
    let id = of_pod(&pod);
    world.admit(&pod);
    world.run(world.simulation.store.now + SignedDuration::from_secs(1));
    assert!(is_gated(&world, &id), "{:?}", world.simulation.writes);
    world.simulation.makes_pods = true;
    world.settle();
    let node = &world.simulation.store.get(&id).unwrap()["spec"]["nodeName"];
    assert!(node.is_string(), "{:?}", world.simulation.events);
}
