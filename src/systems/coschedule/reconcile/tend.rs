//! A placeholder that stands: its claims, its node, and those who wait for it.

use std::collections::{BTreeSet, HashMap};

use json_patch::PatchOperation;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::room::{Bar, Demand, Room, bound_by_name, others};
use super::sources::{Wanted, claims_on_one_node};
use super::{Follow, MAKING, Turn, reason, target};
use crate::policy::Repair;
use crate::systems::coschedule::claims::is_parked;
use crate::systems::coschedule::family;
use crate::systems::coschedule::groups::{self, Membership};
use crate::systems::coschedule::keys::{FAILED, MEMBER};
use crate::systems::coschedule::placeholder::{
    Blueprint, Bounds, hold, same_affinity, with_claims,
};
use crate::systems::plan::operation::{add, remove, test_uid};
use crate::systems::plan::{Action, Event, Kind, Write};
use crate::systems::wake;
use crate::view::member::{MemberEstate, Unschedulable};
use crate::view::placeholder::{FIRST, PlaceholderEstate};
use crate::view::{Member, Name, PipelineRun, Placeholder, PlaceholderPod, TaskRun, View};

/// After so many grace periods without a node that fits, the placeholder gives its node up: a pod that
/// waits without a node is what makes a cluster autoscaler act.
const GIVE_UP: i32 = 10;

/// How long members wait beside their placeholder before they are called. The scheduler tries again by
/// itself within ten seconds, and when many wait at once it is only busy: each call is a write.
const PATIENCE: SignedDuration = SignedDuration::from_secs(12);

/// The annotation of a placeholder without a pod: since when that is so, in seconds since 1970. A pod that
/// is deleted is made again within moments, so that it is rarely written.
const MISSING_SINCE: &str = "stowplan.dev/missing-since";

/// What the scheduler says of a pod where the pods that it must be beside are not.
const NOT_BESIDE: &str = "didn't match pod affinity rules";

/// Pods by namespace and claim, each with the claim again.
pub(super) type Users<'v> = HashMap<(&'v str, &'v str), Vec<(&'v Name, &'v Member, &'v str)>>;

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
    /// Whether the scheduler counts pods as members that say nothing of where the group is: somebody else's,
    /// those that bypassed it, and those that a dead node will never let go.
    is_misled: bool,
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
        let mut is_misled = false;
        let run_uid = placeholder.run.as_ref().map(|run| &*run.uid);
        for (member_name, member) in view.members_of(name).filter(|(_, member)| !member.finished) {
            let belongs = family::belongs(member_name, member, &name.name, run_uid, view);
            match member.place() {
                Some(node) if belongs && !(member.identity.deleting && is_lost(node, view)) => {
                    running.push((member_name, member));
                    is_misled |= !member.estate.as_deref().is_some_and(is_placed_by_us);
                }
                Some(_) => is_misled = true,
                None if belongs && !member.identity.deleting => waiting.push((member_name, member)),
                None => {}
            }
        }
        let pod = view.placeholder_pod(name);
        Self { name, placeholder, estate, pod, run, running, waiting, is_misled }
    }

    /// The name of its pod.
    fn pod_name(&self) -> Name {
        Name::new(&self.name.namespace, &[&*self.name.name, FIRST].concat())
    }

    /// The nodes of those that run where we have placed them: there the group is.
    fn places(&self) -> impl Iterator<Item = &'v str> {
        let is_placed = |member: &Member| member.estate.as_deref().is_some_and(is_placed_by_us);
        let placed = self.running.iter().filter(move |(_, member)| is_placed(member));
        placed.filter_map(|(_, member)| member.place())
    }

    /// Whether it must be where members are, and wait until it can be. A run ends; pods of a native group may
    /// be there for good, and who drains their node waits until others of them run elsewhere.
    fn must_be_held(&self, view: &View) -> bool {
        let is_open = |node: &str| {
            let estate = view.node(node).and_then(|node| node.estate.as_deref());
            estate
                .is_some_and(|node| node.ready && Bar::of(&self.estate.tolerations, node).is_none())
        };
        let places: Vec<&str> = self.places().collect();
        if places.is_empty() {
            return !self.is_misled;
        }
        if self.placeholder.group.is_none() || places.iter().all(|node| is_open(node)) {
            return true;
        }
        let demand = self.demand(view, None);
        let only = self.estate.only.as_deref();
        places.iter().any(|node| {
            !excludes_node(self, node)
                && only.is_none_or(|only| only == *node)
                && demand.takes_placeholder(node, view)
        })
    }

    /// Whether members that run keep its pod on this node. Those of a native group that are on others, where
    /// it cannot go, do not.
    fn is_kept_on(&self, node: &str, view: &View) -> bool {
        let is_here = |(_, member): &(&Name, &Member)| member.place() == Some(node);
        let is_left = self.places().next().is_some()
            && !self.running.iter().any(is_here)
            && !self.must_be_held(view);
        !self.running.is_empty() && !is_left
    }

    /// The one node where members run, if the template keeps the placeholder out of it.
    fn is_kept_from(&self) -> Option<&'v str> {
        let mut places = self.places();
        let first = places.next()?;
        let only = self.estate.only.as_deref();
        let is_kept = excludes_node(self, first) || only.is_some_and(|only| only != first);
        (is_kept && places.all(|other| other == first)).then_some(first)
    }

    /// Whether the one node that its template lets it be on is that of a member.
    fn is_held_where_it_must_be(&self) -> bool {
        let only = self.estate.only.as_deref();
        only.is_some() && self.running.iter().any(|(_, member)| member.place() == only)
    }

    /// Whether its template mounts a claim.
    fn mounts(&self, claim: &str) -> bool {
        self.placeholder.claims.iter().any(|own| **own == *claim)
    }

    /// Whether a claim is one that its StatefulSet makes.
    fn makes(&self, claim: &str) -> bool {
        self.placeholder.made(&self.name.name).any(|made| made == claim)
    }

    /// Whether its pod mounts other claims than its template says.
    fn has_other_claims(&self, pod: &PlaceholderPod) -> bool {
        self.placeholder.claims.iter().any(|claim| !pod.claims.contains(claim))
            || pod.claims.iter().any(|claim| !self.mounts(claim) && !self.makes(claim))
    }

    /// What those ask for who can go after the placeholder, and the placeholder itself.
    fn demand(&self, view: &'v View, wanted: Option<&Wanted<'_>>) -> Demand<'v> {
        let waiting = self.waiting.iter().filter(|(name, member)| can_leave(name, member, view));
        let waiting = waiting.filter_map(|(_, member)| member.estate.as_deref()).collect();
        let blueprint = wanted.map(|wanted| &wanted.blueprint);
        Demand::of(self.name, self.placeholder, self.estate, blueprint, waiting, view)
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

/// Whether an own mark of ours puts a pod where its placeholder is.
fn is_placed_by_us(pod: &MemberEstate) -> bool {
    pod.follows || pod.gate.is_some() || bound_by_name(pod).is_some()
}

/// Whether a pod that waits can go after its placeholder: not who is bound to a node by name and would
/// not be made again.
fn can_leave(name: &Name, member: &Member, view: &View) -> bool {
    let bound = member.estate.as_deref().and_then(bound_by_name);
    bound.is_none() || maker(name, member, view).is_some()
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

/// The TaskRun that makes a pod again when it is deleted: only a TaskRun does by the same name, and only
/// while its pod has no node.
pub(super) fn maker<'v>(name: &Name, member: &Member, view: &'v View) -> Option<&'v TaskRun> {
    let owner = member.task_run.as_ref().filter(|_| member.node.is_none())?;
    let known = view.task_run(&Name::new(&name.namespace, &owner.name))?;
    let goes_on = !known.done && !known.identity.deleting;
    (goes_on && known.identity.uid == owner.uid).then_some(known)
}

impl<'v> Turn<'v> {
    /// Sees to a placeholder that is needed.
    pub(super) fn tend(&mut self, stand: &Stand<'v>, wanted: Option<&Wanted<'_>>) {
        self.is_not_idle(stand.name, stand.placeholder);
        if self.restore_size(stand) {
            return;
        }
        let is_to_be_held = !stand.estate.held && stand.must_be_held(self.view);
        let is_placed = stand.pod.is_some_and(|pod| pod.place().is_some());
        if is_to_be_held && !self.hold(stand, true) && !is_placed {
            return;
        }
        self.release_leavers(stand, wanted);
        if stand.running.is_empty() && self.fit_claims(stand, wanted) {
            return;
        }
        self.release_strays(stand);
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

    /// Takes back that somebody has given the StatefulSet another number of pods: with none there would
    /// never be one, and of several one would be beside nobody. Returns whether that is to be done.
    fn restore_size(&mut self, stand: &Stand<'v>) -> bool {
        let size = stand.estate.spec["replicas"].as_i64();
        if size.is_none_or(|size| size == 1) {
            return false;
        }
        self.change(stand, vec![add(&["spec", "replicas"], 1)]);
        true
    }

    /// Mounts what became known later: claims that members mount, and those of a pipeline that was not
    /// delivered yet; and takes out what turned out to be another group's, because the volumes of both
    /// share no node, and what one pod at a time may use. Returns whether the template is to change.
    fn fit_claims(&mut self, stand: &Stand<'v>, wanted: Option<&Wanted<'_>>) -> bool {
        let mut claims: BTreeSet<&str> = BTreeSet::new();
        for (_, member) in &stand.waiting {
            claims.extend(claims_on_one_node(&stand.name.namespace, member, self.view));
        }
        if let Some(wanted) = wanted {
            claims.extend(wanted.blueprint.claims.iter());
        }
        let is_strange = |claim: &str| self.is_strange(stand, wanted, claim);
        claims.retain(|claim| !stand.mounts(claim) && !stand.makes(claim) && !is_strange(claim));
        let own = stand.placeholder.claims.iter().map(AsRef::as_ref);
        let surplus: Vec<&str> = own.filter(|claim| is_strange(claim)).collect();
        if claims.is_empty() && surplus.is_empty() {
            return false;
        }
        let claims: Vec<&str> = claims.into_iter().collect();
        let (volumes, mounts) = with_claims(&stand.estate.spec, &claims, &surplus);
        self.change(
            stand,
            vec![
                add(&["spec", "template", "spec", "volumes"], volumes),
                add(&["spec", "template", "spec", "containers", "0", "volumeMounts"], mounts),
            ],
        );
        true
    }

    /// Whether a placeholder must not mount a claim.
    fn is_strange(&self, stand: &Stand<'v>, wanted: Option<&Wanted<'_>>, claim: &str) -> bool {
        let known = self.view.claim(&Name::new(&stand.name.namespace, claim));
        let is_for_nobody =
            known.is_some_and(|known| known.access_modes.one_pod || is_parked(known));
        let is_anothers = |wanted: &Wanted<'_>| {
            let groups = wanted.groups.iter().flat_map(|groups| &groups.groups);
            !wanted.blueprint.claims.contains(&claim)
                && groups
                    .filter(|group| group.name != stand.name.name)
                    .any(|group| group.has(claim))
        };
        is_for_nobody || wanted.is_some_and(is_anothers)
    }

    /// Lets waiting members go that belong to another group of their run by now: where the volumes of the
    /// run were made, nobody knew when they were admitted.
    fn release_leavers(&mut self, stand: &Stand<'v>, wanted: Option<&Wanted<'_>>) {
        let groups = wanted.and_then(|wanted| wanted.groups);
        let Some(groups) = groups.filter(|groups| groups.groups.len() > 1) else { return };
        for (name, member) in &stand.waiting {
            let Some(estate) = member.estate.as_deref() else { continue };
            // The label alone is its author's word.
            if !is_placed_by_us(estate) || member.group.is_some() {
                continue;
            }
            let Some(task_run) = maker(name, member, self.view) else { continue };
            let claims: Vec<&str> = estate.claims.iter().map(AsRef::as_ref).collect();
            let selector: Vec<(&str, &str)> =
                estate.node_selector.iter().map(|(key, value)| (&**key, &**value)).collect();
            let task = task_run.task.as_deref();
            let binds_nobody = groups::binds_nobody(&name.namespace, self.view);
            if let Membership::Of(group) = groups.membership(task, &claims, &selector, binds_nobody)
                && group.name != stand.name.name
            {
                let why = format!(
                    "the volumes of its run share no node, and it belongs to placeholder {} now",
                    group.name
                );
                self.have_made_again(name, member, &why);
            }
        }
    }

    /// Changes the placeholder itself. Its pod stays as it is until it is deleted.
    fn change(&mut self, stand: &Stand<'v>, mut operations: Vec<PatchOperation>) {
        let uid = &stand.placeholder.identity.uid;
        operations.insert(0, test_uid(uid));
        self.write(Kind::StatefulSet, stand.name, uid, Write::Patch(operations), Vec::new());
    }

    /// Gives the template other bounds. Returns whether it has them already.
    fn bind(&mut self, stand: &Stand<'v>, blueprint: &Blueprint<'_>, bounds: Bounds<'_>) -> bool {
        let mut affinity = Blueprint { bounds, ..blueprint.clone() }.affinity();
        if !stand.must_be_held(self.view) {
            hold(&mut affinity, &stand.name.name, false);
        }
        self.place(stand, affinity)
    }

    /// Has the template hold the placeholder where members are, or let it go. Returns whether it does already.
    fn hold(&mut self, stand: &Stand<'v>, held: bool) -> bool {
        let mut affinity = stand.estate.spec["template"]["spec"]["affinity"].clone();
        if !affinity.is_object() {
            affinity = json!({});
        }
        hold(&mut affinity, &stand.name.name, held);
        self.place(stand, affinity)
    }

    /// Gives the template this affinity, and its pod the label of members, which the affinity counts on.
    /// Returns whether it has both already.
    fn place(&mut self, stand: &Stand<'v>, affinity: Value) -> bool {
        let template = &stand.estate.spec["template"];
        let mut operations = Vec::new();
        if template["metadata"]["labels"][MEMBER] != *stand.name.name {
            let name = stand.name.name.to_string();
            operations.push(add(&["spec", "template", "metadata", "labels", MEMBER], name));
        }
        if !same_affinity(&template["spec"]["affinity"], &affinity) {
            operations.push(add(&["spec", "template", "spec", "affinity"], affinity));
        }
        let is_there = operations.is_empty();
        if !is_there {
            self.change(stand, operations);
        }
        is_there
    }

    /// Deletes the placeholder's pod, so that it is made anew. One that had no node must not have been bound
    /// meanwhile.
    fn renew(
        &mut self,
        stand: &Stand<'v>,
        pod: &PlaceholderPod,
        grace: Option<u32>,
        why: Option<&str>,
    ) {
        let name = stand.pod_name();
        let version = pod.node.is_none().then(|| pod.identity.resource_version.clone());
        let write = Write::Delete { grace, version };
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
            for (name, member) in &stand.waiting {
                // It would come back as it is: there is no other claim for it.
                let estate = member.estate.as_ref();
                let mut claims = estate.iter().flat_map(|estate| &estate.claims);
                if claims.any(|claim| stand.makes(claim)) {
                    continue;
                }
                if maker(name, member, self.view).is_some() {
                    self.have_made_again(name, member, "its group has no placeholder");
                }
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
        let is_outdated =
            pod.excluded.iter().any(|node| stand.estate.excluded.binary_search(node).is_err())
                || pod.only != stand.estate.only
                || pod.held != stand.estate.held
                || stand.has_other_claims(pod);
        if is_outdated {
            return self.renew(stand, pod, None, None);
        }
        let Some(unschedulable) = &pod.unschedulable else { return };
        if pod.held && self.is_held_back(stand, pod, unschedulable, wanted) {
            return;
        }
        if let Some(wanted) = wanted {
            match self.follow(wanted) {
                // Its members hold it there until they end; anywhere else it would only be fetched back.
                _ if stand.must_be_held(self.view) && stand.is_held_where_it_must_be() => {}
                Follow::On(node) => {
                    if !self.bind(stand, &wanted.blueprint, Bounds::Only(node)) {
                        return;
                    }
                }
                // The one that it followed has ended or gone.
                Follow::Nobody if stand.estate.only.is_some() => {
                    if !self.bind(stand, &wanted.blueprint, Bounds::Anywhere) {
                        return;
                    }
                }
                // Kept out of nodes where there is room by now. Not at once: who left one of them has not
                // been refused by the others for long.
                Follow::Nobody if self.is_over(unschedulable.since, self.grace()) => {
                    let demand = stand.demand(self.view, Some(wanted));
                    let mut excluded = stand.estate.excluded.iter();
                    if excluded.any(|node| demand.suits(node, self.view, false)) {
                        let suitable = demand.suitable(self.view, self.room(), "");
                        let bounds = Bounds::Except(others(self.view, &suitable));
                        if !self.bind(stand, &wanted.blueprint, bounds) {
                            return;
                        }
                    }
                }
                Follow::Nobody | Follow::Waits => {}
            }
        }
        if self.is_over(unschedulable.since, self.grace()) {
            let message = unschedulable.message.trim_end_matches('.');
            let note = format!("placeholder {} has no node: {message}", stand.name.name);
            self.tell_waiting(stand.run, &stand.waiting, reason::PLACEHOLDER_NOT_PLACED, &note);
        }
    }

    /// Whether the placeholder's pod has no node because members run where it cannot be. It comes to them, or
    /// they end: anywhere else it would tear the group apart.
    fn is_held_back(
        &mut self,
        stand: &Stand<'v>,
        pod: &PlaceholderPod,
        unschedulable: &Unschedulable,
        wanted: Option<&Wanted<'_>>,
    ) -> bool {
        if !self.let_go(stand) {
            return true;
        }
        let Some(node) = stand.places().next() else {
            self.wake_forgotten(stand, pod, unschedulable);
            return false;
        };
        // Who waits has been refused there, and who runs was not.
        if let (Some(node), Some(wanted)) = (stand.is_kept_from(), wanted) {
            let demand = stand.demand(self.view, Some(wanted));
            if demand.takes_placeholder(node, self.view)
                && !self.bind(stand, &wanted.blueprint, Bounds::Only(node))
            {
                return true;
            }
        }
        if self.is_over(unschedulable.since, self.grace()) {
            let message = unschedulable.message.trim_end_matches('.');
            let why = format!("placeholder {} has no node ({message})", stand.name.name);
            self.tell_busy(stand, node, &why);
        }
        true
    }

    /// When the last of those goes that a pod must be beside, the scheduler does not look at it again for five
    /// minutes (kubernetes#141354).
    fn wake_forgotten(
        &mut self,
        stand: &Stand<'v>,
        pod: &PlaceholderPod,
        unschedulable: &Unschedulable,
    ) {
        if !unschedulable.message.contains(NOT_BESIDE) {
            return;
        }
        let Some(due) = wake::due(unschedulable.since, pod.woken, PATIENCE) else { return };
        if due > self.now {
            return self.plan.recheck_by(due);
        }
        let name = stand.pod_name();
        self.act(wake::call(&name, &pod.identity.uid, self.now, "placeholder"));
    }

    /// Lets the placeholder leave those behind that hold it where its group cannot be. Returns whether its
    /// template does.
    fn let_go(&mut self, stand: &Stand<'v>) -> bool {
        !stand.estate.held || stand.must_be_held(self.view) || self.hold(stand, false)
    }

    /// The placeholder's pod is bound to a node.
    fn tend_placed(
        &mut self,
        stand: &Stand<'v>,
        pod: &PlaceholderPod,
        node: &str,
        wanted: Option<&Wanted<'_>>,
    ) {
        let demand = stand.demand(self.view, wanted);
        let known = self.view.node(node).and_then(|node| node.estate.as_deref());
        let Some(estate) = known.filter(|estate| estate.ready) else {
            let what = if known.is_some() { "says nothing any more" } else { "is gone" };
            if stand.is_kept_on(node, self.view) {
                return self.tell_busy(stand, node, &format!("node {node} {what}"));
            }
            if known.is_some() && demand.is_pinned_to(node, self.view) {
                return self.tell_pinned(stand, node, &format!("node {node} {what}"), &demand);
            }
            // What the placeholder tolerates does not keep it from coming back.
            let comes_back = known.is_some_and(|estate| demand.barred_by(estate).is_none());
            if comes_back && !self.keep_out(stand, node, what, wanted) || !self.let_go(stand) {
                return;
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
        let barred = demand.barred_by(estate).map(|bar| format!("node {node} {bar}"));
        let leads = wanted.map_or(Follow::Nobody, |wanted| self.follow(wanted));
        let is_outdated = excludes_node(stand, node) || stand.has_other_claims(pod);
        let trouble = match (barred, leads) {
            (Some(barred), _) => Trouble::Barred(barred),
            (None, Follow::On(other)) if other != node => Trouble::Follows(other.to_owned()),
            (None, _) if is_outdated => Trouble::Outdated,
            (None, _) => match self.first_overdue(stand, pod, node, &demand) {
                Some(since) => Trouble::Full { since },
                None => {
                    self.serve(stand, pod, node, &demand);
                    return;
                }
            },
        };
        let stays = matches!(trouble, Trouble::Full { .. })
            || trouble == Trouble::Outdated && !stand.running.is_empty();
        // Who is let in counts before who has to wait.
        if stays && self.serve(stand, pod, node, &demand) {
            return;
        }
        self.move_away(stand, pod, node, &trouble, &demand, wanted);
    }

    /// Keeps the placeholder out of a node that nothing else keeps it from. Returns whether its template
    /// says so.
    fn keep_out(
        &mut self,
        stand: &Stand<'v>,
        node: &str,
        what: &str,
        wanted: Option<&Wanted<'_>>,
    ) -> bool {
        if excludes_node(stand, node) {
            return true;
        }
        let leads = wanted.map(|wanted| (wanted, self.follow(wanted)));
        match leads {
            Some((wanted, leads)) if leads != Follow::On(node) => {
                let excluded = stand.estate.excluded.iter().map(AsRef::as_ref);
                let bounds = std::iter::once(node).chain(excluded).collect();
                self.bind(stand, &wanted.blueprint, Bounds::Except(bounds))
            }
            _ => {
                let note =
                    format!("node {node} {what}, and the placeholder has nowhere else to go");
                self.tell_waiting(stand.run, &stand.waiting, reason::PLACEHOLDER_NOT_PLACED, &note);
                false
            }
        }
    }

    /// The node on which all members run that do, where it is another than the placeholder's and takes
    /// the placeholder. The scheduler has placed them beside a pod of it that was then placed anew (a claim
    /// changed between its decision and its binding), or somebody has deleted that pod under them.
    fn apart(&self, stand: &Stand<'v>, node: &str, demand: &Demand<'v>) -> Option<&'v str> {
        let mut nodes = stand.places();
        let first = nodes.next().filter(|first| *first != node)?;
        if nodes.any(|other| other != first) {
            return None;
        }
        demand.takes_placeholder(first, self.view).then_some(first)
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
    fn first_overdue(
        &mut self,
        stand: &Stand<'v>,
        pod: &PlaceholderPod,
        node: &str,
        demand: &Demand<'v>,
    ) -> Option<Timestamp> {
        let placed = pod.scheduled_since;
        let unschedulable = stand
            .unschedulable(placed)
            .filter(|(name, member, ..)| can_leave(name, member, self.view))
            .map(|(.., since)| since);
        // The scheduler says nothing of a gated pod.
        let gated = stand.waiting.iter().filter_map(|(_, member)| {
            let estate = member.estate.as_deref().filter(|estate| estate.gate.is_some())?;
            let is_kept_out = !demand.lets_in(estate, node, self.view);
            member.identity.created.max(placed).filter(|_| is_kept_out)
        });
        let since = unschedulable.chain(gated).min()?;
        let grace = self.grace();
        self.is_over(since, grace).then_some(since)
    }

    /// Lets members come in where the placeholder is and stays for now. A gate is lifted to a node for
    /// good, so that the node must suit its member. Returns whether a gate is lifted.
    fn serve(
        &mut self,
        stand: &Stand<'v>,
        pod: &PlaceholderPod,
        node: &str,
        demand: &Demand<'v>,
    ) -> bool {
        let mut lifts = false;
        for (name, member) in &stand.waiting {
            let gated = member.estate.as_deref().filter(|estate| estate.gate.is_some());
            if gated.is_some_and(|estate| demand.lets_in(estate, node, self.view)) {
                self.lift(name, member, Some(node), Vec::new());
                lifts = true;
            }
        }
        for (name, member, estate, since) in stand.unschedulable(pod.scheduled_since) {
            let Some(due) = wake::due(since, estate.woken, PATIENCE) else { continue };
            // Where there is no room the scheduler has forgotten nothing, nor of who must be elsewhere.
            let is_bound_elsewhere = bound_by_name(estate).is_some_and(|bound| bound != node);
            if is_bound_elsewhere || !demand.lets_in(estate, node, self.view) {
                continue;
            }
            if due <= self.now {
                self.act(wake::call(name, &member.identity.uid, self.now, "coscheduled group"));
            } else {
                self.plan.recheck_by(due);
            }
        }
        lifts
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
            Trouble::Outdated => "it is to mount other claims".to_owned(),
            Trouble::Full { .. } => format!("node {node} does not take those who wait"),
        };
        if stand.is_kept_on(node, self.view) {
            return self.tell_busy(stand, node, &why);
        }
        if let Some((user, claim)) = self.used_by_others(stand, node) {
            let note = format!(
                "{why}, and pod {} of another group still runs on {node} with claim {claim}: the group moves when it has ended",
                user.name
            );
            return self.tell_waiting(stand.run, &stand.waiting, reason::WAITS_FOR_MEMBERS, &note);
        }
        if !self.let_go(stand) {
            return;
        }
        match trouble {
            Trouble::Outdated => self.renew(stand, pod, None, Some(&why)),
            Trouble::Follows(other) => {
                let Some(wanted) = wanted else { return };
                if self.bind(stand, &wanted.blueprint, Bounds::Only(other)) {
                    self.renew(stand, pod, None, Some(&why));
                }
            }
            _ if demand.is_pinned_to(node, self.view) => {
                self.tell_pinned(stand, node, &why, demand)
            }
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
                self.make_room(stand, pod, node, *since, demand, wanted);
            }
        }
    }

    /// A pod of another group that runs on `node` with a claim of this one that one node mounts at a time:
    /// of a run that follows this one.
    fn used_by_others(&self, stand: &Stand<'v>, node: &str) -> Option<(&'v Name, &'v str)> {
        let Name { namespace, name: own } = stand.name;
        let claims = stand.placeholder.claims.iter();
        let mut used = claims.filter_map(|claim| self.users().get(&(&**namespace, &**claim)));
        used.find_map(|users| {
            let is_other = |(_, member, _): &&(&Name, &Member, &str)| {
                member.place() == Some(node) && member.placeholder.as_ref() != Some(own)
            };
            users.iter().find(is_other).map(|(name, _, claim)| (*name, *claim))
        })
    }

    /// The pods that have a node, by the claims of theirs that one node mounts at a time.
    fn users(&self) -> &Users<'v> {
        self.users.get_or_init(|| {
            let mut users = Users::new();
            let running = self.view.members().filter(|(_, member)| member.place().is_some());
            for (name, member) in running {
                for claim in claims_on_one_node(&name.namespace, member, self.view) {
                    let of_claim = users.entry((&name.namespace, claim)).or_default();
                    of_claim.push((name, member, claim));
                }
            }
            // The same one is told of in each plan.
            users
                .values_mut()
                .for_each(|of_claim| of_claim.sort_unstable_by_key(|(name, ..)| *name));
            users
        })
    }

    /// What all nodes have left.
    fn room(&self) -> &[Room<'v>] {
        self.room.get_or_init(|| Room::of_all(self.view))
    }

    /// Members do not come in where the placeholder is: keeps it out of all nodes where they would not
    /// either. The template says so first, and the pod goes with the next plan.
    fn make_room(
        &mut self,
        stand: &Stand<'v>,
        pod: &PlaceholderPod,
        node: &str,
        since: Timestamp,
        demand: &Demand<'v>,
        wanted: &Wanted<'_>,
    ) {
        let suitable = demand.suitable(self.view, self.room(), node);
        let patience = self.grace().checked_mul(GIVE_UP).unwrap_or(SignedDuration::MAX);
        // As far as can be seen there is room here, and the scheduler knows better. Each other node is
        // tried once: what keeps them out everywhere is not found by trying again soon.
        let is_puzzling = demand.suits(node, self.view, true);
        if is_puzzling {
            self.tell_unschedulable(stand);
        }
        let mut bounds = if suitable.is_empty() {
            if is_puzzling {
                return;
            }
            self.tell_no_room(stand);
            if !self.is_over(since, patience) {
                return;
            }
            others(self.view, &[])
        } else if is_puzzling {
            let excluded = &stand.estate.excluded;
            let is_tried = |name: &str| excluded.binary_search_by(|of| (**of).cmp(name)).is_ok();
            let untried = suitable.iter().copied().filter(|name| !is_tried(name));
            let untried: Vec<&str> = untried.collect();
            if !untried.is_empty() {
                others(self.view, &untried)
            } else if self.is_over(pod.scheduled_since.unwrap_or(since), patience) {
                others(self.view, &suitable)
            } else {
                return;
            }
        } else {
            others(self.view, &suitable)
        };
        // Whatever is cut off, this one is not: it would come back.
        bounds.retain(|other| *other != node);
        bounds.insert(0, node);
        self.bind(stand, &wanted.blueprint, Bounds::Except(bounds));
    }

    fn tell_no_room(&mut self, stand: &Stand<'v>) {
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
        let is_here = |(_, member): &&(&Name, &Member)| member.place() == Some(node);
        let running = stand.running.iter().find(is_here).or_else(|| stand.running.first());
        let Some((running, member)) = running.filter(|_| !stand.waiting.is_empty()) else {
            return;
        };
        let note = format!(
            "{why}, and pod {} of the group still runs on {}: the group moves when it has ended",
            running.name,
            member.place().unwrap_or(node)
        );
        self.tell_waiting(stand.run, &stand.waiting, reason::WAITS_FOR_MEMBERS, &note);
    }

    fn tell_pinned(&mut self, stand: &Stand<'v>, node: &str, why: &str, demand: &Demand<'v>) {
        let note = format!("{why}, and {}", demand.pins(node, self.view));
        self.tell_waiting(stand.run, &stand.waiting, reason::VOLUME_PINS_NODE, &note);
    }

    /// Lets members go that were bound by name to a node where the placeholder is not any more: they could
    /// come in nowhere else. That comes after the placeholder has left, and not before: what is made again
    /// while it is still there is bound to the same node.
    ///
    /// The binding is ours, so that this is no repair, which the policy would be asked for.
    fn release_strays(&mut self, stand: &Stand<'v>) {
        let place = stand.pod.and_then(PlaceholderPod::place);
        for (name, member) in &stand.waiting {
            let Some(estate) = member.estate.as_deref() else { continue };
            let Some(bound) = bound_by_name(estate).filter(|bound| Some(*bound) != place) else {
                continue;
            };
            if maker(name, member, self.view).is_some() {
                let why = format!("it was bound to node {bound}, and its group is there no more");
                self.have_made_again(name, member, &why);
            } else if let Some(place) = place {
                let note = format!(
                    "it was bound to node {bound}, and its group is on node {place}: whoever made it must make it again"
                );
                let target = target(Kind::Pod, name, &member.identity.uid);
                self.tell(target, Event { warning: true, reason: reason::BOUND_ELSEWHERE, note });
            }
        }
    }

    /// Deletes a waiting member that is made again. It must not have been bound meanwhile: the version is
    /// the one that was looked at.
    pub(super) fn have_made_again(&mut self, name: &Name, member: &Member, why: &str) {
        let version = Some(member.identity.resource_version.clone());
        let note = format!("{why}; deleted, so that its TaskRun makes it again");
        let events = vec![Event { warning: false, reason: reason::RECREATED, note }];
        let target = target(Kind::Pod, name, &member.identity.uid);
        self.act(Action { target, write: Write::Delete { grace: None, version }, events });
    }
}
