//! The commands of the testbed, one file each.

use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, io};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};
use testbed::control_plane::{ControlPlane, Install};
use testbed::real::mpi_image::MpiImage;
use testbed::tools::{
    self, AutoscalerTools, Kubernetes, KueueTools, NodeTools, TektonTools, Tools,
};
use tokio::signal::unix::{SignalKind, signal};

/// Writes a line to standard output. Unlike `println!` it does not panic if the reader has closed
/// the pipe (`up --detach | head -1`).
macro_rules! say {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($argument)*);
    }};
}

mod cargo;
mod demo;
mod down;
mod image;
mod imitation;
mod up;

const EXAMPLES: &str = "\
Examples:
  cargo demo                                all scenarios in half a minute
  cargo testbed up                          a control plane with stowplan, until Ctrl-C
  cargo testbed up --tekton                 the same, where PipelineRuns get pods and volumes
  cargo testbed up --detach --dir /tmp/bed  in the background
  cargo testbed down --dir /tmp/bed         ends it
  cargo testbed image                       stowplan as a container image, in an archive
  cargo testbed image --mpi openmpi4        an image with MPI, for pods of real nodes
  cargo testbed tools                       only builds the programs, once a machine";

/// A Kubernetes control plane for stowplan: real API server and scheduler, fake nodes, no root.
#[derive(Debug, Parser)]
#[command(name = "testbed", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Up(up::Args),
    Down(down::Args),
    Demo(demo::Args),
    Image(image::Args),
    Imitation(imitation::Args),
    Tools(ToolsArgs),
}

/// Builds etcd, Kubernetes, kwok and helm into the cache, and prints the folder.
#[derive(Debug, clap::Args)]
struct ToolsArgs {
    /// Builds this release of Kubernetes too.
    #[arg(long, value_name = "RELEASE", value_enum, default_value_t)]
    kubernetes: Kubernetes,
    /// Builds the programs of real nodes too, and the images with MPI.
    #[arg(long)]
    real_nodes: bool,
    /// Builds Karpenter too.
    #[arg(long)]
    autoscaler: bool,
    /// Builds Kueue too.
    #[arg(long)]
    kueue: bool,
    /// Builds Tekton Pipelines too, for pods of real nodes.
    #[arg(long)]
    tekton: bool,
}

/// Parses the arguments and runs the command. Exit code: 1 after an error, which is printed, or 130
/// after Ctrl-C.
pub(crate) fn run() -> ExitCode {
    let result = match Cli::parse().command {
        Task::Up(args) => up::run(&args),
        Task::Down(args) => down::run(&args),
        Task::Demo(args) => demo::run(&args),
        Task::Image(args) => image::run(&args),
        Task::Imitation(args) => imitation::run(&args),
        Task::Tools(args) => build_tools(&args),
    };
    match result {
        Ok(Ended::Done) => ExitCode::SUCCESS,
        Ok(Ended::Interrupted) => ExitCode::from(130),
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn build_tools(args: &ToolsArgs) -> Result<Ended> {
    let tools = Tools::ensure_of(args.kubernetes, &tools::to_stderr)?;
    if args.real_nodes {
        NodeTools::ensure(&tools::to_stderr)?;
        MpiImage::ensure_all(&tools::to_stderr)?;
    }
    if args.autoscaler {
        AutoscalerTools::ensure(&tools::to_stderr)?;
    }
    if args.kueue {
        KueueTools::ensure(&tools::to_stderr)?;
    }
    if args.tekton {
        TektonTools::ensure(&tools::to_stderr)?;
    }
    say!("{}", tools.dir().display());
    Ok(Ended::Done)
}

/// How a command without an error ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Done,
    /// By Ctrl-C or SIGTERM, after an orderly shutdown.
    Interrupted,
}

/// Runs `work` until it is done, or until Ctrl-C or SIGTERM; then `work` is dropped, which stops
/// what it started.
fn until_interrupted(work: impl Future<Output = Result<()>>) -> Result<Ended> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            result = work => result.map(|()| Ended::Done),
            pressed = tokio::signal::ctrl_c() => pressed.map(|()| Ended::Interrupted)
                .context("cannot listen for Ctrl-C"),
            _ = terminate.recv() => Ok(Ended::Interrupted),
        }
    })
}

/// The workspace that this program was built from.
fn workspace() -> Result<&'static Path> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace")?;
    ensure!(
        root.join("Cargo.toml").is_file(),
        "{} no longer exists: build the testbed again where the workspace is now",
        root.display(),
    );
    Ok(root)
}

/// The installation of the chart of this workspace.
fn chart_of_workspace(webhook: PathBuf) -> Result<Install> {
    Ok(Install::new(webhook, workspace()?.join("charts/stowplan")))
}

/// The path relative to the present directory if possible.
fn shown(path: &Path) -> String {
    let relative = env::current_dir().ok().and_then(|here| path.strip_prefix(here).ok());
    let path = relative.filter(|path| !path.as_os_str().is_empty()).unwrap_or(path);
    // A bare name would be looked up on the PATH.
    if path.components().count() == 1 && path.is_relative() {
        format!("./{}", path.display())
    } else {
        path.display().to_string()
    }
}

/// Prints how to use a control plane that keeps running.
fn print_usage(plane: &ControlPlane) {
    let dir = shown(plane.dir());
    say!("  {dir}/kubectl get pods -A -o wide");
    say!("  {dir}/helm list -A");
    say!("  export KUBECONFIG={}", plane.kubeconfig().display());
    say!("  logs: {dir}/logs");
    if plane.real_nodes().is_empty() {
        say!(
            "Pods are simulated, also those of Helm's hooks: `helm test` succeeds without a test, and \
             `helm uninstall` cleans nothing up: run `stowplan teardown` then"
        );
    }
}
