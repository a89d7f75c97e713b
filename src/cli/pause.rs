//! `stowplan pause`: the process of a placeholder's pod. It only waits for the signal to end.
//!
//! Each running group may have one, so it is as small as possible: no runtime, no thread, no log,
//! and no allocation while it waits. It is the first process of its container (PID 1): for that
//! one, the kernel drops signals without a handler, but keeps those that are blocked and waited
//! for. It takes well under 1 MB besides the pages of the binary. (Pages of the binary into which
//! the loader has written addresses are not shared between processes.)

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};

/// The arguments of `stowplan pause`: none.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # As the placeholder of a coscheduled group runs it, until the group ends
  stowplan pause")]
pub(super) struct Arguments {}

/// Waits for SIGTERM or SIGINT. There is nothing to clean up then.
pub(super) fn run(_: &Arguments) -> anyhow::Result<ExitCode> {
    let mut end = SigSet::empty();
    end.add(Signal::SIGTERM);
    end.add(Signal::SIGINT);
    end.thread_block().context("SIGTERM and SIGINT cannot be waited for")?;
    loop {
        match end.wait() {
            Ok(_) => return Ok(ExitCode::SUCCESS),
            // The wait is interrupted if a debugger attaches or detaches.
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("SIGTERM and SIGINT cannot be waited for"),
        }
    }
}
