//! The modes: which tasks each keeps together, and which it does not change.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::json;
use testbed::volumes::WAITING;

use crate::coschedule::group::group_of;
use crate::coschedule::pipeline::{
    Lab, ZONES, after_clone, claims_of, clone_and_build, in_mode, lasting, task, template,
};
use crate::world::{World, same};

pub(crate) async fn workspaces_that_meet_in_a_task_share_a_node(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "workspaces", &ZONES).await?;
    let run = after_clone(&lab, "ci", WAITING, |clone| lasting(clone, "3s"));
    space.created(&run).await?;
    let placed = space.placed(1).await?;
    // Both volumes can be used on the placeholder's node.
    same(&claims_of(&space.placeholder_pods().await?[0]).len(), &2)?;
    same(&space.ran("ci").await?, &placed[0])?;
    space.cleared(&[]).await
}

/// The run's own annotation takes precedence over that of its namespace.
pub(crate) async fn a_free_task_is_free_in_workspaces_only(world: Arc<World>) -> Result<()> {
    let lab = Lab::new(&world, "free", &ZONES).await?;
    for (of_namespace, of_run, is_free) in [
        ("pipelineruns", Some("workspaces"), true),
        ("pipelineruns", None, false),
        ("workspaces", Some("isolate-pipelinerun"), false),
    ] {
        let space = world.namespace("free").await?;
        let mode = format!("stowplan.dev/coschedule={of_namespace}");
        world.run(&format!("annotate namespace {} {mode}", space.name)).await?;
        let run = lab.run(
            "ci",
            &[template("source", WAITING)],
            &[
                task("bound", &[], &["source"]),
                task("lint", &[], &[]),
                task("also", &["bound"], &["source"]),
            ],
        );
        let run = of_run.map_or_else(|| run.clone(), |mode| in_mode(run.clone(), mode));
        space.created(&run).await?;
        space.succeeded("ci").await?;
        let lint = space.task_pod("ci-lint-pod").await?;
        ensure!(group_of(&lint).is_none() == is_free, "{of_namespace}, {of_run:?}: {lint:?}");
        space.together(if is_free { "ci-b" } else { "ci-" }).await?;
        same(&space.together("ci-also").await?, &space.together("ci-bound").await?)?;
        space.cleared(&[]).await?;
    }
    Ok(())
}

pub(crate) async fn tektons_own_assistant_is_left_alone(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "assistant", &ZONES).await?;
    let mut run = clone_and_build(&lab, "ci", WAITING);
    run["metadata"]["annotations"]["pipeline.tekton.dev/affinity-assistant"] =
        json!("affinity-assistant-0123456789");
    space.created(&run).await?;
    space.succeeded("ci").await?;
    space.expect_event(&["PipelineRun/ci", "coschedule: disabled"]).await?;
    for (name, pod) in space.task_pods().await? {
        ensure!(group_of(&pod).is_none(), "{name} became a member");
    }
    space.cleared(&[]).await
}
