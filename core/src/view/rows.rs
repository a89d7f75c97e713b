//! [`TableRow`]: what a table keeps of an object. [`Rows`]: a table with one row for each object, and an index
//! of the rows, as most tables are.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::index::Sets;
use super::table::{Kind, Scope, Table, Watch, all_of_kind};
use super::{Identity, Name};

/// The fields that a table keeps of one object: how they are read, and from which objects.
pub(crate) trait TableRow: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// The type of the objects.
    type Object;
    /// The kind of the objects.
    const KIND: &'static Kind;
    /// The value of the label `kind` in metrics; `None`: metrics do not count the table.
    const COUNTED_AS: Option<&'static str> = None;
    /// The scopes in which all objects of the kind are watched.
    const WATCHED_IN: &'static [Scope] = Scope::ALL;

    /// The watches that feed the table.
    #[must_use]
    fn watches(scope: Scope) -> Vec<Watch> {
        all_of_kind(Self::KIND, Self::WATCHED_IN, scope)
    }

    /// Reads an object; `None`: the table does not keep it.
    fn from_object(object: &Self::Object, scope: Scope) -> Option<Self>;

    /// Reads an object that does not decode; `None`: the table does not keep it.
    #[must_use]
    fn from_unreadable(_metadata: &ObjectMeta, _problem: &str) -> Option<Self> {
        None
    }

    /// The version of the object; `None`: versions are not compared.
    #[must_use]
    fn identity(&self) -> Option<&Identity> {
        None
    }
}

/// An index of the rows of a table.
pub(crate) trait RowIndex<R>: Debug + Default + Send + Sync + 'static {
    /// Called after a row was added to the table.
    fn add(&mut self, name: &Name, row: &R);

    /// Called after a row was removed from the table.
    fn remove(&mut self, name: &Name, row: R);
}

/// A row that a table finds by a key, beside its name.
pub(crate) trait GroupedRow: TableRow {
    /// The type of the key.
    type Key: Clone + Debug + Eq + Hash + Send + Sync + 'static;

    /// The key; `None` if the row is only found by its name.
    fn key(&self, name: &Name) -> Option<Self::Key>;
}

impl<R: GroupedRow> RowIndex<R> for Sets<R::Key> {
    fn add(&mut self, name: &Name, row: &R) {
        if let Some(key) = row.key(name) {
            Self::add(self, key, name);
        }
    }

    fn remove(&mut self, name: &Name, row: R) {
        if let Some(key) = row.key(name) {
            Self::remove(self, key, name);
        }
    }
}

impl<R> RowIndex<R> for () {
    fn add(&mut self, _: &Name, _: &R) {}

    fn remove(&mut self, _: &Name, _: R) {}
}

/// A table of rows by the names of their objects. `I` finds rows by other values; `()` if there are none.
#[derive(Debug)]
pub(crate) struct Rows<R, I = ()> {
    rows: HashMap<Name, R>,
    index: I,
}

impl<R, I: Default> Default for Rows<R, I> {
    fn default() -> Self {
        Self { rows: HashMap::new(), index: I::default() }
    }
}

impl<R, I> Rows<R, I> {
    #[must_use]
    pub(crate) fn get(&self, name: &Name) -> Option<&R> {
        self.rows.get(name)
    }

    /// The row of this name, with the name as the table keeps it.
    #[must_use]
    pub(crate) fn get_key_value(&self, name: &Name) -> Option<(&Name, &R)> {
        self.rows.get_key_value(name)
    }

    /// All rows, unordered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &R)> {
        self.rows.iter()
    }

    #[must_use]
    pub(crate) fn index(&self) -> &I {
        &self.index
    }
}

impl<R: TableRow, I: RowIndex<R>> Table for Rows<R, I> {
    type Row = R;

    fn put(&mut self, name: Name, row: R) {
        self.index.add(&name, &row);
        self.rows.insert(name, row);
    }

    fn forget(&mut self, name: &Name) {
        if let Some(row) = self.rows.remove(name) {
            self.index.remove(name, row);
        }
    }

    fn count(&self) -> usize {
        self.rows.len()
    }

    fn shows(&self, name: &Name, row: Option<&R>) -> bool {
        self.rows.get(name) == row
    }

    fn version(&self, name: &Name) -> Option<&Identity> {
        self.rows.get(name)?.identity()
    }
}
