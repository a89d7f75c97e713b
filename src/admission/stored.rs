//! The decision on an object that does not come in a review: from a file, or from the store after it
//! was admitted.

use serde_json::{Value, json};

use super::review::API_VERSION;
use super::{Decision, ParseError, Review, decide, validate};
use crate::policy::Policy;
use crate::view::View;

/// A resource as a review names it.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version in it.
    pub version: &'static str,
    /// The plural name.
    pub plural: &'static str,
}

/// Pods.
pub const PODS: Resource = Resource { group: "", version: "v1", plural: "pods" };
/// Claims of volumes.
pub const CLAIMS: Resource =
    Resource { group: "", version: "v1", plural: "persistentvolumeclaims" };
/// StreamsJobs.
pub const STREAMS_JOBS: Resource =
    Resource { group: "stowplan.dev", version: "v1alpha1", plural: "streamsjobs" };

/// What would become of `object`, of this resource, were it created now in `namespace`.
///
/// # Errors
/// Where a field that we read has the wrong type.
pub fn decide_creation(
    resource: Resource,
    namespace: &str,
    object: &Value,
    view: &View,
    policy: &Policy,
) -> Result<Decision, ParseError> {
    let Resource { group, version, plural } = resource;
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
