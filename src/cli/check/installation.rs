//! `stowplan check` without an object: whether stowplan is installed well.
//!
//! [`read`] reads the installation into [`facts`]; the other modules are functions from these facts to
//! lines, each with a state and a remedy.

mod certificate;
mod definitions;
mod facts;
mod processes;
mod read;
pub(crate) mod rights;
#[cfg(test)]
mod tests;
mod text;
mod trial;
mod webhooks;

use std::process::ExitCode;
use std::time::Duration;

use kube::Client;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::{Arguments, Format};
use crate::cli::page::Painter;
use crate::cli::progress::Progress;
use crate::cli::{block_on, print, print_notice};
use facts::Facts;
use stowplan_core::systems::check::installation::{Installed, Item, State};
use stowplan_core::systems::{DIAGNOSTICS, Diagnostics};

/// The time between two looks.
const PAUSE: Duration = Duration::from_secs(2);

/// The lines about an installation.
#[derive(Debug, Serialize)]
struct Report {
    kind: &'static str,
    /// Where stowplan is installed.
    namespace: Option<String>,
    items: Vec<Item>,
}

impl Report {
    fn has_problem(&self) -> bool {
        self.items.iter().any(|item| item.state == State::Problem)
    }
}

/// Checks the installation, prints the report, and returns the exit code.
///
/// # Errors
/// There is no usable cluster, or it is not known where to look.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    // While it waits it says itself what it waits for.
    let time = arguments.wait.unwrap_or_default();
    let progress = time.is_zero().then(|| Progress::begin("checking the installation"));
    let report = block_on(async {
        let client = arguments.access.connect().await?.client;
        wait(&client, arguments, time).await
    })??;
    drop(progress);
    let output = match arguments.output {
        Format::Text => text::format(&report, Painter::of_stdout()),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&report)?),
    };
    print(&output)?;
    Ok(if report.has_problem() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Looks until there is no problem, or until the time is over.
async fn wait(client: &Client, arguments: &Arguments, time: Duration) -> anyhow::Result<Report> {
    let end = Instant::now() + time;
    let mut last = String::new();
    loop {
        let report = read::read(client, arguments).await.map(|facts| diagnose(&facts));
        let is_over = Instant::now() + PAUSE >= end;
        let problem = match report {
            Ok(report) if is_over || !report.has_problem() => return Ok(report),
            Err(error) if is_over => return Err(error),
            Ok(report) => {
                let mut items = report.items.into_iter();
                let problem = items.find(|item| item.state == State::Problem);
                problem.map(|item| format!("{}: {}", item.name, item.message)).unwrap_or_default()
            }
            Err(error) => error.to_string(),
        };
        if last != problem {
            print_notice(&format!("not yet: {problem}"));
            last = problem;
        }
        sleep(PAUSE).await;
    }
}

/// Returns the lines about an installation.
fn diagnose(facts: &Facts) -> Report {
    let policy = processes::find_policy(facts);
    let mut items = webhooks::check(facts, &policy);
    items.extend(webhooks::check_service(facts));
    items.extend(certificate::check(facts));
    items.extend(processes::check_policy(facts));
    items.extend(processes::check_versions(facts));
    items.extend(definitions::check(facts));
    items.extend(processes::check_controller(facts));
    for Diagnostics { system, installation, .. } in DIAGNOSTICS {
        let Some(check) = installation.check else { continue };
        let settings = match facts.settings.get(system.name) {
            Some(Ok(settings)) => Ok(settings.as_ref()),
            Some(Err(unread)) => Err(unread.to_string()),
            None => Ok(None),
        };
        let installed = Installed {
            definitions: facts.definitions.as_deref().ok(),
            settings: settings.as_ref().map(|of| *of).map_err(String::as_str),
            policy: &policy,
        };
        items.extend(check(&installed));
    }
    items.extend(rights::check(facts));
    items.extend(trial::check(facts));
    items.extend(rights::check_own(facts));
    Report { kind: "Installation", namespace: facts.namespace.clone(), items }
}
