//! A placeholder whose node is no longer eligible for its group: the run succeeds all the same.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testbed::volumes::{LOCAL, WAITING};

use crate::coschedule::GRACE_PERIOD;
use crate::coschedule::pipeline::{Lab, held, lasting, node, task, template};
use crate::world::{Space, World, has, pod, requesting, same, settled, with_policy};

/// A change of the placeholder's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Cordoned,
    Tainted,
    NotReady,
    Deleted,
    NoPods,
    NoProcessors,
}

/// When it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// One member has ended, and the next one does not exist yet.
    BetweenTwo,
    /// A member is running.
    While,
}

/// The CPU request of a task; a node has sixteen CPUs.
const MOST: &str = "10";

/// The node of the tasks that are no members.
const BESIDE: &str = "east";

impl Fault {
    /// Makes it happen to `node`.
    async fn happen(self, world: &World, space: &Space, node: &str) -> Result<()> {
        match self {
            Self::Cordoned => world.plane.cordon(node).await,
            Self::Tainted => world.plane.taint(node, "maintenance", "now", "NoSchedule").await,
            Self::NotReady => world.plane.lose_node(node).await,
            Self::Deleted => world.plane.delete_node(node).await,
            Self::NoPods => fill(space, node, 5, "1m").await,
            Self::NoProcessors => fill(space, node, 1, "7").await,
        }
    }
}

/// Fills a node with other pods. They bypass the scheduler, which would not give them the room that a group
/// reserves.
async fn fill(space: &Space, node: &str, count: usize, cpu: &str) -> Result<()> {
    for number in 0..count {
        let filler = pod(&format!("filler-{node}-{number}"), &json!({"spec": {"nodeName": node}}));
        space.pod(&requesting(filler, cpu)).await?;
    }
    Ok(())
}

/// Opens the way for the run's task `between`.
async fn open(world: &World, lab: &Lab) -> Result<()> {
    world.plane.label(BESIDE, &format!("{}-between", lab.name), Some("open")).await
}

/// A run whose member `two` starts when `between` is opened.
fn run(lab: &Lab, moment: Moment) -> Value {
    let member = |name: &str, after: &[&str]| {
        let mut member = task(name, after, &["source"]);
        member["taskSpec"]["steps"][0]["computeResources"] = json!({"requests": {"cpu": MOST}});
        member
    };
    let one = member("one", &[]);
    let mut run = lab.run(
        "ci",
        &[template("source", WAITING)],
        &[
            if moment == Moment::While { held(one) } else { one },
            task("between", &["one"], &[]),
            member("two", &["between"]),
        ],
    );
    // On another node, when it has this label: until then it waits, and holds the next member back.
    let door = format!("{}-between", lab.name);
    let selector = json!({"kubernetes.io/hostname": BESIDE, door: "open"});
    let spec = json!({"pipelineTaskName": "between", "podTemplate": {"nodeSelector": selector}});
    run["spec"]["taskRunSpecs"] = json!([spec]);
    run
}

async fn survives(world: &Arc<World>, binding: &str, fault: Fault, moment: Moment) -> Result<()> {
    let name = format!("{binding}-{fault:?}-{moment:?}").to_lowercase();
    let space = world.namespace(&name).await?;
    // Room for five pods a node: those of the run are two at most, with the placeholder. All nodes
    // are in one zone, so that the volume can follow.
    let lab = Lab::with(world, &name, &["east"; 3], |node| node.capacity("pods", "5")).await?;
    let mut run = run(&lab, moment);
    if moment == Moment::While && fault == Fault::Deleted {
        // The pod is deleted with its node, so its task needs a retry.
        run["spec"]["pipelineSpec"]["tasks"][0]["retries"] = json!(1);
    }
    space.created(&run).await?;
    let lost = match moment {
        Moment::BetweenTwo => {
            node(&space.in_phase("ci-one-pod", "Succeeded").await?).context("one was nowhere")?
        }
        Moment::While => {
            space.in_phase("ci-one-pod", "Running").await?;
            // A member may run before the node of its placeholder is bound.
            space.placed(1).await?.remove(0)
        }
    };
    let running = space.task_pod("ci-one-pod").await.ok();
    fault.happen(world, &space, &lost).await?;
    open(world, &lab).await?;
    if moment == Moment::While && fault == Fault::Deleted {
        space.in_phase("ci-one-pod-retry1", "Running").await?;
        space.let_end("ci-one-pod-retry1").await?;
    } else if moment == Moment::While {
        // Longer than the grace period: stowplan could have moved the group, and has not. Without a
        // kubelet the task does not end either, and Kubernetes decides about it.
        tokio::time::sleep(GRACE_PERIOD + Duration::from_secs(1)).await;
        unharmed(&space, running.as_ref()).await?;
        if fault == Fault::NotReady {
            world.plane.recover_node(&lost).await?;
        }
        space.let_end("ci-one-pod").await?;
    }
    space.succeeded("ci").await.with_context(|| format!("{fault:?}, {moment:?}, {lost}"))?;
    if moment != Moment::While {
        space.expect_event(&["PipelineRun/ci", "PlaceholderMoved", &lost]).await?;
    }
    if moment == Moment::While && fault != Fault::Deleted {
        unharmed(&space, running.as_ref()).await?;
    }
    let two = node(&space.task_pod("ci-two-pod").await?).context("two was nowhere")?;
    // A full node may have room again, and a node that came back may be used.
    let back = moment == Moment::While && fault == Fault::NotReady;
    ensure!(two != lost || back, "{fault:?}, {moment:?}: on {two}, which was lost");
    if fault == Fault::NotReady && !back {
        world.plane.recover_node(&lost).await?;
    }
    space.cleared(&[]).await.with_context(|| format!("{fault:?}, {moment:?}, {lost}"))
}

/// The pod that ran still runs, or has succeeded: it was not replaced.
async fn unharmed(space: &Space, running: Option<&Pod>) -> Result<()> {
    let running = running.context("nothing ran")?;
    let now = space.task_pod(&running.name_any()).await?;
    same(&now.uid(), &running.uid())?;
    ensure!(now.metadata.deletion_timestamp.is_none(), "{} is being deleted", now.name_any());
    Ok(())
}

async fn survives_at_every_moment(world: &Arc<World>, fault: Fault) -> Result<()> {
    let moments = [Moment::BetweenTwo, Moment::While];
    try_join_all(moments.map(|moment| survives(world, "term", fault, moment))).await.map(drop)
}

/// With `binding: node` members are pinned to a node, and do not follow the placeholder by
/// themselves. All at once, because the policy holds for all.
pub(crate) async fn by_node_a_cordoned_or_full_node_is_left(world: Arc<World>) -> Result<()> {
    with_policy(&world, json!({"coschedule": {"binding": "node"}}), async || {
        let of = |fault| survives(&world, "node", fault, Moment::BetweenTwo);
        try_join_all([of(Fault::Cordoned), of(Fault::NoProcessors)]).await.map(drop)
    })
    .await
}

pub(crate) async fn a_cordoned_node_is_left(world: Arc<World>) -> Result<()> {
    survives_at_every_moment(&world, Fault::Cordoned).await
}

pub(crate) async fn a_tainted_node_is_left(world: Arc<World>) -> Result<()> {
    survives_at_every_moment(&world, Fault::Tainted).await
}

pub(crate) async fn a_node_that_is_not_ready_is_left(world: Arc<World>) -> Result<()> {
    survives_at_every_moment(&world, Fault::NotReady).await
}

pub(crate) async fn a_deleted_node_is_left(world: Arc<World>) -> Result<()> {
    survives_at_every_moment(&world, Fault::Deleted).await
}

pub(crate) async fn a_node_without_room_for_pods_is_left(world: Arc<World>) -> Result<()> {
    survives_at_every_moment(&world, Fault::NoPods).await
}

pub(crate) async fn a_node_without_processors_is_left(world: Arc<World>) -> Result<()> {
    survives_at_every_moment(&world, Fault::NoProcessors).await
}

/// While a task runs, the room of the next one is requested, and a pod of others waits for it. When that task begins,
/// the scheduler would take the pod first that has waited for longer.
pub(crate) async fn a_member_gets_the_room_that_an_older_pod_waits_for(
    world: Arc<World>,
) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "older", &["east"]).await?;
    space.created(&run(&lab, Moment::While)).await?;
    space.in_phase("ci-one-pod", "Running").await?;
    let requested = async || {
        let pods = space.placeholder_pods().await?;
        let resources =
            pods.first().and_then(|pod| pod.spec.as_ref()?.containers[0].resources.clone());
        Ok(resources.and_then(|of| Some(of.requests?.remove("cpu")?.0)).unwrap_or_default())
    };
    settled("the room to be reserved", requested, |cpu| cpu.starts_with(MOST)).await?;
    let older = requesting(pod("older", &json!({"spec": lab.way()})), "8");
    space.pending(&older).await?;
    space.let_end("ci-one-pod").await?;
    open(&world, &lab).await?;
    space.succeeded("ci").await?;
    // It goes on for ever, so the second task could not have run after it.
    space.in_phase("older", "Running").await?;
    space.cleared(&[]).await
}

/// Waits until a run, one of its TaskRuns and that TaskRun's pod have the same event.
async fn expect_event_of_all(space: &Space, task_run: &str, words: &[&str]) -> Result<()> {
    let pod = format!("Pod/{task_run}-pod");
    for object in ["PipelineRun/ci", &format!("TaskRun/{task_run}"), &pod] {
        let object = format!("{object} ");
        let words: Vec<_> = [object.as_str()].iter().chain(words).copied().collect();
        space.expect_event(&words).await?;
    }
    Ok(())
}

/// `check` reports an obstacle of the run, in these words.
async fn is_reported(space: &Space, words: &[&str]) -> Result<()> {
    let said = space.stowplan("check pipelinerun/ci", "").await?;
    ensure!(!said.success, "nothing is in the way: {}", said.out);
    has(&said.out, words)
}

/// A run on three nodes, whose task `first` runs until it is told to end, and whose task `second`
/// starts after a free task, `until`, which also does; the pod of `first`, and its node.
async fn first_and_second(world: &Arc<World>, name: &str) -> Result<(Space, Pod, String)> {
    let (space, lab) = Lab::in_space(world, name, &["east"; 3]).await?;
    let tasks = [
        held(task("first", &[], &["source"])),
        held(task("until", &[], &[])),
        task("second", &["until"], &["source"]),
    ];
    space.created(&lab.run("ci", &[template("source", WAITING)], &tasks)).await?;
    let first = space.in_phase("ci-first-pod", "Running").await?;
    // A member may run before the node of its placeholder is bound.
    space.placed(1).await?;
    let there = node(&first).context("first is nowhere")?;
    Ok((space, first, there))
}

/// Lets `first` end, which nothing has disturbed; `second` then runs on another node.
async fn moves_after(space: &Space, first: &Pod, left: &str) -> Result<()> {
    unharmed(space, Some(first)).await?;
    space.let_end("ci-first-pod").await?;
    space.succeeded("ci").await?;
    unharmed(space, Some(first)).await?;
    ensure!(node(&space.task_pod("ci-second-pod").await?).as_deref() != Some(left), "not moved");
    space.cleared(&[]).await
}

/// While a member runs its group is not moved; the events of waiting pods name that member.
pub(crate) async fn a_member_that_runs_is_waited_for(world: Arc<World>) -> Result<()> {
    let (space, first, lost) = first_and_second(&world, "busy").await?;
    world.plane.cordon(&lost).await?;
    space.let_end("ci-until-pod").await?;
    expect_event_of_all(&space, "ci-second", &["WaitsForMembers", &lost, "ci-first-pod"]).await?;
    moves_after(&space, &first, &lost).await?;
    space.expect_event(&["PipelineRun/ci ", "PlaceholderMoved", &lost]).await.map(drop)
}

/// A placeholder's pod that is deleted while a member runs (by a drain, say) does not split the
/// group: it is placed on the member's node again, or waits until the member has ended.
pub(crate) async fn a_deleted_placeholder_comes_back_to_its_members(
    world: Arc<World>,
) -> Result<()> {
    let (space, first, held) = first_and_second(&world, "evicted").await?;
    let evict = async || {
        let placeholders = space.placeholder_pods().await?;
        let name = placeholders.first().context("no placeholder")?.name_any();
        space.pods().delete(&name, &DeleteParams::default()).await?;
        anyhow::Ok(())
    };
    evict().await?;
    same(&space.placed(1).await?, &vec![held.clone()])?;
    world.plane.cordon(&held).await?;
    evict().await?;
    space.let_end("ci-until-pod").await?;
    expect_event_of_all(&space, "ci-second", &["WaitsForMembers", &held, "ci-first-pod"]).await?;
    same(&node(&space.task_pod("ci-second-pod").await?), &None)?;
    let runs = format!("pod ci-first-pod of the group still runs on {held}");
    is_reported(&space, &[&format!("node {held} is cordoned"), &runs]).await?;
    moves_after(&space, &first, &held).await
}

/// No node has room for a member: an event quotes the scheduler, and it is placed once a node has room.
pub(crate) async fn no_node_has_room(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "no-room", &["east"; 2]).await?;
    for node in &lab.nodes {
        Fault::NoProcessors.happen(&world, &space, node).await?;
    }
    space.created(&run(&lab, Moment::BetweenTwo)).await?;
    open(&world, &lab).await?;
    expect_event_of_all(&space, "ci-one", &["PlaceholderNotPlaced", "Insufficient cpu"]).await?;
    for node in &lab.nodes {
        space.delete(&format!("filler-{node}-0")).await?;
    }
    space.succeeded("ci").await?;
    space.together("ci-one").await?;
    space.cleared(&[]).await
}

/// A group cannot leave the node of a volume that is pinned to it; an event says so.
pub(crate) async fn a_volume_that_pins_is_reported(world: Arc<World>) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "pinned", &["east"; 2]).await?;
    let tasks = [
        task("one", &[], &["source"]),
        lasting(task("between", &["one"], &[]), "4s"),
        task("two", &["between"], &["source"]),
    ];
    space.created(&lab.run("ci", &[template("source", LOCAL)], &tasks)).await?;
    space.in_phase("ci-between-pod", "Running").await?;
    let lost = node(&space.task_pod("ci-one-pod").await?).context("one was nowhere")?;
    world.plane.cordon(&lost).await?;
    // The run gets its event at once; `check` reports it once a pod waits.
    space.expect_event(&["PipelineRun/ci", "VolumePinsNode", "of claim pvc-", &lost]).await?;
    expect_event_of_all(&space, "ci-two", &["VolumePinsNode", &lost]).await?;
    let cordoned = format!("node {lost} is cordoned");
    let remedy = format!("kubectl uncordon {lost}");
    let pod = format!("Pod {}/ci-two-pod", space.name);
    is_reported(&space, &[&cordoned, "can be mounted on no node but", &remedy, &pod]).await?;
    world.plane.uncordon(&lost).await?;
    space.succeeded("ci").await?;
    same(&node(&space.task_pod("ci-two-pod").await?), &Some(lost))?;
    space.cleared(&[]).await
}
