//! `stowplan pause`: the process of a placeholder's pod, which is there so that the pod is.
//!
//! There may be one for each group that runs, so it is as small as it can be: no runtime, no thread,
//! no log, and nothing is allocated once it waits. It is the first process of its container, for which
//! the kernel drops every signal that nobody has asked for; one that is blocked and waited for is kept.
//! It takes well under 1 MB besides the binary's pages, and among those count the ones into which the
//! loader has written addresses: each process has them for itself.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};

/// What `stowplan pause` is told: nothing.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # As the placeholder of a coscheduled group runs it, until the group ends
  stowplan pause")]
pub(super) struct Arguments {}

/// Waits to be told to end. There is nothing to put in order then.
pub(super) fn run(_: &Arguments) -> anyhow::Result<ExitCode> {
    let mut end = SigSet::empty();
    end.add(Signal::SIGTERM);
    end.add(Signal::SIGINT);
    end.thread_block().context("SIGTERM and SIGINT cannot be waited for")?;
    loop {
        match end.wait() {
            Ok(_) => return Ok(ExitCode::SUCCESS),
            // A debugger came or went.
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("SIGTERM and SIGINT cannot be waited for"),
        }
    }
}
