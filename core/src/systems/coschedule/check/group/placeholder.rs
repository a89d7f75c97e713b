//! Explains why a placeholder has no pod, why its pod has no node, or why it should leave its node or cannot.

use std::collections::BTreeMap;

use super::{CheckedGroup, is_isolated, wait_a_moment};
use crate::kubernetes::{gates, is_finished};
use crate::systems::check::closed::{Closed, explain};
use crate::systems::check::cluster::{first_obstacle, states_capacity};
use crate::systems::check::gates::report_foreign;
use crate::systems::check::words::{counted, nodes, scheduler};
use crate::systems::check::{Context, Diagnosis};
use crate::systems::coschedule::keys::FAILED;
use crate::systems::coschedule::kinds::Member;
use crate::systems::coschedule::policy::IsolationScope;
use crate::systems::coschedule::reconcile::{Explained, Next, Trouble, Why, reason};
use crate::systems::fit::{self, Candidate, Obstacle, Question};
use crate::view::Name;
use crate::view::resource::STATEFUL_SET;

/// The reason why a node does not take a placeholder.
enum Refusal<'f> {
    /// Another group is there, and one of the two is isolated.
    Isolated,
    /// The node itself does not take it.
    Obstacle(Obstacle<'f>),
}

impl Refusal<'_> {
    /// The predicates of sentences about one node and about several, and the remedy.
    fn explain(&self, context: &Context<'_>, node: &str) -> (String, String, String) {
        match self {
            Self::Isolated => (
                "is used by another run alone".to_owned(),
                "are used by another run alone".to_owned(),
                "wait until one of those runs has ended, or add a node (runs are isolated)"
                    .to_owned(),
            ),
            Self::Obstacle(obstacle) => explain(context, node, obstacle),
        }
    }
}

impl CheckedGroup<'_> {
    /// The diagnosis of the placeholder itself: why it is not where it should be.
    pub(crate) fn placeholder(&self) -> Diagnosis {
        let Name { namespace, name } = self.name;
        let mut diagnosis = Diagnosis::new(STATEFUL_SET.kind, self.name);
        diagnosis.scheduler = self.pod.and_then(scheduler);
        diagnosis.autoscaler = self.pod.and_then(|pod| self.cluster.autoscaler(pod));
        diagnosis.placed.extend(self.node().map(|node| format!("node {node}")));
        let details = self.made.and_then(|made| made.details.as_deref());
        if let Some(since) = details.and_then(|details| details.time(FAILED)) {
            diagnosis.decided.push(format!(
                "it stepped aside at {since}, because a quota or a queue had no room for it beside a pod of its group, or its pod template could not be changed: the pods of the group run beside each other"
            ));
            return diagnosis;
        }
        match (self.pod, self.node()) {
            (None, _) if self.is_made() && self.cluster.knows("Pod") => diagnosis.report(
                "it has no pod: a quota, Pod Security, a priority class that does not exist or another admission webhook may forbid it",
                format!("kubectl describe statefulset {name} -n {namespace}: its events say why"),
            ),
            (None, _) => {
                let held_by = self.explained.as_ref().and_then(|of| of.held_by.as_deref());
                diagnosis.decided.extend(held_by.map(|gate| {
                    format!("it is created when the scheduling gate {gate} releases a pod of the group")
                }));
            }
            (Some(pod), _) if pod.metadata.deletion_timestamp.is_some() => {
                let text = "its pod is being deleted, and its StatefulSet creates it again";
                diagnosis.decided.push(text.to_owned());
            }
            // The reconciler takes unknown nodes for deleted ones.
            _ if self.cluster.has_no_nodes() => {}
            (_, Some(node)) => self.report_placed(node, &mut diagnosis),
            (Some(pod), None) if is_finished(pod) => {}
            // Placeholders have no gates of stowplan's.
            (Some(pod), None) if gates(pod).next().is_some() => {
                report_foreign(&mut diagnosis, pod, self.cluster);
            }
            (_, None) => {
                let room = self.plan().and_then(|plan| plan.room.as_ref());
                let room = room.filter(|room| !room.is_zero());
                let reserves = |room| format!("reserves {room} for its group");
                diagnosis.decided.extend(room.map(reserves));
                self.report_unplaced(&mut diagnosis);
            }
        }
        diagnosis
    }

    /// Reports that the placeholder should exist and does not. Its controller writes events about
    /// the object `kind` `name`.
    pub(crate) fn report_missing(&self, diagnosis: &mut Diagnosis, kind: &str, name: &str) {
        let refused = self.cluster.warning(self.name, reason::PLACEHOLDER_NOT_MADE);
        if let Some(refused) = refused {
            diagnosis.report(
                format!("it does not exist: {refused}"),
                format!(
                    "remove what the API server names, such as a quota (`kubectl describe resourcequota -n {}`); stowplan tries again at least every 5 minutes",
                    self.name.namespace
                ),
            );
        } else if self.cluster.knows("StatefulSet") {
            diagnosis.report(
                "it does not exist: the controller has not created it, or may not",
                format!(
                    "kubectl describe {kind} {name} -n {}: its events say why",
                    self.name.namespace
                ),
            );
        }
    }

    /// Reports the wait for an earlier group. The groups of a run report it at the run.
    fn report_shared_claim(&self, note: &str, diagnosis: &mut Diagnosis) {
        if self.is_native() {
            diagnosis.report(note, "wait until that one has ended");
        }
    }

    /// Reports why a placeholder should leave its node, or cannot.
    fn report_placed(&self, node: &str, diagnosis: &mut Diagnosis) {
        let mut found = Diagnosis::default();
        let closed = self.closed(node);
        if let Some(explained) = &self.explained {
            self.report_decision(explained, node, closed.as_ref(), &mut found);
        }
        if let Some(why) = closed.filter(|_| !found.has_obstacle()) {
            let (why, _, remedy) = explain(&self.context, node, &why);
            found.report(format!("node {node} {why}"), remedy);
        }
        // Without an obstacle of its own a waiting pod waits for the placeholder.
        let waiting = || self.explained.iter().flat_map(|explained| &explained.waiting);
        let has_own_obstacle = |pod| {
            let mut of_pod = Diagnosis::default();
            self.report_outside(&mut of_pod, pod);
            of_pod.has_obstacle()
        };
        let mut pods = waiting().filter_map(|of| self.cluster.pod(&of.namespace, &of.name));
        if waiting().next().is_none() || pods.any(has_own_obstacle) {
            diagnosis.decided.extend(found.obstacles.into_iter().map(|obstacle| obstacle.what));
        } else {
            diagnosis.extend(found);
        }
    }

    /// Returns why a node takes no more pods of the group.
    pub(super) fn closed<'f>(&'f self, node: &'f str) -> Option<Obstacle<'f>> {
        let candidate = self.cluster.candidate(node)?;
        first_obstacle(&Question::new(candidate, &self.needs), fit::STAY)
    }

    /// Reports what the reconciler decides about a placeholder on `node`, which takes no more pods
    /// if it is `closed`.
    fn report_decision(
        &self,
        explained: &Explained,
        node: &str,
        closed: Option<&Obstacle<'_>>,
        found: &mut Diagnosis,
    ) {
        let of_node = closed.map(|why| explain(&self.context, node, why).2);
        let free = "free or add a node, or let the waiting pods request less";
        let remedy = of_node.as_deref().unwrap_or(free);
        let states_capacity = self.cluster.candidate(node).is_some_and(states_capacity);
        for why in &explained.waits {
            match why {
                Why::Members(note) => {
                    let instead = of_node.iter().map(|remedy| format!(", or {remedy}"));
                    let instead: String = instead.collect();
                    self.report_members(note, node, &instead, found);
                }
                Why::Pinned(..) => found.report(format!("{why}: the group cannot move"), remedy),
                Why::NotPlaced(_) => {
                    found.report(why.to_string(), remedy);
                    self.report_closed(node, found);
                }
                Why::Unschedulable { .. } => {
                    let is_closed = closed.map(|why| format!("node {node} {why}; "));
                    let remedy = of_node.as_deref().unwrap_or("see what the scheduler says");
                    found.report(format!("{}{why}", is_closed.unwrap_or_default()), remedy);
                }
                Why::SharedClaim(note) => self.report_shared_claim(note, found),
                Why::NotMade(_) => {}
            }
        }
        let leaves = match &explained.next {
            Next::Recreate { why, .. } => why.as_ref().map(ToString::to_string),
            Next::Rewrite(plan) if plan.is_to_leave(self.plan(), node) => {
                match (&plan.only, closed) {
                    (Some(only), _) => Some(format!("it should be on node {only}")),
                    (None, Some(why)) => Some(format!("node {node} {why}")),
                    // Without capacity every node counts as full.
                    (None, None) => states_capacity.then(|| Trouble::Full(node.into()).to_string()),
                }
            }
            _ => None,
        };
        let Some(leaves) = leaves.filter(|_| !found.has_obstacle()) else { return };
        let is_bound = matches!(&explained.next, Next::Rewrite(plan) if plan.only.is_some());
        if is_bound || self.has_other_node(node) {
            let what = format!("{leaves}; the controller moves the placeholder");
            return found.report(what, wait_a_moment());
        }
        found.report(format!("{leaves}, and no other node takes the placeholder now"), remedy);
        self.report_closed(node, found);
    }

    /// Reports why the placeholder's pod has no node, and what the controller does about it.
    fn report_unplaced(&self, diagnosis: &mut Diagnosis) {
        let Some(explained) = &self.explained else { return self.report_refusals(diagnosis) };
        let mut is_held = explained.waiting.is_empty() && explained.has_running;
        for why in &explained.waits {
            match why {
                Why::Members(note) => {
                    is_held = true;
                    self.report_held(note, explained.node_of_members.as_deref(), diagnosis);
                }
                Why::SharedClaim(note) => self.report_shared_claim(note, diagnosis),
                _ => {}
            }
        }
        let only = self.plan().and_then(|plan| plan.only.as_deref());
        let next = match &explained.next {
            Next::Recreate { .. } => "creates its pod again, by its changed template".to_owned(),
            Next::Wake => "lets the scheduler look at it again".to_owned(),
            Next::Rewrite(plan) if plan.only.as_deref() != only => match &plan.only {
                Some(only) => format!("moves it to node {only}"),
                None => "lets it be on other nodes".to_owned(),
            },
            _ => String::new(),
        };
        if !next.is_empty() {
            diagnosis.decided.push(format!("the controller {next}"));
        }
        if !is_held {
            self.report_refusals(diagnosis);
        }
    }

    /// Reports that the placeholder must be on the node of its members, and why that node does not
    /// take it.
    fn report_held(&self, note: &str, node: Option<&str>, diagnosis: &mut Diagnosis) {
        let candidate = node.and_then(|node| self.cluster.candidate(node));
        let found = candidate.and_then(|of| Some((of.name, self.refused_by(of)?)));
        let Some((node, why)) = found else {
            let instead =
                format!(", or see why the scheduler refuses its node: {}", self.describe_pod());
            return self.report_members(note, node.unwrap_or_default(), &instead, diagnosis);
        };
        let (reason, _, open) = why.explain(&self.context, node);
        let instead = match &why {
            Refusal::Isolated => String::new(),
            Refusal::Obstacle(of) if of.is_lack_of_capacity() => {
                format!(", or free room on node {node}")
            }
            Refusal::Obstacle(_) => format!(", or {open}"),
        };
        self.report_members(&format!("{note}; node {node} {reason}"), node, &instead, diagnosis);
    }

    /// Returns true if another node takes the placeholder.
    fn has_other_node(&self, node: &str) -> bool {
        let mut others = self.cluster.candidates().filter(|other| other.name != node);
        others.any(|other| self.refused_by(other).is_none())
    }

    /// Reports the other nodes that could take the placeholder if they were opened.
    fn report_closed(&self, node: &str, diagnosis: &mut Diagnosis) {
        let mut closed = Closed::default();
        for candidate in self.cluster.candidates().filter(|other| other.name != node) {
            let chosen = Question::new(candidate, &self.needs);
            let is_chosen = fit::first_obstacle(&chosen, fit::CHOICE).is_none();
            if is_chosen && let Some(Refusal::Obstacle(found)) = self.refused_by(candidate) {
                closed.add(&self.context, candidate.name, &found);
            }
        }
        closed.report_ways_out(diagnosis, |_| true);
    }

    /// Returns why a node does not take the placeholder.
    fn refused_by<'f>(&'f self, candidate: Candidate<'f>) -> Option<Refusal<'f>> {
        let volumes = Some(&self.volumes);
        let question = Question { volumes, ..Question::new(candidate, &self.needs) };
        let obstacle = first_obstacle(&question, fit::ALL);
        let is_final = obstacle.as_ref().is_some_and(|found| !found.is_lack_of_capacity());
        if !is_final && self.is_isolated_from(candidate.name) {
            return Some(Refusal::Isolated);
        }
        obstacle.map(Refusal::Obstacle)
    }

    /// Returns true if isolation keeps it out of a node: its own, from other placeholders and pods of other groups, or
    /// that of a placeholder on the node.
    fn is_isolated_from(&self, node: &str) -> bool {
        let view = &self.cluster.view;
        let scope = self.context.policy.coschedule.isolation_scope;
        let is_other = |placeholder: &Name| {
            let in_scope =
                scope == IsolationScope::Cluster || placeholder.namespace == self.name.namespace;
            in_scope && *placeholder != *self.name
        };
        let has_placeholder = view.placeholder_pods().any(|(other, pod)| {
            let other = Name::new(&other.namespace, &pod.placeholder);
            let mode = || view.placeholder(&other).and_then(|made| made.mode.as_deref());
            pod.place() == Some(node)
                && is_other(&other)
                && (self.isolated || mode().is_some_and(is_isolated))
        });
        let mut members = view.members().filter(|(_, member)| member.place() == Some(node));
        let is_of_other = |(pod, member): (&Name, &Member)| {
            let group = member.placeholder.as_deref();
            group.is_some_and(|group| is_other(&Name::new(&pod.namespace, group)))
        };
        has_placeholder || self.isolated && members.any(is_of_other)
    }

    /// Reports why no node takes the placeholder.
    fn report_refusals(&self, diagnosis: &mut Diagnosis) {
        let Name { namespace, name } = self.name;
        let source = if self.is_native() { "the group's pods" } else { "the run's pod template" };
        let all: Vec<Candidate<'_>> = self.cluster.candidates().collect();
        let (matching, others): (Vec<_>, Vec<_>) = all.iter().partition(|candidate| {
            let question = Question::new(**candidate, &self.needs);
            !fit::obstacles(&question, fit::ALL).any(|found| found.is_chosen_by_pod())
        });
        if matching.is_empty() {
            let count = counted(all.len(), "node");
            return diagnosis.report(
                format!("its node selector and node affinity match none of {count}"),
                format!(
                    "kubectl get statefulset {name} -n {namespace} -o yaml: they are those of {source}"
                ),
            );
        }
        let can_mount = |of: &&Candidate<'_>| self.volumes.all_reach(**of);
        let reach = self.volumes.describe_reach(&self.cluster.view);
        let usable: Vec<_> = matching.into_iter().filter(can_mount).collect();
        if usable.is_empty() {
            let reach = reach.unwrap_or_default();
            return if others.iter().any(can_mount) {
                diagnosis.report(
                    format!("{reach}, which its node selector and node affinity do not match"),
                    format!(
                        "let {source} ask for nodes that reach the volumes, or use other claims"
                    ),
                );
            } else if self.volumes.iter().all(|volume| all.iter().any(|of| volume.reaches(*of))) {
                diagnosis.report(
                    format!("{reach}: no node can mount all of them"),
                    "use claims of a class that binds with its first pod (WaitForFirstConsumer)",
                );
            };
        }
        let mut refusals: BTreeMap<String, (String, String, Vec<&str>)> = BTreeMap::new();
        for candidate in usable {
            let node = candidate.name;
            let Some(why) = self.refused_by(*candidate) else {
                let text = "could take it as far as stowplan can see: see what the scheduler says";
                return diagnosis.report(format!("node {node} {text}"), self.describe_pod());
            };
            let (of_one, of_several, remedy) = why.explain(&self.context, node);
            let of_reason = refusals.entry(of_one);
            of_reason.or_insert((of_several, remedy, Vec::new())).2.push(node);
        }
        let only = reach.map(|reach| format!("; {reach}")).unwrap_or_default();
        for (of_one, (of_several, remedy, names)) in refusals {
            let why = if names.len() > 1 { of_several } else { of_one };
            diagnosis.report(format!("{} {why}{only}", nodes(&names)), remedy);
        }
    }
}
