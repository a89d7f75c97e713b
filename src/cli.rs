//! The command line: one file a subcommand, each with its `Arguments` and `run`.
//!
//! Answers go to standard output, everything else to standard error. Exit codes: 0 for yes, 1 for no
//! (`plan`: something is refused), 2 for "could not be asked" (usage, unreadable input).

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the command line is what talks to a terminal"
)]

mod check;
mod completions;
mod controller;
mod crds;
mod input;
mod live;
mod pause;
mod plan;
mod policy;
mod process;
mod report;
mod review;
mod template;
mod webhook;
mod yaml;

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::policy::Period;
use crate::text::misleads;

/// Something could not be read, or not be understood.
const UNUSABLE: u8 = 2;

/// Makes the placement wishes of batch and streaming workloads come true, with the stock scheduler
#[derive(Debug, Parser)]
#[command(name = "stowplan", version, max_term_width = 100)]
#[command(after_help = "\
Examples:
  # What would become of these pods in the cluster of the current kubeconfig context, and why
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
    /// Fill pools with nodes, and keep the status of stowplan's own objects
    Controller(controller::Arguments),
    /// Hold a place on a node and the volumes there: what a placeholder's pod runs
    Pause(pause::Arguments),
    /// Answer one AdmissionReview from standard input, as the webhook would
    Review(review::Arguments),
    /// Show what would become of the pods in files, and why, without creating anything
    Plan(plan::Arguments),
    /// Tell why a pod, a job, a pool or a run is where it is, or what is in its way
    Check(check::Arguments),
    /// Print the definitions of stowplan's own objects
    Crds(crds::Arguments),
    /// The policy file: its schema, and a check
    Policy(policy::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
}

/// Reads the command line, does what it says, and says how that went.
#[must_use]
pub fn run() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Webhook(arguments) => webhook::run(arguments),
        Command::Controller(arguments) => controller::run(arguments),
        Command::Pause(arguments) => pause::run(&arguments),
        Command::Review(arguments) => review::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Crds(arguments) => crds::run(&arguments),
        Command::Policy(arguments) => policy::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
    };
    result.unwrap_or_else(|error| {
        match error.downcast_ref::<input::Problems>() {
            Some(problems) => problems.iter().for_each(complain),
            None => complain(&format!("{error:#}")),
        }
        ExitCode::from(UNUSABLE)
    })
}

/// Tells a person something that is not the answer.
fn complain(text: &str) {
    eprintln!("stowplan: {}", printable(text));
}

/// `text` without what a terminal would obey: messages quote files that somebody else wrote.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => printable.push(c),
            _ if misleads(c) => printable.extend(c.escape_default()),
            _ => printable.push(c),
        }
    }
    printable
}

/// Writes the answer. A reader who has gone (`| head`) has seen enough: that is no error.
fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Reads `500ms`, `10s`, `2m`, `1h`: the value parser of duration flags.
fn duration(text: &str) -> Result<Duration, String> {
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

    #[test]
    fn a_terminal_obeys_no_message() {
        assert_eq!(
            printable("a\tb\u{1b}[31m\r\u{9b}\u{202e}\né\n"),
            "a\\tb\\u{1b}[31m\\r\\u{9b}\\u{202e}\né\n"
        );
    }

    #[test]
    fn durations_are_read() {
        for (text, milliseconds) in
            [("0s", 0), ("500ms", 500), ("10s", 10_000), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "10", "s", "-1s", "+1s", "1.5s", "1 s", "1d", "1m30s", "10S", "9e9s", "١s"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(duration(&format!("{}h", u64::MAX)).is_err());
    }
}
