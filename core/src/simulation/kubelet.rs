//! The kubelets: they report the start of pods, and the end of pods that are being deleted. One whose node is
//! NotReady reports nothing.

use serde_json::{Value, json};

use super::store::Id;
use super::{Event, Simulation};

impl Simulation {
    pub(super) fn kubelet_events(&self) -> impl Iterator<Item = Event> {
        self.store.all("Pod").filter_map(|pod| {
            let node = pod["spec"]["nodeName"].as_str()?;
            let (metadata, phase) = (&pod["metadata"], pod["status"]["phase"].as_str());
            let is_deleting = !metadata["deletionTimestamp"].is_null();
            let is_held = metadata["finalizers"].as_array().is_some_and(|of| !of.is_empty());
            let event = match phase.unwrap_or("Pending") {
                _ if is_deleting && is_held => return None,
                _ if is_deleting => Event::End,
                "Pending" => Event::Start,
                _ => return None,
            };
            self.is_ready(node).then(|| event(Id::of(pod)))
        })
    }

    /// Returns `true` if a node exists and its condition Ready is True.
    #[must_use]
    pub fn is_ready(&self, node: &str) -> bool {
        let node = self.store.get(&Id::new("Node", "", node));
        let conditions = node.and_then(|node| node["status"]["conditions"].as_array());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|of| of["type"] == "Ready" && of["status"] == "True")
    }

    pub(super) fn start(&mut self, pod: &Id) {
        if let Some(mut pod) = self.store.edit(pod) {
            pod["status"]["phase"] = json!("Running");
        }
    }

    /// A node is lost, and with it the objects of its pods.
    pub fn lose_node(&mut self, name: &str) {
        self.store.remove(&Id::new("Node", "", name));
        let is_there = |pod: &&Value| pod["spec"]["nodeName"] == *name;
        let lost: Vec<Id> = self.store.all("Pod").filter(is_there).map(Id::of).collect();
        lost.iter().for_each(|pod| self.remove_pod(pod));
    }
}
