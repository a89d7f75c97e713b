//! Tekton's API group: its kinds, its objects as owners of others, and the status of runs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;

use crate::kubernetes::own_refusal;
use crate::view::document::items;
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

/// Returns the name of the claim of a workspace or of a volume, which may be empty.
pub(super) fn claim_of(mount: &Value) -> Option<&str> {
    mount["persistentVolumeClaim"]["claimName"].as_str()
}

/// Finds the condition `Succeeded` with this value in the status of a PipelineRun or of a TaskRun.
fn succeeded<'s>(status: &'s Value, value: &str) -> Option<&'s Value> {
    items(&status["conditions"]).find(|of| of["type"] == "Succeeded" && of["status"] == value)
}

/// Returns true if the run with this status has ended.
pub(super) fn is_done(status: &Value) -> bool {
    ["True", "False"].iter().any(|value| succeeded(status, value).is_some())
}

/// Returns the answer of stowplan's webhook for which the run with this status has failed.
pub(super) fn refusal(status: &Value) -> Option<Box<str>> {
    own_refusal(succeeded(status, "False")?["message"].as_str()?).map(Into::into)
}

/// Finds the condition of a run with this status that has not ended for this reason.
pub(super) fn waiting<'s>(status: &'s Value, reason: &str) -> Option<&'s Value> {
    succeeded(status, "Unknown").filter(|condition| condition["reason"] == reason)
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
