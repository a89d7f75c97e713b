//! What the conditions of a HostPool or a StreamsJob say, and the remedies.

use crate::api::condition::{Condition, Status};
use crate::systems::check::Diagnosis;
use crate::systems::check::words::SEE_CONTROLLER;

/// Reports the conditions. Without a current one no controller has looked at the object yet.
pub(super) fn report_conditions(
    diagnosis: &mut Diagnosis,
    conditions: &[Condition],
    generation: i64,
) {
    let current = |condition: &&Condition| {
        condition.observed_generation.is_none_or(|observed| observed >= generation)
    };
    let mut any = false;
    for condition in conditions.iter().filter(current) {
        any = true;
        let Condition { type_, status, reason, message, .. } = condition;
        diagnosis.decided.push(format!("{type_}={status:?}, {reason}: {message}"));
        // Accepted has reported what is wrong with Ready.
        if *status == Status::False && !diagnosis.obstacles.iter().any(|o| o.what == *message) {
            diagnosis.report(message.clone(), remedy(reason));
        }
    }
    if !any {
        diagnosis.report("no controller has looked at it yet", SEE_CONTROLLER);
    }
}

/// What to do about a condition's reason.
fn remedy(reason: &str) -> &'static str {
    match reason {
        "InsufficientNodes" => {
            "label more nodes with its tags (`kubectl label node NODE KEY=VALUE`), or free nodes that have them"
        }
        "UnknownHost" => {
            "name nodes that exist (`kubectl get nodes -o wide`), or create a new pool"
        }
        "Reserving" => "wait: the nodes are being prepared",
        "NotAllowed" | "TooManyExclusiveNodes" => {
            "ask the cluster's administrator: the policy says so"
        }
        "TooManyPools" => "delete a pool that is not needed, or ask the cluster's administrator",
        // The spec of both kinds is immutable.
        _ => "delete it, and create it again with another spec",
    }
}
