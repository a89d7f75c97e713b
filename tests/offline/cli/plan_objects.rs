//! `stowplan plan`: pods, pod templates, lists and StreamsJobs, in their namespace and under a
//! policy.

use serde_json::{Value, json};

use super::command::{Folder, Shown, job, plan_of, pod};

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
    let mut shown = Shown::default();
    // The host of the job's first element is inherited.
    shown.add("with its node", &folder.plan("-f job.yaml --cluster nodes.yaml"));
    shown.add("as JSON", &folder.plan("-f job.yaml --cluster nodes.yaml -o json"));
    shown.add("without a cluster", &folder.plan("-f job.yaml"));
    shown.compare("plan_streams_job");
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
    let mut shown = Shown::default();
    let template =
        "{metadata: {annotations: {streams.ibm.com/host: node-1}}, spec: {containers: []}}";
    let spec = &*format!("spec: {{template: {template}}}");
    let indexed = &*format!("spec: {{completionMode: Indexed, template: {template}}}");
    // Labels that a controller adds do not hide that the template has none.
    let together = &*indexed.replace("host: node-1", "host-colocation: t");
    let cron = &*format!("spec: {{jobTemplate: {{spec: {{template: {template}}}}}}}");
    let bare = &*format!("template: {template}");
    for (version, kind, rest) in [
        ("apps/v1", "Deployment", spec),
        ("apps/v1", "ReplicaSet", spec),
        ("apps/v1", "StatefulSet", spec),
        ("batch/v1", "Job", spec),
        ("batch/v1", "Job", indexed),
        ("batch/v1", "Job", together),
        ("batch/v1", "CronJob", cron),
        ("v1", "ReplicationController", spec),
        ("v1", "PodTemplate", bare),
        ("example.com/v1", "Widget", spec),
        // The pod knows its owner.
        ("apps/v1", "DaemonSet", spec),
    ] {
        let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n{rest}\n");
        // Nothing of what the controller will add gets into the template.
        shown.add(&text, &job().plan_of("--cluster cluster -o patch", &text));
        let entry = planned(&text);
        assert_eq!((&entry["kind"], &entry["name"]), (&json!(kind), &json!("x")));
    }
    shown.compare("plan_kinds");
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
    let mut shown = Shown::default();
    // No cluster helps for the last one.
    for (words, host) in [("", "node-1"), ("--cluster cluster", "node-9"), ("", "''")] {
        let text = pod("p", &format!("streams.ibm.com/host: {host}"));
        shown.add(&format!("{host} {words}"), &job().plan_of(words, text));
    }
    shown.compare("plan_hints");
}

#[test]
fn keys_on_an_object_instead_of_its_template_are_reported() {
    let mut shown = Shown::default();
    let metadata = "{name: w, labels: {stowplan.dev/ignore: 'true'}, annotations: {streams.ibm.com/host: node-1, stowplan.dev/coschedule-group: g, example.com/host: x}}";
    let template = "{metadata: {annotations: {stowplan.dev/coschedule-group: g}}, spec: {containers: [{name: c, image: i}]}}";
    let deployment = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {metadata}\nspec: {{template: {template}}}\n"
    );
    let cron = format!(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: c}}\nspec: {{jobTemplate: {{metadata: {{labels: {{streams.ibm.com/host-pool: p}}}}, spec: {{template: {template}}}}}}}\n"
    );
    // A controller of another kind may copy the annotations of the object to its pods.
    let other = deployment.replace("apps/v1", "example.com/v1").replace("Deployment", "Fleet");
    for (kind, text) in [("a Deployment", deployment), ("a CronJob", cron), ("a Fleet", other)] {
        shown.add(kind, &job().plan_of("--cluster cluster", text));
    }
    shown.compare("plan_misplaced_keys");
}
