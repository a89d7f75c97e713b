//! An API server that answers badly: the same end state, and nothing done twice.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use hyper::Method;
use kube::api::ListParams;
use serde_json::json;
use testbed::proxy::Fault;
use testbed::wait::{Seen, until};

use super::outages::consistent;
use crate::controller::nodes::{tagged, unmarked};
use crate::controller::pool::{self, members, ready};
use crate::world::{World, same};

const NODES: &str = "/api/v1/nodes/*";
const POOLS: &str = "/apis/stowplan.dev/v1alpha1/namespaces/*/hostpools";
const POOL_STATUS: &str = "/apis/stowplan.dev/v1alpha1/namespaces/*/hostpools/*/status";
const JOB_STATUS: &str = "/apis/stowplan.dev/v1alpha1/namespaces/*/streamsjobs/*/status";

pub(crate) async fn every_fault_ends_in_the_same_state(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    installation.stop_controller(0).await?;
    let proxy = world.plane.proxy().await?;
    installation.start_controller_through(0, &proxy).await?;
    for (name, fault) in [
        ("conflict", Fault::Conflict),
        ("invalid", Fault::Invalid),
        ("throttled", Fault::TooManyRequests { retry_after: 1 }),
        ("broken", Fault::InternalError),
        ("timeout", Fault::TimeoutAfterDone),
        ("lost", Fault::DropBefore),
        ("unheard", Fault::DropAfter),
    ] {
        let tag = format!("fault-{name}");
        let space = world.namespace(&tag).await?;
        let nodes = tagged(&world, &tag, 4).await?;
        for (times, method, pattern) in [
            (1, Method::POST, POOLS),
            (2, Method::PATCH, NODES),
            (2, Method::PATCH, POOL_STATUS),
            (1, Method::PATCH, JOB_STATUS),
        ] {
            proxy.spoil(times, method, pattern, fault);
        }
        space
            .created(&json!({
                "apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob", "metadata": {"name": "job"},
                "spec": {"pools": [
                    {"name": "Own", "size": 2, "tags": [tag], "exclusivity": "Exclusive"},
                    {"name": "Shared", "size": 2, "tags": [tag]},
                ]},
            }))
            .await?;
        let api = pool::api(&space);
        let names = until(&format!("{name}: both pools"), Duration::from_secs(60), async || {
            let pools = api.list(&ListParams::default()).await?.items;
            let names: Vec<String> =
                pools.iter().filter_map(|pool| pool.metadata.name.clone()).collect();
            Ok(match names.len() {
                2 => Seen::Done(names),
                _ => Seen::NotYet(format!("{names:?}")),
            })
        })
        .await?;
        for pool in &names {
            same(&members(&ready(&space, pool).await?).len(), &2)?;
        }
        until(&format!("{name}: all faults to be met"), Duration::from_secs(60), async || {
            Ok(match proxy.unspent() {
                0 => Seen::Done(()),
                unspent => Seen::NotYet(format!("{unspent} are not")),
            })
        })
        .await?;
        consistent(&world, &space).await?;
        same(&api.list(&ListParams::default()).await?.items.len(), &2)?;

        // Taken back under the same fault.
        proxy.spoil(1, Method::PATCH, NODES, fault);
        world
            .kubectl(&["-n", &space.name, "delete", "streamsjob", "job"], "")
            .await?
            .succeeded()?;
        for node in &nodes {
            unmarked(&world, node).await?;
        }
        same(&proxy.unspent(), &0)?;
    }
    // All watches break at once; nothing is forgotten and nothing is done again.
    let space = world.namespace("cut").await?;
    tagged(&world, "cut", 3).await?;
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

/// One patch a node for a shared pool, two for an exclusive one; two writes of the status; nothing
/// after that.
pub(crate) async fn a_pool_costs_few_writes(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    installation.stop_controller(0).await?;
    let proxy = world.plane.proxy().await?;
    installation.start_controller_through(0, &proxy).await?;
    let space = world.namespace("writes").await?;
    tagged(&world, "writes", 6).await?;
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
