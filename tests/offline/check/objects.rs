//! The objects of the cases, and what `stowplan check` prints about them.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// What `stowplan check` says of `asked` in the cluster of these objects: exit code and both
/// outputs.
pub(crate) fn said(objects: &[Value], asked: &str, more: &[&str]) -> (i32, String, String) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_stowplan"))
        .arg("check")
        .args(Some(asked).filter(|asked| !asked.is_empty()))
        .args(["--cluster", "-"])
        .args(more)
        .env_remove("KUBECONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The obstacles that are found, as `what -> remedy`.
pub(crate) fn obstacles(objects: &[Value], asked: &str) -> Vec<String> {
    let (code, out, err) = said(objects, asked, &["-o", "json"]);
    let diagnosis: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
    let mut found = Vec::new();
    collect(&diagnosis, &mut found);
    assert_eq!(code, i32::from(!found.is_empty()), "{out}");
    found
}

pub(crate) fn collect(diagnosis: &Value, found: &mut Vec<String>) {
    for obstacle in diagnosis["obstacles"].as_array().unwrap() {
        let word = |key: &str| obstacle[key].as_str().unwrap_or_default().to_owned();
        found.push(format!("{} -> {}", word("what"), word("remedy")));
    }
    for part in diagnosis["parts"].as_array().into_iter().flatten() {
        collect(part, found);
    }
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
    let mut pod = waiting(name, &Value::Null);
    pod["spec"]["nodeName"] = json!(node);
    pod["status"] = json!({"phase": "Running"});
    pod["metadata"]["labels"] = labels;
    pod
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
    let mut node = node(name);
    node["status"]["allocatable"] = json!({"cpu": cpu, "memory": "8Gi", "pods": "110"});
    node
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
    let mut run = json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
        "metadata": {"name": "image-clone", "namespace": "default", "uid": "task-uid",
            "labels": {"tekton.dev/pipelineTask": "clone"},
            "ownerReferences": owner("PipelineRun", "image", "run-uid")},
    });
    if assisted {
        run["metadata"]["annotations"] =
            json!({"pipeline.tekton.dev/affinity-assistant": "affinity-assistant-0123456789"});
    }
    run
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

/// The placeholder's pod, on a node or nowhere.
pub(crate) fn placeholder(node: Option<&str>) -> Value {
    let mut pod = waiting(
        &format!("{PLACEHOLDER}-0"),
        &json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"stowplan.dev/coschedule-member": PLACEHOLDER}}}]}}),
    );
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
        pod["status"] = json!({"phase": "Running"});
    }
    pod["metadata"]["labels"] = json!({"stowplan.dev/placeholder": PLACEHOLDER,
        "stowplan.dev/coschedule-member": PLACEHOLDER,
        "app.kubernetes.io/component": "affinity-assistant", "app.kubernetes.io/instance": PLACEHOLDER});
    pod["metadata"]["annotations"] =
        json!({"coschedule.stowplan.dev/plan": plan(&[CLAIM, "cache"])});
    pod
}

/// A pod of the run, as the webhook admits it.
pub(crate) fn of_run(name: &str, node: Option<&str>, cpu: &str) -> Value {
    let mut pod = waiting(
        name,
        &json!({"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "affinity-assistant",
                "app.kubernetes.io/instance": PLACEHOLDER}}}]}}),
    );
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
        pod["status"] = json!({"phase": "Running"});
    }
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

pub(crate) fn cordoned(mut node: Value) -> Value {
    node["spec"] = json!({"unschedulable": true});
    node
}

/// The placeholder of group `nightly` in `default`.
pub(crate) const NATIVE: &str = "affinity-assistant-88b1e3553f";

pub(crate) fn native_set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": NATIVE, "namespace": "default", "uid": "set",
            "labels": {"stowplan.dev/placeholder": NATIVE},
            "annotations": {"stowplan.dev/coschedule-group": "nightly"}},
        "spec": {"selector": {}, "template": {
            "metadata": of_template(NATIVE, &[]), "spec": {"containers": []}}},
    })
}
