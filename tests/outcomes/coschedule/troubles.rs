//! Placeholders that are forbidden or orphaned, and a stopped controller: the run succeeds all the
//! same.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use testbed::volumes::WAITING;
use testbed::wait::{Seen, until};

use crate::coschedule::group::{GROUP, group_of};
use crate::coschedule::pipeline::{
    LIMIT, Lab, ZONES, clone_and_build, held, node, task, template, with_first,
};
use crate::world::{Space, World, object, one_of, pod, same, settled, workload_of};

/// A quota that admits the run's pods, which request next to nothing, but no placeholder.
async fn keep_placeholders_out(space: &Space) -> Result<()> {
    let limits = json!({"limits": [{"type": "Container", "defaultRequest": {"cpu": "1m"}}]});
    space.created(&object("v1", "LimitRange", "small", &limits)).await?;
    limit(space, json!({"requests.cpu": "9m"})).await
}

async fn limit(space: &Space, hard: Value) -> Result<()> {
    let quota = object("v1", "ResourceQuota", "quota", &json!({"hard": hard}));
    space.created(&quota).await.map(drop)
}

/// The pod requires the label of members, and not their placeholder.
fn has_joined_others(pod: &Pod) -> Result<()> {
    let affinity = serde_json::to_value(pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()))?;
    let terms = &affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let required = &terms[0]["labelSelector"]["matchLabels"]["stowplan.dev/coschedule-member"];
    same(&required.as_str(), &group_of(pod))?;
    ensure!(group_of(pod).is_some(), "{} is no member", pod.name_any());
    Ok(())
}

pub(crate) async fn a_quota_forbids_the_placeholder(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "quota", &ZONES).await?;
    keep_placeholders_out(&space).await?;
    let tasks = [
        held(task("until", &[], &[])),
        task("one", &["until"], &["source"]),
        task("two", &["one"], &["source"]),
    ];
    space.created(&lab.run("ci", &[template("source", WAITING)], &tasks)).await?;
    space.let_end("ci-until-pod").await?;
    let event = space.expect_event(&["PipelineRun/ci", "PlaceholderNotMade", "quota"]).await?;
    ensure!(event.contains("kubectl describe statefulset affinity-assistant-"), "{event}");
    // Later pods do not wait for a placeholder that cannot be created, and stay together.
    space.succeeded("ci").await?;
    has_joined_others(&space.task_pod("ci-two-pod").await?)?;
    same(&space.placeholder_pods().await?.len(), &0)?;
    space.cleared(&[]).await
}

/// A quota that admits no StatefulSet at all, and is in force.
async fn keep_statefulsets_out(space: &Space) -> Result<()> {
    limit(space, json!({"count/statefulsets.apps": "0"})).await?;
    let counted = async || Ok(space.get("resourcequota quota").await?["status"]["used"].take());
    let is_counted = |used: &Value| used["count/statefulsets.apps"] == "0";
    settled("the quota to be in force", counted, is_counted).await.map(drop)
}

/// There is no object that could tell the webhook.
pub(crate) async fn a_quota_forbids_the_statefulset(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "sets", &ZONES).await?;
    keep_statefulsets_out(&space).await?;
    let tasks = [
        held(task("one", &[], &["source"])),
        held(task("two", &[], &["source"])),
        task("three", &["one", "two"], &["source"]),
    ];
    space.created(&lab.run("ci", &[template("source", WAITING)], &tasks)).await?;
    let why = ["PipelineRun/ci", "PlaceholderNotMade", "exceeded quota", "beside each other"];
    space.expect_event(&why).await?;
    let mut nodes = Vec::new();
    for pod in ["ci-one-pod", "ci-two-pod"] {
        nodes.push(node(&space.in_phase(pod, "Running").await?));
        space.expect_event(&[&format!("Pod/{pod}"), "PlaceholderNotMade"]).await?;
    }
    one_of(nodes)?;
    let check = space.stowplan("check pipelinerun/ci", "").await?;
    ensure!(check.out.contains("run beside each other without it"), "{}{}", check.out, check.err);
    for pod in ["ci-one-pod", "ci-two-pod"] {
        space.let_end(pod).await?;
    }
    // Nothing keeps their node for the last task, whose pod follows one that has not ended yet.
    space.succeeded("ci").await?;
    same(&space.placeholders().await?.len(), &0)?;
    space.cleared(&[]).await
}

/// The quota is raised while a member runs without its placeholder.
pub(crate) async fn a_statefulset_is_admitted_later(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "later", &ZONES).await?;
    keep_statefulsets_out(&space).await?;
    let tasks = [held(task("one", &[], &["source"])), held(task("two", &["one"], &["source"]))];
    space.created(&lab.run("ci", &[template("source", WAITING)], &tasks)).await?;
    let first = node(&space.in_phase("ci-one-pod", "Running").await?);
    space.kubectl("delete resourcequota quota").await?;
    // The controller tries again within minutes.
    let nodes = async || Ok(space.placeholder_pods().await?.iter().map(node).collect::<Vec<_>>());
    let joins = |nodes: &Vec<Option<String>>| *nodes == [first.clone()];
    settled("the placeholder to join the member that runs", nodes, joins).await?;
    space.let_end("ci-one-pod").await?;
    space.let_end("ci-two-pod").await?;
    space.ran("ci").await?;
    space.cleared(&[]).await
}

/// Its pods would run without stowplan, so they do not wait for ever. The policy's `repair` is
/// `report`.
pub(crate) async fn a_group_without_a_placeholder_runs_without_it(world: Arc<World>) -> Result<()> {
    let space = world.namespace("without").await?;
    keep_placeholders_out(&space).await?;
    let grouped = |labels: Value| {
        pod("bare", &json!({"metadata": {"labels": labels, "annotations": {GROUP: "g"}}}))
    };
    let tight = grouped(json!({"app": "tight"}));
    space.created(&workload_of("Deployment", "tight", 2, &tight)).await?;
    space.pod(&grouped(json!({}))).await?;
    // Each is created again, and then beside the other. A minute until the placeholder counts as missing, and the grace period.
    until("the pods of the Deployment to be placed", 3 * LIMIT, async || {
        let pods = space.living("app=tight").await?;
        let placed =
            pods.iter().filter(|pod| node(pod).is_some() && has_joined_others(pod).is_ok());
        let placed: Vec<_> = placed.map(node).collect();
        Ok(match placed.len() {
            2 => Seen::Done(same(&placed[0], &placed[1])?),
            seen => Seen::NotYet(format!("{seen} are")),
        })
    })
    .await?;
    let again = "delete it and create it again";
    space.expect_event(&["Pod/bare", "PlaceholderNotMade", again]).await?;
    ensure!(node(&space.pods().get("bare").await?).is_none(), "nothing creates it again");
    space.delete("bare").await
}

/// A quota that counts pods: the placeholder has the last place, and the run's next pod needs it.
pub(crate) async fn a_placeholder_steps_aside_for_a_quota(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "aside", &ZONES).await?;
    space.created(&with_first(clone_and_build(&lab, "ci", WAITING), held)).await?;
    // It follows its placeholder, so both have their places.
    space.in_phase("ci-clone-pod", "Running").await?;
    limit(&space, json!({"pods": "1"})).await?;
    space.let_end("ci-clone-pod").await?;
    space.expect_event(&["PipelineRun/ci", "PlaceholderSteppedAside", "ResourceQuota"]).await?;
    space.succeeded("ci").await?;
    has_joined_others(&space.task_pod("ci-build-pod").await?)?;
    space.cleared(&[]).await
}

pub(crate) async fn a_placeholder_is_orphaned(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "orphaned", &ZONES).await?;
    space.created(&with_first(clone_and_build(&lab, "ci", WAITING), held)).await?;
    space.in_phase("ci-clone-pod", "Running").await?;
    let set = space.placeholders().await?.first().context("no placeholder")?.name_any();
    space.kubectl(&format!("delete statefulset {set} --cascade=orphan")).await?;
    space.let_end("ci-clone-pod").await?;
    space.succeeded("ci").await?;
    space.together("ci-").await?;
    // The orphaned placeholder is deleted although the run and its pods still exist.
    space.cleared(&[]).await
}

/// Stopped for longer than its Lease: pods are admitted as if there were no groups, with a warning.
pub(crate) async fn pods_are_admitted_while_no_controller_runs(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let (space, lab) = Lab::in_space(&world, "away", &ZONES).await?;
    installation.kill_controller(0).await?;
    installation.stop_webhook().await?;
    let own = Space { world: Arc::clone(&world), name: installation.namespace().to_owned() };
    let long_ago = json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}});
    own.change::<Lease>("stowplan-controller", long_ago).await?;
    // A webhook that starts now reads the age of the Lease; a running one waits a minute by its own
    // clock.
    installation.start_webhook().await?;
    let trial = pod("trial", &json!({"metadata": {"annotations": {GROUP: "trial"}}}));
    let knows = async |is_there: bool| {
        let joins = async || Ok(group_of(&space.admitted(&trial).await?).is_some());
        settled("whether a pod joins a group", joins, |joins| *joins == is_there).await
    };
    knows(false).await?;
    space.created(&clone_and_build(&lab, "ci", WAITING)).await?;
    space.succeeded("ci").await?;
    space.nobody_is_a_member().await?;
    same(&space.placeholders().await?.len(), &0)?;
    installation.start_controller(0).await?;
    knows(true).await?;
    // It creates no placeholder for a run that has ended.
    space.cleared(&[]).await?;
    same(&space.placeholders().await?.len(), &0)
}
