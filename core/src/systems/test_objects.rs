//! Objects of a cluster for tests.

use serde_json::{Value, json};

use crate::systems::{Object, View};
use crate::view::Scope;

/// A View of these objects, as a file has them.
pub fn view_of(objects: impl IntoIterator<Item = Value>) -> View {
    let mut view = View::default();
    for object in objects {
        view.apply(super::object(object).unwrap().unwrap());
    }
    view
}

/// A node that is Ready, changed by the merge patch `with` (RFC 7396).
pub fn node(name: &str, with: &Value) -> Value {
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node", "spec": {},
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    json_patch::merge(&mut node, with);
    node
}

/// Applies an object to a View as the API server sends it.
pub fn watch(view: &mut View, object: Value, scope: Scope) {
    view.apply(Object::from_document(object, scope).unwrap().unwrap());
}

/// The owner references of an object that this object of Tekton controls.
pub fn controlled_by(kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": "tekton.dev/v1", "kind": kind, "name": name, "uid": uid, "controller": true}])
}
