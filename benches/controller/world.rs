//! Clusters to plan on, without a control plane.

use anyhow::{Context as _, ensure};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use stowplan::testing::api;
use stowplan::testing::simulation::{CONTROLLER, CONTROLLER_ALONE, Event, Id, Simulation};
use stowplan::testing::systems;
use stowplan::testing::systems::plan::Plan;
use stowplan::testing::systems::policy::Policy;
use stowplan::testing::systems::streams::kinds::host_pool::{
    EXCLUSIVE_TAINT, POOL_LABEL_PREFIX, hash,
};
use stowplan::testing::view::View;

/// The namespace of every pool and pod.
const NAMESPACE: &str = "streams-apps";
/// The tag that every node carries and every pool asks for.
pub(crate) const TAG: &str = "bench";
/// How many members a pool has.
pub(crate) const SIZE: usize = 4;
/// One pool in so many is exclusive.
pub(crate) const EXCLUSIVE: usize = 4;

/// How large a cluster is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Extent {
    pub(crate) nodes: usize,
    pub(crate) pools: usize,
    pub(crate) pods: usize,
}

/// How much there is to do in a cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    /// Every pool has its members: nothing.
    Steady,
    /// No pool has been seen before: each needs all of its members.
    First,
    /// Every pool has lost a member, and every node is cordoned: no replacement is eligible.
    Short,
}

/// A cluster as the controller sees it, with its policy and the time.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) view: View,
    pub(crate) policy: Policy,
    pub(crate) now: Timestamp,
}

impl Scene {
    /// An empty cluster.
    pub(crate) fn new(policy: Policy, now: Timestamp) -> Self {
        Self { view: View::default(), policy, now }
    }

    /// The plan of all systems, as the controller makes it.
    pub(crate) fn plan(&self) -> Plan {
        systems::plan(&self.view, &self.policy, self.now)
    }
}

/// A cluster in this state; an error if the plan on it is not what the state implies.
pub(crate) fn scene(state: State, extent: Extent) -> anyhow::Result<Scene> {
    let mut policy = Policy::default();
    policy.host_pools.max_exclusive_nodes_per_namespace = u32::MAX;
    let mut world = World(Simulation::new(policy, "2026-01-01T00:00:00Z".parse()?));
    for index in 0..extent.nodes {
        world.0.store.put(node(&format!("node-{index}")));
    }
    for index in 0..extent.pools {
        world.pool(index);
    }
    if state != State::First {
        world.settle()?;
    }
    if state == State::Short {
        world.fall_short(extent.pools)?;
        world.settle()?;
    }
    for number in 0..extent.pods {
        world.add_pod(number, extent.pools);
    }
    // What the controller sees of it.
    let World(mut simulation) = world;
    simulation.catch_up(CONTROLLER);
    let (policy, now) = (simulation.policy.clone(), simulation.store.now);
    let scene = Scene { view: simulation.into_view(CONTROLLER), policy, now };
    let planned = scene.plan().actions.len();
    let wanted = if state == State::First { extent.pools } else { 0 };
    ensure!(planned == wanted, "{state:?}: planned {planned} actions instead of {wanted}");
    Ok(scene)
}

/// A node as the API server has it.
pub(crate) fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux", "streams.ibm.com/hostpool": TAG,
            },
        },
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "Hostname", "address": name}],
        },
    })
}

/// A cluster under construction.
struct World(Simulation);

impl World {
    fn pool(&mut self, index: usize) {
        let name = format!("pool-{index}");
        let now = self.0.store.now.to_string();
        self.0.store.put(json!({
            "apiVersion": api::VERSION, "kind": "HostPool",
            "metadata": {
                "name": name, "namespace": NAMESPACE, "uid": format!("uid-{name}"),
                "resourceVersion": "1", "generation": 1, "creationTimestamp": now,
            },
            "spec": spec(index),
        }));
    }

    /// Carries out plans until one is empty, as the controller does.
    fn settle(&mut self) -> anyhow::Result<()> {
        self.0.catch_up(CONTROLLER);
        let all = |_: &Simulation, events: &mut dyn Iterator<Item = Event>| events.next();
        self.0.run(CONTROLLER_ALONE, Timestamp::MAX, all).map_err(anyhow::Error::msg)
    }

    /// The first member of each pool is lost, as many nodes join, and every node is cordoned.
    fn fall_short(&mut self, pools: usize) -> anyhow::Result<()> {
        let lost: Vec<String> = (0..pools).filter_map(|pool| self.member(pool, 0)).collect();
        for (number, name) in lost.iter().enumerate() {
            // Two shared pools may share it.
            if self.0.store.remove(&Id::new("Node", "", name)).is_some() {
                self.0.store.put(node(&format!("late-{number}")));
            }
        }
        let nodes: Vec<Id> = self.0.store.all("Node").map(Id::of).collect();
        for node in nodes {
            let mut node = self.0.store.edit(&node).context("no such node")?;
            node["spec"]["unschedulable"] = json!(true);
        }
        Ok(())
    }

    /// The node that is a member of a pool, as far as it still is one.
    fn member(&self, pool: usize, index: usize) -> Option<String> {
        let id = Id::new("HostPool", NAMESPACE, &format!("pool-{pool}"));
        let members = self.0.store.get(&id)?["status"]["members"].as_array()?;
        let member = members.iter().find(|member| member["index"] == json!(index))?;
        let node = member["node"].as_str()?;
        (member["state"] != "Vacant").then(|| node.to_owned())
    }

    /// Adds a pod of a Streams job that asks for a pool; those of a member are in one colocation
    /// group. It is on the member's node where it has one, else waiting.
    fn add_pod(&mut self, number: usize, pools: usize) {
        let (pool, index) = (number % pools, number / pools % SIZE);
        let node = self.member(pool, index);
        let hash = hash(&format!("uid-pool-{pool}"));
        let status = match node {
            Some(_) => json!({"phase": "Running"}),
            None => json!({"phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "lastTransitionTime": self.0.store.now.to_string(),
            }]}),
        };
        let toleration = json!({
            "key": EXCLUSIVE_TAINT, "operator": "Equal", "value": hash, "effect": "NoSchedule",
        });
        let tolerations: Vec<_> = is_exclusive(pool).then_some(toleration).into_iter().collect();
        let is_pool = json!({"key": format!("{POOL_LABEL_PREFIX}{hash}"), "operator": "Exists"});
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": [is_pool]}]});
        self.0.show(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("pod-{number}"), "namespace": NAMESPACE,
                "uid": format!("uid-pod-{number}"), "resourceVersion": "1",
                "labels": {
                    "app": "streams", "streams.ibm.com/job": format!("job-{pool}"),
                    "streams.ibm.com/pe": number.to_string(),
                    "stowplan.dev/colocation-group": format!("{pool}-{index}"),
                },
            },
            "spec": {
                "nodeName": node, "containers": [], "tolerations": tolerations,
                "affinity": {"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": required,
                }},
            },
            "status": status,
        }));
    }
}

/// Whether the pool of this number is exclusive.
pub(crate) fn is_exclusive(pool: usize) -> bool {
    pool.is_multiple_of(EXCLUSIVE)
}

/// The spec of the pool of this number, here and on the control plane.
pub(crate) fn spec(pool: usize) -> Value {
    let exclusivity = if is_exclusive(pool) { "Exclusive" } else { "Shared" };
    json!({"size": SIZE, "tags": [TAG], "exclusivity": exclusivity})
}
