//! The answer to a review (admission.k8s.io/v1, `AdmissionResponse`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::review::API_VERSION;
use super::{Admission, Decision, Refusal, Review};
use crate::placement::json::{Json, list};
use crate::placement::patch::Patch;
use crate::placement::reason::Warning;

/// The bytes that answer `review` with `decision`; a `Wait` is answered with what it is otherwise.
#[must_use]
pub fn write(review: &Review<'_>, decision: &Decision) -> Vec<u8> {
    let mut json = Vec::with_capacity(256);
    json.extend_from_slice(br#"{"kind":"AdmissionReview","apiVersion":"#);
    API_VERSION.write(&mut json);
    json.extend_from_slice(br#","response":{"uid":"#);
    review.request.uid.as_str().write(&mut json);
    verdict(&mut json, decision);
    json.extend_from_slice(b"}}");
    json
}

fn verdict(json: &mut Vec<u8>, decision: &Decision) {
    match decision {
        Decision::Pass(_) => json.extend_from_slice(br#","allowed":true"#),
        Decision::Admit(Admission { patch: changes, warnings: told, .. }) => {
            json.extend_from_slice(br#","allowed":true"#);
            if !changes.is_empty() {
                patch(json, changes);
            }
            warnings(json, told);
        }
        Decision::Refuse(refusal) => {
            json.extend_from_slice(br#","allowed":false"#);
            status(json, refusal);
            warnings(json, &refusal.warnings);
        }
        Decision::Wait { otherwise, .. } => verdict(json, otherwise),
    }
}

/// The patch and its type: the API server takes one without the other for a broken webhook.
fn patch(json: &mut Vec<u8>, patch: &Patch) {
    json.extend_from_slice(br#","patchType":"JSONPatch","patch":""#);
    let document = patch.as_json();
    let start = json.len();
    let length = document.len().div_ceil(3) * 4;
    // With what follows it, so that the answer grows once.
    json.reserve(length + 256);
    json.resize(start + length, 0);
    STANDARD.encode_slice(document, &mut json[start..]).expect("base64 makes 4 bytes of 3");
    json.push(b'"');
}

fn status(json: &mut Vec<u8>, refusal: &Refusal) {
    json.extend_from_slice(br#","status":{"code":"#);
    json.extend_from_slice(refusal.code().to_string().as_bytes());
    json.extend_from_slice(br#","reason":"#);
    refusal.first().reason.as_str().write(json);
    json.extend_from_slice(br#","message":"#);
    refusal.message().write(json);
    json.push(b'}');
}

fn warnings(json: &mut Vec<u8>, warnings: &[Warning]) {
    if !warnings.is_empty() {
        json.extend_from_slice(br#","warnings":"#);
        list(json, warnings, |warning, json| warning.as_str().write(json));
    }
}
