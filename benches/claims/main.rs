//! How often pods wait for a volume that a running pod has on another node, and for how long: pods of six
//! shapes, in a namespace with the label `stowplan.dev/one-node-claims` and in one without.
//!
//! The volumes are those of a driver that attaches each to one node at a time. Kubernetes' own controller
//! attaches and detaches them, and refuses a second node; the bench answers for the driver. A pod counts as
//! started once its volumes are attached to its node.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tables go to a terminal")]

#[path = "../common/common.rs"]
mod common;
mod disks;
mod shapes;

use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Parser;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::control_plane::{NodeSpec, Options};
use testbed::workload;

use common::{plane, table};
use disks::Disks;
use plane::Cluster;
use shapes::{SHAPES, Start};
use table::{Table, count, tenths};

/// The nodes.
const NODES: u16 = 6;

/// How many sets of pods live at a time.
const AT_ONCE: usize = 24;

const LABEL: &str = "stowplan.dev/one-node-claims";

/// Starts pods that share claims, with and without stowplan, and prints how often and how long they wait for
/// a volume that a running pod has on another node.
///
/// Examples:
///   cargo bench --bench claims
///   cargo bench --bench claims -- --starts 100
#[derive(Parser)]
#[command(verbatim_doc_comment)]
struct Arguments {
    /// How many pods are started in each of the two namespaces, at least
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    starts: u32,
    /// From cargo
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { starts, .. } = Arguments::parse();
    let nodes: Vec<NodeSpec> = NodeSpec::numbered(NODES);
    plane::with_plane(Options { nodes, ..Options::default() }, async |plane| {
        let mut cluster = Cluster::new(plane, plane::install()).await?;
        cluster.start_controller().await?;
        let mut table = Table::new(
            "pods | starts | waited for a running pod elsewhere | seconds, median | seconds, all | not started in 5 s | waited for a detach | `Multi-Attach` events",
        );
        for (label, namespace, is_asked) in
            [("without stowplan", "without", false), ("with `one-node-claims`", "with", true)]
        {
            workload::namespace(&cluster.client, namespace).await?;
            if is_asked {
                let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
                let label = Patch::Merge(json!({"metadata": {"labels": {LABEL: "true"}}}));
                namespaces.patch(namespace, &PatchParams::default(), &label).await?;
            }
            let disks = Disks::start(&cluster.client, plane, namespace, NODES).await?;
            let begun = Instant::now();
            let starts = start_all(&disks, starts as usize, is_asked).await?;
            eprintln!("{} starts in {} s", starts.len(), begun.elapsed().as_secs());
            let late = starts.iter().filter(|start| !start.has_started && is_asked);
            late.for_each(|start| eprintln!("not started in time: {}", start.pod));
            let events = disks.refusals().await?;
            table.row(label, figures(&starts, events));
        }
        table.print(&format!("Pods that share claims, on {NODES} nodes"));
        Ok(())
    })
    .await
}

/// Starts the pods of so many sets that there are this many starts.
async fn start_all(disks: &Disks, starts: usize, is_asked: bool) -> anyhow::Result<Vec<Start>> {
    let of_round: usize = SHAPES.iter().map(|shape| shape.starts()).sum();
    let sets = (0..starts.div_ceil(of_round))
        .flat_map(|round| SHAPES.iter().map(move |shape| (round, shape)));
    let sets = sets.map(|(round, shape)| shape.play(disks, round));
    let played: Vec<Vec<Start>> =
        stream::iter(sets).buffer_unordered(AT_ONCE).try_collect().await?;
    let played: Vec<Start> = played.into_iter().flatten().collect();
    ensure!(played.len() >= starts, "only {} pods were started", played.len());
    let labelled = disks.labelled().await?;
    ensure!(is_asked == (labelled > 0), "{labelled} pods have labels of claims");
    Ok(played)
}

fn figures(starts: &[Start], events: usize) -> [String; 7] {
    let mut waits: Vec<Duration> =
        starts.iter().map(|start| start.behind_running).filter(|of| !of.is_zero()).collect();
    waits.sort();
    let median = waits.get(waits.len() / 2).copied().unwrap_or_default();
    let all: Duration = waits.iter().sum();
    let detaching = starts.iter().filter(|start| !start.behind_detach.is_zero()).count();
    [
        count(starts.len() as f64),
        count(waits.len() as f64),
        tenths(median.as_secs_f64()),
        tenths(all.as_secs_f64()),
        count(starts.iter().filter(|start| !start.has_started).count() as f64),
        count(detaching as f64),
        count(events as f64),
    ]
}
