//! Decides on an object without a review of the API server: one from a file, or one that the
//! cluster has already.

use serde_json::{Value, json};

use super::review::API_VERSION;
use super::{Decision, ParseError, Review, decide, validate};
use crate::placement::reason::Reason;
use crate::systems::policy::Policy;
use crate::view::View;
use crate::view::resource::Resource;

/// Decides as if `object`, of the kind `resource`, were created in `namespace` now. The node name of a
/// stored pod is the scheduler's, if it contradicts the pod: its author cannot remove it.
///
/// # Errors
/// A field that stowplan reads has the wrong type.
pub(crate) fn decide_creation(
    resource: &Resource,
    namespace: &str,
    object: &Value,
    view: &View,
    policy: &Policy,
) -> Result<Decision, ParseError> {
    let decision = decide_as_written(resource, namespace, object, view, policy)?;
    let is_stored = object.pointer("/metadata/uid").is_some();
    match &decision {
        Decision::Refuse(refusal)
            if is_stored
                && refusal.findings.iter().any(|it| it.reason == Reason::NodeNameConflict) =>
        {
            let mut object = object.clone();
            if let Some(Value::Object(spec)) = object.get_mut("spec") {
                spec.remove("nodeName");
            }
            decide_as_written(resource, namespace, &object, view, policy)
        }
        _ => Ok(decision),
    }
}

fn decide_as_written(
    resource: &Resource,
    namespace: &str,
    object: &Value,
    view: &View,
    policy: &Policy,
) -> Result<Decision, ParseError> {
    let Resource { group, version, plural, .. } = resource;
    let review = json!({
        "apiVersion": API_VERSION,
        "kind": "AdmissionReview",
        "request": {
            "uid": "stored",
            "resource": {"group": group, "version": version, "resource": plural},
            "namespace": namespace,
            "operation": "CREATE",
            "object": object,
        },
    });
    let bytes = review.to_string();
    let review = Review::parse(bytes.as_bytes())?;
    let decide = if validate::concerns(&review) { validate::validate } else { decide };
    Ok(decide(&review, view, policy)?.at_once())
}
