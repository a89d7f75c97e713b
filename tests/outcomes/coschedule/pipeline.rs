//! PipelineRuns as tests write them, the nodes that they run on, and their pods and events.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testbed::control_plane::NodeSpec;
use testbed::tekton::{DURATION, Ended, ended};

use crate::coschedule::group::group_of;
pub(crate) use crate::world::{LIMIT, node};
use crate::world::{Space, World, object, one_of, settled};

/// The label that selects the nodes of a test, and the taint that repels other pods.
pub(crate) const LAB: &str = "test.stowplan.dev/lab";

/// The zones of the nodes of most tests.
pub(crate) const ZONES: [&str; 4] = ["east", "west", "east", "west"];

/// The nodes of one test.
pub(crate) struct Lab {
    pub(crate) name: String,
    pub(crate) nodes: Vec<String>,
}

impl Lab {
    /// Makes nodes, one in each of these zones, named `lab-<name>-0` and so on.
    pub(crate) async fn new(world: &World, name: &str, zones: &[&str]) -> Result<Self> {
        Self::with(world, name, zones, |node| node).await
    }

    /// As [`Lab::new`], with a namespace.
    pub(crate) async fn in_space(
        world: &Arc<World>,
        name: &str,
        zones: &[&str],
    ) -> Result<(Space, Self)> {
        Ok((world.namespace(name).await?, Self::new(world, name, zones).await?))
    }

    /// As [`Lab::new`], with each node changed by `change`.
    pub(crate) async fn with(
        world: &World,
        name: &str,
        zones: &[&str],
        change: impl Fn(NodeSpec) -> NodeSpec,
    ) -> Result<Self> {
        let spec = |(index, zone): (usize, &&str)| {
            // Pools of other tests may have the name as their tag.
            let node = NodeSpec::new(&format!("lab-{name}-{index}")).zone(zone);
            change(node.label(LAB, name).taint(LAB, name, "NoSchedule"))
        };
        let specs: Vec<_> = zones.iter().enumerate().map(spec).collect();
        world.plane.add_nodes(&specs).await?;
        let nodes = specs.into_iter().map(|node| node.name).collect();
        Ok(Self { name: name.to_owned(), nodes })
    }

    /// The node selector and toleration for these nodes.
    pub(crate) fn way(&self) -> Value {
        json!({
            "nodeSelector": {LAB: self.name},
            "tolerations": [{"key": LAB, "value": self.name, "effect": "NoSchedule"}],
        })
    }

    /// The same, for one of these nodes alone.
    pub(crate) fn way_to(&self, node: &str) -> Value {
        let mut way = self.way();
        way["nodeSelector"]["kubernetes.io/hostname"] = json!(node);
        way
    }

    /// A PipelineRun whose pods stay on these nodes, with these workspaces and tasks.
    pub(crate) fn run(&self, name: &str, workspaces: &[Value], tasks: &[Value]) -> Value {
        let names: Vec<_> = workspaces.iter().map(|it| json!({"name": it["name"]})).collect();
        json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
            "metadata": {"name": name, "annotations": {}},
            "spec": {
                "taskRunTemplate": {"podTemplate": self.way()},
                "workspaces": workspaces,
                "pipelineSpec": {"workspaces": names, "tasks": tasks},
            },
        })
    }
}

/// A workspace with a claim template.
pub(crate) fn template(workspace: &str, class: &str) -> Value {
    json!({"name": workspace, "volumeClaimTemplate": {"spec": claim_spec(class, "ReadWriteOnce")}})
}

/// A workspace with an existing claim.
pub(crate) fn existing(workspace: &str, claim: &str) -> Value {
    json!({"name": workspace, "persistentVolumeClaim": {"claimName": claim}})
}

fn claim_spec(class: &str, mode: &str) -> Value {
    json!({
        "storageClassName": class, "accessModes": [mode],
        "resources": {"requests": {"storage": "1Gi"}},
    })
}

/// A claim.
pub(crate) fn claim(name: &str, class: &str, mode: &str) -> Value {
    object("v1", "PersistentVolumeClaim", name, &claim_spec(class, mode))
}

/// A task that runs for a second after those before it, with these workspaces.
pub(crate) fn task(name: &str, after: &[&str], workspaces: &[&str]) -> Value {
    let workspaces: Vec<_> = workspaces.iter().map(|name| json!({"name": name})).collect();
    json!({
        "name": name, "runAfter": after, "workspaces": workspaces,
        "taskSpec": {
            "metadata": {"annotations": {}},
            "workspaces": workspaces,
            "steps": [{"name": "work", "image": "busybox", "script": "true"}],
        },
    })
}

/// `task`, running for this long.
pub(crate) fn lasting(mut task: Value, duration: &str) -> Value {
    task["taskSpec"]["metadata"]["annotations"][DURATION] = json!(duration);
    task
}

/// `task`, running until [`Space::let_end`].
pub(crate) fn held(mut task: Value) -> Value {
    task["taskSpec"]["metadata"]["annotations"]["testbed.stowplan.dev/until-told"] = json!("yes");
    task
}

/// `run` in a mode of its own.
pub(crate) fn in_mode(mut run: Value, mode: &str) -> Value {
    run["metadata"]["annotations"]["stowplan.dev/coschedule"] = json!(mode);
    run
}

/// The use case of the proposal: `clone` into one workspace, `build` with it and a cache.
pub(crate) fn clone_and_build(lab: &Lab, name: &str, class: &str) -> Value {
    lab.run(
        name,
        &[template("source", class), template("cache", class)],
        &[task("clone", &[], &["source"]), task("build", &["clone"], &["source", "cache"])],
    )
}

/// `run`, whose first task is changed in this way.
pub(crate) fn with_first(mut run: Value, change: impl FnOnce(Value) -> Value) -> Value {
    let first = &mut run["spec"]["pipelineSpec"]["tasks"][0];
    *first = change(first.take());
    run
}

impl Space {
    pub(crate) fn runs(&self) -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("tekton.dev", "v1", "PipelineRun"));
        Api::namespaced_with(self.world.client.clone(), &self.name, &kind)
    }

    /// Waits until a run has succeeded.
    pub(crate) async fn succeeded(&self, run: &str) -> Result<()> {
        match ended(&self.world.client, &self.name, run, LIMIT).await? {
            Ended::Succeeded => Ok(()),
            Ended::Failed(message) => bail!("PipelineRun {run} failed: {message}"),
        }
    }

    /// Waits until a run has succeeded, as one group; returns its node.
    pub(crate) async fn ran(&self, run: &str) -> Result<String> {
        self.succeeded(run).await?;
        self.together(&format!("{run}-")).await
    }

    /// The pods of tasks, by name.
    pub(crate) async fn task_pods(&self) -> Result<BTreeMap<String, Pod>> {
        let of_tasks = ListParams::default().labels("tekton.dev/taskRun");
        let pods = self.pods().list(&of_tasks).await?.items;
        Ok(pods.into_iter().map(|pod| (pod.name_any(), pod)).collect())
    }

    /// Lets the pod of a [`held`] task end.
    pub(crate) async fn let_end(&self, pod: &str) -> Result<()> {
        self.found::<Pod>(pod).await?;
        let end = json!({"metadata": {"annotations": {"testbed.stowplan.dev/end": "now"}}});
        self.change::<Pod>(pod, end).await
    }

    /// The pod of a task.
    pub(crate) async fn task_pod(&self, name: &str) -> Result<Pod> {
        self.pods().get(name).await.with_context(|| format!("pod {name}"))
    }

    /// The only node on which the pods of tasks whose name begins so have been.
    pub(crate) async fn node_of_all(&self, prefix: &str) -> Result<String> {
        let mut pods = self.task_pods().await?;
        pods.retain(|name, _| name.starts_with(prefix));
        let nodes =
            pods.iter().map(|(name, pod)| node(pod).with_context(|| format!("{name} has no node")));
        one_of(nodes.collect::<Result<Vec<_>>>()?)
    }
}

/// Waits until stowplan has noticed that there are PipelineRuns: until the pod of one is a member.
pub(crate) async fn noticed(world: &Arc<World>) -> Result<()> {
    let space = world.namespace("trial").await?;
    let run = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"generateName": "trial-", "annotations": {"stowplan.dev/coschedule": "pipelineruns"}},
        "spec": {"pipelineSpec": {"tasks": [task("one", &[], &[])]}},
    });
    let is_member = async || {
        let name = space.created(&run).await?.name_any();
        ended(&world.client, &space.name, &name, LIMIT).await?;
        Ok(group_of(&space.task_pod(&format!("{name}-one-pod")).await?).is_some())
    };
    settled("the pod of a run to be a member", is_member, |is_one| *is_one).await?;
    space.runs().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(())
}

/// The claims that a pod uses.
pub(crate) fn claims_of(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| claim.claim_name.clone()).collect()
}
