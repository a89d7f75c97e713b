//! `down`: stops a control plane that `up` or `demo --keep` left running.

use std::path::PathBuf;

use anyhow::Result;
use testbed::control_plane::directory::RunDirectory;

use super::Ended;
use super::cargo::default_dir;

const EXAMPLES: &str = "\
Examples:
  cargo testbed down
  cargo testbed down --dir /tmp/bed";

/// Stops the control plane of a directory; its logs remain there.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The directory that was given to `up` [default: target/testbed/up]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<Ended> {
    let dir = args.dir.clone().map_or_else(|| default_dir("up"), Ok)?;
    let ended = RunDirectory::open(&dir)?.end()?;
    if ended.is_empty() {
        say!("nothing runs in {}", super::shown(&dir));
    } else {
        say!("ended {}", ended.join(", "));
    }
    Ok(Ended::Done)
}
