//! The nodes that do not take a pod, and what would open them.

use std::collections::BTreeMap;

use super::words::{is_of_kubernetes, node_remedy, nodes};
use super::{Context, Diagnosis};
use crate::placement::toleration::tolerates;
use crate::systems::DIAGNOSTICS;
use crate::systems::fit::Obstacle;
use crate::view::node::Taint;

/// The beginning of the taints of nodes that are not for ordinary pods, such as those of the control plane.
const ROLES: &str = "node-role.kubernetes.io/";

/// The nodes that do not take a pod, by the reason.
#[derive(Debug, Default)]
pub struct Closed<'c>(BTreeMap<String, Row<'c>>);

/// The nodes with one reason.
#[derive(Debug)]
struct Row<'c> {
    /// The reason, of several nodes.
    of_several: String,
    /// Returns true if such a node can be opened: not one that has a role, or that does not fit.
    is_way_out: bool,
    /// Each with its remedy.
    nodes: Vec<(&'c str, String)>,
}

impl<'c> Closed<'c> {
    /// Adds a node with its first obstacle.
    pub fn add(&mut self, context: &Context<'_>, node: &'c str, obstacle: &Obstacle<'_>) {
        let (of_one, of_several, remedy) = explain(context, node, obstacle);
        let is_way_out = match obstacle {
            Obstacle::NotReady | Obstacle::Cordoned | Obstacle::NoHostname => true,
            Obstacle::Taint(taint) => !taint.key.starts_with(ROLES),
            _ => false,
        };
        let row = Row { of_several, is_way_out, nodes: Vec::new() };
        self.0.entry(of_one).or_insert(row).nodes.push((node, remedy));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports all nodes.
    pub fn report(self, diagnosis: &mut Diagnosis) {
        for (of_one, Row { of_several, nodes: found, .. }) in self.0 {
            let names: Vec<&str> = found.iter().map(|(node, _)| *node).collect();
            let why = if names.len() > 1 { of_several } else { of_one };
            let remedy = found.into_iter().next().map(|(_, remedy)| remedy).unwrap_or_default();
            diagnosis.report(format!("{} {why}", nodes(&names)), remedy);
        }
    }

    /// Reports the nodes that would be a way out if they were opened, of those that `is_free` selects.
    pub fn report_ways_out(mut self, diagnosis: &mut Diagnosis, is_free: impl Fn(&str) -> bool) {
        for row in self.0.values_mut() {
            row.nodes.retain(|(node, _)| is_free(node));
        }
        self.0.retain(|_, row| row.is_way_out && !row.nodes.is_empty());
        self.report(diagnosis);
    }
}

/// The predicates of sentences about one node and about several, and the remedy. The taint of a system
/// names no object, so the system does.
pub fn explain(
    context: &Context<'_>,
    node: &str,
    obstacle: &Obstacle<'_>,
) -> (String, String, String) {
    let Obstacle::Taint(Taint { key, value, effect, .. }) = obstacle else {
        let remedy = node_remedy(obstacle, node);
        return (obstacle.predicate(false), obstacle.predicate(true), remedy);
    };
    let checks = DIAGNOSTICS.iter().filter_map(|system| system.check_node);
    for report in checks.map(|check| check(context, node)) {
        let is_own = report.tolerations.iter().any(|of| tolerates(of, key, value, effect));
        if let Some((object, remedy)) = report.reserved_for.filter(|_| is_own) {
            let of = |are: &str| format!("{are} exclusive to {object}");
            return (of("is"), of("are"), remedy);
        }
    }
    let of = |several| format!("{}, which it does not tolerate", obstacle.predicate(several));
    let mut remedy = node_remedy(obstacle, node);
    // A pod that tolerates the state of a node begins where it cannot run.
    if !is_of_kubernetes(key) {
        remedy += &format!(", or let the pod tolerate {key}");
    }
    (of(false), of(true), remedy)
}
