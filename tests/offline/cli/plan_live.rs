//! `stowplan plan --live`: what it reads from an API server, and what it does without.

use serde_json::{Value, json};

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
        path if [
            "/api/v1/persistentvolume",
            "/apis/storage.k8s.io/",
            "/apis/apps/",
            "/apis/coordination.k8s.io/",
            "/apis/admissionregistration.k8s.io/",
        ]
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

/// Everything is forbidden but lists of namespaced kinds in the context's namespace.
fn in_one_namespace(path: &str) -> (u16, Value) {
    let is_own = path.contains("/namespaces/jobs");
    match path {
        path if path.starts_with("/apis/stowplan.dev/v1alpha1/namespaces/jobs/hostpools") => page(
            "HostPoolList",
            "",
            &json!([{"apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
                "metadata": {"name": "tagged", "namespace": "jobs"}, "spec": {"size": 0}}]),
        ),
        "/api/v1/namespaces/jobs" => (
            200,
            json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "jobs",
                "labels": {"stowplan.dev/ignore": "true"}}}),
        ),
        _ if is_own => page("List", "", &json!([])),
        _ => failure(403, "Forbidden"),
    }
}

#[test]
fn live_works_with_rights_in_one_namespace_and_says_what_is_missing() {
    let cluster = Cluster::start(|path| match path {
        // The namespace itself is not labelled here.
        "/api/v1/namespaces/jobs" => failure(403, "Forbidden"),
        path => in_one_namespace(path),
    });
    let output = cluster.plan("streams.ibm.com/host-pool: tagged");
    assert!(output.stdout.contains("HostPool tagged"), "the pool is read: {output:?}");
    for (plural, without) in [
        ("nodes", "which hosts, tags and members of pools exist is not known"),
        ("persistentvolumes", "the volumes of claims are not known"),
        (
            "mutatingwebhookconfigurations",
            "the default policy is assumed, with no further excluded namespaces (--policy gives another one)",
        ),
    ] {
        let start = format!("stowplan: {plural} cannot be listed: the server says Forbidden: ");
        let line = output.stderr.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("{plural}: {}", output.stderr));
        assert!(plural == "persistentvolumes" || line.ends_with(without), "{line}");
    }
    let narrowed = output.stderr.lines().find(|line| line.contains("read in namespace jobs only"));
    let narrowed = narrowed.unwrap_or_else(|| panic!("{}", output.stderr));
    for plural in ["hostpools", "pods", "streamsjobs", "taskruns"] {
        assert!(narrowed.contains(plural), "{narrowed}");
    }
    // A refusal for a host that is not known here says so.
    let output = cluster.plan("streams.ibm.com/host: node-1");
    let hint =
        "(nodes cannot be listed: which hosts, tags and members of pools exist is not known)";
    assert!(output.stdout.contains(hint), "{output:?}");

    // The labels of the namespace can be read with a role in it.
    let cluster = Cluster::start(in_one_namespace);
    let output = cluster.plan("streams.ibm.com/host: node-1");
    assert!(output.stdout.starts_with("Pod jobs/p: left alone: "), "{output:?}");
}

type Answer = fn() -> (u16, Value);

/// A cluster with one node, and stowplan with this policy; `annotations` of the configuration in JSON.
fn with_policy(annotations: &'static str, map: Answer) -> Cluster {
    Cluster::start(move |path| match path {
        path if path.starts_with("/api/v1/nodes") => page("NodeList", "", &json!([node("node-1")])),
        path if path.starts_with("/apis/admissionregistration.k8s.io/v1/mutating") => {
            let annotations: Value = serde_json::from_str(annotations).expect("JSON");
            let other = json!({"metadata": {"name": "other"}, "webhooks": [
                {"name": "a.example.com", "admissionReviewVersions": [], "clientConfig": {}, "sideEffects": "None"}]});
            let own = json!({"metadata": {"name": "stowplan", "annotations": annotations}, "webhooks": [
                {"name": "pods.stowplan.dev", "admissionReviewVersions": [], "clientConfig": {}, "sideEffects": "None"}]});
            page("MutatingWebhookConfigurationList", "", &json!([other, own]))
        }
        "/api/v1/namespaces/system/configmaps/stowplan-policy" => map(),
        _ => page("List", "", &json!([])),
    })
}

fn policy(text: &str) -> (u16, Value) {
    let metadata = json!({"name": "stowplan-policy", "namespace": "system"});
    (
        200,
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {"policy.yaml": text}}),
    )
}

const NAMED: &str = r#"{"stowplan.dev/policy": "system/stowplan-policy"}"#;

#[test]
fn live_reads_the_policy_and_the_exclusions_of_the_cluster() {
    let wrong = "streams.ibm.com/host: node-9";
    let output = with_policy(NAMED, || policy("onInvalid: warn\n")).plan(wrong);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    assert!(output.stdout.contains("admitted, not placed (the policy only warns)"), "{output:?}");
    let output = with_policy(NAMED, || policy("excludedNamespaces: [jobs]\n")).plan(wrong);
    assert!(output.stdout.contains("left alone: the policy excludes its namespace"), "{output:?}");

    // A given policy counts instead.
    let cluster = with_policy(NAMED, || failure(500, "it was read"));
    let folder = Folder::new(&[
        ("pod.yaml", &pod("p", wrong)),
        ("policy.yaml", "onInvalid: warn\n"),
        (".kube/config", &cluster.kubeconfig()),
    ]);
    let output = folder.plan("-f pod.yaml --live --policy policy.yaml");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
}

#[test]
fn live_says_why_the_policy_is_not_known_and_assumes_the_default_one() {
    let cases: [(&'static str, Answer, &str); 4] = [
        (
            NAMED,
            || failure(403, "Forbidden"),
            "the policy cannot be read: the server says Forbidden: ",
        ),
        (
            NAMED,
            || policy("onInvalid: maybe\n"),
            "ConfigMap system/stowplan-policy has an invalid policy, ",
        ),
        (
            NAMED,
            || {
                let (code, mut map) = policy("");
                map["data"] = json!({"policy": ""});
                (code, map)
            },
            "ConfigMap system/stowplan-policy has no key policy.yaml (it has policy); ",
        ),
        ("{}", || policy(""), "MutatingWebhookConfiguration stowplan does not name the policy "),
    ];
    for (annotations, map, why) in cases {
        let output = with_policy(annotations, map).plan("streams.ibm.com/host: node-9");
        assert_eq!(output.code, 1, "{output:?}");
        assert!(output.stderr.starts_with(&format!("stowplan: {why}")), "{output:?}");
        assert!(output.stderr.contains("the default policy is assumed"), "{output:?}");
    }
}

#[test]
fn another_context_and_another_kubeconfig_can_be_named() {
    let cluster = Cluster::start(|path| match path {
        path if path.starts_with("/api/v1/nodes") => page("NodeList", "", &json!([node("node-1")])),
        _ => page("List", "", &json!([])),
    });
    let config = cluster.kubeconfig();
    let second = config.replace("current-context: c", "current-context: none");
    let folder =
        Folder::new(&[("pod.yaml", &pod("p", "streams.ibm.com/host: node-1")), ("other", &second)]);
    let output = folder.plan("-f pod.yaml --live --kubeconfig other --context c");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    assert!(output.stdout.starts_with("Pod jobs/p: placed"), "{output:?}");
    let output = folder.plan("-f pod.yaml --live --kubeconfig other --context d");
    assert!(output.error_line().contains("d"), "{output:?}");
    let output = folder.plan("-f pod.yaml --live --kubeconfig nonesuch");
    assert!(output.error_line().starts_with("--live: --kubeconfig nonesuch: "), "{output:?}");
    let output = folder.plan("-f pod.yaml --context c");
    assert_eq!(output.error_line(), "--context and --kubeconfig need --live");
}

#[test]
fn each_cause_of_an_error_is_said_once() {
    let folder = Folder::new(&[("pod.yaml", &pod("p", "")), (".kube/config", "clusters: 5\n")]);
    let output = folder.plan("-f pod.yaml --live");
    let line = output.error_line();
    let causes: Vec<&str> = line.split(": ").collect();
    for cause in &causes {
        assert_eq!(causes.iter().filter(|other| *other == cause).count(), 1, "{line}");
    }
}

#[test]
fn a_namespace_that_cannot_exist_is_refused_before_any_request() {
    for words in ["plan -f pod.yaml --live", "check pod/p"] {
        let words = words.split(' ').chain(["-n", "Foo Bar"]);
        let output = Folder::new(&[("pod.yaml", &pod("p", ""))]).run(words, b"");
        assert_eq!(output.code, 2, "{output:?}");
        let problem = "not the name of a namespace: write 1 to 63 lower case letters, digits and -";
        assert!(output.stderr.contains(problem), "{output:?}");
    }
}

#[test]
fn live_goes_without_what_may_not_be_listed() {
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
        "leases",
        "mutatingwebhookconfigurations",
    ] {
        let warning = format!("stowplan: {plural} cannot be listed: the server says Forbidden: ");
        assert_eq!(output.stderr.matches(&warning).count(), 1, "{plural}: {output:?}");
    }
    assert_eq!(output.stderr.lines().count(), 12, "{output:?}");
}

#[test]
fn live_without_an_answering_cluster_says_so() {
    let output = Cluster("http://127.0.0.1:1".to_owned()).plan("");
    let start = "--live: nodes cannot be listed: http://127.0.0.1:1: ";
    assert!(output.error_line().starts_with(start), "{output:?}");
}
