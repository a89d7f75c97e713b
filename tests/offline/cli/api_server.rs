//! An API server with canned answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::command::{Folder, Output, pod};

/// The time by the clock of the API server, ten minutes into 2026.
const DATE: &str = "Thu, 01 Jan 2026 00:10:00 GMT";

/// A status code and a body.
pub(crate) type Answer = (u16, Value);

/// An API server that answers by path and query.
pub(crate) struct Cluster {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    pub(crate) fn start(answer: impl Fn(&str) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let cluster = Self::at(&format!("http://{address}"));
        let asked = Arc::clone(&cluster.asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut reader = BufReader::new(&stream);
                let mut lines = reader.by_ref().lines().map_while(Result::ok);
                let Some(request) = lines.next() else { continue };
                let head = lines.take_while(|line| !line.is_empty());
                let lengths = head.filter_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<u64>().ok()
                });
                let body = lengths.last().unwrap_or(0);
                // A connection that is closed with an unread body is reset.
                std::io::copy(&mut reader.take(body), &mut std::io::sink()).expect("the body");
                asked.lock().expect("no panic").push(request.clone());
                let path = request.split(' ').nth(1).unwrap_or_default();
                let (code, body) = answer(path);
                let body = body.to_string();
                let head =
                    format!("Content-Type: application/json\r\nConnection: close\r\nDate: {DATE}");
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {code} X\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}"
                );
            }
        });
        cluster
    }

    /// A cluster of which only the URL is known.
    pub(crate) fn at(url: &str) -> Self {
        Self { url: url.to_owned(), asked: Arc::default() }
    }

    /// Returns whether there was a request whose first line (`GET /api/… HTTP/1.1`) has this part.
    pub(crate) fn was_asked(&self, part: &str) -> bool {
        self.asked.lock().expect("no panic").iter().any(|line| line.contains(part))
    }

    /// Returns the first lines of the requests that write.
    pub(crate) fn writes(&self) -> Vec<String> {
        let asked = self.asked.lock().expect("no panic");
        asked.iter().filter(|line| !line.starts_with("GET ")).cloned().collect()
    }

    pub(crate) fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: c, user: u, namespace: jobs}}}}]\n\
             clusters: [{{name: c, cluster: {{server: '{}'}}}}]\nusers: [{{name: u, user: {{}}}}]\n",
            self.url
        )
    }

    /// `stowplan` with these words and, in `pod.yaml`, a pod `p` with these annotations.
    pub(crate) fn run(&self, words: &str, annotations: &str) -> Output {
        let folder = Folder::new(&[
            ("pod.yaml", &pod("p", annotations)),
            (".kube/config", &self.kubeconfig()),
        ]);
        folder.run(words, "")
    }

    /// `stowplan plan --live` of one pod, in this cluster.
    pub(crate) fn plan(&self, annotations: &str) -> Output {
        self.run("plan -f pod.yaml --live", annotations)
    }

    /// `stowplan check` with these words, in this cluster.
    pub(crate) fn check(&self, words: &str) -> Output {
        self.run(&format!("check {words}"), "")
    }
}

pub(crate) fn failure(code: u16, reason: &str) -> Answer {
    failure_with(code, reason, &format!("the server says {reason}"))
}

fn failure_with(code: u16, reason: &str, message: &str) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code});
    (code, status)
}

pub(crate) fn forbidden() -> Answer {
    failure_with(403, "Forbidden", "this is forbidden: User \"ann\" cannot do this")
}

/// The answer of a proxy on the way.
pub(crate) fn denied_by_proxy() -> Answer {
    failure_with(403, "Forbidden", "resolve_deny: denied destination")
}

pub(crate) fn page(continues: &str, items: &[Value]) -> Answer {
    let metadata = json!({"continue": continues, "resourceVersion": "1"});
    (200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}))
}

/// A complete list.
pub(crate) fn list(items: &[Value]) -> Answer {
    page("", items)
}

/// Answers as a cluster that has one node, and nothing else.
pub(crate) fn with_one_node(path: &str) -> Answer {
    match path.starts_with("/api/v1/nodes") {
        true => list(&[node("node-1")]),
        false => list(&[]),
    }
}

pub(crate) fn node(name: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {}})
}

/// A pool of namespace `jobs`.
pub(crate) fn pool(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
        "metadata": {"name": name, "namespace": "jobs"}, "spec": spec})
}

/// A configuration with one webhook, named for the first word of the webhook's name.
pub(crate) fn configuration(webhook: &str, annotations: &Value) -> Value {
    let service = json!({"name": "hook", "namespace": "system", "path": "/mutate"});
    let name = webhook.split('.').next();
    json!({"metadata": {"name": name, "annotations": annotations}, "webhooks": [
        {"name": webhook, "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Ignore", "timeoutSeconds": 5, "clientConfig": {"service": service}}]})
}

pub(crate) fn config_map(data: &Value) -> Answer {
    let metadata = json!({"name": "policy", "namespace": "system"});
    (200, json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data}))
}

/// A cluster whose webhook configuration has these annotations, where its policy is this answer to
/// the request for `system/policy`.
pub(crate) fn with_policy(
    annotations: Value,
    policy: Answer,
    other: impl Fn(&str) -> Answer + Send + 'static,
) -> Cluster {
    Cluster::start(move |path| match path {
        path if path.starts_with("/apis/admissionregistration.k8s.io/v1/mutating") => list(&[
            configuration("a.example.com", &Value::Null),
            configuration("pods.stowplan.dev", &annotations),
        ]),
        "/api/v1/namespaces/system/configmaps/policy" => policy.clone(),
        path => other(path),
    })
}

/// The annotations that name the policy `system/policy`.
pub(crate) fn named() -> Value {
    json!({"stowplan.dev/policy": "system/policy"})
}

/// The answer with this text of a policy.
pub(crate) fn policy(text: &str) -> Answer {
    config_map(&json!({"policy.yaml": text}))
}
