//! Reads documents with a foreign schema, which a newer release may have written: a field of the
//! wrong type is recorded as a problem, and the rest of the object is still read.

use serde_json::{Map, Value};

/// Reads the fields of a document and remembers the first problem.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    problem: Option<String>,
}

/// An object in a document, with its path.
#[derive(Clone, Debug)]
pub(crate) struct Part<'v> {
    members: &'v Map<String, Value>,
    at: String,
}

impl Reader {
    /// The document itself; `None` if it is not an object.
    pub(crate) fn whole<'v>(&mut self, document: &'v Value) -> Option<Part<'v>> {
        self.object(Some(document), String::new())
    }

    /// The first problem, with the path of the field.
    pub(crate) fn problem(self) -> Option<Box<str>> {
        self.problem.map(Into::into)
    }

    /// Records a problem, unless there is an earlier one.
    pub(crate) fn report(&mut self, at: &str, problem: &str) {
        self.problem.get_or_insert_with(|| format!("{at}: {problem}"));
    }

    fn object<'v>(&mut self, value: Option<&'v Value>, at: String) -> Option<Part<'v>> {
        match value? {
            Value::Object(members) => Some(Part { members, at }),
            Value::Null => None,
            _ => {
                self.report(&at, "is not an object");
                None
            }
        }
    }

    /// The object under `key`.
    pub(crate) fn part<'v>(&mut self, of: &Part<'v>, key: &str) -> Option<Part<'v>> {
        self.object(of.members.get(key), of.path(key))
    }

    /// The objects in the list under `key`.
    pub(crate) fn parts<'v>(&mut self, of: &Part<'v>, key: &str) -> Vec<Part<'v>> {
        match of.members.get(key) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .filter_map(|(index, item)| {
                    self.object(Some(item), format!("{}[{index}]", of.path(key)))
                })
                .collect(),
            Some(_) => {
                self.report(&of.path(key), "is not a list");
                Vec::new()
            }
        }
    }

    /// The string under `key`; an empty one counts as absent.
    pub(crate) fn text<'v>(&mut self, of: &Part<'v>, key: &str) -> Option<&'v str> {
        match of.members.get(key)? {
            Value::String(text) => Some(text.as_str()).filter(|text| !text.is_empty()),
            Value::Null => None,
            _ => {
                self.report(&of.path(key), "is not a string");
                None
            }
        }
    }

    /// The strings in the list under `key`.
    pub(crate) fn texts<'v>(&mut self, of: &Part<'v>, key: &str) -> Vec<&'v str> {
        let items = match of.members.get(key) {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.report(&of.path(key), "is not a list");
                return Vec::new();
            }
        };
        let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
        if texts.len() < items.len() {
            self.report(&of.path(key), "is not a list of strings");
        }
        texts
    }

    /// The keys and strings of the map under `key`.
    pub(crate) fn map<'v>(&mut self, of: &Part<'v>, key: &str) -> Vec<(&'v str, &'v str)> {
        let Some(part) = self.part(of, key) else { return Vec::new() };
        let texts: Vec<_> = part
            .members
            .iter()
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
            .collect();
        if texts.len() < part.members.len() {
            self.report(&part.at, "is not a map of strings");
        }
        texts
    }
}

impl<'v> Part<'v> {
    /// Whether there is a value under `key` other than null.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.members.get(key).is_some_and(|value| !value.is_null())
    }

    /// The value under `key`; `None` for null.
    pub(crate) fn value(&self, key: &str) -> Option<&'v Value> {
        self.members.get(key).filter(|value| !value.is_null())
    }

    /// The path of `key` in the document, such as `spec.tasks[0].name`.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.at.is_empty() { key.to_owned() } else { format!("{}.{key}", self.at) }
    }
}
