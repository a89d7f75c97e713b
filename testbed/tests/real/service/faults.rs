//! Faults of processes and nodes of the Service while pods are created.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use testbed::wait::{Seen, until};
use tokio::time::sleep;

use super::load::Report;
use super::world::{LIMIT, NAMESPACE, Profile, World, address, name, node};

/// Its kubelet starts it again; the other replica serves meanwhile.
pub(crate) async fn a_webhook_is_killed(world: Arc<World>) -> Result<()> {
    world.with(Profile::Default).await?;
    let report = world
        .under_load("webhook-killed", async |at| {
            let victim = world.busiest_webhook().await?;
            world.kill_program(&victim)?;
            restarted(&world, &victim).await?;
            eprintln!("  it is ready again after {:.1} s", at.elapsed().as_secs_f64());
            Ok(())
        })
        .await?;
    report.none_failed()?;
    report.unplaced_are_reported(&world).await?;
    report.end().await
}

/// The webhook does not need it; pools and reports wait until one leads.
pub(crate) async fn the_leader_is_killed(world: Arc<World>) -> Result<()> {
    world.with(Profile::Default).await?;
    let report = world
        .under_load("leader-killed", async |at| {
            let victim = world.leader().await?;
            world.kill_program(&victim)?;
            world.create_pool("after-the-leader", false)?;
            world.pool_has_node("after-the-leader").await?;
            eprintln!("  a new pool has its node after {:.1} s", at.elapsed().as_secs_f64());
            restarted(&world, &victim).await
        })
        .await?;
    world.delete_pool("after-the-leader")?;
    report.end_without_failures().await
}

/// Pods are created all the same, and the controller reports those that have no placement.
pub(crate) async fn a_node_loses_its_power(world: Arc<World>) -> Result<()> {
    let report = lose_node(&world, Profile::Default, "node-lost").await?;
    report.none_failed()?;
    report.unplaced_are_reported(&world).await?;
    report.end().await
}

/// Creations fail, and succeed when they are tried again: no pod is created without its placement.
pub(crate) async fn a_node_loses_its_power_under_strict(world: Arc<World>) -> Result<()> {
    let report = lose_node(&world, Profile::Strict, "node-lost-strict").await?;
    report.all_placed()?;
    report.end().await
}

/// Of the webhook that the API server talks to. The node comes back after the load.
async fn lose_node(world: &World, profile: Profile, case: &str) -> Result<Report> {
    world.with(profile).await?;
    let mut lost = None;
    let report = world
        .under_load(case, async |at| {
            let victim = world.busiest_webhook().await?;
            let node = world.plane.real_node(node(&victim)?)?;
            let own = address(&victim)?.to_owned();
            lost = Some(node.name().to_owned());
            node.lose()?;
            until("the Service to lead to the other replicas", LIMIT, async || {
                let addresses = world.service_addresses().await?;
                let leads_on = !addresses.is_empty() && !addresses.contains(&own);
                Ok(Seen::when(leads_on, || format!("{addresses:?}")))
            })
            .await?;
            let seconds = at.elapsed().as_secs_f64();
            eprintln!("  the dead replica is out of the Service after {seconds:.1} s");
            // The connections that are left over.
            sleep(Duration::from_secs(5)).await;
            Ok(())
        })
        .await;
    // Also after a failure: the next case needs it.
    let node = world.plane.real_node(&lost.context("no node was lost")?)?;
    node.start()?;
    node.ready().await?;
    world.plane.pods_ready().await?;
    report
}

/// Waits until the container of a pod was started again and is ready.
async fn restarted(world: &World, victim: &Pod) -> Result<()> {
    let name = name(victim)?;
    let pods = kube::Api::<Pod>::namespaced(world.client.clone(), NAMESPACE);
    let restarts = |pod: &Pod| {
        let statuses =
            pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        statuses.map(|status| (status.restart_count, status.ready)).next().unwrap_or_default()
    };
    let before = restarts(victim).0;
    until(&format!("{name} to be started again"), LIMIT, async || {
        let (count, is_ready) = restarts(&pods.get(name).await?);
        let why = || format!("{count} restarts, ready: {is_ready}");
        Ok(Seen::when(count > before && is_ready, why))
    })
    .await
}

/// Evictions leave one replica at least, and each serves until the API server has left it.
pub(crate) async fn a_webhooks_node_is_drained(world: Arc<World>) -> Result<()> {
    world.with(Profile::Strict).await?;
    let mut drained = None;
    let report = world
        .under_load("drain", async |at| {
            let victim = world.busiest_webhook().await?;
            let node = node(&victim)?.to_owned();
            drained = Some(node.clone());
            world.kubectl(&["drain", &node, "--ignore-daemonsets", "--timeout=120s"])?;
            eprintln!("  {node} is drained after {:.1} s", at.elapsed().as_secs_f64());
            let nodes: BTreeSet<_> = world
                .pods("webhook")
                .await?
                .iter()
                .map(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()))
                .collect();
            ensure!(!nodes.contains(&Some(node.clone())), "a webhook is still on {node}");
            world.plane.pods_ready().await
        })
        .await;
    world.kubectl(&["uncordon", &drained.context("no node was drained")?])?;
    report?.end_without_failures().await
}
