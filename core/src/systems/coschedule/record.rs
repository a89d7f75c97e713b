//! The record of a group of a run: what was decided about it when its placeholder was created.
//!
//! It is JSON in an annotation of the placeholder's StatefulSet. Later questions read it instead of
//! deciding again, so that a group keeps its name, its claims and its tasks even if its Pipeline is
//! changed or deleted while the run is active. Users can edit it, so it only selects among the run's own
//! claims, and it counts only if the placeholder's name is derived from the run and the record's key. A
//! placeholder without a valid record gets one if the run has a group of its name; else it is no longer
//! needed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The most bytes of a record: the API server accepts 256 KiB of annotations.
const MOST_BYTES: usize = 192 * 1_024;

/// A recorded group.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Record {
    /// Its key among the run's groups.
    pub key: Box<str>,
    /// The run's workspaces whose claims it has. Their claims may not be known yet.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub workspaces: BTreeSet<Box<str>>,
    /// The names of its claims that were known.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub claims: BTreeSet<Box<str>>,
    /// Its tasks; `None` if they were not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<BTreeSet<Box<str>>>,
    /// The combined node selectors of its tasks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<Box<str>, Box<str>>,
}

impl Record {
    /// Parses the annotation. `None` if it is malformed or too large.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        (text.len() <= MOST_BYTES).then(|| serde_json::from_str(text).ok())?
    }

    /// Formats the annotation. The tasks of a group with thousands of them are left out: they are
    /// then found by their claims.
    pub(crate) fn text(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        match self.tasks.is_some() && text.len() > MOST_BYTES {
            true => Self { tasks: None, ..self.clone() }.text(),
            false => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(tasks: Option<BTreeSet<Box<str>>>) -> Record {
        Record {
            key: "a".into(),
            workspaces: ["a".into()].into(),
            claims: ["pvc-1".into()].into(),
            tasks,
            node_selector: [("arch".into(), "arm64".into())].into(),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let known = record(Some(["t1".into(), "t2".into()].into()));
        let text = r#"{"key":"a","workspaces":["a"],"claims":["pvc-1"],"tasks":["t1","t2"],"nodeSelector":{"arch":"arm64"}}"#;
        assert_eq!(known.text(), text);
        assert_eq!(Record::parse(text), Some(known));
        let empty = Record::default();
        assert_eq!(empty.text(), r#"{"key":""}"#);
        assert_eq!(Record::parse(&empty.text()), Some(empty));
    }

    #[test]
    fn the_tasks_of_a_record_that_would_be_too_large_are_left_out() {
        let tasks = (0..4_000).map(|task| format!("{task:063}").into()).collect();
        let large = record(Some(tasks));
        assert_eq!(Record::parse(&large.text()), Some(record(None)));
    }

    #[test]
    fn malformed_and_oversized_records_are_none() {
        let long = format!(r#"{{"key":"{}"}}"#, "k".repeat(262_144));
        let wrong = json!([
            null, [], {}, {"key": null}, {"key": 7}, {"key": "a", "more": 1}, {"key": "a", "claims": "c"},
            {"key": "a", "claims": [7]}, {"key": "a", "claims": null}, {"key": "a", "nodeSelector": {"arch": 7}},
        ]);
        for record in wrong.as_array().unwrap() {
            assert_eq!(Record::parse(&record.to_string()), None, "{record}");
        }
        let texts = ["", r#"{"key":"a","key":"b"}"#, r#"{"key":"a"} x"#, &long];
        for text in texts.into_iter().chain([&*"[".repeat(262_144)]) {
            assert_eq!(Record::parse(text), None, "{text:.60}");
        }
    }
}
