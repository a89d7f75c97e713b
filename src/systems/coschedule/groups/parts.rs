//! Joins the claims and tasks of a run to parts, which become groups.

use std::collections::{BTreeMap, BTreeSet};

use super::Conflict;
use super::derive::{Derivation, Part, Task, Unit, mounts};

/// The most parts that a run is split into by the node selectors of its tasks.
const MAX_PARTS: usize = 64;

impl<'v> Derivation<'v> {
    /// The units of each existing placeholder, which stay together even if no known task uses all of
    /// them.
    pub(super) fn units_of_placeholders(&self) -> Vec<Vec<usize>> {
        let units = self.units.iter().enumerate().filter(|(_, unit)| unit.one_node);
        let made = self.existing.iter();
        made.map(|(_, placeholder)| {
            let has = |unit: &Unit<'_>| unit.claim.is_some_and(|claim| mounts(placeholder, claim));
            units.clone().filter(|(_, unit)| has(unit)).map(|(index, _)| index).collect()
        })
        .collect()
    }

    /// Connected components of the units that need one node: a task joins the units that it uses. Each
    /// with the tasks that use it.
    pub(super) fn components(&self, tasks: &[Task<'v>]) -> Vec<(BTreeSet<usize>, BTreeSet<usize>)> {
        fn find(parent: &mut [usize], mut of: usize) -> usize {
            while parent[of] != of {
                parent[of] = parent[parent[of]];
                of = parent[of];
            }
            of
        }
        let one_node = |unit: &usize| self.units[*unit].one_node;
        let mut parent: Vec<usize> = (0..self.units.len()).collect();
        let used = tasks.iter().map(|task| task.units.iter().copied().filter(one_node).collect());
        for together in used.chain(self.units_of_placeholders()) {
            let together: Vec<usize> = together;
            let Some((&first, others)) = together.split_first() else { continue };
            for &other in others {
                let (a, b) = (find(&mut parent, first), find(&mut parent, other));
                // The earlier unit becomes the representative.
                parent[a.max(b)] = a.min(b);
            }
        }
        let mut components: BTreeMap<usize, (BTreeSet<usize>, BTreeSet<usize>)> = BTreeMap::new();
        for unit in (0..self.units.len()).filter(one_node) {
            components.entry(find(&mut parent, unit)).or_default().0.insert(unit);
        }
        for (index, task) in tasks.iter().enumerate() {
            if let Some(unit) = task.units.iter().copied().find(one_node) {
                components.entry(find(&mut parent, unit)).or_default().1.insert(index);
            }
        }
        components.into_values().collect()
    }

    /// The key of a group that has these units: its first workspace, else its first claim.
    pub(super) fn key_of(&self, units: &BTreeSet<usize>) -> Box<str> {
        let workspace = units.iter().find_map(|unit| self.units[*unit].workspaces.first());
        let claim = || units.iter().find_map(|unit| self.units[*unit].claim);
        match workspace {
            Some(workspace) => (*workspace).into(),
            None => claim().map(|claim| format!("claim/{claim}")).unwrap_or_default().into(),
        }
    }

    pub(super) fn by_workspaces(&mut self) -> Vec<Part<'v>> {
        let Some(tasks) = self.tasks.take() else {
            // Without known tasks, all claims that need one node are one part.
            let units: BTreeSet<usize> =
                (0..self.units.len()).filter(|unit| self.units[*unit].one_node).collect();
            let selector = self.common_selector();
            let of_run = units.iter().any(|unit| !self.units[*unit].workspaces.is_empty());
            // The claims of child runs change, but the key must not.
            let key = if of_run { self.key_of(&units) } else { "".into() };
            let empty = units.is_empty();
            let part = Part { key, units, tasks: BTreeSet::new(), selector };
            return if empty { Vec::new() } else { vec![part] };
        };
        let mut parts = Vec::new();
        for (units, users) in self.components(&tasks) {
            let selector = self.join_selectors(&tasks, &users);
            parts.push(Part { key: "".into(), units, tasks: users, selector });
        }
        self.tasks = Some(tasks);
        for part in &mut parts {
            part.key = self.key_of(&part.units);
        }
        parts
    }

    /// Combines the node selectors of tasks. If they contradict each other, reports the conflict and
    /// returns the run's own.
    pub(super) fn join_selectors(
        &mut self,
        tasks: &[Task<'v>],
        users: &BTreeSet<usize>,
    ) -> BTreeMap<&'v str, &'v str> {
        let mut joined: BTreeMap<&'v str, (&'v str, &'v str)> = BTreeMap::new();
        let mut clash = None;
        for task in users.iter().map(|user| &tasks[*user]) {
            for (label, value) in task.selector {
                let (wanted, by) = *joined.entry(label).or_insert((value, task.name));
                if wanted != &**value && clash.is_none() {
                    clash = Some(Conflict::Selectors {
                        label: label.clone(),
                        first: (by.into(), wanted.into()),
                        second: (task.name.into(), value.clone()),
                    });
                }
            }
        }
        match clash {
            Some(clash) => {
                self.groups.conflicts.push(clash);
                self.run.node_selector.iter().map(|(key, value)| (&**key, &**value)).collect()
            }
            None => joined.into_iter().map(|(label, (value, _))| (label, value)).collect(),
        }
    }

    /// The combined node selectors of the run and all its tasks, or the run's own if they contradict
    /// each other.
    pub(super) fn common_selector(&self) -> BTreeMap<&'v str, &'v str> {
        let run = self.run;
        let own = || run.node_selector.iter().map(|(key, value)| (&**key, &**value));
        let mut joined: BTreeMap<&'v str, &'v str> = own().collect();
        for labels in run.task_overrides.iter().filter_map(|of| of.node_selector.as_ref()) {
            for (label, value) in labels {
                if *joined.entry(label).or_insert(value) != &**value {
                    return own().collect();
                }
            }
        }
        joined
    }

    /// One part for all tasks, or several if tasks without a common claim select different nodes.
    pub(super) fn by_selectors(&mut self) -> Vec<Part<'v>> {
        let mountable: BTreeSet<usize> =
            (0..self.units.len()).filter(|unit| self.units[*unit].mountable).collect();
        let Some(tasks) = self.tasks.take() else {
            let selector = self.common_selector();
            let part = Part { units: mountable, selector, ..Part::default() };
            return vec![part];
        };
        // Tasks that must share a node because of a claim; each other task is a bundle of its own.
        let mut bundles: Vec<BTreeSet<usize>> = Vec::new();
        let mut placed: BTreeSet<usize> = BTreeSet::new();
        for (_, users) in self.components(&tasks) {
            placed.extend(&users);
            bundles.push(users);
        }
        bundles.extend(
            (0..tasks.len()).filter(|task| !placed.contains(task)).map(|task| [task].into()),
        );
        bundles.retain(|bundle| !bundle.is_empty());
        // In the order of the pipeline, so that the first part has the first task.
        bundles.sort_by_key(|bundle| bundle.first().copied());
        let mut parts: Vec<Part<'v>> = Vec::new();
        for bundle in bundles {
            let selector = self.join_selectors(&tasks, &bundle);
            let fits = |part: &Part<'v>| {
                selector
                    .iter()
                    .all(|(key, value)| part.selector.get(key).is_none_or(|v| v == value))
            };
            match parts.iter().position(fits) {
                Some(part) => {
                    parts[part].tasks.extend(bundle);
                    parts[part].selector.extend(selector);
                }
                // Each part costs a placeholder, so their number is limited.
                None if parts.len() == MAX_PARTS => parts[0].tasks.extend(bundle),
                None => parts.push(Part { tasks: bundle, selector, ..Part::default() }),
            }
        }
        if parts.is_empty() {
            parts.push(Part::default());
        }
        let several = parts.len() > 1;
        let mut left = mountable;
        for part in &mut parts {
            let used: BTreeSet<usize> =
                part.tasks.iter().flat_map(|task| &tasks[*task].units).copied().collect();
            // A claim that several nodes can mount is mounted by every part that uses it.
            let shared = |unit: &usize| self.units[*unit].mountable && !self.units[*unit].one_node;
            let is_mine = |unit: &usize| left.contains(unit) || shared(unit);
            part.units = used.iter().copied().filter(is_mine).collect();
            left.retain(|unit| !used.contains(unit));
            if several {
                part.key = key_of_selector(&part.selector);
            }
        }
        if let Some(first) = parts.first_mut() {
            first.units.extend(left);
        }
        self.tasks = Some(tasks);
        parts
    }
}

/// The key of a part that has its own node selector: `label=value`, joined by commas.
fn key_of_selector(selector: &BTreeMap<&str, &str>) -> Box<str> {
    let labels = selector.iter().map(|(key, value)| format!("{key}={value}"));
    labels.collect::<Vec<_>>().join(",").into()
}

/// Parses such a key; `None` for another key. Keys and values of labels have no equals sign or comma.
pub(super) fn selector_of(key: &str) -> Option<BTreeMap<&str, &str>> {
    key.split(',').map(|label| label.split_once('=')).collect()
}
