//! The cluster as a diagnosis sees it: the View of the controller, and the pods.

use std::collections::BTreeSet;
use std::path::PathBuf;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};

use crate::cli::input::{self, Problems};
use crate::controller::lease;
use crate::systems;
use crate::systems::fit::{self, Candidate, Check, Obstacle, Question};
use crate::view::{Resources, Scope, View};

/// A cluster as it was at one moment.
#[derive(Debug, Default)]
pub(in crate::cli) struct Cluster {
    pub(in crate::cli) view: View,
    /// The names of all nodes.
    nodes: BTreeSet<String>,
    /// Those of the namespace that is asked about; where they come from files, of all namespaces.
    pub(in crate::cli) pods: Vec<Pod>,
    /// The kinds of which all objects are known: only of these an object can be said not to exist.
    pub(in crate::cli) known: BTreeSet<String>,
}

impl Cluster {
    pub(in crate::cli) fn add_node(&mut self, node: Node) {
        systems::project(&node, Scope::Controller)
            .into_iter()
            .for_each(|object| self.view.apply(object));
        self.nodes.extend(node.metadata.name);
    }

    pub(in crate::cli) fn add_pod(&mut self, mut pod: Pod) {
        // As for kubectl, an object without a namespace is in `default`.
        pod.metadata.namespace.get_or_insert_with(|| "default".to_owned());
        systems::project(&pod, Scope::Controller)
            .into_iter()
            .for_each(|object| self.view.apply(object));
        self.pods.push(pod);
    }

    /// Reads a Lease from a file. The file may be old, so the time of renewal does not count: the
    /// controller is absent only if the Lease has no holder.
    fn add_lease(&mut self, lease: &Lease) {
        if lease.metadata.name.as_deref() == Some(lease::NAME) {
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
            self.view.set_controller_present(holder.is_some_and(|holder| !holder.is_empty()));
        }
    }

    /// Whether nothing is known of nodes.
    pub(super) fn has_no_nodes(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node of this name, with what the pods on it take.
    pub(super) fn candidate<'c>(&'c self, name: &'c str) -> Option<Candidate<'c>> {
        Candidate::find(name, &self.view)
    }

    /// All nodes, in the order of their names.
    pub(super) fn candidates(&self) -> impl Iterator<Item = Candidate<'_>> {
        self.nodes.iter().filter_map(|name| self.candidate(name))
    }

    /// Whether a node exists and its condition Ready is True.
    pub(super) fn is_ready(&self, name: &str) -> bool {
        let details = self.view.node(name).and_then(|node| node.details.as_deref());
        details.is_some_and(|node| node.ready)
    }

    /// Whether all objects of a kind are known.
    pub(super) fn knows(&self, kind: &str) -> bool {
        self.known.contains(kind)
    }

    pub(super) fn pod(&self, namespace: &str, name: &str) -> Option<&Pod> {
        self.in_namespace(namespace).find(|pod| pod.metadata.name.as_deref() == Some(name))
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(move |pod| pod.metadata.namespace.as_deref() == Some(namespace))
    }
}

/// Whether a node states what pods may take of it. One from a file may not.
pub(super) fn states_capacity(candidate: Candidate<'_>) -> bool {
    let details = candidate.node.details.as_deref();
    details.is_some_and(|node| node.allocatable != Resources::default())
}

/// The first obstacle, without the capacity of a node that does not state it.
pub(super) fn first_obstacle<'q>(
    question: &Question<'q>,
    checks: &[Check],
) -> Option<Obstacle<'q>> {
    let counts =
        |found: &Obstacle<'_>| !found.is_lack_of_capacity() || states_capacity(question.candidate);
    fit::obstacles(question, checks).find(counts)
}

/// The cluster of the objects in `paths`.
///
/// # Errors
/// [`Problems`]: everything that cannot be read or is not an object.
pub(super) fn from_files(paths: &[PathBuf]) -> anyhow::Result<Cluster> {
    let mut cluster = Cluster::default();
    let mut problems = Problems::default();
    let documents = input::read_documents(paths, &mut problems);
    for document in &documents {
        for item in document.items(&mut problems) {
            let object = item.to_object();
            // Who gives one gives all of its kind.
            cluster.known.insert(item.kind.clone());
            let problem = match (item.version.as_str(), item.kind.as_str()) {
                ("v1", "Node") => {
                    serde_json::from_value(object).map(|node| cluster.add_node(node)).err()
                }
                ("v1", "Pod") => {
                    serde_json::from_value(object).map(|pod| cluster.add_pod(pod)).err()
                }
                ("coordination.k8s.io/v1", "Lease") => {
                    serde_json::from_value(object).map(|lease| cluster.add_lease(&lease)).err()
                }
                _ => match systems::object(object) {
                    Ok(object) => {
                        object.into_iter().for_each(|object| cluster.view.apply(object));
                        None
                    }
                    Err(problem) => {
                        problems.push(format!("{}: {problem}", document.location));
                        None
                    }
                },
            };
            if let Some(problem) = problem {
                let kind = &item.kind;
                problems.push(format!("{}: not a valid {kind}: {problem}", document.location));
            }
        }
    }
    problems.into_result()?;
    Ok(cluster)
}
