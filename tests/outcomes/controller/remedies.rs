//! The remedies that `stowplan check` and refusals give, tried: each leads out of its situation. A remedy
//! that is a command is run as it is printed.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use testbed::control_plane::NodeSpec;

use crate::controller::nodes::space_on;
use crate::controller::pool;
use crate::mpi::cluster::{launcher, worker_job, worker_set};
use crate::world::{
    Space, World, appears, element, has, pod, requesting, same, succeeds, workload_of,
};

/// Waits until `check` reports an obstacle with this text, and returns its remedy.
async fn remedy(space: &Space, asked: &str, what: &str) -> Result<String> {
    succeeds(&format!("check {asked} to report {what:?}"), async || {
        let output = space.stowplan(&format!("check {asked} -o json"), "").await?;
        let diagnosis: Value = serde_json::from_str(&output.out)
            .with_context(|| format!("{}{}", output.out, output.err))?;
        let obstacles = diagnosis["obstacles"].as_array().context("no obstacles")?;
        let is_it = |it: &&Value| it["what"].as_str().is_some_and(|it| it.contains(what));
        let remedy = obstacles.iter().find(is_it).and_then(|it| it["remedy"].as_str());
        Ok(remedy.with_context(|| format!("{obstacles:#?}"))?.to_owned())
    })
    .await
}

/// Runs the remedy for an obstacle of pod `p`, a kubectl command, as it is printed. Then the pod gets this
/// node.
async fn run_remedy(space: &Space, what: &str, node: &str) -> Result<()> {
    run_command(space, &remedy(space, "pod/p", what).await?).await?;
    runs_on(space, node).await
}

/// Runs the kubectl command of a remedy, as a shell would: it is followed by an alternative or an explanation,
/// and may follow a condition.
async fn run_command(space: &Space, remedy: &str) -> Result<()> {
    let (_, command) = remedy.split_once("kubectl ").with_context(|| remedy.to_owned())?;
    let ends = [", or ", ": "].map(|end| command.find(end).unwrap_or(command.len()));
    let command = &command[..ends[0].min(ends[1])];
    space.world.run(&command.replace('\'', "")).await.map(drop)
}

/// Fails unless pod `p` gets this node, and `check` reports nothing about it.
async fn runs_on(space: &Space, node: &str) -> Result<()> {
    same(&&*space.node_of("p").await?, &node)?;
    let check = async || space.stowplan("check pod/p", "").await?.succeeded();
    succeeds("check pod/p to report nothing", check).await.map(drop)
}

/// A pod that asks for a host.
fn at_host(host: &str) -> Value {
    pod("p", &json!({"metadata": {"annotations": {"streams.ibm.com/host": host}}}))
}

pub(crate) async fn a_cordoned_host_is_uncordoned(world: Arc<World>) -> Result<()> {
    let (space, nodes) = space_on(&world, "cordoned", 1).await?;
    world.plane.cordon(&nodes[0]).await?;
    space.pending(&at_host(&nodes[0])).await?;
    run_remedy(&space, "cordoned", &nodes[0]).await
}

/// The eligible node has a pod that must not be with the one that waits.
pub(crate) async fn a_cordoned_node_without_the_other_pod_is_uncordoned(
    world: Arc<World>,
) -> Result<()> {
    let (space, nodes) = space_on(&world, "spare", 2).await?;
    world.plane.cordon(&nodes[1]).await?;
    let apart = |name: &str| {
        let mut pod = element("job", name, &[("host-exlocation", "apart")]);
        pod["spec"]["nodeSelector"] = json!({"streams.ibm.com/hostpool": "spare"});
        pod
    };
    same(&space.node_of_new(&apart("other")).await?, &nodes[0])?;
    space.pending(&apart("p")).await?;
    run_remedy(&space, "is cordoned", &nodes[1]).await
}

pub(crate) async fn a_taint_is_removed(world: Arc<World>) -> Result<()> {
    let (space, nodes) = space_on(&world, "tainted", 1).await?;
    world.run(&format!("taint node {} mine=yes:NoSchedule", nodes[0])).await?;
    space.pending(&at_host(&nodes[0])).await?;
    run_remedy(&space, "has the taint mine=yes:NoSchedule", &nodes[0]).await
}

/// Two of three pods of 6 CPUs have room on the node of their group, which has 16.
pub(crate) async fn a_group_is_scaled_to_the_pods_that_have_room(world: Arc<World>) -> Result<()> {
    let (space, _) = space_on(&world, "scaled", 1).await?;
    let on_it = pod(
        "web",
        &json!({
            "metadata": {"labels": {"app": "web"}, "annotations": {"stowplan.dev/coschedule-group": "g"}},
            "spec": {"nodeSelector": {"streams.ibm.com/hostpool": "scaled"}},
        }),
    );
    space.created(&workload_of("Deployment", "web", 3, &requesting(on_it, "6"))).await?;
    let waiting = appears("a pod that has no room", async || {
        let pods = space.living("app=web").await?;
        let (placed, waiting): (Vec<_>, Vec<_>) = pods
            .iter()
            .partition(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
        let name = waiting.first().and_then(|pod| pod.metadata.name.clone());
        Ok(name.filter(|_| placed.len() == 2))
    })
    .await?;
    let remedy = remedy(&space, &format!("pod/{waiting}"), "insufficient cpu").await?;
    has(&remedy, &["--replicas=2"])?;
    run_command(&space, &remedy).await?;
    let check = async || space.stowplan("check deployment/web", "").await?.succeeded();
    succeeds("check deployment/web to report nothing", check).await.map(drop)
}

/// The launcher is suspended, and so are its workers; then they are scaled to 0.
pub(crate) async fn suspended_and_missing_workers_are_made(world: Arc<World>) -> Result<()> {
    let space = world.namespace("resumed").await?;
    let mut launcher = launcher("run", "pi", &[]);
    let mut workers = worker_job("workers", "pi", 2, &[]);
    for job in [&mut launcher, &mut workers] {
        job["spec"]["suspend"] = json!(true);
        space.created(job).await?;
    }
    for job in ["run", "workers"] {
        let what = format!("Job {job} is suspended");
        run_command(&space, &remedy(&space, "mpi/pi", &what).await?).await?;
    }
    space.job_succeeded("run").await?;
    let space = world.namespace("missing").await?;
    space.created(&worker_set("ring-workers", "ring", 0, &[])).await?;
    space.created(&self::launcher("run", "ring", &[])).await?;
    let remedy = remedy(&space, "mpi/ring", "it is scaled to 0").await?;
    run_command(&space, &remedy).await?;
    space.job_succeeded("run").await
}

pub(crate) async fn a_full_host_gets_free_capacity(world: Arc<World>) -> Result<()> {
    let (space, nodes) = space_on(&world, "full", 1).await?;
    let there = json!({"spec": {"nodeSelector": {"streams.ibm.com/hostpool": "full"}}});
    space.node_of_new(&requesting(pod("filler", &there), "12")).await?;
    space.pending(&requesting(at_host(&nodes[0]), "12")).await?;
    let remedy = remedy(&space, "pod/p", &nodes[0]).await?;
    ensure!(remedy.starts_with("free room on it"), "{remedy}");
    space.delete("filler").await?;
    runs_on(&space, &nodes[0]).await
}

pub(crate) async fn a_node_gets_the_hostname_label(world: Arc<World>) -> Result<()> {
    let space = world.namespace("nameless").await?;
    let node = NodeSpec::new("nameless").label("nameless", "yes").without_hostname_label();
    world.plane.add_node(&node).await?;
    let mut wanted = element("job", "p", &[("host-exlocation", "apart")]);
    wanted["spec"]["nodeSelector"] = json!({"nameless": "yes"});
    space.pending(&wanted).await?;
    run_remedy(&space, "kubernetes.io/hostname", "nameless").await
}

pub(crate) async fn a_pool_without_a_node_gets_one(world: Arc<World>) -> Result<()> {
    let (space, nodes) = space_on(&world, "other", 1).await?;
    space.host_pool("tagless", json!({"tags": ["tagless"], "size": 1})).await?;
    pool::unready(&space, "tagless", "InsufficientNodes", "").await?;
    let wanted = element("job", "p", &[("host-pool", "tagless")]);
    let refused = space.create(&wanted).await?;
    // A pool without a ready member refuses its pods; then the pool is asked.
    ensure!(!refused.success, "{}", refused.out);
    let remedy = remedy(&space, "pool/tagless", "streams.ibm.com/hostpool=tagless").await?;
    has(&remedy, &["label more nodes with streams.ibm.com/hostpool=tagless"])?;
    world.plane.label(&nodes[0], "streams.ibm.com/hostpool", Some("tagless")).await?;
    let create = async || space.create(&wanted).await?.succeeded();
    succeeds("the pool to admit its pod", create).await?;
    runs_on(&space, &nodes[0]).await
}

/// The webhook is not asked in a namespace that opts out, as if it had been unavailable.
pub(crate) async fn a_pod_that_was_not_placed_is_created_again(world: Arc<World>) -> Result<()> {
    let (space, nodes) = space_on(&world, "unseen", 2).await?;
    world.run(&format!("label namespace {} stowplan.dev/ignore=true", space.name)).await?;
    world.plane.cordon(&nodes[0]).await?;
    space.node_of_new(&at_host(&nodes[0])).await?;
    world.plane.uncordon(&nodes[0]).await?;
    world.run(&format!("label namespace {} stowplan.dev/ignore-", space.name)).await?;
    let remedy = remedy(&space, "pod/p", "it was admitted without stowplan").await?;
    same(&&*remedy, &"delete the pod and create it again")?;
    space.delete("p").await?;
    space.pod(&at_host(&nodes[0])).await?;
    runs_on(&space, &nodes[0]).await
}
