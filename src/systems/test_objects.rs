//! Objects of a cluster for tests.

use serde_json::{Value, json};

use crate::view::View;

/// A View of these objects, as a file has them.
pub(crate) fn view_of(objects: impl IntoIterator<Item = Value>) -> View {
    let mut view = View::default();
    for object in objects {
        view.apply(super::object(object).unwrap().unwrap());
    }
    view
}

/// The owner references of an object that this object of Tekton controls.
pub(crate) fn controlled_by(kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": "tekton.dev/v1", "kind": kind, "name": name, "uid": uid, "controller": true}])
}
