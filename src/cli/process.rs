//! Shared by the long-running commands: reloading the policy file, and waiting for signals.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};

use super::input;
use crate::systems::policy::Policy;
use crate::telemetry::Metrics;

/// How often files that can change are read. Polling detects every kind of change: a file that is
/// written or renamed, and a symbolic link that is swapped, as by a kubelet.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The error of a process that finds no cluster.
pub(super) const NO_CLUSTER: &str =
    "cannot find the cluster (a kubeconfig, or a service account's token in a pod)";

/// The policy file, which is read again to detect changes.
pub(super) struct PolicyFile {
    path: Option<PathBuf>,
    namespace: String,
    /// The image of placeholders if the policy names none.
    image: String,
    /// The policy in use.
    current: Policy,
    /// The last problem that was logged.
    logged_problem: Option<String>,
}

impl PolicyFile {
    /// Reads the policy for a process in `namespace`; without a file, it is the default. `image` is
    /// the image of placeholders if the policy names none.
    ///
    /// # Errors
    /// Why the file cannot be read or is not a valid policy.
    pub(super) fn read(
        path: Option<PathBuf>,
        namespace: &str,
        image: &str,
    ) -> anyhow::Result<(Self, Policy)> {
        let current = read(path.as_deref(), namespace, image)?;
        let (namespace, image) = (namespace.to_owned(), image.to_owned());
        Ok((
            Self { path, namespace, image, current: current.clone(), logged_problem: None },
            current,
        ))
    }

    /// Reads the file, and returns the policy if it has changed. An invalid file changes nothing,
    /// and its problem is logged once. Blocks on file I/O, so it must not run on a thread that
    /// serves requests.
    pub(super) fn refresh(&mut self, metrics: &Metrics) -> Option<Policy> {
        match read(Some(self.path.as_deref()?), &self.namespace, &self.image) {
            Ok(new) => {
                self.logged_problem = None;
                if self.current == new {
                    return None;
                }
                self.current = new.clone();
                metrics.count_policy_reload(true);
                info!("the policy changed");
                Some(new)
            }
            Err(error) => {
                let problem = format!("{error:#}");
                if self.logged_problem.as_ref() != Some(&problem) {
                    metrics.count_policy_reload(false);
                    error!(problem, "the policy file is invalid; the old policy stays in use");
                    self.logged_problem = Some(problem);
                }
                None
            }
        }
    }
}

fn read(file: Option<&Path>, namespace: &str, image: &str) -> anyhow::Result<Policy> {
    let mut policy = input::read_policy(file)?;
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
