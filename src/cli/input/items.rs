//! The Kubernetes objects in a document.

use serde_json::{Map, Value};

use super::{Location, Problems, names};
use stowplan_core::api;
use stowplan_core::systems::VALIDATIONS;
use stowplan_core::text::quoted;
use stowplan_core::view::resource::Resource;

/// The beginning of an expression in a Helm template, and the problem of such a file.
pub(super) const TEMPLATE: &str = "{{";
pub(super) const UNRENDERED: &str =
    "is a Helm template that was not rendered: `helm template NAME CHART | stowplan plan -f -`";

/// The fields of the metadata that name an object and its place.
const NAMES: [&str; 3] = ["name", "generateName", "namespace"];

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

    /// Formats where the object is, and which it is.
    pub(crate) fn locate(&self, location: &Location, name: Option<&str>) -> String {
        let space = if name.is_some() { " " } else { "" };
        let object = format!("{}{space}{}", self.kind, name.unwrap_or_default());
        format!("{}: {object}", locate(location, &self.pointer))
    }

    /// Finds what is wrong with the object, of whichever kind it is: a version or kind of stowplan's that there is
    /// not, or another value where the metadata must be a text.
    fn find_fault(&self) -> Option<String> {
        if self.group() == api::GROUP && !is_own(&self.version, &self.kind) {
            let kinds: Vec<&str> = VALIDATIONS.iter().map(|of| of.resource.kind).collect();
            let (version, kinds) = (quoted(&self.version), kinds.join(" and "));
            let kind = quoted(&self.kind);
            return Some(format!(
                "there is no kind {kind} in apiVersion {version}: stowplan has {kinds} in {}",
                api::VERSION
            ));
        }
        let metadata = match self.value.get("metadata") {
            None | Some(Value::Null) => return None,
            Some(Value::Object(metadata)) => metadata,
            Some(other) => {
                return Some(format!("metadata is {}, and must be a map", describe(other)));
            }
        };
        for key in NAMES {
            match metadata.get(key) {
                None | Some(Value::Null | Value::String(_)) => {}
                Some(other) => return Some(format!("metadata.{key} {}", must_be_text(other))),
            }
        }
        let mut maps = ["labels", "annotations"].into_iter();
        maps.find_map(|key| check_texts(metadata.get(key), &format!("metadata.{key}")).err())
    }

    /// Returns true if its name or namespace is a Helm expression.
    fn is_unrendered(&self) -> bool {
        let texts = NAMES
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
                } else if let Some(fault) = item.find_fault() {
                    let name = names::name(value).map(|(name, _)| name);
                    self.problems.push(format!("{}: {fault}", item.locate(self.location, name)));
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
        self.problems.push(format!("{}: {what}", locate(self.location, pointer)));
    }
}

/// Formats the place of an object: its document, and its pointer there unless it is the document.
fn locate(location: &Location, pointer: &str) -> String {
    match pointer.trim_start_matches('/') {
        "" => location.to_string(),
        pointer => format!("{location}, {pointer}"),
    }
}

/// Returns true if stowplan defines this kind in this version.
pub(crate) fn is_own(version: &str, kind: &str) -> bool {
    let mut own = VALIDATIONS.iter().map(|of| &of.resource);
    own.any(|resource| resource.kind == kind && resource.api_version() == version)
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

/// Reads a map; null and absent are an empty one.
pub(crate) fn read_map(value: Option<&Value>, path: &str) -> Result<Map<String, Value>, String> {
    match value {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(members)) => Ok(members.clone()),
        Some(other) => Err(format!("{path} is {}, and must be a map", describe(other))),
    }
}

/// Reads a map of strings. The API server reads a null value in it as an empty string.
pub(crate) fn read_texts(
    value: Option<&Value>,
    path: &str,
) -> Result<Option<Map<String, Value>>, String> {
    check_texts(value, path)?;
    if matches!(value, None | Some(Value::Null)) {
        return Ok(None);
    }
    let mut texts = read_map(value, path)?;
    let nulls = texts.values_mut().filter(|value| value.is_null());
    nulls.for_each(|value| *value = "".into());
    Ok(Some(texts))
}

/// Returns an error if a value is no map of strings, as for [`read_texts`].
fn check_texts(value: Option<&Value>, path: &str) -> Result<(), String> {
    let Some(Value::Object(texts)) = value else { return read_map(value, path).map(drop) };
    let is_other = |(_, value): &(&String, &Value)| !value.is_string() && !value.is_null();
    match texts.iter().find(is_other) {
        Some((key, other)) => Err(format!("{path}: {key} {}", must_be_text(other))),
        None => Ok(()),
    }
}

/// Says that a value of another type must be a text. What its author wrote is not known: YAML reads `1.10` as 1.1.
fn must_be_text(value: &Value) -> String {
    let remedy = match value {
        Value::Bool(_) => ": put it in quotation marks (YAML reads y, n, on and off as booleans)",
        Value::Number(_) => ": put it in quotation marks",
        _ => "",
    };
    format!("is {}, and must be a text{remedy}", describe(value))
}
