//! A run with the runs that it has made: whether it has begun, who places it, and which pods are its.

use super::groups::{self, MAX_DEPTH};
use super::keys;
use crate::view::{Member, Name, PipelineRun, Placeholder, View};

/// What the TaskRuns of a run say, and of the runs that it has made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Signs {
    /// Whether there is one: the first is made after the run's claims and before any pod, and says
    /// whether Tekton's own assistant is on.
    pub has_started: bool,
    /// Whether Tekton's own affinity assistant places the run. In its default mode only the TaskRuns say
    /// so that use a claim, and one that has ended says it as well as one that goes on.
    pub is_assisted: bool,
}

/// What the TaskRuns of a root run say. The webhook and the controller both ask here: a pod must not wait
/// for a placeholder that nobody makes.
#[must_use]
pub fn signs(root_name: &Name, root: &PipelineRun, view: &View) -> Signs {
    let mut signs = Signs::default();
    for run in std::iter::once(root).chain(below(root, view).into_iter().map(|(_, run)| run)) {
        let counts = view.tasks_of_run(&root_name.namespace, &run.identity.uid);
        signs.has_started |= counts.made > 0;
        signs.is_assisted |= counts.assisted > 0;
    }
    signs
}

/// The runs that a run has made, and those that they have.
pub(super) fn below<'v>(run: &PipelineRun, view: &'v View) -> Vec<(&'v Name, &'v PipelineRun)> {
    let mut found: Vec<_> = view.runs_below(&run.identity.uid).collect();
    let mut level = found.clone();
    // A run that somebody has put among its own has no end of them.
    for _ in 1..MAX_DEPTH {
        level = level.iter().flat_map(|(_, run)| view.runs_below(&run.identity.uid)).collect();
        if level.is_empty() {
            break;
        }
        found.extend(&level);
    }
    found
}

/// The placeholders that were made for a root run: those that bear the name which follows from its UID and
/// their key. An owner reference alone is its author's word.
pub fn placeholders<'v>(
    run: &'v PipelineRun,
    view: &'v View,
) -> impl Iterator<Item = (&'v Name, &'v Placeholder)> {
    let uid = &*run.identity.uid;
    view.placeholders_of_run(uid).filter(move |(name, placeholder)| {
        let key = placeholder.key.as_deref().unwrap_or_default();
        *name.name == *keys::of_run(uid, key)
    })
}

/// Whether a pod with a placeholder's label belongs to it: its annotation names the native group, or its
/// TaskRun is of the run with this UID. The label alone is its author's word. A pod whose TaskRun is not
/// known counts: the watches differ, and the API server sees to pods without their owners.
#[must_use]
pub fn belongs(
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
                *groups::root(name, run, view).1.identity.uid == *uid
            }
            _ => *maker.uid == *uid,
        }
    };
    is_native || is_of_run()
}
