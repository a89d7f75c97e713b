//! Reports what the reconciler decides about a placeholder, with what people can do about it.

use super::Facts;
use super::ask::NodeWhy;
use crate::systems::check::Diagnosis;
use crate::systems::check::cluster::states_capacity;
use crate::systems::check::words::SEE_CONTROLLER;
use crate::systems::coschedule::kinds::CoscheduleView as _;
use crate::systems::coschedule::kinds::placeholder::FIRST;
use crate::systems::coschedule::pod_plan::{Nodes, PodPlan};
use crate::systems::coschedule::reconcile::{Explained, Next, Trouble, Why};

/// What to do where the controller is about to act.
pub(super) fn wait_a_moment() -> String {
    format!("wait a moment; if it stays, {SEE_CONTROLLER}")
}

/// A reason to wait, and what to do about it.
type Decision = (String, String);

impl Facts<'_> {
    /// Reports why a placeholder should leave its node, or cannot.
    pub(super) fn report_placed(&self, node: &str, diagnosis: &mut Diagnosis) {
        let closed = self.closed(node);
        let mut decisions = self.decisions_on(node, closed.as_ref());
        if let Some(why) = closed.filter(|_| decisions.is_empty()) {
            let what = format!("node {node} {}", why.predicate(false));
            decisions.push((what, why.remedy(node)));
        }
        // No pod waits, or the waiting pods report why.
        let is_decided_only = self.waiting.is_empty()
            || self.waiting.iter().any(|pod| self.ask_outside(pod).is_some());
        for (what, remedy) in decisions {
            match is_decided_only {
                true => diagnosis.decided.push(what),
                false => diagnosis.report(what, remedy),
            }
        }
    }

    fn decisions_on(&self, node: &str, closed: Option<&NodeWhy<'_>>) -> Vec<Decision> {
        let Some(Explained { next, waits, .. }) = &self.explained else { return Vec::new() };
        let remedy = || match closed {
            Some(why) => why.remedy(node),
            None => "free or add a node, or let the waiting pods request less".to_owned(),
        };
        let of_wait = |why: &Why| match why {
            Why::Members(note) => {
                let instead = closed.map(|why| why.instead(node)).unwrap_or_default();
                Some((note.clone(), format!("wait until that pod has ended{instead}")))
            }
            Why::Pinned(..) => Some((format!("{why}: the group cannot move"), remedy())),
            Why::NoOtherNode(_) => Some((why.to_string(), remedy())),
            Why::NoNodeFits { .. } if !self.states_capacity(node) => None,
            Why::NoNodeFits { .. } => {
                let is_closed = closed.map(|why| format!("node {node} {}; ", why.predicate(false)));
                Some((format!("{}{why}", is_closed.unwrap_or_default()), remedy()))
            }
            Why::Unschedulable(_) => Some((why.to_string(), "see what the scheduler says".into())),
            Why::SharedClaim(note) => self.shared_claim(note),
            Why::NotPlaced { .. } | Why::NotMade(_) => None,
        };
        let mut decisions: Vec<Decision> = waits.iter().filter_map(of_wait).collect();
        if decisions.is_empty()
            && let Some(trouble) = self.leaves(next, node, closed)
        {
            let moves = "the controller moves the placeholder";
            decisions.push((format!("{trouble}; {moves}"), wait_a_moment()));
        }
        decisions
    }

    /// Why a placeholder leaves its node, if that is next.
    fn leaves(&self, next: &Next, node: &str, closed: Option<&NodeWhy<'_>>) -> Option<String> {
        let full = || match closed {
            Some(why) => format!("node {node} {}", why.predicate(false)),
            None => Trouble::Full(node.into()).to_string(),
        };
        match next {
            Next::Recreate { why: Some(Trouble::Full(_)), .. } if !self.states_capacity(node) => {
                None
            }
            Next::Recreate { why: Some(trouble), .. } => Some(trouble.to_string()),
            Next::Rewrite(plan) if plan.nodes.excludes(node) => {
                (closed.is_some() || self.states_capacity(node)).then(full)
            }
            Next::Rewrite(plan) if self.changes_nodes(plan) => {
                let only = plan.nodes.only();
                Some(only.map_or_else(full, |only| format!("it should be on node {only}")))
            }
            _ => None,
        }
    }

    /// Whether a plan for the template allows other nodes than that of the present template.
    fn changes_nodes(&self, plan: &PodPlan) -> bool {
        let present = self.present_plan();
        plan.nodes != present.map_or(Nodes::Any, |present| present.nodes.clone())
    }

    fn present_plan(&self) -> Option<&PodPlan> {
        let details = self.cluster.view.placeholder(self.name)?.details.as_deref();
        details.and_then(|details| details.plan.as_ref())
    }

    /// The nodes to which the placeholder moves, if it moves.
    pub(super) fn moves_to(&self, node: &str) -> Option<&Nodes> {
        match &self.explained.as_ref()?.next {
            Next::Rewrite(plan) if self.changes_nodes(plan) => Some(&plan.nodes),
            Next::Recreate { why: Some(_), .. } => {
                let nodes = &self.present_plan()?.nodes;
                (!nodes.allows(node)).then_some(nodes)
            }
            _ => None,
        }
    }

    /// Whether a node states what pods may take of it. Without that every node counts as full.
    fn states_capacity(&self, node: &str) -> bool {
        self.cluster.candidate(node).is_some_and(states_capacity)
    }

    /// The wait for an earlier group. The groups of a run report it at the run.
    fn shared_claim(&self, note: &str) -> Option<Decision> {
        let wait = || "wait until that one has ended".to_owned();
        self.is_native().then(|| (note.to_owned(), wait()))
    }

    /// Reports why a placeholder's pod has no node.
    pub(super) fn report_unplaced(&self, diagnosis: &mut Diagnosis) {
        let mut is_held = self.waiting.is_empty() && !self.running.is_empty();
        if let Some(Explained { next, waits, .. }) = &self.explained {
            for why in waits {
                match why {
                    Why::Members(note) => {
                        is_held = true;
                        self.report_held(note, diagnosis);
                    }
                    Why::SharedClaim(note) => {
                        if let Some((what, remedy)) = self.shared_claim(note) {
                            diagnosis.report(what, remedy);
                        }
                    }
                    _ => {}
                }
            }
            diagnosis.decided.extend(self.next_for_pod(next));
        }
        if !is_held {
            self.ask_unplaced().report(self, diagnosis);
        }
    }

    /// Reports that the placeholder must be where members run, and why that node does not take it.
    fn report_held(&self, note: &str, diagnosis: &mut Diagnosis) {
        let wait = "wait until that pod has ended";
        match self.find_node_of_members() {
            Some((node, Some(why))) => diagnosis.report(
                format!("{note}; node {node} {}", why.predicate(false)),
                format!("{wait}{}", why.instead(node)),
            ),
            _ => {
                let Self { name, .. } = self;
                let describe =
                    format!("kubectl describe pod {}{FIRST} -n {}", name.name, name.namespace);
                diagnosis.report(
                    note,
                    format!("{wait}, or see why the scheduler refuses its node: {describe}"),
                );
            }
        }
    }

    /// What the controller does with a pod that has no node.
    fn next_for_pod(&self, next: &Next) -> Option<String> {
        match next {
            Next::Recreate { .. } => {
                Some("the controller creates its pod again, by its changed template".to_owned())
            }
            Next::Wake => Some("the controller lets the scheduler look at it again".to_owned()),
            Next::Rewrite(plan) if self.changes_nodes(plan) => Some(match plan.nodes.only() {
                Some(only) => format!("the controller moves it to node {only}"),
                None => "the controller lets it be on other nodes".to_owned(),
            }),
            Next::Rewrite(plan) if !plan.held && self.present_plan().is_some_and(|of| of.held) => {
                Some("the controller lets it be where no pod of the group runs".to_owned())
            }
            _ => None,
        }
    }
}
