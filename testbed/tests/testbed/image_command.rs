//! Refusals of `cargo testbed image` before it builds anything. Its image is tested with real nodes.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use testbed::image::libc_for_tests;

use crate::refused;

#[test]
fn an_image_with_mpi_is_one_of_the_tested_ones() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().to_str().unwrap();
    for (arguments, wanted) in [
        (&["--mpi", "mvapich"][..], "[possible values: openmpi4, openmpi5, mpich, intel]"),
        (&["--mpi", ""], "[possible values: openmpi4, openmpi5, mpich, intel]"),
        (&["--mpi", "mpich", "--user", "65532"], "[possible values: 0, 1000]"),
        (&["--mpi", "mpich", "--tag", "2"], "cannot be used with"),
        (&["--mpi", "mpich", "--architecture", "arm64"], "cannot be used with"),
        // The same implementation as for stowplan's annotation, and the name of its image.
        (&["--mpi", "intel", "--output", here], "is a folder"),
        (&["--mpi", "intelmpi", "--output", here], "is a folder"),
        (&["--mpi", "openmpi4", "--output", "/no/such/folder/mpi.tar"], "in no folder that exists"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
        let said = refused(command.arg("image").args(arguments));
        assert!(said.contains(wanted) && !said.contains("making"), "{arguments:?}: {said}");
    }
}

#[test]
fn what_is_missing_or_wrong_is_reported_before_the_build() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    // It answers every question with a folder that has no libraries.
    fs::write(path("rustc"), format!("#!/bin/sh\necho {}\n", dir.path().display())).unwrap();
    fs::set_permissions(path("rustc"), Permissions::from_mode(0o755)).unwrap();
    let (foreign, machine) = match env::consts::ARCH {
        "x86_64" => ("arm64", "aarch64"),
        _ => ("amd64", "x86_64"),
    };
    let target = |machine| format!("{machine}-unknown-linux-{}", libc_for_tests());
    let own = target(env::consts::ARCH);
    let of_foreign = format!("run `rustup target add {}`", target(machine));
    let of_own = format!("is not installed: run `rustup target add {own}`");
    let compiler = format!("CC_{}", own.replace('-', "_"));
    let here = dir.path().to_str().unwrap();
    let [rustc, missing] = [path("rustc"), path("none")];
    let (rustc, missing, compiler) = (&*rustc, &*missing, &*compiler);
    let time = "SOURCE_DATE_EPOCH";
    let seconds = "give seconds since 1970";
    // The arguments, a variable, and what the message contains.
    for (arguments, variable, wanted) in [
        (&["--commit=none-of-this-name"][..], None, "git"),
        (&["--commit=--output=elsewhere"], None, "git"),
        (&["--architecture", foreign], Some(("RUSTC", rustc)), &*of_foreign),
        (&[], Some(("RUSTC", rustc)), &*of_own),
        (&[], Some(("RUSTC", missing)), "cannot run"),
        (&[], Some((compiler, missing)), "none does not run: install one"),
        (&[], Some((compiler, missing)), compiler),
        (&["--repository", "Stowplan"], None, "is not the name of an image"),
        (&["--tag", "a:b"], None, "is not a tag"),
        (&["--tag", ""], None, "is not a tag"),
        (&["--output", "/no/such/folder/stowplan.tar"], None, "in no folder that exists"),
        (&["--output", here], None, "is a folder"),
        (&["--user", "1000"], None, "--mpi"),
        (&[], Some((time, "")), seconds),
        (&[], Some((time, "-1")), seconds),
        (&[], Some((time, "yesterday")), seconds),
        (&[], Some((time, "99999999999999999999")), seconds),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
        command.args(["image", "--profile=quick", "--libc", libc_for_tests()]).args(arguments);
        let said = refused(command.envs(variable));
        assert!(said.contains(wanted) && !said.contains("building"), "{arguments:?}: {said}");
    }
}
