//! The objects of an older release, when this one starts: nothing is moved, deleted or written anew.
//!
//! `upgrade/9cdd524.json` is the namespace `kept` with its nodes and volumes, as the programs of commit
//! 9cdd524 left it: pools with their members, a StreamsJob, a PipelineRun in its second task, a group
//! of pods, an MPI cluster whose workers do not start. The key in its Secret was replaced. They are
//! stored with their UIDs, from which the names of marks and placeholders are derived.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testbed::workload;

use crate::coschedule::group::group_of;
use crate::world::{Space, World, element, node, same, settled};

const OBJECTS: &str = include_str!("upgrade/9cdd524.json");

/// The pods and objects of the run: it goes on.
fn is_of_run(name: &str) -> bool {
    name.starts_with("image") || name.starts_with("affinity-assistant-e09fdbd6a9")
}

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

/// What differs from the recorded objects, but for the run and the pod `read`.
async fn differences(space: &Space, objects: &[Value]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (kind, parts) in STAYS {
        let list = space.get(kind).await?;
        let name = |object: &Value| object["metadata"]["name"].as_str().map(str::to_owned);
        let present: BTreeMap<_, _> =
            list["items"].as_array().into_iter().flatten().map(|it| (name(it), it)).collect();
        let mut compared = 0;
        for recorded in objects.iter().filter(|object| object["kind"] == *kind) {
            let name = name(recorded);
            let text = name.as_deref().context("a name")?;
            if is_of_run(text) || text == "read" {
                continue;
            }
            compared += 1;
            let present = present.get(&name).copied().unwrap_or(&Value::Null);
            let all = ["/metadata/uid", "/metadata/deletionTimestamp"];
            for part in all.iter().chain(*parts) {
                let [was, is] = [recorded, present].map(|object| object.pointer(part));
                if was != is {
                    found.push(format!("{kind} {text}: {part} was {was:?}, is {is:?}"));
                }
            }
        }
        ensure!(compared > 0, "no {kind} was recorded");
    }
    Ok(found)
}

/// Moves all times so that the latest is the present: runs and pods have deadlines.
fn move_to_now(objects: &mut [Value]) {
    fn each(value: &mut Value, change: &mut impl FnMut(Timestamp) -> Timestamp) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| each(item, change)),
            Value::Object(fields) => fields.values_mut().for_each(|field| each(field, change)),
            Value::String(text) => {
                if let Ok(time) = text.parse() {
                    *text = change(time).to_string();
                }
            }
            _ => {}
        }
    }
    let mut latest = Timestamp::MIN;
    for object in &mut *objects {
        each(object, &mut |time| {
            latest = latest.max(time);
            time
        });
    }
    // Whole seconds, as the API has them.
    let by = SignedDuration::from_secs(Timestamp::now().duration_since(latest).as_secs());
    for object in objects {
        each(object, &mut |time| time + by);
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
        same(&group_of(pod), &Some("affinity-assistant-e09fdbd6a9")).context(name.clone())?;
    }

    // New pods join pools, groups and the job.
    let of_pool = element("other", "new-alone", &[("host-pool", "alone")]);
    let landed = space.node_of_new(&of_pool).await?;
    ensure!(["kept-2", "kept-3"].contains(&&*landed), "new-alone is on {landed}");
    let of_member = element("other", "new-second", &[("host-pool", "shared[1]")]);
    same(&&*space.node_of_new(&of_member).await?, &"kept-1")?;
    let of_job = element("trades", "read", &[]);
    space.delete("read").await?;
    same(&&*space.node_of_new(&of_job).await?, &"kept-4")?;
    let mut of_group = element("other", "new-nightly", &[]);
    of_group["metadata"]["annotations"] = json!({"stowplan.dev/coschedule-group": "nightly"});
    same(&&*space.node_of_new(&of_group).await?, &"kept-6")?;

    same(&differences(&space, &objects).await?, &vec![])?;
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
    let nodes: Api<Node> = Api::all(space.world.client.clone());
    let left = async || {
        let pods = space.pods().list(&ListParams::default()).await?.items.len();
        let tagged = ListParams::default().labels("streams.ibm.com/hostpool=kept");
        let mut marked = nodes.list(&tagged).await?.items;
        marked.retain(|node| {
            let has_label = node.labels().keys().any(|key| key.starts_with("pool.stowplan"));
            has_label || node.spec.as_ref().is_some_and(|spec| spec.taints.is_some())
        });
        Ok((pods, marked.iter().map(|node| node.name_any()).collect::<Vec<_>>()))
    };
    let is_free = |(pods, marked): &(usize, Vec<String>)| *pods == 0 && marked.is_empty();
    settled("the nodes of the older release to be free", left, is_free).await?;
    for index in 0..8 {
        space.world.plane.delete_node(&format!("kept-{index}")).await?;
    }
    Ok(())
}
