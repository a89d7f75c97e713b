//! Shared by the long-running commands: the runtime, waiting for signals, and tasks that end.

use std::io;
use std::num::NonZero;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::cluster::Cluster;

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

/// Reads the name of the host, which in a pod is the pod's name.
///
/// # Errors
/// It cannot be read, or there is none.
pub(super) fn read_host_name() -> anyhow::Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .context("the host's name cannot be read; give --identity")?;
    let name = name.trim();
    anyhow::ensure!(!name.is_empty(), "the host has no name; give --identity");
    Ok(name.to_owned())
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
