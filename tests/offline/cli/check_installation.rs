//! `stowplan check` without an object: what it reads from an API server, and its exit codes.

use std::slice;

use serde_json::{Value, json};

use super::api_server::{
    Answer, Cluster, denied_by_proxy, failure, forbidden, list, named, policy, with_policy,
};
use super::command::{Output, Shown};
use crate::chart::helm::objects;

/// Returns the output of `check` with these words, without the version of stowplan.
fn report(cluster: &Cluster, words: &str) -> Output {
    let output = cluster.check(words);
    Output { stdout: output.stdout.replace(env!("CARGO_PKG_VERSION"), "VERSION"), ..output }
}

/// Answers as a cluster in which everything may be asked, and nothing is installed.
fn with_nothing(path: &str) -> Answer {
    let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.1", "buildDate": "",
        "compiler": "", "gitCommit": "", "gitTreeState": "", "goVersion": "", "platform": ""});
    match path {
        "/version" => (200, version),
        path if path.contains("accessreviews") => {
            (201, json!({"spec": {}, "status": {"allowed": true}}))
        }
        // A list has a query, or is of a kind of which one object is read by its name.
        path if path.contains('?') || path.ends_with("configurations") => list(&[]),
        _ => failure(404, "NotFound"),
    }
}

/// A cluster with one replica of the webhook, which answers this at `/status`.
fn with_replica(status: Answer) -> Cluster {
    with_policy(named(), policy("onInvalid: warn"), move |path| match path {
        path if path.starts_with("/api/v1/namespaces/system/pods?") => {
            let ports = json!([{"name": "admin", "containerPort": 8080}]);
            list(&[json!({
                "metadata": {"name": "w1"}, "status": {"podIP": "10.0.0.1"},
                "spec": {"containers": [{"name": "webhook", "args": ["webhook"], "ports": ports}]},
            })])
        }
        "/api/v1/namespaces/system/pods/w1:8080/proxy/status" => status.clone(),
        path => with_nothing(path),
    })
}

#[test]
fn each_problem_of_an_installation_has_a_remedy() {
    let answered = json!({"version": env!("CARGO_PKG_VERSION"), "policy": {"digest": "00", "problem": null},
        "certificate": {"chain": "", "problem": "expired at noon"}, "later": 1});
    let without_rights = |path: &str| match path {
        "/version" => with_nothing(path),
        path if path.contains("selfsubjectaccessreviews") => {
            (201, json!({"spec": {}, "status": {"allowed": false}}))
        }
        _ => forbidden(),
    };
    let mut shown = Shown::default();
    for (label, cluster, words) in [
        ("nothing is installed", Cluster::start(with_nothing), ""),
        ("as JSON", Cluster::start(with_nothing), "-o json"),
        // It may be behind a network policy.
        ("a replica does not answer", with_replica(failure(502, "BadGateway")), ""),
        // The Service that is called is looked for, with its pods.
        ("a proxy denies its status", with_replica(denied_by_proxy()), ""),
        ("a replica answers", with_replica((200, answered)), ""),
        (
            "the Service is elsewhere",
            with_replica(failure(502, "BadGateway")),
            "--installed-in elsewhere",
        ),
        ("without rights", Cluster::start(without_rights), ""),
        // The test pod that was asked for gives no result.
        (
            "without rights, where to look",
            Cluster::start(without_rights),
            "--installed-in system --try-in jobs",
        ),
    ] {
        shown.add(label, &report(&cluster, words));
    }
    shown.compare("check_installation");
}

/// The shape of the webhooks that `check` knows is that of the chart.
#[test]
fn the_chart_is_as_check_expects() {
    for values in [
        &[][..],
        &[r#"policy={"coschedule": {"enabled": false}}"#],
        &[r#"policy={"excludedNamespaces": ["a"]}"#, r#"webhook.failurePolicy="Fail""#],
        &[
            r#"webhook.matchConditions=[{"name": "b", "expression": "true"}, {"name": "a", "expression": "true"}]"#,
        ],
        &["webhook.service.port=8443"],
    ] {
        let objects = objects(values);
        let service = objects.get("Service", "stowplan-webhook").clone();
        let policy = objects.get("ConfigMap", "stowplan-policy").clone();
        let [mutating, mut validating] =
            ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
                .map(|kind| objects.get(kind, "stowplan").clone());
        // The API server's defaults.
        for selector in ["namespaceSelector", "objectSelector"] {
            validating["webhooks"][0][selector] = json!({});
        }
        let answer = move |path: &str| match path.rsplit('/').next() {
            Some("mutatingwebhookconfigurations") => list(slice::from_ref(&mutating)),
            Some("validatingwebhookconfigurations") => list(slice::from_ref(&validating)),
            Some("stowplan-webhook") => (200, service.clone()),
            Some("stowplan-policy") => (200, policy.clone()),
            _ => with_nothing(path),
        };
        let mut report = Cluster::start(answer).check("-o json").json();
        let count = if values.iter().any(|of| of.contains("coschedule")) { 2 } else { 4 };
        let message = &report["items"][0]["message"];
        let wanted = format!("{count} webhooks as this version expects, failurePolicy ");
        assert!(message.as_str().is_some_and(|it| it.starts_with(&wanted)), "{report:#}");
        report["items"].as_array_mut().expect("items").retain(|item| item["name"] == "service");
        let service = &report["items"];
        assert_eq!(service.as_array().map(Vec::len), Some(1), "{service:#}");
        assert!(service[0]["message"].to_string().contains("no replica"), "{service:#}");
    }
}

#[test]
fn only_the_placement_that_was_asked_for_shows_that_the_webhook_was_called() {
    let terms = |value: &str| {
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [
                {"key": "k", "operator": "In", "values": [value]}]}}]}})
    };
    let node = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}});
    for (annotations, affinity, is_placed) in [
        // Another webhook adds affinities to every pod.
        (Value::Null, terms("else"), false),
        (Value::Null, node, false),
        // Under the policy `recordPlacement: false`.
        (Value::Null, terms("stowplan-check"), true),
        (json!({"stowplan.dev/placement": "{}"}), Value::Null, true),
    ] {
        let pod = json!({"metadata": {"name": "t", "annotations": annotations}, "spec": {"affinity": affinity}});
        let cluster = Cluster::start(move |path| match path {
            "/api/v1/namespaces/jobs/pods?dryRun=All" => (201, pod.clone()),
            path => with_nothing(path),
        });
        let report = cluster.check("--try-in jobs -o json").json();
        let mut items = report["items"].as_array().expect("items").iter();
        let trial = items.find(|item| item["name"] == "trial-pod").expect("a test pod");
        assert_eq!(trial["state"], if is_placed { "ok" } else { "problem" }, "{report}");
    }
}

#[test]
fn what_cannot_be_looked_at_ends_with_2() {
    let cluster = Cluster::at("http://127.0.0.1:1");
    cluster.check("").fails("the API server cannot be reached: …");
    cluster
        .check("--policy policy.yaml")
        .fails("--policy is for the check of objects: name one, or give -n or -A");
}
