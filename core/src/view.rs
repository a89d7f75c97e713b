//! The parts of the View: the state of the cluster that decisions read, as projections of objects.
//!
//! A View has a table (`table::Table`) for each projection of a kind, with the fields that are kept of its
//! objects. The tables of nodes, namespaces and node usage are here; every other table belongs to a system,
//! and `systems::View` has them all. Look-ups use indices: a decision takes the same time in a cluster of
//! ten nodes and of ten thousand.

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

use std::fmt;
use std::sync::Arc;

pub use identity::Identity;
pub(crate) use namespace::Namespaces;
pub(crate) use node::Nodes;
pub use node::{Node, NodeDetails};
pub use owner::Owner;
pub(crate) use pod::{NodeUsage, Usages};
pub(crate) use resource::Resource;
pub(crate) use resources::Resources;
pub(crate) use table::Table;
pub use table::{Kind, Scope};

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

    /// Names a cluster-scoped object.
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
    /// Names the object of this kind and name.
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

/// The state of the controller by its Lease.
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
