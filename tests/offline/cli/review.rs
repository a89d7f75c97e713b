//! `stowplan review`: an AdmissionReview in, the answer out.

use serde_json::{Value, json};

use super::command::{job, run};
use crate::pods::{UID, review_of};

/// The review of a pod with these annotations in namespace `jobs`.
fn review(annotations: &Value) -> Value {
    let metadata = json!({"name": "p", "namespace": "jobs", "annotations": annotations});
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    review_of(
        "jobs",
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}),
    )
}

#[test]
fn the_audit_log_gets_the_decision_and_no_text_of_users() {
    let folder = job();
    let audited = |review: &Value, words: &str| {
        let output = folder.run(&format!("review --cluster cluster {words}"), review.to_string());
        assert_eq!(output.code, 0, "{output:?}");
        (output.json()["response"]["auditAnnotations"].clone(), output.stdout)
    };
    let placed = review(&json!({"streams.ibm.com/host-pool": "named[1]"}));
    let refused = review(&json!({"streams.ibm.com/host-pool": "nonesuch"}));
    assert_eq!(audited(&placed, "").0, json!({"decision": "placed", "uid": UID}));
    let annotations = json!({"decision": "refused", "reason": "UnknownPool", "uid": UID});
    assert_eq!(audited(&refused, "").0, annotations);
    folder.write("warn.yaml", b"onInvalid: warn\n");
    let annotations = json!({"decision": "unplaced", "reason": "UnknownPool"});
    assert_eq!(audited(&refused, "--policy warn.yaml").0, annotations);
    let mut ignored = refused.clone();
    ignored["request"]["object"]["metadata"]["labels"] = json!({"stowplan.dev/ignore": "true"});
    assert_eq!(audited(&ignored, "").0, json!({"decision": "passed", "reason": "Ignored"}));
    // The shortest answer, where nothing of stowplan is concerned or changed.
    let mut deleted = placed.clone();
    deleted["request"]["operation"] = json!("DELETE");
    let empty = format!(
        "{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"response\":\
         {{\"uid\":\"{UID}\",\"allowed\":true}}}}\n"
    );
    for review in [review(&json!({})), deleted, review(&json!({"example.com/host": "x"}))] {
        assert_eq!(audited(&review, "").1, empty);
    }
    folder.write("off.yaml", b"excludedNamespaces: [jobs]\n");
    assert_eq!(audited(&placed, "--policy off.yaml").1, empty);
}

#[test]
fn an_invalid_review_has_no_answer() {
    let good = review(&json!({})).to_string();
    let mut long = good.clone().into_bytes();
    long.resize(7 * 1024 * 1024 + 1, b' ');
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (sent, why) in [
        (&b""[..], "…the body is empty…"),
        (deep.as_bytes(), "…not an AdmissionReview: invalid type: sequence…"),
        (&long, "…standard input is longer than 7 MiB…"),
    ] {
        run("review", sent).fails(why);
    }
    // 7 MiB are read, and what is not read may be as deep as it likes.
    long.truncate(7 * 1024 * 1024);
    let extra = good.replacen('{', &format!("{{\"extra\":{deep},"), 1);
    for sent in [&long[..], extra.as_bytes()] {
        assert_eq!(run("review", sent).code, 0);
    }
}
