//! Formats the lines about an installation for people.

use anstyle::Style;

use super::Report;
use crate::cli::page::{BAD, DOUBT, GOOD, Page, Painter, REMEDY};
use stowplan_core::systems::check::installation::State;
use stowplan_core::systems::check::words::counted;

/// Formats a report: a line for each finding, with its remedy below, and the counts.
pub(super) fn format(report: &Report, painter: Painter) -> String {
    let mut page = Page::new(painter);
    for item in &report.items {
        let (word, style) = look(item.state);
        page.paint(style, &format!("{word:<8}"));
        page.push(&format!(" {:<22} {}\n", item.name, item.message));
        if !item.remedy.is_empty() {
            page.push(&format!("{:<8} {:<22} ", "", ""));
            page.paint(REMEDY, &format!("-> {}", item.remedy)).push("\n");
        }
    }
    let count = |state| report.items.iter().filter(|item| item.state == state).count();
    page.push(&format!(
        "{}, {}, {} unknown\n",
        counted(count(State::Problem), "problem"),
        counted(count(State::Warning), "warning"),
        count(State::Unknown)
    ));
    page.as_str().to_owned()
}

/// The word for a state, and its style.
fn look(state: State) -> (&'static str, Style) {
    match state {
        State::Ok => ("ok", GOOD),
        State::Unknown => ("unknown", DOUBT),
        State::Warning => ("warning", DOUBT),
        State::Problem => ("problem", BAD),
    }
}
