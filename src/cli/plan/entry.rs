//! The objects of the input, and what the cluster knows of them.

use std::collections::HashMap;

use serde_json::Value;

use crate::cli::input::{Document, Generator, Item, Problems, is_own};
use crate::cli::template;
use stowplan_core::admission::Decision;
use stowplan_core::systems::preview::PreviewedKind;
use stowplan_core::systems::{self, DIAGNOSTICS};
use stowplan_core::view::resource::{NODE, Resource};

/// An object of the input.
#[derive(Debug)]
pub(super) struct Entry<'d> {
    /// The index of its document.
    pub(super) document: usize,
    pub(super) item: Item<'d>,
    /// Its name, or one that the API server could generate. `None`: it has neither.
    pub(super) name: Option<String>,
    /// The object as it is written, if the controller writes its status, and the decision.
    pub(super) written: Option<(Value, Result<Decision, String>)>,
}

impl<'d> Entry<'d> {
    /// Returns true if the controller writes the status of such an object before pods can use it.
    pub(super) fn is_settled(&self) -> bool {
        is_own(&self.item.version, &self.item.kind)
    }

    /// Returns true if a system explains the decision on its pods by the state of the cluster.
    pub(super) fn is_explained(&self) -> bool {
        self.templates().iter().any(|pointer| {
            let annotations = self.item.value.pointer(&format!("{pointer}/metadata/annotations"));
            let Some(annotations) = annotations.and_then(Value::as_object) else { return false };
            systems::EXPLANATION.keys.iter().any(|key| annotations.contains_key(*key))
        })
    }

    /// The JSON pointers to the templates of the pods that are made for the object.
    pub(super) fn templates(&self) -> Vec<String> {
        match template::find_template(&self.item) {
            Some(pointer) => vec![pointer.to_owned()],
            None if self.read_by_decisions().is_some() => Vec::new(),
            None => template::find_templates(self.item.value),
        }
    }

    /// Finds keys of stowplan in an object of a kind that is neither Kubernetes' own nor known here.
    pub(super) fn find_keys(&self) -> Vec<String> {
        let group = self.item.group();
        let is_of_kubernetes = !group.contains('.') || group.ends_with(".k8s.io");
        match is_of_kubernetes || self.read_by_decisions().is_some() {
            true => Vec::new(),
            false => template::find_keys(self.item.value),
        }
    }

    /// The namespace that the object names; an empty one counts as absent.
    pub(super) fn namespace(&self) -> Option<&'d str> {
        let namespace = self.item.value.pointer("/metadata/namespace").and_then(Value::as_str);
        namespace.filter(|namespace| !namespace.is_empty())
    }

    /// The kind of the object, if decisions on the rest of the input may depend on such an object.
    /// Nodes and pods come from the cluster alone.
    pub(super) fn read_by_decisions(&self) -> Option<&'static Resource> {
        let mut resources = systems::TABLES.iter().map(|table| &table.kind().resource);
        let resource = resources.find(|resource| self.item.is_of(resource))?;
        (*resource != NODE && template::find_template(&self.item).is_none()).then_some(resource)
    }

    /// The kind of the object, if a system previews it.
    pub(super) fn previewed_kind(&self) -> Option<&'static PreviewedKind> {
        let mut kinds = DIAGNOSTICS.iter().flat_map(|system| system.previews);
        kinds.find(|kind| self.item.is_of(&kind.resource))
    }
}

/// Returns the objects of the input, with their names.
pub(super) fn read<'d>(
    documents: &'d [Document],
    names: &mut Generator,
    problems: &mut Problems,
) -> Vec<Entry<'d>> {
    let mut entries = Vec::new();
    for (document, of) in documents.iter().enumerate() {
        entries.extend(of.items(problems).into_iter().map(|item| {
            let name = names.name(item.value);
            Entry { document, item, name, written: None }
        }));
    }
    entries
}

/// The statuses of those objects of the cluster that the input has, too: by kind and name, then by
/// namespace. Null: the object has none.
#[derive(Debug)]
pub(super) struct Statuses(HashMap<(String, String), HashMap<String, Value>>);

impl Statuses {
    pub(super) fn new(entries: &[Entry<'_>]) -> Self {
        let named = entries.iter().filter_map(|Entry { item, name, .. }| {
            Some(((item.kind.clone(), name.clone()?), HashMap::new()))
        });
        Self(named.collect())
    }

    /// Keeps the status of an object of the cluster.
    pub(super) fn keep(&mut self, document: &Value) {
        let metadata = &document["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let namespace = metadata["namespace"].as_str().unwrap_or("default");
        if let Some(known) = self.0.get_mut(&(text(&document["kind"]), text(&metadata["name"]))) {
            known.insert(namespace.to_owned(), document["status"].clone());
        }
    }

    /// Finds the status of an object of the input.
    pub(super) fn find(&self, entry: &Entry<'_>, namespace: &str) -> Option<&Value> {
        let known = self.0.get(&(entry.item.kind.clone(), entry.name.clone()?))?;
        known.get(namespace).filter(|status| !status.is_null())
    }
}
