//! PipelineRuns as tests write them, the nodes that they run on, and their pods and events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testbed::control_plane::NodeSpec;
use testbed::tekton::{DURATION, Ended, ended};
use testbed::wait::{Seen, until};
use testbed::workload;

use crate::coschedule::group::group_of;
use crate::world::{Space, World};

/// Longer than a run whose placeholder moves once or twice.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The label that selects the nodes of a test, and the taint that repels other pods.
pub(crate) const LAB: &str = "test.stowplan.dev/lab";

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

    /// As [`Lab::new`], with each node changed by `change`.
    pub(crate) async fn with(
        world: &World,
        name: &str,
        zones: &[&str],
        change: impl Fn(NodeSpec) -> NodeSpec,
    ) -> Result<Self> {
        let specs: Vec<_> = zones
            .iter()
            .enumerate()
            .map(|(index, zone)| {
                // Pools of other tests may have the name as their tag.
                let node = NodeSpec::new(&format!("lab-{name}-{index}")).zone(zone);
                change(node.label(LAB, name).taint(LAB, name, "NoSchedule"))
            })
            .collect();
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
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": claim_spec(class, mode),
    })
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

/// `task`, requesting this much of a resource.
pub(crate) fn requesting(mut task: Value, resource: &str, amount: &str) -> Value {
    task["taskSpec"]["steps"][0]["computeResources"] = json!({"requests": {resource: amount}});
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

impl Space {
    pub(crate) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.world.client.clone(), &self.name)
    }

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

    /// Waits until a run has failed; returns its message.
    pub(crate) async fn failed(&self, run: &str) -> Result<String> {
        match ended(&self.world.client, &self.name, run, LIMIT).await? {
            Ended::Failed(message) => Ok(message),
            Ended::Succeeded => bail!("PipelineRun {run} succeeded"),
        }
    }

    /// The pods of tasks, by name.
    pub(crate) async fn task_pods(&self) -> Result<BTreeMap<String, Pod>> {
        let of_tasks = ListParams::default().labels("tekton.dev/taskRun");
        let pods = self.pods().list(&of_tasks).await?.items;
        Ok(pods.into_iter().map(|pod| (pod.name_any(), pod)).collect())
    }

    /// Lets the pod of a [`held`] task end.
    pub(crate) async fn let_end(&self, pod: &str) -> Result<()> {
        let end = json!({"metadata": {"annotations": {"testbed.stowplan.dev/end": "now"}}});
        self.pods().patch(pod, &PatchParams::default(), &Patch::Merge(end)).await?;
        Ok(())
    }

    /// The pod of a task.
    pub(crate) async fn task_pod(&self, name: &str) -> Result<Pod> {
        self.pods().get(name).await.with_context(|| format!("pod {name}"))
    }

    /// The nodes on which the pods of tasks whose name begins so have been.
    pub(crate) async fn nodes_of(&self, prefix: &str) -> Result<BTreeSet<String>> {
        let pods = self.task_pods().await?;
        let of_run: Vec<_> = pods.iter().filter(|(name, _)| name.starts_with(prefix)).collect();
        ensure!(!of_run.is_empty(), "no pods of {prefix}");
        of_run
            .into_iter()
            .map(|(name, pod)| node(pod).with_context(|| format!("{name} has no node")))
            .collect()
    }

    /// The only node on which the pods of tasks whose name begins so have been.
    pub(crate) async fn node_of_all(&self, prefix: &str) -> Result<String> {
        let nodes = self.nodes_of(prefix).await?;
        ensure!(nodes.len() == 1, "{prefix}… were on {nodes:?}");
        nodes.into_iter().next().context("no node")
    }

    /// Waits for a pod to exist and to be in this phase.
    pub(crate) async fn in_phase(&self, pod: &str, phase: &str) -> Result<Pod> {
        until(&format!("pod {pod} to be {phase}"), LIMIT, async || {
            let Some(pod) = self.pods().get_opt(pod).await? else {
                return Ok(Seen::NotYet("no such pod".to_owned()));
            };
            let seen = pod.status.as_ref().and_then(|it| it.phase.clone()).unwrap_or_default();
            Ok(if seen == phase { Seen::Done(pod) } else { Seen::NotYet(seen) })
        })
        .await
    }

    /// All events here: object, reason and message.
    pub(crate) async fn events(&self) -> Result<Vec<String>> {
        let events: Api<k8s_openapi::api::core::v1::Event> =
            Api::namespaced(self.world.client.clone(), &self.name);
        let events = events.list(&ListParams::default()).await?.items;
        Ok(events
            .into_iter()
            .map(|event| {
                format!(
                    "{}/{} {} {}",
                    event.involved_object.kind.unwrap_or_default(),
                    event.involved_object.name.unwrap_or_default(),
                    event.reason.unwrap_or_default(),
                    event.message.unwrap_or_default(),
                )
            })
            .collect())
    }

    /// Waits for an event that contains all of these words.
    pub(crate) async fn expect_event(&self, words: &[&str]) -> Result<String> {
        until(&format!("an event with {words:?}"), LIMIT, async || {
            let events = self.events().await?;
            let found = events.iter().find(|event| words.iter().all(|word| event.contains(word)));
            Ok(match found {
                Some(event) => Seen::Done(event.clone()),
                None => {
                    let of_us: Vec<_> =
                        events.iter().filter(|it| !it.contains("Scheduled")).collect();
                    Seen::NotYet(format!("{of_us:#?}"))
                }
            })
        })
        .await
    }
}

/// Waits until stowplan has noticed that there are PipelineRuns: until the pod of one is a member.
pub(crate) async fn noticed(world: &World) -> Result<()> {
    let space = "trial";
    workload::namespace(&world.client, space).await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("tekton.dev", "v1", "PipelineRun"));
    let runs: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), space, &kind);
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), space);
    let run = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"generateName": "trial-", "annotations": {"stowplan.dev/coschedule": "pipelineruns"}},
        "spec": {"pipelineSpec": {"tasks": [task("one", &[], &[])]}},
    });
    let run: DynamicObject = serde_json::from_value(run)?;
    until("stowplan to notice Tekton", LIMIT, async || {
        let name = runs.create(&PostParams::default(), &run).await?.name_any();
        ended(&world.client, space, &name, LIMIT).await?;
        let pod = pods.get(&format!("{name}-one-pod")).await?;
        Ok(match group_of(&pod) {
            Some(_) => Seen::Done(()),
            None => Seen::NotYet("the pod of a run is no member".to_owned()),
        })
    })
    .await?;
    runs.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(())
}

/// The node of a pod.
pub(crate) fn node(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

/// The claims that a pod uses.
pub(crate) fn claims_of(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| claim.claim_name.clone()).collect()
}

/// The policy with some keys of `coschedule` changed, while a test holds the installation alone.
pub(crate) async fn with_policy(
    world: &Arc<World>,
    coschedule: Value,
    test: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let installation = world.alone().await?;
    let kept = installation.policy().await?;
    let mut policy: Value = serde_saphyr::from_str(&kept)?;
    for (key, value) in coschedule.as_object().into_iter().flatten() {
        policy["coschedule"][key] = value.clone();
    }
    installation.set_policy(&policy.to_string()).await?;
    let outcome = test().await;
    installation.set_policy(&kept).await?;
    outcome
}
