//! Nodes, and stowplan's labels and taints on them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use stowplan::testing::systems::streams::kinds::host_pool::{EXCLUSIVE_TAINT, POOL_LABEL_PREFIX};
use testbed::control_plane::NodeSpec;
use testbed::wait::{Seen, until};

use crate::world::World;

/// stowplan's marks on a node.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Marks {
    /// The labels: hash and index.
    pub(crate) labels: Vec<(String, String)>,
    /// The taints: hashes.
    pub(crate) taints: Vec<String>,
}

/// New nodes `TAG-0`, `TAG-1` … of a pool of that one tag.
pub(crate) async fn tagged(world: &Arc<World>, tag: &str, count: usize) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for index in 0..count {
        let name = format!("{tag}-{index}");
        let spec = NodeSpec::new(&name).label("streams.ibm.com/hostpool", tag);
        world.plane.add_node(&spec).await?;
        names.push(name);
    }
    Ok(names)
}

/// New nodes of a pool of several tags.
pub(crate) async fn of_tag(world: &Arc<World>, tags: &[&str], count: usize) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for index in 0..count {
        let name = format!("{}-{index}", tags.join("-"));
        let mut spec = NodeSpec::new(&name);
        for tag in tags {
            spec = spec.label(&format!("hostpool.streams.ibm.com/{tag}"), "");
        }
        world.plane.add_node(&spec).await?;
        names.push(name);
    }
    Ok(names)
}

pub(crate) async fn marks(world: &Arc<World>, node: &str) -> Result<Marks> {
    let node = Api::<Node>::all(world.client.clone()).get(node).await?;
    let labels = node.metadata.labels.iter().flatten();
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    Ok(Marks {
        labels: labels
            .filter_map(|(key, value)| {
                Some((key.strip_prefix(POOL_LABEL_PREFIX)?.to_owned(), value.clone()))
            })
            .collect(),
        taints: taints
            .filter(|taint| taint.key == EXCLUSIVE_TAINT)
            .filter_map(|taint| taint.value.clone())
            .collect(),
    })
}

/// Waits until a node carries none of stowplan's marks.
pub(crate) async fn unmarked(world: &Arc<World>, node: &str) -> Result<()> {
    let what = format!("node {node} to carry no mark of stowplan");
    until(&what, Duration::from_secs(60), async || {
        let marks = marks(world, node).await?;
        Ok(match marks == Marks::default() {
            true => Seen::Done(()),
            false => Seen::NotYet(format!("{marks:?}")),
        })
    })
    .await
}
