//! Groups of any pods, without Tekton.

use std::sync::Arc;

use anyhow::{Result, ensure};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use testbed::volumes::{IMMEDIATE, WAITING};
use testbed::wait::{Seen, until};

use crate::group::group_of;
use crate::pipeline::{LIMIT, claim, claims_of, node};
use crate::world::{World, same};

const GROUP: &str = "stowplan.dev/coschedule-group";

fn pod(name: &str, group: &str, claims: &[&str]) -> Value {
    let volumes: Vec<_> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    json!({
        "metadata": {"name": name, "annotations": {GROUP: group}},
        "spec": {"containers": [{"name": "main", "image": "main"}], "volumes": volumes},
    })
}

pub(crate) async fn any_pods_can_be_a_group(world: Arc<World>) -> Result<()> {
    let _running = world.installation.read().await;
    let space = world.namespace("native").await?;
    space
        .created(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "tight"},
            "spec": {
                "replicas": 6,
                "selector": {"matchLabels": {"app": "tight"}},
                "template": {
                    "metadata": {"labels": {"app": "tight"}, "annotations": {GROUP: "tight"}},
                    "spec": {"containers": [{"name": "main", "image": "main"}]},
                },
            },
        }))
        .await?;
    // Of the same name in another namespace: another group.
    let other = world.namespace("native").await?;
    other.pod(&pod("lone", "tight", &[])).await?;
    let tight = ListParams::default().labels("app=tight");
    let (nodes, group) = until("six pods to be placed", LIMIT, async || {
        let pods = space.pods().list(&tight).await?.items;
        let nodes: Vec<_> = pods.iter().filter_map(node).collect();
        Ok(match (nodes.len(), pods.first().and_then(group_of)) {
            (6, Some(group)) => Seen::Done((nodes, group.to_owned())),
            (seen, group) => Seen::NotYet(format!("{seen} are, in group {group:?}")),
        })
    })
    .await?;
    ensure!(nodes.iter().all(|node| *node == nodes[0]), "{nodes:?}");
    other.node_of("lone").await?;
    ensure!(
        group_of(&other.pods().get("lone").await?) != Some(&*group),
        "one group of two namespaces"
    );
    space.placed(1).await?;

    let said = world.kubectl(&["-n", &space.name, "delete", "deployment", "tight"], "").await?;
    ensure!(said.success, "{}", said.err);
    space.nothing_is_left().await?;
    other.delete("lone").await?;
    other.nothing_is_left().await
}

pub(crate) async fn a_native_group_on_one_volume(world: Arc<World>) -> Result<()> {
    let _running = world.installation.read().await;
    let space = world.namespace("native-volume").await?;
    for name in ["one", "other"] {
        let mut claim = claim(name, IMMEDIATE, "ReadWriteOnce");
        claim["metadata"]["annotations"] = json!({GROUP: "pair"});
        space.created(&claim).await?;
        let stored = space.claims().get(name).await?;
        let class = stored.spec.and_then(|spec| spec.storage_class_name);
        same(&class.as_deref(), &Some(WAITING))?;
    }
    space.pod(&pod("a", "pair", &["one"])).await?;
    space.pod(&pod("b", "pair", &["other"])).await?;
    space.pod(&pod("c", "pair", &["one", "other"])).await?;
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(space.node_of(name).await?);
    }
    ensure!(nodes.iter().all(|node| *node == nodes[0]), "{nodes:?}");
    for placeholder in space.placeholder_pods().await? {
        let (name, claims) = (placeholder.name_any(), claims_of(&placeholder));
        ensure!(!claims.is_empty(), "{name} holds no volume");
    }
    for name in ["a", "b", "c"] {
        space.pods().delete(name, &DeleteParams::default()).await?;
    }
    space.nothing_is_left().await
}
