//! `stowplan plan`: objects of one input that depend on each other, and input that is not rendered.

use serde_json::{Value, json};

use super::command::{Folder, NODES, assert_snapshot};

/// A pod of processing element `element` of job `j` with these annotations.
fn element(name: &str, element: &str, annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{{name}, labels: {{app: streams, streams.ibm.com/job: j, \
         streams.ibm.com/pe: '{element}'}}, annotations: {{{annotations}}}}}\n\
         spec: {{containers: [{{name: c, image: i}}]}}\n---\n"
    )
}

const TOGETHER: &str = "streams.ibm.com/host-colocation: t";
const BOTH: &str = "streams.ibm.com/host-colocation: t, streams.ibm.com/host-isolation: Sink";

fn reasons(text: &str) -> Vec<String> {
    let folder = Folder::new(&[("nodes.yaml", NODES)]);
    let list = folder.plan_with("-f - --cluster nodes.yaml -o json", text.as_bytes()).json();
    let items = list["items"].as_array().expect("a list").clone();
    items.iter().map(|item| item["reason"].as_str().expect("a word").to_owned()).collect()
}

#[test]
fn a_pod_knows_the_pods_before_it_in_the_input() {
    let text = |names: [&str; 2], second: &str| {
        element(names[0], "1", TOGETHER) + &element(names[1], "2", second)
    };
    assert_eq!(reasons(&text(["name: a", "name: b"], TOGETHER)), ["Placed", "Placed"]);
    assert_eq!(reasons(&text(["name: a", "name: b"], BOTH)), ["Placed", "Contradiction"]);
    // Pods without a name are different pods.
    let generated = ["generateName: p-", "generateName: p-"];
    assert_eq!(reasons(&text(generated, BOTH)), ["Placed", "Contradiction"]);
    // The order of the input is the order of creation.
    let reversed = element("name: b", "2", BOTH) + &element("name: a", "1", TOGETHER);
    assert_eq!(reasons(&reversed), ["Placed", "Contradiction"]);
    // The pod of a template counts, and a refused pod does not.
    let template = element("name: a", "1", TOGETHER)
        .replace("apiVersion: v1\nkind: Pod\nmetadata: {name: a,", "  metadata: {")
        .replace("spec: {containers", "  spec: {containers")
        .replace("---\n", "");
    let deployment = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\nspec:\n template:\n{template}---\n"
    );
    let text = format!("{deployment}{}", element("name: b", "2", BOTH));
    assert_eq!(reasons(&text), ["Placed", "Contradiction"], "{text}");
    let folder = Folder::new(&[("nodes.yaml", NODES)]);
    let output = folder.plan_with("-f - --cluster nodes.yaml", text.as_bytes()).stdout;
    assert!(output.contains("off the node of pod of Deployment d, and"), "{output}");
    let refused = element("name: a", "1", &format!("{TOGETHER}, streams.ibm.com/host: none"));
    assert_eq!(
        reasons(&format!("{refused}{}", element("name: b", "2", BOTH))),
        ["UnknownHost", "Placed"]
    );
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
    let folder = Folder::new(&[("nodes.yaml", NODES)]);
    let output = folder.plan_with("-f - --cluster nodes.yaml -o json", text.as_bytes());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    let list = output.json();
    assert!(list["items"].as_array().is_some_and(|items| items.len() >= 8), "{list}");
    for item in list["items"].as_array().expect("a list") {
        assert_eq!((&item["name"], &item["allowed"]), (&json!("x-"), &json!(true)), "{item}");
    }
}

/// Tekton copies labels and annotations of a TaskRun to its pod.
#[test]
fn the_pod_of_a_task_run_is_planned() {
    let text = "apiVersion: tekton.dev/v1\nkind: TaskRun\nmetadata:\n  generateName: unit-\n  \
                annotations: {stowplan.dev/coschedule-group: nightly}\nspec:\n  taskRef: {name: t}\n  \
                workspaces: [{name: w, persistentVolumeClaim: {claimName: data}}]\n";
    let folder = Folder::new(&[("nodes.yaml", NODES)]);
    let output = folder.plan_with("-f - --cluster nodes.yaml", text.as_bytes());
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stdout.starts_with("TaskRun default/unit-: its pod is placed\n"), "{output:?}");
    assert!(output.stdout.contains("affinity-assistant-88b1e3553f"), "{output:?}");
    let refused = text.replace("nightly", "'not a name'");
    let output = folder.plan_with("-f - --cluster nodes.yaml", refused.as_bytes());
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stdout.contains("not a name"), "{output:?}");
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
    let output = folder.plan_with("-f - -o json", own.as_bytes());
    assert_eq!((output.code, &output.json()["items"][0]["allowed"]), (0, &Value::Bool(true)));
}
