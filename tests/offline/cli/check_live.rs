//! `stowplan check` of a cluster: what it reads from an API server, and what it does without.

use serde_json::{Value, json};

use super::api_server::{
    Answer, Cluster, config_map, configuration, forbidden, list, with_one_node,
};

fn pod(name: &str, namespace: &str, owner: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace, "ownerReferences": owner,
        "labels": {"pod-template-hash": "5d4f"}},
        "spec": {"containers": []}, "status": {"phase": "Pending"}})
}

/// Deployment `web` of namespace `jobs` with one of two pods; its template asks for a node that does
/// not exist.
fn web(path: &str) -> Answer {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f", "uid": "u", "controller": true}]);
    let own = pod("web-5d4f-1", "jobs", &owner);
    match path {
        path if path.starts_with("/apis/apps/v1/namespaces/jobs/deployments") => list(&[
            json!({"metadata": {"name": "web", "namespace": "jobs"}, "spec": {"replicas": 2, "template": {
                "metadata": {"annotations": {"streams.ibm.com/host": "node-9"}}, "spec": {"containers": []}}}}),
        ]),
        path if path.starts_with("/api/v1/namespaces/jobs/pods") => list(&[own]),
        path if path.starts_with("/api/v1/pods") => {
            list(&[own, pod("lonely", "feeds", &json!([]))])
        }
        path => with_one_node(path),
    }
}

#[test]
fn a_deployment_is_checked_with_its_template_and_its_pods() {
    let cluster = Cluster::start(web);
    cluster.check("deployment/web").has_lines(
        1,
        &[
            "Deployment jobs/web",
            "  asked      2 pods, of which 1 exist",
            "  obstacle   its pods are refused: streams.ibm.com/host: no node has the name \"node-9\"",
            "  Pod jobs/web-5d4f-1",
        ],
    );
    cluster
        .check("deployment/other")
        .fails("namespace jobs has no Deployment other (-n names another namespace)");
}

#[test]
fn a_namespace_and_all_of_them_are_checked() {
    let cluster = Cluster::start(web);
    cluster
        .check("-n jobs")
        .shows(1, &["\nNamespace jobs: 1 object with an obstacle, 0 without\n"])
        .lacks("lonely");
    let total = "\n2 namespaces, 2 with an obstacle\n";
    let namespaces = ["Namespace feeds: ", "Namespace jobs: ", "Pod feeds/lonely", total];
    cluster.check("-A").shows(1, &namespaces);
}

#[test]
fn check_works_with_rights_in_one_namespace_and_says_what_is_missing() {
    let cluster = Cluster::start(|path| match path {
        path if path.contains("/namespaces/jobs/") => web(path),
        _ => forbidden(),
    });
    for words in ["pod/web-5d4f-1", "deployment/web", "-n jobs"] {
        let nodes = "stowplan: nodes cannot be listed: the server says Forbidden: which hosts, tags and members";
        // Which hosts exist is not known, so no refusal is claimed.
        cluster.check(words).shows(1, &[]).lacks("refused").warns(&[nodes]);
    }
    let output = cluster.check("node/node-1");
    let last = "stowplan: no node is known, so node-1 cannot be checked\n";
    assert!(output.code == 2 && output.stderr.ends_with(last), "{output:?}");
}

#[test]
fn check_lists_no_config_maps_which_its_users_may_not_read() {
    let cluster = Cluster::start(|path| match path.contains("/configmaps") {
        true => forbidden(),
        false => web(path),
    });
    for words in ["pod/web-5d4f-1", "-n jobs", "-A"] {
        let output = cluster.check(words);
        assert!(!output.stderr.contains("configmaps"), "{output:?}");
    }
}

#[test]
fn check_reads_the_policy_of_the_cluster() {
    let cluster = Cluster::start(|path| match path {
        path if path.starts_with("/apis/admissionregistration.k8s.io/v1/mutating") => {
            let annotations = json!({"stowplan.dev/policy": "system/policy"});
            list(&[configuration("pods.stowplan.dev", &annotations)])
        }
        "/api/v1/namespaces/system/configmaps/policy" => {
            config_map(&json!({"policy.yaml": "excludedNamespaces: [jobs]"}))
        }
        path => web(path),
    });
    cluster.check("pod/web-5d4f-1").shows(1, &["nothing: the policy excludes namespace jobs"]);
}
