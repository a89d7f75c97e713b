//! Finds the Tekton owners of an object at admission: its TaskRun or run, and the run's groups.

use super::groups::{self, Groups};
use super::mode::BadMode;
use super::{family, keys, one_node};
use crate::placement::object::{Metadata, OwnerReference};
use crate::systems::View;
use crate::systems::coschedule::kinds::tekton;
use crate::systems::coschedule::kinds::{PipelineRun, TaskRun};
use crate::systems::coschedule::resources::{PIPELINE_RUN, TASK_RUN};
use crate::systems::policy::Policy;
use crate::view::{Key, Name, Owner};
use crate::wire::Text;

/// The relation of a TaskRun's pods to a run.
#[derive(Debug)]
pub(crate) enum Belonging<'v> {
    /// Not known: this object has not been delivered.
    Unknown(Key),
    /// A TaskRun without a run: it has no group.
    Alone,
    /// A TaskRun of a run.
    Run {
        /// The root run's name.
        name: &'v Name,
        run: &'v PipelineRun,
        /// The name of its task, if known. In a nested pipeline it is a task of that pipeline, which
        /// the groups do not have.
        task: Option<&'v str>,
        groups: Groups,
    },
    /// A TaskRun of a run whose mode is invalid.
    BadMode(BadMode),
}

/// Finds the run of a TaskRun's pods.
pub(crate) fn belonging<'v>(
    namespace: &str,
    owner: &Owner,
    view: &'v View,
    policy: &Policy,
) -> Belonging<'v> {
    let task_run = match task_run_of(namespace, owner, view) {
        Ok(task_run) => task_run,
        Err(key) => return Belonging::Unknown(key),
    };
    let Some(maker) = &task_run.run else { return Belonging::Alone };
    let (name, run) = match root_of(namespace, maker, view) {
        Ok(root) => root,
        Err(key) => return Belonging::Unknown(key),
    };
    match groups::of_run(name, run, view, policy) {
        Ok(groups) => Belonging::Run { name, run, task: task_run.task.as_deref(), groups },
        Err(bad) => Belonging::BadMode(bad),
    }
}

/// Finds the TaskRun that owns an object.
///
/// # Errors
/// Its key, if it has not been delivered.
pub(super) fn task_run_of<'v>(
    namespace: &str,
    owner: &Owner,
    view: &'v View,
) -> Result<&'v TaskRun, Key> {
    let key = Name::new(namespace, &owner.name);
    let known = view.task_run(&key).filter(|known| known.identity.uid == owner.uid);
    known.ok_or_else(|| Key::new(TASK_RUN, key))
}

/// Finds the root run of the PipelineRun that owns an object.
///
/// # Errors
/// The key of the run that has not been delivered: that one, or one above it.
pub(super) fn root_of<'v>(
    namespace: &str,
    owner: &Owner,
    view: &'v View,
) -> Result<(&'v Name, &'v PipelineRun), Key> {
    let run = view.run_by_uid(&owner.uid).filter(|(name, _)| *name.namespace == *namespace);
    let Some((name, run)) = run else {
        return Err(Key::new(PIPELINE_RUN, Name::new(namespace, &owner.name)));
    };
    match family::root(name, run, view) {
        (name, run, None) => Ok((name, run)),
        (_, _, Some(missing)) => Err(missing),
    }
}

/// Returns true if coscheduling must look at an object without stowplan's keys: it belongs to a Tekton run, and
/// Tekton's own affinity assistant does not place it; or pods of its namespace that mount the same claim
/// share a node.
pub(super) fn concerns(namespace: &str, metadata: &Metadata<'_>, view: &View) -> bool {
    let is_run = |owner: &OwnerReference<'_>| {
        owner.is(tekton::GROUP, "TaskRun") || owner.is(tekton::GROUP, "PipelineRun")
    };
    let is_of_run = tekton_owner(metadata).is_some_and(is_run)
        && metadata.annotation(keys::ASSISTANT).is_none()
        && view.has_tekton();
    is_of_run || one_node::is_on(namespace, view)
}

/// The owner of an object: its controller; for a placeholder's claim the run, which owns but does not
/// control it.
fn tekton_owner<'m>(metadata: &'m Metadata<'_>) -> Option<&'m OwnerReference<'m>> {
    let of_placeholder = || {
        metadata.label(keys::PLACEHOLDER)?;
        metadata.owner_references.iter().find(|owner| owner.is(tekton::GROUP, "PipelineRun"))
    };
    metadata.controller().or_else(of_placeholder)
}

/// The owner of an object, if it is a Tekton object of this kind.
pub(super) fn owner_of(metadata: &Metadata<'_>, kind: &str) -> Option<Owner> {
    let owner = tekton_owner(metadata).filter(|owner| owner.is(tekton::GROUP, kind))?;
    let text = |text: &Option<Text<'_>>| text.as_ref().map_or("", Text::as_str).into();
    Some(Owner { name: text(&owner.name), uid: text(&owner.uid) })
}
