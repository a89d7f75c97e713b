//! The dependency rule of `src/lib.rs`, held by reading the sources: modules that decide do no I/O,
//! no module names one above it, and the keys, kinds and modules of a system are named in its folder
//! alone. Words are read, not the language: braces are not written out, so some imports are
//! written one by one.

use std::path::Path;

use crate::documents::{ROOT, files};

/// Every module of the crate, and the modules that it may name besides itself. Those with a star
/// decide: they know their arguments and nothing else.
const ORDER: &str = "
text*
names*
kubernetes*
wire*
placement* text wire kubernetes
policy* names text
api names
view* names wire kubernetes
systems* placement view policy api names wire kubernetes
admission* systems placement view policy api wire kubernetes
simulation* admission systems placement view api kubernetes
cluster systems placement view policy api telemetry
tls telemetry
telemetry text
server admission cluster tls telemetry systems placement view policy api
controller admission cluster systems placement view policy api telemetry tls kubernetes
cli server controller admission simulation cluster tls telemetry systems placement view policy api text names kubernetes
";

/// A module that decides names no path that begins so, and writes some imports without braces.
const IMPURE: &str = "futures hyper hyper_util jiff::{ jiff::Timestamp::now jiff::Zoned::now \
    Timestamp::now kube::{ kube::Api kube::Client kube::Config kube::api kube::client kube::config \
    kube::runtime kube_runtime rand rustls std::{ std::env std::fs std::io \
    std::net::ToSocketAddrs std::os std::process std::thread tokio tokio_rustls tracing";

/// The same by one word, however it was imported.
const IMPURE_WORDS: [&str; 7] =
    ["Instant", "SystemTime", "TcpListener", "TcpStream", "UdpSocket", "println", "eprintln"];

/// Each system, with the kinds and plural names that only it may name.
const KINDS: [(&str, &str); 4] = [
    ("streams", "HostPool hostpools StreamsJob streamsjobs"),
    ("coschedule", "TaskRun taskruns PipelineRun pipelineruns Pipeline pipelines"),
    ("mpi", ""),
    ("katalyst", ""),
];

/// Where systems are put together: their list, and the prefixes of all keys.
const NAMES_KEYS: [&str; 2] = ["systems.rs", "systems/vocabulary.rs"];

/// The same with their modules, and the door for tests.
const NAMES_MODULES: [&str; 3] = ["systems.rs", "systems/policy.rs", "testing.rs"];

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
    parts.into_iter().step_by(step).collect::<Vec<_>>().join("\"") + "\n"
}

/// Every path and word of a source. A path to braces ends with the first of them.
fn paths(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':' | '{'))
}

/// The module of the crate that a path in `module` leads to, if it leads to one. With a brace: it is
/// one of several.
fn top<'p>(module: &[&str], path: &'p str) -> Option<&'p str> {
    let parts: Vec<&str> = path.split("::").collect();
    let climbed = parts.iter().take_while(|part| **part == "super").count();
    match parts[0] {
        "crate" | "stowplan" => parts.get(1).copied(),
        // Less than that stays in the module; names that are no module are items of it.
        "super" if climbed >= module.len() => {
            parts.get(climbed).copied().filter(|name| name.starts_with('{') || find(name).is_some())
        }
        _ => None,
    }
}

/// The row of a module in [`ORDER`]: whether it decides, and the modules that it may name.
fn find(module: &str) -> Option<(bool, Vec<&'static str>)> {
    let mut rows = ORDER.trim().lines().map(|row| row.split(' ').collect::<Vec<_>>());
    let row = rows.find(|row| row[0].trim_end_matches('*') == module)?;
    Some((row[0].ends_with('*'), row[1..].to_vec()))
}

/// Everything that `code`, the source of `module`, breaks.
fn problems(module: &[&str], code: &str) -> Vec<String> {
    let own = module[0];
    let Some((decides, allowed)) = find(own) else {
        return vec![format!("{own} is not in ORDER of {}", file!())];
    };
    let mut problems = Vec::new();
    let code: String = code.lines().map(without_texts).collect();
    for path in paths(&code) {
        let begins = |impure: &str| match path.strip_prefix(impure) {
            Some(rest) => rest.is_empty() || rest.starts_with(':') || impure.ends_with('{'),
            None => false,
        };
        let has_word = path.split("::").any(|word| IMPURE_WORDS.contains(&word));
        if decides && (has_word || IMPURE.split_whitespace().any(begins)) {
            problems.push(format!("{own} decides, and names {path}"));
        }
        // Tests of what is below the simulation run in it.
        let is_simulated = |named: &str| module.contains(&"tests") && named == "simulation";
        if let Some(named) = top(module, path)
            && !(named == own || is_simulated(named) || allowed.contains(&named))
        {
            problems.push(format!("{own} is below {named:?}, and names {path}"));
        }
    }
    problems
}

#[test]
fn modules_that_decide_do_no_io_and_no_module_names_one_above_it() {
    let mut broken = Vec::new();
    let mut unseen: Vec<_> = ORDER.split_whitespace().filter(|it| it.ends_with('*')).collect();
    for (file, code) in sources() {
        let module: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
        unseen.retain(|it| it.trim_end_matches('*') != module[0]);
        if !matches!(module[..], ["lib" | "main" | "testing"]) {
            let problems = problems(&module, &code).into_iter();
            broken.extend(problems.map(|problem| format!("{file}: {problem}")));
        }
    }
    assert!(unseen.is_empty(), "{unseen:?}");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn io_and_names_of_modules_above_are_seen_and_nothing_else() {
    for (module, code, is_broken) in [
        ("view/node", "use std::fs;", true),
        ("view/node", "use std::{fmt, fs::File};", true),
        ("view", "use std::time::{Duration, Instant};", true),
        ("view", "async fn f() { tokio::spawn(async {}); }", true),
        ("view", "use kube::{Client, ResourceExt};", true),
        ("view", "fn f() { println!(\"x\"); }", true),
        ("view", "const F: &str = \"use std::fs; tokio::x\";", false),
        ("server", "use std::fs; fn f() { tokio::spawn(g()); println!(\"x\"); }", false),
        ("view/node", "use std::net::IpAddr; use std::time::Duration;", false),
        ("view/node", "use kube::CustomResource;", false),
        ("view/node", "use super::*; use super::node::Node; use crate::view::Rows;", false),
        ("view", "mod tests { use super::Index; }", false),
        ("view", "use crate::systems::streams::keys;", true),
        ("view/node", "use crate::{api, systems};", true),
        ("view/node", "use super::super::systems::streams;", true),
        ("view", "use super::{systems, api};", true),
        ("placement/merge", "fn f() { crate::view::View::default(); }", true),
        ("policy", "use crate::unknown::module;", true),
        ("newcomer", "", true),
        ("admission", "use crate::systems::SYSTEMS; use self::review::Review;", false),
    ] {
        let found = problems(&module.split('/').collect::<Vec<_>>(), code);
        assert_eq!(!found.is_empty(), is_broken, "{module}: {code}: {found:?}");
    }
}

/// Whether a text is the full key of an annotation or a label, of a domain that is not Kubernetes' own.
fn is_key(text: &str) -> bool {
    text.split_once('/').is_some_and(|(domain, name)| {
        domain.contains('.')
            && !domain.ends_with("kubernetes.io")
            && !name.is_empty()
            && !name.starts_with("v1")
            && keys(text).eq([text])
    })
}

/// The words of a source that could be keys.
fn keys(code: &str) -> impl Iterator<Item = &str> {
    let words = code.split(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '_' | '.' | '/'));
    words.map(|word| word.trim_end_matches(['.', '/']))
}

/// The names in a source of what belongs to a system alone.
fn names_of(system: &str, kinds: &str, own: &[&str], file: &str, code: &str) -> Vec<String> {
    let mut found = Vec::new();
    if !NAMES_KEYS.contains(&file) && !file.ends_with("/tests.rs") && !file.contains("/tests/") {
        found.extend(keys(code).filter(|key| own.contains(key)).map(str::to_owned));
        found.extend(
            kinds.split_whitespace().map(|it| format!("{it:?}")).filter(|it| code.contains(it)),
        );
    }
    if !NAMES_MODULES.contains(&file) {
        let is_named = |path: &&str| {
            let parts: Vec<&str> = path.split("::").collect();
            parts[0] == system && parts.len() > 1
                || parts.windows(2).any(|pair| pair == ["systems", system])
        };
        found.extend(paths(code).filter(is_named).map(str::to_owned));
    }
    found
}

#[test]
fn the_keys_kinds_and_modules_of_a_system_are_named_in_its_folder_alone() {
    let sources = sources();
    let mut broken = Vec::new();
    for (system, kinds) in KINDS {
        let [folder, file] = [format!("systems/{system}/"), format!("systems/{system}.rs")];
        let (own, others): (Vec<_>, Vec<_>) =
            sources.iter().partition(|(path, _)| path.starts_with(&folder) || *path == file);
        let is_test = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
        let own = own.iter().filter(|(path, _)| !is_test(path));
        let texts = own.flat_map(|(_, code)| without_tests(code).split('"'));
        let own: Vec<&str> = texts.filter(|text| is_key(text)).collect();
        assert!(own.len() > 2, "{system} has no keys: {own:?}");
        for (file, code) in others {
            let found = names_of(system, kinds, &own, file, without_tests(code));
            broken.extend(found.iter().map(|it| format!("{file} names {it} of {system}")));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn what_belongs_to_a_system_is_seen_in_any_text_and_any_use() {
    for (code, is_seen) in [
        ("\"the key x.dev/c, too\"", true),
        ("\"x.dev/c.\"", true),
        ("\"x.dev/c-d y.x.dev/c\"", false),
        ("(\"Run\")", true),
        ("RunKind", false),
        ("use crate::systems::coschedule::keys;", true),
        ("use crate::systems::{fit, coschedule::keys};", true),
        ("let coschedule = policy.coschedule;", false),
    ] {
        let found = names_of("coschedule", "Run", &["x.dev/c"], "view.rs", code);
        assert_eq!(!found.is_empty(), is_seen, "{code}: {found:?}");
    }
    assert!(is_key("x.dev/a") && !is_key("x.dev/") && !is_key("x.dev/v1") && !is_key("a b.c/d"));
    assert!(!is_key("node.kubernetes.io/unschedulable") && !is_key("apps/v1"));
}
