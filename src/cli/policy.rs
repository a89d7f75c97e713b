//! `stowplan policy`: prints the schema of policy files, and checks a policy file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::input;
use stowplan_core::systems::policy::Policy;

/// The arguments of `stowplan policy`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # For an editor that completes and checks YAML
  stowplan policy schema > policy.schema.json

  # Check a policy before it is written to the ConfigMap
  stowplan policy check -f policy.yaml")]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the JSON schema of a policy file (draft 2020-12)
    #[command(after_help = "\
Examples:
  stowplan policy schema > policy.schema.json")]
    Schema,
    /// Read a policy file as the webhook would; exit 2 if it would keep the old one
    #[command(after_help = "\
Examples:
  stowplan policy check -f policy.yaml
  kubectl get configmap -n stowplan-system stowplan-policy -o jsonpath='{.data.policy\\.yaml}' |
      stowplan policy check -f -")]
    Check {
        /// The policy file; - reads standard input
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        Command::Schema => {
            super::print(&format!("{:#}\n", Policy::schema()))?;
        }
        Command::Check { file } => {
            input::read_policy(Some(file))?;
            super::print(&format!("{}: a valid policy\n", input::format_path(file)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
