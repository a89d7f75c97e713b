//! The training job of `examples/`, with agents that give its pods NUMA nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use testbed::control_plane::NodeSpec;
use testbed::katalyst::{Agents, consumer, reported};

use crate::world::{World, succeeds};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/katalyst.yaml");

pub(crate) async fn the_training_job_keeps_its_roles_apart(world: Arc<World>) -> Result<()> {
    let space = world.namespace("training").await?;
    let nodes = ["train-1", "train-2"];
    let specs: Vec<NodeSpec> = nodes.iter().map(|node| NodeSpec::new(node)).collect();
    world.plane.add_nodes(&specs).await?;
    let _agents = Agents::start(&world.client, &nodes, 2, 2).await?;
    space.kubectl(&format!("apply -f {EXAMPLE}")).await?;

    // A report of another test may be one that cannot be read.
    let roles = succeeds("six pods to be on NUMA nodes", async || {
        let pods = space.living("").await?;
        let mut roles: BTreeMap<(String, usize), Vec<String>> = BTreeMap::new();
        for (node, zones) in reported(&world.client).await? {
            for zone in zones {
                let here = pods.iter().filter(|pod| zone.consumers.contains(&consumer(pod)));
                let here: Vec<String> = here.map(role).collect::<Result<_>>()?;
                roles.entry((node.clone(), zone.number)).or_default().extend(here);
            }
        }
        ensure!(roles.values().map(Vec::len).sum::<usize>() == 6, "{roles:?}");
        Ok(roles)
    })
    .await?;
    for ((node, zone), mut roles) in roles {
        roles.sort();
        roles.dedup();
        ensure!(roles.len() < 2, "NUMA node {zone} of {node} has pods of several roles");
    }
    let events = space.events().await?.concat();
    ensure!(events.contains("NumaFeasible") && !events.contains("NumaDeadline"), "{events}");
    world.run(&format!("delete namespace {}", space.name)).await.map(drop)
}

fn role(pod: &Pod) -> Result<String> {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get("role")).cloned().context("a pod without a role")
}
