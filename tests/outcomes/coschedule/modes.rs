//! The modes: which tasks each keeps together, and which it does not change.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::json;
use testbed::volumes::WAITING;

use crate::coschedule::group::group_of;
use crate::coschedule::pipeline::{Lab, ZONES, clone_and_build, in_mode, task, template};
use crate::world::{World, same};

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
        let tasks = [
            task("bound", &[], &["source"]),
            task("lint", &[], &[]),
            task("also", &["bound"], &["source"]),
        ];
        let mut run = lab.run("ci", &[template("source", WAITING)], &tasks);
        if let Some(mode) = of_run {
            run = in_mode(run, mode);
        }
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
    space.nobody_is_a_member().await?;
    space.cleared(&[]).await
}
