//! Writes the answer to a review (admission.k8s.io/v1, `AdmissionResponse`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::review::API_VERSION;
use super::{Admission, Decision, Pass, Refusal, Review};
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
    #[serde(rename = "auditAnnotations", skip_serializing_if = "Option::is_none")]
    audit: Option<Audit<'a>>,
}

/// What the audit log of the API server gets: words of stowplan, and no text of users. The API
/// server puts the webhook's name before each key.
///
/// The API server may ask a second time about one object (`reinvocationPolicy`), and logs a warning
/// if an annotation then has another value. So an object that has all changes already gets none, and
/// the uid, which is another one each time, is given where a second round is rare.
#[derive(Serialize)]
struct Audit<'a> {
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The uid of the review, by which the webhook's log names it. The audit log has it nowhere
    /// else.
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
}

impl<'a> Audit<'a> {
    /// `None`: nothing of stowplan is concerned, or nothing is changed.
    fn of(uid: &'a str, decision: &Decision) -> Option<Self> {
        let uid = Some(uid);
        let (reason, uid) = match decision {
            Decision::Pass(Pass::Ignored) => (Some(decision.reason()), None),
            Decision::Pass(_) => return None,
            Decision::Admit(admission) if !admission.findings.is_empty() => {
                (Some(decision.reason()), None)
            }
            Decision::Admit(admission) if admission.patch.is_empty() => return None,
            Decision::Admit(_) => (None, uid),
            Decision::Refuse(_) => (Some(decision.reason()), uid),
            Decision::Wait { otherwise, .. } => return Self::of(uid?, otherwise),
        };
        Some(Self { decision: decision.outcome(), reason, uid })
    }
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
    let uid = review.request.uid.as_str();
    let response = Response { audit: Audit::of(uid, decision), ..build_response(uid, decision) };
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
