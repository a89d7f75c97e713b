//! The command line: one file for each subcommand, with its `Arguments` and `run`.
//!
//! Results are printed on standard output, everything else on standard error. Exit codes: 0 for
//! success, 1 for a negative result (`plan`: something is refused; `check`: there is an obstacle),
//! 2 for errors of usage or input.

#![expect(clippy::print_stdout, reason = "the command line is the part that prints to a terminal")]

pub(crate) mod check;
mod completions;
mod controller;
mod crds;
mod input;
mod live;
mod map;
mod page;
mod pause;
mod plan;
mod policy;
mod policy_source;
mod process;
mod progress;
mod report;
mod requests;
mod review;
mod teardown;
mod template;
mod webhook;
mod yaml;

use std::future::Future;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use stowplan_core::policy::Period;
use stowplan_core::text::escape;

/// The exit code if the arguments or the input cannot be used.
const UNUSABLE: u8 = 2;

/// Places the pods of batch and streaming workloads as they request, with the stock scheduler
#[derive(Debug, Parser)]
#[command(name = "stowplan", version, max_term_width = 100)]
#[command(after_help = "\
Examples:
  # How these pods would be placed in the cluster of the current kubeconfig context, and why
  stowplan plan -f job.yaml --live

  # The same without a cluster: nodes and pools come from files
  kubectl get nodes,hostpools -A -o yaml > cluster.yaml
  stowplan plan -f job.yaml --cluster cluster.yaml

Each command has examples of its own: stowplan plan --help")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the admission webhook that the API server calls
    Webhook(webhook::Arguments),
    /// Keep pools, groups, MPI clusters and the webhook's certificate as they should be
    Controller(controller::Arguments),
    /// Reserve capacity on a node and the volumes there: the process of a placeholder's pod
    Pause(pause::Arguments),
    /// Answer one AdmissionReview from standard input, as the webhook would
    Review(review::Arguments),
    /// Show how the pods in files would be placed, and why, without creating anything
    Plan(plan::Arguments),
    /// Check the installation, or diagnose an object: where it is placed and why, or why it waits
    Check(check::Arguments),
    /// Draw the nodes with their pods: what belongs together, what is reserved, what waits for what
    Map(map::Arguments),
    /// Remove what stowplan has left in the cluster: webhooks, placeholders, gates, labels, taints
    Teardown(teardown::Arguments),
    /// Print the definitions of stowplan's own objects
    Crds(crds::Arguments),
    /// The policy file: its schema, and a check
    Policy(policy::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
}

/// Parses the command line and runs the subcommand. Returns the exit code.
#[must_use]
pub fn run() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Webhook(arguments) => webhook::run(arguments),
        Command::Controller(arguments) => controller::run(arguments),
        Command::Pause(arguments) => pause::run(&arguments),
        Command::Review(arguments) => review::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Map(arguments) => map::run(&arguments),
        Command::Teardown(arguments) => teardown::run(&arguments),
        Command::Crds(arguments) => crds::run(&arguments),
        Command::Policy(arguments) => policy::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
    };
    result.unwrap_or_else(|error| {
        match error.downcast_ref::<input::Problems>() {
            Some(problems) => problems.iter().for_each(print_notice),
            None => print_notice(&format_causes(&error)),
        }
        ExitCode::from(UNUSABLE)
    })
}

/// Runs the requests of a command that reads a cluster once.
fn block_on<F: Future>(future: F) -> anyhow::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(future))
}

/// Prints a message for people, which is not the result, on standard error.
fn print_notice(text: &str) {
    // Nobody may read it: the result and the exit code stay as they are.
    let _ = writeln!(io::stderr(), "stowplan: {}", escape_for_terminal(text));
}

/// Formats an error with its causes. Some errors repeat their cause in their own message.
fn format_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Escapes the characters of `text` that could control a terminal: messages quote files of other
/// users.
fn escape_for_terminal(text: &str) -> String {
    text.split('\n').map(escape).collect::<Vec<_>>().join("\n")
}

/// Prints the result. A reader that has closed the pipe (`| head`) is not an error.
fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Parses a duration flag, for example `500ms`, `10s`, `2m`, `1h`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    text.parse::<Period>().map(Period::length)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// Longer ones are broken, and the next line is not filled.
    #[test]
    fn every_line_of_the_help_fits() {
        for command in Cli::command().get_subcommands() {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in text.lines() {
                assert!(line.len() <= 100, "{}: {line}", command.get_name());
            }
        }
    }

    #[test]
    fn a_message_cannot_control_a_terminal() {
        let escaped = escape_for_terminal("a\tb\u{1b}[31m\r\u{9b}\u{202e}\né\n");
        assert_eq!(escaped, "a\\tb\\u{1b}[31m\\r\\u{9b}\\u{202e}\né\n");
    }

    #[test]
    fn durations_are_parsed() {
        for (text, milliseconds) in
            [("0s", 0), ("500ms", 500), ("10s", 10_000), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        let long = format!("{}h", u64::MAX);
        for text in
            ["", "10", "s", "-1s", "+1s", "1.5s", "1 s", "1d", "1m30s", "10S", "9e9s", "١s", &long]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
