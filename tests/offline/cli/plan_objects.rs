//! `stowplan plan`: pods, pod templates, lists and StreamsJobs, in their namespace and under a
//! policy.

use serde_json::{Value, json};

use super::command::{Folder, NODES, job, plan_of, pod};

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
    let accepted = "StreamsJob default/parallel: accepted: it can be placed\n  on one host: parallel-0, parallel-1\n";
    // The host of the job's first element is inherited.
    folder
        .plan("-f job.yaml --cluster nodes.yaml")
        .has_lines(0, &[])
        .shows(0, &[accepted, "metadata.name In [n1]"]);
    let list = folder.plan("-f job.yaml --cluster nodes.yaml -o json").json();
    assert_eq!(list["items"][0]["groups"], json!([["parallel-0", "parallel-1"]]), "{list}");
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
    let output = job().plan_of("--cluster cluster -o json", text);
    assert!(output.code < 2, "{output:?}");
    assert_eq!(output.json()["items"].as_array().map(Vec::len), Some(1), "{output:?}");
    output.first()
}

#[test]
fn every_kind_with_a_pod_template_is_planned() {
    let template =
        "{metadata: {annotations: {streams.ibm.com/host: node-1}}, spec: {containers: []}}";
    let spec = &*format!("spec: {{template: {template}}}");
    let indexed = &*format!("spec: {{completionMode: Indexed, template: {template}}}");
    let cron = &*format!("spec: {{jobTemplate: {{spec: {{template: {template}}}}}}}");
    let bare = &*format!("template: {template}");
    for (version, kind, rest, path) in [
        ("apps/v1", "Deployment", spec, "/spec/template"),
        ("apps/v1", "ReplicaSet", spec, "/spec/template"),
        ("apps/v1", "StatefulSet", spec, "/spec/template"),
        ("batch/v1", "Job", spec, "/spec/template"),
        ("batch/v1", "Job", indexed, "/spec/template"),
        ("batch/v1", "CronJob", cron, "/spec/jobTemplate/spec/template"),
        ("v1", "ReplicationController", spec, "/spec/template"),
        ("v1", "PodTemplate", bare, "/template"),
        ("example.com/v1", "Widget", spec, "/spec/template"),
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
        let folder = Folder::new(&[("n.yaml", NODES)]);
        let output = folder.plan_of("--cluster n.yaml -o yaml", &text);
        output.shows(0, &["stowplan.dev/placement"]);
        for extra in ["ownerReferences", "job-name", "pod-index", "generateName", "namespace"] {
            output.lacks(extra);
        }
    }
    let daemons = format!("apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: x}}\n{spec}\n");
    assert_eq!(planned(&daemons)["reason"], "DaemonSetPod", "the pod knows its owner");
    // Labels that a controller adds do not hide that the template has none.
    let entry = planned(&format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: x}}\n{}\n",
        indexed.replace("host: node-1", "host-colocation: t")
    ));
    let labels = json!({"op": "add", "path": "/spec/template/metadata/labels", "value": {}});
    assert_eq!(entry["patch"][0], labels);
}

#[test]
fn lists_are_opened_and_stay_lists() {
    let pods = json!({"apiVersion": "v1", "kind": "PodList", "items": [
        {"metadata": {"name": "a", "annotations": {"streams.ibm.com/host-colocation": "t"}}, "spec": {}},
        {"metadata": {"name": "b"}, "spec": {}},
    ]});
    let plan = plan_of("-o json", pods.to_string()).json();
    assert_eq!(plan["items"][0]["reason"], "Placed");
    assert_eq!(plan["items"][1]["name"], "b");
    let output = plan_of("-o yaml", pods.to_string());
    let placed: Value = serde_saphyr::from_str(&output.stdout).expect("YAML");
    assert!(placed["items"][0]["spec"]["affinity"].is_object(), "{placed}");
    assert_eq!(placed["items"][1], pods["items"][1]);
    let output = plan_of("-o json", r#"{"apiVersion":"v1","kind":"List","items":[]}"#);
    assert_eq!((output.code, &output.json()["items"]), (0, &json!([])));
}

#[test]
fn pools_and_namespaces_of_the_input_count() {
    let folder = job();
    let pool = "apiVersion: stowplan.dev/v1alpha1\nkind: HostPool\nmetadata: {name: own}\nspec: {hosts: [node-2]}\n";
    let text = format!("{}---\n{pool}", pod("p", "streams.ibm.com/host-pool: own"));
    for namespace in ["", "-n jobs"] {
        let words = format!("--cluster cluster {namespace}");
        folder.plan_of(&words, &text).shows(0, &["metadata.name In [node-2]"]);
    }
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {stowplan.dev/ignore: 'true'}}\n";
    folder
        .plan_of("", format!("{namespace}---\n{text}"))
        .shows(0, &["Pod default/p: left alone: "]);
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
        let output = folder.plan_of(&format!("--cluster cluster -o json {words}"), text);
        let found = (output.code, output.first()["namespace"].clone());
        assert_eq!(found, (code, json!(namespace)), "{words}");
    }
    folder.plan_of("-n other", own).fails(
        "standard input, document 1 (line 1): Pod p: is in namespace \"jobs\", and -n asks for \"other\": leave -n out",
    );
}

#[test]
fn without_a_cluster_a_refusal_says_that_one_would_help() {
    let hint = "(no cluster given: use --cluster or --live)";
    for (words, host, helps) in [
        ("", "node-1", true),
        ("--cluster cluster", "node-9", false),
        // No cluster helps there.
        ("", "''", false),
    ] {
        let text = pod("p", &format!("streams.ibm.com/host: {host}"));
        let entry = job().plan_of(&format!("-o json {words}"), text).first();
        let message = entry["message"].as_str().expect("text");
        assert_eq!(message.ends_with(&format!(" {hint}")), helps, "{message}");
    }
    plan_of("", pod("p", "streams.ibm.com/host: node-1")).shows(1, &[&format!("\n  {hint}\n")]);
}

#[test]
fn keys_on_an_object_instead_of_its_template_are_reported() {
    let metadata = "{name: w, labels: {stowplan.dev/ignore: 'true'}, annotations: {streams.ibm.com/host: node-1, stowplan.dev/coschedule-group: g, example.com/host: x}}";
    let template = "{metadata: {annotations: {stowplan.dev/coschedule-group: g}}, spec: {containers: [{name: c, image: i}]}}";
    let deployment = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {metadata}\nspec: {{template: {template}}}\n"
    );
    let entry = planned(&deployment);
    assert_eq!(entry["allowed"], true, "{entry}");
    assert_eq!(
        entry["warnings"],
        json!([
            "streams.ibm.com/host: no effect on a Deployment; write it into spec.template.metadata.annotations",
            "stowplan.dev/ignore: no effect on a Deployment; write it into spec.template.metadata.labels",
        ])
    );
    let cron = format!(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: c}}\nspec: {{jobTemplate: {{metadata: {{labels: {{streams.ibm.com/host-pool: p}}}}, spec: {{template: {template}}}}}}}\n"
    );
    let warning = "warning: streams.ibm.com/host-pool: no effect on a CronJob; write it into spec.jobTemplate.spec.template.metadata.annotations";
    job().plan_of("--cluster cluster", cron).shows(0, &[warning]);
    // A controller of another kind may copy the annotations of the object to its pods.
    let other = deployment.replace("apps/v1", "example.com/v1").replace("Deployment", "Fleet");
    assert_eq!(planned(&other)["warnings"], json!([]));
}
