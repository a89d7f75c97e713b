//! Tekton's API group: its kinds, and its objects as owners of others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::view::table::Definition;
use crate::view::{Kind, Owner, Resource};

/// The API group of Tekton's objects, in all versions.
pub(crate) const GROUP: &str = "tekton.dev";

/// The start of a variable that Tekton replaces during the run.
pub(crate) const VARIABLE: &str = "$(";

/// The kind of a Tekton resource.
pub(super) const fn kind(resource: Resource) -> Kind {
    Kind {
        definition: Definition::Foreign,
        versions: &["v1", "v1beta1"],
        without: Some("pods of Tekton's runs are reported as if their runs did not exist"),
        ..Kind::built_in(resource)
    }
}

impl Owner {
    /// The controller of an object, if it is a Tekton object of this kind.
    #[must_use]
    pub(crate) fn of_tekton(metadata: &ObjectMeta, kind: &str) -> Option<Self> {
        Self::find(metadata, |owner| {
            owner.controller == Some(true) && owner.kind == kind && is_tekton(&owner.api_version)
        })
    }

    /// The run of a claim that was created for a placeholder. The run owns the claim, but is not its
    /// controller.
    #[must_use]
    pub(crate) fn of_placeholders_claim(metadata: &ObjectMeta) -> Option<Self> {
        let is_run = |owner: &OwnerReference| owner.kind == "PipelineRun";
        Self::find(metadata, |owner| is_run(owner) && is_tekton(&owner.api_version))
    }
}

/// Whether an `apiVersion` has Tekton's API group.
#[must_use]
pub(crate) fn is_tekton(version: &str) -> bool {
    version.split_once('/').is_some_and(|(group, _)| group == GROUP)
}
