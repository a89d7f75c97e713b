//! Clusters to plan on, without a control plane.

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use stowplan_core::api;
use stowplan_core::simulation::{CONTROLLER, CONTROLLER_ALONE, Event, Id, Simulation};
use stowplan_core::systems::policy::Policy;
use stowplan_core::systems::streams::kinds::host_pool::{EXCLUSIVE_TAINT, POOL_LABEL_PREFIX, hash};

use crate::objects::{Scene, node};

/// The namespace of every pool and pod.
const NAMESPACE: &str = "streams-apps";
/// The tag that every node carries, by its label, and every pool asks for.
pub(crate) const TAG: &str = "bench";
pub(crate) const TAG_LABEL: &str = "streams.ibm.com/hostpool";
/// How many members a pool has.
pub(crate) const SIZE: usize = 4;
/// One pool in so many is exclusive.
pub(crate) const EXCLUSIVE: usize = 4;

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

/// A cluster of so many nodes, pools and pods in this state; an error if the plan on it is not what the
/// state implies.
pub(crate) fn scene(state: State, sizes: &[usize]) -> anyhow::Result<Scene> {
    let [nodes, pools, pods] = sizes[..] else { bail!("NODES POOLS PODS") };
    let mut policy = Policy::default();
    policy.host_pools.max_exclusive_nodes_per_namespace = u32::MAX;
    let mut simulation = Simulation::new(policy, "2026-01-01T00:00:00Z".parse()?);
    for index in 0..nodes {
        simulation.store.put(node(&format!("node-{index}"), TAG_LABEL, TAG));
    }
    for index in 0..pools {
        let name = format!("pool-{index}");
        let now = simulation.store.timestamp();
        simulation.store.put(json!({
            "apiVersion": api::VERSION, "kind": "HostPool",
            "metadata": {
                "name": name, "namespace": NAMESPACE, "uid": format!("uid-{name}"),
                "resourceVersion": "1", "generation": 1, "creationTimestamp": now,
            },
            "spec": spec(index),
        }));
    }
    if state != State::First {
        settle(&mut simulation)?;
    }
    if state == State::Short {
        fall_short(&mut simulation, pools)?;
        settle(&mut simulation)?;
    }
    for number in 0..pods {
        add_pod(&mut simulation, number, pools);
    }
    // What the controller sees of it.
    simulation.catch_up(CONTROLLER);
    let (policy, now) = (simulation.policy.clone(), simulation.store.now);
    let scene = Scene { view: simulation.into_view(CONTROLLER), policy, now };
    let planned = scene.plan().actions.len();
    let wanted = if state == State::First { pools } else { 0 };
    ensure!(planned == wanted, "{state:?}: planned {planned} actions instead of {wanted}");
    Ok(scene)
}

/// Carries out plans until one is empty, as the controller does.
fn settle(simulation: &mut Simulation) -> anyhow::Result<()> {
    simulation.catch_up(CONTROLLER);
    let all = |_: &Simulation, events: &mut dyn Iterator<Item = Event>| events.next();
    simulation.run(CONTROLLER_ALONE, Timestamp::MAX, all).map_err(anyhow::Error::msg)
}

/// The first member of each pool is lost, as many nodes join, and every node is cordoned.
fn fall_short(simulation: &mut Simulation, pools: usize) -> anyhow::Result<()> {
    let lost: Vec<String> = (0..pools).filter_map(|pool| member(simulation, pool, 0)).collect();
    for (number, name) in lost.iter().enumerate() {
        // Two shared pools may share it.
        if simulation.store.remove(&Id::new("Node", "", name)).is_some() {
            simulation.store.put(node(&format!("late-{number}"), TAG_LABEL, TAG));
        }
    }
    let nodes: Vec<Id> = simulation.store.all("Node").map(Id::of).collect();
    for node in nodes {
        let mut node = simulation.store.edit(&node).context("no such node")?;
        node["spec"]["unschedulable"] = json!(true);
    }
    Ok(())
}

/// The node that is a member of a pool, as far as it still is one.
fn member(simulation: &Simulation, pool: usize, index: usize) -> Option<String> {
    let id = Id::new("HostPool", NAMESPACE, &format!("pool-{pool}"));
    let members = simulation.store.get(&id)?["status"]["members"].as_array()?;
    let member = members.iter().find(|member| member["index"] == json!(index))?;
    let node = member["node"].as_str()?;
    (member["state"] != "Vacant").then(|| node.to_owned())
}

/// Adds a pod of a Streams job that asks for a pool; those of a member are in one colocation
/// group. It is on the member's node where it has one, else waiting.
fn add_pod(simulation: &mut Simulation, number: usize, pools: usize) {
    let (pool, index) = (number % pools, number / pools % SIZE);
    let node = member(simulation, pool, index);
    let hash = hash(&format!("uid-pool-{pool}"));
    let status = match node {
        Some(_) => json!({"phase": "Running"}),
        None => json!({"phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "lastTransitionTime": simulation.store.now.to_string(),
        }]}),
    };
    let toleration = json!({
        "key": EXCLUSIVE_TAINT, "operator": "Equal", "value": hash, "effect": "NoSchedule",
    });
    let tolerations: Vec<_> = is_exclusive(pool).then_some(toleration).into_iter().collect();
    let is_pool = json!({"key": format!("{POOL_LABEL_PREFIX}{hash}"), "operator": "Exists"});
    let required = json!({"nodeSelectorTerms": [{"matchExpressions": [is_pool]}]});
    simulation.show(&json!({
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

/// Returns true if the pool of this number is exclusive.
pub(crate) fn is_exclusive(pool: usize) -> bool {
    pool.is_multiple_of(EXCLUSIVE)
}

/// The spec of the pool of this number, here and on the control plane.
pub(crate) fn spec(pool: usize) -> Value {
    let exclusivity = if is_exclusive(pool) { "Exclusive" } else { "Shared" };
    json!({"size": SIZE, "tags": [TAG], "exclusivity": exclusivity})
}
