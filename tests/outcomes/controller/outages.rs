//! Controllers that are killed, paused or stopped, and an API server that answers badly: the cluster ends
//! up in the same state, and nothing is done twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hyper::Method;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use stowplan_core::systems::streams::api::HostPool;
use testbed::control_plane::{Installation, NodeSpec};
use testbed::proxy::{Fault, Proxy};

use crate::controller::nodes::{Marks, all_unmarked, marks, space_on, unmarked};
use crate::controller::pool::{self, exclusive, hash, members, ready};
use crate::world::{NAMESPACE, Space, World, appears, job, same, settled, succeeds};

/// Waits until a controller leads, other than this one, and returns its number.
async fn leader(world: &World, but: Option<usize>) -> Result<usize> {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), NAMESPACE);
    let index = async || {
        let lease = leases.get_opt("stowplan-controller").await?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
        Ok(holder.strip_prefix("controller-").and_then(|index| index.parse().ok()))
    };
    let what = format!("a controller to lead that is not {but:?}");
    let found = settled(&what, index, |index: &Option<usize>| index.is_some() && *index != but);
    Ok(found.await?.unwrap_or_default())
}

/// Every node carries the marks that the pools' statuses imply, and no others of stowplan's.
pub(crate) async fn consistent(world: &Arc<World>, space: &Space) -> Result<()> {
    let mut wanted: BTreeMap<String, Marks> = BTreeMap::new();
    for pool in &pool::all(space).await? {
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
    let pools: Api<HostPool> = Api::all(world.client.clone());
    let live: Vec<String> =
        pools.list(&ListParams::default()).await?.items.iter().map(hash).collect();
    for node in Api::<Node>::all(world.client.clone()).list(&ListParams::default()).await?.items {
        let (name, marks) = (node.name_any(), Marks::of(&node));
        ensure!(marks.taints.len() <= 1, "{name} is in two exclusive pools");
        for hash in marks.labels.iter().map(|(hash, _)| hash).chain(&marks.taints) {
            ensure!(live.contains(hash), "{name}: {hash}");
        }
    }
    Ok(())
}

/// Creates an exclusive pool, and does not wait until it is whole: it is being allocated.
async fn begin(space: &Space, name: &str, tag: &str) -> Result<()> {
    space.host_pool(name, exclusive(2, tag)).await?;
    pool::until(space, name, "reserved", |pool| !members(pool).is_empty()).await.map(drop)
}

pub(crate) async fn a_killed_leader_is_followed(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let (space, _) = space_on(&world, "killed", 5).await?;
    installation.start_controller(1).await?;
    let first = leader(&world, None).await?;
    begin(&space, "before", "killed").await?;
    installation.kill_controller(first).await?;
    space.host_pool("after", exclusive(2, "killed")).await?;
    leader(&world, Some(first)).await?;
    for name in ["before", "after"] {
        same(&members(&ready(&space, name).await?).len(), &2)?;
    }
    consistent(&world, &space).await?;
    installation.start_controller(first).await?;
    installation.stop_controller(1 - first).await?;
    leader(&world, Some(1 - first)).await?;
    if first == 1 {
        installation.start_controller(0).await?;
        installation.stop_controller(1).await?;
    }
    Ok(())
}

pub(crate) async fn a_paused_leader_does_no_harm_when_it_wakes(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let (space, _) = space_on(&world, "paused", 6).await?;
    installation.start_controller(1).await?;
    let first = leader(&world, None).await?;
    begin(&space, "before", "paused").await?;
    installation.pause_controller(first).await?;
    for name in ["during-1", "during-2"] {
        space.host_pool(name, exclusive(2, "paused")).await?;
    }
    // When it continues its view is stale: the pool that it was working on has been deleted.
    pool::delete(&space, "before").await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    installation.continue_controller(first).await?;
    for name in ["during-1", "during-2"] {
        same(&members(&ready(&space, name).await?).len(), &2)?;
    }
    succeeds("nothing of the deleted pool", async || consistent(&world, &space).await).await?;
    // Still so after a while: a late write would show.
    tokio::time::sleep(Duration::from_secs(5)).await;
    consistent(&world, &space).await?;
    installation.stop_controller(1).await?;
    leader(&world, Some(1)).await.map(drop)
}

pub(crate) async fn what_went_while_it_was_away_is_swept(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let (space, nodes) = space_on(&world, "away", 6).await?;
    space.host_pool("pool", exclusive(2, "away")).await?;
    space.host_pool("stays", json!({"size": 1, "tags": ["away"]})).await?;
    let own = json!({"name": "P", "size": 2, "tags": ["away"], "exclusivity": "Exclusive"});
    space.created(&job("job", &json!({"pools": [own]}))).await?;
    let mut freed = pool::nodes(&ready(&space, "pool").await?);
    let lost = pool::nodes(&ready(&space, "stays").await?).remove(0);
    let owned = appears("the job's pool", async || {
        let pools = space.names::<HostPool>().await?;
        Ok(pools.into_iter().find(|name| name.starts_with("job-p-")))
    })
    .await?;
    freed.extend(pool::nodes(&ready(&space, &owned).await?));

    installation.stop_controller(0).await?;
    pool::delete(&space, "pool").await?;
    space.kubectl("delete streamsjob job").await?;
    world.plane.delete_node(&lost).await?;
    installation.start_controller(0).await?;

    for node in freed.iter().filter(|node| **node != lost) {
        // Free again, or the place of the one that was lost.
        let is_free = |marks: &Marks| marks.taints.is_empty() && marks.labels.len() <= 1;
        settled(node, async || marks(&world, node).await, is_free).await?;
    }
    pool::until(&space, "stays", "another node in the lost one's place", |pool| {
        pool::is_ready(pool) && members(pool).first().is_some_and(|(_, node)| *node != lost)
    })
    .await?;
    consistent(&world, &space).await?;
    pool::delete(&space, "stays").await?;
    let others: Vec<String> = nodes.into_iter().filter(|node| *node != lost).collect();
    all_unmarked(&world, &others).await?;
    world.plane.add_node(&NodeSpec::new(&lost)).await?;
    unmarked(&world, &lost).await
}

const NODES: &str = "/api/v1/nodes/*";
const POOLS: &str = "/apis/stowplan.dev/v1alpha1/namespaces/*/hostpools";
const POOL_STATUS: &str = "/apis/stowplan.dev/v1alpha1/namespaces/*/hostpools/*/status";
const JOB_STATUS: &str = "/apis/stowplan.dev/v1alpha1/namespaces/*/streamsjobs/*/status";

/// Starts the controller again, with a proxy between it and the API server.
pub(crate) async fn behind_proxy(world: &World, installation: &mut Installation) -> Result<Proxy> {
    installation.stop_controller(0).await?;
    let proxy = world.plane.proxy().await?;
    installation.start_controller_through(0, &proxy).await?;
    Ok(proxy)
}

pub(crate) async fn every_fault_ends_in_the_same_state(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let proxy = behind_proxy(&world, &mut installation).await?;
    for (name, fault) in [
        ("conflict", Fault::Conflict),
        ("invalid", Fault::Invalid),
        ("throttled", Fault::TooManyRequests { retry_after: 1 }),
        ("broken", Fault::InternalError),
        ("timeout", Fault::TimeoutAfterDone),
        ("lost", Fault::DropBefore),
        ("unheard", Fault::DropAfter),
    ] {
        survives(&world, &proxy, name, fault).await.with_context(|| name.to_owned())?;
    }
    // All watches break at once; nothing is forgotten and nothing is done again.
    let (space, _) = space_on(&world, "cut", 3).await?;
    space.host_pool("p", json!({"size": 2, "tags": ["cut"]})).await?;
    ready(&space, "p").await?;
    proxy.forget();
    proxy.cut_connections().await;
    space.host_pool("q", json!({"size": 1, "tags": ["cut"]})).await?;
    ready(&space, "q").await?;
    same(&proxy.writes(), &3)?;
    installation.stop_controller(0).await?;
    installation.start_controller(0).await
}

async fn survives(world: &Arc<World>, proxy: &Proxy, name: &str, fault: Fault) -> Result<()> {
    let tag = format!("fault-{name}");
    let (space, nodes) = space_on(world, &tag, 4).await?;
    for (times, method, pattern) in [
        (1, Method::POST, POOLS),
        (2, Method::PATCH, NODES),
        (2, Method::PATCH, POOL_STATUS),
        (1, Method::PATCH, JOB_STATUS),
    ] {
        proxy.spoil(times, method, pattern, fault);
    }
    let spec = json!({"pools": [
        {"name": "Own", "size": 2, "tags": [tag], "exclusivity": "Exclusive"},
        {"name": "Shared", "size": 2, "tags": [tag]},
    ]});
    space.created(&job("job", &spec)).await?;
    let names = async || space.names::<HostPool>().await;
    for pool in settled("both pools", names, |names| names.len() == 2).await? {
        same(&members(&ready(&space, &pool).await?).len(), &2)?;
    }
    settled("the faults that are not met", async || Ok(proxy.unspent()), |left| *left == 0).await?;
    consistent(world, &space).await?;
    same(&names().await?.len(), &2)?;

    // Taken back under the same fault.
    proxy.spoil(1, Method::PATCH, NODES, fault);
    space.kubectl("delete streamsjob job").await?;
    all_unmarked(world, &nodes).await?;
    same(&proxy.unspent(), &0)
}

/// One patch a node for a shared pool, two for an exclusive one; two writes of the status; nothing
/// after that.
pub(crate) async fn a_pool_costs_few_writes(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let proxy = behind_proxy(&world, &mut installation).await?;
    let (space, _) = space_on(&world, "writes", 6).await?;
    for (name, exclusivity, patches) in [("shared", "Shared", 3), ("exclusive", "Exclusive", 6)] {
        proxy.forget();
        let spec = json!({"size": 3, "tags": ["writes"], "exclusivity": exclusivity});
        space.host_pool(name, spec).await?;
        ready(&space, name).await?;
        // A write too many would come at once.
        tokio::time::sleep(Duration::from_secs(3)).await;
        same(&proxy.count(&Method::PATCH, NODES), &patches)?;
        same(&proxy.count(&Method::PATCH, POOL_STATUS), &2)?;
        same(&proxy.writes(), &(patches + 2))?;
        same(&proxy.lists("/api/v1/nodes"), &0)?;
    }
    installation.stop_controller(0).await?;
    installation.start_controller(0).await
}
