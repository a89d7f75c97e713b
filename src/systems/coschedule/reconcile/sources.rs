//! Whom placeholders stand for, and what they are to be made of.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::reason;
use super::room::own_terms;
use crate::policy::{Policy, Volumes};
use crate::systems::coschedule::claims::{Stays, is_parked};
use crate::systems::coschedule::family::{self, Signs};
use crate::systems::coschedule::groups::{
    self, Claimants, Group, GroupClaim, Groups, Leader, NativeClaims,
};
use crate::systems::coschedule::keys;
use crate::systems::coschedule::placeholder::{Blueprint, Bounds, Cause, Isolation};
use crate::systems::vocabulary::IGNORE;
use crate::view::pipeline_run::{Labels, Template, WorkspaceSource};
use crate::view::{Member, Name, Owner, PipelineRun, View};

/// What placeholders are made for.
#[derive(Debug)]
pub(super) struct Sources<'v> {
    view: &'v View,
    policy: &'v Policy,
    runs: Vec<Run<'v>>,
    natives: Vec<Native<'v>>,
    /// What is to be told of runs.
    pub(super) notes: Vec<Note<'v>>,
}

/// A run that is its own root, and goes on.
#[derive(Debug)]
struct Run<'v> {
    name: &'v Name,
    run: &'v PipelineRun,
    groups: Groups,
    /// Whether it has a TaskRun.
    has_started: bool,
}

/// A native group with a pod that goes on.
#[derive(Debug)]
struct Native<'v> {
    name: Name,
    group: &'v str,
    claims: Vec<&'v str>,
    /// When its oldest pod was made.
    since: Option<Timestamp>,
    /// What its oldest pod says of nodes, as a pod template.
    template: Value,
}

impl Native<'_> {
    fn claims(&self) -> NativeClaims<'_> {
        let Self { name, group, claims, since, .. } = self;
        NativeClaims { placeholder: name, group, claims, since: *since }
    }
}

/// What is to be told of a run.
#[derive(Debug)]
pub(super) struct Note<'v> {
    pub(super) name: &'v Name,
    pub(super) run: &'v PipelineRun,
    pub(super) reason: &'static str,
    pub(super) text: String,
}

/// A placeholder that there should be.
#[derive(Debug)]
pub(super) struct Wanted<'s> {
    pub(super) blueprint: Blueprint<'s>,
    /// Whether it should be made now, if it is not there.
    pub(super) is_due: bool,
    pub(super) run: Option<(&'s Name, &'s PipelineRun)>,
    /// The groups of its run.
    pub(super) groups: Option<&'s Groups>,
    /// Who began earlier and uses one of its claims.
    pub(super) leader: Option<Leader>,
}

impl<'v> Sources<'v> {
    pub(super) fn new(view: &'v View, policy: &'v Policy) -> Self {
        let mut sources =
            Self { view, policy, runs: Vec::new(), natives: Vec::new(), notes: Vec::new() };
        if policy.coschedule.enabled {
            sources.find_runs();
            sources.find_natives();
        }
        sources
    }

    fn find_runs(&mut self) {
        let lives = |run: &PipelineRun| !run.done && !run.identity.deleting && run.parent.is_none();
        let mut runs: Vec<_> = self.view.pipeline_runs().filter(|(_, run)| lives(run)).collect();
        runs.retain(|(name, _)| !self.is_left_alone(&name.namespace));
        runs.sort_unstable_by_key(|(name, _)| *name);
        for (name, run) in runs {
            let Signs { has_started, is_assisted } = family::signs(name, run, self.view);
            if is_assisted {
                let mut text = "Tekton's own affinity assistant places this run, and stowplan leaves it alone; set `coschedule: disabled` in Tekton's ConfigMap feature-flags".to_owned();
                // Its first claim comes before anything that says so.
                let mut claims = self.view.claims_of_run(&run.identity.uid);
                if claims.any(|(_, claim)| is_parked(claim)) {
                    text += ", then make the run again: its claims are parked, and no pod of it can run";
                }
                self.notes.push(Note { name, run, reason: reason::ASSISTANT_IS_ON, text });
                self.keep_begun(name, run);
                continue;
            }
            let groups = match groups::of_run(name, run, self.view, self.policy) {
                Ok(groups) => groups,
                Err(bad) => {
                    let finding = bad.finding();
                    let text = finding.to_string();
                    self.notes.push(Note { name, run, reason: finding.reason.as_str(), text });
                    continue;
                }
            };
            for conflict in &groups.conflicts {
                let text = conflict.to_string();
                self.notes.push(Note { name, run, reason: reason::GROUP_CONFLICT, text });
            }
            for stays in self.classes_that_stay(name, &groups) {
                let text = stays.text().to_owned();
                self.notes.push(Note { name, run, reason: reason::CLASS_BINDS_AT_ONCE, text });
            }
            if !groups.groups.is_empty() {
                self.runs.push(Run { name, run, groups, has_started });
            }
        }
    }

    /// Those groups of a run that Tekton's assistant places whose pods were admitted before that was known:
    /// they wait for a placeholder.
    fn keep_begun(&mut self, name: &'v Name, run: &'v PipelineRun) {
        let Ok(mut groups) = groups::of_run(name, run, self.view, self.policy) else { return };
        groups.groups.retain(|group| {
            let placeholder = Name::new(&name.namespace, &group.name);
            let uid = Some(&*run.identity.uid);
            self.view.members_of(&placeholder).any(|(pod, member)| {
                let is_assisted = member.estate.as_ref().is_some_and(|estate| estate.assisted);
                !member.finished
                    && !is_assisted
                    && family::belongs(pod, member, &group.name, uid, self.view)
            })
        });
        if !groups.groups.is_empty() {
            self.runs.push(Run { name, run, groups, has_started: true });
        }
    }

    /// Why claims of a run keep classes that put their volumes anywhere. That the class has no sibling
    /// matters only to a claim that must meet another.
    fn classes_that_stay(&self, run: &Name, groups: &Groups) -> BTreeSet<Stays> {
        let of_group = |group: &'_ Group| {
            let is_alone = group.claims.len() < 2;
            let made = group.claims.iter().filter(|claim| claim.template);
            let classes = made.filter_map(|claim| {
                let claim = self.view.claim(&Name::new(&run.namespace, &claim.name))?;
                Stays::of(claim.class.as_deref()?, self.view, self.policy)
            });
            let matters = move |stays: &Stays| !is_alone || matches!(stays, Stays::NoSuchClass(_));
            classes.filter(matters).collect::<Vec<_>>()
        };
        groups.groups.iter().flat_map(of_group).collect()
    }

    /// Whether nothing of this namespace is touched.
    pub(super) fn is_left_alone(&self, namespace: &str) -> bool {
        let labels = self.view.namespace_labels(namespace);
        let ignored = labels.and_then(|labels| labels.get(IGNORE)).is_some_and(|v| &**v == "true");
        ignored || self.policy.excludes(namespace)
    }

    fn find_natives(&mut self) {
        let mut found: BTreeMap<Name, Vec<(&'v Name, &'v Member, &'v str)>> = BTreeMap::new();
        for (name, member) in self.view.members().filter(|(_, member)| !member.finished) {
            let (Some(placeholder), Some(group)) = (&member.placeholder, &member.group) else {
                continue;
            };
            let namespace = &name.namespace;
            // The label alone is its author's word.
            if **placeholder == *keys::of_native(namespace, group) {
                let placeholder = Name::new(namespace, placeholder);
                found.entry(placeholder).or_default().push((name, member, group));
            }
        }
        for (name, mut members) in found {
            if self.is_left_alone(&name.namespace) {
                continue;
            }
            members.sort_unstable_by_key(|(name, member, _)| (member.identity.created, *name));
            let Some(&(_, oldest, group)) = members.first() else { continue };
            let mut claims: Vec<&str> = Vec::new();
            for (_, member, _) in &members {
                claims.extend(claims_on_one_node(&name.namespace, member, self.view));
            }
            claims.sort_unstable();
            claims.dedup();
            let template = template_of(oldest);
            let since = oldest.identity.created;
            self.natives.push(Native { name, group, claims, since, template });
        }
    }

    /// The placeholders that there should be, by name.
    pub(super) fn wanted(&self) -> BTreeMap<Name, Wanted<'_>> {
        let claims: Vec<_> = self.natives.iter().map(Native::claims).collect();
        let claimants = &Claimants::new(&claims, self.view, self.policy);
        let of_runs = self.runs.iter().flat_map(|run| {
            let groups = run.groups.groups.iter();
            groups.map(move |group| self.of_group(run, group, claimants))
        });
        let natives = self.natives.iter().map(|native| self.of_native(native, claimants));
        of_runs.chain(natives).map(|wanted| (wanted.blueprint.name.clone(), wanted)).collect()
    }

    fn of_group<'s>(
        &'s self,
        run: &'s Run<'v>,
        group: &'s Group,
        claimants: &Claimants<'_>,
    ) -> Wanted<'s> {
        let name = Name::new(&run.name.namespace, &group.name);
        let standing = self.view.placeholder(&name);
        // A claim that was parked when it came can only be had in the placeholder's own.
        let is_parked = |claim: &GroupClaim| {
            let known = self.view.claim(&Name::new(&name.namespace, &claim.name));
            match known {
                Some(known) => is_parked(known),
                None => {
                    claim.is_replaceable() && self.policy.coschedule.volumes == Volumes::Provision
                }
            }
        };
        // The templates of one that stands cannot be changed any more.
        let makes = |claim: &GroupClaim| match standing {
            Some(standing) => {
                let template = keys::template(&claim.name);
                standing.templates.iter().any(|made| **made == *template)
            }
            None => is_parked(claim),
        };
        let document = |claim: &str| {
            let templates =
                run.run.workspaces.iter().filter_map(|workspace| match &workspace.source {
                    WorkspaceSource::Template(template) => Some(template),
                    _ => None,
                });
            let mut of_claim = templates.filter(|template| *template.claim == *claim);
            of_claim.find_map(|template: &Template| template.document.as_deref())
        };
        let mut claims = Vec::new();
        let mut templates = Vec::new();
        for claim in &group.claims {
            match document(&claim.name).filter(|_| claim.is_replaceable() && makes(claim)) {
                Some(document) => templates.push((claim.name.to_string(), document)),
                // It would never be bound.
                None if claim.template && is_parked(claim) => {}
                None => claims.push(&*claim.name),
            }
        }
        let leader = claimants.leader(run.name, run.run, group);
        let owner = Owner { name: run.name.name.clone(), uid: run.run.identity.uid.clone() };
        Wanted {
            blueprint: Blueprint {
                name: name.clone(),
                cause: Cause::Run { owner, key: &group.key, mode: run.groups.mode },
                claims,
                templates,
                template: run.run.pod_template.as_deref(),
                service_account: run.run.service_account.as_deref(),
                node_selector: &group.node_selector,
                isolation: self.isolation(group.isolated),
                bounds: Bounds::Anywhere,
            },
            is_due: run.has_started,
            run: Some((run.name, run.run)),
            groups: Some(&run.groups),
            leader,
        }
    }

    fn of_native<'s>(&'s self, native: &'s Native<'v>, claimants: &Claimants<'_>) -> Wanted<'s> {
        Wanted {
            blueprint: Blueprint {
                name: native.name.clone(),
                cause: Cause::Native(native.group),
                claims: native.claims.clone(),
                templates: Vec::new(),
                template: Some(&native.template),
                service_account: None,
                node_selector: &NO_LABELS,
                isolation: self.isolation(false),
                bounds: Bounds::Anywhere,
            },
            is_due: true,
            run: None,
            groups: None,
            leader: claimants.leader_of_native(&native.claims()),
        }
    }

    fn isolation(&self, required: bool) -> Isolation {
        Isolation { required, scope: self.policy.coschedule.isolation_scope }
    }
}

/// A group without a node selector of its own.
static NO_LABELS: std::sync::LazyLock<Labels> = std::sync::LazyLock::new(Labels::default);

/// The claims of a pod that are there and keep their pods on one node.
pub(super) fn claims_on_one_node<'v>(
    namespace: &str,
    member: &'v Member,
    view: &View,
) -> Vec<&'v str> {
    let claims = member.estate.iter().flat_map(|estate| &estate.claims);
    let on_one_node = |claim: &&str| {
        let found = view.claim(&Name::new(namespace, claim));
        // One that is parked is never bound: who mounts it is made again with another.
        found.is_some_and(|claim| claim.access_modes.need_one_node() && !is_parked(claim))
    };
    claims.map(AsRef::as_ref).filter(on_one_node).collect()
}

/// What a pod says of the nodes that it may be on.
fn template_of(member: &Member) -> Value {
    let Some(estate) = &member.estate else { return Value::Null };
    let mut template =
        json!({"nodeSelector": estate.node_selector, "tolerations": estate.tolerations});
    if let Some(terms) = own_terms(estate) {
        template["affinity"]["nodeAffinity"] = json!({
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        });
    }
    template
}
