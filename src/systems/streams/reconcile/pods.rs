//! Holds the pods of jobs to the nodes that their jobs reserve.
//!
//! - A gated pod was created before the job had a recorded placement. Its gate is removed once there is
//!   one, in the same write that leaves it the nodes of the placement.
//! - The node affinity of a pod without a gate cannot be changed. If the job has reserved other nodes
//!   since, and the pod is unschedulable for the grace period, it is deleted, so that its workload creates
//!   it again with the present nodes. A pod that no workload would create again is left, with an event.

use json_patch::PatchOperation;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::wholes::patience;
use crate::systems::exclusion::Exclusion;
use crate::systems::plan::operation::{remove_gate, require_in_terms};
use crate::systems::plan::{Action, Event, Plan, Target, Write};
use crate::systems::policy::Policy;
use crate::systems::streams::job::whole::{Restriction, needs_witness};
use crate::systems::streams::keys::GATE;
use crate::systems::streams::kinds::StreamsView as _;
use crate::systems::streams::kinds::streams_pod::{PendingPod, PodDetails};
use crate::view::resource::POD;
use crate::view::{Name, View};

/// The reasons of events about pods.
pub(super) mod reason {
    /// The pod was deleted, so that its workload creates it again for another node.
    pub(in super::super) const RECREATED: &str = "RecreatedForItsJob";
    /// The pod waits for a node that its job does not reserve any more.
    pub(in super::super) const STRANDED: &str = "StrandedByItsNode";
    /// The gate was removed.
    pub(in super::super) const GATE_LIFTED: &str = "GateLifted";
}

/// Plans the changes of pods.
pub(super) fn plan(view: &View, policy: &Policy, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let mut pods: Vec<(&Name, &PodDetails, &PendingPod)> = view
        .pods()
        .filter(|(_, pod)| !pod.identity.deleting && !pod.finished)
        .filter_map(|(name, pod)| Some((name, pod, pod.pending.as_deref()?)))
        .collect();
    pods.sort_unstable_by_key(|(name, ..)| *name);
    for (name, pod, pending) in pods {
        let job = pod.job.as_deref().map(|job| Name::new(&name.namespace, job));
        let job = job.and_then(|job| view.streams_job(&job));
        let is_served = policy.streams.enabled
            && Exclusion::of_namespace(&name.namespace, view, policy).is_none();
        let job = job.filter(|job| is_served && !job.identity.deleting && job.spec.is_ok());
        let restriction = job.and_then(|job| Restriction::of_element(job, pod.element.as_deref()));
        match (pending.gate, restriction) {
            // Without a job there is nothing to wait for.
            (Some(gate), None) => plan.actions.push(lift(name, pod, gate, Vec::new())),
            (Some(gate), Some(restriction)) => {
                let has_witness =
                    job.is_some_and(|job| job.status.witness.is_some() || !needs_witness(job));
                if has_witness {
                    let others = restrict(pending, &restriction);
                    plan.actions.push(lift(name, pod, gate, others));
                }
            }
            (None, Some(restriction)) => {
                recreate(name, pod, pending, &restriction, policy, now, &mut plan);
            }
            (None, None) => {}
        }
    }
    plan
}

/// Removes the gate of a pod.
fn lift(name: &Name, pod: &PodDetails, gate: usize, others: Vec<PatchOperation>) -> Action {
    let operations = remove_gate(&pod.identity, gate, GATE, others);
    let note = "its job is placed as a whole now".to_owned();
    let events = vec![Event { warning: false, reason: reason::GATE_LIFTED, note }];
    Action::new(Target::new(POD, name, &pod.identity.uid), Write::Patch(operations), events)
}

/// The operations that leave a gated pod the nodes of its job. The webhook has given it a term.
fn restrict(pending: &PendingPod, restriction: &Restriction<'_>) -> Vec<PatchOperation> {
    let terms = pending.terms.as_deref().unwrap_or_default();
    let require = |operator: &str, node: &str| json!({"key": "metadata.name", "operator": operator, "values": [node]});
    match restriction {
        Restriction::On(node) => require_in_terms(terms, "matchFields", &[require("In", node)]),
        Restriction::Off(nodes) => {
            let requirements: Vec<_> = nodes.iter().map(|node| require("NotIn", node)).collect();
            require_in_terms(terms, "matchFields", &requirements)
        }
    }
}

/// Deletes a pod that has waited too long for nodes that its job does not reserve for it any more.
fn recreate(
    name: &Name,
    pod: &PodDetails,
    pending: &PendingPod,
    restriction: &Restriction<'_>,
    policy: &Policy,
    now: Timestamp,
    plan: &mut Plan,
) {
    let Some(since) = pod.unschedulable_since else { return };
    let terms = pending.terms.as_deref().unwrap_or_default();
    let Some(why) = restriction.differs_from(terms) else { return };
    match since.checked_add(patience(policy)) {
        Ok(due) if due > now => plan.recheck_by(due),
        Ok(_) if pending.may_be_recreated => {
            let note = format!("{why}; deleted, so that its workload creates it again");
            let events = vec![Event { warning: false, reason: reason::RECREATED, note }];
            // Not a pod that was bound since.
            let version = Some(pod.identity.resource_version.clone());
            let target = Target::new(POD, name, &pod.identity.uid);
            plan.actions.push(Action::new(target, Write::Delete { grace: None, version }, events));
        }
        Ok(_) => {
            let note = format!("{why}; delete it, and create it again");
            let event = Event { warning: true, reason: reason::STRANDED, note };
            let target = Target::new(POD, name, &pod.identity.uid);
            let action = Action::new(target, Write::None, vec![event]);
            plan.actions.push(action.with_lasting(&[reason::STRANDED]));
        }
        Err(_) => {}
    }
}
