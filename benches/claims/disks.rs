//! Volumes that are attached to one node at a time, and the pods that mount them, as the API server shows them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::{
    Event, Node, PersistentVolume, PersistentVolumeClaim, Pod as CorePod,
};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::runtime::watcher::Event as Change;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use testbed::control_plane::ControlPlane;
use tokio::task::JoinSet;

const DRIVER: &str = "disks.testbed.stowplan.dev";

/// The start of the labels of claims.
const CLAIM_LABEL: &str = "claim.stowplan.dev/";

/// The annotation of a node whose volumes the controller manager attaches.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// A pod to be.
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) claims: Vec<String>,
    /// The ephemeral volume that its only claim is made for.
    pub(crate) owned: Option<&'static str>,
}

/// The volumes and pods of a namespace.
pub(crate) struct Disks {
    client: Client,
    namespace: String,
    seen: Arc<Mutex<Seen>>,
    _watches: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    /// The node and the claims of each pod that has a node, by name.
    pods: HashMap<String, (String, Vec<String>)>,
    /// The volume and the node of each attachment, by name.
    attached: HashMap<String, (String, String)>,
}

impl Disks {
    /// Begins to answer for the driver, and to watch the pods of a namespace.
    pub(crate) async fn start(
        client: &Client,
        plane: &ControlPlane,
        namespace: &str,
        nodes: u16,
    ) -> anyhow::Result<Self> {
        plane.check()?;
        let drivers: Api<CSIDriver> = Api::all(client.clone());
        let driver = serde_json::from_value(
            json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": true}}),
        )?;
        let apply = PatchParams::apply("bench").force();
        drivers.patch(DRIVER, &apply, &Patch::<CSIDriver>::Apply(driver)).await?;
        let all: Api<Node> = Api::all(client.clone());
        let listed = all.list(&ListParams::default()).await?.items;
        anyhow::ensure!(listed.len() >= usize::from(nodes), "only {} nodes", listed.len());
        for node in listed {
            let managed = json!({"metadata": {"annotations": {MANAGED: "true"}}});
            all.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(managed)).await?;
        }
        let seen = Arc::<Mutex<Seen>>::default();
        let mut watches = JoinSet::new();
        watches.spawn(watch_pods(client.clone(), namespace.to_owned(), Arc::clone(&seen)));
        watches.spawn(attach(client.clone(), Arc::clone(&seen)));
        Ok(Self {
            client: client.clone(),
            namespace: namespace.to_owned(),
            seen,
            _watches: watches,
        })
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn volume_of(&self, claim: &str) -> String {
        format!("{}-{claim}", self.namespace)
    }

    async fn create_volume(&self, claim: &str) -> anyhow::Result<()> {
        let name = self.volume_of(claim);
        let volume = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": self.namespace, "name": claim},
                "csi": {"driver": DRIVER, "volumeHandle": name},
            },
        }))?;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        volumes.create(&PostParams::default(), &volume).await.context("volume")?;
        Ok(())
    }

    fn claim_spec(&self, claim: &str) -> Value {
        json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": self.volume_of(claim),
            "resources": {"requests": {"storage": "1Gi"}},
        })
    }

    /// Creates a claim with its volume.
    pub(crate) async fn create_claim(&self, claim: &str) -> anyhow::Result<()> {
        self.create_volume(claim).await?;
        let object = serde_json::from_value(
            json!({"metadata": {"name": claim}, "spec": self.claim_spec(claim)}),
        )?;
        let claims: Api<PersistentVolumeClaim> = self.api();
        claims.create(&PostParams::default(), &object).await.context("claim")?;
        Ok(())
    }

    /// Creates a pod.
    pub(crate) async fn create(&self, pod: &Pod) -> anyhow::Result<()> {
        let volumes: Vec<Value> = match (pod.owned, &pod.claims[..]) {
            (Some(volume), [claim]) => {
                self.create_volume(claim).await?;
                let template = json!({"spec": self.claim_spec(claim)});
                vec![json!({"name": volume, "ephemeral": {"volumeClaimTemplate": template}})]
            }
            _ => {
                let volume = |(number, claim): (usize, &String)| json!({"name": format!("v{number}"), "persistentVolumeClaim": {"claimName": claim}});
                pod.claims.iter().enumerate().map(volume).collect()
            }
        };
        let object = serde_json::from_value(json!({
            "metadata": {"name": pod.name},
            "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes},
        }))?;
        let pods: Api<CorePod> = self.api();
        pods.create(&PostParams::default(), &object).await.context("pod")?;
        Ok(())
    }

    /// Ends a pod.
    pub(crate) async fn end(&self, pod: &str) -> anyhow::Result<()> {
        let pods: Api<CorePod> = self.api();
        pods.delete(pod, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn node_of(&self, pod: &str) -> Option<String> {
        self.seen().pods.get(pod).map(|(node, _)| node.clone())
    }

    pub(crate) fn are_attached(&self, claims: &[String], node: &str) -> bool {
        let seen = self.seen();
        claims.iter().all(|claim| {
            let volume = self.volume_of(claim);
            seen.attached.values().any(|(of, on)| *of == volume && on == node)
        })
    }

    pub(crate) fn are_attached_elsewhere(&self, claims: &[String], node: &str) -> bool {
        let seen = self.seen();
        claims.iter().any(|claim| {
            let volume = self.volume_of(claim);
            seen.attached.values().any(|(of, on)| *of == volume && on != node)
        })
    }

    /// Returns true if a pod on another node than `node` mounts a claim of a pod.
    pub(crate) fn are_in_use_elsewhere(&self, pod: &Pod, node: &str) -> bool {
        let seen = self.seen();
        seen.pods.iter().any(|(name, (on, claims))| {
            *name != pod.name && on != node && claims.iter().any(|claim| pod.claims.contains(claim))
        })
    }

    /// Returns how many pods were refused a volume that is attached to another node.
    pub(crate) async fn refusals(&self) -> anyhow::Result<usize> {
        let events: Api<Event> = self.api();
        let failed = ListParams::default().fields("reason=FailedAttachVolume");
        let events = events.list(&failed).await?.items;
        let is_refusal = |event: &&Event| {
            event.message.as_deref().is_some_and(|message| message.contains("Multi-Attach"))
        };
        Ok(events.iter().filter(is_refusal).count())
    }

    /// Returns how many pods have the label of a claim: one, the last of a set of its own, if stowplan
    /// labels them.
    pub(crate) async fn labelled(&self) -> anyhow::Result<usize> {
        let last = Pod { name: "last".to_owned(), claims: vec!["last".to_owned()], owned: None };
        self.create_claim("last").await?;
        self.create(&last).await?;
        let pods: Api<CorePod> = self.api();
        let pods = pods.list(&ListParams::default()).await?.items;
        let has_label =
            |pod: &&CorePod| pod.labels().keys().any(|key| key.starts_with(CLAIM_LABEL));
        Ok(pods.iter().filter(has_label).count())
    }
}

/// Shows the pods that have nodes until it is stopped.
async fn watch_pods(client: Client, namespace: String, seen: Arc<Mutex<Seen>>) {
    let pods: Api<CorePod> = Api::namespaced(client, &namespace);
    let changes = watcher(pods, watcher::Config::default());
    pin_mut!(changes);
    while let Some(change) = changes.next().await {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        match change {
            Ok(Change::Apply(pod) | Change::InitApply(pod)) => {
                let Some(spec) = &pod.spec else { continue };
                let Some(node) = &spec.node_name else { continue };
                let claims = spec.volumes.iter().flatten().filter_map(|volume| {
                    let named = volume.persistent_volume_claim.as_ref();
                    let own = || {
                        volume
                            .ephemeral
                            .as_ref()
                            .map(|_| format!("{}-{}", pod.name_any(), volume.name))
                    };
                    named.map(|of| of.claim_name.clone()).or_else(own)
                });
                seen.pods.insert(pod.name_any(), (node.clone(), claims.collect()));
            }
            Ok(Change::Delete(pod)) => _ = seen.pods.remove(&pod.name_any()),
            _ => {}
        }
    }
}

/// Answers for the driver until it is stopped: each volume is attached as soon as that is asked for.
async fn attach(client: Client, seen: Arc<Mutex<Seen>>) {
    let attachments: Api<VolumeAttachment> = Api::all(client);
    let changes = watcher(attachments.clone(), watcher::Config::default());
    pin_mut!(changes);
    while let Some(change) = changes.next().await {
        match change {
            Ok(Change::Apply(of) | Change::InitApply(of)) => {
                let is_attached = of.status.as_ref().is_some_and(|status| status.attached);
                if of.metadata.deletion_timestamp.is_some() {
                    continue;
                }
                let volume = of.spec.source.persistent_volume_name.clone().unwrap_or_default();
                if is_attached {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.attached.insert(of.name_any(), (volume, of.spec.node_name.clone()));
                    continue;
                }
                let attached = Patch::Merge(json!({"status": {"attached": true}}));
                let params = PatchParams::default();
                // It may be gone by now.
                let _ = attachments.patch_status(&of.name_any(), &params, &attached).await;
            }
            Ok(Change::Delete(of)) => {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.attached.remove(&of.name_any());
            }
            _ => {}
        }
    }
}
