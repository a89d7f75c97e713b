//! The cache of programs, with a Go that is missing, too old, slow or broken.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::{eventually, refused};

/// A cache of its own, and a stand-in for Go.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `testbed tools` with one of the folders of `tests/fake-go` on the PATH.
    fn tools(&self, go: &str) -> Command {
        let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake-go").join(go);
        let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
        command
            .arg("tools")
            .env("PATH", format!("{}:/usr/bin:/bin", fake.display()))
            .env("STOWPLAN_TESTBED_CACHE", self.file("cache"))
            .env("FAKE_GO_LOG", self.file("log"))
            .env("FAKE_GO_GATE", self.file("gate"))
            .env("FAKE_GO_BROKEN", self.file("broken"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn calls(&self, of: &str) -> usize {
        let log = fs::read_to_string(self.file("log")).unwrap_or_default();
        log.lines().filter(|line| *line == of).count()
    }

    /// Starts a build, and returns when its Go runs.
    fn begun(&self) -> Child {
        let build = self.tools("current").spawn().unwrap();
        eventually(|| match self.calls("install") {
            1 => Ok(()),
            calls => Err(format!("{calls} builds")),
        });
        build
    }

    /// Builds if it is necessary. Returns what it prints: the folder, and its messages.
    #[track_caller]
    fn built(&self) -> (String, String) {
        succeeds(self.tools("current").spawn().unwrap())
    }

    /// Returns the names in the cache, without the lock.
    fn cached(&self) -> Vec<String> {
        fs::read_dir(self.file("cache"))
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.ends_with(".lock"))
            .collect()
    }
}

/// Returns the standard output and the standard error of a process, which must succeed.
#[track_caller]
fn succeeds(child: Child) -> (String, String) {
    let output = child.wait_with_output().unwrap();
    let [shown, said] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{said}");
    (shown, said)
}

/// The name of the folder that was printed.
fn name(shown: &str) -> &str {
    Path::new(shown.trim_end()).file_name().unwrap().to_str().unwrap()
}

#[test]
fn a_go_that_is_missing_or_old_is_reported() {
    let empty = tempfile::tempdir().unwrap();
    let bench = Bench::new();
    let mut missing = bench.tools("current");
    missing.env("PATH", empty.path());
    for (mut tools, message) in [
        (missing, "there is no `go` on the PATH; install Go 1."),
        (bench.tools("old"), "or newer, and `go` on the PATH is 1.21.5; install Go 1."),
    ] {
        let said = refused(&mut tools);
        assert!(said.contains(message), "{said}");
        assert_eq!(bench.cached(), Vec::<String>::new());
    }
}

#[test]
fn two_that_ask_at_once_build_once_and_nobody_builds_again() {
    let bench = Bench::new();
    let first = bench.begun();
    let mut second = bench.tools("current").spawn().unwrap();
    let mut lines = BufReader::new(second.stderr.take().unwrap()).lines();
    let waits = lines.next().unwrap().unwrap();
    assert!(waits.contains("another process builds the control plane; waiting"), "{waits}");
    fs::write(bench.file("gate"), "").unwrap();

    let (first_dir, said) = succeeds(first);
    assert!(said.contains("takes several minutes"), "{said}");
    assert_eq!(first_dir, succeeds(second).0);
    assert_eq!(bench.calls("install"), 1);
    assert_eq!(bench.built(), (first_dir.clone(), String::new()));
    assert_eq!((bench.calls("install"), bench.calls("version")), (1, 1));

    assert_eq!(bench.cached(), [name(&first_dir)]);
    let text = |file: &str| fs::read_to_string(Path::new(first_dir.trim_end()).join(file)).unwrap();
    assert_eq!((text("etcd"), text("helm")), ("server\n".to_owned(), "helm\n".to_owned()));
    let stages = text("stages.yaml");
    assert_eq!(stages.matches("kind: Stage").count(), 5, "{stages}");
}

#[test]
fn a_failed_build_leaves_nothing_and_can_be_repeated() {
    let bench = Bench::new();
    fs::write(bench.file("gate"), "").unwrap();
    fs::write(bench.file("broken"), "").unwrap();
    let said = refused(&mut bench.tools("current"));
    assert!(said.contains("no space left on device"), "{said}");
    assert_eq!(bench.cached(), Vec::<String>::new());

    fs::remove_file(bench.file("broken")).unwrap();
    let (dir, _) = bench.built();
    assert_eq!(bench.cached(), [name(&dir)]);
}

#[test]
fn what_a_killed_build_left_is_swept() {
    let bench = Bench::new();
    let mut killed = bench.begun();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(bench.cached()[0].starts_with("staging-"), "{:?}", bench.cached());

    fs::write(bench.file("gate"), "").unwrap();
    let (dir, _) = bench.built();
    assert_eq!(bench.cached(), [name(&dir)]);
}
