//! Derives the groups of a run: finds its claims and which of its tasks use them, and forms parts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use super::parts::selector_of;
use super::{Group, GroupClaim, Groups};
use crate::systems::coschedule::kinds::CoscheduleView as _;
use crate::systems::coschedule::kinds::pipeline::Pipeline;
use crate::systems::coschedule::kinds::pipeline_run::PipelineRun;
use crate::systems::coschedule::kinds::pipeline_run::{Labels, PipelineSource, WorkspaceSource};
use crate::systems::coschedule::kinds::placeholder::Placeholder;
use crate::systems::coschedule::kinds::storage::AccessModes;
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::coschedule::resources::CLAIM;
use crate::systems::coschedule::resources::PIPELINE;
use crate::systems::coschedule::{family, keys};
use crate::view::{Key, Name, View};

/// Derives the groups of a run. `groups` has the mode, and no groups yet.
pub(super) fn derive(name: &Name, run: &PipelineRun, view: &View, groups: Groups) -> Groups {
    let mode = groups.mode;
    let mut derivation = Derivation {
        name,
        run,
        view,
        units: Vec::new(),
        by_claim: HashMap::new(),
        tasks: None,
        existing: existing(run, view),
        is_pipeline_missing: false,
        groups,
    };
    derivation.find();
    let mut parts = if derivation.existing.is_empty() || !derivation.is_pipeline_missing {
        let parts = match mode {
            CoscheduleMode::Workspaces => derivation.by_workspaces(),
            _ => derivation.by_selectors(),
        };
        parts.iter().for_each(|part| derivation.report_conflicts(part));
        let parts = parts.into_iter().flat_map(|part| derivation.split_by_placeholders(part));
        parts.flat_map(|part| derivation.split_by_volumes(part)).collect()
    } else {
        derivation.parts_of_placeholders()
    };
    derivation.keep_keys(&mut parts);
    for part in &parts {
        derivation.group(part);
    }
    let Derivation { units, mut groups, .. } = derivation;
    let grouped: BTreeSet<&str> =
        groups.groups.iter().flat_map(|group| &group.claims).map(|claim| &*claim.name).collect();
    let claims = units.iter().filter_map(|unit| unit.claim);
    groups.free = claims.filter(|claim| !grouped.contains(claim)).map(Into::into).collect();
    groups
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
    pub(super) selector: &'v Labels,
}

/// The units and tasks of a future group, by their indexes.
#[derive(Default)]
pub(super) struct Part<'v> {
    pub(super) key: Box<str>,
    pub(super) units: BTreeSet<usize>,
    pub(super) tasks: BTreeSet<usize>,
    pub(super) selector: BTreeMap<&'v str, &'v str>,
}

/// The state of the derivation.
pub(super) struct Derivation<'v> {
    pub(super) name: &'v Name,
    pub(super) run: &'v PipelineRun,
    pub(super) view: &'v View,
    pub(super) units: Vec<Unit<'v>>,
    pub(super) by_claim: HashMap<&'v str, usize>,
    /// `None` if it is not known which task uses which claims.
    pub(super) tasks: Option<Vec<Task<'v>>>,
    /// The existing placeholders of the run, with their groups' keys.
    pub(super) existing: Vec<(&'v str, &'v Placeholder)>,
    /// Whether the Pipeline that the run names does not exist.
    pub(super) is_pipeline_missing: bool,
    pub(super) groups: Groups,
}

impl<'v> Derivation<'v> {
    /// Finds the claims of the run and, if possible, which tasks use them.
    fn find(&mut self) {
        let run = self.run;
        self.find_units_of(self.name, run);
        let by_all: Vec<usize> =
            run.mounted.iter().map(|claim| self.claim_unit(self.name, claim)).collect();
        let mut by_task: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for of_task in &run.task_overrides {
            for claim in of_task.mounted.iter().flatten() {
                let unit = self.claim_unit(self.name, claim);
                by_task.entry(&of_task.task).or_default().push(unit);
            }
        }
        let Some(pipeline) = self.pipeline() else { return self.find_units_below() };
        let mut of_workspace: BTreeMap<&str, usize> = BTreeMap::new();
        for (unit, of) in self.units.iter().enumerate() {
            of_workspace.extend(of.workspaces.iter().map(|workspace| (*workspace, unit)));
        }
        for task in &pipeline.tasks {
            for claim in &task.mounted {
                let unit = self.claim_unit(self.name, claim);
                by_task.entry(&task.name).or_default().push(unit);
            }
        }
        let selectors = self.selectors();
        let tasks = pipeline.tasks.iter().map(|task| {
            let own = task.workspaces.iter().filter_map(|of| of_workspace.get(&**of));
            let of_template = by_task.get(&*task.name).into_iter().flatten();
            Task {
                name: &task.name,
                units: own.chain(&by_all).chain(of_template).copied().collect(),
                selector: selectors.get(&*task.name).copied().unwrap_or(&run.node_selector),
            }
        });
        self.tasks = Some(tasks.collect());
    }

    /// The pipeline of the run, if it is known and not nested.
    fn pipeline(&mut self) -> Option<&'v Pipeline> {
        let pipeline = match &self.run.pipeline {
            PipelineSource::Inline(pipeline) if self.run.problem.is_none() => Some(pipeline),
            PipelineSource::Named(named) => {
                let key = Name::new(&self.name.namespace, named);
                let known = self.view.pipeline(&key);
                self.is_pipeline_missing = known.is_none();
                // Existing placeholders already decide the groups.
                if self.is_pipeline_missing && self.existing.is_empty() {
                    self.groups.awaited.push(Key::new(PIPELINE, key));
                }
                known.filter(|known| known.problem.is_none()).map(|known| &known.pipeline)
            }
            _ => None,
        };
        pipeline.filter(|pipeline| !pipeline.nested)
    }

    /// Whether a placeholder was created for a unit: it mounts the claim, or has the key of the
    /// workspace whose claim is not known yet.
    pub(super) fn was_made_for(
        &self,
        (key, placeholder): (&str, &Placeholder),
        unit: usize,
    ) -> bool {
        let unit = &self.units[unit];
        match unit.claim {
            Some(claim) => mounts(placeholder, claim),
            None => unit.workspaces.contains(&key),
        }
    }

    /// One part for each existing placeholder: members have already joined it, so later ones must too,
    /// even if the Pipeline was deleted. Units without a placeholder belong to the first part, or else
    /// form a part of their own.
    fn parts_of_placeholders(&mut self) -> Vec<Part<'v>> {
        let is_whole_run = self.groups.mode != CoscheduleMode::Workspaces;
        let existing = self.existing.clone();
        let namespace = &self.name.namespace;
        for claim in existing.iter().flat_map(|(_, placeholder)| &placeholder.claims) {
            // A claim that became known later, as the result of a task.
            if self.view.claim(&Name::new(namespace, claim)).is_some() {
                self.claim_unit(self.name, claim);
            }
        }
        let mut left: BTreeSet<usize> = (0..self.units.len())
            .filter(|unit| match is_whole_run {
                true => self.units[*unit].mountable,
                false => self.units[*unit].one_node,
            })
            .collect();
        let all = left.clone();
        let mut parts: Vec<Part<'v>> = Vec::new();
        for (key, placeholder) in existing {
            let has = |unit: &usize| self.was_made_for((key, placeholder), *unit);
            // A unit that needs one node belongs to one part only.
            let is_free = |unit: &usize| left.contains(unit) || !self.units[*unit].one_node;
            let units: BTreeSet<usize> =
                all.iter().copied().filter(|unit| has(unit) && is_free(unit)).collect();
            left.retain(|unit| !units.contains(unit));
            let selector = selector_of(key).filter(|_| is_whole_run);
            let selector = selector.unwrap_or_else(|| self.common_selector());
            parts.push(Part { key: key.into(), units, tasks: BTreeSet::new(), selector });
        }
        parts.sort_by_key(|part| part.units.first().copied());
        if let Some(first) = parts.first_mut() {
            let joins = |unit: &usize| is_whole_run || self.units[*unit].claim.is_none();
            let (joining, others) = left.into_iter().partition(joins);
            left = others;
            first.units.extend::<BTreeSet<usize>>(joining);
        }
        if !left.is_empty() {
            let (key, selector) = (self.key_of(&left), self.common_selector());
            parts.push(Part { key, units: left, tasks: BTreeSet::new(), selector });
        }
        parts
    }

    /// Finds the claims of all runs below the run.
    fn find_units_below(&mut self) {
        for (name, child) in family::below(self.run, self.view) {
            self.find_units_of(name, child);
        }
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
        let key = Name::new(&of.namespace, claim);
        let terms = self.terms_of(&key);
        let found = self.view.claim(&key);
        let modes = found.map(|claim| claim.access_modes).unwrap_or_default();
        if found.is_none() {
            self.groups.awaited.push(Key::new(CLAIM, key));
        }
        self.add(Some(claim), false, modes, terms)
    }

    fn terms_of(&self, claim: &Name) -> &'v [NodeSelectorTerm] {
        let volume = self.view.claim(claim).and_then(|claim| claim.volume.as_deref());
        let volume = volume.and_then(|volume| self.view.volume(volume));
        volume.map_or(&[], |volume| &*volume.terms)
    }

    /// The tasks' own node selectors, which replace the run's.
    fn selectors(&self) -> BTreeMap<&'v str, &'v Labels> {
        let own = self.run.task_overrides.iter();
        own.filter_map(|of| Some((&*of.task, of.node_selector.as_ref()?))).collect()
    }

    fn group(&mut self, part: &Part<'v>) {
        let Part { key, units, tasks, selector } = part;
        let claims = units.iter().filter_map(|unit| {
            let Unit { claim, template, one_node, .. } = self.units[*unit];
            Some(GroupClaim { name: claim?.into(), template, one_node })
        });
        let tasks = self
            .tasks
            .as_ref()
            .map(|known| tasks.iter().map(|task| known[*task].name.into()).collect());
        self.groups.groups.push(Group {
            name: keys::of_run(&self.run.identity.uid, key).into(),
            claims: claims.collect(),
            derived: units.iter().any(|unit| self.units[*unit].claim.is_none()),
            tasks,
            node_selector: selector.iter().map(|(&k, &v)| (k.into(), v.into())).collect(),
            isolated: self.groups.mode == CoscheduleMode::IsolatePipelinerun,
            key: key.clone(),
        });
    }
}

/// The existing placeholders of a run with their groups' keys, sorted by key.
fn existing<'v>(run: &'v PipelineRun, view: &'v View) -> Vec<(&'v str, &'v Placeholder)> {
    let made = family::placeholders(run, view);
    let mut made: Vec<_> = made
        .map(|(_, placeholder)| (placeholder.key.as_deref().unwrap_or_default(), placeholder))
        .collect();
    made.sort_unstable_by_key(|(key, _)| *key);
    made
}

/// Whether a placeholder mounts a claim of its run, or its own claim that replaces it.
pub(super) fn mounts(placeholder: &Placeholder, claim: &str) -> bool {
    let template = keys::template(claim);
    placeholder.claims.iter().any(|own| **own == *claim)
        || placeholder.templates.iter().any(|own| **own == *template)
}
