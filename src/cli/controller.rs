//! `stowplan controller`: the process that computes the plans of all systems and writes them.

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
use crate::cluster::{Cluster, PodChange};
use crate::controller::report::Report;
use crate::controller::{Controller, Planner};
use crate::server::admin::{self, Health};
use crate::server::{self, Stop};
use crate::systems;
use crate::telemetry::Metrics;
use crate::telemetry::log::{self, Format};

/// The arguments of `stowplan controller`.
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
    /// The address of /livez, /readyz and /metrics (plain HTTP); port 0 takes a free one and prints
    /// it
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8081")]
    admin_listen: SocketAddr,
    /// The unique name of this process in the lease [default: the host name, which in a pod is the
    /// pod's name]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    identity: Option<String>,
    /// The image of placeholders if the policy names none: stowplan's own
    #[arg(long, value_name = "IMAGE", default_value = concat!("stowplan:", env!("CARGO_PKG_VERSION")),
          value_parser = NonEmptyStringValueParser::new())]
    image: String,
    /// The format of log lines [default: text on a terminal, else json]
    #[arg(long, value_name = "FORMAT", value_enum)]
    log_format: Option<Format>,
}

pub(super) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let metrics = Arc::new(Metrics::new());
    // Dropped last, so that log lines are written until the end.
    let _log = log::start(arguments.log_format, &metrics).map_err(anyhow::Error::msg)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(control(arguments, metrics));
    // The watches never end, so the runtime does not wait for them.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

async fn control(arguments: Arguments, metrics: Arc<Metrics>) -> anyhow::Result<()> {
    let Arguments { namespace, policy, admin_listen, identity, image, .. } = arguments;
    let identity = identity.map_or_else(read_host_name, Ok)?;
    let (mut policy_file, policy) = PolicyFile::read(policy, &namespace, &image)?;
    let (policies, policy) = watch::channel(Arc::new(policy));

    let mut config = Config::infer().await.context(process::NO_CLUSTER)?;
    let watching = Client::try_from(config.clone()).context(process::NO_CLUSTER)?;
    // A retry inside the client would not check the lease.
    config.default_retry = false;
    let writing = Client::try_from(config).context(process::NO_CLUSTER)?;

    let admin_listener = server::bind(admin_listen).await?;
    let report = Arc::new(Report::default());
    let seeing = Arc::clone(&report);
    let see = move |change: PodChange<'_>| seeing.see(change);
    let cluster = Cluster::watching_all(&watching, Arc::clone(&metrics), see);
    let stop = Stop::default();
    let health = Arc::new(Health::without_certificate(
        Arc::clone(&cluster),
        Arc::clone(&metrics),
        stop.requested.clone(),
    ));
    println!("admin on http://{}", admin_listener.local_addr()?);
    let admin = tokio::spawn(admin::serve(admin_listener, health, stop.clone()));
    let file_metrics = Arc::clone(&metrics);
    // A separate thread: a file system that hangs must not delay the lease. It ends with the
    // process.
    thread::Builder::new().name("files".to_owned()).spawn(move || {
        loop {
            thread::sleep(process::POLL_INTERVAL);
            // A panic here is a bug in a parser; the next content of the file may be parsed.
            match catch_unwind(AssertUnwindSafe(|| policy_file.refresh(&file_metrics))) {
                Ok(Some(new)) => _ = policies.send_replace(Arc::new(new)),
                Ok(None) => {}
                Err(_) => error!("reading the policy file panicked"),
            }
        }
    })?;
    let requested = stop.requested.clone();
    tokio::spawn(async move {
        process::wait_for_signal().await;
        requested.cancel();
    });

    info!(identity, namespace, "competing for the lease");
    let controller = Controller {
        client: writing,
        namespace,
        identity,
        cluster,
        policy,
        planner: planner(report, Arc::clone(&metrics)),
        metrics,
    };
    let ended = controller.run(stop.requested.clone()).await.map_err(anyhow::Error::msg);
    stop.stopped.cancel();
    admin.await?;
    ended?;
    info!("stopped");
    Ok(())
}

/// Joins the plans of all systems with the report of pods that were admitted without the webhook.
fn planner(report: Arc<Report>, metrics: Arc<Metrics>) -> Planner {
    Box::new(move |view, policy, now| {
        let mut plan = systems::plan(view, policy, now);
        let report_of_pods = report.plan(view, policy, now);
        metrics.unplaced_pods.set(i64::try_from(report.unplaced()).unwrap_or(i64::MAX));
        plan.extend(report_of_pods);
        plan
    })
}

/// Reads the name of the host, which in a pod is the pod's name.
fn read_host_name() -> anyhow::Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .context("the host's name cannot be read; give --identity")?;
    let name = name.trim();
    anyhow::ensure!(!name.is_empty(), "the host has no name; give --identity");
    Ok(name.to_owned())
}
