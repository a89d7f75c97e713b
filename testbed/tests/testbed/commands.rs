//! `up` and `down` as a user runs them, and what is left when they end in a bad way.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::scope;

use rustix::process::{Pid, Signal, kill_process};
use testbed::image::{Image, Layer};

use crate::{eventually, refused, succeeded};

fn testbed(arguments: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
    command.args(arguments).arg("--dir").arg(dir);
    command
}

/// The processes of a directory: id and start time.
fn processes(dir: &Path) -> Vec<(String, String)> {
    fs::read_to_string(dir.join("pids"))
        .unwrap()
        .lines()
        .map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            assert_eq!(words.len(), 3, "{line}");
            (words[1].to_owned(), words[2].to_owned())
        })
        .collect()
}

fn runs((pid, started): &(String, String)) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[0] != "Z" && fields[19] == started
}

/// `up` in the foreground, once it is ready.
fn up(dir: &Path) -> Child {
    let mut child =
        testbed(&["up", "--no-install", "--nodes=1"], dir).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let ready = lines.map_while(Result::ok).any(|line| line.starts_with("Ctrl-C"));
    assert!(ready, "it ended: {}", child.wait().unwrap());
    child
}

#[test]
fn a_detached_control_plane_lives_until_down_and_serves_pipeline_runs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = &dir.path().join("it's a bed");
    let _down = Down(dir);
    let said = succeeded(&mut testbed(&["up", "--tekton", "--detach", "--nodes=4"], dir));
    assert!(said.contains("down --dir") && said.contains("zonal-immediate"), "{said}");
    // Simulated pods run no hook.
    assert!(said.contains("`helm uninstall` cleans nothing up: run `stowplan teardown`"), "{said}");
    let started = processes(dir);
    // The control plane, the imitation of Tekton, a webhook and a controller.
    assert_eq!(started.len(), 5 + 1 + 2);
    assert!(started.iter().all(runs));

    // The wrappers need no environment, and leave the user's alone.
    let kubectl = || Command::new(dir.join("kubectl"));
    let mut nodes = kubectl();
    nodes.args(["get", "nodes", "--output=name"]).env("KUBECONFIG", "/nowhere");
    assert_eq!(succeeded(&mut nodes).lines().count(), 4);
    let mut releases = Command::new(dir.join("helm"));
    releases.args(["list", "--short"]).env("HELM_NAMESPACE", "no");
    assert_eq!(succeeded(&mut releases), "");

    let said = refused(&mut testbed(&["up", "--no-install"], dir));
    assert!(said.contains("is in use: etcd, kube-apiserver"), "{said}");
    assert!(started.iter().all(runs));

    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/tekton-run.yaml");
    succeeded(kubectl().args(["apply", "-f", example]));
    let columns = "-o=jsonpath={range .items[*]}{.status.phase} {.spec.nodeName}{\"\\n\"}{end}";
    let pods = becomes(
        kubectl().args(["get", "pods", "-l=tekton.dev/pipelineRun=image", columns]),
        |said| said.lines().filter(|line| line.starts_with("Succeeded ")).count() == 3,
    );
    let nodes: BTreeSet<_> = pods.lines().collect();
    assert_eq!(nodes.len(), 1, "{pods}");
    let claims = "-o=jsonpath={.items[*].status.phase}";
    assert_eq!(succeeded(kubectl().args(["get", "pvc", claims])), "Bound Bound");

    let said = succeeded(&mut testbed(&["down"], dir));
    assert!(said.starts_with("ended etcd, kube-apiserver") && said.contains("tekton"), "{said}");
    assert!(!started.iter().any(runs));
    assert!(dir.join("logs/kube-apiserver.log").is_file());
    assert!(!dir.join("etcd").exists());
    let said = succeeded(&mut testbed(&["down"], dir));
    assert!(said.starts_with("nothing runs"), "{said}");
}

/// Three at once, so that this also shows that control planes on one machine do not meet.
#[test]
fn nothing_outlives_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let [killed, interrupted, ended] =
        ["killed", "interrupted", "ended"].map(|n| dir.path().join(n));
    scope(|scope| {
        scope.spawn(|| {
            let mut child = up(&killed);
            let started = processes(&killed);
            let said = refused(&mut testbed(&["up", "--no-install"], &killed));
            assert!(said.contains("in use by another testbed"), "{said}");
            assert_eq!(started.iter().filter(|process| runs(process)).count(), 5);
            // None of its code runs after this.
            child.kill().unwrap();
            child.wait().unwrap();
            eventually(|| match started.iter().find(|process| runs(process)) {
                Some(process) => Err(format!("{process:?} runs")),
                None => Ok(()),
            });
            let said = succeeded(&mut testbed(&["down"], &killed));
            assert!(said.starts_with("nothing runs"), "{said}");
        });
        scope.spawn(|| {
            let mut child = up(&interrupted);
            let started = processes(&interrupted);
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(130));
            assert!(!started.iter().any(runs));
            assert_eq!(processes(&interrupted), []);
        });
        scope.spawn(|| {
            let mut child = up(&ended);
            let started = processes(&ended);
            let said = succeeded(&mut testbed(&["down"], &ended));
            assert!(said.starts_with("ended etcd"), "{said}");
            assert_eq!(child.wait().unwrap().code(), Some(1));
            assert!(!started.iter().any(runs));
        });
    });
}

/// Runs a wrapper of the run directory until its output is `wanted`.
#[track_caller]
fn becomes(command: &mut Command, wanted: impl Fn(&str) -> bool) -> String {
    eventually(|| {
        let said = succeeded(command);
        if wanted(&said) { Ok(said) } else { Err(said) }
    })
}

/// Ends what still runs in a directory, also when a test fails.
struct Down<'d>(&'d Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        if self.0.join("pids").exists() {
            let _ = testbed(&["down"], self.0).output();
        }
    }
}

/// The commands of a page that start a control plane, one after the other, in a directory of this test.
/// The last output of each that `is_shown` accepts.
fn session_of(page: &str, is_shown: impl Fn(&str) -> bool) -> Vec<String> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let text = fs::read_to_string(root.join(page)).unwrap();
    let commands = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let session = commands.into_iter().find(|block| block.contains("testbed up")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mine = dir.path().join("mine");
    let _down = Down(&mine);
    let mut shown = Vec::new();
    for line in session.lines() {
        let mut words =
            line.split(' ').map(|word| word.replace("target/testbed/mine", mine.to_str().unwrap()));
        let mut command = match words.next().unwrap().as_str() {
            "cargo" => {
                assert_eq!(words.next().unwrap(), "testbed", "{line}");
                Command::new(env!("CARGO_BIN_EXE_testbed"))
            }
            program => Command::new(program),
        };
        command.args(words).current_dir(root);
        shown.push(match line.contains(" get ") {
            true => becomes(&mut command, &is_shown),
            false => succeeded(&mut command),
        });
    }
    shown
}

#[test]
fn the_first_steps_are_as_the_pages_say() {
    let nodes = |said: &str| {
        let rows =
            said.lines().skip(1).map(|line| line.split_whitespace().nth(6).map(str::to_owned));
        rows.collect::<Option<Vec<_>>>().unwrap_or_default()
    };
    let is_placed = |said: &str| {
        let nodes = nodes(said);
        nodes.len() == 4 && nodes.iter().all(|node| node.starts_with("node-"))
    };
    let shown = session_of("docs/start.md", is_placed);
    let (pods, placed) = (&shown[2], nodes(&shown[2]));
    assert!(placed.iter().all(|node| *node == placed[0]), "{pods}");
    assert_eq!(pods.matches("\nstart-").count(), 3, "{pods}");
    assert!(pods.contains("\naffinity-assistant-") && pods.contains("-0 "), "{pods}");

    let shown = session_of("docs/versions.md", |_| true);
    assert!(shown[1].contains("Server Version: v1.33."), "{}", shown[1]);
}

#[test]
fn archives_that_no_pod_could_use_are_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("mpi.tar");
    let layers = vec![Layer::Program("program", b"#!/bin/sh\n".to_vec())];
    let (name, tag) = ("stow.test/mpi-mpich".to_owned(), "1".to_owned());
    Image { name, tag, layers, ..Image::default() }.write(&archive).unwrap();
    let archive = archive.to_str().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let bed = dir.path().join("bed");
    let said = refused(&mut testbed(&["up", "--real=1", "--image", archive], &bed));
    let names = ["has the image stow.test/mpi-mpich:1", &format!("stowplan:{version} is needed")];
    assert!(names.iter().all(|name| said.contains(name)), "{said}");
    let said = refused(&mut testbed(&["up", "--real=1", "--import", "/none.tar"], &bed));
    assert!(said.contains("there is no file /none.tar"), "{said}");
    assert!(!bed.exists());
}

#[test]
fn a_directory_that_is_none_of_ours_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("precious"), "").unwrap();
    let said = refused(&mut testbed(&["down"], dir.path()));
    assert!(said.contains("is not the directory of a testbed"), "{said}");
    let said = refused(&mut testbed(&["up", "--no-install"], dir.path()));
    assert!(said.contains("is neither empty nor the directory of a testbed"), "{said}");
    let said = refused(&mut testbed(&["down"], &dir.path().join("nowhere")));
    assert!(said.contains("is not the directory of a testbed"), "{said}");
}
