//! Pools choose the nodes that waiting pods need: the pods then run there.

use std::sync::Arc;

use anyhow::Result;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testbed::control_plane::NodeSpec;

use crate::controller::nodes::tagged;
use crate::controller::pool::{self, members, ready, unready};
use crate::world::{Space, World, element, same};

/// A pod that asks for a host of a pool, and by its own affinity for this node.
fn on_node(name: &str, pool: &str, node: &str) -> Value {
    let mut pod = element("job", name, &[("host-pool", pool)]);
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
        "nodeSelectorTerms": [{"matchFields":
            [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
    pod
}

async fn grow(space: &Space, name: &str, size: u32) -> Result<()> {
    let grown = json!({"spec": {"size": size}});
    pool::api(space).patch(name, &PatchParams::default(), &Patch::Merge(&grown)).await?;
    Ok(())
}

pub(crate) async fn a_pool_grows_by_the_nodes_that_waiting_pods_need(
    world: Arc<World>,
) -> Result<()> {
    let space = world.namespace("waiting").await?;
    let nodes = tagged(&world, "waiting", 6).await?;
    let member = |index: u32, node: usize| (index, nodes[node].clone());
    space.host_pool("p", json!({"size": 1, "tags": ["waiting"]})).await?;
    same(&members(&ready(&space, "p").await?), &vec![member(0, 0)])?;

    // One pod must be with another that runs on node 4, and one names node 5.
    let mate = element("job", "mate", &[("host", &nodes[4]), ("host-colocation", "together")]);
    same(&space.node_of_new(&mate).await?, &nodes[4])?;
    let near = element("job", "near", &[("host-pool", "p"), ("host-colocation", "together")]);
    space.pending(&near).await?;
    space.pending(&on_node("named", "p", &nodes[5])).await?;
    grow(&space, "p", 3).await?;
    let grown = pool::until(&space, "p", "three members", |pool| {
        pool::is_ready(pool) && members(pool).len() == 3
    });
    same(&members(&grown.await?), &vec![member(0, 0), member(1, 4), member(2, 5)])?;
    same(&space.node_of("near").await?, &nodes[4])?;
    same(&space.node_of("named").await?, &nodes[5])?;

    // A member that the pool does not have yet gets the node of the pod that waits for it.
    grow(&space, "p", 7).await?;
    unready(&space, "p", "InsufficientNodes").await?;
    space.pending(&on_node("indexed", "p[5]", &nodes[1])).await?;
    let last = NodeSpec::new("waiting-6").label("streams.ibm.com/hostpool", "waiting");
    world.plane.add_node(&last).await?;
    let all = members(&ready(&space, "p").await?);
    same(
        &all[3..].to_vec(),
        &vec![member(3, 2), member(4, 3), member(5, 1), (6, "waiting-6".into())],
    )?;
    same(&space.node_of("indexed").await?, &nodes[1])
}

pub(crate) async fn an_exclusive_pool_leaves_the_node_that_another_pod_names(
    world: Arc<World>,
) -> Result<()> {
    let space = world.namespace("left").await?;
    let nodes = tagged(&world, "left", 3).await?;
    let spec = json!({"size": 1, "tags": ["left"], "exclusivity": "Exclusive"});
    space.host_pool("before", spec.clone()).await?;
    same(&members(&ready(&space, "before").await?), &vec![(0, nodes[0].clone())])?;
    let mut other = element("other", "other", &[("host", &nodes[1])]);
    other["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    space.pod(&other).await?;
    // The controller knows the first pod when the scheduler has tried a second one.
    space.pending(&on_node("second", "before", &nodes[2])).await?;
    space.delete("second").await?;

    space.host_pool("p", spec).await?;
    same(&members(&ready(&space, "p").await?), &vec![(0, nodes[2].clone())])?;
    let started = json!({"spec": {"schedulingGates": null}});
    space.pods().patch("other", &PatchParams::default(), &Patch::Merge(&started)).await?;
    same(&space.node_of("other").await?, &nodes[1])
}
