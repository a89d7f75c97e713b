//! Counts the writes of the controller for a PipelineRun, by kind, from the first request to the last trace
//! of its placeholder.

use std::time::Duration;

use anyhow::ensure;
use futures::future;
use hyper::Method;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams,
};
use serde_json::json;
use stowplan_core::systems::coschedule::keys::PLACEHOLDER;
use testbed::proxy::Call;
use testbed::tekton::{self, DURATION, Ended, Tekton};
use testbed::volumes::{IMMEDIATE, Volumes};
use tokio::time::{Instant, sleep};

use crate::Extent;
use crate::cluster::{Binding, CLASS, with_cluster};
use crate::plane::{self, Cluster, LIMIT, NAMESPACE};
use crate::table::{Table, count, tenths};

/// The tasks of a run, all of which may begin at once.
const TASKS: usize = 5;

/// The label of what is of a run: its name.
const RUN: &str = "tekton.dev/pipelineRun";

/// How long after the last change is listened for a write too many.
const REST: Duration = Duration::from_secs(3);

/// Counts on a control plane of its own.
pub(crate) async fn measure(extent: Extent) -> anyhow::Result<()> {
    let nodes = plane::zoned_nodes(extent.run_nodes);
    let table = with_cluster(nodes, false, async |cluster| count_on(cluster, extent).await).await?;
    table.print(&format!(
        "Writes of the controller: {} PipelineRuns of {TASKS} tasks and a volume, at once, on {} nodes (budget)",
        extent.runs, extent.run_nodes
    ));
    Ok(())
}

async fn count_on(cluster: &Cluster<'_>, extent: Extent) -> anyhow::Result<Table> {
    let _volumes = Volumes::start(&cluster.client).await?;
    let _tekton = Tekton::start(&cluster.client).await?;
    let mut table = Table::new(
        "policy | placeholders made | changed | removed | patches of pods | other writes | \
         writes a run | events | pods apart | all ended, s | nothing left, s",
    );
    for (label, binding) in
        [("`binding: affinity`", Binding::Affinity), ("`binding: node`", Binding::Node)]
    {
        cluster.bind_by(binding, CLASS).await?;
        let (ended, gone, apart) = run_all(cluster, extent.runs).await?;
        let against = |seen: usize, budget: usize| format!("{} ({budget})", count(seen as f64));
        let proxy = &cluster.proxy;
        let sets = "/apis/apps/v1/namespaces/*/statefulsets";
        let made = proxy.count(&Method::POST, sets);
        let [changed, removed] =
            [Method::PATCH, Method::DELETE].map(|of| proxy.count(&of, &format!("{sets}/*")));
        let pods = proxy.count(&Method::PATCH, "/api/v1/namespaces/*/pods/*");
        let writes = proxy.writes();
        let is_event = |call: &Call| call.is_write() && call.path.contains("/events");
        let figures = [
            against(made, extent.runs),
            against(changed, 0),
            against(removed, extent.runs),
            against(pods, extent.runs * TASKS),
            against(writes - made - changed - removed - pods, 0),
            format!("{:.1} ({})", writes as f64 / extent.runs as f64, 2 + TASKS),
            count(proxy.count_where(is_event) as f64),
            against(apart, 0),
            tenths(ended),
            tenths(gone),
        ];
        table.row(label, figures);
    }
    Ok(table)
}

/// All runs at once, until each has succeeded and nothing is left of them. Returns how many seconds it
/// took until all had ended, and until no placeholder was left; and the pods that were not on the node
/// where most of their run were.
async fn run_all(cluster: &Cluster<'_>, runs: usize) -> anyhow::Result<(f64, f64, usize)> {
    let kind = GroupVersionKind::gvk("tekton.dev", "v1", "PipelineRun");
    let kind = ApiResource::from_gvk(&kind);
    let api = Api::<DynamicObject>::namespaced_with(cluster.client.clone(), NAMESPACE, &kind);
    sleep(REST).await;
    cluster.proxy.forget();
    let began = Instant::now();
    let each = (0..runs).map(async |number: usize| {
        let name = format!("run-{number}");
        api.create(&PostParams::default(), &serde_json::from_value(run(&name))?).await?;
        let ended = tekton::ended(&cluster.client, NAMESPACE, &name, LIMIT).await?;
        ensure!(ended == Ended::Succeeded, "{name}: {ended:?}");
        anyhow::Ok(())
    });
    future::try_join_all(each).await?;
    let ended = began.elapsed().as_secs_f64();

    let pods = ListParams::default().labels(RUN);
    let run_of = |pod: &Pod| pod.metadata.labels.as_ref()?.get(RUN).cloned();
    let apart = cluster.apart(&pods, runs, run_of).await?;
    cluster.pods_are(runs * TASKS, &pods).await?;
    let placeholders = ListParams::default().labels(PLACEHOLDER);
    cluster.objects_are(0, &cluster.placeholders(), &placeholders).await?;
    let gone = began.elapsed().as_secs_f64();
    sleep(REST).await;

    let all = ListParams::default();
    api.delete_collection(&DeleteParams::background(), &all).await?;
    cluster.pods_are(0, &pods).await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    cluster.objects_are(0, &claims, &all).await?;
    Ok((ended, gone, apart))
}

/// A run whose tasks use one volume, of a class that binds it before anybody knows where the tasks
/// are.
fn run(name: &str) -> serde_json::Value {
    let workspace = json!([{"name": "source"}]);
    let task = |task: usize| {
        json!({
            "name": format!("task-{task}"), "workspaces": workspace,
            "taskSpec": {
                "metadata": {"annotations": {DURATION: "3s"}}, "workspaces": workspace,
                "steps": [{"name": "step", "image": "example.com/step", "script": "make"}],
            },
        })
    };
    let tasks: Vec<_> = (0..TASKS).map(task).collect();
    let claim = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": IMMEDIATE,
        "resources": {"requests": {"storage": "1Gi"}},
    });
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": name},
        "spec": {
            "pipelineSpec": {"workspaces": workspace, "tasks": tasks},
            "workspaces": [{"name": "source", "volumeClaimTemplate": {"spec": claim}}],
        },
    })
}
