//! The decision on an object that does not come in a review: from a file, or from the store after it
//! was admitted.

use serde_json::{Value, json};

use super::review::API_VERSION;
use super::{Decision, ParseError, Review, decide};
use crate::policy::Policy;
use crate::view::View;

/// What would become of `object`, of this resource of the core group, were it created now in
/// `namespace`.
///
/// # Errors
/// Where a field that we read has the wrong type.
pub fn decide_creation(
    resource: &str,
    namespace: &str,
    object: &Value,
    view: &View,
    policy: &Policy,
) -> Result<Decision, ParseError> {
    let review = json!({
        "apiVersion": API_VERSION,
        "kind": "AdmissionReview",
        "request": {
            "uid": "stored",
            "resource": {"group": "", "version": "v1", "resource": resource},
            "namespace": namespace,
            "operation": "CREATE",
            "object": object,
        },
    });
    let bytes = review.to_string();
    Ok(decide(&Review::parse(bytes.as_bytes())?, view, policy)?.at_once())
}
