//! Indices of a View, and texts that many objects share.

use std::borrow::Borrow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use super::Name;

/// Sorted node names by key, nearly always one. Keys without names are removed.
#[derive(Debug)]
pub(crate) struct Index<K>(HashMap<K, Vec<Arc<str>>>);

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> Index<K> {
    pub(crate) fn add(&mut self, keys: impl IntoIterator<Item = K>, name: &Arc<str>) {
        for key in keys {
            let names = self.0.entry(key).or_insert_with(|| Vec::with_capacity(1));
            if let Err(at) = names.binary_search(name) {
                names.insert(at, Arc::clone(name));
            }
        }
    }

    pub(crate) fn remove(&mut self, keys: impl IntoIterator<Item = K>, name: &str) {
        for key in keys {
            let Entry::Occupied(mut entry) = self.0.entry(key) else { continue };
            entry.get_mut().retain(|present| **present != *name);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }

    pub(crate) fn get<'s, Q>(&'s self, key: &Q) -> impl Iterator<Item = &'s str> + use<'s, K, Q>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.0.get(key).into_iter().flatten().map(AsRef::as_ref)
    }
}

/// Texts that many objects share, each stored once.
#[derive(Debug, Default)]
pub(crate) struct Texts(HashSet<Arc<str>>);

impl Texts {
    pub(crate) fn hold(&mut self, text: &str) -> Arc<str> {
        if let Some(held) = self.0.get(text) {
            return Arc::clone(held);
        }
        let held: Arc<str> = text.into();
        self.0.insert(Arc::clone(&held));
        held
    }

    pub(crate) fn release(&mut self, text: Option<Arc<str>>) {
        // Two references, the set's and this one: no object uses the text any more.
        if let Some(text) = text.filter(|text| Arc::strong_count(text) == 2) {
            self.0.remove(&text);
        }
    }
}

/// Sorted names of namespaced objects by key. Keys without names are removed.
#[derive(Debug)]
pub(crate) struct Sets<K>(HashMap<K, BTreeSet<Name>>);

impl<K> Default for Sets<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> Sets<K> {
    pub(crate) fn add(&mut self, key: K, name: &Name) {
        self.0.entry(key).or_default().insert(name.clone());
    }

    /// The keys that have names, unordered.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    pub(crate) fn remove(&mut self, key: K, name: &Name) {
        let Entry::Occupied(mut entry) = self.0.entry(key) else { return };
        entry.get_mut().remove(name);
        if entry.get().is_empty() {
            entry.remove();
        }
    }

    pub(crate) fn get<'s, Q>(&'s self, key: &Q) -> impl Iterator<Item = &'s Name> + use<'s, K, Q>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.0.get(key).into_iter().flatten()
    }
}

/// For tests of what is left after the last object.
#[cfg(test)]
mod tests {
    use super::Sets;

    impl<K> Sets<K> {
        pub(crate) fn is_empty(&self) -> bool {
            self.0.is_empty()
        }
    }
}
