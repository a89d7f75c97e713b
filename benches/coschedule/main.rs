//! What coscheduling costs: how many members of groups the scheduler places in a second, beside the
//! same pods without a group; how many have their nodes in a second if groups arrive without
//! placeholders; and what the controller writes for a run.
//!
//! `docs/performance.md` says how to read the tables. Nothing printed here is stored: every figure
//! is measured in the run that prints it, and pods that are not placed end the run.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tables go to a terminal")]

mod arrival;
mod cluster;
#[path = "../common/plane.rs"]
mod plane;
mod schedule;
#[path = "../common/table.rs"]
mod table;
mod writes;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;

/// How much is done.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// The nodes on which placements are counted.
    nodes: u16,
    groups: usize,
    rounds: usize,
    /// The PipelineRuns whose writes are counted, and the nodes that they are on.
    runs: usize,
    run_nodes: u16,
    /// Whether scheduler and controller manager keep their own limits while groups arrive.
    own_limits: bool,
}

/// What `docs/performance.md` shows.
const STANDARD: Extent =
    Extent { nodes: 1_000, groups: 200, rounds: 4, runs: 50, run_nodes: 200, own_limits: false };

/// Enough to see that the harness works and where the figures roughly are.
const QUICK: Extent =
    Extent { nodes: 100, groups: 20, rounds: 2, runs: 10, run_nodes: 20, own_limits: false };

const USAGE: &str = "\
cargo bench --bench coschedule -- [--quick] [--rounds N] [--own-limits] [schedule] [arrival] [writes]

  --quick           100 nodes and 20 groups in place of 1,000 and 200, 10 runs in place of 50
  --rounds N        how often each contender places its pods
  --own-limits      while groups arrive, scheduler and controller manager have their own limits of
                    requests per second
  schedule, arrival, writes  only this part";

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("coschedule bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let mut extent = STANDARD;
    let mut rounds = None;
    let mut parts = Vec::new();
    while let Some(word) = arguments.next() {
        match &*word {
            // cargo's own.
            "--bench" => {}
            "--quick" => extent = Extent { own_limits: extent.own_limits, ..QUICK },
            "--own-limits" => extent.own_limits = true,
            "--rounds" => {
                let number = arguments.next().and_then(|number| number.parse().ok());
                let number = number.filter(|number| *number > 0);
                rounds = Some(number.context("--rounds: give it a number above 0")?);
            }
            "schedule" | "arrival" | "writes" => parts.push(word),
            _ => anyhow::bail!("{word} is not known\n\n{USAGE}"),
        }
    }
    extent.rounds = rounds.unwrap_or(extent.rounds);
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    let started = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if wanted("schedule") {
        runtime.block_on(schedule::measure(extent))?;
    }
    if wanted("arrival") {
        runtime.block_on(arrival::measure(extent))?;
    }
    if wanted("writes") {
        runtime.block_on(writes::measure(extent))?;
    }
    println!("\nmeasured in {} s", started.elapsed().as_secs());
    Ok(())
}
