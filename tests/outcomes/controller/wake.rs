//! Unschedulable groups that the scheduler would not look at again for minutes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use testbed::wait::{Seen, until};

use crate::controller::nodes::tagged;
use crate::world::{Space, World, element};

const FINALIZER: &str = "test.stowplan.dev/slow";

/// Waits for three running pods, all with a node.
async fn settled(space: &Space, limit: Duration, what: &str) -> Result<BTreeSet<String>> {
    until(what, limit, async || {
        let pods = space.pods().list(&ListParams::default()).await?.items;
        let living: Vec<_> =
            pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect();
        let nodes: Vec<String> =
            living.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect();
        Ok(match (living.len(), nodes.len()) {
            (3, 3) => Seen::Done(nodes.into_iter().collect()),
            (living, bound) => Seen::NotYet(format!("{bound} of {living} pods have a node")),
        })
    })
    .await
}

fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    })
}

/// The replacements of a drained group wait for pods that are still ending; when those are gone,
/// the scheduler would not look at them for five minutes.
pub(crate) async fn a_drained_group_runs_again(world: Arc<World>) -> Result<()> {
    let space = world.namespace("drain").await?;
    tagged(&world, "drain", 2).await?;
    for name in ["a", "b", "c"] {
        let mut pod = element("job", name, &[("host-colocation", "together")]);
        pod["spec"]["nodeSelector"] = json!({"streams.ibm.com/hostpool": "drain"});
        let mut metadata = pod["metadata"].clone();
        metadata["finalizers"] = json!([FINALIZER]);
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("name");
        }
        space
            .created(&json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                "spec": {
                    "replicas": 1,
                    "selector": {"matchLabels": {"streams.ibm.com/pe": name}},
                    "template": {"metadata": metadata, "spec": pod["spec"]},
                },
            }))
            .await?;
    }
    let limit = Duration::from_secs(60);
    let before = settled(&space, limit, "the group to run").await?;
    ensure!(before.len() == 1, "on {before:?}");
    let node = before.first().cloned().unwrap_or_default();
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    let nodes: Api<Node> = Api::all(world.client.clone());
    nodes.patch(&node, &PatchParams::default(), &cordon).await?;
    let old = space.pods().list(&ListParams::default()).await?.items;
    for pod in &old {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        space.pods().delete(name, &DeleteParams::default()).await?;
    }
    until("the replacements to wait", limit, async || {
        let pods = space.pods().list(&ListParams::default()).await?.items;
        let waiting = pods.iter().filter(|pod| is_unschedulable(pod)).count();
        Ok(if waiting == 3 { Seen::Done(()) } else { Seen::NotYet(format!("{waiting} do")) })
    })
    .await?;
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for pod in &old {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        space.pods().patch(name, &PatchParams::default(), &bare).await?;
    }
    // The scheduler alone takes 300 s.
    let after = settled(&space, limit, "the group to run again").await?;
    ensure!(after.len() == 1 && after != before, "on {after:?}, after {before:?}");
    Ok(())
}
