//! [`CoscheduleView`]: the queries that decisions make to the tables of coscheduling.

use super::member::{Member, Members};
use super::mounts::Mounts;
use super::namespace::NamespaceModes;
use super::pipeline::{NamedPipeline, Pipelines};
use super::pipeline_run::{PipelineRun, PipelineRuns};
use super::placeholder::{FIRST, Placeholder, PlaceholderPod, PlaceholderPods, Placeholders};
use super::storage::{Claim, Claims, StorageClass, StorageClasses, Volume, Volumes};
use super::task::{Task, Tasks};
use super::task_run::{TaskCounts, TaskRun, TaskRuns};
use std::sync::Arc;

use crate::systems::coschedule::resources::TASK_RUN;
use crate::view::{Name, View};

/// The queries of coscheduling to a View. An object is found once its watch has delivered it.
pub(crate) trait CoscheduleView {
    fn task_run(&self, name: &Name) -> Option<&TaskRun>;

    /// The runs with a TaskRun that Tekton's own affinity assistant places.
    fn assisted_runs(&self) -> impl Iterator<Item = &PipelineRun>;

    /// The active TaskRuns that a quota refuses a pod, sorted by name.
    fn refused_task_runs(&self) -> impl Iterator<Item = (&Name, &TaskRun)>;

    /// How many TaskRuns the PipelineRun with this UID has.
    fn tasks_of_run(&self, namespace: &str, uid: &str) -> TaskCounts;

    /// The TaskRuns of the PipelineRun with this UID, sorted by name.
    fn task_runs_of_run(&self, namespace: &str, uid: &str) -> impl Iterator<Item = &TaskRun>;

    /// A Task. Not for admission.
    fn task(&self, name: &Name) -> Option<&Task>;

    /// Whether the cluster serves Tekton's kinds. True until a watch reports otherwise.
    fn has_tekton(&self) -> bool;

    fn pipeline_run(&self, name: &Name) -> Option<&PipelineRun>;

    /// The PipelineRun with this UID.
    fn run_by_uid(&self, uid: &str) -> Option<(&Name, &PipelineRun)>;

    /// All PipelineRuns, unordered.
    fn pipeline_runs(&self) -> impl Iterator<Item = (&Name, &PipelineRun)>;

    /// The child runs of the PipelineRun with this UID, sorted by name.
    fn runs_below(&self, uid: &str) -> impl Iterator<Item = (&Name, &PipelineRun)>;

    fn pipeline(&self, name: &Name) -> Option<&NamedPipeline>;

    fn claim(&self, name: &Name) -> Option<&Claim>;

    /// The claims that the PipelineRun with this UID owns, sorted by name.
    fn claims_of_run(&self, uid: &str) -> impl Iterator<Item = (&Name, &Claim)>;

    fn storage_class(&self, name: &str) -> Option<&StorageClass>;

    /// All storage classes, unordered.
    fn storage_classes(&self) -> impl Iterator<Item = (&str, &StorageClass)>;

    fn volume(&self, name: &str) -> Option<&Volume>;

    fn placeholder(&self, name: &Name) -> Option<&Placeholder>;

    /// All placeholders, unordered.
    fn placeholders(&self) -> impl Iterator<Item = (&Name, &Placeholder)>;

    /// The placeholders that the PipelineRun with this UID owns, sorted by name.
    fn placeholders_of_run(&self, uid: &str) -> impl Iterator<Item = (&Name, &Placeholder)>;

    /// The pod of the placeholder with this name.
    fn placeholder_pod(&self, placeholder: &Name) -> Option<&PlaceholderPod>;

    /// The pods of all placeholders, unordered.
    fn placeholder_pods(&self) -> impl Iterator<Item = (&Name, &PlaceholderPod)>;

    /// A pod that is, or may become, a member of a group.
    fn member(&self, name: &Name) -> Option<&Member>;

    /// All pods that are, or may become, members of groups, unordered.
    fn members(&self) -> impl Iterator<Item = (&Name, &Member)>;

    /// The pods that were admitted for a placeholder, sorted by name.
    fn members_of(&self, placeholder: &Name) -> impl Iterator<Item = (&Name, &Member)>;

    /// Whether a pod that has not ended mounts a claim, whatever created the pod and whether it has a
    /// node. Always false outside the controller.
    fn is_mounted(&self, claim: &Name) -> bool;

    /// The unparsed annotation `stowplan.dev/coschedule` of a namespace.
    fn namespace_mode(&self, name: &str) -> Option<&str>;
}

impl CoscheduleView for View {
    fn task_run(&self, name: &Name) -> Option<&TaskRun> {
        self.table::<TaskRuns>()?.get(name)
    }

    fn assisted_runs(&self) -> impl Iterator<Item = &PipelineRun> {
        let tables = self.table::<TaskRuns>().into_iter();
        tables.flat_map(|runs| &runs.index().assisted_runs).filter_map(|of| {
            let (name, run) = self.run_by_uid(&of.name)?;
            (name.namespace == of.namespace).then_some(run)
        })
    }

    fn refused_task_runs(&self) -> impl Iterator<Item = (&Name, &TaskRun)> {
        let tables = self.table::<TaskRuns>().into_iter();
        tables.flat_map(|table| {
            table.index().refused.iter().filter_map(|name| table.get_key_value(name))
        })
    }

    fn tasks_of_run(&self, namespace: &str, uid: &str) -> TaskCounts {
        let runs = self.table::<TaskRuns>();
        let of_run = runs.and_then(|runs| runs.index().by_run.get(&Name::new(namespace, uid)));
        let of_run = of_run.map(|of| TaskCounts { made: of.names.len(), assisted: of.assisted });
        of_run.unwrap_or_default()
    }

    fn task_runs_of_run(&self, namespace: &str, uid: &str) -> impl Iterator<Item = &TaskRun> {
        let run = Name::new(namespace, uid);
        self.table::<TaskRuns>().into_iter().flat_map(move |table| {
            let names = table.index().by_run.get(&run).into_iter().flat_map(|of_run| &of_run.names);
            let namespace = run.namespace.clone();
            names.filter_map(move |name| {
                let name = Name { namespace: namespace.clone(), name: Arc::clone(name) };
                table.get(&name)
            })
        })
    }

    fn task(&self, name: &Name) -> Option<&Task> {
        self.table::<Tasks>()?.get(name)
    }

    fn has_tekton(&self) -> bool {
        self.serves(&TASK_RUN)
    }

    fn pipeline_run(&self, name: &Name) -> Option<&PipelineRun> {
        self.table::<PipelineRuns>()?.get(name)
    }

    fn run_by_uid(&self, uid: &str) -> Option<(&Name, &PipelineRun)> {
        self.table::<PipelineRuns>()?.with_uid(uid)
    }

    fn pipeline_runs(&self) -> impl Iterator<Item = (&Name, &PipelineRun)> {
        self.table::<PipelineRuns>().into_iter().flat_map(PipelineRuns::iter)
    }

    fn runs_below(&self, uid: &str) -> impl Iterator<Item = (&Name, &PipelineRun)> {
        let runs = self.table::<PipelineRuns>().into_iter();
        runs.flat_map(move |runs| runs.below(uid))
    }

    fn pipeline(&self, name: &Name) -> Option<&NamedPipeline> {
        self.table::<Pipelines>()?.get(name)
    }

    fn claim(&self, name: &Name) -> Option<&Claim> {
        self.table::<Claims>()?.get(name)
    }

    fn claims_of_run(&self, uid: &str) -> impl Iterator<Item = (&Name, &Claim)> {
        let tables = self.table::<PipelineRuns>().zip(self.table::<Claims>()).into_iter();
        tables.flat_map(move |(runs, claims)| {
            let names = runs.owned(claims.index(), uid);
            names.filter_map(|name| claims.get_key_value(name))
        })
    }

    fn storage_class(&self, name: &str) -> Option<&StorageClass> {
        self.table::<StorageClasses>()?.get(&Name::cluster_wide(name))
    }

    fn storage_classes(&self) -> impl Iterator<Item = (&str, &StorageClass)> {
        let classes = self.table::<StorageClasses>().into_iter().flat_map(StorageClasses::iter);
        classes.map(|(name, class)| (&*name.name, class))
    }

    fn volume(&self, name: &str) -> Option<&Volume> {
        self.table::<Volumes>()?.get(&Name::cluster_wide(name))
    }

    fn placeholder(&self, name: &Name) -> Option<&Placeholder> {
        self.table::<Placeholders>()?.get(name)
    }

    fn placeholders(&self) -> impl Iterator<Item = (&Name, &Placeholder)> {
        self.table::<Placeholders>().into_iter().flat_map(Placeholders::iter)
    }

    fn placeholders_of_run(&self, uid: &str) -> impl Iterator<Item = (&Name, &Placeholder)> {
        let tables = self.table::<PipelineRuns>().zip(self.table::<Placeholders>()).into_iter();
        tables.flat_map(move |(runs, of)| {
            let names = runs.owned(of.index(), uid);
            names.filter_map(|name| of.get_key_value(name))
        })
    }

    fn placeholder_pod(&self, placeholder: &Name) -> Option<&PlaceholderPod> {
        let Name { namespace, name } = placeholder;
        let name = Name::new(namespace, &[&**name, FIRST].concat());
        self.table::<PlaceholderPods>()?.get(&name)
    }

    fn placeholder_pods(&self) -> impl Iterator<Item = (&Name, &PlaceholderPod)> {
        self.table::<PlaceholderPods>().into_iter().flat_map(PlaceholderPods::iter)
    }

    fn member(&self, name: &Name) -> Option<&Member> {
        self.table::<Members>()?.get(name)
    }

    fn members(&self) -> impl Iterator<Item = (&Name, &Member)> {
        self.table::<Members>().into_iter().flat_map(Members::iter)
    }

    fn members_of(&self, placeholder: &Name) -> impl Iterator<Item = (&Name, &Member)> {
        let members = self.table::<Members>().into_iter();
        members.flat_map(move |members| {
            let names = members.index().get(placeholder);
            names.filter_map(|name| members.get_key_value(name))
        })
    }

    fn is_mounted(&self, claim: &Name) -> bool {
        self.table::<Mounts>().is_some_and(|mounts| mounts.index().0.contains_key(claim))
    }

    fn namespace_mode(&self, name: &str) -> Option<&str> {
        self.table::<NamespaceModes>()?.get(&Name::cluster_wide(name)).map(|mode| &*mode.0)
    }
}
