//! Explains why a placeholder should leave its node, or cannot.

use super::{CheckedGroup, wait_a_moment};
use crate::systems::check::Diagnosis;
use crate::systems::check::closed::explain;
use crate::systems::check::cluster::{first_obstacle, states_capacity};
use crate::systems::coschedule::reconcile::{Explained, Next, Trouble, Why};
use crate::systems::fit::{self, Obstacle, Question};

impl CheckedGroup<'_> {
    /// Reports why a placeholder should leave its node, or cannot.
    pub(super) fn report_placed(&self, node: &str, diagnosis: &mut Diagnosis) {
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
}
