//! `stowplan teardown`: what it lists and what it writes.

use serde_json::{Value, json};

use super::api_server::{Answer, Cluster, configuration, failure, list};
use super::command::{Shown, run};

const TAINT: &str = "status-taint.cluster-autoscaler.kubernetes.io/stowplan-exclusive";

/// A cluster with one of each trace, beside objects of users that look alike. The controller that
/// held the Lease has released it, unless `holder` names one.
fn with_traces(path: &str, holder: &str) -> Answer {
    with_lease(path, &json!({"holderIdentity": holder}))
}

/// A cluster with one of each trace, and this Lease.
fn with_lease(path: &str, lease: &Value) -> Answer {
    let labelled = |name: &str, labels: &Value| {
        let metadata = json!({"name": name, "namespace": "jobs", "uid": "u", "labels": labels});
        json!({"metadata": metadata, "spec": {}})
    };
    let placeholder = |name: &str| labelled(name, &json!({"stowplan.dev/placeholder": "group"}));
    let gates = json!([{"name": "stowplan.dev/mpi-workers"}, {"name": "example.com/gate"}]);
    let gated = json!({"metadata": {"name": "gated", "namespace": "jobs"},
        "spec": {"containers": [], "schedulingGates": gates}});
    let node = json!({
        "metadata": {"name": "node-1", "labels": {"pool.stowplan.node-restriction.kubernetes.io/abc": "0", "mine": "yes"}},
        "spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}, {"key": "mine", "effect": "NoSchedule"}]}});
    let lease = json!({"metadata": {"name": "stowplan-controller", "resourceVersion": "1"},
        "spec": lease});
    let secret = json!({"metadata": {"name": "stowplan-tls", "uid": "u", "labels":
        {"app.kubernetes.io/managed-by": "stowplan", "stowplan.dev/tls": "serving"}}});
    let end = path.split('?').next().unwrap_or_default();
    match end {
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations" => list(&[
            configuration("pods.example.com", &Value::Null),
            configuration("stowplan.stowplan.dev", &Value::Null),
        ]),
        "/apis/apps/v1/statefulsets" => list(&[placeholder("group"), placeholder("users")]),
        "/api/v1/pods" => list(&[gated]),
        "/api/v1/nodes" => list(&[node]),
        "/apis/stowplan.dev/v1alpha1/hostpools" => list(&[placeholder("pool")]),
        "/api/v1/namespaces/away" => failure(404, "NotFound"),
        _ if end.ends_with("/leases/stowplan-controller") => (200, lease),
        _ if end.ends_with("/secrets/stowplan-tls") => (200, secret),
        _ if end.ends_with("/secrets/stowplan-ca") => failure(404, "NotFound"),
        // A namespace, and the answers to writes.
        _ if end.rsplit('/').nth(1).is_some_and(|part| part != "v1" && part != "v1alpha1") => {
            (200, json!({"metadata": {"name": "written"}}))
        }
        _ => list(&[]),
    }
}

#[test]
fn a_dry_run_lists_what_a_teardown_removes_and_changes_nothing() {
    let cluster = Cluster::start(|path| with_traces(path, ""));
    let listed = cluster.run("teardown -n jobs --dry-run", "");
    assert_eq!(cluster.writes(), [""; 0]);

    let removed = cluster.run("teardown -n jobs", "");
    assert_eq!((listed.code, removed.code), (0, 0), "{removed:?}");
    assert_eq!(listed.stdout.replace("would remove ", "removed "), removed.stdout);
    let writes = cluster.writes();
    let lines = listed.stdout.lines().filter(|line| line.starts_with("would remove ")).count();
    // The Lease is also taken.
    assert_eq!(writes.len(), lines + 1, "{writes:?}");

    let held = Cluster::start(|path| with_traces(path, "controller-0"));
    let url = [&*cluster.url, &*held.url];
    let mut shown = Shown::default();
    shown
        .add("--dry-run", &listed)
        .add("--dry-run, a holder", &held.run("teardown -n jobs --dry-run", ""));
    assert_eq!(held.writes(), [""; 0]);
    let text = url.iter().fold(shown.0, |text, url| text.replace(url, "URL"));
    Shown(text).compare("teardown");
}

/// A controller that was killed has left it. It has expired minutes ago by the clock of the API server: that of this machine
/// may be ahead.
#[test]
fn a_lease_that_has_expired_is_taken_at_once() {
    let lease = |renewed: &str| json!({"holderIdentity": "controller-0", "leaseDurationSeconds": 15, "renewTime": renewed});
    for (renewed, waits) in [
        ("2026-01-01T00:04:40.000000Z", false),
        ("2026-01-01T00:04:50.000000Z", true),
        ("2999-01-01T00:00:00.000000Z", true),
    ] {
        let cluster = Cluster::start(move |path| with_lease(path, &lease(renewed)));
        let output = cluster.run("teardown -n jobs --dry-run", "");
        assert_eq!(output.stderr.contains("would wait up to 15 s"), waits, "{output:?}");
    }
    let cluster =
        Cluster::start(move |path| with_lease(path, &lease("2026-01-01T00:00:00.000000Z")));
    let output = cluster.run("teardown -n jobs", "");
    assert_eq!((output.code, output.stderr.contains("waiting")), (0, false), "{output:?}");
}

#[test]
fn a_namespace_that_does_not_exist_is_refused_before_anything_is_removed() {
    let cluster = Cluster::start(|path| with_traces(path, ""));
    let output = cluster.run("teardown -n away", "");
    assert_eq!((output.code, &*output.stdout), (2, ""), "{output:?}");
    output.warns(&["there is no namespace away", "kubectl create namespace away"]);
    assert_eq!(cluster.writes(), [""; 0]);
}

#[test]
fn the_cluster_is_the_one_that_is_asked_for() {
    let cluster = Cluster::start(|path| with_traces(path, ""));
    let output = cluster.run("teardown -n jobs --context other --dry-run", "");
    assert!(output.error_line().contains("other"), "{output:?}");
    let output = cluster.run("teardown -n jobs --kubeconfig none.yaml --dry-run", "");
    assert!(output.error_line().starts_with("--kubeconfig none.yaml: "), "{output:?}");
    assert_eq!(cluster.writes(), [""; 0]);
    run("teardown -n jobs", "")
        .fails("no usable kubeconfig (set KUBECONFIG, or use --kubeconfig):…");
}
