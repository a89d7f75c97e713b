//! The memory of webhook, leader and standby over an hour of churn, with the objects and the limits
//! of the test of memory: many objects, and large ones.
//!
//! Each round creates large and small PipelineRuns, TaskRuns and pods, and deletes those of the
//! round before, without a pause between rounds. A process that exceeds the limit of the chart ends
//! the bench.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tables go to a terminal")]

#[path = "../../tests/common/crowd.rs"]
mod crowd;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Parser;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use hyper::Request;
use kube::Client;
use testbed::control_plane::{ControlPlane, Install, Installation, NodeSpec, Options};
use testbed::{tekton, workload};
use tokio::time::Instant;

use crowd::{CHART, Confined, LARGE, Limits, SMALL, memory_of};

const MINUTE: Duration = Duration::from_secs(60);

/// Prints the memory of stowplan's processes in each minute of churn.
#[derive(Parser)]
struct Arguments {
    /// The duration of the churn
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// From cargo
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { minutes, .. } = Arguments::parse();
    let limits = Limits::of_chart()?;
    let confined = Confined::new(env!("CARGO_BIN_EXE_stowplan"), limits)?;
    let nodes = NodeSpec::numbered(2);
    let plane = ControlPlane::start(Options { nodes, ..Options::default() }).await?;
    let client = plane.client().await?;
    tekton::install(&client).await?;
    workload::namespace(&client, crowd::NAMESPACE).await?;
    crowd::create(&client).await?;
    let mut installation = plane.install(Install::new(confined.program(), CHART)).await?;
    installation.start_controller(1).await?;
    println!("in cgroups: {}; resident memory, MiB (highest so far)", confined.has_groups());
    let Limits { webhook, controller } = limits;
    println!("| minute | objects created | webhook | leader | standby |");
    println!("| ---: | ---: | ---: | ---: | ---: |");
    print_row(0, 0, &installation)?;
    let (mut round, mut created) = (0, 0);
    let start = Instant::now();
    for minute in 1..=minutes {
        while start.elapsed() < MINUTE * minute {
            created += churn(&client, round).await?;
            round += 1;
        }
        plane.check()?;
        print_row(minute, created, &installation)?;
    }
    let limits = [webhook, controller, controller];
    for (process, limit) in processes(&installation)?.into_iter().zip(limits) {
        let peak = memory_of(process, "VmHWM")?;
        ensure!(peak < limit, "{peak} bytes of {limit}");
    }
    drop(installation);
    plane.stop().await;
    Ok(())
}

/// One round; returns the number of objects that it created.
async fn churn(client: &Client, round: usize) -> anyhow::Result<usize> {
    const LARGE_RUNS: usize = 2;
    const SMALL_EACH: usize = 50;
    // Numbers that no other object has.
    let numbers = |of: usize, each: usize| 10_000 + of * each..10_000 + (of + 1) * each;
    crowd::create_runs(client, "large", LARGE, numbers(round, LARGE_RUNS)).await?;
    crowd::create_runs(client, "run", SMALL, numbers(round, SMALL_EACH)).await?;
    crowd::create_task_runs(client, numbers(round, SMALL_EACH)).await?;
    crowd::create_pods(client, numbers(round, SMALL_EACH)).await?;
    if let Some(before) = round.checked_sub(1) {
        let runs = crowd::path("pipelineruns");
        let mut paths = Vec::new();
        paths.extend(numbers(before, LARGE_RUNS).map(|n| format!("{runs}/large-{n}")));
        for n in numbers(before, SMALL_EACH) {
            let [tasks, pods] = [crowd::path("taskruns"), crowd::pods_path()];
            paths.extend([format!("{runs}/run-{n}"), format!("{tasks}/task-{n}")]);
            paths.push(format!("{pods}/pod-{n}"));
        }
        let deleted = stream::iter(paths).map(|path| async move {
            let request = Request::delete(&path).body(Vec::new())?;
            client.request_text(request).await.context(path)?;
            anyhow::Ok(())
        });
        deleted.buffer_unordered(16).try_collect::<()>().await?;
    }
    Ok(LARGE_RUNS + 3 * SMALL_EACH)
}

/// Webhook, leader and standby.
fn processes(installation: &Installation) -> anyhow::Result<[u32; 3]> {
    let [leader, standby] = [0, 1].map(|number| installation.controller_process(number));
    Ok([installation.webhook_process()?, leader?, standby?])
}

fn print_row(minute: u32, created: usize, installation: &Installation) -> anyhow::Result<()> {
    let mut cells = Vec::new();
    for process in processes(installation)? {
        let mebibytes = |field| anyhow::Ok(memory_of(process, field)? / 1024 / 1024);
        cells.push(format!("{} ({})", mebibytes("VmRSS")?, mebibytes("VmHWM")?));
    }
    println!("| {minute} | {created} | {} |", cells.join(" | "));
    Ok(())
}
