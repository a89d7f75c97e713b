//! What `cargo testbed image` refuses before it builds anything. Its image is tested with real nodes.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use testbed::image::libc_for_tests;

use crate::refused;

/// `testbed image` with these arguments, as cargo's environment has it, and a program that is built
/// quickly.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
    command.args(["image", "--profile=quick", "--libc", libc_for_tests()]).args(arguments);
    command
}

#[test]
fn a_commit_that_does_not_exist_is_refused_before_the_build() {
    for revision in ["none-of-this-name", "--output=elsewhere"] {
        let said = refused(&mut command(&[&format!("--commit={revision}")]));
        assert!(said.contains("git") && !said.contains("building"), "{said}");
    }
}

#[test]
fn what_is_missing_or_wrong_is_reported_before_the_build() {
    let dir = tempfile::tempdir().unwrap();
    let executable = |name: &str, script: &str| {
        let path = dir.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    };
    let rustc = executable("rustc", &format!("echo {}", dir.path().display()));
    let (foreign, machine) = match env::consts::ARCH {
        "x86_64" => ("arm64", "aarch64"),
        _ => ("amd64", "x86_64"),
    };
    let said = refused(command(&["--architecture", foreign]).env("RUSTC", &rustc));
    let target = format!("{machine}-unknown-linux-{}", libc_for_tests());
    assert!(said.contains(&format!("run `rustup target add {target}`")), "{said}");

    let said = refused(command(&[]).env("RUSTC", rustc));
    let target = format!("{}-unknown-linux-{}", env::consts::ARCH, libc_for_tests());
    assert!(
        said.contains(&format!("is not installed: run `rustup target add {target}`")),
        "{said}"
    );
    assert!(!said.contains("building"), "{said}");

    let said = refused(command(&[]).env("RUSTC", dir.path().join("none")));
    assert!(said.contains("cannot run") && said.contains("none"), "{said}");

    let name = format!("CC_{}", target.replace('-', "_"));
    let said = refused(command(&[]).env(&name, dir.path().join("no-cc")));
    assert!(said.contains("no-cc does not run: install one"), "{said}");
    assert!(said.contains(&name) && !said.contains("building"), "{said}");

    let here = dir.path().to_str().unwrap();
    let cases: [(&[&str], &str); 5] = [
        (&["--repository", "Stowplan"], "is not the name of an image"),
        (&["--tag", "a:b"], "is not a tag"),
        (&["--tag", ""], "is not a tag"),
        (&["--output", "/no/such/folder/stowplan.tar"], "in no folder that exists"),
        (&["--output", here], "is a folder"),
    ];
    for (arguments, wanted) in cases {
        let said = refused(&mut command(arguments));
        assert!(said.contains(wanted) && !said.contains("building"), "{said}");
    }
    for time in ["", "-1", "yesterday", "99999999999999999999"] {
        let said = refused(command(&[]).env("SOURCE_DATE_EPOCH", time));
        assert!(said.contains("give seconds since 1970"), "{said}");
    }
}
