//! `stowplan webhook`: the server that the API server calls.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwapOption;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use tracing::{error, info, warn};

use super::input::{self, Generator};
use super::policy_source::{self, Finding, Keeper, PolicyChange};
use super::process;
use crate::cluster::{Clock, Cluster, watch_named};
use crate::controller::lease;
use crate::server::admin::{self, Health};
use crate::server::limits::Limits;
use crate::server::service::Service;
use crate::server::{self, Stop};
use crate::telemetry::Metrics;
use crate::telemetry::log::{Filter, Format};
use crate::tls::{self, SecretContent};
use stowplan_core::systems::policy::Policy;
use stowplan_core::view::resources;

/// The arguments of `stowplan webhook`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # As the chart runs it: the cluster, the policy and the Secret with the certificate are watched
  stowplan webhook --namespace stowplan-system --policy-config-map stowplan-policy \\
      --tls-secret stowplan-tls

  # With a policy and a certificate in files, which are read again when they change
  stowplan webhook --namespace stowplan-system --policy policy.yaml \\
      --tls-cert tls.crt --tls-key tls.key

  # On a free port, without a cluster: the nodes and pools come from files
  stowplan webhook --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 \\
      --namespace stowplan-system --tls-cert tls.crt --tls-key tls.key \\
      --cluster nodes.yaml")]
pub(super) struct Arguments {
    /// The address for the API server (HTTPS); port 0 takes a free one and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    listen: SocketAddr,
    /// The address of /livez, /readyz, /metrics and /status (plain HTTP); port 0 takes a free one
    /// and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    admin_listen: SocketAddr,
    /// The Secret of type kubernetes.io/tls with the certificate and its key, in the namespace that
    /// stowplan runs in; watched. Not ready until it exists
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(),
          conflicts_with_all = ["tls_cert", "tls_key", "cluster"],
          required_unless_present_any = ["tls_cert", "tls_key"])]
    tls_secret: Option<String>,
    /// The certificate chain, PEM; read again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM; read again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The namespace that stowplan runs in; its pods are never touched
    #[arg(long, value_name = "NAMESPACE")]
    namespace: String,
    /// The Service that the API server calls, in that namespace: not ready unless the certificate
    /// is for it
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// How long to continue serving after a signal to stop, while /readyz fails already
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = super::parse_duration)]
    shutdown_delay: Duration,
    #[command(flatten)]
    policy: policy_source::Arguments,
    /// The CA whose certificates clients must present, PEM; read again when it changes [default:
    /// every client is answered]
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Serve HTTP/2 as well; the API server uses HTTP/1.1 for a Service
    #[arg(long)]
    http2: bool,
    /// The memory that the limits on connections and bodies are derived from, for example 128Mi
    /// [default: the memory limit of the cgroup]
    #[arg(long, value_name = "QUANTITY", value_parser = parse_memory)]
    memory_limit: Option<u64>,
    /// Kubernetes objects, files or folders, instead of watches
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "policy_config_map")]
    cluster: Vec<PathBuf>,
    /// The format of log lines; the variable STOWPLAN_LOG filters them, for example stowplan=debug
    /// [default: text on a terminal, else json]
    #[arg(long, value_name = "FORMAT", value_enum)]
    log_format: Option<Format>,
}

/// The time in which each answer closes its connection, before idle connections are closed.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

pub(super) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    process::run(arguments.log_format, |metrics, filter| serve(arguments, metrics, filter))
}

async fn serve(
    arguments: Arguments,
    metrics: Arc<Metrics>,
    log_filter: Filter,
) -> anyhow::Result<ExitCode> {
    let policy_source = arguments.policy.into_source(&arguments.namespace);
    let first_policy = policy_source.read_first()?;
    let (cluster, client) = if arguments.cluster.is_empty() {
        let client = Client::try_default()
            .await
            .with_context(|| format!("{}; or give --cluster", process::NO_CLUSTER))?;
        let cluster = Cluster::watching(&client, Arc::clone(&metrics));
        cluster.watch_controller(&client, &arguments.namespace, lease::NAME);
        (cluster, Some(client))
    } else {
        let names = &mut Generator::default();
        let view = input::read_cluster(&arguments.cluster, names, &mut |_| {})?;
        (Arc::new(Cluster::fixed(view, Arc::clone(&metrics))), None)
    };

    let listener = server::bind(arguments.listen).await?;
    let admin_listener = server::bind(arguments.admin_listen).await?;
    let stop = Stop::default();
    let limits = match arguments.memory_limit {
        Some(memory) => Limits::default().within_memory(memory),
        None => Limits::default().within_cgroup(),
    };
    let limits = limits.within_open_files();
    let Limits { connections, large_bytes, waiting, .. } = limits;
    info!(connections, large_bytes, waiting, "the limits that clients share");
    let health = Health::new(Arc::clone(&cluster), Arc::clone(&metrics), stop.requested.clone());
    let health = Arc::new(health.with_identity(process::read_host_name().ok()));
    let mut keeper = Keeper::new(&arguments.namespace, "", &metrics, log_filter);
    let policy = Arc::<ArcSwapOption<Policy>>::default();
    let (in_force, judged) = (Arc::clone(&policy), Arc::clone(&health));
    let mut take = move |finding: Finding| {
        if let PolicyChange::New(new) = keeper.judge(finding) {
            in_force.store(Some(new));
        }
        judged.set_policy(keeper.state());
    };
    take(first_policy);
    let name = arguments.service.map(|service| format!("{service}.{}.svc", arguments.namespace));
    let clock = Arc::new(Clock::new(Arc::clone(&metrics)));
    // The thread that reads the certificate, once it runs.
    let reader = Arc::<OnceLock<Thread>>::default();
    let mut certificate = match (arguments.tls_secret, client.clone()) {
        (Some(secret), Some(client)) => {
            let content = Arc::new(SecretContent::new(&arguments.namespace, &secret));
            let (feed, reader) = (Arc::clone(&content), Arc::clone(&reader));
            let (watching, namespace) = (client.clone(), arguments.namespace.clone());
            tokio::spawn(follow_secret(watching, namespace, secret, feed, reader));
            let clock = Arc::clone(&clock);
            tokio::spawn(async move { clock.follow(&client).await });
            tls::Certificate::of_secret(content, name)
        }
        _ => {
            let files = arguments.tls_cert.zip(arguments.tls_key);
            let (certificate, key) =
                files.context("give --tls-secret, or --tls-cert and --tls-key")?;
            tls::Certificate::of_files(certificate, key, name)
        }
    };
    certificate = certificate.with_http2(arguments.http2);
    if let Some(client_ca) = arguments.client_ca {
        certificate = certificate.for_clients_of(client_ca);
    }
    let mut files =
        Files { certificate, clock, health: Arc::clone(&health), metrics: Arc::clone(&metrics) };
    // Before the port is printed: a script that reads it may call at once.
    files.refresh_certificate();
    let tls = files.certificate.server();
    process::stop_at_signal(stop.requested.clone())?;
    println!("listening on https://{}", listener.local_addr()?);
    println!("admin on http://{}", admin_listener.local_addr()?);

    policy_source.follow(client.as_ref(), Arc::clone(&metrics), take)?;
    let service = Arc::new(Service::new(Arc::clone(&cluster), policy, metrics, limits));
    let admin = tokio::spawn(admin::serve(admin_listener, health, stop.clone()));
    // A separate thread: a file system that hangs must not block requests. It ends with the
    // process.
    let polling = thread::Builder::new().name("files".to_owned()).spawn(move || files.poll())?;
    reader.get_or_init(|| polling.thread().clone());
    let stopping = stop.clone();
    let delay = arguments.shutdown_delay;
    // Without a delay there is no wait for last answers either: a test or a person stops the
    // process.
    let last_answers = LAST_ANSWERS.min(delay);
    tokio::spawn(async move { stopping.run(delay, last_answers).await });
    let requested = stop.requested.clone();
    // A View that is out of date decides wrongly. The stop is an orderly one all the same: other
    // replicas take over.
    let watches = tokio::spawn(async move {
        let ended = cluster.ended().await;
        error!(ended, "a task that never ends has ended: stopping");
        requested.cancel();
    });
    server::serve(listener, tls, service, limits, stop).await;
    admin.await?;
    info!("stopped");
    Ok(if watches.is_finished() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Parses an amount of memory, as Kubernetes writes it.
fn parse_memory(text: &str) -> Result<u64, String> {
    let thousandths = resources::thousandths(text);
    let bytes = thousandths.and_then(|thousandths| u64::try_from(thousandths / 1000).ok());
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "write an amount of memory, as 128Mi".to_owned())
}

/// Reads the Secret whenever it changes. A Secret that cannot be watched stays as it was.
async fn follow_secret(
    client: Client,
    namespace: String,
    name: String,
    content: Arc<SecretContent>,
    reader: Arc<OnceLock<Thread>>,
) {
    let mut states = std::pin::pin!(watch_named::<Secret>(&client, &namespace, &name));
    let mut was_read = false;
    while let Some(state) = states.next().await {
        match state {
            Ok(secret) => {
                was_read = true;
                content.set(read_secret(secret));
            }
            Err(error) => {
                warn!(namespace, name, %error, "the Secret with the certificate cannot be watched");
                if !was_read {
                    content.set(Err(format!("cannot be read: {error}")));
                }
            }
        }
        if let Some(thread) = reader.get() {
            thread.unpark();
        }
    }
}

/// The certificate and the key in a Secret; an absent key is empty.
fn read_secret(secret: Option<Secret>) -> Result<(Vec<u8>, Vec<u8>), String> {
    let mut data = secret.ok_or("does not exist")?.data.unwrap_or_default();
    let mut take = |key: &str| data.remove(key).map(|bytes| bytes.0).unwrap_or_default();
    Ok((take(tls::CERTIFICATE), take(tls::KEY)))
}

/// The certificate and its files, which are read again to detect changes.
struct Files {
    certificate: tls::Certificate,
    clock: Arc<Clock>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
}

impl Files {
    /// Reads the files again and again, until the process ends.
    fn poll(mut self) {
        loop {
            // Until then, or until the Secret has changed.
            thread::park_timeout(process::POLL_INTERVAL);
            // A panic here is a bug in a parser; the next content may be parsed.
            if catch_unwind(AssertUnwindSafe(|| self.refresh_certificate())).is_err() {
                error!("reading the certificate panicked");
            }
        }
    }

    fn refresh_certificate(&mut self) {
        match self.certificate.refresh_client_ca() {
            tls::Change::None => {}
            tls::Change::Loaded => {
                self.metrics.count_certificate_reload(true);
                info!("a new client CA is in use");
            }
            tls::Change::Rejected(problem) => {
                self.metrics.count_certificate_reload(false);
                error!(%problem, "invalid client CA; the last valid one, if any, stays in use");
            }
        }
        let now = self.clock.now();
        let change = self.certificate.refresh(now);
        let status = self.certificate.status(now);
        if let Some(not_after) = status.not_after {
            self.metrics.set_certificate_expiry("serving", not_after);
        }
        match change {
            tls::Change::None => {}
            tls::Change::Loaded => {
                self.metrics.count_certificate_reload(true);
                let (days_left, problem) = (status.days_left(now), status.problem.as_deref());
                match problem {
                    None => info!(days_left, "a new certificate is in use"),
                    Some(problem) => {
                        error!(
                            problem,
                            "a new certificate is in use, and the API server will not trust it"
                        )
                    }
                }
            }
            tls::Change::Rejected(problem) => {
                self.metrics.count_certificate_reload(false);
                match status.not_after {
                    Some(_) => error!(%problem, "invalid certificate; the old one stays in use"),
                    // On a new installation the controller has not made it yet.
                    None => warn!(%problem, "no valid certificate yet: the webhook is not ready"),
                }
            }
        }
        self.health.set_certificate(status);
    }
}
