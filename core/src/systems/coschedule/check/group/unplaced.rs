//! Explains why the pod of a placeholder has no node.

use std::collections::BTreeMap;

use super::{CheckedGroup, is_isolated};
use crate::systems::check::closed::{Closed, explain};
use crate::systems::check::cluster::first_obstacle;
use crate::systems::check::words::{counted, nodes};
use crate::systems::check::{Context, Diagnosis};
use crate::systems::coschedule::policy::IsolationScope;
use crate::systems::coschedule::reconcile::{Next, Why};
use crate::systems::fit::{self, Candidate, Obstacle, Question};
use crate::view::Name;

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
    /// Reports why the placeholder's pod has no node, and what the controller does about it.
    pub(super) fn report_unplaced(&self, diagnosis: &mut Diagnosis) {
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
    pub(super) fn has_other_node(&self, node: &str) -> bool {
        let mut others = self.cluster.candidates().filter(|other| other.name != node);
        others.any(|other| self.refused_by(other).is_none())
    }

    /// Reports the other nodes that could take the placeholder if they were opened.
    pub(super) fn report_closed(&self, node: &str, diagnosis: &mut Diagnosis) {
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

    /// Returns true if isolation keeps it out of a node: its own, or that of a placeholder on the node.
    fn is_isolated_from(&self, node: &str) -> bool {
        let view = &self.cluster.view;
        view.placeholder_pods().any(|(other, pod)| {
            let in_scope = self.context.policy.coschedule.isolation_scope
                == IsolationScope::Cluster
                || other.namespace == self.name.namespace;
            let other = Name::new(&other.namespace, &pod.placeholder);
            let mode = || view.placeholder(&other).and_then(|made| made.mode.as_deref());
            pod.place() == Some(node)
                && other != *self.name
                && in_scope
                && (self.isolated || mode().is_some_and(is_isolated))
        })
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
