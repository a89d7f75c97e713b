//! `stowplan controller`: start, readiness and stop.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api_server::{Cluster, failure};
use super::command::Folder;

#[test]
fn a_controller_without_a_cluster_or_without_its_policy_file_does_not_start() {
    let folder = Folder::new(&[]);
    let output =
        folder.run(["controller", "--namespace", "ns", "--admin-listen", "127.0.0.1:0"], b"");
    // The log has a line for each reason, too.
    assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{output:?}");
    assert!(
        output.stderr.contains("stowplan: cannot find the cluster (a kubeconfig, or "),
        "{output:?}"
    );
    let arguments = ["controller", "--namespace", "ns", "--policy", "nonesuch.yaml"];
    let output = folder.run(arguments, b"");
    assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{output:?}");
    assert!(output.stderr.contains("stowplan: nonesuch.yaml: No such file"), "{output:?}");
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
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `GET path` answers: the status and the body.
fn get(url: &str, path: &str) -> (u16, String) {
    let address = url.strip_prefix("http://").expect("plain HTTP");
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let answer = std::io::read_to_string(stream).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

#[test]
fn a_controller_is_not_ready_before_it_has_seen_the_cluster_and_stops_on_sigterm() {
    let kubeconfig = Cluster("http://127.0.0.1:1".to_owned()).kubeconfig();
    let folder = Folder::new(&[("kubeconfig", &kubeconfig)]);
    let mut running = Running::start(&folder, &[]);
    let url = &*running.url.clone();
    assert_eq!(get(url, "/livez"), (200, "ok\n".to_owned()));
    let (status, body) = get(url, "/readyz");
    assert_eq!(status, 503);
    for kind in ["nodes", "namespaces", "hostpools", "streamsjobs", "pods"] {
        assert!(body.contains(&format!("{kind} are not synced yet\n")), "{body}");
    }
    assert!(!body.contains("certificate"), "it has none: {body}");
    let (status, body) = get(url, "/metrics");
    assert_eq!(status, 200);
    assert!(body.contains("\nstowplan_controller_leader 0\n"), "{body}");
    let id = i32::try_from(running.child.id()).expect("a process id");
    let id = rustix::process::Pid::from_raw(id).expect("a process id");
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it runs");
    assert_eq!(running.child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn with_an_invalid_policy_a_controller_lives_and_plans_nothing() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let cluster = Cluster::start(move |path| {
        seen.lock().expect("no panic").push(path.to_owned());
        failure(500, "InternalError")
    });
    let has_asked =
        |part: &str| asked.lock().expect("no panic").iter().any(|path| path.contains(part));
    let folder = Folder::new(&[
        ("kubeconfig", &cluster.kubeconfig()),
        ("policy.yaml", "streams: {enabeld: true}\n"),
    ]);
    let running = Running::start(&folder, &["--identity", "me", "--policy", "policy.yaml"]);
    let url = &*running.url;
    let (status, body) = get(url, "/readyz");
    assert_eq!(status, 503);
    let problem = "no policy is in force: policy.yaml: streams.enabeld: ";
    assert!(body.contains(problem), "{body}");
    let until = |what: &str, is: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is() {
            assert!(Instant::now() < deadline, "not {what}: {asked:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    // It reports the problem at its own pod, and does not compete for the lease.
    until("reported", &|| has_asked("/apis/events.k8s.io/v1/namespaces/ns/events"));
    assert!(!has_asked("/leases/"), "{asked:?}");
    assert!(get(url, "/metrics").1.contains("\nstowplan_policy_rejected 1\n"));
    std::fs::write(folder.0.path().join("policy.yaml"), "{}").expect("a file");
    until("competing", &|| has_asked("/leases/"));
    assert!(!get(url, "/readyz").1.contains("no policy is in force"));
}

#[test]
fn a_controller_whose_policy_is_missing_says_which_and_takes_it_once_it_exists() {
    let map = Arc::new(Mutex::new(None::<Value>));
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let (seen, state) = (Arc::clone(&asked), Arc::clone(&map));
    // Its watches fail, so that it lists again and again.
    let cluster = Cluster::start(move |path| {
        seen.lock().expect("no panic").push(path.to_owned());
        match path.starts_with("/api/v1/namespaces/ns/configmaps?") && !path.contains("watch=") {
            true => {
                let items: Vec<Value> = state.lock().expect("no panic").iter().cloned().collect();
                let metadata = json!({"resourceVersion": "1"});
                (
                    200,
                    json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items}),
                )
            }
            false => failure(500, "InternalError"),
        }
    });
    let has_asked =
        |part: &str| asked.lock().expect("no panic").iter().any(|path| path.contains(part));
    let folder = Folder::new(&[("kubeconfig", &cluster.kubeconfig())]);
    let running =
        Running::start(&folder, &["--identity", "me", "--policy-config-map", "the-policy"]);
    let url = &*running.url;
    let until = |what: &str, is: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is() {
            assert!(Instant::now() < deadline, "not {what}: {}", get(url, "/readyz").1);
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let shows = |part: &str| get(url, "/readyz").1.contains(part);
    until("missing", &|| {
        shows("no policy is in force: ConfigMap ns/the-policy does not exist; `helm upgrade`")
    });
    until("reported", &|| has_asked("/apis/events.k8s.io/v1/namespaces/ns/events"));
    assert!(!has_asked("/leases/"), "{asked:?}");
    let text = "onInvalid: warn\n";
    let data = json!({"metadata": {"name": "the-policy"}, "data": {"policy.yaml": text}});
    *map.lock().expect("no panic") = Some(data);
    // As `sha256sum` prints it.
    until("in force", &|| shows("policy: 0f80fafb508b328c\n"));
    until("competing", &|| has_asked("/leases/"));
    // It is deleted: the old one stays in force, and the problem is shown.
    *map.lock().expect("no panic") = None;
    until("deleted", &|| {
        shows("a newer policy is not in force: ConfigMap ns/the-policy does not exist")
            && shows("policy: 0f80fafb508b328c\n")
    });
    assert!(get(url, "/metrics").1.contains("\nstowplan_policy_rejected 1\n"));
}

#[test]
fn a_policy_has_one_source() {
    for words in [
        "controller --namespace ns --policy p.yaml --policy-config-map p",
        "webhook --namespace ns --tls-cert a --tls-key b --policy-config-map p --cluster nodes.yaml",
    ] {
        let output = Folder::new(&[]).run(words.split(' '), b"");
        assert_eq!(output.code, 2, "{output:?}");
        assert!(output.stderr.contains("cannot be used with"), "{output:?}");
    }
}
