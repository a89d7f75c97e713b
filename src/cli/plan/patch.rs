//! Patches for the objects of the input.

use anyhow::Context as _;
use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

use crate::cli::input::Document;
use crate::cli::report::Planned;

/// Converts operations on a pod or a claim to operations on the part of `object` that it was built
/// from, at the pointer `prefix`.
///
/// The controller adds labels, annotations, volumes and more. What it adds them to may be missing
/// in the object, and is created first.
pub(super) fn rebase(patch: &[PatchOperation], prefix: &str, object: &Value) -> Vec<Value> {
    let mut changed = object.clone();
    let mut operations = Vec::new();
    for operation in patch {
        let mut operation = json!(operation);
        for key in ["path", "from"] {
            if let Some(Value::String(path)) = operation.get_mut(key) {
                path.insert_str(0, prefix);
            }
        }
        let path = operation["path"].as_str().unwrap_or_default().to_owned();
        let below = prefix.len() + 1;
        for (at, _) in path.match_indices('/').filter(|(at, _)| *at >= below) {
            if changed.pointer(&path[..at]).is_none_or(Value::is_null) {
                let is_item =
                    path[at + 1..].starts_with(|next: char| next == '-' || next.is_ascii_digit());
                let value = if is_item { json!([]) } else { json!({}) };
                operations.push(json!({"op": "add", "path": path[..at], "value": value}));
                apply(&mut changed, operations.last());
            }
        }
        operations.push(operation);
        apply(&mut changed, operations.last());
    }
    operations
}

/// Applies an operation. If it does not apply, that is reported when all of them are applied.
fn apply(object: &mut Value, operation: Option<&Value>) {
    let operation =
        operation.and_then(|of| serde_json::from_value::<PatchOperation>(of.clone()).ok());
    if let Some(operation) = operation {
        let _ = json_patch::patch(object, &[operation]);
    }
}

/// Applies the patches to the documents, and leaves out the objects whose patches are withheld.
pub(super) fn apply_patches(
    documents: &[Document],
    planned: &[Planned<'_>],
) -> anyhow::Result<Vec<Value>> {
    let mut values: Vec<Value> = documents.iter().map(|document| document.value.clone()).collect();
    for planned in planned.iter().filter(|planned| !planned.patch.is_empty()) {
        let patch: Patch = serde_json::from_value(Value::Array(planned.patch.clone()))?;
        values[planned.document]
            .pointer_mut(&planned.item.pointer)
            .context("the object is missing")
            .and_then(|object| Ok(json_patch::patch(object, &patch)?))
            .with_context(|| {
                format!("a bug in stowplan: the patch of {} does not apply", planned.name)
            })?;
    }
    for planned in planned.iter().filter(|planned| planned.withheld.is_some()) {
        if let Some(object) = values[planned.document].pointer_mut(&planned.item.pointer) {
            *object = Value::Null;
        }
    }
    values.retain(|value| !value.is_null());
    values.iter_mut().for_each(drop_null_items);
    Ok(values)
}

/// Removes what is null from the items of a list, and of the lists in it.
fn drop_null_items(value: &mut Value) {
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    if is_list && let Some(items) = value.get_mut("items").and_then(Value::as_array_mut) {
        items.retain(|item| !item.is_null());
        items.iter_mut().for_each(drop_null_items);
    }
}
