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
    fn the_form_is_stable() {
        let json = write(&[("streams", "host=10.4.40.83: node foo".to_owned())]).unwrap();
        assert_eq!(json, r#"{"v":1,"streams":["host=10.4.40.83: node foo"],"more":0}"#);
        assert_eq!(entries(&json, "streams"), ["host=10.4.40.83: node foo"]);
    }

    #[test]
    fn systems_are_in_the_order_of_their_names() {
        let entries = [
            ("streams", "b \"q\"".to_owned()),
            ("mpi", "m".to_owned()),
            ("streams", "a".to_owned()),
        ];
        let json = write(&entries).unwrap();
        assert_eq!(json, r#"{"v":1,"mpi":["m"],"streams":["b \"q\"","a"],"more":0}"#);
        assert_eq!(entries_of(&json), [vec!["m"], vec!["b \"q\"", "a"]]);
    }

    fn entries_of(json: &str) -> [Vec<String>; 2] {
        ["mpi", "streams"].map(|system| entries(json, system))
    }

    #[test]
    fn entries_that_do_not_fit_are_counted() {
        let long: Vec<_> =
            (0..20).map(|i| ("streams", format!("{i} {}", "x".repeat(100)))).collect();
        let json = write(&long).unwrap();
        assert!(json.len() <= LIMIT);
        let kept = entries(&json, "streams").len();
        assert!(json.ends_with(&format!(r#""more":{}}}"#, 20 - kept)), "{json}");
    }

    #[test]
    fn without_entries_there_is_no_record() {
        assert_eq!(write(&[]), None);
    }

    #[test]
    fn a_text_that_is_not_a_record_has_no_entries() {
        for text in ["", "null", "[]", "{", r#"{"v":2}"#, r#"{"v":1,"streams":"x","more":0}"#, "é"]
        {
            assert!(entries(text, "streams").is_empty(), "{text}");
        }
        assert!(entries(&"[".repeat(262_144), "streams").is_empty());
    }

    #[test]
    fn each_system_keeps_its_own_entries() {
        let recorded = r#"{"v":1,"mpi":["m"],"streams":["a","b"],"more":0}"#;
        let new = |system, text: &str| (system, text.to_owned());
        let update = |recorded, keeping: &[&'static str], new| {
            update(recorded, keeping, new).expect("something is kept")
        };
        // Another system's new entries are recorded beside those that are kept.
        assert_eq!(
            update(recorded, &["streams"], vec![new("mpi", "n")]),
            r#"{"v":1,"mpi":["n"],"streams":["a","b"],"more":0}"#
        );
        assert_eq!(
            update(recorded, &["streams"], vec![new("katalyst", "k"), new("streams", "c")]),
            r#"{"v":1,"katalyst":["k"],"streams":["a","b"],"more":0}"#
        );
        // In the next round nothing changes.
        let again = update(recorded, &["streams"], vec![new("mpi", "n")]);
        assert_eq!(update(&again, &["streams"], vec![new("mpi", "n")]), again);
        // The record stays byte for byte if no system has new entries, or if it cannot be counted
        // again.
        let cut = r#"{"v":1, "streams":["a"], "more":3}"#;
        assert_eq!(update(cut, &["streams"], vec![]), cut);
        assert_eq!(update(cut, &["streams"], vec![new("mpi", "n")]), cut);
        assert_eq!(update("{}", &["streams"], vec![new("mpi", "n")]), "{}");
    }
}
