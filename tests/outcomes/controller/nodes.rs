//! Nodes, and stowplan's labels and taints on them.

use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use stowplan_core::systems::streams::kinds::host_pool::{EXCLUSIVE_TAINT, POOL_LABEL_PREFIX};
use testbed::control_plane::NodeSpec;

use crate::world::{Space, World, settled};

/// stowplan's marks on a node.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Marks {
    /// The labels: hash and index.
    pub(crate) labels: Vec<(String, String)>,
    /// The taints: hashes.
    pub(crate) taints: Vec<String>,
}

impl Marks {
    pub(crate) fn of(node: &Node) -> Self {
        let labels = node.metadata.labels.iter().flatten().filter_map(|(key, value)| {
            Some((key.strip_prefix(POOL_LABEL_PREFIX)?.to_owned(), value.clone()))
        });
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let taints = taints.filter(|taint| taint.key == EXCLUSIVE_TAINT);
        Self {
            labels: labels.collect(),
            taints: taints.filter_map(|taint| taint.value.clone()).collect(),
        }
    }

    /// Returns true if one of them is that of the pool with this hash.
    pub(crate) fn has(&self, hash: &str) -> bool {
        self.labels.iter().any(|(key, _)| key == hash) || self.taints.iter().any(|it| it == hash)
    }
}

/// New nodes `TAG-0`, `TAG-1` … of a pool of that one tag.
pub(crate) async fn tagged(world: &Arc<World>, tag: &str, count: usize) -> Result<Vec<String>> {
    let names: Vec<String> = (0..count).map(|index| format!("{tag}-{index}")).collect();
    let spec = |name: &String| NodeSpec::new(name).label("streams.ibm.com/hostpool", tag);
    world.plane.add_nodes(&names.iter().map(spec).collect::<Vec<_>>()).await?;
    Ok(names)
}

/// Such nodes, and a namespace.
pub(crate) async fn space_on(
    world: &Arc<World>,
    tag: &str,
    count: usize,
) -> Result<(Space, Vec<String>)> {
    Ok((world.namespace(tag).await?, tagged(world, tag, count).await?))
}

/// A new node of a pool of that one tag.
pub(crate) async fn one_tagged(world: &Arc<World>, name: &str, tag: &str) -> Result<()> {
    world.plane.add_node(&NodeSpec::new(name).label("streams.ibm.com/hostpool", tag)).await
}

pub(crate) async fn marks(world: &Arc<World>, node: &str) -> Result<Marks> {
    Ok(Marks::of(&Api::all(world.client.clone()).get(node).await?))
}

/// Waits until a node carries none of stowplan's marks.
pub(crate) async fn unmarked(world: &Arc<World>, node: &str) -> Result<()> {
    let what = format!("node {node} to carry no mark of stowplan");
    settled(&what, async || marks(world, node).await, |it| *it == Marks::default()).await.map(drop)
}

/// Waits until none of the nodes carries any of stowplan's marks.
pub(crate) async fn all_unmarked(world: &Arc<World>, nodes: &[String]) -> Result<()> {
    for node in nodes {
        unmarked(world, node).await?;
    }
    Ok(())
}
