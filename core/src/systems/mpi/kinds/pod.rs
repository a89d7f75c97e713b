//! The pods of MPI clusters.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::Timestamp;

use crate::kubernetes::{condition, gates, is_finished, label, node_name, scheduled_since};
use crate::systems::mpi::keys::{CLUSTER, GATE, ROLE};
use crate::systems::mpi::kinds::workload::Workload;
use crate::systems::mpi::request::Role;
use crate::view::index::Sets;
use crate::view::owner::Owner;
use crate::view::pod::PODS;
use crate::view::resource::POD;
use crate::view::rows::{GroupedRow, Rows, TableRow};
use crate::view::{Identity, Kind, Name, Scope};

/// A pod of a cluster, by the labels that the webhook gives it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MpiPod {
    pub identity: Identity,
    pub cluster: Box<str>,
    pub role: Role,
    /// True if its condition Ready is True.
    pub ready: bool,
    /// True if it has ended.
    pub finished: bool,
    /// The node it is bound to.
    pub node: Option<Box<str>>,
    /// `spec.hostname`.
    pub hostname: Option<Box<str>>,
    /// The index of [`GATE`] among its scheduling gates.
    pub gate: Option<usize>,
    /// The workload that makes it: its kind, and the owner.
    pub owner: Option<(Box<str>, Owner)>,
    /// A launcher that no workload makes, as a workload.
    pub alone: Option<Box<Workload>>,
    /// Since when it has a node.
    pub bound_at: Option<Timestamp>,
    /// True if a container of it has started.
    pub started: bool,
}

/// The table of the pods of clusters.
pub(crate) type MpiPods = Rows<MpiPod, Sets<Name>>;

impl TableRow for MpiPod {
    type Object = core::Pod;
    const KIND: &'static Kind = &PODS;
    const COUNTED_AS: Option<&'static str> = Some("mpi pods");
    const WATCHED_IN: &'static [Scope] = &[Scope::Controller];

    fn from_object(pod: &core::Pod, scope: Scope) -> Option<Self> {
        if scope == Scope::Admission {
            return None;
        }
        let metadata = &pod.metadata;
        let role = Role::parse(label(metadata, ROLE)?)?;
        let owner = Owner::of_any(metadata);
        let alone = || {
            let read = Workload::read(metadata, POD, Some(metadata), pod.spec.as_ref())?;
            Some(Box::new(Workload { is_over: is_finished(pod), ..read }))
        };
        Some(Self {
            identity: Identity::from(metadata),
            cluster: label(metadata, CLUSTER)?.into(),
            role,
            ready: condition(pod, "Ready").is_some_and(|ready| ready.status == "True"),
            finished: is_finished(pod),
            node: node_name(pod).map(Into::into),
            hostname: pod.spec.as_ref().and_then(|spec| spec.hostname.as_deref()).map(Into::into),
            gate: gates(pod).position(|gate| gate == GATE),
            alone: (role == Role::Launcher && owner.is_none()).then(alone).flatten(),
            owner,
            bound_at: scheduled_since(pod),
            started: has_started(pod),
        })
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

/// Returns true if a container of a pod has started.
fn has_started(pod: &core::Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let containers = [&status.init_container_statuses, &status.container_statuses];
    let mut states = containers.into_iter().flatten().flatten().filter_map(|of| of.state.as_ref());
    states.any(|state| state.running.is_some() || state.terminated.is_some())
}

/// Pods are found by their cluster.
impl GroupedRow for MpiPod {
    type Key = Name;

    fn key(&self, name: &Name) -> Option<Name> {
        Some(Name::new(&name.namespace, &self.cluster))
    }
}
