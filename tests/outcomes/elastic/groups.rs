//! Groups for which no node has room.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use testbed::volumes::{WAITING, ZONE};

use super::lane::Lane;
use crate::coschedule::group::GROUP;
use crate::coschedule::pipeline::{claim, existing};
use crate::world::{World, same, workload_of};

/// Tasks of different sizes, the second of which is the largest.
const THREE: [(&str, &str, &str); 3] =
    [("clone", "1", "2s"), ("build", "1500m", "2s"), ("report", "500m", "1s")];

pub(crate) async fn a_run_gets_one_node(world: Arc<World>) -> Result<()> {
    for mode in ["workspaces", "pipelineruns", "isolate-pipelinerun"] {
        let lane = Lane::new(&world, &format!("full-{mode}"), &[100], "Never").await?;
        lane.space.created(&lane.run("ci", mode, &THREE)).await?;
        lane.space.ran("ci").await?;
        same(&lane.grown().await?, &vec!["small".to_owned()])?;
    }
    Ok(())
}

pub(crate) async fn a_run_on_an_empty_cluster_gets_one_node(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "empty", &[], "Never").await?;
    lane.space.created(&lane.run("ci", "workspaces", &[("large", "3", "1s")])).await?;
    lane.space.ran("ci").await?;
    same(&lane.grown().await?, &vec!["medium".to_owned()])
}

/// The second task is ten times as large, and fits on no node: one is made for it before the first begins.
pub(crate) async fn a_task_that_is_larger_than_the_node(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "larger", &[2000], "Never").await?;
    lane.space
        .created(&lane.run("ci", "workspaces", &[("one", "300m", "1s"), ("two", "3", "1s")]))
        .await?;
    lane.space.ran("ci").await?;
    same(&lane.grown().await?, &vec!["medium".to_owned()])
}

pub(crate) async fn a_task_that_is_larger_than_all_nodes(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "largest", &[2000, 2000], "Never").await?;
    lane.space.created(&lane.run("ci", "workspaces", &[("big", "6", "1s")])).await?;
    lane.space.ran("ci").await?;
    same(&lane.grown().await?, &vec!["large".to_owned()])
}

pub(crate) async fn an_isolated_run_gets_a_node_of_its_own(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "isolated", &[2000], "Never").await?;
    let mode = "isolate-pipelinerun";
    lane.space.created(&lane.run("first", mode, &[("one", "1", "40s")])).await?;
    lane.space.in_phase("first-one-pod", "Running").await?;
    lane.space.created(&lane.run("second", mode, &[("one", "3", "1s")])).await?;
    let second = lane.space.ran("second").await?;
    lane.space.succeeded("first").await?;
    ensure!(second != "base-isolated-0", "both are on {second}");
    same(&lane.grown().await?, &vec!["medium".to_owned()])
}

pub(crate) async fn two_deployments_of_a_group(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "native", &[100], "Never").await?;
    let mut shared = claim("shared", WAITING, "ReadWriteOnce");
    shared["metadata"]["annotations"] = json!({GROUP: "g"});
    lane.space.created(&shared).await?;
    let member = |app: &str| {
        let more = json!({
            "metadata": {"labels": {"app": app}, "annotations": {GROUP: "g"}},
            "spec": {"volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}]},
        });
        lane.pod(app, "1", &more)
    };
    for app in ["one", "two"] {
        lane.space.created(&workload_of("Deployment", app, 1, &member(app))).await?;
    }
    let one = lane.space.nodes_of_all("app=one", 1).await?;
    let two = lane.space.nodes_of_all("app=two", 1).await?;
    same(&one, &two)?;
    // Two CPUs, and what the placeholder keeps.
    same(&lane.grown().await?, &vec!["medium".to_owned()])
}

/// A claim that is bound in a zone whose node is full, with room in the other zone.
pub(crate) async fn the_node_is_in_the_zone_of_the_claim(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "zone", &[200, 2000], "Never").await?;
    lane.space.created(&claim("data", WAITING, "ReadWriteOnce")).await?;
    // It is provisioned where its first pod is.
    let more = json!({"spec": {
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "restartPolicy": "Never",
    }});
    let mut first = lane.pod("first", "10m", &more);
    first["spec"]["nodeSelector"]["kubernetes.io/hostname"] = json!("base-zone-0");
    lane.space.node_of_new(&first).await?;
    lane.space.delete("first").await?;
    let mut run = lane.run("ci", "workspaces", &THREE);
    run["spec"]["workspaces"] = json!([existing("source", "data")]);
    lane.space.created(&run).await?;
    let node = lane.space.ran("ci").await?;
    let node = Api::<Node>::all(world.client.clone()).get(&node).await?;
    same(&node.labels().get(ZONE).map(String::as_str), &Some("zone-a"))?;
    same(&lane.grown().await?, &vec!["small".to_owned()])
}
