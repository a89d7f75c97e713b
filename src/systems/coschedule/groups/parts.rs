//! Joins the claims and tasks of a run to parts, which become groups. Then the records are applied: each
//! keeps its claims and tasks, whatever the Pipeline says now.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Conflict;
use super::derive::{Derivation, Part, Task, known};
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::coschedule::record::Record;

impl<'v> Derivation<'v> {
    /// All parts of the run.
    pub(super) fn parts(&mut self) -> Vec<Part<'v>> {
        let derived = match self.groups.mode {
            CoscheduleMode::Workspaces => self.by_workspaces(),
            _ => self.by_run(),
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

    /// Combines the node selectors of tasks that share a claim. If they contradict each other, reports the
    /// conflict and returns the run's own.
    fn join_selectors(
        &mut self,
        tasks: &[Task<'v>],
        users: &[usize],
    ) -> BTreeMap<&'v str, &'v str> {
        let (joined, clash) = Self::combine(tasks, users);
        if clash.is_none() {
            return joined;
        }
        self.groups.conflicts.extend(clash);
        known(&self.run.node_selector, None).collect()
    }

    /// Combines the node selectors of tasks, with the first value of each label. Returns the first other
    /// value as a conflict.
    fn combine(
        tasks: &[Task<'v>],
        users: &[usize],
    ) -> (BTreeMap<&'v str, &'v str>, Option<Conflict>) {
        let mut joined: BTreeMap<&'v str, (&'v str, &'v str)> = BTreeMap::new();
        let mut clash = None;
        for task in users.iter().map(|user| &tasks[*user]) {
            for &(label, value) in &task.selector {
                let (wanted, by) = *joined.entry(label).or_insert((value, task.name));
                if wanted != value && clash.is_none() {
                    clash = Some(Conflict::Selectors {
                        label: label.into(),
                        first: (by.into(), wanted.into()),
                        second: (task.name.into(), value.into()),
                        is_alone: false,
                    });
                }
            }
        }
        (joined.into_iter().map(|(label, (value, _))| (label, value)).collect(), clash)
    }

    /// The combined node selectors of the run and all its tasks, or the run's own if they contradict
    /// each other.
    fn common_selector(&self) -> BTreeMap<&'v str, &'v str> {
        let run = self.run;
        let own = || known(&run.node_selector, None);
        let mut joined: BTreeMap<&'v str, &'v str> = own().collect();
        for labels in run.task_overrides.iter().filter_map(|of| of.node_selector.as_ref()) {
            for (label, value) in known(labels, None) {
                if *joined.entry(label).or_insert(value) != value {
                    return own().collect();
                }
            }
        }
        joined
    }

    /// One part for all tasks whose node selectors agree, those that share a claim of one node first. Others that
    /// share such a claim are parts of their own, and the rest is in none.
    fn by_run(&mut self) -> Vec<Part<'v>> {
        let mut left: BTreeSet<usize> =
            (0..self.units.len()).filter(|unit| self.units[*unit].mountable).collect();
        let Some(tasks) = self.tasks.take() else {
            let selector = self.common_selector();
            return vec![Part { units: left, selector, ..Part::default() }];
        };
        let components = self.components(&tasks);
        let mut is_alone = vec![true; tasks.len()];
        components.iter().flat_map(|(_, users)| users).for_each(|task| is_alone[*task] = false);
        let alone = (0..tasks.len()).filter(|task| is_alone[*task]);
        let alone = alone.map(|task| (BTreeSet::new(), vec![task]));
        let mut run = Part { has_tasks: true, ..Part::default() };
        let mut parts = Vec::new();
        let mut conflict = None;
        for (units, users) in components.into_iter().chain(alone) {
            let (selector, of_matrix) = match units.is_empty() {
                true => Self::combine(&tasks, &users),
                false => (self.join_selectors(&tasks, &users), None),
            };
            let own = |label: &str| run.selector.get(label).copied();
            let clash =
                selector.iter().find(|(label, value)| own(label).is_some_and(|own| own != **value));
            let Some((&label, &value)) = clash else {
                run.selector.extend(selector);
                match of_matrix {
                    // Its pods with the first value are in the group, by their node selectors.
                    Some(_) => {
                        let alone = of_matrix.map(Conflict::placed_alone);
                        self.groups.conflicts.extend(alone);
                    }
                    None => run.tasks.extend(users),
                }
                continue;
            };
            let asks = |task: &usize, value: &str| tasks[*task].selector.contains(&(label, value));
            let first = run.tasks.iter().find(|task| asks(task, own(label).unwrap_or_default()));
            let second = users.iter().find(|task| asks(task, value));
            if let (None, Some(first), Some(second)) = (&conflict, first, second) {
                let of = |task: &usize, value: &str| (tasks[*task].name.into(), value.into());
                let (first, second) =
                    (of(first, own(label).unwrap_or_default()), of(second, value));
                conflict = Some(Conflict::Selectors {
                    label: label.into(),
                    first,
                    second,
                    is_alone: true,
                });
            }
            if !units.is_empty() {
                left.retain(|unit| !units.contains(unit));
                let key = self.key_of(&units);
                let has_tasks = true;
                parts.push(Part {
                    key,
                    units,
                    tasks: users,
                    has_tasks,
                    selector,
                    ..Part::default()
                });
            }
        }
        run.tasks.sort_unstable();
        run.units = left;
        parts.insert(0, run);
        self.groups.conflicts.extend(conflict);
        self.tasks = Some(tasks);
        parts
    }
}
