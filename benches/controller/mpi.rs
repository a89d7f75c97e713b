//! MPI clusters to plan on.

use anyhow::ensure;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use stowplan::testing::systems::plan::Write;
use stowplan::testing::systems::policy::Policy;

use crate::world::Scene;

const NAMESPACE: &str = "mpi";

/// How many clusters there are, and how many workers each has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) workers: usize,
    pub(crate) clusters: usize,
}

/// How far the clusters are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    /// Their objects are there, and their launchers run: nothing to do.
    Steady,
    /// Their objects are there, and their launchers can start.
    Start,
    /// Nothing is made yet.
    New,
}

/// Clusters in this state; an error if the plan on them is not what the state implies.
pub(crate) fn scene(state: State, extent: Extent) -> anyhow::Result<Scene> {
    let now = "2026-01-01T00:00:00Z".parse()?;
    let mut scene = Scene::new(Policy::default(), now);
    for cluster in 0..extent.clusters {
        add(&mut scene, state, &format!("c{cluster}"), extent.workers)?;
    }
    if state != State::New {
        make_objects(&mut scene)?;
    }
    let wanted = match state {
        State::Steady => 0,
        State::Start => extent.clusters,
        State::New => 2 * extent.clusters,
    };
    let planned = scene.plan().actions.len();
    ensure!(planned == wanted, "{state:?}: planned {planned} actions instead of {wanted}");
    Ok(scene)
}

fn show(scene: &mut Scene, document: &Value) -> anyhow::Result<()> {
    match document["kind"].as_str().unwrap_or_default() {
        "Job" => scene.show::<Job>(document),
        "Pod" => scene.show::<Pod>(document),
        "EndpointSlice" => scene.show::<EndpointSlice>(document),
        "Service" => scene.show::<Service>(document),
        _ => scene.show::<ConfigMap>(document),
    }
}

/// Adds the workloads and pods of a cluster, with the DNS names of its workers.
fn add(scene: &mut Scene, state: State, cluster: &str, workers: usize) -> anyhow::Result<()> {
    let (launcher, job) = (format!("{cluster}-l"), format!("{cluster}-w"));
    for (name, role) in [(&launcher, "launcher"), (&job, "worker")] {
        show(
            scene,
            &json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": name, "namespace": NAMESPACE, "uid": name},
                "spec": {
                    "completionMode": if role == "worker" { "Indexed" } else { "NonIndexed" },
                    "completions": workers, "parallelism": workers,
                    "template": {
                        "metadata": {"annotations": {
                            "mpi.stowplan.dev/cluster": cluster, "mpi.stowplan.dev/role": role}},
                        "spec": {"containers": [{"name": "main"}], "restartPolicy": "Never"},
                    },
                },
            }),
        )?;
    }
    let hostname = |index: usize| format!("{job}-{index}");
    for index in 0..workers {
        let spec = json!({"hostname": hostname(index), "nodeName": "n"});
        let name = format!("{}-x", hostname(index));
        show(scene, &pod(&name, cluster, "worker", &job, spec))?;
    }
    let spec = match state {
        State::Start => json!({"schedulingGates": [{"name": "stowplan.dev/mpi-workers"}]}),
        State::Steady | State::New => json!({"nodeName": "n"}),
    };
    show(scene, &pod(&format!("{launcher}-x"), cluster, "launcher", &launcher, spec))?;
    // As Kubernetes does: a hundred endpoints in a slice.
    for (number, slice) in (0..workers).collect::<Vec<_>>().chunks(100).enumerate() {
        let endpoints: Vec<Value> = slice
            .iter()
            .map(|index| json!({"addresses": ["10.0.0.1"], "hostname": hostname(*index)}))
            .collect();
        show(
            scene,
            &json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {"name": format!("{cluster}-{number}"), "namespace": NAMESPACE,
                    "uid": format!("{cluster}-{number}"),
                    "labels": {"kubernetes.io/service-name": cluster}},
                "endpoints": endpoints,
            }),
        )?;
    }
    Ok(())
}

fn pod(name: &str, cluster: &str, role: &str, job: &str, mut spec: Value) -> Value {
    spec["containers"] = json!([{"name": "main"}]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": "1",
            "labels": {"mpi.stowplan.dev/cluster": cluster, "mpi.stowplan.dev/role": role},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job,
                "controller": true}]},
        "spec": spec,
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// Applies what is planned for new clusters, as the API server answers it.
fn make_objects(scene: &mut Scene) -> anyhow::Result<()> {
    for action in scene.plan().actions {
        let Write::Create(mut document) = action.write else { continue };
        document["metadata"]["uid"] = json!(format!("uid-{}", action.target.name));
        if document["kind"] == "ConfigMap" {
            document["metadata"]["annotations"]["mpi.stowplan.dev/key"] =
                json!("uid-of-the-secret");
        }
        show(scene, &document)?;
    }
    Ok(())
}
