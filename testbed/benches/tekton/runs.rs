//! The PipelineRuns of an arm: how they are created, when they end, and where their pods were.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use testbed::control_plane::ControlPlane;
use testbed::real::tekton;
use testbed::volumes::WAITING;
use testbed::wait::{Seen, until};
use testbed::workload;
use tokio::time::timeout;

use super::arguments::{Arm, PlacedBy};

/// The start of the names of runs that are measured, and of those before them.
pub(crate) const RUN: &str = "run";
const FIRST: &str = "first";

/// How many runs are being created at a time, so that no connection waits for the others.
const AT_ONCE: usize = 20;

/// Up to how many runs an error shows their pods.
const DESCRIBED: usize = 10;

/// For one run on nodes that do nothing else.
const FIRST_LIMIT: Duration = Duration::from_secs(120);

/// The label that the webhook of stowplan writes, and the annotation that Tekton writes.
const MEMBER: &str = "stowplan.dev/coschedule-member";
const ASSISTANT: &str = "pipeline.tekton.dev/affinity-assistant";

/// Creates the namespace of an arm.
pub(crate) async fn create_namespace(client: &Client, name: &str, arm: Arm) -> Result<()> {
    workload::namespace(client, name).await?;
    let metadata = match arm {
        Arm::Neither | Arm::Assistant => json!({"labels": {"stowplan.dev/ignore": "true"}}),
        Arm::Stowplan => json!({"annotations": {"stowplan.dev/coschedule": "workspaces"}}),
    };
    let patch = Patch::Merge(json!({"metadata": metadata}));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Deletes the namespace, and waits until it is gone with all of its pods and volumes.
pub(crate) async fn delete_namespace(client: &Client, name: &str, limit: Duration) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.delete(name, &DeleteParams::default()).await?;
    until(&format!("namespace {name} to be deleted"), limit, async || {
        let namespace = namespaces.get_opt(name).await?;
        Ok(Seen::when(namespace.is_none(), || "it exists".to_owned()))
    })
    .await
}

/// Creates runs, one after the other, until one is placed as the arm says: the namespace's labels and
/// Tekton's flag are in force then.
pub(crate) async fn until_placed_by(
    plane: &ControlPlane,
    client: &Client,
    namespace: &str,
    arm: Arm,
) -> Result<()> {
    let mut number = 0;
    until(&format!("runs to be placed by {arm}"), FIRST_LIMIT, async || {
        number += 1;
        let name = format!("{FIRST}-{number}");
        run_all(plane, client, namespace, std::slice::from_ref(&name), FIRST_LIMIT).await?;
        let placed = placed(client, namespace, &name).await?;
        Ok(Seen::when(placed.by == [arm.placed_by()].into(), || format!("{:?}", placed.by)))
    })
    .await
}

/// The names of the runs that are measured.
pub(crate) fn names(count: u32) -> Vec<String> {
    (1..=count).map(|number| format!("{RUN}-{number}")).collect()
}

/// Creates these runs at once, and waits until all have succeeded. Returns how long each took.
pub(crate) async fn run_all(
    plane: &ControlPlane,
    client: &Client,
    namespace: &str,
    names: &[String],
    limit: Duration,
) -> Result<Vec<Duration>> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("tekton.dev", "v1", "PipelineRun"));
    let runs: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let ended = tokio::spawn(until_succeeded(runs.clone(), names.to_vec()));
    let created = stream::iter(names).map(async |name| {
        let begun = Instant::now();
        let run = serde_json::from_value(run(name))?;
        runs.create(&PostParams::default(), &run).await.with_context(|| format!("run {name}"))?;
        anyhow::Ok((name.clone(), begun))
    });
    let created: Result<BTreeMap<_, _>> = created.buffer_unordered(AT_ONCE).try_collect().await;
    let abort = ended.abort_handle();
    let outcome = async {
        let created = created?;
        let ended = timeout(limit, ended)
            .await
            .with_context(|| format!("not all runs have succeeded within {limit:?}"))???;
        plane.check()?;
        let time = |(name, begun): (&String, &Instant)| {
            ended.get(name).map(|end| end.saturating_duration_since(*begun))
        };
        anyhow::Ok(created.iter().filter_map(time).collect())
    }
    .await;
    abort.abort();
    // Those of a hundred runs would fill the terminal.
    outcome.with_context(|| match names.len() {
        0..=DESCRIBED => plane.describe_pods(namespace),
        many => format!("of {many} runs"),
    })
}

/// Waits until these runs have succeeded. Returns when each has.
async fn until_succeeded(
    runs: Api<DynamicObject>,
    names: Vec<String>,
) -> Result<BTreeMap<String, Instant>> {
    let mut waited: BTreeSet<String> = names.into_iter().collect();
    let mut ended = BTreeMap::new();
    let mut changes =
        pin!(watcher(runs, watcher::Config::default()).default_backoff().applied_objects());
    while !waited.is_empty() {
        let run = changes.next().await.context("the watch of runs has ended")?;
        // A watch that fails begins again.
        let Ok(run) = run else { continue };
        let name = run.name_any();
        match succeeded(&run.data) {
            Some(true) if waited.remove(&name) => {
                ended.insert(name, Instant::now());
            }
            Some(false) => bail!("run {name} has failed: {}", run.data["status"]["conditions"]),
            _ => {}
        }
    }
    Ok(ended)
}

/// Returns how a run has ended, if it has.
fn succeeded(run: &Value) -> Option<bool> {
    let conditions = run["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == "Succeeded")?;
    match condition["status"].as_str()? {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

/// A run of two tasks, one after the other, with one claim.
pub(crate) fn run(name: &str) -> Value {
    let task = |name: &str, after: &[&str]| {
        json!({
            "name": name, "runAfter": after, "workspaces": [{"name": "source"}],
            "taskSpec": {"workspaces": [{"name": "source"}], "steps": [tekton::step()]},
        })
    };
    let claim = json!({
        "storageClassName": WAITING, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    });
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": name},
        "spec": {
            "workspaces": [{"name": "source", "volumeClaimTemplate": {"spec": claim}}],
            "pipelineSpec": {
                "workspaces": [{"name": "source"}], "tasks": [task("a", &[]), task("b", &["a"])],
            },
        },
    })
}

/// Where the pods of runs were, and who has placed them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Placed {
    /// How many runs there were.
    pub(crate) runs: usize,
    /// How many of them had pods on two nodes or more.
    pub(crate) apart: usize,
    /// By whom pods were placed: one value if all were placed alike.
    pub(crate) by: BTreeSet<PlacedBy>,
}

/// Returns where the pods of the runs are whose names begin so. Tekton keeps pods that have ended.
pub(crate) async fn placed(client: &Client, namespace: &str, start: &str) -> Result<Placed> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let of_tasks = ListParams::default().labels("tekton.dev/taskRun");
    let pods = pods.list(&of_tasks).await?.items;
    let mut nodes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut by = BTreeSet::new();
    for pod in &pods {
        let run = pod.labels().get("tekton.dev/pipelineRun").map(String::as_str);
        let Some(run) = run.filter(|run| run.starts_with(start)) else { continue };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let node = node.with_context(|| format!("pod {} has no node", pod.name_any()))?;
        nodes.entry(run).or_default().insert(node);
        by.insert(PlacedBy {
            assistant: pod.annotations().contains_key(ASSISTANT),
            stowplan: pod.labels().contains_key(MEMBER),
        });
    }
    ensure!(!nodes.is_empty(), "there is no pod of a run {start}");
    let apart = nodes.values().filter(|nodes| nodes.len() > 1).count();
    Ok(Placed { runs: nodes.len(), apart, by })
}
