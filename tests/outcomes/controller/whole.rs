use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::controller::nodes::space_on;
use crate::world::{
    Space, World, appears, has, job, of_job, of_operator, pod, requesting, same, settled,
    workload_of,
};

/// Waits until the job's status reserves a node for this element alone; returns the node.
async fn reserved(space: &Space, element: &str) -> Result<String> {
    appears(&format!("a node reserved for {element}"), async || {
        let job = space.get("streamsjob j").await?;
        let mut nodes = job["status"]["witness"]["nodes"].as_array().into_iter().flatten();
        let node = nodes.find(|node| node["processingElements"] == json!([element]));
        Ok(node.and_then(|node| Some(node["name"].as_str()?.to_owned())))
    })
    .await
}

/// The pool could take the node that `named` names. The element `first` could have either of two nodes,
/// of which the isolated one has only one.
pub(crate) async fn a_job_is_placed_as_a_whole_before_its_pods(world: Arc<World>) -> Result<()> {
    let (space, nodes) = space_on(&world, "isolated", 4).await?;
    let spec = json!({
        "pools": [
            {"name": "Own", "size": 1, "tags": ["isolated"], "exclusivity": "Exclusive"},
            {"name": "One", "hosts": [nodes[1]]}, {"name": "Both", "hosts": nodes[1..3]},
        ],
        "processingElements": [
            of_operator("own", json!({"host": {"pool": "Own"}})),
            of_operator("named", json!({"host": {"name": nodes[0]}})),
            of_operator("first", json!({"host": {"pool": "Both"}})),
            of_operator("alone", json!({"host": {"pool": "One"}, "hostIsolation": true})),
        ],
    });
    space.created(&job("j", &spec)).await?;
    // The pool's own pod comes last: until the controller has made the pool, it would be refused.
    for (element, node) in [("named", 0), ("first", 2), ("alone", 1), ("own", 3)] {
        same(&space.node_of_new(&of_job("j", element)).await?, &nodes[node])?;
    }
    let first = space.pods().get("j-first").await?.metadata.annotations.unwrap_or_default();
    has(first.get("stowplan.dev/placement").context("no record")?, &["reserved=j: "])
}

pub(crate) async fn a_job_without_a_placement_is_refused_with_what_contradicts(
    world: Arc<World>,
) -> Result<()> {
    let (space, nodes) = space_on(&world, "tight", 2).await?;
    let spec = json!({
        "pools": [{"name": "Own", "size": 2, "tags": ["tight"], "exclusivity": "Exclusive"}],
        "processingElements": [
            of_operator("free", json!({})),
            of_operator("there", json!({"host": {"name": nodes[1]}})),
        ],
    });
    let said = space.create(&job("j", &spec)).await?;
    ensure!(!said.err.contains("Op-free"), "{}", said.err);
    said.refused_with(&["InsufficientNodes", "Own", "Op-there", &nodes[1]])
}

/// A job whose isolated element can be on two nodes only, which two other elements could take; and the
/// reserved one of the two, which is then filled by a pod of others.
async fn full_reservation(world: &Arc<World>, tag: &str) -> Result<(Space, String, String)> {
    let (space, nodes) = space_on(world, tag, 4).await?;
    let spec = json!({
        "pools": [{"name": "Two", "hosts": nodes[..2]}, {"name": "All", "hosts": nodes}],
        "processingElements": [
            of_operator("alone", json!({"host": {"pool": "Two"}, "hostIsolation": true})),
            of_operator("x", json!({"host": {"pool": "All"}})),
            of_operator("y", json!({"host": {"pool": "All"}})),
        ],
    });
    space.created(&job("j", &spec)).await?;
    let full = reserved(&space, "alone").await?;
    let there = json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": full}}});
    same(&space.node_of_new(&requesting(pod("filler", &there), LARGE)).await?, &full)?;
    let other = nodes[..2].iter().find(|node| **node != full).context("no other node")?.clone();
    Ok((space, full, other))
}

/// Two pods with such a request have no room on one node.
const LARGE: &str = "12";

/// After the grace period another node is reserved, and the pod is created again for it by its workload.
pub(crate) async fn a_full_reserved_node_is_replaced(world: Arc<World>) -> Result<()> {
    let (space, full, other) = full_reservation(&world, "crowded").await?;
    let alone = requesting(of_job("j", "alone"), LARGE);
    space.created(&workload_of("ReplicaSet", "alone", 1, &alone)).await?;
    space.event("", "NodesReservedAnew").await?;
    has(&space.event("Pod/", "RecreatedForItsJob").await?, &[&other])?;
    let nodes = async || space.nodes_of_all("app=streams", 1).await;
    settled("the new pod to be on the other node", nodes, |nodes| nodes[0] == other).await?;
    // What comes later leaves the node to it.
    for element in ["x", "y"] {
        let node = space.node_of_new(&of_job("j", element)).await?;
        ensure!(node != other, "{element} is where the isolated one is; {full} was full");
    }
    Ok(())
}

/// No workload would create it again, so it is not deleted.
pub(crate) async fn a_pod_without_a_workload_stays_with_an_event(world: Arc<World>) -> Result<()> {
    let (space, _, other) = full_reservation(&world, "bare").await?;
    let bare = requesting(of_job("j", "alone"), LARGE);
    space.pod(&bare).await?;
    let why = space.event("Pod/", "StrandedByItsNode").await?;
    has(&why, &[&other, "delete it, and create it again"])?;
    space.delete("j-alone").await?;
    same(&space.node_of_new(&bare).await?, &other)
}
