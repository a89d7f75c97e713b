use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::controller::nodes::{space_on, tagged};
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

/// Creates a job on new nodes of this tag, and then its pods in this order; each gets one of the nodes of
/// these indices.
async fn placed(
    world: &Arc<World>,
    tag: &str,
    count: usize,
    spec: impl Fn(&[String]) -> Value,
    wanted: &[(&str, &[usize])],
) -> Result<Space> {
    let space = world.namespace(tag).await?;
    let nodes = tagged(world, tag, count).await?;
    space.created(&job("j", &spec(&nodes))).await?;
    for (element, indices) in wanted {
        let node = space.node_of_new(&of_job("j", element)).await?;
        ensure!(indices.iter().any(|index| nodes[*index] == node), "{element} is on {node}");
    }
    Ok(space)
}

/// In the order of their names, the pool would take the node that another element names.
pub(crate) async fn a_pool_leaves_the_node_that_another_element_names(
    world: Arc<World>,
) -> Result<()> {
    let spec = |nodes: &[String]| {
        json!({
            "pools": [{"name": "Own", "size": 2, "tags": ["names"], "exclusivity": "Exclusive"}],
            "processingElements": [
                of_operator("one", json!({"host": {"pool": "Own"}})),
                of_operator("two", json!({"host": {"name": nodes[0]}})),
            ],
        })
    };
    placed(&world, "names", 3, spec, &[("one", &[1, 2]), ("two", &[0])]).await.map(drop)
}

/// The element that comes first could have either node; the isolated one has only the first.
pub(crate) async fn an_isolated_element_finds_its_node_free(world: Arc<World>) -> Result<()> {
    let spec = |nodes: &[String]| {
        json!({
            "pools": [{"name": "One", "hosts": [nodes[0]]}, {"name": "Both", "hosts": nodes}],
            "processingElements": [
                of_operator("first", json!({"host": {"pool": "Both"}})),
                of_operator("alone", json!({"host": {"pool": "One"}, "hostIsolation": true})),
            ],
        })
    };
    let wanted: &[(&str, &[usize])] = &[("first", &[1]), ("alone", &[0])];
    let space = placed(&world, "isolated", 2, spec, wanted).await?;
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
async fn full_reservation(space: &Space, tag: &str) -> Result<(String, String)> {
    let nodes = tagged(&space.world, tag, 4).await?;
    let spec = json!({
        "pools": [{"name": "Two", "hosts": nodes[..2]}, {"name": "All", "hosts": nodes}],
        "processingElements": [
            of_operator("alone", json!({"host": {"pool": "Two"}, "hostIsolation": true})),
            of_operator("x", json!({"host": {"pool": "All"}})),
            of_operator("y", json!({"host": {"pool": "All"}})),
        ],
    });
    space.created(&job("j", &spec)).await?;
    let full = reserved(space, "alone").await?;
    let there = json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": full}}});
    same(&space.node_of_new(&requesting(pod("filler", &there), LARGE)).await?, &full)?;
    let other = nodes[..2].iter().find(|node| **node != full).context("no other node")?;
    Ok((full, other.clone()))
}

/// Two pods with such a request have no room on one node.
const LARGE: &str = "12";

/// After the grace period another node is reserved, and the pod is created again for it by its workload.
pub(crate) async fn a_full_reserved_node_is_replaced(world: Arc<World>) -> Result<()> {
    let space = world.namespace("full").await?;
    let (full, other) = full_reservation(&space, "crowded").await?;
    let alone = requesting(of_job("j", "alone"), LARGE);
    space.created(&workload_of("ReplicaSet", "alone", 1, &alone)).await?;
    space.event("", "NodesReservedAnew").await?;
    has(&space.event("Pod/", "RecreatedForItsJob").await?, &[&other])?;
    let nodes = async || space.nodes_of_all("app=streams", 1).await;
    settled("the new pod to be on the other node", nodes, |nodes| nodes[0] == other).await?;
    // What comes later leaves the node to it.
    for element in ["x", "y"] {
        let node = space.node_of_new(&of_job("j", element)).await?;
        ensure!(
            node != other,
            "{element} is on {node}, where the isolated one is; {full} was full"
        );
    }
    Ok(())
}

/// No workload would create it again, so it is not deleted.
pub(crate) async fn a_pod_without_a_workload_stays_with_an_event(world: Arc<World>) -> Result<()> {
    let space = world.namespace("bare").await?;
    let (_, other) = full_reservation(&space, "bare").await?;
    let bare = requesting(of_job("j", "alone"), LARGE);
    space.pod(&bare).await?;
    let why = space.event("Pod/", "StrandedByItsNode").await?;
    has(&why, &[&other, "delete it, and create it again"])?;
    space.delete("j-alone").await?;
    same(&space.node_of_new(&bare).await?, &other)
}
