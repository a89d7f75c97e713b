//! What a forge would refuse, or what would be dangerous on it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use super::{ROOT, read};

struct Workflow {
    name: String,
    text: String,
    value: Value,
}

fn workflows() -> Vec<Workflow> {
    let folder = Path::new(ROOT).join(".github/workflows");
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["checks.yml", "pages.yml", "release.yml"]);
    names
        .into_iter()
        .map(|name| {
            let text = read(&format!(".github/workflows/{name}"));
            let value =
                serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            Workflow { name, text, value }
        })
        .collect()
}

impl Workflow {
    fn jobs(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.value["jobs"].as_object().unwrap().iter()
    }
}

fn steps(job: &Value) -> impl Iterator<Item = &Value> {
    job["steps"].as_array().into_iter().flatten()
}

fn runs(job: &Value) -> impl Iterator<Item = &str> {
    steps(job).filter_map(|step| step["run"].as_str())
}

#[test]
fn every_job_names_its_permissions_and_only_those_that_publish_may_write() {
    let mut writers = BTreeMap::new();
    for workflow in workflows() {
        let name = &workflow.name;
        // Of a job that would name none.
        assert_eq!(workflow.value["permissions"], json!({}), "{name}");
        for (id, job) in workflow.jobs() {
            let permissions = job["permissions"].as_object();
            let permissions = permissions.unwrap_or_else(|| panic!("{name}: {id}: permissions"));
            let mut written = Vec::new();
            for (scope, access) in permissions {
                match access.as_str() {
                    Some("read") => {}
                    Some("write") => written.push(scope.clone()),
                    other => panic!("{name}: {id}: {scope}: {other:?}"),
                }
            }
            if !written.is_empty() {
                for run in runs(job) {
                    // What is compiled could be replaced by what it is compiled from.
                    assert!(!run.contains("cargo") && !run.contains("go "), "{name}: {id}: {run}");
                }
                written.sort();
                writers.insert(id.clone(), written.join(" "));
            }
        }
    }
    let wanted = [
        ("publish-chart", "attestations id-token packages"),
        ("publish-files", "attestations contents id-token"),
        ("publish-image", "attestations id-token packages"),
        ("publish-site", "id-token pages"),
    ];
    let wanted = wanted.map(|(id, scopes)| (id.to_owned(), scopes.to_owned()));
    assert_eq!(writers, BTreeMap::from(wanted));
}

#[test]
fn nothing_is_published_before_all_checks() {
    let release = workflows().pop().unwrap();
    let jobs = &release.value["jobs"];
    let needed = |id: &str| -> BTreeSet<String> {
        let needs = &jobs[id]["needs"];
        let list = needs.as_array().cloned().unwrap_or_else(|| vec![needs.clone()]);
        list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    for (id, _) in release.jobs() {
        for other in needed(id) {
            assert!(jobs[&other].is_object(), "{id} needs {other}");
        }
        if id != "check" {
            assert!(needed(id).contains("check"), "{id} starts before the tag is checked");
        }
    }
    assert!(needed("publish-image").contains("checks"));
    assert!(needed("files").contains("publish-image"));
    assert!(needed("publish-chart").contains("files"));
    assert!(needed("publish-files").contains("publish-chart"));
    assert_eq!(jobs["checks"]["uses"], "./.github/workflows/checks.yml");
}

#[test]
fn every_action_is_pinned_by_its_commit() {
    let mut pins = BTreeMap::new();
    let mut seen = 0;
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
            seen += 1;
        }
    }
    assert!(seen > 10 && pins.len() > 4, "{pins:?}");
}

#[test]
fn no_step_keeps_a_credential_or_runs_text_of_an_event() {
    let mut checkouts = 0;
    for workflow in workflows() {
        let name = &workflow.name;
        assert_eq!(workflow.value["defaults"]["run"]["shell"], "bash", "{name}: no pipefail");
        assert!(!workflow.text.contains("pull_request_target"), "{name}");
        for (id, job) in workflow.jobs() {
            for step in steps(job) {
                if step["uses"].as_str().is_some_and(|uses| uses.starts_with("actions/checkout@")) {
                    let kept = &step["with"]["persist-credentials"];
                    assert_eq!(kept, &json!(false), "{name}: {id}");
                    checkouts += 1;
                }
            }
            for run in runs(job) {
                // A tag or the title of a pull request could be a command: by the environment.
                assert!(!run.contains("${{"), "{name}: {id}: {run}");
            }
            assert_eq!(job["uses"].is_null(), job["timeout-minutes"].is_u64(), "{name}: {id}");
        }
    }
    assert!(checkouts > 5);
}

#[test]
fn every_command_of_the_workflows_exists() {
    let workflows = workflows();
    let release = read(".ci/release");
    let aliases: toml::Table = toml::from_str(&read(".cargo/config.toml")).unwrap();
    let mut commands: Vec<&str> = workflows
        .iter()
        .flat_map(Workflow::jobs)
        .flat_map(|(_, job)| runs(job))
        .flat_map(str::lines)
        .collect();
    let mut own = 0;
    for line in &commands {
        let words: Vec<&str> = line.split([' ', '(', ')']).collect();
        for (word, next) in words.iter().zip(words.iter().skip(1).chain([&""])) {
            if !word.starts_with(".ci/") {
                continue;
            }
            let file =
                fs::metadata(Path::new(ROOT).join(word)).unwrap_or_else(|_| panic!("{line}"));
            assert!(file.permissions().mode() & 0o111 != 0, "{word} is not executable");
            if *word == ".ci/release" {
                assert!(release.contains(&format!("\n  {next}:")), "{line}: no such step");
            }
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
        let is_known = ["build", "install", "test", "update"].contains(&command)
            || aliases["alias"].get(command).is_some()
            || commands
                .iter()
                .any(|line| line.starts_with(&format!("cargo install --locked cargo-{command}@")));
        assert!(is_known, "cargo has no command {command}");
    }
}
