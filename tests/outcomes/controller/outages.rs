//! Controllers that are killed, paused or stopped: the cluster ends up in the same state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use stowplan::testing::systems::streams::kinds::host_pool::{EXCLUSIVE_TAINT, POOL_LABEL_PREFIX};
use testbed::control_plane::NodeSpec;
use testbed::wait::{Seen, until};

use crate::controller::nodes::{Marks, marks, tagged, unmarked};
use crate::controller::pool::{self, hash, members, ready};
use crate::world::{Space, World, same};

/// Longer than a Lease lasts, and a new leader takes to finish.
const LIMIT: Duration = Duration::from_secs(90);

/// Which controller leads.
async fn leader(world: &Arc<World>, namespace: &str) -> Result<usize> {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), namespace);
    until("a controller to lead", LIMIT, async || {
        let lease = leases.get_opt("stowplan-controller").await?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
        Ok(match holder.strip_prefix("controller-").and_then(|index| index.parse().ok()) {
            Some(index) => Seen::Done(index),
            None => Seen::NotYet(format!("the holder is {holder:?}")),
        })
    })
    .await
}

/// The next leader after this one.
async fn successor(world: &Arc<World>, namespace: &str, of: usize) -> Result<usize> {
    until("another controller to lead", LIMIT, async || {
        let index = leader(world, namespace).await?;
        Ok(if index == of {
            Seen::NotYet(format!("{index} still does"))
        } else {
            Seen::Done(index)
        })
    })
    .await
}

/// Every node carries the marks that the pools' statuses imply, and no others of stowplan's.
pub(crate) async fn consistent(world: &Arc<World>, space: &Space) -> Result<()> {
    let pools = pool::api(space).list(&ListParams::default()).await?.items;
    let mut wanted: BTreeMap<String, Marks> = BTreeMap::new();
    for pool in &pools {
        for (index, node) in members(pool) {
            let marks = wanted.entry(node).or_default();
            marks.labels.push((hash(pool), index.to_string()));
            if pool.status.as_ref().is_some_and(|status| status.exclusive_taint.is_some()) {
                marks.taints.push(hash(pool));
            }
        }
    }
    for (node, mut wanted) in wanted {
        wanted.labels.sort();
        let seen = marks(world, &node).await?;
        ensure!(seen == wanted, "{node}: {seen:?}, wanted {wanted:?}");
    }
    // A mark whose pool exists in no namespace.
    let live: Vec<String> =
        Api::<stowplan::testing::systems::streams::api::HostPool>::all(world.client.clone())
            .list(&ListParams::default())
            .await?
            .items
            .iter()
            .map(hash)
            .collect();
    for node in Api::<Node>::all(world.client.clone()).list(&ListParams::default()).await?.items {
        let labels = node.metadata.labels.iter().flatten();
        let of_labels = labels.filter_map(|(key, _)| key.strip_prefix(POOL_LABEL_PREFIX));
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let of_taints: Vec<&str> = taints
            .filter(|taint| taint.key == EXCLUSIVE_TAINT)
            .filter_map(|taint| taint.value.as_deref())
            .collect();
        ensure!(of_taints.len() <= 1, "{:?} is in two exclusive pools", node.metadata.name);
        for hash in of_labels.chain(of_taints) {
            ensure!(live.iter().any(|live| live == hash), "{:?}: {hash}", node.metadata.name);
        }
    }
    Ok(())
}

pub(crate) async fn a_killed_leader_is_followed(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let namespace = installation.namespace().to_owned();
    let space = world.namespace("killed").await?;
    tagged(&world, "killed", 5).await?;
    installation.start_controller(1).await?;
    let first = leader(&world, &namespace).await?;
    let spec = json!({"size": 2, "tags": ["killed"], "exclusivity": "Exclusive"});
    space.host_pool("before", spec.clone()).await?;
    // While the pool is being allocated.
    pool::until(&space, "before", "reserved", |pool| !members(pool).is_empty()).await?;
    installation.kill_controller(first).await?;
    space.host_pool("after", spec).await?;
    successor(&world, &namespace, first).await?;
    for name in ["before", "after"] {
        same(&members(&ready(&space, name).await?).len(), &2)?;
    }
    consistent(&world, &space).await?;
    installation.start_controller(first).await?;
    installation.stop_controller(1 - first).await?;
    successor(&world, &namespace, 1 - first).await?;
    if first == 1 {
        installation.start_controller(0).await?;
        installation.stop_controller(1).await?;
    }
    Ok(())
}

pub(crate) async fn a_paused_leader_does_no_harm_when_it_wakes(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let namespace = installation.namespace().to_owned();
    let space = world.namespace("paused").await?;
    tagged(&world, "paused", 6).await?;
    installation.start_controller(1).await?;
    let first = leader(&world, &namespace).await?;
    let spec = json!({"size": 2, "tags": ["paused"], "exclusivity": "Exclusive"});
    space.host_pool("before", spec.clone()).await?;
    pool::until(&space, "before", "reserved", |pool| !members(pool).is_empty()).await?;
    installation.pause_controller(first).await?;
    for name in ["during-1", "during-2"] {
        space.host_pool(name, spec.clone()).await?;
    }
    // When it continues its view is stale: the pool that it was working on has been deleted.
    pool::delete(&space, "before").await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    installation.continue_controller(first).await?;
    for name in ["during-1", "during-2"] {
        same(&members(&ready(&space, name).await?).len(), &2)?;
    }
    until("nothing of the deleted pool", LIMIT, async || {
        Ok(match consistent(&world, &space).await {
            Ok(()) => Seen::Done(()),
            Err(why) => Seen::NotYet(format!("{why:#}")),
        })
    })
    .await?;
    // Still so after a while: a late write would show.
    tokio::time::sleep(Duration::from_secs(5)).await;
    consistent(&world, &space).await?;
    installation.stop_controller(1).await?;
    successor(&world, &namespace, 1).await?;
    Ok(())
}

pub(crate) async fn what_went_while_it_was_away_is_swept(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let space = world.namespace("away").await?;
    let nodes = tagged(&world, "away", 6).await?;
    let spec = json!({"size": 2, "tags": ["away"], "exclusivity": "Exclusive"});
    space.host_pool("pool", spec.clone()).await?;
    space.host_pool("stays", json!({"size": 1, "tags": ["away"]})).await?;
    space
        .created(&json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob", "metadata": {"name": "job"},
            "spec": {"pools": [{"name": "P", "size": 2, "tags": ["away"], "exclusivity": "Exclusive"}]},
        }))
        .await?;
    let of_pool = members(&ready(&space, "pool").await?);
    let lost = members(&ready(&space, "stays").await?)[0].1.clone();
    let pools = pool::api(&space);
    let owned = until("the job's pool", LIMIT, async || {
        let all = pools.list(&ListParams::default()).await?.items;
        let name = all.iter().filter_map(|pool| pool.metadata.name.clone());
        Ok(match name.into_iter().find(|name| name.starts_with("job-p-")) {
            Some(name) => Seen::Done(name),
            None => Seen::NotYet(format!("{} pools", all.len())),
        })
    })
    .await?;
    let of_job = members(&ready(&space, &owned).await?);

    installation.stop_controller(0).await?;
    pool::delete(&space, "pool").await?;
    world.kubectl(&["-n", &space.name, "delete", "streamsjob", "job"], "").await?.succeeded()?;
    let api: Api<Node> = Api::all(world.client.clone());
    api.delete(&lost, &DeleteParams::default()).await?;
    installation.start_controller(0).await?;

    for (_, node) in of_pool.iter().chain(&of_job) {
        if *node != lost {
            // Free again, or the place of the one that was lost.
            until(&format!("node {node} to be free"), LIMIT, async || {
                let marks = marks(&world, node).await?;
                Ok(match marks.taints.is_empty() && marks.labels.len() <= 1 {
                    true => Seen::Done(()),
                    false => Seen::NotYet(format!("{marks:?}")),
                })
            })
            .await?;
        }
    }
    pool::until(&space, "stays", "another node in the lost one's place", |pool| {
        pool::is_ready(pool) && members(pool).first().is_some_and(|(_, node)| *node != lost)
    })
    .await?;
    consistent(&world, &space).await?;
    pool::delete(&space, "stays").await?;
    for node in nodes.iter().filter(|node| **node != lost) {
        unmarked(&world, node).await?;
    }
    let again = NodeSpec::new(&lost);
    world.plane.add_node(&again).await.context("the node again")?;
    unmarked(&world, &lost).await
}
