//! The record: the pod annotation that says what holds, for people and for later rounds.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::json::{Json, list};

/// The annotation.
pub const KEY: &str = "stowplan.dev/placement";

/// The longest record, in bytes. Annotations share 256 KiB; a record is a note, not a document.
pub const LIMIT: usize = 1024;

/// A record as it is read: per system, one entry for each constraint.
#[derive(Debug, Deserialize)]
struct Record {
    #[expect(dead_code, reason = "a record without a version is none")]
    v: u8,
    #[serde(flatten)]
    entries: BTreeMap<String, Vec<String>>,
    #[expect(dead_code, reason = "a record that does not count what it lacks is none")]
    more: usize,
}

/// Writes the record of `entries` (system, text): compact JSON of at most [`LIMIT`] bytes. Entries
/// that do not fit are dropped from the end and counted in `more`. `None` when nothing holds.
#[must_use]
pub fn write(entries: &[(&'static str, String)]) -> Option<String> {
    if entries.is_empty() {
        return None;
    }
    let json = |kept: usize| {
        let json = first(kept, entries);
        (json.len() <= LIMIT).then_some(json)
    };
    if let Some(json) = json(entries.len()) {
        return Some(json);
    }
    // By halves: each entry makes the record longer than its count makes `more` shorter.
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

/// The record of the first `kept` of `entries`: the systems in the order of their names.
fn first(kept: usize, entries: &[(&'static str, String)]) -> String {
    let mut systems: Vec<&str> = entries[..kept].iter().map(|(system, _)| *system).collect();
    systems.sort_unstable();
    systems.dedup();
    let mut json = Vec::with_capacity(256);
    json.extend_from_slice(br#"{"v":1"#);
    for system in systems {
        json.push(b',');
        system.write(&mut json);
        json.push(b':');
        let texts = entries[..kept].iter().filter(|(of, _)| *of == system);
        list(&mut json, texts, |(_, text), json| text.write(json));
    }
    json.extend_from_slice(br#","more":"#);
    json.extend_from_slice((entries.len() - kept).to_string().as_bytes());
    json.push(b'}');
    String::from_utf8(json).expect("JSON of texts is text")
}

/// The entries of `system` in a record that may be anybody's: nothing where it is not a record.
#[must_use]
pub fn entries(record: &str, system: &str) -> Vec<String> {
    if record.len() > LIMIT {
        return Vec::new();
    }
    serde_json::from_str::<Record>(record)
        .ok()
        .and_then(|mut record| record.entries.remove(system))
        .unwrap_or_default()
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
    fn systems_stand_in_the_order_of_their_names() {
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
    fn what_does_not_fit_is_counted() {
        let long: Vec<_> =
            (0..20).map(|i| ("streams", format!("{i} {}", "x".repeat(100)))).collect();
        let json = write(&long).unwrap();
        assert!(json.len() <= LIMIT);
        let kept = entries(&json, "streams").len();
        assert!(json.ends_with(&format!(r#""more":{}}}"#, 20 - kept)), "{json}");
    }

    #[test]
    fn nothing_is_recorded_of_nothing() {
        assert_eq!(write(&[]), None);
    }

    #[test]
    fn anything_may_stand_there() {
        for text in ["", "null", "[]", "{", r#"{"v":2}"#, r#"{"v":1,"streams":"x","more":0}"#, "é"]
        {
            assert!(entries(text, "streams").is_empty(), "{text}");
        }
        assert!(entries(&"[".repeat(262_144), "streams").is_empty());
    }
}
