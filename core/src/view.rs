//! The View: the state of the cluster that decisions read, as projections of objects.
//!
//! A View is a list of tables ([`table::Table`]), each with the fields that are kept of the objects
//! of one kind. The tables of nodes, namespaces and node usage are here; every other table belongs
//! to a system, and `systems` lists them all. Watches (`cluster`) and files (`cli`) fill it by
//! [`View::apply`], so that both read objects in the same way. Look-ups use indices: a decision
//! takes the same time in a cluster of ten nodes and of ten thousand.

pub(crate) mod document;
pub(crate) mod identity;
pub(crate) mod index;
pub(crate) mod namespace;
pub(crate) mod node;
pub(crate) mod owner;
pub(crate) mod pod;
pub mod resource;
pub mod resources;
pub(crate) mod rows;
pub(crate) mod selector;
pub mod table;

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

pub use identity::Identity;
pub(crate) use namespace::Namespaces;
pub use node::{Node, NodeDetails, Nodes};
pub use owner::Owner;
pub(crate) use pod::{NodeUsage, Usages};
pub(crate) use resource::Resource;
pub(crate) use resources::Resources;
use table::AnyTable;
pub use table::{Kind, Object, Scope, Table, TableType};

/// A namespaced name.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name {
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: Box<str>,
    /// Shared by the tables that keep the object.
    pub name: Arc<str>,
}

impl Name {
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The name of a cluster-scoped object.
    #[must_use]
    pub fn cluster_wide(name: &str) -> Self {
        Self::new("", name)
    }
}

/// An object that a decision can wait for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Key {
    /// The kind.
    pub resource: Resource,
    /// The name.
    pub name: Name,
}

impl Key {
    /// The object of this kind and name.
    #[must_use]
    pub fn new(resource: Resource, name: Name) -> Self {
        Self { resource, name }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, name: Name { namespace, name } } = self;
        match resource.namespaced {
            true => write!(formatter, "{resource} {namespace}/{name}"),
            false => write!(formatter, "{resource} {name}"),
        }
    }
}

/// The known state of the cluster.
///
/// Each object takes a few hundred bytes, for clusters of ten thousand nodes and ten times as many
/// pods. Texts that many objects share (jobs, groups, sets of tags, node names) are stored once.
#[derive(Debug, Default)]
pub struct View {
    /// In the order in which they were added. There are few tables: comparing types one by one is
    /// faster than hashing.
    tables: Vec<Held>,
    controller: ControllerState,
}

/// What the controller's Lease says.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ControllerState {
    /// A controller renews it.
    #[default]
    Leads,
    /// No controller has led yet, as in the first seconds after an installation.
    NotYet,
    /// No controller renews it any more.
    Stopped,
}

/// A table with its type.
#[derive(Debug)]
struct Held {
    id: TypeId,
    table: Box<dyn AnyTable>,
    /// Counts the changes of what the table shows.
    revision: u64,
    /// True if a watch has reported that the cluster does not serve the kind.
    is_unserved: bool,
}

impl Held {
    fn new(id: TypeId, table: Box<dyn AnyTable>) -> Self {
        Self { id, table, revision: 0, is_unserved: false }
    }

    fn forget(&mut self, name: &Name) {
        if !self.table.shows(name, None) {
            self.revision += 1;
        }
        self.table.forget(name);
    }
}

impl View {
    /// An empty View with these tables. Applying an object adds a missing table; until then
    /// [`Self::counts`] omits that table.
    #[must_use]
    pub fn with_tables(tables: &[TableType]) -> Self {
        let tables = tables.iter().map(|of| Held::new(of.id(), of.make()));
        Self { tables: tables.collect(), controller: ControllerState::default() }
    }

    /// Finds a table; `None`: it is empty.
    #[must_use]
    pub fn table<T: Table>(&self) -> Option<&T> {
        let held = self.tables.iter().find(|held| held.id == TypeId::of::<T>())?;
        let table: &dyn Any = &*held.table;
        table.downcast_ref()
    }

    /// Adds or replaces an object in every table of its kind.
    pub fn apply(&mut self, object: Object) {
        self.update(object);
    }

    /// Does what [`Self::apply`] does, and returns whether a table then shows something else than
    /// another version of the object.
    pub fn update(&mut self, object: Object) -> bool {
        let (name, facets) = object.into_facets();
        let mut has_changed = false;
        for facet in facets {
            let id = facet.table.id();
            let at = self.tables.iter().position(|held| held.id == id).unwrap_or_else(|| {
                self.tables.push(Held::new(id, facet.table.make()));
                self.tables.len() - 1
            });
            let held = &mut self.tables[at];
            if !facet.is_shown(&name, &*held.table) {
                held.revision += 1;
                has_changed = true;
            }
            facet.store(&name, &mut *held.table);
        }
        has_changed
    }

    /// Counts the changes of what the tables of these kinds show, except for the versions of objects.
    #[must_use]
    pub(crate) fn revision(&self, kinds: &[Resource]) -> u64 {
        let of_kinds = |held: &&Held| kinds.contains(&held.table.kind().resource);
        self.tables.iter().filter(of_kinds).map(|held| held.revision).sum()
    }

    /// Removes an object from all tables of its kind.
    pub fn forget(&mut self, resource: &Resource, name: &Name) {
        let of_kind = |held: &&mut Held| held.table.kind().resource == *resource;
        self.tables.iter_mut().filter(of_kind).for_each(|held| held.forget(name));
    }

    /// Removes an object from these tables, because it no longer matches what they read.
    pub fn forget_in<'t>(&mut self, tables: impl IntoIterator<Item = &'t TableType>, name: &Name) {
        for id in tables.into_iter().map(TableType::id) {
            let held = self.tables.iter_mut().find(|held| held.id == id);
            held.into_iter().for_each(|held| held.forget(name));
        }
    }

    /// Applies the object that the API server returned for one of stowplan's writes, so that the
    /// next plan contains it. Ignored if the object was deleted meanwhile, also if another one has
    /// its name by now, or a later version is known: no watch would correct that.
    pub fn learn(&mut self, object: Object) {
        let own = object.identity();
        let known = self.version(&object).filter(|known| known.uid == own.uid);
        if known.is_some_and(|known| !own.is_older_than(known)) {
            self.apply(object);
        }
    }

    /// Whether a later version of `object` is known already, so that a watch reports an outdated
    /// one.
    #[must_use]
    pub fn outdates(&self, object: &Object) -> bool {
        self.version(object).is_some_and(|known| object.identity().is_older_than(known))
    }

    /// The known version of `object`.
    fn version(&self, object: &Object) -> Option<&Identity> {
        object.tables().find_map(|of| {
            let held = self.tables.iter().find(|held| held.id == of.id())?;
            held.table.version(object.name())
        })
    }

    /// The number of objects of each table that metrics count, with the table's name in metrics.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.tables.iter().filter_map(|held| held.table.counted())
    }

    /// Records whether the cluster serves a kind; returns whether that has changed.
    pub fn set_served(&mut self, resource: &Resource, served: bool) -> bool {
        let of_kind = |held: &&mut Held| held.table.kind().resource == *resource;
        let mut has_changed = false;
        for held in self.tables.iter_mut().filter(of_kind) {
            if held.is_unserved == served {
                held.is_unserved = !served;
                held.revision += 1;
                has_changed = true;
            }
        }
        has_changed
    }

    /// Returns whether the cluster serves a kind. True until a watch reports otherwise.
    #[must_use]
    pub(crate) fn serves(&self, resource: &Resource) -> bool {
        let is_unserved = |held: &Held| held.is_unserved && held.table.kind().resource == *resource;
        !self.tables.iter().any(is_unserved)
    }

    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.table::<Nodes>()?.get(name)
    }

    /// The name of a node, as the View holds it; `None`: there is no such node.
    #[must_use]
    pub fn node_named(&self, name: &str) -> Option<&str> {
        self.table::<Nodes>()?.name_of(name)
    }

    /// Whether a node is known to the controller and Ready.
    pub(crate) fn is_node_ready(&self, name: &str) -> bool {
        let details = self.node(name).and_then(|node| node.details.as_ref());
        details.is_some_and(|details| details.ready)
    }

    /// Every node with its name.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.table::<Nodes>().into_iter().flat_map(Nodes::iter)
    }

    #[must_use]
    pub fn node_count(&self) -> usize {
        self.table::<Nodes>().map_or(0, Table::count)
    }

    /// The value of a node's label. `None`: the View does not know the label, as for most labels in
    /// a View for admission; `Some(None)`: the node does not have it.
    #[must_use]
    pub fn node_label(&self, node: &str, key: &str) -> Option<Option<&str>> {
        if let Some(details) = self.node(node).and_then(|node| node.details.as_ref()) {
            return Some(details.labels.get(key).map(AsRef::as_ref));
        }
        let name = Name::cluster_wide(node);
        let of_nodes = |held: &&Held| held.table.kind().resource == resource::NODE;
        self.tables.iter().filter(of_nodes).find_map(|held| held.table.label(&name, key))
    }

    /// The nodes whose Hostname or InternalDNS address is `name`, in any case (RFC 4343).
    pub fn nodes_with_host_name(&self, name: &str) -> impl Iterator<Item = &str> {
        self.table::<Nodes>().map(|nodes| nodes.with_host_name(name)).into_iter().flatten()
    }

    /// The nodes with this InternalIP or ExternalIP.
    pub fn nodes_with_address(&self, address: IpAddr) -> impl Iterator<Item = &str> {
        self.table::<Nodes>().into_iter().flat_map(move |nodes| nodes.with_address(address))
    }

    /// The resources that the pods on a node use; `None`: there are no pods. Only the controller's
    /// View keeps it.
    #[must_use]
    pub fn node_usage(&self, node: &str) -> Option<&NodeUsage> {
        self.table::<Usages>()?.index().of_node(node)
    }

    /// The labels of a namespace; `None`: the namespace is not known.
    #[must_use]
    pub fn namespace_labels(&self, name: &str) -> Option<&BTreeMap<Box<str>, Box<str>>> {
        Some(&self.table::<Namespaces>()?.get(&Name::cluster_wide(name))?.labels)
    }

    /// Returns whether a namespace has this annotation, which starts with `stowplan.dev/`.
    #[must_use]
    pub fn namespace_has_annotation(&self, name: &str, key: &str) -> bool {
        let namespaces = self.table::<Namespaces>();
        let marks = namespaces.and_then(|namespaces| namespaces.get(&Name::cluster_wide(name)));
        marks.is_some_and(|marks| marks.annotations.iter().any(|own| **own == *key))
    }

    /// The names of the known namespaces.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        let namespaces = self.table::<Namespaces>().into_iter();
        namespaces.flat_map(Namespaces::iter).map(|(name, _)| &*name.name)
    }

    /// Whether a controller is running to finish what admission leaves to it.
    #[must_use]
    pub fn controller_present(&self) -> bool {
        self.controller == ControllerState::Leads
    }

    /// What is known of the controller. It leads until [`Self::set_controller`] is called.
    #[must_use]
    pub fn controller(&self) -> ControllerState {
        self.controller
    }

    /// Records whether a controller is running, where nothing more is known.
    pub fn set_controller_present(&mut self, present: bool) {
        self.controller = if present { ControllerState::Leads } else { ControllerState::Stopped };
    }

    /// Records what is known of the controller.
    pub fn set_controller(&mut self, state: ControllerState) {
        self.controller = state;
    }
}

#[cfg(test)]
impl View {
    /// The number of objects in all tables.
    pub(crate) fn held(&self) -> usize {
        self.tables.iter().map(|held| held.table.count()).sum()
    }
}
