//! Diagnoses for the command `check`: why an object waits, and what to do about it.
//!
//! A system diagnoses the objects of its own kinds, and adds to the diagnosis of any pod what only
//! it knows. The command reads the cluster, prints the diagnosis, and diagnoses pods as far as all
//! systems have that in common; it passes that function in [`Context::pods`]: this module does not
//! depend on admission. Nothing is decided here: whether a node takes a pod is decided by
//! [`fit`](super::fit), which the reconcilers use, too.

pub mod closed;
pub mod cluster;
pub mod events;
pub mod gates;
pub mod installation;
pub mod queue;
pub mod words;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, Toleration};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::systems::policy::Policy;
use crate::view::Name;
use crate::view::resource::POD;
pub use cluster::Cluster;

/// A kind of objects that a system diagnoses.
#[derive(Debug)]
pub struct CheckedKind {
    /// The names of the kind on the command line. The first is used in messages.
    pub names: &'static [&'static str],
    /// The word for what is missing if the object does not exist.
    pub missing: &'static str,
    /// True if a diagnosis depends on pods of other namespaces: on the free capacity of nodes.
    pub needs_all_pods: bool,
    /// Diagnoses the object of this name. `None`: it does not exist.
    pub check: fn(&Context<'_>, &Name) -> Option<Diagnosis>,
    /// Finds the objects of all namespaces, without those that are parts of another one's diagnosis.
    pub find_all: fn(&Context<'_>) -> BTreeSet<Name>,
}

/// Finds what a system has decided about a node.
pub(crate) type NodeCheckFn = fn(&Context<'_>, &str) -> NodeReport;

/// The contribution of a system to the diagnosis of a node.
#[derive(Debug, Default)]
pub struct NodeReport {
    /// The decisions about the node.
    pub decided: Vec<String>,
    /// Tolerations of the taints that the system has set on purpose: they are no obstacles.
    pub tolerations: Vec<Toleration>,
    /// The object that these taints keep the node for, and the command that checks it.
    pub(crate) reserved_for: Option<(String, String)>,
}

/// Finds what a system knows about a pod with this name.
pub(crate) type PodCheckFn = fn(&Context<'_>, &Name, &Pod) -> PodReport;

/// The facts that a diagnosis is based on.
#[derive(Clone, Copy, Debug)]
pub struct Context<'c> {
    pub cluster: &'c Cluster,
    pub policy: &'c Policy,
    /// The time of the diagnosis.
    pub now: Timestamp,
    pub pods: PodChecks,
}

/// The diagnosis of pods that all systems have in common.
#[derive(Clone, Copy, Debug)]
pub struct PodChecks {
    /// Diagnoses a pod of the cluster.
    pub diagnose: fn(&Context<'_>, &Name, &Pod) -> Diagnosis,
    /// Reports what the webhook would change in a pod if it were created now.
    pub report_missing_changes: fn(&Context<'_>, &Name, &Pod, &mut Diagnosis),
}

/// The contribution of a system to the diagnosis of a pod, at the stages of that diagnosis.
#[derive(Debug, Default)]
pub struct PodReport {
    /// The requests of the pod, besides its annotations.
    pub asked: Vec<String>,
    /// The thing that the pod's own request binds it to, as `host`: then only the pod can choose other nodes.
    pub bound_to: Option<&'static str>,
    /// For a pod that has not ended.
    pub unfinished: Diagnosis,
    /// For a pod that has no node.
    pub pending: Diagnosis,
    /// For a pod that has no node and has to be on the node of another object, with that object as a
    /// part. `None`: there is none, and the pod's own affinity is examined instead.
    pub led: Option<Diagnosis>,
}

/// The result for one object, and for its parts.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    /// The node and the hostname of a pod whose texts differ from those of others like it only by them.
    #[serde(skip)]
    pub node: Option<String>,
    #[serde(skip)]
    pub hostname: Option<String>,
    /// Where the object is placed: the node of a pod, the members of a pool, or the volume of a
    /// claim.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub placed: Vec<String>,
    /// The requests: annotations, or the object's spec in short.
    pub asked: Vec<String>,
    /// The decisions of stowplan.
    pub decided: Vec<String>,
    /// The message of the scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// The last statement of an autoscaler about the pod, if it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscaler: Option<String>,
    /// The reasons why the object waits.
    pub obstacles: Vec<Obstacle>,
    /// The diagnoses of the objects that belong to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Self>,
}

/// A reason why an object waits, and the remedy. The subject is the object of the diagnosis.
#[derive(Debug, Eq, PartialEq, Serialize)]
pub struct Obstacle {
    pub what: String,
    /// Empty if `what` ends in a remedy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Diagnosis {
    /// A diagnosis without content.
    pub fn new(kind: &'static str, name: &Name) -> Self {
        let Name { namespace, name } = name;
        Self { kind, namespace: namespace.to_string(), name: name.to_string(), ..Self::default() }
    }

    /// Returns true if this or a part of it is about the object.
    pub fn covers(&self, kind: &str, namespace: &str, name: &str) -> bool {
        (self.kind == kind && self.namespace == namespace && self.name == name)
            || self.parts.iter().any(|part| part.covers(kind, namespace, name))
    }

    /// Returns the name, with the namespace if the object has one.
    pub fn full_name(&self) -> String {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        format!("{}{slash}{}", self.namespace, self.name)
    }

    /// Returns this and all of its parts.
    pub fn all(&self) -> Vec<&Self> {
        let mut all = vec![self];
        all.extend(self.parts.iter().flat_map(Self::all));
        all
    }

    /// Removes the parts that are pods of `known`, by their names. Returns whether there were some.
    pub fn remove_pods(&mut self, known: &BTreeSet<String>) -> bool {
        let count = self.parts.len();
        self.parts.retain(|part| part.kind != POD.kind || !known.contains(&part.name));
        let is_changed = self.parts.len() < count;
        self.parts
            .iter_mut()
            .fold(is_changed, |is_changed, part| part.remove_pods(known) | is_changed)
    }

    /// Returns true if the object or a part of it has an obstacle.
    pub fn has_obstacle(&self) -> bool {
        !self.obstacles.is_empty() || self.parts.iter().any(Self::has_obstacle)
    }

    /// Adds an obstacle, unless the same one was added before.
    pub fn report(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(Obstacle { what: what.into(), remedy: remedy.into() });
    }

    /// Adds the content of another diagnosis of the same object.
    pub fn extend(&mut self, other: Self) {
        self.asked.extend(other.asked);
        self.decided.extend(other.decided);
        other.obstacles.into_iter().for_each(|obstacle| self.add(obstacle));
        self.parts.extend(other.parts);
    }

    fn add(&mut self, obstacle: Obstacle) {
        if !self.obstacles.contains(&obstacle) {
            self.obstacles.push(obstacle);
        }
    }
}
