//! What a diagnosis looks at: the View of a decision, and the whole nodes and pods.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};

use crate::cli::input::{self, Problems};
use crate::controller::lease;
use crate::view::{Object, View};

/// A cluster as it was at one moment.
#[derive(Debug, Default)]
pub(in crate::cli) struct Cluster {
    pub(in crate::cli) view: View,
    pub(in crate::cli) nodes: BTreeMap<String, Node>,
    /// Of the namespace that is asked about; where they come from files, of all.
    pub(in crate::cli) pods: Vec<Pod>,
    /// The kinds of which all objects are known. Of others nobody can say that an object is not there.
    pub(in crate::cli) known: BTreeSet<String>,
}

impl Cluster {
    pub(in crate::cli) fn add_node(&mut self, node: Node) {
        Object::whole_node(&node).into_iter().for_each(|object| self.view.apply(object));
        if let Some(name) = node.metadata.name.clone() {
            self.nodes.insert(name, node);
        }
    }

    pub(in crate::cli) fn add_pod(&mut self, mut pod: Pod) {
        // As for kubectl: what names no namespace is in default.
        pod.metadata.namespace.get_or_insert_with(|| "default".to_owned());
        Object::whole_pod(&pod).into_iter().for_each(|object| self.view.apply(object));
        self.pods.push(pod);
    }

    /// Takes in a Lease from a file: a snapshot, whose age says nothing of now. Only one that nobody
    /// holds says that no controller is there.
    fn add_lease(&mut self, lease: &Lease) {
        if lease.metadata.name.as_deref() == Some(lease::NAME) {
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
            self.view.set_controller_present(holder.is_some_and(|holder| !holder.is_empty()));
        }
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

/// The cluster that the objects in `paths` make.
///
/// # Errors
/// [`Problems`]: all that cannot be read or is no object.
pub(super) fn from_files(paths: &[PathBuf]) -> anyhow::Result<Cluster> {
    let mut cluster = Cluster::default();
    let mut problems = Problems::default();
    let documents = input::documents(paths, &mut problems);
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
                _ => match Object::from_document(object) {
                    Ok(object) => {
                        object.into_iter().for_each(|object| cluster.view.apply(object));
                        None
                    }
                    Err(problem) => {
                        problems.push(format!("{}: {problem}", document.place));
                        None
                    }
                },
            };
            if let Some(problem) = problem {
                let kind = &item.kind;
                problems.push(format!("{}: not a valid {kind}: {problem}", document.place));
            }
        }
    }
    problems.settle()?;
    Ok(cluster)
}
