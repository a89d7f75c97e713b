use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testbed::wait::{Seen, until};

use crate::controller::nodes::tagged;
use crate::controller::pool;
use crate::world::{Space, World, job, same};

/// An element of one operator.
fn element(name: &str, operator: Value) -> Value {
    let mut operator = operator;
    operator["name"] = json!(format!("Op-{name}"));
    json!({"name": name, "operators": [operator]})
}

/// A pod of a job's element.
fn pod(job: &str, element: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{job}-{element}"),
            "labels": {"app": "streams", "streams.ibm.com/job": job, "streams.ibm.com/pe": element},
            "annotations": {"stowplan.dev/streams-job": job},
        },
        "spec": {"containers": [{"name": "pe", "image": "streams-runtime"}]},
    })
}

/// Waits until the job's status reserves nodes that `is` is true of: pairs of a node and its elements.
async fn reserved(
    space: &Space,
    name: &str,
    is: impl Fn(&[(String, Vec<String>)]) -> bool,
) -> Result<Vec<(String, Vec<String>)>> {
    let what = format!("StreamsJob {name}: its reserved nodes");
    until(&what, Duration::from_secs(60), async || {
        let shown = space
            .world
            .kubectl(&["-n", &space.name, "get", "streamsjob", name, "-o", "json"], "")
            .await?
            .succeeded()?;
        let shown: Value = serde_json::from_str(&shown)?;
        let witness = &shown["status"]["witness"];
        let nodes = witness["nodes"].as_array().into_iter().flatten();
        let nodes: Vec<(String, Vec<String>)> = nodes
            .filter_map(|node| {
                let elements = serde_json::from_value(node["processingElements"].clone()).ok()?;
                Some((node["name"].as_str()?.to_owned(), elements))
            })
            .collect();
        Ok(match !witness.is_null() && is(&nodes) {
            true => Seen::Done(nodes),
            false => Seen::NotYet(shown["status"].to_string()),
        })
    })
    .await
}

/// In the order of their names, the pool would take the node that another element names.
pub(crate) async fn a_pool_leaves_the_node_that_another_element_names(
    world: Arc<World>,
) -> Result<()> {
    let space = world.namespace("names").await?;
    let nodes = tagged(&world, "names", 3).await?;
    let spec = json!({
        "pools": [{"name": "Own", "size": 2, "tags": ["names"], "exclusivity": "Exclusive"}],
        "processingElements": [
            element("one", json!({"host": {"pool": "Own"}})),
            element("two", json!({"host": {"name": nodes[0]}})),
        ],
    });
    space.created(&job("j", &spec)).await?;
    for element in ["one", "two"] {
        space.pod(&pod("j", element)).await?;
    }
    same(&space.node_of("j-two").await?, &nodes[0])?;
    let one = space.node_of("j-one").await?;
    ensure!(nodes[1..].contains(&one), "one is on {one}");
    Ok(())
}

/// A pool of one is the node of the host with which its element is colocated.
pub(crate) async fn a_pool_is_the_node_to_which_its_element_is_bound(
    world: Arc<World>,
) -> Result<()> {
    let space = world.namespace("bound").await?;
    let nodes = tagged(&world, "bound", 3).await?;
    let spec = json!({
        "pools": [{"name": "S", "size": 1, "tags": ["bound"]}],
        "processingElements": [
            element("parse", json!({"host": {"pool": "S"}, "hostColocation": ["c"]})),
            element("source", json!({"host": {"name": nodes[2]}, "hostColocation": ["c"]})),
        ],
    });
    space.created(&job("j", &spec)).await?;
    for element in ["parse", "source"] {
        space.pod(&pod("j", element)).await?;
    }
    for element in ["parse", "source"] {
        same(&space.node_of(&format!("j-{element}")).await?, &nodes[2])?;
    }
    Ok(())
}

/// The element that comes first could have either node; the isolated one has only the first.
pub(crate) async fn an_isolated_element_finds_its_node_free(world: Arc<World>) -> Result<()> {
    let space = world.namespace("isolated").await?;
    let nodes = tagged(&world, "isolated", 2).await?;
    let spec = json!({
        "pools": [
            {"name": "One", "hosts": [nodes[0]]},
            {"name": "Both", "hosts": nodes},
        ],
        "processingElements": [
            element("first", json!({"host": {"pool": "Both"}})),
            element("alone", json!({"host": {"pool": "One"}, "hostIsolation": true})),
        ],
    });
    space.created(&job("j", &spec)).await?;
    let first = space.pod(&pod("j", "first")).await?;
    same(&space.node_of("j-first").await?, &nodes[1])?;
    space.pod(&pod("j", "alone")).await?;
    same(&space.node_of("j-alone").await?, &nodes[0])?;
    let record = first.metadata.annotations.unwrap_or_default();
    let record = record.get("stowplan.dev/placement").context("no record")?;
    ensure!(record.contains("reserved=j: "), "{record}");
    Ok(())
}

pub(crate) async fn a_job_without_a_placement_is_refused_with_what_contradicts(
    world: Arc<World>,
) -> Result<()> {
    let space = world.namespace("tight").await?;
    let nodes = tagged(&world, "tight", 2).await?;
    let spec = json!({
        "pools": [{"name": "Own", "size": 2, "tags": ["tight"], "exclusivity": "Exclusive"}],
        "processingElements": [
            element("free", json!({})),
            element("there", json!({"host": {"name": nodes[1]}})),
        ],
    });
    let said = space.create(&job("j", &spec)).await?;
    let why = ["InsufficientNodes", "Own", "Op-there", &nodes[1]];
    ensure!(!said.success && why.iter().all(|word| said.err.contains(word)), "{}", said.err);
    ensure!(!said.err.contains("Op-free"), "{}", said.err);
    Ok(())
}

/// What runs stays; what does not run yet finds nodes all the same.
pub(crate) async fn a_lost_node_is_replaced_before_its_pod_comes(world: Arc<World>) -> Result<()> {
    let space = world.namespace("lost").await?;
    let nodes = tagged(&world, "lost", 6).await?;
    let few = json!({"host": {"pool": "Few"}, "hostExlocation": ["t"]});
    let many = json!({"host": {"pool": "Many"}, "hostExlocation": ["t"]});
    let spec = json!({
        "pools": [{"name": "Few", "hosts": nodes[..3]}, {"name": "Many", "hosts": nodes}],
        "processingElements": [
            element("a", few.clone()),
            element("b", few),
            element("c", many.clone()),
            element("d", many),
        ],
    });
    space.created(&job("j", &spec)).await?;
    // On a host of `Few` it would leave none for `a` or `b` when another host is lost.
    let mut free = pod("j", "c");
    free["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": nodes[5]});
    space.pod(&free).await?;
    let running = space.node_of("j-c").await?;
    let before = reserved(&space, "j", |nodes| nodes.len() == 2).await?;
    ensure!(before.iter().all(|(node, _)| *node != running), "{running} beside {before:?}");
    let lost = &before[0].0;
    Api::<Node>::all(world.client.clone()).delete(lost, &DeleteParams::default()).await?;
    reserved(&space, "j", |nodes| {
        nodes.len() == 2 && nodes.iter().all(|(node, _)| node != lost && *node != running)
    })
    .await?;
    for element in ["d", "a", "b"] {
        space.pod(&pod("j", element)).await?;
    }
    let mut used = BTreeSet::from([running]);
    for element in ["a", "b", "d"] {
        used.insert(space.node_of(&format!("j-{element}")).await?);
    }
    ensure!(used.len() == 4 && !used.contains(lost), "{used:?}");
    Ok(())
}

/// The pools of a job get their nodes together.
pub(crate) async fn the_pools_of_a_job_get_all_of_their_nodes_or_none(
    world: Arc<World>,
) -> Result<()> {
    let space = world.namespace("together").await?;
    tagged(&world, "together", 3).await?;
    let pools = |size: u32| {
        json!({
            "pools": [
                {"name": "A", "size": 2, "tags": ["together"], "exclusivity": "Exclusive"},
                {"name": "B", "size": size, "tags": ["together"], "exclusivity": "Exclusive"},
            ],
            "processingElements": [element("one", json!({"host": {"pool": "A"}}))],
        })
    };
    space.create(&job("j", &pools(2))).await?.refused_with(&["InsufficientNodes"])?;
    space.created(&job("j", &pools(1))).await?;
    reserved(&space, "j", |nodes| nodes.is_empty()).await?;
    let mut members = BTreeSet::new();
    let owned = pool::api(&space).list(&kube::api::ListParams::default()).await?;
    for owned in &owned.items {
        members.extend(pool::members(owned).into_iter().map(|(_, node)| node));
    }
    ensure!(owned.items.len() == 2 && members.len() == 3, "{members:?}");
    Ok(())
}

/// A job whose isolated element can be on two nodes only, which two other elements could take; and the
/// reserved one of the two, which is then filled by a pod of others.
async fn full_reservation(space: &Space, tag: &str) -> Result<(String, String)> {
    let nodes = tagged(&space.world, tag, 4).await?;
    let spec = json!({
        "pools": [{"name": "Two", "hosts": nodes[..2]}, {"name": "All", "hosts": nodes}],
        "processingElements": [
            element("alone", json!({"host": {"pool": "Two"}, "hostIsolation": true})),
            element("x", json!({"host": {"pool": "All"}})),
            element("y", json!({"host": {"pool": "All"}})),
        ],
    });
    space.created(&job("j", &spec)).await?;
    let is_alone = |of: &(String, Vec<String>)| of.1 == ["alone"];
    let before = reserved(space, "j", |nodes| nodes.iter().any(is_alone)).await?;
    let full = before.into_iter().find(is_alone).context("nothing is reserved")?.0;
    let mut filler = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "filler"},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": full}, "containers": [{"name": "c", "image": "none"}]},
    });
    fill(&mut filler);
    same(&space.node_of_new(&filler).await?, &full)?;
    let other = nodes[..2].iter().find(|node| **node != full).context("no other node")?;
    Ok((full, other.clone()))
}

/// Two pods with such a request have no room on one node.
fn fill(pod: &mut Value) {
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "12"}});
}

/// Waits for an event with this reason in the namespace.
async fn reported(space: &Space, reason: &str) -> Result<String> {
    until(&format!("an event {reason}"), Duration::from_secs(120), async || {
        let selector = format!("reason={reason}");
        let arguments =
            ["-n", &space.name, "get", "events", "--field-selector", &selector, "-o", "json"];
        let shown = space.world.kubectl(&arguments, "").await?.succeeded()?;
        let shown: Value = serde_json::from_str(&shown)?;
        let note = shown["items"][0]["message"].as_str();
        Ok(note.map_or_else(|| Seen::NotYet(shown.to_string()), |note| Seen::Done(note.to_owned())))
    })
    .await
}

/// After the grace period another node is reserved, and the pod is created again for it by its workload.
pub(crate) async fn a_full_reserved_node_is_replaced(world: Arc<World>) -> Result<()> {
    let space = world.namespace("full").await?;
    let (full, other) = full_reservation(&space, "crowded").await?;
    let mut template = pod("j", "alone");
    fill(&mut template);
    let labels = template["metadata"]["labels"].clone();
    space
        .created(&json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "alone"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels, "annotations": template["metadata"]["annotations"]}, "spec": template["spec"]},
            },
        }))
        .await?;
    reported(&space, "NodesReservedAnew").await?;
    let why = reported(&space, "RecreatedForItsJob").await?;
    ensure!(why.contains(&other), "{why}");
    until("the new pod to be on the other node", Duration::from_secs(60), async || {
        let pods =
            space.pods().list(&kube::api::ListParams::default().labels("app=streams")).await?;
        let nodes: Vec<String> =
            pods.items.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect();
        Ok(if nodes == [other.clone()] {
            Seen::Done(())
        } else {
            Seen::NotYet(format!("{nodes:?}"))
        })
    })
    .await?;
    // What comes later leaves the node to it.
    for element in ["x", "y"] {
        let node = space.node_of_new(&pod("j", element)).await?;
        ensure!(
            node != other,
            "{element} is on {node}, where the isolated element is; {full} was full"
        );
    }
    Ok(())
}

/// No workload would create it again, so it is not deleted.
pub(crate) async fn a_pod_without_a_workload_stays_with_an_event(world: Arc<World>) -> Result<()> {
    let space = world.namespace("bare").await?;
    let (_, other) = full_reservation(&space, "bare").await?;
    let mut bare = pod("j", "alone");
    fill(&mut bare);
    space.pod(&bare).await?;
    let why = reported(&space, "StrandedByItsNode").await?;
    ensure!(why.contains(&other) && why.contains("delete it, and create it again"), "{why}");
    space.delete("j-alone").await?;
    same(&space.node_of_new(&bare).await?, &other)
}
