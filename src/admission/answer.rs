//! Writes the answer to a review (admission.k8s.io/v1, `AdmissionResponse`).

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer};

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

/// The API server rejects a patch without its type, and a type without a patch.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_base64")]
    patch: Option<&'a Patch>,
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
    serde_json::to_vec(&answer).expect("all keys are strings")
}

fn build_response<'a>(uid: &'a str, decision: &'a Decision) -> Response<'a> {
    match decision {
        Decision::Pass(_) => Response { uid, allowed: true, ..Response::default() },
        Decision::Admit(Admission { patch, warnings, .. }) => {
            let patch = Some(patch).filter(|patch| !patch.is_empty());
            let patch_type = patch.map(|_| "JSONPatch");
            Response { uid, allowed: true, patch_type, patch, status: None, warnings }
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

fn as_base64<S: Serializer>(patch: &Option<&Patch>, serializer: S) -> Result<S::Ok, S::Error> {
    let document = patch.map_or(&[][..], Patch::as_json);
    serializer.collect_str(&Base64Display::new(document, &STANDARD))
}
