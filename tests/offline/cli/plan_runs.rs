//! `stowplan plan`: PipelineRuns and the claims of coscheduled groups.

use serde_json::{Value, json};

use super::command::{Folder, NODES, plan_of};
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

#[test]
fn a_run_is_planned_in_every_mode() {
    for (mode, groups, members, isolated) in [
        ("disabled", 0, &[][..], false),
        ("workspaces", 1, &["clone", "build"], false),
        ("pipelineruns", 1, &["clone", "build", "lint"], false),
        ("isolate-pipelinerun", 1, &["clone", "build", "lint"], true),
    ] {
        let metadata = format!("name: r, uid: u, annotations: {{stowplan.dev/coschedule: {mode}}}");
        let entry = planned(&run_with(&metadata, PIPELINE));
        let run = &entry["run"];
        assert_eq!((&entry["allowed"], &run["mode"]), (&json!(true), &json!(mode)), "{entry}");
        let of = run["groups"].as_array().expect("groups");
        assert_eq!(of.len(), groups, "{entry}");
        for group in of {
            assert_eq!(group["claims"].as_array().map(Vec::len), Some(2), "{entry}");
            assert_eq!(group["isolated"], json!(isolated), "{entry}");
            let placeholder = group["placeholder"].as_str().unwrap_or_default();
            assert!(placeholder.starts_with("affinity-assistant-"), "{entry}");
        }
        for task in run["tasks"].as_array().expect("tasks") {
            let is_member = members.iter().any(|member| task["name"] == *member);
            let changes = task["changes"].as_array().map_or(0, Vec::len);
            assert_eq!(changes > 0, is_member, "{mode}: {task}");
        }
    }
}

#[test]
fn a_run_is_planned_as_far_as_it_is_known() {
    let entry = planned(&run_with("name: r", RESOLVED));
    assert_eq!(entry["run"]["groups"][0]["tasks"], Value::Null, "{entry}");
    // Shown for any pod that uses the group's claims.
    let changes = &entry["run"]["groups"][0]["anyPod"]["changes"];
    assert!(changes.as_array().is_some_and(|changes| !changes.is_empty()), "{entry}");

    // Names that depend on the UID are not shown before there is a UID.
    let entry = planned(&run_with("generateName: image-", PIPELINE));
    assert_eq!(entry["name"], "image-");
    let group = &entry["run"]["groups"][0];
    assert_eq!(group.get("placeholder"), None, "{entry}");
    assert_eq!(group["claims"][0], "<claim of workspace source>", "{entry}");

    for (pipeline, sentence) in [
        (RESOLVED, "  its tasks come from a resolver, and are not known here"),
        (
            "pipelineRef: {name: image}",
            "  Pipeline image is not known here, and so its tasks are not",
        ),
        (
            "pipelineSpec: {tasks: [{name: inner, pipelineSpec: {tasks: []}}]}",
            "  its pipeline has nested pipelines, whose tasks are not known here",
        ),
    ] {
        let text = run_with("name: r", pipeline);
        let entry = planned(&text);
        assert_eq!((&entry["run"]["tasks"], &entry["reason"]), (&Value::Null, &json!("Placed")));
        plan_of("", text).has_lines(
            0,
            &[
                "PipelineRun default/r: coscheduled, 1 group",
                "  on one node: every task",
                "    a pod that uses them:",
                sentence,
                "1 object: 1 placed",
            ],
        );
    }
}

#[test]
fn a_run_is_coscheduled_or_not() {
    let excluded = run_with("name: r, namespace: kube-system", PIPELINE);
    let verdict = "PipelineRun kube-system/r: left alone: the policy excludes its namespace";
    plan_of("", excluded).has_lines(0, &[verdict]).lacks("on one node");
    let verdict = "PipelineRun default/r: unchanged: its pods may run anywhere";
    plan_of("", run_with("name: r", "pipelineSpec: {tasks: [{name: lint}]}"))
        .has_lines(0, &[verdict, "1 object: 1 unchanged"]);
    // A task may mount the claim itself.
    let volume = "pipelineSpec: {tasks: [{name: build, taskSpec: {volumes: [{name: c, \
                  persistentVolumeClaim: {claimName: cache}}]}}]}";
    plan_of("", run_with("name: r", volume))
        .has_lines(0, &["  on one node: build", "  pod of build:", "1 object: 1 placed"]);
}

/// Tekton copies the annotation to the run's pods.
#[test]
fn a_run_that_names_a_group_is_planned_with_that_group() {
    for (pipeline, placed) in [(PIPELINE, "  pods of "), (RESOLVED, "")] {
        let text = run_with("name: r, annotations: {stowplan.dev/coschedule-group: g}", pipeline);
        let verdict = "PipelineRun default/r: coscheduled with all pods of group g";
        plan_of("", &text).has_lines(0, &[verdict, "1 object: 1 placed"]).shows(0, &[placed]);
        assert_eq!(planned(&text)["run"]["nativeGroup"], "g");
        let entry = planned(&text.replace("coschedule-group: g", "coschedule-group: -bad-"));
        assert_eq!((&entry["code"], &entry["reason"]), (&json!(422), &json!("InvalidGroup")));
    }
}

/// A class of one provisioner. `annotations` in flow style.
fn class(name: &str, created: &str, annotations: &str, mode: &str) -> String {
    format!(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: {name}, \
         creationTimestamp: '{created}T00:00:00Z', annotations: {{{annotations}}}}}\n\
         provisioner: {provisioner}\nvolumeBindingMode: {mode}\n---\n",
        provisioner = name.split('-').next().unwrap_or_default(),
    )
}

/// The API server has filled in the default class before it asks the webhook.
#[test]
fn a_claim_without_a_class_is_planned_with_the_default_one() {
    let is_default = |is: bool| format!("storageclass.kubernetes.io/is-default-class: '{is}'");
    let classes = [
        class("old-now", "2026-01-01", &is_default(true), "Immediate"),
        class("old-waits", "2026-01-01", "", "WaitForFirstConsumer"),
        class("new-now", "2026-02-01", &is_default(true), "Immediate"),
        class("new-waits", "2026-02-01", "", "WaitForFirstConsumer"),
        class("newest-now", "2026-03-01", &is_default(false), "Immediate"),
    ];
    let folder = Folder::new(&[("classes.yaml", &classes.concat())]);
    let run = run_with("name: r", PIPELINE);
    for (class, expected) in [
        ("", "storage class new-waits"),
        (", storageClassName: old-now", "storage class old-waits"),
        // A volume without a class is what this one asks for.
        (", storageClassName: ''", "as it is"),
    ] {
        let text = run.replace(", storageClassName: now", class);
        let expected = format!("claim of workspace source: {expected}");
        folder.plan_of("--cluster classes.yaml", text).shows(0, &[&expected]);
    }
    let claim = claim("{accessModes: [ReadWriteOnce]}");
    folder.plan_of("--cluster classes.yaml", &claim).shows(0, &["storage class new-waits"]);
    folder
        .plan_of("--cluster classes.yaml -o yaml", &claim)
        .shows(0, &["storageClassName: new-waits"]);
}

#[test]
fn an_unknown_class_is_reported() {
    let hint = "(no cluster given: use --cluster or --live)";
    let folder = Folder::new(&[("nodes.yaml", NODES)]);
    let run = run_with("name: r", PIPELINE);
    let without = run.replace(", storageClassName: now", "");
    let disabled = run_with("name: r, annotations: {stowplan.dev/coschedule: disabled}", PIPELINE);
    for (words, text, expected) in [
        ("", &run, format!("class now is not known here {hint}")),
        ("", &without, format!("the cluster's default class is not known here {hint}")),
        // Given a cluster, the hint is left out.
        ("--cluster nodes.yaml", &run, "class now is not known here".to_owned()),
        ("--cluster nodes.yaml", &without, "as it is".to_owned()),
        // A claim that is not moved needs no class.
        ("", &disabled, "as it is".to_owned()),
    ] {
        let line = format!("\n  claim of workspace source: {expected}\n");
        folder.plan_of(words, text).shows(0, &[&line]);
    }
    let unknown = format!("class now is not known here {hint}");
    let entry = plan_of("-o json", run).first();
    assert_eq!(entry["run"]["claims"][0]["unknown"], unknown, "{entry}");
    plan_of("", claim("{storageClassName: now}")).has_lines(
        0,
        &[
            "PersistentVolumeClaim default/c: unchanged, as far as is known here",
            &format!("  {unknown}"),
        ],
    );
}

#[test]
fn a_run_with_an_invalid_mode_is_refused() {
    for pipeline in [PIPELINE, RESOLVED, "pipelineSpec: {tasks: []}"] {
        let text = run_with("name: r, annotations: {stowplan.dev/coschedule: all}", pipeline);
        let modes = "disabled, workspaces, pipelineruns, isolate-pipelinerun";
        plan_of("", &text).shows(1, &["\"all\" is not a mode", modes]);
        let entry = planned(&text);
        assert_eq!((&entry["code"], &entry["reason"]), (&json!(422), &json!("InvalidMode")));
    }
    plan_of("", run_with("labels: {a: b}", PIPELINE))
        .fails("…has neither metadata.name nor metadata.generateName…");
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
