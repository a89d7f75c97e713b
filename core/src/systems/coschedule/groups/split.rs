//! Splits parts whose volumes no common node can mount.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use super::Conflict;
use super::parts::{Part, Parting};
use super::uses::Task;
use crate::placement::affinity::excludes;
use crate::placement::intent::AnyOf;
use crate::systems::coschedule::policy::CoscheduleMode;

impl<'v> Parting<'_, 'v> {
    /// Splits a part whose volumes no common node can mount into one part for each set of volumes that a
    /// common node may be able to mount.
    pub(super) fn split_by_volumes(&self, mut part: Part<'v>) -> Vec<Part<'v>> {
        let (mut sets, free) = self.sets_by_volumes(&part.units);
        if sets.len() < 2 {
            return vec![part];
        }
        for &unit in &free {
            let with = self.companion(unit, &sets, &part.tasks);
            sets[with].insert(unit);
        }
        // Sorted by unit, so that the first, which keeps the key, does not depend on bound volumes.
        sets.sort_by_key(|set| set.first().copied());
        let mut left = std::mem::take(&mut part.tasks);
        let mut parts = Vec::new();
        for (index, set) in sets.iter().enumerate() {
            let key = if index == 0 { part.key.clone() } else { self.key_of(set) };
            // Each task belongs to the first set with a claim that it uses, else to the first set.
            let is_its = |task: &usize| {
                let uses = |set| !self.uses.tasks[*task].units.is_disjoint(set);
                uses(set) || index == 0 && !sets.iter().any(uses)
            };
            let (tasks, others) = left.into_iter().partition(is_its);
            left = others;
            let (has_tasks, selector) = (part.has_tasks, part.selector.clone());
            parts.push(Part { key, units: set.clone(), tasks, has_tasks, selector });
        }
        parts
    }

    /// Sets of units that a common node may be able to mount, and the units that all nodes can mount.
    fn sets_by_volumes(&self, units: &BTreeSet<usize>) -> (Vec<BTreeSet<usize>>, BTreeSet<usize>) {
        // Only units with node terms can conflict.
        let (bound, free): (BTreeSet<usize>, BTreeSet<usize>) =
            units.iter().partition(|unit| !self.uses.units[**unit].terms.is_empty());
        let mut sets: Vec<BTreeSet<usize>> = Vec::new();
        for &unit in &bound {
            let apart = |other: &usize| {
                are_apart(self.uses.units[unit].terms, self.uses.units[*other].terms)
            };
            match sets.iter_mut().find(|set| !set.iter().any(apart)) {
                Some(set) => {
                    set.insert(unit);
                }
                None => sets.push([unit].into()),
            }
        }
        (sets, free)
    }

    /// The set to which a unit without node terms is added: that of a task which uses it and no other
    /// set, else the first.
    fn companion(&self, unit: usize, sets: &[BTreeSet<usize>], users: &[usize]) -> usize {
        let of_task = |units: &BTreeSet<usize>| {
            let mut used = (0..sets.len()).filter(|set| !sets[*set].is_disjoint(units));
            used.next().filter(|_| used.next().is_none())
        };
        let users = users.iter().map(|task| &self.uses.tasks[*task].units);
        users.filter(|units| units.contains(&unit)).find_map(of_task).unwrap_or_default()
    }

    /// Reports which claims no common node can mount although they should share one: those of a task, or of
    /// the whole run if its tasks are not known.
    pub(super) fn report_volumes(&mut self) {
        let all = self.groupable();
        if self.sets_by_volumes(&all).0.len() < 2 {
            return;
        }
        let conflict = |units: &BTreeSet<usize>, task: Option<&str>| {
            let of = |unit: usize| &self.uses.units[unit];
            let mut pairs = units.iter().flat_map(|a| units.range(a + 1..).map(move |b| (*a, *b)));
            let (a, b) = pairs.find(|(a, b)| are_apart(of(*a).terms, of(*b).terms))?;
            let claim = |unit: usize| of(unit).claim.unwrap_or_default().into();
            Some(Conflict::Volumes {
                first: claim(a),
                second: claim(b),
                task: task.map(Into::into),
                places: describe_places([of(a).terms, of(b).terms]),
            })
        };
        let of_task = |task: &Task<'_>| {
            conflict(&task.units.intersection(&all).copied().collect(), Some(task.name))
        };
        let found: Vec<Conflict> = self.uses.tasks.iter().filter_map(of_task).collect();
        // In a mode that groups a whole run, all of its tasks should share a node.
        let is_of_run = !self.uses.knows_tasks || self.mode != CoscheduleMode::Workspaces;
        if found.is_empty() && is_of_run {
            self.conflicts.extend(conflict(&all, None));
        }
        self.conflicts.extend(found);
    }
}

/// Describes where each of two volumes with these terms can be mounted: their zones, or else the terms.
fn describe_places(volumes: [&[NodeSelectorTerm]; 2]) -> [Box<str>; 2] {
    let [of_first, of_second] = volumes.map(zones);
    if let (Some(first), Some(second)) = (&of_first, &of_second)
        && first != second
    {
        return [first, second].map(|zones| format!("in zone {}", zones.join(" or ")).into());
    }
    volumes.map(|terms| format!("on nodes with {}", AnyOf(terms)).into())
}

/// Returns the zones that terms require, by a label of Kubernetes or of a driver; `None` if one requires none.
fn zones(terms: &[NodeSelectorTerm]) -> Option<Vec<&str>> {
    let zones = terms.iter().map(|term| {
        let mut expressions = term.match_expressions.iter().flatten();
        let is_zone = |key: &str| key.rsplit('/').next() == Some("zone");
        expressions.find(|of| of.operator == "In" && is_zone(&of.key))?.values.as_deref()
    });
    let zones: Option<Vec<&[String]>> = zones.collect();
    Some(zones?.into_iter().flatten().map(String::as_str).collect())
}

/// Returns true if the terms show that no node can match both.
fn are_apart(terms: &[NodeSelectorTerm], others: &[NodeSelectorTerm]) -> bool {
    !terms.is_empty()
        && !others.is_empty()
        && terms.iter().all(|term| others.iter().all(|other| excludes(term, other)))
}
