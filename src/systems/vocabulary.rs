//! Which annotation keys are ours, and which were meant to be.

use super::{SYSTEMS, System};
use crate::placement::record;
pub use crate::view::member::IGNORE;

/// What an annotation key is to us.
#[derive(Clone, Copy, Debug)]
pub enum Meaning {
    /// Nothing.
    Foreign,
    /// The record that an earlier round wrote.
    Record,
    /// A key of this system.
    Known(&'static System),
    /// Not a key, but so close to this one that it was meant.
    Meant(&'static str),
    /// A key under one of our prefixes that this release does not know.
    Unknown,
}

/// Prefixes under which every key is ours.
const OWN_PREFIXES: [&str; 4] = [
    "streams.ibm.com/host-",
    "stowplan.dev/",
    "mpi.stowplan.dev/",
    "katalyst.kubewharf.io/microtopology_",
];

/// Under this prefix some keys are the Streams operator's own, so only a key that spells one of ours
/// in another way (`hostPool`, `hostcolocation`) was meant to be ours.
const SHARED_PREFIX: &str = "streams.ibm.com/host";

/// What `key` is to us.
#[must_use]
pub fn meaning(key: &str) -> Meaning {
    // Nearly every annotation leaves here.
    if !(key.starts_with(SHARED_PREFIX)
        || OWN_PREFIXES[1..].iter().any(|prefix| key.starts_with(prefix)))
    {
        return Meaning::Foreign;
    }
    if key == record::KEY {
        return Meaning::Record;
    }
    if let Some(system) = SYSTEMS.iter().find(|system| system.keys.contains(&key)) {
        return Meaning::Known(system);
    }
    // A key of ours is meant only under its own domain: `key` has one of ours, and they are further
    // apart than a slip of the pen.
    let domain = key.find('/').map_or(key, |slash| &key[..=slash]);
    let known = || SYSTEMS.iter().flat_map(|system| system.keys).filter(|k| k.starts_with(domain));
    let name = &key[domain.len()..];
    let named = |known: &'static str| &known[domain.len()..];
    if let Some(meant) = known().find(|known| spelling(named(known)).eq(spelling(name))) {
        return Meaning::Meant(meant);
    }
    if !OWN_PREFIXES.iter().any(|prefix| key.starts_with(prefix)) {
        return Meaning::Foreign;
    }
    known()
        .find(|known| is_near(named(known), name))
        .map_or(Meaning::Unknown, |k| Meaning::Meant(k))
}

/// A name without what people spell in different ways: case, hyphens and underscores.
fn spelling(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().filter(|b| !matches!(b, b'-' | b'_')).map(|b| b.to_ascii_lowercase())
}

/// Whether at most two edits lie between the names.
fn is_near(known: &str, name: &str) -> bool {
    // A longer name is more than two edits away from all of ours. Measuring would cost its length.
    name.len().abs_diff(known.len()) <= 2 && strsim::osa_distance(known, name) <= 2
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
    fn likely_typos_are_seen() {
        for (typo, key) in [
            ("streams.ibm.com/host-pol", "streams.ibm.com/host-pool"),
            ("streams.ibm.com/host-colocaton", "streams.ibm.com/host-colocation"),
            ("streams.ibm.com/host-collocation", "streams.ibm.com/host-colocation"),
            ("streams.ibm.com/hostPool", "streams.ibm.com/host-pool"),
            ("streams.ibm.com/hostColocation", "streams.ibm.com/host-colocation"),
            ("streams.ibm.com/hostexlocation", "streams.ibm.com/host-exlocation"),
            ("stowplan.dev/coschedul-group", "stowplan.dev/coschedule-group"),
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
    fn others_keys_are_left_alone() {
        for key in [
            "",
            "a",
            "host",
            "streams.ibm.com/hostIP",
            "streams.ibm.com/hosts",
            "streams.ibm.com/job",
            "stowplan.dev",
            "stowplan.development/x",
            "xstowplan.dev/placement",
            "katalyst.kubewharf.io/memory_enhancement",
        ] {
            assert!(matches!(meaning(key), Meaning::Foreign), "{key}");
        }
    }

    #[test]
    fn a_newer_releases_key_is_unknown() {
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
    fn no_two_systems_share_a_key() {
        let mut keys: Vec<_> = SYSTEMS.iter().flat_map(|system| system.keys).collect();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }
}
