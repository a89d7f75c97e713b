//! `stowplan controller`: the process that computes the plans of all systems and writes them.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Config};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::policy_source::{self, Finding, Keeper, PolicyChange};
use super::process;
use crate::cluster::{Cluster, PodChange};
use crate::controller::certificates::Settings;
use crate::controller::events::Events;
use crate::controller::report::Report;
use crate::controller::{Controller, Planner};
use crate::server::admin::{self, Health};
use crate::server::{self, Stop};
use crate::telemetry::Metrics;
use crate::telemetry::log::{Filter, Format};
use crate::tls::authority::Terms;
use stowplan_core::systems::idle::Idle;
use stowplan_core::systems::plan::Event;

/// The time after which a process decides again on pods that were admitted without the webhook.
const DECIDE_INTERVAL: Duration = Duration::from_secs(2);

/// The arguments of `stowplan controller`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # As the chart runs it, two of them: one leads, the other takes over when it stops
  stowplan controller --namespace stowplan-system --policy-config-map stowplan-policy

  # From a workstation, in the cluster of the current kubeconfig context. It may become the leader
  # there: in tls.mode self it also needs the arguments of the chart for the certificate
  stowplan controller --namespace stowplan-system --policy-config-map stowplan-policy \\
    --image REGISTRY/stowplan:VERSION --identity my-laptop --admin-listen 127.0.0.1:0")]
pub(super) struct Arguments {
    /// The namespace that stowplan runs in: that of the Lease stowplan-controller
    #[arg(long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    namespace: String,
    #[command(flatten)]
    policy: policy_source::Arguments,
    /// The address of /livez, /readyz, /metrics and /status (plain HTTP); port 0 takes a free one
    /// and prints it
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
    /// Not ready while a watch has not heard from the API server for longer than this
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = super::parse_duration)]
    max_watch_age: Duration,
    /// The most writes per second, lists included, in the long run; twice as many may be sent at once.
    /// Fewer for a while after the API server has answered 429
    #[arg(long, value_name = "NUMBER", default_value = "200")]
    writes_per_second: NonZeroU32,
    #[command(flatten)]
    certificates: CertificateArguments,
    /// The format of log lines; the variable STOWPLAN_LOG filters them, for example stowplan=debug
    /// [default: text on a terminal, else json]
    #[arg(long, value_name = "FORMAT", value_enum)]
    log_format: Option<Format>,
}

/// The webhook's certificate (tls.mode self of the chart).
#[derive(Args, Debug)]
struct CertificateArguments {
    /// Keep the webhook's certificate in this Secret, in the namespace that stowplan runs in
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(),
          requires_all = ["ca_secret", "service", "webhook_configuration"])]
    tls_secret: Option<String>,
    /// Keep the CA that signs it, and its key, in this Secret
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(),
          requires = "tls_secret")]
    ca_secret: Option<String>,
    /// The Service that the certificate is for
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(),
          requires = "tls_secret")]
    service: Option<String>,
    /// The name of the two webhook configurations (mutating and validating) whose caBundle is kept
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(),
          requires = "tls_secret")]
    webhook_configuration: Option<String>,
    /// How long a CA is valid; a new one is made when a third of it is left
    #[arg(long, value_name = "DURATION", default_value = "87600h", value_parser = super::parse_duration)]
    ca_lifetime: Duration,
    /// How long a certificate is valid; it is renewed when a third of it has passed
    #[arg(long, value_name = "DURATION", default_value = "720h", value_parser = super::parse_duration)]
    leaf_lifetime: Duration,
    /// How long a new CA is trusted before it signs, and an old one after it has signed
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = super::parse_duration)]
    ca_overlap: Duration,
}

impl CertificateArguments {
    /// Returns what is to be kept; `None`: nothing.
    ///
    /// # Errors
    /// Times that do not fit each other.
    fn settings(self, regarding: &ObjectReference) -> anyhow::Result<Option<Settings>> {
        let terms = Terms {
            ca_lifetime: self.ca_lifetime,
            leaf_lifetime: self.leaf_lifetime,
            overlap: self.ca_overlap,
        };
        terms.check().map_err(anyhow::Error::msg)?;
        let names = self.tls_secret.zip(self.ca_secret);
        let names = names.zip(self.service.zip(self.webhook_configuration));
        Ok(names.map(|((secret, ca_secret), (service, configuration))| Settings {
            ca_secret,
            secret,
            service,
            configuration,
            terms,
            regarding: regarding.clone(),
        }))
    }
}

pub(super) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    process::run(arguments.log_format, |metrics, filter| control(arguments, metrics, filter))
}

async fn control(
    arguments: Arguments,
    metrics: Arc<Metrics>,
    log_filter: Filter,
) -> anyhow::Result<ExitCode> {
    let Arguments { namespace, writes_per_second, .. } = arguments;
    let identity = arguments.identity.map_or_else(process::read_host_name, Ok)?;
    let regarding = own_pod(&namespace, &identity);
    let certificates = arguments.certificates.settings(&regarding)?;
    let policy_source = arguments.policy.into_source(&namespace);
    let first_policy = policy_source.read_first()?;
    let mut keeper = Keeper::new(&namespace, &arguments.image, &metrics, log_filter);
    let (policies, policy) = watch::channel(Arc::default());

    let mut config = Config::infer().await.context(process::NO_CLUSTER)?;
    let watching = Client::try_from(config.clone()).context(process::NO_CLUSTER)?;
    // A retry inside the client would not check the lease.
    config.default_retry = false;
    let writing = Client::try_from(config).context(process::NO_CLUSTER)?;

    let admin_listener = server::bind(arguments.admin_listen).await?;
    let report = Arc::new(Report::default());
    let seeing = Arc::clone(&report);
    let see = move |change: PodChange<'_>| seeing.see(change);
    let cluster = Cluster::watching_all(&watching, Arc::clone(&metrics), see);
    let stop = Stop::default();
    let health = Health::without_certificate(
        Arc::clone(&cluster),
        Arc::clone(&metrics),
        stop.requested.clone(),
        arguments.max_watch_age,
    );
    let health = Arc::new(health.with_identity(Some(identity.clone())));
    let serving = Arc::clone(&health);
    let in_force = CancellationToken::new();
    let events = Events::start(writing.clone(), identity.clone(), Arc::clone(&metrics));
    let is_in_force = in_force.clone();
    let mut take = move |finding: Finding| {
        match keeper.judge(finding) {
            PolicyChange::None => {}
            PolicyChange::New(new) => {
                policies.send_replace(new);
                is_in_force.cancel();
            }
            PolicyChange::Rejected(note) => {
                events.record(&regarding, &Event { warning: true, reason: "InvalidPolicy", note });
            }
        }
        health.set_policy(keeper.state());
    };
    take(first_policy);
    process::stop_at_signal(stop.requested.clone())?;
    // After that: a script that reads the address may ask at once.
    println!("admin on http://{}", admin_listener.local_addr()?);
    let admin = tokio::spawn(admin::serve(admin_listener, serving, stop.clone()));
    policy_source.follow(Some(&watching), Arc::clone(&metrics), take)?;

    // Without a policy nothing may be planned. Another process, with an older one, may lead.
    tokio::select! {
        () = in_force.cancelled() => info!(identity, namespace, "competing for the lease"),
        () = stop.requested.cancelled() => {}
    }
    let (deciding, known, decided_by) = (Arc::clone(&report), Arc::clone(&cluster), policy.clone());
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(DECIDE_INTERVAL).await;
            if known.is_synced() {
                let policy = Arc::clone(&decided_by.borrow());
                deciding.decide(&known.view(), &policy);
            }
        }
    });
    let controller = Controller {
        client: writing,
        namespace,
        identity,
        cluster: Arc::clone(&cluster),
        policy,
        planner: planner(report, Arc::clone(&metrics)),
        certificates,
        writes_per_second,
        metrics,
    };
    let ended =
        process::run_beside(&cluster, &stop.requested, controller.run(stop.requested.clone()));
    let ended = ended.await;
    stop.stopped.cancel();
    admin.await?;
    Ok(match ended {
        Ok(()) => {
            info!("stopped");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            error!(problem, "a task that never ends has ended: stopped");
            ExitCode::FAILURE
        }
    })
}

/// The pod of this process, about which it reports events: a user looks there first. Without a UID,
/// which only the API server knows.
fn own_pod(namespace: &str, name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// Joins the plans of all systems with the report of pods that were admitted without the webhook.
fn planner(report: Arc<Report>, metrics: Arc<Metrics>) -> Planner {
    let mut idle = Idle::default();
    Box::new(move |view, policy, now| {
        let mut plan = idle.plan(view, policy, now);
        let report_of_pods = report.plan(view, policy, now);
        metrics.unplaced_pods.set(i64::try_from(report.unplaced()).unwrap_or(i64::MAX));
        metrics.stripped_pods.set(i64::try_from(report.stripped()).unwrap_or(i64::MAX));
        plan.extend(report_of_pods);
        plan
    })
}
