//! Clusters of each form, from their creation to their end.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use testbed::wait::{Seen, until};

use crate::mpi::cluster::{LIMIT, LOST, is_gated, launcher, worker_job, worker_set};
use crate::world::{Space, World, same};

/// Lets workers run that have a node and do not start.
async fn start_workers(space: &Space, cluster: &str, count: usize) -> Result<()> {
    let pods = until("the workers to have nodes", LIMIT, async || {
        let pods = space.of_role(cluster, "worker").await?;
        let bound = pods
            .iter()
            .filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
        Ok(match bound.count() == count {
            true => Seen::Done(pods),
            false => Seen::NotYet(format!("{} pods", pods.len())),
        })
    })
    .await?;
    for pod in pods {
        let name = pod.metadata.name.context("a pod without a name")?;
        let start = json!({"metadata": {"annotations": {LOST: null}}});
        space.change::<k8s_openapi::api::core::v1::Pod>(&name, start).await?;
    }
    Ok(())
}

/// Waits until the pods of the workers are deleted.
async fn no_workers(space: &Space, cluster: &str) -> Result<()> {
    until("the workers to be deleted", LIMIT, async || {
        let pods = space.of_role(cluster, "worker").await?.len();
        Ok(if pods == 0 { Seen::Done(()) } else { Seen::NotYet(format!("{pods} pods")) })
    })
    .await
}

/// Waits until the ConfigMap records the UID of the Secret; returns its version.
async fn recorded(space: &Space, cluster: &str) -> Result<Option<String>> {
    let secret: Secret = space.found(&format!("{cluster}-ssh")).await?;
    until("the Secret's UID to be recorded", LIMIT, async || {
        let map: ConfigMap = space.found(&format!("{cluster}-mpi")).await?;
        let state = map.metadata.annotations.unwrap_or_default();
        let state = state.get("mpi.stowplan.dev/key").cloned();
        Ok(match state == secret.metadata.uid {
            true => Seen::Done(map.metadata.resource_version),
            false => Seen::NotYet(format!("{state:?}")),
        })
    })
    .await
}

pub(crate) async fn a_job_and_a_stateful_set(world: Arc<World>) -> Result<()> {
    let space = world.namespace("seed").await?;
    let clean = [("clean-up", "workers")];
    space.created(&launcher("pi-launcher", "pi", &clean)).await?;
    let own = [("slots", "3"), (LOST, "true")];
    space.created(&worker_set("pi-workers", "pi", "pi", 3, &own)).await?;

    let service: Service = space.found("pi").await?;
    let spec = service.spec.context("a Service without a spec")?;
    same(&spec.cluster_ip.as_deref(), &Some("None"))?;
    same(&spec.publish_not_ready_addresses, &Some(true))?;
    let lines = |domain: &str| -> String {
        let host = |index| format!("pi-workers-{index}.pi.{}.svc.{domain}", space.name);
        (0..3).map(|index| format!("{} slots=3\n", host(index))).collect()
    };
    same(&space.file("pi", "hostfile").await?, &lines("cluster.local"))?;
    let secret: Secret = space.found("pi-ssh").await?;
    same(&secret.immutable, &Some(true))?;
    same(&secret.type_.as_deref(), &Some("kubernetes.io/ssh-auth"))?;
    let data = secret.data.unwrap_or_default();
    let key = String::from_utf8(data["ssh-privatekey"].0.clone())?;
    ensure!(key.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----"), "{key}");
    // The ConfigMap records the Secret's UID and is its owner.
    recorded(&space, "pi").await?;
    let map: ConfigMap = space.found("pi-mpi").await?;
    let owners = secret.metadata.owner_references.unwrap_or_default();
    same(
        &owners.iter().map(|of| of.uid.clone()).collect::<Vec<_>>(),
        &map.metadata.uid.into_iter().collect(),
    )?;

    // The launcher waits for the workers, and then succeeds at its first attempt.
    let gated = space.gated_launcher("pi").await?;
    let spec = gated.spec.context("a pod without a spec")?;
    same(&spec.hostname.as_deref(), &Some("pi-launcher"))?;
    same(&spec.subdomain.as_deref(), &Some("pi"))?;
    let said = space.world.stowplan(&["check", "mpi/pi", "-n", &space.name], "").await?;
    ensure!(!said.success && said.out.contains("0 of 3 workers Ready"), "{}{}", said.out, said.err);
    ensure!(
        is_gated(&space.gated_launcher("pi").await?),
        "it is gated while workers are not Ready"
    );
    start_workers(&space, "pi", 3).await?;
    space.job_succeeded("pi-launcher").await?;
    let note = space.event("WorkersReady", "Pod").await?;
    same(&note.as_str(), &"all 3 workers are Ready and have DNS names")?;

    // The end: no workers, and after the workloads nothing at all.
    let sets: Api<StatefulSet> = space.api();
    until("the workers to be stopped", LIMIT, async || {
        let replicas = sets.get("pi-workers").await?.spec.and_then(|spec| spec.replicas);
        Ok(if replicas == Some(0) { Seen::Done(()) } else { Seen::NotYet(format!("{replicas:?}")) })
    })
    .await?;
    space.event("WorkersStopped", "StatefulSet").await?;
    no_workers(&space, "pi").await?;
    // A user who starts them again keeps them.
    space.change::<StatefulSet>("pi-workers", json!({"spec": {"replicas": 2}})).await?;
    start_workers(&space, "pi", 2).await?;
    space.workers_run("pi", 2).await?;
    space.nothing_left("pi").await
}

pub(crate) async fn an_indexed_job_that_is_suspended_and_resumed(world: Arc<World>) -> Result<()> {
    let space = world.namespace("suspend").await?;
    let more = [("workers", "2"), ("implementation", "mpich")];
    let mut workers = worker_job("w", "c", 2, &more[..1]);
    workers["spec"]["suspend"] = json!(true);
    space.created(&workers).await?;
    space.created(&launcher("l", "c", &more)).await?;
    space.gated_launcher("c").await?;
    let host = |index| format!("w-{index}.c.{}.svc.cluster.local:1\n", space.name);
    same(&space.file("c", "hostfile").await?, &(host(0) + &host(1)))?;
    let said = space.world.stowplan(&["check", "mpi/c", "-n", &space.name], "").await?;
    ensure!(said.out.contains("its Job w is suspended"), "{}", said.out);

    space.change::<Job>("w", json!({"spec": {"suspend": false}})).await?;
    space.workers_run("c", 2).await?;
    space.job_succeeded("l").await?;

    // Suspended once more, a new launcher waits again.
    space.change::<Job>("w", json!({"spec": {"suspend": true}})).await?;
    no_workers(&space, "c").await?;
    space.created(&launcher("l2", "c", &more)).await?;
    space.gated_launcher("c").await?;
    space.change::<Job>("w", json!({"spec": {"suspend": false}})).await?;
    space.job_succeeded("l2").await?;

    // The next launcher asks for their end.
    let clean = [("implementation", "mpich"), ("clean-up", "workers")];
    space.created(&launcher("l3", "c", &clean)).await?;
    space.job_succeeded("l3").await?;
    no_workers(&space, "c").await?;
    let workers: Job = space.found("w").await?;
    same(&workers.spec.and_then(|spec| spec.suspend), &Some(true))?;
    space.event("WorkersStopped", "Job").await?;
    space.nothing_left("c").await
}

pub(crate) async fn a_launcher_that_is_a_worker(world: Arc<World>) -> Result<()> {
    let space = world.namespace("both").await?;
    let more = [("launcher-as-worker", "true"), ("slots", "2")];
    space.created(&worker_job("w", "c", 1, &[])).await?;
    space.created(&launcher("l", "c", &more)).await?;
    space.job_succeeded("l").await?;
    let domain = format!("{}.svc.cluster.local", space.name);
    let hosts = format!("c-launcher.c.{domain} slots=2\nw-0.c.{domain} slots=2\n");
    same(&space.file("c", "hostfile").await?, &hosts)?;
    space.nothing_left("c").await
}

pub(crate) async fn a_worker_comes_back_under_its_name(world: Arc<World>) -> Result<()> {
    let space = world.namespace("back").await?;
    space.created(&worker_job("w", "c", 2, &[])).await?;
    let before = space.workers_run("c", 2).await?;
    let name = before[1].metadata.name.clone().context("a pod without a name")?;
    space.pods().delete(&name, &DeleteParams::default()).await?;
    let after = until("another worker 1", LIMIT, async || {
        let pods = space.of_role("c", "worker").await?;
        let other = pods.into_iter().find(|pod| {
            let hostname = pod.spec.as_ref().and_then(|spec| spec.hostname.as_deref());
            hostname == Some("w-1") && pod.metadata.uid != before[1].metadata.uid
        });
        Ok(other.map_or_else(|| Seen::NotYet("none".to_owned()), Seen::Done))
    })
    .await?;
    same(&after.spec.and_then(|spec| spec.subdomain).as_deref(), &Some("c"))?;
    space.created(&launcher("l", "c", &[])).await?;
    space.job_succeeded("l").await
}

pub(crate) async fn two_clusters_in_one_namespace(world: Arc<World>) -> Result<()> {
    let space = world.namespace("two").await?;
    for cluster in ["a", "b"] {
        let workers = format!("{cluster}-w");
        space.created(&worker_job(&workers, cluster, 2, &[])).await?;
        space.created(&launcher(&format!("{cluster}-l"), cluster, &[])).await?;
    }
    let mut keys = Vec::new();
    for cluster in ["a", "b"] {
        space.job_succeeded(&format!("{cluster}-l")).await?;
        let hosts = space.file(cluster, "hostfile").await?;
        ensure!(hosts.lines().all(|line| line.starts_with(&format!("{cluster}-w-"))), "{hosts}");
        let secret: Secret = space.found(&format!("{cluster}-ssh")).await?;
        keys.push(secret.data.unwrap_or_default()["ssh-privatekey"].0.clone());
    }
    ensure!(keys[0] != keys[1], "each cluster has a key of its own");
    space.nothing_left("a").await?;
    space.nothing_left("b").await
}

/// Everything that is written for a cluster is written once, however many workers it has.
pub(crate) async fn hundreds_of_workers(world: Arc<World>) -> Result<()> {
    let space = world.namespace("large").await?;
    // A workload that comes later would be added to the owners of the ConfigMap.
    space.created(&launcher("l", "c", &[])).await?;
    space.created(&worker_job("w", "c", 300, &[])).await?;
    let hosts = space.file("c", "hostfile").await?;
    same(&hosts.lines().count(), &300)?;
    let last = format!("w-299.c.{}.svc.cluster.local slots=1", space.name);
    same(&hosts.lines().last(), &Some(last.as_str()))?;
    let version = recorded(&space, "c").await?;
    space.job_succeeded("l").await?;
    // No worker that came has changed it.
    same(&recorded(&space, "c").await?, &version)?;
    let note = space.event("WorkersReady", "Pod").await?;
    same(&note.as_str(), &"all 300 workers are Ready and have DNS names")
}
