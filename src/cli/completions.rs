//! `stowplan completions`: a completion script for a shell.

use std::process::ExitCode;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

/// The arguments of `stowplan completions`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # In this shell
  source <(stowplan completions bash)

  # In every shell from now on
  stowplan completions fish > ~/.config/fish/completions/stowplan.fish")]
pub(super) struct Arguments {
    /// The shell
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::Cli::command(), "stowplan", &mut script);
    super::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
