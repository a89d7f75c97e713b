//! Splits parts whose volumes no common node can mount, consistently with existing placeholders.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use super::Conflict;
use super::derive::{Derivation, Part};
use crate::placement::affinity::excludes;
use crate::systems::coschedule::kinds::placeholder::Placeholder;

impl<'v> Derivation<'v> {
    /// Splits a part for which several placeholders exist: members have already joined each of them,
    /// even if the Pipeline has changed since.
    pub(super) fn split_by_placeholders(&self, part: Part<'v>) -> Vec<Part<'v>> {
        let mut sets: Vec<BTreeSet<usize>> = Vec::new();
        let mut left = part.units.clone();
        for existing in &self.existing {
            let is_its =
                |unit: &usize| self.units[*unit].one_node && self.was_made_for(*existing, *unit);
            let set: BTreeSet<usize> = left.iter().copied().filter(is_its).collect();
            left.retain(|unit| !set.contains(unit));
            sets.extend(Some(set).filter(|set| !set.is_empty()));
        }
        self.split(part, sets, &left)
    }

    /// Splits a part whose volumes no common node can mount.
    pub(super) fn split_by_volumes(&self, part: Part<'v>) -> Vec<Part<'v>> {
        let (sets, free) = self.sets_by_volumes(&part.units);
        self.split(part, sets, &free)
    }

    /// Sets of units that a common node may be able to mount, and the units that all nodes can mount.
    pub(super) fn sets_by_volumes(
        &self,
        units: &BTreeSet<usize>,
    ) -> (Vec<BTreeSet<usize>>, BTreeSet<usize>) {
        // Only units with node terms can conflict.
        let (bound, free): (BTreeSet<usize>, BTreeSet<usize>) =
            units.iter().partition(|unit| !self.units[**unit].terms.is_empty());
        let mut sets: Vec<BTreeSet<usize>> = Vec::new();
        for &unit in &bound {
            let apart = |other: &usize| are_apart(self.units[unit].terms, self.units[*other].terms);
            match sets.iter_mut().find(|set| !set.iter().any(apart)) {
                Some(set) => {
                    set.insert(unit);
                }
                None => sets.push([unit].into()),
            }
        }
        (sets, free)
    }

    /// Makes one part of each set, and adds the units of `free` to them. With fewer than two sets the part
    /// is not changed.
    fn split(
        &self,
        part: Part<'v>,
        mut sets: Vec<BTreeSet<usize>>,
        free: &BTreeSet<usize>,
    ) -> Vec<Part<'v>> {
        if sets.len() < 2 {
            return vec![part];
        }
        for &unit in free {
            let with = self.companion(unit, &sets, &part.tasks);
            if let Some(set) = sets.get_mut(with) {
                set.insert(unit);
            }
        }
        // Sorted by unit, so that the first, which keeps the key, does not depend on bound volumes.
        sets.sort_by_key(|set| set.first().copied());
        let mut taken: BTreeSet<usize> = BTreeSet::new();
        let mut parts = Vec::new();
        for (index, set) in sets.iter().enumerate() {
            let key = if index == 0 { part.key.clone() } else { self.key_of(set) };
            // Each task belongs to the first set with a claim that it uses, else to the first set.
            let tasks = self.tasks.as_ref().map(|tasks| {
                let uses = |task: &usize, set: &BTreeSet<usize>| {
                    tasks[*task].units.iter().any(|unit| set.contains(unit))
                };
                let none = |task: &usize| !sets.iter().any(|set| uses(task, set));
                let mine = |task: &&usize| uses(task, set) || index == 0 && none(task);
                let free = part.tasks.iter().filter(|task| !taken.contains(task));
                free.filter(mine).copied().collect::<BTreeSet<usize>>()
            });
            let tasks = tasks.unwrap_or_default();
            taken.extend(&tasks);
            parts.push(Part { key, units: set.clone(), tasks, selector: part.selector.clone() });
        }
        parts
    }

    /// Gives parts the keys of their existing placeholders, so that these are found again. All other parts
    /// get different keys.
    pub(super) fn keep_keys(&self, parts: &mut [Part<'v>]) {
        let mut taken: BTreeSet<Box<str>> = BTreeSet::new();
        let mut kept = vec![false; parts.len()];
        for (part, kept) in parts.iter_mut().zip(&mut kept) {
            let is_its = |existing: &&(&str, &Placeholder)| {
                let mut units = part.units.iter().filter(|unit| self.units[**unit].one_node);
                !taken.contains(existing.0)
                    && units.any(|unit| self.was_made_for(**existing, *unit))
            };
            if let Some((key, _)) = self.existing.iter().find(is_its) {
                part.key = (*key).into();
                *kept = taken.insert(part.key.clone());
            }
        }
        for (part, _) in parts.iter_mut().zip(kept).filter(|(_, kept)| !kept) {
            while !taken.insert(part.key.clone()) {
                part.key = format!("{}/", part.key).into();
            }
        }
    }

    /// The set to which a unit without node terms is added: that of a task which uses it and no other
    /// set, else the first.
    fn companion(&self, unit: usize, sets: &[BTreeSet<usize>], users: &BTreeSet<usize>) -> usize {
        let Some(tasks) = self.tasks.as_ref().filter(|_| sets.len() > 1) else { return 0 };
        let users = users.iter().map(|task| &tasks[*task].units);
        let of_task = |units: &BTreeSet<usize>| {
            let mut used = (0..sets.len()).filter(|set| !sets[*set].is_disjoint(units));
            used.next().filter(|_| used.next().is_none())
        };
        users.filter(|units| units.contains(&unit)).find_map(of_task).unwrap_or_default()
    }

    /// Reports which claims no common node can mount, and which task uses both.
    pub(super) fn report_conflicts(&mut self, part: &Part<'v>) {
        let (sets, _) = self.sets_by_volumes(&part.units);
        if sets.len() < 2 {
            return;
        }
        let claim = |unit: usize| self.units[unit].claim.unwrap_or_default();
        let apart = |a: usize, b: usize| are_apart(self.units[a].terms, self.units[b].terms);
        let mut found = Vec::new();
        let all: BTreeSet<usize> = sets.iter().flatten().copied().collect();
        let mut report = |units: &BTreeSet<usize>, task: Option<&str>| {
            let pairs = units.iter().flat_map(|a| units.range(a + 1..).map(move |b| (*a, *b)));
            if let Some((a, b)) = pairs.into_iter().find(|(a, b)| apart(*a, *b)) {
                found.push(Conflict::Volumes {
                    first: claim(a).into(),
                    second: claim(b).into(),
                    task: task.map(Into::into),
                });
            }
        };
        match &self.tasks {
            Some(tasks) => {
                for task in part.tasks.iter().map(|task| &tasks[*task]) {
                    let own = task.units.intersection(&all).copied().collect();
                    report(&own, Some(task.name));
                }
            }
            None => report(&all, None),
        }
        self.groups.conflicts.extend(found);
    }
}

/// Whether the terms show that no node can match both.
fn are_apart(terms: &[NodeSelectorTerm], others: &[NodeSelectorTerm]) -> bool {
    !terms.is_empty()
        && !others.is_empty()
        && terms.iter().all(|term| others.iter().all(|other| excludes(term, other)))
}
