//! `stowplan plan`: PipelineRuns and the claims of coscheduled groups.

use serde_json::{Value, json};

use super::command::{Folder, NODES, Shown, plan_of};
use super::plan_objects::planned;

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

/// A claim of group `g`; `spec` in flow style.
fn claim(spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: PersistentVolumeClaim\n\
         metadata: {{name: c, annotations: {{stowplan.dev/coschedule-group: g}}}}\nspec: {spec}\n"
    )
}

/// What `plan` prints about one run, as JSON.
fn described(run: &Value) -> String {
    serde_json::to_string_pretty(run).expect("JSON")
}

#[test]
fn a_run_is_planned_in_every_mode() {
    let mut shown = Shown::default();
    for mode in ["disabled", "workspaces", "pipelineruns", "isolate-pipelinerun", "all"] {
        let metadata = format!("name: r, uid: u, annotations: {{stowplan.dev/coschedule: {mode}}}");
        shown.add(mode, &plan_of("", run_with(&metadata, PIPELINE)));
        if mode == "isolate-pipelinerun" {
            shown.0 += &described(&planned(&run_with(&metadata, PIPELINE))["run"]);
        }
    }
    for pipeline in [RESOLVED, "pipelineSpec: {tasks: []}"] {
        let entry =
            planned(&run_with("name: r, annotations: {stowplan.dev/coschedule: all}", pipeline));
        assert_eq!((&entry["code"], &entry["reason"]), (&json!(422), &json!("InvalidMode")));
    }
    // Names that depend on the UID are not shown before there is a UID.
    shown.add("without a UID", &plan_of("", run_with("generateName: image-", PIPELINE)));
    let entry = planned(&run_with("generateName: image-", PIPELINE));
    assert_eq!(entry["run"]["groups"][0].get("placeholder"), None, "{entry}");
    shown.add("without a name", &plan_of("", run_with("labels: {a: b}", PIPELINE)));
    shown.compare("plan_run_modes");
}

#[test]
fn a_run_is_planned_as_far_as_it_is_known() {
    let mut shown = Shown::default();
    let nested = "pipelineSpec: {tasks: [{name: inner, pipelineSpec: {tasks: []}}]}";
    // A task may mount the claim itself.
    let volume = "pipelineSpec: {tasks: [{name: build, taskSpec: {volumes: [{name: c, \
                  persistentVolumeClaim: {claimName: cache}}]}}]}";
    for (label, metadata, pipeline) in [
        ("a resolver", "name: r", RESOLVED),
        ("a Pipeline", "name: r", "pipelineRef: {name: image}"),
        ("nested pipelines", "name: r", nested),
        ("an excluded namespace", "name: r, namespace: kube-system", PIPELINE),
        ("no claim", "name: r", "pipelineSpec: {tasks: [{name: lint}]}"),
        ("a claim of a task", "name: r", volume),
        // Tekton copies the annotation to the run's pods.
        ("a group", GROUP, PIPELINE),
        ("a group, and a resolver", GROUP, RESOLVED),
        (
            "an invalid group",
            "name: r, annotations: {stowplan.dev/coschedule-group: -bad-}",
            PIPELINE,
        ),
    ] {
        shown.add(label, &plan_of("", run_with(metadata, pipeline)));
    }
    shown.0 += &described(&planned(&run_with("name: r, uid: u", RESOLVED))["run"]);
    assert_eq!(planned(&run_with(GROUP, PIPELINE))["run"]["nativeGroup"], "g");
    let invalid = GROUP.replace("group: g", "group: -bad-");
    assert_eq!(planned(&run_with(&invalid, PIPELINE))["reason"], "InvalidGroup");
    shown.compare("plan_run_pipelines");
}

const GROUP: &str = "name: r, annotations: {stowplan.dev/coschedule-group: g}";

/// A class of one provisioner. `annotations` in flow style.
fn class(name: &str, created: &str, annotations: &str, mode: &str) -> String {
    format!(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: {name}, \
         creationTimestamp: '{created}T00:00:00Z', annotations: {{{annotations}}}}}\n\
         provisioner: {provisioner}\nvolumeBindingMode: {mode}\n---\n",
        provisioner = name.split('-').next().unwrap_or_default(),
    )
}

#[test]
fn claims_are_planned_with_the_classes_that_are_known() {
    let mut shown = Shown::default();
    let is_default = |is: bool| format!("storageclass.kubernetes.io/is-default-class: '{is}'");
    let classes = [
        class("old-now", "2026-01-01", &is_default(true), "Immediate"),
        class("old-waits", "2026-01-01", "", "WaitForFirstConsumer"),
        class("new-now", "2026-02-01", &is_default(true), "Immediate"),
        class("new-waits", "2026-02-01", "", "WaitForFirstConsumer"),
        class("newest-now", "2026-03-01", &is_default(false), "Immediate"),
    ];
    let folder = Folder::new(&[("classes.yaml", &classes.concat()), ("nodes.yaml", NODES)]);
    let run = run_with("name: r", PIPELINE);
    let of_class = |class: &str| run.replace(", storageClassName: now", class);
    let disabled = run_with("name: r, annotations: {stowplan.dev/coschedule: disabled}", PIPELINE);
    for (label, words, text) in [
        // The API server has filled in the default class before it asks the webhook.
        ("the default class", "--cluster classes.yaml", of_class("")),
        ("a class", "--cluster classes.yaml", of_class(", storageClassName: old-now")),
        // A volume without a class is what this one asks for.
        ("no class", "--cluster classes.yaml", of_class(", storageClassName: ''")),
        ("a claim", "--cluster classes.yaml", claim("{accessModes: [ReadWriteOnce]}")),
        (
            "a claim as YAML",
            "--cluster classes.yaml -o yaml",
            claim("{accessModes: [ReadWriteOnce]}"),
        ),
        ("no cluster", "", run.clone()),
        ("no cluster, the default class", "", of_class("")),
        // Given a cluster, the hint is left out.
        ("a cluster without classes", "--cluster nodes.yaml", run.clone()),
        ("a cluster without classes, the default class", "--cluster nodes.yaml", of_class("")),
        // A claim that is not moved needs no class.
        ("disabled", "", disabled),
        ("a claim of an unknown class", "", claim("{storageClassName: now}")),
    ] {
        shown.add(label, &folder.plan_of(words, text));
    }
    let entry = plan_of("-o json", run).first();
    let unknown = "class now is not known here (no cluster given: use --cluster or --live)";
    assert_eq!(entry["run"]["claims"][0]["unknown"], unknown, "{entry}");
    shown.compare("plan_claims");
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
    let text = "claim shared is used by the earlier PipelineRun first: is placed on the same node";
    plan("--cluster begun.yaml").shows(0, &[text]);
}
