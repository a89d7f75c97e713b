//! How often pods on real nodes wait for a disk that a running pod has on another node, and for how long: pods
//! of six shapes, in a namespace without the label `stowplan.dev/one-node-claims` and in one with it.
//!
//! A disk can be on one node at a time. Kubernetes' own controller attaches and detaches the disks, the kubelets
//! mount them, and both refuse a second node. Run by hand, as root.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "figures go to a terminal")]

#[path = "../tests/real/stowplan_image.rs"]
mod stowplan_image;

#[path = "claims/disks.rs"]
mod disks;
#[path = "claims/shapes.rs"]
mod shapes;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use disks::Disks;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use shapes::{PATIENCE, SHAPES, Start};
use testbed::control_plane::{ControlPlane, Options, PodInstall};
use testbed::real::{self, RealNodes};
use testbed::workload;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/stowplan");

const LABEL: &str = "stowplan.dev/one-node-claims";

/// How many sets of pods live at a time.
const AT_ONCE: usize = 24;

/// Starts pods that share disks on real nodes, with and without stowplan, and prints how often and how long they
/// wait for a disk that a running pod has on another node.
///
/// Examples:
///   cargo bench --bench claims
///   cargo bench --bench claims -- --starts 100
#[derive(Parser)]
#[command(name = "claims", verbatim_doc_comment)]
struct Arguments {
    /// How many pods are started in each of the two namespaces, at least
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    starts: u32,
    /// How many real nodes there are
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..=20))]
    nodes: u8,
    /// From cargo
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    // Before minutes of compilation.
    real::check()?;
    let image = stowplan_image::build("stowplan-claims", &[])?;
    let real = Some(RealNodes::new(arguments.nodes));
    let plane = ControlPlane::start(Options { real, ..Options::default() }).await?;
    let outcome = tokio::select! {
        outcome = measure(&plane, &image, &arguments) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("ended by Ctrl-C")),
    };
    if outcome.is_err() && plane.keep_dir() {
        eprintln!("the logs are kept in {}", plane.dir().join("logs").display());
    }
    plane.stop().await;
    outcome
}

async fn measure(
    plane: &ControlPlane,
    image: &std::path::Path,
    arguments: &Arguments,
) -> Result<()> {
    let client = plane.client().await?;
    plane.install_pods(&PodInstall::new(image, CHART)).await?;
    for (namespace, is_asked) in [("without", false), ("with", true)] {
        create_namespace(&client, namespace, is_asked).await?;
        let disks = Disks::start(&client, plane, namespace);
        let begun = Instant::now();
        let starts = start_all(&disks, arguments.starts as usize).await?;
        let has_labels = disks.last_has_label().await?;
        ensure!(has_labels == is_asked, "pods with the label of a claim: {has_labels}");
        let label = if is_asked { "with the label" } else { "without the label" };
        println!("{label}: {} starts in {} s", starts.len(), begun.elapsed().as_secs());
        print(&starts, disks.refusals().await?);
    }
    Ok(())
}

async fn create_namespace(client: &Client, name: &str, is_asked: bool) -> Result<()> {
    workload::namespace(client, name).await?;
    if is_asked {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let label = Patch::Merge(json!({"metadata": {"labels": {LABEL: "true"}}}));
        namespaces.patch(name, &PatchParams::default(), &label).await?;
    }
    Ok(())
}

/// Starts the pods of so many sets that there are this many starts.
async fn start_all(disks: &Disks<'_>, starts: usize) -> Result<Vec<Start>> {
    let of_round: usize = SHAPES.iter().map(|shape| shape.starts()).sum();
    let rounds = starts.div_ceil(of_round);
    let sets = (0..rounds).flat_map(|round| SHAPES.iter().map(move |shape| (round, shape)));
    let sets = sets.map(|(round, shape)| shape.play(disks, round));
    let mut playing = stream::iter(sets).buffer_unordered(AT_ONCE);
    let (mut played, mut shown) = (Vec::new(), 0);
    while let Some(starts) = playing.try_next().await? {
        played.extend(starts);
        if played.len() >= shown + 100 {
            shown = played.len();
            eprintln!("{shown} pods were started");
        }
    }
    ensure!(played.len() >= starts, "only {} pods were started", played.len());
    Ok(played)
}

fn print(starts: &[Start], refusals: usize) {
    let waits = |of: fn(&Start) -> Duration| {
        let mut waits: Vec<_> = starts.iter().map(of).filter(|wait| !wait.is_zero()).collect();
        waits.sort();
        let median = waits.get(waits.len() / 2).copied().unwrap_or_default();
        let all: Duration = waits.iter().sum();
        let (median, all) = (median.as_secs_f64(), all.as_secs_f64());
        format!("{} (median {median:.1} s, in all {all:.0} s)", waits.len())
    };
    let late: Vec<&str> =
        starts.iter().filter(|start| start.took.is_none()).map(|start| &*start.pod).collect();
    println!(
        "  waited for a disk of a running pod elsewhere: {}",
        waits(|start| start.behind_running)
    );
    println!("  waited for a disk to be detached: {}", waits(|start| start.behind_detach));
    println!("  `Multi-Attach` events: {refusals}");
    println!("  not started in {} s: {}", PATIENCE.as_secs(), late.len());
    println!("  created -> started: {}", waits(|start| start.took.unwrap_or_default()));
    for pod in late.iter().take(10) {
        eprintln!("not started: {pod}");
    }
}
