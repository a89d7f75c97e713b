//! Machines with NUMA nodes to plan on: four each, with a pod on each of them, and pods that wait for one.

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use stowplan::testing::systems::policy::Policy;

use crate::objects::show;
use crate::world::Scene;

const NAMESPACE: &str = "numa";

/// What the pods wait for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    /// No pod waits: nothing to do.
    Steady,
    /// Ten workloads wait for NUMA nodes that none of the pods there lets them have.
    Wait,
    /// Each pod can start.
    Start,
}

/// So many machines and pods in this state; an error if the plan on them is not what the state implies.
pub(crate) fn scene(state: State, nodes: usize, pods: usize) -> anyhow::Result<Scene> {
    let now = "2026-01-01T00:05:00Z".parse()?;
    let policy = Policy::from_yaml("katalyst: {mode: enforced, declaredLabels: [role, app]}")
        .map_err(anyhow::Error::msg)?;
    let mut scene = Scene::new(policy, now);
    for node in 0..nodes {
        add_machine(&mut scene, node)?;
    }
    let waiting = if state == State::Steady { 0 } else { pods };
    for pod in 0..waiting {
        let avoided = if state == State::Wait { "server" } else { "nothing" };
        let selector = json!({"matchLabels": {"role": avoided}, "zone": "numa"});
        let app = pod % 10;
        let mut document = bound_pod(&format!("waiting-{pod}"), "worker");
        document["metadata"]["labels"]["app"] = json!(format!("app-{app}"));
        document["metadata"]["annotations"]["katalyst.kubewharf.io/microtopology_antiaffinity"] =
            json!({"required": [selector]}).to_string().into();
        document["spec"]["schedulingGates"] = json!([{"name": "stowplan.dev/numa-feasible"}]);
        scene.show::<Pod>(&document)?;
    }
    let planned = scene.plan().actions.len();
    ensure!(planned == waiting, "{state:?}: planned {planned} actions instead of {waiting}");
    Ok(scene)
}

fn bound_pod(name: &str, role: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"role": role},
            "annotations": {
                "katalyst.kubewharf.io/qos_level": "dedicated_cores",
                "katalyst.kubewharf.io/memory_enhancement": "{\"numa_binding\":\"true\"}",
            }},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

/// A machine with two sockets of two NUMA nodes, and a server on each NUMA node.
fn add_machine(scene: &mut Scene, number: usize) -> anyhow::Result<()> {
    let node = format!("node-{number}");
    scene.show::<Node>(&json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node, "uid": node,
            "labels": {"kubernetes.io/hostname": node, "stowplan.dev/numa-zones": "4"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))?;
    let mut sockets = Vec::new();
    for socket in 0..2 {
        let mut zones = Vec::new();
        for zone in [2 * socket, 2 * socket + 1] {
            let name = format!("server-{number}-{zone}");
            let mut pod = bound_pod(&name, "server");
            pod["spec"]["nodeName"] = node.as_str().into();
            scene.show::<Pod>(&pod)?;
            let consumer = format!("{NAMESPACE}/{name}/{name}");
            zones.push(json!({"type": "Numa", "name": zone.to_string(),
                "allocations": [{"consumer": consumer, "requests": {"cpu": "4"}}]}));
        }
        sockets.push(json!({"type": "Socket", "name": socket.to_string(), "children": zones}));
    }
    let report = json!({
        "apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource",
        "metadata": {"name": node, "uid": node}, "status": {"topologyZone": sockets},
    });
    show(&mut scene.view, &report)
}
