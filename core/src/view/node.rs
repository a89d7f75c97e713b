//! Nodes: their names and addresses, and for the controller their labels, taints and capacity.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::Timestamp;

use super::index::Index;
use super::resource::NODE;
use super::resources::{Resources, thousandths};
use super::rows::TableRow;
use super::table::{Kind, Scope, Table};
use super::{Identity, Name};
use crate::kubernetes::{HOSTNAME, kept_texts, label};

pub(crate) const NODES: Kind = Kind::built_in(NODE);

/// A node with its names and addresses.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Node {
    /// Hostname and InternalDNS addresses, in lower case.
    pub host_names: Box<[Box<str>]>,
    /// InternalIP and ExternalIP addresses, canonical.
    pub addresses: Box<[IpAddr]>,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    /// The label `kubernetes.io/hostname`, by which pods select nodes; `None`: not known.
    pub hostname: Option<Box<str>>,
    /// The fields that only the controller keeps.
    pub details: Option<Box<NodeDetails>>,
}

/// The fields of a node that only the controller keeps.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeDetails {
    pub identity: Identity,
    /// All labels.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// The taints in order: a patch refers to them by index.
    pub taints: Box<[Taint]>,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    /// True if the condition Ready is True.
    pub ready: bool,
    /// `status.allocatable`: the resources for all pods together.
    pub allocatable: Resources,
    /// The maximum number of pods, from `status.allocatable.pods`.
    pub pod_limit: usize,
}

/// A taint.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Taint {
    pub key: Box<str>,
    /// Empty if the taint has no value.
    pub value: Box<str>,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: Box<str>,
    /// `timeAdded`, which is optional.
    pub since: Option<Timestamp>,
}

impl From<&core::Node> for NodeDetails {
    fn from(node: &core::Node) -> Self {
        let spec = node.spec.as_ref();
        let taints = spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        let pods = allocatable.and_then(|amounts| amounts.get("pods"));
        let pods = pods.and_then(|amount| thousandths(&amount.0)).map(|amount| amount / 1000);
        Self {
            identity: Identity::from(&node.metadata),
            labels: kept_texts(node.metadata.labels.as_ref()),
            taints: taints
                .map(|taint| Taint {
                    key: taint.key.as_str().into(),
                    value: taint.value.as_deref().unwrap_or_default().into(),
                    effect: taint.effect.as_str().into(),
                    since: taint.time_added.as_ref().map(|time| time.0),
                })
                .collect(),
            cordoned: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            ready: ready.is_some_and(|condition| condition.status == "True"),
            allocatable: Resources::read(allocatable),
            pod_limit: pods.and_then(|pods| usize::try_from(pods).ok()).unwrap_or_default(),
        }
    }
}

impl From<&core::Node> for Node {
    fn from(node: &core::Node) -> Self {
        let mut host_names: Vec<Box<str>> = Vec::new();
        let mut addresses = Vec::new();
        let status = node.status.as_ref();
        for entry in status.and_then(|status| status.addresses.as_ref()).into_iter().flatten() {
            match entry.type_.as_str() {
                "Hostname" | "InternalDNS" => {
                    host_names.push(entry.address.to_ascii_lowercase().into())
                }
                // No pod can request an address that does not parse.
                "InternalIP" | "ExternalIP" => {
                    let address: Option<IpAddr> = entry.address.parse().ok();
                    addresses.extend(address.map(|address| address.to_canonical()));
                }
                _ => {}
            }
        }
        host_names.sort_unstable();
        host_names.dedup();
        addresses.sort_unstable();
        addresses.dedup();
        Self {
            host_names: host_names.into(),
            addresses: addresses.into(),
            cordoned: node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default(),
            hostname: label(&node.metadata, HOSTNAME).map(Into::into),
            details: None,
        }
    }
}

/// The nodes of a View, indexed by name and address.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    nodes: HashMap<Arc<str>, Node>,
    /// Node names by Hostname and InternalDNS addresses in lower case, except those equal to the
    /// node's own name.
    host_names: Index<Box<str>>,
    /// Node names by InternalIP and ExternalIP addresses.
    addresses: Index<IpAddr>,
}

impl Nodes {
    #[must_use]
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// The name of a node, as the table holds it.
    #[must_use]
    pub(crate) fn name_of(&self, name: &str) -> Option<&str> {
        self.nodes.get_key_value(name).map(|(name, _)| &**name)
    }

    /// Every node with its name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(name, node)| (&**name, node))
    }

    /// The sorted names of the nodes whose Hostname or InternalDNS address is `name`, in any case.
    #[must_use]
    pub(crate) fn with_host_name(&self, name: &str) -> Vec<&str> {
        let name = name.to_ascii_lowercase();
        let own = self
            .nodes
            .get_key_value(&*name)
            .filter(|(_, node)| node.host_names.iter().any(|host| **host == *name));
        let mut nodes: Vec<&str> = own.map(|(name, _)| &**name).into_iter().collect();
        nodes.extend(self.host_names.get(&*name));
        nodes.sort_unstable();
        nodes
    }

    /// The nodes with this InternalIP or ExternalIP.
    pub(crate) fn with_address(&self, address: IpAddr) -> impl Iterator<Item = &str> {
        self.addresses.get(&address)
    }
}

/// The host names of a node that differ from its own name.
fn other_names<'n>(node: &'n Node, name: &str) -> impl Iterator<Item = Box<str>> + use<'n> {
    let name: Box<str> = name.into();
    node.host_names.iter().filter(move |host| **host != name).cloned()
}

impl TableRow for Node {
    type Object = core::Node;
    const KIND: &'static Kind = &NODES;
    const COUNTED_AS: Option<&'static str> = Some("nodes");

    fn from_object(node: &core::Node, scope: Scope) -> Option<Self> {
        let details = (scope == Scope::Controller).then(|| Box::new(NodeDetails::from(node)));
        Some(Self { details, ..Self::from(node) })
    }
}

impl Table for Nodes {
    type Row = Node;

    fn put(&mut self, name: Name, node: Node) {
        let name = name.name;
        self.host_names.add(other_names(&node, &name), &name);
        self.addresses.add(node.addresses.iter().copied(), &name);
        self.nodes.insert(name, node);
    }

    fn forget(&mut self, Name { name, .. }: &Name) {
        let Some(node) = self.nodes.remove(&**name) else { return };
        self.host_names.remove(other_names(&node, name), name);
        self.addresses.remove(node.addresses.iter().copied(), name);
    }

    fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Kubelets report the state of each node every few minutes, also if nothing has changed.
    fn shows(&self, name: &Name, row: Option<&Node>) -> bool {
        self.get(&name.name) == row
    }

    fn version(&self, name: &Name) -> Option<&Identity> {
        Some(&self.get(&name.name)?.details.as_ref()?.identity)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_found_by_its_host_names_and_not_by_its_own_name_alone() {
        let mut nodes = Nodes::default();
        for (name, addresses) in [
            ("n1", &["n1"][..]),
            ("n2", &["x", "N2"]),
            ("n3", &["y", "z"]),
            ("n4", &["x"]),
            ("n5", &[]),
        ] {
            let addresses: Vec<_> =
                addresses.iter().map(|of| json!({"type": "Hostname", "address": of})).collect();
            let object = json!({"metadata": {"name": name}, "status": {"addresses": addresses}});
            let node: core::Node = serde_json::from_value(object).unwrap();
            nodes.put(Name::cluster_wide(name), Node::from(&node));
        }
        let found =
            ["n1", "n2", "n3", "n4", "n5", "X", "y", ""].map(|name| nodes.with_host_name(name));
        let expected: [&[&str]; 8] = [&["n1"], &["n2"], &[], &[], &[], &["n2", "n4"], &["n3"], &[]];
        assert_eq!(found, expected);
    }
}
