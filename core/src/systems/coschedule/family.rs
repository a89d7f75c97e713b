//! Finds the runs, TaskRuns, placeholders and pods that belong to a run.

use super::keys;
use super::record::Record;
use crate::systems::View;
use crate::systems::coschedule::kinds::{Member, PipelineRun, Placeholder, TaskRun};
use crate::systems::coschedule::resources::PIPELINE_RUN;
use crate::view::{Key, Name};

/// The most levels of pipelines in pipelines that are followed.
const MAX_DEPTH: usize = 16;

/// Finds the root run of `run`. If a run between the two has not been delivered, returns the last one
/// found and the key of the missing one.
pub(crate) fn root<'v>(
    name: &'v Name,
    run: &'v PipelineRun,
    view: &'v View,
) -> (&'v Name, &'v PipelineRun, Option<Key>) {
    let mut root = (name, run);
    for _ in 0..MAX_DEPTH {
        let Some(parent) = &root.1.parent else { return (root.0, root.1, None) };
        match view.run_by_uid(&parent.uid) {
            // An owner must be in the same namespace.
            Some(found) if found.0.namespace == name.namespace => root = found,
            _ => {
                let awaited = Key::new(PIPELINE_RUN, Name::new(&name.namespace, &parent.name));
                return (root.0, root.1, Some(awaited));
            }
        }
    }
    (root.0, root.1, None)
}

/// Facts that the TaskRuns of a run and its child runs show.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Signs {
    /// True if there is a TaskRun. Tekton creates the first one after the run's claims and before any
    /// pod, and it shows whether Tekton's own assistant is on.
    pub has_started: bool,
    /// True if Tekton's own affinity assistant places the run. In its default mode it marks only TaskRuns
    /// that use a claim. Ended TaskRuns count.
    pub is_assisted: bool,
}

/// Reads the signs of a root run. The webhook and the controller both use this: a pod must not wait for a
/// placeholder that the controller will not make.
pub(crate) fn signs(root_name: &Name, root: &PipelineRun, view: &View) -> Signs {
    let mut signs = Signs::default();
    for run in with_below(root, view) {
        let (namespace, uid) = (&root_name.namespace, &run.identity.uid);
        signs.has_started |= view.task_runs_of_run(namespace, uid).next().is_some();
        signs.is_assisted |= view.is_assisted(namespace, uid);
    }
    signs
}

/// Returns a scheduling gate of others, if such gates hold every pod of a group that has not ended. Its placeholder is
/// not made yet: what they add when they release a pod, such as Kueue's node selectors, decides where volumes may be.
pub(crate) fn held_by<'v>(placeholder: &Name, view: &'v View) -> Option<&'v str> {
    let living = view.members_of(placeholder);
    let living = living.filter(|(_, member)| !member.finished && !member.identity.deleting);
    let gates: Option<Vec<&str>> = living.map(|(_, member)| member.other_gate()).collect();
    gates?.into_iter().min()
}

/// The active TaskRuns that a quota refuses a pod, each with its root run, sorted by name.
pub(super) fn refused(view: &View) -> impl Iterator<Item = (&Name, &TaskRun, &Name, &PipelineRun)> {
    view.refused_task_runs().filter_map(|(name, task_run)| {
        let (run_name, run) = view.run_by_uid(&task_run.run.as_ref()?.uid)?;
        let (root_name, root, _) = root(run_name, run, view);
        Some((name, task_run, root_name, root))
    })
}

/// A run and the runs below it: first the run, then its child runs, and theirs.
pub(super) fn with_below<'v>(run: &'v PipelineRun, view: &'v View) -> Vec<&'v PipelineRun> {
    let mut found = vec![run];
    let mut level = found.clone();
    // Forged owner references can form a cycle.
    for _ in 0..MAX_DEPTH {
        let below = level.iter().flat_map(|run| view.runs_below(&run.identity.uid));
        level = below.map(|(_, run)| run).collect();
        found.extend(&level);
    }
    found
}

/// The placeholders of a root run that have a valid record, with their records.
pub(crate) fn recorded<'v>(
    run: &'v PipelineRun,
    view: &'v View,
) -> impl Iterator<Item = (&'v Placeholder, &'v Record)> {
    let placeholders = view.placeholders_of_run(&run.identity.uid);
    placeholders.filter_map(|(_, placeholder)| Some((placeholder, placeholder.record.as_deref()?)))
}

/// Returns true if a pod with a placeholder's label belongs to it: its annotation names the native group, or its
/// TaskRun belongs to the run with this UID. Users can set the label, so it alone does not count. A pod
/// with an unknown TaskRun counts: the watch of TaskRuns may be late, and the API server deletes pods
/// without an owner.
pub(crate) fn belongs(
    name: &Name,
    member: &Member,
    placeholder: &str,
    run_uid: Option<&str>,
    view: &View,
) -> bool {
    let Name { namespace, .. } = name;
    let is_native =
        member.group.as_ref().is_some_and(|of| keys::of_native(namespace, of) == placeholder);
    let is_of_run = || {
        let (Some(uid), Some(owner)) = (run_uid, &member.task_run) else { return false };
        let task_run = view.task_run(&Name::new(namespace, &owner.name));
        let Some(task_run) = task_run.filter(|known| known.identity.uid == owner.uid) else {
            return true;
        };
        let Some(maker) = &task_run.run else { return false };
        match view.run_by_uid(&maker.uid) {
            Some((name, run)) if name.namespace == *namespace => {
                *root(name, run, view).1.identity.uid == *uid
            }
            _ => *maker.uid == *uid,
        }
    };
    is_native || is_of_run()
}
