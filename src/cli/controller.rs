//! `stowplan controller`: the process that writes what constraints need of nodes and pools.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use anyhow::Context as _;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use kube::{Client, Config};
use tokio::sync::watch;
use tracing::{error, info};

use super::process::{self, PolicyFile};
use crate::cluster::{Cluster, Passing};
use crate::controller::report::Report;
use crate::controller::{Controller, Planner};
use crate::server::admin::{self, Health};
use crate::server::{self, Stop};
use crate::systems;
use crate::telemetry::Metrics;
use crate::telemetry::log::{self, Format};

/// What `stowplan controller` is told.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # As the chart runs it, two of them: one leads, the other takes over when it stops
  stowplan controller --namespace stowplan-system --policy policy.yaml

  # From a workstation, in the cluster of the current kubeconfig context
  stowplan controller --namespace stowplan-system --identity my-laptop --admin-listen 127.0.0.1:0")]
pub(super) struct Arguments {
    /// The namespace that stowplan runs in: that of the Lease stowplan-controller
    #[arg(long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    namespace: String,
    /// The policy, YAML; read again when it changes
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Where /livez, /readyz and /metrics are (plain HTTP); port 0 takes a free one and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8081")]
    admin_listen: SocketAddr,
    /// The name under which this process leads, which no other has [default: the host's, in a pod the pod's]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    identity: Option<String>,
    /// The image of placeholders, where the policy names none: stowplan's own
    #[arg(long, value_name = "IMAGE", default_value = concat!("stowplan:", env!("CARGO_PKG_VERSION")),
          value_parser = NonEmptyStringValueParser::new())]
    image: String,
    /// How log lines look [default: text on a terminal, else json]
    #[arg(long, value_name = "FORMAT", value_enum)]
    log_format: Option<Format>,
}

pub(super) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let metrics = Arc::new(Metrics::new());
    // Dropped last: until then lines are written.
    let _log = log::start(arguments.log_format, &metrics).map_err(anyhow::Error::msg)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(control(arguments, metrics));
    // The watches have no end of their own.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

async fn control(arguments: Arguments, metrics: Arc<Metrics>) -> anyhow::Result<()> {
    let Arguments { namespace, policy, admin_listen, identity, image, .. } = arguments;
    let identity = identity.map_or_else(host_name, Ok)?;
    let (mut policy_file, policy) = PolicyFile::read(policy, &namespace, &image)?;
    let (policies, policy) = watch::channel(Arc::new(policy));

    let mut config = Config::infer().await.context(process::NO_CLUSTER)?;
    let watching = Client::try_from(config.clone()).context(process::NO_CLUSTER)?;
    // A repetition that the client makes by itself does not ask whether we still lead.
    config.default_retry = false;
    let writing = Client::try_from(config).context(process::NO_CLUSTER)?;

    let admin_listener = server::bind(admin_listen).await?;
    let report = Arc::new(Report::default());
    let seeing = Arc::clone(&report);
    let see = move |passing: Passing<'_>| seeing.see(passing);
    let cluster = Cluster::watching_all(&watching, Arc::clone(&metrics), see);
    let stop = Stop::default();
    let health = Arc::new(Health::without_certificate(
        Arc::clone(&cluster),
        Arc::clone(&metrics),
        stop.asked.clone(),
    ));
    println!("admin on http://{}", admin_listener.local_addr()?);
    let admin = tokio::spawn(admin::serve(admin_listener, health, stop.clone()));
    let counted = Arc::clone(&metrics);
    // A thread of its own: a file system that hangs must not hold up the lease. It ends with the process.
    thread::Builder::new().name("files".to_owned()).spawn(move || {
        loop {
            thread::sleep(process::LOOK);
            // A panic here is a bug in a parser; the next content may be a better one.
            match catch_unwind(AssertUnwindSafe(|| policy_file.refresh(&counted))) {
                Ok(Some(new)) => _ = policies.send_replace(Arc::new(new)),
                Ok(None) => {}
                Err(_) => error!("looking at the policy's file panicked"),
            }
        }
    })?;
    let asked = stop.asked.clone();
    tokio::spawn(async move {
        process::signalled().await;
        asked.cancel();
    });

    info!(identity, namespace, "standing for the lease");
    let controller = Controller {
        client: writing,
        namespace,
        identity,
        cluster,
        policy,
        planner: planner(report, Arc::clone(&metrics)),
        metrics,
    };
    let ended = controller.run(stop.asked.clone()).await.map_err(anyhow::Error::msg);
    stop.stopped.cancel();
    admin.await?;
    ended?;
    info!("stopped");
    Ok(())
}

/// What all systems plan, and what is told of pods that passed without us.
fn planner(report: Arc<Report>, metrics: Arc<Metrics>) -> Planner {
    Box::new(move |view, policy, now| {
        let mut plan = systems::plan(view, policy, now);
        let of_pods = report.plan(view, policy, now);
        metrics.unplaced_pods.set(i64::try_from(report.unplaced()).unwrap_or(i64::MAX));
        plan.extend(of_pods);
        plan
    })
}

/// The name of the host, which in a pod is the pod's.
fn host_name() -> anyhow::Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .context("the host's name cannot be read; give --identity")?;
    let name = name.trim();
    anyhow::ensure!(!name.is_empty(), "the host has no name; give --identity");
    Ok(name.to_owned())
}
