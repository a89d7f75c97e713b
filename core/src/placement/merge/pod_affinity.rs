//! Adds pod affinity and anti-affinity terms to those that the pod has.

use k8s_openapi::api::core::v1::{PodAffinityTerm, WeightedPodAffinityTerm};
use serde_json::json;

use super::Merge;
use crate::kubernetes::{PREFERRED, REQUIRED, required_anti_terms, required_pod_terms};
use crate::placement::intent::{Change, Enforcement, Intent, PodTerm};
use crate::placement::pod::Pod;
use crate::placement::reason::{Finding, Reason, Warning};

/// Returns true if `term` is among these terms of the pod from an earlier round.
fn have(
    required: &[PodAffinityTerm],
    preferred: Option<&Vec<WeightedPodAffinityTerm>>,
    term: &PodTerm,
) -> bool {
    match term.enforcement {
        Enforcement::Required => required.iter().any(|own| term.is_own_mark(own)),
        Enforcement::Preferred => {
            let mut preferred = preferred.into_iter().flatten();
            preferred.any(|own| term.is_own_mark(&own.pod_affinity_term))
        }
    }
}

impl Merge<'_> {
    /// Adds the pod affinity and anti-affinity of the intents to the pod's own.
    pub(super) fn add_pod_affinity(&mut self) {
        let affinity = &self.pod.affinity;
        let (required, apart) =
            (required_pod_terms(Some(affinity)), required_anti_terms(Some(affinity)));
        let preferred = affinity.pod_affinity.as_ref();
        let preferred = preferred
            .and_then(|of| of.preferred_during_scheduling_ignored_during_execution.as_ref());
        let rather_apart = affinity.pod_anti_affinity.as_ref();
        let rather_apart = rather_apart
            .and_then(|of| of.preferred_during_scheduling_ignored_during_execution.as_ref());
        let mut added_required: Option<&Intent> = None;
        for intent in self.intents {
            match &intent.change {
                Change::PodAffinity(term) if !have(required, preferred, term) => {
                    if term.enforcement == Enforcement::Required {
                        if added_required.is_some() || !required.is_empty() {
                            self.findings.push(second_required_term(intent, added_required));
                            continue;
                        }
                        added_required = Some(intent);
                    }
                    self.write_pod_term("podAffinity", term);
                }
                Change::PodAntiAffinity(term) if !have(apart, rather_apart, term) => {
                    self.write_pod_term("podAntiAffinity", term);
                }
                Change::PodAffinityHint(mates) if required.is_empty() => {
                    let path = ["spec", "affinity", "podAffinity", REQUIRED];
                    self.editor.append(&path, json!(mates.term()));
                }
                _ => {}
            }
        }
    }

    fn write_pod_term(&mut self, member: &str, term: &PodTerm) {
        let list = match term.enforcement {
            Enforcement::Required => REQUIRED,
            Enforcement::Preferred => PREFERRED,
        };
        self.editor.append(&["spec", "affinity", member, list], term.to_json());
    }
}

/// Takes out the [hints](Change::PodAffinityHint) that have no effect beside another required term, of
/// the pod or of `intents`, and says so.
pub(crate) fn leave_out_hints(pod: &Pod<'_>, intents: &mut Vec<Intent>) -> Vec<Warning> {
    let required = required_pod_terms(Some(&pod.affinity));
    let is_required = |intent: &Intent| match &intent.change {
        Change::PodAffinity(term) => term.enforcement == Enforcement::Required,
        _ => false,
    };
    let other = intents.iter().find(|intent| is_required(intent)).map(|by| by.why.clone());
    let mut warnings = Vec::new();
    let mut is_kept = false;
    intents.retain(|intent| {
        let Change::PodAffinityHint(mates) = &intent.change else { return true };
        let beside = match (&other, required) {
            (Some(other), _) => format!("that of {other}"),
            (None, [own]) if mates.is_own_mark(own) => return true,
            (None, []) if !std::mem::replace(&mut is_kept, true) => return true,
            (None, _) => "its own".to_owned(),
        };
        let text = format!(
            "the scheduler does not look for nodes with such pods: the pod has another required pod-affinity term, {beside}, and it would count only pods that match both"
        );
        warnings.push(Warning::new(intent.key, &text));
        false
    });
    warnings
}

/// The finding that a required term cannot be added beside `other`, or beside the pod's own.
fn second_required_term(intent: &Intent, other: Option<&Intent>) -> Finding {
    let other = other.map_or_else(
        || "its own required pod affinity".to_owned(),
        |other| format!("that of {}", other.why),
    );
    let problem = format!(
        "the pod would have a second required pod-affinity term beside {other}, and the scheduler counts only pods that match both"
    );
    let remedy = "remove one of them, or make the pod's own term preferred";
    Finding::new(Reason::PodAffinityConflict, intent.key, problem, remedy)
}

/// Returns true if the pod has the required pod-affinity term `term` already, or can be given it.
///
/// It cannot if it has another required term: the scheduler counts an existing pod only if it matches
/// *all* required terms of the new one, so a second term would make both ineffective (seen on the
/// scheduler of Kubernetes 1.36). Systems that have an alternative ask here first; for the others the
/// merge reports the conflict.
#[must_use]
pub fn takes_pod_term(pod: &Pod<'_>, term: &PodTerm) -> bool {
    let required = required_pod_terms(Some(&pod.affinity));
    required.is_empty() || required.iter().any(|own| term.is_own_mark(own))
}
