//! The remedies that `stowplan check` and refusals give, tried: each leads out of its situation. A remedy
//! that is a command is run as it is printed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use testbed::control_plane::NodeSpec;
use testbed::wait::{Seen, until};

use crate::controller::nodes::tagged;
use crate::controller::pool;
use crate::world::{Space, World, element};

const LIMIT: Duration = Duration::from_secs(60);

/// Waits until `check` reports an obstacle with this text, and returns its remedy.
async fn remedy(space: &Space, asked: &str, what: &str) -> Result<String> {
    until(&format!("check {asked} to report {what:?}"), LIMIT, async || {
        let arguments = ["check", asked, "-n", &space.name, "-o", "json"];
        let output = space.world.stowplan(&arguments, "").await?;
        let diagnosis: Value = serde_json::from_str(&output.out)
            .with_context(|| format!("{}{}", output.out, output.err))?;
        let obstacles = diagnosis["obstacles"].as_array().context("no obstacles")?;
        let found =
            obstacles.iter().find(|it| it["what"].as_str().is_some_and(|it| it.contains(what)));
        Ok(match found.and_then(|obstacle| obstacle["remedy"].as_str()) {
            Some(remedy) => Seen::Done(remedy.to_owned()),
            None => Seen::NotYet(format!("{obstacles:#?}")),
        })
    })
    .await
}

async fn kubectl(space: &Space, arguments: &str) -> Result<()> {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    space.world.kubectl(&arguments, "").await?.succeeded()?;
    Ok(())
}

/// Runs the remedy for an obstacle of a pod, a kubectl command, as it is printed. Then the pod gets this
/// node.
async fn run_remedy(space: &Space, pod: &str, what: &str, node: &str) -> Result<()> {
    let remedy = remedy(space, &format!("pod/{pod}"), what).await?;
    let command = remedy.split(':').next().unwrap_or_default();
    let arguments = command.strip_prefix("kubectl ");
    kubectl(space, arguments.with_context(|| format!("no command: {remedy}"))?).await?;
    runs_on(space, pod, node).await
}

/// Fails unless the pod gets this node, and `check` reports nothing about it.
async fn runs_on(space: &Space, pod: &str, node: &str) -> Result<()> {
    let bound = space.node_of(pod).await?;
    ensure!(bound == node, "{pod} is on {bound}, not on {node}");
    until(&format!("check pod/{pod} to report nothing"), LIMIT, async || {
        let asked = format!("pod/{pod}");
        let output = space.world.stowplan(&["check", &asked, "-n", &space.name], "").await?;
        Ok(if output.success { Seen::Done(()) } else { Seen::NotYet(output.out) })
    })
    .await
}

fn pod(name: &str, cpu: &str, annotations: &Value, spec: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}]},
    });
    json_patch::merge(&mut pod["spec"], spec);
    pod
}

pub(crate) async fn a_cordoned_host_is_uncordoned(world: Arc<World>) -> Result<()> {
    let space = world.namespace("cordoned").await?;
    let nodes = tagged(&world, "cordoned", 1).await?;
    kubectl(&space, &format!("cordon {}", nodes[0])).await?;
    let host = json!({"streams.ibm.com/host": nodes[0]});
    space.pending(&pod("p", "1m", &host, &json!({}))).await?;
    run_remedy(&space, "p", "cordoned", &nodes[0]).await
}

pub(crate) async fn a_full_host_gets_free_capacity(world: Arc<World>) -> Result<()> {
    let space = world.namespace("full").await?;
    let nodes = tagged(&world, "full", 1).await?;
    let there = json!({"nodeSelector": {"streams.ibm.com/hostpool": "full"}});
    let nothing = json!({});
    space.node_of_new(&pod("filler", "12", &nothing, &there)).await?;
    let host = json!({"streams.ibm.com/host": nodes[0]});
    space.pending(&pod("p", "12", &host, &nothing)).await?;
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
    pool::unready(&space, "tagless", "InsufficientNodes").await?;
    let wanted = pod("p", "1m", &json!({"streams.ibm.com/host-pool": "tagless"}), &json!({}));
    let refused = space.create(&wanted).await?;
    // A pool without a ready member refuses its pods; then the pool is asked.
    ensure!(!refused.success, "{}", refused.out);
    let remedy = remedy(&space, "pool/tagless", "streams.ibm.com/hostpool=tagless").await?;
    let template = "kubectl label node NODE KEY=VALUE";
    ensure!(remedy.contains(template), "{remedy}");
    let label = "streams.ibm.com/hostpool=tagless";
    kubectl(&space, &format!("label node {} {label} --overwrite", nodes[0])).await?;
    until("the pool to admit its pod", LIMIT, async || {
        let created = space.create(&wanted).await?;
        Ok(if created.success { Seen::Done(()) } else { Seen::NotYet(created.err) })
    })
    .await?;
    runs_on(&space, "p", &nodes[0]).await
}

/// The webhook is not asked in a namespace that opts out, as if it had been unavailable.
pub(crate) async fn a_pod_that_was_not_placed_is_created_again(world: Arc<World>) -> Result<()> {
    let space = world.namespace("unseen").await?;
    let nodes = tagged(&world, "unseen", 2).await?;
    kubectl(&space, &format!("label namespace {} stowplan.dev/ignore=true", space.name)).await?;
    let host = json!({"streams.ibm.com/host": nodes[0]});
    kubectl(&space, &format!("cordon {}", nodes[0])).await?;
    space.node_of_new(&pod("p", "1m", &host, &json!({}))).await?;
    kubectl(&space, &format!("uncordon {}", nodes[0])).await?;
    kubectl(&space, &format!("label namespace {} stowplan.dev/ignore-", space.name)).await?;
    let remedy = remedy(&space, "pod/p", "it was admitted without stowplan").await?;
    ensure!(remedy == "delete the pod and create it again", "{remedy}");
    space.delete("p").await?;
    space.pod(&pod("p", "1m", &host, &json!({}))).await?;
    runs_on(&space, "p", &nodes[0]).await
}

pub(crate) async fn a_group_on_a_cordoned_node_continues_there(world: Arc<World>) -> Result<()> {
    let space = world.namespace("grouped").await?;
    let nodes = tagged(&world, "grouped", 1).await?;
    let there = json!({"nodeSelector": {"streams.ibm.com/hostpool": "grouped"}});
    let group = json!({"stowplan.dev/coschedule-group": "g"});
    space.node_of_new(&pod("first", "1m", &group, &there)).await?;
    kubectl(&space, &format!("cordon {}", nodes[0])).await?;
    space.pending(&pod("second", "1m", &group, &there)).await?;
    run_remedy(&space, "second", "cordoned", &nodes[0]).await
}
