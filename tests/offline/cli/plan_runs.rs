//! `stowplan plan`: PipelineRuns in its JSON, and runs that follow others. `sessions.rs` shows the rest.

use serde_json::{Value, json};

use super::command::{Folder, assert_snapshot, job};

/// A run with two claim templates; its task `build` uses both. `metadata` and `pipeline` in
/// flow style.
fn run_with(metadata: &str, pipeline: &str) -> String {
    let claim = "{spec: {accessModes: [ReadWriteOnce], storageClassName: now}}";
    format!(
        "apiVersion: tekton.dev/v1\nkind: PipelineRun\nmetadata: {{{metadata}}}\nspec:\n  {pipeline}\n  \
         workspaces: [{{name: source, volumeClaimTemplate: {claim}}}, {{name: cache, volumeClaimTemplate: {claim}}}]\n"
    )
}

const PIPELINE: &str = "pipelineSpec: {tasks: [{name: clone, workspaces: [{name: source}]}, \
    {name: build, workspaces: [{name: source}, {name: cache}]}, {name: lint}]}";

const RESOLVED: &str = "pipelineRef: {resolver: git}";

/// The entry of such a run in the JSON of its plan.
fn planned(metadata: &str, pipeline: &str) -> Value {
    job().plan_of("--cluster cluster -o json", run_with(metadata, pipeline)).first()
}

#[test]
fn a_planned_run_is_described_in_json() {
    let isolated = "name: r, uid: u, annotations: {stowplan.dev/coschedule: isolate-pipelinerun}";
    let mut shown = String::new();
    for (metadata, pipeline) in [(isolated, PIPELINE), ("name: r, uid: u", RESOLVED)] {
        shown += &format!("{:#}\n", planned(metadata, pipeline)["run"]);
    }
    assert_snapshot("plan_run_json", &shown);
    for pipeline in [RESOLVED, "pipelineSpec: {tasks: []}"] {
        let entry = planned("name: r, annotations: {stowplan.dev/coschedule: all}", pipeline);
        assert_eq!((&entry["code"], &entry["reason"]), (&json!(422), &json!("InvalidMode")));
    }
    let group = "name: r, annotations: {stowplan.dev/coschedule-group: g}";
    assert_eq!(planned(group, PIPELINE)["run"]["nativeGroup"], "g");
}

#[test]
fn a_run_follows_an_earlier_one_that_uses_its_claim() {
    let run = |metadata: &str| {
        let claim = "{name: cache, volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: now}}}";
        run_with(metadata, PIPELINE)
            .replace(claim, "{name: cache, persistentVolumeClaim: {claimName: shared}}")
    };
    let earlier = run("name: first, uid: a, creationTimestamp: '2026-01-01T00:00:00Z'");
    let task_run = "apiVersion: tekton.dev/v1\nkind: TaskRun\nmetadata:\n  name: t\n  uid: t\n  \
                    ownerReferences: [{apiVersion: tekton.dev/v1, kind: PipelineRun, name: first, uid: a, controller: true}]\n";
    let begun = format!("{earlier}\n---\n{task_run}");
    let folder = Folder::new(&[("cluster.yaml", &earlier), ("begun.yaml", &begun)]);
    let plan = |words: &str| folder.plan_of(words, run("name: second"));
    // A run that has not begun delays no other run.
    plan("--cluster cluster.yaml").lacks("is used by");
    let text =
        "claim shared is also used by the earlier PipelineRun first: is placed on the same node";
    plan("--cluster begun.yaml").shows(0, &[text]);
}

/// Tekton replaces them before it creates the pods.
#[test]
fn variables_of_pod_templates_are_replaced_by_the_params_of_the_run() {
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: shared}\n\
                 spec: {accessModes: [ReadWriteOnce]}\n";
    let run = "apiVersion: tekton.dev/v1\nkind: PipelineRun\nmetadata: {name: r}\nspec:\n  \
               params: [{name: claim, value: shared}]\n  \
               taskRunTemplate: {podTemplate: {nodeSelector: {arch: $(params.arch)}, volumes: [\
               {name: v, persistentVolumeClaim: {claimName: $(params.claim)}}]}}\n  \
               pipelineSpec: {tasks: [{name: a}, {name: b}]}\n";
    let folder = Folder::new(&[("cluster.yaml", claim)]);
    let output = folder.plan_of("--cluster cluster.yaml", run);
    output.shows(0, &["on one node: a, b", "pods of a, b:"]).lacks("$(");
    let entry = folder.plan_of("--cluster cluster.yaml -o json", run).first();
    assert_eq!(entry["run"]["groups"][0]["claims"], json!(["shared"]), "{entry}");
}
