//! The work of an administrator on nodes, done with kubectl; and machines that die.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use super::{ControlPlane, START_LIMIT, is_ready};
use crate::command::text_of;
use crate::definition::unless_gone;
use crate::wait::{Seen, until};

impl ControlPlane {
    /// `kubectl delete node`, which waits until it no longer exists. The controller manager deletes its pods
    /// some time later.
    ///
    /// # Errors
    /// What kubectl says.
    pub async fn delete_node(&self, name: &str) -> Result<()> {
        self.change_node(&["delete", "node", name]).await
    }

    /// Makes a machine die: its node is NotReady until [`ControlPlane::recover_node`], and its pods
    /// stay as they are. None of them ends, and one that is deleted stays Terminating, because no
    /// kubelet is there to end it. Returns when the node is NotReady and tainted.
    ///
    /// # Errors
    /// There is no such node, or it stays Ready.
    pub async fn lose_node(&self, name: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        self.mark_lost(name, true).await?;
        until(&format!("node {name} to be NotReady"), START_LIMIT, async || {
            let node = nodes.get(name).await?;
            let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
            let held = taints.filter(|taint| taint.key == "node.kubernetes.io/not-ready").count();
            // One against new pods, one against those that run there.
            Ok(match (is_ready(&node), held) {
                (false, 2..) => Seen::Done(()),
                (ready, held) => Seen::NotYet(format!("ready: {ready}, {held} taints")),
            })
        })
        .await
    }

    /// Brings a machine back that was lost, with its pods. Returns when it is Ready.
    ///
    /// # Errors
    /// There is no such node, or it does not become Ready.
    pub async fn recover_node(&self, name: &str) -> Result<()> {
        self.mark_lost(name, false).await?;
        self.until_ready(&self.client().await?, |node| node == name).await
    }

    /// Marks a node and its pods as lost or not lost, for kwok (`assets/stages.yaml`).
    async fn mark_lost(&self, name: &str, lost: bool) -> Result<()> {
        let client = self.client().await?;
        let mark = json!({"metadata": {"annotations": {
            "testbed.stowplan.dev/lost": lost.then_some("true"),
        }}});
        let (mark, parameters) = (Patch::Merge(mark), PatchParams::default());
        // The node first: a pod that is placed meanwhile must not succeed there.
        Api::<Node>::all(client.clone()).patch_metadata(name, &parameters, &mark).await?;
        let on_it = ListParams::default().fields(&format!("spec.nodeName={name}"));
        for pod in Api::<Pod>::all(client.clone()).list_metadata(&on_it).await? {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            unless_gone(pods.patch_metadata(name, &parameters, &mark).await)?;
        }
        Ok(())
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

    /// `kubectl label node`: sets a label, or removes it if `value` is none.
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
        command.args(arguments);
        text_of(command).await.with_context(|| format!("kubectl {}", arguments.join(" "))).map(drop)
    }
}
