//! Diagnoses why a node takes no pods of stowplan, and what stowplan has decided about it.

use std::collections::BTreeSet;

use stowplan_core::kubernetes::{is_finished, node_name};
use stowplan_core::systems::DIAGNOSTICS;
use stowplan_core::systems::check::words::{counted, node_remedy};
use stowplan_core::systems::check::{CheckedKind, Context, Diagnosis};
use stowplan_core::systems::fit::{self, PodNeeds, Question};
use stowplan_core::view::Name;

/// Nodes, which have no diagnosis unless they are asked for.
pub(super) static KIND: CheckedKind = CheckedKind {
    names: &["node", "nodes", "no"],
    missing: "node",
    needs_all_pods: true,
    check: diagnose,
    // Nodes are in no namespace.
    find_all: |_| BTreeSet::new(),
};

/// Diagnoses why a node takes no pods. `None`: there is no such node.
fn diagnose(context: &Context<'_>, Name { name, .. }: &Name) -> Option<Diagnosis> {
    let (cluster, name) = (context.cluster, &**name);
    let candidate = cluster.candidate(name)?;
    let mut diagnosis = Diagnosis::new("Node", &Name::cluster_wide(name));
    let on_node = cluster.pods.iter().filter(|pod| node_name(pod) == Some(name));
    let running = on_node.filter(|pod| !is_finished(pod)).count();
    diagnosis.placed.push(format!("{} of what was read", counted(running, "pod")));
    let checks = DIAGNOSTICS.iter().filter_map(|system| system.check_node);
    let mut tolerations = Vec::new();
    for report in checks.map(|check| check(context, name)) {
        diagnosis.decided.extend(report.decided);
        tolerations.extend(report.tolerations);
    }
    let pod = PodNeeds { tolerations: &tolerations, ..PodNeeds::default() };
    for obstacle in fit::obstacles(&Question::new(candidate, &pod), fit::POOL) {
        let what = match &obstacle {
            fit::Obstacle::Taint(_) => format!("{obstacle}; pods that tolerate it may run here"),
            obstacle => obstacle.to_string(),
        };
        diagnosis.report(format!("it {what}"), node_remedy(&obstacle, name));
    }
    Some(diagnosis)
}
