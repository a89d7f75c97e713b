//! The modes: which tasks each keeps together, and which it does not change.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::volumes::WAITING;

use crate::coschedule::group::group_of;
use crate::coschedule::pipeline::{
    Lab, claims_of, clone_and_build, in_mode, lasting, task, template,
};
use crate::world::{World, same};

const ZONES: [&str; 4] = ["east", "west", "east", "west"];

pub(crate) async fn disabled_leaves_all_as_it_is(world: Arc<World>) -> Result<()> {
    let space = world.namespace("disabled").await?;
    let lab = Lab::new(&world, "disabled", &ZONES).await?;
    space.created(&in_mode(clone_and_build(&lab, "ci", WAITING), "disabled")).await?;
    space.in_phase("ci-build-pod", "Running").await?;
    same(&space.placeholders().await?.len(), &0)?;
    space.succeeded("ci").await?;
    for (name, pod) in space.task_pods().await? {
        let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
        ensure!(group_of(&pod).is_none() && affinity.is_none(), "{name} was changed");
    }
    space.cleared(&[]).await
}

pub(crate) async fn workspaces_that_meet_in_a_task_share_a_node(world: Arc<World>) -> Result<()> {
    let space = world.namespace("workspaces").await?;
    let lab = Lab::new(&world, "workspaces", &ZONES).await?;
    let mut run = clone_and_build(&lab, "ci", WAITING);
    let tasks = &mut run["spec"]["pipelineSpec"]["tasks"];
    tasks[0] = lasting(tasks[0].clone(), "3s");
    space.created(&run).await?;
    let placed = space.placed(1).await?;
    // Both volumes can be used on the placeholder's node.
    same(&claims_of(&space.placeholder_pods().await?[0]).len(), &2)?;
    space.succeeded("ci").await?;
    same(&space.together("ci-").await?, &placed[0])?;
    space.cleared(&[]).await
}

pub(crate) async fn a_free_task_is_free_in_workspaces_only(world: Arc<World>) -> Result<()> {
    let lab = Lab::new(&world, "free", &ZONES).await?;
    for (mode, free) in
        [("workspaces", true), ("pipelineruns", false), ("isolate-pipelinerun", false)]
    {
        let space = world.namespace("free").await?;
        let run = lab.run(
            "ci",
            &[template("source", WAITING)],
            &[
                task("bound", &[], &["source"]),
                task("lint", &[], &[]),
                task("also", &["bound"], &["source"]),
            ],
        );
        space.created(&in_mode(run, mode)).await?;
        space.succeeded("ci").await?;
        ensure!(group_of(&space.task_pod("ci-bound-pod").await?).is_some(), "{mode}: no member");
        same(&group_of(&space.task_pod("ci-lint-pod").await?).is_none(), &free)?;
        space.together(if free { "ci-b" } else { "ci-" }).await?;
        same(&space.together("ci-also").await?, &space.together("ci-bound").await?)?;
        space.cleared(&[]).await?;
    }
    Ok(())
}

pub(crate) async fn what_a_namespace_says_holds_for_its_runs(world: Arc<World>) -> Result<()> {
    let space = world.namespace("of-namespace").await?;
    let lab = Lab::new(&world, "of-namespace", &ZONES).await?;
    let mode = json!({"metadata": {"annotations": {"stowplan.dev/coschedule": "pipelineruns"}}});
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    namespaces.patch(&space.name, &PatchParams::default(), &Patch::Merge(mode)).await?;
    let tasks: Vec<_> = ["a", "b", "c", "d", "e"].map(|name| task(name, &[], &[])).into();
    space.created(&lab.run("together", &[], &tasks)).await?;
    // The run's own annotation takes precedence.
    space.created(&in_mode(lab.run("apart", &[], &tasks), "workspaces")).await?;
    space.succeeded("together").await?;
    space.together("together-").await?;
    space.succeeded("apart").await?;
    ensure!(group_of(&space.task_pod("apart-a-pod").await?).is_none(), "it became a member");
    space.cleared(&[]).await
}

pub(crate) async fn tektons_own_assistant_is_left_alone(world: Arc<World>) -> Result<()> {
    let space = world.namespace("assistant").await?;
    let lab = Lab::new(&world, "assistant", &ZONES).await?;
    let mut run = clone_and_build(&lab, "ci", WAITING);
    run["metadata"]["annotations"]["pipeline.tekton.dev/affinity-assistant"] =
        json!("affinity-assistant-0123456789");
    space.created(&run).await?;
    space.succeeded("ci").await?;
    for (name, pod) in space.task_pods().await? {
        ensure!(group_of(&pod).is_none(), "{name} became a member");
    }
    space.expect_event(&["PipelineRun/ci", "coschedule: disabled"]).await?;
    space.cleared(&[]).await
}
