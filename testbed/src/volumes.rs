//! Volumes that exist for the scheduler only: three storage classes and the provisioner behind
//! them.
//!
//! Tests ask only where a volume can be used, so a volume is a PersistentVolume with
//! node affinity and nothing behind it. The classes differ as those of real clusters do:
//!
//! | class | binds | a volume can be used |
//! | --- | --- | --- |
//! | [`IMMEDIATE`] | when the claim is made | in a zone that the provisioner picked, without asking a scheduler |
//! | [`WAITING`] | when the first pod that uses it is placed | in the zone of that pod's node |
//! | [`LOCAL`] | the same | on that node only |
//!
//! [`IMMEDIATE`] and [`WAITING`] are equal but for the binding mode. A zone is a value of the label
//! [`ZONE`] on nodes ([`NodeSpec::label`](crate::control_plane::NodeSpec::label)).
//!
//! kwok has stages that provision volumes, but a stage sees one object only: it can neither read
//! the labels of the node that the scheduler selected, nor the zones that there are, and it binds
//! claims by itself. So the provisioner is a task in this process that does what an external
//! provisioner does, and the controller manager binds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client};
use serde_json::json;
use tokio::task::JoinSet;

use crate::definition::{unless_exists, unless_gone};

/// The class whose volumes are made at once, each in a zone of the provisioner's choice.
pub const IMMEDIATE: &str = "zonal-immediate";
/// The class whose volumes are made in the zone of the first pod's node.
pub const WAITING: &str = "zonal";
/// The class whose volumes are made on the first pod's node and can be used nowhere else.
pub const LOCAL: &str = "local";
/// The node label that says in which zone a node is.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// The names of the two provisioners: of zones, and of nodes.
const ZONAL: &str = "testbed.stowplan.dev/zonal";
const NODE: &str = "testbed.stowplan.dev/local";

const HOSTNAME: &str = "kubernetes.io/hostname";

/// How long an external provisioner waits before it tries again.
const PAUSE: Duration = Duration::from_millis(500);

/// A running provisioner. It ends when this value is dropped.
///
/// It serves every class of its two provisioners, also those that a test makes.
#[derive(Debug)]
pub struct Volumes {
    _controllers: JoinSet<()>,
}

impl Volumes {
    /// Makes the three classes and starts the provisioner.
    ///
    /// # Errors
    /// One of the classes exists, or the API server refuses it.
    pub async fn start(client: &Client) -> Result<Self> {
        let classes: Api<StorageClass> = Api::all(client.clone());
        for (name, provisioner, mode) in [
            (IMMEDIATE, ZONAL, "Immediate"),
            (WAITING, ZONAL, "WaitForFirstConsumer"),
            (LOCAL, NODE, "WaitForFirstConsumer"),
        ] {
            let class = serde_json::from_value(json!({
                "metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode,
            }))?;
            classes
                .create(&PostParams::default(), &class)
                .await
                .with_context(|| format!("cannot create storage class {name}"))?;
        }
        let provisioner = Arc::new(Provisioner { client: client.clone(), turns: Mutex::default() });
        let mut controllers = JoinSet::new();
        let config = watcher::Config::default;
        let provisions = Controller::new(Api::all(client.clone()), config());
        let provisions =
            provisions.run(provision, |_, _, _| Action::requeue(PAUSE), provisioner.clone());
        controllers.spawn(provisions.for_each(async |_| {}));
        let reclaims = Controller::new(Api::all(client.clone()), config());
        let reclaims = reclaims.run(reclaim, |_, _, _| Action::requeue(PAUSE), provisioner);
        controllers.spawn(reclaims.for_each(async |_| {}));
        Ok(Self { _controllers: controllers })
    }
}

struct Provisioner {
    client: Client,
    /// The claims for which a zone was picked, in order of arrival, by what they belong to.
    turns: Mutex<BTreeMap<String, Vec<String>>>,
}

impl Provisioner {
    /// Returns the number of a claim among those of its owner, from 0. Two claims of one run must not
    /// meet in one zone by luck, so zones are handed out in turn.
    fn turn(&self, claim: &PersistentVolumeClaim) -> usize {
        let owner = claim.metadata.owner_references.iter().flatten().next();
        let group = owner.map_or_else(
            || claim.metadata.namespace.clone().unwrap_or_default(),
            |owner| owner.uid.clone(),
        );
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let claims = turns.entry(group).or_default();
        claims.iter().position(|known| *known == uid).unwrap_or_else(|| {
            claims.push(uid);
            claims.len() - 1
        })
    }

    /// The zones that nodes are in, in order of their names.
    async fn zones(&self) -> Result<Vec<String>, kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let nodes = nodes.list_metadata(&ListParams::default()).await?.items;
        let zones: BTreeSet<_> =
            nodes.into_iter().filter_map(|node| node.metadata.labels?.remove(ZONE)).collect();
        Ok(zones.into_iter().collect())
    }

    /// Where a volume for `claim` is to be, as a node label and its value; none yet, if nothing has
    /// said or no node is there.
    async fn place(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
    ) -> Result<Option<(&'static str, String)>, kube::Error> {
        let label = if class.provisioner == NODE { HOSTNAME } else { ZONE };
        if class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer") {
            let zones = self.zones().await?;
            let turn = self.turn(claim);
            return Ok(zones.get(turn % zones.len().max(1)).map(|zone| (ZONE, zone.clone())));
        }
        let Some(node) = annotation(claim, "volume.kubernetes.io/selected-node") else {
            return Ok(None);
        };
        let nodes: Api<Node> = Api::all(self.client.clone());
        let labels = nodes.get_metadata_opt(node).await?.and_then(|node| node.metadata.labels);
        Ok(labels.and_then(|mut labels| Some((label, labels.remove(label)?))))
    }
}

/// Makes the volume of a claim that the controller manager has handed to us.
async fn provision(
    claim: Arc<PersistentVolumeClaim>,
    provisioner: Arc<Provisioner>,
) -> Result<Action, kube::Error> {
    let handed = annotation(&claim, "volume.kubernetes.io/storage-provisioner");
    let Some(spec) = claim.spec.as_ref().filter(|spec| spec.volume_name.is_none()) else {
        return Ok(Action::await_change());
    };
    if !matches!(handed, Some(ZONAL | NODE)) || claim.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let Some(class) = spec.storage_class_name.as_deref() else {
        return Ok(Action::await_change());
    };
    let classes: Api<StorageClass> = Api::all(provisioner.client.clone());
    let Some(class) = classes.get_opt(class).await? else {
        return Ok(Action::requeue(PAUSE));
    };
    let Some(place) = provisioner.place(&claim, &class).await? else {
        // The scheduler's choice is a change of the claim; a first node is not.
        return Ok(Action::requeue(PAUSE));
    };
    let volume = volume(&claim, &class, &place).map_err(kube::Error::SerdeError)?;
    let volumes: Api<PersistentVolume> = Api::all(provisioner.client.clone());
    unless_exists(volumes.create(&PostParams::default(), &volume).await)?;
    Ok(Action::await_change())
}

/// The volume of a claim, as an external provisioner writes it.
fn volume(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    (label, value): &(&str, String),
) -> serde_json::Result<PersistentVolume> {
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let name = format!("pvc-{uid}");
    let spec = claim.spec.as_ref();
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "annotations": {"pv.kubernetes.io/provisioned-by": class.provisioner},
        },
        "spec": {
            "accessModes": spec.and_then(|spec| spec.access_modes.clone()),
            "capacity": spec.and_then(|spec| spec.resources.clone()?.requests),
            "volumeMode": spec.and_then(|spec| spec.volume_mode.clone()),
            "storageClassName": class.metadata.name,
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": claim.metadata.namespace, "name": claim.metadata.name, "uid": uid,
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{
                "matchExpressions": [{"key": label, "operator": "In", "values": [value]}],
            }]}},
            // Nothing is ever mounted; a path needs no attaching, so no component waits for that.
            "hostPath": {"path": format!("/volumes/{name}")},
        },
    }))
}

/// Deletes one of its volumes whose claim no longer exists.
async fn reclaim(
    volume: Arc<PersistentVolume>,
    provisioner: Arc<Provisioner>,
) -> Result<Action, kube::Error> {
    let annotations = volume.metadata.annotations.as_ref();
    let by = annotations.and_then(|all| all.get("pv.kubernetes.io/provisioned-by"));
    let ours = by.is_some_and(|by| by == ZONAL || by == NODE);
    let released = volume.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Released"));
    let policy = volume.spec.as_ref().and_then(|it| it.persistent_volume_reclaim_policy.as_deref());
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    if ours && released && policy == Some("Delete") && volume.metadata.deletion_timestamp.is_none()
    {
        let volumes: Api<PersistentVolume> = Api::all(provisioner.client.clone());
        unless_gone(volumes.delete(name, &DeleteParams::default()).await)?;
    }
    Ok(Action::await_change())
}

fn annotation<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
