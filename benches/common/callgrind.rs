//! Instructions of another process, counted by callgrind between two points that we choose.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

/// What valgrind calls itself; `None` where it is missing.
pub(crate) fn version() -> Option<String> {
    let output =
        Command::new("valgrind").arg("--version").output().ok().filter(|o| o.status.success())?;
    Command::new("callgrind_control").arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A process whose instructions are counted. Callgrind sees user space; the kernel's work for a
/// process is in none of the figures.
#[derive(Debug)]
pub(crate) struct Counter {
    process: u32,
    folder: TempDir,
    laps: u32,
}

impl Counter {
    /// Starts `command` under callgrind, its standard output piped.
    pub(crate) fn start(
        program: &OsStr,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        input: Stdio,
    ) -> anyhow::Result<(Self, Child)> {
        let folder = tempfile::tempdir()?;
        let child = Command::new("valgrind")
            .arg("--tool=callgrind")
            .arg(format!("--callgrind-out-file={}", folder.path().join("out").display()))
            .arg("--quiet")
            .arg(program)
            .args(arguments)
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .context("valgrind cannot be started")?;
        Ok((Self { process: child.id(), folder, laps: 0 }, child))
    }

    /// The instructions of all threads since the lap before, or since the start.
    pub(crate) fn lap(&mut self) -> anyhow::Result<u64> {
        let asked = Command::new("callgrind_control")
            .arg("--dump")
            .arg(self.process.to_string())
            .output()?;
        ensure!(
            asked.status.success(),
            "callgrind_control: {}",
            String::from_utf8_lossy(&asked.stderr)
        );
        self.laps += 1;
        let file: PathBuf = self.folder.path().join(format!("out.{}", self.laps));
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("callgrind wrote no dump {}", self.laps))?;
        let total = text.lines().rev().find_map(|line| line.strip_prefix("totals: "));
        let total =
            total.with_context(|| format!("dump {} has no totals", self.laps))?.trim().parse()?;
        // Dumps are megabytes, and only their last line is of use.
        std::fs::write(&file, "")?;
        Ok(total)
    }
}
