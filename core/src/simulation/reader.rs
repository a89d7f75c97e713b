//! A reader of the API server: a View, and how far its watches have come.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::store::{Change, Document, Id, Store};
use crate::systems::{TABLES, View};
use crate::view::{Name, Scope};

#[derive(Debug)]
pub(crate) struct Reader {
    /// The View, once it was needed.
    view: OnceLock<View>,
    scope: Scope,
    /// The documents that the View is made of.
    known: BTreeMap<Id, Arc<Document>>,
    /// How many changes of each kind were delivered. Kinds are watched apart, so that the order of changes
    /// of two kinds may be another one here.
    seen: BTreeMap<Arc<str>, usize>,
}

impl Reader {
    pub(crate) fn new(scope: Scope) -> Self {
        Self { view: OnceLock::new(), scope, known: BTreeMap::new(), seen: BTreeMap::new() }
    }

    pub(super) fn view(&self) -> &View {
        self.view.get_or_init(|| {
            let mut view = View::default();
            let objects = self.known.values().filter_map(|document| document.read(self.scope));
            objects.for_each(|object| view.apply(object));
            view
        })
    }

    fn view_mut(&mut self) -> &mut View {
        self.view();
        self.view.get_mut().expect("it was made")
    }

    /// Returns the View, and gives up all else.
    pub(super) fn into_view(mut self) -> View {
        self.view();
        self.view.take().expect("it was made")
    }

    /// The kinds with changes that this reader has not seen.
    pub(super) fn unseen<'s>(&'s self, store: &'s Store) -> impl Iterator<Item = &'s Arc<str>> {
        let unseen = store.changes().iter().filter(|(kind, all)| self.count(kind) < all.len());
        unseen.map(|(kind, _)| kind)
    }

    fn count(&self, kind: &str) -> usize {
        self.seen.get(kind).copied().unwrap_or_default()
    }

    /// Delivers the next change of a kind.
    pub(super) fn deliver(&mut self, store: &Store, kind: &Arc<str>) {
        let next = self.count(kind);
        if let Some(change) = store.changes().get(kind).and_then(|all| all.get(next)) {
            self.seen.insert(Arc::clone(kind), next + 1);
            self.see(change);
        }
    }

    /// Delivers all changes. Returns whether there was one.
    pub(super) fn catch_up(&mut self, store: &Store) -> bool {
        let mut has_changed = false;
        for (kind, changes) in store.changes() {
            for change in changes.iter().skip(self.count(kind)) {
                has_changed = true;
                self.see(change);
            }
            self.seen.insert(Arc::clone(kind), changes.len());
        }
        has_changed
    }

    fn see(&mut self, change: &Change) {
        match &change.object {
            Some(document) => self.show(document),
            None => self.forget(&change.id),
        }
    }

    /// Reads a document for the View, unless it knows a later version. One that no table keeps is removed.
    pub(super) fn show(&mut self, document: &Arc<Document>) {
        match document.read(self.scope) {
            Some(object) if self.view().outdates(&object) => {}
            Some(object) => {
                self.known.insert(Id::of(document), Arc::clone(document));
                self.view_mut().apply(object);
            }
            None => self.forget(&Id::of(document)),
        }
    }

    /// Learns the answer to a write.
    pub(super) fn learn(&mut self, document: &Arc<Document>) {
        if let Some(object) = document.read(self.scope)
            && self.view_mut().learn(object)
        {
            self.known.insert(Id::of(document), Arc::clone(document));
        }
    }

    pub(super) fn forget(&mut self, id: &Id) {
        self.known.remove(id);
        let mut resources = TABLES.iter().map(|table| &table.kind().resource);
        if let Some(resource) = resources.find(|resource| *resource.kind == *id.kind) {
            self.view_mut().forget(resource, &Name::new(&id.namespace, &id.name));
        }
    }
}

impl Clone for Reader {
    /// Copies what it knows. The copy makes its View when it needs it: a View cannot be cloned.
    fn clone(&self) -> Self {
        Self {
            view: OnceLock::new(),
            scope: self.scope,
            known: self.known.clone(),
            seen: self.seen.clone(),
        }
    }
}

#[cfg(test)]
impl Reader {
    /// A reader that has listed all objects, and seen no other version of them.
    pub(crate) fn of(store: &Store, scope: Scope) -> Self {
        let seen = store.changes().iter().map(|(kind, all)| (Arc::clone(kind), all.len()));
        Self { known: store.documents().clone(), seen: seen.collect(), ..Self::new(scope) }
    }

    /// Lists the objects of a kind again, as a watch does whose place is lost. Changes before are not delivered.
    /// Returns the objects that are known and not listed: a watch forgets them when it has the whole list.
    pub(crate) fn relist(&mut self, store: &Store, kind: &Arc<str>) -> Vec<Id> {
        let count = store.changes().get(kind).map_or(0, Vec::len);
        self.seen.insert(Arc::clone(kind), count);
        let present = store.documents().iter().filter(|(id, _)| id.kind == *kind);
        present.for_each(|(_, document)| self.show(document));
        let is_gone = |id: &&Id| id.kind == *kind && store.get(id).is_none();
        self.known.keys().filter(is_gone).cloned().collect()
    }

    /// The documents that the View is made of.
    pub(crate) fn known(&self) -> &BTreeMap<Id, Arc<Document>> {
        &self.known
    }

    /// The changes that this reader has not seen, kind by kind.
    pub(crate) fn missed<'s>(&'s self, store: &'s Store) -> impl Iterator<Item = &'s Change> {
        store.changes().iter().flat_map(|(kind, all)| &all[self.count(kind)..])
    }
}
