//! What cannot start, and what the events say.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::api::DeleteParams;
use serde_json::json;
use testbed::control_plane::NodeSpec;
use testbed::wait::{Seen, until};

use crate::mpi::cluster::{LIMIT, LOST, launcher, template, worker_job, worker_set};
use crate::world::{World, same};

pub(crate) async fn a_foreign_secret_is_left_alone(world: Arc<World>) -> Result<()> {
    let space = world.namespace("secret").await?;
    let foreign = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c-ssh"},
        "stringData": {"mine": "yes"}});
    space.created(&foreign).await?;
    space.created(&worker_job("w", "c", 1, &[])).await?;
    space.created(&launcher("l", "c", &[])).await?;
    let note = space.event("ObjectNotMade", "Job").await?;
    ensure!(
        note.contains("\"c-ssh\" already exists") && note.contains("name the cluster otherwise"),
        "{note}"
    );
    space.event("ObjectNotMade", "Pod").await?;
    let secret: Secret = space.found("c-ssh").await?;
    same(&secret.data.unwrap_or_default().len(), &1)?;
    ensure!(space.api::<ConfigMap>().get_opt("c-mpi").await?.is_none(), "no ConfigMap yet");

    // The remedy works.
    space.api::<Secret>().delete("c-ssh", &DeleteParams::default()).await?;
    space.job_succeeded("l").await?;
    let secret: Secret = space.found("c-ssh").await?;
    same(&secret.immutable, &Some(true))
}

pub(crate) async fn a_deleted_secret_is_made_again(world: Arc<World>) -> Result<()> {
    let space = world.namespace("deleted").await?;
    space.created(&worker_job("w", "c", 1, &[(LOST, "true")])).await?;
    let first: Secret = space.found("c-ssh").await?;
    space.api::<Secret>().delete("c-ssh", &DeleteParams::default()).await?;
    // Its pod has a node and does not start, as without the Secret.
    let second: Secret = space.found("c-ssh").await?;
    ensure!(first.metadata.uid != second.metadata.uid && first.data != second.data, "another one");
    let note = space.event("KeyReplaced", "Job").await?;
    ensure!(note.contains("restart the workers"), "{note}");
    space.nothing_left("c").await
}

pub(crate) async fn a_foreign_service_is_left_alone(world: Arc<World>) -> Result<()> {
    let space = world.namespace("service").await?;
    let foreign = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "c"},
        "spec": {"clusterIP": "None", "selector": {"app": "other"}}});
    space.created(&foreign).await?;
    space.created(&worker_job("w", "c", 1, &[])).await?;
    space.created(&launcher("l", "c", &[])).await?;
    let note = space.event("ObjectNotMade", "Pod").await?;
    ensure!(note.contains("needs a Service c"), "{note}");
    let service: Service = space.found("c").await?;
    let selector = service.spec.and_then(|spec| spec.selector).unwrap_or_default();
    same(&selector.get("app").map(String::as_str), &Some("other"))
}

pub(crate) async fn pods_that_cannot_be_members_are_refused(world: Arc<World>) -> Result<()> {
    let space = world.namespace("refused").await?;
    let mut of_deployment = template("c", "worker", &[], "1s");
    of_deployment["spec"].as_object_mut().unwrap().remove("restartPolicy");
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "c-worker"}}, "template": of_deployment},
    });
    space.created(&deployment).await?;
    let note = space.event("FailedCreate", "ReplicaSet").await?;
    ensure!(note.contains("use a StatefulSet, or a Job with completionMode: Indexed"), "{note}");
    let mut job = worker_job("w", "c", 2, &[]);
    job["spec"]["completionMode"] = json!("NonIndexed");
    space.created(&job).await?;
    let note = space.event("FailedCreate", "Job").await?;
    ensure!(note.contains("the pod's Job is not Indexed"), "{note}");
    same(&space.pods().list(&Default::default()).await?.items.len(), &0)
}

pub(crate) async fn what_keeps_a_cluster_from_starting(world: Arc<World>) -> Result<()> {
    let space = world.namespace("problem").await?;
    space.created(&launcher("l", "c", &[("workers", "3")])).await?;
    let note = space.event("NoWorkers", "Pod").await?;
    ensure!(note.contains("no workload of the namespace makes its workers"), "{note}");
    let mut workers = worker_job("w", "c", 2, &[]);
    workers["spec"]["parallelism"] = json!(1);
    space.created(&workers).await?;
    let note = space.event("WorkersNotAtOnce", "Job").await?;
    ensure!(note.contains("set parallelism to 2"), "{note}");
    let said = space.world.stowplan(&["check", "mpi/c", "-n", &space.name], "").await?;
    ensure!(said.out.contains("set parallelism to 2"), "{}", said.out);
    space
        .change::<k8s_openapi::api::batch::v1::Job>("w", json!({"spec": {"parallelism": 2}}))
        .await?;
    let note = space.event("WorkersDiffer", "Job").await?;
    ensure!(note.contains("says 3, and the workloads make 2"), "{note}");
    space.created(&worker_job("w2", "c", 1, &[])).await?;
    space.job_succeeded("l").await
}

pub(crate) async fn a_second_launcher_is_reported(world: Arc<World>) -> Result<()> {
    let space = world.namespace("several").await?;
    space.created(&launcher("l", "c", &[])).await?;
    space.gated_launcher("c").await?;
    space.created(&launcher("m", "c", &[])).await?;
    let note = space.event("SeveralLaunchers", "Job").await?;
    ensure!(note.contains("is a launcher of the same cluster"), "{note}");
    Ok(())
}

pub(crate) async fn a_worker_on_a_lost_node_is_reported(world: Arc<World>) -> Result<()> {
    let space = world.namespace("lost").await?;
    world.plane.add_nodes(&[NodeSpec::new("lonely").label("test", "lost")]).await?;
    let mut workers = worker_set("w", "c", "c", 1, &[]);
    workers["spec"]["template"]["spec"]["nodeSelector"] = json!({"test": "lost"});
    space.created(&workers).await?;
    space.workers_run("c", 1).await?;
    world.plane.lose_node("lonely").await?;
    let note = space.event("WorkerLost", "StatefulSet").await?;
    ensure!(note.contains("kubectl delete pod w-0"), "{note}");
    // It is not forced: the pod stays as Kubernetes leaves it.
    let pod: Pod = space.found("w-0").await?;
    same(&pod.spec.and_then(|spec| spec.node_name).as_deref(), &Some("lonely"))?;
    world.plane.recover_node("lonely").await?;
    space.created(&launcher("l", "c", &[])).await?;
    until("the launcher to succeed", LIMIT, async || {
        Ok(match space.job_succeeded("l").await {
            Ok(()) => Seen::Done(()),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    })
    .await
}
