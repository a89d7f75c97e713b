//! Reads documents whose schema is not ours, and that a newer release may have written: a field of the
//! wrong type is a problem to be told, and never a reason to lose the object.

use serde_json::{Map, Value};

/// What is missing of a document that is read, and what was wrong with it first.
#[derive(Debug, Default)]
pub(super) struct Reader {
    problem: Option<String>,
}

/// An object in a document, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Part<'v> {
    members: &'v Map<String, Value>,
    at: String,
}

impl Reader {
    /// The document's own members. What is no object has none.
    pub(super) fn whole<'v>(&mut self, document: &'v Value) -> Option<Part<'v>> {
        self.object(Some(document), String::new())
    }

    /// What was wrong first.
    pub(super) fn problem(self) -> Option<Box<str>> {
        self.problem.map(Into::into)
    }

    /// Says what is wrong.
    pub(super) fn find(&mut self, at: &str, problem: &str) {
        self.problem.get_or_insert_with(|| format!("{at}: {problem}"));
    }

    fn object<'v>(&mut self, value: Option<&'v Value>, at: String) -> Option<Part<'v>> {
        match value? {
            Value::Object(members) => Some(Part { members, at }),
            Value::Null => None,
            _ => {
                self.find(&at, "is not an object");
                None
            }
        }
    }

    /// The object under `key`.
    pub(super) fn part<'v>(&mut self, of: &Part<'v>, key: &str) -> Option<Part<'v>> {
        self.object(of.members.get(key), of.path(key))
    }

    /// The objects in the list under `key`.
    pub(super) fn parts<'v>(&mut self, of: &Part<'v>, key: &str) -> Vec<Part<'v>> {
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
                self.find(&of.path(key), "is not a list");
                Vec::new()
            }
        }
    }

    /// The text under `key`; an empty one counts as absent.
    pub(super) fn text<'v>(&mut self, of: &Part<'v>, key: &str) -> Option<&'v str> {
        match of.members.get(key)? {
            Value::String(text) => Some(text.as_str()).filter(|text| !text.is_empty()),
            Value::Null => None,
            _ => {
                self.find(&of.path(key), "is not a text");
                None
            }
        }
    }

    /// The texts in the list under `key`.
    pub(super) fn texts<'v>(&mut self, of: &Part<'v>, key: &str) -> Vec<&'v str> {
        let items = match of.members.get(key) {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.find(&of.path(key), "is not a list");
                return Vec::new();
            }
        };
        let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
        if texts.len() < items.len() {
            self.find(&of.path(key), "is not a list of texts");
        }
        texts
    }

    /// The texts by name under `key`.
    pub(super) fn map<'v>(&mut self, of: &Part<'v>, key: &str) -> Vec<(&'v str, &'v str)> {
        let Some(part) = self.part(of, key) else { return Vec::new() };
        let texts: Vec<_> = part
            .members
            .iter()
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
            .collect();
        if texts.len() < part.members.len() {
            self.find(&part.at, "is not a map of texts");
        }
        texts
    }
}

impl<'v> Part<'v> {
    /// Whether something stands under `key`.
    pub(super) fn has(&self, key: &str) -> bool {
        self.members.get(key).is_some_and(|value| !value.is_null())
    }

    /// What stands under `key`, as it is.
    pub(super) fn value(&self, key: &str) -> Option<&'v Value> {
        self.members.get(key).filter(|value| !value.is_null())
    }

    /// Where `key` stands in the document.
    pub(super) fn path(&self, key: &str) -> String {
        if self.at.is_empty() { key.to_owned() } else { format!("{}.{key}", self.at) }
    }
}
