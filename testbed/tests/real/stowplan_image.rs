//! The image of stowplan, for real nodes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use testbed::image::libc_for_tests;

/// Returns `testbed image` with these arguments, which builds the program quickly.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
    command.args(["image", "--profile=quick", "--libc", libc_for_tests()]).args(arguments);
    command
}

/// Builds it, with further arguments of `testbed image`. Returns the archive.
pub(crate) fn build(name: &str, arguments: &[&str]) -> Result<PathBuf> {
    let archive = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.tar"));
    let status = command(&["--output"])
        .arg(&archive)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot run the testbed")?;
    ensure!(status.success(), "the image of stowplan cannot be made: {status}");
    Ok(archive)
}

/// The program of an archive that [`build`] has just written: a copy beside it, because the next
/// build replaces the program.
#[allow(dead_code, reason = "not every suite runs it")]
pub(crate) fn program(archive: &Path) -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-{}", env::consts::ARCH, libc_for_tests());
    let built =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("..").join(target).join("quick/stowplan");
    let copy = archive.with_extension("program");
    fs::copy(&built, &copy).with_context(|| format!("cannot copy {}", built.display()))?;
    Ok(copy)
}
