//! `stowplan check` of a cluster: what it reads from an API server, and what it does without.

use serde_json::{Value, json};

use super::api_server::{Cluster, failure, node, page};
use super::command::{Folder, Output};

fn check(cluster: &Cluster, words: &str) -> Output {
    let folder = Folder::new(&[(".kube/config", &cluster.kubeconfig())]);
    folder.run(["check"].into_iter().chain(words.split_whitespace()), b"")
}

fn pod(name: &str, namespace: &str, owner: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace, "ownerReferences": owner,
        "labels": {"pod-template-hash": "5d4f"}},
        "spec": {"containers": []}, "status": {"phase": "Pending"}})
}

fn of_web() -> Value {
    json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f", "uid": "u", "controller": true}])
}

/// Deployment `web` of namespace `jobs` with one of two pods; its template asks for a node that does
/// not exist.
fn web(path: &str) -> (u16, Value) {
    match path {
        path if path.starts_with("/api/v1/nodes") => page("NodeList", "", &json!([node("node-1")])),
        path if path.starts_with("/apis/apps/v1/namespaces/jobs/deployments") => page(
            "DeploymentList",
            "",
            &json!([{"metadata": {"name": "web", "namespace": "jobs"}, "spec": {"replicas": 2, "template": {
                "metadata": {"annotations": {"streams.ibm.com/host": "node-9"}}, "spec": {"containers": []}}}}]),
        ),
        path if path.starts_with("/api/v1/namespaces/jobs/pods") => {
            page("PodList", "", &json!([pod("web-5d4f-1", "jobs", &of_web())]))
        }
        path if path.starts_with("/api/v1/pods") => page(
            "PodList",
            "",
            &json!([pod("web-5d4f-1", "jobs", &of_web()), pod("lonely", "feeds", &json!([]))]),
        ),
        _ => page("List", "", &json!([])),
    }
}

#[test]
fn a_deployment_is_checked_with_its_template_and_its_pods() {
    let cluster = Cluster::start(web);
    let output = check(&cluster, "deployment/web");
    assert_eq!(output.code, 1, "{output:?}");
    for line in [
        "Deployment jobs/web",
        "  asked      2 pods, of which 1 exist",
        "  obstacle   its pods are refused: streams.ibm.com/host: no node has the name \"node-9\"",
        "  Pod jobs/web-5d4f-1",
    ] {
        assert!(output.stdout.lines().any(|it| it == line), "{line}\n{}", output.stdout);
    }
    let output = check(&cluster, "deployment/other");
    let missing = "namespace jobs has no Deployment other (-n names another namespace)";
    assert_eq!(output.error_line(), missing);
}

#[test]
fn a_namespace_and_all_of_them_are_checked() {
    let cluster = Cluster::start(web);
    let output = check(&cluster, "-n jobs");
    assert!(
        output.stdout.starts_with("Namespace jobs: 1 object with an obstacle, 0 without\n"),
        "{output:?}"
    );
    assert!(!output.stdout.contains("lonely"), "{output:?}");
    let output = check(&cluster, "-A");
    assert_eq!(output.code, 1, "{output:?}");
    for word in [
        "Namespace feeds: ",
        "Namespace jobs: ",
        "Pod feeds/lonely",
        "\n2 namespaces, 2 with an obstacle\n",
    ] {
        assert!(output.stdout.contains(word), "{word}\n{}", output.stdout);
    }
    let output = check(&cluster, "pod/p -A");
    assert_eq!(output.code, 2, "{output:?}");
}

#[test]
fn check_works_with_rights_in_one_namespace_and_says_what_is_missing() {
    let cluster = Cluster::start(|path| match path {
        path if path.contains("/namespaces/jobs/") => web(path),
        _ => failure(403, "Forbidden"),
    });
    for words in ["pod/web-5d4f-1", "deployment/web", "-n jobs"] {
        let output = check(&cluster, words);
        assert_eq!(output.code, 1, "{output:?}");
        // Which hosts exist is not known, so no refusal is claimed.
        assert!(!output.stdout.contains("refused"), "{output:?}");
        let nodes = "stowplan: nodes cannot be listed: the server says Forbidden: which hosts, tags and members";
        assert!(output.stderr.contains(nodes), "{output:?}");
    }
    let output = check(&cluster, "node/node-1");
    assert_eq!(output.code, 2, "{output:?}");
    let last = "stowplan: no node is known, so node-1 cannot be checked\n";
    assert!(output.stderr.ends_with(last), "{output:?}");
}

#[test]
fn check_lists_no_config_maps_which_its_users_may_not_read() {
    let cluster = Cluster::start(|path| match path {
        path if path.contains("/configmaps") => failure(403, "Forbidden"),
        path => web(path),
    });
    for words in ["pod/web-5d4f-1", "-n jobs", "-A"] {
        let output = check(&cluster, words);
        assert!(!output.stderr.contains("configmaps"), "{output:?}");
    }
}

#[test]
fn check_reads_the_policy_of_the_cluster() {
    let cluster = Cluster::start(|path| match path {
        path if path.starts_with("/apis/admissionregistration.k8s.io/v1/mutating") => {
            let webhook = json!({"name": "pods.stowplan.dev", "admissionReviewVersions": [],
                "clientConfig": {}, "sideEffects": "None"});
            page(
                "List",
                "",
                &json!([{"metadata": {"name": "s",
                "annotations": {"stowplan.dev/policy": "system/policy"}}, "webhooks": [webhook]}]),
            )
        }
        "/api/v1/namespaces/system/configmaps/policy" => (
            200,
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "policy"},
                "data": {"policy.yaml": "excludedNamespaces: [jobs]"}}),
        ),
        path => web(path),
    });
    let output = check(&cluster, "pod/web-5d4f-1");
    assert!(output.stdout.contains("nothing: the policy excludes namespace jobs"), "{output:?}");
}
