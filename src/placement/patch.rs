//! A pod's changes as RFC 6902 operations.
//!
//! Operations are written directly, never found by comparing documents: what stowplan does not know
//! survives, and the cost depends on what is added and not on the size of the pod. They are written as
//! the text that is sent, because nobody between here and the API server looks into them. The editor
//! keeps the shape of what it edits, so that an operation whose parent is missing cannot be written:
//! the API server answers 500 to the pod's author for one that does not apply, whatever the
//! failurePolicy.

use json_patch::PatchOperation;
use serde_json::Value;

use super::json::{self, Json};

/// Operations, as the text of a JSON Patch document.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Patch {
    /// Empty where there is no operation, else a JSON array.
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

    /// The operations, read back for who looks into them.
    #[must_use]
    pub fn operations(&self) -> Vec<PatchOperation> {
        serde_json::from_slice(self.as_json()).expect("the editor writes operations")
    }
}

/// A step on the way to a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step<'d> {
    /// The member of this name.
    Member(&'d str),
    /// The list item at this index.
    Item(usize),
}

/// What an editor knows of a value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Shape<'d> {
    /// An object with these members, as far as they matter.
    Object(Vec<(&'d str, Self)>),
    /// A list of these items.
    List(Vec<Self>),
    /// Something without parts, or whose parts do not matter.
    Scalar,
    /// Null: replaced as if it were missing.
    Null,
}

impl<'d> Shape<'d> {
    /// The shape of all of `value`.
    #[must_use]
    pub fn of(value: &'d Value) -> Self {
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

/// Writes operations against the part of a document that it was given.
///
/// What it wrote itself is kept as an outline: members can be added to it, but the items of its lists
/// are not looked into again.
#[derive(Debug)]
pub struct Editor<'d> {
    shape: Shape<'d>,
    json: Vec<u8>,
}

impl<'d> Editor<'d> {
    /// An editor for a document of which `shape` is the part that will be touched. Objects whose
    /// members do not matter may be given empty.
    #[must_use]
    pub fn new(shape: Shape<'d>) -> Self {
        Self { shape, json: Vec::new() }
    }

    /// Sets the member at `path`, with all parents that are missing, in one operation. A member that
    /// is there is replaced (RFC 6902, section 4.1).
    pub fn set(&mut self, path: &[Step<'d>], value: &(impl Json + ?Sized)) {
        self.add(path, Shape::Scalar, |json| value.write(json));
    }

    /// Appends `value` to the list at `path`; a list that is missing or null is made.
    pub fn append(&mut self, path: &[Step<'d>], value: &(impl Json + ?Sized)) {
        match self.shape.descend(path) {
            Some(Shape::List(items)) => {
                items.push(Shape::Scalar);
                self.begin("add", path);
                self.json.extend_from_slice(br#"/-","value":"#);
                value.write(&mut self.json);
                self.json.push(b'}');
            }
            _ => self.add(path, Shape::List(vec![Shape::Scalar]), |json| {
                json::list(json, [value], Json::write);
            }),
        }
    }

    /// Replaces the list at `path` by `items`; one that is missing or null is made.
    pub fn set_list(&mut self, path: &[Step<'d>], items: &[impl Json]) {
        let outline = Shape::List(vec![Shape::Scalar; items.len()]);
        match self.shape.descend(path) {
            Some(list @ Shape::List(_)) => {
                *list = outline;
                self.begin("replace", path);
                self.json.extend_from_slice(br#"","value":"#);
                items.write(&mut self.json);
                self.json.push(b'}');
            }
            _ => self.add(path, outline, |json| items.write(json)),
        }
    }

    /// Removes the member or the list item at `path`. Nothing happens where there is none.
    pub fn remove(&mut self, path: &[Step<'d>]) {
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
        self.begin("remove", path);
        self.json.extend_from_slice(br#""}"#);
    }

    /// The operations, in order.
    #[must_use]
    pub fn into_patch(mut self) -> Patch {
        if !self.json.is_empty() {
            self.json.push(b']');
        }
        Patch { json: self.json }
    }

    /// Adds the value that `write` writes, and that has this `outline`, with the objects above it.
    ///
    /// A list item on the path has to be there: what is missing is made of objects.
    fn add(&mut self, path: &[Step<'d>], outline: Shape<'d>, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(parents) = path.len().checked_sub(1) else {
            return;
        };
        // As deep as there are objects and lists; a null counts as missing.
        let mut depth = 0;
        let mut parent = &self.shape;
        while let Some(next @ (Shape::Object(_) | Shape::List(_))) = parent.child(path[depth])
            && depth < parents
        {
            parent = next;
            depth += 1;
        }
        let missing = path[depth + 1..].iter().filter_map(|step| match *step {
            Step::Member(name) => Some(name),
            Step::Item(_) => None,
        });
        if let Some(parent) = self.shape.descend(&path[..depth])
            && let Step::Member(name) = path[depth]
        {
            let outline = missing
                .clone()
                .rev()
                .fold(outline, |inner, name| Shape::Object(vec![(name, inner)]));
            parent.insert(name, outline);
        }
        self.begin("add", &path[..=depth]);
        self.json.extend_from_slice(br#"","value":"#);
        for name in missing.clone() {
            self.json.push(b'{');
            name.write(&mut self.json);
            self.json.push(b':');
        }
        write(&mut self.json);
        self.json.extend(missing.map(|_| b'}'));
        self.json.push(b'}');
    }

    /// Begins an operation: up to its pointer (RFC 6901, section 3), whose string is still open.
    fn begin(&mut self, operation: &str, path: &[Step<'_>]) {
        let json = &mut self.json;
        // Room for the first operations at once; a patch of several constraints doubles it.
        json.reserve(if json.is_empty() { 1024 } else { 0 });
        json.extend_from_slice(if json.is_empty() { b"[" } else { b"," });
        json.extend_from_slice(br#"{"op":""#);
        json.extend_from_slice(operation.as_bytes());
        json.extend_from_slice(br#"","path":""#);
        for step in path {
            json.push(b'/');
            match step {
                Step::Member(name) => reference_token(json, name),
                Step::Item(index) => json.extend_from_slice(index.to_string().as_bytes()),
            }
        }
    }
}

/// Appends a name as a part of a JSON pointer that stands in a JSON string.
fn reference_token(json: &mut Vec<u8>, name: &str) {
    let mut rest = name;
    while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'~' | b'/')) {
        let (plain, special) = rest.split_at(at);
        json::characters(json, plain);
        json.extend_from_slice(if special.starts_with('~') { b"~0" } else { b"~1" });
        rest = &special[1..];
    }
    json::characters(json, rest);
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
    fn missing_parents_come_with_the_member_in_one_operation() {
        for document in [json!({}), json!({"a": null}), json!({"a": {}}), json!({"a": {"b": null}})]
        {
            let (result, operations) = edited(&document, |e| {
                e.set(&[Member("a"), Member("b"), Member("c")], &json!(1));
            });
            assert_eq!(result, json!({"a": {"b": {"c": 1}}}));
            assert_eq!(operations.len(), 1);
        }
    }

    #[test]
    fn a_second_member_knows_the_parents_of_the_first() {
        let (result, operations) = edited(&json!({}), |e| {
            e.set(&[Member("a"), Member("b")], &json!(1));
            e.set(&[Member("a"), Member("c")], &json!(2));
            e.append(&[Member("a"), Member("list")], "x");
            e.append(&[Member("a"), Member("list")], "y");
        });
        assert_eq!(result, json!({"a": {"b": 1, "c": 2, "list": ["x", "y"]}}));
        assert_eq!(operations[1].path().as_str(), "/a/c");
        assert_eq!(operations[3].path().as_str(), "/a/list/-");
    }

    #[test]
    fn slashes_and_tildes_and_nothing_are_escaped() {
        let (result, operations) = edited(&json!({"m": {}}), |e| {
            e.set(&[Member("m"), Member("a/b~c")], "v");
            e.set(&[Member("m"), Member("")], "w");
        });
        assert_eq!(result, json!({"m": {"a/b~c": "v", "": "w"}}));
        assert_eq!(operations[0].path().as_str(), "/m/a~1b~0c");
    }

    #[test]
    fn names_that_json_escapes_are_escaped_in_paths_and_in_parents() {
        let (result, operations) = edited(&json!({}), |e| {
            e.set(&[Member("q\"/~\n"), Member("r\\")], "v\u{1}");
            e.set(&[Member("q\"/~\n"), Member("é\t")], "w");
        });
        assert_eq!(result, json!({"q\"/~\n": {"r\\": "v\u{1}", "é\t": "w"}}));
        assert_eq!(operations[1].path().as_str(), "/q\"~1~0\n/é\t");
    }

    #[test]
    fn list_items_are_reached_by_index() {
        let (result, _) = edited(&json!({"l": [{"a": 1}, {"b": [1]}, {}]}), |e| {
            e.append(&[Member("l"), Item(1), Member("b")], &json!(2));
            e.set(&[Member("l"), Item(2), Member("c")], &json!(3));
            e.remove(&[Member("l"), Item(0)]);
            e.remove(&[Member("l"), Item(7)]);
        });
        assert_eq!(result, json!({"l": [{"b": [1, 2]}, {"c": 3}]}));
    }

    #[test]
    fn a_list_is_replaced_where_there_is_one_and_made_elsewhere() {
        for (document, op) in [(json!({"l": [1, 2]}), "replace"), (json!({"l": null}), "add")] {
            let (result, operations) = edited(&document, |e| {
                e.set_list(&[Member("l")], &[json!(3)]);
                e.append(&[Member("l")], &json!(4));
            });
            assert_eq!(result, json!({"l": [3, 4]}));
            assert_eq!(json!(operations[0])["op"], op);
        }
    }

    #[test]
    fn what_is_not_there_is_not_removed() {
        let (result, operations) = edited(&json!({"a": {"b": 1}}), |e| {
            e.remove(&[Member("a"), Member("c")]);
            e.remove(&[Member("b"), Member("c")]);
            e.remove(&[Member("a"), Member("b")]);
            e.remove(&[Member("a"), Member("b")]);
        });
        assert_eq!((result, operations.len()), (json!({"a": {}}), 1));
    }

    #[test]
    fn no_operation_is_an_empty_patch() {
        let patch = Editor::new(Shape::Null).into_patch();
        assert!(patch.is_empty() && patch.operations().is_empty());
        assert_eq!(patch.as_json(), b"[]");
    }
}
