//! Holds `deny.toml` against the dependency graph that `Cargo.lock` resolves to.
//!
//! `cargo deny` reads the same file where the repository is hosted, and needs a tool and a network.
//! The worst findings, a second crypto provider or an unknown licence, fail here as well, on every
//! machine that runs the tests.

use std::collections::{BTreeMap, BTreeSet};
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
        self.licenses
            .allow
            .iter()
            .chain(exceptions.flat_map(|exception| &exception.allow))
            .map(|licence| Licensee::parse(licence).expect("deny.toml allows SPDX licences"))
            .collect()
    }
}

/// One package of the graph.
#[derive(Clone)]
struct Package {
    name: String,
    version: String,
    /// The manifest's `license`: an SPDX expression, or the older form with slashes.
    licence: Option<String>,
}

/// All packages that are built for any target of `deny.toml`, for tests and build scripts too.
fn resolved(deny: &Deny) -> Vec<Package> {
    let mut options = OFFLINE.map(str::to_owned).to_vec();
    if deny.graph.all_features {
        options.push("--all-features".to_owned());
    }
    for target in &deny.graph.targets {
        options.extend(["--filter-platform".to_owned(), target.clone()]);
    }
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .other_options(options)
        .exec()
        .expect("cargo metadata answers");
    let resolve = metadata.resolve.as_ref().expect("the graph is resolved");
    resolve
        .nodes
        .iter()
        .map(|node| {
            let package = &metadata[&node.id];
            Package {
                name: package.name.to_string(),
                version: package.version.to_string(),
                licence: package.license.clone(),
            }
        })
        .collect()
}

/// Everything in `packages` that `deny` does not allow, one sentence each.
fn findings(packages: &[Package], deny: &Deny) -> Vec<String> {
    let mut found = Vec::new();
    for Package { name, version, licence } in packages {
        let allowed = deny.allowed(name);
        if let Some(ban) = deny.bans.deny.iter().find(|ban| ban.name == *name) {
            found.push(format!(
                "{name} {version} is banned ({}); `cargo tree --invert {name}` shows who brings it",
                ban.reason
            ));
        }
        match licence.as_deref().map(|text| Expression::parse_mode(text, ParseMode::LAX)) {
            None => found.push(format!("{name} {version} names no licence")),
            Some(Err(error)) => found.push(format!("{name} {version}: licence: {error}")),
            Some(Ok(expression)) => {
                let satisfied = expression
                    .evaluate(|needed| allowed.iter().any(|licence| licence.satisfies(needed)));
                if !satisfied {
                    found.push(format!("{name} {version} is licensed under {expression}"));
                }
            }
        }
    }
    let mut providers = BTreeMap::<&str, Vec<&str>>::new();
    for package in packages.iter().filter(|package| PROVIDERS.contains(&&*package.name)) {
        providers.entry(&package.name).or_default().push(&package.version);
    }
    if providers.len() != 1 || providers.get(THE_PROVIDER).is_none_or(|found| found.len() != 1) {
        found.push(format!(
            "the one crypto provider is to be one {THE_PROVIDER}, and there are {providers:?}"
        ));
    }
    found
}

#[test]
fn the_resolved_graph_keeps_to_deny_toml() {
    let deny = Deny::read();
    let packages = resolved(&deny);
    assert!(packages.len() > 100, "a graph of {} packages was not resolved", packages.len());
    let found = findings(&packages, &deny);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_allowed_licence_is_needed() {
    let deny = Deny::read();
    let packages = resolved(&deny);
    let before = findings(&packages, &deny).len();
    for (index, licence) in deny.licenses.allow.iter().enumerate() {
        let mut without = Deny::read();
        without.licenses.allow.remove(index);
        assert!(
            findings(&packages, &without).len() > before,
            "no dependency needs {licence} any more: take it out of deny.toml"
        );
    }
    for (index, exception) in deny.licenses.exceptions.iter().enumerate() {
        let mut without = Deny::read();
        without.licenses.exceptions.remove(index);
        assert!(
            findings(&packages, &without).len() > before,
            "{} needs no exception any more: take it out of deny.toml",
            exception.name
        );
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
fn the_bans_cover_the_crypto_that_could_come_back() {
    let deny = Deny::read();
    let banned: BTreeSet<_> = deny.bans.deny.iter().map(|ban| &*ban.name).collect();
    for name in ["aws-lc-rs", "native-tls", "openssl", "openssl-sys"] {
        assert!(banned.contains(name), "deny.toml bans no {name}");
    }
    assert!(!banned.contains(THE_PROVIDER));
}

/// A graph that `deny.toml` allows, to which each case below adds one fault.
fn sound() -> Vec<Package> {
    vec![package(THE_PROVIDER, "Apache-2.0 AND ISC"), package("hyper", "MIT")]
}

fn package(name: &str, licence: &str) -> Package {
    Package { name: name.into(), version: "1.2.3".into(), licence: Some(licence.into()) }
}

#[test]
fn a_sound_graph_has_no_findings() {
    assert_eq!(findings(&sound(), &Deny::read()), Vec::<String>::new());
}

#[test]
fn a_banned_crate_is_found() {
    for name in ["aws-lc-rs", "native-tls", "openssl", "openssl-sys"] {
        let mut graph = sound();
        graph.push(package(name, "MIT"));
        let found = findings(&graph, &Deny::read()).join("\n");
        assert!(found.starts_with(&format!("{name} 1.2.3 is banned (")), "{found}");
        assert!(found.contains(&format!("cargo tree --invert {name}")), "{found}");
    }
}

#[test]
fn any_other_number_of_crypto_providers_is_found() {
    let wrong: [&[&str]; 4] =
        [&[], &["ring", "ring"], &["ring", "rustls-graviola"], &["rustls-graviola"]];
    for names in wrong {
        let graph: Vec<_> = names.iter().map(|name| package(name, "MIT")).collect();
        let found = findings(&graph, &Deny::read());
        assert_eq!(found.len(), 1, "{names:?}: {found:?}");
        assert!(found[0].contains("crypto provider"), "{found:?}");
    }
}

#[test]
fn licences_are_judged_as_expressions() {
    let allowed = [
        "MIT OR GPL-3.0-only",
        "MIT/Apache-2.0",
        "Apache-2.0 / MIT",
        "(MIT OR GPL-3.0-only) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception",
    ];
    let refused = [
        "GPL-3.0-only",
        "MIT AND GPL-3.0-only",
        "Apache-2.0 WITH Swift-exception",
        "AGPL-3.0-or-later OR SSPL-1.0",
        "not an expression",
    ];
    for (licences, findings_expected) in [(&allowed, 0), (&refused, 1)] {
        for licence in licences {
            let mut graph = sound();
            graph.push(package("some", licence));
            let found = findings(&graph, &Deny::read());
            assert_eq!(found.len(), findings_expected, "{licence}: {found:?}");
        }
    }
    let mut graph = sound();
    graph.push(Package { licence: None, ..package("some", "") });
    assert_eq!(findings(&graph, &Deny::read()), ["some 1.2.3 names no licence"]);
}
