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
//! `uses`: finds the claims and tasks of a run. `parts`: joins them to parts, and splits those whose volumes no
//! common node can mount. `leader`: which of the groups that share a claim comes first.

mod leader;
mod parts;
mod uses;

use std::collections::BTreeSet;
use std::fmt;

use super::mode::{self, BadMode};
use super::record::Record;
use super::{family, keys};
use crate::systems::View;
use crate::systems::coschedule::kinds::{Labels, PipelineRun};
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::policy::Policy;
use crate::view::{Key, Name};
pub(crate) use leader::{Leader, Leaders, LiveGroup, Who};
use parts::{Part, Parting};
use uses::{Unit, Uses};

/// The groups of a run, including those of its child runs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Groups {
    /// The effective mode of the run.
    pub mode: CoscheduleMode,
    /// The invalid mode of its namespace, in whose place the policy's applies.
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
    pub has_unknown_claims: bool,
    /// The tasks whose pods belong to it, by their names in the pipeline; `None` if they are not known.
    pub tasks: Option<BTreeSet<Box<str>>>,
    /// The combined node selectors of its tasks.
    pub node_selector: Labels,
    /// True if no other group may be on its node.
    pub isolated: bool,
}

/// The relation of a pod to the groups of its run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Membership<'g> {
    /// It may run anywhere.
    Free,
    /// It belongs to this group.
    Of(&'g Group),
    /// Its claims are those of two groups, which cannot share a node.
    Several(&'g Group, &'g Group),
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

/// Two requirements of a run that contradict each other, as they are reported.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Conflict {
    /// No node can mount the volumes of both claims.
    Volumes(String),
    /// Two tasks that should share a node, or two TaskRuns of a matrix, select different ones.
    Selectors(String),
}

impl fmt::Display for Conflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Volumes(text) | Self::Selectors(text)) = self;
        formatter.write_str(text)
    }
}

/// Finds the groups of a root run.
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
    // All pods of a run that names a native group belong to that group.
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
        free: free.iter().filter_map(|unit| uses.units[*unit].group_claim()).collect(),
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
        let Part { key, units, tasks, knows_tasks, selector } = part;
        let units = || units.iter().map(|unit| &uses.units[*unit]);
        let workspaces = units().flat_map(|unit| &unit.workspaces);
        let tasks = tasks.iter().map(|task| uses.tasks[*task].name.into());
        Self {
            name: keys::of_run(&run.identity.uid, &key).into(),
            workspaces: workspaces.map(|workspace| (*workspace).into()).collect(),
            claims: units().filter_map(Unit::group_claim).collect(),
            has_unknown_claims: units().any(|unit| unit.claim.is_none()),
            tasks: knows_tasks.then(|| tasks.collect()),
            node_selector: selector.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
            isolated: mode == CoscheduleMode::IsolatePipelinerun,
            key,
        }
    }

    /// Returns the record that its placeholder keeps of it.
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
    /// Returns the group whose placeholder can replace this claim of the run by one of its own. There is at most one: a
    /// claim that needs one node is in one group.
    pub(crate) fn owner_of(&self, claim: &str) -> Option<&Group> {
        let owns = |own: &GroupClaim| own.is_replaceable() && *own.name == *claim;
        self.groups.iter().find(|group| group.claims.iter().any(owns))
    }

    /// Finds the group of a pod of the run by its task, the claims that it mounts and its node selector.
    /// `needs_no_node`: whether a claim is known not to need one node.
    pub(crate) fn membership(
        &self,
        task: Option<&str>,
        claims: &[&str],
        node_selector: &[(&str, &str)],
        needs_no_node: impl Fn(&str) -> bool,
    ) -> Membership<'_> {
        let mut by_node = self.groups.iter().filter(|group| {
            claims.iter().any(|claim| group.claim(claim).is_some_and(|of| of.one_node))
        });
        match (by_node.next(), by_node.next()) {
            (Some(group), None) => return Membership::Of(group),
            (Some(first), Some(second)) => return Membership::Several(first, second),
            (None, _) => {}
        }
        let free = |claim: &str| self.free.iter().find(|of| *of.name == *claim);
        // The users of such a claim were left out of the group, because they ask for other nodes.
        if claims.iter().any(|claim| free(claim).is_some_and(|of| of.one_node)) {
            return Membership::Free;
        }
        let of_task = |group: &&Group| {
            task.is_some_and(|task| group.tasks.as_ref().is_some_and(|of| of.contains(task)))
        };
        // A claim that the run does not name comes from a task's result or a nested pipeline.
        if claims.iter().any(|claim| free(claim).is_none() && !needs_no_node(claim)) {
            let mut unknown = self.groups.iter().filter(|group| group.has_unknown_claims);
            let named = unknown.clone().find(of_task);
            if let Some(group) = named.or_else(|| unknown.find(|group| group.tasks.is_none())) {
                return Membership::Of(group);
            }
        }
        if self.mode == CoscheduleMode::Workspaces {
            return Membership::Free;
        }
        let agrees = |group: &&Group| {
            let selected =
                |key: &str| group.node_selector.iter().find(|(known, _)| **known == *key);
            node_selector
                .iter()
                .all(|(key, value)| selected(key).is_none_or(|(_, wanted)| **wanted == **value))
        };
        let uses = |group: &&Group| claims.iter().any(|claim| group.has(claim));
        let groups = || self.groups.iter();
        let found = groups().find(of_task).or_else(|| groups().filter(agrees).find(uses));
        let found = found.or_else(|| groups().find(agrees));
        found.map_or(Membership::Free, Membership::Of)
    }
}

/// Returns a predicate: true if a claim of this namespace is known not to need one node.
pub(crate) fn needs_no_node<'v>(namespace: &'v str, view: &'v View) -> impl Fn(&str) -> bool + 'v {
    move |claim| {
        let known = view.claim(&Name::new(namespace, claim));
        known.is_some_and(|claim| !claim.access.needs_one_node())
    }
}

#[cfg(test)]
mod tests;
