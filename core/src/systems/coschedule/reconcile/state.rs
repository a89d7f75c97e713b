//! The state that a decision is based on: a placeholder's StatefulSet, its pod, its members, and
//! which of these keep it on its node.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::desired::is_on_one_node;
use super::group_pod::{Demand, GroupPod};
use super::{Why, duration};
use crate::systems::View;
use crate::systems::coschedule::keys::{FAILED, IDLE_SINCE, MISSING_SINCE};
use crate::systems::coschedule::kinds::{
    Member, PipelineRun, Placeholder, PlaceholderDetails, PlaceholderPod, pod_of,
};
use crate::systems::coschedule::placeholder::Desired;
use crate::systems::coschedule::pod_plan::PodPlan;
use crate::systems::coschedule::{family, one_node};
use crate::systems::fit;
use crate::systems::policy::Policy;
use crate::view::{Name, Resources};

/// The time that a pod is unschedulable beside its group before it is woken. The scheduler usually tries
/// again by itself within ten seconds, and each wake-up is a write.
pub(super) const PATIENCE: SignedDuration = SignedDuration::from_secs(12);

/// The input of decisions besides the placeholder's own state.
pub(super) struct Facts<'v> {
    pub(super) view: &'v View,
    pub(super) policy: &'v Policy,
    pub(super) now: Timestamp,
    /// The requests that every placeholder keeps.
    pub(super) kept: Resources,
    /// The root runs of TaskRuns that a quota refuses a pod, by UID: the namespace, and since when.
    refused: HashMap<&'v str, (&'v str, Timestamp)>,
    /// By node, the first placeholder there by name that has waiting members, computed when first
    /// needed.
    first_waiting: OnceCell<HashMap<&'v str, &'v Name>>,
}

impl<'v> Facts<'v> {
    pub(super) fn new(view: &'v View, policy: &'v Policy, now: Timestamp) -> Self {
        Self {
            view,
            policy,
            now,
            kept: policy.coschedule.placeholder.requests.amounts(),
            refused: refused(view),
            first_waiting: OnceCell::new(),
        }
    }

    /// Formats the present time for an annotation, in seconds since 1970.
    pub(super) fn now_text(&self) -> String {
        self.now.as_second().to_string()
    }

    pub(super) fn grace(&self) -> SignedDuration {
        duration(self.policy.coschedule.grace_period)
    }

    /// Returns since when a quota refuses a TaskRun of the root run with this UID its pod.
    pub(super) fn refused_since(&self, run: &str) -> Option<Timestamp> {
        self.refused.get(run).map(|(_, since)| *since)
    }

    /// Returns true if a quota refuses a pod of any run in this namespace.
    pub(super) fn has_refused(&self, namespace: &str) -> bool {
        self.refused.values().any(|(of, _)| *of == namespace)
    }

    /// Returns when a placeholder of this namespace stepped aside last.
    pub(super) fn last_aside(&self, namespace: &str) -> Option<Timestamp> {
        let here = self.view.placeholders().filter(|(name, _)| *name.namespace == *namespace);
        here.filter_map(|(_, of)| of.details.as_ref()?.time(FAILED)).max()
    }

    /// Returns true if a placeholder with waiting members is the first of these on its node, by name.
    pub(super) fn is_first_waiting(&self, placeholder: &Name, node: &str) -> bool {
        let first = self.first_waiting.get_or_init(|| first_waiting(self.view));
        first.get(node).is_none_or(|first| *first == placeholder)
    }

    /// A pod that is not of this group and runs on `node` with a claim of the placeholder which a single node mounts:
    /// a member of a group that follows this one, or a pod of no group, as in [`Self::follow`]. With the claim's name.
    pub(super) fn used_by_others<'s>(
        &'s self,
        state: &'s State<'v>,
        node: &str,
    ) -> Option<(&'v Name, &'s str)> {
        let claims = state.placeholder.claims.iter().map(AsRef::as_ref);
        let of_groups = self.users(state.name, claims);
        let of_groups = of_groups.filter(|(_, member, _)| member.place() == Some(node));
        let plain = state.desired.into_iter().flat_map(|desired| self.plain_users(desired));
        let plain = plain.filter(|(_, on, _)| *on == Some(node));
        let mut all = of_groups.map(|(name, _, claim)| (name, claim));
        all.next().or_else(|| plain.map(|(name, _, claim)| (name, claim)).next())
    }

    /// Returns the bound pods outside of the placeholder's group that mount one of these claims which a single
    /// node mounts.
    fn users<'s>(
        &self,
        placeholder: &'s Name,
        claims: impl Iterator<Item = &'s str>,
    ) -> impl Iterator<Item = (&'v Name, &'v Member, &'s str)> {
        let (view, Name { namespace, name }) = (self.view, placeholder);
        let claims = claims.filter(move |claim| is_on_one_node(namespace, claim, view));
        claims.flat_map(move |claim| {
            let pods = view.mounting(&Name::new(namespace, claim));
            pods.filter_map(move |(pod, _)| {
                let member = view.member(pod)?;
                let is_other = member.placeholder.as_deref() != Some(&**name);
                // A claim of an ephemeral volume is the pod's own.
                let mut claims = member.details.iter().flat_map(|of| &of.claims);
                let is_user = is_other && member.place().is_some();
                (is_user && claims.any(|own| **own == *claim)).then_some((pod, member, claim))
            })
        })
    }

    /// The node on which a placeholder must be because of the groups that share claims with it: that of its
    /// leaders, and of the pods that mount a claim. `None`: any. An isolated group waits for all of these.
    ///
    /// # Errors
    /// The reason why there is no such node now.
    pub(super) fn follow(&self, desired: &Desired<'_>) -> Result<Option<Box<str>>, Why> {
        let is_isolated = desired.isolation.is_some();
        let wait = |note: String| Err(Why::SharedClaim(note));
        let wait_for_end = |used: String| {
            wait(format!("{used}, and runs are isolated: this one starts when that pod has ended"))
        };
        let mut places: BTreeMap<&str, String> = BTreeMap::new();
        for leader in &desired.leaders {
            if is_isolated {
                return wait(format!(
                    "{leader}, and runs are isolated: this one starts when that one has ended"
                ));
            }
            let placeholder = &leader.placeholder;
            let place = self.view.placeholder_pod(placeholder).and_then(PlaceholderPod::place);
            match place.or_else(|| self.node_without_placeholder(placeholder)) {
                Some(node) => {
                    places.entry(node).or_insert_with(|| format!("{leader} on node {node}"));
                }
                None => return wait(format!("{leader}, whose placeholder has no node yet")),
            }
        }
        let name = &desired.name;
        let run = desired.run().map(|of| &*of.run.identity.uid);
        for (pod, member, claim) in self.users(name, desired.claims.iter().copied()) {
            let Some(node) = member.place() else { continue };
            // It may never end.
            if member.identity.deleting && is_lost(node, self.view) {
                continue;
            }
            let used = in_use(claim, pod, node);
            if is_isolated && !family::belongs(pod, member, &name.name, run, self.view) {
                return wait_for_end(used);
            }
            places.entry(node).or_insert(used);
        }
        // Pods of no group, where the namespace has them share the nodes of their claims.
        for (pod, node, claim) in self.plain_users(desired) {
            let Some(node) = node else {
                let pod = &pod.name;
                let note =
                    format!("claim {claim} is also mounted by pod {pod}, which has no node yet");
                return wait(note);
            };
            let used = in_use(claim, pod, node);
            if is_isolated {
                return wait_for_end(used);
            }
            places.entry(node).or_insert(used);
        }
        let mut places = places.into_iter();
        match (places.next(), places.next()) {
            (None, _) => Ok(None),
            (Some((node, _)), None) => Ok(Some(node.into())),
            (Some((_, one)), Some((_, other))) => {
                wait(format!("{one}, and {other}: the group starts when they are on one node"))
            }
        }
    }

    /// The pods of no group that mount a claim of a placeholder, where their namespace has such pods share a node:
    /// those that are bound, and those that are on their way to a node.
    fn plain_users<'s>(
        &self,
        desired: &'s Desired<'_>,
    ) -> impl Iterator<Item = (&'v Name, Option<&'v str>, &'s str)> + use<'s, 'v> {
        let (view, namespace) = (self.view, &desired.name.namespace);
        let claims = desired.claims.iter().copied();
        let claims = claims.filter(move |claim| {
            one_node::is_on(namespace, view)
                && one_node::applies_to(&Name::new(namespace, claim), view)
        });
        claims.flat_map(move |claim| {
            let pods = view.mounting(&Name::new(namespace, claim));
            let pods = pods.filter(|(pod, _)| {
                view.member(pod).is_none_or(|member| member.placeholder.is_none())
                    && view.placeholder_pods.get(pod).is_none()
            });
            pods.filter_map(move |(pod, mounted)| {
                let node = mounted.node.as_deref();
                let is_lost = node.is_some_and(|node| is_lost(node, view));
                let may_never_end = mounted.identity.deleting && (node.is_none() || is_lost);
                let counts = node.is_some() || mounted.is_on_its_way();
                (counts && !mounted.of_daemon_set && !may_never_end).then_some((pod, node, claim))
            })
        })
    }

    /// The node of members that run although their placeholder does not exist: the API server may refuse it.
    fn node_without_placeholder(&self, placeholder: &Name) -> Option<&'v str> {
        let members = self.view.members_of(placeholder).filter_map(|(_, of)| of.place());
        members.min().filter(|_| self.view.placeholder(placeholder).is_none())
    }

    /// The node on which a placeholder that does not exist must be, as from [`Self::follow`]; `Ok(None)` if it is
    /// not created yet, because its run has not started, or has no member, or gates of others hold all of them: what
    /// members request is known from the first of them on, and where they may run once it is released.
    ///
    /// # Errors
    /// The reason why it is not created yet.
    pub(super) fn first_node(
        &self,
        desired: &Desired<'_>,
    ) -> Result<Option<Option<Box<str>>>, Why> {
        let name = &desired.name;
        let is_due = desired.run().is_none_or(|run| run.has_started);
        if !is_due || family::held_by(name, self.view).is_some() {
            return Ok(None);
        }
        let node = self.follow(desired)?;
        let mut members = self.view.members_of(name);
        Ok(members.any(|(_, member)| !member.finished).then_some(node))
    }
}

/// The root runs of TaskRuns that a quota refuses a pod, by UID: the namespace, and since when.
fn refused(view: &View) -> HashMap<&str, (&str, Timestamp)> {
    let mut refused = HashMap::new();
    for (name, task_run, _, root) in family::refused(view) {
        if let Some(since) = task_run.refused_since.filter(|_| !task_run.identity.deleting) {
            let known = refused.entry(&*root.identity.uid).or_insert((&*name.namespace, since));
            known.1 = since.min(known.1);
        }
    }
    refused
}

/// By node, the first placeholder there by name that has waiting members.
fn first_waiting(view: &View) -> HashMap<&str, &Name> {
    let mut first: HashMap<&str, &Name> = HashMap::new();
    let has_waiting = |name| GroupPod::living(name, view).any(|pod| pod.member.node.is_none());
    for (name, _) in view.placeholders() {
        let node = view.placeholder_pod(name).and_then(PlaceholderPod::place);
        if let Some(node) = node.filter(|_| has_waiting(name)) {
            let known = first.entry(node).or_insert(name);
            *known = (*known).min(name);
        }
    }
    first
}

/// The decision if a placeholder should be held to the nodes of its members.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Hold {
    /// Yes: while members run, it joins them or waits until they have ended.
    Members,
    /// No: members of a native group run on nodes that take no new pods. They may run for ever, and a
    /// drain waits until replacements run on another node, so the group continues there.
    Closed,
    /// No: the scheduler counts pods as members that stowplan has not placed. These are pods with a
    /// forged label, pods that bypassed the scheduler, and pods terminating on a NotReady node.
    Foreign,
}

/// A placeholder with its members.
pub(super) struct State<'v> {
    pub(super) view: &'v View,
    pub(super) name: &'v Name,
    pub(super) placeholder: &'v Placeholder,
    pub(super) details: &'v PlaceholderDetails,
    pub(super) pod: Option<&'v PlaceholderPod>,
    pub(super) run: Option<(&'v Name, &'v PipelineRun)>,
    /// The placeholder as it should be. `None` if its namespace, its run or the policy opts out; its template is
    /// then not changed.
    pub(super) desired: Option<&'v Desired<'v>>,
    /// Bound members that have not ended, except those terminating on a NotReady node.
    pub(super) running: Vec<GroupPod<'v>>,
    /// Members without a node that are not being deleted.
    pub(super) waiting: Vec<GroupPod<'v>>,
    pub(super) hold: Hold,
}

/// Replaces the plan of a template without one.
static NO_PLAN: LazyLock<PodPlan> = LazyLock::new(PodPlan::default);

impl<'v> State<'v> {
    /// Returns the state of a placeholder; `None` if its details are not known.
    pub(super) fn new(
        name: &'v Name,
        placeholder: &'v Placeholder,
        desired: Option<&'v Desired<'v>>,
        view: &'v View,
    ) -> Option<Self> {
        let details = placeholder.details.as_deref()?;
        let (mut running, mut waiting) = (Vec::new(), Vec::new());
        let mut has_foreign = false;
        let run_uid = placeholder.run.as_ref().map(|run| &*run.uid);
        let run = run_uid.and_then(|uid| view.run_by_uid(uid));
        for pod in GroupPod::living(name, view) {
            let belongs = family::belongs(pod.name, pod.member, &name.name, run_uid, view);
            let is_deleting = pod.member.identity.deleting;
            match pod.member.place() {
                Some(node) if belongs && !(is_deleting && is_lost(node, view)) => {
                    running.push(pod);
                    has_foreign |= !pod.is_placed();
                }
                Some(_) => has_foreign = true,
                None if belongs && !is_deleting => waiting.push(pod),
                None => {}
            }
        }
        let pod = view.placeholder_pod(name);
        let hold = if has_foreign { Hold::Foreign } else { Hold::Members };
        let mut state =
            Self { view, name, placeholder, details, pod, run, desired, running, waiting, hold };
        if state.nodes().next().is_some() {
            state.hold = if state.is_on_closed_nodes() { Hold::Closed } else { Hold::Members };
        }
        Some(state)
    }

    /// Returns true if a native group's members run on nodes of which one takes no new pods, and none takes
    /// the placeholder.
    fn is_on_closed_nodes(&self) -> bool {
        let is_open = |node: &str| is_open(node, &self.details.tolerations, self.view);
        if self.placeholder.group.is_none() || self.nodes().all(is_open) {
            return false;
        }
        let demand = self.demand();
        let takes = |node: &str| self.plan().allows(node) && demand.takes_placeholder(node);
        !self.nodes().any(takes)
    }

    /// The plan of its template.
    pub(super) fn plan(&self) -> &'v PodPlan {
        self.placeholder.plan.as_deref().unwrap_or(&NO_PLAN)
    }

    /// The name of its pod.
    pub(super) fn pod_name(&self) -> Name {
        pod_of(self.name)
    }

    /// The nodes of the running members that stowplan has placed.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &'v str> {
        let placed = self.running.iter().filter(|pod| pod.is_placed());
        placed.filter_map(|pod| pod.member.place())
    }

    /// The node of these members, if all run on the same one.
    pub(super) fn only_node(&self) -> Option<&'v str> {
        let mut nodes = self.nodes();
        let first = nodes.next()?;
        nodes.all(|other| other == first).then_some(first)
    }

    /// Returns true if the template should hold it to its members.
    pub(super) fn should_be_held(&self) -> bool {
        self.hold == Hold::Members && self.desired.is_some_and(|desired| desired.can_be_held())
    }

    /// Returns true if the template holds it, but should not.
    pub(super) fn must_drop_hold(&self) -> bool {
        self.plan().held && self.hold != Hold::Members
    }

    /// Returns true if running members keep its pod on this node.
    pub(super) fn keeps(&self, node: &str) -> bool {
        match self.hold {
            Hold::Closed => self.running.iter().any(|pod| pod.member.place() == Some(node)),
            _ => !self.running.is_empty(),
        }
    }

    /// Returns true if its StatefulSet creates this claim.
    pub(super) fn makes(&self, claim: &str) -> bool {
        self.placeholder.made(&self.name.name).any(|made| made == claim)
    }

    /// Returns true if a pod of the group runs without the placeholder because that has stepped aside.
    pub(super) fn has_left(&self) -> bool {
        self.running.iter().chain(&self.waiting).any(|pod| pod.details.has_left)
    }

    /// The annotations that no longer apply.
    pub(super) fn outdated_marks(&self) -> Vec<&'static str> {
        let with_pod: &[_] = if self.pod.is_some() { &[MISSING_SINCE, FAILED] } else { &[] };
        let marks = [IDLE_SINCE].into_iter().chain(with_pod.iter().copied());
        marks.filter(|mark| self.details.annotations.contains_key(*mark)).collect()
    }

    /// The requirements of the placeholder and of the waiting members that can follow it.
    pub(super) fn demand(&self) -> Demand<'v> {
        Demand::of(self, self.waiting.iter().filter(|pod| pod.can_follow(self.view)))
    }

    /// The waiting members that require a node by name, each with that node.
    pub(super) fn bound_by_name(&self) -> impl Iterator<Item = (GroupPod<'v>, &'v str)> {
        self.waiting.iter().filter_map(|pod| Some((*pod, pod.bound_by_name()?)))
    }

    /// Returns the time since when the newest of the members waits that the scheduler refuses or that are gated until
    /// there is room. The placeholder has had its node since `placed`.
    pub(super) fn kept_out_since(&self, placed: Option<Timestamp>) -> Option<Timestamp> {
        let is_kept_out =
            |pod: &&GroupPod<'_>| pod.details.unschedulable.is_some() || pod.is_gated();
        let kept_out = self.waiting.iter().filter(is_kept_out);
        kept_out.filter_map(|pod| pod.member.identity.created.max(placed)).max()
    }

    /// The members that the scheduler finds no node for. With the time since when each has been
    /// unschedulable beside the placeholder, which has its node since `placed`.
    pub(super) fn unschedulable(
        &self,
        placed: Option<Timestamp>,
    ) -> impl Iterator<Item = (GroupPod<'v>, Timestamp)> {
        self.waiting.iter().filter_map(move |pod| {
            let since = pod.unschedulable_since()?;
            Some((*pod, placed.map_or(since, |placed| placed.max(since))))
        })
    }
}

/// Returns true if a node is Ready, and takes new pods that have these tolerations.
pub(super) fn is_open(node: &str, tolerations: &[Toleration], view: &View) -> bool {
    let details = view.node(node).and_then(|node| node.details.as_deref());
    details.is_some_and(|of| of.ready && fit::closed_by(of, tolerations).is_none())
}

/// Returns true if a node was deleted or is NotReady.
pub(super) fn is_lost(node: &str, view: &View) -> bool {
    !view.is_node_ready(node)
}

/// Describes a claim that a pod uses on a node.
pub(super) fn in_use(claim: &str, pod: &Name, node: &str) -> String {
    format!("claim {claim} is in use by pod {} on node {node}", pod.name)
}
