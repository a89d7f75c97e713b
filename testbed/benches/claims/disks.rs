//! Disks with claims, the pods that mount them, and where each is.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{
    Event, PersistentVolume, PersistentVolumeClaim, Pod as CorePod, PodSpec,
};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::watcher;
use kube::runtime::watcher::Event as Change;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use testbed::control_plane::ControlPlane;
use testbed::real::disks::{DRIVER, node_of};
use tokio::task::JoinSet;

/// The start of the labels of claims.
const CLAIM_LABEL: &str = "claim.stowplan.dev/";

/// The image that every real node has.
const IMAGE: &str = "stow.test/pause:1";

/// A pod to be.
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) claims: Vec<String>,
    /// The ephemeral volume that its only claim is made for.
    pub(crate) owned: Option<&'static str>,
}

/// The disks and pods of a namespace.
pub(crate) struct Disks<'p> {
    client: Client,
    plane: &'p ControlPlane,
    namespace: String,
    seen: Arc<Mutex<HashMap<String, Seen>>>,
    _watch: JoinSet<()>,
}

/// A pod that has a node.
struct Seen {
    node: String,
    claims: Vec<String>,
    runs: bool,
    is_ending: bool,
}

/// The reason why a pod does not run, as far as disks are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Started,
    /// A running pod has one of its disks on another node.
    BehindRunning,
    /// One of its disks is on another node, where no pod uses it or its last pod is ending.
    BehindDetach,
    Other,
}

impl<'p> Disks<'p> {
    /// Begins to watch the pods of a namespace.
    pub(crate) fn start(client: &Client, plane: &'p ControlPlane, namespace: &str) -> Self {
        let seen = Arc::default();
        let mut watch = JoinSet::new();
        watch.spawn(watch_pods(client.clone(), namespace.to_owned(), Arc::clone(&seen)));
        let (client, namespace) = (client.clone(), namespace.to_owned());
        Self { client, plane, namespace, seen, _watch: watch }
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

    async fn create_volume(&self, claim: &str) -> Result<()> {
        let volume = serde_json::from_value(json!({
            "metadata": {"name": self.volume_of(claim)},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": self.namespace, "name": claim},
                "flexVolume": {"driver": DRIVER},
            },
        }))?;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        unless_exists(volumes.create(&PostParams::default(), &volume).await).context("volume")
    }

    fn claim_spec(&self, claim: &str) -> Value {
        json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": self.volume_of(claim),
            "resources": {"requests": {"storage": "1Gi"}},
        })
    }

    /// Creates a claim with its disk.
    pub(crate) async fn create_claim(&self, claim: &str) -> Result<()> {
        self.create_volume(claim).await?;
        let object = serde_json::from_value(
            json!({"metadata": {"name": claim}, "spec": self.claim_spec(claim)}),
        )?;
        let claims: Api<PersistentVolumeClaim> = self.api();
        unless_exists(claims.create(&PostParams::default(), &object).await).context("claim")
    }

    /// Creates a pod.
    pub(crate) async fn create(&self, pod: &Pod) -> Result<CorePod> {
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
        let mounts: Vec<Value> = volumes
            .iter()
            .map(|of| json!({"name": of["name"], "mountPath": format!("/disks/{}", of["name"].as_str().unwrap_or_default())}))
            .collect();
        let object = serde_json::from_value(json!({
            "metadata": {"name": pod.name},
            "spec": {
                "containers": [{
                    "name": "c", "image": IMAGE, "imagePullPolicy": "Never", "volumeMounts": mounts,
                    "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
                }],
                "volumes": volumes,
                "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
            },
        }))?;
        let pods: Api<CorePod> = self.api();
        unless_exists(pods.create(&PostParams::default(), &object).await).context("pod")?;
        Ok(pods.get(&pod.name).await?)
    }

    /// Deletes a pod. Its kubelet ends it.
    pub(crate) async fn end(&self, pod: &str) -> Result<()> {
        let pods: Api<CorePod> = self.api();
        pods.delete(pod, &DeleteParams::default()).await?;
        Ok(())
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what a pod waits for, if it waits for a disk.
    pub(crate) fn state(&self, pod: &Pod) -> State {
        let seen = self.seen();
        let Some(Seen { node, runs, .. }) = seen.get(&pod.name) else { return State::Other };
        if *runs {
            return State::Started;
        }
        let is_elsewhere = |claim: &&String| {
            node_of(self.plane, &self.volume_of(claim)).is_some_and(|of| of != *node)
        };
        let elsewhere: Vec<&String> = pod.claims.iter().filter(is_elsewhere).collect();
        let uses = |of: &Seen| {
            of.node != *node
                && !of.is_ending
                && elsewhere.iter().any(|claim| of.claims.contains(claim))
        };
        match elsewhere.is_empty() {
            true => State::Other,
            false if seen.values().any(uses) => State::BehindRunning,
            false => State::BehindDetach,
        }
    }

    /// Returns how many pods were refused a disk that is attached to another node.
    pub(crate) async fn refusals(&self) -> Result<usize> {
        let events: Api<Event> = self.api();
        let failed = ListParams::default().fields("reason=FailedAttachVolume");
        let events = events.list(&failed).await?.items;
        let is_refusal = |event: &&Event| {
            event.message.as_deref().is_some_and(|message| message.contains("Multi-Attach"))
        };
        Ok(events.iter().filter(is_refusal).count())
    }

    /// Creates one more pod with a disk of its own, and returns true if it gets the label of its claim.
    pub(crate) async fn last_has_label(&self) -> Result<bool> {
        self.create_claim("last").await?;
        let last = Pod { name: "last".to_owned(), claims: vec!["last".to_owned()], owned: None };
        let created = self.create(&last).await?;
        Ok(created.labels().keys().any(|key| key.starts_with(CLAIM_LABEL)))
    }
}

/// The outcome of a creation; the client repeats one whose answer does not come in time.
fn unless_exists<K>(created: kube::Result<K>) -> kube::Result<()> {
    match created {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        created => created.map(drop),
    }
}

/// Shows the pods that have nodes until it is stopped.
async fn watch_pods(client: Client, namespace: String, seen: Arc<Mutex<HashMap<String, Seen>>>) {
    let pods: Api<CorePod> = Api::namespaced(client, &namespace);
    let mut changes = pin!(watcher(pods, watcher::Config::default()));
    while let Some(change) = changes.next().await {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        match change {
            Ok(Change::Apply(pod) | Change::InitApply(pod)) => {
                let name = pod.name_any();
                let Some(spec) = &pod.spec else { continue };
                let Some(node) = spec.node_name.clone() else { continue };
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                let (runs, is_ending) =
                    (phase == Some("Running"), pod.metadata.deletion_timestamp.is_some());
                let claims = claims_of(&name, spec);
                seen.insert(name, Seen { node, claims, runs, is_ending });
            }
            Ok(Change::Delete(pod)) => _ = seen.remove(&pod.name_any()),
            _ => {}
        }
    }
}

/// The claims of the volumes of a pod.
fn claims_of(pod: &str, spec: &PodSpec) -> Vec<String> {
    let volumes = spec.volumes.iter().flatten();
    let claims = volumes.filter_map(|volume| match &volume.persistent_volume_claim {
        Some(named) => Some(named.claim_name.clone()),
        None => volume.ephemeral.as_ref().map(|_| format!("{pod}-{}", volume.name)),
    });
    claims.collect()
}
