//! Decides on an object without a review of the API server: one from a file, or one that the
//! cluster has already.

use serde_json::{Value, json};

use super::review::API_VERSION;
use super::{Decision, ParseError, Review, decide, validate};
use crate::placement::intent::Change;
use crate::placement::reason::{Finding, Reason};
use crate::placement::record;
use crate::systems::policy::Policy;
use crate::view::View;
use crate::view::resource::Resource;

/// Decides as if `object`, of the kind `resource`, were created in `namespace` now, without what stowplan and the
/// scheduler change in a stored pod after its admission: a node name that contradicts the pod is the scheduler's,
/// and a pod with a record has lost its gates and keeps the record of what was decided then.
///
/// # Errors
/// A field that stowplan reads has the wrong type.
pub fn decide_creation(
    resource: &Resource,
    namespace: &str,
    object: &Value,
    view: &View,
    policy: &Policy,
) -> Result<Decision, ParseError> {
    let mut decision = decide_as_written(resource, namespace, object, None, view, policy)?;
    if object.pointer("/metadata/uid").is_none() {
        return Ok(decision);
    }
    let is_of_scheduler = |finding: &Finding| finding.reason == Reason::NodeNameConflict;
    if let Decision::Refuse(refusal) = &decision
        && refusal.findings.iter().any(is_of_scheduler)
    {
        let mut object = object.clone();
        if let Some(Value::Object(spec)) = object.get_mut("spec") {
            spec.remove("nodeName");
        }
        decision = decide_as_written(resource, namespace, &object, None, view, policy)?;
    }
    let annotations = object.pointer("/metadata/annotations");
    if annotations.is_some_and(|all| all.get(record::KEY).is_some())
        && let Decision::Admit(admission) = &mut decision
    {
        admission.intents.retain(|intent| !matches!(intent.change, Change::Gate(_)));
        let record = ["metadata", "annotations", record::KEY];
        admission.patch = admission.patch.without(&[&["spec", "schedulingGates"], &record]);
    }
    Ok(decision)
}

/// Decides as if `object` were written now: in place of `old`, or as a new one.
///
/// # Errors
/// A field that stowplan reads has the wrong type.
pub(crate) fn decide_as_written(
    resource: &Resource,
    namespace: &str,
    object: &Value,
    old: Option<&Value>,
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
            "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
            "object": object,
            "oldObject": old,
        },
    });
    let bytes = review.to_string();
    let review = Review::parse(bytes.as_bytes())?;
    let decide = if validate::concerns(&review) { validate::validate } else { decide };
    Ok(decide(&review, view, policy)?.at_once())
}
