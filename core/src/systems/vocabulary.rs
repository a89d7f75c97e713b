//! Recognises stowplan's annotation keys, and likely misspellings of them.

use std::sync::LazyLock;

use super::exclusion::IGNORE;
use super::{Prefix, SYSTEMS, System};
use crate::placement::record;

/// The meaning of an annotation key.
#[derive(Clone, Copy, Debug)]
pub enum Meaning {
    /// The key is not stowplan's.
    Foreign,
    /// The record that an earlier admission round wrote.
    Record,
    /// A key of this system.
    Known(&'static System),
    /// A likely misspelling of this key.
    Meant(&'static str),
    /// The key of a label, which has no effect as an annotation.
    Label,
    /// A key with one of stowplan's prefixes that this release does not know.
    Unknown,
}

/// The prefix of the keys that stowplan defines, for any system.
const STOWPLAN: Prefix = Prefix::own("stowplan.dev/");

/// All prefixes. Every key of every object is compared with them.
static PREFIXES: LazyLock<Vec<&Prefix>> = LazyLock::new(|| {
    let of_systems = SYSTEMS.iter().flat_map(|system| system.prefixes);
    [&STOWPLAN].into_iter().chain(of_systems).collect()
});

/// The annotation keys of all systems.
static KEYS: LazyLock<Vec<&str>> =
    LazyLock::new(|| SYSTEMS.iter().flat_map(|system| system.keys).copied().collect());

/// Finds the meaning of an annotation key.
#[must_use]
pub fn meaning(key: &str) -> Meaning {
    // Nearly every annotation is foreign.
    if !PREFIXES.iter().any(|prefix| key.starts_with(prefix.shared)) {
        return Meaning::Foreign;
    }
    if key == record::KEY {
        return Meaning::Record;
    }
    if let Some(system) = find_system(key) {
        return Meaning::Known(system);
    }
    if key == IGNORE {
        return Meaning::Label;
    }
    // Only keys of the same domain are compared: the domain of `key` is one of stowplan's, and the
    // domains differ by more than a misspelling.
    let domain = key.find('/').map_or(key, |slash| &key[..=slash]);
    let known = || KEYS.iter().filter(|known| known.starts_with(domain));
    let name = &key[domain.len()..];
    let named = |known: &'static str| &known[domain.len()..];
    if let Some(meant) = known().find(|known| spelling(named(known)).eq(spelling(name))) {
        return Meaning::Meant(meant);
    }
    let is_own = PREFIXES.iter().any(|prefix| key.starts_with(prefix.own));
    // Two edits make another word of a short name, which may be another operator's key.
    let edits = |known: &str| if is_own || known.len() > 6 { 2 } else { 1 };
    match known().find(|known| is_near(named(known), name, edits(named(known)))) {
        Some(meant) => Meaning::Meant(meant),
        None if is_own => Meaning::Unknown,
        None => Meaning::Foreign,
    }
}

/// The system whose annotation this key is, exactly.
#[must_use]
pub fn find_system(key: &str) -> Option<&'static System> {
    SYSTEMS.iter().find(|system| system.keys.contains(&key))
}

/// A name in a normal form that ignores case, hyphens and underscores.
fn spelling(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().filter(|b| !matches!(b, b'-' | b'_')).map(|b| b.to_ascii_lowercase())
}

/// Returns true if the names differ by at most `edits` edits, in any case.
fn is_near(known: &str, name: &str, edits: usize) -> bool {
    // A much longer name needs more edits; computing the distance would take long.
    name.len().abs_diff(known.len()) <= edits
        && strsim::osa_distance(known, &name.to_ascii_lowercase()) <= edits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likely_misspellings_are_recognised() {
        for (prefix, key, typos) in [
            ("streams.ibm.com/", "host", &["hosts", "hst", "Host", "HST"][..]),
            ("streams.ibm.com/", "host-pool", &["host-pol", "hostPool", "HOST-POOL", "HOST_POL"]),
            ("streams.ibm.com/", "host-pool", &["hst-pool"]),
            ("streams.ibm.com/", "host-colocation", &["host-colocaton", "host-collocation"]),
            ("streams.ibm.com/", "host-colocation", &["hostColocation"]),
            ("streams.ibm.com/", "host-exlocation", &["hostexlocation"]),
            ("stowplan.dev/", "coschedule-group", &["coschedul-group"]),
            ("mpi.stowplan.dev/", "workers", &["worker"]),
            (
                "katalyst.kubewharf.io/",
                "microtopology_antiaffinity",
                &["microtopology_anti_affinity"],
            ),
        ] {
            for typo in typos {
                let found = meaning(&format!("{prefix}{typo}"));
                let meant = format!("{prefix}{key}");
                assert!(matches!(found, Meaning::Meant(key) if key == meant), "{prefix}{typo}");
            }
        }
    }

    #[test]
    fn other_keys_are_foreign_unknown_or_the_label_of_the_opt_out() {
        for key in ["", "a", "host", "stowplan.dev", "stowplan.development/x"] {
            assert!(matches!(meaning(key), Meaning::Foreign), "{key}");
        }
        for key in ["hostIP", "hostname", "job", "pe", "port", "version", ""] {
            let key = format!("streams.ibm.com/{key}");
            assert!(matches!(meaning(&key), Meaning::Foreign), "{key}");
        }
        for key in ["xstowplan.dev/placement", "katalyst.kubewharf.io/memory_enhancement"] {
            assert!(matches!(meaning(key), Meaning::Foreign), "{key}");
        }
        let long = format!("stowplan.dev/{}", "a".repeat(262_144));
        // Those of a newer release.
        let future = ["stowplan.dev/future-thing", "streams.ibm.com/host-affinity-mode"];
        for key in future.into_iter().chain(["stowplan.dev/", &long]) {
            assert!(matches!(meaning(key), Meaning::Unknown), "{key:.60}");
        }
        assert!(matches!(meaning(IGNORE), Meaning::Label));
    }

    #[test]
    fn every_key_is_under_a_prefix_and_of_one_system_and_every_gate_is_found() {
        let mut all = std::collections::BTreeSet::new();
        for system in SYSTEMS {
            assert!(system.prefixes.iter().all(|prefix| prefix.own.starts_with(prefix.shared)));
            for key in system.keys {
                let mut prefixes = [&STOWPLAN].into_iter().chain(system.prefixes);
                assert!(prefixes.any(|prefix| key.starts_with(prefix.shared)), "{key}");
                assert!(all.insert(key), "{key}");
            }
            assert!(system.gates.iter().all(|gate| super::super::gate(gate.name).is_some()));
        }
    }
}
