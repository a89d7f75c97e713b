//! Faults that jobs meet: workers that are killed, suspended or lost, and keys that are deleted.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use testbed::real::mpi_image::{Implementation, MpiImage};
use testbed::wait::{Seen, until};

use super::cluster::{Cluster, EVENLY, LIMIT, RING, World, check_ranks};

const IMAGE: MpiImage = MpiImage { implementation: Implementation::OpenMpi4, user: false };

/// `kubectl delete pod` with these does not ask the kubelet.
const BY_FORCE: [&str; 3] = ["--grace-period=0", "--force", "--wait=false"];

pub(crate) async fn a_launcher_that_is_a_worker(world: Arc<World>) -> Result<()> {
    let mut cluster = Cluster::new(&world, "launcher-as-worker", IMAGE)?;
    cluster.annotations.push(("launcher-as-worker", "true".to_owned()));
    cluster.worker_job(2)?;
    cluster.launch("pi-launcher", RING, 0)?;
    let (output, failed) = cluster.finished("pi-launcher").await?;
    ensure!(failed == 0, "{failed} launchers failed");
    check_ranks(&output, &[("pi-launcher", 3), ("pi-workers-0", 3), ("pi-workers-1", 3)])?;
    cluster.end()
}

/// The launcher fails with the worker, and its retry waits until the worker is back.
pub(crate) async fn a_worker_is_killed_in_mid_run(world: Arc<World>) -> Result<()> {
    let cluster = Cluster::new(&world, "killed", IMAGE)?;
    cluster.worker_set()?;
    // The first attempt would run for an hour.
    let command = "if mpirun -n 3 --map-by node test -e /tmp/second; then mpirun -n 9 ring; \
                   else mpirun -n 3 --map-by node touch /tmp/second && echo begun && \
                   mpirun -n 9 sleep 3600; fi";
    cluster.launch("pi-launcher", command, 2)?;
    until("the first attempt to run", LIMIT, async || {
        let logs = cluster.kubectl(&["logs", "--selector=app=pi-launcher"]).unwrap_or_default();
        Ok(if logs.contains("begun") { Seen::Done(()) } else { Seen::NotYet(logs) })
    })
    .await?;
    cluster.kubectl(&[&["delete", "pod", "pi-workers-1"][..], &BY_FORCE].concat())?;
    // The worker that is back has lost the file of the first attempt, by which the retry differs.
    let mark = ["exec", "pi-workers-1", "--", "touch", "/tmp/second"];
    until("the worker to be back", LIMIT, async || Ok(cluster.kubectl(&mark).into())).await?;
    let (output, failed) = cluster.finished("pi-launcher").await?;
    check_ranks(&output, &EVENLY)?;
    ensure!(failed == 1, "{failed} launchers failed");
    cluster.end()
}

pub(crate) async fn workers_are_suspended_and_resumed(world: Arc<World>) -> Result<()> {
    let cluster = Cluster::new(&world, "suspended", IMAGE)?;
    cluster.worker_job(3)?;
    cluster.launch("first", RING, 0)?;
    cluster.runs_evenly("first").await?;
    cluster.patch("job/pi-workers", &json!({"spec": {"suspend": true}}))?;
    cluster.workers_gone().await?;
    cluster.launch("second", RING, 0)?;
    cluster.patch("job/pi-workers", &json!({"spec": {"suspend": false}}))?;
    cluster.runs_evenly("second").await?;
    cluster.end()
}

/// A worker that is created without the Secret hangs; the Secret is made again. While another pod of its
/// node uses the Secret, the kubelet has it in memory, and nothing hangs.
pub(crate) async fn a_secret_is_deleted(world: Arc<World>) -> Result<()> {
    let cluster = Cluster::new(&world, "secret", IMAGE)?;
    cluster.worker_set()?;
    cluster.workers_ready().await?;
    let keys = ["get", "secret", "pi-ssh", "-o=jsonpath={.data}"];
    let before = cluster.kubectl(&keys)?;
    cluster.patch("statefulset/pi-workers", &json!({"spec": {"replicas": 0}}))?;
    cluster.workers_gone().await?;
    cluster.kubectl(&["delete", "secret", "pi-ssh"])?;
    cluster.patch("statefulset/pi-workers", &json!({"spec": {"replicas": 3}}))?;
    let note = cluster.event("KeyReplaced").await?;
    ensure!(note.contains("restart the workers: kubectl delete pods"), "{note}");
    cluster.workers_ready().await?;
    ensure!(before != cluster.kubectl(&keys)?, "the same keys");
    // As the event says.
    let workers = ["delete", "pods", "--selector=mpi.stowplan.dev/role=worker"];
    cluster.kubectl(&[&workers[..], &BY_FORCE].concat())?;
    cluster.launch("pi-launcher", RING, 0)?;
    cluster.runs_evenly("pi-launcher").await?;
    cluster.end()
}

/// It is reported and not forced; when the node is back, or the pod was deleted, the launcher starts.
pub(crate) async fn the_node_of_a_worker_is_lost(world: Arc<World>) -> Result<()> {
    let cluster = Cluster::new(&world, "lost", IMAGE)?;
    cluster.worker_set()?;
    cluster.workers_ready().await?;
    let [workers, there] = ["--selector=app=pi-worker", "--field-selector=spec.nodeName=node-3"];
    let victim = cluster
        .kubectl(&["get", "pods", workers, there, "-o=jsonpath={.items[0].metadata.name}"])
        .context("no worker is on node-3")?;
    let node = world.plane.real_node("node-3")?;
    node.kill()?;
    node.not_ready().await?;
    let note = cluster.event("WorkerLost").await?;
    ensure!(note.contains(&format!("kubectl delete pod {victim}")), "{note}");
    cluster.launch("pi-launcher", RING, 0)?;
    // As the event says: the node is certainly off.
    cluster.kubectl(&[&["delete", "pod", &victim][..], &BY_FORCE].concat())?;
    cluster.runs_evenly("pi-launcher").await?;
    node.start()?;
    node.ready().await?;
    cluster.end()
}
