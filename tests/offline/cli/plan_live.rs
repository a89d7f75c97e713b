//! `stowplan plan --live`: what it reads from an API server, and what it does without.

use std::collections::BTreeSet;

use serde_json::json;

use super::api_server::{
    Answer, Cluster, config_map, failure, forbidden, list, named, node, page, policy, pool,
    with_one_node, with_policy,
};
use super::command::{Folder, Shown, pod};

#[test]
fn live_reads_the_cluster_page_by_page() {
    let cluster = Cluster::start(|path| match path {
        path if path.starts_with("/api/v1/nodes") && path.contains("continue=more") => {
            list(&[node("node-2")])
        }
        path if path.starts_with("/api/v1/nodes") => page("more", &[node("node-1")]),
        path if path.starts_with("/apis/stowplan.dev/v1alpha1/hostpools") => {
            list(&[pool("two", &json!({"hosts": ["node-2", "node-1"]}))])
        }
        path if path.starts_with("/apis/tekton.dev/") => failure(404, "NotFound"),
        // Not all pods, and no other kind.
        path if path.starts_with("/api/v1/pods") && !path.contains("labelSelector")
            || path.contains("configmaps")
            || path.contains("secrets") =>
        {
            failure(500, "InternalError")
        }
        _ => list(&[]),
    });
    // In the namespace of the context, where kubectl would create it.
    let output = cluster.plan("streams.ibm.com/host-pool: 'two[0]'");
    output.has_lines(0, &["Pod jobs/p: placed"]).shows(0, &["metadata.name In [node-2]"]);
    cluster.plan("streams.ibm.com/host: node-3").shows(1, &[]).lacks("no cluster given");
}

#[test]
fn live_goes_without_pools_where_they_are_not_installed() {
    let cluster = Cluster::start(|path| match path.starts_with("/apis/stowplan.dev/") {
        true => failure(404, "NotFound"),
        false => with_one_node(path),
    });
    let output = cluster.plan("streams.ibm.com/host: node-1");
    let absent = "stowplan: the cluster does not know HostPools: stowplan is not installed in it\n";
    assert_eq!((output.code, output.stderr.as_str()), (0, absent));
}

/// Everything is forbidden but lists of namespaced kinds in the context's namespace.
fn in_one_namespace(path: &str) -> Answer {
    match path {
        path if path.starts_with("/apis/stowplan.dev/v1alpha1/namespaces/jobs/hostpools") => {
            list(&[pool("tagged", &json!({"size": 0}))])
        }
        "/api/v1/namespaces/jobs" => (
            200,
            json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "jobs",
                "labels": {"stowplan.dev/ignore": "true"}}}),
        ),
        path if path.contains("/namespaces/jobs") => list(&[]),
        _ => forbidden(),
    }
}

#[test]
fn live_works_with_some_rights_and_says_what_is_missing() {
    let cluster = Cluster::start(|path| match path {
        // The namespace itself is not labelled here.
        "/api/v1/namespaces/jobs" => forbidden(),
        path => in_one_namespace(path),
    });
    let mut shown = Shown::default();
    shown.add("a pool", &cluster.plan("streams.ibm.com/host-pool: tagged"));
    // A refusal for a host that is not known here says so.
    shown.add("a host", &cluster.plan("streams.ibm.com/host: node-1"));
    // The labels of the namespace can be read with a role in it.
    let cluster = Cluster::start(in_one_namespace);
    shown.add("an ignored namespace", &cluster.plan("streams.ibm.com/host: node-1"));
    let cluster = Cluster::start(|path| match path {
        path if path.starts_with("/api/v1/nodes") || path.starts_with("/api/v1/pods") => {
            with_one_node(path)
        }
        _ => forbidden(),
    });
    shown.add("nodes and pods only", &cluster.plan("streams.ibm.com/host: node-1"));
    shown.compare("live_one_namespace");
}

const WRONG: &str = "streams.ibm.com/host: node-9";

#[test]
fn live_reads_the_policy_and_the_exclusions_of_the_cluster() {
    let plan = |text: &str| with_policy(named(), policy(text), with_one_node).plan(WRONG);
    plan("onInvalid: warn\n")
        .has_lines(0, &["Pod jobs/p: admitted, not placed (the policy only warns)"]);
    plan("excludedNamespaces: [jobs]\n")
        .shows(0, &["left alone: the policy excludes its namespace"]);
    // A given policy counts instead.
    let cluster = with_policy(named(), failure(500, "it was read"), with_one_node);
    let folder = Folder::new(&[
        ("pod.yaml", &pod("p", WRONG)),
        ("policy.yaml", "onInvalid: warn\n"),
        (".kube/config", &cluster.kubeconfig()),
    ]);
    folder.plan("-f pod.yaml --live --policy policy.yaml").has_lines(0, &[]);
}

#[test]
fn live_says_why_the_policy_is_not_known_and_assumes_the_default_one() {
    let mut shown = Shown::default();
    for (label, annotations, map) in [
        ("forbidden", named(), forbidden()),
        ("invalid", named(), policy("onInvalid: maybe\n")),
        ("another key", named(), config_map(&json!({"policy": ""}))),
        ("no annotation", json!({}), policy("")),
    ] {
        shown.add(label, &with_policy(annotations, map, with_one_node).plan(WRONG));
    }
    shown.compare("live_policy");
}

#[test]
fn another_context_and_another_kubeconfig_can_be_named() {
    let config = Cluster::start(with_one_node).kubeconfig();
    let folder = Folder::new(&[
        ("pod.yaml", &pod("p", "streams.ibm.com/host: node-1")),
        ("other", &config.replace("current-context: c", "current-context: none")),
        (".kube/config", "clusters: 5\n"),
    ]);
    let plan = |words: &str| folder.plan(&format!("-f pod.yaml {words}"));
    plan("--live --kubeconfig other --context c").has_lines(0, &["Pod jobs/p: placed"]);
    plan("--live --kubeconfig other --context d").fails("…d…");
    plan("--live --kubeconfig nonesuch").fails("--live: --kubeconfig nonesuch: …");
    plan("--context c").fails("--context and --kubeconfig need --live");
    // Each cause of an error is said once.
    let output = plan("--live");
    let mut causes = BTreeSet::new();
    assert!(output.error_line().split(": ").all(|cause| causes.insert(cause)), "{output:?}");
}

#[test]
fn live_without_a_cluster_says_so() {
    let folder = Folder::new(&[("pod.yaml", &pod("p", ""))]);
    folder.plan("-f pod.yaml --live").fails("--live: no usable kubeconfig…");
    Cluster::at("http://127.0.0.1:1")
        .plan("")
        .fails("--live: nodes cannot be listed: http://127.0.0.1:1: …");
    // A namespace that cannot exist is refused before any request.
    for words in ["plan -f pod.yaml --live", "check pod/p"] {
        let output = folder.run(&format!("{words} -n Foo_Bar"), "");
        assert_eq!(output.code, 2, "{output:?}");
        output.warns(&[
            "not the name of a namespace: write 1 to 63 lower case letters, digits and -",
        ]);
    }
}
