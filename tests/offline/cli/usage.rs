//! Help, version, wrong usage and completions.

use std::fs::File;
use std::process::{Command, Stdio};

use super::command::{assert_snapshot, run};

#[test]
fn help() {
    let commands = "controller, review, plan, check, map, teardown, crds, policy, policy schema, \
        policy check, completions";
    for words in commands.split(", ").chain([""]) {
        let output = run(&format!("{words} --help"), "");
        output.has_lines(0, &["Examples:"]);
        let widest = output.stdout.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(110), "{words}: {widest:?}");
        let name = format!("help {words}").trim().replace(' ', "_");
        assert_snapshot(&name, &output.stdout);
    }
    run("webhook --help", "").has_lines(0, &["Examples:"]);
    run("--version", "").has_lines(0, &[concat!("stowplan ", env!("CARGO_PKG_VERSION"))]);
}

#[test]
fn wrong_usage_ends_with_2_and_an_empty_stdout() {
    let wrong = "nonesuch, plan, plan -f, plan -f a -o xml, plan -f a --live --cluster b, plan -f a -n, \
        completions, completions tcsh, policy, policy check, crds -o json, review extra, controller, \
        controller --namespace=, controller --namespace ns --identity=, \
        controller --namespace ns --admin-listen here, map --live --cluster a, map -n, map -n a -A, \
        map -o xml, map --cluster examples/nodes.yaml --context c, map extra, check pod/p -A, \
        check pod/p --try-in x, check -A --installed-in x, check -n x --wait 1s, check --try-in A, \
        pause 10m, teardown, teardown -n Up, teardown -n a --context=, teardown -n a --name=";
    for words in wrong.split(", ").chain([""]) {
        let output = run(words, "");
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{words}: {output:?}");
        assert!(!output.stderr.is_empty(), "{words}");
    }
    // A policy has one source.
    for words in [
        "controller --namespace ns --policy p.yaml --policy-config-map p",
        "webhook --namespace ns --tls-cert a --tls-key b --policy-config-map p --cluster nodes.yaml",
    ] {
        let output = run(words, "");
        assert_eq!(output.code, 2, "{output:?}");
        output.warns(&["cannot be used with"]);
    }
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        run(&format!("completions {shell}"), "")
            .has_lines(0, &[])
            .shows(0, &["stowplan", "cluster"]);
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

/// A full disk or a reader of messages that has gone is no reason to lose the result.
#[test]
fn messages_that_cannot_be_written_change_no_exit_code() {
    let full = File::options().write(true).open("/dev/full").expect("Linux has it");
    let output = Command::new(env!("CARGO_BIN_EXE_stowplan"))
        .args(["plan", "-f", "no-such-file.yaml"])
        .stdin(Stdio::null())
        .stderr(full)
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
