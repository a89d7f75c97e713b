//! The queries to the View about nodes, namespaces and the controller. Those about the kinds of a system are
//! in its `kinds`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::View;
use crate::kubernetes::HOSTNAME;
use crate::view::{ControllerState, Name, Node, NodeUsage, Table as _};

impl View {
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// The name of a node, as the View holds it; `None`: there is no such node.
    #[must_use]
    pub fn node_named(&self, name: &str) -> Option<&str> {
        self.nodes.name_of(name)
    }

    /// Returns true if a node is known to the controller and Ready.
    pub(crate) fn is_node_ready(&self, name: &str) -> bool {
        let details = self.node(name).and_then(|node| node.details.as_ref());
        details.is_some_and(|details| details.ready)
    }

    /// Every node with its name.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter()
    }

    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.count()
    }

    /// The value of a node's label. `None`: the View does not know the label, as for most labels in
    /// a View for admission; `Some(None)`: the node does not have it.
    #[must_use]
    pub fn node_label(&self, node: &str, key: &str) -> Option<Option<&str>> {
        if let Some(details) = self.node(node).and_then(|node| node.details.as_ref()) {
            return Some(details.labels.get(key).map(AsRef::as_ref));
        }
        let hostname = self.node(node).and_then(|node| node.hostname.as_deref());
        let hostname = hostname.filter(|_| key == HOSTNAME);
        hostname.map(Some).or_else(|| self.node_marks.label(node, key))
    }

    /// The nodes whose Hostname or InternalDNS address is `name`, in any case (RFC 4343).
    pub fn nodes_with_host_name(&self, name: &str) -> impl Iterator<Item = &str> {
        self.nodes.with_host_name(name).into_iter()
    }

    /// The nodes with this InternalIP or ExternalIP.
    pub fn nodes_with_address(&self, address: IpAddr) -> impl Iterator<Item = &str> {
        self.nodes.with_address(address)
    }

    /// The resources that the pods on a node use; `None`: there are no pods. Only the controller's
    /// View keeps it.
    #[must_use]
    pub fn node_usage(&self, node: &str) -> Option<&NodeUsage> {
        self.usages.index().of_node(node)
    }

    /// The labels of a namespace; `None`: the namespace is not known.
    #[must_use]
    pub fn namespace_labels(&self, name: &str) -> Option<&BTreeMap<Box<str>, Box<str>>> {
        Some(&self.namespaces.get(&Name::cluster_wide(name))?.labels)
    }

    /// Returns whether a namespace has this annotation, which starts with `stowplan.dev/`.
    #[must_use]
    pub fn namespace_has_annotation(&self, name: &str, key: &str) -> bool {
        let marks = self.namespaces.get(&Name::cluster_wide(name));
        marks.is_some_and(|marks| marks.annotations.iter().any(|own| **own == *key))
    }

    /// The names of the known namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces.iter().map(|(name, _)| &*name.name)
    }

    /// Returns true if a controller is running to finish what admission leaves to it.
    #[must_use]
    pub fn controller_present(&self) -> bool {
        self.controller == ControllerState::Leads
    }

    /// The state of the controller. It leads until [`Self::set_controller`] is called.
    #[must_use]
    pub fn controller(&self) -> ControllerState {
        self.controller
    }

    /// Records whether a controller is running, where nothing more is known.
    pub fn set_controller_present(&mut self, present: bool) {
        self.controller = if present { ControllerState::Leads } else { ControllerState::Stopped };
    }

    /// Records the state of the controller.
    pub fn set_controller(&mut self, state: ControllerState) {
        self.controller = state;
    }
}
