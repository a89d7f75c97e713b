//! A namespace with nodes of its own, the reports about them, and what the tests see of pods.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use testbed::control_plane::{Install, NodeSpec};
use testbed::katalyst::{Zone, consumer};

use crate::world::{Space, World, node, pod, settled};

pub(crate) const AFFINITY: &str = "katalyst.kubewharf.io/microtopology_affinity";
pub(crate) const ANTI_AFFINITY: &str = "katalyst.kubewharf.io/microtopology_antiaffinity";
pub(crate) const LEADER_OF: &str = "katalyst.stowplan.dev/leader-of";
pub(crate) const LET_GO: &str = "katalyst.stowplan.dev/let-go";
pub(crate) const NUMA_ZONES: &str = "stowplan.dev/numa-zones";

/// The taint of the nodes of one test, which keeps other pods off them.
const TAINT: &str = "test";

/// The NUMA nodes of a small machine: two sockets with one each.
pub(crate) const EMPTY: &[(usize, usize, &[&Pod])] = &[(0, 0, &[]), (1, 1, &[])];

/// The NUMA nodes of a larger one: two sockets with two each.
pub(crate) const FOUR: &[(usize, usize, &[&Pod])] =
    &[(0, 0, &[]), (0, 1, &[]), (1, 2, &[]), (1, 3, &[])];

/// The policy of the cases. The annotations that it is about are on no other pod.
pub(crate) fn enforced(install: Install) -> Install {
    install
        .value("policy.katalyst.mode", "enforced")
        .value("policy.katalyst.declaredLabels", "{role,app}")
}

/// An annotation that selects a role in a zone.
pub(crate) fn selector(role: &str, zone: &str) -> String {
    format!(r#"{{"required":[{{"matchLabels":{{"role":"{role}"}},"zone":"{zone}"}}]}}"#)
}

pub(crate) fn is_gated(pod: &Pod) -> bool {
    crate::world::is_gated(pod, "stowplan.dev/numa-feasible")
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
        let spec = |node: &String| {
            let spec = NodeSpec::new(node).label("test", &space.name);
            spec.taint(TAINT, &space.name, "NoSchedule")
        };
        world.plane.add_nodes(&nodes.iter().map(spec).collect::<Vec<_>>()).await?;
        Ok(Self { space, nodes })
    }

    /// The same; these NUMA nodes are reported about each, and the labels say so.
    pub(crate) async fn reported(
        world: &Arc<World>,
        hint: &str,
        count: usize,
        zones: &[(usize, usize, &[&Pod])],
    ) -> Result<Self> {
        let rig = Self::start(world, hint, count).await?;
        for index in 0..count {
            rig.report(index, zones).await?;
            rig.labelled(index, Some(&zones.len().to_string())).await?;
        }
        Ok(rig)
    }

    /// The value of the label `role`, which no other test has.
    pub(crate) fn role(&self, role: &str) -> String {
        format!("{role}.{}", self.space.name)
    }

    /// A pod that Katalyst binds to a NUMA node. `near` and `avoids`: roles.
    pub(crate) fn pod(&self, name: &str, role: &str, near: &[&str], avoids: &[&str]) -> Value {
        let mut annotations = json!({
            "katalyst.kubewharf.io/qos_level": "dedicated_cores",
            "katalyst.kubewharf.io/memory_enhancement": r#"{"numa_binding":"true"}"#,
        });
        for (key, roles) in [(AFFINITY, near), (ANTI_AFFINITY, avoids)] {
            if let Some(role) = roles.first() {
                annotations[key] = json!(selector(&self.role(role), "numa"));
            }
        }
        pod(
            name,
            &json!({
                "metadata": {"labels": {"role": self.role(role)}, "annotations": annotations},
                "spec": {
                    "nodeSelector": {"test": self.space.name}, "terminationGracePeriodSeconds": 0,
                    "tolerations": [{"key": TAINT, "operator": "Exists"}],
                },
            }),
        )
    }

    /// Creates such a pod, which must be gated.
    pub(crate) async fn create_gated(&self, pod: Value) -> Result<()> {
        let pod = self.space.pod(&pod).await?;
        ensure!(is_gated(&pod), "it is not gated: {:?}", pod.spec);
        Ok(())
    }

    /// Reports the NUMA nodes of a node: socket, number and pods of each.
    pub(crate) async fn report(
        &self,
        index: usize,
        zones: &[(usize, usize, &[&Pod])],
    ) -> Result<()> {
        let zones: Vec<Zone> = zones
            .iter()
            .map(|&(socket, number, pods)| {
                let consumers = pods.iter().map(|pod| consumer(pod)).collect();
                Zone { socket, number, consumers }
            })
            .collect();
        testbed::katalyst::report(&self.space.world.client, &self.nodes[index], &zones).await
    }

    /// Deletes the report about a node.
    pub(crate) async fn withdraw(&self, index: usize) -> Result<()> {
        testbed::katalyst::withdraw(&self.space.world.client, &self.nodes[index]).await
    }

    /// Deletes all reports.
    pub(crate) async fn cleared(&self) -> Result<()> {
        for index in 0..self.nodes.len() {
            self.withdraw(index).await?;
        }
        Ok(())
    }

    /// Waits until the label of a node has this value.
    pub(crate) async fn labelled(&self, index: usize, wanted: Option<&str>) -> Result<()> {
        let node = &self.nodes[index];
        let label = async || Ok(self.space.world.plane.node_labels(node).await?.remove(NUMA_ZONES));
        let what = format!("the label of {node} to be {wanted:?}");
        settled(&what, label, |value| value.as_deref() == wanted).await.map(drop)
    }

    /// Waits until a pod has no gate.
    pub(crate) async fn let_go(&self, name: &str) -> Result<Pod> {
        let waiting = async || self.is_waiting(name).await;
        settled(&format!("whether {name} is gated"), waiting, |gated| !gated).await?;
        Ok(self.space.pods().get(name).await?)
    }

    /// Waits until a pod runs; returns it with its node.
    pub(crate) async fn runs(&self, name: &str) -> Result<(Pod, String)> {
        let pod = self.space.in_phase(name, "Running").await?;
        let node = node(&pod).context("it has no node")?;
        Ok((pod, node))
    }

    /// Waits until these pods run, all on one node.
    pub(crate) async fn run_on(&self, names: &[&str], index: usize) -> Result<()> {
        for name in names {
            let node = self.runs(name).await?.1;
            ensure!(node == self.nodes[index], "{name} is on {node}");
        }
        Ok(())
    }

    pub(crate) async fn is_waiting(&self, name: &str) -> Result<bool> {
        Ok(is_gated(&self.space.pods().get(name).await?))
    }

    /// Waits for an event with this reason about a pod; returns its note.
    pub(crate) async fn event(&self, reason: &str, name: &str) -> Result<String> {
        self.space.event(&format!("Pod/{name} "), reason).await
    }
}
