//! The servers that are compared.
//!
//! All but ours run in copies of this very binary: the runtime, hyper and rustls of the crate, the
//! crate's own TLS configuration, and nothing else. They have no limits, deadlines, spans or
//! metrics; what ours spends on those is in its figure, and counts against it.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use stowplan_core::admission::{Review, answer, decide};
use stowplan_core::systems::policy::Policy;

use crate::callgrind::Counter;
use crate::client::Trust;
use crate::process::Owned;
use crate::{answers, server, world};

/// A server.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Contestant {
    /// Reads the body and answers the same to everybody: the floor of TLS and HTTP.
    Constant,
    /// Besides, scans the review once with `serde_json`, the object as one raw slice, and echoes
    /// the uid: the floor of reading a review at all.
    Scan,
    /// `stowplan webhook`, the release binary.
    Ours,
    /// The customary way: the review as a tree, the object cloned and changed, both compared.
    Value,
}

impl Contestant {
    pub(crate) const ALL: [Self; 4] = [Self::Constant, Self::Scan, Self::Ours, Self::Value];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Scan => "scan",
            Self::Ours => "ours",
            Self::Value => "value + diff",
        }
    }

    /// The program and its arguments.
    fn command(self, trust: &Trust) -> anyhow::Result<Command> {
        let folder = trust.folder.path();
        if self != Self::Ours {
            let mut copy = Command::new(std::env::current_exe()?);
            copy.arg(format!("role:{}", self.name())).arg(folder);
            return Ok(copy);
        }
        std::fs::write(folder.join("cluster.yaml"), world::documents())?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_stowplan"));
        command.args(["webhook", "--namespace=stowplan-system"]);
        command.args(["--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"]);
        command.arg("--tls-cert").arg(folder.join("tls.crt"));
        command.arg("--tls-key").arg(folder.join("tls.key"));
        command.arg("--cluster").arg(folder.join("cluster.yaml"));
        Ok(command)
    }

    /// Starts it; ended when the result is dropped.
    pub(crate) fn start(self, trust: &Trust, counted: bool) -> anyhow::Result<Server> {
        let mut command = self.command(trust)?;
        let (counter, mut child) = if counted {
            let (counter, child) = Counter::start(&command, Stdio::null())?;
            (Some(counter), child)
        } else {
            (None, Owned(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?))
        };
        let stdout = child.0.stdout.take().context("standard output is piped")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = lines.next().context("the server ended before it listened")??;
        let address =
            line.strip_prefix("listening on https://").context("where does it listen?")?;
        // Its other output must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Server { child, counter, address: address.parse()? })
    }

    /// Returns whether `given` is what this server must answer to `review`.
    pub(crate) fn check(self, review: &[u8], given: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::Constant => ensure!(given == CONSTANT.as_bytes(), "not the constant"),
            Self::Ours => {
                let parsed = Review::parse(review)?;
                let decision = decide(&parsed, &world::view()?, &Policy::default())?.at_once();
                ensure!(given == answer::write(&parsed, &decision), "not what the library decides");
            }
            Self::Scan => ensure!(given == scan(review)?, "not the scan's answer"),
            Self::Value => {
                let sent: Value = serde_json::from_slice(review)?;
                let answer: Value = serde_json::from_slice(given)?;
                ensure!(answer["response"]["uid"] == sent["request"]["uid"], "another uid");
                let mut object = sent["request"]["object"].clone();
                let wanted = changed(&object);
                if let Some(patch) = answers::patch_of(given)? {
                    let patch: json_patch::Patch = serde_json::from_slice(&patch)?;
                    json_patch::patch(&mut object, &patch)?;
                }
                ensure!(object == wanted, "a patch that does not do what was requested");
            }
        }
        Ok(())
    }
}

/// A contestant that runs.
pub(crate) struct Server {
    pub(crate) child: Owned,
    pub(crate) counter: Option<Counter>,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// The time that its threads have had a processor, user and kernel, in seconds.
    pub(crate) fn processor_time(&self) -> anyhow::Result<f64> {
        let mut nanoseconds = 0.0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.0.id()))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            nanoseconds += text.split(' ').next().unwrap_or_default().parse::<f64>()?;
        }
        Ok(nanoseconds / 1e9)
    }
}

/// Serves as `role`, until killed.
pub(crate) fn play(role: &str, folder: &Path) -> anyhow::Result<()> {
    let answer: fn(&[u8]) -> anyhow::Result<Vec<u8>> = match role {
        "role:constant" => |_| Ok(CONSTANT.into()),
        "role:scan" => scan,
        "role:value + diff" => value,
        _ => bail!("{role} is not a part"),
    };
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    println!("listening on https://{}", listener.local_addr()?);
    server::serve(listener, folder, answer)
}

const CONSTANT: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"0f0e7d9c-6b0a-4a53-9d3c-2f3a7a5b8c11","allowed":true}}"#;

fn scan(body: &[u8]) -> anyhow::Result<Vec<u8>> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        request: Scanned<'a>,
    }
    #[derive(Deserialize)]
    struct Scanned<'a> {
        uid: &'a str,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let envelope: Envelope<'_> = serde_json::from_slice(body)?;
    let uid = serde_json::to_string(envelope.request.uid)?;
    let allowed = !envelope.request.object.get().is_empty();
    let response = format!(r#"{{"uid":{uid},"allowed":{allowed}}}"#);
    let head = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1""#;
    Ok(format!(r#"{head},"response":{response}}}"#).into_bytes())
}

fn value(body: &[u8]) -> anyhow::Result<Vec<u8>> {
    let review: Value = serde_json::from_slice(body)?;
    let object = &review["request"]["object"];
    let patch = json_patch::diff(object, &changed(object));
    let mut answer = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "response": {"uid": review["request"]["uid"], "allowed": true},
    });
    if !patch.0.is_empty() {
        answer["response"]["patchType"] = json!("JSONPatch");
        answer["response"]["patch"] = json!(STANDARD.encode(serde_json::to_vec(&patch)?));
    }
    Ok(serde_json::to_vec(&answer)?)
}

/// A clone of the pod with what its annotations ask for, in the customary way: no look-up, no
/// checks, no hashes, no conflicts, so less than ours does.
fn changed(object: &Value) -> Value {
    let mut pod = object.clone();
    let value =
        |name: &str| object["metadata"]["annotations"][format!("streams.ibm.com/{name}")].as_str();
    if let Some(host) = value("host") {
        pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}]}],
        });
        pod["metadata"]["annotations"]["stowplan.dev/placement"] = json!(format!("host={host}"));
    }
    for (name, member) in [
        ("host-colocation", "podAffinity"),
        ("host-exlocation", "podAntiAffinity"),
        ("host-isolation", "podAntiAffinity"),
    ] {
        let Some(token) = value(name) else { continue };
        let key = format!("streams.ibm.com/{name}");
        pod["metadata"]["labels"][&key] = json!(token);
        let term = json!({
            "labelSelector": {"matchExpressions": [{"key": key, "operator": "In", "values": [token]}]},
            "topologyKey": "kubernetes.io/hostname",
        });
        let terms =
            &mut pod["spec"]["affinity"][member]["requiredDuringSchedulingIgnoredDuringExecution"];
        match terms {
            Value::Array(terms) => terms.push(term),
            _ => *terms = json!([term]),
        }
    }
    pod
}
