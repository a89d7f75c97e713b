//! Tekton PipelineRuns: the fields that their groups are derived from.
//!
//! All fields but `done` come from `metadata` and `spec`, which do not change while the run is
//! active. The status is often still missing when the first pods are created.

pub(super) mod shape;

use std::collections::HashMap;

use serde_json::Value;

use super::pipeline::Pipeline;
use super::storage::AccessModes;
use super::task::of_compute_resources;
use super::tekton;
use super::variables::{Params, Resolved};
use crate::kubernetes::{annotation, own_refusal};
use crate::names::short_digest;
use crate::systems::coschedule::keys::{AUTO_CLEANUP, GROUP, MODE};
use crate::systems::coschedule::resources::PIPELINE_RUN;
use crate::view::document::{Document, Field, Foreign, Part, Reader, Shaped};
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
    /// Why the webhook refused one of its claims, if the run failed for that ([`refusal`]).
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

impl Shaped for PipelineRun {
    const FIELDS: &'static [Field] = &[("spec", shape::SPEC), ("status", shape::STATUS)];
}

impl PipelineRun {
    /// Reads a PipelineRun of any API version. The templates of pods and claims are kept except for
    /// admission.
    #[must_use]
    pub(crate) fn read(object: &Foreign<Self>, scope: Scope) -> Self {
        let Foreign { metadata, document, .. } = object;
        let mut run = Self {
            identity: Identity::from(metadata),
            parent: Owner::of_tekton(metadata, "PipelineRun"),
            mode: annotation(metadata, MODE).map(Into::into),
            group: annotation(metadata, GROUP).map(Into::into),
            done: is_done(document),
            refusal: refusal(document),
            auto_cleanup: annotation(metadata, AUTO_CLEANUP) == Some("true"),
            ..Self::default()
        };
        let mut reader = Reader::default();
        let document = reader.whole(document);
        if let Some(spec) = document.and_then(|document| reader.part(&document, "spec")) {
            run.read_spec(&mut reader, &spec, scope);
        }
        run.problem = reader.problem();
        run
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

    fn read_spec(&mut self, reader: &mut Reader, spec: &Part<'_>, scope: Scope) {
        let params = Params::read(reader, spec);
        let workspaces = reader.parts(spec, "workspaces");
        self.workspaces = workspaces
            .iter()
            .map(|workspace| {
                let name = reader.text(workspace, "name").unwrap_or_default();
                let source = self.workspace_source(reader, workspace, name, &params, scope);
                Workspace { name: name.into(), source }
            })
            .collect();
        self.pipeline = if let Some(inline) = reader.part(spec, "pipelineSpec") {
            PipelineSource::Inline(Pipeline::read(reader, &inline))
        } else if let Some(reference) = reader.part(spec, "pipelineRef") {
            match reader.text(&reference, "name") {
                Some(name) if !reference.has("resolver") && !reference.has("bundle") => {
                    PipelineSource::Named(name.into())
                }
                _ => PipelineSource::Resolver,
            }
        } else {
            PipelineSource::Absent
        };
        // v1 has these fields in `taskRunTemplate`, v1beta1 has them in `spec`.
        let template = reader.part(spec, "taskRunTemplate");
        let parent = template.as_ref().unwrap_or(spec);
        let account = reader.text(parent, "serviceAccountName");
        self.service_account = account.and_then(|account| params.resolve_of_run(account));
        if let Some(template) = reader.part(parent, "podTemplate") {
            self.node_selector = selector(reader, &template, &params);
            self.mounted = mounted_claims(reader, &template, &params);
            let value = parent.value("podTemplate").filter(|_| keeps_templates(scope));
            let value = value.map(|value| Box::new(params.resolve_template(value.into())));
            self.pod_template = value;
        }
        let overrides = reader.parts(spec, "taskRunSpecs");
        self.task_overrides = overrides
            .iter()
            .filter_map(|of_task| {
                let name = reader.text(of_task, "pipelineTaskName")?;
                let template = reader.part(of_task, "podTemplate");
                let template = template.or_else(|| reader.part(of_task, "taskPodTemplate"));
                let having = |key: &str| template.as_ref().filter(|template| template.has(key));
                let resources = of_task.value("computeResources");
                Some(TaskOverride {
                    task: name.into(),
                    node_selector: having("nodeSelector").map(|of| selector(reader, of, &params)),
                    mounted: having("volumes").map(|of| mounted_claims(reader, of, &params)),
                    requests: resources.map(of_compute_resources),
                })
            })
            .collect();
    }

    fn workspace_source(
        &self,
        reader: &mut Reader,
        workspace: &Part<'_>,
        name: &str,
        params: &Params<'_>,
        scope: Scope,
    ) -> WorkspaceSource {
        if let Some(template) = reader.part(workspace, "volumeClaimTemplate") {
            let metadata = reader.part(&template, "metadata");
            let named = metadata.and_then(|metadata| reader.text(&metadata, "name"));
            let spec = reader.part(&template, "spec");
            let modes = spec.as_ref().map(|spec| reader.texts(spec, "accessModes"));
            let class = spec.as_ref().and_then(|spec| reader.text(spec, "storageClassName"));
            let document = workspace.value("volumeClaimTemplate");
            let document = document.filter(|_| keeps_templates(scope));
            return WorkspaceSource::Template(Template {
                claim: claim_name(named, name, &self.identity.uid).into(),
                access_modes: AccessModes::read(modes.unwrap_or_default()),
                class: class.map(Into::into),
                document: document.map(|document| Box::new(document.into())),
            });
        }
        let claim = reader.part(workspace, "persistentVolumeClaim");
        let claim = claim.and_then(|claim| reader.text(&claim, "claimName"));
        match claim.map(|claim| params.resolve_of_run(claim)) {
            Some(None) => WorkspaceSource::Unresolved,
            Some(Some(claim)) if !claim.is_empty() => WorkspaceSource::Claim(claim),
            _ => WorkspaceSource::Free,
        }
    }
}

/// Whether templates of pods and claims are kept: they are large, and admission does not need them.
fn keeps_templates(scope: Scope) -> bool {
    scope != Scope::Admission
}

/// The name that Tekton gives the claim of a template: the template's name or `pvc`, and ten
/// characters of the digest of the workspace's name and the run's UID.
#[must_use]
pub fn claim_name(template: Option<&str>, workspace: &str, owner_uid: &str) -> String {
    let digest = short_digest(&[workspace, owner_uid].concat());
    format!("{}-{digest}", template.unwrap_or("pvc"))
}

/// Whether a run has ended: its condition `Succeeded` is `True` or `False`.
pub(crate) fn is_done(document: &Document) -> bool {
    document.at(&["status", "conditions"]).items().iter().any(|condition| {
        condition.at(&["type"]).as_str() == Some("Succeeded")
            && matches!(condition.at(&["status"]).as_str(), Some("True" | "False"))
    })
}

/// The answer of stowplan's webhook for which a run or a TaskRun has failed.
pub(crate) fn refusal(document: &Document) -> Option<Box<str>> {
    let mut conditions = document.at(&["status", "conditions"]).items().iter();
    let failed = conditions.find(|condition| {
        let is = |key: &str, value: &str| condition.at(&[key]).as_str() == Some(value);
        is("type", "Succeeded") && is("status", "False")
    })?;
    own_refusal(failed.at(&["message"]).as_str()?).map(Into::into)
}

fn selector(reader: &mut Reader, template: &Part<'_>, params: &Params<'_>) -> Selector {
    let mut labels: Vec<(Box<str>, Resolved)> = reader
        .map(template, "nodeSelector")
        .into_iter()
        .filter_map(|(key, value)| Some((key.into(), params.resolve(value)?)))
        .collect();
    labels.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    labels.into()
}

/// The claims that a pod template mounts, except those whose names are not known yet.
fn mounted_claims(
    reader: &mut Reader,
    template: &Part<'_>,
    params: &Params<'_>,
) -> Box<[Resolved]> {
    let volumes = reader.parts(template, "volumes");
    let claims = volumes.iter().filter_map(|volume| {
        let claim = reader.part(volume, "persistentVolumeClaim")?;
        params.resolve(reader.text(&claim, "claimName")?)
    });
    claims.collect()
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
        let run = Self::read(object, scope);
        match scope {
            Scope::Admission => (!run.done).then_some(run),
            Scope::Controller if run.done => Some(run.without_pod_fields()),
            Scope::Controller | Scope::File => Some(run),
        }
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}

#[cfg(test)]
mod tests;
