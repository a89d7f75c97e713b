//! `stowplan plan --live`: what it reads from an API server, and what it does without.

use serde_json::json;

use super::api_server::{Cluster, failure, node, page};
use super::command::{Folder, pod};

#[test]
fn live_without_a_kubeconfig_says_so() {
    let folder = Folder::new(&[("pod.yaml", &pod("p", ""))]);
    let output = folder.plan("-f pod.yaml --live");
    assert!(output.error_line().starts_with("--live: no usable kubeconfig"), "{output:?}");
}

#[test]
fn live_reads_the_cluster_page_by_page() {
    let cluster = Cluster::start(|path| match path {
        path if path.starts_with("/api/v1/nodes") && path.contains("continue=more") => {
            page("NodeList", "", &json!([node("node-2")]))
        }
        path if path.starts_with("/api/v1/nodes") => {
            page("NodeList", "more", &json!([node("node-1")]))
        }
        path if path.starts_with("/api/v1/namespaces") => page("NamespaceList", "", &json!([])),
        path if path.starts_with("/apis/stowplan.dev/v1alpha1/hostpools") => page(
            "HostPoolList",
            "",
            &json!([{"apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
                "metadata": {"name": "two", "namespace": "jobs"}, "spec": {"hosts": ["node-2", "node-1"]}}]),
        ),
        path if path.starts_with("/apis/stowplan.dev/v1alpha1/streamsjobs") => {
            page("StreamsJobList", "", &json!([]))
        }
        path if path.starts_with("/api/v1/pods") && path.contains("labelSelector") => {
            page("PodList", "", &json!([]))
        }
        path if path.starts_with("/apis/tekton.dev/") => failure(404, "NotFound"),
        path if ["/api/v1/persistentvolume", "/apis/storage.k8s.io/", "/apis/apps/"]
            .iter()
            .any(|start| path.starts_with(start)) =>
        {
            page("List", "", &json!([]))
        }
        _ => failure(500, "InternalError"),
    });
    // In the namespace of the context, where kubectl would create it.
    let output = cluster.plan("streams.ibm.com/host-pool: 'two[0]'");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    assert!(output.stdout.starts_with("Pod jobs/p: placed\n"), "{output:?}");
    assert!(output.stdout.contains("metadata.name In [node-2]"), "{output:?}");
    let output = cluster.plan("streams.ibm.com/host: node-3");
    assert_eq!(output.code, 1);
    assert!(!output.stdout.contains("no cluster given"), "{output:?}");
}

#[test]
fn live_goes_without_pools_where_they_are_not_installed() {
    let cluster = Cluster::start(|path| match path {
        path if path.starts_with("/api/v1/nodes") => page("NodeList", "", &json!([node("node-1")])),
        path if path.starts_with("/apis/stowplan.dev/") => failure(404, "NotFound"),
        _ => page("List", "", &json!([])),
    });
    let output = cluster.plan("streams.ibm.com/host: node-1");
    assert_eq!(output.code, 0);
    assert_eq!(
        output.stderr,
        "stowplan: the cluster does not know HostPools: stowplan is not installed in it\n"
    );
}

#[test]
fn live_says_what_may_not_be_listed() {
    let cluster = Cluster::start(|_| failure(403, "Forbidden"));
    let output = cluster.plan("");
    assert_eq!(output.error_line(), "--live: nodes cannot be listed: the server says Forbidden");
}

#[test]
fn live_goes_without_what_may_not_be_listed_but_for_nodes_and_pods() {
    let cluster = Cluster::start(|path| match path {
        path if path.starts_with("/api/v1/nodes") => page("NodeList", "", &json!([node("node-1")])),
        path if path.starts_with("/api/v1/pods") => page("PodList", "", &json!([])),
        _ => failure(403, "Forbidden"),
    });
    let output = cluster.plan("streams.ibm.com/host: node-1");
    assert_eq!(output.code, 0, "{output:?}");
    for plural in [
        "namespaces",
        "hostpools",
        "streamsjobs",
        "persistentvolumeclaims",
        "persistentvolumes",
        "storageclasses",
        "statefulsets",
        "taskruns",
        "pipelineruns",
        "pipelines",
    ] {
        let warning = format!("stowplan: {plural} cannot be listed: the server says Forbidden: ");
        assert_eq!(output.stderr.matches(&warning).count(), 1, "{plural}: {output:?}");
    }
    assert_eq!(output.stderr.lines().count(), 10, "{output:?}");
}

#[test]
fn live_without_an_answering_cluster_says_so() {
    let output = Cluster("http://127.0.0.1:1".to_owned()).plan("");
    assert!(output.error_line().starts_with("--live: nodes cannot be listed: "), "{output:?}");
}
