//! `stowplan controller`: start, readiness and stop.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::api_server::{Cluster, failure, list};
use super::command::Folder;

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

/// A controller, which ends with the test.
struct Running {
    child: Child,
    url: String,
}

impl Running {
    /// Starts it with these arguments beside the namespace and a free port, and waits until it listens.
    fn start(folder: &Folder, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_stowplan"))
            .args(["controller", "--namespace", "ns", "--admin-listen", "127.0.0.1:0"])
            .args(arguments)
            .current_dir(folder.0.path())
            .env("KUBECONFIG", "kubeconfig")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let output = child.stdout.take().expect("a pipe");
        let mut running = Self { child, url: String::new() };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("admin on ").unwrap_or_else(|| panic!("{line}"));
        url.clone_into(&mut running.url);
        running
    }

    /// What `GET path` answers: the status and the body.
    fn get(&self, path: &str) -> (u16, String) {
        let address = self.url.strip_prefix("http://").expect("plain HTTP");
        let mut stream = std::net::TcpStream::connect(address).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let answer = std::io::read_to_string(stream).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), body.to_owned())
    }

    /// Returns whether `/readyz` shows this.
    fn shows(&self, text: &str) -> bool {
        self.get("/readyz").1.contains(text)
    }

    /// Waits until this is so; the limit is there for what never comes.
    fn until(&self, what: &str, is: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is() {
            assert!(Instant::now() < deadline, "not {what}: {}", self.get("/readyz").1);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/ns/events";

#[test]
fn a_controller_is_not_ready_before_it_has_seen_the_cluster_and_stops_on_sigterm() {
    let kubeconfig = Cluster::at("http://127.0.0.1:1").kubeconfig();
    let folder = Folder::new(&[("kubeconfig", &kubeconfig)]);
    let mut running = Running::start(&folder, &[]);
    assert_eq!(running.get("/livez"), (200, "ok\n".to_owned()));
    let (status, body) = running.get("/readyz");
    assert_eq!(status, 503);
    for kind in ["nodes", "namespaces", "hostpools", "streamsjobs", "pods"] {
        assert!(body.contains(&format!("{kind} are not synced yet\n")), "{body}");
    }
    assert!(!body.contains("certificate"), "it has none: {body}");
    let (status, body) = running.get("/metrics");
    assert_eq!(status, 200);
    assert!(body.contains("\nstowplan_controller_leader 0\n"), "{body}");
    kill_process(Pid::from_child(&running.child), Signal::TERM).expect("it runs");
    assert_eq!(running.child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn with_an_invalid_policy_a_controller_lives_and_plans_nothing() {
    let cluster = Cluster::start(|_| failure(500, "InternalError"));
    let folder = Folder::new(&[
        ("kubeconfig", &cluster.kubeconfig()),
        ("policy.yaml", "streams: {enabeld: true}\n"),
    ]);
    let running = Running::start(&folder, &["--identity", "me", "--policy", "policy.yaml"]);
    let (status, body) = running.get("/readyz");
    assert_eq!(status, 503);
    let problem = "no policy is in force: policy.yaml: streams.enabeld: ";
    assert!(body.contains(problem), "{body}");
    // It reports the problem at its own pod, and does not compete for the lease.
    running.until("reported", || cluster.was_asked(EVENTS));
    assert!(!cluster.was_asked("/leases/"));
    assert!(running.get("/metrics").1.contains("\nstowplan_policy_rejected 1\n"));
    folder.write("policy.yaml", b"{}");
    running.until("competing", || cluster.was_asked("/leases/"));
    assert!(!running.shows("no policy is in force"));
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
    let running =
        Running::start(&folder, &["--identity", "me", "--policy-config-map", "the-policy"]);
    running.until("missing", || {
        running
            .shows("no policy is in force: ConfigMap ns/the-policy does not exist; `helm upgrade`")
    });
    running.until("reported", || cluster.was_asked(EVENTS));
    assert!(!cluster.was_asked("/leases/"));
    let text = "onInvalid: warn\n";
    let data = json!({"metadata": {"name": "the-policy"}, "data": {"policy.yaml": text}});
    *map.lock().expect("no panic") = Some(data);
    // As `sha256sum` prints it.
    running.until("in force", || running.shows("policy: 0f80fafb508b328c\n"));
    running.until("competing", || cluster.was_asked("/leases/"));
    // It is deleted: the old one stays in force, and the problem is shown.
    *map.lock().expect("no panic") = None;
    running.until("deleted", || {
        running.shows("a newer policy is not in force: ConfigMap ns/the-policy does not exist")
            && running.shows("policy: 0f80fafb508b328c\n")
    });
    assert!(running.get("/metrics").1.contains("\nstowplan_policy_rejected 1\n"));
}
