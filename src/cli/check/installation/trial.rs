//! Diagnoses the call of the API server about a test pod.

use serde_json::Value;

use super::facts::{Facts, Unread};
use crate::cli::trial::Answer;
use stowplan_core::kubernetes::REQUIRED;
use stowplan_core::placement::record;
use stowplan_core::systems::check::installation::{Findings, Item};

/// A test pod, and what became of it.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) namespace: String,
    /// True if the pod is one that a system always changes, and not one that the webhook warns about.
    pub(super) expects_patch: bool,
    pub(super) annotations: &'static [(&'static str, &'static str)],
    pub(super) answer: Answer,
}

impl Trial {
    /// Returns true if stowplan has placed the pod: it has the record or, where the policy wants none,
    /// keeps to other nodes than pods with the value of one of its annotations. Other webhooks may
    /// add affinities too.
    fn is_placed(&self, pod: &Value) -> bool {
        let terms = pod["spec"]["affinity"]["podAntiAffinity"][REQUIRED].to_string();
        pod["metadata"]["annotations"].get(record::KEY).is_some()
            || self.annotations.iter().any(|(_, value)| terms.contains(&format!("\"{value}\"")))
    }

    fn is_warned(&self) -> bool {
        let mut keys = self.annotations.iter().map(|(key, _)| key);
        keys.any(|key| self.answer.warnings.iter().any(|warning| warning.contains(key)))
    }
}

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
    let is_own =
        |message: &str, words| message.contains(words) && message.contains(".stowplan.dev");
    match &trial.answer.created {
        Ok(pod) if trial.is_placed(pod) => {
            return findings
                .or_ok(format!("a pod in namespace {namespace} gets its placement (dry run)"));
        }
        Ok(_) if trial.is_warned() && trial.expects_patch => findings.warning(
            format!("the webhook answers about a pod in namespace {namespace}, and does not place it"),
            "the warning and the policy (onInvalid) say why",
        ),
        // The webhook has answered. A policy may turn every system off, or refuse pods.
        _ if trial.is_warned() => {}
        Ok(_) => findings.problem(
            format!("a pod in namespace {namespace} is created without its placement: the webhook was not called"),
            "the lines webhook-configurations, service and certificate say why; or the namespace is excluded",
        ),
        Err((_, message)) if is_own(message, "denied the request") => {}
        Err((_, message)) if is_own(message, "failed calling webhook") => findings.problem(
            format!("the API server cannot call the webhook: {message}"),
            "the lines service and certificate say why",
        ),
        Err((_, message)) => findings.problem(
            format!("another rule of namespace {namespace} refuses the pod: {message}"),
            "--try-in another namespace (of helm test: the chart's value test.namespace)",
        ),
    }
    findings.or_ok(format!("the webhook answers about a pod in namespace {namespace} (dry run)"))
}
