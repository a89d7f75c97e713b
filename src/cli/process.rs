//! Shared by the long-running commands: the runtime, the stop at a signal, and tasks that end.

use std::io;
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::telemetry::Metrics;
use crate::telemetry::log::{self, Filter, Format};

/// The time between two reads of files that can change. Polling detects every kind of change: a file that is
/// written or renamed, and a symbolic link that is swapped, as by a kubelet.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The error of a process that finds no cluster.
pub(super) const NO_CLUSTER: &str =
    "cannot find the cluster (a kubeconfig, or a service account's token in a pod)";

/// The most threads that run tasks. Allocators keep free memory for each thread: with one for each
/// core of a large node, the memory limit of the chart would be used up by what is free.
const MOST_WORKERS: usize = 4;

/// Runs a long-running command with its metrics and its log.
pub(super) fn run<F>(
    log_format: Option<Format>,
    command: impl FnOnce(Arc<Metrics>, Filter) -> F,
) -> anyhow::Result<ExitCode>
where
    F: Future<Output = anyhow::Result<ExitCode>>,
{
    let metrics = Arc::new(Metrics::new());
    // Dropped last, so that log lines are written until the end.
    let (_log, filter) = log::start(log_format, &metrics).map_err(anyhow::Error::msg)?;
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let workers = cores.min(MOST_WORKERS);
    let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
    let ended = runtime.block_on(command(metrics, filter));
    // Tasks that still wait for a client are cancelled, and the watches, which never end.
    runtime.shutdown_background();
    ended
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

/// Requests the stop of the process at SIGTERM or Ctrl-C, from now on: a script that has read the address may
/// send one at once.
///
/// # Errors
/// The signals cannot be received.
pub(super) fn stop_at_signal(requested: CancellationToken) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        requested.cancel();
    });
    Ok(())
}

/// Runs the controller until it is stopped. If it panics, or if a watch of `cluster` ends, it is
/// stopped: it must not act on a View that is out of date.
///
/// # Errors
/// The task that ended.
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
