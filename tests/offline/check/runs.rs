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
    let mut objects =
        standing(Some("n1"), &[room("n1", "4"), of_run("image-clone-pod", Some("n1"), "1")]);
    for asked in ["pipelinerun/image", "run/image", "pr/image", "pod/image-clone-pod"] {
        obstacles(&objects, asked).are(&[]);
    }
    let set = format!(
        "StatefulSet default/{PLACEHOLDER}\n    placed     node n1\n    asked      one node for tasks build, clone\n"
    );
    check(&objects, "pr/image").shows(0, &[&set]);
    objects[0]["status"] = json!({"completionTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Succeeded", "status": "True"}]});
    check(&objects, "pr/image").shows(0, &["it has ended"]);
}

#[test]
fn the_annotations_of_a_run_are_explained() {
    let key = "stowplan.dev/coschedule";
    obstacles(&[run_with(&annotated(key, "workspace"))], "pr/image")
        .is("stowplan.dev/coschedule of PipelineRun image: \"workspace\" is not a mode -> write one of disabled, workspaces, pipelineruns, isolate-pipelinerun");
    check(&[run_with(&annotated(key, "disabled"))], "pr/image")
        .shows(0, &["mode disabled, by its annotation stowplan.dev/coschedule"]);
    let grouped = run_with(&annotated("stowplan.dev/coschedule-group", "nightly"));
    check(&[grouped, task_run(false)], "pr/image").shows(0, &["its pods are of group nightly"]);
}

#[test]
fn a_missing_placeholder_names_what_should_create_it() {
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
    for (objects, expected) in [
        (vec![task_run(true)], "Tekton's own affinity assistant places this run…"),
        (vec![task_run(false), lease], "no controller of stowplan renews its Lease…"),
        (vec![task_run(false), other], "it does not exist: the controller has not created it…"),
        (
            vec![task_run(false), set(), node("n1"), running("x", "n1", json!({}))],
            "it has no pod: a quota, Pod Security…",
        ),
        (vec![lone], "Tekton has created no TaskRun of it yet…"),
    ] {
        obstacles(&[vec![run()], objects].concat(), "pr/image").is(expected);
    }
    // An object of a kind that was not given is not called missing.
    obstacles(&[run(), task_run(false)], "pr/image").are(&[]);
}

#[test]
fn a_run_whose_pod_a_quota_refuses_is_not_without_trouble() {
    let mut objects = standing(Some("n1"), &[room("n1", "4")]);
    objects[1]["status"] = json!({"conditions": [{"type": "Succeeded", "status": "Unknown",
        "reason": "ExceededResourceQuota", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    obstacles(&objects, "pr/image")
        .is("a ResourceQuota refuses TaskRun image-clone its pod -> kubectl describe resourcequota -n default: free or raise it");
}

#[test]
fn a_run_follows_an_earlier_one_with_the_same_claim() {
    let earlier = run_with(&json!({"metadata": {"name": "first", "uid": "other-uid",
        "creationTimestamp": "2025-01-01T00:00:00Z"}}));
    // A run that has not begun holds up no other.
    obstacles(&[run(), task_run(false), earlier.clone()], "pr/image").lacks("is also used");
    let begun = with(
        task_run(false),
        &json!({"metadata": {"name": "first-clone", "uid": "first-clone",
            "ownerReferences": owner("PipelineRun", "first", "other-uid")}}),
    );
    let mut objects = vec![run(), task_run(false), earlier, begun];
    obstacles(&objects, "pr/image")
        .is("claim cache is also used by the earlier PipelineRun first, whose placeholder has no node yet -> stowplan check pipelinerun/first -n default");
    // Its pod waits for the same.
    objects.push(of_run("image-build-pod", None, "1"));
    obstacles(&objects, "pod/image-build-pod")
        .has("claim cache is also used by the earlier PipelineRun first, whose…");
    objects.pop();
    objects[0] = run_with(&annotated("stowplan.dev/coschedule", "isolate-pipelinerun"));
    obstacles(&objects, "pr/image")
        .is("claim cache is also used by the earlier PipelineRun first, and runs are isolated: this one starts when that one has ended ->…");
}

#[test]
fn tasks_that_ask_for_different_nodes_contradict_each_other() {
    let task = |name: &str, arch: &str| {
        json!({"pipelineTaskName": name,
        "podTemplate": {"nodeSelector": {"kubernetes.io/arch": arch}}})
    };
    let specs = [task("clone", "amd64"), task("build", "arm64")];
    let found = obstacles(
        &[run_with(&json!({"spec": {"taskRunSpecs": specs}})), task_run(false)],
        "pr/image",
    );
    found.is("…kubernetes.io/arch=amd64…");
    found.is("…kubernetes.io/arch=arm64…");
}

#[test]
fn a_pipeline_that_does_not_exist_or_is_unknown_is_reported() {
    let referring = |reference: Value| {
        run_with(&json!({"spec": {"pipelineSpec": null, "pipelineRef": reference}}))
    };
    let other = json!({"apiVersion": "tekton.dev/v1", "kind": "Pipeline", "metadata": {"name": "other"}, "spec": {}});
    obstacles(&[referring(json!({"name": "build"})), task_run(false), other], "pr/image")
        .is("Pipeline build does not exist; until it does, all claims…");
    check(&[referring(json!({"resolver": "git"})), task_run(false)], "pr/image")
        .shows(0, &["its pipeline is a resolver's, so all claims"]);
}
