//! The objects of the cases, and what `stowplan check` prints about them.

use serde_json::{Value, json};

use crate::cli::command::{self, Output, Shown};

/// `stowplan check` with these words, in the cluster of these objects.
pub(crate) fn check(objects: &[Value], words: &str) -> Output {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    command::run(&format!("check {words} --cluster -"), list.to_string())
}

/// The findings of `check` in some situations, for a snapshot: each obstacle as `what -> remedy`.
#[derive(Default)]
pub(crate) struct Findings(Shown);

impl Findings {
    /// Adds what is found about an object; the exit code says if there is anything.
    pub(crate) fn add(&mut self, label: &str, objects: &[Value], asked: &str) -> &mut Self {
        self.0.0 += &format!("{label}:\n");
        for obstacle in obstacles(objects, asked) {
            self.0.0 += &format!("- {obstacle}\n");
        }
        self
    }

    /// Adds the complete output about an object.
    pub(crate) fn show(&mut self, label: &str, objects: &[Value], asked: &str) -> &mut Self {
        self.0.add(label, &check(objects, asked));
        self
    }

    /// Compares all of it with the snapshot `check_<name>`.
    pub(crate) fn compare(&self, name: &str) {
        self.0.compare(&format!("check_{name}"));
    }
}

/// The obstacles that are found; the exit code says if there are any.
pub(crate) fn obstacles(objects: &[Value], asked: &str) -> Vec<String> {
    let output = check(objects, &format!("{asked} -o json"));
    let mut found = Vec::new();
    collect(&output.json(), &mut found);
    assert_eq!(output.code, i32::from(!found.is_empty()), "{output:?}");
    found
}

fn collect(diagnosis: &Value, found: &mut Vec<String>) {
    for obstacle in diagnosis["obstacles"].as_array().unwrap() {
        let word = |key: &str| obstacle[key].as_str().unwrap_or_default().to_owned();
        found.push(format!("{} -> {}", word("what"), word("remedy")));
    }
    for part in diagnosis["parts"].as_array().into_iter().flatten() {
        collect(part, found);
    }
}

/// `object` with these fields: maps are merged, null removes a field.
pub(crate) fn with(mut object: Value, fields: &Value) -> Value {
    json_patch::merge(&mut object, fields);
    object
}

pub(crate) fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

pub(crate) fn pool(spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "generation": 1},
        "spec": spec, "status": status,
    })
}

/// The hash of the pool's UID, `u`.
pub(crate) const HASH: &str = "0bfe935e70";

pub(crate) fn ready(status: &str, reason: &str, message: &str) -> Value {
    json!([condition("Ready", status, reason, message)])
}

pub(crate) fn member(index: u32, node: &str, state: &str) -> Value {
    json!({"index": index, "node": node, "uid": node, "state": state, "since": "2026-01-01T00:00:00Z"})
}

/// A pod of processing element `name` of job `j`, which the scheduler has found no node for.
pub(crate) fn waiting(name: &str, affinity: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name,
            "labels": {"streams.ibm.com/job": "j", "streams.ibm.com/pe": name}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "affinity": affinity},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/2 nodes are available",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

pub(crate) fn running(name: &str, node: &str, labels: Value) -> Value {
    let mut pod = on_node(waiting(name, &Value::Null), node);
    pod["metadata"]["labels"] = labels;
    pod
}

/// The pod as it runs on this node.
pub(crate) fn on_node(mut pod: Value, node: &str) -> Value {
    pod["spec"]["nodeName"] = json!(node);
    pod["status"] = json!({"phase": "Running"});
    pod
}

/// Required node affinity to the node with this name.
pub(crate) fn pinned(node: &str) -> Value {
    on(&json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}))
}

pub(crate) fn on(term: &Value) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}})
}

pub(crate) fn near(key: &str, kind: &str) -> Value {
    json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchExpressions": [{"key": key, "operator": "In", "values": ["t"]}]}}]}})
}

pub(crate) fn cordoned(node: Value) -> Value {
    with(node, &json!({"spec": {"unschedulable": true}}))
}

pub(crate) fn tainted(node: Value, taints: &[Value]) -> Value {
    with(node, &json!({"spec": {"taints": taints}}))
}

pub(crate) fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// A StreamsJob with one pool, `P`, and these conditions.
pub(crate) fn streams_job(conditions: &[Value]) -> Value {
    json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob",
        "metadata": {"name": "j", "namespace": "default", "uid": "j", "generation": 1},
        "spec": {"pools": [{"name": "P", "size": 1}]}, "status": {"conditions": conditions}})
}
