//! `stowplan ready`: waits until the installed webhook and controller do their work. `helm test` runs
//! it; it can be run by hand too.
//!
//! The webhook is asked as users ask it: a pod is created for trial (`dryRun`), so nothing stays.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout_at};

use super::{parse_duration, process, trial};
use crate::cluster::Presence;
use crate::controller::lease;
use crate::view::ControllerState;

/// The annotation of the pod for trial.
const TRIAL: &str = "stowplan.dev/ready";

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(10);

/// The time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// The arguments of `stowplan ready`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # After an installation, before the first groups are created
  stowplan ready --namespace stowplan-system

  # Without a controller (controller.enabled: false)
  stowplan ready --namespace stowplan-system --without-controller")]
pub(super) struct Arguments {
    /// The namespace in which stowplan is installed; its Lease is there
    #[arg(long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    namespace: String,
    /// A namespace that the webhook serves: a pod is created there for trial (dry run)
    #[arg(long, value_name = "NAMESPACE", default_value = "default",
        value_parser = NonEmptyStringValueParser::new())]
    try_in: String,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    timeout: Duration,
    /// Do not wait for a controller
    #[arg(long)]
    without_controller: bool,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run_in_cluster(async |client| wait(&client, arguments).await)
}

/// Looks until everything works, and reports each change of what is missing.
async fn wait(client: &Client, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let end = Instant::now() + arguments.timeout;
    let mut presence = Presence::default();
    let mut missing = String::new();
    loop {
        let deadline = end.min(Instant::now() + REQUEST);
        let found = match timeout_at(deadline, look(client, arguments, &mut presence)).await {
            Ok(found) => found.err(),
            Err(_) => Some("the API server does not answer in time".to_owned()),
        };
        let Some(found) = found else {
            let controller = if arguments.without_controller { "" } else { ", a controller leads" };
            super::print(&format!("ready: the webhook answers{controller}\n"))?;
            return Ok(ExitCode::SUCCESS);
        };
        if missing != found {
            super::print_notice(&format!("not ready: {found}"));
            missing = found;
        }
        if Instant::now() + PAUSE >= end {
            super::print_notice(&format!("gave up after {}s", arguments.timeout.as_secs()));
            return Ok(ExitCode::FAILURE);
        }
        sleep(PAUSE).await;
    }
}

/// Whether the webhook answers and a controller leads.
///
/// # Errors
/// What is missing, and where to look.
async fn look(
    client: &Client,
    arguments: &Arguments,
    presence: &mut Presence,
) -> Result<(), String> {
    try_pod(client, &arguments.try_in).await?;
    if arguments.without_controller {
        return Ok(());
    }
    let namespace = &arguments.namespace;
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let found = leases.get_opt(lease::NAME).await;
    let found = found.map_err(|error| format!("the controller's Lease cannot be read: {error}"))?;
    let pods = format!("kubectl get pods -n {namespace}, and the controller's log");
    match presence.observe(found.as_ref(), Instant::now(), Timestamp::now()) {
        ControllerState::Leads => Ok(()),
        ControllerState::NotYet => Err(format!("no controller has led yet ({pods})")),
        ControllerState::Stopped => {
            Err(format!("the controller has stopped renewing its Lease ({pods})"))
        }
    }
}

/// Creates a pod for trial, with a key that stowplan does not know. The webhook answers with a warning
/// about it, whatever the policy.
async fn try_pod(client: &Client, namespace: &str) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("a pod cannot be tried in namespace {namespace}: {error}")
    };
    let answer = trial::create_pod(client, namespace, "stowplan-ready-", &[(TRIAL, "trial")]).await;
    let answer = answer.map_err(|error| failed(&error))?;
    if answer.warnings.iter().any(|warning| warning.contains(TRIAL)) {
        return Ok(());
    }
    match answer.created {
        Ok(_) => Err(format!(
            "the webhook does not see pods of namespace {namespace}: look at its pods and its MutatingWebhookConfiguration, and whether the namespace is excluded"
        )),
        Err((_, message)) => Err(failed(&message)),
    }
}
