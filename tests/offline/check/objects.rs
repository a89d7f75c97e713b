//! The objects of the cases, and what `stowplan check` prints about them.

use serde_json::{Value, json};

use crate::cli::command::{self, Output, Shown};

/// `stowplan check` with these words, in the cluster of these objects.
pub(crate) fn check(objects: &[Value], words: &str) -> Output {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    command::run(&format!("check {words} --cluster -"), list.to_string())
}

/// What `check` finds in some situations, for a snapshot: each obstacle as `what -> remedy`.
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
    json!([{"type": "Ready", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}])
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
    let mut pod = on_node(waiting(name, &Value::Null), Some(node));
    pod["metadata"]["labels"] = labels;
    pod
}

/// The pod as it runs on this node; without one, it still waits.
pub(crate) fn on_node(mut pod: Value, node: Option<&str>) -> Value {
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
        pod["status"] = json!({"phase": "Running"});
    }
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

/// The placeholder of the run's only group, and the claim that Tekton makes for it.
pub(crate) const PLACEHOLDER: &str = "affinity-assistant-d4b820ff28";
pub(crate) const CLAIM: &str = "pvc-e93bac4dbe";

pub(crate) fn room(name: &str, cpu: &str) -> Value {
    let allocatable = json!({"cpu": cpu, "memory": "8Gi", "pods": "110"});
    with(node(name), &json!({"status": {"allocatable": allocatable}}))
}

pub(crate) fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": "tekton.dev/v1", "kind": kind, "name": name, "uid": uid, "controller": true}])
}

/// A run of `clone`, which uses a claim of a template, and `build`, which uses claim `cache` too.
pub(crate) fn run() -> Value {
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": "image", "namespace": "default", "uid": "run-uid",
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "pipelineSpec": {"tasks": [
                {"name": "clone", "workspaces": [{"name": "source"}]},
                {"name": "build", "workspaces": [{"name": "source"}, {"name": "cache"}]},
            ]},
            "workspaces": [
                {"name": "source", "volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}},
                {"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}},
            ],
        },
    })
}

pub(crate) fn task_run(assisted: bool) -> Value {
    let assistant = assisted.then_some("affinity-assistant-0123456789");
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
        "metadata": {"name": "image-clone", "namespace": "default", "uid": "task-uid",
            "labels": {"tekton.dev/pipelineTask": "clone"},
            "annotations": assistant.map(|name| json!({"pipeline.tekton.dev/affinity-assistant": name})),
            "ownerReferences": owner("PipelineRun", "image", "run-uid")},
    })
}

/// A claim of class `zonal`; bound to a volume where it has nodes.
pub(crate) fn claim(name: &str, nodes: &[&str]) -> Vec<Value> {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "zonal"},
    });
    if nodes.is_empty() {
        return vec![claim];
    }
    claim["spec"]["volumeName"] = json!(format!("pv-{name}"));
    claim["status"] = json!({"phase": "Bound"});
    let term = json!({"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]});
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("pv-{name}")},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
    });
    vec![claim, volume]
}

pub(crate) fn class() -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "zonal"},
        "provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"})
}

pub(crate) fn stateful_set(mode: &str, claims: &[&str]) -> Value {
    let key = if mode == "workspaces" { "source" } else { "" };
    let workspaces = json!(["source", "cache"]);
    let record = json!({"key": key, "workspaces": workspaces, "tasks": ["clone", "build"]});
    let volume =
        |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": PLACEHOLDER, "namespace": "default", "uid": "set",
            "labels": {"stowplan.dev/placeholder": PLACEHOLDER},
            "annotations": {"stowplan.dev/coschedule": mode, "coschedule.stowplan.dev/group": record.to_string()},
            "ownerReferences": owner("PipelineRun", "image", "run-uid")},
        "spec": {"selector": {}, "template": {
            "metadata": of_template(PLACEHOLDER, claims),
            "spec": {"containers": [], "volumes": claims.iter().map(volume).collect::<Vec<_>>()}}},
    })
}

/// The plan of a placeholder that is held to its members and mounts these claims.
pub(crate) fn plan(claims: &[&str]) -> String {
    json!({"held": true, "claims": claims}).to_string()
}

/// The metadata of a pod template by [`plan`].
pub(crate) fn of_template(placeholder: &str, claims: &[&str]) -> Value {
    json!({
        "labels": {"stowplan.dev/coschedule-member": placeholder},
        "annotations": {"coschedule.stowplan.dev/plan": plan(claims)},
    })
}

/// Required pod affinity to the pods with these labels.
fn beside(labels: &Value) -> Value {
    json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}]}})
}

/// The placeholder's pod, on a node or nowhere.
pub(crate) fn placeholder(node: Option<&str>) -> Value {
    let members = json!({"stowplan.dev/coschedule-member": PLACEHOLDER});
    let mut pod = on_node(waiting(&format!("{PLACEHOLDER}-0"), &beside(&members)), node);
    pod["metadata"]["labels"] = json!({"stowplan.dev/placeholder": PLACEHOLDER,
        "stowplan.dev/coschedule-member": PLACEHOLDER,
        "app.kubernetes.io/component": "affinity-assistant", "app.kubernetes.io/instance": PLACEHOLDER});
    pod["metadata"]["annotations"] =
        json!({"coschedule.stowplan.dev/plan": plan(&[CLAIM, "cache"])});
    pod
}

/// A pod of the run, as the webhook admits it.
pub(crate) fn of_run(name: &str, node: Option<&str>, cpu: &str) -> Value {
    let placeholder = json!({"app.kubernetes.io/component": "affinity-assistant",
        "app.kubernetes.io/instance": PLACEHOLDER});
    let mut pod = on_node(waiting(name, &beside(&placeholder)), node);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod["metadata"]["labels"] = json!({"stowplan.dev/coschedule-member": PLACEHOLDER});
    pod["metadata"]["ownerReferences"] = owner("TaskRun", "image-clone", "task-uid");
    pod
}

/// The run, its TaskRun, its claims and its placeholder, with `more`.
pub(crate) fn standing(node: Option<&str>, more: &[Value]) -> Vec<Value> {
    let mut objects = vec![run(), task_run(false), class()];
    objects.extend(claim(CLAIM, &[]));
    objects.extend(claim("cache", &[]));
    objects.extend([stateful_set("workspaces", &[CLAIM, "cache"]), placeholder(node)]);
    objects.extend_from_slice(more);
    objects
}

pub(crate) fn cordoned(node: Value) -> Value {
    with(node, &json!({"spec": {"unschedulable": true}}))
}

pub(crate) fn tainted(node: Value, taints: &[Value]) -> Value {
    with(node, &json!({"spec": {"taints": taints}}))
}

/// The node without its label of the host name.
pub(crate) fn nameless(node: Value) -> Value {
    with(node, &json!({"metadata": {"labels": {"kubernetes.io/hostname": null}}}))
}

/// A pod that uses claim `cache`.
pub(crate) fn with_cache(pod: Value) -> Value {
    let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "cache"}});
    with(pod, &json!({"spec": {"volumes": [volume]}}))
}

/// The placeholder of group `nightly` in `default`.
pub(crate) const NATIVE: &str = "affinity-assistant-88b1e3553f";

/// The annotations of that group.
pub(crate) fn nightly() -> Value {
    json!({"stowplan.dev/coschedule-group": "nightly"})
}

pub(crate) fn native_set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": NATIVE, "namespace": "default", "uid": "set",
            "labels": {"stowplan.dev/placeholder": NATIVE},
            "annotations": nightly()},
        "spec": {"selector": {}, "template": {
            "metadata": of_template(NATIVE, &[]), "spec": {"containers": []}}},
    })
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
