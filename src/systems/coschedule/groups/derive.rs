//! Derives the groups of a run: finds its claims and which of its tasks use them, and makes groups of
//! the parts that these form.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use super::{Group, GroupClaim, Groups};
use crate::systems::coschedule::kinds::CoscheduleView as _;
use crate::systems::coschedule::kinds::pipeline::{Pipeline, PipelineTask};
use crate::systems::coschedule::kinds::pipeline_run::{
    PipelineRun, PipelineSource, Selector, WorkspaceSource,
};
use crate::systems::coschedule::kinds::storage::AccessModes;
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::coschedule::record::Record;
use crate::systems::coschedule::resources::{CLAIM, PIPELINE};
use crate::systems::coschedule::{family, keys};
use crate::view::{Key, Name, View};

/// Derives the groups of a run: reads those that are recorded, and forms groups of the claims and tasks
/// that no record has. `groups` has the mode, and no groups yet.
pub(super) fn derive(name: &Name, run: &PipelineRun, view: &View, groups: Groups) -> Groups {
    let mut records: Vec<&Record> = family::recorded(run, view).map(|(_, record)| record).collect();
    records.sort_unstable_by_key(|record| &record.key);
    let mut derivation = Derivation {
        name,
        run,
        view,
        units: Vec::new(),
        by_claim: HashMap::new(),
        by_workspace: HashMap::new(),
        tasks: None,
        records,
        is_pipeline_missing: false,
        groups,
    };
    derivation.find();
    derivation.resolve_results();
    derivation.report_volumes();
    let parts = derivation.parts();
    let parts = parts.into_iter().flat_map(|part| derivation.split_by_volumes(part));
    for part in merged(parts) {
        derivation.group(&part);
    }
    let Derivation { units, mut groups, .. } = derivation;
    let grouped: BTreeSet<&str> =
        groups.groups.iter().flat_map(|group| &group.claims).map(|claim| &*claim.name).collect();
    let claims = units.iter().filter_map(|unit| unit.claim);
    groups.free = claims.filter(|claim| !grouped.contains(claim)).map(Into::into).collect();
    groups
}

/// Merges parts with the same key, and sorts them by their first units. A part without units is last.
fn merged<'v>(parts: impl Iterator<Item = Part<'v>>) -> Vec<Part<'v>> {
    let mut by_key: BTreeMap<Box<str>, Part<'v>> = BTreeMap::new();
    for part in parts {
        match by_key.get_mut(&part.key) {
            Some(known) => {
                known.units.extend(part.units);
                known.tasks.extend(part.tasks);
                known.tasks.sort_unstable();
                known.tasks.dedup();
                known.other_tasks.extend(part.other_tasks);
            }
            None => {
                by_key.insert(part.key.clone(), part);
            }
        }
    }
    let mut merged: Vec<Part<'v>> = by_key.into_values().collect();
    merged.sort_by_key(|part| (part.units.is_empty(), part.units.first().copied()));
    merged
}

/// A claim of the run, or a workspace whose claim is not known yet.
pub(super) struct Unit<'v> {
    /// The workspaces of the root run that use the claim; the first gives a group its key.
    pub(super) workspaces: Vec<&'v str>,
    pub(super) claim: Option<&'v str>,
    pub(super) template: bool,
    pub(super) one_node: bool,
    /// Whether a placeholder may mount it.
    pub(super) mountable: bool,
    /// The node terms of the volume, of which a node must match one; empty: all nodes can mount it.
    pub(super) terms: &'v [NodeSelectorTerm],
}

/// A task of the run, and the units that it uses.
pub(super) struct Task<'v> {
    pub(super) name: &'v str,
    pub(super) units: BTreeSet<usize>,
    /// The labels of its node selector that are known.
    pub(super) selector: Vec<(&'v str, &'v str)>,
}

/// Returns the labels of a node selector that are known for a task, those of its matrix with each value;
/// `None`: for all tasks, which are not known.
pub(super) fn known<'v>(
    selector: &'v Selector,
    task: Option<(&'v Pipeline, &'v PipelineTask)>,
) -> impl Iterator<Item = (&'v str, &'v str)> {
    selector.iter().flat_map(move |(key, value)| {
        value.of_task(task).iter().map(move |value| (&**key, &**value))
    })
}

/// A future group: its units and tasks, by their indexes.
#[derive(Default)]
pub(super) struct Part<'v> {
    pub(super) key: Box<str>,
    pub(super) units: BTreeSet<usize>,
    /// Sorted, each once.
    pub(super) tasks: Vec<usize>,
    /// The recorded tasks that the pipeline does not have now.
    pub(super) other_tasks: Vec<&'v str>,
    /// Whether its tasks are known.
    pub(super) has_tasks: bool,
    pub(super) selector: BTreeMap<&'v str, &'v str>,
}

/// The state of the derivation.
pub(super) struct Derivation<'v> {
    pub(super) name: &'v Name,
    pub(super) run: &'v PipelineRun,
    pub(super) view: &'v View,
    pub(super) units: Vec<Unit<'v>>,
    pub(super) by_claim: HashMap<&'v str, usize>,
    /// The units by the workspaces of the run.
    pub(super) by_workspace: HashMap<&'v str, usize>,
    /// `None` if it is not known which task uses which claims.
    pub(super) tasks: Option<Vec<Task<'v>>>,
    /// The recorded groups of the run, sorted by key.
    pub(super) records: Vec<&'v Record>,
    /// Whether the Pipeline that the run names does not exist.
    pub(super) is_pipeline_missing: bool,
    pub(super) groups: Groups,
}

impl<'v> Derivation<'v> {
    /// Finds the claims of the run and, if possible, which tasks use them.
    fn find(&mut self) {
        let run = self.run;
        self.find_units_of(self.name, run);
        let pipeline = self.pipeline();
        let mut by_task: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for claim in run.mounted.iter().flat_map(|claim| claim.of_task(None)) {
            self.claim_unit(self.name, claim);
        }
        for of_task in &run.task_overrides {
            let task = pipeline.and_then(|pipeline| {
                let task = pipeline.tasks.iter().find(|task| task.name == of_task.task);
                Some((pipeline, task?))
            });
            for claim in of_task.mounted.iter().flatten().flat_map(|claim| claim.of_task(task)) {
                let unit = self.claim_unit(self.name, claim);
                by_task.entry(&of_task.task).or_default().push(unit);
            }
        }
        let Some(pipeline) = pipeline else {
            for (name, child) in family::below(run, self.view) {
                self.find_units_of(name, child);
            }
            return;
        };
        for task in &pipeline.tasks {
            let of_run = run.mounted.iter().flat_map(|claim| claim.of_task(Some((pipeline, task))));
            for claim in of_run.chain(&task.mounted) {
                let unit = self.claim_unit(self.name, claim);
                by_task.entry(&task.name).or_default().push(unit);
            }
        }
        // The tasks' own node selectors replace the run's.
        let own = run.task_overrides.iter();
        let selectors: BTreeMap<&str, &Selector> =
            own.filter_map(|of| Some((&*of.task, of.node_selector.as_ref()?))).collect();
        let tasks = pipeline.tasks.iter().map(|task| {
            let own = task.workspaces.iter().filter_map(|of| self.by_workspace.get(&**of));
            let of_template = by_task.get(&*task.name).into_iter().flatten();
            let selector = selectors.get(&*task.name).copied().unwrap_or(&run.node_selector);
            Task {
                name: &task.name,
                units: own.chain(of_template).copied().collect(),
                selector: known(selector, Some((pipeline, task))).collect(),
            }
        });
        self.tasks = Some(tasks.collect());
    }

    /// Finds the claims that results of tasks name: Tekton writes them into the TaskRuns that use them.
    /// They need not be known for a group to exist, but their volumes can split it.
    fn resolve_results(&mut self) {
        if self.units.iter().all(|unit| unit.claim.is_some()) {
            return;
        }
        let (run, view, namespace) = (self.run, self.view, &*self.name.namespace);
        for run in family::with_below(run, view) {
            for task_run in view.task_runs_of_run(namespace, &run.identity.uid) {
                for claim in &task_run.claims {
                    if !self.by_claim.contains_key(&**claim) {
                        let is_own = std::ptr::eq(run, self.run);
                        self.resolve_result(claim, task_run.task.as_deref().filter(|_| is_own));
                    }
                }
            }
        }
    }

    /// Finds the workspace of a claim that a TaskRun uses and the run does not name: the first of its
    /// task without a known claim. If its task is not known, the claim is a unit of its own.
    fn resolve_result(&mut self, claim: &'v str, task: Option<&str>) {
        let tasks = self.tasks.as_deref_mut().unwrap_or_default();
        let task = tasks.iter_mut().find(|known| Some(known.name) == task);
        let mut units = task.iter().flat_map(|task| &task.units).copied();
        if let Some(unit) = units.find(|unit| self.units[*unit].claim.is_none()) {
            let (modes, terms) = self.look_up(Name::new(&self.name.namespace, claim));
            self.by_claim.insert(claim, unit);
            let unit = &mut self.units[unit];
            unit.claim = Some(claim);
            unit.terms = terms;
            unit.one_node = modes.need_one_node();
            unit.mountable = !modes.one_pod;
        } else if self.tasks.is_none() {
            self.claim_unit(self.name, claim);
        }
    }

    /// The pipeline of the run, if it is known and not nested.
    fn pipeline(&mut self) -> Option<&'v Pipeline> {
        let pipeline = match &self.run.pipeline {
            PipelineSource::Inline(pipeline) if self.run.problem.is_none() => Some(pipeline),
            PipelineSource::Named(named) => {
                let key = Name::new(&self.name.namespace, named);
                let known = self.view.pipeline(&key);
                self.is_pipeline_missing = known.is_none();
                // Records already decide the groups.
                if self.is_pipeline_missing && self.records.is_empty() {
                    self.groups.awaited.push(Key::new(PIPELINE, key));
                }
                known.filter(|known| known.problem.is_none()).map(|known| &known.pipeline)
            }
            _ => None,
        };
        pipeline.filter(|pipeline| !pipeline.nested)
    }

    fn find_units_of(&mut self, name: &'v Name, run: &'v PipelineRun) {
        for workspace in &run.workspaces {
            let unit = match &workspace.source {
                WorkspaceSource::Free => continue,
                WorkspaceSource::Unresolved => self.add(None, false, AccessModes::default(), &[]),
                WorkspaceSource::Claim(claim) => self.claim_unit(name, claim),
                WorkspaceSource::Template(template) => match self.by_claim.get(&*template.claim) {
                    Some(known) => *known,
                    None => {
                        let terms = self.terms_of(&Name::new(&name.namespace, &template.claim));
                        // A placeholder creates claims only of its own run's templates.
                        let is_own = std::ptr::eq(run, self.run);
                        self.add(Some(&template.claim), is_own, template.access_modes, terms)
                    }
                },
            };
            if std::ptr::eq(run, self.run) {
                self.units[unit].workspaces.push(&workspace.name);
                self.by_workspace.insert(&workspace.name, unit);
            }
        }
    }

    fn add(
        &mut self,
        claim: Option<&'v str>,
        template: bool,
        modes: AccessModes,
        terms: &'v [NodeSelectorTerm],
    ) -> usize {
        let unit = self.units.len();
        self.by_claim.extend(claim.map(|claim| (claim, unit)));
        self.units.push(Unit {
            workspaces: Vec::new(),
            claim,
            template,
            one_node: modes.need_one_node(),
            mountable: !modes.one_pod,
            terms,
        });
        unit
    }

    /// The unit of a claim, which need not exist yet.
    fn claim_unit(&mut self, of: &Name, claim: &'v str) -> usize {
        if let Some(known) = self.by_claim.get(claim) {
            return *known;
        }
        let (modes, terms) = self.look_up(Name::new(&of.namespace, claim));
        self.add(Some(claim), false, modes, terms)
    }

    /// The access modes of a claim, and the node affinity of its volume. A claim that is not known is
    /// awaited: without it a group could not be split.
    fn look_up(&mut self, claim: Name) -> (AccessModes, &'v [NodeSelectorTerm]) {
        let terms = self.terms_of(&claim);
        let modes = self.view.claim(&claim).map(|claim| claim.access_modes);
        if modes.is_none() {
            self.groups.awaited.push(Key::new(CLAIM, claim));
        }
        (modes.unwrap_or_default(), terms)
    }

    fn terms_of(&self, claim: &Name) -> &'v [NodeSelectorTerm] {
        let volume = self.view.claim(claim).and_then(|claim| claim.volume.as_deref());
        let volume = volume.and_then(|volume| self.view.volume(volume));
        volume.map_or(&[], |volume| &*volume.terms)
    }

    fn group(&mut self, part: &Part<'v>) {
        let Part { key, units, tasks, other_tasks, has_tasks, selector } = part;
        let known = self.tasks.as_deref().unwrap_or_default();
        let tasks = tasks.iter().map(|task| known[*task].name).chain(other_tasks.iter().copied());
        let units = || units.iter().map(|unit| &self.units[*unit]);
        let claims = units().filter_map(|&Unit { claim, template, one_node, .. }| {
            Some(GroupClaim { name: claim?.into(), template, one_node })
        });
        let workspaces = units().flat_map(|unit| &unit.workspaces);
        self.groups.groups.push(Group {
            name: keys::of_run(&self.run.identity.uid, key).into(),
            workspaces: workspaces.map(|workspace| (*workspace).into()).collect(),
            claims: claims.collect(),
            derived: units().any(|unit| unit.claim.is_none()),
            tasks: has_tasks.then(|| tasks.map(Into::into).collect()),
            node_selector: selector.iter().map(|(&k, &v)| (k.into(), v.into())).collect(),
            isolated: self.groups.mode == CoscheduleMode::IsolatePipelinerun,
            key: key.clone(),
        });
    }
}
