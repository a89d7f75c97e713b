//! Mistakes of authors, and unusual objects.

use std::sync::Arc;

use anyhow::{Result, ensure};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testbed::volumes::{IMMEDIATE, WAITING};
use testbed::workload;

use crate::coschedule::group::group_of;
use crate::coschedule::pipeline::{Lab, claim, clone_and_build, existing, in_mode, task, template};
use crate::world::{World, same};

const ZONES: [&str; 4] = ["east", "west", "east", "west"];

pub(crate) async fn an_unknown_mode_is_refused(world: Arc<World>) -> Result<()> {
    let space = world.namespace("mode").await?;
    let lab = Lab::new(&world, "mode", &["east"]).await?;
    space.created(&in_mode(clone_and_build(&lab, "ci", WAITING), "sometimes")).await?;
    space.failed("ci").await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("tekton.dev", "v1", "TaskRun"));
    let task_runs: Api<DynamicObject> =
        Api::namespaced_with(world.client.clone(), &space.name, &kind);
    let task_run = task_runs.get("ci-clone").await?;
    let message = task_run.data["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
    for word in ["sometimes", "disabled", "workspaces", "pipelineruns", "isolate-pipelinerun"] {
        ensure!(message.contains(word), "{message}");
    }
    space.cleared(&[]).await
}

pub(crate) async fn a_group_must_be_a_label_value(world: Arc<World>) -> Result<()> {
    let space = world.namespace("label").await?;
    let long = "x".repeat(64);
    for group in ["", " ", "a b", "-a", "ä", "a/b", &long] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "pod", "annotations": {"stowplan.dev/coschedule-group": group}},
            "spec": {"containers": [{"name": "main", "image": "main"}]},
        });
        space.create(&pod).await?.refused_with(&["stowplan.dev/coschedule-group"])?;
    }
    space.nothing_is_left().await
}

pub(crate) async fn a_claim_that_does_not_exist_yet(world: Arc<World>) -> Result<()> {
    let space = world.namespace("absent").await?;
    let lab = Lab::new(&world, "absent", &ZONES).await?;
    let tasks = [task("a", &[], &["cache"]), task("b", &["a"], &["cache"])];
    space.created(&lab.run("ci", &[existing("cache", "later")], &tasks)).await?;
    workload::unschedulable(&world.client, &space.name, "ci-a-pod").await?;
    space.expect_event(&["Pod/ci-a-pod", "persistentvolumeclaim \"later\" not found"]).await?;
    space.created(&claim("later", WAITING, "ReadWriteOnce")).await?;
    space.succeeded("ci").await?;
    space.together("ci-").await?;
    space.cleared(&["later"]).await
}

pub(crate) async fn an_owner_that_does_not_exist(world: Arc<World>) -> Result<()> {
    let space = world.namespace("orphan").await?;
    let owner = |kind: &str, uid: &str| {
        json!([{
            "apiVersion": "tekton.dev/v1", "kind": kind, "name": "missing", "uid": uid, "controller": true,
        }])
    };
    for (name, kind, uid) in [
        ("unknown", "TaskRun", "0f0e7d9c-6b0a-4a53-9d3c-2f3a7a5b8c11"),
        ("no-uid", "TaskRun", "x"),
        ("a-run", "PipelineRun", "0f0e7d9c-6b0a-4a53-9d3c-2f3a7a5b8c11"),
    ] {
        let pod = space
            .pod(&json!({
                "metadata": {"name": name, "ownerReferences": owner(kind, uid)},
                "spec": {"containers": [{"name": "main", "image": "main"}]},
            }))
            .await?;
        let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
        ensure!(group_of(&pod).is_none() && affinity.is_none(), "{} was changed", pod.name_any());
    }
    space.nothing_is_left().await
}

pub(crate) async fn a_pipeline_that_does_not_exist(world: Arc<World>) -> Result<()> {
    let space = world.namespace("nowhere").await?;
    let lab = Lab::new(&world, "nowhere", &["east"]).await?;
    space.created(&claim("cache", WAITING, "ReadWriteOnce")).await?;
    let mut run = lab.run("ci", &[existing("cache", "cache")], &[]);
    let spec = run["spec"].as_object_mut().expect("a run has a spec");
    spec.remove("pipelineSpec");
    spec.insert("pipelineRef".to_owned(), json!({"name": "nowhere"}));
    space.created(&run).await?;
    same(&&*space.failed("ci").await?, &"no such Pipeline")?;
    // A pod of the failed run: a run that has ended has no group.
    let run = space.runs().get("ci").await?;
    let mut spec = json!({"podTemplate": lab.way(), "workspaces": [existing("cache", "cache")]});
    spec["taskSpec"] = task("one", &[], &["cache"])["taskSpec"].take();
    space
        .created(&json!({
            "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
            "metadata": {
                "name": "ci-one",
                "labels": {"tekton.dev/pipelineTask": "one", "tekton.dev/pipelineRun": "ci"},
                "ownerReferences": [{
                    "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "ci",
                    "uid": run.uid(), "controller": true,
                }],
            },
            "spec": spec,
        }))
        .await?;
    let pod = space.in_phase("ci-one-pod", "Succeeded").await?;
    ensure!(group_of(&pod).is_none(), "it became a member of a run that has ended");
    same(&pod.spec.and_then(|spec| spec.affinity), &None)?;
    same(&space.placeholders().await?.len(), &0)?;
    space.cleared(&["cache"]).await
}

pub(crate) async fn names_at_their_limits(world: Arc<World>) -> Result<()> {
    let space = world.namespace("names").await?;
    let lab = Lab::new(&world, "names", &ZONES).await?;
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

pub(crate) async fn a_run_of_many_tasks_and_workspaces(world: Arc<World>) -> Result<()> {
    let space = world.namespace("huge").await?;
    let lab = Lab::new(&world, "huge", &ZONES).await?;
    let names: Vec<_> = (0..25).map(|number| format!("w{number:02}")).collect();
    let workspaces: Vec<_> = names.iter().map(|name| template(name, WAITING)).collect();
    let tasks: Vec<Value> = (0..75)
        .map(|number| {
            let workspace = &names[number % 25];
            task(&format!("{workspace}-t{}", number / 25), &[], &[workspace])
        })
        .collect();
    space.created(&lab.run("ci", &workspaces, &tasks)).await?;
    space.succeeded("ci").await?;
    same(&space.task_pods().await?.len(), &75)?;
    for name in &names {
        space.together(&format!("ci-{name}-")).await?;
    }
    space.cleared(&[]).await
}
