//! Many pods at once, and a webhook that restarts meanwhile.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;
use tokio::sync::watch;

use crate::world::{Space, World, element};

const PODS: usize = 500;

/// Creates the pods, this many at a time, and counts those that exist so far; returns how many were
/// placed. None may fail.
///
/// They have a scheduling gate, so that the scheduler has no work with them.
async fn create(space: &Space, at_once: usize, created: &watch::Sender<usize>) -> Result<usize> {
    let pods: Vec<Result<Pod, kube::Error>> = stream::iter(0..PODS)
        .map(|number| async move {
            let mut pod = element("job", &format!("pe-{number}"), &[("host", "node-1")]);
            pod["spec"]["schedulingGates"] = json!([{"name": "test.stowplan.dev/hold"}]);
            let pod = serde_json::from_value(pod).expect("a pod");
            let result = space.pods().create(&PostParams::default(), &pod).await;
            created.send_modify(|number| *number += 1);
            result
        })
        .buffer_unordered(at_once)
        .collect()
        .await;
    let failures: Vec<_> = pods.iter().filter_map(|pod| pod.as_ref().err()).collect();
    ensure!(failures.is_empty(), "{} of {PODS} were not created: {}", failures.len(), failures[0]);
    Ok(pods.iter().flatten().filter(|pod| is_placed(pod)).count())
}

fn is_placed(pod: &Pod) -> bool {
    pod.metadata.annotations.iter().flatten().any(|(key, _)| key == "stowplan.dev/placement")
}

async fn remove(space: &Space) -> Result<()> {
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    space.pods().delete_collection(&now, &ListParams::default()).await?;
    Ok(())
}

/// While the webhook is stopped pods are admitted unplaced (failurePolicy Ignore); none is refused,
/// and all pods before and after that are placed.
pub(crate) async fn a_restart_fails_no_creation(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let space = world.namespace("restart").await?;
    // The running webhook has no shutdown delay yet.
    installation.set_shutdown_delay(Duration::from_millis(500));
    installation.stop_webhook().await?;
    installation.start_webhook().await?;

    let (created, mut progress) = watch::channel(0);
    let restart = async {
        progress.wait_for(|created| *created >= PODS / 5).await?;
        installation.stop_webhook().await?;
        installation.start_webhook().await
    };
    let (placed, restarted) = tokio::join!(create(&space, 4, &created), restart);
    installation.set_shutdown_delay(Duration::ZERO);
    restarted?;
    let placed = placed?;
    // Those before the stop at least, and while it still served.
    ensure!(placed >= PODS / 5, "only {placed} of {PODS} were placed");
    ensure!(
        is_placed(&space.pod(&element("job", "afterwards", &[("host", "node-1")])).await?),
        "the new one places nothing"
    );
    remove(&space).await
}

/// One replica refuses no call of such a burst. How long a call takes is measured by a bench: here the
/// timeout is the longest that Kubernetes allows, because the machine has other work.
pub(crate) async fn a_mass_start_is_placed(world: Arc<World>) -> Result<()> {
    let _webhook = world.alone().await?;
    let space = world.namespace("mass").await?;
    let before = set_timeout(&world, 30).await?;
    // The API servers learn of it by a watch.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let placed = create(&space, 200, &watch::Sender::new(0)).await;
    set_timeout(&world, before).await?;
    let placed = placed?;
    ensure!(placed == PODS, "only {placed} of {PODS} were placed");
    remove(&space).await
}

/// Sets the timeout of the webhooks; returns what it was.
async fn set_timeout(world: &World, seconds: i32) -> Result<i32> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    let mut before = seconds;
    for mut configuration in configurations.list(&ListParams::default()).await? {
        let name = configuration.metadata.name.clone().unwrap_or_default();
        for webhook in configuration.webhooks.iter_mut().flatten() {
            before = webhook.timeout_seconds.replace(seconds).unwrap_or(10);
        }
        configurations.replace(&name, &PostParams::default(), &configuration).await?;
    }
    Ok(before)
}
