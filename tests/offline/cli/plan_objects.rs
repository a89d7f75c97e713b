//! `stowplan plan`: pods, pod templates and lists, in their namespace.

use serde_json::{Value, json};

use super::command::{Shown, job, plan_of, pod};

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

/// kubectl refuses such objects, and a client that is not strict would lose the constraint.
#[test]
fn objects_of_stowplans_kinds_with_unknown_fields_are_refused() {
    let mut shown = Shown::default();
    let pool = |spec: &str| {
        format!(
            "apiVersion: stowplan.dev/v1alpha1\nkind: HostPool\nmetadata: {{name: p}}\n{spec}\n"
        )
    };
    let job = |operator: &str| {
        format!(
            "apiVersion: stowplan.dev/v1alpha1\nkind: StreamsJob\nmetadata: {{name: j}}\n\
             spec: {{processingElements: [{{name: \"0\", operators: [{{name: S, {operator}}}]}}]}}\n"
        )
    };
    for text in [
        pool("spec: {Size: 4}"),
        pool("spec: {size: 1}\nstatuss: {}"),
        pool("spec: {size: 1, nodes: [n1]}"),
        job("hostColocate: [ab]"),
        job("host: {nme: n1}, hostColocation: [ab]"),
    ] {
        let output = plan_of("", &text);
        assert_eq!(output.code, 1, "{text}\n{output:?}");
        shown.add(&text, &output);
    }
    shown.compare("plan_unknown_fields");
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n- {}",
        pool("spec: {Size: 4}").trim().replace('\n', "\n  ")
    );
    let entry = plan_of("-o json", list).first();
    assert_eq!((&entry["reason"], &entry["code"]), (&json!("UnknownKey"), &json!(422)), "{entry}");
}
