//! Recognises stowplan's annotation keys, and likely misspellings of them.

use std::sync::LazyLock;

use super::exclusion::IGNORE;
use super::{Prefix, SYSTEMS, System};
use crate::placement::record;

/// The meaning of an annotation key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meaning {
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
pub(crate) fn meaning(key: &str) -> Meaning {
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
pub(crate) fn find_system(key: &str) -> Option<&'static System> {
    SYSTEMS.iter().find(|system| system.keys.contains(&key))
}

/// A name in a normal form that ignores case, hyphens and underscores.
fn spelling(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().filter(|b| !matches!(b, b'-' | b'_')).map(|b| b.to_ascii_lowercase())
}

/// Whether the names differ by at most `edits` edits, in any case.
fn is_near(known: &str, name: &str, edits: usize) -> bool {
    // A much longer name needs more edits; computing the distance would take long.
    name.len().abs_diff(known.len()) <= edits
        && strsim::osa_distance(known, &name.to_ascii_lowercase()) <= edits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(key: &str) -> Option<&'static str> {
        match meaning(key) {
            Meaning::Meant(key) => Some(key),
            _ => None,
        }
    }

    #[test]
    fn likely_misspellings_are_recognised() {
        for (typo, key) in [
            ("streams.ibm.com/host-pol", "streams.ibm.com/host-pool"),
            ("streams.ibm.com/host-colocaton", "streams.ibm.com/host-colocation"),
            ("streams.ibm.com/host-collocation", "streams.ibm.com/host-colocation"),
            ("streams.ibm.com/hostPool", "streams.ibm.com/host-pool"),
            ("streams.ibm.com/hostColocation", "streams.ibm.com/host-colocation"),
            ("streams.ibm.com/hostexlocation", "streams.ibm.com/host-exlocation"),
            ("stowplan.dev/coschedul-group", "stowplan.dev/coschedule-group"),
            ("streams.ibm.com/hosts", "streams.ibm.com/host"),
            ("streams.ibm.com/hst", "streams.ibm.com/host"),
            ("streams.ibm.com/Host", "streams.ibm.com/host"),
            ("streams.ibm.com/HST", "streams.ibm.com/host"),
            ("streams.ibm.com/HOST-POOL", "streams.ibm.com/host-pool"),
            ("streams.ibm.com/HOST_POL", "streams.ibm.com/host-pool"),
            ("streams.ibm.com/hst-pool", "streams.ibm.com/host-pool"),
            ("mpi.stowplan.dev/worker", "mpi.stowplan.dev/workers"),
            (
                "katalyst.kubewharf.io/microtopology_anti_affinity",
                "katalyst.kubewharf.io/microtopology_antiaffinity",
            ),
        ] {
            assert_eq!(meant(typo), Some(key), "{typo}");
        }
    }

    #[test]
    fn keys_of_other_projects_are_foreign() {
        for key in [
            "",
            "a",
            "host",
            "streams.ibm.com/hostIP",
            "streams.ibm.com/hostname",
            "streams.ibm.com/job",
            "streams.ibm.com/pe",
            "streams.ibm.com/port",
            "streams.ibm.com/version",
            "streams.ibm.com/",
            "stowplan.dev",
            "stowplan.development/x",
            "xstowplan.dev/placement",
            "katalyst.kubewharf.io/memory_enhancement",
        ] {
            assert!(matches!(meaning(key), Meaning::Foreign), "{key}");
        }
    }

    #[test]
    fn the_opt_out_is_a_label() {
        assert!(matches!(meaning(IGNORE), Meaning::Label));
    }

    #[test]
    fn a_key_of_a_newer_release_is_unknown() {
        for key in
            ["stowplan.dev/", "stowplan.dev/future-thing", "streams.ibm.com/host-affinity-mode"]
        {
            assert!(matches!(meaning(key), Meaning::Unknown), "{key}");
        }
        assert!(matches!(
            meaning(&format!("stowplan.dev/{}", "a".repeat(262_144))),
            Meaning::Unknown
        ));
    }

    #[test]
    fn every_key_is_under_a_prefix_and_every_gate_is_found() {
        for system in SYSTEMS {
            assert!(system.prefixes.iter().all(|prefix| prefix.own.starts_with(prefix.shared)));
            for key in system.keys {
                let mut prefixes = [&STOWPLAN].into_iter().chain(system.prefixes);
                assert!(prefixes.any(|prefix| key.starts_with(prefix.shared)), "{key}");
            }
            for gate in system.gates {
                assert!(super::super::gate(gate.name).is_some());
            }
        }
    }

    #[test]
    fn no_two_systems_share_a_key() {
        let mut keys: Vec<_> = SYSTEMS.iter().flat_map(|system| system.keys).collect();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }
}
