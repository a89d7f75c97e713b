//! Random objects for `plan`, and the pods that the controllers of Kubernetes make of them.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// The workloads of [`workload`] and [`made`].
pub(crate) const WORKLOADS: [&str; 5] = ["Deployment", "StatefulSet", "Job", "Indexed", "CronJob"];

/// A workload that makes pods of a template.
pub(crate) fn workload(kind: &str, service: &str, template: &Value) -> Value {
    let template = json!({"metadata": template["metadata"], "spec": template["spec"]});
    let (version, kind, spec) = match kind {
        "Indexed" => {
            ("batch/v1", "Job", json!({"completionMode": "Indexed", "template": template}))
        }
        "Job" => ("batch/v1", kind, json!({"template": template})),
        "CronJob" => ("batch/v1", kind, json!({"jobTemplate": {"spec": {"template": template}}})),
        "StatefulSet" => ("apps/v1", kind, json!({"serviceName": service, "template": template})),
        _ => ("apps/v1", kind, json!({"template": template})),
    };
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec})
}

/// The pod that the controller of a workload of this kind makes, by the source of Kubernetes.
pub(crate) fn made(kind: &str, service: &str, template: &Value) -> Value {
    let mut spec = template["spec"].clone();
    let text_map = |key: &str| match &template["metadata"][key] {
        Value::Object(map) => map.clone(),
        _ => Map::new(),
    };
    let (mut labels, mut annotations) = (text_map("labels"), text_map("annotations"));
    let mut metadata = json!({});
    let (version, owner, name) = match kind {
        "Deployment" => ("apps/v1", "ReplicaSet", "x-5d89bdfc7"),
        "CronJob" => ("batch/v1", "Job", "x-29000000"),
        "Indexed" | "Job" => ("batch/v1", "Job", "x"),
        kind => ("apps/v1", kind, "x"),
    };
    metadata["generateName"] = json!(format!("{name}-"));
    if owner == "Job" {
        labels.insert("batch.kubernetes.io/job-name".to_owned(), json!(name));
        labels.insert("job-name".to_owned(), json!(name));
    }
    if kind == "Indexed" {
        for map in [&mut labels, &mut annotations] {
            map.insert("batch.kubernetes.io/job-completion-index".to_owned(), json!("0"));
        }
        metadata["generateName"] = json!("x-0-");
        spec["hostname"] = json!("x-0");
    }
    if kind == "StatefulSet" {
        labels.insert("apps.kubernetes.io/pod-index".to_owned(), json!("0"));
        labels.insert("statefulset.kubernetes.io/pod-name".to_owned(), json!("x-0"));
        metadata["generateName"] = Value::Null;
        metadata["name"] = json!("x-0");
        spec["hostname"] = json!("x-0");
        spec["subdomain"] = json!(service);
    }
    metadata["labels"] = json!(labels);
    metadata["annotations"] = json!(annotations);
    metadata["ownerReferences"] = json!([
        {"apiVersion": version, "kind": owner, "name": name, "uid": "u", "controller": true},
    ]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// A template of a pod of an MPI cluster, or of a group.
pub(crate) fn member() -> impl Strategy<Value = Value> {
    let annotations = select(vec![
        json!({"mpi.stowplan.dev/cluster": "pi", "mpi.stowplan.dev/role": "worker"}),
        json!({"mpi.stowplan.dev/cluster": "pi", "mpi.stowplan.dev/role": "launcher"}),
        json!({"mpi.stowplan.dev/cluster": "pi", "mpi.stowplan.dev/role": "none"}),
        json!({"stowplan.dev/coschedule-group": "night"}),
        json!({"stowplan.dev/coschedule-group": "not a name"}),
    ]);
    let name = || prop::option::weighted(0.3, select(vec!["pi", "own", ""]));
    let host_network = prop::option::weighted(0.1, Just(true));
    (annotations, name(), name(), host_network).prop_map(
        |(annotations, hostname, subdomain, host_network)| {
            json!({
                "metadata": {"annotations": annotations},
                "spec": {
                    "hostname": hostname, "subdomain": subdomain, "hostNetwork": host_network,
                    "containers": [
                        {"name": "c", "image": "i", "securityContext": {"runAsUser": 0}},
                    ],
                },
            })
        },
    )
}

/// The spec of a pool, which may well be malformed.
pub(crate) fn pool_spec() -> impl Strategy<Value = Value> {
    let hosts = vec(select(vec!["hh1", "hh2", "hh3", "10.0.0.1"]), 1..3);
    let size = prop::option::weighted(0.8, 0..5_u32);
    let form = prop_oneof![
        hosts.prop_map(|hosts| json!({"hosts": hosts})),
        (size, any::<bool>()).prop_map(|(size, tagged)| {
            let tags = tagged.then(|| json!(["ib"]));
            json!({"size": size, "tags": tags})
        }),
    ];
    (form, any::<bool>()).prop_map(|(mut spec, is_exclusive)| {
        if is_exclusive {
            spec["exclusivity"] = json!("Exclusive");
        }
        spec
    })
}
