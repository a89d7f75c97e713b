//! The label of nodes whose CustomNodeResource lists NUMA nodes. The webhook requires it, so a node that
//! loses its CustomNodeResource is not chosen any more.

use serde_json::{Value, json};

use super::{LASTING, reason};
use crate::systems::View;
use crate::systems::katalyst::keys::NUMA_ZONES;
use crate::systems::katalyst::kinds::topology::Topology;
use crate::systems::katalyst::machines::find_unusable;
use crate::systems::katalyst::policy::KatalystMode;
use crate::systems::plan::operation::{add, remove, test, test_uid};
use crate::systems::plan::{Action, Event, Plan, Target, Write};
use crate::systems::policy::Policy;
use crate::view::resource::NODE;
use crate::view::{Name, NodeDetails};

/// Plans the labels of all nodes.
pub(super) fn plan(view: &View, policy: &Policy, plan: &mut Plan) {
    let is_enabled = policy.katalyst.mode != KatalystMode::Disabled;
    // As in every cluster without Katalyst.
    if !view.has_numa_nodes() && (!is_enabled || view.topologies().is_empty()) {
        return;
    }
    let earlier = plan.actions.len();
    for (node, details) in view.nodes() {
        let Some(details) = details.details.as_deref().filter(|of| !of.identity.deleting) else {
            continue;
        };
        let report = view.topology(node).filter(|_| is_enabled);
        let usable = report.filter(|report| find_unusable(report, &policy.katalyst).is_none());
        let wanted = usable.map(|report| report.zones().count().to_string());
        let present = details.labels.get(NUMA_ZONES).map(AsRef::as_ref);
        let target = Target::new(NODE, &Name::cluster_wide(node), &details.identity.uid);
        if wanted.as_deref() != present {
            let why = report.and_then(|report| find_unusable(report, &policy.katalyst));
            let events = why.filter(|_| present.is_some()).map(|why| Event {
                warning: true,
                reason: reason::UNUSABLE,
                note: format!("no longer for pods with a NUMA affinity: {why}"),
            });
            let operations = write(details, present, wanted);
            let events = events.into_iter().collect();
            plan.actions.push(Action::new(target, Write::Patch(operations), events));
        } else if let Some(event) = report.and_then(report_problem) {
            let action = Action::new(target, Write::None, vec![event]).with_lasting(LASTING);
            plan.actions.push(action);
        }
    }
    plan.actions[earlier..].sort_unstable_by(|one, other| one.target.cmp(&other.target));
}

fn write(
    node: &NodeDetails,
    present: Option<&str>,
    wanted: Option<String>,
) -> Vec<json_patch::PatchOperation> {
    let label = ["metadata", "labels", NUMA_ZONES];
    let mut operations = vec![test_uid(&node.identity.uid)];
    match wanted {
        // An absent object tests as null. Without the test, labels that others add would be lost.
        Some(zones) if node.labels.is_empty() => {
            operations.push(test(&label[..2], Value::Null));
            operations.push(add(&label[..2], json!({NUMA_ZONES: zones})));
        }
        Some(zones) => operations.push(add(&label, zones)),
        None => {
            operations.push(test(&label, present.unwrap_or_default()));
            operations.push(remove(&label));
        }
    }
    operations
}

fn report_problem(report: &Topology) -> Option<Event> {
    let problem = report.problem.as_deref()?;
    let note = format!("its CustomNodeResource is read without {problem}");
    Some(Event { warning: true, reason: reason::UNREADABLE, note })
}
