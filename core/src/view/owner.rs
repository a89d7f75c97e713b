//! The owner of an object, usually its controller.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::kubernetes::controller;

/// An object in the `ownerReferences` of another object.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Owner {
    /// The name; the namespace is that of the owned object.
    pub name: Box<str>,
    /// The UID; the name alone does not identify the owner.
    pub uid: Box<str>,
}

impl Owner {
    /// Finds the first owner that satisfies `wanted`.
    #[must_use]
    pub(crate) fn find(
        metadata: &ObjectMeta,
        wanted: impl Fn(&OwnerReference) -> bool,
    ) -> Option<Self> {
        metadata.owner_references.iter().flatten().find(|owner| wanted(owner)).map(Self::from)
    }

    /// Finds the controller of an object. Returns its kind and the owner.
    #[must_use]
    pub fn of_any(metadata: &ObjectMeta) -> Option<(Box<str>, Self)> {
        controller(metadata).map(|owner| (owner.kind.as_str().into(), owner.into()))
    }
}

impl From<&OwnerReference> for Owner {
    fn from(owner: &OwnerReference) -> Self {
        Self { name: owner.name.as_str().into(), uid: owner.uid.as_str().into() }
    }
}
