//! The documents refer to things that exist: files, headings, tests, words of events.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The Markdown files whose links are checked: the root's, `docs`, and those of other folders.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    let mut files: Vec<PathBuf> = ["", "docs", "testbed", "fuzz", "certs", "charts/stowplan"]
        .iter()
        .flat_map(|folder| fs::read_dir(root.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    files.sort();
    assert!(files.len() >= 11, "{files:?}");
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines outside fenced blocks.
fn prose(text: &str) -> Vec<&str> {
    let mut is_open = false;
    text.lines()
        .filter(|line| {
            let is_fence = line.trim_start().starts_with("```");
            is_open ^= is_fence;
            !is_open && !is_fence
        })
        .collect()
}

/// The anchors of a file's headings, as GitHub builds them.
fn anchors(text: &str) -> BTreeSet<String> {
    prose(text)
        .into_iter()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            heading
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

/// The targets of `[text](target)`.
fn links(text: &str) -> Vec<String> {
    prose(text)
        .join("\n")
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn relative_links_resolve() {
    let mut checked = 0;
    for file in documents() {
        for link in links(&read(&file)) {
            if link.starts_with("http") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let mut target = match path {
                "" => file.clone(),
                path => file.parent().unwrap().join(path),
            };
            assert!(target.exists(), "{}: {link}", file.display());
            if target.is_dir() {
                target.push("README.md");
            }
            if !anchor.is_empty() {
                let anchors = anchors(&read(&target));
                assert!(anchors.contains(anchor), "{}: {link}: {anchors:?}", file.display());
            }
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked}");
}

/// The text of all files below a folder that have this extension.
fn texts(folder: &Path, wanted: &str, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts(&path, wanted, into);
        } else if path.extension().is_some_and(|extension| extension == wanted) {
            into.push_str(&read(&path));
        }
    }
}

fn sources_of(folders: &[&str]) -> String {
    let mut text = String::new();
    for folder in folders {
        texts(&Path::new(ROOT).join(folder), "rs", &mut text);
    }
    text
}

#[test]
fn every_test_of_the_table_of_faults_exists() {
    let tests = sources_of(&["tests", "testbed/tests", "src"]);
    let functions: Vec<&str> =
        tests.split("fn ").skip(1).filter_map(|rest| rest.split('(').next()).collect();
    let page = read(&Path::new(ROOT).join("docs/reliability.md"));
    let mut named = 0;
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let Some(cell) = row.trim_end_matches(" |").rsplit(" | ").next() else { continue };
        // The last column: names in backticks, and nothing else but commas.
        for name in cell.split('`').skip(1).step_by(2) {
            assert!(functions.contains(&name), "{name}: no such test");
            named += 1;
        }
    }
    assert!(named > 60, "{named}");
}

#[test]
fn every_event_and_condition_that_is_listed_exists() {
    let sources = sources_of(&["src"]);
    let root = Path::new(ROOT);
    let mut seen = 0;
    for (page, headings) in [
        ("docs/operations.md", &["## Events", "## Conditions"][..]),
        ("docs/tekton.md", &["### Events"]),
        ("docs/katalyst.md", &["### Events"]),
    ] {
        let text = read(&root.join(page));
        for heading in headings {
            let section = text.split(&format!("\n{heading}\n")).nth(1);
            let section = section.unwrap_or_else(|| panic!("{page} has no {heading}"));
            for row in section.lines().take_while(|line| !line.starts_with('#')) {
                let words = row.split('`').skip(1).step_by(2);
                let is_reason = |word: &&str| {
                    word.starts_with(|c: char| c.is_ascii_uppercase())
                        && word.chars().all(|c| c.is_ascii_alphabetic())
                };
                for word in words.filter(is_reason).filter(|_| row.starts_with("| ")) {
                    // Refusals are words of an enum, the others are literals.
                    let is_there = sources.contains(&format!("\"{word}\""))
                        || sources.contains(&format!("{word} => "));
                    assert!(is_there, "{page}: {word}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 40, "{seen}");
}

/// Quotes of messages, `…` for what differs.
#[test]
fn every_message_of_the_questions_is_one_of_stowplan() {
    let root = Path::new(ROOT);
    let mut messages = String::new();
    texts(&root.join("fixtures"), "yaml", &mut messages);
    // A long message is folded.
    let messages = messages.split_whitespace().collect::<Vec<_>>().join(" ").replace("\\\"", "\"");
    let sources = sources_of(&["src"]);
    let page = read(&root.join("docs/faq.md"));
    let quotes: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("> ")).collect();
    assert!(quotes.len() >= 10, "{quotes:?}");
    for quote in quotes {
        assert!(messages.contains(quote) || sources.contains(quote), "no message has: {quote}");
    }
}

#[test]
fn the_readme_stays_short() {
    let readme = read(&Path::new(ROOT).join("README.md"));
    assert!(readme.lines().count() <= 180);
    for line in readme.lines() {
        assert!(line.chars().count() <= 120, "{line}");
    }
}

/// The versions that are named as tested are those that the testbed builds.
#[test]
fn the_tested_versions_are_those_of_the_testbed() {
    let root = Path::new(ROOT);
    let page = read(&root.join("docs/versions.md"));
    let mut seen = 0;
    for (file, module, row) in [
        ("controlplane", "k8s.io/kubernetes", "Kubernetes, newest"),
        ("controlplane-oldest", "k8s.io/kubernetes", "Kubernetes, oldest"),
        ("controlplane", "helm.sh/helm/v4", "Helm"),
        ("controlplane", "go.etcd.io/etcd/server/v3", "etcd"),
        ("nodes", "github.com/containerd/containerd/v2", "Kubernetes, newest"),
        ("nodes", "github.com/opencontainers/runc", "Kubernetes, newest"),
        ("nodes", "github.com/coredns/coredns", "Kubernetes, newest"),
    ] {
        let modules = read(&root.join(format!("testbed/{file}/go.mod")));
        let start = format!("{module} v");
        let version = modules.lines().find_map(|line| {
            line.trim_start().trim_start_matches("require ").strip_prefix(&*start)
        });
        let version = version.and_then(|rest| rest.split_whitespace().next());
        let version = version.unwrap_or_else(|| panic!("{file}: {module}"));
        let row = page.lines().find(|line| line.starts_with(&format!("| {row} |")));
        let row = row.unwrap_or_else(|| panic!("docs/versions.md has no row for {module}"));
        assert!(row.contains(version), "{module} is {version}, and not in: {row}");
        seen += 1;
    }
    assert_eq!(seen, 7);
}
