//! The labels and annotations of namespaces.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;

use super::resource::NAMESPACE;
use super::rows::{Rows, TableRow};
use super::table::{Kind, Scope};
use crate::kubernetes::kept_texts;

pub(crate) const NAMESPACES: Kind =
    Kind { without: Some("the labels of namespaces are not known"), ..Kind::built_in(NAMESPACE) };

/// The prefix of the annotations that are kept.
const PREFIX: &str = "stowplan.dev/";

/// The fields of a namespace that are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Marks {
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// The keys of its annotations that start with `stowplan.dev/`.
    pub annotations: Box<[Box<str>]>,
}

/// The namespaces of a View.
pub(crate) type Namespaces = Rows<Marks>;

impl TableRow for Marks {
    type Object = core::Namespace;
    const KIND: &'static Kind = &NAMESPACES;
    const COUNTED_AS: Option<&'static str> = Some("namespaces");

    fn from_object(namespace: &core::Namespace, _: Scope) -> Option<Self> {
        let keys = namespace.metadata.annotations.iter().flatten().map(|(key, _)| key.as_str());
        let own = keys.filter(|key| key.starts_with(PREFIX)).map(Into::into);
        Some(Self {
            labels: kept_texts(namespace.metadata.labels.as_ref()),
            annotations: own.collect(),
        })
    }
}
