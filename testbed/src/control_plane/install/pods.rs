//! stowplan in pods of real nodes, exactly as the chart deploys it.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::ListParams;

use super::{Authority, LIMIT, effective, helm_install, prepare, resources_served};
use crate::control_plane::ControlPlane;
use crate::wait::{Seen, until};

/// What to install.
#[derive(Clone, Debug)]
pub struct PodInstall {
    /// An archive with the image that the chart's values name, as `cargo testbed image` makes it.
    pub archive: PathBuf,
    /// The folder of the chart.
    pub chart: PathBuf,
    /// The namespace of the release.
    pub namespace: String,
    /// Chart values, as for `helm install --set`.
    pub values: Vec<(String, String)>,
}

impl PodInstall {
    /// Into `stowplan-system`, with the chart's own values.
    #[must_use]
    pub fn new(archive: impl Into<PathBuf>, chart: impl Into<PathBuf>) -> Self {
        Self {
            archive: archive.into(),
            chart: chart.into(),
            namespace: "stowplan-system".to_owned(),
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

    async fn try_install_pods(&self, install: &PodInstall) -> Result<()> {
        ensure!(self.real.is_some(), "only real nodes run the chart's pods: use `install`");
        self.import(&install.archive).await?;
        let client = self.client().await?;
        let authority = Authority::new("stowplan")?;
        prepare(self, &client, &install.namespace, Some(&authority)).await?;
        let ca = authority.pem();
        helm_install(self, &install.chart, &install.namespace, &install.values, Some(&ca)).await?;
        resources_served(&client).await?;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &install.namespace);
        until("the chart's pods to be ready", LIMIT, async || {
            self.check()?;
            let all = deployments.list(&ListParams::default()).await?.items;
            let waiting: Vec<_> = all
                .into_iter()
                .filter(|deployment| {
                    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
                    let status = deployment.status.as_ref();
                    status.and_then(|status| status.ready_replicas) != wanted.filter(|&n| n > 0)
                })
                .filter_map(|deployment| deployment.metadata.name)
                .collect();
            Ok(match waiting.is_empty() {
                true => Seen::Done(()),
                false => Seen::NotYet(waiting.join(", ")),
            })
        })
        .await
        .with_context(|| self.describe_pods(&install.namespace))?;
        effective(self, &client).await
    }

    /// The pods of a namespace and its last events, for messages.
    fn describe_pods(&self, namespace: &str) -> String {
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
