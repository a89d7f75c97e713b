//! Clusters to decide on: as documents for the real binary, as a View for this process.

use std::net::Ipv4Addr;

use serde_json::{Value, json};
use stowplan_core::api;
use stowplan_core::systems::coschedule::keys;
use stowplan_core::systems::coschedule::kinds::pipeline_run::claim_name;
use stowplan_core::systems::streams::kinds::streams_pod::{COLOCATION_PREFIX, JOB};
use stowplan_core::systems::{Object, View};
use stowplan_core::view::Scope;

use crate::objects::read;

/// The namespace of every pod here.
pub(crate) const NAMESPACE: &str = "streams-apps";
/// The job of the pods that are reviewed.
pub(crate) const OWN_JOB: &str = "fraud-detection";
/// The address of node 3 in every cluster here.
pub(crate) const HOST: &str = "10.0.0.3";
/// The upper-case SHA-1 of `together`: what a colocation label's key ends with.
const TOGETHER: &str = "9034FF9E2B8F00B47A44DFAF3C2A37176C101E2A";

/// The cluster of the servers, small: growth has a part of its own.
pub(crate) fn documents() -> String {
    (0..20)
        .map(|index| {
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": node_name(index), "labels": {"stowplan.dev/numa-zones": "2"}},
                "status": {"addresses": [{"type": "InternalIP", "address": address(index).to_string()}]},
            })
        })
        .map(|node| format!("---\n{node}\n"))
        .collect()
}

/// The View of [`documents`].
pub(crate) fn view() -> anyhow::Result<View> {
    let mut view = View::default();
    for document in documents().split("---\n").filter(|text| !text.is_empty()) {
        let node: Value = serde_json::from_str(document)?;
        view.apply(read(&node, Scope::File)?);
    }
    Ok(view)
}

/// A View of `count` nodes, pods and HostPools each, and a namespace for each hundred.
pub(crate) fn grown(count: usize) -> anyhow::Result<View> {
    let mut view = View::default();
    for kind in ["node", "pod", "hostpool"] {
        for index in 0..count {
            view.apply(object(kind, index)?);
        }
    }
    // The pools that the reviewed pods name: the same in every cluster.
    for (name, spec) in [
        ("literal", json!({"hosts": [node_name(1), HOST, node_name(5)]})),
        ("tagged", json!({"tags": ["infiniband", "blue"]})),
        ("torn", json!({"tags": ["blue", "green"]})),
    ] {
        show(&mut view, &host_pool(name, &spec))?;
    }
    for index in 0..4 {
        add_mate(&mut view, index)?;
    }
    Ok(view)
}

/// A literal pool of `count` hosts, and the nodes that they are.
pub(crate) fn literal_pool(view: &mut View, count: usize) -> anyhow::Result<()> {
    for index in 0..count {
        view.apply(object("node", index)?);
    }
    let hosts: Vec<_> = (0..count).map(node_name).collect();
    show(view, &host_pool("literal", &json!({"hosts": hosts})))
}

/// Adds a pod of the job and of the colocation group of the pods that are reviewed. All are on one
/// node.
pub(crate) fn add_mate(view: &mut View, index: usize) -> anyhow::Result<()> {
    let mut pod = pod(index, OWN_JOB, TOGETHER);
    pod["spec"]["nodeName"] = json!(node_name(3));
    show(view, &pod)
}

/// The StreamsJob that the pods under review join: `count` elements, four to a colocation group,
/// two groups each kept apart; element 7 is theirs. If `accepted`, it has the condition Accepted.
pub(crate) fn job(view: &mut View, count: usize, accepted: bool) -> anyhow::Result<()> {
    let element = |index: usize| {
        let mut operator = json!({
            "name": format!("operator-{index}"),
            "hostColocation": [format!("together-{}", index / 4)],
        });
        // On one member of each group: it separates groups, not their members.
        if index.is_multiple_of(4) {
            operator["hostExlocation"] = json!([format!("apart-{}", index / 8)]);
        }
        json!({"name": index.to_string(), "operators": [operator]})
    };
    let mut job = json!({
        "apiVersion": api::VERSION, "kind": "StreamsJob",
        "metadata": {"name": OWN_JOB, "namespace": NAMESPACE, "generation": 1},
        "spec": {"processingElements": (0..count).map(element).collect::<Vec<_>>()},
    });
    if accepted {
        job["status"] = json!({"conditions": [{
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
        }]});
    }
    show(view, &job)
}

/// Adds the run of the recorded reviews of Tekton, and this many `others`, each with two TaskRuns, a
/// claim and a placeholder. The recorded run has this many `tasks`, all with its first workspace, and
/// this many `workspaces`.
pub(crate) fn runs(
    view: &mut View,
    others: usize,
    tasks: usize,
    workspaces: usize,
) -> anyhow::Result<()> {
    for (name, binding) in [("fast", "Immediate"), ("fast-wait", "WaitForFirstConsumer")] {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "example.com/disk", "volumeBindingMode": binding,
        });
        show(view, &class)?;
    }
    let own = "714703e8-aaf3-4e69-84d4-5f4899ac63ad";
    let task_runs = [("fetch", "ea4a8627-9ac7-4817-bafe-57d289e1b3db".to_owned())];
    run(view, "shared", own, &task_runs, tasks, workspaces)?;
    for index in 0..others {
        let uid = |of: usize| format!("{of:08x}-aaf3-4e69-84d4-{index:012x}");
        let task_runs = [("fetch", uid(1)), ("task-1", uid(2))];
        run(view, &format!("build-of-application-{index}"), &uid(0), &task_runs, 2, 1)?;
    }
    Ok(())
}

/// A run with these TaskRuns, the claim of its first workspace and its placeholder.
fn run(
    view: &mut View,
    name: &str,
    uid: &str,
    task_runs: &[(&str, String)],
    tasks: usize,
    workspaces: usize,
) -> anyhow::Result<()> {
    let workspace = |index: usize| {
        let name = if index == 0 { "source".to_owned() } else { format!("workspace-{index}") };
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"});
        json!({"name": name, "volumeClaimTemplate": {"spec": spec}})
    };
    let task = |index: usize| {
        let name = if index == 0 { "fetch".to_owned() } else { format!("task-{index}") };
        let output = json!([{"name": "output", "workspace": "source"}]);
        json!({"name": name, "taskRef": {"name": "t"}, "workspaces": output})
    };
    let owner = json!([{
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    // Shows an object of the run, as the webhook keeps it.
    let mut add = |version: &str, kind: &str, name: &str, uid: &str, more: Value| {
        let mut document = json!({"apiVersion": version, "kind": kind, "metadata": {
            "name": name, "namespace": "ci", "uid": uid, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": owner,
        }});
        json_patch::merge(&mut document, &more);
        show(view, &document)
    };
    let run = json!({"metadata": {"ownerReferences": null}, "spec": {
        "workspaces": (0..workspaces).map(workspace).collect::<Vec<_>>(),
        "pipelineSpec": {"tasks": (0..tasks).map(task).collect::<Vec<_>>()},
    }});
    add("tekton.dev/v1", "PipelineRun", name, uid, run)?;
    for (task, uid) in task_runs {
        let more = json!({"metadata": {"labels": {"tekton.dev/pipelineTask": task}}});
        add("tekton.dev/v1", "TaskRun", &format!("{name}-{task}"), uid, more)?;
    }
    let claim = claim_name(None, "source", uid);
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "fast-wait"});
    let of_claim = format!("claim-{uid}");
    add("v1", "PersistentVolumeClaim", &claim, &of_claim, json!({"spec": spec}))?;
    let placeholder = keys::of_run(uid, "source");
    let volume = json!({"name": "source", "persistentVolumeClaim": {"claimName": claim}});
    let record = r#"{"key":"source","workspaces":["source"]}"#;
    let set = json!({
        "metadata": {
            "labels": {keys::PLACEHOLDER: placeholder},
            "annotations": {keys::RECORD: record, keys::MODE: "workspaces"},
        },
        "spec": {
            "serviceName": "", "selector": {},
            "template": {"spec": {"containers": [], "volumes": [volume]}},
        },
    });
    add("apps/v1", "StatefulSet", &placeholder, &format!("set-{uid}"), set)
}

/// An object as clusters have them, as it is kept: names and labels of the lengths that clouds and
/// operators give.
pub(crate) fn object(kind: &str, index: usize) -> anyhow::Result<Object> {
    let job = format!("{OWN_JOB}-{}", index / 100);
    let document = match kind {
        "node" => node(index),
        // Eight to a colocation group, and a job for each hundred.
        "pod" => pod(index, &job, &format!("{:040X}", index / 8)),
        "lone-pod" => pod(index, &job, &format!("{index:040X}")),
        // As a StatefulSet makes it, with a claim of its own.
        "claim-pod" => {
            let name = format!("database-of-application-{}-{}", index / 3, index % 3);
            let claim = json!({"claimName": format!("data-{name}")});
            let volume = json!({"name": "data", "persistentVolumeClaim": claim});
            let spec = json!({
                "nodeName": node_name(index / 100), "containers": [], "volumes": [volume],
            });
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
            });
            return read(&pod, Scope::Controller);
        }
        "hostpool" => {
            let spec = match index % 3 {
                0 => json!({"tags": ["infiniband", "blue"]}),
                1 => json!({"hosts": (index..index + 8).map(node_name).collect::<Vec<_>>()}),
                _ => json!({"size": 8, "tags": ["infiniband"]}),
            };
            host_pool(&format!("pool-of-application-{index}"), &spec)
        }
        _ => anyhow::bail!("unknown kind {kind}"),
    };
    read(&document, Scope::Admission)
}

fn show(view: &mut View, document: &Value) -> anyhow::Result<()> {
    view.apply(read(document, Scope::Admission)?);
    Ok(())
}

fn node_name(index: usize) -> String {
    let [_, b, c, d] = address(index).octets();
    format!("ip-10-{b}-{c}-{d}.eu-central-1.compute.internal")
}

fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0A00_0000 + u32::try_from(index).unwrap_or(u32::MAX >> 8))
}

fn node(index: usize) -> Value {
    let external = Ipv4Addr::from_bits(address(index).to_bits() ^ 0x2A00_0000);
    let addresses = [
        ("InternalIP", address(index).to_string()),
        ("ExternalIP", external.to_string()),
        ("InternalDNS", node_name(index)),
        ("Hostname", node_name(index)),
    ];
    let mut labels = json!({"hostpool.streams.ibm.com/infiniband": "true"});
    let tag = if index.is_multiple_of(2) { "blue" } else { "green" };
    labels[format!("hostpool.streams.ibm.com/{tag}")] = json!("true");
    let address = |(kind, address)| json!({"type": kind, "address": address});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node_name(index), "labels": labels},
        "status": {"addresses": addresses.map(address)},
    })
}

fn pod(index: usize, job: &str, group: &str) -> Value {
    let colocation = format!("{COLOCATION_PREFIX}{group}");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{job}-pe-{index}-7f9c7b5d4d-x2{index:03x}"), "namespace": NAMESPACE,
            "labels": {"app": "streams", JOB: job, colocation: "together"},
        },
        "spec": {"nodeName": node_name(index / 8), "containers": []},
        "status": {"phase": "Running"},
    })
}

fn host_pool(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": api::VERSION, "kind": "HostPool",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    })
}
