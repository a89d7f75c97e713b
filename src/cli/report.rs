//! Formats a plan, for people and for programs.

use serde::Serialize;
use serde_json::{Map, Value};

use super::input::Item;
use crate::admission::{Decision, Pass, Refusal};
use crate::placement::reason::{Finding, Warning};
use crate::systems::exclusion::IGNORE;
use crate::systems::preview::{Preview, Whole};

/// An object and the decision on its pods.
pub(super) struct Planned<'d> {
    pub(super) item: Item<'d>,
    pub(super) namespace: String,
    /// `metadata.name`, or else `metadata.generateName`.
    pub(super) name: String,
    pub(super) decision: Decision,
    /// The operations that change the object, or the template in it.
    pub(super) patch: Vec<Value>,
    /// The preview of its system, for an object that is not a pod.
    pub(super) preview: Preview,
    /// Warnings about keys on the object that have an effect only on its pods.
    pub(super) misplaced: Vec<Warning>,
    /// What is not known of the cluster and could change the decision.
    pub(super) hint: Option<String>,
    /// The object whose UID the patch needs and which does not exist yet. The patch is left out.
    pub(super) withheld: Option<String>,
    /// The index of its document in the input.
    pub(super) document: usize,
    /// The path to the template in an object whose controller is not played; empty: none was found.
    pub(super) unplayed: Option<String>,
}

impl Planned<'_> {
    /// Whether the webhook's answer is not known: the controller may add what is missing.
    pub(super) fn is_unknown(&self) -> bool {
        let is_answered = !matches!(self.decision, Decision::Refuse(_));
        self.unplayed.as_ref().is_some_and(|path| path.is_empty() || !is_answered)
    }

    /// Why the answer is not known, or may be another one, and what to do.
    fn doubt(&self) -> Option<String> {
        self.unplayed.as_ref()?;
        let (kind, group, namespace) = (&self.item.kind, self.item.group(), &self.namespace);
        Some(format!(
            "plan does not play the controller of {kind}.{group}: plan what that makes (`kubectl get \
             jobs,statefulsets,pods -n {namespace} -o yaml | stowplan plan -f -`)"
        ))
    }
}

/// `plan -o json`.
#[derive(Serialize)]
pub(super) struct List<'p> {
    kind: &'static str,
    items: Vec<Entry<'p>>,
    /// What several items are together.
    #[serde(skip_serializing_if = "<[Whole]>::is_empty")]
    wholes: &'p [Whole],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'p> {
    api_version: &'p str,
    kind: &'p str,
    namespace: &'p str,
    name: &'p str,
    allowed: bool,
    code: u16,
    reason: &'static str,
    message: String,
    warnings: Vec<&'p str>,
    patch: &'p [Value],
    intents: Vec<PlannedIntent<'p>>,
    findings: Vec<PlannedFinding<'p>>,
    /// The path to the template, in an object whose controller is not played.
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<&'p str>,
    /// Why the answer is not known.
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
pub(super) fn build_list<'p>(planned: &'p [Planned<'_>], wholes: &'p [Whole]) -> List<'p> {
    List { kind: "PlanList", items: planned.iter().map(build_entry).collect(), wholes }
}

fn build_entry<'p>(planned: &'p Planned<'_>) -> Entry<'p> {
    let (allowed, code) = match &planned.decision {
        Decision::Refuse(refusal) => (false, refusal.code()),
        _ => (!planned.is_unknown(), 200),
    };
    let intents = match &planned.decision {
        Decision::Admit(admission) => admission.intents.as_slice(),
        _ => &[],
    };
    let intents = intents.iter().map(|intent| PlannedIntent {
        system: intent.system,
        what: intent.change.to_string(),
        why: &intent.why,
    });
    let findings = findings(&planned.decision).iter().map(|finding| PlannedFinding {
        reason: finding.reason.as_str(),
        code: finding.reason.stage().code(),
        subject: &finding.subject,
        problem: &finding.problem,
        remedy: &finding.remedy,
    });
    Entry {
        api_version: &planned.item.version,
        kind: &planned.item.kind,
        namespace: &planned.namespace,
        name: &planned.name,
        allowed,
        code,
        reason: planned.decision.reason(),
        message: message(planned),
        warnings: warnings(planned).map(Warning::as_str).collect(),
        patch: &planned.patch,
        intents: intents.collect(),
        findings: findings.collect(),
        template: planned.unplayed.as_deref().filter(|path| !path.is_empty()),
        unknown: planned.doubt().filter(|_| planned.is_unknown()),
        fields: &planned.preview.fields,
    }
}

/// An entry of `plan -o patch`.
#[derive(Serialize)]
pub(super) struct Patched<'p> {
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

/// `plan -o patch`: the patches of the objects that are admitted.
pub(super) fn build_patches<'p>(planned: &'p [Planned<'_>]) -> Vec<Patched<'p>> {
    planned
        .iter()
        .filter(|planned| !matches!(planned.decision, Decision::Refuse(_)))
        .filter(|planned| planned.withheld.is_none())
        .map(|planned| Patched {
            object: Named {
                api_version: &planned.item.version,
                kind: &planned.item.kind,
                namespace: &planned.namespace,
                name: &planned.name,
            },
            patch: &planned.patch,
        })
        .collect()
}

/// The refusals and warnings of an object, for standard error beside output for programs.
pub(super) fn format_remarks(planned: &Planned<'_>) -> Vec<String> {
    let object = object(planned);
    let mut remarks = Vec::new();
    if let Decision::Refuse(refusal) = &planned.decision {
        let refusals = refusal.findings.iter().map(|finding| {
            let verdict = refused(planned, refusal);
            format!("{object}: {verdict}: {}: {finding}", finding.reason)
        });
        remarks.extend(refusals.map(|text| with_hint(text, planned)));
    }
    let doubt = planned.doubt().filter(|_| planned.is_unknown());
    remarks.extend(doubt.map(|doubt| format!("{object}: not known: {doubt}")));
    remarks.extend(planned.withheld.iter().map(|of| {
        format!(
            "{object}: not placed: the patch needs the UID of {of}: create that first, then plan \
             with --live"
        )
    }));
    remarks.extend(
        warnings(planned).map(|warning| format!("{object}: warning: {}", warning.as_str())),
    );
    remarks
}

/// The problem of a whole, for standard error beside output for programs.
pub(super) fn format_problem(whole: &Whole) -> Option<String> {
    let problem = whole.problem.as_ref()?;
    Some(format!("{} {}/{}: does not start: {problem}", whole.kind, whole.namespace, whole.name))
}

/// `plan -o text`: the plan for people.
pub(super) fn format_text(planned: &[Planned<'_>], wholes: &[Whole], others: usize) -> String {
    let mut text = String::new();
    for planned in planned {
        write_planned(planned, &mut text);
    }
    for Whole { kind, namespace, name, text: lines, .. } in wholes {
        text.push_str(&format!("{kind} {namespace}/{name}:\n"));
        for line in lines {
            text.push_str(&format!("  {line}\n"));
        }
    }
    if !planned.is_empty() {
        text.push('\n');
    }
    text.push_str(&counts(planned, others));
    text
}

fn write_planned(planned: &Planned<'_>, text: &mut String) {
    let Preview { verdict, text: below, .. } = &planned.preview;
    if let Some(verdict) = verdict {
        let verdict = match &planned.decision {
            Decision::Refuse(refusal) => {
                format!("refused ({}): one of its pods is refused", refusal.code())
            }
            Decision::Pass(pass @ (Pass::ExcludedNamespace | Pass::Ignored)) => {
                describe_pass(*pass)
            }
            _ => verdict.clone(),
        };
        text.push_str(&format!("{}: {verdict}\n{below}", object(planned)));
        text.extend(planned.doubt().map(|doubt| format!("  {doubt}\n")));
        return;
    }
    let verdict = match &planned.decision {
        Decision::Pass(Pass::Valid) if planned.preview.is_unready => "accepted".to_owned(),
        Decision::Pass(pass) => describe_pass(*pass),
        Decision::Admit(admission) if !admission.findings.is_empty() => {
            "admitted, not placed (the policy only warns)".to_owned()
        }
        Decision::Admit(admission) => {
            match (admission.patch.is_empty(), admission.intents.is_empty()) {
                (false, false) => "placed".to_owned(),
                (false, true) => {
                    "placed: nothing constrains its node, only its record changes".to_owned()
                }
                (true, false) => "unchanged: it has all of this".to_owned(),
                (true, true) if planned.preview.unknown.is_some() => {
                    "unchanged, as far as is known here".to_owned()
                }
                (true, true) => "unchanged: there is nothing to add".to_owned(),
            }
        }
        Decision::Refuse(refusal) => refused(planned, refusal),
        Decision::Wait { .. } => "waits".to_owned(),
    };
    let mut lines = vec![format!("{}: {verdict}", object(planned))];
    if let Decision::Admit(admission) = &planned.decision {
        let mark = if admission.patch.is_empty() { '=' } else { '+' };
        let mut why = "";
        for intent in &admission.intents {
            if intent.why != why {
                why = &intent.why;
                lines.push(format!("  {why}"));
            }
            lines.push(format!("    {mark} {}", intent.change));
        }
    }
    lines.extend(planned.preview.text.lines().map(ToOwned::to_owned));
    for finding in findings(&planned.decision) {
        lines.push(format!("  {}: {}: {}", finding.reason, finding.subject, finding.problem));
        lines.push(format!("    {}", finding.remedy));
    }
    lines.extend(planned.preview.unknown.iter().map(|unknown| format!("  {unknown}")));
    lines.extend(planned.hint.iter().map(|hint| format!("  {hint}")));
    // Without keys it is a pod like any other, whoever makes it.
    let doubt = planned.doubt().filter(|_| !matches!(planned.decision, Decision::Pass(_)));
    lines.extend(doubt.map(|doubt| format!("  {doubt}")));
    lines.extend(warnings(planned).map(|warning| format!("  warning: {}", warning.as_str())));
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
}

/// The verdict on a refused pod.
fn refused(planned: &Planned<'_>, refusal: &Refusal) -> String {
    let verdict = if planned.is_unknown() { "not known, refused as it is here" } else { "refused" };
    format!("{verdict} ({})", refusal.code())
}

fn describe_pass(pass: Pass) -> String {
    match pass {
        Pass::NoKeys => "unchanged: it asks for no placement".to_owned(),
        Pass::Valid => "accepted: it can be placed".to_owned(),
        Pass::Unchanged => "unchanged: its spec does not change".to_owned(),
        Pass::OutOfScope => "unchanged: neither a pod nor a claim is created".to_owned(),
        Pass::ExcludedNamespace => "left alone: the policy excludes its namespace".to_owned(),
        Pass::Ignored => {
            format!("left alone: it or its namespace has the label {IGNORE}: \"true\"")
        }
        Pass::MirrorPod => "left alone: a mirror pod is on its node already".to_owned(),
    }
}

/// `3 objects: 1 placed, 1 unchanged, 1 refused; 2 of other kinds`.
fn counts(planned: &[Planned<'_>], others: usize) -> String {
    let unknown = planned.iter().filter(|planned| planned.is_unknown()).count();
    let outcome = |words: &[&str]| {
        let known = planned.iter().filter(|planned| !planned.is_unknown());
        known.filter(|planned| words.contains(&planned.decision.outcome())).count()
    };
    let is_accepted =
        |planned: &&Planned<'_>| matches!(planned.decision, Decision::Pass(Pass::Valid));
    let accepted = planned.iter().filter(is_accepted).count();
    let parts: Vec<String> = [
        (outcome(&["placed"]), "placed"),
        (accepted, "accepted"),
        (outcome(&["unchanged", "passed"]) - accepted, "unchanged"),
        (outcome(&["unplaced"]), "admitted without placement"),
        (outcome(&["refused"]), "refused"),
        (unknown, "not known"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, word)| format!("{count} {word}"))
    .collect();
    let objects = match planned.len() {
        0 => "Nothing here makes pods".to_owned(),
        1 => "1 object".to_owned(),
        count => format!("{count} objects"),
    };
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    match others {
        0 => format!("{objects}{parts}\n"),
        others => format!("{objects}{parts}; {others} of other kinds\n"),
    }
}

fn object(planned: &Planned<'_>) -> String {
    let object = format!("{} {}/{}", planned.item.kind, planned.namespace, planned.name);
    match planned.unplayed.as_deref() {
        None | Some("" | "spec.template") => object,
        Some(path) => format!("{object}, {path}"),
    }
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

fn with_hint(text: String, planned: &Planned<'_>) -> String {
    match &planned.hint {
        Some(hint) => format!("{text} {hint}"),
        None => text,
    }
}

fn findings(decision: &Decision) -> &[Finding] {
    match decision {
        Decision::Refuse(refusal) => &refusal.findings,
        Decision::Admit(admission) => &admission.findings,
        _ => &[],
    }
}

fn warnings<'p>(planned: &'p Planned<'_>) -> impl Iterator<Item = &'p Warning> {
    let of_decision: &[Warning] = match &planned.decision {
        Decision::Refuse(refusal) => &refusal.warnings,
        Decision::Admit(admission) => &admission.warnings,
        _ => &[],
    };
    of_decision.iter().chain(&planned.misplaced)
}
