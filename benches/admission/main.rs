//! What an admission costs, as ratios within one run: instructions a request against servers that
//! do less or do it in the customary way, growth with pod and cluster, and memory.
//!
//! `docs/performance.md` says how to read the tables. Nothing printed here is stored: every figure
//! is measured in the run that prints it, and a contestant that answers wrongly ends the run.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tables go to a terminal")]

#[path = "../common/callgrind.rs"]
mod callgrind;
mod client;
mod contestants;
mod growth;
mod memory;
#[path = "../common/player.rs"]
mod player;
#[path = "../common/process.rs"]
mod process;
mod requests;
mod reviews;
#[path = "../common/server.rs"]
mod server;
#[path = "../common/table.rs"]
mod table;
mod world;

use std::process::ExitCode;
use std::time::Instant;

/// How much is measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Extent {
    /// Enough to see that the harness works and where the figures roughly are.
    Quick,
    /// What `docs/performance.md` shows.
    Standard,
    /// 100 and 1,100 requests for every size, and a minute's rest after the burst.
    Full,
}

const USAGE: &str = "\
cargo bench --bench admission -- [--quick | --full] [--rest SECONDS] [requests] [growth] [memory]

  --quick          two sizes and few requests: about a minute
  --full           100 and 1,100 requests whatever the size, and 60 s of rest
  --rest SECONDS   how long the server rests after the burst before its memory is read (default 5)
  requests, growth, memory   only these parts";

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("admission bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<()> {
    // The crate has one crypto provider; the client's and the contestants' configurations take it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if let Some((role, rest)) =
        arguments.split_first().filter(|(first, _)| first.starts_with("role:"))
    {
        return play(role, rest);
    }
    let mut extent = Extent::Standard;
    let mut rest = None;
    let mut parts = Vec::new();
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            // cargo's own.
            "--bench" => {}
            "--quick" => extent = Extent::Quick,
            "--full" => extent = Extent::Full,
            "--rest" => rest = Some(words.next().unwrap_or_default().parse()?),
            "requests" | "growth" | "memory" => parts.push(word),
            _ => anyhow::bail!("{word} is not known\n\n{USAGE}"),
        }
    }
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let started = Instant::now();
    let valgrind = callgrind::version();
    match &valgrind {
        Some(version) => println!("instructions: {version}, user space only"),
        None => println!(
            "valgrind is not installed: instructions are not counted, time is shown as information"
        ),
    }
    println!("extent: {extent:?}");
    if wanted("requests") {
        requests::measure(extent, valgrind.is_some())?;
    }
    if wanted("growth") && valgrind.is_some() {
        growth::measure(extent)?;
    }
    if wanted("memory") {
        let rest = rest.unwrap_or(if extent == Extent::Full { 60 } else { 5 });
        memory::measure(rest)?;
    }
    println!("\nmeasured in {} s", started.elapsed().as_secs());
    Ok(())
}

/// Plays the part that the measuring process gave to this copy of itself.
fn play(role: &str, arguments: &[String]) -> anyhow::Result<()> {
    match (role, arguments) {
        ("role:growth", []) => growth::play(),
        ("role:memory", [kind, count]) => memory::play(kind, count.parse()?),
        (role, [certificate, key]) => contestants::play(role, certificate.as_ref(), key.as_ref()),
        _ => anyhow::bail!("{role} is not a part"),
    }
}
