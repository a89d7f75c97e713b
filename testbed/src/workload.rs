//! Namespaces and pods of tests, and waits for the scheduler. Every wait has a limit.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use crate::wait::{Seen, until};

/// Far above what the scheduler takes, for machines that do something else as well.
const LIMIT: Duration = Duration::from_secs(60);

/// Creates a namespace in which pods can be created: the API server refuses them until the
/// controller manager has made the `default` service account.
///
/// # Errors
/// The namespace exists, or the service account is not created in time.
pub async fn namespace(client: &Client, name: &str) -> Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() })
        .await
        .with_context(|| format!("cannot create namespace {name}"))?;
    account(client, name).await
}

/// Waits until a namespace has its default service account.
pub(crate) async fn account(client: &Client, name: &str) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    until(&format!("the default service account of {name}"), LIMIT, async || {
        Ok(accounts.get_opt("default").await?.map(drop).ok_or("none").into())
    })
    .await
}

/// Waits until the scheduler has placed a pod; returns the node's name.
///
/// # Errors
/// The pod is still not placed after a minute: the message holds the scheduler's message.
pub async fn scheduled(client: &Client, namespace: &str, pod: &str) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    until(&format!("pod {namespace}/{pod} to be placed"), LIMIT, async || {
        let Some(pod) = pods.get_opt(pod).await? else {
            return Ok(Seen::NotYet("no such pod".to_owned()));
        };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let why = unschedulable_message(&pod).unwrap_or("the scheduler has not looked");
        Ok(node.ok_or(why).into())
    })
    .await
}

/// Waits until a pod is unschedulable; returns the message of the scheduler.
///
/// # Errors
/// The pod was placed, or is still not marked unschedulable after a minute.
pub async fn unschedulable(client: &Client, namespace: &str, pod: &str) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    until(&format!("pod {namespace}/{pod} to be unschedulable"), LIMIT, async || {
        let Some(pod) = pods.get_opt(pod).await? else {
            return Ok(Seen::NotYet("no such pod".to_owned()));
        };
        if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
            anyhow::bail!("it was placed on {node}");
        }
        let message = unschedulable_message(&pod).map(str::to_owned);
        Ok(message.ok_or("the scheduler has not looked").into())
    })
    .await
    .with_context(|| format!("pod {namespace}/{pod} should stay Pending"))
}

/// The message of `PodScheduled=False` with reason `Unschedulable`.
fn unschedulable_message(pod: &Pod) -> Option<&str> {
    pod.status
        .as_ref()?
        .conditions
        .iter()
        .flatten()
        .find(|condition| {
            condition.type_ == "PodScheduled"
                && condition.status == "False"
                && condition.reason.as_deref() == Some("Unschedulable")
        })
        .map(|condition| condition.message.as_deref().unwrap_or_default())
}
