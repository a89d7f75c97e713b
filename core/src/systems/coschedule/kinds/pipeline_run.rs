//! Tekton PipelineRuns: the fields that their groups are derived from.
//!
//! All fields but `done` come from `metadata` and `spec`, which do not change while the run is
//! active. The status is often still missing when the first pods are created.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::pipeline::{self, Pipeline, PipelineSpec};
use super::storage::AccessModes;
use super::task::of_compute_resources;
use super::tekton::{self, ClaimSource, Mount, Status};
use super::variables::{Param, Params, Resolved};
use crate::kubernetes::annotation;
use crate::names::short_digest;
use crate::systems::coschedule::keys::{AUTO_CLEANUP, GROUP, MODE};
use crate::systems::coschedule::resources::PIPELINE_RUN;
use crate::view::document::{Foreign, ForeignRow, Lenient, List, Part, Text, part, problem};
use crate::view::index::Sets;
use crate::view::owner::Owner;
use crate::view::rows::{RowIndex, Rows, TableRow};
use crate::view::{Identity, Kind, Name, Resources, Scope};

/// The fields of a PipelineRun that decide how its pods and claims are placed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PipelineRun {
    pub identity: Identity,
    /// The PipelineRun that created it, for a pipeline in a pipeline.
    pub parent: Option<Owner>,
    /// The unparsed annotation [`MODE`].
    pub mode: Option<Box<str>>,
    /// The annotation [`GROUP`]. Tekton copies it to the run's pods, which then belong to that native
    /// group.
    pub group: Option<Box<str>>,
    pub done: bool,
    /// The reasons why Tekton makes nothing for it, as its author has written it.
    pub holds: Box<[Box<str>]>,
    /// Why the webhook refused one of its claims, if the run failed for that.
    pub refusal: Option<Box<str>>,
    /// In the order of the spec.
    pub workspaces: Box<[Workspace]>,
    pub pipeline: PipelineSource,
    /// The node selector of its pod template, without values that no param gives.
    pub node_selector: Selector,
    /// The claims that its pod template mounts into every pod, without those that no param names.
    pub mounted: Box<[Resolved]>,
    /// The tasks that have their own pod template or requests.
    pub task_overrides: Box<[TaskOverride]>,
    /// The pod template, without values that are not known yet. Only the controller keeps it.
    pub pod_template: Option<Box<Value>>,
    pub service_account: Option<Box<str>>,
    /// Whether Tekton deletes the run's claims when it has ended ([`AUTO_CLEANUP`]).
    pub auto_cleanup: bool,
    /// The first field that could not be read, and why.
    pub problem: Option<Box<str>>,
}

/// Labels with their values, sorted by key.
pub(crate) type Labels = Box<[(Box<str>, Box<str>)]>;

/// A node selector of a pod template, sorted by key.
pub(crate) type Selector = Box<[(Box<str>, Resolved)]>;

/// A workspace of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Workspace {
    /// Its name in the pipeline.
    pub name: Box<str>,
    pub source: WorkspaceSource,
}

/// The volume of a workspace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WorkspaceSource {
    /// A claim that Tekton creates for the run.
    Template(Template),
    /// An existing claim.
    Claim(Box<str>),
    /// A claim whose name has a variable, so that it is not known yet.
    Unresolved,
    /// Not a claim: an emptyDir, Secret, ConfigMap or the like, which every node can mount.
    Free,
}

/// A claim that Tekton creates for a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template {
    /// The claim's name, which Tekton derives ([`claim_name`]).
    pub claim: Box<str>,
    pub access_modes: AccessModes,
    /// Its storage class, if it names one.
    pub class: Option<Box<str>>,
    /// The template itself. Only the controller keeps it.
    pub document: Option<Box<Value>>,
}

/// A task with its own pod template, or its own requests.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct TaskOverride {
    /// The task's name in the pipeline.
    pub task: Box<str>,
    /// Replaces the run's node selector; `None`: it has none.
    pub node_selector: Option<Selector>,
    /// The claims that its pod template mounts; `None` without `volumes`.
    pub mounted: Option<Box<[Resolved]>>,
    /// The requests of all its steps together; `None`: each step has its own.
    pub requests: Option<Resources>,
}

/// Where the pipeline of a run comes from.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum PipelineSource {
    /// The run's own spec.
    Inline(Pipeline),
    /// A Pipeline of the run's namespace.
    Named(Box<str>),
    /// A resolver or a bundle: only Tekton can read it.
    Resolver,
    /// The run has no pipeline.
    #[default]
    Absent,
}

/// The spec of a run, as Tekton defines it in v1 and v1beta1.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
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
    pod_template: Part<PodTemplate>,
    task_pod_template: Part<PodTemplate>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodTemplate {
    node_selector: Option<Lenient<BTreeMap<Box<str>, Text>>>,
    volumes: Option<List<Mount>>,
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
    storage_class_name: Text,
}

/// The types of the fields of a run's spec.
static SPEC: LazyLock<Value> = LazyLock::new(|| {
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

impl ForeignRow for PipelineRun {
    fn read(metadata: &ObjectMeta, spec: Value, status: Value) -> Self {
        let status = part::<Status>(status).unwrap_or_default();
        let run = Self {
            identity: Identity::from(metadata),
            parent: Owner::of_tekton(metadata, "PipelineRun"),
            mode: annotation(metadata, MODE).map(Into::into),
            group: annotation(metadata, GROUP).map(Into::into),
            done: status.is_done(),
            refusal: status.refusal(),
            auto_cleanup: annotation(metadata, AUTO_CLEANUP) == Some("true"),
            problem: problem("spec", &spec, &SPEC),
            holds: find_holds(&spec),
            ..Self::default()
        };
        match part(spec) {
            Some(spec) => run.with_spec(spec),
            None => run,
        }
    }
}

/// The controller that manages a run which names no other.
const TEKTON: &str = "tekton.dev/pipeline";

/// Returns why Tekton makes nothing for a run with this spec.
fn find_holds(spec: &Value) -> Box<[Box<str>]> {
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
    fn with_spec(self, spec: Spec) -> Self {
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
        let of_run: Option<PodTemplate> = part(&template);
        let task_overrides = spec.task_run_specs.into_parts().filter_map(|of| of.read(&params));
        let task_overrides = task_overrides.collect();
        Self {
            workspaces,
            pipeline,
            service_account: account,
            node_selector: of_run.as_ref().and_then(|of| of.selector(&params)).unwrap_or_default(),
            mounted: of_run.as_ref().and_then(|of| of.mounted(&params)).unwrap_or_default(),
            pod_template: of_run.map(|_| Box::new(params.resolve_template(template))),
            task_overrides,
            ..self
        }
    }

    /// Drops the templates of pods and claims, which are large, and which admission does not need.
    fn without_templates(mut self) -> Self {
        for workspace in &mut self.workspaces {
            if let WorkspaceSource::Template(template) = &mut workspace.source {
                template.document = None;
            }
        }
        Self { pod_template: None, ..self }
    }

    /// Drops the fields that only an active run needs, because ended runs are kept for long. A child
    /// run keeps its claims: the groups of the run above are derived from them.
    #[must_use]
    pub(crate) fn without_pod_fields(mut self) -> Self {
        let is_root = self.parent.is_none();
        for workspace in &mut self.workspaces {
            match &mut workspace.source {
                source if is_root => *source = WorkspaceSource::Free,
                WorkspaceSource::Template(template) => template.document = None,
                _ => {}
            }
        }
        if matches!(self.pipeline, PipelineSource::Inline(_)) {
            self.pipeline = PipelineSource::Absent;
        }
        Self {
            node_selector: Box::default(),
            mounted: Box::default(),
            task_overrides: Box::default(),
            pod_template: None,
            service_account: None,
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
        let template = self.pod_template.0.or(self.task_pod_template.0);
        Some(TaskOverride {
            task: self.pipeline_task_name.filled()?.into(),
            node_selector: template.as_ref().and_then(|of| of.selector(params)),
            mounted: template.as_ref().and_then(|of| of.mounted(params)),
            requests: self.compute_resources.as_ref().map(of_compute_resources),
        })
    }
}

impl PodTemplate {
    /// Returns its node selector, without values that are not known yet.
    fn selector(&self, params: &Params<'_>) -> Option<Selector> {
        let labels = self.node_selector.as_ref()?.iter();
        let known = labels
            .filter_map(|(key, value)| Some((key.clone(), params.resolve(value.as_deref()?)?)));
        Some(known.collect())
    }

    /// Returns the claims that it mounts, except those whose names are not known yet.
    fn mounted(&self, params: &Params<'_>) -> Option<Box<[Resolved]>> {
        let claims = self.volumes.as_ref()?.parts().filter_map(Mount::claim);
        let claims = claims.filter(|claim| !claim.is_empty());
        Some(claims.filter_map(|claim| params.resolve(claim)).collect())
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
                    access_modes: AccessModes::read(modes),
                    class: spec.storage_class_name.filled().map(Into::into),
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

/// The name that Tekton gives the claim of a template: the template's name or `pvc`, and ten
/// characters of the digest of the workspace's name and the run's UID.
#[must_use]
pub fn claim_name(template: Option<&str>, workspace: &str, owner_uid: &str) -> String {
    let digest = short_digest(&[workspace, owner_uid].concat());
    format!("{}-{digest}", template.unwrap_or("pvc"))
}

static PIPELINE_RUNS: Kind = tekton::kind(PIPELINE_RUN);

/// The table of PipelineRuns.
pub(crate) type PipelineRuns = Rows<PipelineRun>;

/// Finds PipelineRuns by UIDs.
#[derive(Debug, Default)]
pub(crate) struct RunIndex {
    pub(super) by_uid: HashMap<Box<str>, Name>,
    /// The child runs of a run, by the UID of that run.
    pub(super) by_parent: Sets<Box<str>>,
}

impl RowIndex<PipelineRun> for RunIndex {
    fn add(&mut self, name: &Name, run: &PipelineRun) {
        if let Some(parent) = &run.parent {
            self.by_parent.add(parent.uid.clone(), name);
        }
        if !run.identity.uid.is_empty() {
            self.by_uid.insert(run.identity.uid.clone(), name.clone());
        }
    }

    fn remove(&mut self, name: &Name, run: PipelineRun) {
        if let Some(parent) = run.parent {
            self.by_parent.remove(parent.uid, name);
        }
        // Another run may have this UID by now.
        if self.by_uid.get(&run.identity.uid) == Some(name) {
            self.by_uid.remove(&run.identity.uid);
        }
    }
}

impl PipelineRuns {
    pub(super) fn with_uid(&self, uid: &str) -> Option<(&Name, &PipelineRun)> {
        self.get_key_value(self.index().by_uid.get(uid)?)
    }

    /// The names that `by_owner` has for the UID of a known run. Objects in another namespace are
    /// left out: an owner reference to another namespace is invalid.
    pub(super) fn owned<'v>(
        &'v self,
        by_owner: &'v Sets<Box<str>>,
        uid: &str,
    ) -> impl Iterator<Item = &'v Name> + use<'v> {
        let namespace = self.index().by_uid.get(uid).map(|run| &run.namespace);
        by_owner.get(uid).filter(move |name| Some(&name.namespace) == namespace)
    }

    /// The child runs of the run with this UID.
    pub(super) fn below(&self, uid: &str) -> impl Iterator<Item = (&Name, &PipelineRun)> {
        let names = self.owned(&self.index().by_parent, uid);
        names.filter_map(|name| self.get_key_value(name))
    }
}

impl TableRow for PipelineRun {
    type Object = Foreign<Self>;
    type Index = RunIndex;
    const KIND: &'static Kind = &PIPELINE_RUNS;
    const COUNTED_AS: Option<&'static str> = Some("pipelineruns");

    fn from_object(object: &Foreign<Self>, scope: Scope) -> Option<Self> {
        let run = &object.row;
        match scope {
            Scope::Admission => (!run.done).then(|| run.clone().without_templates()),
            Scope::Controller if run.done => Some(run.clone().without_pod_fields()),
            Scope::Controller | Scope::File => Some(run.clone()),
        }
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

#[cfg(test)]
mod tests;
