//! A large cluster, and what its users feel: how long the creation of a pod takes without a webhook,
//! with one that only answers and with stowplan's; and what webhook and controller need beside
//! thousands of nodes, pods, runs and jobs.
//!
//! `docs/performance.md` says how to read the tables. Nothing printed here is stored: every figure
//! is measured in the run that prints it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tables go to a terminal")]

#[path = "../common/common.rs"]
mod common;
mod latency;
mod plan;
mod size;

use std::time::{Duration, Instant};

use clap::Parser;
use clap::builder::RangedU64ValueParser;

use common::objects::{self, Extent};
use common::{answers, plane, process, server, table};

/// The extent that `docs/performance.md` shows.
const STANDARD: Extent = Extent { nodes: 5_000, pods: 50_000, runs: 2_000, jobs: 500 };

/// Measures a large cluster and the creation of pods, and prints tables for `docs/performance.md`.
#[derive(Parser)]
struct Arguments {
    /// A tenth of all, and 200 pods of each variant in place of 1,000: four minutes
    #[arg(long)]
    quick: bool,
    /// So many pods of each variant
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pods: Option<usize>,
    /// How long webhook and controller are watched at rest, and while nodes flap; the default is 60,
    /// and 20 with --quick
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    rest: Option<u64>,
    /// Only these parts
    #[arg(value_parser = ["latency", "plan", "size"])]
    parts: Vec<String>,
    /// From cargo
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { quick, pods, rest, parts, .. } = Arguments::parse();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    let started = Instant::now();
    if wanted("latency") {
        let pods = pods.unwrap_or(if quick { 200 } else { 1_000 });
        latency::measure(pods).await?;
    }
    let extent = if quick { STANDARD.divided_by(10) } else { STANDARD };
    if wanted("plan") {
        plan::measure(extent)?;
    }
    if wanted("size") {
        let rest = rest.unwrap_or(if quick { 20 } else { 60 });
        size::measure(extent, Duration::from_secs(rest)).await?;
    }
    println!("\nmeasured in {} s", started.elapsed().as_secs());
    Ok(())
}
