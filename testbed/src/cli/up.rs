//! `up`: a control plane to work with.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use testbed::control_plane::{ControlPlane, NodeSpec, Options};
use testbed::tools::{self, Tools};

use super::Ended;

const EXAMPLES: &str = "\
Examples:
  cargo run -p testbed -- up                  three nodes and stowplan, until Ctrl-C
  cargo run -p testbed -- up --nodes 1000     more of them
  cargo run -p testbed -- up --no-install     without stowplan
  cargo run -p testbed -- up --detach --dir /tmp/bed && /tmp/bed/kubectl get nodes";

/// Starts a control plane with fake nodes and stowplan in it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// How many nodes; they are called node-1, node-2, …
    #[arg(long, value_name = "N", default_value_t = 3)]
    nodes: u16,
    /// The directory for its files: kubeconfig, kubectl, helm, logs, pids [default:
    /// target/testbed/up]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Do not install stowplan.
    #[arg(long)]
    no_install: bool,
    /// Return when it is ready, and leave it running.
    #[arg(long)]
    detach: bool,
}

pub(super) fn run(args: &Args) -> Result<Ended> {
    let dir = args.dir.clone().map_or_else(|| super::default_dir("up"), Ok)?;
    // Before the handler for Ctrl-C is installed, so that Ctrl-C ends the builds.
    Tools::ensure(&tools::to_stderr)?;
    let webhook = if args.no_install { None } else { Some(super::build_stowplan()?) };
    super::until_interrupted(async {
        let options = Options { nodes: NodeSpec::numbered(args.nodes), dir: Some(dir) };
        let plane = ControlPlane::start(options).await?;
        say!(
            "Kubernetes {} with {} nodes on {}",
            Tools::kubernetes_version(),
            args.nodes,
            plane.api_server(),
        );
        if let Some(webhook) = webhook {
            let installation = super::install(&plane, webhook).await?;
            say!(
                "stowplan is installed in namespace {}, its webhook serves {}",
                installation.namespace(),
                installation.service_address(),
            );
        }
        super::print_usage(&plane);
        if args.detach {
            let end = format!("cargo run -p testbed -- down --dir {}", super::shown(plane.dir()),);
            plane.detach()?;
            say!("It runs on without this command; end it with: {end}");
            return Ok(());
        }
        say!("Ctrl-C ends it.");
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            plane.check()?;
        }
    })
}
