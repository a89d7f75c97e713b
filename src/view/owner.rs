//! Who made an object: its managing controller.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// The API group of Tekton's objects, in whatever version.
const TEKTON: &str = "tekton.dev/";

/// The controller that an object's `ownerReferences` name.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Owner {
    /// Its name, in the namespace of what it owns.
    pub name: Box<str>,
    /// Its UID: what alone says that it is this one.
    pub uid: Box<str>,
}

impl Owner {
    /// The controller of an object, if it is one of Tekton's of this kind.
    #[must_use]
    pub fn of_tekton(metadata: &ObjectMeta, kind: &str) -> Option<Self> {
        Self::find(metadata, |owner| {
            owner.controller == Some(true) && owner.kind == kind && is_of_tekton(&owner.api_version)
        })
    }

    /// The run of a claim that a placeholder has made: an owner of the claim, and not its controller,
    /// since the StatefulSet controller sees to it.
    #[must_use]
    pub fn of_placeholders_claim(metadata: &ObjectMeta) -> Option<Self> {
        let is_run = |owner: &OwnerReference| owner.kind == "PipelineRun";
        Self::find(metadata, |owner| is_run(owner) && is_of_tekton(&owner.api_version))
    }

    fn find(metadata: &ObjectMeta, wanted: impl Fn(&OwnerReference) -> bool) -> Option<Self> {
        let owner = metadata.owner_references.iter().flatten().find(|owner| wanted(owner))?;
        Some(Self { name: owner.name.as_str().into(), uid: owner.uid.as_str().into() })
    }

    /// The controller of an object, whatever it is, with its kind.
    #[must_use]
    pub fn of_any(metadata: &ObjectMeta) -> Option<(Box<str>, Self)> {
        let mut owners = metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true))?;
        let found = Self { name: owner.name.as_str().into(), uid: owner.uid.as_str().into() };
        Some((owner.kind.as_str().into(), found))
    }
}

/// Whether an `apiVersion` is of Tekton's API group.
#[must_use]
pub fn is_of_tekton(version: &str) -> bool {
    version.starts_with(TEKTON)
}
