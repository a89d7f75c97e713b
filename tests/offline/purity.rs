//! The dependency rule of `src/lib.rs`, held by reading the sources: modules that decide do no I/O,
//! no module names one above it, and the keys, kinds and modules of a system are named in its folder
//! alone. Lines are read, not the language: in a text of several lines, a path is taken for one.

use std::path::Path;

use crate::documents::{ROOT, files};

/// Every module of the crate, and the modules that it may name besides itself.
const ORDER: &[(&str, &str)] = &[
    ("text", ""),
    ("names", ""),
    ("kubernetes", ""),
    ("wire", ""),
    ("placement", "text wire kubernetes"),
    ("policy", "names"),
    ("api", ""),
    ("view", "names kubernetes"),
    ("systems", "placement view policy api names wire kubernetes"),
    ("admission", "systems placement view policy api wire kubernetes"),
    ("simulation", "systems placement view kubernetes"),
    ("cluster", "systems placement view policy api telemetry"),
    ("tls", "telemetry"),
    ("telemetry", "text"),
    ("server", "admission cluster tls telemetry systems placement view policy api"),
    ("controller", "admission cluster systems placement view policy api telemetry tls kubernetes"),
    (
        "cli",
        "server controller admission simulation cluster tls telemetry systems placement view policy \
         api text names kubernetes",
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

/// A pure module never names paths that begin so.
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
    "std::net::ToSocketAddrs",
    "std::os",
    "std::process",
    "std::thread",
    "tokio",
    "tokio_rustls",
    "tracing",
];

/// The same by one word, however it was imported.
const IMPURE_WORDS: &[&str] =
    &["Instant", "SystemTime", "TcpListener", "TcpStream", "UdpSocket", "println", "eprintln"];

/// Each system, with the kinds and plural names that only it may name.
const KINDS: &[(&str, &[&str])] = &[
    ("streams", &["HostPool", "hostpools", "StreamsJob", "streamsjobs"]),
    (
        "coschedule",
        &["TaskRun", "taskruns", "PipelineRun", "pipelineruns", "Pipeline", "pipelines"],
    ),
    ("mpi", &[]),
    ("katalyst", &[]),
];

/// Where systems are put together: their list, and the prefixes of all keys.
const NAMES_KEYS: &[&str] = &["systems.rs", "systems/vocabulary.rs"];

/// The same with their modules, and the door for tests.
const NAMES_MODULES: &[&str] = &["systems.rs", "systems/policy.rs", "testing.rs"];

/// The sources by their paths in `src`, without lines that are comments.
fn sources() -> Vec<(String, String)> {
    let folder = Path::new(ROOT).join("src");
    let code = |text: String| -> String {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let relative = |path: &Path| path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned();
    files(&folder, "rs").into_iter().map(|(path, text)| (relative(&path), code(text))).collect()
}

/// A source without its unit tests, which come last.
fn without_tests(code: &str) -> &str {
    code.split("#[cfg(test)]\nmod tests {").next().unwrap()
}

/// A line without its texts, if all of them end in it.
fn without_texts(line: &str) -> String {
    let parts: Vec<&str> = line.split('"').collect();
    let step = if parts.len() % 2 == 1 { 2 } else { 1 };
    parts.into_iter().step_by(step).collect::<Vec<_>>().join("\"")
}

/// Every path and word of a source, with the braces of imports written out.
fn paths(code: &str) -> Vec<String> {
    let code: String = code.lines().map(|line| without_texts(line) + "\n").collect();
    let mut paths = Vec::new();
    let mut prefixes = vec![String::new()];
    let mut word = String::new();
    for c in code.chars().chain(['\n']) {
        if c.is_alphanumeric() || matches!(c, '_' | ':') {
            word.push(c);
            continue;
        }
        let path = format!("{}{word}", prefixes.last().unwrap());
        word.clear();
        match c {
            '{' if path.ends_with("::") => prefixes.push(path),
            '{' => prefixes.push(String::new()),
            _ => paths.push(path),
        }
        if c == '}' && prefixes.len() > 1 {
            prefixes.pop();
        }
    }
    paths
}

/// The module of the crate that a path in `module` leads to, if it leads to one.
fn top<'p>(module: &[&str], path: &'p str) -> Option<&'p str> {
    let parts: Vec<&str> = path.split("::").collect();
    let climbed = parts.iter().take_while(|part| **part == "super").count();
    match parts[0] {
        "crate" | "stowplan" => parts.get(1).copied().filter(|name| !name.is_empty()),
        // Less than that stays in the module; names that are no module are items of it.
        "super" if climbed >= module.len() => {
            parts.get(climbed).copied().filter(|name| ORDER.iter().any(|(known, _)| known == name))
        }
        _ => None,
    }
}

/// Everything that `code`, the source of `module`, breaks.
fn problems(module: &[&str], code: &str) -> Vec<String> {
    let Some((own, allowed)) = ORDER.iter().find(|(name, _)| *name == module[0]) else {
        return vec![format!("module {} is not in ORDER of {}", module[0], file!())];
    };
    let mut problems = Vec::new();
    for path in paths(code) {
        let begins = |impure: &&str| {
            path.strip_prefix(*impure).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        let has_word = path.split("::").any(|word| IMPURE_WORDS.contains(&word));
        if PURE.contains(own) && (has_word || IMPURE.iter().any(begins)) {
            problems.push(format!("{own} decides, and names {path}"));
        }
        // Tests of what is below the simulation run in it.
        let is_simulated = module.contains(&"tests");
        if let Some(named) = top(module, &path)
            && named != *own
            && !(is_simulated && named == "simulation")
            && !allowed.split_whitespace().any(|it| it == named)
        {
            problems.push(format!("{own} is below {named}, and names it"));
        }
    }
    problems
}

#[test]
fn modules_that_decide_do_no_io_and_no_module_names_one_above_it() {
    let mut seen = Vec::new();
    let mut broken = Vec::new();
    for (file, code) in sources() {
        let module: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
        if matches!(module[..], ["lib" | "main" | "testing"]) {
            continue;
        }
        seen.push(module[0].to_owned());
        broken.extend(problems(&module, &code).iter().map(|problem| format!("{file}: {problem}")));
    }
    assert!(PURE.iter().all(|name| seen.iter().any(|it| it == name)), "{seen:?}");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn io_and_names_of_modules_above_are_seen_and_nothing_else() {
    for (module, code, is_broken) in [
        ("view/node", "use std::fs;", true),
        ("view/node", "use std::{fmt, fs::File};", true),
        ("view", "use std::{collections::{BTreeMap}, time::{Duration, Instant}};", true),
        ("view", "fn f() { let now = std::time::SystemTime::now(); }", true),
        ("view", "use std::time; fn f() { time::Instant::now(); }", true),
        ("view", "async fn f() { tokio::spawn(async {}); }", true),
        ("view", "use kube::{Client, ResourceExt};", true),
        ("view", "use kube::runtime::watcher;", true),
        ("view", "pub use std::env as surroundings;", true),
        ("view", "fn f() { tracing::info!(\"x\"); println!(\"x\"); }", true),
        ("view", "fn f() -> rand::rngs::ThreadRng { g() }", true),
        ("view", "fn f() -> &'static str { \"use std::fs; tokio::x\" }", false),
        ("server", "use std::fs; fn f() { tokio::spawn(g()); println!(\"x\"); }", false),
        ("view/node", "use std::net::IpAddr; use std::time::Duration;", false),
        ("view/node", "use kube::CustomResource;", false),
        ("view/node", "use super::*; use super::node::Node; use crate::view::Rows;", false),
        ("view", "mod tests { use super::Index; }", false),
        ("view", "use crate::systems::streams::keys;", true),
        ("view/node", "use crate::{api, systems};", true),
        ("view/node", "use super::super::systems::streams;", true),
        ("view", "use super::systems;", true),
        ("placement/merge", "fn f() { crate::view::View::default(); }", true),
        ("systems/streams/token", "use crate::admission::Decision;", true),
        ("admission", "pub use crate::server::Limits;", true),
        ("cluster", "use crate::admission::decide;", true),
        ("policy", "use crate::unknown::module;", true),
        ("newcomer", "", true),
        ("systems/streams", "use crate::{placement::pod::Pod, view::{Key, View}};", false),
        ("systems/streams/request", "use super::keys; use super::super::Outcome;", false),
        ("admission", "use crate::systems::SYSTEMS; use self::review::Review;", false),
        ("cli", "use crate::server; use crate::admission::decide;", false),
    ] {
        let found = problems(&module.split('/').collect::<Vec<_>>(), code);
        assert_eq!(!found.is_empty(), is_broken, "{module}: {code}: {found:?}");
    }
}

/// Whether a file, relative to `src`, is in the folder of a system or is the file beside it.
fn is_of_system(file: &str, system: &str) -> bool {
    let rest = file.strip_prefix("systems/").and_then(|file| file.strip_prefix(system));
    rest.is_some_and(|rest| rest.starts_with(['/', '.']))
}

/// Whether a text is the full key of an annotation or a label, of a domain that is not Kubernetes' own.
fn is_key(text: &str) -> bool {
    let of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.split_once('/').is_some_and(|(domain, name)| {
        domain.contains('.')
            && !name.is_empty()
            && domain.chars().chain(name.chars()).all(of_key)
            && !name.starts_with("v1")
            && !domain.ends_with("kubernetes.io")
    })
}

/// Whether a text has a key in it, and not only one that begins or ends with it.
fn names(text: &str, key: &str) -> bool {
    let of_key = |c: char| c.is_alphanumeric() || c == '-';
    text.match_indices(key).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + key.len()..]);
        !before.ends_with(|c| of_key(c) || c == '.')
            && !after.starts_with(|c| of_key(c) || c == '_')
    })
}

#[test]
fn the_keys_kinds_and_modules_of_a_system_are_named_in_its_folder_alone() {
    let sources = sources();
    let mut broken = Vec::new();
    let mut known = 0;
    for (system, kinds) in KINDS {
        let is_test = |file: &str| file.ends_with("/tests.rs") || file.contains("/tests/");
        let (own, others): (Vec<_>, Vec<_>) =
            sources.iter().partition(|(file, _)| is_of_system(file, system));
        let own = own.iter().filter(|(file, _)| !is_test(file));
        let texts = own.flat_map(|(_, code)| without_tests(code).split('"'));
        let keys: Vec<&str> = texts.filter(|text| is_key(text)).collect();
        assert!(!keys.is_empty(), "{system} declares no key");
        known += keys.len();
        let kinds: Vec<String> = kinds.iter().map(|kind| format!("{kind:?}")).collect();
        for (file, code) in others {
            let code = without_tests(code);
            if !NAMES_KEYS.contains(&&**file) && !is_test(file) {
                let keys = keys.iter().filter(|key| names(code, key)).map(|key| (*key).to_owned());
                let kinds = kinds.iter().filter(|kind| code.contains(&***kind)).cloned();
                broken.extend(keys.chain(kinds).map(|it| format!("{file} names {it} of {system}")));
            }
            let module = format!("systems::{system}");
            let leads_to = |path: &&String| {
                path.split_once(&module)
                    .is_some_and(|(_, rest)| !rest.starts_with(char::is_alphanumeric))
            };
            if !NAMES_MODULES.contains(&&**file) {
                let found = paths(code);
                broken.extend(found.iter().filter(leads_to).map(|it| format!("{file} names {it}")));
            }
        }
    }
    assert!(known > 20, "only {known} keys were found");
    broken.sort();
    broken.dedup();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_key_is_seen_in_any_text() {
    assert!(names("the key x.dev/c, too", "x.dev/c") && names("\"x.dev/c\"", "x.dev/c"));
    assert!(!names("x.dev/c-d", "x.dev/c") && !names("y.x.dev/c", "x.dev/c"));
    assert!(is_key("x.dev/a") && !is_key("x.dev/") && !is_key("x.dev/v1") && !is_key("a b.c/d"));
    assert!(!is_key("node.kubernetes.io/unschedulable") && !is_key("apps/v1"));
    let named = paths("use crate::{view, systems::{fit, coschedule::keys}}; fn f() { a::b(); }");
    assert!(named.contains(&"crate::systems::coschedule::keys".to_owned()), "{named:?}");
    assert!(named.contains(&"a::b".to_owned()), "{named:?}");
}
