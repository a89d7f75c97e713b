//! Help, version, wrong usage and completions.

use std::process::{Command, Stdio};

use super::command::{assert_snapshot, run};

#[test]
fn help() {
    for words in [
        "",
        "controller",
        "review",
        "plan",
        "check",
        "map",
        "crds",
        "policy",
        "policy schema",
        "policy check",
        "completions",
    ] {
        let output = run(words.split_whitespace().chain(["--help"]), b"");
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{words}");
        assert!(output.stdout.contains("\nExamples:\n"), "{words}");
        let widest = output.stdout.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(110), "{words}: {widest:?}");
        let name = format!("help {words}").trim().replace(' ', "_");
        assert_snapshot(&name, &output.stdout);
    }
    let output = run(["webhook", "--help"], b"");
    assert_eq!(output.code, 0);
    assert!(output.stdout.contains("\nExamples:\n"));
}

#[test]
fn version() {
    let output = run(["--version"], b"");
    assert_eq!(output.stdout, concat!("stowplan ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn wrong_usage_ends_with_2_and_an_empty_stdout() {
    for words in [
        "",
        "nonesuch",
        "plan",
        "plan -f",
        "plan -f a -o xml",
        "plan -f a --live --cluster b",
        "plan -f a -n",
        "completions",
        "completions tcsh",
        "policy",
        "policy check",
        "crds -o json",
        "review extra",
        "controller",
        "controller --namespace=",
        "controller --namespace ns --identity=",
        "controller --namespace ns --admin-listen here",
    ] {
        let output = run(words.split_whitespace(), b"");
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{words}: {output:?}");
        assert!(!output.stderr.is_empty(), "{words}");
    }
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(["completions", shell], b"");
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{shell}");
        assert!(output.stdout.contains("stowplan") && output.stdout.contains("cluster"), "{shell}");
    }
}

#[test]
fn a_reader_who_leaves_early_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stowplan"))
        .args(["policy", "schema"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}
