//! Writes a pod's changes as RFC 6902 operations.
//!
//! Operations are written directly, never found by comparing documents. So fields that stowplan
//! does not know stay as they are, and the cost depends on the changes and not on the size of the
//! pod. They are written as the text that is sent, because nothing between here and the API server
//! reads them. The editor knows the shape of the document, so it cannot write an operation whose
//! parent is missing: the API server answers 500 to the pod's author if one does not apply,
//! whatever the failurePolicy.

use std::fmt::Write as _;

use json_patch::PatchOperation;
use json_patch::jsonptr::PointerBuf;
use memchr::memchr2;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::json;

/// Operations as the text of a JSON Patch document.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Patch {
    /// Empty if there is no operation, else a JSON array.
    json: Vec<u8>,
}

impl Patch {
    /// Whether there is no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.json.is_empty()
    }

    /// The document: a JSON array.
    #[must_use]
    pub fn as_json(&self) -> &[u8] {
        if self.json.is_empty() { b"[]" } else { &self.json }
    }

    /// The operations, parsed from the text.
    #[must_use]
    pub fn operations(&self) -> Vec<PatchOperation> {
        serde_json::from_slice(self.as_json()).expect("the editor writes operations")
    }

    /// Returns the patch without the operations on these fields, given by their keys, and what is below them.
    #[must_use]
    pub(crate) fn without(&self, fields: &[&[&str]]) -> Self {
        let fields: Vec<PointerBuf> =
            fields.iter().map(|keys| PointerBuf::from_tokens(keys.iter().copied())).collect();
        let mut operations = self.operations();
        operations
            .retain(|operation| !fields.iter().any(|field| operation.path().starts_with(field)));
        let json = match operations.as_slice() {
            [] => Vec::new(),
            operations => serde_json::to_vec(operations).expect("operations serialize"),
        };
        Self { json }
    }
}

/// A step on the way to a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step<'d> {
    /// The member of this name.
    Member(&'d str),
    /// The list item at this index.
    Item(usize),
}

impl<'d> Step<'d> {
    fn name(self) -> Option<&'d str> {
        match self {
            Self::Member(name) => Some(name),
            Self::Item(_) => None,
        }
    }
}

/// The part of a JSON value that an editor knows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Shape<'d> {
    /// An object with these members, and others that the editor does not need.
    Object(Vec<(&'d str, Self)>),
    /// A list of these items.
    List(Vec<Self>),
    /// A value without members, or one whose members the editor does not need.
    Scalar,
    /// Null, which is replaced like a missing value.
    Null,
}

impl<'d> Shape<'d> {
    /// The shape of all of `value`.
    #[must_use]
    pub(crate) fn of(value: &'d Value) -> Self {
        match value {
            Value::Object(members) => {
                Self::Object(members.iter().map(|(key, value)| (&**key, Self::of(value))).collect())
            }
            Value::Array(items) => Self::List(items.iter().map(Self::of).collect()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Self::Scalar,
            Value::Null => Self::Null,
        }
    }

    fn child(&self, step: Step<'_>) -> Option<&Self> {
        match (self, step) {
            (Self::Object(members), Step::Member(name)) => {
                members.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
            }
            (Self::List(items), Step::Item(index)) => items.get(index),
            _ => None,
        }
    }

    fn descend(&mut self, path: &[Step<'_>]) -> Option<&mut Self> {
        path.iter().try_fold(self, |shape, step| match (shape, *step) {
            (Self::Object(members), Step::Member(name)) => {
                members.iter_mut().find(|(key, _)| *key == name).map(|(_, value)| value)
            }
            (Self::List(items), Step::Item(index)) => items.get_mut(index),
            _ => None,
        })
    }

    fn insert(&mut self, name: &'d str, value: Self) {
        let Self::Object(members) = self else { return };
        match members.iter_mut().find(|(key, _)| *key == name) {
            Some((_, present)) => *present = value,
            None => members.push((name, value)),
        }
    }
}

/// Writes operations for a document whose shape it was given.
///
/// It updates the shape with each operation. New members can be added to objects that it has
/// written, but it does not keep the items of lists that it has written.
#[derive(Debug)]
pub(crate) struct Editor<'d> {
    shape: Shape<'d>,
    json: Vec<u8>,
}

impl<'d> Editor<'d> {
    /// An editor for a document. `shape` is the part that operations will touch; objects whose
    /// members they do not need may be given empty.
    #[must_use]
    pub(crate) fn new(shape: Shape<'d>) -> Self {
        Self { shape, json: Vec::new() }
    }

    /// Sets the member at `path`, with all missing parents, in one operation. A present member is
    /// replaced (RFC 6902, section 4.1).
    pub(crate) fn set(&mut self, path: &[Step<'d>], value: &(impl Serialize + ?Sized)) {
        self.add(path, Shape::Scalar, value);
    }

    /// Appends `value` to the list at `path`; a list that is missing or null is created.
    pub(crate) fn append(&mut self, path: &[Step<'d>], value: &(impl Serialize + ?Sized)) {
        match self.shape.descend(path) {
            Some(Shape::List(items)) => {
                items.push(Shape::Scalar);
                self.write("add", path, "/-", Some(value));
            }
            _ => self.add(path, Shape::List(vec![Shape::Scalar]), &[value]),
        }
    }

    /// Replaces the list at `path` by `items`; a list that is missing or null is created.
    pub(crate) fn set_list(&mut self, path: &[Step<'d>], items: &[impl Serialize]) {
        let outline = Shape::List(vec![Shape::Scalar; items.len()]);
        match self.shape.descend(path) {
            Some(list @ Shape::List(_)) => {
                *list = outline;
                self.write("replace", path, "", Some(items));
            }
            _ => self.add(path, outline, items),
        }
    }

    /// Removes the member or the list item at `path`. Nothing happens if there is none.
    pub(crate) fn remove(&mut self, path: &[Step<'d>]) {
        let Some((leaf, parents)) = path.split_last() else {
            return;
        };
        match (self.shape.descend(parents), *leaf) {
            (Some(Shape::Object(members)), Step::Member(name)) => {
                let Some(at) = members.iter().position(|(key, _)| *key == name) else { return };
                members.swap_remove(at);
            }
            (Some(Shape::List(items)), Step::Item(index)) if index < items.len() => {
                items.remove(index);
            }
            _ => return,
        }
        self.write("remove", path, "", None::<&()>);
    }

    /// The operations, in order.
    #[must_use]
    pub(crate) fn into_patch(mut self) -> Patch {
        if !self.json.is_empty() {
            self.json.push(b']');
        }
        Patch { json: self.json }
    }

    /// Adds `value`, which has this `outline`, and the objects above it that are missing.
    ///
    /// A list item on the path must be present: only objects are created.
    fn add(&mut self, path: &[Step<'d>], outline: Shape<'d>, value: &(impl Serialize + ?Sized)) {
        let Some(parents) = path.len().checked_sub(1) else {
            return;
        };
        // As deep as there are objects and lists; null counts as missing.
        let mut depth = 0;
        let mut parent = &self.shape;
        while let Some(next @ (Shape::Object(_) | Shape::List(_))) = parent.child(path[depth])
            && depth < parents
        {
            parent = next;
            depth += 1;
        }
        let (present, missing) = path.split_at(depth + 1);
        if let Some((Step::Member(name), above)) = present.split_last()
            && let Some(parent) = self.shape.descend(above)
        {
            let names = missing.iter().rev().filter_map(|step| step.name());
            let outline = names.fold(outline, |inner, name| Shape::Object(vec![(name, inner)]));
            parent.insert(name, outline);
        }
        let value = Nested { path: missing, value };
        self.write("add", present, "", Some(&value));
    }

    /// Writes an operation (RFC 6902, section 4). `end` follows the steps of its pointer.
    fn write<V: Serialize + ?Sized>(
        &mut self,
        operation: &str,
        path: &[Step<'_>],
        end: &str,
        value: Option<&V>,
    ) {
        let json = &mut self.json;
        // Enough for the first operations at once; a patch of several constraints doubles it.
        json.reserve(if json.is_empty() { 1024 } else { 0 });
        json.push(if json.is_empty() { b'[' } else { b',' });
        json.extend_from_slice(br#"{"op":""#);
        json.extend_from_slice(operation.as_bytes());
        json.extend_from_slice(br#"","path":"#);
        write_json(json, &format_pointer(path, end));
        if let Some(value) = value {
            json.extend_from_slice(br#","value":"#);
            write_json(json, value);
        }
        json.push(b'}');
    }
}

fn write_json(json: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    json::write(json, value).expect("keys are texts, and no variant has several fields");
}

/// A JSON pointer (RFC 6901, section 3): the steps, and `end`.
fn format_pointer(path: &[Step<'_>], end: &str) -> String {
    // Enough for nearly all pointers.
    let mut pointer = String::with_capacity(128);
    for step in path {
        pointer.push('/');
        match step {
            Step::Member(name) => push_reference_token(&mut pointer, name),
            Step::Item(index) => write!(pointer, "{index}").expect("a String takes all text"),
        }
    }
    pointer.push_str(end);
    pointer
}

fn push_reference_token(pointer: &mut String, name: &str) {
    let mut rest = name;
    while let Some(at) = memchr2(b'~', b'/', rest.as_bytes()) {
        let (plain, special) = rest.split_at(at);
        pointer.push_str(plain);
        pointer.push_str(if special.starts_with('~') { "~0" } else { "~1" });
        rest = &special[1..];
    }
    pointer.push_str(rest);
}

/// A value inside new objects: one for each member on the path.
struct Nested<'n, V: ?Sized> {
    path: &'n [Step<'n>],
    value: &'n V,
}

impl<V: Serialize + ?Sized> Serialize for Nested<'_, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some((step, path)) = self.path.split_first() else {
            return self.value.serialize(serializer);
        };
        let inner = Nested { path, value: self.value };
        match step.name() {
            Some(name) => serializer.collect_map([(name, inner)]),
            None => inner.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Step::{Item, Member};
    use super::*;

    fn edited(
        document: &Value,
        edit: impl FnOnce(&mut Editor<'_>),
    ) -> (Value, Vec<PatchOperation>) {
        let mut editor = Editor::new(Shape::of(document));
        edit(&mut editor);
        let operations = editor.into_patch().operations();
        let mut result = document.clone();
        json_patch::patch(&mut result, &operations).unwrap();
        (result, operations)
    }

    #[test]
    fn names_are_escaped_in_paths_and_in_parents() {
        let quoted = "q\"/~\n";
        let (result, operations) = edited(&json!({"m": {}}), |e| {
            e.set(&[Member("m"), Member("a/b~c")], "v");
            e.set(&[Member("m"), Member("")], "w");
            e.set(&[Member(quoted), Member("r\\")], "v\u{1}");
            e.set(&[Member(quoted), Member("é\t")], "w");
        });
        let members = json!({"r\\": "v\u{1}", "é\t": "w"});
        assert_eq!(result, json!({"m": {"a/b~c": "v", "": "w"}, quoted: members}));
        assert_eq!(operations[0].path().as_str(), "/m/a~1b~0c");
        assert_eq!(operations[3].path().as_str(), "/q\"~1~0\n/é\t");
    }

    #[test]
    fn removing_a_missing_member_writes_no_operation() {
        let (result, operations) = edited(&json!({"a": {"b": 1}, "l": [{}]}), |e| {
            for (parent, member) in [("a", "c"), ("b", "c"), ("a", "b"), ("a", "b")] {
                e.remove(&[Member(parent), Member(member)]);
            }
            e.remove(&[Member("l"), Item(7)]);
        });
        assert_eq!((result, operations.len()), (json!({"a": {}, "l": [{}]}), 1));
        let patch = Editor::new(Shape::Null).into_patch();
        assert!(patch.is_empty() && patch.operations().is_empty());
        assert_eq!(patch.as_json(), b"[]");
    }
}
