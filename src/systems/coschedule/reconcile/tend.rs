//! A placeholder that stands: its claims, its node, and those who wait for it.

use std::collections::BTreeSet;

use json_patch::PatchOperation;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::room::{Demand, others};
use super::sources::{Wanted, claims_on_one_node};
use super::{Follow, MAKING, Turn, reason, target};
use crate::placement::affinity::bound_to;
use crate::policy::Repair;
use crate::systems::coschedule::family;
use crate::systems::coschedule::keys::FAILED;
use crate::systems::coschedule::placeholder::{Blueprint, Bounds, same_affinity, with_claims};
use crate::systems::plan::operation::{add, remove, test_uid};
use crate::systems::plan::{Action, Event, Kind, Write};
use crate::systems::wake;
use crate::view::member::MemberEstate;
use crate::view::placeholder::{FIRST, PlaceholderEstate};
use crate::view::{Member, Name, PipelineRun, Placeholder, PlaceholderPod, View};

/// After so many grace periods without a node that fits, the placeholder gives its node up: a pod that
/// waits without a node is what makes a cluster autoscaler act.
const GIVE_UP: i32 = 10;

/// How long members wait beside their placeholder before they are called. The scheduler tries again by
/// itself within ten seconds, and when many wait at once it is only busy: each call is a write.
const PATIENCE: SignedDuration = SignedDuration::from_secs(12);

/// The annotation of a placeholder without a pod: since when that is so, in seconds since 1970. A pod that
/// is deleted is made again within moments, so that it is rarely written.
const MISSING_SINCE: &str = "stowplan.dev/missing-since";

/// A placeholder that stands, with those who belong to it.
#[derive(Debug)]
pub(super) struct Stand<'v> {
    name: &'v Name,
    placeholder: &'v Placeholder,
    estate: &'v PlaceholderEstate,
    pod: Option<&'v PlaceholderPod>,
    run: Option<(&'v Name, &'v PipelineRun)>,
    /// Members that have a node and have not ended. One that is terminating on a node that says nothing
    /// any more does not count.
    running: Vec<(&'v Name, &'v Member)>,
    /// Members without a node.
    waiting: Vec<(&'v Name, &'v Member)>,
}

/// Why a placeholder should not be where it is.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Trouble {
    /// Nobody may begin there.
    Barred(String),
    /// The run shares a claim with one that is elsewhere.
    Follows(String),
    /// Its template says so: it is being moved.
    Outdated,
    /// Members have not come in for long.
    Full {
        /// The last of them to wait waits since then.
        since: Timestamp,
    },
}

impl<'v> Stand<'v> {
    pub(super) fn new(
        name: &'v Name,
        placeholder: &'v Placeholder,
        estate: &'v PlaceholderEstate,
        run: Option<(&'v Name, &'v PipelineRun)>,
        view: &'v View,
    ) -> Self {
        let mut running = Vec::new();
        let mut waiting = Vec::new();
        let run_uid = placeholder.run.as_ref().map(|run| &*run.uid);
        let members = view.members_of(name).filter(|(pod, member)| {
            !member.finished && family::belongs(pod, member, &name.name, run_uid, view)
        });
        for (member_name, member) in members {
            match member.place() {
                Some(node) if member.identity.deleting && is_lost(node, view) => {}
                Some(_) => running.push((member_name, member)),
                None if member.identity.deleting => {}
                None => waiting.push((member_name, member)),
            }
        }
        let pod = view.placeholder_pod(name);
        Self { name, placeholder, estate, pod, run, running, waiting }
    }

    /// Whether the one node that its template lets it be on is that of a member.
    fn is_held_where_it_must_be(&self) -> bool {
        let only = self.estate.only.as_deref();
        only.is_some() && self.running.iter().any(|(_, member)| member.place() == only)
    }

    fn demand(&self, view: &'v View) -> Demand<'v> {
        let waiting = self.waiting.iter().filter_map(|(_, member)| member.estate.as_deref());
        Demand::of(self.name, self.placeholder, waiting.collect(), view)
    }

    /// The members that the scheduler has found no node for, and since when each of them waits for the
    /// placeholder that is on its node since `placed`.
    fn unschedulable(
        &self,
        placed: Option<Timestamp>,
    ) -> impl Iterator<Item = (&'v Name, &'v Member, &'v MemberEstate, Timestamp)> {
        self.waiting.iter().filter_map(move |(name, member)| {
            let estate = member.estate.as_deref()?;
            let since = estate.unschedulable.as_ref().filter(|_| estate.gate.is_none())?.since;
            Some((*name, *member, estate, placed.map_or(since, |placed| placed.max(since))))
        })
    }
}

/// Whether a node is gone, or says nothing any more.
fn is_lost(node: &str, view: &View) -> bool {
    let estate = view.node(node).and_then(|node| node.estate.as_ref());
    estate.is_none_or(|estate| !estate.ready)
}

/// Whether the template of a placeholder keeps it out of a node.
fn excludes_node(stand: &Stand<'_>, node: &str) -> bool {
    stand.estate.excluded.iter().any(|excluded| **excluded == *node)
}

/// The node that a member must be on by name.
fn node_named_by(estate: &MemberEstate) -> Option<&str> {
    bound_to(estate.terms.as_deref()?)
}

impl<'v> Turn<'v> {
    /// Sees to a placeholder that is needed.
    pub(super) fn tend(&mut self, stand: &Stand<'v>, wanted: Option<&Wanted<'_>>) {
        self.is_not_idle(stand.name, stand.placeholder);
        if stand.running.is_empty() && self.add_claims(stand, wanted) {
            return;
        }
        let Some(pod) = stand.pod else {
            return self.tend_unmade(stand);
        };
        self.is_made(stand);
        match &pod.node {
            // The StatefulSet controller makes it again.
            _ if pod.finished => {}
            Some(node) => self.tend_placed(stand, pod, node, wanted),
            None => self.tend_unplaced(stand, pod, wanted),
        }
    }

    /// Mounts what became known later: claims that members mount, and those of a pipeline that was not
    /// delivered yet. Returns whether the template is to change.
    fn add_claims(&mut self, stand: &Stand<'v>, wanted: Option<&Wanted<'_>>) -> bool {
        let mut claims: BTreeSet<&str> = BTreeSet::new();
        for (_, member) in &stand.waiting {
            claims.extend(claims_on_one_node(&stand.name.namespace, member, self.view));
        }
        if let Some(wanted) = wanted {
            claims.extend(wanted.blueprint.claims.iter());
        }
        let made = &stand.placeholder.templates;
        let is_made = |claim: &str| {
            made.iter().any(|template| *claim == *format!("{template}-{}{FIRST}", stand.name.name))
        };
        claims.retain(|claim| {
            !stand.placeholder.claims.iter().any(|own| **own == **claim) && !is_made(claim)
        });
        if claims.is_empty() {
            return false;
        }
        let claims: Vec<&str> = claims.into_iter().collect();
        let (volumes, mounts) = with_claims(&stand.estate.spec, &claims);
        self.change(
            stand,
            vec![
                add(&["spec", "template", "spec", "volumes"], volumes),
                add(&["spec", "template", "spec", "containers", "0", "volumeMounts"], mounts),
            ],
        );
        true
    }

    /// Changes the placeholder itself. Its pod stays as it is until it is deleted.
    fn change(&mut self, stand: &Stand<'v>, mut operations: Vec<PatchOperation>) {
        let uid = &stand.placeholder.identity.uid;
        operations.insert(0, test_uid(uid));
        self.write(Kind::StatefulSet, stand.name, uid, Write::Patch(operations), Vec::new());
    }

    /// Gives the template other bounds. Returns whether it has them already.
    fn bind(&mut self, stand: &Stand<'v>, blueprint: &Blueprint<'_>, bounds: Bounds<'_>) -> bool {
        let affinity = Blueprint { bounds, ..blueprint.clone() }.affinity();
        if same_affinity(&stand.estate.spec["template"]["spec"]["affinity"], &affinity) {
            return true;
        }
        self.change(stand, vec![add(&["spec", "template", "spec", "affinity"], affinity)]);
        false
    }

    /// Deletes the placeholder's pod, so that it is made anew.
    fn renew(
        &mut self,
        stand: &Stand<'v>,
        pod: &PlaceholderPod,
        grace: Option<u32>,
        why: Option<&str>,
    ) {
        let name = Name::new(&stand.name.namespace, &[&*stand.name.name, FIRST].concat());
        let write = Write::Delete { grace, version: None };
        self.write(Kind::Pod, &name, &pod.identity.uid, write, Vec::new());
        if let (Some(why), Some((name, run))) = (why, stand.run) {
            let note = format!("placeholder {} leaves its node: {why}", stand.name.name);
            let event = Event { warning: false, reason: reason::PLACEHOLDER_MOVED, note };
            self.tell(target(Kind::PipelineRun, name, &run.identity.uid), event);
        }
    }

    /// The StatefulSet has no pod. It had one a moment ago, or something keeps it from making one: that
    /// is told after a while, new members do not wait for it any more, and those that do are made again
    /// where the policy says so.
    fn tend_unmade(&mut self, stand: &Stand<'v>) {
        let Placeholder { identity, failed, .. } = stand.placeholder;
        let missing = stand.estate.annotations.get(MISSING_SINCE);
        let missing = missing.and_then(|text| Timestamp::from_second(text.parse().ok()?).ok());
        let Some(since) = missing else {
            if identity.created.is_some_and(|created| self.is_over(created, MAKING)) {
                let now = self.now.as_second().to_string();
                self.change(stand, vec![add(&["metadata", "annotations", MISSING_SINCE], now)]);
            }
            return;
        };
        if !self.is_over(since, MAKING) {
            return;
        }
        if !failed {
            self.change(stand, vec![add(&["metadata", "annotations", FAILED], "true")]);
        }
        let why = format!(
            "StatefulSet {} has no pod, which a quota or Pod Security can be the cause of; its own events tell (kubectl describe statefulset {0})",
            stand.name.name
        );
        self.tell_waiting(stand.run, &stand.waiting, reason::PLACEHOLDER_NOT_MADE, &why);
        if *failed && self.policy.repair == Repair::RecreatePending {
            for (name, member) in stand.waiting.clone() {
                self.release(name, member, "its group has no placeholder");
            }
        }
    }

    /// Takes back that the pod was missing.
    fn is_made(&mut self, stand: &Stand<'v>) {
        let marks = [MISSING_SINCE, FAILED];
        let present = marks.iter().filter(|mark| stand.estate.annotations.contains_key(**mark));
        let operations: Vec<_> =
            present.map(|mark| remove(&["metadata", "annotations", mark])).collect();
        if !operations.is_empty() {
            self.change(stand, operations);
        }
    }

    /// The placeholder's pod has no node.
    fn tend_unplaced(
        &mut self,
        stand: &Stand<'v>,
        pod: &PlaceholderPod,
        wanted: Option<&Wanted<'_>>,
    ) {
        if pod.identity.deleting {
            return;
        }
        let lacks = |claim: &str| !pod.claims.iter().any(|own| **own == *claim);
        let is_outdated = pod.excluded.iter().any(|node| !stand.estate.excluded.contains(node))
            || pod.only != stand.estate.only
            || stand.placeholder.claims.iter().any(|claim| lacks(claim));
        if is_outdated {
            return self.renew(stand, pod, None, None);
        }
        let Some(unschedulable) = &pod.unschedulable else { return };
        if let Some(wanted) = wanted {
            match self.follow(wanted) {
                Follow::On(node) => {
                    if !self.bind(stand, &wanted.blueprint, Bounds::Only(node)) {
                        return;
                    }
                }
                // Its members hold it there until they end; anywhere else it would only be fetched back.
                Follow::Nobody if stand.is_held_where_it_must_be() => {}
                // The one that it followed has ended or gone.
                Follow::Nobody if stand.estate.only.is_some() => {
                    if !self.bind(stand, &wanted.blueprint, Bounds::Anywhere) {
                        return;
                    }
                }
                Follow::Nobody => {
                    // Kept out of nodes where there is room by now.
                    let demand = stand.demand(self.view);
                    let mut excluded = stand.estate.excluded.iter();
                    if excluded.any(|node| demand.suits(node, self.view, false)) {
                        let suitable = demand.suitable(self.view, "");
                        let bounds = Bounds::Except(others(self.view, &suitable));
                        if !self.bind(stand, &wanted.blueprint, bounds) {
                            return;
                        }
                    }
                }
                Follow::Waits => {}
            }
        }
        if self.is_over(unschedulable.since, self.grace()) {
            let message = unschedulable.message.trim_end_matches('.');
            let note = format!("placeholder {} has no node: {message}", stand.name.name);
            self.tell_waiting(stand.run, &stand.waiting, reason::PLACEHOLDER_NOT_PLACED, &note);
        }
    }

    /// The placeholder's pod is bound to a node.
    fn tend_placed(
        &mut self,
        stand: &Stand<'v>,
        pod: &PlaceholderPod,
        node: &str,
        wanted: Option<&Wanted<'_>>,
    ) {
        self.release_strays(stand, node);
        let demand = stand.demand(self.view);
        let estate = self.view.node(node).and_then(|node| node.estate.as_deref());
        let Some(estate) = estate.filter(|estate| estate.ready) else {
            let what = if estate.is_some() { "says nothing any more" } else { "is gone" };
            if !stand.running.is_empty() {
                return self.tell_busy(stand, node, &format!("node {node} {what}"));
            }
            if estate.is_some() && demand.is_pinned_to(node, self.view) {
                return self.tell_pinned(stand, node, &format!("node {node} {what}"));
            }
            // Its kubelet may never say that the pod has ended.
            return self.renew(stand, pod, Some(0), Some(&format!("node {node} {what}")));
        };
        if pod.identity.deleting {
            return;
        }
        if let Some(other) = self.apart(stand, node, &demand) {
            return self.gather(stand, pod, other, wanted);
        }
        let barred = if estate.cordoned {
            Some(format!("node {node} is cordoned"))
        } else {
            demand.barred_by(estate).map(|taint| {
                format!("node {node} has the taint {}={}:{}", taint.key, taint.value, taint.effect)
            })
        };
        let leads = wanted.map_or(Follow::Nobody, |wanted| self.follow(wanted));
        let is_outdated = excludes_node(stand, node)
            || stand.placeholder.claims.iter().any(|claim| !pod.claims.contains(claim));
        let trouble = match (barred, leads) {
            (Some(barred), _) => Trouble::Barred(barred),
            (None, Follow::On(other)) if other != node => Trouble::Follows(other.to_owned()),
            (None, _) if is_outdated => Trouble::Outdated,
            (None, _) => match self.first_overdue(stand, pod) {
                Some(since) => Trouble::Full { since },
                None => return self.serve(stand, pod, node, &demand),
            },
        };
        if matches!(trouble, Trouble::Full { .. } | Trouble::Outdated) {
            self.serve(stand, pod, node, &demand);
        }
        self.move_away(stand, pod, node, &trouble, &demand, wanted);
    }

    /// The node on which all members run that do, where it is another than the placeholder's and takes
    /// the placeholder. The scheduler has placed them beside a pod of it that was then placed anew (a claim
    /// changed between its decision and its binding), or somebody has deleted that pod under them.
    fn apart(&self, stand: &Stand<'v>, node: &str, demand: &Demand<'v>) -> Option<&'v str> {
        let mut nodes = stand.running.iter().filter_map(|(_, member)| member.place());
        let first = nodes.next().filter(|first| *first != node)?;
        if nodes.any(|other| other != first) {
            return None;
        }
        demand.without_waiting().suits(first, self.view, false).then_some(first)
    }

    /// Has the placeholder go where its members run, so that the next ones come to them.
    fn gather(
        &mut self,
        stand: &Stand<'v>,
        pod: &PlaceholderPod,
        other: &str,
        wanted: Option<&Wanted<'_>>,
    ) {
        let Some(wanted) = wanted else { return };
        if self.bind(stand, &wanted.blueprint, Bounds::Only(other)) {
            self.renew(stand, pod, None, Some(&format!("its members run on node {other}")));
        }
    }

    /// Since when members have waited that have waited for longer than the grace period.
    fn first_overdue(&mut self, stand: &Stand<'v>, pod: &PlaceholderPod) -> Option<Timestamp> {
        let since = stand.unschedulable(pod.scheduled_since).map(|(.., since)| since).min()?;
        let grace = self.grace();
        self.is_over(since, grace).then_some(since)
    }

    /// Lets members come in where the placeholder is and stays for now.
    fn serve(&mut self, stand: &Stand<'v>, pod: &PlaceholderPod, node: &str, demand: &Demand<'v>) {
        for (name, member) in &stand.waiting {
            self.lift(name, member, Some(node), Vec::new());
        }
        for (name, member, estate, since) in stand.unschedulable(pod.scheduled_since) {
            let alone = Demand { waiting: vec![estate], ..demand.without_waiting() };
            let Some(due) = wake::due(since, estate.woken, PATIENCE) else { continue };
            // Where there is no room the scheduler has forgotten nothing.
            if !alone.suits(node, self.view, true) {
                continue;
            }
            if due <= self.now {
                self.act(wake::call(name, &member.identity.uid, self.now, "coscheduled group"));
            } else {
                self.plan.recheck_by(due);
            }
        }
    }

    fn move_away(
        &mut self,
        stand: &Stand<'v>,
        pod: &PlaceholderPod,
        node: &str,
        trouble: &Trouble,
        demand: &Demand<'v>,
        wanted: Option<&Wanted<'_>>,
    ) {
        let why = match trouble {
            Trouble::Barred(why) => why.clone(),
            Trouble::Follows(other) => format!("a claim of it is in use on node {other}"),
            Trouble::Outdated if excludes_node(stand, node) => {
                format!("node {node} does not take those who wait")
            }
            Trouble::Outdated => "it is to mount a further claim".to_owned(),
            Trouble::Full { .. } => format!("node {node} does not take those who wait"),
        };
        if !stand.running.is_empty() {
            return self.tell_busy(stand, node, &why);
        }
        if let Some((user, claim)) = self.used_by_others(stand, node) {
            let note = format!(
                "{why}, and pod {} of another group still runs on {node} with claim {claim}: the group moves when it has ended",
                user.name
            );
            return self.tell_waiting(stand.run, &stand.waiting, reason::WAITS_FOR_MEMBERS, &note);
        }
        // Who was bound to the node by name would be left behind.
        if stand
            .waiting
            .iter()
            .filter_map(|(_, member)| member.estate.as_deref())
            .any(|estate| estate.gate.is_none() && node_named_by(estate) == Some(node))
        {
            return self.release_bound(stand, node, &why);
        }
        match trouble {
            Trouble::Outdated => self.renew(stand, pod, None, Some(&why)),
            Trouble::Follows(other) => {
                let Some(wanted) = wanted else { return };
                if self.bind(stand, &wanted.blueprint, Bounds::Only(other)) {
                    self.renew(stand, pod, None, Some(&why));
                }
            }
            _ if demand.is_pinned_to(node, self.view) => self.tell_pinned(stand, node, &why),
            Trouble::Barred(_) => {
                // A template that lets it nowhere else is changed first.
                if let (Some(wanted), Some(_)) = (wanted, &stand.estate.only)
                    && !self.bind(stand, &wanted.blueprint, Bounds::Anywhere)
                {
                    return;
                }
                self.renew(stand, pod, None, Some(&why));
            }
            Trouble::Full { since } => {
                let Some(wanted) = wanted else {
                    return self.tell_unschedulable(stand);
                };
                self.make_room(stand, node, *since, demand, wanted);
            }
        }
    }

    /// A pod of another group that runs on `node` with a claim of this one that one node mounts at a time:
    /// of a run that follows this one.
    fn used_by_others(&self, stand: &Stand<'v>, node: &str) -> Option<(&'v Name, &'v str)> {
        let Name { namespace, name: own } = stand.name;
        self.view.members().find_map(|(name, member)| {
            let is_other = name.namespace == *namespace
                && member.place() == Some(node)
                && member.placeholder.as_ref() != Some(own);
            let claims = is_other.then(|| claims_on_one_node(namespace, member, self.view))?;
            let shared = |claim: &&str| stand.placeholder.claims.iter().any(|own| **own == **claim);
            Some((name, claims.into_iter().find(shared)?))
        })
    }

    /// Members do not come in where the placeholder is: keeps it out of all nodes where they would not
    /// either. The template says so first, and the pod goes with the next plan.
    fn make_room(
        &mut self,
        stand: &Stand<'v>,
        node: &str,
        since: Timestamp,
        demand: &Demand<'v>,
        wanted: &Wanted<'_>,
    ) {
        let suitable = demand.suitable(self.view, node);
        // As far as can be seen there is room here, and the scheduler knows better: nodes that were
        // tried before are not tried again at once.
        let is_puzzling = demand.suits(node, self.view, true);
        let untried: Vec<&str> = suitable
            .iter()
            .copied()
            .filter(|name| !stand.estate.excluded.iter().any(|excluded| **excluded == **name))
            .collect();
        let bounds = if suitable.is_empty() {
            self.tell_no_room(stand, is_puzzling);
            let patience = self.grace().checked_mul(GIVE_UP).unwrap_or(SignedDuration::MAX);
            if is_puzzling || !self.is_over(since, patience) {
                return;
            }
            others(self.view, &[])
        } else if is_puzzling && !untried.is_empty() {
            others(self.view, &untried)
        } else {
            others(self.view, &suitable)
        };
        self.bind(stand, &wanted.blueprint, Bounds::Except(bounds));
    }

    fn tell_no_room(&mut self, stand: &Stand<'v>, is_puzzling: bool) {
        if is_puzzling {
            return self.tell_unschedulable(stand);
        }
        let largest = stand.waiting.iter().filter_map(|(name, member)| {
            let requests = &member.estate.as_ref()?.requests;
            Some((requests.milli_cpu, requests.memory, *name))
        });
        let Some((cpu, memory, name)) = largest.max() else { return };
        let note = format!(
            "no node can take pod {} (cpu {cpu}m, memory {} MiB) now; the largest pod of a group decides where the group can be",
            name.name,
            memory / 1024 / 1024
        );
        self.tell_waiting(stand.run, &stand.waiting, reason::NO_NODE_FITS, &note);
    }

    fn tell_unschedulable(&mut self, stand: &Stand<'v>) {
        let message = stand.unschedulable(None).next().and_then(|(_, _, estate, _)| {
            let message = &estate.unschedulable.as_ref()?.message;
            Some(message.trim_end_matches('.').to_owned())
        });
        let note = format!(
            "the group's node has room, and the scheduler says: {}",
            message.unwrap_or_default()
        );
        self.tell_waiting(stand.run, &stand.waiting, reason::MEMBERS_UNSCHEDULABLE, &note);
    }

    /// Nothing is moved while a member runs, and who waits is told of whom for.
    fn tell_busy(&mut self, stand: &Stand<'v>, node: &str, why: &str) {
        let Some((running, _)) = stand.running.first().filter(|_| !stand.waiting.is_empty()) else {
            return;
        };
        let note = format!(
            "{why}, and pod {} of the group still runs on {node}: the group moves when it has ended",
            running.name
        );
        self.tell_waiting(stand.run, &stand.waiting, reason::WAITS_FOR_MEMBERS, &note);
    }

    fn tell_pinned(&mut self, stand: &Stand<'v>, node: &str, why: &str) {
        let note = format!("{why}, and a volume of the group can be mounted on no node but {node}");
        self.tell_waiting(stand.run, &stand.waiting, reason::VOLUME_PINS_NODE, &note);
    }

    /// Members that were bound by name to a node where the placeholder is not any more.
    fn release_strays(&mut self, stand: &Stand<'v>, node: &str) {
        let strays = stand.waiting.iter().filter(|(_, member)| {
            let estate = member.estate.as_deref().filter(|estate| estate.gate.is_none());
            let stray =
                estate.filter(|estate| estate.unschedulable.is_some()).and_then(node_named_by);
            stray.is_some_and(|bound| bound != node)
        });
        for (name, member) in strays.copied().collect::<Vec<_>>() {
            self.release(name, member, "it was bound to a node where its group is not any more");
        }
    }

    fn release_bound(&mut self, stand: &Stand<'v>, node: &str, why: &str) {
        for (name, member) in stand.waiting.clone() {
            let estate = member.estate.as_deref();
            if estate
                .is_some_and(|estate| estate.gate.is_none() && node_named_by(estate) == Some(node))
            {
                self.release(name, member, why);
            }
        }
    }

    /// Has a waiting member made again, where the policy says so. Only a TaskRun makes its pod again by
    /// the same name, and only while it has none: so it must not have been bound meanwhile.
    fn release(&mut self, name: &'v Name, member: &'v Member, why: &str) {
        let is_replaceable = member.task_run.is_some() && member.node.is_none();
        let target = target(Kind::Pod, name, &member.identity.uid);
        if is_replaceable && self.policy.repair == Repair::RecreatePending {
            let version = Some(member.identity.resource_version.clone());
            let note = format!("{why}; deleted, so that its TaskRun makes it again");
            let events = vec![Event { warning: false, reason: reason::RECREATED, note }];
            self.act(Action { target, write: Write::Delete { grace: None, version }, events });
            return;
        }
        let note = format!("{why}; delete the pod to have it made again");
        self.tell(target, Event { warning: true, reason: reason::BOUND_ELSEWHERE, note });
    }
}
