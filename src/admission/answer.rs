//! Writes the answer to a review (admission.k8s.io/v1, `AdmissionResponse`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::review::API_VERSION;
use super::{Admission, Decision, Refusal, Review};
use crate::placement::patch::Patch;
use crate::placement::reason::Warning;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    kind: &'static str,
    api_version: &'static str,
    response: Response<'a>,
}

/// A response without its patch, which [`append_patch`] adds.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
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
    let answer = Answer { kind: "AdmissionReview", api_version: API_VERSION, response };
    let mut json = serde_json::to_vec(&answer).expect("all keys are strings");
    if let Some(patch) = find_patch(decision) {
        append_patch(&mut json, patch);
    }
    json
}

fn find_patch(decision: &Decision) -> Option<&Patch> {
    match decision {
        Decision::Admit(Admission { patch, .. }) => Some(patch).filter(|patch| !patch.is_empty()),
        Decision::Wait { otherwise, .. } => find_patch(otherwise),
        Decision::Pass(_) | Decision::Refuse(_) => None,
    }
}

/// Adds the patch and its type to the end of an answer: the API server rejects one without the
/// other. The base64 is written in place, because a serializer would look at each of its bytes for
/// characters to escape, and it has none.
fn append_patch(answer: &mut Vec<u8>, patch: &Patch) {
    const END: &[u8] = b"}}";
    let document = patch.as_json();
    answer.truncate(answer.len() - END.len());
    answer.extend_from_slice(br#","patchType":"JSONPatch","patch":""#);
    let start = answer.len();
    answer.resize(start + document.len().div_ceil(3) * 4, 0);
    STANDARD.encode_slice(document, &mut answer[start..]).expect("4 bytes for each 3 bytes");
    answer.push(b'"');
    answer.extend_from_slice(END);
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
