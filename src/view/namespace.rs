//! The labels and annotations of namespaces.

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

/// The prefix of the annotations that are kept.
const PREFIX: &str = "stowplan.dev/";

/// The fields of a namespace that are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Marks {
    labels: Labels,
    /// The keys of its annotations that start with `stowplan.dev/`.
    annotations: Box<[Box<str>]>,
}

/// The namespaces of a View.
#[derive(Debug, Default)]
pub(crate) struct Namespaces(HashMap<Arc<str>, Marks>);

impl Namespaces {
    /// The labels of a namespace; `None`: the namespace is not known.
    #[must_use]
    pub(crate) fn labels(&self, name: &str) -> Option<&Labels> {
        Some(&self.0.get(name)?.labels)
    }

    /// Returns whether a namespace has this annotation, which starts with `stowplan.dev/`.
    #[must_use]
    pub(crate) fn has_annotation(&self, name: &str, key: &str) -> bool {
        self.0.get(name).is_some_and(|marks| marks.annotations.iter().any(|own| **own == *key))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(AsRef::as_ref)
    }
}

impl Table for Namespaces {
    type Object = core::Namespace;
    type Row = Marks;
    const KIND: &'static Kind = &NAMESPACES;
    const COUNTED_AS: Option<&'static str> = Some("namespaces");

    fn read(namespace: &core::Namespace, _: Scope) -> Option<Marks> {
        let labels = namespace.metadata.labels.iter().flatten();
        let labels = labels.map(|(key, value)| (key.as_str().into(), value.as_str().into()));
        let annotations = namespace.metadata.annotations.iter().flatten();
        let annotations = annotations.map(|(key, _)| key.as_str());
        let own = annotations.filter(|key| key.starts_with(PREFIX)).map(Into::into);
        Some(Marks { labels: labels.collect(), annotations: own.collect() })
    }

    fn put(&mut self, name: Name, marks: Marks) {
        self.0.insert(name.name, marks);
    }

    fn forget(&mut self, name: &Name) {
        self.0.remove(&name.name);
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn shows(&self, name: &Name, marks: Option<&Marks>) -> bool {
        self.0.get(&name.name) == marks
    }
}
