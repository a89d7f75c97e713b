//! Writes a pod's changes as RFC 6902 operations.
//!
//! Operations are written directly, never found by comparing documents. So fields that stowplan
//! does not know stay as they are, and the cost depends on the changes and not on the size of the
//! pod. The editor knows an outline of the document, so it cannot write an operation whose
//! parent is missing: the API server answers 500 to the pod's author if one does not apply,
//! whatever the failurePolicy.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::Value;

/// The operations of a JSON Patch document.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Patch {
    operations: Vec<PatchOperation>,
}

impl Patch {
    /// Returns true if there is no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The document: a JSON array.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.operations).expect("operations serialize")
    }

    /// The operations.
    #[must_use]
    pub fn operations(&self) -> Vec<PatchOperation> {
        self.operations.clone()
    }

    /// Returns the patch without the operations on these fields, given by their keys, and what is below them.
    #[must_use]
    pub(crate) fn without(&self, fields: &[&[&str]]) -> Self {
        let fields: Vec<PointerBuf> = fields.iter().map(|keys| pointer(keys)).collect();
        let mut operations = self.operations.clone();
        operations
            .retain(|operation| !fields.iter().any(|field| operation.path().starts_with(field)));
        Self { operations }
    }
}

/// Adds a field or a list item, or replaces a field. Paths are given as unescaped tokens.
#[must_use]
pub fn add(path: &[&str], value: impl Into<Value>) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: pointer(path), value: value.into() })
}

/// Replaces a value that exists.
#[must_use]
pub fn replace(path: &[&str], value: impl Into<Value>) -> PatchOperation {
    PatchOperation::Replace(ReplaceOperation { path: pointer(path), value: value.into() })
}

/// Removes a value that exists.
#[must_use]
pub fn remove(path: &[&str]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: pointer(path) })
}

/// Returns the path of these unescaped tokens.
pub(crate) fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}

/// Returns the member of an object with this name, or the item of a list with this index.
fn child<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    match value {
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        _ => value.get(key),
    }
}

/// Stands in an outline for a value whose content the editor does not need.
pub(crate) const SCALAR: Value = Value::Bool(true);

/// The outline of a list of this many items whose content the editor does not need.
pub(crate) fn outline_list(count: usize) -> Value {
    Value::Array(vec![SCALAR; count])
}

/// The outline of a new value: the members of its objects. The items of lists are not kept.
fn outline(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), outline(value))).collect()
        }
        Value::Array(_) => Value::Array(Vec::new()),
        _ => SCALAR,
    }
}

/// Writes operations for a document of which it was given an outline.
///
/// It updates the outline with each operation. New members can be added to objects that it has
/// written, but it does not keep the items of lists that it has written.
#[derive(Debug)]
pub(crate) struct Editor {
    outline: Value,
    patch: Patch,
}

impl Editor {
    /// An editor for a document. `outline` is the part that operations will touch, with any scalars;
    /// objects whose members they do not need may be given empty.
    #[must_use]
    pub(crate) fn new(outline: Value) -> Self {
        Self { outline, patch: Patch::default() }
    }

    /// Sets the member at `path`, with all missing parents, in one operation. A present member is
    /// replaced (RFC 6902, section 4.1).
    pub(crate) fn set(&mut self, path: &[&str], value: impl Into<Value>) {
        self.add(path, value.into());
    }

    /// Appends `value` to the list at `path`; a list that is missing or null is created.
    pub(crate) fn append(&mut self, path: &[&str], value: impl Into<Value>) {
        let value = value.into();
        match self.find(path) {
            Some(Value::Array(items)) => {
                items.push(SCALAR);
                self.write(add(&[path, &["-"]].concat(), value));
            }
            _ => self.add(path, Value::Array(vec![value])),
        }
    }

    /// Replaces the list at `path` by `items`; a list that is missing or null is created.
    pub(crate) fn set_list(&mut self, path: &[&str], items: Vec<Value>) {
        let value = Value::Array(items);
        match self.find(path) {
            Some(list @ Value::Array(_)) => {
                *list = outline(&value);
                self.write(replace(path, value));
            }
            _ => self.add(path, value),
        }
    }

    /// Removes the member or the list item at `path`. Nothing happens if there is none.
    pub(crate) fn remove(&mut self, path: &[&str]) {
        let Some((leaf, parents)) = path.split_last() else { return };
        let is_removed = match self.find(parents) {
            Some(Value::Object(members)) => members.remove(*leaf).is_some(),
            Some(Value::Array(items)) => match leaf.parse() {
                Ok(index) if index < items.len() => {
                    items.remove(index);
                    true
                }
                _ => false,
            },
            _ => false,
        };
        if is_removed {
            self.write(remove(path));
        }
    }

    /// The operations, in order.
    #[must_use]
    pub(crate) fn into_patch(self) -> Patch {
        self.patch
    }

    fn write(&mut self, operation: PatchOperation) {
        self.patch.operations.push(operation);
    }

    fn find(&mut self, path: &[&str]) -> Option<&mut Value> {
        path.iter().try_fold(&mut self.outline, |value, key| match value {
            Value::Array(items) => items.get_mut(key.parse::<usize>().ok()?),
            _ => value.get_mut(*key),
        })
    }

    /// Adds `value` in the objects above it that are missing.
    ///
    /// A list item on the path must be present: only objects are created.
    fn add(&mut self, path: &[&str], value: Value) {
        // As deep as there are objects and lists; null counts as missing.
        let mut depth = 0;
        let mut parent = &self.outline;
        while depth + 1 < path.len()
            && let Some(next @ (Value::Object(_) | Value::Array(_))) = child(parent, path[depth])
        {
            parent = next;
            depth += 1;
        }
        let Some((present, missing)) = path.split_at_checked(depth + 1) else { return };
        let value =
            missing.iter().rev().fold(value, |inner, name| Value::from_iter([(*name, inner)]));
        if let [above @ .., name] = present
            && let Some(Value::Object(members)) = self.find(above)
        {
            members.insert((*name).to_owned(), outline(&value));
        }
        self.write(add(present, value));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn edited(document: &Value, edit: impl FnOnce(&mut Editor)) -> (Value, Vec<PatchOperation>) {
        let mut editor = Editor::new(document.clone());
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
            e.set(&["m", "a/b~c"], "v");
            e.set(&["m", ""], "w");
            e.set(&[quoted, "r\\"], "v\u{1}");
            e.set(&[quoted, "é\t"], "w");
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
                e.remove(&[parent, member]);
            }
            e.remove(&["l", "7"]);
        });
        assert_eq!((result, operations.len()), (json!({"a": {}, "l": [{}]}), 1));
        let patch = Editor::new(Value::Null).into_patch();
        assert!(patch.is_empty() && patch.operations().is_empty());
        assert_eq!(patch.to_json(), b"[]");
    }
}
