//! The cluster in which the targets decide, and the pods that carry what is fuzzed.

use serde_json::{Value, json};
use stowplan_core::systems;
use stowplan_core::systems::View;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// A class that binds in this way; two of them are siblings.
fn class(name: &str, binding: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": "p", "volumeBindingMode": binding,
    })
}

/// A run with a claim of a template and one that is there, which one of its tasks uses both.
fn run(name: &str, uid: &str, annotations: Value) -> Value {
    let workspaces = json!([{"name": "source"}, {"name": "cache"}]);
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": name, "namespace": "default", "uid": uid, "annotations": annotations},
        "spec": {
            "pipelineSpec": {"tasks": [
                {"name": "both", "workspaces": workspaces}, {"name": "free", "workspaces": []},
            ]},
            "workspaces": [
                {"name": "source", "volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}},
                {"name": "cache", "persistentVolumeClaim": {"claimName": "c"}},
            ],
        },
    })
}

/// A TaskRun of the run with the UID `of`.
fn task_run(name: &str, uid: &str, of: &str) -> Value {
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
        "metadata": {
            "name": name, "namespace": "default", "uid": uid,
            "labels": {"tekton.dev/pipelineTask": "both"},
            "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
                "name": "run", "uid": of, "controller": true}],
        },
    })
}

/// Four nodes that are named in every way, a pool of each form, a colocation group, and Tekton's
/// runs.
pub fn view() -> View {
    let node = |name: &str, host_name: &str, address: &str, mut labels: Value| {
        labels["kubernetes.io/hostname"] = json!(name);
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"addresses": [
                {"type": "Hostname", "address": host_name}, {"type": "InternalIP", "address": address},
                {"type": "InternalIP", "address": "192.0.2.1"},
            ]},
        })
    };
    let pool = |name: &str, spec: Value| {
        json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        })
    };
    let objects = [
        node("n1", "Alias", "10.0.0.1", json!({"streams.ibm.com/hostpool": "ib"})),
        node(
            "n2",
            "twin",
            "10.0.0.2",
            json!({"hostpool.streams.ibm.com/ib": "", "hostpool.streams.ibm.com/blue": ""}),
        ),
        node("n3.example.com", "twin", "2001:db8::1", json!({"hostpool.streams.ibm.com/ib": ""})),
        node("n4", "n4", "not an address", json!({})),
        pool("literal", json!({"hosts": ["n1", "10.0.0.2", "2001:db8::1", "away"]})),
        pool("one", json!({"hosts": ["n1"]})),
        pool("away", json!({"hosts": ["away"]})),
        pool("twice", json!({"hosts": ["n1", "10.0.0.1"]})),
        pool("ambiguous", json!({"hosts": ["n1", "twin"]})),
        pool("tagged", json!({"tags": ["ib"]})),
        pool("tags", json!({"tags": ["ib", "blue"]})),
        pool("untagged", json!({"tags": ["none"]})),
        pool("any", json!({})),
        pool("sized", json!({"size": 2})),
        pool("broken", json!({"hosts": []})),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "member", "namespace": "default", "labels": {
                "streams.ibm.com/job": "j",
                "streams.ibm.com/hostcolocation.9034FF9E2B8F00B47A44DFAF3C2A37176C101E2A": "together",
            }},
            "spec": {"nodeName": "n1", "containers": []},
        }),
        class("fast", "Immediate"),
        class("wait", "WaitForFirstConsumer"),
        run("run", "u-run", Value::Null),
        run("child", "u-child", json!({"stowplan.dev/coschedule": "disabled"})),
        task_run("task", "u-task", "u-run"),
        task_run("run", "u-run", "u-child"),
        task_run("lost", "u-lost", "u-nobody"),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c", "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"},
        }),
    ];
    let mut view = View::default();
    for object in objects {
        let object = systems::object(object).expect("an object");
        view.apply(object.expect("of a kind that a View holds"));
    }
    view
}

/// A pod of a Streams job without constraints.
pub fn plain() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "default", "annotations": {},
            "labels": {"streams.ibm.com/job": "j", "streams.ibm.com/pe": "0"},
        },
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

fn with(annotations: Value, affinity: Value, node_name: Option<&str>) -> Value {
    let mut pod = plain();
    pod["metadata"]["annotations"] = annotations;
    if !affinity.is_null() {
        pod["spec"]["affinity"] = affinity;
    }
    if let Some(node) = node_name {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

fn on_fields(nodes: &[&str]) -> Value {
    let term = |node: &&str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": nodes.iter().map(term).collect::<Vec<_>>()}}})
}

/// Pods of several shapes, for one more annotation of the key `key`.
pub fn around(key: &str) -> Vec<Value> {
    let zones = json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
        {},
        {"matchExpressions": null, "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]},
    ]}}});
    let beside = match key {
        "streams.ibm.com/host" | "streams.ibm.com/host-pool" => {
            json!({"streams.ibm.com/host-colocation": "together", "streams.ibm.com/host-exlocation": "apart"})
        }
        "streams.ibm.com/host-enforcement" => json!({
            "streams.ibm.com/host-colocation": "together", "streams.ibm.com/host-exlocation": "[\"a\",\"b\"]",
            "streams.ibm.com/host-isolation": "Sink",
        }),
        _ => json!({"streams.ibm.com/host": "n1", "streams.ibm.com/host-enforcement": "preferred"}),
    };
    let mut unlabelled = with(json!({"streams.ibm.com/host-colocation": "x"}), json!({}), None);
    unlabelled["metadata"].as_object_mut().expect("an object").remove("labels");
    let of_task = |task: &str, uid: &str| {
        let mut pod = with(json!({}), Value::Null, None);
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "tekton.dev/v1", "kind": "TaskRun",
            "name": task, "uid": uid, "controller": true}]);
        pod["spec"]["volumes"] =
            json!([{"name": "ws", "persistentVolumeClaim": {"claimName": "c"}}]);
        pod
    };
    vec![
        with(json!({}), Value::Null, None),
        with(json!({"streams.ibm.com/host-enforcement": "preferred"}), zones, None),
        with(beside, Value::Null, Some("n1")),
        unlabelled,
        of_task("task", "u-task"),
        of_task("lost", "u-lost"),
    ]
}

/// Pods with the outcomes of a first round, which a record may name.
pub fn with_outcomes() -> Vec<Value> {
    let tagged = json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "streams.ibm.com/hostpool", "operator": "In", "values": ["ib"]},
        {"key": "hostpool.streams.ibm.com/ib", "operator": "Exists"},
        {"key": "hostpool.streams.ibm.com/blue", "operator": "Exists"},
    ]}]}}});
    vec![
        with(json!({"streams.ibm.com/host": "n1"}), on_fields(&["n1"]), None),
        with(json!({"streams.ibm.com/host": "gone"}), on_fields(&["n9"]), Some("n9")),
        with(json!({"streams.ibm.com/host-pool": "gone[1]"}), Value::Null, Some("n2")),
        with(json!({"streams.ibm.com/host-pool": "literal"}), on_fields(&["n1", "n9"]), None),
        with(json!({"streams.ibm.com/host-pool": "tagged"}), tagged, None),
        with(json!({}), Value::Null, None),
    ]
}

/// Pods with constraints of every kind.
pub fn with_constraints() -> Vec<Value> {
    vec![
        with(
            json!({
                "streams.ibm.com/host-pool": "literal", "streams.ibm.com/host-colocation": "new",
                "streams.ibm.com/host-exlocation": "[\"a\",\"b\"]", "streams.ibm.com/host-isolation": "Sink",
            }),
            Value::Null,
            None,
        ),
        with(
            json!({
                "streams.ibm.com/host": "n1", "streams.ibm.com/host-colocation": "together",
                "streams.ibm.com/host-exlocation": "apart", "streams.ibm.com/host-enforcement": "preferred",
            }),
            Value::Null,
            None,
        ),
        with(json!({"streams.ibm.com/host-pool": "tags"}), Value::Null, Some("n2")),
        with(json!({"streams.ibm.com/host-pool": "literal[1]"}), Value::Null, Some("n2")),
    ]
}

/// Pods that Katalyst binds to NUMA nodes, one that it does not, and one with its own affinity.
pub fn bound_to_numa() -> Vec<Value> {
    let pod = |level: &str, memory: &str, affinity: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", "labels": {"role": "ps"}, "annotations": {
                "katalyst.kubewharf.io/qos_level": level,
                "katalyst.kubewharf.io/memory_enhancement": memory}},
            "spec": {"affinity": affinity, "containers": [{"name": "c", "image": "i"}]},
        })
    };
    let bound = r#"{"numa_binding":"true"}"#;
    let alone = r#"{"numa_binding":"true","numa_exclusive":"true"}"#;
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {}]);
    let own = json!({
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}},
        "podAffinity": {REQUIRED: [{"topologyKey": "zone"}]},
    });
    vec![
        pod("dedicated_cores", bound, Value::Null),
        pod("dedicated_cores", alone, Value::Null),
        pod("dedicated_cores", bound, own),
        pod("shared_cores", "{}", Value::Null),
    ]
}

/// Pods of MPI clusters: of a StatefulSet, of an Indexed Job, of another Job, and without an owner.
pub fn of_clusters() -> Vec<Value> {
    let pod = |role: &str, owner: Option<(&str, &str)>, spec: Value| {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"generateName": "p-", "namespace": "default", "annotations": {
                "mpi.stowplan.dev/cluster": "c", "mpi.stowplan.dev/role": role}},
            "spec": spec,
        });
        if let Some((version, kind)) = owner {
            pod["metadata"]["ownerReferences"] = json!([{"apiVersion": version, "kind": kind, "name": "w", "uid": "u", "controller": true}]);
        }
        pod
    };
    let plain = json!({"containers": [{"name": "main", "image": "i"}]});
    let full = json!({
        "hostname": "", "subdomain": "own", "dnsConfig": {"searches": null},
        "initContainers": [{"name": "first", "image": "i"}],
        "volumes": [{"name": "config", "configMap": {"name": "c-mpi"}}, {"name": "data", "emptyDir": {}}],
        "containers": [
            {"name": "main", "image": "i", "command": [], "args": null, "env": [{"name": "A", "value": "b"}],
             "volumeMounts": [{"name": "config", "mountPath": "/etc/mpi"}], "readinessProbe": null},
            {"name": "side", "image": "i", "securityContext": {"runAsUser": 1000}},
        ],
    });
    let mut indexed = pod("worker", Some(("batch/v1", "Job")), full.clone());
    indexed["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = json!("0");
    vec![
        pod("worker", Some(("apps/v1", "StatefulSet")), plain.clone()),
        indexed,
        pod("launcher", Some(("batch/v1", "Job")), full),
        pod("launcher", None, plain),
    ]
}

/// Claims of a run, of a group and of neither, for one more spec.
pub fn claims() -> Vec<Value> {
    let owned = |kind: &str| json!([{"apiVersion": "tekton.dev/v1", "kind": kind, "name": "run", "uid": "u-run", "controller": true}]);
    let class = "volume.beta.kubernetes.io/storage-class";
    vec![
        json!({"metadata": {"name": "pvc-1", "ownerReferences": owned("PipelineRun")}}),
        json!({"metadata": {
            "name": "pvc-2", "ownerReferences": owned("TaskRun"), "annotations": {class: "fast"},
        }}),
        json!({"metadata": {"generateName": "g-", "annotations": {"stowplan.dev/coschedule-group": "g"}}}),
        json!({"metadata": {"name": "c", "annotations": {"stowplan.dev/coschedul-group": "g"}}}),
    ]
}

/// Affinities that pods carry, as seeds.
pub fn affinities() -> Vec<Value> {
    let selector = json!({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"});
    vec![
        json!(null),
        json!({}),
        json!({"nodeAffinity": null, "podAffinity": {}, "podAntiAffinity": {REQUIRED: null, PREFERRED: []}}),
        on_fields(&["n1"]),
        on_fields(&["n1", "n2", "n9"]),
        json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}),
        json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}, {"matchExpressions": [], "matchFields": null}]}}}),
        json!({"nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]},
                {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a", "b"]}]},
            ]},
            PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["1"]}]}}],
        }}),
        json!({"podAffinity": {REQUIRED: [selector.clone()]}, "podAntiAffinity": {REQUIRED: [selector.clone()]}}),
        json!({"podAffinity": {PREFERRED: [{"weight": 100, "podAffinityTerm": selector}]}}),
        json!({"podAntiAffinity": {REQUIRED: [{
            "labelSelector": {"matchExpressions": [{
                "key": "streams.ibm.com/hostexlocation.B76ADE163D874CC5BC0F408D70CFC165667EEC5F",
                "operator": "In", "values": ["apart"],
            }]},
            "topologyKey": "kubernetes.io/hostname",
        }]}}),
    ]
}
