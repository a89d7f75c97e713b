//! Joins the claims and tasks of a run to parts, which become groups. Then the records are applied: each
//! keeps its claims and tasks, whatever the Pipeline says now.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Conflict;
use super::derive::{Derivation, Part, Task};
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::coschedule::record::Record;

/// The most parts that a run is split into by the node selectors of its tasks.
const MAX_PARTS: usize = 64;

impl<'v> Derivation<'v> {
    /// All parts of the run.
    pub(super) fn parts(&mut self) -> Vec<Part<'v>> {
        let derived = match self.groups.mode {
            CoscheduleMode::Workspaces => self.by_workspaces(),
            _ => self.by_selectors(),
        };
        match self.records.is_empty() {
            true => derived,
            false => self.apply_records(derived),
        }
    }

    /// The recorded parts, and what no record has of the derived ones.
    fn apply_records(&self, derived: Vec<Part<'v>>) -> Vec<Part<'v>> {
        let (mut parts, by_unit) = self.recorded_parts();
        let recorded: BTreeMap<Box<str>, usize> =
            parts.iter().enumerate().map(|(index, part)| (part.key.clone(), index)).collect();
        let tasks = self.tasks.as_deref().unwrap_or_default();
        let mut taken = vec![false; tasks.len()];
        parts.iter().flat_map(|part| &part.tasks).for_each(|task| taken[*task] = true);
        for (index, task) in tasks.iter().enumerate() {
            let part = task.units.iter().find_map(|unit| by_unit.get(unit));
            if let Some(part) = part.filter(|_| !taken[index]) {
                taken[index] = true;
                parts[*part].tasks.push(index);
            }
        }
        for mut part in derived {
            part.units.retain(|unit| !by_unit.contains_key(unit));
            part.tasks.retain(|task| !taken[*task]);
            if !part.has_tasks {
                let joins = |unit: &usize| self.joins_first_part(*unit);
                let (joining, left) = part.units.into_iter().partition(joins);
                parts[0].units.extend::<BTreeSet<usize>>(joining);
                part.units = left;
                part.key = self.key_of(&part.units);
            }
            let is_needed =
                !part.tasks.is_empty() || part.units.iter().any(|unit| self.units[*unit].one_node);
            match recorded.get(&part.key).filter(|_| part.has_tasks) {
                Some(known) => {
                    parts[*known].units.extend(part.units);
                    parts[*known].tasks.extend(part.tasks);
                }
                None if is_needed => parts.push(part),
                None => {}
            }
        }
        parts.iter_mut().for_each(|part| part.tasks.sort_unstable());
        parts
    }

    /// Whether a unit that no record has joins the first recorded part if it is not known which tasks use
    /// it: one of a child run, which appears later, or of a run with one group. The other claims of a run
    /// whose Pipeline was deleted form a group of their own.
    fn joins_first_part(&self, unit: usize) -> bool {
        self.groups.mode != CoscheduleMode::Workspaces
            || !self.is_pipeline_missing
            || self.units[unit].claim.is_none()
    }

    /// Whether a group of this mode can have a unit.
    pub(super) fn is_groupable(&self, unit: usize) -> bool {
        match self.groups.mode {
            CoscheduleMode::Workspaces => self.units[unit].one_node,
            _ => self.units[unit].mountable,
        }
    }

    /// The parts of the recorded groups, and the one of each unit that needs one node.
    fn recorded_parts(&self) -> (Vec<Part<'v>>, BTreeMap<usize, usize>) {
        let mut by_unit = BTreeMap::new();
        let has_names = self.records.iter().any(|record| record.tasks.is_some());
        let tasks = self.tasks.iter().flatten().enumerate().filter(|_| has_names);
        let by_name: HashMap<&str, usize> = tasks.map(|(index, task)| (task.name, index)).collect();
        let part = |(index, record): (usize, &&'v Record)| {
            let of_claims = record.claims.iter().filter_map(|claim| self.by_claim.get(&**claim));
            let workspaces = record.workspaces.iter();
            let of_workspaces = workspaces.filter_map(|of| self.by_workspace.get(&**of));
            let units = of_claims.chain(of_workspaces).copied().collect::<BTreeSet<usize>>();
            // A unit that needs one node is in the first of its parts.
            let is_its = |unit: &usize| {
                let mut is_free = || *by_unit.entry(*unit).or_insert(index) == index;
                self.is_groupable(*unit) && (!self.units[*unit].one_node || is_free())
            };
            let selector = record.node_selector.iter();
            let names = || record.tasks.iter().flatten().map(AsRef::as_ref);
            Part {
                key: record.key.clone(),
                units: units.into_iter().filter(is_its).collect(),
                tasks: names().filter_map(|name| by_name.get(name).copied()).collect(),
                other_tasks: names().filter(|name| !by_name.contains_key(name)).collect(),
                has_tasks: record.tasks.is_some() || self.tasks.is_some(),
                selector: selector.map(|(key, value)| (&**key, &**value)).collect(),
            }
        };
        let parts = self.records.iter().enumerate().map(part).collect();
        (parts, by_unit)
    }

    /// Connected components of the units that need one node: a task joins the units that it uses. Each
    /// with the tasks that use it.
    fn components(&self, tasks: &[Task<'v>]) -> Vec<(BTreeSet<usize>, Vec<usize>)> {
        fn find(parent: &mut [usize], mut of: usize) -> usize {
            while parent[of] != of {
                parent[of] = parent[parent[of]];
                of = parent[of];
            }
            of
        }
        let one_node = |unit: &usize| self.units[*unit].one_node;
        let mut parent: Vec<usize> = (0..self.units.len()).collect();
        for task in tasks {
            let mut used = task.units.iter().copied().filter(one_node);
            let Some(first) = used.next() else { continue };
            for other in used {
                let (a, b) = (find(&mut parent, first), find(&mut parent, other));
                // The earlier unit becomes the representative.
                parent[a.max(b)] = a.min(b);
            }
        }
        let mut components: BTreeMap<usize, (BTreeSet<usize>, Vec<usize>)> = BTreeMap::new();
        for unit in (0..self.units.len()).filter(one_node) {
            components.entry(find(&mut parent, unit)).or_default().0.insert(unit);
        }
        for (index, task) in tasks.iter().enumerate() {
            if let Some(unit) = task.units.iter().copied().find(one_node) {
                components.entry(find(&mut parent, unit)).or_default().1.push(index);
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

    fn by_workspaces(&mut self) -> Vec<Part<'v>> {
        let Some(tasks) = self.tasks.take() else {
            // Without known tasks, all claims that need one node are one part.
            let units: BTreeSet<usize> =
                (0..self.units.len()).filter(|unit| self.units[*unit].one_node).collect();
            let selector = self.common_selector();
            let of_run = units.iter().any(|unit| !self.units[*unit].workspaces.is_empty());
            // The claims of child runs change, but the key must not.
            let key = if of_run { self.key_of(&units) } else { "".into() };
            let empty = units.is_empty();
            let part = Part { key, units, selector, ..Part::default() };
            return if empty { Vec::new() } else { vec![part] };
        };
        let mut parts = Vec::new();
        for (units, users) in self.components(&tasks) {
            let selector = self.join_selectors(&tasks, &users);
            let key = self.key_of(&units);
            let has_tasks = true;
            parts.push(Part { key, units, tasks: users, has_tasks, selector, ..Part::default() });
        }
        self.tasks = Some(tasks);
        parts
    }

    /// Combines the node selectors of tasks. If they contradict each other, reports the conflict and
    /// returns the run's own.
    fn join_selectors(
        &mut self,
        tasks: &[Task<'v>],
        users: &[usize],
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
    fn common_selector(&self) -> BTreeMap<&'v str, &'v str> {
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
    fn by_selectors(&mut self) -> Vec<Part<'v>> {
        let mountable: BTreeSet<usize> =
            (0..self.units.len()).filter(|unit| self.units[*unit].mountable).collect();
        let Some(tasks) = self.tasks.take() else {
            let selector = self.common_selector();
            let part = Part { units: mountable, selector, ..Part::default() };
            return vec![part];
        };
        // Tasks that must share a node because of a claim; each other task is a bundle of its own.
        let mut bundles: Vec<Vec<usize>> = Vec::new();
        let mut placed = vec![false; tasks.len()];
        for (_, users) in self.components(&tasks) {
            users.iter().for_each(|task| placed[*task] = true);
            bundles.push(users);
        }
        bundles.extend((0..tasks.len()).filter(|task| !placed[*task]).map(|task| vec![task]));
        bundles.retain(|bundle| !bundle.is_empty());
        // In the order of the pipeline, so that the first part has the first task.
        bundles.sort_by_key(|bundle| bundle.first().copied());
        let mut parts: Vec<Part<'v>> = Vec::new();
        let mut members: Vec<Vec<usize>> = Vec::new();
        for bundle in bundles {
            let selector = self.join_selectors(&tasks, &bundle);
            let fits = |part: &Part<'v>| {
                selector
                    .iter()
                    .all(|(key, value)| part.selector.get(key).is_none_or(|v| v == value))
            };
            match parts.iter().position(fits) {
                Some(part) => {
                    members[part].extend(bundle);
                    parts[part].selector.extend(selector);
                }
                // Each part costs a placeholder, so their number is limited.
                None if parts.len() == MAX_PARTS => members[0].extend(bundle),
                None => {
                    parts.push(Part { selector, has_tasks: true, ..Part::default() });
                    members.push(bundle);
                }
            }
        }
        if parts.is_empty() {
            parts.push(Part { has_tasks: true, ..Part::default() });
            members.push(Vec::new());
        }
        let several = parts.len() > 1;
        let mut left = mountable;
        for (part, mut members) in parts.iter_mut().zip(members) {
            members.sort_unstable();
            let used: BTreeSet<usize> =
                members.iter().flat_map(|task| &tasks[*task].units).copied().collect();
            part.tasks = members;
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
