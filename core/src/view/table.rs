//! The tables of a View. Each keeps some fields of the objects of one kind.
//!
//! A kind is one resource of the API server, and several tables may read it. What a table keeps of an object
//! is its [`TableRow`]; how it stores the rows is its [`Table`].

use std::borrow::Cow;
use std::fmt::Debug;
use std::hash::Hash;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::discovery::ApiResource;

use super::rows::TableRow;
use super::{Identity, Name, Resource};

/// The purpose of a View, which determines the objects and fields that it keeps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// The fields that the admission of pods and claims needs, from a cluster.
    Admission,
    /// Also the details that the controller needs.
    Controller,
    /// The fields that admission needs, from files; finished objects are kept, too.
    File,
}

impl Scope {
    pub(crate) const ALL: &'static [Self] = &[Self::Admission, Self::Controller, Self::File];
}

/// The origin of a kind's definition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Definition {
    /// Every cluster serves it.
    BuiltIn,
    /// A CustomResourceDefinition in stowplan's chart. An object that does not decode, for example
    /// because a newer release wrote it, is kept with the error.
    Own,
    /// A CustomResourceDefinition of another project. The cluster may not serve it, may serve it
    /// later, and may serve any of several versions.
    Foreign,
}

/// A kind of objects that a View reads.
#[derive(Debug)]
pub struct Kind {
    pub resource: Resource,
    pub definition: Definition,
    /// The versions that can be read, the preferred one first; empty: that of the resource.
    pub versions: &'static [&'static str],
    /// The warning of a command whose user may not list the kind; `None`: that is an error.
    pub without: Option<&'static str>,
    /// The warning of a command if the cluster does not serve the kind; `None`: there is no
    /// warning.
    pub unserved: Option<&'static str>,
    /// True if a decision in one namespace needs the objects of other namespaces.
    pub across_namespaces: bool,
    /// True if commands do not list the kind: nothing that they say depends on it, and most of their
    /// users may not list it.
    pub is_for_controller: bool,
}

impl Kind {
    /// A kind that every cluster serves.
    #[must_use]
    pub const fn built_in(resource: Resource) -> Self {
        Self {
            resource,
            definition: Definition::BuiltIn,
            versions: &[],
            without: None,
            unserved: None,
            across_namespaces: false,
            is_for_controller: false,
        }
    }

    /// Returns true if an object with this `apiVersion` and `kind` is of this kind.
    pub(crate) fn is_named(&self, version: &str, kind: &str) -> bool {
        if self.resource.kind != kind {
            return false;
        }
        match self.definition {
            // Objects of unknown, newer versions are read as far as possible.
            Definition::Foreign => {
                version.split_once('/').is_some_and(|(group, _)| group == self.resource.group)
            }
            _ => self.resource.api_version() == version,
        }
    }

    /// The kind in each version that can be read, the preferred one first.
    pub fn api_resources(&self) -> impl Iterator<Item = ApiResource> {
        let own = std::slice::from_ref(&self.resource.version);
        let versions = if self.versions.is_empty() { own } else { self.versions };
        versions.iter().map(|version| Resource { version, ..self.resource }.api_resource())
    }

    /// The name of an object of this kind; `None`: it has no `metadata.name`. A namespaced object
    /// without a namespace is in `default`, as with kubectl.
    #[must_use]
    pub fn name(&self, metadata: &ObjectMeta) -> Option<Name> {
        let namespace = match self.resource.namespaced {
            true => metadata.namespace.as_deref().unwrap_or("default"),
            false => "",
        };
        Some(Name::new(namespace, metadata.name.as_deref()?))
    }
}

/// A watch that feeds tables. Tables of one kind with the same `store` share it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Watch {
    /// The name in logs and metrics.
    pub store: &'static str,
    /// The label selector of the objects; empty: all objects.
    pub selector: Cow<'static, str>,
}

/// Returns the watch of all objects of a kind in these scopes, and none in others.
pub(crate) fn all_of_kind(kind: &Kind, scopes: &[Scope], scope: Scope) -> Vec<Watch> {
    let all = Watch { store: kind.resource.plural, selector: "".into() };
    if scopes.contains(&scope) { vec![all] } else { Vec::new() }
}

/// The dynamic part of an object type that a client needs for requests.
pub trait ApiType: Clone + Debug + Eq + Hash + Send + Sync + 'static {
    /// The dynamic type of this resource.
    fn of(resource: &ApiResource) -> Self;
}

impl ApiType for () {
    fn of(_: &ApiResource) -> Self {}
}

impl ApiType for ApiResource {
    fn of(resource: &ApiResource) -> Self {
        resource.clone()
    }
}

/// The fields that a View keeps of the objects of a kind, by name.
pub(crate) trait Table: Debug + Default {
    /// The fields that are kept of one object.
    type Row: TableRow;

    /// Adds an object. The table must not contain the name.
    fn put(&mut self, name: Name, row: Self::Row);

    /// Removes an object, if it is in the table.
    fn forget(&mut self, name: &Name);

    /// The number of objects in the table.
    fn count(&self) -> usize;

    /// Returns true if the table has this row for the name already, or no row if there is none, except
    /// for the version of the object: then nothing that depends on the table has changed.
    fn shows(&self, name: &Name, row: Option<&Self::Row>) -> bool;

    /// The version of an object in the table, if known.
    fn version(&self, _name: &Name) -> Option<&Identity> {
        None
    }

    /// Replaces the row of a name, or removes it. Returns true if the table then shows something else than
    /// another version of the object.
    fn replace(&mut self, name: &Name, row: Option<Self::Row>) -> bool {
        let has_changed = !self.shows(name, row.as_ref());
        self.forget(name);
        if let Some(row) = row {
            self.put(name.clone(), row);
        }
        has_changed
    }
}
