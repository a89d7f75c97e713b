//! Tekton runs: mode, pipeline, claims shared with other runs.

use serde_json::{Value, json};

use super::objects::*;

/// The run with these fields.
fn run_with(fields: &Value) -> Value {
    with(run(), fields)
}

fn annotated(key: &str, value: &str) -> Value {
    json!({"metadata": {"annotations": {key: value}}})
}

#[test]
fn a_run_without_trouble_has_no_obstacle() {
    let mut found = Findings::default();
    let mut objects =
        standing(Some("n1"), &[room("n1", "4"), of_run("image-clone-pod", Some("n1"), "1")]);
    for asked in ["pipelinerun/image", "run/image", "pod/image-clone-pod"] {
        assert_eq!(obstacles(&objects, asked), [""; 0], "{asked}");
    }
    found.show("running", &objects, "pr/image");
    objects[0]["status"] = json!({"completionTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Succeeded", "status": "True"}]});
    found.show("ended", &objects, "pr/image");
    found.compare("run");
}

#[test]
fn the_annotations_and_the_pipeline_of_a_run_are_explained() {
    let mut found = Findings::default();
    let key = "stowplan.dev/coschedule";
    found.add("an invalid mode", &[run_with(&annotated(key, "workspace"))], "pr/image");
    found.show("disabled", &[run_with(&annotated(key, "disabled"))], "pr/image");
    let grouped = run_with(&annotated("stowplan.dev/coschedule-group", "nightly"));
    found.show("of a group", &[grouped, task_run(false)], "pr/image");
    let referring = |reference: Value| {
        run_with(&json!({"spec": {"pipelineSpec": null, "pipelineRef": reference}}))
    };
    let other = json!({"apiVersion": "tekton.dev/v1", "kind": "Pipeline", "metadata": {"name": "other"}, "spec": {}});
    let objects = [referring(json!({"name": "build"})), task_run(false), other];
    found.add("the Pipeline does not exist", &objects, "pr/image");
    let objects = [referring(json!({"resolver": "git"})), task_run(false)];
    found.show("the pipeline is a resolver's", &objects, "pr/image");
    let task = |name: &str, arch: &str| {
        json!({"pipelineTaskName": name,
        "podTemplate": {"nodeSelector": {"kubernetes.io/arch": arch}}})
    };
    let specs = [task("clone", "amd64"), task("build", "arm64")];
    let objects = [run_with(&json!({"spec": {"taskRunSpecs": specs}})), task_run(false)];
    found.add("its tasks ask for different nodes", &objects, "pr/image");
    found.compare("annotations_of_a_run");
}

#[test]
fn what_should_create_a_missing_placeholder_or_pod_is_named() {
    let mut found = Findings::default();
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "stowplan-controller", "namespace": "stowplan"}, "spec": {"holderIdentity": ""}});
    let set = || stateful_set("workspaces", &[]);
    let name = "affinity-assistant-0123456789";
    let other = with(
        set(),
        &json!({"metadata": {"name": name, "labels": {"stowplan.dev/placeholder": name},
            "ownerReferences": owner("PipelineRun", "other", "other")}}),
    );
    let lone = with(task_run(false), &json!({"metadata": {"ownerReferences": []}}));
    let without_pod = vec![task_run(false), set(), node("n1"), running("x", "n1", json!({}))];
    for (label, objects) in [
        ("Tekton's own assistant", vec![task_run(true)]),
        ("no controller", vec![task_run(false), lease]),
        ("only the placeholder of another run", vec![task_run(false), other]),
        ("no pod of the placeholder", without_pod),
        ("no TaskRun", vec![lone]),
        // An object of a kind that was not given is not called missing.
        ("no StatefulSets given", vec![task_run(false)]),
    ] {
        found.add(label, &[vec![run()], objects].concat(), "pr/image");
    }
    let mut objects = standing(Some("n1"), &[room("n1", "4")]);
    objects[1]["status"] = json!({"conditions": [{"type": "Succeeded", "status": "Unknown",
        "reason": "ExceededResourceQuota", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    found.add("a quota refuses a pod", &objects, "pr/image");
    found.compare("missing_placeholder");
}

#[test]
fn a_run_follows_an_earlier_one_with_the_same_claim() {
    let mut found = Findings::default();
    let earlier = run_with(&json!({"metadata": {"name": "first", "uid": "other-uid",
        "creationTimestamp": "2025-01-01T00:00:00Z"}}));
    let objects = [run(), task_run(false), earlier.clone()];
    found.add("the earlier run has not begun", &objects, "pr/image");
    let begun = with(
        task_run(false),
        &json!({"metadata": {"name": "first-clone", "uid": "first-clone",
            "ownerReferences": owner("PipelineRun", "first", "other-uid")}}),
    );
    let mut objects = vec![run(), task_run(false), earlier, begun];
    found.add("it has begun", &objects, "pr/image");
    // Its pod waits for the same.
    objects.push(of_run("image-build-pod", None, "1"));
    found.add("it has begun: the pod", &objects, "pod/image-build-pod");
    objects.pop();
    objects[0] = run_with(&annotated("stowplan.dev/coschedule", "isolate-pipelinerun"));
    found.add("it has begun, and runs are isolated", &objects, "pr/image");
    found.compare("earlier_run");
}
