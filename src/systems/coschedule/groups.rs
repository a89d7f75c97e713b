//! The groups of a run: which of its pods share a node, and why.
//!
//! A pure function of what does not change while a run lasts: its spec, the Pipeline that it names, the
//! access modes of its claims. Never of its status, which a third of the runs do not have yet when
//! their first pod arrives. The webhook, the reconciler and the command line all ask here, so that they
//! agree.
//!
//! - `workspaces`: what must be on one node is a claim that is mounted by one node at a time. Two such
//!   claims belong together where one task uses both. Tasks without one are free.
//! - `pipelineruns`, `isolate-pipelinerun`: the whole run.
//! - What cannot be on one node is split: claims whose volumes share no node, and, where no claim stands
//!   against it, tasks whose node selectors contradict each other. Where something stands against it,
//!   that is a [`Conflict`], to be told.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::rc::Rc;

use k8s_openapi::api::core::v1::NodeSelectorTerm;
use k8s_openapi::jiff::Timestamp;

use super::mode::{self, BadMode};
use super::{family, keys};
use crate::placement::affinity::excludes;
use crate::policy::{CoscheduleMode, Policy};
use crate::view::pipeline::Pipeline;
use crate::view::pipeline_run::{Labels, PipelineSource, WorkspaceSource};
use crate::view::storage::AccessModes;
use crate::view::{Key, Name, PipelineRun, Placeholder, View};

/// The most runs above a run that are looked at: pipelines in pipelines are never that deep.
pub(super) const MAX_DEPTH: usize = 16;

/// The most parts that a run is split into by the node selectors of its tasks.
const MAX_PARTS: usize = 64;

/// The groups of a run with all that it runs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Groups {
    /// The UID of the root run.
    pub root_uid: Box<str>,
    /// What shares a node.
    pub mode: CoscheduleMode,
    /// The groups, in the order of their first workspaces.
    pub groups: Vec<Group>,
    /// What contradicts itself.
    pub conflicts: Vec<Conflict>,
    /// Objects that the watches have not delivered, and that could change the groups.
    pub awaited: Vec<Key>,
    /// The claims of the run that are in no group.
    free: BTreeSet<Box<str>>,
}

/// Pods of a run that share a node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Group {
    /// What tells it from the run's other groups: its first workspace, empty for a whole run.
    pub key: Box<str>,
    /// The name of its placeholder.
    pub name: Box<str>,
    /// The claims that its placeholder mounts, in the order of the run's workspaces.
    pub claims: Vec<GroupClaim>,
    /// Whether there are workspaces among its own whose claims nobody knows yet.
    pub derived: bool,
    /// The pipeline's tasks whose pods belong to it; `None` where the tasks are not known.
    pub tasks: Option<BTreeSet<Box<str>>>,
    /// What the node selectors of its tasks ask for together.
    pub node_selector: Labels,
    /// Whether no other group may be on its node.
    pub isolated: bool,
}

/// A claim of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupClaim {
    /// Its name, as the run says it.
    pub name: Box<str>,
    /// Whether Tekton makes it for the run, of a template.
    pub template: bool,
    /// Whether it keeps all its pods on one node.
    pub one_node: bool,
}

/// What a run asks for and cannot have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Conflict {
    /// The volumes of two claims share no node.
    Volumes {
        /// A claim.
        first: Box<str>,
        /// The other.
        second: Box<str>,
        /// The task that uses both, where that is known.
        task: Option<Box<str>>,
    },
    /// Two tasks that must share a node ask for different ones.
    Selectors {
        /// The label of the node.
        label: Box<str>,
        /// A task and what it asks.
        first: (Box<str>, Box<str>),
        /// The other.
        second: (Box<str>, Box<str>),
    },
}

impl fmt::Display for Conflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volumes { first, second, task } => {
                write!(formatter, "no node can mount both claims {first} and {second}")?;
                match task {
                    Some(task) => write!(formatter, ", and task {task} uses both"),
                    None => Ok(()),
                }
            }
            Self::Selectors { label, first: (task, value), second: (other, wanted) } => write!(
                formatter,
                "task {task} asks for nodes with {label}={value} and task {other} for {label}={wanted}, \
                 and they share a claim that one node mounts at a time"
            ),
        }
    }
}

/// What a pod is to the groups of its run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Membership<'g> {
    /// It may run anywhere.
    Free,
    /// It belongs to this one.
    Of(&'g Group),
    /// It would belong to both, and they share no node.
    Several(&'g Group, &'g Group),
}

/// Whose node a group shares: that of a group which began earlier and uses the same claim.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Leader {
    /// Whose group it is.
    pub who: Who,
    /// The placeholder of that group.
    pub placeholder: Box<str>,
    /// The claim that both use.
    pub claim: Box<str>,
}

/// Whose a group is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Who {
    /// A run's.
    Run(Name),
    /// A native group, by its name.
    Group(Box<str>),
}

impl fmt::Display for Who {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(run) => write!(formatter, "PipelineRun {}", run.name),
            Self::Group(group) => write!(formatter, "group {group}"),
        }
    }
}

/// A native group, as far as it shares claims with others.
#[derive(Clone, Copy, Debug)]
pub struct NativeClaims<'v> {
    /// Its placeholder, which need not stand.
    pub placeholder: &'v Name,
    /// What it is called.
    pub group: &'v str,
    /// The claims of its pods that keep them on one node.
    pub claims: &'v [&'v str],
    /// When its oldest pod was made.
    pub since: Option<Timestamp>,
}

/// The run above all that `run` is part of, and what is missing on the way to it.
#[must_use]
pub fn root<'v>(
    name: &'v Name,
    run: &'v PipelineRun,
    view: &'v View,
) -> (&'v Name, &'v PipelineRun, Option<Key>) {
    let mut root = (name, run);
    for _ in 0..MAX_DEPTH {
        let Some(parent) = &root.1.parent else { return (root.0, root.1, None) };
        match view.run_by_uid(&parent.uid) {
            // An owner is in the namespace of what it owns.
            Some(found) if found.0.namespace == name.namespace => root = found,
            _ => {
                let awaited = Key::PipelineRun(Name::new(&name.namespace, &parent.name));
                return (root.0, root.1, Some(awaited));
            }
        }
    }
    (root.0, root.1, None)
}

/// The groups of a run that is its own root.
///
/// # Errors
/// What says its mode says what is no mode.
pub fn of_run(
    name: &Name,
    run: &PipelineRun,
    view: &View,
    policy: &Policy,
) -> Result<Groups, BadMode> {
    let mode = mode::of_run(name, run, view, policy)?;
    let mut groups = Groups { root_uid: run.identity.uid.clone(), mode, ..Groups::default() };
    // The pods of a run that names a native group are all that group's.
    if mode == CoscheduleMode::Disabled || run.group.is_some() {
        return Ok(groups);
    }
    let mut making = Making {
        name,
        run,
        view,
        units: Vec::new(),
        by_claim: HashMap::new(),
        tasks: None,
        standing: standing(run, view),
        is_gone: false,
        groups,
    };
    making.find();
    let mut parts = if making.standing.is_empty() || !making.is_gone {
        let parts = match mode {
            CoscheduleMode::Workspaces => making.by_workspaces(),
            _ => making.by_selectors(),
        };
        parts.iter().for_each(|part| making.tell_apart(part));
        let parts = parts.into_iter().flat_map(|part| making.split_by_placeholders(part));
        parts.flat_map(|part| making.split_by_volumes(part)).collect()
    } else {
        making.as_they_stand()
    };
    making.keep_keys(&mut parts);
    for part in &parts {
        making.group(part);
    }
    let Making { units, groups: made, .. } = making;
    groups = made;
    let grouped: BTreeSet<&str> =
        groups.groups.iter().flat_map(|group| &group.claims).map(|claim| &*claim.name).collect();
    groups.free = units
        .iter()
        .filter_map(|unit| unit.claim)
        .filter(|claim| !grouped.contains(claim))
        .map(Into::into)
        .collect();
    Ok(groups)
}

/// Who of those that share a claim goes first. Those whose placeholders stand hold the claim where they
/// are, and the oldest of them was there first; then comes who began first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Rank<'v> {
    /// Its placeholder stands since then.
    Stands(Option<Timestamp>, Option<Timestamp>, &'v str),
    /// It is to have one, and was made then.
    Begins(Option<Timestamp>, &'v str),
}

/// Who uses which claim, and who of them goes first. That is found once for each claim, whoever asks: when
/// many share a claim, all of them ask for the same.
#[derive(Debug)]
pub struct Claimants<'v> {
    /// Those whose placeholders need not stand yet, by each of their claims.
    natives: HashMap<Name, Vec<&'v NativeClaims<'v>>>,
    view: &'v View,
    policy: &'v Policy,
    by_claim: RefCell<HashMap<Name, Ranked<'v>>>,
}

/// Who uses a claim, the first of them first.
type Ranked<'v> = Rc<[(Rank<'v>, Claimant<'v>)]>;

/// The group on whose node a run's group must be, as [`Claimants::leader`] says it of one that is asked for
/// by itself.
#[must_use]
pub fn leader(
    name: &Name,
    run: &PipelineRun,
    group: &Group,
    view: &View,
    policy: &Policy,
) -> Option<Leader> {
    Claimants::new(&[], view, policy).leader(name, run, group)
}

impl<'v> Claimants<'v> {
    /// Those that the View and `natives` tell of.
    #[must_use]
    pub fn new(natives: &'v [NativeClaims<'v>], view: &'v View, policy: &'v Policy) -> Self {
        let mut by_claim: HashMap<Name, Vec<_>> = HashMap::new();
        for native in natives {
            for claim in native.claims {
                let claim = Name::new(&native.placeholder.namespace, claim);
                by_claim.entry(claim).or_default().push(native);
            }
        }
        Self { natives: by_claim, view, policy, by_claim: RefCell::default() }
    }

    /// The group on whose node a run's group must be, because a claim of both is mounted by one node at a
    /// time. Of several, the first; that one follows nobody.
    ///
    /// A run that may never begin holds up nobody: one leads that has a placeholder, or a TaskRun to make one
    /// for.
    #[must_use]
    pub fn leader(&self, name: &Name, run: &PipelineRun, group: &Group) -> Option<Leader> {
        let claims = group.claims.iter().filter(|claim| claim.one_node).map(|claim| &*claim.name);
        let placeholder = Name::new(&name.namespace, &group.name);
        let is_out = is_failed(&placeholder, self.view);
        let own = rank_of_run(name, run, self.view).filter(|_| !is_out);
        self.first(&placeholder, Some(run), own, claims)
    }

    /// The same for a native group.
    #[must_use]
    pub fn leader_of_native(&self, native: &NativeClaims<'_>) -> Option<Leader> {
        let own = match self.view.placeholder(native.placeholder) {
            Some(placeholder) => rank_of_standing(native.placeholder, placeholder),
            None => Some(Rank::Begins(native.since, &native.placeholder.name)),
        };
        self.first(native.placeholder, None, own, native.claims.iter().copied())
    }

    /// Who comes before all others that use one of the claims, and before `own`.
    fn first<'c>(
        &self,
        placeholder: &Name,
        run: Option<&PipelineRun>,
        own: Option<Rank<'_>>,
        claims: impl Iterator<Item = &'c str>,
    ) -> Option<Leader> {
        let mut first: Option<(Rank<'v>, Leader)> = None;
        for claim in claims {
            let found = self.of(Name::new(&placeholder.namespace, claim));
            let before = found.iter().take_while(|(rank, _)| own.is_none_or(|own| *rank < own));
            for (rank, claimant) in before.filter(|(_, other)| !other.is(placeholder, run)) {
                if first.as_ref().is_some_and(|(known, _)| known <= rank) {
                    break;
                }
                if let Some(leader) = claimant.leads(claim, self.view, self.policy) {
                    first = Some((*rank, leader));
                    break;
                }
            }
        }
        first.map(|(_, leader)| leader)
    }

    /// All that use a claim, the first of them first.
    fn of(&self, claim: Name) -> Ranked<'v> {
        if let Some(known) = self.by_claim.borrow().get(&claim) {
            return Rc::clone(known);
        }
        let found: Ranked<'v> = self.find(&claim).into();
        self.by_claim.borrow_mut().insert(claim, Rc::clone(&found));
        found
    }

    fn find(&self, claim: &Name) -> Vec<(Rank<'v>, Claimant<'v>)> {
        let view = self.view;
        let namespace = &claim.namespace;
        let mut found: Vec<(Rank<'v>, Claimant<'v>)> = Vec::new();
        for (other, run) in view.runs_with_claim(claim) {
            let (other, run, _) = root(other, run, view);
            let rank = rank_of_run(other, run, view);
            found.extend(rank.map(|rank| (rank, Claimant::Run(other, run))));
        }
        for (other, standing) in view.placeholders_with_claim(claim) {
            // That of a run which does not name the claim itself: its tasks do, or the placeholder made it.
            if let Some(owner) = &standing.run {
                let of_run =
                    view.run_by_uid(&owner.uid).filter(|(other, _)| other.namespace == *namespace);
                let rank =
                    of_run.and_then(|(name, of)| Some((name, of, rank_of_run(name, of, view)?)));
                found.extend(rank.map(|(name, of, rank)| (rank, Claimant::Run(name, of))));
                continue;
            }
            let group = standing
                .group
                .as_deref()
                .filter(|of| *other.name == *keys::of_native(namespace, of));
            let rank = rank_of_standing(other, standing);
            found.extend(
                group.zip(rank).map(|(group, rank)| (rank, Claimant::Native(other, group))),
            );
        }
        for other in self.natives.get(claim).into_iter().flatten() {
            let begins = view.placeholder(other.placeholder).is_none();
            let rank = begins.then_some(Rank::Begins(other.since, &other.placeholder.name));
            let claimant = Claimant::Native(other.placeholder, other.group);
            found.extend(rank.map(|rank| (rank, claimant)));
        }
        found.sort_unstable_by_key(|(rank, _)| *rank);
        found
    }
}

/// Who may lead.
#[derive(Clone, Copy, Debug)]
enum Claimant<'v> {
    /// A root run.
    Run(&'v Name, &'v PipelineRun),
    /// A native group: its placeholder, and what it is called.
    Native(&'v Name, &'v str),
}

impl Claimant<'_> {
    /// Whether it is the one with this placeholder, or this run.
    fn is(self, placeholder: &Name, run: Option<&PipelineRun>) -> bool {
        match self {
            Self::Run(_, other) => run.is_some_and(|run| run.identity.uid == other.identity.uid),
            Self::Native(other, _) => other == placeholder,
        }
    }

    /// What follows who shares this claim with it; `None` where none of its groups has the claim.
    fn leads(self, claim: &str, view: &View, policy: &Policy) -> Option<Leader> {
        let (who, placeholder) = match self {
            Self::Run(name, run) => {
                let groups = of_run(name, run, view, policy).ok()?;
                let group = groups.groups.into_iter().find(|group| group.has(claim))?;
                if is_failed(&Name::new(&name.namespace, &group.name), view) {
                    return None;
                }
                (Who::Run(name.clone()), group.name)
            }
            Self::Native(placeholder, group) => {
                (Who::Group(group.into()), placeholder.name.clone())
            }
        };
        Some(Leader { who, placeholder, claim: claim.into() })
    }
}

fn is_failed(placeholder: &Name, view: &View) -> bool {
    view.placeholder(placeholder).is_some_and(|placeholder| placeholder.failed)
}

/// The rank of a root run; `None` for one that does not go on, or of which nobody knows whether it begins.
fn rank_of_run<'v>(name: &Name, run: &'v PipelineRun, view: &'v View) -> Option<Rank<'v>> {
    let PipelineRun { identity, done, .. } = run;
    if *done || identity.deleting {
        return None;
    }
    let stand = family::placeholders(run, view)
        .filter(|(_, placeholder)| !placeholder.failed && !placeholder.identity.deleting);
    if let Some(since) = stand.map(|(_, placeholder)| placeholder.identity.created).min() {
        return Some(Rank::Stands(since, identity.created, &identity.uid));
    }
    let signs = family::signs(name, run, view);
    let begins = signs.has_started && !signs.is_assisted;
    begins.then_some(Rank::Begins(identity.created, &identity.uid))
}

fn rank_of_standing<'v>(name: &'v Name, placeholder: &Placeholder) -> Option<Rank<'v>> {
    let Placeholder { identity, failed, .. } = placeholder;
    let stands = !failed && !identity.deleting;
    stands.then_some(Rank::Stands(identity.created, identity.created, &name.name))
}

impl GroupClaim {
    /// Whether a placeholder can have a claim of its own in the place of this one (`volumes: provision`).
    /// What many nodes mount is mounted by several placeholders, and stays one claim.
    #[must_use]
    pub fn is_replaceable(&self) -> bool {
        self.template && self.one_node
    }
}

impl Group {
    /// Whether the placeholder mounts this claim: by the name that the run says, or by that of the
    /// placeholder's own.
    #[must_use]
    pub fn has(&self, claim: &str) -> bool {
        self.claim(claim).is_some()
    }

    fn claim(&self, name: &str) -> Option<&GroupClaim> {
        // Digests are made only of what may be one's own.
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
    /// The group whose placeholder can have a claim of its own in the place of this one of the run. There
    /// is one at most: what needs one node is in one group.
    #[must_use]
    pub fn owner_of(&self, claim: &str) -> Option<&Group> {
        let owns = |own: &GroupClaim| own.is_replaceable() && *own.name == *claim;
        self.groups.iter().find(|group| group.claims.iter().any(owns))
    }

    /// What a pod of the run is to its groups, by the task that it is of, the claims that it mounts and
    /// its node selector. `binds_nobody` says of a claim whether it is known not to need one node.
    #[must_use]
    pub fn membership(
        &self,
        task: Option<&str>,
        claims: &[&str],
        node_selector: &[(&str, &str)],
        binds_nobody: impl Fn(&str) -> bool,
    ) -> Membership<'_> {
        let mut by_node = self.groups.iter().filter(|group| {
            claims.iter().any(|claim| group.claim(claim).is_some_and(|of| of.one_node))
        });
        match (by_node.next(), by_node.next()) {
            (Some(group), None) => return Membership::Of(group),
            (Some(first), Some(second)) => return Membership::Several(first, second),
            (None, _) => {}
        }
        let of_task = |group: &&Group| {
            task.is_some_and(|task| group.tasks.as_ref().is_some_and(|of| of.contains(task)))
        };
        // A claim that the run does not name: of a task's result, or of a pipeline in the pipeline.
        if claims.iter().any(|claim| !self.free.contains(*claim) && !binds_nobody(claim)) {
            let mut derived = self.groups.iter().filter(|group| group.derived);
            let named = derived.clone().find(of_task);
            if let Some(group) = named.or_else(|| derived.find(|group| group.tasks.is_none())) {
                return Membership::Of(group);
            }
        }
        if self.mode == CoscheduleMode::Workspaces {
            return Membership::Free;
        }
        let agrees = |group: &&Group| {
            let asks = |key: &str| group.node_selector.iter().find(|(known, _)| **known == *key);
            node_selector
                .iter()
                .all(|(key, value)| asks(key).is_none_or(|(_, wanted)| **wanted == **value))
        };
        let uses = |group: &&Group| claims.iter().any(|claim| group.has(claim));
        let groups = || self.groups.iter();
        let found = groups().find(of_task).or_else(|| groups().filter(agrees).find(uses));
        let found = found.or_else(|| groups().find(agrees));
        let found = found.or_else(|| self.groups.first());
        found.map_or(Membership::Free, Membership::Of)
    }
}

/// A claim of the run, or a workspace whose claim nobody knows yet.
struct Unit<'v> {
    /// The workspaces of the root run that are this; the first gives a group its key.
    workspaces: Vec<&'v str>,
    claim: Option<&'v str>,
    template: bool,
    one_node: bool,
    /// Whether a placeholder may mount it.
    mountable: bool,
    /// The terms of which a node must meet one; empty where any node will do.
    terms: &'v [NodeSelectorTerm],
}

/// A task of the run, and the units that it uses.
struct Task<'v> {
    name: &'v str,
    units: BTreeSet<usize>,
    selector: &'v Labels,
}

/// Units and tasks on their way to one group.
#[derive(Default)]
struct Part<'v> {
    key: Box<str>,
    units: BTreeSet<usize>,
    tasks: BTreeSet<usize>,
    selector: BTreeMap<&'v str, &'v str>,
}

/// Groups in the making.
struct Making<'v> {
    name: &'v Name,
    run: &'v PipelineRun,
    view: &'v View,
    units: Vec<Unit<'v>>,
    by_claim: HashMap<&'v str, usize>,
    /// `None` where nobody knows which task uses what.
    tasks: Option<Vec<Task<'v>>>,
    /// The placeholders that were made for groups of the run, with the groups' keys.
    standing: Vec<(&'v str, &'v Placeholder)>,
    /// Whether the Pipeline that the run names is not there.
    is_gone: bool,
    groups: Groups,
}

impl<'v> Making<'v> {
    /// Finds the claims of the run and, where that is known, which of its tasks use which.
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

    /// What the run runs, if it is known and its tasks are no pipelines themselves.
    fn pipeline(&mut self) -> Option<&'v Pipeline> {
        let pipeline = match &self.run.pipeline {
            PipelineSource::Inline(pipeline) if self.run.problem.is_none() => Some(pipeline),
            PipelineSource::Named(named) => {
                let key = Name::new(&self.name.namespace, named);
                let known = self.view.pipeline(&key);
                self.is_gone = known.is_none();
                // It was there when placeholders were made, or nobody knew it then either.
                if self.is_gone && self.standing.is_empty() {
                    self.groups.awaited.push(Key::Pipeline(key));
                }
                known.filter(|known| known.problem.is_none()).map(|known| &known.pipeline)
            }
            _ => None,
        };
        pipeline.filter(|pipeline| !pipeline.nested)
    }

    /// Whether a placeholder was made for a claim, or for the workspace whose claim nobody knows yet.
    fn holds(&self, (key, placeholder): (&str, &Placeholder), unit: usize) -> bool {
        let unit = &self.units[unit];
        match unit.claim {
            Some(claim) => mounts(placeholder, claim),
            None => unit.workspaces.contains(&key),
        }
    }

    /// The groups as placeholders stand for them: members have gone there, and others must follow them
    /// whatever becomes of the Pipeline. What no placeholder has is a group by itself where each has what
    /// it needs, and else belongs to the first.
    fn as_they_stand(&mut self) -> Vec<Part<'v>> {
        let is_whole = self.groups.mode != CoscheduleMode::Workspaces;
        let standing = self.standing.clone();
        let namespace = &self.name.namespace;
        for claim in standing.iter().flat_map(|(_, placeholder)| &placeholder.claims) {
            // One that became known later, as the result of a task.
            if self.view.claim(&Name::new(namespace, claim)).is_some() {
                self.claim_unit(self.name, claim);
            }
        }
        let mut left: BTreeSet<usize> = (0..self.units.len())
            .filter(|unit| match is_whole {
                true => self.units[*unit].mountable,
                false => self.units[*unit].one_node,
            })
            .collect();
        let all = left.clone();
        let mut parts: Vec<Part<'v>> = Vec::new();
        for (key, placeholder) in standing {
            let has = |unit: &usize| self.holds((key, placeholder), *unit);
            // What needs one node is in one of them.
            let is_free = |unit: &usize| left.contains(unit) || !self.units[*unit].one_node;
            let units: BTreeSet<usize> =
                all.iter().copied().filter(|unit| has(unit) && is_free(unit)).collect();
            left.retain(|unit| !units.contains(unit));
            let selector = selector_of(key).filter(|_| is_whole);
            let selector = selector.unwrap_or_else(|| self.common_selector());
            parts.push(Part { key: key.into(), units, tasks: BTreeSet::new(), selector });
        }
        parts.sort_by_key(|part| part.units.first().copied());
        if let Some(first) = parts.first_mut() {
            let joins = |unit: &usize| is_whole || self.units[*unit].claim.is_none();
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

    /// Finds the claims of the runs that the run has made, and of those that they have.
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
                        // The placeholder makes those of the run that it is of, and of no other.
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

    /// The unit of a claim that is there, or is to be.
    fn claim_unit(&mut self, of: &Name, claim: &'v str) -> usize {
        if let Some(known) = self.by_claim.get(claim) {
            return *known;
        }
        let key = Name::new(&of.namespace, claim);
        let terms = self.terms_of(&key);
        let found = self.view.claim(&key);
        let modes = found.map(|claim| claim.access_modes).unwrap_or_default();
        if found.is_none() {
            self.groups.awaited.push(Key::Claim(key));
        }
        self.add(Some(claim), false, modes, terms)
    }

    fn terms_of(&self, claim: &Name) -> &'v [NodeSelectorTerm] {
        let volume = self.view.claim(claim).and_then(|claim| claim.volume.as_deref());
        let volume = volume.and_then(|volume| self.view.volume(volume));
        volume.map_or(&[], |volume| &*volume.terms)
    }

    /// The node selectors of tasks with one of their own, which takes the place of the run's.
    fn selectors(&self) -> BTreeMap<&'v str, &'v Labels> {
        let own = self.run.task_overrides.iter();
        own.filter_map(|of| Some((&*of.task, of.node_selector.as_ref()?))).collect()
    }

    /// The claims of placeholders that were made for the run stay together: what they were made for
    /// may have been less than is known by now.
    fn kept_together(&self) -> Vec<Vec<usize>> {
        let units = self.units.iter().enumerate().filter(|(_, unit)| unit.one_node);
        let made = self.standing.iter();
        made.map(|(_, placeholder)| {
            let has = |unit: &Unit<'_>| unit.claim.is_some_and(|claim| mounts(placeholder, claim));
            units.clone().filter(|(_, unit)| has(unit)).map(|(index, _)| index).collect()
        })
        .collect()
    }

    /// Components of units that need one node, joined by the tasks that use several; with the tasks
    /// that use them.
    fn components(&self, tasks: &[Task<'v>]) -> Vec<(BTreeSet<usize>, BTreeSet<usize>)> {
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
        for together in used.chain(self.kept_together()) {
            let together: Vec<usize> = together;
            let Some((&first, others)) = together.split_first() else { continue };
            for &other in others {
                let (a, b) = (find(&mut parent, first), find(&mut parent, other));
                // The earlier one stands for both.
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
    fn key_of(&self, units: &BTreeSet<usize>) -> Box<str> {
        let workspace = units.iter().find_map(|unit| self.units[*unit].workspaces.first());
        let claim = || units.iter().find_map(|unit| self.units[*unit].claim);
        match workspace {
            Some(workspace) => (*workspace).into(),
            None => claim().map(|claim| format!("claim/{claim}")).unwrap_or_default().into(),
        }
    }

    fn by_workspaces(&mut self) -> Vec<Part<'v>> {
        let Some(tasks) = self.tasks.take() else {
            // Nobody knows which task uses what: all claims of one node together.
            let units: BTreeSet<usize> =
                (0..self.units.len()).filter(|unit| self.units[*unit].one_node).collect();
            let selector = self.common_selector();
            let of_run = units.iter().any(|unit| !self.units[*unit].workspaces.is_empty());
            // The claims of the runs below come and go; the key must not.
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

    /// What the tasks' node selectors ask for together; the run's own where they contradict each other,
    /// which is told.
    fn join_selectors(
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

    /// What the run's node selector and those of all its tasks ask for together, as far as they agree.
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

    /// The whole run; or several parts of it, where tasks that share no claim of one node ask for
    /// different nodes.
    fn by_selectors(&mut self) -> Vec<Part<'v>> {
        let mountable: BTreeSet<usize> =
            (0..self.units.len()).filter(|unit| self.units[*unit].mountable).collect();
        let Some(tasks) = self.tasks.take() else {
            let selector = self.common_selector();
            let part = Part { units: mountable, selector, ..Part::default() };
            return vec![part];
        };
        // Tasks that must be together: by claims of one node, else each by itself.
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
        // In the order of the pipeline, so that the first part is that of the first task.
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
                // Nobody has that many kinds of nodes; each part costs a placeholder.
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
            // What many nodes mount is mounted wherever it is used.
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

    /// One part, or several where placeholders stand for several: members have gone to each of them, and
    /// whatever a Pipeline says by now, their claims are there.
    fn split_by_placeholders(&self, part: Part<'v>) -> Vec<Part<'v>> {
        let mut sets: Vec<BTreeSet<usize>> = Vec::new();
        let mut left = part.units.clone();
        for standing in &self.standing {
            let is_its = |unit: &usize| self.units[*unit].one_node && self.holds(*standing, *unit);
            let set: BTreeSet<usize> = left.iter().copied().filter(is_its).collect();
            left.retain(|unit| !set.contains(unit));
            sets.extend(Some(set).filter(|set| !set.is_empty()));
        }
        self.split(part, sets, &left)
    }

    /// One part, or several where its volumes share no node.
    fn split_by_volumes(&self, part: Part<'v>) -> Vec<Part<'v>> {
        let (sets, free) = self.sets_by_volumes(&part.units);
        self.split(part, sets, &free)
    }

    /// Units that some node may reach together, and those that may be anywhere.
    fn sets_by_volumes(&self, units: &BTreeSet<usize>) -> (Vec<BTreeSet<usize>>, BTreeSet<usize>) {
        // Only what is bound to a place can be apart from anything.
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

    /// A part of each set, with what else belongs to it of `free`; the part itself where there are not
    /// several.
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
        // What is bound to a place by now must not say who is first: the first keeps the part's key.
        sets.sort_by_key(|set| set.first().copied());
        let mut taken: BTreeSet<usize> = BTreeSet::new();
        let mut parts = Vec::new();
        for (index, set) in sets.iter().enumerate() {
            let key = if index == 0 { part.key.clone() } else { self.key_of(set) };
            // Each task once: with the first set that has a claim of its, else with the first of all.
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

    /// Gives parts the keys of the placeholders that stand for them: of what was made for the run under
    /// one name nothing is found under another. The others' keys are none of those.
    fn keep_keys(&self, parts: &mut [Part<'v>]) {
        let mut taken: BTreeSet<Box<str>> = BTreeSet::new();
        let mut kept = vec![false; parts.len()];
        for (part, kept) in parts.iter_mut().zip(&mut kept) {
            let is_its = |standing: &&(&str, &Placeholder)| {
                let mut units = part.units.iter().filter(|unit| self.units[**unit].one_node);
                !taken.contains(standing.0) && units.any(|unit| self.holds(**standing, *unit))
            };
            if let Some((key, _)) = self.standing.iter().find(is_its) {
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

    /// Which of several sets a unit goes with that may be anywhere: that of a task which uses it and
    /// nothing of the others; else the first.
    fn companion(&self, unit: usize, sets: &[BTreeSet<usize>], users: &BTreeSet<usize>) -> usize {
        let Some(tasks) = self.tasks.as_ref().filter(|_| sets.len() > 1) else { return 0 };
        let users = users.iter().map(|task| &tasks[*task].units);
        let of_task = |units: &BTreeSet<usize>| {
            let mut used = (0..sets.len()).filter(|set| !sets[*set].is_disjoint(units));
            used.next().filter(|_| used.next().is_none())
        };
        users.filter(|units| units.contains(&unit)).find_map(of_task).unwrap_or_default()
    }

    /// Says which claims cannot be together, and who uses both.
    fn tell_apart(&mut self, part: &Part<'v>) {
        let (sets, _) = self.sets_by_volumes(&part.units);
        if sets.len() < 2 {
            return;
        }
        let claim = |unit: usize| self.units[unit].claim.unwrap_or_default();
        let apart = |a: usize, b: usize| are_apart(self.units[a].terms, self.units[b].terms);
        let mut found = Vec::new();
        let all: BTreeSet<usize> = sets.iter().flatten().copied().collect();
        let mut tell = |units: &BTreeSet<usize>, task: Option<&str>| {
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
                    tell(&own, Some(task.name));
                }
            }
            None => tell(&all, None),
        }
        self.groups.conflicts.extend(found);
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

/// The placeholders that were made for groups of a run, with the groups' keys.
fn standing<'v>(run: &'v PipelineRun, view: &'v View) -> Vec<(&'v str, &'v Placeholder)> {
    let made = family::placeholders(run, view);
    let mut made: Vec<_> = made
        .map(|(_, placeholder)| (placeholder.key.as_deref().unwrap_or_default(), placeholder))
        .collect();
    made.sort_unstable_by_key(|(key, _)| *key);
    made
}

/// What says of a claim of this namespace whether it is known not to need one node.
pub(super) fn binds_nobody<'v>(namespace: &'v str, view: &'v View) -> impl Fn(&str) -> bool + 'v {
    move |claim| {
        let known = view.claim(&Name::new(namespace, claim));
        known.is_some_and(|claim| !claim.access_modes.need_one_node())
    }
}

/// Whether a placeholder has a claim of its run, by its name or as one of its own.
fn mounts(placeholder: &Placeholder, claim: &str) -> bool {
    let template = keys::template(claim);
    placeholder.claims.iter().any(|own| **own == *claim)
        || placeholder.templates.iter().any(|own| **own == *template)
}

/// The key of a part of a run that a node selector parts from the others.
fn key_of_selector(selector: &BTreeMap<&str, &str>) -> Box<str> {
    let labels = selector.iter().map(|(key, value)| format!("{key}={value}"));
    labels.collect::<Vec<_>>().join(",").into()
}

/// The node selector that is such a key; none for another key. Neither keys nor values of labels have an
/// equals sign or a comma.
fn selector_of(key: &str) -> Option<BTreeMap<&str, &str>> {
    key.split(',').map(|label| label.split_once('=')).collect()
}

/// Whether no node meets the terms of both, as far as the terms themselves say.
fn are_apart(terms: &[NodeSelectorTerm], others: &[NodeSelectorTerm]) -> bool {
    !terms.is_empty()
        && !others.is_empty()
        && terms.iter().all(|term| others.iter().all(|other| excludes(term, other)))
}

#[cfg(test)]
mod tests;
