//! The cache of programs, with a Go that is missing, too old, slow or broken.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

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

    /// What the cache holds, without the lock.
    fn cached(&self) -> Vec<String> {
        fs::read_dir(self.file("cache"))
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.ends_with(".lock"))
            .collect()
    }
}

/// Success, standard output, standard error.
fn outcome(child: Child) -> (bool, String, String) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        sleep(Duration::from_millis(20));
    }
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
        let (success, _, said) = outcome(tools.spawn().unwrap());
        assert!(!success && said.contains(message), "{said}");
        assert_eq!(bench.cached(), Vec::<String>::new());
    }
}

#[test]
fn two_that_ask_at_once_build_once_and_nobody_builds_again() {
    let bench = Bench::new();
    let first = bench.tools("current").spawn().unwrap();
    eventually("the first never built", || bench.calls("install") == 1);

    let mut second = bench.tools("current").spawn().unwrap();
    let mut lines = BufReader::new(second.stderr.take().unwrap()).lines();
    let waits = lines.next().unwrap().unwrap();
    assert!(waits.contains("another process builds the control plane; waiting"), "{waits}");
    fs::write(bench.file("gate"), "").unwrap();

    let (success, first_dir, said) = outcome(first);
    assert!(success, "{said}");
    assert!(said.contains("takes several minutes"), "{said}");
    let (success, second_dir, _) = outcome(second);
    assert!(success);
    assert_eq!(first_dir, second_dir);
    assert_eq!(bench.calls("install"), 1);

    let (success, third_dir, said) = outcome(bench.tools("current").spawn().unwrap());
    assert!(success && said.is_empty(), "{said}");
    assert_eq!(first_dir, third_dir);
    assert_eq!((bench.calls("install"), bench.calls("version")), (1, 1));

    let dir = Path::new(first_dir.trim_end());
    assert_eq!(bench.cached(), [dir.file_name().unwrap().to_str().unwrap()]);
    assert_eq!(fs::read_to_string(dir.join("etcd")).unwrap(), "server\n");
    assert_eq!(fs::read_to_string(dir.join("helm")).unwrap(), "helm\n");
    let stages = fs::read_to_string(dir.join("stages.yaml")).unwrap();
    assert_eq!(stages.matches("kind: Stage").count(), 5, "{stages}");
}

#[test]
fn a_failed_build_leaves_nothing_and_can_be_repeated() {
    let bench = Bench::new();
    fs::write(bench.file("gate"), "").unwrap();
    fs::write(bench.file("broken"), "").unwrap();
    let (success, _, said) = outcome(bench.tools("current").spawn().unwrap());
    assert!(!success);
    assert!(said.contains("no space left on device"), "{said}");
    assert_eq!(bench.cached(), Vec::<String>::new());

    fs::remove_file(bench.file("broken")).unwrap();
    let (success, dir, said) = outcome(bench.tools("current").spawn().unwrap());
    assert!(success, "{said}");
    assert!(Path::new(dir.trim_end()).join("kwok").is_file());
}

#[test]
fn what_a_killed_build_left_is_swept() {
    let bench = Bench::new();
    let mut killed = bench.tools("current").spawn().unwrap();
    eventually("it never built", || bench.calls("install") == 1);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(bench.cached()[0].starts_with("staging-"), "{:?}", bench.cached());

    fs::write(bench.file("gate"), "").unwrap();
    let (success, dir, said) = outcome(bench.tools("current").spawn().unwrap());
    assert!(success, "{said}");
    let name = Path::new(dir.trim_end()).file_name().unwrap().to_str().unwrap();
    assert_eq!(bench.cached(), [name]);
}
