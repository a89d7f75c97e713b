//! The table of node marks: the tags of nodes, the taint of an exclusive pool, and what keeps pods or
//! pools off a node.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use super::host_pool::EXCLUSIVE_TAINTS;
use super::tags::{TAG_KEY, TAG_PREFIX, has_tags, only_tag};
use crate::kubernetes::{HOSTNAME, label};
use crate::view::node::NODES;
use crate::view::rows::TableRow;
use crate::view::{Kind, Name, Scope, Table};

/// The labels of control-plane nodes. The second is used by clusters older than 1.20.
pub(crate) const CONTROL_PLANE: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// The labels, taints and conditions of a node that pools and jobs read.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Marks {
    /// Tags: `key=value` for [`TAG_KEY`], only the key under [`TAG_PREFIX`].
    pub tags: Box<[Box<str>]>,
    /// The hash of the exclusive pool whose taint the node has.
    pub exclusive: Option<Box<str>>,
    pub limits: Limits,
    /// The label `kubernetes.io/hostname`, if it is not the node's name.
    pub hostname: Option<Box<str>>,
}

/// The properties that keep pods or pools off a node. A node without any is in no table.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Limits {
    /// It is being deleted.
    pub deleted: bool,
    /// Its condition Ready is not True.
    pub not_ready: bool,
    /// `spec.unschedulable` is set.
    pub cordoned: bool,
    /// It has a taint NoSchedule or NoExecute that is not stowplan's. Pods may tolerate it.
    pub tainted: bool,
    /// It runs the control plane.
    pub control_plane: bool,
    /// It has no label `kubernetes.io/hostname`, so affinities between pods do not work there.
    pub nameless: bool,
}

impl Limits {
    /// Files may leave out the status and the labels that a cluster's nodes have. One that was exported from a
    /// cluster has a UID, and all labels.
    fn read(node: &core::Node, scope: Scope) -> Self {
        let is_file = scope == Scope::File;
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let is_ready = |conditions: &Vec<core::NodeCondition>| {
            conditions.iter().any(|of| of.type_ == "Ready" && of.status == "True")
        };
        let spec = node.spec.as_ref();
        let mut taints = spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
        let has = |key: &str| label(&node.metadata, key).is_some();
        Self {
            deleted: node.metadata.deletion_timestamp.is_some(),
            not_ready: !conditions.map_or(is_file, is_ready),
            cordoned: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            tainted: taints.any(|taint| {
                !EXCLUSIVE_TAINTS.contains(&&*taint.key)
                    && matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
            }),
            control_plane: CONTROL_PLANE.iter().any(|key| has(key)),
            nameless: (!is_file || node.metadata.uid.is_some()) && !has(HOSTNAME),
        }
    }
}

impl Marks {
    fn read(node: &core::Node, scope: Scope) -> Self {
        let labels = node.metadata.labels.iter().flatten();
        let tags = labels
            .filter_map(|(key, value)| match key.as_str() {
                TAG_KEY => Some(only_tag(value)),
                _ if key.starts_with(TAG_PREFIX) => Some(key.as_str().into()),
                _ => None,
            })
            .collect();
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        let exclusive = taints
            .into_iter()
            .flatten()
            .find(|taint| EXCLUSIVE_TAINTS.contains(&&*taint.key))
            .and_then(|taint| taint.value.as_deref())
            .map(Into::into);
        let hostname = label(&node.metadata, HOSTNAME)
            .filter(|hostname| node.metadata.name.as_deref() != Some(hostname))
            .map(Into::into);
        Self { tags, exclusive, limits: Limits::read(node, scope), hostname }
    }
}

/// The table of node marks. Nodes without marks have no entry, and nodes with the same marks share
/// them.
#[derive(Debug, Default)]
pub(crate) struct NodeMarks {
    nodes: HashMap<Arc<str>, Arc<Marks>>,
    /// The number of nodes with the same marks. Even a cluster of many nodes has few different ones.
    shared: HashMap<Arc<Marks>, usize>,
    /// The number of nodes with the taint of an exclusive pool. In most clusters there are none, and
    /// then a pool of many hosts is resolved without a look at each.
    exclusive: usize,
    /// The hostname labels that are not the names of their nodes.
    hostnames: HashMap<Arc<str>, Box<str>>,
}

impl NodeMarks {
    /// The marks of a node; `None` if it has none.
    pub(crate) fn get(&self, node: &str) -> Option<&Marks> {
        self.nodes.get(node).map(AsRef::as_ref)
    }

    /// The hash of the exclusive pool whose taint the node has.
    pub(crate) fn exclusive_pool(&self, node: &str) -> Option<&str> {
        if self.exclusive == 0 {
            return None;
        }
        self.get(node)?.exclusive.as_deref()
    }

    /// Returns whether any node lacks the hostname label.
    pub(crate) fn has_nameless(&self) -> bool {
        self.shared.keys().any(|marks| marks.limits.nameless)
    }

    /// The label `kubernetes.io/hostname` of a node that exists; `None` if it lacks the label.
    pub(crate) fn hostname<'n>(&'n self, node: &'n str) -> Option<&'n str> {
        let other = self.hostnames.get(node).map(AsRef::as_ref);
        let is_nameless = || self.get(node).is_some_and(|marks| marks.limits.nameless);
        other.or_else(|| (!is_nameless()).then_some(node))
    }

    /// The number of nodes that have all of these tags, of which there must be at least one.
    pub(crate) fn with_tags(&self, tags: &[Box<str>]) -> usize {
        self.tagged(tags).map(|(_, nodes)| nodes).sum()
    }

    /// The hashes of the exclusive pools whose taints the nodes with all of these tags have; `None` stands
    /// for nodes without such a taint. Empty if no node has the tags, of which there must be at least one.
    pub(crate) fn exclusive_pools_of_tagged(&self, tags: &[Box<str>]) -> BTreeSet<Option<&str>> {
        self.tagged(tags).map(|(marks, _)| marks.exclusive.as_deref()).collect()
    }

    /// The value of a node's label. `None`: the table does not know the label; `Some(None)`: the node does
    /// not have it.
    pub(crate) fn label(&self, node: &str, key: &str) -> Option<Option<&str>> {
        let tags = self.get(node).map(|marks| &*marks.tags).unwrap_or_default();
        if key == TAG_KEY {
            let mut tags = tags.iter();
            return Some(tags.find_map(|tag| tag.strip_prefix(TAG_KEY)?.strip_prefix('=')));
        }
        // Under this prefix only the keys are kept, so the value of a present label is not known.
        let is_absent = key.starts_with(TAG_PREFIX) && !tags.iter().any(|tag| **tag == *key);
        is_absent.then_some(None)
    }

    fn tagged(&self, tags: &[Box<str>]) -> impl Iterator<Item = (&Marks, usize)> {
        let shared = self.shared.iter().filter(|(marks, _)| has_tags(&marks.tags, tags));
        shared.map(|(marks, nodes)| (&**marks, *nodes))
    }
}

impl TableRow for Marks {
    type Object = core::Node;
    const KIND: &'static Kind = &NODES;

    fn from_object(node: &core::Node, scope: Scope) -> Option<Self> {
        Some(Self::read(node, scope)).filter(|marks| *marks != Self::default())
    }
}

impl Table for NodeMarks {
    type Row = Marks;

    fn put(&mut self, name: Name, mut marks: Marks) {
        // Not shared: it is another one for each node.
        if let Some(hostname) = marks.hostname.take() {
            self.hostnames.insert(Arc::clone(&name.name), hostname);
        }
        self.exclusive += usize::from(marks.exclusive.is_some());
        let marks = match self.shared.entry(Arc::new(marks)) {
            Entry::Occupied(mut nodes) => {
                *nodes.get_mut() += 1;
                Arc::clone(nodes.key())
            }
            Entry::Vacant(entry) => {
                let marks = Arc::clone(entry.key());
                entry.insert(1);
                marks
            }
        };
        self.nodes.insert(name.name, marks);
    }

    fn forget(&mut self, name: &Name) {
        self.hostnames.remove(&*name.name);
        let Some(marks) = self.nodes.remove(&*name.name) else { return };
        self.exclusive -= usize::from(marks.exclusive.is_some());
        if let Entry::Occupied(mut nodes) = self.shared.entry(marks) {
            *nodes.get_mut() -= 1;
            if *nodes.get() == 0 {
                nodes.remove();
            }
        }
    }

    fn count(&self) -> usize {
        self.nodes.len()
    }

    fn shows(&self, name: &Name, marks: Option<&Marks>) -> bool {
        let hostname = self.hostnames.get(&*name.name);
        let is_same = |marks: &Marks| {
            let known = self.get(&name.name);
            known.is_some_and(|known| {
                Marks { hostname: hostname.cloned(), ..known.clone() } == *marks
            })
        };
        marks.map_or_else(|| self.get(&name.name).is_none(), is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tags::one_of_tags;
    use super::*;

    #[test]
    fn a_hostname_is_usually_the_name_of_the_node() {
        let node = |labels: serde_json::Value| {
            let node = serde_json::json!({"metadata": {"name": "n", "labels": labels}});
            let node = serde_json::from_value(node).unwrap();
            Marks::from_object(&node, Scope::Admission)
        };
        for (labels, expected) in [
            (serde_json::json!({HOSTNAME: "n"}), Some("n")),
            (serde_json::json!({HOSTNAME: "ip-10-0-0-1"}), Some("ip-10-0-0-1")),
            (serde_json::json!({}), None),
        ] {
            let (name, mut nodes) = (Name::cluster_wide("n"), NodeMarks::default());
            let row = node(labels);
            if let Some(row) = row.clone() {
                nodes.put(name.clone(), row);
            }
            assert_eq!(nodes.hostname("n"), expected);
            assert!(nodes.shows(&name, row.as_ref()));
            nodes.forget(&name);
            assert_eq!(nodes.hostname("n"), Some("n"));
        }
    }

    #[test]
    fn the_labels_of_tags_can_be_queried() {
        let mut nodes = NodeMarks::default();
        let tags = [only_tag("fast"), one_of_tags("b")].into();
        nodes.put(Name::cluster_wide("n"), Marks { tags, ..Marks::default() });
        for (node, key, expected) in [
            ("n", "arch", None),
            ("n", TAG_KEY, Some(Some("fast"))),
            ("n", "hostpool.streams.ibm.com/a", Some(None)),
            // Its value is not kept.
            ("n", "hostpool.streams.ibm.com/b", None),
            ("other", TAG_KEY, Some(None)),
        ] {
            assert_eq!(nodes.label(node, key), expected, "{node} {key}");
        }
    }
}
