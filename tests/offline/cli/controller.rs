//! `stowplan controller`: start, readiness and stop.

use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::api_server::{Cluster, failure, list};
use super::command::Folder;
use crate::webhook::process::Process;

#[test]
fn a_controller_without_a_cluster_or_without_its_policy_file_does_not_start() {
    for (words, why) in [
        ("--admin-listen 127.0.0.1:0", "stowplan: cannot find the cluster (a kubeconfig, or "),
        ("--policy nonesuch.yaml", "stowplan: nonesuch.yaml: No such file"),
    ] {
        let output = Folder::new(&[]).run(&format!("controller --namespace ns {words}"), "");
        // The log has a line for each reason, too.
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{output:?}");
        output.warns(&[why]);
    }
}

/// Starts a controller with these arguments beside the namespace and a free port, and waits until it listens.
fn start(folder: &Folder, arguments: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stowplan"));
    command
        .args(["controller", "--namespace", "ns", "--admin-listen", "127.0.0.1:0"])
        .args(arguments)
        .current_dir(folder.0.path())
        .env("KUBECONFIG", "kubeconfig");
    Process::start(&mut command, folder.0.path(), None, 1)
}

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/ns/events";

#[test]
fn a_controller_is_not_ready_before_it_has_seen_the_cluster_and_stops_on_sigterm() {
    let kubeconfig = Cluster::at("http://127.0.0.1:1").kubeconfig();
    let folder = Folder::new(&[("kubeconfig", &kubeconfig)]);
    let running = start(&folder, &[]);
    let (livez, readyz) = (running.admin("/livez"), running.admin("/readyz"));
    assert_eq!((livez.status, &*livez.body, readyz.status), (200, "ok\n", 503));
    for kind in ["nodes", "namespaces", "hostpools", "streamsjobs", "pods"] {
        assert!(readyz.body.contains(&format!("{kind} are not synced yet\n")), "{readyz:?}");
    }
    assert!(!readyz.body.contains("certificate"), "it has none: {readyz:?}");
    assert!(running.admin("/metrics").body.contains("\nstowplan_controller_leader 0\n"));
    running.terminate();
    assert_eq!(running.ended().code(), Some(0));
}

#[test]
fn a_controller_whose_policy_is_missing_says_which_and_takes_it_once_it_exists() {
    let map = Arc::new(Mutex::new(None::<Value>));
    let state = Arc::clone(&map);
    // Its watches fail, so that it lists again and again.
    let cluster = Cluster::start(move |path| {
        let is_list = path.starts_with("/api/v1/namespaces/ns/configmaps?");
        match is_list && !path.contains("watch=") {
            true => list(state.lock().expect("no panic").as_slice()),
            false => failure(500, "InternalError"),
        }
    });
    let folder = Folder::new(&[("kubeconfig", &cluster.kubeconfig())]);
    let running = start(&folder, &["--identity", "me", "--policy-config-map", "the-policy"]);
    let shows = |text: &str| running.admin("/readyz").body.contains(text);
    let missing = "no policy is in force: ConfigMap ns/the-policy does not exist; `helm upgrade`";
    running.until("missing", || shows(missing));
    assert_eq!(running.admin("/readyz").status, 503);
    // It reports the problem at its own pod, and does not compete for the lease.
    running.until("reported", || cluster.was_asked(EVENTS));
    assert!(!cluster.was_asked("/leases/"));
    assert_eq!(running.metric("stowplan_policy_rejected"), 1.0);
    let data =
        json!({"metadata": {"name": "the-policy"}, "data": {"policy.yaml": "onInvalid: warn\n"}});
    *map.lock().expect("no panic") = Some(data);
    // As `sha256sum` prints it.
    running.until("in force", || shows("policy: 0f80fafb508b328c\n"));
    running.until("competing", || cluster.was_asked("/leases/"));
    // It is deleted: the old one stays in force, and the problem is shown.
    *map.lock().expect("no panic") = None;
    running.until("deleted", || {
        shows("a newer policy is not in force: ConfigMap ns/the-policy does not exist")
            && shows("policy: 0f80fafb508b328c\n")
    });
    assert_eq!(running.metric("stowplan_policy_rejected"), 1.0);
}
