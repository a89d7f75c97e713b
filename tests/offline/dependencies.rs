//! Holds `deny.toml` against the dependency graph that `Cargo.lock` resolves to.
//!
//! `cargo deny` reads the same file where the repository is hosted, and needs a tool and a network.
//! The worst findings, a second crypto provider or an unknown licence, fail here as well, on every
//! machine that runs the tests. That no licence is allowed in vain is `cargo deny`'s to say.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use spdx::{Expression, Licensee, ParseMode};

use crate::chart::helm::{stdout, texts};
use crate::documents::ROOT;

/// Crates that bring a crypto provider to rustls, beside those of [`BANNED`]. The graph has
/// [`THE_PROVIDER`] and no other.
const PROVIDERS: &[&str] = &[
    "aws-lc-fips-sys",
    "aws-lc-sys",
    "boring",
    "boring-sys",
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

fn deny() -> Value {
    toml::from_str(include_str!("../../deny.toml")).expect("TOML")
}

/// The packages that are built for the targets of `deny.toml`: name, version, and SPDX expression. Only
/// those that the build has downloaded: a test asks no registry.
fn packages(options: &[&str]) -> BTreeSet<String> {
    let deny = deny();
    let targets = texts(&deny["graph"]["targets"]);
    let targets = targets.iter().map(|target| format!("--target={target}"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--locked", "--offline", "--prefix=none", "--format={p}\t{l}\t"]);
    let tree = stdout(cargo.args(options).args(targets).current_dir(ROOT));
    // A package that was shown before has a mark at its end.
    let lines = tree.lines().filter_map(|line| line.rsplit_once('\t'));
    let packages: BTreeSet<_> = lines.map(|(package, _)| package.to_owned()).collect();
    assert!(packages.len() > 100, "{packages:?}");
    packages
}

fn name(package: &str) -> &str {
    package.split(' ').next().expect("a name")
}

fn is_allowed(licence: &str, allowed: &[&str]) -> bool {
    let allowed: Vec<_> = allowed.iter().map(|it| Licensee::parse(it).expect("SPDX")).collect();
    Expression::parse_mode(licence, ParseMode::LAX)
        .is_ok_and(|it| it.evaluate(|needed| allowed.iter().any(|it| it.satisfies(needed))))
}

#[test]
fn there_is_one_crypto_provider_and_every_licence_is_allowed() {
    let deny = deny();
    let banned = deny["bans"]["deny"].as_array().expect("bans");
    let banned: Vec<_> = banned.iter().filter_map(|ban| ban["crate"].as_str()).collect();
    assert!(BANNED.iter().all(|name| banned.contains(name)), "{banned:?}");

    let packages = packages(&["--all-features"]);
    let names: Vec<_> = packages.iter().map(|package| name(package)).collect();
    let providers: Vec<_> = names.iter().filter(|name| PROVIDERS.contains(name)).collect();
    assert_eq!(providers, [&THE_PROVIDER]);
    for name in &names {
        let is_banned = banned.contains(name);
        assert!(!is_banned, "{name}: `cargo tree --invert {name}` shows which crate depends on it");
    }
    let exceptions = deny["licenses"]["exceptions"].as_array().expect("exceptions");
    for package in &packages {
        let mut allowed = texts(&deny["licenses"]["allow"]);
        let own = exceptions.iter().filter(|it| it["crate"] == name(package));
        allowed.extend(own.flat_map(|it| texts(&it["allow"])));
        let (_, licence) = package.split_once('\t').expect("a licence");
        assert!(is_allowed(licence, &allowed), "{package}");
        assert!(!is_allowed(&format!("({licence}) AND GPL-3.0-only"), &allowed), "{package}");
    }
    let shipped = self::packages(&["--package=stowplan", "--edges=normal,build"]);
    for exception in exceptions {
        let is_shipped = shipped.iter().any(|package| exception["crate"] == name(package));
        assert!(!is_shipped, "{} is shipped", exception["crate"]);
    }
}
