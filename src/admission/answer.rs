//! The answer to a review (admission.k8s.io/v1, `AdmissionResponse`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json_patch::PatchOperation;
use serde::Serialize;

use super::review::API_VERSION;
use super::{Decision, Review};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    kind: &'static str,
    api_version: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    // Both or neither: the API server takes one without the other for a broken webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "<[&str]>::is_empty")]
    warnings: Vec<&'a str>,
}

#[derive(Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}

/// The bytes that answer `review` with `decision`; a `Wait` is answered with what it is otherwise.
#[must_use]
pub fn write(review: &Review<'_>, decision: &Decision) -> Vec<u8> {
    let mut response = Response {
        uid: review.request.uid.as_str(),
        allowed: true,
        status: None,
        patch_type: None,
        patch: None,
        warnings: Vec::new(),
    };
    fill(&mut response, decision);
    let answer = Answer { kind: "AdmissionReview", api_version: API_VERSION, response };
    serde_json::to_vec(&answer).expect("strings, numbers and booleans are JSON")
}

fn fill<'d>(response: &mut Response<'d>, decision: &'d Decision) {
    match decision {
        Decision::Pass(_) => {}
        Decision::Wait { otherwise, .. } => fill(response, otherwise),
        Decision::Admit(admission) => {
            response.warnings = admission.warnings.iter().map(|warning| warning.as_str()).collect();
            if !admission.patch.is_empty() {
                response.patch_type = Some("JSONPatch");
                response.patch = Some(STANDARD.encode(to_json(&admission.patch)));
            }
        }
        Decision::Refuse(refusal) => {
            response.warnings = refusal.warnings.iter().map(|warning| warning.as_str()).collect();
            response.allowed = false;
            response.status = Some(Status {
                code: refusal.code(),
                reason: refusal.first().reason.as_str(),
                message: refusal.message(),
            });
        }
    }
}

fn to_json(patch: &[PatchOperation]) -> Vec<u8> {
    serde_json::to_vec(patch).expect("operations are JSON")
}
