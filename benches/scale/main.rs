//! A large cluster, and what its users feel: how long the creation of a pod takes without a webhook,
//! with one that only answers and with stowplan's; and what webhook and controller need beside
//! thousands of nodes, pods, runs and jobs.
//!
//! `docs/performance.md` says how to read the tables. Nothing printed here is stored: every figure
//! is measured in the run that prints it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tables go to a terminal")]

mod answers;
#[path = "../common/callgrind.rs"]
mod callgrind;
mod latency;
mod objects;
mod plan;
#[path = "../common/plane.rs"]
mod plane;
#[path = "../common/player.rs"]
mod player;
#[path = "../common/process.rs"]
mod process;
#[path = "../common/server.rs"]
mod server;
mod size;
#[path = "../common/table.rs"]
mod table;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use objects::Extent;

/// What `docs/performance.md` shows.
const STANDARD: Extent = Extent { nodes: 5_000, pods: 50_000, runs: 2_000, jobs: 500 };

/// Enough to see that the harness works and where the figures roughly are.
const QUICK: Extent = Extent { nodes: 500, pods: 5_000, runs: 200, jobs: 50 };

const USAGE: &str = "\
cargo bench --bench scale -- [--quick] [--pods N] [--rest SECONDS] [latency] [plan] [size]

  --quick         a tenth of all, and 200 pods of each variant in place of 1,000: four minutes
  --pods N        so many pods of each variant
  --rest SECONDS  how long webhook and controller are watched at rest, and while nodes flap; the
                  default is 60, and 20 with --quick
  latency, plan, size
                  only this part";

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scale bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let mut quick = false;
    let mut pods = None;
    let mut rest = None;
    let mut parts = Vec::new();
    while let Some(word) = arguments.next() {
        match &*word {
            // cargo's own.
            "--bench" => {}
            latency::ROLE => return latency::play(&arguments.collect::<Vec<_>>()),
            plan::ROLE => return plan::play(),
            "--quick" => quick = true,
            "--pods" | "--rest" => {
                let number = arguments.next().and_then(|number| number.parse().ok());
                let number = number.filter(|number| *number > 0);
                let number: u32 =
                    number.with_context(|| format!("{word}: give it a number above 0"))?;
                if word == "--pods" { pods = Some(number) } else { rest = Some(number) }
            }
            "latency" | "plan" | "size" => parts.push(word),
            _ => anyhow::bail!("{word} is not known\n\n{USAGE}"),
        }
    }
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    let started = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if wanted("latency") {
        let pods = pods.unwrap_or(if quick { 200 } else { 1_000 });
        runtime.block_on(latency::measure(pods as usize))?;
    }
    let extent = if quick { QUICK } else { STANDARD };
    if wanted("plan") {
        // Under callgrind it would take half an hour to make all objects.
        plan::measure(extent, quick && callgrind::version().is_some())?;
    }
    if wanted("size") {
        let rest = rest.unwrap_or(if quick { 20 } else { 60 });
        runtime.block_on(size::measure(extent, Duration::from_secs(rest.into())))?;
    }
    println!("\nmeasured in {} s", started.elapsed().as_secs());
    Ok(())
}
