//! Cases that take minutes: many runs at once, and nodes that Karpenter would remove.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::lane::Lane;
use crate::world::{World, same};

/// Prints how long the runs take with stowplan and without it: docs/autoscalers.md has the figures, which are those
/// of this case alone.
pub(crate) async fn many_runs_at_once(world: Arc<World>) -> Result<()> {
    at_once(&world, 30, &[("a", "1", "20s"), ("b", "1500m", "20s")]).await?;
    // Small tasks, so that few nodes have room for all of them.
    at_once(&world, 200, &[("a", "100m", "5s"), ("b", "150m", "5s")]).await
}

async fn at_once(world: &Arc<World>, count: usize, tasks: &[(&str, &str, &str)]) -> Result<()> {
    for mode in ["workspaces", "disabled"] {
        let lane = Lane::new(world, &format!("{count}-{mode}"), &[1000; 2], "Never").await?;
        let names: Vec<_> = (0..count).map(|number| format!("ci-{number}")).collect();
        let started = Instant::now();
        for name in &names {
            lane.space.created(&lane.run(name, mode, tasks)).await?;
        }
        try_join_all(names.iter().map(|name| lane.space.succeeded(name))).await?;
        let seconds = started.elapsed().as_secs();
        let (nodes, used) = (lane.grown().await?.len(), lane.cpu_seconds().await?);
        eprintln!(
            "{count} runs, {mode}: {seconds} s, {nodes} new nodes, {used} CPU seconds of these"
        );
        if mode == "disabled" {
            continue;
        }
        let mut apart = 0;
        for name in &names {
            apart += usize::from(lane.space.together(&format!("{name}-")).await.is_err());
        }
        eprintln!("{count} runs: {apart} moved to another node between their tasks");
        ensure!(count > 30 || apart == 0, "{apart} runs were on two nodes");
    }
    Ok(())
}

/// Returns a run of a group with two tasks, and with one between them that lasts so long on a node of its own.
fn with_gap(lane: &Lane, lasts: &str) -> Value {
    let tasks = [("one", "1", "1s"), ("between", "3", lasts), ("two", "1", "1s")];
    let mut run = lane.run("ci", "workspaces", &tasks);
    // It uses no workspace.
    let between = &mut run["spec"]["pipelineSpec"]["tasks"][1];
    between["workspaces"] = json!([]);
    between["taskSpec"]["workspaces"] = json!([]);
    run
}

/// As a spot node is that the cloud takes back: its machine is gone at once, and then its object.
pub(crate) async fn a_group_whose_node_is_lost(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "spot", &[], "Never").await?;
    lane.space.created(&with_gap(&lane, "30s")).await?;
    lane.space.in_phase("ci-one-pod", "Succeeded").await?;
    let lost = lane.space.node_of("ci-one-pod").await?;
    world.plane.lose_node(&lost).await?;
    let released = json!({"metadata": {"finalizers": null}});
    lane.space.patch(&format!("node/{lost}"), "merge", &released).await?;
    world.plane.delete_node(&lost).await?;
    lane.space.succeeded("ci").await?;
    let two = lane.space.node_of("ci-two-pod").await?;
    ensure!(two != lost, "it is on {two}, which is lost");
    Ok(())
}

/// The node of the group is idle for longer than Karpenter leaves an idle node alone.
pub(crate) async fn a_group_keeps_its_node_between_two_tasks(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "gap", &[], "20s").await?;
    lane.space.created(&with_gap(&lane, "90s")).await?;
    lane.space.succeeded("ci").await?;
    let [one, two] = ["ci-one-pod", "ci-two-pod"].map(|name| lane.space.node_of(name));
    same(&one.await?, &two.await?)
}

/// A large node is of little use once its large task has ended, but a small one still runs there.
pub(crate) async fn a_task_is_not_evicted_to_save_a_node(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "save", &[], "20s").await?;
    let mut run = lane.run("ci", "workspaces", &[("big", "6", "10s"), ("long", "1", "120s")]);
    run["spec"]["pipelineSpec"]["tasks"][1]["runAfter"] = json!([]);
    lane.space.created(&run).await?;
    lane.space.ran("ci").await?;
    let shapes = lane.grown().await?;
    ensure!(shapes.len() <= 1, "{shapes:?}");
    Ok(())
}
