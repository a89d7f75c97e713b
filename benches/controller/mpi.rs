//! MPI clusters to plan on.

use anyhow::ensure;
use serde_json::{Value, json};
use stowplan::testing::systems::plan::Write;
use stowplan::testing::systems::policy::Policy;

use crate::objects::show;
use crate::world::Scene;

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

/// Clusters in this state with so many workers each; an error if the plan on them is not what the
/// state implies.
pub(crate) fn scene(state: State, workers: usize, clusters: usize) -> anyhow::Result<Scene> {
    let now = "2026-01-01T00:00:00Z".parse()?;
    let mut scene = Scene::new(Policy::default(), now);
    for cluster in 0..clusters {
        add(&mut scene, state, &format!("c{cluster}"), workers)?;
    }
    if state != State::New {
        make_objects(&mut scene)?;
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
        show(&mut scene.view, &job)?;
    }
    let hostname = |index: usize| format!("{job}-{index}");
    for index in 0..workers {
        let spec = json!({"hostname": hostname(index), "nodeName": "n"});
        let name = format!("{}-x", hostname(index));
        show(&mut scene.view, &pod(&name, cluster, "worker", &job, spec))?;
    }
    let spec = match state {
        State::Start => json!({"schedulingGates": [{"name": "stowplan.dev/mpi-workers"}]}),
        State::Steady | State::New => json!({"nodeName": "n"}),
    };
    let launcher = pod(&format!("{launcher}-x"), cluster, "launcher", &launcher, spec);
    show(&mut scene.view, &launcher)?;
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
        show(&mut scene.view, &slice)?;
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
            let annotations = &mut document["metadata"]["annotations"];
            annotations["mpi.stowplan.dev/key"] = json!("uid-of-the-secret");
        }
        show(&mut scene.view, &document)?;
    }
    Ok(())
}
