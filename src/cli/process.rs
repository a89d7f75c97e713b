//! What the long-running commands share: the policy's file, and the signals.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};

use super::input;
use crate::policy::Policy;
use crate::telemetry::Metrics;

/// How often files that can change are looked at. A poll sees every way in which they do: written,
/// renamed, or behind a symbolic link that is swapped, as a kubelet does.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// Why a process that needs a cluster does not start.
pub(super) const NO_CLUSTER: &str =
    "cannot find the cluster (a kubeconfig, or a service account's token in a pod)";

/// The policy's file, which is read again when it changes.
pub(super) struct PolicyFile {
    path: Option<PathBuf>,
    namespace: String,
    /// The image of placeholders where the policy names none.
    image: String,
    /// The policy that holds.
    current: Policy,
    /// The last problem that was told.
    told: Option<String>,
}

impl PolicyFile {
    /// Reads the policy of a process in `namespace`; the default one where there is no file. `image`
    /// is that of placeholders where the policy names none.
    ///
    /// # Errors
    /// Why the file is no policy.
    pub(super) fn read(
        path: Option<PathBuf>,
        namespace: &str,
        image: &str,
    ) -> anyhow::Result<(Self, Policy)> {
        let current = read(path.as_deref(), namespace, image)?;
        let (namespace, image) = (namespace.to_owned(), image.to_owned());
        Ok((Self { path, namespace, image, current: current.clone(), told: None }, current))
    }

    /// The policy that the file holds now, if it is a new one. A file that holds none changes nothing,
    /// and is told of once. Reads the file: not for a thread that serves.
    pub(super) fn refresh(&mut self, metrics: &Metrics) -> Option<Policy> {
        match read(Some(self.path.as_deref()?), &self.namespace, &self.image) {
            Ok(new) => {
                self.told = None;
                if self.current == new {
                    return None;
                }
                self.current = new.clone();
                metrics.reloaded_policy(true);
                info!("the policy changed");
                Some(new)
            }
            Err(error) => {
                let problem = format!("{error:#}");
                if self.told.as_ref() != Some(&problem) {
                    metrics.reloaded_policy(false);
                    error!(problem, "the new policy is not one; the old one stays");
                    self.told = Some(problem);
                }
                None
            }
        }
    }
}

fn read(file: Option<&Path>, namespace: &str, image: &str) -> anyhow::Result<Policy> {
    let mut policy = input::policy(file)?;
    // Never in our own way: a process that cannot start must not be what keeps it from starting.
    policy.excluded_namespaces.insert(namespace.to_owned());
    let own = &mut policy.coschedule.placeholder.image;
    if own.is_empty() {
        image.clone_into(own);
    }
    Ok(policy)
}

/// Resolves when the process is asked to stop.
pub(super) async fn signalled() {
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
