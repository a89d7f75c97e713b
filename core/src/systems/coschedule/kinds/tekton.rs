//! Tekton's API group: its kinds, and its objects as owners of others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;

use crate::kubernetes::own_refusal;
use crate::view::document::{List, Part, Text};
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

/// The claim of a workspace or of a volume.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClaimSource {
    pub(super) claim_name: Text,
}

/// A volume of a pod template, or a workspace of a TaskRun.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Mount {
    pub(super) persistent_volume_claim: Part<ClaimSource>,
}

impl Mount {
    /// Returns the name of its claim, which may be empty.
    pub(super) fn claim(&self) -> Option<&str> {
        self.persistent_volume_claim.0.as_ref()?.claim_name.as_deref()
    }
}

/// The status of a PipelineRun or of a TaskRun.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    conditions: List<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Condition {
    pub(super) last_transition_time: Text,
    message: Text,
    reason: Text,
    status: Text,
    #[serde(rename = "type")]
    type_: Text,
}

impl Status {
    /// Finds the condition `Succeeded` with this status.
    fn succeeded(&self, status: &str) -> Option<&Condition> {
        self.conditions.parts().find(|condition| {
            condition.type_.as_deref() == Some("Succeeded")
                && condition.status.as_deref() == Some(status)
        })
    }

    /// Returns whether the run has ended.
    pub(super) fn is_done(&self) -> bool {
        ["True", "False"].iter().any(|status| self.succeeded(status).is_some())
    }

    /// Returns the answer of stowplan's webhook for which the run has failed.
    pub(super) fn refusal(&self) -> Option<Box<str>> {
        own_refusal(self.succeeded("False")?.message.as_deref()?).map(Into::into)
    }

    /// Finds the condition of a run that has not ended for this reason.
    pub(super) fn waiting(&self, reason: &str) -> Option<&Condition> {
        self.succeeded("Unknown").filter(|condition| condition.reason.as_deref() == Some(reason))
    }
}

impl Owner {
    /// The controller of an object, if it is a Tekton object of this kind.
    pub(crate) fn of_tekton(metadata: &ObjectMeta, kind: &str) -> Option<Self> {
        Self::find(metadata, |owner| {
            owner.controller == Some(true) && owner.kind == kind && is_tekton(&owner.api_version)
        })
    }

    /// The run of a claim that was created for a placeholder. The run owns the claim, but is not its
    /// controller.
    pub(crate) fn of_placeholders_claim(metadata: &ObjectMeta) -> Option<Self> {
        let is_run = |owner: &OwnerReference| owner.kind == "PipelineRun";
        Self::find(metadata, |owner| is_run(owner) && is_tekton(&owner.api_version))
    }
}

/// Returns true if an `apiVersion` has Tekton's API group.
pub(crate) fn is_tekton(version: &str) -> bool {
    version.split_once('/').is_some_and(|(group, _)| group == GROUP)
}
