//! Sets labels, annotations and the record.

use serde_json::{Value, json};

use crate::placement::intent::{Change, Intent};
use crate::placement::patch::Step::Member;
use crate::placement::patch::{Editor, SCALAR};
use crate::placement::pod::Pod;
use crate::placement::reason::{Finding, Reason, quoted};
use crate::placement::record;

/// The part of the metadata that operations can touch, without the values.
pub(super) fn outline(pod: &Pod<'_>, intents: &[Intent]) -> Value {
    let mut metadata = json!({});
    if pod.metadata.labels.is_some() {
        metadata["labels"] = json!({});
    }
    if let Some(annotations) = &pod.metadata.annotations {
        let set = intents.iter().filter_map(|intent| match intent.change {
            Change::Annotation { key, .. } => Some(key),
            _ => None,
        });
        let present = set.chain([record::KEY]).filter(|key| annotations.get(key).is_some());
        metadata["annotations"] = present.map(|key| (key.to_owned(), SCALAR)).collect();
    }
    metadata
}

pub(super) fn set_labels(
    pod: &Pod<'_>,
    intents: &[Intent],
    editor: &mut Editor,
    findings: &mut Vec<Finding>,
) {
    let mut set: Vec<&str> = Vec::new();
    for intent in intents {
        let Change::Label { key, value } = &intent.change else { continue };
        match pod.label(key) {
            Some(present) if present == value => {}
            Some(present) => findings.push(Finding::new(
                Reason::LabelConflict,
                intent.key,
                format!(
                    "label {key} is already {} and would become {}",
                    quoted(present),
                    quoted(value)
                ),
                "remove the label from the pod: stowplan sets it",
            )),
            // Another intent has set it already.
            None if set.contains(&key.as_str()) => {}
            None => {
                set.push(key);
                let path = [Member("metadata"), Member("labels"), Member(key)];
                editor.set(&path, value.as_str());
            }
        }
    }
}

pub(super) fn set_annotations(pod: &Pod<'_>, intents: &[Intent], editor: &mut Editor) {
    for intent in intents {
        let Change::Annotation { key, value } = &intent.change else { continue };
        let path = [Member("metadata"), Member("annotations"), Member(key)];
        match value {
            Some(value) if pod.annotation(key) == Some(value) => {}
            Some(value) => editor.set(&path, value.as_str()),
            None => editor.remove(&path),
        }
    }
}

pub(super) fn set_record(pod: &Pod<'_>, record: Option<&str>, editor: &mut Editor) {
    let path = [Member("metadata"), Member("annotations"), Member(record::KEY)];
    match (pod.annotation(record::KEY), record) {
        (Some(present), Some(wanted)) if present == wanted => {}
        (_, Some(wanted)) => editor.set(&path, wanted),
        (Some(_), None) => editor.remove(&path),
        (None, None) => {}
    }
}
