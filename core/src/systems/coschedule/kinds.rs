//! The kinds of objects that coscheduling reads: for each the fields that are kept, and its table; and the
//! queries that decisions make to these tables.

pub(crate) mod member;
pub(crate) mod mounts;
pub(crate) mod pipeline;
pub mod pipeline_run;
pub(crate) mod placeholder;
pub(crate) mod storage;
pub(crate) mod task;
pub(crate) mod task_run;
pub(crate) mod tekton;
pub(crate) mod unschedulable;
pub(crate) mod variables;

use k8s_openapi::api::core::v1 as core;

use super::keys::MODE;
use super::resources::TASK_RUN;
use crate::kubernetes::annotation;
use crate::systems::View;
use crate::view::namespace::NAMESPACES;
use crate::view::rows::{Rows, TableRow};
use crate::view::{Kind, Name, Scope};
pub(crate) use member::{Member, MemberDetails};
pub(crate) use mounts::{Mounted, MountedClaim, Waiting};
pub(crate) use pipeline::{NamedPipeline, Pipeline, PipelineTask};
pub(crate) use pipeline_run::{
    Labels, PipelineRun, PipelineSource, Selector, Template, Workspace, WorkspaceSource,
};
pub(crate) use placeholder::{FIRST, Placeholder, PlaceholderDetails, PlaceholderPod, pod_of};
pub(crate) use storage::{Access, Claim, StorageClass, Volume};
pub(crate) use task::Task;
pub(crate) use task_run::TaskRun;
pub(crate) use unschedulable::Unschedulable;

/// The unparsed annotation [`MODE`] of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamespaceMode(Box<str>);

/// The table of namespaces with the annotation.
pub(crate) type NamespaceModes = Rows<NamespaceMode>;

impl TableRow for NamespaceMode {
    type Object = core::Namespace;
    const KIND: &'static Kind = &NAMESPACES;

    fn from_object(namespace: &core::Namespace, _: Scope) -> Option<Self> {
        annotation(&namespace.metadata, MODE).map(|mode| Self(mode.into()))
    }
}

/// The rows with these names, each with its name as the table keeps it.
fn rows_of<'v, R, I>(
    rows: &'v Rows<R, I>,
    names: impl Iterator<Item = &'v Name>,
) -> impl Iterator<Item = (&'v Name, &'v R)> {
    names.filter_map(|name| rows.get_key_value(name))
}

/// The queries of coscheduling to a View. An object is found once its watch has delivered it.
impl View {
    pub(super) fn task_run(&self, name: &Name) -> Option<&TaskRun> {
        self.task_runs.get(name)
    }

    /// The runs with a TaskRun that Tekton's own affinity assistant places.
    pub(super) fn assisted_runs(&self) -> impl Iterator<Item = &PipelineRun> {
        self.task_runs.index().assisted.keys().filter_map(|of| {
            let (name, run) = self.run_by_uid(&of.name)?;
            (name.namespace == of.namespace).then_some(run)
        })
    }

    /// The active TaskRuns that a quota refuses a pod, sorted by name.
    pub(super) fn refused_task_runs(&self) -> impl Iterator<Item = (&Name, &TaskRun)> {
        rows_of(&self.task_runs, self.task_runs.index().refused.iter())
    }

    /// Returns true if Tekton's own affinity assistant places a TaskRun of the PipelineRun with this UID.
    pub(super) fn is_assisted(&self, namespace: &str, uid: &str) -> bool {
        self.task_runs.index().assisted.get(&Name::new(namespace, uid)).next().is_some()
    }

    /// The TaskRuns of the PipelineRun with this UID, active and ended ones, sorted by name.
    pub(super) fn task_runs_of_run(
        &self,
        namespace: &str,
        uid: &str,
    ) -> impl Iterator<Item = &TaskRun> {
        let names = self.task_runs.index().by_run.get(&Name::new(namespace, uid));
        names.filter_map(|name| self.task_runs.get(name))
    }

    /// A Task. Not for admission.
    pub(super) fn task(&self, name: &Name) -> Option<&Task> {
        self.tasks.get(name)
    }

    /// Returns true if the cluster serves Tekton's kinds. True until a watch reports otherwise.
    pub(super) fn has_tekton(&self) -> bool {
        self.serves(&TASK_RUN)
    }

    pub(super) fn pipeline_run(&self, name: &Name) -> Option<&PipelineRun> {
        self.pipeline_runs.get(name)
    }

    /// The PipelineRun with this UID.
    pub(super) fn run_by_uid(&self, uid: &str) -> Option<(&Name, &PipelineRun)> {
        self.pipeline_runs.get_key_value(self.pipeline_runs.index().by_uid.get(uid)?)
    }

    /// All PipelineRuns, unordered.
    pub(super) fn pipeline_runs(&self) -> impl Iterator<Item = (&Name, &PipelineRun)> {
        self.pipeline_runs.iter()
    }

    /// The child runs of the PipelineRun with this UID, sorted by name.
    pub(super) fn runs_below(&self, uid: &str) -> impl Iterator<Item = (&Name, &PipelineRun)> {
        let runs = &self.pipeline_runs;
        rows_of(runs, runs.owned(&runs.index().by_parent, uid))
    }

    pub(super) fn pipeline(&self, name: &Name) -> Option<&NamedPipeline> {
        self.pipelines.get(name)
    }

    pub(super) fn claim(&self, name: &Name) -> Option<&Claim> {
        self.claims.get(name)
    }

    /// The claims that the PipelineRun with this UID owns, sorted by name.
    pub(super) fn claims_of_run(&self, uid: &str) -> impl Iterator<Item = (&Name, &Claim)> {
        rows_of(&self.claims, self.pipeline_runs.owned(self.claims.index(), uid))
    }

    pub(super) fn storage_class(&self, name: &str) -> Option<&StorageClass> {
        self.storage_classes.get(&Name::cluster_wide(name))
    }

    /// All storage classes, unordered.
    pub(super) fn storage_classes(&self) -> impl Iterator<Item = (&str, &StorageClass)> {
        self.storage_classes.iter().map(|(name, class)| (&*name.name, class))
    }

    pub(super) fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.get(&Name::cluster_wide(name))
    }

    pub(super) fn placeholder(&self, name: &Name) -> Option<&Placeholder> {
        self.placeholders.get(name)
    }

    /// All placeholders, unordered.
    pub(super) fn placeholders(&self) -> impl Iterator<Item = (&Name, &Placeholder)> {
        self.placeholders.iter()
    }

    /// The placeholders that the PipelineRun with this UID owns, sorted by name.
    pub(super) fn placeholders_of_run(
        &self,
        uid: &str,
    ) -> impl Iterator<Item = (&Name, &Placeholder)> {
        rows_of(&self.placeholders, self.pipeline_runs.owned(self.placeholders.index(), uid))
    }

    /// The pod of the placeholder with this name.
    pub(super) fn placeholder_pod(&self, placeholder: &Name) -> Option<&PlaceholderPod> {
        self.placeholder_pods.get(&pod_of(placeholder))
    }

    /// The pods of all placeholders, unordered.
    pub(super) fn placeholder_pods(&self) -> impl Iterator<Item = (&Name, &PlaceholderPod)> {
        self.placeholder_pods.iter()
    }

    /// A pod that is, or may become, a member of a group.
    pub(super) fn member(&self, name: &Name) -> Option<&Member> {
        self.members.get(name)
    }

    /// All pods that are, or may become, members of groups, unordered.
    pub(super) fn members(&self) -> impl Iterator<Item = (&Name, &Member)> {
        self.members.iter()
    }

    /// The pods that were admitted for a placeholder, sorted by name.
    pub(super) fn members_of(&self, placeholder: &Name) -> impl Iterator<Item = (&Name, &Member)> {
        rows_of(&self.members, self.members.index().get(placeholder))
    }

    /// The pods that mount a claim and have not ended, whatever created them, and with or without a node,
    /// sorted by name. At admission only those that have waited for claims.
    pub(super) fn mounting(
        &self,
        claim: &Name,
    ) -> impl Iterator<Item = (&Name, &Mounted)> + use<'_> {
        rows_of(&self.mounts, self.mounts.index().get(claim))
    }

    /// The pods that mount claims and have not ended, unordered. Not for admission.
    pub(super) fn mounted(&self) -> impl Iterator<Item = (&Name, &Mounted)> {
        self.mounts.iter()
    }

    /// Returns true if a pod that has not ended mounts a claim. Not for admission.
    pub(super) fn is_mounted(&self, claim: &Name) -> bool {
        self.mounting(claim).next().is_some()
    }

    /// The unparsed annotation `stowplan.dev/coschedule` of a namespace.
    pub(super) fn namespace_mode(&self, name: &str) -> Option<&str> {
        self.namespace_modes.get(&Name::cluster_wide(name)).map(|mode| &*mode.0)
    }
}
