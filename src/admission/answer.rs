//! Writes the answer to a review (admission.k8s.io/v1, `AdmissionResponse`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::review::API_VERSION;
use super::{Admission, Decision, Refusal, Review};
use crate::placement::json::write as write_json;
use crate::placement::patch::Patch;
use crate::placement::reason::Warning;

/// A response without its patch, which [`append_patch`] adds.
#[derive(Default, Serialize)]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [Warning],
}

#[derive(Serialize)]
struct Status<'a> {
    code: u16,
    reason: &'a str,
    message: String,
}

/// Writes the answer to `review` as JSON. For a `Wait`, it is the decision without waiting.
#[must_use]
pub fn write(review: &Review<'_>, decision: &Decision) -> Vec<u8> {
    let response = build_response(review.request.uid.as_str(), decision);
    let mut json = Vec::with_capacity(256);
    json.extend_from_slice(br#"{"kind":"AdmissionReview","apiVersion":""#);
    json.extend_from_slice(API_VERSION.as_bytes());
    json.extend_from_slice(br#"","response":"#);
    write_json(&mut json, &response).expect("keys are texts, and no variant has several fields");
    if let Some(patch) = find_patch(decision) {
        append_patch(&mut json, patch);
    }
    json.push(b'}');
    json
}

fn find_patch(decision: &Decision) -> Option<&Patch> {
    match decision {
        Decision::Admit(Admission { patch, .. }) => Some(patch).filter(|patch| !patch.is_empty()),
        Decision::Wait { otherwise, .. } => find_patch(otherwise),
        Decision::Pass(_) | Decision::Refuse(_) => None,
    }
}

/// Adds the patch and its type to the end of a response: the API server rejects one without the
/// other. The base64 is written in place, because a serializer would look at each of its bytes for
/// characters to escape, and it has none.
fn append_patch(response: &mut Vec<u8>, patch: &Patch) {
    let document = patch.as_json();
    let length = document.len().div_ceil(3) * 4;
    // Replaces the brace that ends the response.
    response.pop();
    response.reserve(length + 64);
    response.extend_from_slice(br#","patchType":"JSONPatch","patch":""#);
    let start = response.len();
    response.resize(start + length, 0);
    STANDARD.encode_slice(document, &mut response[start..]).expect("4 bytes for each 3 bytes");
    response.extend_from_slice(br#""}"#);
}

fn build_response<'a>(uid: &'a str, decision: &'a Decision) -> Response<'a> {
    match decision {
        Decision::Pass(_) => Response { uid, allowed: true, ..Response::default() },
        Decision::Admit(Admission { warnings, .. }) => {
            Response { uid, allowed: true, warnings, ..Response::default() }
        }
        Decision::Refuse(refusal) => Response {
            uid,
            status: Some(Status::of(refusal)),
            warnings: &refusal.warnings,
            ..Response::default()
        },
        Decision::Wait { otherwise, .. } => build_response(uid, otherwise),
    }
}

impl<'a> Status<'a> {
    fn of(refusal: &'a Refusal) -> Self {
        Self {
            code: refusal.code(),
            reason: refusal.first().reason.as_str(),
            message: refusal.message(),
        }
    }
}
