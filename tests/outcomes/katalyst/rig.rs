//! A namespace with nodes of its own, the reports about them, and what the tests see of pods.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use testbed::control_plane::{Install, NodeSpec};
use testbed::katalyst::{Zone, consumer};
use testbed::wait::{Seen, until};

use crate::world::{Space, World};

/// How long anything may take: the machine has two cores, and other tests run at once.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

pub(crate) const AFFINITY: &str = "katalyst.kubewharf.io/microtopology_affinity";
pub(crate) const ANTI_AFFINITY: &str = "katalyst.kubewharf.io/microtopology_antiaffinity";
pub(crate) const LEADER_OF: &str = "katalyst.stowplan.dev/leader-of";
pub(crate) const LET_GO: &str = "katalyst.stowplan.dev/let-go";
pub(crate) const NUMA_ZONES: &str = "stowplan.dev/numa-zones";

/// The taint of the nodes of one test, which keeps the pods of `examples/` off them.
const TAINT: &str = "test";

/// The NUMA nodes of a small machine: two sockets with one each.
pub(crate) const EMPTY: &[(usize, usize, &[&Pod])] = &[(0, 0, &[]), (1, 1, &[])];

/// The policy of the cases. The annotations that it is about are on no other pod.
pub(crate) fn enforced(install: Install) -> Install {
    install
        .value("policy.katalyst.mode", "enforced")
        .value("policy.katalyst.declaredLabels", "{role,app}")
}

async fn report(world: &World, node: &str, zones: &[(usize, usize, &[&Pod])]) -> Result<()> {
    let zones: Vec<Zone> = zones
        .iter()
        .map(|(socket, number, pods)| Zone {
            socket: *socket,
            number: *number,
            consumers: pods.iter().map(|pod| consumer(pod)).collect(),
        })
        .collect();
    testbed::katalyst::report(&world.client, node, &zones).await
}

/// An annotation that selects a role in a zone.
pub(crate) fn selector(role: &str, zone: &str) -> String {
    format!(r#"{{"required":[{{"matchLabels":{{"role":"{role}"}},"zone":"{zone}"}}]}}"#)
}

fn pod_of(test: &str, name: &str, role: &str, annotations: &[(&str, &str)]) -> Value {
    let mut all = json!({
        "katalyst.kubewharf.io/qos_level": "dedicated_cores",
        "katalyst.kubewharf.io/memory_enhancement": r#"{"numa_binding":"true"}"#,
    });
    for (key, value) in annotations {
        all[*key] = json!(value);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"role": role}, "annotations": all},
        "spec": {
            "containers": [{"name": "main", "image": "train"}],
            "nodeSelector": {"test": test}, "terminationGracePeriodSeconds": 0,
            "tolerations": [{"key": TAINT, "operator": "Exists"}],
        },
    })
}

pub(crate) fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.name == "stowplan.dev/numa-feasible")
}

pub(crate) fn annotation<'p>(pod: &'p Pod, key: &str) -> Option<&'p str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// A namespace of a test, and its nodes.
pub(crate) struct Rig {
    pub(crate) space: Space,
    /// Their names.
    pub(crate) nodes: Vec<String>,
}

impl Rig {
    /// Makes the namespace and this many nodes; nothing is reported about them.
    pub(crate) async fn start(world: &Arc<World>, hint: &str, count: usize) -> Result<Self> {
        let space = world.namespace(hint).await?;
        let nodes: Vec<String> =
            (0..count).map(|index| format!("{}-{index}", space.name)).collect();
        let specs: Vec<NodeSpec> = nodes
            .iter()
            .map(|node| {
                let spec = NodeSpec::new(node).label("test", &space.name);
                spec.taint(TAINT, &space.name, "NoSchedule")
            })
            .collect();
        world.plane.add_nodes(&specs).await?;
        Ok(Self { space, nodes })
    }

    /// The value of the label `role`, which no other test has.
    pub(crate) fn role(&self, role: &str) -> String {
        format!("{role}.{}", self.space.name)
    }

    /// A pod that Katalyst binds to a NUMA node. `near` and `avoids`: roles.
    pub(crate) fn pod(&self, name: &str, role: &str, near: &[&str], avoids: &[&str]) -> Value {
        let of_key = |key, roles: &[&str]| {
            let role = roles.first()?;
            Some((key, selector(&self.role(role), "numa")))
        };
        let all = [of_key(AFFINITY, near), of_key(ANTI_AFFINITY, avoids)];
        let all: Vec<(&str, String)> = all.into_iter().flatten().collect();
        let all: Vec<(&str, &str)> = all.iter().map(|(key, value)| (*key, &**value)).collect();
        pod_of(&self.space.name, name, &self.role(role), &all)
    }

    /// Creates such a pod.
    pub(crate) async fn create(
        &self,
        name: &str,
        role: &str,
        near: &[&str],
        avoids: &[&str],
    ) -> Result<Pod> {
        self.space.pod(&self.pod(name, role, near, avoids)).await
    }

    /// Creates such a pod, which must be gated.
    pub(crate) async fn create_gated(
        &self,
        name: &str,
        role: &str,
        near: &[&str],
        avoids: &[&str],
    ) -> Result<Pod> {
        let pod = self.create(name, role, near, avoids).await?;
        ensure!(is_gated(&pod), "{name} is not gated: {:?}", pod.spec);
        Ok(pod)
    }

    /// Reports the NUMA nodes of a node: socket, number and pods of each.
    pub(crate) async fn report(
        &self,
        index: usize,
        zones: &[(usize, usize, &[&Pod])],
    ) -> Result<()> {
        report(&self.space.world, &self.nodes[index], zones).await
    }

    /// Deletes the report about a node.
    pub(crate) async fn withdraw(&self, index: usize) -> Result<()> {
        testbed::katalyst::withdraw(&self.space.world.client, &self.nodes[index]).await
    }

    /// Waits until the label of a node has this value.
    pub(crate) async fn labelled(&self, index: usize, wanted: Option<&str>) -> Result<()> {
        let node = &self.nodes[index];
        until(&format!("the label of {node} to be {wanted:?}"), LIMIT, async || {
            let labels = self.space.world.plane.node_labels(node).await?;
            let value = labels.get(NUMA_ZONES).map(String::as_str);
            Ok(if value == wanted { Seen::Done(()) } else { Seen::NotYet(format!("{value:?}")) })
        })
        .await
    }

    /// Waits until a pod has no gate.
    pub(crate) async fn let_go(&self, name: &str) -> Result<Pod> {
        until(&format!("the gate of {name} to be removed"), LIMIT, async || {
            let pod = self.space.pods().get(name).await?;
            Ok(if is_gated(&pod) {
                Seen::NotYet("it is gated".to_owned())
            } else {
                Seen::Done(pod)
            })
        })
        .await
    }

    /// Waits until a pod runs; returns it with its node.
    pub(crate) async fn runs(&self, name: &str) -> Result<(Pod, String)> {
        until(&format!("{name} to run"), LIMIT, async || {
            let pod = self.space.pods().get(name).await?;
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
            Ok(match (node, phase.as_deref()) {
                (Some(node), Some("Running")) => Seen::Done((pod, node)),
                (node, phase) => Seen::NotYet(format!("{phase:?} on {node:?}")),
            })
        })
        .await
    }

    pub(crate) async fn is_waiting(&self, name: &str) -> Result<bool> {
        Ok(is_gated(&self.space.pods().get(name).await?))
    }

    /// Waits for an event with this reason about an object; returns its note.
    pub(crate) async fn event(&self, reason: &str, name: &str) -> Result<String> {
        let events: Api<Event> = Api::all(self.space.world.client.clone());
        until(&format!("an event {reason} about {name}"), LIMIT, async || {
            let all = events.list(&ListParams::default()).await?.items;
            let about = |event: &&Event| {
                let object = event.regarding.as_ref();
                let is_here = event.metadata.namespace.as_deref() == Some(&self.space.name)
                    || object.and_then(|of| of.kind.as_deref()) == Some("Node");
                is_here && object.and_then(|of| of.name.as_deref()) == Some(name)
            };
            let mut about = all.iter().filter(about);
            let found = about.clone().find(|event| event.reason.as_deref() == Some(reason));
            Ok(match found {
                Some(event) => Seen::Done(event.note.clone().context("an event without a note")?),
                None => {
                    let notes: Vec<_> = about.by_ref().filter_map(|of| of.note.clone()).collect();
                    Seen::NotYet(format!("{notes:?}"))
                }
            })
        })
        .await
    }
}

/// Fails unless the text has all of these parts.
pub(crate) fn has(text: &str, parts: &[&str]) -> Result<()> {
    for part in parts {
        ensure!(text.contains(part), "no {part:?} in: {text}");
    }
    Ok(())
}
