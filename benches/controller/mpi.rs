//! MPI clusters to plan on.

use anyhow::{bail, ensure};
use serde_json::{Value, json};
use stowplan_core::systems::plan::Write;

use crate::objects::Scene;

const NAMESPACE: &str = "mpi";

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

/// So many workers in each of so many clusters in this state; an error if the plan on them is not what
/// the state implies.
pub(crate) fn scene(state: State, sizes: &[usize]) -> anyhow::Result<Scene> {
    let [workers, clusters] = sizes[..] else { bail!("WORKERS CLUSTERS") };
    let mut scene = Scene::new()?;
    for cluster in 0..clusters {
        add(&mut scene, state, &format!("c{cluster}"), workers)?;
    }
    if state != State::New {
        // What is planned for new clusters, as the API server answers it.
        for action in scene.plan().actions {
            let Write::Create(mut document) = action.write else { continue };
            document["metadata"]["uid"] = json!(format!("uid-{}", action.target.name));
            if document["kind"] == "ConfigMap" {
                let annotations = &mut document["metadata"]["annotations"];
                annotations["mpi.stowplan.dev/key"] = json!("uid-of-the-secret");
            }
            scene.show(&document)?;
        }
    }
    let wanted = match state {
        State::Steady => 0,
        State::Start => clusters,
        State::New => 2 * clusters,
    };
    let planned = scene.plan().actions.len();
    ensure!(planned == wanted, "{state:?}: planned {planned} actions instead of {wanted}");
    Ok(scene)
}

/// Adds the workloads and pods of a cluster, with the DNS names of its workers.
fn add(scene: &mut Scene, state: State, cluster: &str, workers: usize) -> anyhow::Result<()> {
    let (launcher, job) = (format!("{cluster}-l"), format!("{cluster}-w"));
    for (name, role) in [(&launcher, "launcher"), (&job, "worker")] {
        let mode = if role == "worker" { "Indexed" } else { "NonIndexed" };
        let annotations =
            json!({"mpi.stowplan.dev/cluster": cluster, "mpi.stowplan.dev/role": role});
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": name},
            "spec": {
                "completionMode": mode, "completions": workers, "parallelism": workers,
                "template": {
                    "metadata": {"annotations": annotations},
                    "spec": {"containers": [{"name": "main"}], "restartPolicy": "Never"},
                },
            },
        });
        scene.show(&job)?;
    }
    let hostname = |index: usize| format!("{job}-{index}");
    for index in 0..workers {
        let spec = json!({"hostname": hostname(index), "nodeName": "n"});
        let name = format!("{}-x", hostname(index));
        scene.show(&pod(&name, cluster, "worker", &job, spec))?;
    }
    let spec = match state {
        State::Start => json!({"schedulingGates": [{"name": "stowplan.dev/mpi-workers"}]}),
        State::Steady | State::New => json!({"nodeName": "n"}),
    };
    scene.show(&pod(&format!("{launcher}-x"), cluster, "launcher", &launcher, spec))?;
    // As Kubernetes does: a hundred endpoints in a slice.
    for (number, slice) in (0..workers).collect::<Vec<_>>().chunks(100).enumerate() {
        let endpoint =
            |index: &usize| json!({"addresses": ["10.0.0.1"], "hostname": hostname(*index)});
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": format!("{cluster}-{number}"), "namespace": NAMESPACE,
                "uid": format!("{cluster}-{number}"),
                "labels": {"kubernetes.io/service-name": cluster}},
            "endpoints": slice.iter().map(endpoint).collect::<Vec<_>>(),
        });
        scene.show(&slice)?;
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
