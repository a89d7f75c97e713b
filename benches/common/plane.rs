//! A control plane with stowplan, whose controller runs behind a recording proxy, for benches.
//!
//! The controller is the real binary with the chart's rights. Between it and the API server is
//! [`testbed::proxy`], which records each request. The bench itself uses an administrator's client,
//! which does not pass the proxy.

#![allow(dead_code, reason = "each bench uses its own part")]

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use testbed::control_plane::{ControlPlane, Install, Installation, NodeSpec, Options};
use testbed::proxy::Proxy;
use testbed::wait::{Seen, until};
use testbed::{http, workload};

/// The namespace of all objects of a bench.
pub(crate) const NAMESPACE: &str = "bench";

/// The controller's number.
pub(crate) const CONTROLLER: usize = 0;

/// How long a step may take, far above what it needs.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// Requests of the bench that are under way at once.
const AT_ONCE: usize = 16;

/// stowplan in a control plane.
pub(crate) struct Stowplan {
    pub(crate) installation: Installation,
    /// Between the controller and the API server.
    pub(crate) proxy: Proxy,
    pub(crate) client: Client,
}

/// stowplan's chart and binary, without a running controller.
pub(crate) fn install() -> Install {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/stowplan");
    Install::new(env!("CARGO_BIN_EXE_stowplan"), chart).without_controller()
}

impl Stowplan {
    /// Installs stowplan, starts the controller behind the proxy, creates [`NAMESPACE`] and waits
    /// until the controller leads.
    pub(crate) async fn start(plane: &ControlPlane, install: Install) -> anyhow::Result<Self> {
        let mut installation = plane.install(install).await?;
        let proxy = plane.proxy().await?;
        installation.start_controller_through(CONTROLLER, &proxy).await?;
        let client = plane.client().await?;
        workload::namespace(&client, NAMESPACE).await?;
        leading(&installation).await?;
        Ok(Self { installation, proxy, client })
    }
}

/// Waits until the controller leads.
pub(crate) async fn leading(installation: &Installation) -> anyhow::Result<()> {
    until("the controller to lead", LIMIT, async || {
        let leads = metric(installation, "stowplan_controller_leader").await? >= 1.0;
        Ok(if leads { Seen::Done(()) } else { Seen::NotYet("it does not".to_owned()) })
    })
    .await
}

/// The lines of a metric of the controller: one for each of its labels.
pub(crate) async fn metric_lines(
    installation: &Installation,
    name: &str,
) -> anyhow::Result<Vec<String>> {
    let address = installation.controller_admin_address(CONTROLLER);
    let answer = http::get(address.context("it does not run")?, "/metrics").await?;
    let is_of = |line: &&str| line.strip_prefix(name).is_some_and(|it| it.starts_with([' ', '{']));
    Ok(answer.body.lines().filter(is_of).map(str::to_owned).collect())
}

/// The sum of a metric over its lines.
pub(crate) fn sum(lines: &[String]) -> f64 {
    let values = lines.iter().filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    // A sum of no values would be -0.
    values.fold(0.0, |sum, value| sum + value)
}

/// A metric of the controller, over all of its labels.
pub(crate) async fn metric(installation: &Installation, name: &str) -> anyhow::Result<f64> {
    let lines = metric_lines(installation, name).await?;
    ensure!(!lines.is_empty(), "no metric {name}");
    Ok(sum(&lines))
}

/// The count and the sum of a histogram of the controller since its start.
pub(crate) async fn histogram(
    installation: &Installation,
    name: &str,
) -> anyhow::Result<(f64, f64)> {
    let count = metric(installation, &format!("{name}_count")).await?;
    Ok((count, metric(installation, &format!("{name}_sum")).await?))
}

/// The plans of the controller since its start, and their seconds.
pub(crate) async fn planned(installation: &Installation) -> anyhow::Result<(f64, f64)> {
    histogram(installation, "stowplan_controller_plan_duration_seconds").await
}

/// Starts a control plane, has `measure` measure on it, and stops it even after an error, then with
/// its logs kept.
pub(crate) async fn with_plane<T>(
    options: Options,
    measure: impl AsyncFnOnce(&ControlPlane) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let plane = ControlPlane::start(options).await?;
    let measured = measure(&plane).await;
    if measured.is_err() && plane.keep_dir() {
        eprintln!("the logs are in {}", plane.dir().join("logs").display());
    }
    plane.stop().await;
    measured
}

/// Nodes with numbers, each in the next one of these zones.
pub(crate) fn zoned_nodes(count: u16, zones: [&str; 3]) -> Vec<NodeSpec> {
    let nodes = NodeSpec::numbered(count).into_iter().zip(zones.iter().cycle());
    nodes.map(|(node, zone)| node.zone(zone)).collect()
}

/// Sends requests, a fixed number of them at once.
pub(crate) async fn at_once<F>(requests: impl Iterator<Item = F>) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    pin!(stream::iter(requests).buffer_unordered(AT_ONCE)).try_collect().await
}
