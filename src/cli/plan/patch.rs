//! Patches for the objects of the input.

use anyhow::Context as _;
use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

use crate::cli::input::Document;
use crate::cli::report::Planned;
use crate::cli::template::Expanded;

/// Converts operations on a pod to operations on the object that the pod was built from.
///
/// The pod has labels and annotations from its controller. If the template has none, their parents
/// are created first.
pub(super) fn rebase(patch: &[PatchOperation], expanded: &Expanded, object: &Value) -> Vec<Value> {
    let prefix = &*expanded.pointer;
    let mut operations = Vec::new();
    // A pod in the input is the object itself.
    let parents: &[&str] = if prefix.is_empty() {
        &[]
    } else {
        &["/metadata", "/metadata/labels", "/metadata/annotations"]
    };
    for parent in parents {
        let target = format!("{prefix}{parent}");
        let below = format!("{parent}/");
        let needed = patch.iter().any(|operation| operation.path().as_str().starts_with(&below));
        if needed && object.pointer(&target).is_none_or(Value::is_null) {
            operations.push(json!({"op": "add", "path": target, "value": {}}));
        }
    }
    for operation in patch {
        let mut operation = json!(operation);
        for key in ["path", "from"] {
            if let Some(Value::String(path)) = operation.get_mut(key) {
                path.insert_str(0, prefix);
            }
        }
        operations.push(operation);
    }
    operations
}

/// Applies the patches to the documents.
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
    Ok(values)
}
