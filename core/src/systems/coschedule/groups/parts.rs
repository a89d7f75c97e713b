//! Joins the claims and tasks of a run to parts, which become groups. Then the records are applied: each
//! keeps its claims and tasks, whatever the Pipeline says now. Then the parts are split whose volumes no
//! common node can mount.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use super::Conflict;
use super::uses::{Task, Uses, known_labels};
use crate::placement::affinity::excludes;
use crate::placement::intent::AnyOf;
use crate::systems::coschedule::kinds::{Access, PipelineRun};
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::coschedule::record::Record;
use crate::systems::disjoint_sets::DisjointSets;

/// A future group: its units and tasks, by their indexes.
#[derive(Default)]
pub(super) struct Part<'v> {
    pub(super) key: Box<str>,
    pub(super) units: BTreeSet<usize>,
    /// Sorted, each once.
    pub(super) tasks: Vec<usize>,
    /// True if its tasks are known.
    pub(super) knows_tasks: bool,
    pub(super) selector: BTreeMap<&'v str, &'v str>,
}

/// The labels of nodes that tasks ask for, each with its value and the first task that asks for it.
type Selectors<'v> = BTreeMap<&'v str, (&'v str, &'v str)>;

/// A label of which tasks ask for two values, and each value with the first task that asks for it.
type Clash<'v> = (&'v str, [(&'v str, &'v str); 2]);

/// Combines node selectors, given as the task, the label and its value. Each label has its first value; the first other
/// value is returned as a clash.
fn combine<'v>(
    selectors: impl Iterator<Item = (&'v str, &'v str, &'v str)>,
) -> (Selectors<'v>, Option<Clash<'v>>) {
    let mut joined = Selectors::new();
    let mut clash = None;
    for (task, label, value) in selectors {
        let first = *joined.entry(label).or_insert((value, task));
        if first.0 != value && clash.is_none() {
            clash = Some((label, [first, (value, task)]));
        }
    }
    (joined, clash)
}

/// The conflict between tasks that ask for different values of a label. `is_alone`: the second task is placed without
/// its run. If not, a claim keeps both together.
fn contradiction(clash: Clash<'_>, is_alone: bool) -> Conflict {
    let (label, [(value, task), (wanted, other)]) = clash;
    let (by, alone) = match task == other {
        true => ("by its matrix also".to_owned(), "the second is".to_owned()),
        false => (format!("task {other}"), format!("task {other} is")),
    };
    let effect = match is_alone {
        true => format!("{alone} placed without the group of the run"),
        false => "they share a claim that one node mounts at a time".to_owned(),
    };
    Conflict::Selectors(format!(
        "task {task} asks for nodes with {label}={value} and {by} for {label}={wanted}, and {effect}"
    ))
}

fn values<'v>(selectors: Selectors<'v>) -> BTreeMap<&'v str, &'v str> {
    selectors.into_iter().map(|(label, (value, _))| (label, value)).collect()
}

/// Forms the parts of a run.
pub(super) struct Parting<'u, 'v> {
    pub(super) uses: &'u Uses<'v>,
    pub(super) run: &'v PipelineRun,
    pub(super) mode: CoscheduleMode,
    /// The recorded groups of the run, sorted by key.
    pub(super) records: &'u [&'v Record],
    /// The requirements that contradict each other, as far as they have been found.
    pub(super) conflicts: Vec<Conflict>,
}

impl<'v> Parting<'_, 'v> {
    /// Returns the parts of the run, of which no two have the same key, sorted by their first units. A part without
    /// units is last.
    pub(super) fn parts(&mut self) -> Vec<Part<'v>> {
        self.report_volumes();
        let mut parts = match self.mode {
            CoscheduleMode::Workspaces => self.by_workspaces(),
            _ => vec![self.by_run()],
        };
        if !self.records.is_empty() {
            parts = self.apply_records(parts);
        }
        let mut by_key: BTreeMap<Box<str>, Part<'v>> = BTreeMap::new();
        for part in parts.into_iter().flat_map(|part| self.split_by_volumes(part)) {
            match by_key.get_mut(&part.key) {
                Some(known) => known.join(part),
                None => _ = by_key.insert(part.key.clone(), part),
            }
        }
        let mut parts: Vec<Part<'v>> = by_key.into_values().collect();
        parts.sort_by_key(|part| (part.units.is_empty(), part.units.first().copied()));
        parts
    }

    /// Returns the recorded parts, and what no record has of the computed ones.
    fn apply_records(&self, computed: Vec<Part<'v>>) -> Vec<Part<'v>> {
        let (mut parts, by_unit) = self.recorded_parts();
        let recorded: BTreeMap<Box<str>, usize> =
            parts.iter().enumerate().map(|(index, part)| (part.key.clone(), index)).collect();
        let tasks = &self.uses.tasks;
        let mut taken = vec![false; tasks.len()];
        parts.iter().flat_map(|part| &part.tasks).for_each(|task| taken[*task] = true);
        for (index, task) in tasks.iter().enumerate() {
            let part = task.units.iter().find_map(|unit| by_unit.get(unit));
            if let Some(part) = part.filter(|_| !taken[index]) {
                taken[index] = true;
                parts[*part].tasks.push(index);
            }
        }
        for mut part in computed {
            part.units.retain(|unit| !by_unit.contains_key(unit));
            part.tasks.retain(|task| !taken[*task]);
            if !part.knows_tasks {
                let joins = |unit: &usize| self.joins_first_part(*unit);
                let (joining, left) = part.units.into_iter().partition(joins);
                parts[0].units.extend::<BTreeSet<usize>>(joining);
                part.units = left;
                part.key = self.key_of(&part.units);
            }
            let is_needed =
                !part.tasks.is_empty() || part.units.iter().any(|unit| self.needs_one_node(unit));
            match recorded.get(&part.key).filter(|_| part.knows_tasks) {
                Some(known) => parts[*known].join(part),
                None if is_needed => parts.push(part),
                None => {}
            }
        }
        parts.iter_mut().for_each(|part| part.tasks.sort_unstable());
        parts
    }

    /// Returns true if a unit that is in no record joins the first recorded part while it is not known which tasks use
    /// it: a unit of a child run, which appears later, or of a run with one group. The other claims of a run whose
    /// Pipeline was deleted form a group of their own.
    fn joins_first_part(&self, unit: usize) -> bool {
        self.mode != CoscheduleMode::Workspaces
            || self.uses.missing_pipeline.is_none()
            || self.uses.units[unit].claim.is_none()
    }

    /// Returns the units that a group of this mode can have.
    fn groupable(&self) -> BTreeSet<usize> {
        let is_groupable = |unit: &usize| match self.mode {
            CoscheduleMode::Workspaces => self.needs_one_node(unit),
            _ => self.uses.units[*unit].access != Access::OnePod,
        };
        (0..self.uses.units.len()).filter(is_groupable).collect()
    }

    fn needs_one_node(&self, unit: &usize) -> bool {
        self.uses.units[*unit].access.needs_one_node()
    }

    /// Returns the parts of the recorded groups, and for each unit that needs one node the index of its part.
    fn recorded_parts(&self) -> (Vec<Part<'v>>, BTreeMap<usize, usize>) {
        let Uses { tasks, by_claim, by_workspace, .. } = self.uses;
        let groupable = self.groupable();
        let mut by_unit = BTreeMap::new();
        let has_names = self.records.iter().any(|record| record.tasks.is_some());
        let tasks = tasks.iter().enumerate().filter(|_| has_names);
        let by_name: HashMap<&str, usize> = tasks.map(|(index, task)| (task.name, index)).collect();
        let part = |(index, record): (usize, &&'v Record)| {
            let of_claims = record.claims.iter().filter_map(|claim| by_claim.get(&**claim));
            let of_workspaces = record.workspaces.iter().filter_map(|of| by_workspace.get(&**of));
            let units = of_claims.chain(of_workspaces).copied().collect::<BTreeSet<usize>>();
            // A unit that needs one node is in the first of its parts.
            let is_its = |unit: &usize| {
                let mut is_free = || *by_unit.entry(*unit).or_insert(index) == index;
                groupable.contains(unit) && (!self.needs_one_node(unit) || is_free())
            };
            let tasks = record.tasks.iter().flatten().filter_map(|name| by_name.get(&**name));
            let selector = record.node_selector.iter();
            Part {
                key: record.key.clone(),
                units: units.into_iter().filter(is_its).collect(),
                tasks: tasks.copied().collect(),
                knows_tasks: record.tasks.is_some() || self.uses.knows_tasks,
                selector: selector.map(|(key, value)| (&**key, &**value)).collect(),
            }
        };
        let parts = self.records.iter().enumerate().map(part).collect();
        (parts, by_unit)
    }

    /// Returns the connected components of the units that need one node, each with the tasks that use it: a task
    /// connects the units that it uses.
    fn components(&self) -> Vec<(BTreeSet<usize>, Vec<usize>)> {
        let Uses { units, tasks, .. } = self.uses;
        let one_node = |unit: &usize| self.needs_one_node(unit);
        // The root of a component is its earliest unit.
        let mut sets = DisjointSets::new(units.len());
        for task in tasks {
            let mut used = task.units.iter().copied().filter(one_node);
            let Some(first) = used.next() else { continue };
            used.for_each(|other| sets.join(first, other));
        }
        let mut components: BTreeMap<usize, (BTreeSet<usize>, Vec<usize>)> = BTreeMap::new();
        for unit in (0..units.len()).filter(one_node) {
            components.entry(sets.root(unit)).or_default().0.insert(unit);
        }
        for (index, task) in tasks.iter().enumerate() {
            if let Some(unit) = task.units.iter().copied().find(one_node) {
                components.entry(sets.root(unit)).or_default().1.push(index);
            }
        }
        components.into_values().collect()
    }

    /// Returns the key of a group that has these units: its first workspace, else its first claim.
    fn key_of(&self, units: &BTreeSet<usize>) -> Box<str> {
        let units = || units.iter().map(|unit| &self.uses.units[*unit]);
        let workspace = units().find_map(|unit| unit.workspaces.first());
        let claim = || units().find_map(|unit| unit.claim);
        match workspace {
            Some(workspace) => (*workspace).into(),
            None => claim().map(|claim| format!("claim/{claim}")).unwrap_or_default().into(),
        }
    }

    fn by_workspaces(&mut self) -> Vec<Part<'v>> {
        if self.uses.knows_tasks {
            let components = self.components().into_iter();
            let part = |(units, tasks): (BTreeSet<usize>, Vec<usize>)| Part {
                key: self.key_of(&units),
                selector: values(self.selectors_of_sharing(&tasks)),
                units,
                tasks,
                knows_tasks: true,
            };
            return components.map(part).collect();
        }
        // Without known tasks, all claims that need one node are one part.
        let units = self.groupable();
        let of_run = units.iter().any(|unit| !self.uses.units[*unit].workspaces.is_empty());
        // The claims of child runs change, but the key must not.
        let key = if of_run { self.key_of(&units) } else { "".into() };
        let is_empty = units.is_empty();
        let part = Part { key, units, selector: self.selector_of_run(), ..Part::default() };
        Some(part).filter(|_| !is_empty).into_iter().collect()
    }

    /// Combines the node selectors of tasks.
    fn selectors_of(&self, tasks: &[usize]) -> (Selectors<'v>, Option<Clash<'v>>) {
        combine(
            tasks.iter().map(|task| &self.uses.tasks[*task]).flat_map(|task| {
                task.selector.iter().map(|&(label, value)| (task.name, label, value))
            }),
        )
    }

    /// Combines the node selectors of tasks that share a claim. If they contradict each other, reports the conflict and
    /// returns the run's own.
    fn selectors_of_sharing(&mut self, tasks: &[usize]) -> Selectors<'v> {
        let (joined, clash) = self.selectors_of(tasks);
        let Some(clash) = clash else { return joined };
        self.conflicts.push(contradiction(clash, false));
        let first = tasks.first().map_or("", |task| self.uses.tasks[*task].name);
        let of_run = known_labels(self.run.template.node_selector.as_ref(), None);
        of_run.map(|(label, value)| (label, (value, first))).collect()
    }

    /// Combines the node selectors of the run and all its tasks, which are not known, or returns the run's own if
    /// they contradict each other.
    fn selector_of_run(&self) -> BTreeMap<&'v str, &'v str> {
        let own = || known_labels(self.run.template.node_selector.as_ref(), None);
        let of_tasks = self.run.task_overrides.iter();
        let of_tasks =
            of_tasks.flat_map(|of| known_labels(of.template.node_selector.as_ref(), None));
        let all = own().chain(of_tasks);
        match combine(all.map(|(label, value)| ("", label, value))) {
            (joined, None) => values(joined),
            _ => own().collect(),
        }
    }

    /// One part for all tasks whose node selectors agree, those that share a claim of one node first. Others are in
    /// none, nor are the claims of one node that they share.
    fn by_run(&mut self) -> Part<'v> {
        let mut run = Part { units: self.groupable(), ..Part::default() };
        if !self.uses.knows_tasks {
            return Part { selector: self.selector_of_run(), ..run };
        }
        let components = self.components();
        let mut is_single = vec![true; self.uses.tasks.len()];
        components.iter().flat_map(|(_, users)| users).for_each(|task| is_single[*task] = false);
        let singles = (0..self.uses.tasks.len()).filter(|task| is_single[*task]);
        let singles = singles.map(|task| (BTreeSet::new(), vec![task]));
        let mut selectors = Selectors::new();
        let mut left_out = None;
        for (units, users) in components.into_iter().chain(singles) {
            let (own, of_matrix) = if units.is_empty() {
                self.selectors_of(&users)
            } else {
                (self.selectors_of_sharing(&users), None)
            };
            let clash = own.iter().find_map(|(label, second)| {
                let first = selectors.get(label).filter(|first| first.0 != second.0)?;
                Some(contradiction((*label, [*first, *second]), true))
            });
            if clash.is_some() {
                run.units.retain(|unit| !units.contains(unit));
                left_out = left_out.or(clash);
                continue;
            }
            own.into_iter()
                .for_each(|(label, wanted)| _ = selectors.entry(label).or_insert(wanted));
            match of_matrix {
                // The task's pods with the first value are in the group, by their node selectors.
                Some(of_matrix) => self.conflicts.push(contradiction(of_matrix, true)),
                None => run.tasks.extend(users),
            }
        }
        self.conflicts.extend(left_out);
        run.tasks.sort_unstable();
        Part { knows_tasks: true, selector: values(selectors), ..run }
    }

    /// Splits a part whose volumes no common node can mount into one part for each set of volumes that a
    /// common node may be able to mount.
    fn split_by_volumes(&self, mut part: Part<'v>) -> Vec<Part<'v>> {
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
            let (knows_tasks, selector) = (part.knows_tasks, part.selector.clone());
            parts.push(Part { key, units: set.clone(), tasks, knows_tasks, selector });
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
    fn report_volumes(&mut self) {
        let all = self.groupable();
        if self.sets_by_volumes(&all).0.len() < 2 {
            return;
        }
        let conflict = |units: &BTreeSet<usize>, task: Option<&str>| {
            let of = |unit: usize| &self.uses.units[unit];
            let mut pairs = units.iter().flat_map(|a| units.range(a + 1..).map(move |b| (*a, *b)));
            let (a, b) = pairs.find(|(a, b)| are_apart(of(*a).terms, of(*b).terms))?;
            let [first, second] = [a, b].map(|unit| of(unit).claim.unwrap_or_default());
            let [of_first, of_second] = describe_places([of(a).terms, of(b).terms]);
            let effect = match task {
                Some(task) => format!("and task {task} uses both"),
                None => "so the run is on several nodes".to_owned(),
            };
            Some(Conflict::Volumes(format!(
                "no node can mount both claims {first} and {second}, {effect}: claim {first} is {of_first}, claim {second} {of_second}"
            )))
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

impl Part<'_> {
    /// Adds the units and the tasks of a part with the same key.
    fn join(&mut self, other: Self) {
        self.units.extend(other.units);
        self.tasks.extend(other.tasks);
        self.tasks.sort_unstable();
        self.tasks.dedup();
    }
}

/// Describes where each of two volumes with these terms can be mounted: their zones, or else the terms.
fn describe_places(volumes: [&[NodeSelectorTerm]; 2]) -> [String; 2] {
    let [of_first, of_second] = volumes.map(zones);
    if let (Some(first), Some(second)) = (&of_first, &of_second)
        && first != second
    {
        return [first, second].map(|zones| format!("in zone {}", zones.join(" or ")));
    }
    volumes.map(|terms| format!("on nodes with {}", AnyOf(terms)))
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
