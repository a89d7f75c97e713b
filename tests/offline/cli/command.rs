//! Runs the binary in a folder of files, and what it printed.

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

    /// Asserts that it failed with this one line; `…` stands for any text.
    pub(crate) fn fails(&self, line: &str) {
        assert!(agrees(self.error_line(), line), "{line}: {self:?}");
    }

    /// Asserts the exit code, and that standard output has these texts; it begins with a line's
    /// end here, so that a text can have both ends of a line.
    pub(crate) fn shows(&self, code: i32, texts: &[&str]) -> &Self {
        assert_eq!(self.code, code, "{self:?}");
        let shown = format!("\n{}", self.stdout);
        for text in texts {
            assert!(shown.contains(text), "{text}\n{}\n{}", self.stdout, self.stderr);
        }
        self
    }

    /// Asserts that standard output has these lines, and standard error nothing.
    pub(crate) fn has_lines(&self, code: i32, lines: &[&str]) -> &Self {
        assert_eq!((self.code, self.stderr.as_str()), (code, ""), "{self:?}");
        for line in lines {
            assert!(self.stdout.lines().any(|shown| shown == *line), "{line}\n{}", self.stdout);
        }
        self
    }

    /// Asserts that standard output does not have this text.
    pub(crate) fn lacks(&self, text: &str) -> &Self {
        assert!(!self.stdout.contains(text), "{text}: {self:?}");
        self
    }

    /// Asserts that standard error has these texts.
    pub(crate) fn warns(&self, texts: &[&str]) -> &Self {
        for text in texts {
            assert!(self.stderr.contains(text), "{text}: {self:?}");
        }
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The first entry of a plan in JSON.
    pub(crate) fn first(&self) -> Value {
        self.json()["items"][0].clone()
    }
}

/// The outputs of some commands, for a snapshot.
#[derive(Default)]
pub(crate) struct Shown(pub(crate) String);

impl Shown {
    pub(crate) fn add(&mut self, label: &str, output: &Output) -> &mut Self {
        let Output { code, stdout, stderr } = output;
        self.0 += &format!("{label}: exit {code}\n{stdout}{stderr}\n");
        self
    }

    /// Compares all of it with the snapshot of this name.
    pub(crate) fn compare(&self, name: &str) {
        assert_snapshot(name, &self.0);
    }
}

/// Returns whether a text is as this pattern; `…` in the pattern stands for any text.
pub(crate) fn agrees(text: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('…') else { return text == pattern };
    text.strip_prefix(start).is_some_and(|after| {
        (0..=after.len()).filter_map(|at| after.get(at..)).any(|after| agrees(after, rest))
    })
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

    /// `stowplan` with these words.
    pub(crate) fn run(&self, words: &str, stdin: impl AsRef<[u8]>) -> Output {
        run_in(self.0.path(), words, stdin.as_ref())
    }

    /// `stowplan plan` with these words.
    pub(crate) fn plan(&self, words: &str) -> Output {
        self.run(&format!("plan {words}"), "")
    }

    /// `stowplan plan` of this text, with these words.
    pub(crate) fn plan_of(&self, words: &str, text: impl AsRef<[u8]>) -> Output {
        self.run(&format!("plan -f - {words}"), text)
    }
}

/// `stowplan` with these words, in this folder.
pub(crate) fn run_in(folder: &Path, words: &str, stdin: &[u8]) -> Output {
    run_with(folder, words, stdin, &[])
}

/// `stowplan` with these words, in this folder, and with these variables.
pub(crate) fn run_with(
    folder: &Path,
    words: &str,
    stdin: &[u8],
    variables: &[(&str, &str)],
) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stowplan"))
        .args(words.split_whitespace())
        .current_dir(folder)
        .env("COLUMNS", "100")
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("HOME", folder)
        .env_remove("CLICOLOR_FORCE")
        .envs(variables.iter().copied())
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

/// `stowplan` with these words, in the folder of the crate.
pub(crate) fn run(words: &str, stdin: impl AsRef<[u8]>) -> Output {
    run_in(Path::new(env!("CARGO_MANIFEST_DIR")), words, stdin.as_ref())
}

/// `stowplan plan` of this text, with these words, where no file is.
pub(crate) fn plan_of(words: &str, text: impl AsRef<[u8]>) -> Output {
    Folder::new(&[]).plan_of(words, text)
}

/// A pod with these annotations, in flow style.
pub(crate) fn pod(name: &str, annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\n\
         spec: {{containers: [{{name: c, image: i}}]}}\n"
    )
}

pub(crate) const NODES: &str = include_str!("job/nodes.yaml");

/// Nodes n1 to n`count`, Ready, with the tag `ib`.
pub(crate) fn nodes(count: u32) -> String {
    let node = |number: u32| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: n{number}, uid: n{number}, labels: \
             {{kubernetes.io/hostname: n{number}, streams.ibm.com/hostpool: ib}}}}\n\
             status: {{conditions: [{{type: Ready, status: 'True'}}]}}\n---\n"
        )
    };
    (1..=count).map(node).collect()
}

const POOLS: &str = include_str!("job/pools.yaml");

pub(crate) const JOB: &str = include_str!("job/job.yaml");

pub(crate) fn job() -> Folder {
    Folder::new(&[("job.yaml", JOB), ("cluster/nodes.yaml", NODES), ("cluster/pools.yaml", POOLS)])
}

/// Compares a text with `tests/offline/cli/snapshots/<name>.snap`.
pub(crate) fn assert_snapshot(name: &str, text: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, text);
    });
}
