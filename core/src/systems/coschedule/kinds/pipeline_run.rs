//! Tekton PipelineRuns: the fields that their groups are derived from.
//!
//! All fields but `done` come from `metadata` and `spec`, which do not change while the run is
//! active. The status is often still missing when the first pods are created.

use std::collections::HashMap;
use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::pipeline::{self, Pipeline};
use super::storage::Access;
use super::task::of_compute_resources;
use super::tekton::{self, claim_of};
use super::variables::{Params, Resolved};
use crate::kubernetes::annotation;
use crate::names::short_digest;
use crate::systems::coschedule::keys::{AUTO_CLEANUP, GROUP, MODE};
use crate::systems::coschedule::resources::PIPELINE_RUN;
use crate::view::document::{Foreign, ForeignRow, filled, items, objects, problem};
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
    /// The reason why the webhook refused one of its claims, if the run failed for that.
    pub refusal: Option<Box<str>>,
    /// In the order of the spec.
    pub workspaces: Box<[Workspace]>,
    pub pipeline: PipelineSource,
    /// The pod template of all its tasks.
    pub template: PodTemplate,
    /// The tasks that have their own pod template or requests.
    pub task_overrides: Box<[TaskOverride]>,
    pub service_account: Option<Box<str>>,
    /// True if Tekton deletes the run's claims when it has ended ([`AUTO_CLEANUP`]).
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

impl Workspace {
    /// Returns the claim that Tekton creates for it.
    pub(crate) fn template(&self) -> Option<&Template> {
        match &self.source {
            WorkspaceSource::Template(template) => Some(template),
            _ => None,
        }
    }

    /// Returns the name of its claim, if that is known.
    pub(crate) fn claim(&self) -> Option<&str> {
        match &self.source {
            WorkspaceSource::Template(template) => Some(&template.claim),
            WorkspaceSource::Claim(claim) => Some(claim),
            WorkspaceSource::Unresolved | WorkspaceSource::Free => None,
        }
    }
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
    pub access: Access,
    /// The template itself. Only the controller keeps it.
    pub document: Option<Box<Value>>,
}

/// A pod template of a run, or of a task in it, without what no param gives.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct PodTemplate {
    /// Its node selector; `None`: it has none.
    pub node_selector: Option<Selector>,
    /// The claims that it mounts into every pod.
    pub mounted: Box<[Resolved]>,
    /// The template itself. Only the controller keeps it.
    pub document: Option<Box<Value>>,
}

/// A task with its own pod template, or its own requests.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct TaskOverride {
    /// The task's name in the pipeline.
    pub task: Box<str>,
    /// Its own pod template, whose fields replace those of the run's.
    pub template: PodTemplate,
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

impl ForeignRow for PipelineRun {
    fn read(metadata: &ObjectMeta, spec: Value, status: Value) -> Self {
        let run = Self {
            identity: Identity::from(metadata),
            parent: Owner::of_tekton(metadata, "PipelineRun"),
            mode: annotation(metadata, MODE).map(Into::into),
            group: annotation(metadata, GROUP).map(Into::into),
            done: tekton::is_done(&status),
            refusal: tekton::refusal(&status),
            auto_cleanup: annotation(metadata, AUTO_CLEANUP) == Some("true"),
            problem: problem("spec", &spec, &SPEC),
            holds: find_holds(&spec),
            ..Self::default()
        };
        run.with_spec(&spec)
    }
}

impl PipelineRun {
    /// Drops the templates of pods and claims, which are large, and which admission does not need.
    fn without_templates(mut self) -> Self {
        for workspace in &mut self.workspaces {
            if let WorkspaceSource::Template(template) = &mut workspace.source {
                template.document = None;
            }
        }
        self.template.document = None;
        self.task_overrides.iter_mut().for_each(|of| of.template.document = None);
        self
    }

    /// Drops the fields that only an active run needs, because ended runs are kept for long. A child
    /// run keeps its claims: the groups of the run above are derived from them.
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
            template: PodTemplate::default(),
            task_overrides: Box::default(),
            service_account: None,
            ..self
        }
    }
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
    /// Adds the fields of its spec.
    fn with_spec(self, spec: &Value) -> Self {
        let params = Params::read(&spec["params"]);
        let uid = &self.identity.uid;
        let workspaces = objects(&spec["workspaces"]);
        let workspaces = workspaces.map(|of| Workspace::read(of, uid, &params)).collect();
        let pipeline = match (&spec["pipelineSpec"], &spec["pipelineRef"]) {
            (inline @ Value::Object(_), _) => PipelineSource::Inline(Pipeline::read(inline)),
            (_, reference @ Value::Object(_)) => PipelineSource::read(reference),
            _ => PipelineSource::Absent,
        };
        // v1 has these fields in `taskRunTemplate`, v1beta1 has them in `spec`.
        let of_tasks = Some(&spec["taskRunTemplate"]).filter(|of| of.is_object()).unwrap_or(spec);
        let account = filled(&of_tasks["serviceAccountName"]);
        let task_overrides = objects(&spec["taskRunSpecs"]);
        Self {
            workspaces,
            pipeline,
            service_account: account.and_then(|account| params.resolve_of_run(account)),
            template: PodTemplate::read(&of_tasks["podTemplate"], &params),
            task_overrides: task_overrides
                .filter_map(|of| TaskOverride::read(of, &params))
                .collect(),
            ..self
        }
    }
}

impl PipelineSource {
    fn read(reference: &Value) -> Self {
        match filled(&reference["name"]) {
            Some(name) if reference["resolver"].is_null() && reference["bundle"].is_null() => {
                Self::Named(name.into())
            }
            _ => Self::Resolver,
        }
    }
}

impl TaskOverride {
    fn read(of: &Value, params: &Params<'_>) -> Option<Self> {
        let mut templates = ["podTemplate", "taskPodTemplate"].iter().map(|key| &of[key]);
        let template = templates.find(|template| template.is_object()).unwrap_or(&Value::Null);
        let requests = &of["computeResources"];
        Some(Self {
            task: filled(&of["pipelineTaskName"])?.into(),
            template: PodTemplate::read(template, params),
            requests: (!requests.is_null()).then(|| of_compute_resources(requests)),
        })
    }
}

impl PodTemplate {
    /// Reads a template; a value of another type counts as an empty one.
    fn read(document: &Value, params: &Params<'_>) -> Self {
        if !document.is_object() {
            return Self::default();
        }
        let labels = &document["nodeSelector"];
        let node_selector = (!labels.is_null()).then(|| {
            let labels = labels.as_object().into_iter().flatten();
            let known = |(key, value): (&String, &Value)| {
                Some((key.as_str().into(), params.resolve(value.as_str()?)?))
            };
            labels.filter_map(known).collect()
        });
        let claims = items(&document["volumes"]).filter_map(claim_of);
        let claims = claims.filter(|claim| !claim.is_empty());
        Self {
            node_selector,
            mounted: claims.filter_map(|claim| params.resolve(claim)).collect(),
            document: Some(Box::new(params.resolve_template(document.clone()))),
        }
    }
}

impl Workspace {
    fn read(of: &Value, run_uid: &str, params: &Params<'_>) -> Self {
        let name = filled(&of["name"]).unwrap_or_default();
        let template = &of["volumeClaimTemplate"];
        let claim = claim_of(of).filter(|claim| !claim.is_empty());
        let source = match claim.map(|claim| params.resolve_of_run(claim)) {
            _ if template.is_object() => {
                let modes = items(&template["spec"]["accessModes"]).filter_map(Value::as_str);
                let template_name = filled(&template["metadata"]["name"]);
                WorkspaceSource::Template(Template {
                    claim: claim_name(template_name, name, run_uid).into(),
                    access: Access::of_modes(modes),
                    document: Some(Box::new(template.clone())),
                })
            }
            Some(None) => WorkspaceSource::Unresolved,
            Some(Some(claim)) if !claim.is_empty() => WorkspaceSource::Claim(claim),
            _ => WorkspaceSource::Free,
        };
        Self { name: name.into(), source }
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
pub(crate) type PipelineRuns = Rows<PipelineRun, RunIndex>;

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
}

impl TableRow for PipelineRun {
    type Object = Foreign<Self>;
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
