//! Computes the placeholders that should exist, from the active groups of runs and of pods.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::{Value, json};

use super::group_pod::own_terms;
use super::reason;
use crate::systems::View;
use crate::systems::coschedule::claims::Stays;
use crate::systems::coschedule::family;
use crate::systems::coschedule::groups::{self, Group, GroupClaim, Groups, Leaders, LiveGroup};
use crate::systems::coschedule::keys;
use crate::systems::coschedule::kinds::{
    Member, MemberDetails, PipelineRun, PipelineSource, PipelineTask, Template, Workspace,
};
use crate::systems::coschedule::placeholder::{Cause, Desired, Run};
use crate::systems::coschedule::pod_plan::Added;
use crate::systems::coschedule::pod_plan::can_request;
use crate::systems::coschedule::policy::{Reserve, Volumes};
use crate::systems::coschedule::resources::PIPELINE_RUN;
use crate::systems::exclusion::Exclusion;
use crate::systems::plan::{Event, Target};
use crate::systems::policy::Policy;
use crate::view::{Name, Resources};

/// The active runs and native groups.
#[derive(Debug)]
pub(super) struct Sources<'v> {
    view: &'v View,
    policy: &'v Policy,
    runs: Vec<Run<'v>>,
    /// The placeholders of native groups with an active pod, without their leaders.
    natives: Vec<Desired<'v>>,
    pub(super) leaders: Leaders,
    /// The events about runs.
    pub(super) events: Vec<(Target, Event)>,
}

impl<'v> Sources<'v> {
    pub(super) fn new(view: &'v View, policy: &'v Policy) -> Self {
        let (runs, natives, events) = (Vec::new(), Vec::new(), Vec::new());
        let mut sources = Self { view, policy, runs, natives, leaders: Leaders::default(), events };
        if policy.coschedule.enabled {
            let mut live: Vec<LiveGroup> = LiveGroup::of_placeholders(view).collect();
            sources.find_runs(&mut live);
            sources.find_natives(&mut live);
            sources.leaders = Leaders::new(live, view);
        }
        sources
    }

    fn find_runs(&mut self, live: &mut Vec<LiveGroup>) {
        let is_active =
            |run: &PipelineRun| !run.done && !run.identity.deleting && run.parent.is_none();
        let mut runs: Vec<_> =
            self.view.pipeline_runs().filter(|(_, run)| is_active(run)).collect();
        runs.retain(|(name, _)| !self.is_opted_out(&name.namespace));
        runs.sort_unstable_by_key(|(name, _)| *name);
        for (name, run) in runs {
            let signs = family::signs(name, run, self.view);
            if signs.is_assisted {
                let mut text = "Tekton's own affinity assistant places this run, so stowplan does not; set `coschedule: disabled` in Tekton's ConfigMap feature-flags".to_owned();
                // Tekton creates the first claim before anything shows that its assistant is on.
                let mut claims = self.view.claims_of_run(&run.identity.uid);
                if claims.any(|(_, claim)| claim.is_parked()) {
                    text += ", then create the run again: its claims are parked, so that none of its pods can run";
                }
                self.report(name, run, reason::ASSISTANT_IS_ON, text);
                continue;
            }
            let groups = match groups::of_run(name, run, self.view, self.policy) {
                Ok(groups) => groups,
                Err(bad) => {
                    let finding = bad.finding();
                    self.report(name, run, finding.reason.as_str(), finding.to_string());
                    continue;
                }
            };
            if let Some(bad) = &groups.unused_mode {
                let note = format!("{}: {}", keys::MODE, bad.note(self.policy));
                self.report(name, run, bad.finding().reason.as_str(), note);
            }
            for conflict in &groups.conflicts {
                self.report(name, run, reason::GROUP_CONFLICT, conflict.to_string());
            }
            for stays in self.classes_that_stay(name, &groups) {
                self.report(name, run, reason::CLASS_BINDS_AT_ONCE, stays.text);
            }
            let run = Run { name, run, groups, has_started: signs.has_started };
            live.extend(LiveGroup::of_run(&run, self.view));
            if !run.groups.groups.is_empty() {
                self.runs.push(run);
            }
        }
    }

    fn report(&mut self, name: &Name, run: &PipelineRun, reason: &'static str, note: String) {
        let target = Target::new(PIPELINE_RUN, name, &run.identity.uid);
        self.events.push((target, Event { warning: true, reason, note }));
    }

    /// The reasons why claims of a run keep classes that bind at once. A missing sibling matters only if
    /// the group has several claims.
    fn classes_that_stay(&self, run: &Name, groups: &Groups) -> BTreeSet<Stays> {
        let of_group = |group: &'_ Group| {
            let is_alone = group.claims.len() < 2;
            let made = group.claims.iter().filter(|claim| claim.template);
            let classes = made.filter_map(|claim| {
                let claim = self.view.claim(&Name::new(&run.namespace, &claim.name))?;
                Stays::of(claim.class.as_deref()?, self.view, self.policy)
            });
            let matters = move |stays: &Stays| !is_alone || stays.is_mapped;
            classes.filter(matters).collect::<Vec<_>>()
        };
        groups.groups.iter().flat_map(of_group).collect()
    }

    /// Returns true if a namespace is opted out, or excluded by the policy.
    pub(super) fn is_opted_out(&self, namespace: &str) -> bool {
        Exclusion::of_namespace(namespace, self.view, self.policy).is_some()
    }

    fn find_natives(&mut self, live: &mut Vec<LiveGroup>) {
        let mut found: BTreeMap<Name, Vec<(&'v Name, &'v Member)>> = BTreeMap::new();
        for (name, member) in self.view.members().filter(|(_, member)| !member.finished) {
            let (Some(placeholder), Some(group)) = (&member.placeholder, &member.group) else {
                continue;
            };
            let namespace = &name.namespace;
            // Users can set the label, so the group must match it.
            if **placeholder == *keys::of_native(namespace, group) {
                let placeholder = Name::new(namespace, placeholder);
                found.entry(placeholder).or_default().push((name, member));
            }
        }
        for (name, members) in found {
            let group = members.first().and_then(|(_, member)| member.group.as_deref());
            let Some(group) = group.filter(|_| !self.is_opted_out(&name.namespace)) else {
                continue;
            };
            let details = members.iter().filter_map(|(_, member)| member.details.as_deref());
            let claims = details.flat_map(|details| &details.claims).map(AsRef::as_ref);
            let on_one_node = |claim: &&str| is_on_one_node(&name.namespace, claim, self.view);
            let claims: BTreeSet<&str> = claims.filter(on_one_node).collect();
            let ends = members.iter().all(|(_, member)| ends(member));
            let is_held = family::held_by(&name, self.view).is_some();
            if self.view.placeholder(&name).is_none() && !is_held {
                // Members that a gate of others holds come last.
                let rank =
                    |member: &Member| (member.other_gate().is_some(), member.identity.created);
                let oldest = members.iter().map(|(_, member)| rank(member)).min();
                let since = oldest.and_then(|(_, created)| created);
                let claims = claims.iter().map(|claim| (*claim).into()).collect();
                live.push(LiveGroup::native(&name, group, claims, since));
            }
            self.natives.push(Desired {
                added: self.requirements_of_native(&name, &members),
                name,
                cause: Cause::Native(group),
                claims: claims.into_iter().collect(),
                templates: Vec::new(),
                isolation: None,
                keeps_node: ends && self.keeps_nodes(),
                leaders: Vec::new(),
            });
        }
    }

    /// The placeholders that should exist, by name.
    pub(super) fn desired(&self) -> BTreeMap<Name, Desired<'_>> {
        let of_runs = self.runs.iter().flat_map(|run| {
            let groups = run.groups.groups.iter();
            groups.map(move |group| self.of_group(run, group))
        });
        let natives = self.natives.iter().map(|native| {
            let leaders = self.leaders.of_native(&native.name, &native.claims);
            Desired { leaders, ..native.clone() }
        });
        of_runs.chain(natives).map(|desired| (desired.name.clone(), desired)).collect()
    }

    fn of_group<'s>(&'s self, run: &'s Run<'v>, group: &'s Group) -> Desired<'s> {
        let name = Name::new(&run.name.namespace, &group.name);
        let existing = self.view.placeholder(&name);
        // A parked claim is never bound: only the placeholder's own claim can replace it.
        let is_parked = |claim: &GroupClaim| {
            let known = self.view.claim(&Name::new(&name.namespace, &claim.name));
            match known {
                Some(known) => known.is_parked(),
                None => {
                    claim.is_replaceable() && self.policy.coschedule.volumes == Volumes::Provision
                }
            }
        };
        // The claim templates of an existing StatefulSet cannot be changed.
        let has_template = |claim: &GroupClaim| match existing {
            Some(existing) => {
                let template = keys::template(&claim.name);
                existing.templates.iter().any(|own| **own == *template)
            }
            None => is_parked(claim),
        };
        let document = |claim: &str| {
            let templates = run.run.workspaces.iter().filter_map(Workspace::template);
            let mut of_claim = templates.filter(|template| *template.claim == *claim);
            of_claim.find_map(|template: &Template| template.document.as_deref())
        };
        let mut claims = Vec::new();
        let mut templates = Vec::new();
        for claim in &group.claims {
            match document(&claim.name).filter(|_| claim.is_replaceable() && has_template(claim)) {
                Some(document) => templates.push((claim.name.to_string(), document)),
                // A pod that mounts it can never run.
                None if claim.template && is_parked(claim) => {}
                None => claims.push(&*claim.name),
            }
        }
        let added = find_oldest(self.view.members_of(&name)).map(|oldest| {
            let own = run.run.template.document.as_deref();
            added_to(oldest, own, &group.node_selector)
        });
        Desired {
            name,
            cause: Cause::Run(run, group),
            claims,
            templates,
            isolation: group.isolated.then_some(self.policy.coschedule.isolation_scope),
            keeps_node: self.keeps_nodes(),
            added: added.filter(Added::fits),
            leaders: self.leaders.of_group(run.name, run.run, group),
        }
    }

    /// Returns the node requirements of the placeholder of a native group: those that it has, while a member has them
    /// too, so that no single pod takes its node from the others; after that, those of its oldest member.
    fn requirements_of_native(
        &self,
        placeholder: &Name,
        members: &[(&'v Name, &'v Member)],
    ) -> Option<Added> {
        let plan = self.view.placeholder(placeholder).and_then(|known| known.plan.as_ref());
        let is_shared = |added: &&Added| {
            let mut details = members.iter().filter_map(|(_, member)| member.details.as_deref());
            details.any(|details| requirements_of(details) == **added)
        };
        let kept = plan.map(|plan| &plan.added).filter(is_shared).cloned();
        kept.or_else(|| find_oldest(members.iter().copied()).map(requirements_of))
    }

    fn keeps_nodes(&self) -> bool {
        !self.policy.coschedule.keep_node_for.length().is_zero()
    }
}

impl Desired<'_> {
    /// Returns the room for any one of the tasks of the group that have not begun; with [`Reserve::Peak`], for those
    /// that may run at the same time. A task has begun once its pods are bound. What LimitRanges add to the requests is
    /// not known, nor what tasks request that only Tekton can find.
    pub(super) fn room_to_come(&self, reserve: Reserve, view: &View) -> Resources {
        let none = Resources::default();
        let Cause::Run(Run { run, .. }, group) = self.cause else { return none };
        let Some(names) = &group.tasks else { return none };
        let namespace = &self.name.namespace;
        let pipeline = match &run.pipeline {
            PipelineSource::Inline(pipeline) => Some(pipeline),
            PipelineSource::Named(of) => {
                view.pipeline(&Name::new(namespace, of)).map(|known| &known.pipeline)
            }
            PipelineSource::Resolver | PipelineSource::Absent => None,
        };
        let bound = view.members_of(&self.name).filter_map(|(_, member)| {
            let task_run = member.task_run.as_ref()?;
            (member.finished || member.place().is_some()).then_some(&*task_run.uid)
        });
        let bound: HashSet<&str> = bound.collect();
        let mut begun: HashMap<&str, bool> = HashMap::new();
        for task_run in view.task_runs_of_run(namespace, &run.identity.uid) {
            let Some(task) = task_run.task.as_deref() else { continue };
            let has_begun = task_run.done || bound.contains(&*task_run.identity.uid);
            *begun.entry(task).or_insert(true) &= has_begun;
        }
        let tasks = pipeline.map(|pipeline| &*pipeline.tasks).unwrap_or_default().iter();
        let is_to_come = |task: &&PipelineTask| {
            names.contains(&task.name) && begun.get(&*task.name) != Some(&true)
        };
        let requested = tasks.filter(is_to_come).map(|task| {
            let own = run.task_overrides.iter().find(|of| of.task == task.name);
            let named = task.task.as_ref().and_then(|of| view.task(&Name::new(namespace, of)));
            let requests = named.map_or(&task.requests, |named| &named.requests);
            let mut requests = requests.of_pod(own.and_then(|own| own.requests.as_ref()));
            let other = requests.other.into_iter();
            requests.other = other.filter(|(name, amount)| can_request(name, *amount)).collect();
            (task, requests)
        });
        if reserve != Reserve::Peak {
            return requested.fold(none, |room, (_, task)| room.max(&task));
        }
        let mut levels: BTreeMap<usize, Resources> = BTreeMap::new();
        for (task, room) in requested {
            let level = levels.entry(task.level).or_default();
            *level = (0..task.copies).fold(level.clone(), |sum, _| sum.plus(&room));
        }
        levels.into_values().fold(none, |room, level| room.max(&level))
    }
}

/// Returns true if a member ends by itself, so that its group has a node only for some time.
pub(super) fn ends(member: &Member) -> bool {
    member.details.as_ref().is_none_or(|details| !details.runs_for_ever)
}

/// Returns true if a claim exists, and a single node mounts it.
pub(super) fn is_on_one_node(namespace: &str, claim: &str, view: &View) -> bool {
    let found = view.claim(&Name::new(namespace, claim));
    // A parked claim is never bound: a pod that mounts it is recreated with another one.
    found.is_some_and(|claim| claim.access.needs_one_node() && !claim.is_parked())
}

/// Returns the oldest member that gates of others do not hold; a running one first, and one that is being deleted last.
fn find_oldest<'v>(
    members: impl Iterator<Item = (&'v Name, &'v Member)>,
) -> Option<&'v MemberDetails> {
    let is_released = |member: &Member| !member.finished && member.other_gate().is_none();
    let released = members.filter(|(_, member)| is_released(member));
    let (_, oldest) = released.min_by_key(|(name, member)| {
        let Member { identity, .. } = member;
        (identity.deleting, member.place().is_none(), identity.created, *name)
    })?;
    oldest.details.as_deref()
}

/// Returns the node requirements that others, such as Kueue, have added to a member of a run with this pod template and
/// to a group with this node selector.
fn added_to(
    member: &MemberDetails,
    template: Option<&Value>,
    selector: &[(Box<str>, Box<str>)],
) -> Added {
    let is_own = |key: &str| {
        selector.iter().any(|(of, _)| **of == *key)
            || template.is_some_and(|own| !own["nodeSelector"][key].is_null())
    };
    let mut added = requirements_of(member);
    added.terms.clear();
    added.labels.retain(|key, _| !is_own(key));
    if added.labels.is_empty() { Added::default() } else { added }
}

/// Returns the node requirements of a pod; only its labels if an annotation cannot have all of them.
fn requirements_of(member: &MemberDetails) -> Added {
    let terms = own_terms(member).unwrap_or_default();
    let all = Added {
        labels: member.node_selector.clone(),
        tolerations: member.tolerations.iter().map(|of| json!(of)).collect(),
        terms: terms.iter().map(|of| json!(of)).collect(),
    };
    let labels = || Added { labels: member.node_selector.clone(), ..Added::default() };
    Some(all).filter(Added::fits).unwrap_or_else(labels)
}
