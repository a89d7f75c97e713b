//! `up`: a control plane to work with.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use testbed::control_plane::{ControlPlane, NodeSpec, Options, PodInstall};
use testbed::image;
use testbed::kueue;
use testbed::real::{self, RealNodes};
use testbed::tools::{self, Kubernetes, KueueTools, NodeTools, Tools};
use testbed::volumes::{IMMEDIATE, LOCAL, WAITING};

use super::cargo::{build_stowplan, default_dir};
use super::{Ended, imitation};

const EXAMPLES: &str = "\
Examples:
  cargo testbed up                  three nodes and stowplan, until Ctrl-C
  cargo testbed up --nodes 1000     more of them
  cargo testbed up --no-install     without stowplan
  cargo testbed up --kubernetes oldest
  cargo testbed up --tekton --dir /tmp/bed, then /tmp/bed/kubectl apply -f examples/tekton-run.yaml
  cargo testbed up --real 3         as root: nodes that run pods, with kubelet and containerd
  cargo testbed up --real 3 --image target/image/stowplan-0.1.0-linux-amd64.tar
  cargo testbed up --detach --dir /tmp/bed && /tmp/bed/kubectl get nodes";

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
    /// Which Kubernetes: the newest or the oldest release that stowplan is tested with.
    #[arg(long, value_name = "RELEASE", value_enum, default_value_t)]
    kubernetes: Kubernetes,
    /// Do not install stowplan.
    #[arg(long)]
    no_install: bool,
    /// Imitate Tekton (PipelineRuns get TaskRuns, claims and pods) and provision volumes, until the
    /// control plane ends. The nodes are then in the zones zone-a and zone-b.
    #[arg(long)]
    tekton: bool,
    /// Run Kueue; the LocalQueues and quotas are up to you.
    #[arg(long)]
    kueue: bool,
    /// This many real nodes instead of simulated ones: kubelet, containerd and kube-proxy in
    /// namespaces of this machine. Needs root. stowplan is installed only with --image.
    #[arg(long, value_name = "N", conflicts_with_all = ["kubernetes", "kueue", "nodes", "tekton"])]
    real: Option<u8>,
    /// Install stowplan on the real nodes, in pods of this image (`cargo testbed image`).
    #[arg(long, value_name = "FILE", requires = "real", conflicts_with = "no_install")]
    image: Option<PathBuf>,
    /// An image archive for the real nodes to import; can be repeated.
    #[arg(long, value_name = "FILE", requires = "real")]
    import: Vec<PathBuf>,
    /// Return when it is ready, and leave it running.
    #[arg(long)]
    detach: bool,
}

pub(super) fn run(args: &Args) -> Result<Ended> {
    if let Some(archive) = &args.image {
        // Pods would wait for the image that the chart names.
        image::check_archive(archive, "stowplan", env!("CARGO_PKG_VERSION"))?;
    }
    for archive in &args.import {
        ensure!(archive.is_file(), "--import: there is no file {}", archive.display());
    }
    let dir = args.dir.clone().map_or_else(|| default_dir("up"), Ok)?;
    // Before minutes of compilation.
    if args.real.is_some() {
        real::check()?;
    }
    // Before the handler for Ctrl-C is installed, so that Ctrl-C ends the builds.
    let kubernetes = args.kubernetes;
    Tools::ensure_of(kubernetes, &tools::to_stderr)?;
    if args.real.is_some() {
        NodeTools::ensure(&tools::to_stderr)?;
    }
    if args.kueue {
        KueueTools::ensure(&tools::to_stderr)?;
    }
    let without = args.no_install || args.real.is_some();
    let webhook = if without { None } else { Some(build_stowplan()?) };
    super::until_interrupted(async {
        let mut nodes = NodeSpec::numbered(args.nodes);
        if args.tekton {
            let zones = ["zone-a", "zone-b"].into_iter().cycle();
            nodes = nodes.into_iter().zip(zones).map(|(node, zone)| node.zone(zone)).collect();
        }
        let real = args.real.map(|count| RealNodes { count, images: args.import.clone() });
        if real.is_some() {
            nodes.clear();
        }
        let options = Options { nodes, real, kubernetes, dir: Some(dir), ..Options::default() };
        let plane = ControlPlane::start(options).await?;
        say!(
            "Kubernetes {} with {} nodes on {}",
            kubernetes.version(),
            args.real.map_or(args.nodes, u16::from),
            plane.api_server(),
        );
        if args.tekton {
            imitation::start(&plane).await?;
            say!(
                "Tekton's kinds are served by an imitation; storage classes: {}",
                [IMMEDIATE, WAITING, LOCAL].join(", "),
            );
        }
        if let Some(image) = &args.image {
            let chart = super::workspace()?.join("charts/stowplan");
            plane.install_pods(&PodInstall::new(image, chart)).await?;
            say!("stowplan runs in pods of namespace stowplan-system");
        }
        if let Some(webhook) = webhook {
            let installation = plane.install(super::chart_of_workspace(webhook)?).await?;
            say!(
                "stowplan is installed in namespace {}, its webhook serves {}",
                installation.namespace(),
                installation.service_address(),
            );
        }
        if args.kueue {
            kueue::start(&plane, &json!({})).await?;
            say!("Kueue {} runs, with the ResourceFlavor default", KueueTools::version());
        }
        super::print_usage(&plane);
        if args.detach {
            let end = format!("cargo testbed down --dir {}", super::shown(plane.dir()));
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
