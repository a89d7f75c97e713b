//! The dependency rule of `src/lib.rs`, held by reading the sources: what decides does no I/O, and
//! no module names a module above it.

use std::fs;
use std::path::{Path, PathBuf};

/// Every module of the crate, and the modules that it may name besides itself.
const ORDER: &[(&str, &[&str])] = &[
    ("text", &[]),
    ("names", &[]),
    ("kubernetes", &[]),
    ("wire", &[]),
    ("placement", &["text", "wire", "kubernetes"]),
    ("policy", &["names"]),
    ("api", &[]),
    ("view", &["names", "kubernetes"]),
    ("systems", &["placement", "view", "policy", "api", "names", "wire", "kubernetes"]),
    ("admission", &["systems", "placement", "view", "policy", "api", "wire", "kubernetes"]),
    ("simulation", &["systems", "placement", "view", "kubernetes"]),
    ("cluster", &["systems", "placement", "view", "policy", "api", "telemetry"]),
    ("tls", &["telemetry"]),
    ("telemetry", &["text"]),
    (
        "server",
        &[
            "admission",
            "cluster",
            "tls",
            "telemetry",
            "systems",
            "placement",
            "view",
            "policy",
            "api",
        ],
    ),
    (
        "controller",
        &[
            "admission",
            "cluster",
            "systems",
            "placement",
            "view",
            "policy",
            "api",
            "telemetry",
            "tls",
            "kubernetes",
        ],
    ),
    (
        "cli",
        &[
            "server",
            "controller",
            "admission",
            "simulation",
            "cluster",
            "tls",
            "telemetry",
            "systems",
            "placement",
            "view",
            "policy",
            "api",
            "text",
            "names",
            "kubernetes",
        ],
    ),
];

/// The modules that decide. They know their arguments and nothing else.
const PURE: &[&str] = &[
    "text",
    "names",
    "wire",
    "kubernetes",
    "placement",
    "policy",
    "view",
    "systems",
    "admission",
    "simulation",
];

/// What a pure module never names: paths that begin so.
const IMPURE: &[&str] = &[
    "futures",
    "hyper",
    "hyper_util",
    "jiff::Timestamp::now",
    "jiff::Zoned::now",
    "Timestamp::now",
    "kube::Api",
    "kube::Client",
    "kube::Config",
    "kube::api",
    "kube::client",
    "kube::config",
    "kube::runtime",
    "kube_runtime",
    "rand",
    "rustls",
    "std::env",
    "std::fs",
    "std::io",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::ToSocketAddrs",
    "std::net::UdpSocket",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "tokio",
    "tokio_rustls",
    "tracing",
];

/// The same by one word, however it was imported.
const IMPURE_WORDS: &[&str] =
    &["Instant", "SystemTime", "TcpListener", "TcpStream", "UdpSocket", "println", "eprintln"];

#[test]
fn what_decides_does_no_io_and_nothing_points_back() {
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let mut files = Vec::new();
    collect(source, &mut files);
    let mut seen: Vec<&str> = Vec::new();
    let mut broken = Vec::new();
    for file in &files {
        let relative = file.strip_prefix(source).unwrap().with_extension("");
        let module: Vec<&str> = relative.iter().map(|part| part.to_str().unwrap()).collect();
        if matches!(module.as_slice(), ["lib" | "main" | "testing"]) {
            continue;
        }
        seen.extend(ORDER.iter().map(|(name, _)| *name).filter(|name| *name == module[0]));
        let text = fs::read_to_string(file).unwrap();
        let problems = problems(&module, &text);
        broken.extend(
            problems.into_iter().map(|problem| format!("{}: {problem}", relative.display())),
        );
    }
    for name in PURE {
        assert!(seen.contains(name), "no file of {name} was read");
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// What `text`, the source of `module`, breaks.
fn problems(module: &[&str], text: &str) -> Vec<String> {
    let Some((own, allowed)) = ORDER.iter().find(|(name, _)| *name == module[0]) else {
        return vec![format!("module {} has no place in ORDER of tests/purity.rs", module[0])];
    };
    let mut problems = Vec::new();
    for path in paths(text) {
        if PURE.contains(own) {
            let named = path.join("::");
            let begins =
                |impure: &&&str| named == **impure || named.starts_with(&format!("{impure}::"));
            let word = path.iter().any(|word| IMPURE_WORDS.contains(&word.as_str()));
            if IMPURE.iter().any(|impure| begins(&impure)) || word {
                problems.push(format!("{own} decides, and names {named}"));
            }
        }
        // Tests of what is below the simulation run in it.
        let is_simulated = module.contains(&"tests");
        if let Some(named) = top(module, &path)
            && named != *own
            && !(is_simulated && named == "simulation")
            && !allowed.contains(&named.as_str())
        {
            problems.push(format!("{own} is below {named}, and names it"));
        }
    }
    problems
}

/// The module of the crate that a path leads to, if it leads to one.
fn top(module: &[&str], path: &[String]) -> Option<String> {
    match path.first().map(String::as_str) {
        Some("crate" | "stowplan") => path.get(1).filter(|name| *name != "*").cloned(),
        Some("super") => {
            let climbed = path.iter().take_while(|part| *part == "super").count();
            // Less than that stays in the module; names that are no module are items of it.
            let name = path.get(climbed).filter(|_| climbed >= module.len())?;
            ORDER.iter().any(|(known, _)| known == name).then(|| name.clone())
        }
        _ => None,
    }
}

/// Every path that a source names, with the braces of `use` written out.
fn paths(text: &str) -> Vec<Vec<String>> {
    let words = words(text);
    let mut paths = Vec::new();
    let mut position = 0;
    while position < words.len() {
        if words[position] == "use" {
            position = tree(&words, position + 1, &[], &mut paths);
            continue;
        }
        let (path, end) = plain(&words, position);
        if !path.is_empty() {
            paths.push(path);
        }
        position = end.max(position + 1);
    }
    paths
}

/// The path at `position`, and where it ends.
fn plain(words: &[String], mut position: usize) -> (Vec<String>, usize) {
    let mut path = Vec::new();
    while let Some(word) = words.get(position).filter(|word| is_name(word)) {
        path.push(word.clone());
        position += 1;
        match words.get(position).map(String::as_str) {
            Some("::") => position += 1,
            _ => break,
        }
    }
    (path, position)
}

/// The paths of a use tree at `position` under `prefix`; returns where it ends.
fn tree(
    words: &[String],
    mut position: usize,
    prefix: &[String],
    paths: &mut Vec<Vec<String>>,
) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match words.get(position).map(String::as_str) {
            Some("{") => {
                position += 1;
                while words.get(position).is_some_and(|word| word != "}") {
                    position = tree(words, position, &path, paths);
                    if words.get(position).is_some_and(|word| word == ",") {
                        position += 1;
                    }
                }
                return position + 1;
            }
            Some("::") => position += 1,
            Some("as") => position += 2,
            Some("*") => {
                path.push("*".to_owned());
                position += 1;
            }
            Some(word) if is_name(word) => {
                path.push(word.to_owned());
                position += 1;
            }
            end => {
                if path.len() > prefix.len() {
                    paths.push(path);
                }
                // A stray sign is stepped over, so that this always ends.
                let stays = matches!(end, Some("," | "}" | ";") | None);
                return if stays { position } else { position + 1 };
            }
        }
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The words and signs of a source, without comments, strings and characters.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if let Some(after) = raw_string(rest) {
            rest = after;
        } else if c == '"' {
            rest = after_string(&rest[1..]);
        } else if c == '\'' {
            rest = after_character(&rest[1..]);
        } else if let Some(after) = rest.strip_prefix("::") {
            words.push("::".to_owned());
            rest = after;
        } else if c.is_alphanumeric() || c == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            words.push(rest[..end].to_owned());
            rest = &rest[end..];
        } else {
            if !c.is_whitespace() {
                words.push(c.to_string());
            }
            rest = &rest[c.len_utf8()..];
        }
    }
    words
}

fn raw_string(rest: &str) -> Option<&str> {
    let after = rest.strip_prefix('r').or_else(|| rest.strip_prefix("br"))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    body.find(&end).map(|at| &body[at + end.len()..])
}

fn after_string(mut rest: &str) -> &str {
    while let Some(at) = rest.find(['"', '\\']) {
        if rest[at..].starts_with('"') {
            return &rest[at + 1..];
        }
        let escaped = rest[at + 1..].chars().next().map_or(0, char::len_utf8);
        rest = &rest[at + 1 + escaped..];
    }
    ""
}

/// Past a character literal; a lifetime has no end and is left alone.
fn after_character(rest: &str) -> &str {
    let mut characters = rest.char_indices();
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), Some((at, _))) => {
            rest[at + 1..].find('\'').map_or("", |end| &rest[at + 2 + end..])
        }
        (Some(_), Some((at, '\''))) => &rest[at + 1..],
        _ => rest,
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Kinds and their plural names that one system reads and no other file names.
const KINDS: &[(&str, &[&str])] = &[
    ("streams", &["HostPool", "hostpools", "StreamsJob", "streamsjobs"]),
    (
        "coschedule",
        &["TaskRun", "taskruns", "PipelineRun", "pipelineruns", "Pipeline", "pipelines"],
    ),
];

/// Where systems are put together: their list, and the prefixes of all keys.
const TOGETHER: &[&str] = &["systems.rs", "systems/vocabulary.rs"];

#[test]
fn a_systems_keys_and_kinds_stand_in_its_folder_alone() {
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let mut files = Vec::new();
    collect(source, &mut files);
    let mut read: Vec<(String, Vec<String>)> = Vec::new();
    for file in &files {
        let relative = file.strip_prefix(source).unwrap().to_str().unwrap().to_owned();
        if !relative.ends_with("/tests.rs") && !relative.contains("/tests/") {
            let text = fs::read_to_string(file).unwrap();
            read.push((relative, literals(without_tests(&text))));
        }
    }
    let mut broken = Vec::new();
    let mut known = 0;
    for (system, kinds) in [("mpi", &[][..]), ("katalyst", &[][..])].iter().chain(KINDS) {
        let own = |file: &str| is_of_system(file, system);
        let of_system = read.iter().filter(|(file, _)| own(file));
        let keys: Vec<&str> = of_system
            .flat_map(|(_, literals)| literals)
            .map(String::as_str)
            .filter(|text| is_key(text))
            .collect();
        assert!(!keys.is_empty(), "{system} declares no key");
        known += keys.len();
        for (file, literals) in read.iter().filter(|(file, _)| !own(file)) {
            if TOGETHER.contains(&file.as_str()) {
                continue;
            }
            for literal in literals {
                let named = keys.iter().find(|key| names(literal, key));
                let named = named.or_else(|| kinds.iter().find(|kind| literal == *kind));
                broken.extend(named.map(|named| format!("{file} names {named} of {system}")));
            }
        }
    }
    assert!(known > 20, "only {known} keys were found");
    broken.sort();
    broken.dedup();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Whether a file, relative to `src`, is in the folder of a system or is the file beside it.
fn is_of_system(file: &str, system: &str) -> bool {
    let file = file.strip_prefix("systems/").unwrap_or_default();
    file.strip_prefix(system).is_some_and(|rest| rest.starts_with(['/', '.']))
}

/// Where the modules of systems are named: where systems are put together, and the door for tests.
const NAMES_MODULES: &[&str] = &["systems.rs", "systems/policy.rs", "testing.rs"];

#[test]
fn a_systems_module_is_named_in_its_folder_alone() {
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let mut files = Vec::new();
    collect(source, &mut files);
    let mut broken = Vec::new();
    for file in &files {
        let relative = file.strip_prefix(source).unwrap().to_str().unwrap();
        let text = fs::read_to_string(file).unwrap();
        for path in paths(without_tests(&text)) {
            let Some(system) = system_of(&path) else { continue };
            if !NAMES_MODULES.contains(&relative) && !is_of_system(relative, system) {
                broken.push(format!("{relative} names {}", path.join("::")));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The system whose module a path leads into.
fn system_of(path: &[String]) -> Option<&str> {
    let at = path.iter().position(|name| name == "systems")?;
    let name = path.get(at + 1)?;
    ["streams", "coschedule", "mpi", "katalyst"].into_iter().find(|system| system == name)
}

#[test]
fn the_module_of_a_system_is_seen_in_any_use() {
    for (text, system) in [
        ("use crate::systems::streams::keys;", Some("streams")),
        ("use crate::{view, systems::{fit, coschedule::keys}};", Some("coschedule")),
        ("fn f() { systems::mpi::KEYS; }", Some("mpi")),
        ("use crate::systems::{self, SYSTEMS, fit};", None),
        ("// crate::systems::streams", None),
    ] {
        let paths = paths(text);
        assert_eq!(paths.iter().find_map(|path| system_of(path)), system, "{text}");
    }
}

/// Whether a text is the full key of an annotation or a label, of a domain that is not Kubernetes' own.
fn is_key(text: &str) -> bool {
    let Some((domain, name)) = text.split_once('/') else { return false };
    let of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_version = name.starts_with("v1");
    domain.contains('.')
        && !domain.is_empty()
        && !name.is_empty()
        && domain.chars().chain(name.chars()).all(of_key)
        && !is_version
        && !domain.ends_with("kubernetes.io")
}

/// Whether a text has a key in it, and not only one that begins with it.
fn names(text: &str, key: &str) -> bool {
    let ends = |at: usize| {
        !text[at + key.len()..].starts_with(|c: char| c.is_alphanumeric() || "-_".contains(c))
    };
    let begins =
        |at: usize| !text[..at].ends_with(|c: char| c.is_alphanumeric() || "-.".contains(c));
    text.match_indices(key).any(|(at, _)| begins(at) && ends(at))
}

/// A source without its unit tests, which come last.
fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod tests {").map_or(text, |at| &text[..at])
}

/// The texts in a source.
fn literals(text: &str) -> Vec<String> {
    let mut literals = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if let Some(after) = raw_string(rest) {
            literals.push(rest[..rest.len() - after.len()].to_owned());
            rest = after;
        } else if c == '"' {
            let after = after_string(&rest[1..]);
            let literal = &rest[1..rest.len() - after.len()];
            literals.push(literal.strip_suffix('"').unwrap_or(literal).to_owned());
            rest = after;
        } else if c == '\'' {
            rest = after_character(&rest[1..]);
        } else {
            let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            rest = &rest[word.max(c.len_utf8())..];
        }
    }
    literals
}

#[test]
fn a_key_is_seen_in_any_text() {
    let source =
        "const A: &str = \"x.dev/a\"; // \"x.dev/b\"\nfn f() { g(\"the key x.dev/c, too\") }";
    let found = literals(source);
    assert_eq!(found, ["x.dev/a", "the key x.dev/c, too"]);
    assert!(names(&found[1], "x.dev/c") && !names("x.dev/c-d", "x.dev/c"));
    assert!(!names("y.x.dev/c", "x.dev/c") && names("\"x.dev/c\"", "x.dev/c"));
    assert!(is_key("x.dev/a") && !is_key("x.dev/") && !is_key("x.dev/v1") && !is_key("a b.c/d"));
    assert!(!is_key("node.kubernetes.io/unschedulable") && !is_key("apps/v1"));
}

#[test]
fn io_is_seen_however_it_is_named() {
    for text in [
        "use std::fs;",
        "use std::{fmt, fs::File};",
        "use std::{collections::{BTreeMap, HashMap}, time::{Duration, Instant}};",
        "fn f() { let now = std::time::SystemTime::now(); }",
        "use std::time; fn f() { time::Instant::now(); }",
        "async fn f() { tokio::spawn(async {}); }",
        "use kube::{Client, ResourceExt};",
        "use kube::runtime::watcher;",
        "pub use std::env as surroundings;",
        "fn f() { tracing::info!(\"x\"); }",
        "fn f() { println!(\"x\"); }",
        "fn f() -> rand::rngs::ThreadRng { rand::rng() }",
    ] {
        assert!(!problems(&["view", "node"], text).is_empty(), "{text}");
        assert!(problems(&["server"], text).is_empty(), "{text}");
    }
}

#[test]
fn what_is_no_io_is_left_alone() {
    for text in [
        "use std::net::IpAddr; use std::time::Duration; use kube::CustomResource;",
        "// use std::fs;\n/// [`tokio::spawn`]\nfn f() {}",
        "fn f() -> &'static str { \"std::fs::read \\\" tokio::x\" }",
        "fn f<'a>(x: &'a str) -> char { '\"' } // std::env",
        "const X: &str = r#\"use std::fs; \" tracing::info\"#;",
        "use super::*; use super::node::Node; use crate::view::HostPool;",
        "mod tests { use super::Index; }",
    ] {
        assert_eq!(problems(&["view", "node"], text), Vec::<String>::new(), "{text}");
        assert_eq!(problems(&["view"], text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn what_points_back_is_seen() {
    for (module, text) in [
        (vec!["view"], "use crate::systems::streams::keys;"),
        (vec!["view", "node"], "use crate::{api, systems};"),
        (vec!["view", "node"], "use super::super::systems::streams;"),
        (vec!["view"], "use super::systems;"),
        (vec!["placement", "merge"], "fn f() { crate::view::View::default(); }"),
        (vec!["placement", "merge"], "use crate::policy::Policy;"),
        (vec!["systems", "streams", "token"], "use crate::admission::Decision;"),
        (vec!["admission"], "pub use crate::server::Limits;"),
        (vec!["cluster"], "use crate::admission::decide;"),
        (vec!["server", "admin"], "use crate::cli;"),
        (vec!["policy"], "use crate::unknown::module;"),
        (vec!["newcomer"], ""),
    ] {
        assert!(!problems(&module, text).is_empty(), "{module:?}: {text}");
    }
    for (module, text) in [
        (
            vec!["systems", "streams"],
            "use crate::{placement::pod::Pod, view::{Key, View}, policy::Policy};",
        ),
        (
            vec!["admission"],
            "use crate::systems::SYSTEMS; use super::answer; use self::review::Review;",
        ),
        (vec!["cli"], "use crate::server; use crate::admission::decide;"),
        (vec!["systems", "streams", "request"], "use super::keys; use super::super::Outcome;"),
    ] {
        assert_eq!(problems(&module, text), Vec::<String>::new(), "{module:?}: {text}");
    }
}
