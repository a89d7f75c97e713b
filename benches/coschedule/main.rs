//! Measures the cost of coscheduling: how many members of groups the scheduler places in a second, beside the
//! same pods without a group; how many have their nodes in a second if groups arrive without
//! placeholders; and what the controller writes for a run.
//!
//! `docs/performance.md` says how to read the tables. Nothing printed here is stored: every figure
//! is measured in the run that prints it, and pods that are not placed end the run.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tables go to a terminal")]

mod arrival;
mod cluster;
#[path = "../common/common.rs"]
mod common;
mod schedule;
mod writes;

use std::time::Instant;

use clap::Parser;
use clap::builder::RangedU64ValueParser;

use common::{plane, process, table};

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
    /// True if scheduler and controller manager keep their own limits while groups arrive.
    own_limits: bool,
}

/// Measures what coscheduling costs, and prints tables for `docs/performance.md`.
#[derive(Parser)]
struct Arguments {
    /// 100 nodes and 20 groups in place of 1,000 and 200, 10 runs in place of 50
    #[arg(long)]
    quick: bool,
    /// How often each contender places its pods
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: Option<usize>,
    /// While groups arrive, scheduler and controller manager have their own limits of requests per
    /// second
    #[arg(long)]
    own_limits: bool,
    /// Only these parts
    #[arg(value_parser = ["schedule", "arrival", "writes"])]
    parts: Vec<String>,
    /// From cargo
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { quick, rounds, own_limits, parts, .. } = Arguments::parse();
    let (nodes, groups, usual, runs, run_nodes) =
        if quick { (100, 20, 2, 10, 20) } else { (1_000, 200, 4, 50, 200) };
    let rounds = rounds.unwrap_or(usual);
    let extent = Extent { nodes, groups, rounds, runs, run_nodes, own_limits };
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    let started = Instant::now();
    if wanted("schedule") {
        schedule::measure(extent).await?;
    }
    if wanted("arrival") {
        arrival::measure(extent).await?;
    }
    if wanted("writes") {
        writes::measure(extent).await?;
    }
    println!("\nmeasured in {} s", started.elapsed().as_secs());
    Ok(())
}
