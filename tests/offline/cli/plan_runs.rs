//! `stowplan plan`: PipelineRuns and the claims of coscheduled groups.

use serde_json::{Value, json};

use super::command::{Folder, NODES};
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

#[test]
fn a_run_is_planned_in_every_mode() {
    for (mode, groups, members, isolated) in [
        ("disabled", 0, vec![], false),
        ("workspaces", 1, vec!["clone", "build"], false),
        ("pipelineruns", 1, vec!["clone", "build", "lint"], false),
        ("isolate-pipelinerun", 1, vec!["clone", "build", "lint"], true),
    ] {
        let entry = planned(&run_with(
            &format!("name: r, uid: u, annotations: {{stowplan.dev/coschedule: {mode}}}"),
            PIPELINE,
        ));
        let run = &entry["run"];
        assert_eq!((&entry["allowed"], &run["mode"]), (&json!(true), &json!(mode)), "{entry}");
        let of = run["groups"].as_array().unwrap_or_else(|| panic!("{entry}"));
        assert_eq!(of.len(), groups, "{entry}");
        for group in of {
            assert_eq!(group["claims"].as_array().map(Vec::len), Some(2), "{entry}");
            assert_eq!(group["isolated"], json!(isolated), "{entry}");
            assert!(
                group["placeholder"].as_str().is_some_and(|n| n.starts_with("affinity-assistant-"))
            );
        }
        for task in run["tasks"].as_array().unwrap_or_else(|| panic!("{entry}")) {
            let is_member = members.iter().any(|member| task["name"] == *member);
            let changes = task["changes"].as_array().map_or(0, Vec::len);
            assert_eq!(changes > 0, is_member, "{mode}: {task}");
        }
    }
}

#[test]
fn a_run_is_planned_as_far_as_it_is_known() {
    let entry = planned(&run_with("name: r", "pipelineRef: {resolver: git}"));
    assert_eq!(entry["run"]["tasks"], Value::Null, "{entry}");
    assert_eq!(entry["run"]["groups"][0]["tasks"], Value::Null, "{entry}");
    // Shown for any pod that uses the group's claims.
    assert_eq!(entry["reason"], "Placed", "{entry}");
    let changes = &entry["run"]["groups"][0]["anyPod"]["changes"];
    assert!(changes.as_array().is_some_and(|changes| !changes.is_empty()), "{entry}");

    // Names that depend on the UID are not shown before there is a UID.
    let entry = planned(&run_with("generateName: image-", PIPELINE));
    assert_eq!(entry["name"], "image-");
    let group = &entry["run"]["groups"][0];
    assert_eq!(group.get("placeholder"), None, "{entry}");
    assert_eq!(group["claims"][0], "<claim of workspace source>", "{entry}");

    let nested = "pipelineSpec: {tasks: [{name: inner, pipelineSpec: {tasks: []}}]}";
    let entry = planned(&run_with("name: r", nested));
    assert_eq!(
        entry["run"]["tasks"],
        Value::Null,
        "the tasks are those of the pipeline in it: {entry}"
    );
    assert_eq!(entry["reason"], "Placed", "{entry}");

    for (pipeline, sentence) in [
        ("pipelineRef: {resolver: git}", "its tasks come from a resolver, and are not known here"),
        (
            "pipelineRef: {name: image}",
            "Pipeline image is not known here, and so its tasks are not",
        ),
        (nested, "its pipeline has nested pipelines, whose tasks are not known here"),
    ] {
        let output = Folder::new(&[]).plan_with("-f -", run_with("name: r", pipeline).as_bytes());
        for line in [
            "PipelineRun default/r: coscheduled, 1 group",
            "  on one node: every task",
            "    a pod that uses them:",
            &format!("  {sentence}"),
            "1 object: 1 placed",
        ] {
            assert!(output.stdout.lines().any(|it| it == line), "{line}\n{}", output.stdout);
        }
    }
}

#[test]
fn what_is_left_alone_is_not_coscheduled() {
    let run = run_with("name: r, namespace: kube-system", PIPELINE);
    let output = Folder::new(&[]).plan_with("-f -", run.as_bytes());
    let verdict = "PipelineRun kube-system/r: left alone: the policy excludes its namespace";
    assert!(output.stdout.lines().any(|line| line == verdict), "{}", output.stdout);
    assert!(!output.stdout.contains("on one node"), "{}", output.stdout);

    let run = run_with("name: r", "pipelineSpec: {tasks: [{name: lint}]}");
    let output = Folder::new(&[]).plan_with("-f -", run.as_bytes());
    let verdict = "PipelineRun default/r: unchanged: its pods may run anywhere";
    assert!(output.stdout.lines().any(|line| line == verdict), "{}", output.stdout);
    assert!(output.stdout.contains("1 object: 1 unchanged"), "{}", output.stdout);
}

/// Tekton copies the annotation to the run's pods.
#[test]
fn a_run_that_names_a_group_is_planned_with_that_group() {
    for (pipeline, placed) in [(PIPELINE, "  pods of "), ("pipelineRef: {resolver: git}", "")] {
        let text = run_with("name: r, annotations: {stowplan.dev/coschedule-group: g}", pipeline);
        let output = Folder::new(&[]).plan_with("-f -", text.as_bytes());
        let verdict = "PipelineRun default/r: coscheduled with all pods of group g";
        assert!(output.stdout.lines().any(|line| line == verdict), "{}", output.stdout);
        assert!(output.stdout.contains(placed), "{}", output.stdout);
        assert!(output.stdout.contains("1 object: 1 placed"), "{}", output.stdout);
        assert_eq!(planned(&text)["run"]["nativeGroup"], "g");
        let text = text.replace("coschedule-group: g", "coschedule-group: -bad-");
        let entry = planned(&text);
        assert_eq!((&entry["code"], &entry["reason"]), (&json!(422), &json!("InvalidGroup")));
    }
}

#[test]
fn a_claim_that_a_task_mounts_itself_is_planned() {
    let run = run_with(
        "name: r",
        "pipelineSpec: {tasks: [{name: build, taskSpec: {volumes: [{name: c, \
         persistentVolumeClaim: {claimName: cache}}]}}]}",
    );
    let output = Folder::new(&[]).plan_with("-f -", run.as_bytes());
    for line in ["  on one node: build", "  pod of build:"] {
        assert!(output.stdout.lines().any(|it| it == line), "{line}\n{}", output.stdout);
    }
    assert!(output.stdout.contains("1 object: 1 placed"), "{}", output.stdout);
}

/// A class of one provisioner. `annotations` in flow style.
fn class(name: &str, created: &str, annotations: &str, mode: &str) -> String {
    format!(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: {name}, \
         creationTimestamp: '{created}T00:00:00Z', annotations: {{{annotations}}}}}\n\
         provisioner: {provisioner}\nvolumeBindingMode: {mode}\n",
        provisioner = name.split('-').next().unwrap_or_default(),
    )
}

/// The API server has filled in the default class before it asks the webhook.
#[test]
fn a_claim_without_a_class_is_planned_with_the_default_one() {
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class: 'true'";
    let classes = [
        class("old-now", "2026-01-01", DEFAULT, "Immediate"),
        class("old-waits", "2026-01-01", "", "WaitForFirstConsumer"),
        class("new-now", "2026-02-01", DEFAULT, "Immediate"),
        class("new-waits", "2026-02-01", "", "WaitForFirstConsumer"),
        class(
            "newest-now",
            "2026-03-01",
            "storageclass.kubernetes.io/is-default-class: 'false'",
            "Immediate",
        ),
    ]
    .join("---\n");
    let folder = Folder::new(&[("classes.yaml", &classes)]);
    let plan = |text: &str| folder.plan_with("-f - --cluster classes.yaml", text.as_bytes()).stdout;
    let run = run_with("name: r", PIPELINE);
    let text = plan(&run.replace(", storageClassName: now", ""));
    assert!(text.contains("claim of workspace source: storage class new-waits"), "{text}");
    let text = plan(&run.replace("storageClassName: now", "storageClassName: old-now"));
    assert!(text.contains("claim of workspace source: storage class old-waits"), "{text}");
    // A volume without a class is what this one asks for.
    let text = plan(&run.replace("storageClassName: now", "storageClassName: ''"));
    assert!(text.contains("claim of workspace source: as it is"), "{text}");

    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\n\
        metadata: {name: c, annotations: {stowplan.dev/coschedule-group: g}}\n\
        spec: {accessModes: [ReadWriteOnce]}\n";
    let text = plan(claim);
    assert!(text.contains("storage class new-waits"), "{text}");
    let placed = folder.plan_with("-f - --cluster classes.yaml -o yaml", claim.as_bytes());
    assert!(placed.stdout.contains("storageClassName: new-waits"), "{placed:?}");
}

#[test]
fn an_unknown_class_is_reported() {
    const HINT: &str = "(no cluster given: use --cluster or --live)";
    let run = run_with("name: r", PIPELINE);
    let output = Folder::new(&[]).plan_with("-f -", run.as_bytes());
    let line = format!("  claim of workspace source: class now is not known here {HINT}");
    assert!(output.stdout.lines().any(|it| it == line), "{}", output.stdout);
    let json = Folder::new(&[]).plan_with("-f - -o json", run.as_bytes()).json();
    let unknown = format!("class now is not known here {HINT}");
    assert_eq!(json["items"][0]["run"]["claims"][0]["unknown"], unknown, "{json}");

    let without = run.replace(", storageClassName: now", "");
    let output = Folder::new(&[]).plan_with("-f -", without.as_bytes());
    let line = format!(
        "  claim of workspace source: the cluster's default class is not known here {HINT}"
    );
    assert!(output.stdout.lines().any(|it| it == line), "{}", output.stdout);

    // Given a cluster, the hint is left out.
    let folder = Folder::new(&[("nodes.yaml", NODES)]);
    let output = folder.plan_with("-f - --cluster nodes.yaml", run.as_bytes());
    let line = "  claim of workspace source: class now is not known here";
    assert!(output.stdout.lines().any(|it| it == line), "{}", output.stdout);
    let output = folder.plan_with("-f - --cluster nodes.yaml", without.as_bytes());
    assert!(output.stdout.contains("claim of workspace source: as it is"), "{}", output.stdout);

    // A claim that is not moved needs no class.
    let run = run_with("name: r, annotations: {stowplan.dev/coschedule: disabled}", PIPELINE);
    let output = Folder::new(&[]).plan_with("-f -", run.as_bytes());
    assert!(output.stdout.contains("claim of workspace source: as it is"), "{}", output.stdout);

    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\n\
        metadata: {name: c, annotations: {stowplan.dev/coschedule-group: g}}\n\
        spec: {storageClassName: now}\n";
    let output = Folder::new(&[]).plan_with("-f -", claim.as_bytes());
    let verdict = "PersistentVolumeClaim default/c: unchanged, as far as is known here";
    for line in [verdict, &format!("  class now is not known here {HINT}")] {
        assert!(output.stdout.lines().any(|it| it == line), "{}", output.stdout);
    }
}

#[test]
fn a_run_with_an_invalid_mode_is_refused() {
    let folder = Folder::new(&[]);
    let pipelines = [PIPELINE, "pipelineRef: {resolver: git}", "pipelineSpec: {tasks: []}"];
    for pipeline in pipelines {
        let text = run_with("name: r, annotations: {stowplan.dev/coschedule: all}", pipeline);
        let output = folder.plan_with("-f -", text.as_bytes());
        assert_eq!(output.code, 1, "{output:?}");
        assert!(output.stdout.contains("\"all\" is not a mode"), "{output:?}");
        assert!(
            output.stdout.contains("disabled, workspaces, pipelineruns, isolate-pipelinerun"),
            "{output:?}"
        );
        let entry = planned(&text);
        assert_eq!((&entry["code"], &entry["reason"]), (&json!(422), &json!("InvalidMode")));
    }
    let output = folder.plan_with("-f -", run_with("labels: {a: b}", PIPELINE).as_bytes());
    assert!(output.error_line().contains("has neither metadata.name nor metadata.generateName"));
}

#[test]
fn a_run_follows_an_earlier_one_that_uses_its_claim() {
    let bound = PIPELINE.to_owned();
    let run = |metadata: &str| {
        let text = run_with(metadata, &bound);
        let claim = "{name: cache, volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: now}}}";
        text.replace(claim, "{name: cache, persistentVolumeClaim: {claimName: shared}}")
    };
    let earlier = run("name: first, uid: a, creationTimestamp: '2026-01-01T00:00:00Z'");
    // A run that has not begun delays no other run.
    let folder = Folder::new(&[("cluster.yaml", &earlier)]);
    let output = folder.plan_with("-f - --cluster cluster.yaml", run("name: second").as_bytes());
    assert!(!output.stdout.contains("is used by"), "{output:?}");
    let task_run = "apiVersion: tekton.dev/v1\nkind: TaskRun\nmetadata:\n  name: t\n  uid: t\n  \
                    ownerReferences: [{apiVersion: tekton.dev/v1, kind: PipelineRun, name: first, uid: a, controller: true}]\n";
    let begun = format!("{earlier}\n---\n{task_run}");
    let folder = Folder::new(&[("cluster.yaml", &begun)]);
    let output = folder.plan_with("-f - --cluster cluster.yaml", run("name: second").as_bytes());
    assert_eq!(output.code, 0, "{output:?}");
    let text = "claim shared is used by the earlier PipelineRun first: is placed on the same node";
    assert!(output.stdout.contains(text), "{output:?}");
}
