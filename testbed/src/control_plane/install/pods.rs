//! stowplan in pods of real nodes, exactly as the chart deploys it.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use kube::Api;
use kube::api::ListParams;

use super::{LIMIT, NAMESPACE, effective, helm_release, resources_served};
use crate::control_plane::ControlPlane;
use crate::wait::{Seen, until};

/// An installation to be made in pods.
#[derive(Clone, Debug)]
pub struct PodInstall {
    /// An archive with the image that the chart's values name, as `cargo testbed image` makes it.
    pub archive: PathBuf,
    /// The folder of the chart.
    pub chart: PathBuf,
    /// Files of values, as for `helm install --values`.
    pub value_files: Vec<PathBuf>,
    /// Chart values, as for `helm install --set`.
    pub values: Vec<(String, String)>,
}

impl PodInstall {
    /// With the chart's own values.
    #[must_use]
    pub fn new(archive: impl Into<PathBuf>, chart: impl Into<PathBuf>) -> Self {
        Self {
            archive: archive.into(),
            chart: chart.into(),
            value_files: Vec::new(),
            values: Vec::new(),
        }
    }

    /// With a chart value, as for `helm install --set KEY=VALUE`.
    #[must_use]
    pub fn value(mut self, key: &str, value: &str) -> Self {
        self.values.push((key.to_owned(), value.to_owned()));
        self
    }
}

impl ControlPlane {
    /// Installs stowplan in pods of the real nodes. Returns when the chart's Deployments are
    /// available and a pod's creation reaches the webhook.
    ///
    /// # Errors
    /// There are no real nodes, a node cannot import the image, helm fails, or the pods do not
    /// become ready: the message then names their states, and the directory stays.
    pub async fn install_pods(&self, install: &PodInstall) -> Result<()> {
        let installed = self.try_install_pods(install).await;
        installed.inspect_err(|_| {
            self.keep_dir();
        })
    }

    /// Upgrades stowplan, with exactly these values. Returns when the new pods have replaced the
    /// old ones. The image has to be on the nodes.
    ///
    /// # Errors
    /// helm fails, or the pods do not become ready.
    pub async fn upgrade_pods(&self, install: &PodInstall) -> Result<()> {
        helm(self, "upgrade", install).await?;
        self.pods_ready().await
    }

    /// Waits until each Deployment of stowplan has all of its pods, all of them ready and of
    /// its present template.
    ///
    /// # Errors
    /// It does not happen in time: the message names the pods' states.
    pub async fn pods_ready(&self) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.client().await?, NAMESPACE);
        until("the chart's pods to be ready", LIMIT, async || {
            self.check()?;
            let all = deployments.list(&ListParams::default()).await?.items;
            let waiting: Vec<_> = all
                .into_iter()
                .filter(|deployment| !is_rolled_out(deployment))
                .filter_map(|deployment| deployment.metadata.name)
                .collect();
            Ok(Seen::when(waiting.is_empty(), || waiting.join(", ")))
        })
        .await
        .with_context(|| self.describe_pods(NAMESPACE))
    }

    /// Waits until a pod's creation reaches the webhook, or is refused because it does not.
    ///
    /// # Errors
    /// Pods are admitted as they are.
    pub async fn webhook_is_called(&self) -> Result<()> {
        effective(self, &self.client().await?).await
    }

    async fn try_install_pods(&self, install: &PodInstall) -> Result<()> {
        ensure!(self.real.is_some(), "only real nodes run the chart's pods: use `install`");
        self.import(&install.archive).await?;
        let client = self.client().await?;
        helm(self, "install", install).await?;
        resources_served(&client).await?;
        self.pods_ready().await?;
        effective(self, &client).await
    }

    /// The pods of a namespace and its last events, for messages.
    #[must_use]
    pub fn describe_pods(&self, namespace: &str) -> String {
        let columns = "custom-columns=NAME:.involvedObject.name,MESSAGE:.message";
        [&["get", "pods", "-o", "wide"][..], &["get", "events", "-o", columns]]
            .iter()
            .filter_map(|arguments| {
                let output = self.kubectl().args(["-n", namespace]).args(*arguments).output();
                Some(String::from_utf8_lossy(&output.ok()?.stdout).into_owned())
            })
            .collect()
    }
}

async fn helm(plane: &ControlPlane, verb: &str, install: &PodInstall) -> Result<()> {
    let PodInstall { chart, value_files, values, .. } = install;
    helm_release(plane, verb, chart, value_files, values, None).await
}

fn is_rolled_out(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).filter(|&count| count > 0);
    let status = deployment.status.as_ref();
    let is_observed =
        status.and_then(|status| status.observed_generation) == deployment.metadata.generation;
    let has_wanted = |count: fn(&DeploymentStatus) -> Option<i32>| {
        status.and_then(count).filter(|&count| count > 0) == wanted
    };
    is_observed
        && has_wanted(|status| status.replicas)
        && has_wanted(|status| status.updated_replicas)
        && has_wanted(|status| status.ready_replicas)
}
