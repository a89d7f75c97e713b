//! The remedies that `stowplan check` and refusals give, tried: each leads out of its situation. A remedy
//! that is a command is run as it is printed.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use testbed::control_plane::NodeSpec;

use crate::controller::nodes::{space_on, tagged};
use crate::controller::pool;
use crate::world::{Space, World, element, has, pod, requesting, same, settled, succeeds};

/// Waits until `check` reports an obstacle with this text, and returns its remedy.
async fn remedy(space: &Space, asked: &str, what: &str) -> Result<String> {
    succeeds(&format!("check {asked} to report {what:?}"), async || {
        let output = space.stowplan(&format!("check {asked} -o json")).await?;
        let diagnosis: Value = serde_json::from_str(&output.out)
            .with_context(|| format!("{}{}", output.out, output.err))?;
        let obstacles = diagnosis["obstacles"].as_array().context("no obstacles")?;
        let is_it = |it: &&Value| it["what"].as_str().is_some_and(|it| it.contains(what));
        let remedy = obstacles.iter().find(is_it).and_then(|it| it["remedy"].as_str());
        Ok(remedy.with_context(|| format!("{obstacles:#?}"))?.to_owned())
    })
    .await
}

/// Runs the remedy for an obstacle of a pod, a kubectl command, as it is printed. Then the pod gets this
/// node.
async fn run_remedy(space: &Space, pod: &str, what: &str, node: &str) -> Result<()> {
    let remedy = remedy(space, &format!("pod/{pod}"), what).await?;
    let command = remedy.split(':').next().unwrap_or_default();
    let arguments = command.strip_prefix("kubectl ");
    space.world.run(arguments.with_context(|| format!("no command: {remedy}"))?).await?;
    runs_on(space, pod, node).await
}

/// Fails unless the pod gets this node, and `check` reports nothing about it.
async fn runs_on(space: &Space, pod: &str, node: &str) -> Result<()> {
    same(&&*space.node_of(pod).await?, &node)?;
    let check = async || {
        let said = space.stowplan(&format!("check pod/{pod}")).await?;
        Ok((said.success, said.out))
    };
    settled(&format!("check pod/{pod} to report nothing"), check, |said| said.0).await?;
    Ok(())
}

/// A pod with these annotations and this part of its spec.
fn asking(name: &str, annotations: &Value, spec: &Value) -> Value {
    pod(name, &json!({"metadata": {"annotations": annotations}, "spec": spec}))
}

/// A pod that asks for a host.
fn at_host(host: &str) -> Value {
    asking("p", &json!({"streams.ibm.com/host": host}), &json!({}))
}

pub(crate) async fn a_cordoned_host_is_uncordoned(world: Arc<World>) -> Result<()> {
    let (space, nodes) = space_on(&world, "cordoned", 1).await?;
    world.plane.cordon(&nodes[0]).await?;
    space.pending(&at_host(&nodes[0])).await?;
    run_remedy(&space, "p", "cordoned", &nodes[0]).await
}

pub(crate) async fn a_full_host_gets_free_capacity(world: Arc<World>) -> Result<()> {
    let (space, nodes) = space_on(&world, "full", 1).await?;
    let there = json!({"spec": {"nodeSelector": {"streams.ibm.com/hostpool": "full"}}});
    space.node_of_new(&requesting(pod("filler", &there), "12")).await?;
    space.pending(&requesting(at_host(&nodes[0]), "12")).await?;
    let remedy = remedy(&space, "pod/p", &nodes[0]).await?;
    ensure!(remedy.starts_with("free there what the scheduler names"), "{remedy}");
    space.delete("filler").await?;
    runs_on(&space, "p", &nodes[0]).await
}

pub(crate) async fn a_node_gets_the_hostname_label(world: Arc<World>) -> Result<()> {
    let space = world.namespace("nameless").await?;
    let node = NodeSpec::new("nameless").label("nameless", "yes").without_hostname_label();
    world.plane.add_node(&node).await?;
    let mut wanted = element("job", "p", &[("host-exlocation", "apart")]);
    wanted["spec"]["nodeSelector"] = json!({"nameless": "yes"});
    space.pending(&wanted).await?;
    run_remedy(&space, "p", "kubernetes.io/hostname", "nameless").await
}

pub(crate) async fn a_pool_without_a_node_gets_one(world: Arc<World>) -> Result<()> {
    let space = world.namespace("tagless").await?;
    let nodes = tagged(&world, "other", 1).await?;
    space.host_pool("tagless", json!({"tags": ["tagless"], "size": 1})).await?;
    pool::unready(&space, "tagless", "InsufficientNodes", "").await?;
    let wanted = element("job", "p", &[("host-pool", "tagless")]);
    let refused = space.create(&wanted).await?;
    // A pool without a ready member refuses its pods; then the pool is asked.
    ensure!(!refused.success, "{}", refused.out);
    let remedy = remedy(&space, "pool/tagless", "streams.ibm.com/hostpool=tagless").await?;
    has(&remedy, &["kubectl label node NODE KEY=VALUE"])?;
    world.plane.label(&nodes[0], "streams.ibm.com/hostpool", Some("tagless")).await?;
    let create = async || space.create(&wanted).await?.succeeded();
    succeeds("the pool to admit its pod", create).await?;
    runs_on(&space, "p", &nodes[0]).await
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
    runs_on(&space, "p", &nodes[0]).await
}

pub(crate) async fn a_group_on_a_cordoned_node_continues_there(world: Arc<World>) -> Result<()> {
    let (space, nodes) = space_on(&world, "grouped", 1).await?;
    let there = json!({"nodeSelector": {"streams.ibm.com/hostpool": "grouped"}});
    let group = json!({"stowplan.dev/coschedule-group": "g"});
    space.node_of_new(&asking("first", &group, &there)).await?;
    world.plane.cordon(&nodes[0]).await?;
    space.pending(&asking("second", &group, &there)).await?;
    run_remedy(&space, "second", "cordoned", &nodes[0]).await
}
