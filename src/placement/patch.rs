//! A pod's changes as RFC 6902 operations.
//!
//! Operations are written directly, never found by comparing documents: what stowplan does not know
//! survives, and the cost depends on what is added and not on the size of the pod. The editor keeps
//! the shape of what it edits, so that an operation whose parent is missing cannot be written: the
//! API server answers 500 to the pod's author for one that does not apply, whatever the
//! failurePolicy.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Map, Value};

/// Writes operations against the part of a document that it was given.
///
/// What it wrote itself is kept as an outline: members can be added to it, but the items of its lists
/// are not looked into again.
#[derive(Debug)]
pub struct Editor {
    shape: Value,
    operations: Vec<PatchOperation>,
}

impl Editor {
    /// An editor for a document of which `shape` is the part that will be touched. Objects whose
    /// members do not matter may be given empty.
    #[must_use]
    pub fn new(shape: Value) -> Self {
        Self { shape, operations: Vec::new() }
    }

    /// Sets the member at `path`, with all parents that are missing, in one operation. A member that
    /// is there is replaced (RFC 6902, section 4.1).
    pub fn set(&mut self, path: &[&str], value: Value) {
        let Some(parents) = path.len().checked_sub(1) else {
            return;
        };
        // As deep as there are objects; a null counts as missing.
        let mut depth = 0;
        let mut parent = &self.shape;
        while let Some(next) =
            child(parent, path[depth]).filter(|next| next.is_object() || next.is_array())
            && depth < parents
        {
            parent = next;
            depth += 1;
        }
        let value = path[depth + 1..].iter().rev().fold(value, |inner, token| {
            Value::Object(Map::from_iter([((*token).to_owned(), inner)]))
        });
        if let Some(Value::Object(members)) = descend(&mut self.shape, &path[..depth]) {
            members.insert(path[depth].to_owned(), outline(&value));
        }
        self.operations.push(PatchOperation::Add(AddOperation {
            path: pointer(path[..=depth].iter().copied()),
            value,
        }));
    }

    /// Appends `value` to the list at `path`; a list that is missing or null is made.
    pub fn append(&mut self, path: &[&str], value: Value) {
        match descend(&mut self.shape, path) {
            Some(Value::Array(items)) => {
                items.push(Value::Null);
                self.operations.push(PatchOperation::Add(AddOperation {
                    path: pointer(path.iter().copied().chain(["-"])),
                    value,
                }));
            }
            _ => self.set(path, Value::Array(vec![value])),
        }
    }

    /// Replaces the list at `path` by `value`; one that is missing or null is made.
    pub fn set_list(&mut self, path: &[&str], value: Vec<Value>) {
        match descend(&mut self.shape, path) {
            Some(list @ Value::Array(_)) => {
                let value = Value::Array(value);
                *list = outline(&value);
                self.operations.push(PatchOperation::Replace(ReplaceOperation {
                    path: pointer(path.iter().copied()),
                    value,
                }));
            }
            _ => self.set(path, Value::Array(value)),
        }
    }

    /// Removes the member or the list item at `path`. Nothing happens where there is none.
    pub fn remove(&mut self, path: &[&str]) {
        let Some((leaf, parents)) = path.split_last() else {
            return;
        };
        let removed = match descend(&mut self.shape, parents) {
            Some(Value::Object(members)) => members.remove(*leaf).is_some(),
            Some(Value::Array(items)) => match leaf.parse::<usize>() {
                Ok(index) if index < items.len() => {
                    items.remove(index);
                    true
                }
                _ => false,
            },
            _ => false,
        };
        if removed {
            self.operations.push(PatchOperation::Remove(RemoveOperation {
                path: pointer(path.iter().copied()),
            }));
        }
    }

    /// The operations, in order.
    #[must_use]
    pub fn into_operations(self) -> Vec<PatchOperation> {
        self.operations
    }
}

/// Objects and the lengths of lists.
fn outline(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            members.iter().map(|(key, value)| (key.clone(), outline(value))).collect()
        }
        Value::Array(items) => Value::Array(vec![Value::Null; items.len()]),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Value::Null,
    }
}

/// The JSON pointer of a path, in one piece (RFC 6901, section 3).
fn pointer<'t>(tokens: impl Iterator<Item = &'t str>) -> PointerBuf {
    let mut text = String::with_capacity(128);
    for token in tokens {
        text.push('/');
        if token.contains(['~', '/']) {
            text.push_str(&token.replace('~', "~0").replace('/', "~1"));
        } else {
            text.push_str(token);
        }
    }
    PointerBuf::parse(text).expect("every token begins with / and is escaped")
}

fn child<'v>(value: &'v Value, token: &str) -> Option<&'v Value> {
    match value {
        Value::Object(members) => members.get(token),
        Value::Array(items) => items.get(token.parse::<usize>().ok()?),
        _ => None,
    }
}

fn child_mut<'v>(value: &'v mut Value, token: &str) -> Option<&'v mut Value> {
    match value {
        Value::Object(members) => members.get_mut(token),
        Value::Array(items) => items.get_mut(token.parse::<usize>().ok()?),
        _ => None,
    }
}

fn descend<'v>(value: &'v mut Value, path: &[&str]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |node, token| child_mut(node, token))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn edited(document: Value, edit: impl FnOnce(&mut Editor)) -> (Value, Vec<PatchOperation>) {
        let mut editor = Editor::new(document.clone());
        edit(&mut editor);
        let operations = editor.into_operations();
        let mut result = document;
        json_patch::patch(&mut result, &operations).unwrap();
        (result, operations)
    }

    #[test]
    fn missing_parents_come_with_the_member_in_one_operation() {
        for document in [json!({}), json!({"a": null}), json!({"a": {}}), json!({"a": {"b": null}})]
        {
            let (result, operations) = edited(document, |e| e.set(&["a", "b", "c"], json!(1)));
            assert_eq!(result, json!({"a": {"b": {"c": 1}}}));
            assert_eq!(operations.len(), 1);
        }
    }

    #[test]
    fn a_second_member_knows_the_parents_of_the_first() {
        let (result, operations) = edited(json!({}), |e| {
            e.set(&["a", "b"], json!(1));
            e.set(&["a", "c"], json!(2));
            e.append(&["a", "list"], json!("x"));
            e.append(&["a", "list"], json!("y"));
        });
        assert_eq!(result, json!({"a": {"b": 1, "c": 2, "list": ["x", "y"]}}));
        assert_eq!(operations[1].path().as_str(), "/a/c");
        assert_eq!(operations[3].path().as_str(), "/a/list/-");
    }

    #[test]
    fn slashes_and_tildes_and_nothing_are_escaped() {
        let (result, operations) = edited(json!({"m": {}}), |e| {
            e.set(&["m", "a/b~c"], json!("v"));
            e.set(&["m", ""], json!("w"));
        });
        assert_eq!(result, json!({"m": {"a/b~c": "v", "": "w"}}));
        assert_eq!(operations[0].path().as_str(), "/m/a~1b~0c");
    }

    #[test]
    fn list_items_are_reached_by_index() {
        let (result, _) = edited(json!({"l": [{"a": 1}, {"b": [1]}, {}]}), |e| {
            e.append(&["l", "1", "b"], json!(2));
            e.set(&["l", "2", "c"], json!(3));
            e.remove(&["l", "0"]);
            e.remove(&["l", "7"]);
        });
        assert_eq!(result, json!({"l": [{"b": [1, 2]}, {"c": 3}]}));
    }
}
