//! Clusters of each form, from their creation to their end; what cannot start, and what the events say.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::mpi::cluster::{LOST, launcher, worker_job, worker_set};
use crate::world::{Space, World, appears, object, one_of, same, settled};

/// Waits until the pods of the workers are deleted.
async fn no_workers(space: &Space, cluster: &str) -> Result<()> {
    let workers = async || Ok(space.of_role(cluster, "worker").await?.len());
    settled("the workers to be deleted", workers, |count| *count == 0).await.map(drop)
}

/// Waits until the ConfigMap records the UID of the Secret; returns its version.
async fn recorded(space: &Space, cluster: &str) -> Result<Option<String>> {
    let uid = space.found::<Secret>(&format!("{cluster}-ssh")).await?.metadata.uid;
    appears("the Secret's UID to be recorded", async || {
        let map: ConfigMap = space.found(&format!("{cluster}-mpi")).await?;
        let is_it = map.annotations().get("mpi.stowplan.dev/key") == uid.as_ref();
        Ok(is_it.then_some(map.metadata.resource_version))
    })
    .await
}

pub(crate) async fn a_job_and_a_stateful_set(world: Arc<World>) -> Result<()> {
    let space = world.namespace("seed").await?;
    space.created(&launcher("pi-launcher", "pi", &[("clean-up", "workers")])).await?;
    let mut workers = worker_set("pi-workers", "pi", 3, &[("slots", "3")]);
    workers["spec"]["template"]["metadata"]["annotations"][LOST] = json!("true");
    space.created(&workers).await?;

    let service: Service = space.found("pi").await?;
    let spec = service.spec.context("a Service without a spec")?;
    same(&spec.cluster_ip.as_deref(), &Some("None"))?;
    same(&spec.publish_not_ready_addresses, &Some(true))?;
    let domain = format!("pi.{}.svc.cluster.local", space.name);
    let line = |index| format!("pi-workers-{index}.{domain} slots=3\n");
    same(&space.file("pi", "hostfile").await?, &(0..3).map(line).collect())?;
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
    same(&one_of(owners.into_iter().map(|of| of.uid))?, &map.metadata.uid.unwrap_or_default())?;

    // The launcher waits for the workers, and then succeeds at its first attempt.
    let gated = space.gated_launcher("pi").await?;
    let spec = gated.spec.context("a pod without a spec")?;
    same(&spec.hostname.as_deref(), &Some("pi-launcher"))?;
    same(&spec.subdomain.as_deref(), &Some("pi"))?;
    space.check_says("pi", "0 of 3 workers Ready").await?;
    // It is gated while workers are not Ready.
    space.gated_launcher("pi").await?;
    // Lets workers run that have a node and do not start.
    let workers = "mpi.stowplan.dev/role=worker";
    space.nodes_of_all(workers, 3).await?;
    space.kubectl(&format!("annotate pods -l {workers} {LOST}-")).await?;
    space.job_succeeded("pi-launcher").await?;
    let note = space.event("Pod/", "WorkersReady").await?;
    same(&&*note, &"all 3 workers are Ready and have DNS names")?;

    // The end: no workers, and after the workloads nothing at all.
    let replicas = async || {
        let set: StatefulSet = space.found("pi-workers").await?;
        Ok(set.spec.and_then(|spec| spec.replicas))
    };
    settled("the workers to be stopped", replicas, |count| *count == Some(0)).await?;
    space.told("StatefulSet", "WorkersStopped", &[]).await?;
    no_workers(&space, "pi").await?;
    // A user who starts them again keeps them.
    let template = json!({"metadata": {"annotations": {LOST: null}}});
    let again = json!({"spec": {"replicas": 2, "template": template}});
    space.change::<StatefulSet>("pi-workers", again).await?;
    space.workers_run("pi", 2).await?;
    space.nothing_left().await
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
    // The launcher's implementation decides its form, once the launcher is known.
    let (file, hosts) = (async || space.file("c", "hostfile").await, host(0) + &host(1));
    settled("the hostfile of MPICH", file, |file| *file == hosts).await?;
    space.check_says("c", "Job w is suspended").await?;

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
    space.told("Job", "WorkersStopped", &[]).await?;
    space.nothing_left().await
}

/// Each has its own key and its own hosts; in the second one the launcher is a host, too.
pub(crate) async fn two_clusters_in_one_namespace(world: Arc<World>) -> Result<()> {
    let space = world.namespace("two").await?;
    let own: &[&[(&str, &str)]] = &[&[], &[("launcher-as-worker", "true"), ("slots", "2")]];
    for (cluster, more) in ["a", "b"].into_iter().zip(own) {
        space.created(&worker_job(&format!("{cluster}-w"), cluster, 2, &[])).await?;
        space.created(&launcher(&format!("{cluster}-l"), cluster, more)).await?;
    }
    let mut keys = Vec::new();
    for (cluster, hosts) in [("a", "a-w-0 1 a-w-1 1"), ("b", "b-launcher 2 b-w-0 2 b-w-1 2")] {
        space.job_succeeded(&format!("{cluster}-l")).await?;
        let domain = format!(".{cluster}.{}.svc.cluster.local slots=", space.name);
        let file = space.file(cluster, "hostfile").await?.replace(&domain, " ");
        same(&file.lines().collect::<Vec<_>>().join(" ").as_str(), &hosts)?;
        let secret: Secret = space.found(&format!("{cluster}-ssh")).await?;
        keys.push(secret.data.unwrap_or_default()["ssh-privatekey"].0.clone());
    }
    ensure!(keys[0] != keys[1], "each cluster has a key of its own");
    space.nothing_left().await
}

/// Everything that is written for a cluster is written once, however many workers it has.
pub(crate) async fn hundreds_of_workers(world: Arc<World>) -> Result<()> {
    let space = world.namespace("large").await?;
    // A workload that comes later would be added to the owners of the ConfigMap.
    space.created(&launcher("l", "c", &[])).await?;
    space.created(&worker_job("w", "c", 200, &[])).await?;
    let hosts = space.file("c", "hostfile").await?;
    same(&hosts.lines().count(), &200)?;
    let last = format!("w-199.c.{}.svc.cluster.local slots=1", space.name);
    same(&hosts.lines().last(), &Some(last.as_str()))?;
    let version = recorded(&space, "c").await?;
    space.job_succeeded("l").await?;
    // No worker that came has changed it.
    same(&recorded(&space, "c").await?, &version)?;
    let note = space.event("Pod/", "WorkersReady").await?;
    same(&&*note, &"all 200 workers are Ready and have DNS names")
}

pub(crate) async fn a_foreign_secret_is_left_alone(world: Arc<World>) -> Result<()> {
    let space = world.namespace("secret").await?;
    let foreign = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c-ssh"},
        "stringData": {"mine": "yes"}});
    space.created(&foreign).await?;
    space.created(&worker_job("w", "c", 1, &[])).await?;
    space.created(&launcher("l", "c", &[])).await?;
    let why = ["\"c-ssh\" already exists", "name the cluster otherwise"];
    space.told("Job", "ObjectNotMade", &why).await?;
    space.told("Pod", "ObjectNotMade", &[]).await?;
    let secret: Secret = space.found("c-ssh").await?;
    same(&secret.data.unwrap_or_default().len(), &1)?;
    ensure!(space.api::<ConfigMap>().get_opt("c-mpi").await?.is_none(), "no ConfigMap yet");

    // The remedy works.
    space.api::<Secret>().delete("c-ssh", &DeleteParams::default()).await?;
    space.job_succeeded("l").await?;
    let secret: Secret = space.found("c-ssh").await?;
    same(&secret.immutable, &Some(true))
}

pub(crate) async fn a_foreign_service_is_left_alone(world: Arc<World>) -> Result<()> {
    let space = world.namespace("service").await?;
    let spec = json!({"clusterIP": "None", "selector": {"app": "other"}});
    space.created(&object("v1", "Service", "c", &spec)).await?;
    space.created(&worker_job("w", "c", 1, &[])).await?;
    space.created(&launcher("l", "c", &[])).await?;
    space.told("Pod", "ObjectNotMade", &["needs a Service c"]).await?;
    let service: Service = space.found("c").await?;
    let selector = service.spec.and_then(|spec| spec.selector).unwrap_or_default();
    same(&selector.get("app").map(String::as_str), &Some("other"))
}

/// It bounds each container, also those that webhooks add.
pub(crate) async fn a_limit_range_admits_the_container_that_copies_the_keys(
    world: Arc<World>,
) -> Result<()> {
    let space = world.namespace("bounds").await?;
    let bounds = json!({"limits": [{"type": "Container", "min": {"cpu": "100m"},
        "max": {"cpu": "400m"}, "maxLimitRequestRatio": {"cpu": "2"}}]});
    space.created(&object("v1", "LimitRange", "bounds", &bounds)).await?;
    // The launcher has the amounts that the LimitRange gives it.
    space.created(&launcher("pi-launcher", "pi", &[])).await?;
    let mut workers = worker_set("pi-workers", "pi", 2, &[]);
    let amounts = json!({"requests": {"cpu": "200m"}, "limits": {"cpu": "300m"}});
    workers["spec"]["template"]["spec"]["containers"][0]["resources"] = amounts;
    space.created(&workers).await?;
    space.workers_run("pi", 2).await?;
    let pods = [space.of_role("pi", "worker").await?, space.of_role("pi", "launcher").await?];
    for pod in pods.concat() {
        let spec = pod.spec.context("a pod without a spec")?;
        let copies = spec.init_containers.context("no init container")?;
        same(&copies[0].resources, &spec.containers[0].resources)?;
    }
    space.job_succeeded("pi-launcher").await
}

pub(crate) async fn what_keeps_a_cluster_from_starting(world: Arc<World>) -> Result<()> {
    let space = world.namespace("problem").await?;
    space.created(&launcher("l", "c", &[("workers", "3")])).await?;
    let nobody = "no workload of the namespace makes its workers";
    space.told("Pod", "NoWorkers", &[nobody]).await?;
    let mut workers = worker_job("w", "c", 2, &[]);
    workers["spec"]["parallelism"] = json!(1);
    space.created(&workers).await?;
    space.told("Job", "WorkersNotAtOnce", &["set parallelism to 2"]).await?;
    space.check_says("c", "set parallelism to 2").await?;
    space.change::<Job>("w", json!({"spec": {"parallelism": 2}})).await?;
    space.told("Job", "WorkersDiffer", &["says 3, and the workloads make 2"]).await?;
    space.created(&worker_job("w2", "c", 1, &[])).await?;
    space.job_succeeded("l").await
}

/// As the controller of JobSet 0.11 makes them: Jobs with the name of their set, and pods in the subdomain of its
/// Service. The cluster has another name: that of the set is the Service's.
pub(crate) async fn the_jobs_of_a_job_set(world: Arc<World>) -> Result<()> {
    const SET: &str = "jobset.sigs.k8s.io/jobset-name";
    let space = world.namespace("jobset").await?;
    let spec = json!({
        "clusterIP": "None", "publishNotReadyAddresses": true, "selector": {SET: "pi"},
    });
    space.created(&object("v1", "Service", "pi", &spec)).await?;
    let of_set = |mut job: Value| {
        job["metadata"]["labels"] = json!({SET: "pi"});
        job["spec"]["completionMode"] = json!("Indexed");
        let template = &mut job["spec"]["template"];
        template["metadata"]["labels"][SET] = json!("pi");
        template["spec"]["subdomain"] = json!("pi");
        job
    };
    let mut launcher = of_set(launcher("pi-launcher-0", "ring", &[("clean-up", "workers")]));
    launcher["spec"]["completions"] = json!(1);
    space.created(&launcher).await?;
    space.created(&of_set(worker_job("pi-worker-0", "ring", 2, &[]))).await?;
    let line = |index| format!("pi-worker-0-{index}.pi.{}.svc.cluster.local slots=1\n", space.name);
    appears("the hostfile", async || {
        let file = space.file("ring", "hostfile").await.unwrap_or_default();
        Ok((file == (0..2).map(line).collect::<String>()).then_some(()))
    })
    .await?;
    space.job_succeeded("pi-launcher-0").await?;
    no_workers(&space, "ring").await
}
