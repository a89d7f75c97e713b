//! Measures the cost of the controller: plans of pools, of coscheduled runs and of MPI clusters, by
//! the size of the cluster, StreamsJobs that are placed as a whole, and pools on a control plane,
//! in seconds, in writes to the API server and in memory.
//!
//! `docs/performance.md` says how to read the tables. Nothing printed here is stored: every figure
//! is measured in the run that prints it, and a state that is not reached ends the run.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tables go to a terminal")]

mod cluster;
#[path = "../common/common.rs"]
mod common;
mod jobs;
mod mpi;
mod plan;
mod runs;
mod world;

use std::time::Instant;

use clap::Parser;

use common::{answers, callgrind, objects, plane, player, process, table};

/// Measures what the controller costs, and prints tables for `docs/performance.md`.
#[derive(Parser)]
struct Arguments {
    /// 100 nodes, 20 pools, 20 runs and one MPI cluster in place of 1,000, 200 and 5: about a minute
    #[arg(long)]
    quick: bool,
    /// Only these parts
    #[arg(value_parser = ["plan", "jobs", "cluster"])]
    parts: Vec<String>,
    /// From cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).is_some_and(|role| role == "role:plan") {
        return plan::play();
    }
    let Arguments { quick, parts, .. } = Arguments::parse();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    let started = Instant::now();
    let counted = callgrind::announce();
    if wanted("plan") {
        plan::measure(quick, counted)?;
    }
    if wanted("jobs") {
        jobs::measure(None)?;
        if counted {
            jobs::measure(Some(&mut plan::start_player()?))?;
        }
    }
    if wanted("cluster") {
        let (nodes, pools) = if quick { (100, 20) } else { (1_000, 200) };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(cluster::measure(nodes, pools))?;
    }
    println!("\nmeasured in {} s", started.elapsed().as_secs());
    Ok(())
}
