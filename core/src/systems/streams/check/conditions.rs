//! Reports the conditions of a HostPool or a StreamsJob, with the remedies.

use crate::api::condition::{ACCEPTED, Condition, Status};
use crate::placement::reason::{Reason, Stage};
use crate::systems::check::Diagnosis;
use crate::systems::check::words::SEE_CONTROLLER;
use crate::systems::streams::kinds::{Form, HostPool};
use crate::systems::streams::reasons::{JobReason, PoolReason};
use crate::view::Name;

/// The remedy for a job that cannot be placed by its spec, which is immutable.
const OTHER_SPEC: &str = "delete it, and create it again with another spec";

/// Reports the conditions; `remedy` is that for a reason, empty if the message ends in one. Without a
/// current condition no controller has looked at the object yet.
pub(super) fn report_conditions(
    diagnosis: &mut Diagnosis,
    conditions: &[Condition],
    generation: i64,
    remedy: impl Fn(&str) -> String,
) {
    let current = |condition: &&Condition| {
        condition.observed_generation.is_none_or(|observed| observed >= generation)
    };
    let conditions: Vec<&Condition> = conditions.iter().filter(current).collect();
    let is_refused = conditions.iter().any(|of| of.type_ == ACCEPTED && of.status == Status::False);
    for Condition { type_, status, reason, message, .. } in &conditions {
        diagnosis.decided.push(format!("{type_}={status:?}, {reason}: {message}"));
        // Accepted has reported what is wrong with Ready.
        let is_known = diagnosis.obstacles.iter().any(|obstacle| obstacle.what == *message)
            || (is_refused && *reason == JobReason::NotAccepted.as_str());
        if *status == Status::False && !is_known {
            diagnosis.report(message.clone(), remedy(reason));
        }
    }
    if conditions.is_empty() {
        diagnosis.report("no controller has looked at it yet", SEE_CONTROLLER);
    }
}

/// Returns the remedy for a reason of a HostPool, whose spec is immutable except for a growing size. Empty if
/// the message ends in a remedy.
pub(super) fn pool_remedy(reason: &str, name: &Name, pool: &HostPool) -> String {
    let Some(reason) = PoolReason::find(reason) else { return String::new() };
    let remedy = match reason {
        PoolReason::Accepted
        | PoolReason::Allocated
        | PoolReason::InvalidPool
        | PoolReason::NoTaggedNode
        | PoolReason::TooManyPools => "",
        PoolReason::WaitingForJob => {
            let job = pool.job.as_ref().map_or("", |(job, _)| job);
            return format!(
                "see what its job lacks: `stowplan check job/{job} -n {}`",
                name.namespace
            );
        }
        PoolReason::Reserving => "wait: the nodes are being prepared",
        PoolReason::NotAllowed | PoolReason::TooManyExclusiveNodes => {
            "ask the cluster's administrator: the policy says so"
        }
        PoolReason::UnknownHost => {
            "create another pool whose hosts are nodes (`kubectl get nodes -o wide`), or add these nodes"
        }
        PoolReason::InsufficientNodes => match &pool.form {
            Ok(Form::Sized(_, tags) | Form::Tagged(tags)) if !tags.is_empty() => {
                let labels = tags.labels();
                return format!("label more nodes with {labels}, or free nodes that have that");
            }
            Ok(Form::Literal(_)) => "free these nodes, or create another pool with other hosts",
            _ => "add or free nodes",
        },
    };
    remedy.to_owned()
}

/// Returns the remedy for a reason of a StreamsJob, whose spec is immutable except for growing pools. Empty
/// if the message ends in a remedy that does not change the spec. `waiting`: a pool that is not ready,
/// as a command to check it.
pub(super) fn job_remedy(reason: &str, waiting: Option<String>) -> String {
    if let Some(reason) = JobReason::find(reason) {
        return match reason {
            JobReason::Accepted
            | JobReason::PoolsReady
            | JobReason::PoolNameTaken
            | JobReason::NotAccepted
            | JobReason::NodesReservedAnew => String::new(),
            JobReason::WaitingForPools => match waiting {
                Some(command) => format!("wait, or see why the pool is not ready: `{command}`"),
                None => "wait: the controller creates the pools".to_owned(),
            },
        };
    }
    let Some(reason) = Reason::ALL.iter().find(|of| of.as_str() == reason) else {
        return String::new();
    };
    let remedy = match reason {
        Reason::UnknownHost => {
            "add that node, or delete the job and create it again with another host"
        }
        Reason::InvalidPool | Reason::IndexOutOfRange | Reason::AmbiguousHost => OTHER_SPEC,
        // No state of the cluster helps.
        _ if reason.stage() == Stage::Syntax => OTHER_SPEC,
        _ => "",
    };
    remedy.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::systems::streams::api;

    #[test]
    fn each_reason_of_a_pool_has_its_remedy() {
        let tagged = json!({"size": 2, "tags": ["a"]});
        for (reason, spec, expected) in [
            (PoolReason::Accepted, json!({}), ""),
            (PoolReason::Allocated, json!({}), ""),
            (PoolReason::WaitingForJob, json!({"size": 1}), "see what its job lacks"),
            (PoolReason::Reserving, json!({"size": 1}), "wait: "),
            (PoolReason::InvalidPool, json!({"hosts": []}), ""),
            (PoolReason::NotAllowed, json!({}), "ask the cluster's administrator"),
            (PoolReason::TooManyPools, json!({}), ""),
            (PoolReason::TooManyExclusiveNodes, json!({}), "ask the cluster's administrator"),
            (PoolReason::UnknownHost, json!({"hosts": ["n1"]}), "create another pool whose hosts"),
            (PoolReason::NoTaggedNode, json!({"tags": ["a"]}), ""),
            (
                PoolReason::InsufficientNodes,
                tagged,
                "label more nodes with streams.ibm.com/hostpool=a, or ",
            ),
            (PoolReason::InsufficientNodes, json!({"size": 2}), "add or free nodes"),
            (PoolReason::InsufficientNodes, json!({"hosts": ["n1"]}), "free these nodes, or "),
        ] {
            let pool = json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
                "metadata": {"name": "p"}, "spec": spec});
            let pool: api::HostPool = serde_json::from_value(pool).unwrap();
            let remedy =
                pool_remedy(reason.as_str(), &Name::new("ns", "p"), &HostPool::from(&pool));
            assert!(remedy.starts_with(expected), "{reason:?}: {remedy}");
            assert_eq!(remedy.is_empty(), expected.is_empty(), "{reason:?}: {remedy}");
        }
    }

    #[test]
    fn each_reason_of_a_job_has_its_remedy() {
        let other_host = "add that node, or delete the job and create it again with another host";
        let table = [
            ("wait, or see why the pool is not ready: `CHECK`", "WaitingForPools"),
            (other_host, "UnknownHost"),
            (
                "delete it, and create it again with another spec",
                "Contradiction MalformedJob DuplicateName InvalidHost InvalidToken UndefinedPool \
                 MalformedPool InvalidPool IndexOutOfRange AmbiguousHost NoCommonHost \
                 ExclusivePoolSplit ExlocatedTogether TooManyExlocated IsolationShared",
            ),
            (
                "",
                "Accepted PoolsReady PoolNameTaken NotAccepted NodesReservedAnew NoTaggedNode \
                 InsufficientNodes PoolNotAllowed TooManyExclusiveNodes",
            ),
        ];
        for (expected, reasons) in table {
            for reason in reasons.split(' ') {
                assert_eq!(job_remedy(reason, Some("CHECK".to_owned())), expected, "{reason}");
            }
        }
    }
}
