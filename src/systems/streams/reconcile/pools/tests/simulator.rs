//! Pools in the simulated cluster. The documents are fields that a test changes as it likes: each plan and
//! each write sees them as they are.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api;
use crate::simulation::{self, CONTROLLER, CONTROLLER_ALONE, Id, Outcome, Simulation};
use crate::systems;
use crate::systems::plan::{Action, Event, Plan, Write};
use crate::systems::policy::Policy;
use crate::systems::streams::keys::{EXCLUSIVE_TAINT, POOL_LABEL_PREFIX};
use crate::systems::streams::kinds::host_pool::hash;
use crate::view::View;
use crate::view::resource::Resource;
pub(super) use simulation::{Pace, patch};

/// The namespace of all objects for which a test gives none.
pub(super) const NAMESPACE: &str = "ns";

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) policy: Policy,
    pub(super) now: Timestamp,
    pub(super) nodes: BTreeMap<String, Value>,
    pub(super) pools: BTreeMap<(String, String), Value>,
    pub(super) pods: BTreeMap<String, Value>,
    pub(super) namespaces: BTreeMap<String, Value>,
    /// Kind and name of each object that was written.
    pub(super) writes: Vec<(Resource, String)>,
    /// The events: the name of the pool, and the event about it.
    pub(super) events: Vec<(String, Event)>,
    counter: u64,
}

impl World {
    /// A cluster with nodes of these names, all eligible.
    pub(super) fn new(nodes: &[&str]) -> Self {
        let mut world = Self {
            policy: Policy::default(),
            now: "2026-01-01T00:00:00.25Z".parse().unwrap(),
            nodes: BTreeMap::new(),
            pools: BTreeMap::new(),
            pods: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            writes: Vec::new(),
            events: Vec::new(),
            counter: 0,
        };
        nodes.iter().for_each(|name| world.node(name, json!({})));
        world
    }

    /// A cluster with this many nodes: `n00`, `n01` and so on.
    pub(super) fn sized(count: usize) -> Self {
        let names: Vec<String> = (0..count).map(|n| format!("n{n:02}")).collect();
        Self::new(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn metadata(&mut self, name: &str) -> Value {
        let number = self.next();
        json!({
            "name": name,
            "uid": format!("uid-{number}"),
            "resourceVersion": number.to_string(),
            "generation": 1,
            "creationTimestamp": in_seconds(self.now + SignedDuration::from_secs(number as i64)),
        })
    }

    /// Creates an eligible node, changed by the merge patch `with` (RFC 7396).
    pub(super) fn node(&mut self, name: &str, with: Value) {
        let mut node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": self.metadata(name),
            "spec": {},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "Hostname", "address": name}],
            },
        });
        node["metadata"]["labels"] = json!({"kubernetes.io/hostname": name});
        json_patch::merge(&mut node, &with);
        self.nodes.insert(name.to_owned(), node);
    }

    /// Changes a node by a merge patch (RFC 7396).
    pub(super) fn change_node(&mut self, name: &str, with: Value) {
        let version = self.next();
        let node = self.nodes.get_mut(name).unwrap();
        json_patch::merge(node, &with);
        node["metadata"]["resourceVersion"] = json!(version.to_string());
    }

    pub(super) fn pool(&mut self, name: &str, spec: Value) {
        self.pool_in(NAMESPACE, name, spec);
    }

    pub(super) fn pool_in(&mut self, namespace: &str, name: &str, spec: Value) {
        let mut metadata = self.metadata(name);
        metadata["namespace"] = json!(namespace);
        let pool = json!({
            "apiVersion": api::VERSION,
            "kind": "HostPool",
            "metadata": metadata,
            "spec": spec,
        });
        self.pools.insert((namespace.to_owned(), name.to_owned()), pool);
    }

    pub(super) fn document(&mut self, pool: &str) -> &mut Value {
        self.pools.get_mut(&(NAMESPACE.to_owned(), pool.to_owned())).unwrap()
    }

    pub(super) fn grow(&mut self, pool: &str, size: u32) {
        let version = self.next();
        let pool = self.document(pool);
        pool["spec"]["size"] = json!(size);
        pool["metadata"]["resourceVersion"] = json!(version.to_string());
        pool["metadata"]["generation"] =
            json!(pool["metadata"]["generation"].as_i64().unwrap() + 1);
    }

    pub(super) fn delete_pool(&mut self, pool: &str) {
        self.pools.remove(&(NAMESPACE.to_owned(), pool.to_owned())).unwrap();
    }

    /// A Streams pod on `node` that asks for nothing.
    pub(super) fn pod(&mut self, name: &str, node: &str) {
        let mut metadata = self.metadata(name);
        metadata["namespace"] = json!(NAMESPACE);
        metadata["labels"] = json!({"app": "streams", "streams.ibm.com/job": "other"});
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running"},
        });
        self.pods.insert(name.to_owned(), pod);
    }

    /// A Streams pod on `node` that asks for a pool, or for one member of it.
    pub(super) fn pod_of(&mut self, name: &str, node: &str, pool: &str, index: Option<u32>) {
        let hash = self.hash(pool);
        self.pod(name, node);
        let key = format!("{POOL_LABEL_PREFIX}{hash}");
        let requirement = match index {
            None => json!({"key": key, "operator": "Exists"}),
            Some(index) => json!({"key": key, "operator": "In", "values": [index.to_string()]}),
        };
        let term = json!({"matchExpressions": [requirement]});
        let spec = &mut self.pods.get_mut(name).unwrap()["spec"];
        spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": [term]});
        spec["tolerations"] = json!([
            {"key": EXCLUSIVE_TAINT, "operator": "Equal", "value": hash, "effect": "NoSchedule"}
        ]);
    }

    pub(super) fn hash(&self, pool: &str) -> String {
        let pool = &self.pools[&(NAMESPACE.to_owned(), pool.to_owned())];
        hash(pool["metadata"]["uid"].as_str().unwrap())
    }

    /// The cluster with these documents, of which the controller has seen everything.
    fn simulate(&self) -> Simulation {
        let mut simulation = Simulation::new(self.policy.clone(), self.now).with_planner(plan);
        let documents = self.nodes.values().chain(self.pools.values()).chain(self.pods.values());
        documents.for_each(|document| simulation.store.put(document.clone()));
        for mut namespace in self.namespaces.values().cloned() {
            json_patch::merge(&mut namespace, &json!({"apiVersion": "v1", "kind": "Namespace"}));
            simulation.store.put(namespace);
        }
        simulation.catch_up(CONTROLLER);
        simulation
    }

    /// Takes over what has happened in a simulation.
    fn absorb(&mut self, simulation: Simulation) {
        let store = &simulation.store;
        for (name, node) in &mut self.nodes {
            *node = store.get(&Id::new("Node", "", name)).unwrap().clone();
            let taints = node["spec"]["taints"].as_array().into_iter().flatten();
            let mut seen = BTreeSet::new();
            for taint in taints {
                let unique = seen.insert((taint["key"].to_string(), taint["effect"].to_string()));
                assert!(unique, "two taints of one key and effect on {name}: {node:#}");
            }
        }
        for ((namespace, name), pool) in &mut self.pools {
            *pool = store.get(&Id::new("HostPool", namespace, name)).unwrap().clone();
        }
        self.now = store.now;
        self.counter += u64::try_from(simulation.writes.len()).unwrap();
        for written in simulation.writes {
            assert_eq!(written.outcome, Outcome::Done, "{written:?}");
            self.writes.push((written.target.resource, written.target.name.to_string()));
        }
        let events = simulation.events.into_iter();
        self.events.extend(events.map(|(about, event)| (about.name.to_string(), event)));
    }

    pub(super) fn view(&self) -> View {
        self.simulate().into_view(CONTROLLER)
    }

    pub(super) fn plan(&self) -> Plan {
        self.simulate().make_plan()
    }

    /// Plans and acts until a plan is empty; time advances only to the `recheck_at` of a plan.
    pub(super) fn settle(&mut self) {
        self.settle_at(Pace::All);
    }

    pub(super) fn settle_at(&mut self, pace: Pace) {
        let mut simulation = self.simulate();
        let rest = simulation.run(CONTROLLER_ALONE, Timestamp::MAX, |simulation, events| {
            let event = pace.choose(simulation, events)?;
            if let simulation::Event::Write(at) = event {
                check(simulation, &simulation.actions()[at]);
            }
            Some(event)
        });
        assert_eq!(rest, Ok(()));
        self.absorb(simulation);
    }

    /// Carries out one action.
    pub(super) fn act(&mut self, action: Action) {
        let mut simulation = self.simulate();
        check(&simulation, &action);
        simulation.carry_out(action);
        self.absorb(simulation);
    }

    /// The members of a pool, each as `0 n1 Ready`.
    pub(super) fn members(&self, pool: &str) -> Vec<String> {
        let pool = &self.pools[&(NAMESPACE.to_owned(), pool.to_owned())];
        let members = pool["status"]["members"].as_array().into_iter().flatten();
        members
            .map(|member| {
                let text = |key: &str| member[key].as_str().unwrap_or("-").to_owned();
                format!("{} {} {}", member["index"], text("node"), text("state"))
            })
            .collect()
    }

    /// A condition of a pool, as `False InsufficientNodes: needs …`.
    pub(super) fn condition(&self, pool: &str, type_: &str) -> String {
        let pool = &self.pools[&(NAMESPACE.to_owned(), pool.to_owned())];
        let mut conditions = pool["status"]["conditions"].as_array().into_iter().flatten();
        let condition = conditions.find(|condition| condition["type"] == type_).unwrap();
        assert_eq!(condition["observedGeneration"], pool["metadata"]["generation"]);
        let text = |key: &str| condition[key].as_str().unwrap().to_owned();
        format!("{} {}: {}", text("status"), text("reason"), text("message"))
    }

    pub(super) fn ready(&self, pool: &str) -> String {
        self.condition(pool, "Ready")
    }

    /// The pool labels of a node: hash and index.
    pub(super) fn labels(&self, node: &str) -> Vec<(String, String)> {
        let labels = self.nodes[node]["metadata"]["labels"].as_object().into_iter().flatten();
        labels
            .filter_map(|(key, value)| {
                let hash = key.strip_prefix(POOL_LABEL_PREFIX)?;
                Some((hash.to_owned(), value.as_str().unwrap().to_owned()))
            })
            .collect()
    }

    /// The taints of a node, each as `key=value:effect`.
    pub(super) fn taints(&self, node: &str) -> Vec<String> {
        let taints = self.nodes[node]["spec"]["taints"].as_array().into_iter().flatten();
        taints
            .map(|taint| {
                let text = |key: &str| taint[key].as_str().unwrap_or_default().to_owned();
                format!("{}={}:{}", text("key"), text("value"), text("effect"))
            })
            .collect()
    }

    /// The nodes that carry the label of a pool, by index.
    pub(super) fn labelled(&self, pool: &str) -> BTreeMap<u32, String> {
        let hash = self.hash(pool);
        let nodes = self.nodes.keys().flat_map(|node| {
            let labels = self.labels(node).into_iter();
            let own = labels.filter(|(of, _)| *of == hash);
            own.map(|(_, index)| (index.parse().unwrap(), node.clone())).collect::<Vec<_>>()
        });
        nodes.collect()
    }

    pub(super) fn exclusive_taint(&self, pool: &str) -> String {
        format!("{EXCLUSIVE_TAINT}={}:NoSchedule", self.hash(pool))
    }

    /// The reasons of the events about a pool.
    pub(super) fn event_reasons(&self, pool: &str) -> Vec<&'static str> {
        let own = self.events.iter().filter(|(of, _)| of == pool);
        own.map(|(_, event)| event.reason).collect()
    }

    /// How often objects of a kind were written since the last call for this kind.
    pub(super) fn take_count(&mut self, kind: Resource) -> usize {
        let count = self.writes.iter().filter(|(of, _)| *of == kind).count();
        self.writes.retain(|(of, _)| *of != kind);
        count
    }

    /// The nodes and pools without times and versions.
    pub(super) fn state(&self) -> Value {
        let mut state = json!([
            self.nodes.values().collect::<Vec<_>>(),
            self.pools.values().collect::<Vec<_>>()
        ]);
        remove_times(&mut state);
        state
    }
}

fn remove_times(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for key in ["timeAdded", "resourceVersion", "since", "lastTransitionTime"] {
                members.remove(key);
            }
            members.values_mut().for_each(remove_times);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_times),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn plan(view: &View, policy: &Policy, now: Timestamp) -> Plan {
    let plan = systems::streams::reconcile::plan(view, policy, now);
    let targets: BTreeSet<_> = plan.actions.iter().map(|action| &action.target).collect();
    assert_eq!(targets.len(), plan.actions.len(), "one action an object: {plan:#?}");
    plan
}

/// Checks what holds for each write: its kind, and that no member of a pool is released.
fn check(simulation: &Simulation, action: &Action) {
    let Action { target, write, confirmation, .. } = action;
    match write {
        Write::Status { .. } => assert_eq!(target.resource.kind, "HostPool"),
        Write::Patch(operations) => {
            assert_eq!(operations[0].path().as_str(), "/metadata/uid", "{operations:?}");
            let text = serde_json::to_string(operations).unwrap();
            let pools = simulation.store.all("HostPool").filter(|_| confirmation.is_some());
            for pool in pools {
                let of_pool = text.contains(&hash(pool["metadata"]["uid"].as_str().unwrap()));
                let lives = pool["metadata"]["deletionTimestamp"].is_null();
                let members = pool["status"]["members"].as_array().into_iter().flatten();
                let mut members = members.filter(|member| member["state"] != "Vacant");
                let named = members.any(|member| member["node"] == *target.name);
                assert!(!(of_pool && lives && named), "{} released: {pool:#}", target.name);
            }
        }
        Write::Create(_) | Write::Delete { .. } | Write::None => panic!("{write:?} of {target:?}"),
    }
}

fn in_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap().to_string()
}
