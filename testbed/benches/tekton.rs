//! Runs of the real Tekton on real nodes, all created at once: without an assistant, with Tekton's own and with
//! stowplan, one after the other on the same nodes.
//!
//! Run by hand, as root. Each arm has a namespace of its own and is checked: that its pods were placed by
//! whom it says, and by nobody else.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tables go to a terminal")]

#[path = "../tests/real/stowplan_image.rs"]
mod stowplan_image;

#[path = "tekton/arguments.rs"]
mod arguments;
#[path = "tekton/figures.rs"]
mod figures;
#[path = "tekton/load.rs"]
mod load;
#[path = "tekton/requests.rs"]
mod requests;
#[path = "tekton/runs.rs"]
mod runs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use arguments::{Arguments, Arm};
use clap::Parser as _;
use figures::{Round, print_summary};
use kube::Client;
use load::Load;
use requests::Requests;
use testbed::control_plane::{ControlPlane, Options, PodInstall};
use testbed::image::{check_archive, libc_for_tests};
use testbed::real::tekton::{self, Coschedule};
use testbed::real::{self, RealNodes};
use testbed::tools::{TektonTools, to_stderr};
use testbed::volumes::{Volumes, ZONE};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/stowplan");
/// stowplan's own, which is that of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    arguments.check()?;
    // Before minutes of compilation.
    real::check()?;
    let image = match &arguments.image {
        Some(image) => image.clone(),
        None => build_image(&arguments.profile)?,
    };
    check_archive(&image, "stowplan", VERSION)?;
    tokio::task::spawn_blocking(|| TektonTools::ensure(&to_stderr)).await??;
    let real = Some(RealNodes::new(arguments.nodes));
    let audit = arguments.requests;
    let plane = ControlPlane::start(Options { real, audit, ..Options::default() }).await?;
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

/// Builds stowplan's image with this profile of cargo.
fn build_image(profile: &str) -> Result<PathBuf> {
    if profile == "quick" {
        return stowplan_image::build("stowplan-tekton-quick", &[]);
    }
    let archive = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stowplan-tekton.tar");
    let status = Command::new(env!("CARGO_BIN_EXE_testbed"))
        .args(["image", "--libc", libc_for_tests(), "--profile", profile, "--output"])
        .arg(&archive)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot run the testbed")?;
    ensure!(status.success(), "the image of stowplan cannot be made: {status}");
    Ok(archive)
}

async fn measure(plane: &ControlPlane, image: &Path, arguments: &Arguments) -> Result<()> {
    let client = plane.client().await?;
    for number in 1..arguments.nodes {
        let zone = if number <= arguments.nodes / 2 { "zone-a" } else { "zone-b" };
        plane.label(&format!("node-{number}"), ZONE, Some(zone)).await?;
    }
    // Of the nodes with pods of runs, so that none is busier than the others.
    tekton::install(plane, &format!("node-{}", arguments.nodes)).await?;
    let _volumes = Volumes::start(&client).await?;
    plane.install_pods(&PodInstall::new(image, CHART)).await?;
    println!(
        "{} runs of two tasks with one claim, on {} nodes and one for Tekton {}; {} processors",
        arguments.runs,
        arguments.nodes - 1,
        TektonTools::version(),
        std::thread::available_parallelism()?,
    );
    let mut rounds = Vec::new();
    for (number, &arm) in arguments.arms.iter().enumerate() {
        let round = measure_arm(plane, &client, arm, number, arguments)
            .await
            .with_context(|| format!("arm {arm}"))?;
        rounds.push(round);
    }
    print_summary(&rounds);
    Ok(())
}

/// Measures one arm, after one run that is not measured, and deletes its namespace.
async fn measure_arm(
    plane: &ControlPlane,
    client: &Client,
    arm: Arm,
    number: usize,
    arguments: &Arguments,
) -> Result<Round> {
    let flag = match arm {
        Arm::Assistant => Coschedule::Workspaces,
        Arm::Neither | Arm::Stowplan => Coschedule::Disabled,
    };
    tekton::set_coschedule(plane, flag)?;
    let limit = Duration::from_secs(120) + Duration::from_secs(8) * arguments.runs;
    let namespace = format!("runs-{number}");
    runs::create_namespace(client, &namespace, arm).await?;
    runs::until_placed_by(plane, client, &namespace, arm).await?;

    let log = plane.audit_log();
    let logged = if arguments.requests { fs::metadata(&log)?.len() } else { 0 };
    let names = runs::names(arguments.runs);
    let before = Load::now()?;
    let begun = Instant::now();
    let times = runs::run_all(plane, client, &namespace, &names, limit).await?;
    let took = begun.elapsed();
    let load = Load::now()?.since(&before);
    let placed = runs::placed(client, &namespace, runs::RUN).await?;
    ensure!(placed.by == [arm.placed_by()].into(), "pods were placed by {:?}", placed.by);
    ensure!(placed.runs == names.len(), "only {} runs have pods", placed.runs);
    let round = Round { arm, took, times, apart: placed.apart, load };
    round.print();
    if arguments.requests {
        Requests::read(&log, logged)?.print(arguments.runs);
    }
    runs::delete_namespace(client, &namespace, limit).await?;
    Ok(round)
}
