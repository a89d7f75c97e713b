//! The Kubernetes objects in a document.

use serde_json::{Map, Value};

use super::{Location, Problems};
use stowplan_core::view::resource::Resource;

/// The beginning of an expression in a Helm template, and the problem of such a file.
pub(super) const TEMPLATE: &str = "{{";
pub(super) const UNRENDERED: &str =
    "is a Helm template that was not rendered: `helm template NAME CHART | stowplan plan -f -`";

/// A document that is not empty.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) location: Location,
    pub(crate) value: Value,
}

/// A Kubernetes object in a document: the document itself, or an item of a list in it.
#[derive(Clone, Debug)]
pub(crate) struct Item<'d> {
    pub(crate) version: String,
    pub(crate) kind: String,
    /// JSON pointer from the document to the object.
    pub(crate) pointer: String,
    pub(crate) value: &'d Value,
}

impl Item<'_> {
    /// Returns the API group; empty: the core group.
    pub(crate) fn group(&self) -> &str {
        self.version.rsplit_once('/').map_or("", |(group, _)| group)
    }

    /// Returns true if the object is of this kind, in any version.
    pub(crate) fn is_of(&self, resource: &Resource) -> bool {
        resource.kind == self.kind && resource.group == self.group()
    }

    /// Returns the object with its `apiVersion` and `kind`, which an item of a list may lack.
    pub(crate) fn to_object(&self) -> Value {
        let mut value = self.value.clone();
        if let Value::Object(members) = &mut value {
            members.insert("apiVersion".to_owned(), self.version.as_str().into());
            members.insert("kind".to_owned(), self.kind.as_str().into());
        }
        value
    }

    /// Returns true if its name or namespace is a Helm expression.
    fn is_unrendered(&self) -> bool {
        let texts = ["name", "generateName", "namespace"]
            .map(|key| self.value.pointer(&format!("/metadata/{key}")).and_then(Value::as_str));
        texts.into_iter().flatten().any(|text| text.contains(TEMPLATE))
    }
}

impl Document {
    /// Returns the objects in the document; lists are replaced by their items.
    pub(crate) fn items(&self, problems: &mut Problems) -> Vec<Item<'_>> {
        let mut found = Found { location: &self.location, items: Vec::new(), problems };
        found.add(&self.value, String::new(), None);
        found.items
    }
}

/// The objects that were found in a document.
struct Found<'d, 'p> {
    location: &'d Location,
    items: Vec<Item<'d>>,
    problems: &'p mut Problems,
}

impl<'d> Found<'d, '_> {
    /// Adds the object at a pointer, or the items of the list there. `list`: the version and the kind
    /// that items have by the list that they are in.
    fn add(&mut self, value: &'d Value, pointer: String, list: Option<(&str, &str)>) {
        let Value::Object(members) = value else {
            let what = format!("{} is not a Kubernetes object", describe(value));
            return self.report(&pointer, &what);
        };
        let version = self.word(members, "apiVersion", &pointer, list.map(|(version, _)| version));
        let kind = self.word(members, "kind", &pointer, list.map(|(_, kind)| kind));
        let (Some(version), Some(kind)) = (version, kind) else { return };
        match (kind.strip_suffix("List"), members.get("items")) {
            (Some(of), Some(Value::Array(inner))) => {
                // The items of a `PodList` may lack their kind, those of a `List` may not.
                let list = Some((version.as_str(), of)).filter(|(_, of)| !of.is_empty());
                for (index, item) in inner.iter().enumerate() {
                    self.add(item, format!("{pointer}/items/{index}"), list);
                }
            }
            (Some(_), None | Some(Value::Null)) => {}
            (Some(_), Some(other)) => {
                let what = format!("items is {}, and must be a list", describe(other));
                self.report(&pointer, &what);
            }
            (None, _) => {
                let item = Item { version, kind, pointer, value };
                if item.is_unrendered() {
                    self.problems.push(format!("{}: {} {UNRENDERED}", self.location, item.kind));
                } else {
                    self.items.push(item);
                }
            }
        }
    }

    /// Reads a word of an object, which the object may have inherited from a list.
    fn word(
        &mut self,
        members: &Map<String, Value>,
        key: &str,
        pointer: &str,
        inherited: Option<&str>,
    ) -> Option<String> {
        let what = match (members.get(key), inherited) {
            (Some(Value::String(word)), _) if !word.is_empty() => return Some(word.clone()),
            (None | Some(Value::Null), Some(word)) => return Some(word.to_owned()),
            (None | Some(Value::Null | Value::String(_)), None) => {
                format!("has no {key}, so it is not a Kubernetes object")
            }
            (Some(other), _) => format!("{key} is {}, and must be a word", describe(other)),
        };
        self.report(pointer, &what);
        None
    }

    fn report(&mut self, pointer: &str, what: &str) {
        self.problems.push(match pointer {
            "" => format!("{}: {what}", self.location),
            _ => format!("{}, {}: {what}", self.location, pointer.trim_start_matches('/')),
        });
    }
}

/// Describes a value for people, for example `the number 5`.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        Value::String(_) => "a text".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
    }
}
