//! Placeholders that are forbidden or orphaned, and a stopped controller: the run succeeds all the
//! same.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testbed::volumes::WAITING;
use testbed::wait::{Seen, until};

use crate::coschedule::group::group_of;
use crate::coschedule::pipeline::{LIMIT, Lab, clone_and_build, held, node, task, template};
use crate::world::{Space, World, same};

const ZONES: [&str; 4] = ["east", "west", "east", "west"];

/// A free task that runs once its node is uncordoned, and then two that share a claim.
fn after_opening(lab: &Lab, closed: &str) -> Value {
    let mut run = lab.run(
        "ci",
        &[template("source", WAITING)],
        &[
            task("until", &[], &[]),
            task("one", &["until"], &["source"]),
            task("two", &["one"], &["source"]),
        ],
    );
    let mut way = lab.way();
    way["nodeSelector"]["kubernetes.io/hostname"] = json!(closed);
    run["spec"]["taskRunSpecs"] = json!([{"pipelineTaskName": "until", "podTemplate": way}]);
    run
}

/// A quota that admits the run's pods, which request next to nothing, but no placeholder.
async fn keep_placeholders_out(space: &Space) -> Result<()> {
    space
        .created(&json!({
            "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"},
            "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1m"}}]},
        }))
        .await?;
    space
        .created(&json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"},
            "spec": {"hard": {"requests.cpu": "9m"}},
        }))
        .await
}

pub(crate) async fn a_quota_forbids_the_placeholder(world: Arc<World>) -> Result<()> {
    let space = world.namespace("quota").await?;
    let lab = Lab::new(&world, "quota", &ZONES).await?;
    keep_placeholders_out(&space).await?;
    let closed = &lab.nodes[3];
    world.plane.cordon(closed).await?;
    space.created(&after_opening(&lab, closed)).await?;
    let event = space.expect_event(&["PipelineRun/ci", "PlaceholderNotMade", "quota"]).await?;
    ensure!(event.contains("kubectl describe statefulset affinity-assistant-"), "{event}");
    // Later pods do not wait for a placeholder that cannot be created.
    world.plane.uncordon(closed).await?;
    space.succeeded("ci").await?;
    for (name, pod) in space.task_pods().await? {
        ensure!(group_of(&pod).is_none(), "{name} became a member");
    }
    same(&space.placeholder_pods().await?.len(), &0)?;
    space.cleared(&[]).await
}

/// Its pods would run without stowplan, so they do not wait for ever. The policy's `repair` is
/// `report`.
pub(crate) async fn a_group_without_a_placeholder_runs_without_it(world: Arc<World>) -> Result<()> {
    let space = world.namespace("without").await?;
    keep_placeholders_out(&space).await?;
    let grouped = json!({"stowplan.dev/coschedule-group": "g"});
    let spec = json!({"containers": [{"name": "main", "image": "main"}]});
    space
        .created(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "tight"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "tight"}},
                "template": {
                    "metadata": {"labels": {"app": "tight"}, "annotations": grouped},
                    "spec": spec,
                },
            },
        }))
        .await?;
    space.pod(&json!({"metadata": {"name": "bare", "annotations": grouped}, "spec": spec})).await?;
    let tight = ListParams::default().labels("app=tight");
    // A minute until the placeholder counts as missing, and the grace period.
    until("the pods of the Deployment to be placed", 3 * LIMIT, async || {
        let pods = space.pods().list(&tight).await?.items;
        let placed = pods.iter().filter(|pod| node(pod).is_some() && group_of(pod).is_none());
        Ok(match placed.count() {
            2 => Seen::Done(()),
            seen => Seen::NotYet(format!("{seen} are")),
        })
    })
    .await?;
    let without = "without annotation stowplan.dev/coschedule-group";
    space.expect_event(&["Pod/bare", "PlaceholderNotMade", without]).await?;
    ensure!(node(&space.pods().get("bare").await?).is_none(), "nothing creates it again");
    space.delete("bare").await
}

/// A quota that counts pods: the placeholder has the last place, and the run's next pod needs it.
pub(crate) async fn a_placeholder_steps_aside_for_a_quota(world: Arc<World>) -> Result<()> {
    let space = world.namespace("aside").await?;
    let lab = Lab::new(&world, "aside", &ZONES).await?;
    let mut run = clone_and_build(&lab, "ci", WAITING);
    let tasks = &mut run["spec"]["pipelineSpec"]["tasks"];
    tasks[0] = held(tasks[0].clone());
    space.created(&run).await?;
    // It follows its placeholder, so both have their places.
    space.in_phase("ci-clone-pod", "Running").await?;
    space
        .created(&json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"},
            "spec": {"hard": {"pods": "1"}},
        }))
        .await?;
    space.let_end("ci-clone-pod").await?;
    space.expect_event(&["PipelineRun/ci", "PlaceholderSteppedAside", "ResourceQuota"]).await?;
    space.succeeded("ci").await?;
    ensure!(group_of(&space.task_pod("ci-build-pod").await?).is_none(), "it became a member");
    space.cleared(&[]).await
}

pub(crate) async fn a_placeholder_is_orphaned(world: Arc<World>) -> Result<()> {
    let space = world.namespace("orphaned").await?;
    let lab = Lab::new(&world, "orphaned", &ZONES).await?;
    let mut run = clone_and_build(&lab, "ci", WAITING);
    let tasks = &mut run["spec"]["pipelineSpec"]["tasks"];
    tasks[0] = held(tasks[0].clone());
    space.created(&run).await?;
    space.in_phase("ci-clone-pod", "Running").await?;
    let set = space.placeholders().await?.first().context("no placeholder")?.name_any();
    let orphan = ["-n", &space.name, "delete", "statefulset", &set, "--cascade=orphan"];
    world.kubectl(&orphan, "").await?.succeeded()?;
    space.let_end("ci-clone-pod").await?;
    space.succeeded("ci").await?;
    space.together("ci-").await?;
    // The orphaned placeholder is deleted although the run and its pods still exist.
    space.cleared(&[]).await
}

/// Stopped for longer than its Lease: pods are admitted as if there were no groups, with a warning.
pub(crate) async fn pods_are_admitted_while_no_controller_runs(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let space = world.namespace("away").await?;
    let lab = Lab::new(&world, "away", &ZONES).await?;
    installation.kill_controller(0).await?;
    installation.stop_webhook().await?;
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), installation.namespace());
    let long_ago = json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}});
    leases.patch("stowplan-controller", &PatchParams::default(), &Patch::Merge(long_ago)).await?;
    // A webhook that starts now reads the age of the Lease; a running one waits a minute by its own
    // clock.
    installation.start_webhook().await?;
    let trial: Pod = serde_json::from_value(json!({
        "metadata": {"name": "trial", "annotations": {"stowplan.dev/coschedule-group": "trial"}},
        "spec": {"containers": [{"name": "main", "image": "main"}]},
    }))?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let knows = async |is_there: bool| {
        until("the webhook to know whether the controller is there", LIMIT, async || {
            let admitted = space.pods().create(&dry_run, &trial).await?;
            Ok(match group_of(&admitted) {
                group if group.is_some() == is_there => Seen::Done(()),
                group => Seen::NotYet(format!("a pod joins {group:?}")),
            })
        })
        .await
    };
    knows(false).await?;
    space.created(&clone_and_build(&lab, "ci", WAITING)).await?;
    space.succeeded("ci").await?;
    for (name, pod) in space.task_pods().await? {
        ensure!(group_of(&pod).is_none(), "{name} waits for a controller");
    }
    same(&space.placeholders().await?.len(), &0)?;
    installation.start_controller(0).await?;
    knows(true).await?;
    // It creates no placeholder for a run that has ended.
    space.cleared(&[]).await?;
    same(&space.placeholders().await?.len(), &0)
}
