//! Pipelines of every shape, and runs that are deleted or made again.

use std::sync::Arc;

use anyhow::{Result, ensure};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testbed::tekton::FAIL;
use testbed::volumes::{IMMEDIATE, WAITING};
use testbed::wait::{Seen, until};

use crate::coschedule::group::group_of;
use crate::coschedule::pipeline::{
    LIMIT, Lab, claim, clone_and_build, existing, in_mode, lasting, task, template,
};
use crate::world::{World, same};

const ZONES: [&str; 4] = ["east", "west", "east", "west"];

pub(crate) async fn matrix_finally_and_retries_are_members(world: Arc<World>) -> Result<()> {
    let space = world.namespace("matrix").await?;
    let lab = Lab::new(&world, "matrix", &ZONES).await?;
    let mut test = task("test", &[], &["source"]);
    test["matrix"] = json!({"params": [{"name": "os", "value": ["linux", "mac", "windows"]}]});
    let mut flaky = task("flaky", &["test"], &["source"]);
    flaky["retries"] = json!(1);
    flaky["taskSpec"]["metadata"]["annotations"][FAIL] = json!("once");
    let mut run = lab.run("ci", &[template("source", WAITING)], &[test, flaky]);
    run["spec"]["pipelineSpec"]["finally"] = json!([task("tell", &[], &["source"])]);
    space.created(&run).await?;
    space.succeeded("ci").await?;
    let pods = space.task_pods().await?;
    same(
        &pods.keys().map(String::as_str).collect::<Vec<_>>(),
        &vec![
            "ci-flaky-pod",
            "ci-flaky-pod-retry1",
            "ci-tell-pod",
            "ci-test-0-pod",
            "ci-test-1-pod",
            "ci-test-2-pod",
        ],
    )?;
    space.together("ci-").await?;
    space.cleared(&[]).await
}

/// stowplan cannot tell which tasks share claims if it cannot read the pipeline: all are one group.
pub(crate) async fn unreadable_pipelines_are_one_group(world: Arc<World>) -> Result<()> {
    let lab = Lab::new(&world, "unread", &ZONES).await?;
    let tasks = [
        task("a", &[], &["one"]),
        task("b", &[], &["other"]),
        task("c", &["a"], &["one"]),
        task("d", &["b"], &["other"]),
    ];
    let workspaces = [template("one", WAITING), template("other", WAITING)];
    for (reference, groups) in [
        (json!({"resolver": "cluster", "params": [{"name": "name", "value": "known"}]}), 1),
        (json!({"name": "known"}), 2),
    ] {
        let space = world.namespace("unread").await?;
        let mut run = lab.run("ci", &workspaces, &tasks);
        let spec = run["spec"].as_object_mut().expect("a run has a spec");
        let pipeline = spec.remove("pipelineSpec");
        spec.insert("pipelineRef".to_owned(), reference);
        space
            .created(&json!({
                "apiVersion": "tekton.dev/v1", "kind": "Pipeline", "metadata": {"name": "known"},
                "spec": pipeline,
            }))
            .await?;
        space.created(&run).await?;
        space.placed(groups).await?;
        space.succeeded("ci").await?;
        if groups == 1 {
            space.together("ci-").await?;
        }
        same(&space.together("ci-a").await?, &space.together("ci-c").await?)?;
        same(&space.together("ci-b").await?, &space.together("ci-d").await?)?;
        space.cleared(&[]).await?;
    }
    Ok(())
}

pub(crate) async fn pipelines_in_pipelines_are_one_run(world: Arc<World>) -> Result<()> {
    let space = world.namespace("nested").await?;
    let lab = Lab::new(&world, "nested", &ZONES).await?;
    let workspace = json!([{"name": "source"}]);
    let inner = json!({
        "name": "inner", "runAfter": ["before"], "workspaces": workspace,
        "pipelineSpec": {
            "workspaces": workspace,
            "tasks": [task("a", &[], &["source"]), task("b", &["a"], &["source"])],
        },
    });
    let tasks = [task("before", &[], &["source"]), inner, task("after", &["inner"], &["source"])];
    space.created(&lab.run("ci", &[template("source", IMMEDIATE)], &tasks)).await?;
    space.succeeded("ci").await?;
    let pods = space.task_pods().await?;
    same(&pods.len(), &4)?;
    space.together("ci-").await?;
    space.cleared(&[]).await
}

pub(crate) async fn runs_that_share_a_claim_share_a_node(world: Arc<World>) -> Result<()> {
    let space = world.namespace("shared").await?;
    let lab = Lab::new(&world, "shared", &ZONES).await?;
    space.created(&claim("cache", WAITING, "ReadWriteOnce")).await?;
    for name in ["first", "second", "third"] {
        let run = lab.run(
            name,
            &[template("source", IMMEDIATE), existing("cache", "cache")],
            &[
                lasting(task("clone", &[], &["source"]), "2s"),
                lasting(task("build", &["clone"], &["source", "cache"]), "2s"),
            ],
        );
        space.created(&run).await?;
    }
    for name in ["first", "second", "third"] {
        space.succeeded(name).await?;
    }
    // Both at the same time on one node: only one node can mount the cache.
    space.node_of_all("").await?;
    space.cleared(&["cache"]).await
}

pub(crate) async fn a_run_deleted_midway_leaves_nothing(world: Arc<World>) -> Result<()> {
    let space = world.namespace("midway").await?;
    let lab = Lab::new(&world, "midway", &ZONES).await?;
    for mode in ["workspaces", "isolate-pipelinerun"] {
        let mut run = in_mode(clone_and_build(&lab, mode, IMMEDIATE), mode);
        let tasks = &mut run["spec"]["pipelineSpec"]["tasks"];
        tasks[0] = lasting(tasks[0].clone(), "10m");
        space.created(&run).await?;
        space.in_phase(&format!("{mode}-clone-pod"), "Running").await?;
    }
    space.placed(2).await?;
    for mode in ["workspaces", "isolate-pipelinerun"] {
        space.runs().delete(mode, &DeleteParams::default()).await?;
    }
    space.cleared(&[]).await
}

pub(crate) async fn a_run_made_again_under_its_old_name(world: Arc<World>) -> Result<()> {
    let space = world.namespace("again").await?;
    let lab = Lab::new(&world, "again", &ZONES).await?;
    let run = clone_and_build(&lab, "ci", WAITING);
    let mut slow = run.clone();
    slow["spec"]["pipelineSpec"]["tasks"][0] = lasting(task("clone", &[], &["source"]), "10m");
    space.created(&slow).await?;
    space.in_phase("ci-clone-pod", "Running").await?;
    // A pod without a node would be deleted at once.
    space.placed(1).await?;
    let old = space.placeholder_pods().await?[0].name_any();
    // A slow kubelet: the old placeholder is Terminating during all of the second run.
    let held = json!({"metadata": {"annotations": {"testbed.stowplan.dev/lost": "true"}}});
    space.pods().patch_metadata(&old, &PatchParams::default(), &Patch::Merge(held)).await?;
    space.runs().delete("ci", &DeleteParams::default()).await?;
    until("the first run to be deleted", LIMIT, async || {
        Ok(match space.runs().get_metadata_opt("ci").await? {
            None => Seen::Done(()),
            Some(_) => Seen::NotYet("it is there".to_owned()),
        })
    })
    .await?;
    space.created(&run).await?;
    space.succeeded("ci").await?;
    space.together("ci-").await?;
    let terminating = space.pods().get(&old).await?;
    ensure!(terminating.metadata.deletion_timestamp.is_some(), "{old} lives on");
    let let_go = json!({"metadata": {"annotations": {"testbed.stowplan.dev/lost": null}}});
    space.pods().patch_metadata(&old, &PatchParams::default(), &Patch::Merge(let_go)).await?;
    space.cleared(&[]).await
}

pub(crate) async fn labels_of_another_run_change_nothing(world: Arc<World>) -> Result<()> {
    let space = world.namespace("forged").await?;
    let lab = Lab::new(&world, "forged", &ZONES).await?;
    let mut honest = clone_and_build(&lab, "honest", WAITING);
    let tasks = &mut honest["spec"]["pipelineSpec"]["tasks"];
    tasks[0] = lasting(tasks[0].clone(), "5s");
    space.created(&honest).await?;
    space.in_phase("honest-clone-pod", "Running").await?;
    let uid = space.runs().get("honest").await?.uid();
    let mut forged = clone_and_build(&lab, "forged", WAITING);
    forged["spec"]["taskRunSpecs"] = ["clone", "build"]
        .map(|task| {
            json!({"pipelineTaskName": task, "metadata": {"labels": {
                "tekton.dev/pipelineRun": "honest", "tekton.dev/pipelineRunUID": uid,
            }}})
        })
        .into_iter()
        .collect();
    space.created(&forged).await?;
    for run in ["honest", "forged"] {
        space.succeeded(run).await?;
        space.together(run).await?;
    }
    let (one, other) =
        (space.task_pod("honest-build-pod").await?, space.task_pod("forged-build-pod").await?);
    ensure!(group_of(&one).is_some() && group_of(&one) != group_of(&other), "one group");
    space.cleared(&[]).await
}
