//! Formats a diagnosis for people.

use std::collections::{BTreeMap, HashMap};

use serde_json::json;

use super::namespace;
use crate::cli::page::{BAD, GOOD, Page, Painter, REMEDY, TITLE, collapse, join_names, mask};
use crate::systems::check::words::counted;
use crate::systems::check::{Diagnosis, Obstacle};

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
        _ => write(&mut page, diagnosis, &diagnosis.name, "", false),
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
    write_obstacles(page, diagnosis, "");
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
    let node = |part: &&Diagnosis| Some((part.name.clone(), part.node.clone()?));
    let nodes: HashMap<String, String> = parts.iter().filter_map(node).collect();
    let parts = parts.iter().map(|part| (part.name.clone(), describe(part), *part));
    for (mut names, part) in collapse(parts) {
        if names.len() > 1 {
            for name in &mut names {
                if let Some(node) = nodes.get(name) {
                    *name = format!("{name} ({node})");
                }
            }
        }
        write(page, part, &join_names(&names), indent, brief);
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

fn write_obstacles(page: &mut Page, diagnosis: &Diagnosis, indent: &str) {
    for Obstacle { what, remedy } in &diagnosis.obstacles {
        page.push(indent).paint(BAD, &format!("  {:<10} {what}", "obstacle")).push("\n");
        if !remedy.is_empty() {
            page.push(indent).paint(REMEDY, &format!("  {:<10} {remedy}", "remedy")).push("\n");
        }
    }
}

/// Writes a diagnosis and its parts, those with an obstacle first; `brief`: no others. `names` are
/// those of the object and of all that are equal.
fn write(page: &mut Page, diagnosis: &Diagnosis, names: &str, indent: &str, brief: bool) {
    let Diagnosis { kind, namespace, .. } = diagnosis;
    let slash = if namespace.is_empty() { "" } else { "/" };
    page.push(indent).paint(TITLE, &format!("{kind} {namespace}{slash}{names}")).push("\n");
    // The names of several have their nodes.
    if diagnosis.node.is_none() || *names == diagnosis.name {
        write_rows(page, indent, "placed", &diagnosis.placed);
    }
    write_rows(page, indent, "asked", &diagnosis.asked);
    write_rows(page, indent, "decided", &diagnosis.decided);
    write_rows(page, indent, "scheduler", diagnosis.scheduler.as_slice());
    write_rows(page, indent, "autoscaler", diagnosis.autoscaler.as_slice());
    write_obstacles(page, diagnosis, indent);
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
