//! Random histories of a group of pods: what happens to it, and the simulation that says what becomes of it.
//!
//! Whatever happens is said in relation to the group ("its node is cordoned"), never by the name of a node, and the
//! nodes are alike. So a history leads to one state, whichever of the nodes the scheduler takes, and a control plane
//! can be compared with the simulation.

#![allow(dead_code, reason = "each suite uses its own part")]

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use json_patch::PatchOperation;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use stowplan_core::simulation::{ALL, CONTROLLER, Event, Id, Pace, Simulation};
use stowplan_core::systems::plan::Write;
use stowplan_core::systems::policy::Policy;
use stowplan_core::view::Scope;

/// The processors of each node, in thousandths.
pub(crate) const CPU: u32 = 4_000;

/// How many nodes there are.
pub(crate) const NODES: usize = 3;

/// The annotation and the name of the group.
pub(crate) const GROUP: &str = "stowplan.dev/coschedule-group";
pub(crate) const NAME: &str = "g";

/// The label of placeholders.
const PLACEHOLDER: &str = "stowplan.dev/placeholder";

/// Something that somebody else does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// Somebody creates a StatefulSet of one pod of the group, which requests so many thousandths of a processor.
    Create(usize, u32),
    /// Somebody deletes such a StatefulSet.
    End(usize),
    /// Somebody deletes a pod of the group, and its StatefulSet creates it again.
    Delete(usize),
    /// Somebody deletes the pod of the placeholder.
    Evict,
    /// Somebody deletes the StatefulSet of the placeholder.
    DropSet,
    /// The node of the group is cordoned.
    Cordon,
    /// All nodes take pods again.
    Uncordon,
    /// A pod of others takes so many thousandths of a processor on the node of the group.
    Fill(u32),
    /// The pods of others end.
    Empty,
}

/// Draws a step.
pub(crate) fn step() -> impl Strategy<Value = Step> {
    let which = || 0..4_usize;
    prop_oneof![
        6 => (which(), 1..=4_u32).prop_map(|(which, of)| Step::Create(which, of * 500)),
        2 => which().prop_map(Step::End),
        2 => which().prop_map(Step::Delete),
        1 => Just(Step::Evict),
        1 => Just(Step::DropSet),
        2 => Just(Step::Cordon),
        1 => Just(Step::Uncordon),
        2 => (1..=7_u32).prop_map(|of| Step::Fill(of * 500)),
        1 => Just(Step::Empty),
    ]
}

/// The state that is compared: the pods of the group, and the placeholder's.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct State {
    /// `None`: without a node. The nodes are numbered in the order in which they occur.
    pub(crate) pods: BTreeMap<usize, Option<usize>>,
    /// `None`: there is none.
    pub(crate) placeholder: Option<Option<usize>>,
}

impl State {
    /// Reads it from the pods of a namespace.
    pub(crate) fn of<'p>(pods: impl Iterator<Item = &'p Value>) -> Self {
        let mut members = BTreeMap::new();
        let mut placeholder = None;
        for pod in pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()) {
            let node = pod["spec"]["nodeName"].as_str();
            if pod["metadata"]["labels"].get(PLACEHOLDER).is_some() {
                placeholder = Some(node);
            } else if let Some(number) = number_of(pod) {
                members.insert(number, node);
            }
        }
        let mut nodes: Vec<&str> = Vec::new();
        let mut number = |node: &'p str| {
            let known = nodes.iter().position(|of| *of == node);
            known.unwrap_or_else(|| {
                nodes.push(node);
                nodes.len() - 1
            })
        };
        let pods = members.into_iter().map(|(of, node)| (of, node.map(&mut number))).collect();
        Self { pods, placeholder: placeholder.map(|node| node.map(&mut number)) }
    }
}

/// Returns the number of a pod of the group.
pub(crate) fn number_of(pod: &Value) -> Option<usize> {
    let name = pod["metadata"]["name"].as_str()?;
    name.strip_prefix('p')?.strip_suffix("-0")?.parse().ok()
}

/// Returns the node of a group: that of its first pod with a node, else that of its placeholder.
pub(crate) fn node_of_group<'p>(pods: impl Iterator<Item = &'p Value>) -> Option<&'p str> {
    let (mut of_member, mut of_placeholder) = (None, None);
    for pod in pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()) {
        let Some(node) = pod["spec"]["nodeName"].as_str() else { continue };
        if pod["metadata"]["labels"].get(PLACEHOLDER).is_some() {
            of_placeholder = Some(node);
        } else if let Some(number) = number_of(pod) {
            let first = of_member.get_or_insert((number, node));
            *first = (*first).min((number, node));
        }
    }
    of_member.map(|(_, node)| node).or(of_placeholder)
}

/// Returns the template of a pod of the group, with `way` in its spec.
pub(crate) fn template(number: usize, cpu: u32, way: &Value) -> Value {
    let mut spec = json!({
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": format!("{cpu}m")}}}],
        "terminationGracePeriodSeconds": 0,
    });
    json_patch::merge(&mut spec, way);
    json!({
        "metadata": {"labels": {"app": format!("p{number}")}, "annotations": {GROUP: NAME}},
        "spec": spec,
    })
}

/// How long pods may be unschedulable before their placeholder moves.
pub(crate) const GRACE_PERIOD: SignedDuration = SignedDuration::from_secs(4);

/// The simulation of a history.
pub(crate) struct Model {
    simulation: Simulation,
    webhook: usize,
    wanted: BTreeMap<usize, u32>,
    others: usize,
    begun: Timestamp,
    /// Everything that has happened, a line each.
    line: String,
}

impl Model {
    /// Makes empty nodes.
    pub(crate) fn new() -> Self {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut policy = Policy::from_yaml(&format!(
            "coschedule: {{gracePeriod: {}s, groupTTL: 3s}}",
            GRACE_PERIOD.as_secs()
        ))
        .unwrap();
        policy.coschedule.placeholder.image = "stowplan:1".to_owned();
        let mut simulation = Simulation::new(policy, now);
        let webhook = simulation.add_reader(Scope::Admission);
        for number in 0..NODES {
            let name = format!("n{number}");
            let node = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "allocatable": {"cpu": format!("{CPU}m"), "memory": "8Gi", "pods": "110"},
                },
            });
            simulation.store.create(node).unwrap();
        }
        simulation.catch_up(CONTROLLER);
        let line = String::new();
        Self { simulation, webhook, wanted: BTreeMap::new(), others: 0, begun: now, line }
    }

    fn pods(&self) -> impl Iterator<Item = &Value> {
        self.simulation.all("Pod")
    }

    /// Returns the state of the group.
    pub(crate) fn state(&self) -> State {
        State::of(self.pods())
    }

    /// Returns false for a step that changes nothing: its pod or node does not exist, or exists already.
    pub(crate) fn is_possible(&self, step: Step) -> bool {
        let has_node = || node_of_group(self.pods()).is_some();
        match step {
            Step::Create(number, _) => !self.wanted.contains_key(&number),
            Step::End(number) | Step::Delete(number) => self.wanted.contains_key(&number),
            Step::Evict => self.state().placeholder.is_some(),
            Step::DropSet => self.simulation.count("StatefulSet") > 0,
            Step::Cordon | Step::Fill(_) => has_node(),
            Step::Uncordon | Step::Empty => true,
        }
    }

    /// Carries out what somebody does.
    pub(crate) fn apply(&mut self, step: Step) {
        self.note(&format!("- {step:?}"));
        let pod = |number: usize| Id::in_tests("Pod", &format!("p{number}-0"));
        let group = node_of_group(self.pods()).unwrap_or_default().to_owned();
        let placeholder = |pod: &&Value| pod["metadata"]["labels"].get(PLACEHOLDER).is_some();
        match step {
            Step::Create(number, cpu) => _ = self.wanted.insert(number, cpu),
            Step::End(number) => {
                self.wanted.remove(&number);
                self.simulation.store.delete(&pod(number));
            }
            Step::Delete(number) => self.simulation.store.delete(&pod(number)),
            Step::Evict => {
                let ids: Vec<Id> = self.pods().filter(placeholder).map(Id::of).collect();
                ids.iter().for_each(|id| self.simulation.store.delete(id));
            }
            Step::DropSet => {
                let ids: Vec<Id> = self.simulation.all("StatefulSet").map(Id::of).collect();
                ids.iter().for_each(|id| self.simulation.store.delete(id));
            }
            Step::Cordon => self.cordon(&group, true),
            Step::Uncordon => {
                self.simulation.names("Node").iter().for_each(|node| self.cordon(node, false));
            }
            Step::Fill(cpu) => {
                self.others += 1;
                let other = other(self.others, cpu, &group);
                self.simulation.store.create(other).unwrap();
            }
            Step::Empty => {
                let names = self.simulation.names("Pod").into_iter();
                for name in names.filter(|name| name.starts_with("other-")) {
                    self.simulation.store.delete(&Id::in_tests("Pod", &name));
                }
            }
        }
    }

    fn cordon(&mut self, node: &str, is_cordoned: bool) {
        let spec = json!({"spec": {"unschedulable": is_cordoned}});
        self.simulation.merge("Node", node, &spec);
    }

    /// Adds a node with room for everything.
    pub(crate) fn add_large_node(&mut self) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "large", "labels": {"kubernetes.io/hostname": "large"}}, "spec": {},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"},
            },
        });
        self.simulation.store.create(node).unwrap();
    }

    /// Lets everything take its course for a minute, in which StatefulSets create the pods that are missing.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        self.create_missing();
        for _ in 0..1_000 {
            self.run(60)?;
            if !self.create_missing() {
                return Ok(());
            }
        }
        Err("pods are created again without end".to_owned())
    }

    /// Lets only so many events happen.
    pub(crate) fn advance(&mut self, count: usize) {
        self.create_missing();
        for _ in 0..count {
            let Some(event) = self.simulation.possible(ALL).next() else { return };
            self.record(&event);
            self.simulation.apply(event);
        }
    }

    /// Returns the number of writes of the controller.
    pub(crate) fn writes(&self) -> usize {
        self.simulation.writes.len()
    }

    /// Returns everything that has happened, a line each.
    pub(crate) fn time_line(&self) -> &str {
        &self.line
    }

    fn run(&mut self, seconds: i64) -> Result<(), String> {
        let end = self.simulation.store.now + SignedDuration::from_secs(seconds);
        let mut events = Vec::new();
        let outcome = self.simulation.run(ALL, end, |simulation, possible| {
            let first = Pace::All.choose(simulation, possible)?;
            let event = match first {
                Event::Bind(..) => first_bound(simulation, first, possible),
                other => other,
            };
            events.push((simulation.store.now, describe(simulation, &event)));
            Some(event)
        });
        for (at, text) in events {
            if let Some(text) = text {
                self.note_at(at, &text);
            }
        }
        self.simulation.store.now = end;
        outcome
    }

    fn create_missing(&mut self) -> bool {
        let exists = |of: &usize| self.simulation.has("Pod", &format!("p{of}-0"));
        let missing: Vec<_> =
            self.wanted.iter().filter(|(of, _)| !exists(of)).map(|(of, cpu)| (*of, *cpu)).collect();
        for (number, cpu) in &missing {
            let mut pod = template(*number, *cpu, &json!({}));
            let set = format!("p{number}");
            let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": set, "controller": true});
            let identity = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("{set}-0"), "namespace": "ns", "ownerReferences": [owner]},
                "status": {"phase": "Pending"},
            });
            json_patch::merge(&mut pod, &identity);
            self.note(&format!("StatefulSet {set} creates its pod"));
            self.simulation.catch_up(self.webhook);
            let is_member = self.simulation.admit(self.webhook, pod);
            assert!(is_member, "the pod is in no group");
        }
        !missing.is_empty()
    }

    fn record(&mut self, event: &Event) {
        if let Some(text) = describe(&self.simulation, event) {
            self.note(&text);
        }
    }

    fn note(&mut self, text: &str) {
        self.note_at(self.simulation.store.now, text);
    }

    fn note_at(&mut self, at: Timestamp, text: &str) {
        let seconds = at.duration_since(self.begun).as_secs();
        let _ = writeln!(self.line, "{seconds:>6} s  {text}");
    }
}

/// Returns the event of binding the oldest of the pods that can be bound now, as kube-scheduler takes those of equal
/// priority.
fn first_bound(
    simulation: &Simulation,
    first: Event,
    others: &mut dyn Iterator<Item = Event>,
) -> Event {
    let created = |event: &Event| {
        let Event::Bind(pod, _) = event else { return None };
        Some(simulation.store.get(pod)?["metadata"]["creationTimestamp"].as_str()?.to_owned())
    };
    let bound = others.take_while(|event| matches!(event, Event::Bind(..)));
    std::iter::once(first).chain(bound).min_by_key(created).expect("at least one")
}

/// A pod of others on a node.
pub(crate) fn other(number: usize, cpu: u32, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("other-{number}"), "namespace": "ns"},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": format!("{cpu}m")}}}],
        },
        "status": {"phase": "Running"},
    })
}

/// Returns the change of an operation that is no test, with the first letters of the value.
fn describe_operation(operation: &PatchOperation) -> Option<String> {
    let value = match operation {
        PatchOperation::Test(_) => return None,
        PatchOperation::Add(of) => of.value.to_string(),
        PatchOperation::Replace(of) => of.value.to_string(),
        _ => "removed".to_owned(),
    };
    Some(format!("{} = {value:.60}", operation.path()))
}

/// Returns who does what in an event, unless it changes nothing that others see.
fn describe(simulation: &Simulation, event: &Event) -> Option<String> {
    struct Of<'i>(&'i Id);
    impl fmt::Display for Of<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} {}", self.0.kind, self.0.name)
        }
    }
    Some(match event {
        Event::Deliver { .. } | Event::Plan => return None,
        Event::Write(at) => {
            let action = simulation.actions().get(*at)?;
            let of = Id::of_target(&action.target);
            match &action.write {
                Write::Create(_) => format!("the controller creates {}", Of(&of)),
                Write::Delete { .. } => format!("the controller deletes {}", Of(&of)),
                Write::Patch(operations) | Write::Part(_, operations) => {
                    let changed = operations.iter().filter_map(describe_operation);
                    let changed: Vec<_> = changed.collect();
                    format!("the controller changes {}: {}", Of(&of), changed.join(", "))
                }
                other => format!("the controller writes {}: {other:?}", Of(&of)),
            }
        }
        Event::Scale(id) => format!("{} creates or deletes its pod", Of(id)),
        Event::Recreate(id) => format!("{} is created again", Of(id)),
        Event::Start(id) => format!("{} runs", Of(id)),
        Event::End(id) => format!("{} has ended", Of(id)),
        Event::Bind(id, node) => format!("the scheduler binds {} to {node}", Of(id)),
        Event::Reject(id) => format!("the scheduler finds no node for {}", Of(id)),
        Event::Collect(id) => format!("{} is collected as garbage", Of(id)),
        Event::Grow(id, group) => format!("the autoscaler adds a node of {group} for {}", Of(id)),
    })
}
