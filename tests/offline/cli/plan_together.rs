//! `stowplan plan`: objects with generated names, TaskRuns, and input that is not rendered.

use serde_json::{Value, json};

use super::command::{Folder, NODES, Output, assert_snapshot, plan_of};

fn plan(text: &str, words: &str) -> Output {
    let folder = Folder::new(&[("nodes.yaml", NODES)]);
    folder.plan_of(&format!("--cluster nodes.yaml {words}"), text)
}

#[test]
fn objects_of_every_kind_may_have_a_generated_name() {
    let mut text = String::new();
    for (version, kind, rest) in [
        ("tekton.dev/v1", "TaskRun", "spec: {taskRef: {name: t}}"),
        ("tekton.dev/v1", "TaskRun", "spec: {taskRef: {name: t}}"),
        ("tekton.dev/v1", "PipelineRun", "spec: {pipelineSpec: {tasks: []}}"),
        ("tekton.dev/v1", "PipelineRun", "spec: {pipelineSpec: {tasks: []}}"),
        ("v1", "PersistentVolumeClaim", "spec: {}"),
        ("stowplan.dev/v1alpha1", "HostPool", "spec: {hosts: [node-1]}"),
        ("stowplan.dev/v1alpha1", "StreamsJob", "spec: {processingElements: []}"),
        ("apps/v1", "Deployment", "spec: {template: {spec: {containers: []}}}"),
        ("batch/v1", "Job", "spec: {template: {spec: {containers: []}}}"),
        ("v1", "Pod", "spec: {containers: []}"),
        ("v1", "Namespace", ""),
    ] {
        text += &format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{generateName: x-}}\n{rest}\n---\n"
        );
    }
    let output = plan(&text, "-o json");
    output.has_lines(0, &[]);
    let list = output.json();
    assert!(list["items"].as_array().is_some_and(|items| items.len() >= 8), "{list}");
    for (number, item) in list["items"].as_array().expect("a list").iter().enumerate() {
        let name = json!(format!("x-{number:05}"));
        assert_eq!((&item["name"], &item["allowed"]), (&name, &json!(true)), "{item}");
    }
}

/// Tekton copies labels and annotations of a TaskRun to its pod.
#[test]
fn the_pod_of_a_task_run_is_planned() {
    let text = "apiVersion: tekton.dev/v1\nkind: TaskRun\nmetadata:\n  generateName: unit-\n  \
                annotations: {stowplan.dev/coschedule-group: nightly}\nspec:\n  taskRef: {name: t}\n  \
                workspaces: [{name: w, persistentVolumeClaim: {claimName: data}}]\n";
    plan(text, "").shows(
        0,
        &["\nTaskRun default/unit-00000: its pod is placed\n", "affinity-assistant-88b1e3553f"],
    );
    plan(&text.replace("nightly", "'not a name'"), "").shows(1, &["not a name"]);
}

#[test]
fn a_helm_template_that_was_not_rendered_is_called_so() {
    let folder = Folder::new(&[
        (
            "chart/templates/a.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ .Release.Name }}\nspec: {}\n---\n{{- if .Values.b }}\nkind: Pod\n",
        ),
        ("chart/templates/b.yaml", "{{- include \"x\" . }}\n"),
        (
            "chart/templates/c.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: '{{ .Release.Name }}', namespace: n}\n",
        ),
    ]);
    let output = folder.plan("-f chart/templates");
    assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{output:?}");
    assert_snapshot("plan_unrendered", &output.stderr);
    // Braces that are the user's own do no harm.
    let own = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i, args: ['{{ x }}']}]}\n";
    let output = plan_of("-o json", own);
    assert_eq!((output.code, &output.first()["allowed"]), (0, &Value::Bool(true)));
}
