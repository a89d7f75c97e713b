//! Workloads of MPI clusters, and what the tests see of them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::wait::{Seen, until};

use crate::world::Space;

/// How long anything may take: the machine has two cores, and other tests run at once.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// With this annotation a pod gets a node and does not start.
pub(crate) const LOST: &str = "testbed.stowplan.dev/lost";

/// A pod template of a cluster. `duration`: how long its pods run, if they are a Job's.
pub(crate) fn template(cluster: &str, role: &str, more: &[(&str, &str)], duration: &str) -> Value {
    let mut annotations = json!({
        "mpi.stowplan.dev/cluster": cluster, "mpi.stowplan.dev/role": role,
        "testbed.stowplan.dev/duration": duration,
    });
    for (key, value) in more {
        let key = match key.contains('/') {
            true => (*key).to_owned(),
            false => format!("mpi.stowplan.dev/{key}"),
        };
        annotations[key] = json!(value);
    }
    let mut container =
        json!({"name": "main", "image": "mpi", "securityContext": {"runAsUser": 0}});
    if role == "launcher" {
        container["command"] = json!(["mpirun", "/opt/pi"]);
    }
    json!({
        "metadata": {"annotations": annotations, "labels": {"app": format!("{cluster}-{role}")}},
        "spec": {"containers": [container], "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0},
    })
}

pub(crate) fn launcher(name: &str, cluster: &str, more: &[(&str, &str)]) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": template(cluster, "launcher", more, "100ms"), "backoffLimit": 0},
    })
}

/// An Indexed Job of workers that run for an hour.
pub(crate) fn worker_job(name: &str, cluster: &str, count: u32, more: &[(&str, &str)]) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"completionMode": "Indexed", "completions": count, "parallelism": count,
            "template": template(cluster, "worker", more, "3600s")},
    })
}

/// A StatefulSet of workers.
pub(crate) fn worker_set(
    name: &str,
    cluster: &str,
    service: &str,
    count: u32,
    more: &[(&str, &str)],
) -> Value {
    let mut template = template(cluster, "worker", more, "1s");
    template["spec"].as_object_mut().unwrap().remove("restartPolicy");
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
        "spec": {"replicas": count, "serviceName": service, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": format!("{cluster}-worker")}}, "template": template},
    })
}

impl Space {
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned,
    {
        Api::namespaced(self.world.client.clone(), &self.name)
    }

    /// Waits until there is an object of this name.
    pub(crate) async fn found<K>(&self, name: &str) -> Result<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let api: Api<K> = self.api();
        until(&format!("{} {name}", K::kind(&())), LIMIT, async || {
            Ok(match api.get_opt(name).await? {
                Some(found) => Seen::Done(found),
                None => Seen::NotYet("there is none".to_owned()),
            })
        })
        .await
    }

    /// The pods of a role in a cluster, by the labels of the webhook.
    pub(crate) async fn of_role(&self, cluster: &str, role: &str) -> Result<Vec<Pod>> {
        let labels = format!("mpi.stowplan.dev/cluster={cluster},mpi.stowplan.dev/role={role}");
        let mut pods = self.pods().list(&ListParams::default().labels(&labels)).await?.items;
        pods.sort_by_key(|pod| pod.metadata.name.clone());
        Ok(pods)
    }

    /// Waits until all workers of a cluster run.
    pub(crate) async fn workers_run(&self, cluster: &str, count: usize) -> Result<Vec<Pod>> {
        until(&format!("{count} workers of {cluster}"), LIMIT, async || {
            let pods = self.of_role(cluster, "worker").await?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            Ok(match ready == count && pods.len() == count {
                true => Seen::Done(pods),
                false => Seen::NotYet(format!("{ready} of {} are Ready", pods.len())),
            })
        })
        .await
    }

    /// Waits until the launcher of a cluster exists and is gated.
    pub(crate) async fn gated_launcher(&self, cluster: &str) -> Result<Pod> {
        until(&format!("a gated launcher of {cluster}"), LIMIT, async || {
            let pods = self.of_role(cluster, "launcher").await?;
            let gated = pods.iter().find(|pod| is_gated(pod));
            Ok(match gated {
                Some(pod) => Seen::Done(pod.clone()),
                None => Seen::NotYet(format!("{} launchers", pods.len())),
            })
        })
        .await
    }

    /// Waits until a Job has succeeded, and checks that none of its pods failed.
    pub(crate) async fn job_succeeded(&self, job: &str) -> Result<()> {
        let jobs: Api<Job> = self.api();
        until(&format!("Job {job} to succeed"), LIMIT, async || {
            let status = jobs.get(job).await?.status.unwrap_or_default();
            ensure!(status.failed.unwrap_or_default() == 0, "a pod of {job} has failed");
            Ok(match status.succeeded {
                Some(1..) => Seen::Done(()),
                _ => Seen::NotYet(format!("{status:?}")),
            })
        })
        .await
    }

    /// The values of a cluster's ConfigMap.
    pub(crate) async fn file(&self, cluster: &str, key: &str) -> Result<String> {
        let map: ConfigMap = self.found(&format!("{cluster}-mpi")).await?;
        map.data.unwrap_or_default().remove(key).context("no such key")
    }

    /// Waits for an event with this reason about this object; returns its note.
    pub(crate) async fn event(&self, reason: &str, kind: &str) -> Result<String> {
        let events: Api<Event> = self.api();
        until(&format!("an event {reason} about a {kind}"), LIMIT, async || {
            let all = events.list(&ListParams::default()).await?.items;
            let found = all.iter().find(|event| {
                let about = event.regarding.as_ref().and_then(|of| of.kind.as_deref());
                event.reason.as_deref() == Some(reason) && about == Some(kind)
            });
            Ok(match found {
                Some(event) => Seen::Done(event.note.clone().unwrap_or_default()),
                None => {
                    let reasons: Vec<_> = all.into_iter().filter_map(|of| of.reason).collect();
                    Seen::NotYet(format!("{reasons:?}"))
                }
            })
        })
        .await
    }

    pub(crate) async fn change<K>(&self, name: &str, change: Value) -> Result<()>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let api: Api<K> = self.api();
        api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(())
    }

    /// Deletes the workloads, and waits until everything that was made for a cluster is deleted.
    pub(crate) async fn nothing_left(&self, cluster: &str) -> Result<()> {
        let background = DeleteParams::background();
        let all = ListParams::default();
        self.api::<Job>().delete_collection(&background, &all).await?;
        self.api::<StatefulSet>().delete_collection(&background, &all).await?;
        until(&format!("nothing of {cluster} to be left"), LIMIT, async || {
            let mut left = Vec::new();
            let service = self.api::<Service>().get_opt(cluster).await?;
            left.extend(service.map(|_| "a Service"));
            let map = self.api::<ConfigMap>().get_opt(&format!("{cluster}-mpi")).await?;
            left.extend(map.map(|_| "a ConfigMap"));
            let secret = self.api::<Secret>().get_opt(&format!("{cluster}-ssh")).await?;
            left.extend(secret.map(|_| "a Secret"));
            let pods = self.pods().list(&all).await?.items.len();
            left.extend((pods > 0).then_some("pods"));
            Ok(if left.is_empty() { Seen::Done(()) } else { Seen::NotYet(left.join(", ")) })
        })
        .await
    }
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    ready.any(|condition| condition.status == "True")
}

pub(crate) fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.name == "stowplan.dev/mpi-workers")
}
