//! What an administrator does to nodes, as an administrator does it: with kubectl, or by replacing a
//! machine.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Api;
use kube::api::DeleteParams;

use super::{ControlPlane, NodeSpec, START_LIMIT};
use crate::wait::{Seen, until};

impl ControlPlane {
    /// Deletes a node, and waits until it is gone. Its pods go some time later: the controller manager
    /// sees to that.
    ///
    /// # Errors
    /// There is no such node, or it does not go.
    pub async fn delete_node(&self, name: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        nodes
            .delete(name, &DeleteParams::default())
            .await
            .with_context(|| format!("cannot delete node {name}"))?;
        until(&format!("node {name} to be gone"), START_LIMIT, async || {
            Ok(match nodes.get_metadata_opt(name).await? {
                None => Seen::Done(()),
                Some(_) => Seen::NotYet("it is there".to_owned()),
            })
        })
        .await
    }

    /// Puts a new machine in the place of one: the same name, another UID. Returns when it is Ready.
    ///
    /// # Errors
    /// There is no such node, or the new one does not become Ready.
    pub async fn replace_node(&self, node: &NodeSpec) -> Result<()> {
        self.delete_node(&node.name).await?;
        self.add_node(node).await
    }

    /// `kubectl cordon`: no new pods.
    ///
    /// # Errors
    /// What kubectl says.
    pub async fn cordon(&self, node: &str) -> Result<()> {
        self.change_node(&["cordon", node]).await
    }

    /// `kubectl uncordon`.
    ///
    /// # Errors
    /// What kubectl says.
    pub async fn uncordon(&self, node: &str) -> Result<()> {
        self.change_node(&["uncordon", node]).await
    }

    /// `kubectl taint node`: adds a taint beside those that are there.
    ///
    /// # Errors
    /// What kubectl says; also where the node has a taint of this key and effect.
    pub async fn taint(&self, node: &str, key: &str, value: &str, effect: &str) -> Result<()> {
        self.change_node(&["taint", "node", node, &format!("{key}={value}:{effect}")]).await
    }

    /// `kubectl taint node` with a minus at the end: takes away the taints of this key.
    ///
    /// # Errors
    /// What kubectl says; also where there is none.
    pub async fn untaint(&self, node: &str, key: &str) -> Result<()> {
        self.change_node(&["taint", "node", node, &format!("{key}-")]).await
    }

    /// `kubectl label node`: sets a label, or takes it away where `value` is none.
    ///
    /// # Errors
    /// What kubectl says.
    pub async fn label(&self, node: &str, key: &str, value: Option<&str>) -> Result<()> {
        let change = value.map_or_else(|| format!("{key}-"), |value| format!("{key}={value}"));
        self.change_node(&["label", "node", node, "--overwrite", &change]).await
    }

    /// The labels of a node, as they are now.
    ///
    /// # Errors
    /// There is no such node.
    pub async fn node_labels(&self, node: &str) -> Result<BTreeMap<String, String>> {
        Ok(self.node(node).await?.metadata.labels.unwrap_or_default())
    }

    /// The taints of a node, as they are now.
    ///
    /// # Errors
    /// There is no such node.
    pub async fn node_taints(&self, node: &str) -> Result<Vec<Taint>> {
        Ok(self.node(node).await?.spec.and_then(|spec| spec.taints).unwrap_or_default())
    }

    /// A node, as it is now.
    ///
    /// # Errors
    /// There is no such node.
    pub async fn node(&self, name: &str) -> Result<Node> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        nodes.get(name).await.with_context(|| format!("node {name}"))
    }

    async fn change_node(&self, arguments: &[&str]) -> Result<()> {
        let mut command = self.kubectl();
        command.args(arguments).stdin(Stdio::null());
        let output = tokio::process::Command::from(command)
            .kill_on_drop(true)
            .output()
            .await
            .context("cannot run kubectl")?;
        ensure!(
            output.status.success(),
            "kubectl {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim(),
        );
        Ok(())
    }
}
