//! Objects that were read for a View, before they are stored in its tables.

use std::any::{Any, TypeId};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::{AnyTable, ApiObject, Kind, Row, Scope, Table, TableType};
use crate::view::{Identity, Name, Resource};

/// An object that was read for a View: one row for each table of its kind.
#[derive(Debug)]
pub struct Object {
    kind: &'static Kind,
    name: Name,
    identity: Identity,
    facets: Vec<Facet>,
}

/// The row of one table; `None`: the table does not keep the object.
#[derive(Debug)]
pub(in crate::view) struct Facet {
    pub(in crate::view) table: TableType,
    row: Option<Row>,
}

impl Object {
    /// Reads an object for those of `tables` that read its type. `None`: no table keeps it, or it
    /// has no name, which never comes from an API server.
    pub fn read<'t, K: ApiObject>(
        tables: impl IntoIterator<Item = &'t TableType>,
        object: &K,
        scope: Scope,
    ) -> Option<Self> {
        let tables = tables.into_iter().filter(|table| (table.object)() == TypeId::of::<K>());
        let tables: Vec<TableType> = tables.copied().collect();
        let name = tables.first()?.kind.name(object.meta())?;
        Self::of(name, object.meta().into(), tables, |table| (table.read)(object, scope))
    }

    /// Reads an object that does not decode. `problem` is the error.
    pub fn unreadable<'t>(
        tables: impl IntoIterator<Item = &'t TableType>,
        metadata: &ObjectMeta,
        problem: &str,
    ) -> Option<Self> {
        let tables: Vec<TableType> = tables.into_iter().copied().collect();
        let name = tables.first()?.kind.name(metadata)?;
        Self::of(name, metadata.into(), tables, |table| (table.unreadable)(metadata, problem))
    }

    /// Reads the document of an object according to its `apiVersion` and `kind`. `Ok(None)`: no
    /// table keeps it.
    ///
    /// # Errors
    /// If the document is not a valid object of its kind, or has no name.
    pub fn from_document(
        tables: &'static [TableType],
        document: Value,
        scope: Scope,
    ) -> Result<Option<Self>, String> {
        let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
        let (version, named) = (text("apiVersion"), text("kind"));
        let of_kind = tables.iter().filter(|table| table.kind.is_named(version, named));
        let of_kind: Vec<TableType> = of_kind.copied().collect();
        let Some(first) = of_kind.first().copied() else { return Ok(None) };
        let kind = first.kind.resource.kind;
        let decoded =
            (first.decode)(document).map_err(|error| format!("not a valid {kind}: {error}"))?;
        let name = decoded.name.ok_or_else(|| format!("a {kind} without metadata.name"))?;
        let read = |table: &TableType| (table.read)(&*decoded.object, scope);
        Ok(Self::of(name, decoded.identity, of_kind, read))
    }

    fn of(
        name: Name,
        identity: Identity,
        tables: Vec<TableType>,
        read: impl Fn(&TableType) -> Option<Row>,
    ) -> Option<Self> {
        let kind = tables.first()?.kind;
        let facets = tables.into_iter().map(|table| Facet { row: read(&table), table });
        let facets: Vec<Facet> = facets.collect();
        facets.iter().any(|facet| facet.row.is_some()).then_some(Self {
            kind,
            name,
            identity,
            facets,
        })
    }

    #[must_use]
    pub fn resource(&self) -> &'static Resource {
        &self.kind.resource
    }

    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The row of the table `T`, if it keeps the object.
    #[must_use]
    pub fn row<T: Table>(&self) -> Option<&T::Row> {
        let facet = self.facets.iter().find(|facet| facet.table.id() == TypeId::of::<T>())?;
        facet.row.as_ref()?.downcast_ref()
    }

    /// The version of the object.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(in crate::view) fn tables(&self) -> impl Iterator<Item = &TableType> {
        self.facets.iter().map(|facet| &facet.table)
    }

    pub(in crate::view) fn into_facets(self) -> (Name, Vec<Facet>) {
        (self.name, self.facets)
    }
}

impl Facet {
    /// Whether `table` shows this row of `name` already ([`Table::shows`]).
    pub(in crate::view) fn is_shown(&self, name: &Name, table: &dyn AnyTable) -> bool {
        table.shows(name, self.row.as_deref().map(|row| -> &dyn Any { row }))
    }

    /// Replaces the row of `name` in `table`.
    pub(in crate::view) fn store(self, name: &Name, table: &mut dyn AnyTable) {
        table.forget(name);
        if let Some(row) = self.row {
            table.put(name.clone(), row);
        }
    }
}
