//! What the controller costs: plans of pools, of coscheduled runs, of MPI clusters and of NUMA nodes, by the size
//! of the cluster, StreamsJobs that are placed as a whole, and pools on a control plane, in seconds, in writes to the API server and in memory.
//!
//! `docs/performance.md` says how to read the tables. Nothing printed here is stored: every figure
//! is measured in the run that prints it, and a state that is not reached ends the run.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tables go to a terminal")]

#[path = "../common/callgrind.rs"]
mod callgrind;
mod cluster;
mod jobs;
mod mpi;
mod numa;
mod plan;
#[path = "../common/plane.rs"]
mod plane;
#[path = "../common/player.rs"]
mod player;
#[path = "../common/process.rs"]
mod process;
mod runs;
#[path = "../common/table.rs"]
mod table;
mod world;

use std::process::ExitCode;
use std::time::Instant;

/// How large the clusters are: those with pools, those with runs, and those of MPI.
#[derive(Clone, Copy, Debug)]
struct Extent {
    pools: world::Extent,
    runs: runs::Extent,
    clusters: mpi::Extent,
    machines: numa::Extent,
}

/// What `docs/performance.md` shows.
const STANDARD: Extent = Extent {
    pools: world::Extent { nodes: 1_000, pools: 200, pods: 2_000 },
    runs: runs::Extent { nodes: 1_000, runs: 200 },
    clusters: mpi::Extent { workers: 1_000, clusters: 5 },
    machines: numa::Extent { nodes: 1_000, pods: 200 },
};

/// Enough to see that the harness works and where the figures roughly are.
const QUICK: Extent = Extent {
    pools: world::Extent { nodes: 100, pools: 20, pods: 200 },
    runs: runs::Extent { nodes: 100, runs: 20 },
    clusters: mpi::Extent { workers: 1_000, clusters: 1 },
    machines: numa::Extent { nodes: 100, pods: 20 },
};

const USAGE: &str = "\
cargo bench --bench controller -- [--quick] [plan] [jobs] [cluster]

  --quick         100 nodes, 20 pools, 20 runs and one MPI cluster in place of 1,000, 200 and 5:
                  about a minute
  plan, jobs, cluster
                  only this part";

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("controller bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<()> {
    if let [role] = arguments
        && role == "role:plan"
    {
        return plan::play();
    }
    let mut extent = STANDARD;
    let mut parts = Vec::new();
    for word in arguments.iter().map(String::as_str) {
        match word {
            // cargo's own.
            "--bench" => {}
            "--quick" => extent = QUICK,
            "plan" | "jobs" | "cluster" => parts.push(word),
            _ => anyhow::bail!("{word} is not known\n\n{USAGE}"),
        }
    }
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let started = Instant::now();
    if wanted("plan") {
        let valgrind = callgrind::version();
        match &valgrind {
            Some(version) => println!("instructions: {version}, user space only"),
            None => println!("valgrind is not installed: instructions are not counted"),
        }
        let Extent { pools, runs, clusters, machines } = extent;
        plan::measure(pools, runs, clusters, machines, valgrind.is_some())?;
    }
    if wanted("jobs") {
        let counted = callgrind::version().is_some();
        let mut player = counted.then(plan::start_player).transpose()?;
        jobs::measure(None)?;
        player.as_mut().map_or(Ok(()), |player| jobs::measure(Some(player)))?;
    }
    if wanted("cluster") {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(cluster::measure(extent.pools))?;
    }
    println!("\nmeasured in {} s", started.elapsed().as_secs());
    Ok(())
}
