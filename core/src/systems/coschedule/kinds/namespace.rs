//! The modes of namespaces.

use k8s_openapi::api::core::v1 as core;

use crate::kubernetes::annotation;
use crate::systems::coschedule::keys::MODE;
use crate::view::namespace::NAMESPACES;
use crate::view::rows::{Rows, TableRow};
use crate::view::{Kind, Scope};

/// The unparsed annotation [`MODE`] of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamespaceMode(pub(super) Box<str>);

/// The table of namespaces with the annotation.
pub(crate) type NamespaceModes = Rows<NamespaceMode>;

impl TableRow for NamespaceMode {
    type Object = core::Namespace;
    const KIND: &'static Kind = &NAMESPACES;

    fn from_object(namespace: &core::Namespace, _: Scope) -> Option<Self> {
        annotation(&namespace.metadata, MODE).map(|mode| Self(mode.into()))
    }
}
