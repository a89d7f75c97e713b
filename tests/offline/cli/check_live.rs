//! `stowplan check` of a cluster: what it reads from an API server, and what it does without.

use serde_json::{Value, json};

use super::api_server::{
    Answer, Cluster, denied_by_proxy, forbidden, list, named, policy, with_one_node, with_policy,
};
use super::command::Shown;

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
fn a_deployment_a_namespace_and_all_of_them_are_checked() {
    let cluster = Cluster::start(web);
    let mut shown = Shown::default();
    for words in ["deployment/web", "deployment/other", "-n jobs", "-A"] {
        shown.add(words, &cluster.check(words));
    }
    shown.compare("check_live");
    // Its users may not read them.
    assert!(!cluster.was_asked("configmaps"));
}

#[test]
fn check_works_with_rights_in_one_namespace_and_says_what_is_missing() {
    let cluster = Cluster::start(|path| match path {
        path if path.contains("/namespaces/jobs/") => web(path),
        _ => forbidden(),
    });
    let mut shown = Shown::default();
    // Which hosts exist is not known, so no refusal is claimed.
    for words in ["pod/web-5d4f-1", "deployment/web", "-n jobs", "node/node-1"] {
        shown.add(words, &cluster.check(words));
    }
    shown.compare("check_one_namespace");
}

/// It is not a right that is missing, so nothing is read in one namespace only.
#[test]
fn a_list_that_a_proxy_denies_is_quoted() {
    let cluster = Cluster::start(|path| match path {
        path if path.starts_with("/api/v1/pods") => denied_by_proxy(),
        path => web(path),
    });
    let mut shown = Shown::default();
    shown.add("-A", &cluster.check("-A"));
    shown.compare("check_denied_by_proxy");
}

#[test]
fn check_reads_the_policy_of_the_cluster() {
    let cluster = with_policy(named(), policy("excludedNamespaces: [jobs]"), web);
    cluster.check("pod/web-5d4f-1").shows(1, &["nothing: the policy excludes namespace jobs"]);
}
