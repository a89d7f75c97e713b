//! Tekton runs: mode, pipeline, claims shared with other runs.

use std::process::Command;

use serde_json::json;

use super::objects::*;

#[test]
fn a_run_without_trouble_has_no_obstacle() {
    let objects =
        standing(Some("n1"), &[room("n1", "4"), of_run("image-clone-pod", Some("n1"), "1")]);
    for asked in ["pipelinerun/image", "run/image", "pr/image", "pod/image-clone-pod"] {
        assert!(obstacles(&objects, asked).is_empty(), "{asked}");
    }
    let (_, out, _) = said(&objects, "pr/image", &[]);
    assert!(out.contains(&format!("StatefulSet default/{PLACEHOLDER}\n    placed     node n1\n    asked      one node for tasks build, clone\n")), "{out}");
    let mut ended = objects;
    ended[0]["status"] = json!({"completionTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Succeeded", "status": "True"}]});
    let (code, out, _) = said(&ended, "pr/image", &[]);
    assert_eq!(code, 0);
    assert!(out.contains("it has ended"), "{out}");
}

#[test]
fn an_invalid_mode_is_an_obstacle_and_mode_disabled_is_none() {
    let mut odd = run();
    odd["metadata"]["annotations"] = json!({"stowplan.dev/coschedule": "workspace"});
    assert_eq!(
        obstacles(&[odd.clone()], "pr/image"),
        [
            "stowplan.dev/coschedule of PipelineRun image: \"workspace\" is not a mode -> write one of disabled, workspaces, pipelineruns, isolate-pipelinerun"
        ]
    );
    odd["metadata"]["annotations"] = json!({"stowplan.dev/coschedule": "disabled"});
    let (code, out, _) = said(&[odd], "pr/image", &[]);
    assert_eq!(code, 0);
    assert!(out.contains("mode disabled, by its annotation stowplan.dev/coschedule"), "{out}");
}

#[test]
fn a_missing_placeholder_names_what_should_create_it() {
    let found = obstacles(&[run(), task_run(true)], "pr/image");
    assert!(found[0].starts_with("Tekton's own affinity assistant places this run"), "{found:?}");
    assert_eq!(found.len(), 1);

    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "stowplan-controller", "namespace": "stowplan"}, "spec": {"holderIdentity": ""}});
    let found = obstacles(&[run(), task_run(false), lease], "pr/image");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("no controller of stowplan renews its Lease"), "{found:?}");

    // An object of a kind that was not given is not called missing.
    assert!(obstacles(&[run(), task_run(false)], "pr/image").is_empty());
    let mut other = stateful_set("workspaces", &[]);
    for path in ["/metadata/name", "/metadata/labels/stowplan.dev~1placeholder"] {
        *other.pointer_mut(path).unwrap() = json!("affinity-assistant-0123456789");
    }
    other["metadata"]["ownerReferences"] = owner("PipelineRun", "other", "other");
    let found = obstacles(&[run(), task_run(false), other], "pr/image");
    assert!(
        found[0].starts_with("it does not exist: the controller has not created it"),
        "{found:?}"
    );
    let set = stateful_set("workspaces", &[]);
    let found = obstacles(
        &[run(), task_run(false), set, node("n1"), running("x", "n1", json!({}))],
        "pr/image",
    );
    assert!(found[0].starts_with("it has no pod: a quota, Pod Security"), "{found:?}");
    let mut lone = task_run(false);
    lone["metadata"]["ownerReferences"] = json!([]);
    let found = obstacles(&[run(), lone], "pr/image");
    assert!(found[0].starts_with("Tekton has created no TaskRun of it yet"), "{found:?}");
}

#[test]
fn a_run_whose_pod_a_quota_refuses_is_not_without_trouble() {
    let mut objects = standing(Some("n1"), &[room("n1", "4")]);
    let refused = objects.iter_mut().find(|of| of["kind"] == "TaskRun").unwrap();
    refused["status"] = json!({"conditions": [{"type": "Succeeded", "status": "Unknown",
        "reason": "ExceededResourceQuota", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let name = refused["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(
        obstacles(&objects, "pr/image"),
        [format!(
            "a ResourceQuota refuses TaskRun {name} its pod -> kubectl describe resourcequota -n default: free or raise it"
        )]
    );
}

#[test]
fn a_run_follows_an_earlier_one_with_the_same_claim() {
    let mut earlier = run();
    earlier["metadata"]["name"] = json!("first");
    earlier["metadata"]["uid"] = json!("other-uid");
    earlier["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
    let found = obstacles(&[run(), task_run(false), earlier.clone()], "pr/image");
    let waits = found.iter().any(|found| found.contains("is also used"));
    assert!(!waits, "a run that has not begun holds up no other: {found:?}");
    let mut begun = task_run(false);
    begun["metadata"]["name"] = json!("first-clone");
    begun["metadata"]["uid"] = json!("first-clone");
    begun["metadata"]["ownerReferences"][0]["name"] = json!("first");
    begun["metadata"]["ownerReferences"][0]["uid"] = json!("other-uid");
    let found = obstacles(&[run(), task_run(false), earlier.clone(), begun.clone()], "pr/image");
    assert_eq!(
        found,
        [
            "claim cache is also used by the earlier PipelineRun first, whose placeholder has no node yet -> stowplan check pipelinerun/first -n default"
        ]
    );
    // Its pod waits for the same.
    let pod = of_run("image-build-pod", None, "1");
    let found = obstacles(
        &[run(), task_run(false), earlier.clone(), begun.clone(), pod],
        "pod/image-build-pod",
    );
    assert!(
        found.iter().any(|found| found
            .starts_with("claim cache is also used by the earlier PipelineRun first, whose")),
        "{found:?}"
    );
    let mut isolated = run();
    isolated["metadata"]["annotations"] = json!({"stowplan.dev/coschedule": "isolate-pipelinerun"});
    let found = obstacles(&[isolated, task_run(false), earlier, begun], "pr/image");
    assert!(
        found[0].starts_with(
            "claim cache is also used by the earlier PipelineRun first, and runs are isolated: this one starts when that one has ended ->"
        ),
        "{found:?}"
    );
}

#[test]
fn a_run_that_names_a_group_has_none_of_its_own() {
    let mut run = run();
    run["metadata"]["annotations"] = json!({"stowplan.dev/coschedule-group": "nightly"});
    let (code, out, _) = said(&[run, task_run(false)], "pr/image", &[]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("its pods are of group nightly"), "{out}");
}

#[test]
fn tasks_that_ask_for_different_nodes_contradict_each_other() {
    let mut run = run();
    let task = |name: &str, arch: &str| {
        json!({"pipelineTaskName": name,
        "podTemplate": {"nodeSelector": {"kubernetes.io/arch": arch}}})
    };
    run["spec"]["taskRunSpecs"] = json!([task("clone", "amd64"), task("build", "arm64")]);
    let found = obstacles(&[run, task_run(false)], "pr/image");
    assert_eq!(found.len(), 1);
    assert!(
        found[0].contains("kubernetes.io/arch=amd64")
            && found[0].contains("kubernetes.io/arch=arm64"),
        "{found:?}"
    );
}

#[test]
fn a_pipeline_that_does_not_exist_or_is_unknown_is_reported() {
    let other = json!({"apiVersion": "tekton.dev/v1", "kind": "Pipeline", "metadata": {"name": "other"}, "spec": {}});
    let mut named = run();
    let spec = named["spec"].as_object_mut().unwrap();
    spec.remove("pipelineSpec");
    spec.insert("pipelineRef".to_owned(), json!({"name": "build"}));
    let found = obstacles(&[named, task_run(false), other], "pr/image");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("Pipeline build does not exist; until it does, all claims"),
        "{found:?}"
    );
    let mut resolved = run();
    let spec = resolved["spec"].as_object_mut().unwrap();
    spec.remove("pipelineSpec");
    spec.insert("pipelineRef".to_owned(), json!({"resolver": "git"}));
    let (code, out, _) = said(&[resolved, task_run(false)], "pr/image", &[]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("its pipeline is a resolver's, so all claims"), "{out}");
}

#[test]
fn the_example_of_a_waiting_run_says_why() {
    let output = Command::new(env!("CARGO_BIN_EXE_stowplan"))
        .args(["check", "pipelinerun/image", "--cluster", "examples/waiting-run.yaml"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains(
            "obstacle   node node-1 is cordoned; volume pv-cache of claim build-cache-pvc can be mounted only on node-1"
        ),
        "{text}"
    );
    assert!(text.contains("remedy     kubectl uncordon node-1"), "{text}");
}
