//! Pools in the simulated cluster, without the other programs of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::api;
use crate::simulation::{self, CONTROLLER, CONTROLLER_ALONE, Id, Outcome, Simulation};
use crate::systems;
use crate::systems::View;
use crate::systems::plan::{Action, Plan, Write};
use crate::systems::policy::Policy;
use crate::systems::streams::keys::{EXCLUSIVE_TAINT, POOL_LABEL_PREFIX};
use crate::systems::streams::kinds::host_pool::hash;
use crate::systems::test_objects::node;
pub(super) use simulation::{Pace, patch};

/// The key of the label of a pool.
pub(super) fn pool_label(hash: &str) -> String {
    format!("{POOL_LABEL_PREFIX}{hash}")
}

#[derive(Debug)]
pub(super) struct World {
    simulation: Simulation,
    /// How many objects were created.
    created: i64,
}

impl Deref for World {
    type Target = Simulation;

    fn deref(&self) -> &Simulation {
        &self.simulation
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Simulation {
        &mut self.simulation
    }
}

impl World {
    /// A cluster with nodes of these names, all eligible.
    pub(super) fn new(nodes: &[&str]) -> Self {
        let now = "2026-01-01T00:00:00.25Z".parse().unwrap();
        let simulation = Simulation::new(Policy::default(), now).with_planner(plan);
        let mut world = Self { simulation, created: 0 };
        nodes.iter().for_each(|name| _ = world.node(name, json!({})));
        world
    }

    /// A cluster with this many nodes: `n00`, `n01` and so on.
    pub(super) fn sized(count: usize) -> Self {
        let names: Vec<String> = (0..count).map(|n| format!("n{n:02}")).collect();
        Self::new(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Creates an object, a second after the one before, and replaces one of its name.
    pub(super) fn create(&mut self, document: Value) -> &mut Self {
        let id = Id::of(&document);
        self.created += 1;
        let created = (self.store.now + SignedDuration::from_secs(self.created)).as_second();
        self.store.remove(&id);
        self.store.create(document).unwrap();
        let created = Timestamp::from_second(created).unwrap().to_string();
        self.store.edit(&id).unwrap()["metadata"]["creationTimestamp"] = json!(created);
        self
    }

    /// Deletes all objects of a kind.
    pub(super) fn clear(&mut self, kind: &str) -> &mut Self {
        self.names(kind).iter().for_each(|name| self.take(kind, name));
        self
    }

    pub(super) fn delete_nodes(&mut self, names: &[&str]) -> &mut Self {
        names.iter().for_each(|name| self.take("Node", name));
        self
    }

    /// Creates an eligible node, changed by the merge patch `with` (RFC 7396).
    pub(super) fn node(&mut self, name: &str, with: Value) -> &mut Self {
        let addresses = json!([{"type": "Hostname", "address": name}]);
        let mut node = node(name, &json!({"status": {"addresses": addresses}}));
        json_patch::merge(&mut node, &with);
        self.create(node)
    }

    /// Changes a node by a merge patch (RFC 7396).
    pub(super) fn change_node(&mut self, name: &str, with: Value) -> &mut Self {
        self.merge("Node", name, &with);
        self
    }

    pub(super) fn pool(&mut self, name: &str, spec: Value) -> &mut Self {
        self.pool_in("ns", name, spec)
    }

    pub(super) fn pool_in(&mut self, namespace: &str, name: &str, spec: Value) -> &mut Self {
        let metadata = json!({"name": name, "namespace": namespace});
        let pool = json!({"apiVersion": api::VERSION, "kind": "HostPool", "metadata": metadata, "spec": spec});
        self.create(pool)
    }

    /// Creates the namespace `ns` with this label `team`.
    pub(super) fn namespace(&mut self, team: &str) -> &mut Self {
        let metadata = json!({"name": "ns", "labels": {"team": team}});
        self.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
    }

    pub(super) fn document(&self, pool: &str) -> &Value {
        let found = self.all("HostPool").find(|of| of["metadata"]["name"] == pool);
        found.unwrap_or_else(|| panic!("no HostPool {pool}: {:?}", self.names("HostPool")))
    }

    pub(super) fn grow(&mut self, pool: &str, size: u32) -> &mut Self {
        let mut pool = self.edit("HostPool", pool);
        pool["spec"]["size"] = json!(size);
        pool["metadata"]["generation"] =
            json!(pool["metadata"]["generation"].as_i64().unwrap() + 1);
        drop(pool);
        self
    }

    pub(super) fn delete_pool(&mut self, pool: &str) -> &mut Self {
        self.take("HostPool", pool);
        self
    }

    /// A Streams pod on `node` that asks for nothing.
    pub(super) fn pod(&mut self, name: &str, node: &str) -> &mut Self {
        let labels = json!({"app": "streams", "streams.ibm.com/job": "other"});
        self.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "ns", "labels": labels},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Running"},
        }))
    }

    /// A Streams pod on `node` that asks for a pool, or for one member of it.
    pub(super) fn pod_of(
        &mut self,
        name: &str,
        node: &str,
        pool: &str,
        index: Option<u32>,
    ) -> &mut Self {
        let hash = self.hash(pool);
        let key = pool_label(&hash);
        let requirement = match index {
            None => json!({"key": key, "operator": "Exists"}),
            Some(index) => json!({"key": key, "operator": "In", "values": [index.to_string()]}),
        };
        let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [requirement]}]});
        let toleration = json!({"key": EXCLUSIVE_TAINT, "operator": "Equal", "value": hash, "effect": "NoSchedule"});
        let with = json!({"spec": {
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            "tolerations": [toleration],
        }});
        self.pod(name, node).change_pod(name, with)
    }

    /// Changes a pod by a merge patch (RFC 7396).
    pub(super) fn change_pod(&mut self, pod: &str, with: Value) -> &mut Self {
        self.merge("Pod", pod, &with);
        self
    }

    /// Replaces a pod by an equal one of another namespace, changed by `with`.
    pub(super) fn move_pod(&mut self, pod: &str, namespace: &str, with: &Value) -> &mut Self {
        let mut document = self.store.remove(&Id::new("Pod", "ns", pod)).unwrap();
        json_patch::merge(&mut document, with);
        document["metadata"]["namespace"] = json!(namespace);
        document["metadata"]["uid"] = json!(format!("{namespace}-{pod}"));
        self.store.put(document);
        self
    }

    pub(super) fn hash(&self, pool: &str) -> String {
        hash(self.document(pool)["metadata"]["uid"].as_str().unwrap())
    }

    /// Ends the world. Returns what the controller sees.
    pub(super) fn into_view(mut self) -> View {
        self.catch_up(CONTROLLER);
        self.simulation.into_view(CONTROLLER)
    }

    /// Plans and acts until a plan is empty; time advances only to the `recheck_at` of a plan.
    pub(super) fn settle(&mut self) -> &mut Self {
        self.settle_at(Pace::All)
    }

    pub(super) fn settle_at(&mut self, pace: Pace) -> &mut Self {
        let rest = self.simulation.run(CONTROLLER_ALONE, Timestamp::MAX, |simulation, events| {
            let event = pace.choose(simulation, events)?;
            if let simulation::Event::Write(at) = event {
                check(simulation, &simulation.actions()[at]);
            }
            Some(event)
        });
        assert_eq!(rest, Ok(()));
        self.check_results();
        self
    }

    /// Carries out one action.
    pub(super) fn act(&mut self, action: Action) -> &mut Self {
        check(&self.simulation, &action);
        self.carry_out(action);
        self.check_results();
        self
    }

    /// Checks that all writes were carried out, and that no node has two taints of one key and effect.
    fn check_results(&self) {
        for written in &self.writes {
            assert_eq!(written.outcome, Outcome::Done, "{written:?}");
        }
        for node in self.all("Node") {
            let mut seen = BTreeSet::new();
            for taint in node["spec"]["taints"].as_array().into_iter().flatten() {
                let unique = seen.insert((taint["key"].to_string(), taint["effect"].to_string()));
                assert!(unique, "two taints of one key and effect: {node:#}");
            }
        }
    }

    /// A condition of a pool, as `False InsufficientNodes: needs …`.
    pub(super) fn condition(&self, pool: &str, type_: &str) -> String {
        let pool = self.document(pool);
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
        let labels = self.get("Node", node)["metadata"]["labels"].as_object().into_iter().flatten();
        labels
            .filter_map(|(key, value)| {
                let hash = key.strip_prefix(POOL_LABEL_PREFIX)?;
                Some((hash.to_owned(), value.as_str().unwrap().to_owned()))
            })
            .collect()
    }

    /// The taints of a node, each as `key=value:effect`.
    pub(super) fn taints(&self, node: &str) -> Vec<String> {
        let taints = self.get("Node", node)["spec"]["taints"].as_array().into_iter().flatten();
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
        let nodes = self.names("Node").into_iter().flat_map(|node| {
            let labels = self.labels(&node).into_iter();
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
        let own = self.events.iter().filter(|(of, _)| *of.name == *pool);
        own.map(|(_, event)| event.reason).collect()
    }

    /// Each node with its labels of pools and its taints.
    pub(super) fn marks(&self) -> Vec<String> {
        let nodes = self.names("Node").into_iter();
        nodes
            .map(|node| format!("{node} {:?} {:?}", self.labels(&node), self.taints(&node)))
            .collect()
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
        _ => panic!("{write:?} of {target:?}"),
    }
}
