//! The modes of namespaces.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use crate::kubernetes::annotation;
use crate::systems::coschedule::keys::MODE;
use crate::view::namespace::NAMESPACES;
use crate::view::{Kind, Name, Scope, Table};

/// The table of namespaces with the annotation [`MODE`], which it keeps unparsed.
#[derive(Debug, Default)]
pub(crate) struct NamespaceModes(pub(super) HashMap<Arc<str>, Box<str>>);

impl Table for NamespaceModes {
    type Object = core::Namespace;
    type Row = Box<str>;
    const KIND: &'static Kind = &NAMESPACES;
    const COUNTED_AS: Option<&'static str> = None;

    fn read(namespace: &core::Namespace, _: Scope) -> Option<Box<str>> {
        annotation(&namespace.metadata, MODE).map(Into::into)
    }

    fn put(&mut self, name: Name, mode: Box<str>) {
        self.0.insert(name.name, mode);
    }

    fn forget(&mut self, name: &Name) {
        self.0.remove(&name.name);
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}
