//! A control plane with stowplan, whose controller runs behind a recording proxy, for benches.
//!
//! The controller is the real binary with the chart's rights. Between it and the API server is
//! [`testbed::proxy`], which records each request. The bench itself uses an administrator's client,
//! which does not pass the proxy.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use testbed::control_plane::{ControlPlane, Install, Installation, NodeSpec, Options};
use testbed::proxy::Proxy;
use testbed::wait::{Seen, until};
use testbed::{http, workload};

use super::objects::zone;

/// The namespace of the objects of a bench.
pub(crate) const NAMESPACE: &str = "bench";

/// The controller's number.
pub(crate) const CONTROLLER: usize = 0;

/// How long a step may take, far above what it needs.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// Requests of the bench that are under way at once.
const AT_ONCE: usize = 16;

/// A control plane with stowplan.
pub(crate) struct Cluster<'p> {
    pub(crate) plane: &'p ControlPlane,
    pub(crate) installation: Installation,
    /// Between the controller and the API server.
    pub(crate) proxy: Proxy,
    /// An administrator's client, which does not pass the proxy.
    pub(crate) client: Client,
}

/// stowplan's chart and binary, without a running controller.
pub(crate) fn install() -> Install {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/stowplan");
    Install::new(env!("CARGO_BIN_EXE_stowplan"), chart).without_controller()
}

impl<'p> Cluster<'p> {
    /// Installs stowplan and creates [`NAMESPACE`]. No controller runs yet.
    pub(crate) async fn new(plane: &'p ControlPlane, install: Install) -> anyhow::Result<Self> {
        let installation = plane.install(install).await?;
        let client = plane.client().await?;
        workload::namespace(&client, NAMESPACE).await?;
        Ok(Self { plane, installation, proxy: plane.proxy().await?, client })
    }

    /// Starts the controller behind the proxy, and waits until it leads.
    pub(crate) async fn start_controller(&mut self) -> anyhow::Result<()> {
        self.installation.start_controller_through(CONTROLLER, &self.proxy).await?;
        self.leading().await
    }

    /// Waits until the controller leads.
    pub(crate) async fn leading(&self) -> anyhow::Result<()> {
        until("the controller to lead", LIMIT, async || {
            let leads = self.metric("stowplan_controller_leader").await? >= 1.0;
            Ok(Seen::when(leads, || "it does not".to_owned()))
        })
        .await
    }

    /// Waits until `count` counts this many.
    pub(crate) async fn until_there_are(
        &self,
        wanted: usize,
        what: &str,
        mut count: impl AsyncFnMut() -> anyhow::Result<usize>,
    ) -> anyhow::Result<()> {
        until(&format!("{wanted} {what}"), LIMIT, async || {
            self.plane.check()?;
            let seen = count().await?;
            Ok(Seen::when(seen == wanted, || seen.to_string()))
        })
        .await
    }

    /// The series of a metric of the controller: a line for each combination of its labels.
    pub(crate) async fn series(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let address = self.installation.controller_admin_address(CONTROLLER);
        let answer = http::get(address.context("it does not run")?, "/metrics").await?;
        Ok(series(&answer.body, name))
    }

    /// A metric of the controller, over all of its labels.
    pub(crate) async fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let series = self.series(name).await?;
        ensure!(!series.is_empty(), "no metric {name}");
        Ok(sum(&series))
    }

    /// The count and the sum of a histogram of the controller since its start.
    pub(crate) async fn histogram(&self, name: &str) -> anyhow::Result<[f64; 2]> {
        let count = self.metric(&format!("{name}_count")).await?;
        Ok([count, self.metric(&format!("{name}_sum")).await?])
    }

    /// The plans of the controller since its start, and their seconds.
    pub(crate) async fn planned(&self) -> anyhow::Result<[f64; 2]> {
        self.histogram("stowplan_controller_plan_duration_seconds").await
    }
}

/// The series of a metric in what `/metrics` answers.
pub(crate) fn series(metrics: &str, name: &str) -> Vec<String> {
    let is_of = |line: &&str| line.strip_prefix(name).is_some_and(|it| it.starts_with([' ', '{']));
    metrics.lines().filter(is_of).map(str::to_owned).collect()
}

/// The sum of a metric over its series.
pub(crate) fn sum(series: &[String]) -> f64 {
    let values = series.iter().filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    // A sum of no values would be -0.
    values.fold(0.0, |sum, value| sum + value)
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

/// Nodes with numbers, each in the next one of the zones.
pub(crate) fn zoned_nodes(count: u16) -> Vec<NodeSpec> {
    let nodes = NodeSpec::numbered(count).into_iter().enumerate();
    nodes.map(|(index, node)| node.zone(zone(index))).collect()
}

/// Sends requests, a fixed number of them at once.
pub(crate) async fn at_once(
    requests: impl Iterator<Item = impl Future<Output = anyhow::Result<()>>>,
) -> anyhow::Result<()> {
    pin!(stream::iter(requests).buffer_unordered(AT_ONCE)).try_collect().await
}
