//! Random objects for `plan`, and the pods that the controllers of Kubernetes make of them.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// The workloads of [`workload`] and [`made`]: kinds, and words for forms of them.
pub(crate) const WORKLOADS: [&str; 7] =
    ["Deployment", "StatefulSet", "WithClaim", "Job", "Indexed", "CronJob", "DaemonSet"];

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
        "WithClaim" => {
            let claims = json!([claim_template()]);
            let spec = json!({"serviceName": service, "template": template, "volumeClaimTemplates": claims});
            ("apps/v1", "StatefulSet", spec)
        }
        _ => ("apps/v1", kind, json!({"template": template})),
    };
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec})
}

fn claim_template() -> Value {
    json!({
        "metadata": {"name": "data", "annotations": {"stowplan.dev/coschedule-group": "night"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "now"},
    })
}

/// The pod that the controller of a workload of this kind makes for `node`, by the source of
/// Kubernetes.
pub(crate) fn made(kind: &str, service: &str, node: &str, template: &Value) -> Value {
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
        "WithClaim" => ("apps/v1", "StatefulSet", "x"),
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
    if owner == "StatefulSet" {
        labels.insert("apps.kubernetes.io/pod-index".to_owned(), json!("0"));
        labels.insert("statefulset.kubernetes.io/pod-name".to_owned(), json!("x-0"));
        metadata["generateName"] = Value::Null;
        metadata["name"] = json!("x-0");
        spec["hostname"] = json!("x-0");
        spec["subdomain"] = json!(service);
    }
    if kind == "WithClaim" {
        let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-x-0"}});
        // A volume of the template with the name of a claim gives way.
        let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
        volumes.retain(|volume| volume["name"] != "data");
        volumes.insert(0, claim);
        spec["volumes"] = volumes.into();
    }
    if kind == "DaemonSet" {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let term = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
        spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = term;
    }
    metadata["labels"] = json!(labels);
    metadata["annotations"] = json!(annotations);
    metadata["ownerReferences"] = json!([
        {"apiVersion": version, "kind": owner, "name": name, "uid": "u", "controller": true},
    ]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// The keys of all systems, misspelt ones too, and their values. Some are wrong.
const ANNOTATIONS: [(&str, &[&str]); 14] = [
    ("mpi.stowplan.dev/cluster", &["pi", "pi", "π", ""]),
    ("mpi.stowplan.dev/role", &["worker", "launcher", "none"]),
    ("mpi.stowplan.dev/slots", &["2", "two"]),
    ("mpi.stowplan.dev/rolle", &["worker"]),
    ("stowplan.dev/coschedule-group", &["night", "night", "not a name"]),
    ("stowplan.dev/coschedule-grup", &["night"]),
    ("stowplan.dev/coschedule", &["workspaces", "pipelineruns", "everything"]),
    ("stowplan.dev/future", &["é"]),
    (
        "katalyst.kubewharf.io/microtopology_affinity",
        &[
            r#"{"required":[{"matchLabels":{"app":"db"},"zone":"numa"}]}"#,
            r#"{"preferred":[{"matchLabels":{"app":"db"}}]}"#,
            "{}",
            "{",
        ],
    ),
    (
        "katalyst.kubewharf.io/microtopology_antiaffinity",
        &[r#"{"required":[{"matchLabels":{"app":"db"},"zone":"socket"}]}"#, "[]"],
    ),
    ("katalyst.kubewharf.io/qos_level", &["dedicated_cores", "shared_cores", "?"]),
    ("streams.ibm.com/host", &["n0", "n9", "ñ"]),
    ("streams.ibm.com/host-exlocation", &["apart", ""]),
    ("streams.ibm.com/hst", &["n0"]),
];

/// Annotations and labels of every system, right and wrong.
pub(crate) fn metadata() -> impl Strategy<Value = Value> {
    let annotation = select(ANNOTATIONS.to_vec())
        .prop_flat_map(|(key, values)| (Just(key), select(values.to_vec())));
    // Most keys of MPI clusters mean something together only.
    let cluster = select(vec![
        vec![],
        vec![],
        vec![("mpi.stowplan.dev/cluster", "pi"), ("mpi.stowplan.dev/role", "worker")],
        vec![("mpi.stowplan.dev/cluster", "pi"), ("mpi.stowplan.dev/role", "launcher")],
    ]);
    let labels = select(vec![
        json!(null),
        json!({"app": "db"}),
        json!({"stowplan.dev/ignore": "true"}),
        json!({"stowplan.dev/ignore": "yes", "stowplan.dev/coschedule-group": "night"}),
    ]);
    (cluster, vec(annotation, 0..4), labels).prop_map(|(cluster, others, labels)| {
        let all = cluster.into_iter().chain(others);
        let annotations: Map<String, Value> =
            all.map(|(key, value)| (key.to_owned(), json!(value))).collect();
        json!({"annotations": annotations, "labels": labels})
    })
}

/// A template of a pod of any system but Streams jobs.
pub(crate) fn member() -> impl Strategy<Value = Value> {
    let name = || prop::option::weighted(0.3, select(vec!["pi", "own", ""]));
    let host_network = prop::option::weighted(0.1, Just(true));
    let volumes = prop::option::weighted(0.3, Just(json!([{"name": "data", "emptyDir": {}}])));
    (metadata(), name(), name(), host_network, volumes).prop_map(
        |(metadata, hostname, subdomain, host_network, volumes)| {
            json!({
                "metadata": metadata,
                "spec": {
                    "hostname": hostname, "subdomain": subdomain, "hostNetwork": host_network,
                    "volumes": volumes,
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

/// Changes by which a pool or a job does not have the form of its definition any more, or has
/// another one: the JSON pointer to a map, a field of it, and its value. The API server refuses the
/// object, if `true`.
pub(crate) fn misshapen(
    kind: &str,
) -> impl Strategy<Value = (&'static str, &'static str, Value, bool)> {
    let of_all = [
        ("/spec", "sise", json!(1), true),
        ("/spec", "é", json!(null), true),
        ("", "spec", json!([]), true),
        ("", "spec", json!(null), true),
    ];
    let of_pools = [
        ("/spec", "size", json!("3"), true),
        ("/spec", "size", json!(5001), true),
        ("/spec", "size", json!(-1), true),
        ("/spec", "exclusivity", json!("exclusive"), true),
        ("/spec", "exclusivity", json!(null), false),
        ("/spec", "tags", json!(["ib", "ib"]), true),
        ("/spec", "tags", json!(["ü"]), true),
        ("/spec", "tags", json!([]), true),
        ("/spec", "hosts", json!(["a", "a"]), true),
        ("/spec", "hosts", json!([""]), true),
        ("/spec", "hosts", json!("a"), true),
    ];
    let of_jobs = [
        ("/spec", "enforcement", json!("required"), true),
        ("/spec", "enforcement", json!(null), false),
        ("/spec", "pools", json!([{"name": "P", "size": 1}, {"name": "P", "size": 1}]), true),
        ("/spec", "pools", json!([{"size": 1}]), true),
        ("/spec/processingElements/0", "name", json!("ä"), true),
        ("/spec/processingElements/0", "name", json!(null), true),
        ("/spec/processingElements/0", "operatrs", json!([]), true),
        ("/spec/processingElements/0", "operators", json!([{"name": "O"}, {"name": "O"}]), true),
        ("/spec/processingElements/0", "operators", json!([{"name": "O", "host": {}}]), true),
        ("/spec/processingElements/0", "operators", json!(null), false),
    ];
    let own = if kind == "HostPool" { &of_pools[..] } else { &of_jobs[..] };
    select([&of_all[..], own].concat())
}
