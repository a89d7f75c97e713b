//! Clusters to decide on: as documents for the real binary, as a View for this process.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Context as _;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use stowplan::testing::api;
use stowplan::testing::systems;
use stowplan::testing::systems::coschedule::keys;
use stowplan::testing::systems::coschedule::kinds::pipeline_run::claim_name;
use stowplan::testing::systems::streams::api::host_pool::HostPoolSpec;
use stowplan::testing::systems::streams::kinds::streams_pod::{COLOCATION_PREFIX, JOB};
use stowplan::testing::view::{Object, Scope, View};

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
        let object =
            systems::object(serde_json::from_str(document)?).map_err(anyhow::Error::msg)?;
        view.apply(object.context("a kind that no View holds")?);
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
        view.apply(host_pool(name, spec)?);
    }
    for index in 0..4 {
        let mut pod = pod(index, OWN_JOB, TOGETHER);
        pod.metadata.name = Some(format!("member-{index}"));
        pod.spec =
            Some(core::PodSpec { node_name: Some(node_name(3)), ..core::PodSpec::default() });
        view.apply(systems::project(&pod, Scope::Admission).context("a Streams pod")?);
    }
    Ok(view)
}

/// A literal pool of `count` hosts, and the nodes that they are.
pub(crate) fn literal_pool(view: &mut View, count: usize) -> anyhow::Result<()> {
    for index in 0..count {
        view.apply(object("node", index)?);
    }
    let hosts: Vec<_> = (0..count).map(node_name).collect();
    view.apply(host_pool("literal", json!({"hosts": hosts}))?);
    Ok(())
}

/// `count` pods of one job and one colocation group, all on one node.
pub(crate) fn one_group(view: &mut View, count: usize) -> anyhow::Result<()> {
    for index in 0..count {
        let mut pod = pod(index, OWN_JOB, TOGETHER);
        pod.spec =
            Some(core::PodSpec { node_name: Some(node_name(3)), ..core::PodSpec::default() });
        view.apply(systems::project(&pod, Scope::Admission).context("a Streams pod")?);
    }
    Ok(())
}

/// The StreamsJob that the pods under review join: `count` elements, four to a colocation group,
/// two groups each kept apart; element 7 is theirs. If `accepted`, it has the condition Accepted.
pub(crate) fn job(view: &mut View, count: usize, accepted: bool) -> anyhow::Result<()> {
    let elements: Vec<_> = (0..count)
        .map(|index| {
            let mut operator = json!({
                "name": format!("operator-{index}"),
                "hostColocation": [format!("together-{}", index / 4)],
            });
            // On one member of each group: it separates groups, not their members.
            if index % 4 == 0 {
                operator["hostExlocation"] = json!([format!("apart-{}", index / 8)]);
            }
            json!({"name": index.to_string(), "operators": [operator]})
        })
        .collect();
    let mut job = json!({
        "apiVersion": api::VERSION, "kind": "StreamsJob",
        "metadata": {"name": OWN_JOB, "namespace": NAMESPACE, "generation": 1},
        "spec": {"processingElements": elements},
    });
    if accepted {
        job["status"] = json!({"conditions": [{
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
        }]});
    }
    let object = systems::object(job).map_err(anyhow::Error::msg)?;
    view.apply(object.context("a kind that no View holds")?);
    Ok(())
}

/// A View with the run of the recorded reviews of Tekton, and this many `others`, each with two
/// TaskRuns, a claim and a placeholder. The recorded run has this many `tasks`, all with its first
/// workspace, and this many `workspaces`.
pub(crate) fn runs(others: usize, tasks: usize, workspaces: usize) -> anyhow::Result<View> {
    let mut view = View::default();
    for (name, binding) in [("fast", "Immediate"), ("fast-wait", "WaitForFirstConsumer")] {
        show(
            &mut view,
            json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                "provisioner": "example.com/disk", "volumeBindingMode": binding,
            }),
        )?;
    }
    let own = "714703e8-aaf3-4e69-84d4-5f4899ac63ad";
    let task_runs = [("fetch", "ea4a8627-9ac7-4817-bafe-57d289e1b3db".to_owned())];
    run(&mut view, "shared", own, &task_runs, tasks, workspaces)?;
    for index in 0..others {
        let uid = |of: usize| format!("{of:08x}-aaf3-4e69-84d4-{index:012x}");
        let task_runs = [("fetch", uid(1)), ("task-1", uid(2))];
        run(&mut view, &format!("build-of-application-{index}"), &uid(0), &task_runs, 2, 1)?;
    }
    Ok(view)
}

fn show(view: &mut View, document: serde_json::Value) -> anyhow::Result<()> {
    let object = systems::object(document).map_err(anyhow::Error::msg)?;
    view.apply(object.context("a kind that no View holds")?);
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
    let created = "2026-01-01T00:00:00Z";
    let metadata = |name: &str, uid: &str| {
        json!({
            "name": name, "namespace": "ci", "uid": uid, "resourceVersion": "1",
            "creationTimestamp": created,
        })
    };
    let workspace = |index: usize| match index {
        0 => "source".to_owned(),
        index => format!("workspace-{index}"),
    };
    let all = (0..workspaces).map(|index| {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"});
        json!({"name": workspace(index), "volumeClaimTemplate": {"spec": spec}})
    });
    let of_pipeline = (0..tasks).map(|index| {
        let name = if index == 0 { "fetch".to_owned() } else { format!("task-{index}") };
        json!({
            "name": name, "taskRef": {"name": "t"},
            "workspaces": [{"name": "output", "workspace": "source"}],
        })
    });
    let document = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": metadata(name, uid),
        "spec": {
            "workspaces": all.collect::<Vec<_>>(),
            "pipelineSpec": {"tasks": of_pipeline.collect::<Vec<_>>()},
        },
    });
    // As the webhook keeps it.
    let read = Object::from_document(systems::TABLES, document, Scope::Admission);
    view.apply(read.map_err(anyhow::Error::msg)?.context("a run")?);
    let owner = json!([{
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    for (task, uid) in task_runs {
        let mut metadata = metadata(&format!("{name}-{task}"), uid);
        metadata["labels"] = json!({"tekton.dev/pipelineTask": task});
        metadata["ownerReferences"] = owner.clone();
        show(
            view,
            json!({"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": metadata}),
        )?;
    }
    let claim = claim_name(None, "source", uid);
    let mut of_claim = metadata(&claim, &format!("claim-{uid}"));
    of_claim["ownerReferences"] = owner.clone();
    show(
        view,
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": of_claim,
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast-wait"},
        }),
    )?;
    let placeholder = keys::of_run(uid, "source");
    let mut of_set = metadata(&placeholder, &format!("set-{uid}"));
    of_set["ownerReferences"] = owner;
    of_set["labels"] = json!({keys::PLACEHOLDER: placeholder});
    of_set["annotations"] = json!({keys::RECORD: r#"{"key":"source","workspaces":["source"]}"#, keys::MODE: "workspaces"});
    let volume = json!({"name": "source", "persistentVolumeClaim": {"claimName": claim}});
    let set: k8s_openapi::api::apps::v1::StatefulSet = serde_json::from_value(json!({
        "metadata": of_set,
        "spec": {
            "serviceName": "", "selector": {},
            "template": {"spec": {"containers": [], "volumes": [volume]}},
        },
    }))?;
    view.apply(systems::project(&set, Scope::Admission).context("a placeholder")?);
    Ok(())
}

/// An object as clusters have them, projected: names and labels of the lengths that clouds and
/// operators give.
pub(crate) fn object(kind: &str, index: usize) -> anyhow::Result<Object> {
    match kind {
        "node" => systems::project(&node(index), Scope::Admission).context("a node"),
        // Eight to a colocation group, and a job for each hundred.
        "pod" => {
            let job = format!("{OWN_JOB}-{}", index / 100);
            systems::project(&pod(index, &job, &format!("{:040X}", index / 8)), Scope::Admission)
                .context("a Streams pod")
        }
        "lone-pod" => {
            let pod = pod(index, &format!("{OWN_JOB}-{}", index / 100), &format!("{index:040X}"));
            systems::project(&pod, Scope::Admission).context("a Streams pod")
        }
        // As a StatefulSet makes it, with a claim of its own.
        "claim-pod" => {
            let name = format!("database-of-application-{}-{}", index / 3, index % 3);
            let claim = core::PersistentVolumeClaimVolumeSource {
                claim_name: format!("data-{name}"),
                ..core::PersistentVolumeClaimVolumeSource::default()
            };
            let volume = core::Volume {
                name: "data".to_owned(),
                persistent_volume_claim: Some(claim),
                ..core::Volume::default()
            };
            let pod = core::Pod {
                metadata: ObjectMeta {
                    name: Some(name),
                    namespace: Some(NAMESPACE.to_owned()),
                    ..ObjectMeta::default()
                },
                spec: Some(core::PodSpec {
                    node_name: Some(node_name(index / 100)),
                    volumes: Some(vec![volume]),
                    ..core::PodSpec::default()
                }),
                ..core::Pod::default()
            };
            systems::project(&pod, Scope::Controller).context("a pod with a place")
        }
        "hostpool" => {
            let spec = match index % 3 {
                0 => json!({"tags": ["infiniband", "blue"]}),
                1 => json!({"hosts": (index..index + 8).map(node_name).collect::<Vec<_>>()}),
                _ => json!({"size": 8, "tags": ["infiniband"]}),
            };
            host_pool(&format!("pool-of-application-{index}"), spec)
        }
        _ => anyhow::bail!("unknown kind {kind}"),
    }
}

fn node_name(index: usize) -> String {
    let [_, b, c, d] = address(index).octets();
    format!("ip-10-{b}-{c}-{d}.eu-central-1.compute.internal")
}

fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0A00_0000 + u32::try_from(index).unwrap_or(u32::MAX >> 8))
}

fn node(index: usize) -> core::Node {
    let entry = |kind: &str, address: String| core::NodeAddress { type_: kind.to_owned(), address };
    let external = Ipv4Addr::from_bits(address(index).to_bits() ^ 0x2A00_0000);
    let tags = ["infiniband", if index.is_multiple_of(2) { "blue" } else { "green" }];
    core::Node {
        metadata: ObjectMeta {
            name: Some(node_name(index)),
            labels: Some(
                tags.map(|tag| (format!("hostpool.streams.ibm.com/{tag}"), "true".to_owned()))
                    .into(),
            ),
            ..ObjectMeta::default()
        },
        status: Some(core::NodeStatus {
            addresses: Some(vec![
                entry("InternalIP", IpAddr::V4(address(index)).to_string()),
                entry("ExternalIP", external.to_string()),
                entry("InternalDNS", node_name(index)),
                entry("Hostname", node_name(index)),
            ]),
            ..core::NodeStatus::default()
        }),
        ..core::Node::default()
    }
}

fn pod(index: usize, job: &str, group: &str) -> core::Pod {
    core::Pod {
        metadata: ObjectMeta {
            name: Some(format!("{job}-pe-{index}-7f9c7b5d4d-x2{index:03x}")),
            namespace: Some(NAMESPACE.to_owned()),
            labels: Some(
                [("app", "streams".to_owned()), (JOB, job.to_owned())]
                    .map(|(key, value)| (key.to_owned(), value))
                    .into_iter()
                    .chain([(format!("{COLOCATION_PREFIX}{group}"), "together".to_owned())])
                    .collect(),
            ),
            ..ObjectMeta::default()
        },
        spec: Some(core::PodSpec {
            node_name: Some(node_name(index / 8)),
            ..core::PodSpec::default()
        }),
        status: Some(core::PodStatus {
            phase: Some("Running".to_owned()),
            ..core::PodStatus::default()
        }),
    }
}

fn host_pool(name: &str, spec: serde_json::Value) -> anyhow::Result<Object> {
    let spec: HostPoolSpec = serde_json::from_value(spec)?;
    let mut pool = systems::streams::api::HostPool::new(name, spec);
    pool.metadata.namespace = Some(NAMESPACE.to_owned());
    systems::project(&pool, Scope::Admission).context("a pool without a name")
}
