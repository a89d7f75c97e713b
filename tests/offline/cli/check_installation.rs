//! `stowplan check` without an object: what it reads from an API server, and its exit codes.

use serde_json::{Value, json};

use super::api_server::{Cluster, failure, page};
use super::command::{Folder, Output, run};

fn check(cluster: &Cluster, words: &str) -> Output {
    let folder = Folder::new(&[(".kube/config", &cluster.kubeconfig())]);
    folder.run(["check"].into_iter().chain(words.split_whitespace()), b"")
}

/// The messages of the lines with this name and state.
fn messages(output: &Output, name: &str, state: &str) -> Vec<String> {
    let report = output.json();
    assert_eq!(report["kind"], "Installation", "{output:?}");
    let items = report["items"].as_array().expect("items").iter();
    items
        .filter(|item| item["name"] == name && item["state"] == state)
        .map(|item| item["message"].as_str().expect("a message").to_owned())
        .collect()
}

/// A cluster in which everything may be asked, with this answer to what is not in every cluster.
fn answer(path: &str, other: &dyn Fn(&str) -> Option<(u16, Value)>) -> (u16, Value) {
    if let Some(answer) = other(path) {
        return answer;
    }
    match path {
        "/version" => (
            200,
            json!({"major": "1", "minor": "36", "gitVersion": "v1.36.1", "buildDate": "", "compiler": "",
                "gitCommit": "", "gitTreeState": "", "goVersion": "", "platform": ""}),
        ),
        path if path.contains("accessreviews") => {
            (201, json!({"spec": {}, "status": {"allowed": true}}))
        }
        // A list has a query, or is of a kind of which one object is read by its name.
        path if path.contains('?') || path.ends_with("configurations") => {
            page("List", "", &json!([]))
        }
        _ => failure(404, "NotFound"),
    }
}

#[test]
fn a_cluster_without_stowplan_has_problems_with_a_remedy() {
    let cluster = Cluster::start(|path| answer(path, &|_| None));
    let output = check(&cluster, "-o json");
    assert_eq!((output.code, output.stderr.as_str()), (1, ""), "{output:?}");
    let missing = messages(&output, "webhook-configurations", "problem");
    assert_eq!(missing[0], "there is no webhook pods.stowplan.dev: pods are not placed");
    assert_eq!(messages(&output, "definitions", "problem").len(), 2, "{output:?}");
    assert_eq!(messages(&output, "tekton", "ok"), ["Tekton is not installed"]);
    assert_eq!(messages(&output, "rights-of-this-command", "ok").len(), 1, "{output:?}");
    let output = check(&cluster, "");
    assert_eq!(output.code, 1, "{output:?}");
    let last = output.stdout.lines().last().expect("a line");
    assert!(last.starts_with("5 problems, 0 warnings, "), "{output:?}");
}

/// A cluster with one replica of the webhook, which answers this at `/status`.
fn with_replica(status: (u16, Value)) -> Cluster {
    Cluster::start(move |path| {
        answer(path, &|path| match path {
            path if path.contains("/mutatingwebhookconfigurations") => {
                let webhook = json!({"name": "pods.stowplan.dev", "admissionReviewVersions": ["v1"],
                    "sideEffects": "None", "failurePolicy": "Ignore", "timeoutSeconds": 5,
                    "clientConfig": {"service": {"name": "hook", "namespace": "system", "path": "/mutate"}}});
                Some(page(
                    "List",
                    "",
                    &json!([{"metadata": {"name": "s",
                    "annotations": {"stowplan.dev/policy": "system/policy"}}, "webhooks": [webhook]}]),
                ))
            }
            path if path.starts_with("/api/v1/namespaces/system/pods?") => Some(page(
                "PodList",
                "",
                &json!([
                    {"metadata": {"name": "w1"}, "status": {"podIP": "10.0.0.1"}, "spec": {"containers": [
                        {"name": "webhook", "args": ["webhook"], "ports": [{"name": "admin", "containerPort": 8080}]}]}}
                ]),
            )),
            "/api/v1/namespaces/system/pods/w1:8080/proxy/status" => Some(status.clone()),
            "/api/v1/namespaces/system/configmaps/policy" => {
                Some((200, json!({"metadata": {}, "data": {"policy.yaml": "onInvalid: warn"}})))
            }
            _ => None,
        })
    })
}

#[test]
fn a_replica_that_does_not_answer_may_be_behind_a_network_policy() {
    let output = check(&with_replica(failure(502, "BadGateway")), "-o json");
    for name in ["certificate", "policy"] {
        assert_eq!(messages(&output, name, "ok"), [""; 0], "{output:?}");
        let report = output.json();
        let mut items = report["items"].as_array().expect("items").iter();
        let is_it = |item: &&Value| item["name"] == name && item["state"] == "unknown";
        let item = items.find(is_it).unwrap_or_else(|| panic!("{name}: {output:?}"));
        let remedy = item["remedy"].as_str().expect("a remedy");
        assert!(remedy.contains("networkPolicy.metricsFrom"), "{item}");
        assert!(remedy.contains("network between"), "{item}");
    }
}

#[test]
fn only_the_placement_that_was_asked_for_shows_that_the_webhook_was_called() {
    let placed = |pod: Value| {
        let cluster = Cluster::start(move |path| {
            answer(path, &|path| match path {
                "/api/v1/namespaces/jobs/pods?dryRun=All" => Some((201, pod.clone())),
                _ => None,
            })
        });
        let output = check(&cluster, "--try-in jobs -o json");
        let ok = messages(&output, "trial-pod", "ok");
        let problems = messages(&output, "trial-pod", "problem");
        assert_eq!(ok.len() + problems.len(), 1, "{output:?}");
        !ok.is_empty()
    };
    let pod = |affinity: Value| json!({"metadata": {"name": "t"}, "spec": {"affinity": affinity}});
    let terms = |value: &str| {
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [
                {"key": "k", "operator": "In", "values": [value]}]}}]}})
    };
    // Another webhook adds affinities to every pod.
    assert!(!placed(pod(terms("else"))));
    let node = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}});
    assert!(!placed(pod(node)));
    // Under the policy `recordPlacement: false`.
    assert!(placed(pod(terms("stowplan-check"))));
    let annotations = json!({"stowplan.dev/placement": "{}"});
    assert!(placed(json!({"metadata": {"annotations": annotations}, "spec": {}})));
}

#[test]
fn a_service_that_is_called_is_looked_for_with_its_pods() {
    let cluster = with_replica((
        200,
        json!({"version": env!("CARGO_PKG_VERSION"), "policy": {"digest": "00", "problem": null},
            "certificate": {"chain": "", "problem": "expired at noon"}, "later": 1}),
    ));
    let output = check(&cluster, "-o json");
    assert_eq!(output.json()["namespace"], "system", "{output:?}");
    assert_eq!(
        messages(&output, "service", "problem")[0].find("there is no Service system/hook"),
        Some(0)
    );
    assert!(
        messages(&output, "certificate", "problem").contains(&"pod w1: expired at noon".to_owned())
    );
    assert_eq!(messages(&output, "policy", "warning"), ["another policy is in force (00) in w1"]);
    assert_eq!(messages(&output, "versions", "ok").len(), 1, "{output:?}");
}

#[test]
fn without_rights_it_says_which_are_missing_and_where_to_look() {
    let forbidden = || {
        Cluster::start(|path| {
            answer(path, &|path| {
                let is_open = path == "/version" || path.contains("selfsubjectaccessreviews");
                let denied = (201, json!({"spec": {}, "status": {"allowed": false}}));
                match path {
                    path if path.contains("selfsubjectaccessreviews") => Some(denied),
                    _ => (!is_open).then(|| failure(403, "Forbidden")),
                }
            })
        })
    };
    let output = check(&forbidden(), "");
    let line = "where stowplan is installed is not known, because webhook configurations may not be listed: name \
                its namespace (--installed-in)";
    assert_eq!(output.error_line(), line);
    let output = check(&forbidden(), "--installed-in system --try-in jobs -o json");
    // The test pod that was asked for gave no result.
    assert_eq!((output.code, output.stderr.as_str()), (1, ""), "{output:?}");
    let right = "list mutatingwebhookconfigurations";
    let unknown = messages(&output, "webhook-configurations", "unknown");
    assert!(unknown[0].ends_with(&format!("the right is missing: {right}")), "{unknown:?}");
    let missing = messages(&output, "rights-of-this-command", "unknown").join("\n");
    for right in
        ["get leases.coordination.k8s.io stowplan-controller", "get pods/proxy", "get /metrics"]
    {
        assert!(missing.contains(right), "{right}: {missing}");
    }
}

#[test]
fn what_cannot_be_looked_at_ends_with_2() {
    let cluster = Cluster("http://127.0.0.1:1".to_owned());
    let line = check(&cluster, "").error_line().to_owned();
    assert!(line.starts_with("the API server cannot be reached: "), "{line}");
    let output = check(&cluster, "--policy policy.yaml");
    assert_eq!(
        output.error_line(),
        "--policy is for the check of objects: name one, or give -n or -A"
    );
    for words in ["pod/p --try-in x", "-A --installed-in x", "-n x --wait 1s", "--try-in A"] {
        let output = run(["check"].into_iter().chain(words.split(' ')), b"");
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{words}: {output:?}");
    }
}
