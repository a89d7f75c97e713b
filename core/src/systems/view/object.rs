//! Objects that were read for a View, before they are stored in its tables.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::{Projected, Row, TABLES, TableType};
use crate::view::{Identity, Kind, Name, Resource, Scope};

/// An object that was read for a View.
#[derive(Clone, Debug)]
pub struct Object {
    pub(super) kind: &'static Kind,
    pub(super) name: Name,
    identity: Identity,
    /// A row for each table of its kind; `None`: the table does not keep the object.
    pub(super) facets: Vec<(TableType, Option<Row>)>,
}

impl Object {
    /// Reads an object that does not decode. `problem` is the error.
    #[must_use]
    pub fn unreadable(tables: &[TableType], metadata: &ObjectMeta, problem: &str) -> Option<Self> {
        Self::of(metadata, tables, |table| Some(table.unreadable(metadata, problem)))
    }

    /// Reads the document of an object according to its `apiVersion` and `kind`. `Ok(None)`: no
    /// table keeps it.
    ///
    /// # Errors
    /// If the document is not a valid object of its kind, or has no name.
    pub fn from_document(document: Value, scope: Scope) -> Result<Option<Self>, String> {
        let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let table = TABLES.iter().find(|table| table.kind().is_named(version, kind));
        table.map_or(Ok(None), |table| table.decode(document, scope))
    }

    /// Reads an object for those of `tables` for which `read` returns something: the row, or `None` if the
    /// table does not keep the object.
    pub(super) fn of(
        metadata: &ObjectMeta,
        tables: &[TableType],
        read: impl Fn(TableType) -> Option<Option<Row>>,
    ) -> Option<Self> {
        let facets = tables.iter().filter_map(|table| Some((*table, read(*table)?)));
        let facets: Vec<(TableType, Option<Row>)> = facets.collect();
        let kind = facets.iter().find(|(_, row)| row.is_some())?.0.kind();
        Some(Self { kind, name: kind.name(metadata)?, identity: metadata.into(), facets })
    }

    /// The kind of the object.
    #[must_use]
    pub fn resource(&self) -> &'static Resource {
        &self.kind.resource
    }

    /// The name of the object.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The version of the object.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// Reads a document of this type and kind for all tables.
pub(super) fn decode<K: Projected>(
    kind: &Kind,
    document: Value,
    scope: Scope,
) -> Result<Option<Object>, String> {
    let named = kind.resource.kind;
    let object = serde_json::from_value::<K>(document);
    let object = object.map_err(|error| format!("not a valid {named}: {error}"))?;
    if object.meta().name.is_none() {
        return Err(format!("a {named} without metadata.name"));
    }
    Ok(object.project(TABLES, scope))
}
