//! The groups of a run: which of its pods share a node.
//!
//! Groups are computed from the run's spec, its Pipeline and the access modes of its claims, and never from
//! the run's status, which a third of the runs do not have when their first pod is created. A Pipeline can be
//! edited while the run is active, so the first result is recorded with the placeholder and read from there
//! afterwards; only volumes can still split a group. The webhook, the reconciler and the command line all use
//! this module, so that they agree.
//!
//! - `workspaces`: tasks that use the same claim are one group, if a single node mounts that claim. Two
//!   such claims belong together if one task uses both. Tasks without such a claim may run anywhere.
//! - `pipelineruns`, `isolate-pipelinerun`: all tasks of the run are one group.
//!   A task whose node selector contradicts those of others is in none, and so are the tasks that share a
//!   claim of one node with it.
//! - A group is split if no node can mount the volumes of two claims.
//!
//! Requirements that contradict each other are a [`Conflict`], which is reported.
//!
//! # Modules
//! `uses`: finds the claims and tasks of a run. `parts`: joins them to parts. `split`: splits parts
//! whose volumes no common node can mount. `membership`: which group a pod belongs to. `leader`: which
//! of the groups that share a claim comes first.

mod leader;
mod membership;
mod parts;
mod split;
mod uses;

use std::collections::BTreeSet;
use std::fmt;

use super::mode::{self, BadMode};
use super::record::Record;
use super::{family, keys};
use crate::systems::View;
use crate::systems::coschedule::kinds::pipeline_run::{Labels, PipelineRun};
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::policy::Policy;
use crate::view::{Key, Name};
pub(crate) use leader::{Leader, Leaders, LiveGroup, Who};
pub(crate) use membership::Membership;
pub(super) use membership::needs_no_node;
use parts::{Part, Parting};
use uses::{Unit, Uses};

/// The groups of a run, including those of its child runs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Groups {
    /// The effective mode of the run.
    pub mode: CoscheduleMode,
    /// The mode of its namespace, if the policy's applies instead because that cannot be used.
    pub unused_mode: Option<BadMode>,
    /// The groups, in the order of their first workspaces.
    pub groups: Vec<Group>,
    /// Requirements of the run that contradict each other.
    pub conflicts: Vec<Conflict>,
    /// Objects that the watches have not delivered and that could change the groups.
    pub awaited: Vec<Key>,
    /// The claims of the run that are in no group.
    free: Vec<GroupClaim>,
}

/// Pods of a run that share a node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Group {
    /// Its key among the run's groups: its first workspace; empty for a group of all tasks.
    pub key: Box<str>,
    /// The name of its placeholder.
    pub name: Box<str>,
    /// The workspaces of the run whose claims it has.
    pub workspaces: BTreeSet<Box<str>>,
    /// The claims that its placeholder mounts, in the order of the run's workspaces.
    pub claims: Vec<GroupClaim>,
    /// True if the claims of some of its workspaces are not known yet.
    pub derived: bool,
    /// The tasks whose pods belong to it, by their names in the pipeline; `None` if they are not known.
    pub tasks: Option<BTreeSet<Box<str>>>,
    /// The combined node selectors of its tasks.
    pub node_selector: Labels,
    /// True if no other group may be on its node.
    pub isolated: bool,
}

/// A claim of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct GroupClaim {
    /// Its name in the run's spec.
    pub name: Box<str>,
    /// True if Tekton creates it for the run from a template.
    pub template: bool,
    /// True if only a single node can mount it.
    pub one_node: bool,
}

/// Two requirements of a run that contradict each other.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Conflict {
    /// No node can mount the volumes of both claims.
    Volumes {
        /// A claim.
        first: Box<str>,
        /// The other.
        second: Box<str>,
        /// The task that uses both, if it is known.
        task: Option<Box<str>>,
        /// Where the volume of each can be mounted.
        places: [Box<str>; 2],
    },
    /// Two tasks that should share a node, or two TaskRuns of a matrix, select different ones.
    Selectors {
        /// The label of the node.
        label: Box<str>,
        /// A task and the value that it selects.
        first: (Box<str>, Box<str>),
        /// The other.
        second: (Box<str>, Box<str>),
        /// True if the other is placed without its run. If not, a claim keeps both together.
        is_alone: bool,
    },
}

impl Conflict {
    /// The conflict if no claim keeps the two together.
    fn placed_alone(mut self) -> Self {
        if let Self::Selectors { is_alone, .. } = &mut self {
            *is_alone = true;
        }
        self
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volumes { first, second, task, places: [of_first, of_second] } => {
                write!(formatter, "no node can mount both claims {first} and {second}")?;
                match task {
                    Some(task) => write!(formatter, ", and task {task} uses both")?,
                    None => formatter.write_str(", so the run is on several nodes")?,
                }
                write!(formatter, ": claim {first} is {of_first}, claim {second} {of_second}")
            }
            Self::Selectors { label, first: (task, value), second: (other, wanted), is_alone } => {
                let is_same = task == other;
                let by = match is_same {
                    true => "by its matrix also".to_owned(),
                    false => format!("task {other}"),
                };
                let effect = match (is_alone, is_same) {
                    (true, true) => "the second is placed without the group of the run".to_owned(),
                    (true, false) => format!("task {other} is placed without the group of the run"),
                    (false, _) => "they share a claim that one node mounts at a time".to_owned(),
                };
                write!(
                    formatter,
                    "task {task} asks for nodes with {label}={value} and {by} for {label}={wanted}, and {effect}"
                )
            }
        }
    }
}

/// The groups of a root run.
///
/// # Errors
/// If the run's mode is invalid.
pub(crate) fn of_run(
    name: &Name,
    run: &PipelineRun,
    view: &View,
    policy: &Policy,
) -> Result<Groups, BadMode> {
    let (mode, unused_mode) = mode::of_run(name, run, view, policy)?;
    let groups = Groups { mode, unused_mode, ..Groups::default() };
    // The pods of a run that names a native group are all that group's.
    if mode == CoscheduleMode::Disabled || run.group.is_some() {
        return Ok(groups);
    }
    let mut records: Vec<&Record> = family::recorded(run, view).map(|(_, record)| record).collect();
    records.sort_unstable_by_key(|record| &record.key);
    let uses = Uses::of_run(&name.namespace, run, &records, view);
    let mut parting = Parting { uses: &uses, run, mode, records: &records, conflicts: Vec::new() };
    let parts = parting.parts();
    let conflicts = parting.conflicts;
    let mut free: BTreeSet<usize> = (0..uses.units.len()).collect();
    parts.iter().flat_map(|part| &part.units).for_each(|unit| _ = free.remove(unit));
    let group = |part| Group::of(part, &uses, mode, run);
    Ok(Groups {
        groups: parts.into_iter().map(group).collect(),
        conflicts,
        free: free.iter().filter_map(|unit| uses.units[*unit].of_group()).collect(),
        // Records already decide the groups.
        awaited: uses
            .missing_pipeline
            .filter(|_| records.is_empty())
            .into_iter()
            .chain(uses.awaited)
            .collect(),
        ..groups
    })
}

impl GroupClaim {
    /// Returns true if a placeholder can replace this claim by one of its own (`volumes: provision`). Not if
    /// several nodes can mount it: several placeholders then mount the same claim.
    pub(crate) fn is_replaceable(&self) -> bool {
        self.template && self.one_node
    }
}

impl Group {
    fn of(part: Part<'_>, uses: &Uses<'_>, mode: CoscheduleMode, run: &PipelineRun) -> Self {
        let Part { key, units, tasks, has_tasks, selector } = part;
        let units = || units.iter().map(|unit| &uses.units[*unit]);
        let workspaces = units().flat_map(|unit| &unit.workspaces);
        let tasks = tasks.iter().map(|task| uses.tasks[*task].name.into());
        Self {
            name: keys::of_run(&run.identity.uid, &key).into(),
            workspaces: workspaces.map(|workspace| (*workspace).into()).collect(),
            claims: units().filter_map(Unit::of_group).collect(),
            derived: units().any(|unit| unit.claim.is_none()),
            tasks: has_tasks.then(|| tasks.collect()),
            node_selector: selector.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
            isolated: mode == CoscheduleMode::IsolatePipelinerun,
            key,
        }
    }

    /// Its record.
    pub(crate) fn record(&self) -> Record {
        Record {
            key: self.key.clone(),
            workspaces: self.workspaces.clone(),
            claims: self.claims.iter().map(|claim| claim.name.clone()).collect(),
            tasks: self.tasks.clone(),
            node_selector: self.node_selector.iter().cloned().collect(),
        }
    }

    /// Returns true if the placeholder mounts this claim: one that the run names, or the placeholder's own.
    pub(crate) fn has(&self, claim: &str) -> bool {
        self.claim(claim).is_some()
    }

    fn claim(&self, name: &str) -> Option<&GroupClaim> {
        // Avoids computing digests for claims that cannot be the placeholder's own.
        let is_own = name.contains(&*self.name);
        self.claims.iter().find(|own| {
            *own.name == *name
                || is_own
                    && own.is_replaceable()
                    && keys::provisioned(&own.name, &self.name) == name
        })
    }
}

impl Groups {
    /// The group whose placeholder can replace this claim of the run by one of its own. There is at most
    /// one: a claim that needs one node is in one group.
    pub(crate) fn owner_of(&self, claim: &str) -> Option<&Group> {
        let owns = |own: &GroupClaim| own.is_replaceable() && *own.name == *claim;
        self.groups.iter().find(|group| group.claims.iter().any(owns))
    }
}

#[cfg(test)]
mod tests;
