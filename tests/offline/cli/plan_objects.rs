//! `stowplan plan`: pods, pod templates, lists and StreamsJobs, in their namespace and under a
//! policy.

use serde_json::{Value, json};

use super::command::{Folder, NODES, job, pod};

const STREAMS_JOB: &str = "
apiVersion: stowplan.dev/v1alpha1
kind: StreamsJob
metadata: {name: parallel}
spec:
  processingElements:
  - {name: parallel-0, operators: [{name: A, host: {name: n1}, hostColocation: [t]}]}
  - {name: parallel-1, operators: [{name: B, hostColocation: [t]}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: second
  labels: {streams.ibm.com/job: parallel, streams.ibm.com/pe: parallel-1}
spec: {containers: [{name: pe, image: streams-runtime}]}
";

#[test]
fn a_job_is_checked_and_the_pods_beside_it_join_it() {
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n1}}";
    let folder = Folder::new(&[("job.yaml", STREAMS_JOB), ("nodes.yaml", node)]);
    let output = folder.plan("-f job.yaml --cluster nodes.yaml");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    let accepted = "StreamsJob default/parallel: accepted: it can be placed\n  on one host: parallel-0, parallel-1\n";
    assert!(output.stdout.contains(accepted), "{}", output.stdout);
    assert!(output.stdout.contains("metadata.name In [n1]"), "inherited: {}", output.stdout);
    let list = folder.plan("-f job.yaml --cluster nodes.yaml -o json").json();
    let groups = json!([["parallel-0", "parallel-1"]]);
    assert_eq!(list["items"][0]["groups"], groups, "{list}");
    assert_eq!(list["items"][0]["reason"], "Valid");
    assert_eq!(list["items"][1]["allowed"], true);

    let output = folder.plan("-f job.yaml -o json");
    assert_eq!(output.code, 1);
    let list = output.json();
    assert_eq!(list["items"][0]["reason"], "UnknownHost");
    assert_eq!(list["items"][1]["reason"], "JobNotAccepted");
    let message = list["items"][0]["message"].as_str().expect("a message");
    assert!(message.ends_with("(no cluster given: use --cluster or --live)"), "{message}");
}

/// The entry of the one object in `text`.
pub(crate) fn planned(text: &str) -> Value {
    let folder = job();
    let output = folder.plan_with("-f - --cluster cluster -o json", text.as_bytes());
    assert!(output.code < 2, "{output:?}");
    let plan = output.json();
    assert_eq!(plan["items"].as_array().map(Vec::len), Some(1), "{plan}");
    plan["items"][0].clone()
}

#[test]
fn every_kind_with_a_pod_template_is_planned() {
    let template =
        "{metadata: {annotations: {streams.ibm.com/host: node-1}}, spec: {containers: []}}";
    for (version, kind, rest, path) in [
        ("apps/v1", "Deployment", format!("spec: {{template: {template}}}"), "/spec/template"),
        ("apps/v1", "ReplicaSet", format!("spec: {{template: {template}}}"), "/spec/template"),
        ("apps/v1", "StatefulSet", format!("spec: {{template: {template}}}"), "/spec/template"),
        ("batch/v1", "Job", format!("spec: {{template: {template}}}"), "/spec/template"),
        (
            "batch/v1",
            "Job",
            format!("spec: {{completionMode: Indexed, template: {template}}}"),
            "/spec/template",
        ),
        (
            "batch/v1",
            "CronJob",
            format!("spec: {{jobTemplate: {{spec: {{template: {template}}}}}}}"),
            "/spec/jobTemplate/spec/template",
        ),
        (
            "v1",
            "ReplicationController",
            format!("spec: {{template: {template}}}"),
            "/spec/template",
        ),
        ("v1", "PodTemplate", format!("template: {template}"), "/template"),
        ("example.com/v1", "Widget", format!("spec: {{template: {template}}}"), "/spec/template"),
    ] {
        let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n{rest}\n");
        let entry = planned(&text);
        assert_eq!(entry["reason"], "Placed", "{kind}: {entry}");
        assert_eq!((&entry["kind"], &entry["name"]), (&json!(kind), &json!("x")));
        let patch = entry["patch"].as_array().expect("a list");
        assert!(!patch.is_empty(), "{kind}");
        for operation in patch {
            let at = operation["path"].as_str().expect("a path");
            assert!(at.starts_with(path), "{kind}: {at}");
            // Nothing of what the controller will add gets into the template.
            assert!(!at.contains("job-name") && !at.contains("ownerReferences"), "{kind}: {at}");
        }
        let output = Folder::new(&[("n.yaml", NODES)])
            .plan_with("-f - --cluster n.yaml -o yaml", text.as_bytes());
        assert!(output.stdout.contains("stowplan.dev/placement"), "{kind}: {output:?}");
        for extra in ["ownerReferences", "job-name", "pod-index", "generateName", "namespace"] {
            assert!(!output.stdout.contains(extra), "{kind}: {extra}");
        }
    }
    let entry = planned(&format!(
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: x}}\nspec: {{template: {template}}}"
    ));
    assert_eq!(entry["reason"], "DaemonSetPod", "the pod knows its owner");
}

#[test]
fn labels_that_a_controller_adds_do_not_hide_that_the_template_has_none() {
    let entry = planned(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec:\n  completionMode: Indexed\n  template:\n    \
         metadata: {annotations: {streams.ibm.com/host-colocation: t}}\n    spec: {containers: []}\n",
    );
    assert_eq!(
        entry["patch"][0],
        json!({"op": "add", "path": "/spec/template/metadata/labels", "value": {}})
    );
}

#[test]
fn lists_are_opened_and_stay_lists() {
    let pods = json!({"apiVersion": "v1", "kind": "PodList", "items": [
        {"metadata": {"name": "a", "annotations": {"streams.ibm.com/host-colocation": "t"}}, "spec": {}},
        {"metadata": {"name": "b"}, "spec": {}},
    ]});
    let folder = Folder::new(&[]);
    let plan = folder.plan_with("-f - -o json", pods.to_string().as_bytes()).json();
    assert_eq!(plan["items"][0]["reason"], "Placed");
    assert_eq!(plan["items"][1]["name"], "b");
    let output = folder.plan_with("-f - -o yaml", pods.to_string().as_bytes());
    let placed: Value = serde_saphyr::from_str(&output.stdout).expect("YAML");
    assert!(placed["items"][0]["spec"]["affinity"].is_object(), "{placed}");
    assert_eq!(placed["items"][1], pods["items"][1]);
    let output =
        folder.plan_with("-f - -o json", br#"{"apiVersion":"v1","kind":"List","items":[]}"#);
    assert_eq!((output.code, &output.json()["items"]), (0, &json!([])));
}

#[test]
fn pools_and_namespaces_of_the_input_count() {
    let folder = job();
    let pool = "apiVersion: stowplan.dev/v1alpha1\nkind: HostPool\nmetadata: {name: own}\nspec: {hosts: [node-2]}\n";
    let text = format!("{}---\n{pool}", pod("p", "streams.ibm.com/host-pool: own"));
    for namespace in ["", "-n jobs"] {
        let output =
            folder.plan_with(&format!("-f - --cluster cluster {namespace}"), text.as_bytes());
        assert_eq!(output.code, 0, "{output:?}");
        assert!(output.stdout.contains("metadata.name In [node-2]"), "{output:?}");
    }
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {stowplan.dev/ignore: 'true'}}\n";
    let output = folder.plan_with("-f -", format!("{namespace}---\n{text}").as_bytes());
    assert!(output.stdout.contains("Pod default/p: left alone: "), "{output:?}");
}

#[test]
fn the_namespace_is_the_objects_own_or_the_one_asked_for() {
    let folder = job();
    let bare = pod("p", "streams.ibm.com/host-pool: 'named[0]'");
    let own = bare.replace("{name: p,", "{name: p, namespace: jobs,");
    for (words, text, namespace, code) in [
        ("", &bare, "default", 1),
        ("-n jobs", &bare, "jobs", 0),
        ("", &own, "jobs", 0),
        ("-n jobs", &own, "jobs", 0),
    ] {
        let output =
            folder.plan_with(&format!("-f - --cluster cluster -o json {words}"), text.as_bytes());
        assert_eq!(
            (output.code, &output.json()["items"][0]["namespace"]),
            (code, &json!(namespace)),
            "{words}"
        );
    }
    let output = folder.plan_with("-f - -n other", own.as_bytes());
    assert_eq!(
        output.error_line(),
        "standard input, document 1 (line 1): Pod p: is in namespace \"jobs\", and -n asks for \"other\": leave -n out"
    );
}

#[test]
fn without_a_cluster_a_refusal_says_that_one_would_help() {
    let folder = job();
    let hint = " (no cluster given: use --cluster or --live)";
    let entry = |words: &str, annotations: &str| {
        let text = pod("p", annotations);
        folder.plan_with(&format!("-f - -o json {words}"), text.as_bytes()).json()["items"][0]
            .clone()
    };
    let message = |entry: &Value| entry["message"].as_str().expect("text").to_owned();
    assert!(message(&entry("", "streams.ibm.com/host: node-1")).ends_with(hint));
    assert!(!message(&entry("--cluster cluster", "streams.ibm.com/host: node-9")).ends_with(hint));
    assert!(
        !message(&entry("", "streams.ibm.com/host: ''")).ends_with(hint),
        "no cluster helps there"
    );
    let output = folder.plan_with("-f -", pod("p", "streams.ibm.com/host: node-1").as_bytes());
    assert!(
        output.stdout.contains("\n  (no cluster given: use --cluster or --live)\n"),
        "{output:?}"
    );
}

#[test]
fn the_policy_holds_for_a_plan() {
    let folder = job();
    folder.write("policy.yaml", b"onInvalid: warn\n");
    let text = pod("p", "streams.ibm.com/host: node-9");
    let output = folder.plan_with("-f - --cluster cluster --policy policy.yaml", text.as_bytes());
    assert_eq!(output.code, 0);
    assert!(
        output.stdout.contains("Pod default/p: admitted, not placed (the policy only warns)\n"),
        "{output:?}"
    );
    assert!(output.stdout.ends_with("1 object: 1 admitted without placement\n"), "{output:?}");
    let output = folder.plan_with("-f - --policy nonesuch.yaml", text.as_bytes());
    assert!(output.error_line().starts_with("nonesuch.yaml: "), "{output:?}");
}

#[test]
fn keys_on_an_object_instead_of_its_template_are_reported() {
    let folder = job();
    let metadata = "{name: w, labels: {stowplan.dev/ignore: 'true'}, annotations: {streams.ibm.com/host: node-1, stowplan.dev/coschedule-group: g, example.com/host: x}}";
    let template = "{metadata: {annotations: {stowplan.dev/coschedule-group: g}}, spec: {containers: [{name: c, image: i}]}}";
    let deployment = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {metadata}\nspec: {{template: {template}}}\n"
    );
    let output = folder.plan_with("-f - --cluster cluster -o json", deployment.as_bytes());
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(
        output.json()["items"][0]["warnings"],
        json!([
            "streams.ibm.com/host: no effect on a Deployment; write it into spec.template.metadata.annotations",
            "stowplan.dev/ignore: no effect on a Deployment; write it into spec.template.metadata.labels",
        ])
    );
    let cron = format!(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: c}}\nspec: {{jobTemplate: {{metadata: {{labels: {{streams.ibm.com/host-pool: p}}}}, spec: {{template: {template}}}}}}}\n"
    );
    let output = folder.plan_with("-f - --cluster cluster", cron.as_bytes());
    let warning = "warning: streams.ibm.com/host-pool: no effect on a CronJob; write it into spec.jobTemplate.spec.template.metadata.annotations";
    assert!(output.stdout.contains(warning), "{output:?}");
    // A controller of another kind may copy the annotations of the object to its pods.
    let other = deployment.replace("apps/v1", "example.com/v1").replace("Deployment", "Fleet");
    let output = folder.plan_with("-f - --cluster cluster -o json", other.as_bytes());
    assert_eq!(output.json()["items"][0]["warnings"], json!([]), "{output:?}");
}
