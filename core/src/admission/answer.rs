//! Writes the answer to a review (admission.k8s.io/v1, `AdmissionResponse`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::review::API_VERSION;
use super::{Admission, Decision, Pass, Refusal, Review};
use crate::placement::patch::Patch;
use crate::placement::reason::Warning;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    kind: &'static str,
    api_version: &'static str,
    response: Response<'a>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [Warning],
    #[serde(rename = "auditAnnotations", skip_serializing_if = "Option::is_none")]
    audit: Option<Audit<'a>>,
    /// Present if there is a patch: the API server rejects one without the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    /// The patch in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
}

/// The annotations for the audit log of the API server: words of stowplan, and no text of users. The API
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
    let patch = find_patch(decision);
    let response = Response {
        audit: Audit::of(uid, decision),
        patch_type: patch.map(|_| "JSONPatch"),
        patch: patch.map(|patch| STANDARD.encode(patch.to_json())),
        ..build_response(uid, decision)
    };
    let answer = Answer { kind: "AdmissionReview", api_version: API_VERSION, response };
    serde_json::to_vec(&answer).expect("an answer serializes")
}

fn find_patch(decision: &Decision) -> Option<&Patch> {
    match decision {
        Decision::Admit(Admission { patch, .. }) => Some(patch).filter(|patch| !patch.is_empty()),
        Decision::Wait { otherwise, .. } => find_patch(otherwise),
        Decision::Pass(_) | Decision::Refuse(_) => None,
    }
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
