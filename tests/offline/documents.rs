//! The documents refer to things that exist: files, headings, tests, words of events.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::command::run;

pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A file, by its path in the repository.
pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = Path::new(ROOT).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Asserts that a file of the repository has this text. With STOWPLAN_REFRESH, it is written.
pub(crate) fn assert_current(path: &str, text: &str, suite: &str) {
    if std::env::var_os("STOWPLAN_REFRESH").is_some() {
        fs::write(Path::new(ROOT).join(path), text).unwrap();
    }
    let refresh = format!("STOWPLAN_REFRESH=1 cargo test --test offline {suite}");
    assert!(read(path) == text, "{path} is stale: {refresh}");
}

/// The files below a folder that have this extension, with their texts.
pub(crate) fn files(folder: &Path, extension: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|it| it == extension) {
            let text = read(&path);
            found.push((path, text));
        }
    }
    found
}

/// The texts of all files in these folders.
fn texts(folders: &[&str], extension: &str) -> String {
    let root = Path::new(ROOT);
    let files = folders.iter().flat_map(|folder| files(&root.join(folder), extension));
    files.map(|(_, text)| text).collect()
}

/// The lines outside fenced blocks.
fn prose(text: &str) -> Vec<&str> {
    let outside = text.split("```").step_by(2);
    outside.flat_map(str::lines).collect()
}

/// Returns true if a file has a heading with this anchor, as GitHub builds them.
fn has_anchor(text: &str, anchor: &str) -> bool {
    prose(text).into_iter().filter(|line| line.starts_with('#')).any(|line| {
        let heading = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        heading.replace(|c: char| !c.is_alphanumeric() && !"-_".contains(c), "") == anchor
    })
}

#[test]
fn relative_links_resolve() {
    let mut checked = 0;
    for folder in ["", "docs", "testbed", "fuzz", "certs", "charts/stowplan"] {
        for entry in fs::read_dir(Path::new(ROOT).join(folder)).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = prose(&read(&file)).join("\n");
            let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            for link in links.filter(|link| !link.starts_with("http")) {
                let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
                let mut target = match path {
                    "" => file.clone(),
                    path => file.parent().unwrap().join(path),
                };
                assert!(target.exists(), "{}: {link}", file.display());
                if target.is_dir() {
                    target.push("README.md");
                }
                let is_found = anchor.is_empty() || has_anchor(&read(&target), anchor);
                assert!(is_found, "{}: {link}: no such heading", file.display());
                checked += 1;
            }
        }
    }
    assert!(checked > 50, "{checked}");
}

/// The words in backticks of a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn every_test_of_the_table_of_faults_exists() {
    let tests = texts(&["tests", "testbed/tests", "core/src", "src"], "rs");
    let page = read("docs/reliability.md");
    // The last column: names in backticks, and nothing else but commas.
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next());
    let names: Vec<&str> = cells.flat_map(quoted).collect();
    for name in &names {
        assert!(tests.contains(&format!("fn {name}(")), "{name}: no such test");
    }
    assert!(names.len() > 60, "{names:?}");
}

#[test]
fn every_event_and_condition_that_is_listed_exists() {
    let sources = texts(&["core/src", "src"], "rs");
    let mut seen = 0;
    for (page, heading) in [
        ("docs/messages.md", "## Events"),
        ("docs/messages.md", "## Conditions"),
        ("docs/tekton.md", "### Events"),
        ("docs/katalyst.md", "### Events"),
    ] {
        let text = read(page);
        let section = text.split(&format!("\n{heading}\n")).nth(1);
        let section = section.unwrap_or_else(|| panic!("{page} has no {heading}"));
        let rows = section.lines().take_while(|line| !line.starts_with('#'));
        for word in rows.filter(|row| row.starts_with("| ")).flat_map(quoted) {
            if !word.starts_with(|c: char| c.is_ascii_uppercase())
                || !word.chars().all(|c| c.is_ascii_alphabetic())
            {
                continue;
            }
            // Refusals are words of an enum, the others are literals.
            let is_there = sources.contains(&format!("\"{word}\""))
                || sources.contains(&format!("{word} => "));
            assert!(is_there, "{page}: {word}");
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen}");
}

/// Quotes of messages, `…` for what differs.
#[test]
fn every_message_of_the_questions_is_one_of_stowplan() {
    // A long message is folded.
    let folded = texts(&["fixtures"], "yaml").split_whitespace().collect::<Vec<_>>().join(" ");
    let messages = folded.replace("\\\"", "\"") + &texts(&["core/src", "src"], "rs");
    let page = read("docs/faq.md");
    let quotes: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("> ")).collect();
    assert!(!quotes.is_empty());
    for quote in quotes {
        assert!(messages.contains(quote), "no message has: {quote}");
    }
}

/// The annotations, labels and fields that users of SPL are told to write, and those of the glossary.
#[test]
fn every_key_and_field_of_spl_and_the_glossary_exists() {
    let sources = texts(&["core/src", "src"], "rs");
    let definitions = run("crds", "").stdout;
    let mut seen = 0;
    for page in ["docs/spl.md", "docs/glossary.md"] {
        let text = read(page);
        for code in prose(&text).into_iter().flat_map(quoted) {
            let key = code.split([':', '=', '[']).next().unwrap_or_default();
            let is_key = key.contains("stowplan.dev/") || key.contains("streams.ibm.com/");
            // Tags are chosen by administrators.
            let name = if key.starts_with("hostpool.") { "hostpool.streams.ibm.com/" } else { key };
            if is_key {
                assert!(sources.contains(&format!("\"{name}")), "{page}: {code}");
                seen += 1;
            }
        }
    }
    // Its second and third column say how a StreamsJob has what SPL has.
    let page = read("docs/spl.md");
    let rows = prose(&page).into_iter().filter(|line| line.starts_with("| "));
    let cells = rows.flat_map(|row| row.split(" | ").skip(1).flat_map(quoted));
    for code in cells.filter(|code| code.starts_with(|c: char| c.is_ascii_lowercase())) {
        // `field: value`, or the name of a field alone.
        let field = code.split(':').next().unwrap_or_default();
        if field.chars().all(|c| c.is_ascii_alphabetic()) {
            let is_there = definitions.contains(&format!(" {field}:\n"));
            assert!(is_there, "docs/spl.md: {code}: no such field");
            seen += 1;
        }
    }
    let glossary = read("docs/glossary.md");
    for command in
        prose(&glossary).into_iter().flat_map(quoted).filter_map(|of| of.strip_prefix("stowplan "))
    {
        assert_eq!(run(&format!("{command} --help"), "").code, 0, "{command}");
    }
    assert!(seen > 15, "{seen}");
}

#[test]
fn the_readme_stays_short() {
    let readme = read("README.md");
    assert!(readme.lines().count() <= 180);
    for line in readme.lines() {
        assert!(line.chars().count() <= 120, "{line}");
    }
}

/// The versions that are named as tested are those that the testbed builds.
#[test]
fn the_tested_versions_are_those_of_the_testbed() {
    let page = read("docs/versions.md");
    for (file, module, row) in [
        ("controlplane", "k8s.io/kubernetes", "Kubernetes, newest"),
        ("controlplane-oldest", "k8s.io/kubernetes", "Kubernetes, oldest"),
        ("controlplane", "helm.sh/helm/v4", "Helm"),
        ("controlplane", "go.etcd.io/etcd/server/v3", "etcd"),
        ("nodes", "github.com/containerd/containerd/v2", "Kubernetes, newest"),
        ("nodes", "github.com/opencontainers/runc", "Kubernetes, newest"),
        ("nodes", "github.com/coredns/coredns", "Kubernetes, newest"),
    ] {
        let modules = read(format!("testbed/{file}/go.mod"));
        let words: Vec<&str> = modules.split_whitespace().collect();
        let is_required = |pair: &&[&str]| pair[0] == module && pair[1].starts_with('v');
        let required = words.windows(2).find(is_required);
        let version = &required.unwrap_or_else(|| panic!("{file}: {module}"))[1][1..];
        let row = page.lines().find(|line| line.starts_with(&format!("| {row} |")));
        let row = row.unwrap_or_else(|| panic!("docs/versions.md has no row for {module}"));
        assert!(row.contains(version), "{module} is {version}, and not in: {row}");
    }
}

/// Comments that document an item begin with what it is or does, and not with a question or a reference. The
/// comments of API types, of the policy and of arguments are texts for users: they are in the definitions, in
/// docs/policy.md and in `--help`.
#[test]
fn no_comment_of_an_item_begins_with_a_question_word_or_a_reference() {
    const WORDS: [&str; 6] = ["What ", "Whether ", "Why ", "Which ", "Those ", "The same "];
    let mut checked = 0;
    let mut broken = Vec::new();
    for folder in ["core/src", "src", "tests", "testbed", "benches", "fuzz"] {
        for (path, text) in files(&Path::new(ROOT).join(folder), "rs") {
            let name = path.to_string_lossy();
            let is_of_users = ["policy.rs", "arguments.rs", "/api/", "/testbed/src/cli/"];
            let is_of_users = is_of_users.into_iter().any(|part| name.contains(part));
            let mut earlier = "";
            for line in text.lines().map(str::trim_start) {
                let comment = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
                let begins = !(earlier.starts_with("/// ") || earlier.starts_with("//! "));
                if let Some(comment) = comment.filter(|_| begins && !is_of_users) {
                    checked += 1;
                    if WORDS.iter().any(|word| comment.starts_with(word)) {
                        broken.push(format!("{}: {line}", path.display()));
                    }
                }
                earlier = line;
            }
        }
    }
    assert!(
        broken.is_empty(),
        "write a sentence that says what it is or does:\n{}",
        broken.join("\n")
    );
    assert!(checked > 3000, "{checked}");
}
