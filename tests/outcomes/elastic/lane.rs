//! The nodes of one case: those that are there at the start, and those that Karpenter makes.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testbed::control_plane::NodeSpec;
use testbed::karpenter::{POOL, node_pool};
use testbed::volumes::WAITING;

use crate::coschedule::group::PLACEHOLDER;
use crate::coschedule::pipeline::{lasting, task, template};
use crate::world::{Space, World, node, pod, requesting};

/// The label of the nodes of a lane by which HostPools find them; its value is the lane's name.
const TAG: &str = "streams.ibm.com/hostpool";

/// A namespace whose pods select nodes of their own, with the name of the case.
pub(crate) struct Lane {
    pub(crate) space: Space,
    name: String,
}

impl Lane {
    /// Makes a namespace, and a node of two CPUs for each item of `free`, which says how many thousandths of
    /// them are free: `base-<name>-0` and so on, in `zone-a` and `zone-b` by turns. Karpenter removes a node
    /// that is of little use for `after`.
    pub(crate) async fn new(
        world: &Arc<World>,
        name: &str,
        free: &[u32],
        after: &str,
    ) -> Result<Self> {
        let space = world.namespace(name).await?;
        node_pool(&world.plane, name, &[(TAG, name)], after)?;
        let lane = Self { space, name: name.to_owned() };
        let spec = |index: usize| {
            let zone = ["zone-a", "zone-b"][index % 2];
            let node = NodeSpec::new(&format!("base-{name}-{index}")).zone(zone).label(POOL, name);
            node.label(TAG, name).capacity("cpu", "2").capacity("memory", "4Gi")
        };
        let specs: Vec<_> = (0..free.len()).map(spec).collect();
        world.plane.add_nodes(&specs).await?;
        for (spec, free) in specs.iter().zip(free) {
            // On its node, past the scheduler.
            let more = json!({"spec": {"nodeName": spec.name}});
            let used = format!("{}m", 2000 - free);
            lane.space.pod(&requesting(pod(&format!("fill-{}", spec.name), &more), &used)).await?;
        }
        Ok(lane)
    }

    /// Returns a pod that requests so many CPUs, with this merged into it.
    pub(crate) fn pod(&self, name: &str, cpu: &str, more: &Value) -> Value {
        let mut pod = requesting(pod(name, more), cpu);
        pod["spec"]["nodeSelector"] = json!({POOL: self.name});
        pod
    }

    /// Returns a run of these tasks: a name, the CPUs that it requests, and how long it runs. Each comes
    /// after the one before, and all use one workspace.
    pub(crate) fn run(&self, name: &str, mode: &str, tasks: &[(&str, &str, &str)]) -> Value {
        let mut before: Vec<&str> = Vec::new();
        let tasks = tasks.iter().map(|&(name, cpu, lasts)| {
            let mut task = lasting(task(name, &before, &["source"]), lasts);
            task["taskSpec"]["steps"][0]["computeResources"] = json!({"requests": {"cpu": cpu}});
            before = vec![name];
            task
        });
        let tasks: Vec<_> = tasks.collect();
        json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
            "metadata": {"name": name, "annotations": {"stowplan.dev/coschedule": mode}},
            "spec": {
                "taskRunTemplate": {"podTemplate": {"nodeSelector": {POOL: self.name}}},
                "workspaces": [template("source", WAITING)],
                "pipelineSpec": {"workspaces": [{"name": "source"}], "tasks": tasks},
            },
        })
    }

    /// Returns the CPU seconds of the nodes that Karpenter has made, from their creation until now.
    pub(crate) async fn cpu_seconds(&self) -> Result<i64> {
        let now = Timestamp::now();
        let seconds = |node: &Node| {
            let cpu = node.status.as_ref()?.capacity.as_ref()?.get("cpu")?.0.as_str();
            let thousandths = match cpu.strip_suffix('m') {
                Some(thousandths) => thousandths.parse::<i64>().ok()?,
                None => cpu.parse::<i64>().ok()?.checked_mul(1000)?,
            };
            let age = now.duration_since(node.metadata.creation_timestamp.as_ref()?.0);
            Some(thousandths * age.as_secs() / 1000)
        };
        let nodes = self.made().await?;
        nodes.iter().map(|node| seconds(node).context("a node without a size or an age")).sum()
    }

    /// The nodes that Karpenter has made.
    async fn made(&self) -> Result<Vec<Node>> {
        let labelled = ListParams::default().labels(&format!("{POOL}={}", self.name));
        let mut nodes =
            Api::<Node>::all(self.space.world.client.clone()).list(&labelled).await?.items;
        nodes.retain(|node| !node.name_any().starts_with("base-"));
        Ok(nodes)
    }

    /// Returns the shapes of the nodes that Karpenter has made, sorted. Fails if one of them has no pod but
    /// placeholders.
    pub(crate) async fn grown(&self) -> Result<Vec<String>> {
        let new = self.made().await?;
        let pods = self.space.pods().list(&ListParams::default()).await?.items;
        let is_users = |pod: &&Pod| !pod.labels().contains_key(PLACEHOLDER);
        let used: BTreeSet<_> = pods.iter().filter(is_users).filter_map(node).collect();
        for node in &new {
            ensure!(used.contains(&node.name_any()), "{} is of no use: {used:?}", node.name_any());
        }
        let shape = |node: &Node| node.labels().get("node.kubernetes.io/instance-type").cloned();
        let mut shapes: Vec<_> = new.iter().filter_map(shape).collect();
        shapes.sort();
        Ok(shapes)
    }
}
