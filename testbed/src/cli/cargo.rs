//! Cargo, started by a program that cargo has started.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// A run directory under the workspace's target directory, which `cargo clean` removes.
pub(super) fn default_dir(name: &str) -> Result<PathBuf> {
    let metadata = metadata_of(super::workspace()?, &["--no-deps"])?;
    Ok(target_directory(&metadata)?.join("testbed").join(name))
}

/// Returns the output of `cargo metadata` about the workspace in a folder.
pub(super) fn metadata_of(folder: &Path, arguments: &[&str]) -> Result<Value> {
    let output = cargo()?
        .current_dir(folder)
        .args(["metadata", "--format-version=1"])
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo metadata failed ({})", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Where cargo builds, by what [`metadata_of`] has read.
pub(super) fn target_directory(metadata: &Value) -> Result<&Path> {
    metadata["target_directory"].as_str().map(Path::new).context("no target directory")
}

/// Builds the `stowplan` program, showing cargo's progress, and returns its path.
pub(super) fn build_stowplan() -> Result<PathBuf> {
    // No `--package`: cargo unifies features over the packages it selects, and those of the
    // whole workspace are what `cargo build` and `cargo test` have built.
    build(cargo()?.arg("build"))
}

/// Runs a prepared `cargo build` for the program `stowplan`.
pub(super) fn build(cargo: &mut Command) -> Result<PathBuf> {
    let output = cargo
        .args(["--bin=stowplan", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "stowplan does not build ({})", output.status);
    // One JSON object a line; the one of the program names its path, whatever the profile.
    output
        .stdout
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "stowplan")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo built no program stowplan")
}

/// Cargo in the workspace, whatever the present directory.
pub(super) fn cargo() -> Result<Command> {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let inherited = env::vars_os().map(|(name, _)| name);
    Ok(command(&program, super::workspace()?, inherited))
}

/// Without what cargo says to the programs it runs about their package: build scripts read such
/// variables (ring's does), so cargo would build those crates again, and again for the next
/// `cargo build`, which does not have them.
fn command(
    program: &OsStr,
    workspace: &Path,
    inherited: impl Iterator<Item = OsString>,
) -> Command {
    let mut command = Command::new(program);
    command.current_dir(workspace);
    for name in inherited.filter(|name| describes_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

/// Returns true if cargo sets this variable for one package. The user's settings of cargo (`CARGO_HOME`,
/// `CARGO_TARGET_DIR`, `CARGO_BUILD_…`, `RUSTFLAGS`) are no such variables.
fn describes_package(name: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_FEATURE_", "CARGO_CFG_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || matches!(
            name,
            "CARGO_CRATE_NAME"
                | "CARGO_MAKEFLAGS"
                | "CARGO_PRIMARY_PACKAGE"
                | "CARGO_TARGET_TMPDIR"
                | "OUT_DIR"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_cargo_does_not_see_the_variables_of_a_package() {
        let removed = "CARGO_BIN_EXE_testbed CARGO_CRATE_NAME CARGO_MANIFEST_DIR \
            CARGO_MANIFEST_PATH CARGO_PKG_NAME CARGO_PKG_VERSION_PRE CARGO_PRIMARY_PACKAGE \
            CARGO_TARGET_TMPDIR OUT_DIR";
        let kept = "CARGO CARGO_BUILD_JOBS CARGO_ENCODED_RUSTFLAGS CARGO_HOME CARGO_INCREMENTAL \
            CARGO_LOG CARGO_NET_OFFLINE CARGO_PROFILE_DEV_DEBUG CARGO_TARGET_DIR HOME PATH \
            RUSTFLAGS RUSTUP_TOOLCHAIN";
        let inherited = removed.split(' ').chain(kept.split(' ')).map(OsString::from);
        let command = command(OsStr::new("cargo"), Path::new("/"), inherited);
        let changed: Vec<_> = command.get_envs().collect();
        let expected: Vec<_> = removed.split(' ').map(|name| (OsStr::new(name), None)).collect();
        assert_eq!(changed, expected);
    }
}
