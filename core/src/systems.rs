//! The systems that stowplan serves. This file combines them: one list for each reader, the tables that
//! they add to the View, and the definitions of their own objects.
//!
//! Each system is a folder. It contains the system's vocabulary, the kinds that it reads and their
//! tables, its typed request, its intents, its plan, the resources that it writes, and its section
//! of the policy. CONTRIBUTING.md lists the lines that a new system needs elsewhere.

pub mod check;
pub mod coschedule;
pub(crate) mod disjoint_sets;
pub mod exclusion;
pub mod fit;
pub mod idle;
pub mod katalyst;
pub mod map;
pub(crate) mod mpi;
pub(crate) mod pause;
pub mod plan;
pub mod policy;
pub mod preview;
pub mod streams;
#[cfg(test)]
pub(crate) mod test_cases;
#[doc(hidden)]
#[allow(clippy::unwrap_used, reason = "only tests call it, also those of the program")]
pub mod test_objects;
pub(crate) mod validation;
pub mod view;
pub mod vocabulary;
pub(crate) mod wake;

pub use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt as _;
use serde_json::Value;

use crate::api::rules::Rule;
use crate::kubernetes::label;
use crate::placement::claim::Claim;
use crate::placement::intent::Intent;
use crate::placement::object::Metadata;
use crate::placement::pod::Pod;
use crate::placement::reason::{Finding, Warning};
use crate::view::{Key, Resource, Scope};
use check::installation::Installation;
use check::{CheckedKind, NodeCheckFn, PodCheckFn};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use map::MapFn;
use plan::Plan;
use policy::Policy;
use preview::PreviewedKind;
use streams::api::{host_pool, streams_job};

// Parts that only one system has. The second system that has one makes a list of it.
pub use coschedule::check::report_namespace;
pub use coschedule::find_pod_owner;
pub use katalyst::explain::EXPLANATION;
pub use mpi::preview::find_wholes;
pub(crate) use streams::contradiction::find_contradictions;
pub use streams::reconcile::plan as plan_own_kinds;
pub use streams::validate::VALIDATIONS;

pub use view::{Object, Projected, TABLES, TableType, TypeVisitor, View};

/// The marks that the controller writes to nodes, and the objects that it creates and no other object owns.
#[derive(Debug)]
pub struct Traces {
    /// The prefix of the labels of nodes.
    pub node_labels: Option<&'static str>,
    /// The keys of the taints of nodes.
    pub taints: &'static [&'static str],
    /// The kinds of objects, each with the label whose value is the object's own name.
    pub objects: &'static [(Resource, &'static str)],
}

impl Traces {
    /// Nothing.
    pub const NONE: Self = Self { node_labels: None, taints: &[], objects: &[] };
}

/// The systems without whose changes pods may be admitted while no controller leads.
pub const WITH_CONTROLLER: &[&str] = &[coschedule::NAME];

/// Returns true if a pod without any of the systems' keys may need a decision, by its labels and owners alone.
pub fn may_concern(metadata: &ObjectMeta) -> bool {
    label(metadata, streams::keys::JOB).is_some() || find_pod_owner(metadata).is_some()
}

/// A system as the webhook knows it: its annotation keys and marks, and its decisions. The other readers
/// know it, too.
#[derive(Debug)]
pub struct System {
    /// The name in records, plans and metrics.
    pub name: &'static str,
    /// The annotation keys that the system defines.
    pub keys: &'static [&'static str],
    /// The prefixes of its keys, in addition to `stowplan.dev/`.
    pub prefixes: &'static [Prefix],
    /// The scheduling gates that it adds and removes.
    pub gates: &'static [Gate],
    /// Decides about a pod.
    pub request: fn(&Pod<'_>, &View, &Policy) -> Outcome,
    /// Decides about a PersistentVolumeClaim. `None`: the system does not change claims; a claim
    /// with a key of a system that places pods is admitted with a warning.
    pub claim: Option<fn(&Claim<'_>, &View, &Policy) -> Outcome>,
    /// Says whether the system decides about an object in this namespace without any of its keys. Called
    /// for every object of its kinds, so it must be cheap: it reads only labels and owners. `None`:
    /// never.
    pub concerns: Option<fn(&str, &Metadata<'_>, &View) -> bool>,
    /// The marks that the controller writes for the system, besides gates. The system decides on pods with a
    /// toleration of its taints.
    pub traces: Traces,
    /// The labels, or prefixes that end in a dot or a slash, whose pods must be on one node.
    pub(crate) together: &'static [&'static str],
    /// Says whether the policy enables the system.
    pub enabled: fn(&Policy) -> bool,
}

/// A system as the controller knows it.
#[derive(Debug)]
pub struct Reconciler {
    /// The name of the system.
    pub name: &'static str,
    /// Plans changes of the cluster.
    pub plan: fn(&View, &Policy, Timestamp) -> Plan,
    /// The kinds of objects on which the plan depends.
    pub(crate) reads: &'static [Resource],
}

/// A system as the command line knows it.
#[derive(Debug)]
pub struct Diagnostics {
    pub system: &'static System,
    /// The kinds that the command `plan` previews by this system.
    pub previews: &'static [PreviewedKind],
    /// The kinds that the command `check` diagnoses by this system.
    pub checks: &'static [CheckedKind],
    /// Adds to the diagnosis of a pod by `check`. `None`: nothing.
    pub check_pod: Option<PodCheckFn>,
    /// Reports the system's decision about a node, for `check`. `None`: there is none.
    pub check_node: Option<NodeCheckFn>,
    /// Contributes to the command `map`.
    pub(crate) map: MapFn,
    /// The part of the diagnosis of the installation that concerns the system.
    pub installation: Installation,
}

/// A kind of objects that create pods, and create a pod again if it is deleted.
#[derive(Clone, Copy, Debug)]
pub struct PodOwner {
    pub kind: &'static str,
    /// True if deleting a running pod makes its owner fail.
    pub fails_with_pod: bool,
}

/// A prefix of annotation keys.
#[derive(Debug)]
pub struct Prefix {
    /// Every key with this prefix is stowplan's.
    pub own: &'static str,
    /// A key with this prefix may be another operator's, unless it is close to a known key. A prefix
    /// of `own`, or equal to it.
    pub shared: &'static str,
}

impl Prefix {
    /// A prefix that no other operator uses.
    #[must_use]
    pub const fn own(prefix: &'static str) -> Self {
        Self { own: prefix, shared: prefix }
    }
}

/// A scheduling gate.
#[derive(Debug)]
pub struct Gate {
    /// The name in `spec.schedulingGates`.
    pub name: &'static str,
    /// The condition for its removal, for people: continues a sentence after "until".
    pub until: &'static str,
    /// True if it is removed only when no other gate holds the pod.
    pub is_last: bool,
    /// Returns what users can do about a pod that waits.
    pub remedy: fn(&k8s_openapi::api::core::v1::Pod) -> String,
}

/// Finds the gate of this name among those of all systems.
#[must_use]
pub(crate) fn gate(name: &str) -> Option<&'static Gate> {
    SYSTEMS.iter().flat_map(|system| system.gates).find(|gate| gate.name == name)
}

/// Returns true if the pods that share a label of this key must be on one node.
#[must_use]
pub(crate) fn is_shared_by_node_mates(key: &str) -> bool {
    let mut labels = SYSTEMS.iter().flat_map(|system| system.together);
    labels.any(|label| key == *label || (label.ends_with(['.', '/']) && key.starts_with(label)))
}

/// A system's decision about a pod, a claim, or an object of its own kinds.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The changes to the object.
    pub intents: Vec<Intent>,
    /// The entries of the record: constraints that hold after the changes. A claim has no record.
    pub holds: Vec<String>,
    /// True if the record of an earlier admission round is kept, with its count of omitted entries.
    pub keeps_record: bool,
    /// The reasons why the request cannot be met.
    pub findings: Vec<Finding>,
    /// Warnings for the object's author.
    pub warnings: Vec<Warning>,
    /// Objects that the watches have not delivered yet and that could change the outcome.
    pub awaited: Vec<Key>,
}

impl From<Vec<Finding>> for Outcome {
    fn from(findings: Vec<Finding>) -> Self {
        Self { findings, ..Self::default() }
    }
}

/// Combines the plans of all systems. A disabled system plans, too: it removes its earlier changes.
#[must_use]
pub fn plan(view: &View, policy: &Policy, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for reconciler in RECONCILERS {
        plan.extend((reconciler.plan)(view, policy, now));
    }
    plan
}

/// All systems, in the order in which their findings are reported.
pub static SYSTEMS: &[System] =
    &[streams::SYSTEM, coschedule::SYSTEM, mpi::SYSTEM, katalyst::SYSTEM];

/// All systems for the controller.
pub static RECONCILERS: &[Reconciler] =
    &[streams::RECONCILER, coschedule::RECONCILER, mpi::RECONCILER, katalyst::RECONCILER];

/// All systems for the command line.
pub static DIAGNOSTICS: &[Diagnostics] =
    &[streams::DIAGNOSTICS, coschedule::DIAGNOSTICS, mpi::DIAGNOSTICS, katalyst::DIAGNOSTICS];

/// Reads an object for the View. `None`: no table keeps it, or it has no name, which never comes
/// from an API server.
#[must_use]
pub fn project(object: &impl Projected, scope: Scope) -> Option<Object> {
    object.project(TABLES, scope)
}

/// Reads the object that the API server returned for a write to this resource. `None`: the body is
/// not such an object (after a deletion it is a `Status`), or no table keeps it.
#[must_use]
pub fn written(resource: &Resource, body: &[u8]) -> Option<Object> {
    let document = serde_json::from_slice(body).ok()?;
    let object = Object::from_document(document, Scope::Controller).ok()??;
    (object.resource() == resource).then_some(object)
}

/// Reads an object of any kind from a document in a file. `Ok(None)`: no table keeps it.
///
/// # Errors
/// If the document is not a valid object of its kind, or has no name.
pub fn object(document: Value) -> Result<Option<Object>, String> {
    Object::from_document(document, Scope::File)
}

/// The CustomResourceDefinitions of stowplan's own kinds. `stowplan crds` prints them; the chart
/// contains that output, and a test compares the two.
#[must_use]
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![streams::api::HostPool::crd(), streams::api::StreamsJob::crd()]
}

/// The rules of the definitions.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    [host_pool::RULES, streams_job::RULES, streams_job::HOST_RULES].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::streams::resources::{HOST_POOL, STREAMS_JOB};
    use super::*;
    use crate::api;
    use crate::view::Name;
    use crate::view::resource::{NODE, POD};

    #[test]
    fn an_answer_is_read_as_an_object_for_the_view() {
        let body = |version: &str, kind: &str| {
            let meta = json!({"name": "x", "namespace": "ns", "labels": {"app": "streams"}});
            let spec = if kind == "Pod" { json!({"containers": []}) } else { json!({}) };
            let body = json!({"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec});
            body.to_string().into_bytes()
        };
        for (resource, version, kind) in [
            (&POD, "v1", "Pod"),
            (&HOST_POOL, api::VERSION, "HostPool"),
            (&STREAMS_JOB, api::VERSION, "StreamsJob"),
        ] {
            assert_eq!(resource.api_version(), version);
            let object = written(resource, &body(version, kind));
            assert!(object.is_some_and(|object| *object.name() == Name::new("ns", "x")), "{kind}");
        }
        assert!(written(&NODE, &body("v1", "Node")).is_some());
        for answer in [&body("v1", "Status")[..], b"{}", b"", b"\xff"] {
            assert!(written(&NODE, answer).is_none());
        }
        let unwritten = Resource { plural: "widgets", ..NODE };
        assert!(written(&unwritten, &body("v1", "Node")).is_none());
    }
}
