//! Diagnoses the call of the API server about a test pod.

use super::facts::{Facts, Unread};
use crate::systems::check::installation::{Findings, Item};

/// Diagnoses the test pod. If one was asked for, a missing result is a problem: `helm test` must not
/// pass then.
pub(super) fn check(facts: &Facts) -> Vec<Item> {
    let mut findings = Findings::new("trial-pod");
    let trial = match &facts.trial {
        None => {
            findings.unknown(
                "no test pod was created (dry run), because no namespace was named",
                "stowplan check --try-in default, or another namespace",
            );
            return findings.or_ok("");
        }
        Some(Err(unread)) => {
            let remedy = match unread {
                Unread::Forbidden(_) => "--try-in another namespace, or get this right",
                unread => unread.remedy(),
            };
            findings.problem(format!("no test pod was created: {unread}"), remedy);
            return findings.or_ok("");
        }
        Some(Ok(trial)) => trial,
    };
    let namespace = &trial.namespace;
    let is_refused_by_own =
        trial.message.contains("denied the request") && trial.message.contains(".stowplan.dev");
    if trial.is_patched {
        return findings
            .or_ok(format!("a pod in namespace {namespace} gets its placement (dry run)"));
    }
    if trial.is_warned || is_refused_by_own {
        // The webhook has answered. A policy may turn every system off, or refuse pods.
        if trial.expects_patch && trial.is_created {
            findings.warning(
                format!("the webhook answers about a pod in namespace {namespace}, and does not place it"),
                "the warning and the policy (onInvalid) say why",
            );
        }
        return findings
            .or_ok(format!("the webhook answers about a pod in namespace {namespace} (dry run)"));
    }
    if trial.is_created {
        findings.problem(
            format!("a pod in namespace {namespace} is created without its placement: the webhook was not called"),
            "the lines webhook-configurations, service and certificate say why; or the namespace is excluded",
        );
    } else if trial.message.contains("failed calling webhook")
        && trial.message.contains(".stowplan.dev")
    {
        findings.problem(
            format!("the API server cannot call the webhook: {}", trial.message),
            "the lines service and certificate say why",
        );
    } else {
        findings.problem(
            format!("another rule of namespace {namespace} refuses the pod: {}", trial.message),
            "--try-in another namespace (of helm test: the chart's value test.namespace)",
        );
    }
    findings.or_ok("")
}
