//! Workflows that a forge would refuse, or that would be dangerous on it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::chart::helm::texts;
use crate::documents::{ROOT, files, read};

struct Workflow {
    name: String,
    text: String,
    value: Value,
}

fn workflows() -> Vec<Workflow> {
    let files = files(&Path::new(ROOT).join(".github/workflows"), "yml").into_iter();
    let workflows = files.map(|(path, text)| Workflow {
        name: path.file_name().unwrap().to_str().unwrap().to_owned(),
        value: serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}")),
        text,
    });
    workflows.collect()
}

/// The jobs of all workflows, each with its place in messages.
fn jobs(workflows: &[Workflow]) -> Vec<(String, &str, &Value)> {
    let mut found = Vec::new();
    for Workflow { name, value, .. } in workflows {
        let jobs = value["jobs"].as_object().unwrap().iter();
        found.extend(jobs.map(|(id, job)| (format!("{name}: {id}"), &**id, job)));
    }
    assert!(found.len() > 5, "{} jobs", found.len());
    found
}

fn steps(job: &Value) -> impl Iterator<Item = &Value> {
    job["steps"].as_array().into_iter().flatten()
}

fn runs(job: &Value) -> impl Iterator<Item = &str> {
    steps(job).filter_map(|step| step["run"].as_str())
}

#[test]
fn every_job_names_its_permissions_and_only_those_that_publish_may_write() {
    let workflows = workflows();
    for workflow in &workflows {
        // Of a job that would name none.
        assert_eq!(workflow.value["permissions"], json!({}), "{}", workflow.name);
    }
    let mut writers = BTreeMap::new();
    for (place, id, job) in jobs(&workflows) {
        let permissions = job["permissions"].as_object();
        let permissions = permissions.unwrap_or_else(|| panic!("{place}: permissions"));
        assert!(permissions.values().all(|it| it == "read" || it == "write"), "{place}");
        let written = permissions.iter().filter(|(_, access)| *access == "write");
        let mut written: Vec<&str> = written.map(|(scope, _)| &**scope).collect();
        if !written.is_empty() {
            for run in runs(job) {
                // What is compiled could be replaced by what it is compiled from.
                assert!(!run.contains("cargo") && !run.contains("go "), "{place}: {run}");
            }
            written.sort_unstable();
            writers.insert(id, written.join(" "));
        }
    }
    let wanted = [
        ("publish-chart", "attestations id-token packages"),
        ("publish-files", "attestations contents id-token"),
        ("publish-image", "attestations id-token packages"),
        ("publish-site", "id-token pages"),
    ];
    assert_eq!(writers, wanted.map(|(id, scopes)| (id, scopes.to_owned())).into());
}

/// The jobs that a job waits for: a list, or the name of one.
fn needs(job: &Value) -> Vec<&str> {
    job["needs"].as_str().map_or_else(|| texts(&job["needs"]), |one| vec![one])
}

#[test]
fn nothing_is_published_before_all_checks() {
    let workflows = workflows();
    let release = workflows.iter().find(|it| it.name == "release.yml").unwrap();
    let jobs = release.value["jobs"].as_object().unwrap();
    for (id, job) in jobs {
        let needs = needs(job);
        assert!(needs.iter().all(|other| jobs.contains_key(*other)), "{id} needs {needs:?}");
        assert!(id == "check" || needs.contains(&"check"), "{id} starts before the tag is checked");
    }
    assert!(needs(&jobs["publish-image"]).contains(&"checks"));
    assert!(needs(&jobs["files"]).contains(&"publish-image"));
    assert!(needs(&jobs["publish-chart"]).contains(&"files"));
    assert!(needs(&jobs["publish-files"]).contains(&"publish-chart"));
    assert_eq!(jobs["checks"]["uses"], "./.github/workflows/checks.yml");
}

#[test]
fn every_action_is_pinned_by_its_commit() {
    let mut pins = BTreeMap::new();
    for Workflow { name, text, .. } in workflows() {
        for line in text.lines() {
            let line = line.trim().trim_start_matches("- ");
            let Some(used) = line.strip_prefix("uses: ") else { continue };
            if let Some(path) = used.strip_prefix("./") {
                assert!(Path::new(ROOT).join(path).exists(), "{name}: {used}");
                continue;
            }
            let (action, pin) = used.split_once('@').unwrap_or_else(|| panic!("{name}: {used}"));
            let (commit, version) = pin.split_once(" # v").unwrap_or_default();
            let is_commit = commit.len() == 40
                && commit.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            assert!(is_commit, "{name}: {used}: pin it by commit, with its version behind it");
            assert_eq!(version.split('.').count(), 3, "{name}: {used}");
            let first = pins.entry(action.to_owned()).or_insert_with(|| pin.to_owned());
            assert_eq!(first, pin, "{action} is pinned twice");
        }
    }
    assert!(pins.len() > 4, "{pins:?}");
}

#[test]
fn no_step_keeps_a_credential_or_runs_text_of_an_event() {
    let workflows = workflows();
    for Workflow { name, text, value } in &workflows {
        assert_eq!(value["defaults"]["run"]["shell"], "bash", "{name}: no pipefail");
        assert!(!text.contains("pull_request_target"), "{name}");
    }
    let mut checkouts = 0;
    for (place, _, job) in jobs(&workflows) {
        let is_checkout = |step: &&Value| {
            step["uses"].as_str().is_some_and(|uses| uses.starts_with("actions/checkout@"))
        };
        for step in steps(job).filter(is_checkout) {
            assert_eq!(step["with"]["persist-credentials"], false, "{place}");
            checkouts += 1;
        }
        for run in runs(job) {
            // A tag or the title of a pull request could be a command: by the environment.
            assert!(!run.contains("${{"), "{place}: {run}");
        }
        assert_eq!(job["uses"].is_null(), job["timeout-minutes"].is_u64(), "{place}");
    }
    assert!(checkouts > 5);
}

#[test]
fn every_command_of_the_workflows_exists() {
    let workflows = workflows();
    let release = read(".ci/release");
    let aliases: toml::Table = toml::from_str(&read(".cargo/config.toml")).unwrap();
    let jobs = jobs(&workflows);
    let runs = jobs.iter().flat_map(|(_, _, job)| runs(job));
    let mut commands: Vec<&str> = runs.flat_map(str::lines).collect();
    let mut own = 0;
    for line in &commands {
        let words: Vec<&str> = line.split([' ', '(', ')']).chain([""]).collect();
        for pair in words.windows(2).filter(|pair| pair[0].starts_with(".ci/")) {
            let file = fs::metadata(Path::new(ROOT).join(pair[0]));
            let file = file.unwrap_or_else(|error| panic!("{line}: {error}"));
            assert!(file.permissions().mode() & 0o111 != 0, "{line}: it is not executable");
            let is_step = release.contains(&format!("\n  {}:", pair[1]));
            assert!(pair[0] != ".ci/release" || is_step, "{line}: no such step");
            own += 1;
        }
    }
    assert!(own >= 6, "{own}");

    // The steps of a release call cargo too; it has these, or an alias, or a job installs it.
    commands.extend(release.lines().filter(|line| !line.trim().starts_with('#')));
    let mut called = BTreeSet::new();
    for line in &commands {
        let words: Vec<&str> = line.split([' ', '`']).filter(|word| !word.is_empty()).collect();
        called.extend(words.windows(2).filter(|pair| pair[0] == "cargo").map(|pair| pair[1]));
    }
    assert!(called.contains("testbed") && called.contains("deny"), "{called:?}");
    for command in called {
        let install = format!("cargo install --locked cargo-{command}@");
        let is_known = ["build", "install", "test", "update"].contains(&command)
            || aliases["alias"].get(command).is_some()
            || commands.iter().any(|line| line.starts_with(&install));
        assert!(is_known, "cargo has no command {command}");
    }
}
