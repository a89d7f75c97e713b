//! Tekton PipelineRuns: the fields that their groups are derived from.
//!
//! All fields but `done` come from `metadata` and `spec`, which do not change while the run is
//! active. The status is often still missing when the first pods are created.

mod spec;

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::pipeline::Pipeline;
use super::storage::Access;
use super::tekton::{self, Status};
use super::variables::Resolved;
use crate::kubernetes::annotation;
use crate::names::short_digest;
use crate::systems::coschedule::keys::{AUTO_CLEANUP, GROUP, MODE};
use crate::systems::coschedule::resources::PIPELINE_RUN;
use crate::view::document::{Foreign, ForeignRow, part, problem};
use crate::view::index::Sets;
use crate::view::owner::Owner;
use crate::view::rows::{RowIndex, Rows, TableRow};
use crate::view::{Identity, Kind, Name, Resources, Scope};
use spec::{SPEC, find_holds};

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
