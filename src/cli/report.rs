//! Formats a plan, for people and for programs.

use std::collections::HashSet;

use anstyle::Style;
use serde::Serialize;
use serde_json::{Map, Value};

use super::input::Item;
use super::page::{BAD, DOUBT, GOOD, Page, Painter, REMEDY, TITLE, collapse, join_names, mask};
use stowplan_core::admission::{Decision, Pass, Refusal};
use stowplan_core::placement::reason::{Finding, Warning};
use stowplan_core::systems::VALIDATIONS;
use stowplan_core::systems::check::words::counted;
use stowplan_core::systems::exclusion::IGNORE;
use stowplan_core::systems::preview::{Preview, Whole};
use stowplan_core::view::resource::Resource;

/// An object and the decision on its pods.
pub(super) struct Planned<'d> {
    pub(super) item: Item<'d>,
    pub(super) namespace: String,
    /// Its name, or one that the API server could generate.
    pub(super) name: String,
    pub(super) decision: Decision,
    /// The operations that change the object, or the template in it.
    pub(super) patch: Vec<Value>,
    /// The preview of its system, for an object that is not a pod.
    pub(super) preview: Preview,
    /// Warnings about keys on the object that have an effect only on its pods.
    pub(super) misplaced: Vec<Warning>,
    /// The part of the cluster that is not known and could change the decision.
    pub(super) hint: Option<String>,
    /// The object whose UID the patch needs and which does not exist yet. The patch is left out.
    pub(super) withheld: Option<String>,
    /// The index of its document in the input.
    pub(super) document: usize,
    /// The path to the template in an object whose controller is not played; empty: none was found.
    pub(super) unplayed: Option<String>,
    /// The claim that is planned, of those that a StatefulSet creates; `None`: a pod is.
    pub(super) claim: Option<String>,
}

impl<'d> Planned<'d> {
    /// The plan of an object with this decision, and nothing beside it.
    pub(super) fn new(
        document: usize,
        item: &Item<'d>,
        namespace: String,
        name: String,
        decision: Decision,
    ) -> Self {
        Self {
            item: item.clone(),
            namespace,
            name,
            decision,
            patch: Vec::new(),
            preview: Preview::default(),
            misplaced: Vec::new(),
            hint: None,
            withheld: None,
            document,
            unplayed: None,
            claim: None,
        }
    }

    /// Returns true if the webhook's answer is not known: the controller may add what is missing.
    pub(super) fn is_unknown(&self) -> bool {
        let is_answered = !matches!(self.decision, Decision::Refuse(_));
        self.unplayed.as_ref().is_some_and(|path| path.is_empty() || !is_answered)
    }

    /// Returns true for an object of stowplan's own that can be served, perhaps with a warning.
    fn is_accepted(&self) -> bool {
        let is_own = |of: &Resource| of.kind == self.item.kind && of.group == self.item.group();
        match &self.decision {
            Decision::Pass(pass) => *pass == Pass::Valid,
            Decision::Admit(of) if of.findings.is_empty() => {
                VALIDATIONS.iter().any(|validation| is_own(&validation.resource))
            }
            _ => false,
        }
    }

    /// Returns true if its pod would be admitted by this plan, and waits.
    fn waits_now(&self) -> bool {
        self.preview.waits.is_some() && self.decision.outcome() == "placed" && !self.is_unknown()
    }

    /// The path to the template among those of the object; `None`: it is where it always is.
    fn path(&self) -> Option<&str> {
        self.unplayed.as_deref().filter(|path| !matches!(*path, "" | "spec.template"))
    }

    /// Explains why the answer is not known, or may be another one, and what to do.
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
pub(super) fn build_patches<'p>(planned: &'p [Planned<'_>]) -> Vec<Patched<'p>> {
    planned
        .iter()
        .filter(|planned| !matches!(planned.decision, Decision::Refuse(_)))
        .filter(|planned| planned.withheld.is_none())
        .map(|planned| Patched { object: Named::new(planned), patch: &planned.patch })
        .collect()
}

/// The refusals and warnings of an object, for standard error beside output for programs.
pub(super) fn format_remarks(planned: &Planned<'_>) -> Vec<String> {
    let object = object(planned, &planned.name);
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

/// `plan -o text`: the plan for people. Objects of one kind with equal plans are put together.
pub(super) fn format_text(
    planned: &[Planned<'_>],
    wholes: &[Whole],
    others: usize,
    painter: Painter,
) -> String {
    let mut page = Page::new(painter);
    let blocks = planned.iter().map(|planned| {
        let (verdict, style) = judge(planned);
        let mut body = Page::new(painter);
        body.push(": ").paint(style, &verdict).push("\n");
        write_body(planned, &mut body);
        let (kind, namespace) = (&planned.item.kind, &planned.namespace);
        // A path is of one object.
        let path = planned.path().map(|path| format!("{} {path}", planned.name));
        let text = format!("{kind} {namespace} {}{}", path.unwrap_or_default(), body.as_str());
        (mask(&text, &planned.name, '\0'), (planned, body))
    });
    for block in collapse(blocks) {
        let names: Vec<&str> = block.iter().map(|(planned, _)| &*planned.name).collect();
        let (planned, body) = &block[0];
        page.paint(TITLE, &object(planned, &join_names(&names))).append(body);
    }
    for Whole { kind, namespace, name, text, problem, .. } in wholes {
        page.paint(TITLE, &format!("{kind} {namespace}/{name}")).push(":\n");
        for (index, line) in text.iter().enumerate() {
            match problem {
                Some(_) if index == 0 => page.push("  ").paint(BAD, line).push("\n"),
                _ => page.line(&format!("  {line}")),
            };
        }
    }
    if !planned.is_empty() {
        page.push("\n");
    }
    page.push(&counts(planned, others));
    page.as_str().to_owned()
}

/// The decision on an object in a few words, and their style.
fn judge(planned: &Planned<'_>) -> (String, Style) {
    let verdict = planned.preview.verdict.as_ref();
    match &planned.decision {
        Decision::Refuse(refusal) if verdict.is_some() => {
            (format!("refused ({}): one of its pods is refused", refusal.code()), BAD)
        }
        Decision::Refuse(refusal) if planned.is_unknown() => (refused(planned, refusal), DOUBT),
        Decision::Refuse(refusal) => (refused(planned, refusal), BAD),
        Decision::Pass(pass @ (Pass::ExcludedNamespace | Pass::Ignored)) => {
            (describe_pass(*pass), Style::new())
        }
        decision => {
            let style = match decision {
                _ if planned.is_unknown() => DOUBT,
                Decision::Admit(_) | Decision::Pass(Pass::Valid) => GOOD,
                _ => Style::new(),
            };
            match verdict {
                Some(verdict) => (verdict.clone(), style),
                None => judge_pod(planned, style),
            }
        }
    }
}

/// The decision on a pod that is not refused. `style` is that of one which gets what it asks for.
fn judge_pod(planned: &Planned<'_>, style: Style) -> (String, Style) {
    let verdict = match &planned.decision {
        _ if planned.is_accepted() && planned.preview.is_unready => "accepted".to_owned(),
        _ if planned.is_accepted() => describe_pass(Pass::Valid),
        Decision::Pass(pass) => describe_pass(*pass),
        Decision::Admit(admission) if !admission.findings.is_empty() => {
            return ("admitted, not placed (the policy only warns)".to_owned(), DOUBT);
        }
        Decision::Admit(admission) => {
            let verdict = match (admission.patch.is_empty(), admission.intents.is_empty()) {
                (false, false) if planned.preview.waits.is_some() => "admitted",
                (false, false) => "placed",
                (false, true) => "placed: nothing constrains its node, only its record changes",
                (true, false) => "unchanged: it has all of this",
                (true, true) if planned.preview.unknown.is_some() => {
                    "unchanged, as far as is known here"
                }
                (true, true) => "unchanged: there is nothing to add",
            };
            if let Some(why) = &planned.preview.waits {
                return (format!("{verdict}, waits: {why}"), DOUBT);
            }
            verdict.to_owned()
        }
        _ => "waits".to_owned(),
    };
    (verdict, style)
}

/// Writes what is below the line that names the object.
fn write_body(planned: &Planned<'_>, page: &mut Page) {
    let Preview { verdict, text: below, .. } = &planned.preview;
    let of_pod = verdict.is_none();
    if let (true, Decision::Admit(admission)) = (of_pod, &planned.decision) {
        let mark = if admission.patch.is_empty() { '=' } else { '+' };
        let mut why = "";
        for intent in &admission.intents {
            if intent.why != why {
                why = &intent.why;
                page.push(&format!("  {why}\n"));
            }
            page.push(&format!("    {mark} {}\n", intent.change));
        }
    }
    below.lines().for_each(|line| {
        page.line(line);
    });
    // Without keys it is a pod like any other, whoever makes it.
    let is_doubted = !of_pod || !matches!(planned.decision, Decision::Pass(_));
    let doubt = planned.doubt().filter(|_| is_doubted);
    if of_pod {
        for finding in findings(&planned.decision) {
            let problem = format!("{}: {}: {}", finding.reason, finding.subject, finding.problem);
            page.push("  ").paint(BAD, &problem).push("\n");
            page.push("    ").paint(REMEDY, &finding.remedy).push("\n");
        }
        let notes = planned.preview.unknown.iter().chain(&planned.hint);
        notes.for_each(|note| {
            page.push(&format!("  {note}\n"));
        });
    }
    if let Some(doubt) = doubt {
        page.push("  ").paint(DOUBT, &doubt).push("\n");
    }
    if of_pod {
        warnings(planned).for_each(|warning| {
            page.line(&format!("  warning: {}", warning.as_str()));
        });
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

/// `3 objects: 1 placed, 1 unchanged, 1 refused; 2 of other kinds`. An object may have several parts: templates
/// of pods and of claims.
fn counts(planned: &[Planned<'_>], others: usize) -> String {
    let unknown = planned.iter().filter(|planned| planned.is_unknown()).count();
    let outcome = |words: &[&str]| {
        let known = planned.iter().filter(|planned| !planned.is_unknown());
        known.filter(|planned| words.contains(&planned.decision.outcome())).count()
    };
    let accepted = planned.iter().filter(|planned| planned.is_accepted()).count();
    let waits = planned.iter().filter(|planned| planned.waits_now()).count();
    let parts: Vec<String> = [
        (outcome(&["placed"]) - waits, "placed"),
        (waits, "admitted, waiting"),
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
    let of_input = planned.iter().map(|planned| (planned.document, &planned.item.pointer));
    let objects = match (of_input.collect::<HashSet<_>>().len(), planned.len()) {
        (0, _) => "Nothing here makes pods".to_owned(),
        (objects, plans) if objects == plans => counted(objects, "object"),
        (objects, parts) => format!("{} in {parts} parts", counted(objects, "object")),
    };
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    match others {
        0 => format!("{objects}{parts}\n"),
        others => format!("{objects}{parts}; {others} of other kinds\n"),
    }
}

/// Names an object, or several of its kind.
fn object(planned: &Planned<'_>, names: &str) -> String {
    let object = format!("{} {}/{names}", planned.item.kind, planned.namespace);
    match (&planned.claim, planned.path()) {
        (Some(claim), _) => format!("{object}, claim {claim}"),
        (None, Some(path)) => format!("{object}, {path}"),
        (None, None) => object,
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
