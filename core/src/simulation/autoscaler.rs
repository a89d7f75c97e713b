//! The rules of cluster-autoscaler: it makes a node where a pod that the scheduler cannot place would fit on an
//! empty one, and removes nodes that are little used.
//!
//! It expects a new node to be like one of its group that is Ready, labels and taints included, although a new
//! one has only those of its group. It looks at one pod at a time, and never at one with a gate.

use serde_json::{Value, json};

use super::scheduler::{Snapshot, Subject, is_pending};
use super::store::Id;
use super::{Event, Simulation};
use crate::kubernetes::HOSTNAME;
use crate::systems::pause::KEEPS_NODE;
use crate::view::{NodeDetails, Resources};

/// The beginnings of the keys of taints that it leaves out of what it expects.
const PASSING_TAINTS: [&str; 4] = [
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "node.kubernetes.io/",
];

/// A group of nodes of one shape, which are named `<group>-<number>`.
#[derive(Clone, Debug)]
pub struct NodeGroup {
    pub name: String,
    /// A new node of the group; its name is replaced.
    pub node: Value,
    /// The most nodes.
    pub most: usize,
}

impl NodeGroup {
    fn has(&self, node: &Value) -> bool {
        let number = name_of(node).strip_prefix(&self.name).and_then(|of| of.strip_prefix('-'));
        number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
    }

    /// Makes the node of this number, like another one.
    fn copy(&self, node: &Value, number: usize) -> Value {
        let mut node = node.clone();
        let name = format!("{}-{number}", self.name);
        node["metadata"] = json!({"name": name, "labels": node["metadata"]["labels"]});
        node["metadata"]["labels"][HOSTNAME] = json!(name);
        node
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

impl Simulation {
    pub(super) fn autoscaler_events(&self) -> impl Iterator<Item = Event> {
        let pods = self.store.all("Pod").filter(|pod| is_unschedulable(pod));
        pods.flat_map(move |pod| {
            let groups = self.node_groups.iter().filter(|group| self.helps(group, pod));
            groups.map(|group| Event::Grow(Id::of(pod), group.name.clone()))
        })
    }

    fn nodes_of<'s>(&'s self, group: &'s NodeGroup) -> impl Iterator<Item = &'s Value> {
        self.store.all("Node").filter(|node| group.has(node))
    }

    fn first_free(&self, group: &NodeGroup) -> usize {
        let is_free = |number: &usize| {
            let name = format!("{}-{number}", group.name);
            self.store.get(&Id::new("Node", "", &name)).is_none()
        };
        (0..).find(is_free).unwrap_or_default()
    }

    /// Returns true if one more node of a group would take a pod that no node takes.
    fn helps(&self, group: &NodeGroup, pod: &Value) -> bool {
        if self.nodes_of(group).count() >= group.most
            || self.find_nodes(pod).is_none_or(|nodes| !nodes.is_empty())
        {
            return false;
        }
        let is_like =
            |node: &&Value| self.is_ready(name_of(node)) && node["spec"]["unschedulable"] != true;
        let like = self.nodes_of(group).find(is_like).unwrap_or(&group.node);
        let mut expected = group.copy(like, self.first_free(group));
        if let Some(taints) = expected["spec"]["taints"].as_array_mut() {
            taints.retain(|taint| {
                let key = taint["key"].as_str().unwrap_or_default();
                !PASSING_TAINTS.iter().any(|passing| key.starts_with(passing))
            });
        }
        self.would_take(&expected, pod)
    }

    pub(super) fn grow(&mut self, pod: &Id, group: &str) {
        let group = self.node_groups.iter().find(|of| of.name == group);
        let (Some(group), Some(pod)) = (group, self.store.get(pod)) else { return };
        if is_unschedulable(pod) && self.helps(group, pod) {
            let node = group.copy(&group.node, self.first_free(group));
            // There is none of this name.
            let _ = self.store.create(node);
        }
    }

    /// Removes a node of which less than half is used, and whose pods can go elsewhere and may be evicted. Returns
    /// its name; `None` if there is none.
    pub fn shrink(&mut self) -> Option<String> {
        let snapshot = self.take_snapshot();
        let is_unneeded = |node: &&Value| {
            let is_there = |of: &&Subject<'_>| of.pod["spec"]["nodeName"] == *name_of(node);
            let pods: Vec<&Subject<'_>> = snapshot.placed.iter().filter(is_there).collect();
            let used = pods.iter().fold(Resources::default(), |sum, of| sum.plus(&of.requests));
            let typed = serde_json::from_value((*node).clone());
            typed.is_ok_and(|of| NodeDetails::from(&of).allocatable.covers(&used.plus(&used)))
                && pods.iter().all(|of| is_evictable(of.pod))
                && pods.iter().all(|of| self.goes_elsewhere(of, node, &snapshot))
        };
        let is_of_group = |node: &&Value| self.node_groups.iter().any(|group| group.has(node));
        let found = self.store.all("Node").filter(is_of_group).find(is_unneeded);
        let name = found.map(name_of)?.to_owned();
        drop(snapshot);
        self.lose_node(&name);
        Some(name)
    }

    fn goes_elsewhere(&self, pod: &Subject<'_>, node: &Value, snapshot: &Snapshot<'_>) -> bool {
        let is_first = pod.is_toward(pod.pod);
        let is_other = |name: Option<&str>| name != Some(name_of(node));
        let mut others = snapshot.nodes.iter();
        others.any(|other| {
            is_other(other.0.metadata.name.as_deref()) && self.fits(pod, other, snapshot, is_first)
        })
    }
}

/// Returns true if the scheduler has said that no node takes a pod.
fn is_unschedulable(pod: &Value) -> bool {
    is_pending(pod) && pod["status"]["conditions"][0]["reason"] == "Unschedulable"
}

/// Returns true if a pod may be evicted: a controller creates it again, and its author allows it.
fn is_evictable(pod: &Value) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let mut kinds = owners.map(|owner| owner["kind"].as_str().unwrap_or_default());
    let is_replicated = kinds.any(|kind| matches!(kind, "StatefulSet" | "ReplicaSet" | "Job"));
    let [(key, value), _] = KEEPS_NODE;
    is_replicated && pod["metadata"]["annotations"][key] != value
}
