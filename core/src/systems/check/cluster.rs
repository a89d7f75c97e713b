//! The cluster as a diagnosis sees it: the View of the controller, and the pods.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Event, Node, Pod};

use super::events::Events;
use super::queue::Workload;
use crate::kubernetes::{is_finished, node_name};
use crate::systems;
use crate::systems::View;
use crate::systems::fit::{self, Candidate, Check, Obstacle, Question};
use crate::view::{Name, Resources, Scope};

/// A cluster as it was at one moment.
#[derive(Debug, Default)]
pub struct Cluster {
    pub view: View,
    /// The names of all nodes.
    nodes: BTreeSet<String>,
    /// The pods of the namespace that is asked about; where they come from files, of all namespaces.
    pub pods: Vec<Pod>,
    /// The kinds of which all objects are known: only of these an object can be said not to exist.
    pub known: BTreeSet<String>,
    events: Events,
    workloads: Vec<Workload>,
}

impl Cluster {
    pub fn add_node(&mut self, node: Node) {
        systems::project(&node, Scope::Controller)
            .into_iter()
            .for_each(|object| self.view.apply(object));
        self.nodes.extend(node.metadata.name);
    }

    pub fn add_pod(&mut self, mut pod: Pod) {
        // As for kubectl, an object without a namespace is in `default`.
        pod.metadata.namespace.get_or_insert_with(|| "default".to_owned());
        systems::project(&pod, Scope::Controller)
            .into_iter()
            .for_each(|object| self.view.apply(object));
        self.pods.push(pod);
    }

    /// Adds an event, if it says why an object waits or does not exist.
    pub fn add_event(&mut self, event: Event) {
        self.events.add(event);
    }

    /// Adds a Workload of Kueue's.
    pub fn add_workload(&mut self, workload: Workload) {
        self.workloads.push(workload);
    }

    /// Returns the Workload of Kueue's that a pod is part of.
    pub(super) fn workload(&self, pod: &Pod) -> Option<&Workload> {
        self.workloads.iter().find(|workload| workload.has(pod))
    }

    /// Returns why a pod of a workload was last not created, as its controller says.
    pub fn not_created(&self, kind: &str, name: &Name, uid: Option<&str>) -> Option<&str> {
        self.events.not_created(kind, name, uid)
    }

    /// Returns the last warning of stowplan's controller with this reason that names an object.
    pub(crate) fn warning(&self, object: &Name, reason: &str) -> Option<&str> {
        self.events.warning(object, reason)
    }

    /// Returns the last statement of an autoscaler about a pod; `None` if it has a node.
    pub(crate) fn autoscaler(&self, pod: &Pod) -> Option<String> {
        let waits = node_name(pod).is_none() && !is_finished(pod);
        waits.then(|| self.events.about_pod(pod, &self.view))?
    }

    /// Returns true if nothing is known of nodes.
    pub fn has_no_nodes(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node of this name, with what the pods on it take.
    pub fn candidate<'c>(&'c self, name: &'c str) -> Option<Candidate<'c>> {
        Candidate::find(name, &self.view)
    }

    /// All nodes, in the order of their names.
    pub fn candidates(&self) -> impl Iterator<Item = Candidate<'_>> {
        self.nodes.iter().filter_map(|name| self.candidate(name))
    }

    /// Returns true if all objects of a kind are known.
    pub fn knows(&self, kind: &str) -> bool {
        self.known.contains(kind)
    }

    pub fn pod(&self, namespace: &str, name: &str) -> Option<&Pod> {
        self.in_namespace(namespace).find(|pod| pod.metadata.name.as_deref() == Some(name))
    }

    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(move |pod| pod.metadata.namespace.as_deref() == Some(namespace))
    }

    /// The pods of a namespace besides `pod` that have not ended.
    pub fn others<'c>(&'c self, namespace: &'c str, pod: &'c Pod) -> impl Iterator<Item = &'c Pod> {
        self.in_namespace(namespace)
            .filter(|other| other.metadata.name != pod.metadata.name && !is_finished(other))
    }
}

/// Returns true if a node states what pods may take of it. One from a file may not.
pub(crate) fn states_capacity(candidate: Candidate<'_>) -> bool {
    let details = candidate.node.details.as_deref();
    details.is_some_and(|node| node.allocatable != Resources::default())
}

/// The first obstacle, without the capacity of a node that does not state it.
pub fn first_obstacle<'q>(question: &Question<'q>, checks: &[Check]) -> Option<Obstacle<'q>> {
    let counts =
        |found: &Obstacle<'_>| !found.is_lack_of_capacity() || states_capacity(question.candidate);
    fit::obstacles(question, checks).find(counts)
}
