//! The record: the pod annotation that lists the constraints that hold, for people and for later
//! rounds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The annotation.
pub const KEY: &str = "stowplan.dev/placement";

/// The longest record, in bytes. Annotations share 256 KiB, so a record is kept short.
pub const LIMIT: usize = 1024;

/// A record as JSON: one list of entries for each system, in the order of the systems' names.
#[derive(Debug, Deserialize, Serialize)]
struct Record<Systems> {
    v: u8,
    #[serde(flatten)]
    systems: Systems,
    /// The number of entries that were left out to stay within [`LIMIT`].
    more: usize,
}

/// Writes the record of `entries` (system, text): compact JSON of at most [`LIMIT`] bytes. Entries
/// that do not fit are left out from the end and counted in `more`. `None` without entries.
#[must_use]
pub fn write(entries: &[(&'static str, String)]) -> Option<String> {
    if entries.is_empty() {
        return None;
    }
    let json = |kept: usize| {
        let json = write_first(kept, entries);
        (json.len() <= LIMIT).then_some(json)
    };
    if let Some(json) = json(entries.len()) {
        return Some(json);
    }
    // Bisection: each entry makes the record longer than its count makes `more` shorter.
    let (mut fits, mut too_many) = (0, entries.len());
    while fits + 1 < too_many {
        let middle = fits.midpoint(too_many);
        match json(middle) {
            Some(_) => fits = middle,
            None => too_many = middle,
        }
    }
    json(fits)
}

/// The record of the first `kept` of `entries`.
fn write_first(kept: usize, entries: &[(&'static str, String)]) -> String {
    let mut systems: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (system, text) in &entries[..kept] {
        systems.entry(system).or_default().push(text);
    }
    let record = Record { v: 1, systems, more: entries.len() - kept };
    serde_json::to_string(&record).expect("all keys are strings")
}

/// Updates the record of an earlier round: the systems in `keeping` keep their entries of
/// `recorded`, and the others have those in `new`.
///
/// If no other system has entries, the record stays as it is. So does one that is not a record, or
/// that has left entries out: they could not be counted again.
#[must_use]
pub fn update(
    recorded: &str,
    keeping: &[&'static str],
    mut new: Vec<(&'static str, String)>,
) -> Option<String> {
    new.retain(|(system, _)| !keeping.contains(system));
    let parsed = parse(recorded).filter(|record| record.more == 0);
    let Some(mut record) = parsed.filter(|_| !new.is_empty()) else {
        return Some(recorded.to_owned());
    };
    let mut entries = Vec::new();
    for system in keeping {
        let kept = record.systems.remove(*system).unwrap_or_default();
        entries.extend(kept.into_iter().map(|text| (*system, text)));
    }
    entries.append(&mut new);
    write(&entries)
}

/// The entries of `system` in a record; none if the text is not a record. Any user can write one.
#[must_use]
pub fn entries(record: &str, system: &str) -> Vec<String> {
    parse(record).and_then(|mut record| record.systems.remove(system)).unwrap_or_default()
}

fn parse(record: &str) -> Option<Record<BTreeMap<String, Vec<String>>>> {
    if record.len() > LIMIT {
        return None;
    }
    serde_json::from_str(record).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_not_a_record_has_no_entries() {
        for text in ["", "null", "[]", "{", r#"{"v":2}"#, r#"{"v":1,"streams":"x","more":0}"#, "é"]
        {
            assert!(entries(text, "streams").is_empty(), "{text}");
        }
        assert!(entries(&"[".repeat(262_144), "streams").is_empty());
    }

    #[test]
    fn a_record_has_as_many_entries_as_fit_and_is_read_again() {
        let record = |length: usize| write(&[("streams", "x".repeat(length))]).unwrap();
        let empty = record(0).len();
        for (length, kept) in [(LIMIT - empty, 1), (LIMIT - empty + 1, 0)] {
            let record = record(length);
            assert!(record.len() <= LIMIT, "{record}");
            assert_eq!(entries(&record, "streams").len(), kept, "{record}");
        }
        let many: Vec<_> = (0..200).map(|number| ("streams", format!("entry {number}"))).collect();
        let record = write(&many).unwrap();
        let kept = entries(&record, "streams");
        assert!((50..100).contains(&kept.len()) && record.len() <= LIMIT, "{record}");
        assert!(record.ends_with(&format!("\"more\":{}}}", 200 - kept.len())), "{record}");
    }

    #[test]
    fn each_system_keeps_its_own_entries() {
        let recorded = r#"{"v":1,"mpi":["m"],"streams":["a","b"],"more":0}"#;
        let cut = r#"{"v":1, "streams":["a"], "more":3}"#;
        let beside = r#"{"v":1,"katalyst":["k"],"streams":["a","b"],"more":0}"#;
        let again = r#"{"v":1,"mpi":["n"],"streams":["a","b"],"more":0}"#;
        for (recorded, new, expected) in [
            // Another system's new entries are recorded beside those that are kept.
            (recorded, &[("mpi", "n")][..], again),
            (recorded, &[("katalyst", "k"), ("streams", "c")], beside),
            // In the next round nothing changes.
            (again, &[("mpi", "n")], again),
            // The record stays byte for byte if no system has new entries, or if it cannot be counted
            // again.
            (cut, &[], cut),
            (cut, &[("mpi", "n")], cut),
            ("{}", &[("mpi", "n")], "{}"),
        ] {
            let new = new.iter().map(|(system, text)| (*system, (*text).to_owned())).collect();
            assert_eq!(update(recorded, &["streams"], new).as_deref(), Some(expected));
        }
    }
}
