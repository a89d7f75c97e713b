//! Finds the claims of a run, and which of its tasks use them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use super::GroupClaim;
use crate::systems::View;
use crate::systems::coschedule::family;
use crate::systems::coschedule::kinds::{
    Access, Pipeline, PipelineRun, PipelineSource, PipelineTask, Selector, WorkspaceSource,
};
use crate::systems::coschedule::record::Record;
use crate::systems::coschedule::resources::{CLAIM, PIPELINE};
use crate::view::{Key, Name};

/// A claim of the run, or a workspace whose claim is not known yet.
#[derive(Default)]
pub(super) struct Unit<'v> {
    /// The workspaces of the root run that use the claim; the first gives a group its key.
    pub(super) workspaces: Vec<&'v str>,
    pub(super) claim: Option<&'v str>,
    pub(super) template: bool,
    pub(super) access: Access,
    /// The node terms of the volume, of which a node must match one; empty: all nodes can mount it.
    pub(super) terms: &'v [NodeSelectorTerm],
}

impl Unit<'_> {
    /// Returns its claim as one of a group, if it is known.
    pub(super) fn group_claim(&self) -> Option<GroupClaim> {
        let (name, one_node) = (self.claim?.into(), self.access.needs_one_node());
        Some(GroupClaim { name, template: self.template, one_node })
    }
}

/// A task of the run, and the units that it uses.
pub(super) struct Task<'v> {
    pub(super) name: &'v str,
    pub(super) units: BTreeSet<usize>,
    /// The labels of its node selector that are known.
    pub(super) selector: Vec<(&'v str, &'v str)>,
}

/// The claims of a run, and the tasks that use them.
pub(super) struct Uses<'v> {
    namespace: &'v str,
    run: &'v PipelineRun,
    view: &'v View,
    pub(super) units: Vec<Unit<'v>>,
    pub(super) by_claim: HashMap<&'v str, usize>,
    /// The units by the workspaces of the run.
    pub(super) by_workspace: HashMap<&'v str, usize>,
    /// The tasks of its pipeline, and then those that only records name: they use nothing.
    pub(super) tasks: Vec<Task<'v>>,
    /// True if it is known which task uses which claims.
    pub(super) knows_tasks: bool,
    /// The Pipeline that the run names and that the View does not have.
    pub(super) missing_pipeline: Option<Key>,
    /// The claims that the watches have not delivered.
    pub(super) awaited: Vec<Key>,
}

/// Returns the labels of a node selector that are known for a task, those of its matrix with each value;
/// `None`: for all tasks, which are not known.
pub(super) fn known_labels<'v>(
    selector: Option<&'v Selector>,
    task: Option<(&'v Pipeline, &'v PipelineTask)>,
) -> impl Iterator<Item = (&'v str, &'v str)> {
    selector.into_iter().flatten().flat_map(move |(key, value)| {
        value.of_task(task).iter().map(move |value| (&**key, &**value))
    })
}

impl<'v> Uses<'v> {
    /// Finds the claims of a root run and, if possible, which tasks use them.
    pub(super) fn of_run(
        namespace: &'v str,
        run: &'v PipelineRun,
        records: &[&'v Record],
        view: &'v View,
    ) -> Self {
        let mut uses = Self {
            namespace,
            run,
            view,
            units: Vec::new(),
            by_claim: HashMap::new(),
            by_workspace: HashMap::new(),
            tasks: Vec::new(),
            knows_tasks: false,
            missing_pipeline: None,
            awaited: Vec::new(),
        };
        uses.add_workspaces(run);
        let pipeline = uses.pipeline();
        let mut mounted: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for claim in run.template.mounted.iter().flat_map(|claim| claim.of_task(None)) {
            uses.unit_of(claim);
        }
        for task_override in &run.task_overrides {
            let task = pipeline.and_then(|pipeline| {
                let task = pipeline.tasks.iter().find(|task| task.name == task_override.task);
                Some((pipeline, task?))
            });
            for claim in task_override.template.mounted.iter().flat_map(|claim| claim.of_task(task))
            {
                let unit = uses.unit_of(claim);
                mounted.entry(&task_override.task).or_default().push(unit);
            }
        }
        uses.knows_tasks = pipeline.is_some();
        match pipeline {
            Some(pipeline) => uses.tasks = uses.tasks_of(pipeline, &mounted),
            None => {
                let below = family::with_below(run, view).into_iter().skip(1);
                below.for_each(|child| uses.add_workspaces(child));
            }
        }
        uses.resolve_results();
        uses.add_recorded_tasks(records);
        uses
    }

    /// Returns the tasks of the pipeline with the units that they use. `mounted`: the units of their own pod templates.
    fn tasks_of(
        &mut self,
        pipeline: &'v Pipeline,
        mounted: &BTreeMap<&'v str, Vec<usize>>,
    ) -> Vec<Task<'v>> {
        let run = self.run;
        // The tasks' own node selectors replace the run's.
        let overrides = run.task_overrides.iter();
        let selectors: BTreeMap<&str, &Selector> = overrides
            .filter_map(|of| Some((&*of.task, of.template.node_selector.as_ref()?)))
            .collect();
        let tasks = pipeline.tasks.iter().map(|task| {
            let of_task = Some((pipeline, task));
            let own = mounted.get(&*task.name).into_iter().flatten();
            let mut units: BTreeSet<usize> = own.copied().collect();
            let of_run = run.template.mounted.iter().flat_map(|claim| claim.of_task(of_task));
            units.extend(of_run.chain(&task.mounted).map(|claim| self.unit_of(claim)));
            let workspaces = task.workspaces.iter();
            units.extend(workspaces.filter_map(|of| self.by_workspace.get(&**of)));
            let own = selectors.get(&*task.name).copied();
            let selector = own.or(run.template.node_selector.as_ref());
            Task { name: &task.name, units, selector: known_labels(selector, of_task).collect() }
        });
        tasks.collect()
    }

    /// Returns the pipeline of the run, if it is known and not nested.
    fn pipeline(&mut self) -> Option<&'v Pipeline> {
        let pipeline = match &self.run.pipeline {
            PipelineSource::Inline(pipeline) if self.run.problem.is_none() => Some(pipeline),
            PipelineSource::Named(named) => {
                let name = Name::new(self.namespace, named);
                let known = self.view.pipeline(&name);
                self.missing_pipeline = known.is_none().then(|| Key::new(PIPELINE, name));
                known.filter(|known| known.problem.is_none()).map(|known| &known.pipeline)
            }
            _ => None,
        };
        pipeline.filter(|pipeline| !pipeline.nested)
    }

    fn add_workspaces(&mut self, run: &'v PipelineRun) {
        let is_root = std::ptr::eq(run, self.run);
        for workspace in &run.workspaces {
            let unit = match &workspace.source {
                WorkspaceSource::Free => continue,
                WorkspaceSource::Unresolved => self.add(Unit::default()),
                WorkspaceSource::Claim(claim) => self.unit_of(claim),
                WorkspaceSource::Template(template) => match self.by_claim.get(&*template.claim) {
                    Some(known) => *known,
                    // A placeholder creates claims only of its own run's templates.
                    None => self.add(Unit {
                        template: is_root,
                        access: template.access,
                        ..self.look_up(&template.claim)
                    }),
                },
            };
            if is_root {
                self.units[unit].workspaces.push(&workspace.name);
                self.by_workspace.insert(&workspace.name, unit);
            }
        }
    }

    /// Returns the unit of a claim, which need not exist yet. A claim that is not known is awaited: without it a group
    /// could not be split.
    fn unit_of(&mut self, claim: &'v str) -> usize {
        if let Some(known) = self.by_claim.get(claim) {
            return *known;
        }
        let unit = self.look_up_or_await(claim);
        self.add(unit)
    }

    fn add(&mut self, unit: Unit<'v>) -> usize {
        let index = self.units.len();
        self.by_claim.extend(unit.claim.map(|claim| (claim, index)));
        self.units.push(unit);
        index
    }

    fn look_up_or_await(&mut self, claim: &'v str) -> Unit<'v> {
        let name = Name::new(self.namespace, claim);
        if self.view.claim(&name).is_none() {
            self.awaited.push(Key::new(CLAIM, name));
        }
        self.look_up(claim)
    }

    /// Looks up the access modes of a claim, and the node affinity of its volume.
    fn look_up(&self, claim: &'v str) -> Unit<'v> {
        let known = self.view.claim(&Name::new(self.namespace, claim));
        let volume = known.and_then(|claim| self.view.volume(claim.volume.as_deref()?));
        Unit {
            claim: Some(claim),
            access: known.map(|claim| claim.access).unwrap_or_default(),
            terms: volume.map_or(&[], |volume| &*volume.terms),
            ..Unit::default()
        }
    }

    /// Finds the claims that results of tasks name: Tekton writes them into the TaskRuns that use them.
    /// They need not be known for a group to exist, but their volumes can split it.
    fn resolve_results(&mut self) {
        if self.units.iter().all(|unit| unit.claim.is_some()) {
            return;
        }
        let (root, view) = (self.run, self.view);
        for run in family::with_below(root, view) {
            for task_run in view.task_runs_of_run(self.namespace, &run.identity.uid) {
                let task = task_run.task.as_deref().filter(|_| std::ptr::eq(run, root));
                for claim in &task_run.claims {
                    if !self.by_claim.contains_key(&**claim) {
                        self.resolve_result(claim, task);
                    }
                }
            }
        }
    }

    /// Finds the workspace of a claim that a TaskRun uses and the run does not name: the first of its
    /// task without a known claim. If its task is not known, the claim is a unit of its own.
    fn resolve_result(&mut self, claim: &'v str, task: Option<&str>) {
        let task = self.tasks.iter().find(|known| Some(known.name) == task);
        let mut units = task.iter().flat_map(|task| &task.units).copied();
        if let Some(unit) = units.find(|unit| self.units[*unit].claim.is_none()) {
            let workspaces = std::mem::take(&mut self.units[unit].workspaces);
            self.units[unit] = Unit { workspaces, ..self.look_up_or_await(claim) };
            self.by_claim.insert(claim, unit);
        } else if !self.knows_tasks {
            self.unit_of(claim);
        }
    }

    fn add_recorded_tasks(&mut self, records: &[&'v Record]) {
        let mut recorded =
            records.iter().flat_map(|record| record.tasks.iter().flatten()).peekable();
        if recorded.peek().is_none() {
            return;
        }
        let mut known: HashSet<&str> = self.tasks.iter().map(|task| task.name).collect();
        for name in recorded.filter(|name| known.insert(name)) {
            self.tasks.push(Task { name, units: BTreeSet::new(), selector: Vec::new() });
        }
    }
}
