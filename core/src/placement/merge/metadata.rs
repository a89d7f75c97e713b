//! Sets labels, annotations and the record.

use serde_json::{Value, json};

use super::Merge;
use crate::placement::intent::{Change, Intent};
use crate::placement::patch::SCALAR;
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

impl Merge<'_> {
    pub(super) fn set_labels(&mut self) {
        let mut set: Vec<&str> = Vec::new();
        for intent in self.intents {
            let Change::Label { key, value } = &intent.change else { continue };
            match self.pod.label(key) {
                Some(present) if present == value => {}
                Some(present) => self.findings.push(Finding::new(
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
                    self.editor.set(&["metadata", "labels", key], value.as_str());
                }
            }
        }
    }

    pub(super) fn set_annotations(&mut self) {
        for intent in self.intents {
            if let Change::Annotation { key, value } = &intent.change {
                self.set_annotation(key, value.as_deref());
            }
        }
    }

    pub(super) fn set_annotation(&mut self, key: &str, value: Option<&str>) {
        let path = ["metadata", "annotations", key];
        match value {
            Some(value) if self.pod.annotation(key) == Some(value) => {}
            Some(value) => self.editor.set(&path, value),
            None => self.editor.remove(&path),
        }
    }
}
