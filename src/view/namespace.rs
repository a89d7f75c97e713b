//! The labels of namespaces.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use super::Name;
use super::resource::NAMESPACE;
use super::table::{Kind, Scope, Table};

pub(crate) const NAMESPACES: Kind =
    Kind { without: Some("the labels of namespaces are not known"), ..Kind::built_in(NAMESPACE) };

/// Labels by key.
type Labels = BTreeMap<Box<str>, Box<str>>;

/// The labels of the namespaces of a View.
#[derive(Debug, Default)]
pub(crate) struct Namespaces(HashMap<Arc<str>, Labels>);

impl Namespaces {
    /// The labels of a namespace; `None`: the namespace is not known.
    #[must_use]
    pub(crate) fn labels(&self, name: &str) -> Option<&Labels> {
        self.0.get(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(AsRef::as_ref)
    }
}

impl Table for Namespaces {
    type Object = core::Namespace;
    type Row = Labels;
    const KIND: &'static Kind = &NAMESPACES;
    const COUNTED_AS: Option<&'static str> = Some("namespaces");

    fn read(namespace: &core::Namespace, _: Scope) -> Option<Labels> {
        let labels = namespace.metadata.labels.iter().flatten();
        Some(labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect())
    }

    fn put(&mut self, name: Name, labels: Labels) {
        self.0.insert(name.name, labels);
    }

    fn forget(&mut self, name: &Name) {
        self.0.remove(&name.name);
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}
