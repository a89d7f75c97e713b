//! Shared by the long-running commands: reloading the policy file, and waiting for signals.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use kube::{Client, Config};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::input;
use crate::cluster::Cluster;
use crate::systems::policy::Policy;
use crate::telemetry::Metrics;

/// How often files that can change are read. Polling detects every kind of change: a file that is
/// written or renamed, and a symbolic link that is swapped, as by a kubelet.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The error of a process that finds no cluster.
pub(super) const NO_CLUSTER: &str =
    "cannot find the cluster (a kubeconfig, or a service account's token in a pod)";

/// The most threads that run tasks. Allocators keep free memory for each thread: with one for each
/// core of a large node, the memory limit of the chart would be used up by what is free.
const MOST_WORKERS: usize = 4;

/// The runtime of a long-running command.
pub(super) fn build_runtime() -> io::Result<Runtime> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    Builder::new_multi_thread().worker_threads(cores.min(MOST_WORKERS)).enable_all().build()
}

/// Runs a command in the cluster of the kubeconfig or of the service account.
///
/// # Errors
/// There is no cluster, or those of the command.
pub(super) fn run_in_cluster<F>(command: impl FnOnce(Client) -> F) -> anyhow::Result<ExitCode>
where
    F: Future<Output = anyhow::Result<ExitCode>>,
{
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let config = Config::infer().await.context(NO_CLUSTER)?;
        let client = Client::try_from(config).context(NO_CLUSTER)?;
        command(client).await
    })
}

/// The policy file, which is read again to detect changes.
pub(super) struct PolicyFile {
    path: Option<PathBuf>,
    namespace: String,
    /// The image of placeholders if the policy names none.
    image: String,
    /// The policy in force. `None`: the file has not been valid yet.
    current: Option<Policy>,
    /// Why the file was invalid when it was last read.
    problem: Option<String>,
    metrics: Arc<Metrics>,
}

/// The result of reading the policy file again.
pub(super) enum PolicyChange {
    None,
    /// A new policy is in force.
    New(Arc<Policy>),
    /// The file has become invalid, for this reason; the old policy, or none, stays in force.
    Rejected(String),
}

impl PolicyFile {
    /// A file that is not read yet, for a process in `namespace`; without a file, the policy is the
    /// default. `image` is the image of placeholders if the policy names none.
    pub(super) fn new(
        path: Option<PathBuf>,
        namespace: &str,
        image: &str,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let (namespace, image) = (namespace.to_owned(), image.to_owned());
        let metrics = Arc::clone(metrics);
        Self { path, namespace, image, current: None, problem: None, metrics }
    }

    /// Reads the file for the first time. An invalid policy is no error: a process that ended would
    /// be started again and again, and nothing would show why.
    ///
    /// # Errors
    /// Why the file cannot be read.
    pub(super) fn start(&mut self) -> anyhow::Result<PolicyChange> {
        if let Some(path) = &self.path {
            File::open(path).with_context(|| input::format_path(path))?;
        }
        Ok(self.refresh())
    }

    /// Reads the file. An invalid file changes nothing, and its problem is logged once. Blocks on
    /// file I/O, so it must not run on a thread that serves requests.
    pub(super) fn refresh(&mut self) -> PolicyChange {
        if self.path.is_none() && self.current.is_some() {
            return PolicyChange::None;
        }
        match read(self.path.as_deref(), &self.namespace, &self.image) {
            Ok(new) => {
                self.problem = None;
                self.metrics.policy_rejected.set(0);
                if self.current.as_ref() == Some(&new) {
                    return PolicyChange::None;
                }
                if self.current.replace(new.clone()).is_some() {
                    self.metrics.count_policy_reload(true);
                    info!("the policy changed");
                }
                PolicyChange::New(Arc::new(new))
            }
            Err(error) => {
                let problem = format!("{error:#}");
                self.metrics.policy_rejected.set(1);
                if self.problem.as_ref() == Some(&problem) {
                    return PolicyChange::None;
                }
                self.metrics.count_policy_reload(false);
                match self.current {
                    Some(_) => error!(problem, "invalid policy; the previous one stays in force"),
                    None => error!(problem, "invalid policy, and no other is in force: not ready"),
                }
                self.problem = Some(problem.clone());
                PolicyChange::Rejected(problem)
            }
        }
    }

    /// Why no policy is in force; `None`: one is.
    pub(super) fn problem_without_policy(&self) -> Option<String> {
        self.problem.clone().filter(|_| self.current.is_none())
    }
}

fn read(file: Option<&Path>, namespace: &str, image: &str) -> anyhow::Result<Policy> {
    let mut policy = input::read_policy(file)?.unwrap_or_default();
    // stowplan's own namespace is always excluded: its webhook must not prevent its pods from
    // starting.
    policy.excluded_namespaces.insert(namespace.to_owned());
    let placeholder_image = &mut policy.coschedule.placeholder.image;
    if placeholder_image.is_empty() {
        image.clone_into(placeholder_image);
    }
    Ok(policy)
}

/// Waits for SIGTERM or Ctrl-C.
pub(super) async fn wait_for_signal() {
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(error) => {
            error!(%error, "SIGTERM cannot be handled; only Ctrl-C stops the process in order");
            let _ = tokio::signal::ctrl_c().await;
            return;
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// Runs the controller until it is stopped. If it panics, or if a watch of `cluster` ends, it is
/// stopped: it must not act on a View that is out of date.
///
/// # Errors
/// Which task ended.
pub(super) async fn run_beside(
    cluster: &Cluster,
    stop: &CancellationToken,
    controller: impl Future<Output = Result<(), String>> + Send + 'static,
) -> Result<(), String> {
    let mut controller = tokio::spawn(controller);
    let joined = |ended: Result<Result<(), String>, JoinError>| {
        ended.unwrap_or_else(|error| Err(format!("the planner panicked: {error}")))
    };
    tokio::select! {
        ended = &mut controller => joined(ended),
        ended = cluster.ended() => {
            stop.cancel();
            joined(controller.await).and(Err(ended))
        }
    }
}

#[cfg(test)]
mod tests;
