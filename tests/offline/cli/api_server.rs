//! An API server with canned answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use super::command::{Folder, Output, pod};

/// An API server that answers by path and query; its URL.
pub(crate) struct Cluster(pub(crate) String);

impl Cluster {
    pub(crate) fn start(answer: impl Fn(&str) -> (u16, Value) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut reader = BufReader::new(&stream);
                let mut lines = reader.by_ref().lines().map_while(Result::ok);
                let Some(request) = lines.next() else { continue };
                let mut body = 0;
                for line in lines.take_while(|line| !line.is_empty()) {
                    let line = line.to_ascii_lowercase();
                    let length = line.strip_prefix("content-length: ");
                    body = length.map_or(body, |length| length.parse().expect("a length"));
                }
                // A connection that is closed with an unread body is reset.
                std::io::copy(&mut reader.take(body), &mut std::io::sink()).expect("the body");
                let (code, body) = answer(request.split(' ').nth(1).unwrap_or_default());
                let body = body.to_string();
                let head = "Content-Type: application/json\r\nConnection: close";
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {code} X\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}"
                );
            }
        });
        Self(format!("http://{address}"))
    }

    pub(crate) fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: c, user: u, namespace: jobs}}}}]\n\
             clusters: [{{name: c, cluster: {{server: '{}'}}}}]\nusers: [{{name: u, user: {{}}}}]\n",
            self.0
        )
    }

    /// `stowplan plan --live` of one pod, in this cluster.
    pub(crate) fn plan(&self, annotations: &str) -> Output {
        let folder = Folder::new(&[
            ("pod.yaml", &pod("p", annotations)),
            (".kube/config", &self.kubeconfig()),
        ]);
        folder.plan("-f pod.yaml --live")
    }
}

pub(crate) fn failure(code: u16, reason: &str) -> (u16, Value) {
    let message = format!("the server says {reason}");
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code});
    (code, status)
}

pub(crate) fn page(kind: &str, continues: &str, items: &Value) -> (u16, Value) {
    (
        200,
        json!({"kind": kind, "apiVersion": "v1", "metadata": {"continue": continues}, "items": items}),
    )
}

pub(crate) fn node(name: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {}})
}
