//! `stowplan check` without an object: what it reads from an API server, and its exit codes.

use serde_json::{Value, json};

use super::api_server::{Answer, Cluster, config_map, configuration, failure, forbidden, list};
use super::command::Output;

/// The items of the report with this name and state.
fn items(output: &Output, name: &str, state: &str) -> Vec<Value> {
    let report = output.json();
    assert_eq!(report["kind"], "Installation", "{output:?}");
    let mut items = report["items"].as_array().expect("items").clone();
    items.retain(|item| item["name"] == name && item["state"] == state);
    items
}

/// The messages of the items with this name and state.
fn messages(output: &Output, name: &str, state: &str) -> Vec<String> {
    let message = |item: &Value| item["message"].as_str().expect("a message").to_owned();
    items(output, name, state).iter().map(message).collect()
}

/// A cluster in which everything may be asked, with this answer to what is not in every cluster.
fn cluster(other: impl Fn(&str) -> Option<Answer> + Send + 'static) -> Cluster {
    Cluster::start(move |path| {
        let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.1", "buildDate": "",
            "compiler": "", "gitCommit": "", "gitTreeState": "", "goVersion": "", "platform": ""});
        other(path).unwrap_or_else(|| match path {
            "/version" => (200, version),
            path if path.contains("accessreviews") => {
                (201, json!({"spec": {}, "status": {"allowed": true}}))
            }
            // A list has a query, or is of a kind of which one object is read by its name.
            path if path.contains('?') || path.ends_with("configurations") => list(&[]),
            _ => failure(404, "NotFound"),
        })
    })
}

#[test]
fn a_cluster_without_stowplan_has_problems_with_a_remedy() {
    let cluster = cluster(|_| None);
    let output = cluster.check("-o json");
    assert_eq!((output.code, output.stderr.as_str()), (1, ""), "{output:?}");
    let missing = messages(&output, "webhook-configurations", "problem");
    assert_eq!(missing[0], "there is no webhook pods.stowplan.dev: pods are not placed");
    assert_eq!(messages(&output, "definitions", "problem").len(), 2, "{output:?}");
    assert_eq!(messages(&output, "tekton", "ok"), ["Tekton is not installed"]);
    assert_eq!(messages(&output, "rights-of-this-command", "ok").len(), 1, "{output:?}");
    let output = cluster.check("");
    let last = output.stdout.lines().last().expect("a line");
    assert!(output.code == 1 && last.starts_with("5 problems, 0 warnings, "), "{output:?}");
}

/// A cluster with one replica of the webhook, which answers this at `/status`.
fn with_replica(status: Answer) -> Cluster {
    cluster(move |path| match path {
        path if path.contains("/mutatingwebhookconfigurations") => {
            let annotations = json!({"stowplan.dev/policy": "system/policy"});
            Some(list(&[configuration("pods.stowplan.dev", &annotations)]))
        }
        path if path.starts_with("/api/v1/namespaces/system/pods?") => {
            let ports = json!([{"name": "admin", "containerPort": 8080}]);
            Some(list(&[json!({
                "metadata": {"name": "w1"}, "status": {"podIP": "10.0.0.1"},
                "spec": {"containers": [{"name": "webhook", "args": ["webhook"], "ports": ports}]},
            })]))
        }
        "/api/v1/namespaces/system/pods/w1:8080/proxy/status" => Some(status.clone()),
        "/api/v1/namespaces/system/configmaps/policy" => {
            Some(config_map(&json!({"policy.yaml": "onInvalid: warn"})))
        }
        _ => None,
    })
}

#[test]
fn a_replica_that_does_not_answer_may_be_behind_a_network_policy() {
    let output = with_replica(failure(502, "BadGateway")).check("-o json");
    for name in ["certificate", "policy"] {
        assert_eq!(messages(&output, name, "ok"), [""; 0], "{output:?}");
        let remedy = items(&output, name, "unknown")[0]["remedy"].to_string();
        assert!(remedy.contains("networkPolicy.metricsFrom"), "{remedy}");
        assert!(remedy.contains("network between"), "{remedy}");
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
        let cluster = cluster(move |path| {
            (path == "/api/v1/namespaces/jobs/pods?dryRun=All").then(|| (201, pod.clone()))
        });
        let output = cluster.check("--try-in jobs -o json");
        let counts = ["ok", "problem"].map(|state| messages(&output, "trial-pod", state).len());
        assert_eq!(counts, if is_placed { [1, 0] } else { [0, 1] }, "{output:?}");
    }
}

#[test]
fn a_service_that_is_called_is_looked_for_with_its_pods() {
    let cluster = with_replica((
        200,
        json!({"version": env!("CARGO_PKG_VERSION"), "policy": {"digest": "00", "problem": null},
            "certificate": {"chain": "", "problem": "expired at noon"}, "later": 1}),
    ));
    let output = cluster.check("-o json");
    assert_eq!(output.json()["namespace"], "system", "{output:?}");
    let service = messages(&output, "service", "problem");
    assert!(service[0].starts_with("there is no Service system/hook"), "{service:?}");
    let certificate = messages(&output, "certificate", "problem");
    assert!(certificate.contains(&"pod w1: expired at noon".to_owned()), "{certificate:?}");
    assert_eq!(messages(&output, "policy", "warning"), ["another policy is in force (00) in w1"]);
    assert_eq!(messages(&output, "versions", "ok").len(), 1, "{output:?}");
}

#[test]
fn without_rights_it_says_which_are_missing_and_where_to_look() {
    let cluster = cluster(|path| match path {
        "/version" => None,
        path if path.contains("selfsubjectaccessreviews") => {
            Some((201, json!({"spec": {}, "status": {"allowed": false}})))
        }
        _ => Some(forbidden()),
    });
    cluster.check("").fails(
        "where stowplan is installed is not known, because webhook configurations may not be listed: name \
         its namespace (--installed-in)",
    );
    let output = cluster.check("--installed-in system --try-in jobs -o json");
    // The test pod that was asked for gave no result.
    assert_eq!((output.code, output.stderr.as_str()), (1, ""), "{output:?}");
    let unknown = messages(&output, "webhook-configurations", "unknown");
    let right = "the right is missing: list mutatingwebhookconfigurations";
    assert!(unknown[0].ends_with(right), "{unknown:?}");
    let missing = messages(&output, "rights-of-this-command", "unknown").join("\n");
    for right in
        ["get leases.coordination.k8s.io stowplan-controller", "get pods/proxy", "get /metrics"]
    {
        assert!(missing.contains(right), "{right}: {missing}");
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
