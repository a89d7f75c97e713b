//! Answers to reviews, and their patches.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// What stands for the uid of a review in an answer to any review.
pub(crate) const UID: &str = "00000000-0000-0000-0000-000000000000";

/// The answer with this patch, to a review whose uid is not known yet.
pub(crate) fn answer_of(patch: &Value) -> String {
    let patch = STANDARD.encode(patch.to_string());
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "response": {"uid": UID, "allowed": true, "patchType": "JSONPatch", "patch": patch},
    })
    .to_string()
}

/// The patch of an answer, as JSON; `None`: it has none.
pub(crate) fn patch_of(answer: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let answer: Value = serde_json::from_str(answer)?;
    let patch = answer["response"]["patch"].as_str();
    Ok(patch.map(|patch| STANDARD.decode(patch)).transpose()?)
}
