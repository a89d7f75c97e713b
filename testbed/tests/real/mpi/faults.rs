//! What jobs meet: workers that are killed, suspended or lost, and keys that are deleted.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testbed::real::mpi_image::{Implementation, MpiImage};
use testbed::wait::{Seen, until};

use super::cluster::{Cluster, EVENLY, LIMIT, RING, World, check_ranks};

const IMAGE: MpiImage = MpiImage { implementation: Implementation::OpenMpi4, user: false };

pub(crate) async fn a_launcher_that_is_a_worker(world: Arc<World>) -> Result<()> {
    let mut cluster = Cluster::new(&world, "launcher-as-worker", IMAGE).await?;
    cluster.annotations.push(("launcher-as-worker", "true".to_owned()));
    cluster.worker_job(2).await?;
    cluster.launch("pi-launcher", RING, 0).await?;
    let (output, failed) = cluster.finished("pi-launcher").await?;
    ensure!(failed == 0, "{failed} launchers failed");
    check_ranks(&output, &[("pi-launcher", 3), ("pi-workers-0", 3), ("pi-workers-1", 3)])?;
    cluster.end().await
}

/// The launcher fails with the worker, and its retry waits until the worker is back.
pub(crate) async fn a_worker_is_killed_in_mid_run(world: Arc<World>) -> Result<()> {
    let cluster = Cluster::new(&world, "killed", IMAGE).await?;
    cluster.worker_set().await?;
    // The first attempt would run for an hour.
    let command = "if mpirun -n 3 --map-by node test -e /tmp/second; then mpirun -n 9 ring; \
                   else mpirun -n 3 --map-by node touch /tmp/second && echo begun && \
                   mpirun -n 9 sleep 3600; fi";
    cluster.launch("pi-launcher", command, 2).await?;
    let pods = cluster.api::<Pod>();
    until("the first attempt to run", LIMIT, async || {
        let launchers = cluster.pods("pi-launcher").await?;
        let name = launchers.first().and_then(|pod| pod.metadata.name.clone()).unwrap_or_default();
        let logs = pods.logs(&name, &Default::default()).await.unwrap_or_default();
        Ok(if logs.contains("begun") { Seen::Done(()) } else { Seen::NotYet(logs) })
    })
    .await?;
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods.delete("pi-workers-1", &now).await?;
    // The worker that is back has lost the file of the first attempt, by which the retry differs.
    let mark = "touch /tmp/second";
    until("the worker to be back", LIMIT, async || {
        let marked = world
            .plane
            .kubectl()
            .args(["exec", "-n", &cluster.namespace, "pi-workers-1", "--", "sh", "-c", mark])
            .output()?;
        Ok(match marked.status.success() {
            true => Seen::Done(()),
            false => Seen::NotYet(String::from_utf8_lossy(&marked.stderr).into_owned()),
        })
    })
    .await?;
    let (output, failed) = cluster.finished("pi-launcher").await?;
    check_ranks(&output, &EVENLY)?;
    ensure!(failed == 1, "{failed} launchers failed");
    cluster.end().await
}

pub(crate) async fn workers_are_suspended_and_resumed(world: Arc<World>) -> Result<()> {
    let cluster = Cluster::new(&world, "suspended", IMAGE).await?;
    cluster.worker_job(3).await?;
    cluster.launch("first", RING, 0).await?;
    cluster.runs_evenly("first").await?;
    let suspend = async |suspend: bool| -> Result<()> {
        let change = Patch::Merge(json!({"spec": {"suspend": suspend}}));
        cluster.api::<Job>().patch("pi-workers", &PatchParams::default(), &change).await?;
        Ok(())
    };
    suspend(true).await?;
    cluster.workers_gone().await?;
    cluster.launch("second", RING, 0).await?;
    suspend(false).await?;
    cluster.runs_evenly("second").await?;
    cluster.end().await
}

/// A worker that is created without the Secret hangs; the Secret is made again. While another pod of its
/// node uses the Secret, the kubelet has it in memory, and nothing hangs.
pub(crate) async fn a_secret_is_deleted(world: Arc<World>) -> Result<()> {
    let cluster = Cluster::new(&world, "secret", IMAGE).await?;
    cluster.worker_set().await?;
    cluster.workers_ready(3).await?;
    let before = cluster.api::<Secret>().get("pi-ssh").await?;
    let scale = async |replicas: u32| -> Result<()> {
        let change = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let sets: kube::Api<StatefulSet> = cluster.api();
        sets.patch("pi-workers", &PatchParams::default(), &change).await?;
        Ok(())
    };
    scale(0).await?;
    cluster.workers_gone().await?;
    cluster.api::<Secret>().delete("pi-ssh", &DeleteParams::default()).await?;
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    scale(3).await?;
    let note = cluster.event("KeyReplaced").await?;
    ensure!(note.contains("restart the workers: kubectl delete pods"), "{note}");
    cluster.workers_ready(3).await?;
    let after = cluster.api::<Secret>().get("pi-ssh").await?;
    ensure!(before.data != after.data, "the same keys");
    // As the event says.
    let workers = kube::api::ListParams::default().labels("mpi.stowplan.dev/role=worker");
    cluster.api::<Pod>().delete_collection(&now, &workers).await?;
    cluster.launch("pi-launcher", RING, 0).await?;
    cluster.runs_evenly("pi-launcher").await?;
    cluster.end().await
}

/// It is reported and not forced; when the node is back, or the pod was deleted, the launcher starts.
pub(crate) async fn the_node_of_a_worker_is_lost(world: Arc<World>) -> Result<()> {
    let cluster = Cluster::new(&world, "lost", IMAGE).await?;
    cluster.worker_set().await?;
    let workers = cluster.workers_ready(3).await?;
    let victim = workers
        .iter()
        .find(|pod| node_of(pod) == Some("node-3"))
        .and_then(|pod| pod.metadata.name.clone())
        .context("no worker is on node-3")?;
    let node = world.plane.real_node("node-3")?;
    node.kill().await?;
    node.not_ready().await?;
    let note = cluster.event("WorkerLost").await?;
    ensure!(note.contains(&format!("kubectl delete pod {victim}")), "{note}");
    cluster.launch("pi-launcher", RING, 0).await?;
    // As the event says: the node is certainly off.
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    cluster.api::<Pod>().delete(&victim, &now).await?;
    cluster.runs_evenly("pi-launcher").await?;
    node.start().await?;
    node.ready().await?;
    cluster.end().await
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}
