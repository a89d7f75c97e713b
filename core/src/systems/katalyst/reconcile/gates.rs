//! The gates of pods that wait for a feasible NUMA node.
//!
//! Pods are looked at in the order of their creation. A pod whose gate is removed counts at once as one that
//! may be on any NUMA node of the machines that it may choose, until Katalyst reports where it is: the next
//! pod must not be placed beside it by mistake. It serves no affinity before that.
//!
//! The default scheduler knows nothing of NUMA nodes. So a pod that it places is left only the nodes that are
//! feasible when the gate is removed, in the same write; the scheduler of a build of Katalyst that reads the
//! annotations looks at them itself, whenever it tries.
//!
//! Katalyst has no exception for the first pod of a group whose affinity selects the group itself. So if
//! no pod of the group runs or may come to run, the oldest one leads: it starts without its affinity.

use std::collections::HashMap;

use json_patch::PatchOperation;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{LASTING, reason};
use crate::kubernetes::HOSTNAME;
use crate::systems::View;
use crate::systems::check::words::{counted, some};
use crate::systems::exclusion::Exclusion;
use crate::systems::fit::CHOICE;
use crate::systems::katalyst::feasibility::{Newcomer, Obstacle, Occupant};
use crate::systems::katalyst::keys::{AFFINITY, GATE, LEADER_OF, LET_GO, NUMA_ZONES};
use crate::systems::katalyst::kinds::pod::{NumaPod, PendingPod};
use crate::systems::katalyst::machines::{Machines, check_node};
use crate::systems::katalyst::policy::{Katalyst, KatalystMode};
use crate::systems::katalyst::selector::Selector;
use crate::systems::plan::operation::{add, remove, remove_gate, require_nodes, test};
use crate::systems::plan::{Action, Event, Plan, Target, Write};
use crate::systems::policy::Policy;
use crate::view::Name;
use crate::view::resource::POD;

/// Plans the gates of all pods.
pub(super) fn plan(view: &View, policy: &Policy, now: Timestamp, plan: &mut Plan) {
    let gated = |(_, pod): &(&Name, &NumaPod)| pod.gate().is_some() && !pod.identity.deleting;
    let mut gated: Vec<_> = view.numa_pods().filter(gated).collect();
    if gated.is_empty() {
        return;
    }
    gated.sort_unstable_by_key(|(name, pod)| (pod.identity.created, *name));
    let mut machines = Machines::new(view, &policy.katalyst);
    if let Some(at) = machines.add_unreported(now) {
        plan.recheck_by(at);
    }
    let own = gated.into_iter().map(|(name, pod)| Occupant { name, pod });
    let gated: Vec<_> = own.map(|own| (own, Class::of(own, &policy.katalyst))).collect();
    let mut waiting: HashMap<&Class<'_>, usize> = HashMap::new();
    for (_, class) in &gated {
        *waiting.entry(class).or_default() += 1;
    }
    let mut planner = Planner { view, policy, now, machines, released: Vec::new(), plan };
    let mut hopeless = HashMap::new();
    for (own, class) in &gated {
        planner.decide(*own, class, waiting[class], &mut hopeless);
    }
}

struct Planner<'v, 'p> {
    view: &'v View,
    policy: &'v Policy,
    now: Timestamp,
    machines: Machines<'v>,
    /// The pods whose gates this plan removes.
    released: Vec<Occupant<'v>>,
    plan: &'p mut Plan,
}

/// The properties of a pod that decide which NUMA nodes are feasible: pods of one workload have the same.
#[derive(Debug, Eq, Hash, PartialEq)]
struct Class<'v> {
    namespace: &'v str,
    is_exclusive: bool,
    affinity: &'v [Selector],
    anti_affinity: &'v [Selector],
    labels: Vec<(&'v str, &'v str)>,
    /// Its requirements for nodes.
    nodes: String,
}

impl<'v> Class<'v> {
    fn of(Occupant { name, pod }: Occupant<'v>, policy: &Katalyst) -> Self {
        let labels = pod.labels.iter().map(|(key, value)| (&**key, &**value));
        let declared = labels.filter(|(key, _)| policy.is_declared(key));
        let needs = pod.needs();
        let nodes =
            format!("{:?} {:?} {:?}", needs.node_selector, needs.node_terms, needs.tolerations);
        Self {
            namespace: &name.namespace,
            is_exclusive: pod.qos.is_exclusive,
            affinity: &pod.affinity,
            anti_affinity: &pod.anti_affinity,
            labels: declared.collect(),
            nodes,
        }
    }
}

impl<'v> Planner<'v, '_> {
    /// Removes the gate of a pod, or reports why it waits. `hopeless`: the classes of pods for which
    /// nothing is feasible in this plan, and why. What is removed later only makes fewer NUMA nodes
    /// feasible. `waiting`: how many pods of its class wait.
    fn decide<'c>(
        &mut self,
        own: Occupant<'v>,
        class: &'c Class<'v>,
        waiting: usize,
        hopeless: &mut HashMap<&'c Class<'v>, String>,
    ) {
        let namespace = &own.name.namespace;
        if self.policy.katalyst.mode != KatalystMode::Enforced
            || Exclusion::of_namespace(namespace, self.view, self.policy).is_some()
        {
            let note = "NUMA affinity is not enforced here any more, so it starts without waiting";
            return self.release(own, reason::GATE_LIFTED, &[], note.to_owned());
        }
        if !own.pod.has_selectors() {
            let note = "it has no NUMA affinity any more, so it starts without waiting".to_owned();
            return self.release(own, reason::GATE_LIFTED, &[], note);
        }
        let newcomer = Newcomer { pod: own.pod, policy: &self.policy.katalyst, leads: false };
        if own.pod.pending.as_ref().is_some_and(|of| of.has_other_gates) {
            // What is feasible now may be taken when those are removed.
            let why = "other scheduling gates hold it, and must be removed first".to_owned();
            return self.wait(own, newcomer, &why);
        }
        let known = hopeless.get(class).cloned();
        if known.is_none() {
            let share = self.share_of(own, waiting);
            let feasible = self.machines.find_feasible(newcomer, share);
            if !feasible.is_empty() {
                if let Some(until) = self.wait_for_reports(own, newcomer, &feasible, waiting) {
                    let note = format!(
                        "{}; more may be when Katalyst has reported other pods; it waits until {until} at most",
                        describe(&feasible)
                    );
                    self.plan.recheck_by(until);
                    return self.report(own, note);
                }
                let note = describe(&feasible);
                return self.release(own, reason::FEASIBLE, &feasible, note);
            }
            if self.may_lead(own) {
                let leads = Newcomer { leads: true, ..newcomer };
                let feasible = self.machines.find_feasible(leads, MOST_NODES);
                if !feasible.is_empty() {
                    return self.lead(own, &feasible);
                }
            }
        }
        let why = known.unwrap_or_else(|| self.explain(own, newcomer));
        hopeless.insert(class, why.clone());
        self.wait(own, newcomer, &why);
    }

    /// Reports why a pod waits, or removes its gate at the deadline.
    fn wait(&mut self, own: Occupant<'v>, newcomer: Newcomer<'v>, why: &str) {
        let patience = self.policy.katalyst.gate_deadline;
        let created = own.pod.identity.created;
        let after = |times| created.and_then(|at| at.checked_add(times * patience.length()).ok());
        let is_over = |until: Option<Timestamp>| until.is_none_or(|until| until <= self.now);
        let mut until = after(1);
        // Only reports are missing: those of pods before it, or all of them after a time without a controller.
        if is_over(until) && self.machines.is_feasible_later(newcomer) {
            until = after(2);
        }
        if let Some(until) = until.filter(|until| *until > self.now) {
            self.plan.recheck_by(until);
            let note =
                format!("no NUMA node is feasible yet: {why}; it waits until {until} at most");
            return self.report(own, note);
        }
        let mut note = format!(
            "no NUMA node became feasible within {patience} (katalyst.gateDeadline): {why}"
        );
        if self.machines.count() == 0 {
            note.push_str(&format!("; it stays Pending until a node has the label {NUMA_ZONES}"));
        }
        // With its affinity it could never start, and no other pod of its group would lead.
        let reason = if self.may_lead(own) { reason::LEADER } else { reason::DEADLINE };
        note.push_str(match reason {
            reason::LEADER => "; it starts first of its group, without its affinity",
            _ => "; the scheduler and the node decide now",
        });
        self.release(own, reason, &[], note);
    }

    /// Until when a pod waits although NUMA nodes are feasible: they are on fewer nodes than pods of its class
    /// wait, and reports are missing that may make others feasible. Left only to the few, which may lack CPUs
    /// for all of these pods, it could stay Pending. `None`: it does not wait.
    fn wait_for_reports(
        &self,
        own: Occupant<'v>,
        newcomer: Newcomer<'v>,
        feasible: &[(&'v str, u8)],
        waiting: usize,
    ) -> Option<Timestamp> {
        let until = own.pod.identity.created?.checked_add(REPORTED_BY).ok()?;
        let has_default = own.pod.pending.as_ref().is_some_and(|of| of.has_default_scheduler);
        // Pods that exclude each other share the machines instead: reports of the first ones are always missing.
        let waits = has_default
            && feasible.len() < waiting
            && until > self.now
            && !self.excludes_its_kind(own);
        (waits && self.machines.lacks_reports(newcomer)).then_some(until)
    }

    /// Returns true if a pod excludes pods like itself.
    fn excludes_its_kind(&self, own: Occupant<'v>) -> bool {
        let is_own = |selector: &Selector| own.pod.is_selected_by(selector, &self.policy.katalyst);
        own.pod.anti_affinity.iter().any(is_own)
    }

    /// How many nodes a pod is left. Pods that exclude each other share the machines: each counts on all
    /// nodes that it is left until it is reported.
    fn share_of(&self, own: Occupant<'v>, waiting: usize) -> usize {
        match self.excludes_its_kind(own) {
            true => (self.machines.count() / waiting.max(1)).clamp(FEWEST_NODES, MOST_NODES),
            false => MOST_NODES,
        }
    }

    /// Returns true if the affinity of a pod selects its own group, of which no pod runs or may come to run where
    /// this one could join it.
    fn may_lead(&mut self, own: Occupant<'v>) -> bool {
        let policy = &self.policy.katalyst;
        let is_mate = |pod: &NumaPod| {
            own.pod.affinity.iter().any(|selector| pod.is_selected_by(selector, policy))
        };
        let has_room = own.pod.pending.as_ref().is_some_and(|of| of.annotations < MOST_ANNOTATIONS);
        if !is_mate(own.pod) || !has_room {
            return false;
        }
        let old_enough = own.pod.identity.created.and_then(|at| at.checked_add(OLD_ENOUGH).ok());
        if let Some(at) = old_enough.filter(|at| *at > self.now) {
            self.plan.recheck_by(at);
            return false;
        }
        let needs = own.pod.needs();
        let is_in_reach = |pod: &NumaPod| {
            let node = pod.node.as_deref();
            node.is_none_or(|node| check_node(self.view, node, &needs, CHOICE).is_ok())
        };
        // A gated pod that needs no other pod runs as soon as a NUMA node is free for it.
        let may_come = |name: &Name, pod: &NumaPod| {
            self.machines.may_come(name, pod, self.now)
                && (pod.gate().is_none() || pod.affinity.is_empty())
                && is_in_reach(pod)
        };
        !self.released.iter().any(|other| is_mate(other.pod))
            && !self.view.numa_pods().any(|(name, pod)| is_mate(pod) && may_come(name, pod))
    }

    /// Explains why nothing is feasible: the obstacles of the NUMA nodes on nodes that the scheduler may choose, the
    /// most frequent first, and how many are on other nodes. Pods of other namespaces are not named: the users
    /// of this one read the event.
    fn explain(&self, own: Occupant<'v>, newcomer: Newcomer<'v>) -> String {
        let mut nodes = 0;
        let mut zones = 0;
        // Obstacles that differ only in the pod, by their first one.
        let mut counts: Vec<(Obstacle<'_>, usize)> = Vec::new();
        for (is_allowed, verdicts) in self.machines.verdicts(newcomer) {
            nodes += 1;
            zones += verdicts.len();
            let obstacles = verdicts.iter().filter(|_| is_allowed).filter_map(|of| of.obstacle);
            for obstacle in obstacles {
                match counts.iter_mut().find(|(known, _)| known.kind() == obstacle.kind()) {
                    Some((_, count)) => *count += 1,
                    None => counts.push((obstacle, 1)),
                }
            }
        }
        if nodes == 0 {
            return "no node has a CustomNodeResource with NUMA nodes".to_owned();
        }
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let refused: usize = counts.iter().map(|(_, count)| count).sum();
        let namespace = &own.name.namespace;
        let text = |(obstacle, count): (Obstacle<'_>, usize)| match (count, obstacle) {
            (1, _) | (_, Obstacle::NoMate | Obstacle::Contradiction) => {
                format!("{count}: {}", obstacle.in_namespace(namespace))
            }
            _ => format!("{count}, such as: {}", obstacle.in_namespace(namespace)),
        };
        let mut texts: Vec<String> = counts.into_iter().map(text).collect();
        if refused < zones {
            texts.push(format!("{}: the scheduler cannot choose the node", zones - refused));
        }
        format!("{} on {} ({})", counted(zones, "NUMA node"), counted(nodes, "node"), some(&texts))
    }

    fn lead(&mut self, own: Occupant<'v>, feasible: &[(&'v str, u8)]) {
        let affinity: Vec<String> = own.pod.affinity.iter().map(ToString::to_string).collect();
        let note = format!(
            "its affinity asks for {}, which only pods of its group have, and none runs; it starts first, without the affinity: {}",
            affinity.join(" or "),
            describe(feasible)
        );
        self.release(own, reason::LEADER, feasible, note);
    }

    /// Removes the gate. `feasible`: the nodes with a feasible NUMA node, each with that; empty: none is known.
    fn release(
        &mut self,
        own: Occupant<'v>,
        reason: &'static str,
        feasible: &[(&'v str, u8)],
        note: String,
    ) {
        let Some(pending) = own.pod.pending.as_deref() else { return };
        let Some(gate) = pending.gate else { return };
        let now = json!(whole_seconds(self.now).to_string());
        let annotation = |key| ["metadata", "annotations", key];
        let mut others = Vec::new();
        match pending.annotations {
            0 => others.push(add(&["metadata", "annotations"], json!({LET_GO: now}))),
            1..MOST_ANNOTATIONS => others.push(add(&annotation(LET_GO), now)),
            _ => {}
        }
        if let Some(value) = pending.affinity_value.as_deref().filter(|_| reason == reason::LEADER)
        {
            others.push(test(&annotation(AFFINITY), value));
            others.push(remove(&annotation(AFFINITY)));
            others.push(add(&annotation(LEADER_OF), value));
        }
        let nodes: Vec<&str> = feasible.iter().map(|(node, _)| *node).collect();
        let restriction = match pending.has_default_scheduler && !nodes.is_empty() {
            true => self.restrict(pending, &nodes),
            false => Vec::new(),
        };
        let is_restricted = !restriction.is_empty();
        others.extend(restriction);
        let operations = remove_gate(&own.pod.identity, gate, GATE, others);
        let target = Target::new(POD, own.name, &own.pod.identity.uid);
        let warning = feasible.is_empty();
        let event = Event { warning, reason, note };
        let action = Action::new(target, Write::Patch(operations), vec![event]);
        self.plan.actions.push(action.with_volatile(&[LET_GO]));
        self.released.push(own);
        match is_restricted {
            true => self.machines.add_to(own, &nodes),
            false => self.machines.add(own),
        }
    }

    /// The operations that leave a gated pod these nodes.
    fn restrict(&self, pending: &PendingPod, nodes: &[&str]) -> Vec<PatchOperation> {
        let hostname = |node: &&str| self.view.node_label(node, HOSTNAME).flatten();
        let hostnames: Vec<&str> = nodes.iter().filter_map(hostname).collect();
        let requirement = json!({"key": HOSTNAME, "operator": "In", "values": hostnames});
        let terms = pending.terms.as_deref().unwrap_or_default();
        require_nodes(terms, pending.above_terms, "matchExpressions", &[requirement])
    }

    fn report(&mut self, own: Occupant<'v>, note: String) {
        let target = Target::new(POD, own.name, &own.pod.identity.uid);
        let event = Event { warning: false, reason: reason::WAITING, note };
        let action = Action::new(target, Write::None, vec![event]).with_lasting(LASTING);
        self.plan.actions.push(action);
    }
}

/// The chart's admission policy, which looks at each annotation, lets the controller change those of pods with
/// fewer than these.
const MOST_ANNOTATIONS: usize = 1_000;

/// The most nodes that a pod is left.
const MOST_NODES: usize = 64;

/// The fewest nodes that a pod is left which excludes its own kind: free CPUs and memory are not looked at.
const FEWEST_NODES: usize = 4;

/// How long after the creation of a pod reports of others are waited for, if NUMA nodes are feasible already.
const REPORTED_BY: SignedDuration = SignedDuration::from_secs(15);

/// How old a pod must be to lead. Times of creation are whole seconds: by then all pods of its second are
/// known, and the oldest one stays the oldest.
const OLD_ENOUGH: SignedDuration = SignedDuration::from_secs(2);

/// The feasible NUMA nodes in words.
fn describe(feasible: &[(&str, u8)]) -> String {
    match feasible {
        [] => String::new(),
        [(node, zone)] => format!("NUMA node {zone} of node {node} is feasible"),
        [(node, zone), others @ ..] => format!(
            "NUMA node {zone} of node {node} is feasible, and on {}",
            counted(others.len(), "other node")
        ),
    }
}

/// The API server keeps annotations as they are; for people, whole seconds are enough.
fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}
