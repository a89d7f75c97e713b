//! Random objects for the comparison without an API server, and what their controllers make of them.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use crate::planned_cases::metadata;

/// The claim that the controller of a workload with claims makes of the template in `workload`.
pub(super) fn made_claim(workload: &Value) -> Value {
    let mut claim = workload["spec"]["volumeClaimTemplates"][0].clone();
    claim["apiVersion"] = json!("v1");
    claim["kind"] = json!("PersistentVolumeClaim");
    claim["metadata"]["name"] = json!("data-x-0");
    claim
}

/// The JSON pointer to the template in a workload.
pub(super) fn template_of(kind: &str) -> &'static str {
    if kind == "CronJob" { "/spec/jobTemplate/spec/template" } else { "/spec/template" }
}

/// Values of a wrong type in a template, by their JSON pointers. No API server reads it.
pub(super) fn mistyped() -> impl Strategy<Value = (&'static str, Value)> {
    select(vec![
        ("/metadata", json!("x")),
        ("/metadata/annotations", json!([])),
        ("/metadata/annotations", json!({"stowplan.dev/coschedule-group": 1})),
        ("/metadata/labels", json!({"app": true})),
        ("/spec/nodeName", json!(5)),
        ("/spec/affinity", json!("x")),
        ("/spec/affinity", json!({"nodeAffinity": []})),
        ("/spec/tolerations", json!({"key": "k"})),
        ("/spec/nodeSelector", json!({"zone": 1})),
        ("/spec/schedulingGates", json!("x")),
    ])
}

/// The volume that a run gives for a workspace.
fn workspace() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"persistentVolumeClaim": {"claimName": "shared"}}),
        json!({"persistentVolumeClaim": {"claimName": "other"}}),
        json!({"volumeClaimTemplate": {"spec": {"storageClassName": "now"}}}),
        json!({"volumeClaimTemplate": {"metadata": {"name": "own"}, "spec": {"storageClassName": "waits"}}}),
        json!({"emptyDir": {}}),
    ])
}

/// A pod template of a run, if it has one.
fn pod_template() -> impl Strategy<Value = Option<Value>> {
    prop::option::weighted(
        0.3,
        select(vec![
            json!({"nodeSelector": {"zone": "a"}}),
            json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "third"}}]}),
            json!({"tolerations": [{"key": "k", "operator": "Exists"}]}),
        ]),
    )
}

/// The metadata of a run that exists.
fn stored(mut metadata: Value) -> Value {
    metadata["name"] = json!("r");
    metadata["namespace"] = json!("default");
    metadata["uid"] = json!("u");
    metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    metadata
}

fn named(workspaces: Vec<Value>) -> Vec<Value> {
    let named = |(number, mut workspace): (usize, Value)| {
        workspace["name"] = json!(format!("w{number}"));
        workspace
    };
    workspaces.into_iter().enumerate().map(named).collect()
}

/// A TaskRun that a user creates, the pod of which [`pod_of_task_run`] makes.
pub(super) fn task_run() -> impl Strategy<Value = Value> {
    (metadata(), vec(workspace(), 0..4), pod_template()).prop_map(
        |(metadata, workspaces, template)| {
            json!({
                "apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": stored(metadata),
                "spec": {"taskRef": {"name": "t"}, "workspaces": named(workspaces), "podTemplate": template},
            })
        },
    )
}

/// Makes the pod that Tekton makes for a TaskRun.
pub(super) fn pod_of_task_run(task_run: &Value) -> Value {
    let mut spec = task_run["spec"]["podTemplate"].clone();
    if spec.is_null() {
        spec = json!({});
    }
    let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    for workspace in task_run["spec"]["workspaces"].as_array().into_iter().flatten() {
        let claim = match (&workspace["persistentVolumeClaim"], &workspace["volumeClaimTemplate"]) {
            (Value::Null, Value::Null) => continue,
            (Value::Null, _) => json!({"claimName": "pvc-0123456789"}),
            (claim, _) => claim.clone(),
        };
        volumes.push(json!({"name": workspace["name"], "persistentVolumeClaim": claim}));
    }
    spec["volumes"] = volumes.into();
    spec["containers"] = json!([{"name": "step", "image": "i"}]);
    let metadata = &task_run["metadata"];
    let mut labels = metadata["labels"].as_object().cloned().unwrap_or_default();
    labels.insert("tekton.dev/taskRun".to_owned(), json!("r"));
    let owner = json!([{"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "name": "r", "uid": "u", "controller": true}]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "r-pod", "namespace": "default", "labels": labels,
            "annotations": metadata["annotations"], "ownerReferences": owner},
        "spec": spec,
    })
}

/// A run of Tekton, the claims and pods of which [`tekton`] makes.
pub(super) fn run() -> impl Strategy<Value = Value> {
    let task = proptest::sample::subsequence(vec!["w0", "w1", "w2"], 0..3);
    (metadata(), vec(workspace(), 3), vec(task, 1..4), pod_template()).prop_map(
        |(metadata, workspaces, tasks, template)| {
            let task = |(number, used): (usize, Vec<&str>)| {
                let used: Vec<Value> = used.iter().map(|name| json!({"name": name})).collect();
                json!({"name": format!("t{number}"), "workspaces": used, "taskSpec": {"steps": []}})
            };
            let tasks: Vec<Value> = tasks.into_iter().enumerate().map(task).collect();
            json!({
                "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": stored(metadata),
                "spec": {
                    "pipelineSpec": {"tasks": tasks}, "workspaces": named(workspaces),
                    "taskRunTemplate": template.map(|template| json!({"podTemplate": template})),
                },
            })
        },
    )
}

/// Makes the objects that Tekton makes for a run: its claims, and for each task the TaskRun and the pod. `claims` has
/// the names of the claims by their workspaces: they are hashes.
pub(super) fn tekton(run: &Value, claims: &Map<String, Value>) -> (Vec<Value>, Vec<[Value; 2]>) {
    let owner = |kind: &str, name: &str, uid: &str| json!([{"apiVersion": "tekton.dev/v1", "kind": kind, "name": name, "uid": uid, "controller": true}]);
    let workspaces = run["spec"]["workspaces"].as_array().expect("workspaces");
    let claim_of = |workspace: &Value| match &workspace["persistentVolumeClaim"]["claimName"] {
        Value::Null => claims.get(workspace["name"].as_str().expect("a name")).cloned(),
        name => Some(name.clone()),
    };
    let templates = workspaces.iter().filter(|of| of["volumeClaimTemplate"].is_object());
    let made_claims = templates.map(|workspace| {
        let mut claim = workspace["volumeClaimTemplate"].clone();
        claim["apiVersion"] = json!("v1");
        claim["kind"] = json!("PersistentVolumeClaim");
        claim["metadata"]["name"] = claim_of(workspace).into();
        claim["metadata"]["namespace"] = json!("default");
        claim["metadata"]["ownerReferences"] = owner("PipelineRun", "r", "u");
        claim
    });
    let tasks = run["spec"]["pipelineSpec"]["tasks"].as_array().expect("tasks").iter();
    let pods = tasks.map(|task| {
        let name = format!("r-{}", task["name"].as_str().expect("a name"));
        let mut labels = json!({"tekton.dev/pipelineTask": task["name"]});
        let task_run = json!({
            "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
            "metadata": {
                "name": name, "namespace": "default", "uid": name, "labels": labels,
                "ownerReferences": owner("PipelineRun", "r", "u"),
            },
        });
        for (key, value) in run["metadata"]["labels"].as_object().into_iter().flatten() {
            labels[key] = value.clone();
        }
        let mut spec = run["spec"]["taskRunTemplate"]["podTemplate"].clone();
        if spec.is_null() {
            spec = json!({});
        }
        let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
        for used in task["workspaces"].as_array().into_iter().flatten() {
            let workspace = workspaces.iter().find(|of| of["name"] == used["name"]);
            let Some(claim) = workspace.and_then(claim_of) else { continue };
            let volume = json!({"claimName": claim});
            // Workspaces with one claim share a volume.
            if volumes.iter().all(|other| other["persistentVolumeClaim"] != volume) {
                volumes.push(json!({"name": used["name"], "persistentVolumeClaim": volume}));
            }
        }
        spec["volumes"] = volumes.into();
        spec["containers"] = json!([{"name": "step", "image": "i"}]);
        let metadata = json!({
            "name": format!("{name}-pod"), "namespace": "default", "labels": labels,
            "annotations": run["metadata"]["annotations"],
            "ownerReferences": owner("TaskRun", &name, &name),
        });
        [task_run, json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})]
    });
    (made_claims.collect(), pods.collect())
}
