//! Pods that mount the same claim, in namespaces that have them share a node.

use std::sync::Arc;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use testbed::volumes::{IMMEDIATE, WAITING};

use crate::coschedule::pipeline::{Lab, claim};
use crate::world::{Space, World, has, is_gated, one_of, pod, same, settled, workload_of};

const GATE: &str = "stowplan.dev/one-node-claims";

/// A pod on the nodes of a lab that mounts these claims.
fn mounting(lab: &Lab, name: &str, claims: &[&str]) -> Value {
    let volume =
        |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    let volumes: Vec<Value> = claims.iter().map(volume).collect();
    let mut pod = pod(name, &json!({"spec": {"volumes": volumes}}));
    json_patch::merge(&mut pod["spec"], &lab.way());
    pod
}

/// Such a pod on one of these nodes.
fn mounting_on(lab: &Lab, node: &str, name: &str, claims: &[&str]) -> Value {
    let mut pod = mounting(lab, name, claims);
    json_patch::merge(&mut pod["spec"], &lab.way_to(node));
    pod
}

fn names(pod: &Pod) -> Vec<String> {
    let labels = pod.labels().keys().filter_map(|key| key.strip_prefix("claim.stowplan.dev/"));
    labels.map(ToOwned::to_owned).collect()
}

async fn ask_for_one_node(world: &World, space: &Space) -> Result<()> {
    world.run(&format!("label namespace {} {GATE}=true", space.name)).await.map(drop)
}

/// How often the API server has called the webhook for pods with claims.
async fn calls(world: &World) -> Result<usize> {
    let metrics = world.run("get --raw /metrics").await?;
    let of_webhook = |line: &&str| {
        line.starts_with("apiserver_admission_webhook_request_total")
            && line.contains("name=\"one-node-claims.stowplan.dev\"")
    };
    let counts = metrics.lines().filter(of_webhook).filter_map(|line| line.rsplit(' ').next());
    counts.map(|count| Ok(count.parse::<usize>()?)).sum()
}

/// The only case that asks for one node, so that it knows every call.
pub(crate) async fn pods_of_a_claim_share_a_node_where_it_is_asked_for(
    world: Arc<World>,
) -> Result<()> {
    let (space, lab) = Lab::in_space(&world, "claims", &["east"; 3]).await?;
    for name in ["data", "logs"] {
        space.created(&claim(name, WAITING, "ReadWriteOnce")).await?;
    }
    space.created(&claim("shared", IMMEDIATE, "ReadWriteMany")).await?;
    let before = calls(&world).await?;
    space.pod(&mounting(&lab, "before", &["data"])).await?;
    let node = space.node_of("before").await?;
    same(&(names(&space.pods().get("before").await?), calls(&world).await?), &(vec![], before))?;

    ask_for_one_node(&world, &space).await?;
    let labelled = async || Ok(names(&space.pods().get("before").await?));
    settled("the label of the claim", labelled, |names| *names == ["data"]).await?;
    let mut web = mounting(&lab, "", &["data"]);
    web["metadata"]["labels"] = json!({"app": "web"});
    space.created(&workload_of("Deployment", "web", 6, &web)).await?;
    same(&one_of(space.nodes_of_all("app=web", 6).await?)?, &node)?;
    let free = space.admitted(&mounting(&lab, "free", &["shared"])).await?;
    ensure!(names(&free).is_empty(), "{:?}", free.labels());
    ensure!(calls(&world).await? > before, "no pod was sent");

    // A pod of both claims waits for the pods of each.
    let other = lab.nodes.iter().find(|of| **of != node).cloned().unwrap_or_default();
    space.pod(&mounting_on(&lab, &other, "logs", &["logs"])).await?;
    same(&space.node_of("logs").await?, &other)?;
    let both = space.pod(&mounting(&lab, "both", &["data", "logs"])).await?;
    ensure!(is_gated(&both, GATE), "{both:?}");
    let note = space.event("Pod/both", "SharedClaim").await?;
    has(
        &note,
        &["claim data is in use by pod", &node, "claim logs is in use by pod logs", &other],
    )?;
    let said = space.stowplan("check pod/both", "").await?;
    has(&said.out, &["one node with the pods that mount claim logs", "they are on one node"])?;
    space.kubectl("delete deployment web --wait=false").await?;
    space.delete("before").await?;
    same(&space.node_of("both").await?, &other)?;
    // As the first one of its claim, the next one would have run anywhere.
    same(&space.node_of_new(&mounting(&lab, "last", &["data"])).await?, &other)?;

    // The scheduler does not look at it again by itself when the last pod of its claim has gone.
    for name in ["both", "last"] {
        space.delete(name).await?;
    }
    space.pod(&mounting_on(&lab, &node, "waits", &["logs"])).await?;
    let unscheduled = async || {
        let pod: Value = json!(space.pods().get("waits").await?);
        Ok(pod["status"]["conditions"][0]["reason"].clone())
    };
    settled("the scheduler to refuse it", unscheduled, |reason| reason == "Unschedulable").await?;
    space.delete("logs").await?;
    same(&space.node_of("waits").await?, &node)
}
