//! The dependency rules of `core/src/lib.rs` and `src/lib.rs`. The compiler keeps I/O out of what decides: no
//! client and no runtime is in the tree of `stowplan-core`, and `core/clippy.toml` forbids the standard
//! library's own. What is left is read in the sources: which module names which, and that the keys, kinds
//! and modules of a system are named in its folder alone.

use std::path::Path;
use std::process::Command;

use crate::chart::helm::stdout;
use crate::documents::{ROOT, files};

/// The modules of each package, from the lowest to the highest, and the modules that each may name besides
/// itself.
const ORDER: [(&str, &str); 2] = [
    (
        "core/src",
        "
text
names
kubernetes
wire
placement text wire kubernetes
policy names text
api names
view names wire kubernetes
systems placement view policy api names wire kubernetes
admission systems placement view policy api wire kubernetes
simulation admission systems placement view api kubernetes",
    ),
    (
        "src",
        "
telemetry
cluster telemetry
tls telemetry
server cluster tls telemetry
controller cluster tls telemetry
cli server controller cluster tls telemetry",
    ),
];

/// Crates that do I/O, read clocks or start threads. None of them is in the tree of what decides.
const IMPURE: [&str; 13] = [
    "anyhow",
    "clap",
    "futures",
    "hyper",
    "kube",
    "kube-client",
    "kube-runtime",
    "rand",
    "ring",
    "rustls",
    "tokio",
    "tower",
    "tracing-subscriber",
];

/// Each system, with the kinds and plural names that only it may name.
const KINDS: [(&str, &str); 4] = [
    ("streams", "HostPool hostpools StreamsJob streamsjobs"),
    ("coschedule", "TaskRun taskruns PipelineRun pipelineruns Pipeline pipelines"),
    ("mpi", ""),
    ("katalyst", ""),
];

/// The files that put systems together: their list, the tables of the View and the sections of the policy.
const NAMES_SYSTEMS: [&str; 3] = ["systems.rs", "systems/view.rs", "systems/policy.rs"];

/// The sources of a folder by their paths in it, without comments and without unit tests, which come last.
fn sources(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(ROOT).join(folder);
    let code = |text: &str| -> String {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let is_test = |path: &str| path.ends_with("tests.rs") || path.contains("tests/");
    let relative = |path: &Path| path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned();
    let sources = files(&folder, "rs").into_iter();
    let sources = sources.map(|(path, text)| (relative(&path), code(&text)));
    sources.filter(|(path, _)| !is_test(path)).collect()
}

/// The first word of a text.
fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

#[test]
fn no_module_names_one_above_it() {
    let mut broken = Vec::new();
    for (folder, order) in ORDER {
        let rows: Vec<Vec<&str>> =
            order.trim().lines().map(|row| row.split(' ').collect()).collect();
        let mut unseen: Vec<&str> = rows.iter().map(|row| row[0]).collect();
        for (file, code) in sources(folder) {
            let own = word(&file);
            if matches!(own, "lib" | "main" | "testing") {
                continue;
            }
            unseen.retain(|module| *module != own);
            let Some(row) = rows.iter().find(|row| row[0] == own) else {
                broken.push(format!("{folder}/{file}: {own} is not in ORDER of {}", file!()));
                continue;
            };
            let named = code.split("crate::").skip(1).map(word);
            let above = named.filter(|named| !row.contains(named));
            broken.extend(above.map(|named| format!("{folder}/{file} names crate::{named}")));
        }
        assert!(unseen.is_empty(), "{folder}: {unseen:?}");
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Built by itself: in a build of the whole workspace, the features that others ask for count too.
#[test]
fn what_decides_has_no_client_no_runtime_and_no_random_numbers_in_its_tree() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "tree",
        "--package=stowplan-core",
        "--edges=normal,no-proc-macro",
        "--prefix=none",
    ]);
    cargo.args(["--format={p}", "--offline", "--locked"]).current_dir(ROOT);
    let tree = stdout(&mut cargo);
    let crates: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    for expected in ["stowplan-core", "k8s-openapi", "kube-core"] {
        assert!(crates.contains(&expected), "{crates:?}");
    }
    let impure: Vec<_> = IMPURE.iter().filter(|name| crates.contains(name)).collect();
    assert!(impure.is_empty(), "{impure:?} in the tree of stowplan-core");
}

/// Returns true if a text is the full key of an annotation or a label, of a domain that is not Kubernetes' own.
fn is_key(text: &str) -> bool {
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    text.chars().all(is_of_key)
        && text.split_once('/').is_some_and(|(domain, name)| {
            domain.contains('.')
                && !domain.ends_with("kubernetes.io")
                && !name.is_empty()
                && !name.starts_with("v1")
        })
}

#[test]
fn the_keys_kinds_and_modules_of_a_system_are_named_in_its_folder_alone() {
    let mut all = sources("core/src");
    all.extend(sources("src"));
    let mut broken = Vec::new();
    for (system, kinds) in KINDS {
        let [folder, file] = [format!("systems/{system}/"), format!("systems/{system}.rs")];
        let (own, others): (Vec<_>, Vec<_>) =
            all.iter().partition(|(path, _)| path.starts_with(&folder) || *path == file);
        let texts = own.iter().flat_map(|(_, code)| code.split('"'));
        let keys: Vec<&str> = texts.filter(|text| is_key(text)).collect();
        assert!(keys.len() > 2, "{system} has no keys: {keys:?}");
        let words = keys.into_iter().chain(kinds.split_whitespace());
        let mut forbidden: Vec<String> = words.map(|word| format!("{word:?}")).collect();
        forbidden.extend([format!("systems::{system}::"), format!("super::{system}::")]);
        for (file, code) in others {
            if !NAMES_SYSTEMS.contains(&file.as_str()) {
                let found = forbidden.iter().filter(|word| code.contains(word.as_str()));
                broken.extend(found.map(|word| format!("{file} names {word} of {system}")));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
