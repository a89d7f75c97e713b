//! The objects of an older release, when this one starts: nothing is moved, deleted or written anew.
//!
//! `upgrade/9cdd524.json` is the namespace `kept` with its nodes and volumes, as the programs of commit
//! 9cdd524 left it: pools with their members, a StreamsJob, a PipelineRun in its second task, a group
//! of pods, an MPI cluster whose workers do not start. The key in its Secret was replaced. They are
//! stored with their UIDs, from which the names of marks and placeholders are derived.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use stowplan_core::systems::streams::kinds::host_pool::EXCLUSIVE_TAINT;
use testbed::workload;

use crate::controller::nodes::unmarked;
use crate::coschedule::group::{GROUP, group_of};
use crate::world::{Space, World, element, node, same, settled};

const OBJECTS: &str = include_str!("upgrade/9cdd524.json");

/// The run, which goes on, with its pods and objects; and a pod that the test replaces.
const CHANGE: [&str; 3] = ["image", PLACEHOLDER, "read"];

const PLACEHOLDER: &str = "affinity-assistant-e09fdbd6a9";

/// For each kind, the parts that stay as they were recorded, beside UID and time of deletion. The text of a
/// job's condition and its `witness` are of this release: the older one did not place jobs as a whole.
const STAYS: &[(&str, &[&str])] = &[
    ("Pod", &["/spec/nodeName", "/spec/schedulingGates", "/spec/affinity", "/metadata/labels"]),
    ("HostPool", &["/status", "/spec", "/metadata/generation"]),
    (
        "StreamsJob",
        &[
            "/status/conditions/0/status",
            "/status/conditions/0/lastTransitionTime",
            "/status/conditions/1",
            "/status/creationOrder",
            "/status/groups",
            "/status/pools",
            "/status/witness/nodes",
            "/spec",
            "/metadata/generation",
        ],
    ),
    ("StatefulSet", &["/spec", "/metadata/annotations", "/metadata/generation"]),
    ("Node", &["/metadata/labels", "/spec/taints"]),
    ("ConfigMap", &["/data", "/metadata/annotations", "/metadata/ownerReferences"]),
    ("Secret", &["/data", "/metadata/ownerReferences"]),
    ("Service", &["/spec/selector", "/metadata/ownerReferences"]),
];

/// Lists the differences from the recorded objects, but for those that change.
async fn differences(space: &Space, objects: &[Value]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (kind, parts) in STAYS {
        let list = space.get(kind).await?;
        let items = list["items"].as_array().context("items")?;
        let stays = |object: &&Value| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            object["kind"] == *kind && !CHANGE.iter().any(|start| name.starts_with(*start))
        };
        let recorded: Vec<&Value> = objects.iter().filter(stays).collect();
        ensure!(!recorded.is_empty(), "no {kind} was recorded");
        for recorded in recorded {
            let name = &recorded["metadata"]["name"];
            let is_it = |item: &&Value| item["metadata"]["name"] == *name;
            let present = items.iter().find(is_it).unwrap_or(&Value::Null);
            for part in ["/metadata/uid", "/metadata/deletionTimestamp"].iter().chain(*parts) {
                let [was, is] = [recorded, present].map(|object| object.pointer(part));
                if was != is {
                    found.push(format!("{kind} {name}: {part} was {was:?}, is {is:?}"));
                }
            }
        }
    }
    Ok(found)
}

/// All times in an object, with their text.
fn times(value: &mut Value) -> Vec<(Timestamp, &mut String)> {
    match value {
        Value::Array(items) => items.iter_mut().flat_map(times).collect(),
        Value::Object(fields) => fields.values_mut().flat_map(times).collect(),
        Value::String(text) => text.parse().ok().map(|time| (time, text)).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Moves all times so that the latest is the present: runs and pods have deadlines.
fn move_to_now(objects: &mut [Value]) {
    let times: Vec<_> = objects.iter_mut().flat_map(times).collect();
    let latest = times.iter().map(|(time, _)| *time).max().unwrap_or(Timestamp::MIN);
    // Whole seconds, as the API has them.
    let by = SignedDuration::from_secs(Timestamp::now().duration_since(latest).as_secs());
    for (time, text) in times {
        *text = (time + by).to_string();
    }
}

pub(crate) async fn objects_of_an_older_release_are_taken_over(world: Arc<World>) -> Result<()> {
    let mut installation = world.alone().await?;
    let mut objects: Vec<Value> = serde_json::from_str(OBJECTS)?;
    move_to_now(&mut objects);
    let space = Space { world: Arc::clone(&world), name: "kept".to_owned() };
    workload::namespace(&world.client, &space.name).await?;
    installation.stop_controller(0).await?;
    world.plane.store(&objects).await?;
    world.plane.until_ready(&world.client, |node| node.starts_with("kept-")).await?;
    installation.start_controller(0).await?;
    installation.leader_known().await?;

    // The run goes on where it was: its last pod is a member of the placeholder of the older release.
    space.succeeded("image").await?;
    let pods = space.task_pods().await?;
    same(&pods.len(), &3)?;
    for (name, pod) in &pods {
        same(&node(pod).as_deref(), &Some("kept-7"))?;
        same(&group_of(pod), &Some(PLACEHOLDER)).context(name.clone())?;
    }

    // New pods join pools, groups and the job.
    space.delete("read").await?;
    let mut of_group = element("other", "new-nightly", &[]);
    of_group["metadata"]["annotations"] = json!({GROUP: "nightly"});
    let new: [(Value, &[&str]); 4] = [
        (element("other", "new-alone", &[("host-pool", "alone")]), &["kept-2", "kept-3"]),
        (element("other", "new-second", &[("host-pool", "shared[1]")]), &["kept-1"]),
        (element("trades", "read", &[]), &["kept-4"]),
        (of_group, &["kept-6"]),
    ];
    for (pod, nodes) in new {
        let landed = space.node_of_new(&pod).await?;
        ensure!(nodes.contains(&&*landed), "{pod} is on {landed}");
    }

    // The taint of exclusive pools has its present key, and the time that it had.
    let renamed =
        serde_json::to_string(&objects)?.replace("stowplan.dev/exclusive", EXCLUSIVE_TAINT);
    let expected: Vec<Value> = serde_json::from_str(&renamed)?;
    let found = async || differences(&space, &expected).await;
    settled("nothing but the taint's key to differ", found, Vec::is_empty).await?;
    let events = space.events().await?.concat();
    for reason in ["MemberLost", "PlaceholderMoved", "NotPlaced", "KeyReplaced", "WriteRefused"] {
        ensure!(!events.contains(reason), "{events}");
    }

    space.runs().delete("image", &DeleteParams::default()).await?;
    cleared(&space).await
}

/// Deletes the namespace, and the nodes when they have no mark any more.
async fn cleared(space: &Space) -> Result<()> {
    space.world.run(&format!("delete namespace {} --wait=false", space.name)).await?;
    // No kubelet ends the workers that do not start, and a namespace's pods are deleted first.
    space.kubectl("delete pods --all --force --grace-period=0 --wait=false").await?;
    let pods = async || space.names::<Pod>().await;
    settled("the pods of the older release to be deleted", pods, Vec::is_empty).await?;
    for index in 0..8 {
        let node = format!("kept-{index}");
        unmarked(&space.world, &node).await?;
        space.world.plane.delete_node(&node).await?;
    }
    Ok(())
}
