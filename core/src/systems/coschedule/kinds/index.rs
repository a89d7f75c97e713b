//! The queries that decisions make to the tables of coscheduling.

use super::member::Member;
use super::mounts::Mounted;
use super::pipeline::NamedPipeline;
use super::pipeline_run::PipelineRun;
use super::placeholder::{FIRST, Placeholder, PlaceholderPod};
use super::storage::{Claim, StorageClass, Volume};
use super::task::Task;
use super::task_run::TaskRun;
use crate::systems::View;
use crate::systems::coschedule::resources::TASK_RUN;
use crate::view::Name;

/// The queries of coscheduling to a View. An object is found once its watch has delivered it.
impl View {
    pub(in crate::systems::coschedule) fn task_run(&self, name: &Name) -> Option<&TaskRun> {
        self.task_runs.get(name)
    }

    /// The runs with a TaskRun that Tekton's own affinity assistant places.
    pub(in crate::systems::coschedule) fn assisted_runs(
        &self,
    ) -> impl Iterator<Item = &PipelineRun> {
        self.task_runs.index().assisted.keys().filter_map(|of| {
            let (name, run) = self.run_by_uid(&of.name)?;
            (name.namespace == of.namespace).then_some(run)
        })
    }

    /// The active TaskRuns that a quota refuses a pod, sorted by name.
    pub(in crate::systems::coschedule) fn refused_task_runs(
        &self,
    ) -> impl Iterator<Item = (&Name, &TaskRun)> {
        let task_runs = &self.task_runs;
        task_runs.index().refused.iter().filter_map(|name| task_runs.get_key_value(name))
    }

    /// Returns true if Tekton's own affinity assistant places a TaskRun of the PipelineRun with this UID.
    pub(in crate::systems::coschedule) fn is_assisted(&self, namespace: &str, uid: &str) -> bool {
        let run = Name::new(namespace, uid);
        self.task_runs.index().assisted.get(&run).next().is_some()
    }

    /// The TaskRuns of the PipelineRun with this UID, active and ended ones, sorted by name.
    pub(in crate::systems::coschedule) fn task_runs_of_run(
        &self,
        namespace: &str,
        uid: &str,
    ) -> impl Iterator<Item = &TaskRun> {
        let run = Name::new(namespace, uid);
        let task_runs = &self.task_runs;
        task_runs.index().by_run.get(&run).filter_map(|name| task_runs.get(name))
    }

    /// A Task. Not for admission.
    pub(in crate::systems::coschedule) fn task(&self, name: &Name) -> Option<&Task> {
        self.tasks.get(name)
    }

    /// Returns true if the cluster serves Tekton's kinds. True until a watch reports otherwise.
    pub(in crate::systems::coschedule) fn has_tekton(&self) -> bool {
        self.serves(&TASK_RUN)
    }

    pub(in crate::systems::coschedule) fn pipeline_run(&self, name: &Name) -> Option<&PipelineRun> {
        self.pipeline_runs.get(name)
    }

    /// The PipelineRun with this UID.
    pub(in crate::systems::coschedule) fn run_by_uid(
        &self,
        uid: &str,
    ) -> Option<(&Name, &PipelineRun)> {
        self.pipeline_runs.with_uid(uid)
    }

    /// All PipelineRuns, unordered.
    pub(in crate::systems::coschedule) fn pipeline_runs(
        &self,
    ) -> impl Iterator<Item = (&Name, &PipelineRun)> {
        self.pipeline_runs.iter()
    }

    /// The child runs of the PipelineRun with this UID, sorted by name.
    pub(in crate::systems::coschedule) fn runs_below(
        &self,
        uid: &str,
    ) -> impl Iterator<Item = (&Name, &PipelineRun)> {
        self.pipeline_runs.below(uid)
    }

    pub(in crate::systems::coschedule) fn pipeline(&self, name: &Name) -> Option<&NamedPipeline> {
        self.pipelines.get(name)
    }

    pub(in crate::systems::coschedule) fn claim(&self, name: &Name) -> Option<&Claim> {
        self.claims.get(name)
    }

    /// The claims that the PipelineRun with this UID owns, sorted by name.
    pub(in crate::systems::coschedule) fn claims_of_run(
        &self,
        uid: &str,
    ) -> impl Iterator<Item = (&Name, &Claim)> {
        let claims = &self.claims;
        let names = self.pipeline_runs.owned(claims.index(), uid);
        names.filter_map(|name| claims.get_key_value(name))
    }

    pub(in crate::systems::coschedule) fn storage_class(
        &self,
        name: &str,
    ) -> Option<&StorageClass> {
        self.storage_classes.get(&Name::cluster_wide(name))
    }

    /// All storage classes, unordered.
    pub(in crate::systems::coschedule) fn storage_classes(
        &self,
    ) -> impl Iterator<Item = (&str, &StorageClass)> {
        self.storage_classes.iter().map(|(name, class)| (&*name.name, class))
    }

    pub(in crate::systems::coschedule) fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.get(&Name::cluster_wide(name))
    }

    pub(in crate::systems::coschedule) fn placeholder(&self, name: &Name) -> Option<&Placeholder> {
        self.placeholders.get(name)
    }

    /// All placeholders, unordered.
    pub(in crate::systems::coschedule) fn placeholders(
        &self,
    ) -> impl Iterator<Item = (&Name, &Placeholder)> {
        self.placeholders.iter()
    }

    /// The placeholders that the PipelineRun with this UID owns, sorted by name.
    pub(in crate::systems::coschedule) fn placeholders_of_run(
        &self,
        uid: &str,
    ) -> impl Iterator<Item = (&Name, &Placeholder)> {
        let placeholders = &self.placeholders;
        let names = self.pipeline_runs.owned(placeholders.index(), uid);
        names.filter_map(|name| placeholders.get_key_value(name))
    }

    /// The pod of the placeholder with this name.
    pub(in crate::systems::coschedule) fn placeholder_pod(
        &self,
        placeholder: &Name,
    ) -> Option<&PlaceholderPod> {
        let Name { namespace, name } = placeholder;
        let name = Name::new(namespace, &[&**name, FIRST].concat());
        self.placeholder_pods.get(&name)
    }

    /// Returns true if a pod is that of a placeholder.
    pub(in crate::systems::coschedule) fn is_placeholder_pod(&self, pod: &Name) -> bool {
        self.placeholder_pods.get(pod).is_some()
    }

    /// The pods of all placeholders, unordered.
    pub(in crate::systems::coschedule) fn placeholder_pods(
        &self,
    ) -> impl Iterator<Item = (&Name, &PlaceholderPod)> {
        self.placeholder_pods.iter()
    }

    /// A pod that is, or may become, a member of a group.
    pub(in crate::systems::coschedule) fn member(&self, name: &Name) -> Option<&Member> {
        self.members.get(name)
    }

    /// All pods that are, or may become, members of groups, unordered.
    pub(in crate::systems::coschedule) fn members(&self) -> impl Iterator<Item = (&Name, &Member)> {
        self.members.iter()
    }

    /// The pods that were admitted for a placeholder, sorted by name.
    pub(in crate::systems::coschedule) fn members_of(
        &self,
        placeholder: &Name,
    ) -> impl Iterator<Item = (&Name, &Member)> {
        let members = &self.members;
        members.index().get(placeholder).filter_map(|name| members.get_key_value(name))
    }

    /// The pods that mount a claim and have not ended, whatever created them, and with or without a node,
    /// sorted by name. At admission only those that have waited for claims.
    pub(in crate::systems::coschedule) fn mounting(
        &self,
        claim: &Name,
    ) -> impl Iterator<Item = (&Name, &Mounted)> + use<'_> {
        let mounts = &self.mounts;
        mounts.index().get(claim).filter_map(|name| mounts.get_key_value(name))
    }

    /// The pods that mount claims and have not ended, unordered. Not for admission.
    pub(in crate::systems::coschedule) fn mounted(
        &self,
    ) -> impl Iterator<Item = (&Name, &Mounted)> {
        self.mounts.iter()
    }

    /// The claims that a pod mounts, if it mounts any and has not ended. Not for admission.
    pub(in crate::systems::coschedule) fn mounted_by(
        &self,
        pod: &Name,
    ) -> Option<(&Name, &Mounted)> {
        self.mounts.get_key_value(pod)
    }

    /// Returns true if a pod that has not ended mounts a claim. Not for admission.
    pub(in crate::systems::coschedule) fn is_mounted(&self, claim: &Name) -> bool {
        self.mounting(claim).next().is_some()
    }

    /// The unparsed annotation `stowplan.dev/coschedule` of a namespace.
    pub(in crate::systems::coschedule) fn namespace_mode(&self, name: &str) -> Option<&str> {
        self.namespace_modes.get(&Name::cluster_wide(name)).map(|mode| &*mode.0)
    }
}
