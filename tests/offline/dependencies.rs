//! Holds `deny.toml` against the dependency graph that `Cargo.lock` resolves to.
//!
//! `cargo deny` reads the same file where the repository is hosted, and needs a tool and a network.
//! The worst findings, a second crypto provider or an unknown licence, fail here as well, on every
//! machine that runs the tests.

use std::collections::BTreeSet;
use std::process::Command;

use cargo_metadata::MetadataCommand;
use serde::Deserialize;
use spdx::{Expression, Licensee, ParseMode};

/// Crates that bring a crypto provider to rustls. The graph has [`THE_PROVIDER`] and no other.
const PROVIDERS: &[&str] = &[
    "aws-lc-fips-sys",
    "aws-lc-rs",
    "aws-lc-sys",
    "boring",
    "boring-sys",
    "openssl",
    "openssl-sys",
    "ring",
    "rustls-graviola",
    "rustls-mbedtls-provider-utils",
    "rustls-openssl",
    "rustls-rustcrypto",
    "rustls-symcrypt",
];

const THE_PROVIDER: &str = "ring";

/// The crypto that could come back with a dependency.
const BANNED: [&str; 4] = ["aws-lc-rs", "native-tls", "openssl", "openssl-sys"];

/// Only for crates that the build has downloaded: those of `deny.toml`'s targets, and of no other
/// platform. A test asks no registry.
const OFFLINE: [&str; 2] = ["--locked", "--offline"];

/// The parts of `deny.toml` that are held here.
#[derive(Deserialize)]
struct Deny {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Graph {
    targets: Vec<String>,
    all_features: bool,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
    exceptions: Vec<Exception>,
}

/// Licences of one crate.
#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

impl Deny {
    fn read() -> Self {
        toml::from_str(include_str!("../../deny.toml")).expect("deny.toml has the parts held here")
    }

    /// For every crate, or by an exception for `name`.
    fn allowed(&self, name: &str) -> Vec<Licensee> {
        let exceptions = self.licenses.exceptions.iter().filter(|exception| exception.name == name);
        let allowed =
            self.licenses.allow.iter().chain(exceptions.flat_map(|exception| &exception.allow));
        allowed.map(|licence| Licensee::parse(licence).expect("an SPDX licence")).collect()
    }
}

/// A package of the graph: its name and the manifest's `license`, an SPDX expression or the older form
/// with slashes.
type Package<'p> = (&'p str, Option<&'p str>);

/// All packages that are built for any target of `deny.toml`, for tests and build scripts too.
fn resolved(deny: &Deny) -> Vec<Package<'static>> {
    let mut options = OFFLINE.map(str::to_owned).to_vec();
    if deny.graph.all_features {
        options.push("--all-features".to_owned());
    }
    let targets = deny.graph.targets.iter();
    options.extend(targets.flat_map(|target| ["--filter-platform".to_owned(), target.clone()]));
    let mut metadata = MetadataCommand::new();
    metadata.manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    let metadata = metadata.other_options(options).exec().expect("cargo metadata answers");
    let metadata: &'static _ = Box::leak(Box::new(metadata));
    let nodes = &metadata.resolve.as_ref().expect("the graph is resolved").nodes;
    let packages: Vec<Package<'_>> = nodes
        .iter()
        .map(|node| (metadata[&node.id].name.as_str(), metadata[&node.id].license.as_deref()))
        .collect();
    assert!(packages.len() > 100, "a graph of {} packages was not resolved", packages.len());
    packages
}

/// Everything in `packages` that `deny` does not allow, one sentence each.
fn findings(packages: &[Package<'_>], deny: &Deny) -> Vec<String> {
    let mut found = Vec::new();
    for (name, licence) in packages {
        let allowed = deny.allowed(name);
        if let Some(ban) = deny.bans.deny.iter().find(|ban| ban.name == *name) {
            found.push(format!(
                "{name} is banned ({}); `cargo tree --invert {name}` shows who brings it",
                ban.reason
            ));
        }
        match licence.map(|text| Expression::parse_mode(text, ParseMode::LAX)) {
            None => found.push(format!("{name} names no licence")),
            Some(Err(error)) => found.push(format!("{name}: licence: {error}")),
            Some(Ok(expression)) => {
                if !expression.evaluate(|needed| allowed.iter().any(|it| it.satisfies(needed))) {
                    found.push(format!("{name} is licensed under {expression}"));
                }
            }
        }
    }
    let providers = packages.iter().map(|(name, _)| *name).filter(|name| PROVIDERS.contains(name));
    let providers: Vec<&str> = providers.collect();
    if providers != [THE_PROVIDER] {
        found.push(format!(
            "the one crypto provider is to be one {THE_PROVIDER}, and there are {providers:?}"
        ));
    }
    found
}

#[test]
fn the_resolved_graph_keeps_to_deny_toml_which_allows_no_licence_in_vain() {
    let deny = Deny::read();
    let packages = resolved(&deny);
    let found = findings(&packages, &deny);
    assert!(found.is_empty(), "{}", found.join("\n"));
    for (index, licence) in deny.licenses.allow.iter().enumerate() {
        let mut without = Deny::read();
        without.licenses.allow.remove(index);
        let is_needed = !findings(&packages, &without).is_empty();
        assert!(is_needed, "no dependency needs {licence} any more: take it out of deny.toml");
    }
    for (index, exception) in deny.licenses.exceptions.iter().enumerate() {
        let mut without = Deny::read();
        without.licenses.exceptions.remove(index);
        let is_needed = !findings(&packages, &without).is_empty();
        assert!(is_needed, "{} needs no exception any more", exception.name);
    }
}

#[test]
fn no_exception_is_for_what_is_shipped() {
    let deny = Deny::read();
    let targets = deny.graph.targets.iter().map(|target| format!("--target={target}"));
    let output = Command::new(env!("CARGO"))
        .arg("tree")
        .args(OFFLINE)
        .args(["--package=stowplan", "--edges=normal,build", "--prefix=none", "--format={p}"])
        .args(targets)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo tree runs");
    let tree = String::from_utf8(output.stdout).expect("names are text");
    let shipped: BTreeSet<&str> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(shipped.contains("kube"), "{}", String::from_utf8_lossy(&output.stderr));
    for exception in deny.licenses.exceptions {
        assert!(!shipped.contains(&*exception.name), "{} is shipped", exception.name);
    }
}

#[test]
fn each_fault_of_a_graph_is_found() {
    let deny = Deny::read();
    assert!(!deny.bans.deny.iter().any(|ban| ban.name == THE_PROVIDER));
    let sound = [(THE_PROVIDER, Some("Apache-2.0 AND ISC")), ("hyper", Some("MIT"))];
    assert_eq!(findings(&sound, &deny), Vec::<String>::new());
    let with = |package: Package<'_>| findings(&[&sound[..], &[package]].concat(), &deny);
    for name in BANNED {
        let found = with((name, Some("MIT"))).join("\n");
        assert!(found.starts_with(&format!("{name} is banned (")), "{found}");
        assert!(found.contains(&format!("cargo tree --invert {name}")), "{found}");
    }
    let wrong: [&[&str]; 4] =
        [&[], &["ring", "ring"], &["ring", "rustls-graviola"], &["rustls-graviola"]];
    for names in wrong {
        let graph: Vec<Package<'_>> = names.iter().map(|name| (*name, Some("MIT"))).collect();
        let found = findings(&graph, &deny);
        assert_eq!(found.len(), 1, "{names:?}: {found:?}");
        assert!(found[0].contains("crypto provider"), "{found:?}");
    }
    for (licence, is_allowed) in [
        (Some("MIT OR GPL-3.0-only"), true),
        (Some("MIT/Apache-2.0"), true),
        (Some("Apache-2.0 / MIT"), true),
        (Some("(MIT OR GPL-3.0-only) AND Unicode-3.0"), true),
        (Some("Apache-2.0 WITH LLVM-exception"), true),
        (Some("GPL-3.0-only"), false),
        (Some("MIT AND GPL-3.0-only"), false),
        (Some("Apache-2.0 WITH Swift-exception"), false),
        (Some("AGPL-3.0-or-later OR SSPL-1.0"), false),
        (Some("not an expression"), false),
        (None, false),
    ] {
        let found = with(("some", licence));
        assert_eq!(found.len(), usize::from(!is_allowed), "{licence:?}: {found:?}");
    }
}
