//! Releases. The workflows run only on a forge, and the Dockerfile only with an engine: here is what
//! can be checked of both without them, and what `.ci/release` makes.

mod files;
mod workflows;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testbed::image::stowplan;

use crate::chart::helm::stdout;
use crate::documents::{ROOT, read};

/// Returns the output of cargo; it asks no registry.
fn cargo(arguments: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    stdout(cargo.args(arguments).args(["--offline", "--locked"]).current_dir(ROOT))
}

/// The members of the workspace, as `cargo metadata` shows them.
fn members() -> Vec<Value> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version=1"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn package() -> Value {
    members().into_iter().find(|package| package["name"] == "stowplan").unwrap()
}

#[test]
fn the_crate_has_what_it_needs_and_nothing_else() {
    let list = cargo(&["package", "--list", "--allow-dirty", "--package=stowplan"]);
    let is_source = |path: &&str| path.starts_with("src/") && path.ends_with(".rs");
    let (sources, others): (BTreeSet<&str>, BTreeSet<&str>) = list.lines().partition(is_source);
    assert!(sources.len() > 100, "{sources:?}");
    // The chart's values are read by a unit test of src/server/limits.rs.
    let wanted = BTreeSet::from([
        "CHANGELOG.md",
        "Cargo.lock",
        "Cargo.toml",
        "Cargo.toml.orig",
        "LICENSE",
        "README.md",
        "charts/stowplan/values.yaml",
    ]);
    // Where the sources are no checkout, this one is missing.
    assert_eq!(&others - &BTreeSet::from([".cargo_vcs_info.json"]), wanted);
    let package = package();
    for field in ["description", "license", "repository", "readme", "rust_version"] {
        assert!(package[field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
    }
    for field in ["keywords", "categories"] {
        assert!(package[field].as_array().is_some_and(|list| !list.is_empty()), "{field}");
    }
}

#[test]
fn the_dockerfile_makes_the_image_that_the_testbed_makes() {
    let dockerfile = read("Dockerfile");
    let (build, image) = dockerfile.split_once("\nFROM scratch\n").unwrap();
    let toolchain: toml::Table = toml::from_str(&read("rust-toolchain.toml")).unwrap();
    let channel = toolchain["toolchain"]["channel"].as_str().unwrap();
    let from = format!("\nARG RUST=rust:{channel}-slim-bookworm\nFROM ${{RUST}} AS build\n");
    assert!(build.contains(&from));
    assert!(build.contains("cargo build --locked --release"));

    let joined = image.replace("\\\n", "");
    let mut instructions: Vec<&str> = joined.lines().collect();
    let labels = instructions.remove(1).strip_prefix("LABEL ").unwrap();
    let labels: BTreeSet<&str> = labels.split_inclusive("\" ").map(str::trim).collect();
    let expected = stowplan::labels(&package(), Some("${REVISION}")).into_iter();
    let expected: Vec<String> = expected.map(|(key, value)| format!("{key}={value:?}")).collect();
    assert_eq!(labels, expected.iter().map(String::as_str).collect());
    let [user, program] = [stowplan::USER, stowplan::ENTRYPOINT];
    let expected = [
        "ARG REVISION=\"\"".to_owned(),
        format!("COPY --from=build --chown=0:0 --chmod=0755 /stowplan {program}"),
        format!("USER {user}"),
        format!("ENTRYPOINT [{program:?}]"),
    ];
    assert_eq!(instructions, expected);
}

#[test]
fn the_engine_gets_the_sources_of_every_target_and_no_other_toolchain() {
    let ignored = read(".dockerignore");
    let allowed: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    assert!(ignored.lines().any(|line| line == "*"));
    for path in &allowed {
        assert!(Path::new(ROOT).join(path).exists(), "{path}");
    }
    // Cargo refuses a workspace that lacks the file of a target, whichever target it builds.
    for package in members() {
        let targets = package["targets"].as_array().unwrap();
        let sources = targets.iter().map(|target| &target["src_path"]);
        for path in sources.chain([&package["manifest_path"]]) {
            let path = Path::new(path.as_str().unwrap()).strip_prefix(ROOT).unwrap();
            assert!(allowed.iter().any(|start| path.starts_with(start)), "{}", path.display());
        }
    }
    // rustup would install the components that only the checks need.
    assert!(!allowed.contains(&"rust-toolchain.toml"));
    assert!(allowed.contains(&"Cargo.lock"));
}

#[test]
fn no_registry_is_named() {
    for path in [
        ".ci/krew.yaml",
        ".ci/release",
        ".github/workflows/checks.yml",
        ".github/workflows/release.yml",
        "Dockerfile",
        "docs/releases.md",
    ] {
        let text = read(path);
        for host in ["docker.io", "gcr.io", "ghcr.io", "pkg.dev", "quay.io"] {
            assert!(!text.contains(host), "{path}: {host}");
        }
    }
}
