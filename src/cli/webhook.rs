//! `stowplan webhook`: the server that the API server calls.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use clap::Args;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};

use super::input;
use crate::cluster::Cluster;
use crate::policy::Policy;
use crate::server::admin::{self, Health};
use crate::server::limits::Limits;
use crate::server::service::Service;
use crate::server::{self, Stop};
use crate::telemetry::{self, Metrics};
use crate::tls;

/// What `stowplan webhook` is told.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # As the chart runs it: the cluster is watched, the policy and the certificate are read again when they change
  stowplan webhook --namespace stowplan-system --tls-cert tls.crt --tls-key tls.key --policy policy.yaml

  # On a free port, without a cluster: the nodes and pools come from files
  stowplan webhook --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --namespace stowplan-system \\
      --tls-cert tls.crt --tls-key tls.key --cluster nodes.yaml")]
pub(super) struct Arguments {
    /// Where the API server calls (HTTPS); port 0 takes a free one and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    listen: SocketAddr,
    /// Where /livez, /readyz and /metrics are (plain HTTP); port 0 takes a free one and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    admin_listen: SocketAddr,
    /// The certificate chain, PEM; read again when it changes
    #[arg(long, value_name = "FILE")]
    tls_cert: PathBuf,
    /// Its private key, PEM; read again when it changes
    #[arg(long, value_name = "FILE")]
    tls_key: PathBuf,
    /// The namespace that stowplan runs in; its pods are never touched
    #[arg(long, value_name = "NAMESPACE")]
    namespace: String,
    /// How long to go on serving after a stop was asked for, while /readyz fails already
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = super::duration)]
    shutdown_delay: Duration,
    /// The policy, YAML; read again when it changes
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Kubernetes objects, files or folders, instead of watches
    #[arg(long, value_name = "PATH", num_args = 1..)]
    cluster: Vec<PathBuf>,
}

/// How often the policy's and the certificate's files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// How long answers go on closing their connections before idle ones are closed.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

pub(super) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    telemetry::start_logging().map_err(anyhow::Error::msg)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(arguments))?;
    // What is still waiting for a client is not waited for.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let policy = read_policy(arguments.policy.as_deref(), &arguments.namespace)?;
    let policy = Arc::new(ArcSwap::from_pointee(policy));
    let metrics = Arc::new(Metrics::new());
    let cluster = if arguments.cluster.is_empty() {
        let client = Client::try_default().await.context(
            "cannot find the cluster (a kubeconfig, or a service account's token in a pod; or give --cluster)",
        )?;
        Cluster::watching(&client, Arc::clone(&metrics))
    } else {
        Arc::new(Cluster::fixed(input::view(&arguments.cluster)?, Arc::clone(&metrics)))
    };

    let listener = server::bind(arguments.listen).await?;
    let admin_listener = server::bind(arguments.admin_listen).await?;
    let stop = Stop::default();
    let limits = Limits::default();
    let health = Arc::new(Health::new(Arc::clone(&cluster), Arc::clone(&metrics), stop.asked.clone()));
    let mut files = tls::Files::new(arguments.tls_cert, arguments.tls_key);
    look_at_certificate(&mut files, &health, &metrics);
    let config = files.server_config();
    announce(listener.local_addr()?, admin_listener.local_addr()?);

    let service = Arc::new(Service::new(cluster, Arc::clone(&policy), Arc::clone(&metrics), limits));
    let admin = tokio::spawn(admin::serve(admin_listener, Arc::clone(&health), stop.closing.clone()));
    tokio::spawn(look_at_files(files, health, metrics, policy, arguments.policy, arguments.namespace));
    let asked = stop.asked.clone();
    tokio::spawn(async move {
        signalled().await;
        asked.cancel();
    });
    let stopping = stop.clone();
    let drain = arguments.shutdown_delay;
    // No delay asked for, no last answers either: a test or a person wants it gone.
    let last_answers = LAST_ANSWERS.min(drain);
    tokio::spawn(async move { stopping.run(drain, last_answers).await });
    server::serve(listener, config, service, limits, stop).await;
    admin.await?;
    info!("stopped");
    Ok(())
}

/// Tells where the server listens: for people, and for scripts that asked for a free port.
fn announce(listen: SocketAddr, admin: SocketAddr) {
    println!("listening on https://{listen}");
    println!("admin on http://{admin}");
}

fn read_policy(file: Option<&Path>, namespace: &str) -> anyhow::Result<Policy> {
    let mut policy = input::policy(file)?;
    // Never in our own way: a webhook that cannot start must not be what keeps it from starting.
    policy.excluded_namespaces.insert(namespace.to_owned());
    Ok(policy)
}

/// Looks at the files again and again: a poll sees every way in which a file can change.
async fn look_at_files(
    mut files: tls::Files,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    policy: Arc<ArcSwap<Policy>>,
    policy_file: Option<PathBuf>,
    namespace: String,
) {
    let mut ticks = tokio::time::interval(LOOK);
    let mut told: Option<String> = None;
    loop {
        ticks.tick().await;
        look_at_certificate(&mut files, &health, &metrics);
        let Some(file) = policy_file.as_deref() else { continue };
        match read_policy(Some(file), &namespace) {
            Ok(new) => {
                told = None;
                if **policy.load() != new {
                    policy.store(Arc::new(new));
                    metrics.reloaded_policy(true);
                    info!("the policy changed");
                }
            }
            Err(error) => {
                let problem = format!("{error:#}");
                if told.as_ref() != Some(&problem) {
                    metrics.reloaded_policy(false);
                    error!(problem, "the new policy is not one; the old one stays");
                    told = Some(problem);
                }
            }
        }
    }
}

fn look_at_certificate(files: &mut tls::Files, health: &Health, metrics: &Metrics) {
    match files.refresh() {
        tls::Change::None => {}
        tls::Change::Loaded => {
            metrics.reloaded_certificate(true);
            health.set_certificate(None);
            info!("a serving certificate was read");
        }
        tls::Change::Rejected(problem) => {
            metrics.reloaded_certificate(false);
            error!(%problem, "no new serving certificate");
            if !files.is_loaded() {
                health.set_certificate(Some(problem.to_string()));
            }
        }
    }
}

/// Resolves when the process is asked to stop.
async fn signalled() {
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(error) => {
            error!(%error, "SIGTERM cannot be handled; only Ctrl-C stops in order");
            let _ = tokio::signal::ctrl_c().await;
            return;
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
