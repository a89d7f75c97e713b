//! `stowplan crds`: the definitions of our own objects. The chart carries this very output.

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::yaml;
use crate::api;

/// What `stowplan crds` is told.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # The chart installs them; this does so without the chart
  stowplan crds | kubectl apply --server-side -f -

  # What is installed, compared with what this release brings
  stowplan crds | kubectl diff -f -")]
pub(super) struct Arguments {
    /// The form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// YAML documents
    Yaml,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let definitions =
        api::definitions().iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
    let documents = match arguments.output {
        Format::Yaml => yaml::write(&definitions)?,
    };
    super::print(&format!("# Written by `stowplan crds`; do not edit.\n{documents}"))?;
    Ok(ExitCode::SUCCESS)
}
