//! A plan for programs.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{Planned, parts, warnings, with_hint};
use stowplan_core::admission::Decision;
use stowplan_core::placement::reason::Warning;
use stowplan_core::systems::preview::Whole;

/// `plan -o json`.
#[derive(Serialize)]
pub(in crate::cli) struct List<'p> {
    kind: &'static str,
    items: Vec<Entry<'p>>,
    /// The wholes that several items are together.
    #[serde(skip_serializing_if = "<[Whole]>::is_empty")]
    wholes: &'p [Whole],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'p> {
    #[serde(flatten)]
    object: Named<'p>,
    allowed: bool,
    code: u16,
    reason: &'static str,
    message: String,
    warnings: Vec<&'p str>,
    patch: &'p [Value],
    intents: Vec<PlannedIntent<'p>>,
    findings: Vec<PlannedFinding<'p>>,
    /// The reason why its pod waits once it is admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<&'p str>,
    /// The path to the template, in an object whose controller is not played.
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<&'p str>,
    /// The claim, of those that a StatefulSet creates.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<&'p str>,
    /// The reason why the answer is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
    #[serde(flatten)]
    fields: &'p Map<String, Value>,
}

#[derive(Serialize)]
struct PlannedIntent<'p> {
    system: &'static str,
    what: String,
    why: &'p str,
}

#[derive(Serialize)]
struct PlannedFinding<'p> {
    reason: &'static str,
    code: u16,
    subject: &'p str,
    problem: &'p str,
    remedy: &'p str,
}

/// The plan for programs. The order of the fields is part of the contract.
pub(in crate::cli) fn build_list<'p>(planned: &'p [Planned<'_>], wholes: &'p [Whole]) -> List<'p> {
    List { kind: "PlanList", items: planned.iter().map(build_entry).collect(), wholes }
}

fn build_entry<'p>(planned: &'p Planned<'_>) -> Entry<'p> {
    let (allowed, code) = match &planned.decision {
        Decision::Refuse(refusal) => (false, refusal.code()),
        _ => (!planned.is_unknown(), 200),
    };
    let (intents, findings, _) = parts(&planned.decision);
    let intents = intents.iter().map(|intent| PlannedIntent {
        system: intent.system,
        what: intent.change.to_string(),
        why: &intent.why,
    });
    let findings = findings.iter().map(|finding| PlannedFinding {
        reason: finding.reason.as_str(),
        code: finding.reason.stage().code(),
        subject: &finding.subject,
        problem: &finding.problem,
        remedy: &finding.remedy,
    });
    Entry {
        object: Named::new(planned),
        allowed,
        code,
        reason: planned.decision.reason(),
        message: message(planned),
        warnings: warnings(planned).map(Warning::as_str).collect(),
        patch: &planned.patch,
        intents: intents.collect(),
        findings: findings.collect(),
        waits: planned.preview.waits.as_deref(),
        template: planned.unplayed.as_deref().filter(|path| !path.is_empty()),
        claim: planned.claim.as_deref(),
        unknown: planned.doubt().filter(|_| planned.is_unknown()),
        fields: &planned.preview.fields,
    }
}

/// An entry of `plan -o patch`.
#[derive(Serialize)]
pub(in crate::cli) struct Patched<'p> {
    object: Named<'p>,
    patch: &'p [Value],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Named<'p> {
    api_version: &'p str,
    kind: &'p str,
    namespace: &'p str,
    name: &'p str,
}

impl<'p> Named<'p> {
    fn new(planned: &'p Planned<'_>) -> Self {
        Self {
            api_version: &planned.item.version,
            kind: &planned.item.kind,
            namespace: &planned.namespace,
            name: &planned.name,
        }
    }
}

/// `plan -o patch`: the patches of the objects that are admitted.
pub(in crate::cli) fn build_patches<'p>(planned: &'p [Planned<'_>]) -> Vec<Patched<'p>> {
    planned
        .iter()
        .filter(|planned| !matches!(planned.decision, Decision::Refuse(_)))
        .filter(|planned| planned.withheld.is_none())
        .map(|planned| Patched { object: Named::new(planned), patch: &planned.patch })
        .collect()
}

/// The message of a refusal, or of an object that is admitted but not placed.
fn message(planned: &Planned<'_>) -> String {
    match &planned.decision {
        Decision::Refuse(refusal) => with_hint(refusal.message(), planned),
        Decision::Admit(admission) => match admission.findings.first() {
            Some(first) => with_hint(format!("stowplan: not placed: {first}"), planned),
            None => planned.preview.unknown.clone().unwrap_or_default(),
        },
        _ => String::new(),
    }
}
