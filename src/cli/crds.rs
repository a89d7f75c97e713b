//! `stowplan crds`: the CustomResourceDefinitions of stowplan. The chart contains this output.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::yaml;
use stowplan_core::systems;

/// The arguments of `stowplan crds`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # Install them without the chart
  stowplan crds | kubectl apply --server-side -f -

  # Compare the installed definitions with those of this release
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
    let mut definitions =
        systems::definitions().iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
    definitions.iter_mut().for_each(write_integers);
    let Format::Yaml = arguments.output;
    let documents = yaml::write(&definitions)?;
    super::print(&format!("# Written by `stowplan crds`; do not edit.\n{documents}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Turns floating-point numbers without a fraction into integers. In the API's types, bounds are
/// floating-point numbers and would be written as 5000.0; helm and the API server write 5000.
fn write_integers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(write_integers),
        Value::Object(members) => members.values_mut().for_each(write_integers),
        Value::Number(number) => {
            // Only up to 2^53, where the conversion is exact.
            let integer = number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 9e15);
            if let Some(integer) = integer.and_then(|n| format!("{n:.0}").parse::<i64>().ok()) {
                *number = integer.into();
            }
        }
        _ => {}
    }
}
