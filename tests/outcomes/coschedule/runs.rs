//! Pipelines of every shape and size, runs that are deleted or made again, and objects that do not exist.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testbed::tekton::FAIL;
use testbed::volumes::{IMMEDIATE, WAITING};

use crate::coschedule::pipeline::{
    Lab, ZONES, claim, clone_and_build, existing, held, in_mode, lasting, task, template,
    with_first,
};
use crate::world::{World, has, is_gated, object, owned_by, same, settled};

/// So are those of a pipeline in the pipeline.
pub(crate) async fn matrix_finally_and_retries_are_members(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "matrix", &ZONES).await?;
    let mut test = task("test", &[], &["source"]);
    test["matrix"] = json!({"params": [{"name": "os", "value": ["linux", "mac", "windows"]}]});
    let mut flaky = task("flaky", &["test"], &["source"]);
    flaky["retries"] = json!(1);
    flaky["taskSpec"]["metadata"]["annotations"][FAIL] = json!("once");
    let workspace = json!([{"name": "source"}]);
    let inner = json!({
        "name": "inner", "runAfter": ["flaky"], "workspaces": workspace,
        "pipelineSpec": {
            "workspaces": workspace,
            "tasks": [task("a", &[], &["source"]), task("b", &["a"], &["source"])],
        },
    });
    let after = task("after", &["inner"], &["source"]);
    let tasks = [test, flaky, inner, after];
    let mut run = lab.run("ci", &[template("source", IMMEDIATE)], &tasks);
    run["spec"]["pipelineSpec"]["finally"] = json!([task("tell", &[], &["source"])]);
    space.created(&run).await?;
    space.succeeded("ci").await?;
    let pods = space.task_pods().await?.into_keys().collect::<Vec<_>>().join(" ");
    let wanted = "ci-after-pod ci-flaky-pod ci-flaky-pod-retry1 ci-inner-a-pod ci-inner-b-pod ci-tell-pod \
                  ci-test-0-pod ci-test-1-pod ci-test-2-pod";
    same(&pods.as_str(), &wanted)?;
    space.together("ci-").await?;
    space.cleared(&[]).await
}

/// `run` with a reference in the place of its pipeline, which is returned, too.
fn referring(mut run: Value, reference: &Value) -> (Value, Value) {
    let pipeline = run["spec"]["pipelineSpec"].take();
    let change = json!({"spec": {"pipelineSpec": null, "pipelineRef": reference}});
    json_patch::merge(&mut run, &change);
    (run, pipeline)
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
        let (run, pipeline) = referring(lab.run("ci", &workspaces, &tasks), &reference);
        space.created(&object("tekton.dev/v1", "Pipeline", "known", &pipeline)).await?;
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

pub(crate) async fn runs_that_share_a_claim_share_a_node(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "shared", &ZONES).await?;
    space.created(&claim("cache", WAITING, "ReadWriteOnce")).await?;
    let workspaces = [template("source", IMMEDIATE), existing("cache", "cache")];
    let tasks = [
        held(task("clone", &[], &["source"])),
        lasting(task("build", &["clone"], &["source", "cache"]), "2s"),
    ];
    for name in ["first", "second", "third"] {
        space.created(&lab.run(name, &workspaces, &tasks)).await?;
    }
    // Only one node can mount the cache, and no run has ended.
    for name in ["first", "second", "third"] {
        space.in_phase(&format!("{name}-clone-pod"), "Running").await?;
    }
    for name in ["first", "second", "third"] {
        space.let_end(&format!("{name}-clone-pod")).await?;
        space.succeeded(name).await?;
    }
    space.node_of_all("").await?;
    space.cleared(&["cache"]).await
}

pub(crate) async fn a_run_deleted_midway_leaves_nothing(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "midway", &ZONES).await?;
    for mode in ["workspaces", "isolate-pipelinerun"] {
        let run = in_mode(clone_and_build(&lab, mode, IMMEDIATE), mode);
        space.created(&with_first(run, |clone| lasting(clone, "10m"))).await?;
        space.in_phase(&format!("{mode}-clone-pod"), "Running").await?;
    }
    space.placed(2).await?;
    for mode in ["workspaces", "isolate-pipelinerun"] {
        space.runs().delete(mode, &DeleteParams::default()).await?;
    }
    space.cleared(&[]).await
}

pub(crate) async fn a_run_made_again_under_its_old_name(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "again", &ZONES).await?;
    let run = clone_and_build(&lab, "ci", WAITING);
    space.created(&with_first(run.clone(), |clone| lasting(clone, "10m"))).await?;
    space.in_phase("ci-clone-pod", "Running").await?;
    // A pod without a node would be deleted at once.
    space.placed(1).await?;
    let old = space.placeholder_pods().await?[0].name_any();
    // A slow kubelet: the old placeholder is Terminating during all of the second run.
    let held = |held: Option<&str>| json!({"metadata": {"annotations": {"testbed.stowplan.dev/lost": held}}});
    space.change::<Pod>(&old, held(Some("true"))).await?;
    space.runs().delete("ci", &DeleteParams::default()).await?;
    let exists = async || Ok(space.runs().get_metadata_opt("ci").await?.is_some());
    settled("the first run to be deleted", exists, |exists| !exists).await?;
    space.created(&run).await?;
    space.ran("ci").await?;
    let terminating = space.pods().get(&old).await?;
    ensure!(terminating.metadata.deletion_timestamp.is_some(), "{old} lives on");
    space.change::<Pod>(&old, held(None)).await?;
    space.cleared(&[]).await
}

pub(crate) async fn a_claim_that_does_not_exist_yet(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "absent", &ZONES).await?;
    let tasks = [task("a", &[], &["cache"]), task("b", &["a"], &["cache"])];
    space.created(&lab.run("ci", &[existing("cache", "later")], &tasks)).await?;
    // The task's pod waits behind its gate, and says what its placeholder waits for.
    space.expect_event(&["Pod/ci-a-pod", "persistentvolumeclaim \"later\" not found"]).await?;
    ensure!(is_gated(&space.found("ci-a-pod").await?, "stowplan.dev/placeholder"), "no gate");
    space.created(&claim("later", WAITING, "ReadWriteOnce")).await?;
    space.ran("ci").await?;
    space.cleared(&["later"]).await
}

pub(crate) async fn a_pipeline_that_does_not_exist(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "nowhere", &["east"]).await?;
    space.created(&claim("cache", WAITING, "ReadWriteOnce")).await?;
    let run = lab.run("ci", &[existing("cache", "cache")], &[]);
    let (run, _) = referring(run, &json!({"name": "nowhere"}));
    let run = space.created(&run).await?;
    let failed = space.succeeded("ci").await.err().context("it succeeded")?;
    has(&failed.to_string(), &["failed: no such Pipeline"])?;
    // A pod of the failed run: a run that has ended has no group.
    let mut spec = json!({"podTemplate": lab.way(), "workspaces": [existing("cache", "cache")]});
    spec["taskSpec"] = task("one", &[], &["cache"])["taskSpec"].take();
    let mut task_run = object("tekton.dev/v1", "TaskRun", "ci-one", &spec);
    task_run["metadata"]["labels"] =
        json!({"tekton.dev/pipelineTask": "one", "tekton.dev/pipelineRun": "ci"});
    task_run["metadata"]["ownerReferences"] = owned_by(&run);
    space.created(&task_run).await?;
    space.in_phase("ci-one-pod", "Succeeded").await?;
    space.nobody_is_a_member().await?;
    same(&space.placeholders().await?.len(), &0)?;
    space.cleared(&["cache"]).await
}

pub(crate) async fn names_at_their_limits(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "names", &ZONES).await?;
    let (run, workspace) = ("r".repeat(63), "w".repeat(63));
    let mut source = template(&workspace, IMMEDIATE);
    source["volumeClaimTemplate"]["metadata"] = json!({"name": "t".repeat(242)});
    let other = "o".repeat(63);
    let tasks = [
        task(&"a".repeat(63), &[], &[&workspace]),
        task(&"b".repeat(63), &[&"a".repeat(63)], &[&workspace, &other]),
    ];
    space.created(&lab.run(&run, &[source, template(&other, IMMEDIATE)], &tasks)).await?;
    space.succeeded(&run).await?;
    same(&space.task_pods().await?.len(), &2)?;
    space.together("").await?;
    space.cleared(&[]).await
}
