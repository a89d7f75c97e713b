//! Runs the binary in a folder of files, and what it printed.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The exit code and the output of a command.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// The one line of a command that failed; asserts that it printed nothing else.
    pub(crate) fn error_line(&self) -> &str {
        assert_eq!((self.code, self.stdout.as_str()), (2, ""), "{self:?}");
        let text = self.stderr.strip_suffix('\n').unwrap_or(&self.stderr);
        assert!(!text.contains('\n'), "{self:?}");
        text.strip_prefix("stowplan: ").unwrap_or_else(|| panic!("no prefix: {self:?}"))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A folder with files, in which commands run.
pub(crate) struct Folder(pub(crate) TempDir);

impl Folder {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(TempDir::new().expect("a temporary folder"));
        for (name, text) in files {
            folder.write(name, text.as_bytes());
        }
        folder
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }

    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        stdin: &[u8],
    ) -> Output {
        run_in(self.0.path(), arguments, stdin)
    }

    /// `stowplan plan` with these words.
    pub(crate) fn plan(&self, words: &str) -> Output {
        self.plan_with(words, b"")
    }

    pub(crate) fn plan_with(&self, words: &str, stdin: &[u8]) -> Output {
        self.run(["plan"].into_iter().chain(words.split_whitespace()), stdin)
    }
}

fn run_in<S: AsRef<OsStr>>(
    folder: &Path,
    arguments: impl IntoIterator<Item = S>,
    stdin: &[u8],
) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stowplan"))
        .args(arguments)
        .current_dir(folder)
        .env("COLUMNS", "100")
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("HOME", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    let stdin = stdin.to_owned();
    // A command that does not read all of it closes the pipe, which is not a failure.
    let writer = std::thread::spawn(move || drop(pipe.write_all(&stdin)));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("the writer ends");
    Output {
        code: output.status.code().expect("it ends by itself"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

pub(crate) fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>, stdin: &[u8]) -> Output {
    run_in(Path::new(env!("CARGO_MANIFEST_DIR")), arguments, stdin)
}

/// A pod with these annotations, in flow style.
pub(crate) fn pod(name: &str, annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\n\
         spec: {{containers: [{{name: c, image: i}}]}}\n"
    )
}

pub(crate) const NODES: &str = r#"
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: node-1, labels: {kubernetes.io/hostname: node-1, streams.ibm.com/hostpool: fast}}
  status: {addresses: [{type: InternalIP, address: 10.4.40.81}]}
- apiVersion: v1
  kind: Node
  metadata: {name: node-2, labels: {kubernetes.io/hostname: node-2}}
  status: {addresses: [{type: InternalIP, address: 10.4.40.82}]}
"#;

const POOLS: &str = r#"
apiVersion: stowplan.dev/v1alpha1
kind: HostPool
metadata: {name: fast}
spec: {tags: [fast]}
---
apiVersion: stowplan.dev/v1alpha1
kind: HostPool
metadata: {name: named, namespace: jobs}
spec: {hosts: [node-2, 10.4.40.81]}
"#;

pub(crate) const JOB: &str = r#"# A job of several kinds of objects.
apiVersion: v1
kind: Pod
metadata:
  name: pe-0
  labels: {streams.ibm.com/job: trades, streams.ibm.com/pe: "0"}
  annotations: {streams.ibm.com/host: 10.4.40.82, streams.ibm.com/host-exlocation: apart}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {streams.ibm.com/host-pool: fast}
    spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata:
  generateName: lost-
  annotations: {streams.ibm.com/host: foo.watson.ibm.com, streams.ibm.com/host-isolation: Sink}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {}
---
apiVersion: v1
kind: Service
metadata: {name: web}
"#;

pub(crate) fn job() -> Folder {
    Folder::new(&[("job.yaml", JOB), ("cluster/nodes.yaml", NODES), ("cluster/pools.yaml", POOLS)])
}

/// Compares a text with `tests/cli/snapshots/<name>.snap`.
pub(crate) fn assert_snapshot(name: &str, text: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, text);
    });
}
