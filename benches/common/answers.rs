//! Reviews, answers to reviews, and their patches.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The text in place of the uid of a review in an answer to any review.
pub(crate) const UID: &str = "00000000-0000-0000-0000-000000000000";

/// The review of the creation of an object of a kind whose plural is regular.
pub(crate) fn review(object: &Value) -> Value {
    let [kind, version] =
        ["kind", "apiVersion"].map(|key| object[key].as_str().unwrap_or_default());
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE",
            "namespace": object["metadata"]["namespace"], "name": object["metadata"]["name"],
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": resource},
            "object": object,
        },
    })
}

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
pub(crate) fn patch_of(answer: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
    let answer: Value = serde_json::from_slice(answer)?;
    let patch = answer["response"]["patch"].as_str();
    Ok(patch.map(|patch| STANDARD.decode(patch)).transpose()?)
}
