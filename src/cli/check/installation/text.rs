//! Formats the lines about an installation for people.

use std::fmt::Write as _;

use super::Report;
use crate::systems::check::installation::State;
use crate::systems::check::words::counted;

/// Formats a report: a line for each finding, with its remedy below, and the counts.
pub(super) fn format(report: &Report) -> String {
    let mut text = String::new();
    for item in &report.items {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{:<8} {:<22} {}", word(item.state), item.name, item.message);
        if !item.remedy.is_empty() {
            let _ = writeln!(text, "{:<8} {:<22} -> {}", "", "", item.remedy);
        }
    }
    let count = |state| report.items.iter().filter(|item| item.state == state).count();
    let _ = writeln!(
        text,
        "{}, {}, {} unknown",
        counted(count(State::Problem), "problem"),
        counted(count(State::Warning), "warning"),
        count(State::Unknown)
    );
    text
}

fn word(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Unknown => "unknown",
        State::Warning => "warning",
        State::Problem => "problem",
    }
}
