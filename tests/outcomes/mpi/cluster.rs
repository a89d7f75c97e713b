//! Workloads of MPI clusters, and what the tests see of them.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::world::{
    Space, appears, has, is_gated, is_ready, on_lasting_nodes, pod, settled, workload_of,
};

/// With this annotation a pod gets a node and does not start.
pub(crate) const LOST: &str = "testbed.stowplan.dev/lost";

/// A pod template of a cluster. `duration`: how long its pods run, if they are a Job's.
pub(crate) fn template(cluster: &str, role: &str, more: &[(&str, &str)], duration: &str) -> Value {
    let mut annotations = json!({
        "mpi.stowplan.dev/cluster": cluster, "mpi.stowplan.dev/role": role,
        "testbed.stowplan.dev/duration": duration,
    });
    for (key, value) in more {
        annotations[format!("mpi.stowplan.dev/{key}")] = json!(value);
    }
    let mut container =
        json!({"name": "main", "image": "mpi", "securityContext": {"runAsUser": 0}});
    if role == "launcher" {
        container["command"] = json!(["mpirun", "/opt/pi"]);
    }
    pod(
        role,
        &json!({
            "metadata": {"annotations": annotations, "labels": {"app": format!("{cluster}-{role}")}},
            "spec": {"containers": [container], "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0, "affinity": on_lasting_nodes()},
        }),
    )
}

/// A Job of such pods, with these fields in its spec.
fn job(name: &str, pod: &Value, more: &Value) -> Value {
    let mut job = workload_of("Job", name, 1, pod);
    let own = json!({"apiVersion": "batch/v1", "spec": {"replicas": null, "selector": null}});
    json_patch::merge(&mut job, &own);
    json_patch::merge(&mut job["spec"], more);
    job
}

pub(crate) fn launcher(name: &str, cluster: &str, more: &[(&str, &str)]) -> Value {
    job(name, &template(cluster, "launcher", more, "100ms"), &json!({"backoffLimit": 0}))
}

/// An Indexed Job of workers that run for an hour.
pub(crate) fn worker_job(name: &str, cluster: &str, count: u32, more: &[(&str, &str)]) -> Value {
    let indexed = json!({"completionMode": "Indexed", "completions": count, "parallelism": count});
    job(name, &template(cluster, "worker", more, "3600s"), &indexed)
}

/// A StatefulSet of workers with the name of their cluster as that of their Service.
pub(crate) fn worker_set(name: &str, cluster: &str, count: usize, more: &[(&str, &str)]) -> Value {
    let template = template(cluster, "worker", more, "1s");
    let mut set = workload_of("StatefulSet", name, count, &template);
    set["spec"]["serviceName"] = json!(cluster);
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    set["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
    set
}

impl Space {
    /// The pods of a role in a cluster, by the labels of the webhook.
    pub(crate) async fn of_role(&self, cluster: &str, role: &str) -> Result<Vec<Pod>> {
        let labels = format!("mpi.stowplan.dev/cluster={cluster},mpi.stowplan.dev/role={role}");
        let mut pods = self.pods().list(&ListParams::default().labels(&labels)).await?.items;
        pods.sort_by_key(|pod| pod.metadata.name.clone());
        Ok(pods)
    }

    /// Waits until all workers of a cluster run.
    pub(crate) async fn workers_run(&self, cluster: &str, count: usize) -> Result<()> {
        let workers = async || {
            let pods = self.of_role(cluster, "worker").await?;
            Ok(pods.iter().map(is_ready).collect::<Vec<_>>())
        };
        let what = format!("{count} workers of {cluster} to be Ready");
        settled(&what, workers, |ready| *ready == vec![true; count]).await.map(drop)
    }

    /// Waits until the launcher of a cluster exists and is gated.
    pub(crate) async fn gated_launcher(&self, cluster: &str) -> Result<Pod> {
        appears(&format!("a gated launcher of {cluster}"), async || {
            let pods = self.of_role(cluster, "launcher").await?;
            Ok(pods.into_iter().find(|pod| is_gated(pod, "stowplan.dev/mpi-workers")))
        })
        .await
    }

    /// Waits until a Job has succeeded, and checks that none of its pods failed.
    pub(crate) async fn job_succeeded(&self, job: &str) -> Result<()> {
        let status = async || {
            let status = self.api::<Job>().get(job).await?.status.unwrap_or_default();
            ensure!(status.failed.unwrap_or_default() == 0, "a pod of {job} has failed");
            Ok(status)
        };
        settled(&format!("Job {job} to succeed"), status, |it| it.succeeded >= Some(1))
            .await
            .map(drop)
    }

    /// Expects this text in the report of `check` about a cluster.
    pub(crate) async fn check_says(&self, cluster: &str, words: &str) -> Result<()> {
        has(&self.stowplan(&format!("check mpi/{cluster}"), "").await?.out, &[words])
    }

    /// The values of a cluster's ConfigMap.
    pub(crate) async fn file(&self, cluster: &str, key: &str) -> Result<String> {
        let map: ConfigMap = self.found(&format!("{cluster}-mpi")).await?;
        map.data.unwrap_or_default().remove(key).context("no such key")
    }

    /// Waits for an event with this reason about an object of this kind, which has these words.
    pub(crate) async fn told(&self, kind: &str, reason: &str, words: &[&str]) -> Result<()> {
        has(&self.event(&format!("{kind}/"), reason).await?, words)
    }

    /// Deletes the workloads, and waits until everything that was made for their clusters is deleted.
    pub(crate) async fn nothing_left(&self) -> Result<()> {
        let background = DeleteParams::background();
        let all = ListParams::default();
        self.api::<Job>().delete_collection(&background, &all).await?;
        self.api::<StatefulSet>().delete_collection(&background, &all).await?;
        let left = async || {
            let mut left = self.names::<Pod>().await?;
            left.extend(self.names::<Service>().await?);
            left.extend(self.names::<Secret>().await?);
            left.extend(self.names::<ConfigMap>().await?);
            // Kubernetes makes one in each namespace.
            left.retain(|name| name != "kube-root-ca.crt");
            Ok(left)
        };
        settled("nothing of the clusters to be left", left, Vec::is_empty).await.map(drop)
    }
}
