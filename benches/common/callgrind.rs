//! Instructions of another process, counted by callgrind between two points that we choose.

use std::process::{Command, Stdio};

use anyhow::Context as _;
use tempfile::TempDir;

use super::process::Owned;

/// Prints which valgrind counts instructions. Returns `false` where it is missing.
pub(crate) fn announce() -> bool {
    let version = |program| testbed::command::text(Command::new(program).arg("--version"));
    let (Ok(version), Ok(_)) = (version("valgrind"), version("callgrind_control")) else {
        println!("valgrind is not installed: instructions are not counted, time is information");
        return false;
    };
    println!("instructions: {}, user space only", version.trim());
    true
}

/// A process whose instructions are counted. Callgrind sees user space; the kernel's work for a
/// process is in none of the figures.
pub(crate) struct Counter {
    process: u32,
    folder: TempDir,
    laps: u32,
}

impl Counter {
    /// Starts a program under callgrind, its standard output piped.
    pub(crate) fn start(program: &Command, input: Stdio) -> anyhow::Result<(Self, Owned)> {
        let folder = tempfile::tempdir()?;
        let dumps = folder.path().join("out");
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--tool=callgrind"]);
        command.arg(format!("--callgrind-out-file={}", dumps.display()));
        command.arg(program.get_program()).args(program.get_args());
        let child = command.stdin(input).stdout(Stdio::piped()).spawn();
        let child = child.context("valgrind cannot be started")?;
        Ok((Self { process: child.id(), folder, laps: 0 }, Owned(child)))
    }

    /// The instructions of all threads since the lap before, or since the start.
    pub(crate) fn lap(&mut self) -> anyhow::Result<u64> {
        let process = self.process.to_string();
        testbed::command::run(Command::new("callgrind_control").args(["--dump", &process]))?;
        self.laps += 1;
        let dump = self.folder.path().join(format!("out.{}", self.laps));
        let text = std::fs::read_to_string(&dump)?;
        let total = text.lines().rev().find_map(|line| line.strip_prefix("totals: "));
        let total = total.with_context(|| format!("dump {} has no totals", self.laps))?;
        // Dumps are megabytes, and only their last line is of use.
        std::fs::write(&dump, "")?;
        Ok(total.trim().parse()?)
    }
}
