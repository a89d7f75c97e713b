//! Names of objects from files, which may have only a `metadata.generateName`.

use std::collections::HashMap;

use serde_json::Value;

/// The longest part of a `metadata.generateName` that the API server keeps, in bytes.
const MAX_PREFIX: usize = 58;

/// Generates names as the API server does, but the same ones for the same input.
#[derive(Debug, Default)]
pub(crate) struct Generator(HashMap<String, usize>);

impl Generator {
    /// Returns the name of an object, or one that the API server could generate. `None`: the object
    /// has neither a name nor the beginning of one.
    pub(crate) fn name(&mut self, object: &Value) -> Option<String> {
        let (name, is_complete) = name(object)?;
        if is_complete {
            return Some(name.to_owned());
        }
        let prefix = &name[..name.floor_char_boundary(MAX_PREFIX)];
        let count = self.0.entry(prefix.to_owned()).or_default();
        let name = format!("{prefix}{count:05}");
        *count += 1;
        Some(name)
    }

    /// Gives an object its name, if it has none.
    pub(crate) fn complete(&mut self, object: &mut Value) {
        if let Some(name) = self.name(object) {
            object["metadata"]["name"] = name.into();
        }
    }
}

/// The name of an object and `true`, or else its `generateName` and `false`.
pub(crate) fn name(object: &Value) -> Option<(&str, bool)> {
    let text = |key| object.get("metadata")?.get(key)?.as_str().filter(|name| !name.is_empty());
    text("name").map(|name| (name, true)).or_else(|| text("generateName").map(|name| (name, false)))
}
