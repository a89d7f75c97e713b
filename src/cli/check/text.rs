//! Formats a diagnosis for people.

use std::collections::{BTreeMap, HashSet};

use anstyle::Style;
use serde_json::json;

use super::namespace;
use crate::cli::page::{BAD, GOOD, Page, Painter, REMEDY, TITLE, collapse, join_names, mask};
use stowplan_core::systems::check::words::{LISTED, counted};
use stowplan_core::systems::check::{Diagnosis, Obstacle};

/// Formats a diagnosis for people.
pub(super) fn format(diagnosis: &Diagnosis, painter: Painter) -> String {
    let mut page = Page::new(painter);
    match diagnosis.kind {
        namespace::KIND => write_namespace(&mut page, diagnosis),
        namespace::ALL => {
            for namespace in &diagnosis.parts {
                write_namespace(&mut page, namespace);
            }
            let waiting = diagnosis.parts.iter().filter(|part| part.has_obstacle()).count();
            let total = counted(diagnosis.parts.len(), "namespace");
            page.push(&format!("{total}, {waiting} with an obstacle\n"));
        }
        _ => write(&mut page, &[diagnosis], "", false),
    }
    page.as_str().to_owned()
}

/// Writes a summary, then the objects with an obstacle; the others are only counted.
fn write_namespace(page: &mut Page, diagnosis: &Diagnosis) {
    let (waiting, fine): (Vec<&Diagnosis>, Vec<&Diagnosis>) =
        diagnosis.parts.iter().partition(|part| part.has_obstacle());
    let summary = match (waiting.len(), fine.len()) {
        (0, 0) if diagnosis.obstacles.is_empty() => "nothing to check".to_owned(),
        (_, fine) => {
            let all = diagnosis.all().into_iter();
            let pods = all.filter(|of| of.kind == "Pod" && of.has_obstacle()).count();
            let of_parts = pods > waiting.iter().filter(|of| of.kind == "Pod").count();
            let pods =
                if of_parts { format!(" ({})", counted(pods, "pod")) } else { String::new() };
            let waiting = counted(waiting.len(), "object");
            format!("{waiting} with an obstacle{pods}, {fine} without")
        }
    };
    page.paint(TITLE, &format!("Namespace {}", diagnosis.name)).push(&format!(": {summary}\n"));
    write_obstacles(page, &[diagnosis], "");
    write_parts(page, &waiting, "  ", true);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for part in fine {
        *counts.entry(part.kind).or_default() += 1;
    }
    let counts: Vec<String> =
        counts.into_iter().map(|(kind, count)| counted(count, kind)).collect();
    if !counts.is_empty() {
        page.push(&format!("  without an obstacle: {}\n", counts.join(", ")));
    }
}

/// Writes diagnoses, each of those that are equal but for the names once.
fn write_parts(page: &mut Page, parts: &[&Diagnosis], indent: &str, brief: bool) {
    for block in collapse(parts.iter().map(|part| (describe(part), *part))) {
        write(page, &block, indent, brief);
    }
}

/// Returns all of a diagnosis by which it may differ from others: not the time of the scheduler's message, nor its
/// name, node and hostname, each of which has a mark of its own. Where one word means two of them, the texts
/// stay: it is not known which one they mean.
fn describe(diagnosis: &Diagnosis) -> String {
    let mut value = json!(diagnosis);
    if let Some((_, message)) = diagnosis.scheduler.as_ref().and_then(|says| says.split_once(": "))
    {
        value["scheduler"] = message.into();
    }
    let Diagnosis { name, node, hostname, placed, .. } = diagnosis;
    let hostname = hostname.as_ref().filter(|hostname| *hostname != name);
    let is_ambiguous =
        placed.contains(&format!("node {name}")) || (node.is_some() && hostname == node.as_ref());
    let marks = [(Some(name), '\0'), (node.as_ref(), '\u{1}'), (hostname, '\u{2}')];
    let marks = marks.into_iter().filter(|_| !is_ambiguous);
    let marks = marks.filter_map(|(name, mark)| Some((name?, mark)));
    marks.fold(value.to_string(), |text, (name, mark)| mask(&text, name, mark))
}

/// Writes rows with a title in front of the first.
fn write_rows(page: &mut Page, indent: &str, title: &str, rows: &[String]) {
    for (index, row) in rows.iter().enumerate() {
        let title = if index == 0 { title } else { "" };
        page.push(&format!("{indent}  {title:<10} {row}\n"));
    }
}

/// Writes the obstacles of diagnoses that are equal but for the names.
fn write_obstacles(page: &mut Page, block: &[&Diagnosis], indent: &str) {
    for index in 0..block[0].obstacles.len() {
        let obstacles = || block.iter().filter_map(|of| of.obstacles.get(index));
        let whats = obstacles().map(|Obstacle { what, .. }| what.as_str());
        write_each(page, indent, ("obstacle", BAD), whats);
        let remedies = obstacles().map(|Obstacle { remedy, .. }| remedy.as_str());
        write_each(page, indent, ("remedy", REMEDY), remedies);
    }
}

/// Writes texts below each other with a title in front of the first: each once, and no empty ones.
fn write_each<'t>(
    page: &mut Page,
    indent: &str,
    (title, style): (&str, Style),
    texts: impl Iterator<Item = &'t str>,
) {
    let mut seen = HashSet::new();
    let texts: Vec<&str> = texts.filter(|of| !of.is_empty() && seen.insert(*of)).collect();
    for (index, text) in texts.iter().take(LISTED).enumerate() {
        let title = if index == 0 { title } else { "" };
        page.push(indent).paint(style, &format!("  {title:<10} {text}")).push("\n");
    }
    if let more @ 1.. = texts.len().saturating_sub(LISTED) {
        write_rows(page, indent, "", &[format!("and {more} more (-o json shows all)")]);
    }
}

/// Writes diagnoses that are equal but for the names, and the parts of the first: those with an obstacle before the
/// others; `brief`: no others.
fn write(page: &mut Page, block: &[&Diagnosis], indent: &str, brief: bool) {
    let diagnosis = block[0];
    let Diagnosis { kind, namespace, .. } = diagnosis;
    let slash = if namespace.is_empty() { "" } else { "/" };
    let name = |of: &&Diagnosis| match &of.node {
        Some(node) if block.len() > 1 => format!("{} ({node})", of.name),
        _ => of.name.clone(),
    };
    let names = join_names(&block.iter().map(name).collect::<Vec<_>>());
    page.push(indent).paint(TITLE, &format!("{kind} {namespace}{slash}{names}")).push("\n");
    // The names of several have their nodes.
    if diagnosis.node.is_none() || block.len() == 1 {
        write_rows(page, indent, "placed", &diagnosis.placed);
    }
    write_rows(page, indent, "asked", &diagnosis.asked);
    write_rows(page, indent, "decided", &diagnosis.decided);
    write_rows(page, indent, "scheduler", diagnosis.scheduler.as_slice());
    write_rows(page, indent, "autoscaler", diagnosis.autoscaler.as_slice());
    write_obstacles(page, block, indent);
    // A part may wait for an obstacle that is reported elsewhere: "none" would mislead.
    let is_part = indent.len() > 2 || (!indent.is_empty() && !diagnosis.has_obstacle());
    let waits = is_part && diagnosis.kind == "Pod" && diagnosis.placed.is_empty();
    if !diagnosis.has_obstacle() && !waits {
        page.push(indent).paint(GOOD, &format!("  {:<10} none", "obstacle")).push("\n");
    }
    let pods = diagnosis.parts.iter().filter(|part| part.kind == "Pod");
    let (total, waiting) = (pods.clone().count(), pods.filter(|pod| pod.has_obstacle()).count());
    if total > 1 {
        write_rows(page, indent, "pods", &[format!("{total}, {waiting} with an obstacle")]);
    }
    let inner = format!("{indent}  ");
    let (waiting, fine): (Vec<&Diagnosis>, Vec<&Diagnosis>) =
        diagnosis.parts.iter().partition(|part| part.has_obstacle());
    write_parts(page, &waiting, &inner, brief);
    if !brief {
        write_parts(page, &fine, &inner, brief);
    }
}
