//! A plan for people.

use std::collections::HashSet;

use anstyle::Style;

use super::{Planned, object, parts, refused, warnings};
use crate::cli::page::{
    BAD, DOUBT, GOOD, Page, Painter, REMEDY, TITLE, collapse, join_names, mask,
};
use stowplan_core::admission::{Decision, Pass};
use stowplan_core::systems::check::words::counted;
use stowplan_core::systems::exclusion::IGNORE;
use stowplan_core::systems::preview::{Preview, Whole};

/// `plan -o text`: the plan for people. Objects of one kind with equal plans are put together.
pub(in crate::cli) fn format(
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
    let style = match &planned.decision {
        _ if planned.is_unknown() => DOUBT,
        Decision::Refuse(_) => BAD,
        Decision::Admit(_) | Decision::Pass(Pass::Valid) => GOOD,
        _ => Style::new(),
    };
    match (&planned.decision, &planned.preview.verdict) {
        (Decision::Refuse(refusal), Some(_)) => {
            (format!("refused ({}): one of its pods is refused", refusal.code()), BAD)
        }
        (Decision::Refuse(refusal), None) => (refused(planned, refusal), style),
        (Decision::Pass(pass @ (Pass::ExcludedNamespace | Pass::Ignored)), _) => {
            (describe_pass(*pass), Style::new())
        }
        (_, Some(verdict)) => (verdict.clone(), style),
        (_, None) => judge_pod(planned, style),
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
        for finding in parts(&planned.decision).1 {
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
