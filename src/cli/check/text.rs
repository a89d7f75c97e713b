//! Formats a diagnosis for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::namespace;
use crate::systems::check::words::counted;
use crate::systems::check::{Diagnosis, Obstacle};

/// Formats a diagnosis for people.
pub(super) fn format(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    match diagnosis.kind {
        namespace::KIND => write_namespace(&mut text, diagnosis),
        namespace::ALL => {
            for namespace in &diagnosis.parts {
                write_namespace(&mut text, namespace);
            }
            let waiting = diagnosis.parts.iter().filter(|part| part.has_obstacle()).count();
            let total = counted(diagnosis.parts.len(), "namespace");
            let _ = writeln!(text, "{total}, {waiting} with an obstacle");
        }
        _ => write(&mut text, diagnosis, "", false),
    }
    text
}

/// Writes a summary, then the objects with an obstacle; the others are only counted.
fn write_namespace(text: &mut String, diagnosis: &Diagnosis) {
    let (waiting, fine): (Vec<&Diagnosis>, Vec<&Diagnosis>) =
        diagnosis.parts.iter().partition(|part| part.has_obstacle());
    let summary = match (waiting.len(), fine.len()) {
        (0, 0) => "nothing to check".to_owned(),
        (waiting, fine) => {
            format!("{} with an obstacle, {fine} without", counted(waiting, "object"))
        }
    };
    let _ = writeln!(text, "Namespace {}: {summary}", diagnosis.name);
    for part in waiting {
        write(text, part, "  ", true);
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for part in fine {
        *counts.entry(part.kind).or_default() += 1;
    }
    let counts: Vec<String> =
        counts.into_iter().map(|(kind, count)| counted(count, kind)).collect();
    if !counts.is_empty() {
        let _ = writeln!(text, "  without an obstacle: {}", counts.join(", "));
    }
}

/// Writes a diagnosis and its parts, those with an obstacle first; `brief`: no others.
fn write(text: &mut String, diagnosis: &Diagnosis, indent: &str, brief: bool) {
    let Diagnosis { kind, namespace, name, .. } = diagnosis;
    let slash = if namespace.is_empty() { "" } else { "/" };
    let _ = writeln!(text, "{indent}{kind} {namespace}{slash}{name}");
    let mut row = |title: &str, rows: &[String]| {
        for (index, row) in rows.iter().enumerate() {
            let title = if index == 0 { title } else { "" };
            let _ = writeln!(text, "{indent}  {title:<10} {row}");
        }
    };
    row("placed", &diagnosis.placed);
    row("asked", &diagnosis.asked);
    row("decided", &diagnosis.decided);
    row("scheduler", diagnosis.scheduler.as_slice());
    row("autoscaler", diagnosis.autoscaler.as_slice());
    for Obstacle { what, remedy } in &diagnosis.obstacles {
        row("obstacle", std::slice::from_ref(what));
        if !remedy.is_empty() {
            row("remedy", std::slice::from_ref(remedy));
        }
    }
    // A part may wait for an obstacle that is reported elsewhere: "none" would mislead.
    let is_part = indent.len() > 2 || (!indent.is_empty() && !diagnosis.has_obstacle());
    let waits = is_part && diagnosis.kind == "Pod" && diagnosis.placed.is_empty();
    if !diagnosis.has_obstacle() && !waits {
        row("obstacle", &["none".to_owned()]);
    }
    let pods = diagnosis.parts.iter().filter(|part| part.kind == "Pod");
    let (total, waiting) = (pods.clone().count(), pods.filter(|pod| pod.has_obstacle()).count());
    if total > 1 {
        row("pods", &[format!("{total}, {waiting} with an obstacle")]);
    }
    let inner = format!("{indent}  ");
    let (waiting, fine): (Vec<&Diagnosis>, Vec<&Diagnosis>) =
        diagnosis.parts.iter().partition(|part| part.has_obstacle());
    let fine = fine.into_iter().filter(|_| !brief);
    for part in waiting.into_iter().chain(fine) {
        write(text, part, &inner, brief);
    }
}
