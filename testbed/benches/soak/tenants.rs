//! The objects of users in the cluster: a pool, a StreamsJob with its pods, and a group of pods on one
//! node, as Deployments, so that a drained node gives them to others.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testbed::wait::{Seen, until};

use crate::service::world::{TAGS, World};

const NAMESPACE: &str = "soak";

/// A lost node is back long before.
const LIMIT: Duration = Duration::from_secs(240);

/// The placeholder of a group ends five minutes after its last member (`coschedule.groupTTL`).
const PLACEHOLDERS_END: Duration = Duration::from_secs(400);

pub(crate) fn begin(world: &World) -> Result<()> {
    world.kubectl(&["create", "namespace", NAMESPACE]).map(drop)
}

/// Creates the objects of a round.
pub(crate) fn create(world: &World, round: usize) -> Result<()> {
    let job = format!("job-{round}");
    let operator = |name: &str| json!({"name": name, "hostExlocation": ["apart"]});
    let element = |name: &str| json!({"name": name, "operators": [operator(name)]});
    let mut items = vec![json!({
        "apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob", "metadata": {"name": job},
        "spec": {"processingElements": [element("one"), element("two")]},
    })];
    for name in ["one", "two"] {
        let labels =
            json!({"app": "streams", "streams.ibm.com/job": job, "streams.ibm.com/pe": name});
        let annotations = json!({"stowplan.dev/streams-job": job});
        items.push(deployment(&format!("{job}-{name}"), round, 1, &labels, &annotations));
    }
    let group = format!("group-{round}");
    let annotations = json!({"stowplan.dev/coschedule-group": group});
    items.push(deployment(&group, round, 3, &json!({"app": group}), &annotations));
    for item in &mut items {
        item["metadata"]["namespace"] = json!(NAMESPACE);
        item["metadata"]["labels"] = json!({"round": round.to_string()});
    }
    world.create(&json!({"apiVersion": "v1", "kind": "List", "items": items}))?;
    world.create_pool(&format!("pool-{round}"), false)
}

/// Pods of stowplan's own image, which is on every node, that do nothing.
fn deployment(
    name: &str,
    round: usize,
    replicas: u32,
    labels: &Value,
    annotations: &Value,
) -> Value {
    let image = format!("docker.io/library/stowplan:{}", TAGS[0]);
    let mut all = labels.clone();
    all["round"] = json!(round.to_string());
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": all, "annotations": annotations},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "main", "image": image, "args": ["pause"], "imagePullPolicy": "Never",
                    }],
                },
            },
        },
    })
}

/// Waits until all pods of a round run, and its pool has its node.
pub(crate) async fn run(world: &World, round: usize) -> Result<()> {
    let selector = format!("round={round}");
    until(&format!("the pods of round {round} to run"), LIMIT, async || {
        let shown =
            world.kubectl(&["get", "deployments", "-n", NAMESPACE, "-l", &selector, "-o=json"])?;
        let shown: Value = serde_json::from_str(&shown)?;
        let items = shown["items"].as_array().cloned().unwrap_or_default();
        ensure!(items.len() == 3, "{} Deployments", items.len());
        let lacks = items
            .iter()
            .filter(|of| of["status"]["availableReplicas"] != of["spec"]["replicas"])
            .map(|of| format!("{}: {}", of["metadata"]["name"], of["status"]));
        let lacks: Vec<String> = lacks.chain(create_again(world, &selector)?).collect();
        Ok(if lacks.is_empty() { Seen::Done(()) } else { Seen::NotYet(lacks.join("; ")) })
    })
    .await?;
    world.pool_has_node(&format!("pool-{round}")).await?;
    apart(world, round)
}

/// Deletes the pods without a record of a placement, as their events say: they were created while no webhook
/// answered. Each would stay in the count that faults compare with their own pods.
fn create_again(world: &World, selector: &str) -> Result<Vec<String>> {
    let pods = world.kubectl(&["get", "pods", "-n", NAMESPACE, "-l", selector, "-o=json"])?;
    let pods: Value = serde_json::from_str(&pods)?;
    let mut deleted = Vec::new();
    for pod in pods["items"].as_array().into_iter().flatten() {
        let metadata = &pod["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        let is_recorded = metadata["annotations"]["stowplan.dev/placement"].is_string();
        if !is_recorded && metadata["deletionTimestamp"].is_null() {
            world.kubectl(&["delete", "pod", name, "-n", NAMESPACE, "--wait=false"])?;
            eprintln!("  {name} was created while no webhook answered: it is created again");
            deleted.push(format!("{name} is created again"));
        }
    }
    Ok(deleted)
}

/// The elements of the job are on two nodes.
fn apart(world: &World, round: usize) -> Result<()> {
    let selector = format!("round={round},app=streams");
    let nodes = "-o=jsonpath={.items[?(@.status.phase==\"Running\")].spec.nodeName}";
    let nodes = world.kubectl(&["get", "pods", "-n", NAMESPACE, "-l", &selector, nodes])?;
    let nodes: Vec<&str> = nodes.split_whitespace().collect();
    let distinct: std::collections::BTreeSet<&&str> = nodes.iter().collect();
    ensure!(distinct.len() > 1, "the elements of round {round} are on {nodes:?}");
    Ok(())
}

pub(crate) fn delete(world: &World, round: usize) -> Result<()> {
    let selector = format!("round={round}");
    let kinds = "deployments,streamsjobs";
    world.kubectl(&["delete", kinds, "-n", NAMESPACE, "-l", &selector, "--wait=false"])?;
    world.delete_pool(&format!("pool-{round}"))
}

/// Waits until no pod of a round is left.
pub(crate) async fn are_gone(world: &World, round: usize) -> Result<()> {
    let selector = format!("round={round}");
    until(&format!("the pods of round {round} to be gone"), LIMIT, async || {
        let left = world.kubectl(&["get", "pods", "-n", NAMESPACE, "-l", &selector, "-o=name"])?;
        Ok(if left.trim().is_empty() { Seen::Done(()) } else { Seen::NotYet(left) })
    })
    .await
}

/// Waits until nothing of stowplan is left outside of its own installation.
pub(crate) async fn leave_nothing(world: &World) -> Result<()> {
    until("placeholders and marks of nodes to be gone", PLACEHOLDERS_END, async || {
        let kinds = "streamsjobs,statefulsets,pods";
        let left = world.kubectl(&["get", kinds, "-n", NAMESPACE, "-o=name"])?;
        let mut left: Vec<String> = left.lines().map(str::to_owned).collect();
        left.extend(world.marks()?);
        Ok(if left.is_empty() { Seen::Done(()) } else { Seen::NotYet(left.join(", ")) })
    })
    .await?;
    world.kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"]).map(drop)
}
