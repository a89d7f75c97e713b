//! A control plane with stowplan, whose controller runs behind a recording proxy, for benches.
//!
//! The controller is the real binary with the chart's rights. Between it and the API server is
//! [`testbed::proxy`], which records each request. The bench itself uses an administrator's client,
//! which does not pass the proxy.

#![allow(dead_code, reason = "each bench uses its own part")]

use std::pin::pin;
use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use testbed::control_plane::{ControlPlane, Install, Installation};
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

/// Stops a control plane; after a failure its logs are kept.
pub(crate) async fn stop(plane: ControlPlane, failed: bool) {
    if failed && plane.keep_dir() {
        eprintln!("the logs are in {}", plane.dir().join("logs").display());
    }
    plane.stop().await;
}

/// Waits until the controller leads.
pub(crate) async fn leading(installation: &Installation) -> anyhow::Result<()> {
    until("the controller to lead", LIMIT, async || {
        let leads = metric(installation, "stowplan_controller_leader").await? >= 1.0;
        Ok(if leads { Seen::Done(()) } else { Seen::NotYet("it does not".to_owned()) })
    })
    .await
}

/// A metric of the controller that has no labels.
pub(crate) async fn metric(installation: &Installation, name: &str) -> anyhow::Result<f64> {
    let address = installation.controller_admin_address(CONTROLLER);
    let answer = http::get(address.context("it does not run")?, "/metrics").await?;
    let mut lines = answer.body.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.with_context(|| format!("no metric {name}"))?.trim().parse()?)
}

/// Sends requests, a fixed number of them at once.
pub(crate) async fn at_once<F>(requests: impl Iterator<Item = F>) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    pin!(stream::iter(requests).buffer_unordered(AT_ONCE)).try_collect().await
}
