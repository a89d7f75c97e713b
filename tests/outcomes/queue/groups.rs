//! Groups of pods in a queue, which also holds their placeholders.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use testbed::kueue::resource_flavor;
use testbed::volumes::{WAITING, ZONE};
use tokio::time::sleep;

use super::lane::{GATES, Lane, member};
use crate::coschedule::pipeline::{lasting, task, template};
use crate::world::{
    Space, World, has, is_gated, node, on_lasting_nodes, one_of, same, settled, succeeds,
    workload_of,
};

/// The event of a placeholder that steps aside.
const STEPPED_ASIDE: &str = "PlaceholderSteppedAside";

/// A run of two tasks that request a CPU each and share a workspace.
fn run(name: &str) -> Value {
    let tasks = [("one", vec![]), ("two", vec!["one"])].map(|(name, after)| {
        let mut task = lasting(task(name, &after, &["source"]), "2s");
        task["taskSpec"]["steps"][0]["computeResources"] = json!({"requests": {"cpu": "1"}});
        task
    });
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": name},
        "spec": {
            "taskRunTemplate": {"podTemplate": {"affinity": on_lasting_nodes()}},
            "workspaces": [template("source", WAITING)],
            "pipelineSpec": {"workspaces": [{"name": "source"}], "tasks": tasks},
        },
    })
}

impl Space {
    /// Fails if a placeholder has stepped aside.
    async fn kept_its_placeholders(&self) -> Result<()> {
        let events = self.events().await?;
        let is_it = |event: &&String| event.contains(STEPPED_ASIDE);
        ensure!(!events.iter().any(|event| is_it(&event)), "{events:?}");
        Ok(())
    }
}

pub(crate) async fn with_quota_for_everything(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "everything", "20").await?;
    lane.space.created(&run("ci")).await?;
    lane.space.created(&workload_of("Deployment", "many", 4, &member("many", "1"))).await?;
    one_of(lane.space.nodes_of_all("app=many", 4).await?)?;
    lane.space.ran("ci").await?;
    lane.space.kept_its_placeholders().await
}

/// Nothing is made for pods that may not run, and `check` says whose gate holds them, and why. The volume is
/// made where the pod may run.
pub(crate) async fn without_quota(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "nothing", "0").await?;
    let space = &lane.space;
    space.created(&run("ci")).await?;
    space.created(&workload_of("Deployment", "one", 1, &member("one", "1"))).await?;
    let pod = lane.held("app=one", true).await?;
    lane.held("tekton.dev/pipelineTask=one", true).await?;
    sleep(Duration::from_secs(6)).await;
    same(&space.placeholders().await?.len(), &0)?;
    let said = space.stowplan(&format!("check pod/{}", pod.name_any()), "").await?;
    let gate = format!("{GATES}admission, of Kueue");
    let parts = [&*gate, "Workload pod-one-", " in queue default: QuotaReserved is False: "];
    has(&said.out, &[&parts[..], &["insufficient quota for cpu"]].concat())?;
    for claim in space.api::<PersistentVolumeClaim>().list(&<_>::default()).await?.items {
        ensure!(claim.spec.and_then(|spec| spec.volume_name).is_none(), "a volume was made");
    }
    lane.set_quota("20").await?;
    space.nodes_of_all("app=one", 1).await?;
    space.ran("ci").await?;
    space.kept_its_placeholders().await
}

/// Kueue admits the pods of a group and has nothing left for their placeholder: it would wait behind them.
pub(crate) async fn with_quota_for_the_pods_alone(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "alone", "1").await?;
    let space = &lane.space;
    space.created(&run("ci")).await?;
    space.expect_event(&["PipelineRun/ci", STEPPED_ASIDE, "queue"]).await?;
    space.succeeded("ci").await?;

    lane.set_quota("3").await?;
    space.created(&workload_of("Deployment", "many", 3, &member("many", "1"))).await?;
    let admitted = async || space.living("app=many").await;
    let are_admitted =
        |pods: &Vec<Pod>| pods.len() == 3 && pods.iter().all(|pod| !is_gated(pod, GATES));
    let pod = settled("three pods to be admitted", admitted, are_admitted).await?.remove(0);
    one_of(space.nodes_of_all("app=many", 3).await?)?;
    space.expect_event(&["Pod/many-", STEPPED_ASIDE]).await?;
    // None was created again: that would have put it at the end of the queue.
    space.pods().get(&pod.name_any()).await?;
    let said = space.stowplan("check group/g", "").await?;
    has(&said.out, &["it stepped aside at "])?;
    // Those that come later join them.
    lane.set_quota("4").await?;
    space.kubectl("scale deployment many --replicas 4").await?;
    one_of(space.nodes_of_all("app=many", 4).await?)?;
    space.kubectl("delete deployment many").await?;
    space.nothing_is_left().await
}

pub(crate) async fn with_quota_for_one_pod_less(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "less", "2500m").await?;
    let space = &lane.space;
    space.created(&workload_of("Deployment", "many", 2, &member("many", "1"))).await?;
    let first = space.nodes_of_all("app=many", 2).await?;
    space.created(&workload_of("Deployment", "late", 1, &member("late", "1"))).await?;
    let late = lane.held("app=late", true).await?;
    // The Workload is made after the pod.
    succeeds("the Workload to be named", async || {
        let said = space.stowplan(&format!("check pod/{}", late.name_any()), "").await?;
        has(&said.out, &["Workload pod-late-", "QuotaReserved is False"])
    })
    .await?;
    lane.set_quota("20").await?;
    one_of([first, space.nodes_of_all("app=late", 1).await?].concat()).map(drop)
}

/// Kueue refuses changes of the pod template of a StatefulSet that it has admitted.
pub(crate) async fn a_placeholder_that_has_to_move(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "moves", "20").await?;
    let space = &lane.space;
    let nodes: Vec<_> = (0..2).map(|at| format!("moves-{at}")).collect();
    let spec = |name: &String| {
        let node = testbed::control_plane::NodeSpec::new(name).label("moves", "yes");
        node.capacity("cpu", "4")
    };
    world.plane.add_nodes(&nodes.iter().map(spec).collect::<Vec<_>>()).await?;
    let here = |mut pod: Value, name: &str| {
        pod["metadata"]["name"] = json!(name);
        pod["spec"]["affinity"] = Value::Null;
        pod["spec"]["nodeSelector"] = json!({"moves": "yes"});
        pod
    };
    let first = space.node_of_new(&here(member("one", "1"), "one")).await?;
    let other = nodes.iter().find(|node| **node != first).cloned().unwrap_or_default();
    // Others take the node, past the queue and the scheduler, so that the next pod does not fit.
    let others = world.namespace("others").await?;
    let mut taker = here(member("taker", "3"), "taker");
    taker["metadata"]["annotations"] = json!({});
    taker["spec"]["nodeSelector"] = Value::Null;
    taker["spec"]["nodeName"] = json!(first);
    space.delete("one").await?;
    others.pod(&taker).await?;
    same(&space.node_of_new(&here(member("two", "2"), "two")).await?, &other)?;
    let event = space.expect_event(&[STEPPED_ASIDE, "cannot be changed"]).await?;
    has(&event, &["vstatefulset.kb.io"])
}

/// A workload of a higher priority takes the quota of a group, whose pods wait and come back to one node.
pub(crate) async fn a_preempted_group(world: Arc<World>) -> Result<()> {
    let more = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let lane = Lane::with(&world, "preempted", "3500m", "default", &more).await?;
    let space = &lane.space;
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000,
        "metadata": {"name": "urgent"},
    });
    world.plane.apply(&[class])?;
    space.created(&workload_of("Deployment", "many", 2, &member("many", "1"))).await?;
    one_of(space.nodes_of_all("app=many", 2).await?)?;
    let mut urgent = member("urgent", "3");
    urgent["metadata"]["annotations"] = json!({});
    urgent["spec"]["priorityClassName"] = json!("urgent");
    space.node_of_new(&urgent).await?;
    let bound = async || {
        let pods = space.living("app=many").await?;
        Ok(pods.iter().filter(|pod| node(pod).is_some()).count())
    };
    settled("the group to lose its quota", bound, |bound| *bound == 0).await?;
    space.delete("urgent").await?;
    one_of(space.nodes_of_all("app=many", 2).await?).map(drop)
}

/// Kueue adds the labels of a flavor's nodes when it admits a pod, and the volume is made there.
pub(crate) async fn a_task_for_the_nodes_of_a_flavor(world: Arc<World>) -> Result<()> {
    let flavor = resource_flavor("western", &json!({ZONE: "west"}));
    world.plane.apply(&[flavor])?;
    let lane = Lane::with(&world, "flavor", "0", "western", &json!({})).await?;
    lane.space.created(&run("ci")).await?;
    lane.held("tekton.dev/pipelineTask=one", true).await?;
    lane.set_quota("8").await?;
    same(&lane.space.ran("ci").await?, &"west".to_owned())
}

/// Kueue suspends a Job until it has quota for all of its pods.
pub(crate) async fn a_suspended_job(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "job", "1500m").await?;
    let space = &lane.space;
    let mut pod = member("batch", "1");
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["metadata"]["annotations"]["testbed.stowplan.dev/duration"] = json!("3600s");
    let mut job = workload_of("Job", "batch", 1, &pod);
    let own = json!({"apiVersion": "batch/v1", "spec": {
        "replicas": null, "selector": null, "parallelism": 3, "completions": 3,
    }});
    json_patch::merge(&mut job, &own);
    space.created(&job).await?;
    let suspended = async || Ok(space.get("job batch").await?["spec"]["suspend"] == true);
    settled("the Job to be suspended", suspended, |suspended| *suspended).await?;
    let pods = space.living("app=batch").await?;
    same(&(pods.len(), space.placeholders().await?.len()), &(0, 0))?;
    lane.set_quota("20").await?;
    one_of(space.nodes_of_all("app=batch", 3).await?).map(drop)
}

/// A group for which there is no node loses its quota again and again, and runs once there is one.
pub(crate) async fn a_group_that_is_not_ready_in_time(world: Arc<World>) -> Result<()> {
    let lane = Lane::new(&world, "late", "20").await?;
    let space = &lane.space;
    let mut pod = member("many", "1");
    pod["spec"]["affinity"] = Value::Null;
    pod["spec"]["nodeSelector"] = json!({"late": "yes"});
    space.created(&workload_of("Deployment", "many", 2, &pod)).await?;
    space.expect_event(&["Workload/pod-many-", "EvictedDueToPodsReadyTimeout"]).await?;
    let spec = testbed::control_plane::NodeSpec::new("late").label("late", "yes");
    world.plane.add_node(&spec).await?;
    same(&one_of(space.nodes_of_all("app=many", 2).await?)?, &"late".to_owned())
}
