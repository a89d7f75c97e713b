//! The spec of a PipelineRun, as Tekton defines it, and how it is read.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    PipelineRun, PipelineSource, PodTemplate, TaskOverride, Template, Workspace, WorkspaceSource,
    claim_name,
};
use crate::systems::coschedule::kinds::pipeline::{self, Pipeline, PipelineSpec};
use crate::systems::coschedule::kinds::storage::Access;
use crate::systems::coschedule::kinds::task::of_compute_resources;
use crate::systems::coschedule::kinds::tekton::{ClaimSource, Mount};
use crate::systems::coschedule::kinds::variables::{Param, Params};
use crate::view::document::{Lenient, List, Part, Text, part};

/// The spec of a run, as Tekton defines it in v1 and v1beta1.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec {
    params: List<Param>,
    pipeline_ref: Part<PipelineRef>,
    pipeline_spec: Part<PipelineSpec>,
    pod_template: Value,
    service_account_name: Text,
    task_run_specs: List<TaskRunSpec>,
    task_run_template: Part<TaskRunTemplate>,
    workspaces: List<Binding>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PipelineRef {
    bundle: Value,
    name: Text,
    resolver: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TaskRunTemplate {
    pod_template: Value,
    service_account_name: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TaskRunSpec {
    compute_resources: Option<Value>,
    pipeline_task_name: Text,
    pod_template: Value,
    task_pod_template: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TemplateFields {
    node_selector: Option<Lenient<BTreeMap<Box<str>, Text>>>,
    volumes: List<Mount>,
}

/// A workspace of a run, as Tekton defines it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Binding {
    name: Text,
    persistent_volume_claim: Part<ClaimSource>,
    volume_claim_template: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimTemplate {
    metadata: Part<ClaimMetadata>,
    spec: Part<ClaimSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimMetadata {
    name: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimSpec {
    access_modes: Lenient<Vec<Text>>,
}

/// The types of the fields of a run's spec.
pub(super) static SPEC: LazyLock<Value> = LazyLock::new(|| {
    let claim = json!({"claimName": ""});
    let template = json!({
        "nodeSelector": {"*": ""}, "volumes": [{"persistentVolumeClaim": claim}],
    });
    let claim_template = json!({
        "metadata": {"name": ""}, "spec": {"accessModes": [""], "storageClassName": ""},
    });
    json!({
        "params": [{}], "pipelineRef": {"name": ""}, "pipelineSpec": *pipeline::SPEC,
        "podTemplate": template, "serviceAccountName": "",
        "taskRunSpecs": [
            {"pipelineTaskName": "", "podTemplate": template, "taskPodTemplate": template},
        ],
        "taskRunTemplate": {"podTemplate": template, "serviceAccountName": ""},
        "workspaces": [{
            "name": "", "persistentVolumeClaim": claim, "volumeClaimTemplate": claim_template,
        }],
    })
});

/// The controller that manages a run which names no other.
const TEKTON: &str = "tekton.dev/pipeline";

/// Returns why Tekton makes nothing for a run with this spec.
pub(super) fn find_holds(spec: &Value) -> Box<[Box<str>]> {
    let text = |field: &str| spec.get(field).and_then(Value::as_str);
    let pending = text("status").filter(|status| *status == "PipelineRunPending").map(|status| {
        format!("it is pending: Tekton makes nothing for it while spec.status is {status}")
    });
    let other = text("managedBy").filter(|by| !by.is_empty() && *by != TEKTON).map(|by| {
        format!("{by} manages it (spec.managedBy): Tekton makes nothing for it in this cluster")
    });
    pending.into_iter().chain(other).map(Into::into).collect()
}

impl PipelineRun {
    /// Adds the fields of its spec.
    pub(super) fn with_spec(self, spec: Spec) -> Self {
        let params = Params::read(&spec.params);
        let uid = &self.identity.uid;
        let workspaces = spec.workspaces.into_parts().map(|of| of.read(uid, &params)).collect();
        let reference = spec.pipeline_ref.0;
        let pipeline = match (spec.pipeline_spec.0, reference) {
            (Some(inline), _) => PipelineSource::Inline(Pipeline::read(&inline)),
            (None, Some(reference)) => reference.source(),
            (None, None) => PipelineSource::Absent,
        };
        // v1 has these fields in `taskRunTemplate`, v1beta1 has them in `spec`.
        let (account, template) = match spec.task_run_template.0 {
            Some(of) => (of.service_account_name, of.pod_template),
            None => (spec.service_account_name, spec.pod_template),
        };
        let account = account.filled().and_then(|account| params.resolve_of_run(account));
        let task_overrides = spec.task_run_specs.into_parts().filter_map(|of| of.read(&params));
        let task_overrides = task_overrides.collect();
        Self {
            workspaces,
            pipeline,
            service_account: account,
            template: PodTemplate::read(template, &params),
            task_overrides,
            ..self
        }
    }
}

impl PipelineRef {
    fn source(self) -> PipelineSource {
        match self.name.filled() {
            Some(name) if self.resolver.is_null() && self.bundle.is_null() => {
                PipelineSource::Named(name.into())
            }
            _ => PipelineSource::Resolver,
        }
    }
}

impl TaskRunSpec {
    fn read(self, params: &Params<'_>) -> Option<TaskOverride> {
        let templates = [self.pod_template, self.task_pod_template];
        let template = templates.into_iter().find(Value::is_object).unwrap_or_default();
        Some(TaskOverride {
            task: self.pipeline_task_name.filled()?.into(),
            template: PodTemplate::read(template, params),
            requests: self.compute_resources.as_ref().map(of_compute_resources),
        })
    }
}

impl PodTemplate {
    /// Reads a template; a value of another type counts as an empty one.
    fn read(document: Value, params: &Params<'_>) -> Self {
        let Some(fields) = part::<TemplateFields>(&document) else { return Self::default() };
        let node_selector = fields.node_selector.as_ref().map(|labels| {
            let known = labels.iter();
            let known = known
                .filter_map(|(key, value)| Some((key.clone(), params.resolve(value.as_deref()?)?)));
            known.collect()
        });
        let claims = fields.volumes.parts().filter_map(Mount::claim);
        let claims = claims.filter(|claim| !claim.is_empty());
        Self {
            node_selector,
            mounted: claims.filter_map(|claim| params.resolve(claim)).collect(),
            document: Some(Box::new(params.resolve_template(document))),
        }
    }
}

impl Binding {
    fn read(self, run_uid: &str, params: &Params<'_>) -> Workspace {
        let name = self.name.filled().unwrap_or_default();
        let template: Option<ClaimTemplate> = part(&self.volume_claim_template);
        let claim = self.persistent_volume_claim.0.unwrap_or_default().claim_name;
        let source = match (template, claim.filled().map(|claim| params.resolve_of_run(claim))) {
            (Some(template), _) => {
                let metadata = template.metadata.0.unwrap_or_default();
                let spec = template.spec.0.unwrap_or_default();
                let modes = spec.access_modes.iter().filter_map(|mode| mode.as_deref());
                WorkspaceSource::Template(Template {
                    claim: claim_name(metadata.name.filled(), name, run_uid).into(),
                    access: Access::of_modes(modes),
                    document: Some(Box::new(self.volume_claim_template)),
                })
            }
            (None, Some(None)) => WorkspaceSource::Unresolved,
            (None, Some(Some(claim))) if !claim.is_empty() => WorkspaceSource::Claim(claim),
            (None, _) => WorkspaceSource::Free,
        };
        Workspace { name: name.into(), source }
    }
}
