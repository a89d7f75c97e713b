//! Scaling pods: they ask an autoscaler for the nodes that a StreamsJob or a HostPool waits for. Those with
//! equal requirements are the pods of one StatefulSet.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::PendingPod;
use crate::kubernetes::{controller, is_finished, label, node_name};
use crate::view::index::Sets;
use crate::view::pod::PODS;
use crate::view::resource::STATEFUL_SET;
use crate::view::rows::{GroupedRow, Rows, TableRow};
use crate::view::{Identity, Kind, Name, Scope};

/// The label of such a StatefulSet and of its pods; its value is the name of the StatefulSet.
pub(crate) const SCALING: &str = "streams.stowplan.dev/scaling";

/// The label of both with the UID of the object that waits: no two of its scaling pods are on one node.
pub(crate) const SCALES_FOR: &str = "streams.stowplan.dev/scales-for";

/// The beginning of the names of these StatefulSets.
pub(crate) const NAME_PREFIX: &str = "stowplan-scaling-";

/// A StatefulSet of scaling pods.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ScalingSet {
    pub identity: Identity,
    /// The UID of the object that owns it, and waits.
    pub owner: Box<str>,
    /// The number of pods that it should have.
    pub replicas: i32,
}

/// A scaling pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScalingPod {
    pub identity: Identity,
    /// The UID of its StatefulSet.
    pub set: Box<str>,
    /// The node that it is bound to, or what it requires of one.
    pub node: Result<Box<str>, Box<PendingPod>>,
}

/// Returns the label [`SCALING`] of an object.
fn scaling(metadata: &ObjectMeta) -> Option<&str> {
    label(metadata, SCALING).filter(|of| of.starts_with(NAME_PREFIX))
}

static SETS: Kind = Kind::built_in(STATEFUL_SET);

/// The table of these StatefulSets.
pub(crate) type ScalingSets = Rows<ScalingSet>;

impl TableRow for ScalingSet {
    type Object = StatefulSet;
    const KIND: &'static Kind = &SETS;
    const WATCHED_IN: &'static [Scope] = &[Scope::Controller];

    fn from_object(set: &StatefulSet, scope: Scope) -> Option<Self> {
        let name = scaling(&set.metadata).filter(|_| scope == Scope::Controller)?;
        let is_own = set.metadata.name.as_deref() == Some(name);
        let owner = controller(&set.metadata).filter(|_| is_own)?;
        let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
        Some(Self {
            identity: Identity::from(&set.metadata),
            owner: owner.uid.as_str().into(),
            // As Kubernetes defaults it.
            replicas: replicas.unwrap_or(1),
        })
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

/// The table of scaling pods.
pub(crate) type ScalingPods = Rows<ScalingPod, Sets<Box<str>>>;

impl TableRow for ScalingPod {
    type Object = core::Pod;
    const KIND: &'static Kind = &PODS;
    const WATCHED_IN: &'static [Scope] = &[Scope::Controller];

    fn from_object(pod: &core::Pod, scope: Scope) -> Option<Self> {
        let set = scaling(&pod.metadata).filter(|_| scope == Scope::Controller)?;
        // Users can set the label.
        let owner = controller(&pod.metadata).filter(|of| of.name == set)?;
        (!is_finished(pod)).then(|| Self {
            identity: Identity::from(&pod.metadata),
            set: owner.uid.as_str().into(),
            node: node_name(pod).map(Into::into).ok_or_else(|| Box::new(PendingPod::read(pod))),
        })
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

/// The pods are found by their StatefulSet.
impl GroupedRow for ScalingPod {
    type Key = Box<str>;

    fn key(&self, _: &Name) -> Option<Box<str>> {
        Some(self.set.clone())
    }
}
