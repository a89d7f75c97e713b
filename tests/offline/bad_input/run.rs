//! PipelineRuns of wrong shapes and of great size, seen through the pod of one of their tasks.

use serde_json::{Value, json};
use stowplan_core::systems;
use stowplan_core::systems::View;
use stowplan_core::systems::policy::Policy;

use super::input::pointers;
use crate::pods::{decide_pod, keeps, patch_of, patched, view_of};

/// A run of two tasks with every field that stowplan reads, and the pod of the second task.
fn run_and_pod() -> (Vec<Value>, Value) {
    let owner = |kind: &str, name: &str| json!([{"apiVersion": "tekton.dev/v1", "kind": kind, "name": name, "uid": name, "controller": true}]);
    let pipeline = json!({
        "tasks": [
            {"name": "a", "workspaces": [{"name": "w", "workspace": "source"}]},
            {"name": "b", "workspaces": [{"name": "source"}, {"name": "cache"}],
                "taskSpec": {"steps": [{"script": "$(workspaces.cache.path)"}], "workspaces": [{"name": "w"}]}},
        ],
        "finally": [{"name": "z", "workspaces": [{"name": "cache"}]}],
    });
    let run = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": "r", "namespace": "default", "uid": "r", "annotations": {"example.com/a": "b"}},
        "spec": {
            "pipelineSpec": pipeline,
            "workspaces": [
                {"name": "source", "volumeClaimTemplate": {"metadata": {"name": "own"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}}},
                {"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}},
            ],
            "taskRunTemplate": {"serviceAccountName": "s", "podTemplate": {"nodeSelector": {"a": "b"},
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "extra"}}]}},
            "taskRunSpecs": [{"pipelineTaskName": "b", "podTemplate": {"nodeSelector": {"a": "c"}}}],
        },
        "status": {"conditions": [{"type": "Succeeded", "status": "Unknown"}]},
    });
    let task_run = json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
        "metadata": {"name": "t", "namespace": "default", "uid": "t", "labels": {"tekton.dev/pipelineTask": "b"},
            "ownerReferences": owner("PipelineRun", "r")},
        "spec": {}, "status": {"conditions": []},
    });
    let pod = json!({
        "metadata": {"name": "p", "ownerReferences": owner("TaskRun", "t")},
        "spec": {
            "volumes": [{"name": "ws-0", "persistentVolumeClaim": {"claimName": "cache"}}],
            "containers": [{"name": "c", "image": "i"}],
        },
    });
    (vec![run, task_run], pod)
}

#[test]
fn runs_of_every_wrong_shape_are_read_and_their_pods_get_a_patch_that_applies() {
    let (objects, pod) = run_and_pod();
    for mode in ["workspaces", "pipelineruns", "isolate-pipelinerun"] {
        let policy = Policy::from_yaml(&format!("coschedule: {{mode: {mode}}}")).unwrap();
        let (mut placed, mut unreadable) = (0, 0);
        for (index, whole) in objects.iter().enumerate() {
            for pointer in pointers(whole) {
                if pointer.is_empty() || pointer == "/kind" || pointer == "/apiVersion" {
                    continue;
                }
                let wrong = json!([null, true, -7, "é\n$(", [], {}, [[], null, 7], {"": {}},
                    "x".repeat(100_000)]);
                for wrong in wrong.as_array().unwrap() {
                    let mut spoilt = objects.clone();
                    *spoilt[index].pointer_mut(&pointer).unwrap() = wrong.clone();
                    let mut view = View::default();
                    for object in spoilt {
                        match systems::object(object) {
                            Ok(object) => object.into_iter().for_each(|object| view.apply(object)),
                            // Only metadata, which an API server writes itself.
                            Err(_) => {
                                assert!(pointer.starts_with("/metadata"), "{pointer}");
                                unreadable += 1;
                            }
                        }
                    }
                    let decision = decide_pod("default", &pod, &view, &policy).unwrap();
                    let patch = patch_of(&decision).unwrap();
                    let result = patched(&pod, &patch).unwrap();
                    keeps(&pod, &result).unwrap();
                    placed += usize::from(!patch.is_empty());
                }
            }
        }
        assert!(
            placed > 300 && unreadable > 10,
            "{mode}: {placed} placed, {unreadable} unreadable"
        );
    }
}

#[test]
fn a_run_as_large_as_an_object_may_be_is_decided_on() {
    let (mut objects, pod) = run_and_pod();
    let names: Vec<String> = (0..10_000).map(|index| format!("w{index}")).collect();
    let spec = &mut objects[0]["spec"];
    spec["workspaces"] = names
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
        .chain([json!({"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}})])
        .collect();
    spec["pipelineSpec"]["tasks"] = names
        .iter()
        .map(|name| json!({"name": name, "workspaces": [{"name": name}, {"name": "cache"}]}))
        .collect();
    spec["taskRunSpecs"] = names
        .iter()
        .map(|name| json!({"pipelineTaskName": name, "podTemplate": {"nodeSelector": {"a": name}}}))
        .collect();
    let decide = |objects: &[Value], mode: &str| {
        let policy = Policy::from_yaml(&format!("coschedule: {{mode: {mode}}}")).unwrap();
        decide_pod("default", &pod, &view_of(objects.to_vec()), &policy).unwrap()
    };
    for mode in ["workspaces", "isolate-pipelinerun"] {
        assert_eq!(decide(&objects, mode).outcome(), "placed", "{mode}");
    }
    // Nothing is shared any more: each task asks for a node of its own.
    objects[0]["spec"]["workspaces"] = json!([]);
    assert_eq!(decide(&objects, "pipelineruns").outcome(), "placed");
}
