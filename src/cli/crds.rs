//! `stowplan crds`: the definitions of our own objects. The chart carries this very output.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::Value;

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
    let mut definitions =
        api::definitions().iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
    definitions.iter_mut().for_each(whole_numbers);
    let documents = match arguments.output {
        Format::Yaml => yaml::write(&definitions)?,
    };
    super::print(&format!("# Written by `stowplan crds`; do not edit.\n{documents}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes whole numbers as such. Bounds are floating-point numbers in the API's types, and helm and
/// the API server write 5000 for the 5000.0 that these become.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        Value::Number(number) => {
            // Exact: beyond 2^53 a floating-point number is no bound that anybody wrote.
            let whole = number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 9e15);
            if let Some(whole) = whole.and_then(|n| format!("{n:.0}").parse::<i64>().ok()) {
                *number = whole.into();
            }
        }
        _ => {}
    }
}
