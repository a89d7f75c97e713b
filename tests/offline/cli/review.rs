//! `stowplan review`: an AdmissionReview in, the answer out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::command::{Folder, job, run};

pub(crate) fn review(annotations: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "jobs",
            "operation": "CREATE",
            "object": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "p", "namespace": "jobs", "annotations": annotations},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    })
}

#[test]
fn a_review_is_answered() {
    let folder = job();
    let sent = review(&json!({"streams.ibm.com/host-pool": "named[1]"})).to_string();
    let output = folder.run(["review", "--cluster", "cluster"], sent.as_bytes());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert!(output.stdout.ends_with("}\n"), "one line");
    let response = &output.json()["response"];
    assert_eq!(response["uid"], "705ab4f5-6393-11e8-b7cc-42010a800002");
    assert_eq!(response["allowed"], true);
    assert_eq!(response["patchType"], "JSONPatch");
    let patch = STANDARD.decode(response["patch"].as_str().expect("a patch")).expect("base64");
    let patch = String::from_utf8(patch).expect("text");
    assert!(
        patch.contains(r#"{"key":"metadata.name","operator":"In","values":["node-1"]}"#),
        "{patch}"
    );
}

#[test]
fn a_refusal_is_an_answer_too() {
    let sent = review(&json!({"streams.ibm.com/host-pool": "nonesuch"})).to_string();
    let output = run(["review"], sent.as_bytes());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let response = &output.json()["response"];
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 409);
    assert_eq!(response["status"]["reason"], "UnknownPool");
}

#[test]
fn the_audit_log_gets_the_decision_and_no_text_of_users() {
    let folder = job();
    let audited = |review: &Value, arguments: &[&str]| {
        let arguments = ["review", "--cluster", "cluster"].iter().chain(arguments).copied();
        let output = folder.run(arguments, review.to_string().as_bytes());
        assert_eq!(output.code, 0, "{output:?}");
        (output.json()["response"]["auditAnnotations"].clone(), output.stdout)
    };
    let uid = "705ab4f5-6393-11e8-b7cc-42010a800002";
    let placed = review(&json!({"streams.ibm.com/host-pool": "named[1]"}));
    let refused = review(&json!({"streams.ibm.com/host-pool": "nonesuch"}));
    assert_eq!(audited(&placed, &[]).0, json!({"decision": "placed", "uid": uid}));
    let annotations = json!({"decision": "refused", "reason": "UnknownPool", "uid": uid});
    assert_eq!(audited(&refused, &[]).0, annotations);
    folder.write("warn.yaml", b"onInvalid: warn\n");
    let annotations = json!({"decision": "unplaced", "reason": "UnknownPool"});
    assert_eq!(audited(&refused, &["--policy", "warn.yaml"]).0, annotations);
    let mut ignored = refused.clone();
    ignored["request"]["object"]["metadata"]["labels"] = json!({"stowplan.dev/ignore": "true"});
    assert_eq!(audited(&ignored, &[]).0, json!({"decision": "passed", "reason": "Ignored"}));
    // The shortest answer, where nothing of stowplan is concerned or changed.
    let mut deleted = placed.clone();
    deleted["request"]["operation"] = json!("DELETE");
    let empty = format!(
        "{{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"response\":\
         {{\"uid\":\"{uid}\",\"allowed\":true}}}}\n"
    );
    for review in [review(&json!({})), deleted, review(&json!({"example.com/host": "x"}))] {
        assert_eq!(audited(&review, &[]).1, empty);
    }
    folder.write("off.yaml", b"excludedNamespaces: [jobs]\n");
    assert_eq!(audited(&placed, &["--policy", "off.yaml"]).1, empty);
}

#[test]
fn the_policy_holds_for_a_review() {
    let folder = Folder::new(&[("policy.yaml", "onInvalid: warn\n")]);
    let sent = review(&json!({"streams.ibm.com/host": ""})).to_string();
    let output = folder.run(["review", "--policy", "policy.yaml"], sent.as_bytes());
    let response = &output.json()["response"];
    assert_eq!(response["allowed"], true);
    assert!(
        response["warnings"][0]
            .as_str()
            .is_some_and(|text| text.starts_with("streams.ibm.com/host: "))
    );
}

#[test]
fn an_invalid_review_has_no_answer() {
    let good = review(&json!({}));
    let with = |pointer: &str, value: Value| {
        let mut review = good.clone();
        *review.pointer_mut(pointer).expect(pointer) = value;
        review.to_string()
    };
    let mut long = good.to_string().into_bytes();
    long.resize(7 * 1024 * 1024 + 1, b' ');
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (sent, part) in [
        (&b""[..], "the body is empty"),
        (b" \n", "the body is empty"),
        (b"{", "not an AdmissionReview: EOF"),
        (b"hello", "not an AdmissionReview"),
        (b"[]", "not an AdmissionReview"),
        (b"{}", "kind (none) of (none) is not served"),
        (b"\xff\xfe{\0}\0", "not an AdmissionReview"),
        (deep.as_bytes(), "not an AdmissionReview: invalid type: sequence"),
        (&long, "standard input is longer than 7 MiB"),
        (
            with("/apiVersion", json!("admission.k8s.io/v1beta1")).as_bytes(),
            "v1beta1 is not served",
        ),
        (with("/request", json!(null)).as_bytes(), "has no request"),
        (with("/request/uid", json!("")).as_bytes(), "request.uid is missing or empty"),
        (
            with("/request/object/metadata/annotations", json!({"a": 5})).as_bytes(),
            "a: invalid type: integer `5`",
        ),
        (
            good.to_string().replace(r#""uid""#, r#""uid":"1","uid""#).as_bytes(),
            "duplicate field `uid`",
        ),
    ] {
        let output = run(["review"], sent);
        assert!(output.error_line().contains(part), "{part}: {output:?}");
    }
    long.truncate(7 * 1024 * 1024);
    assert_eq!(run(["review"], &long).code, 0, "7 MiB are read");
    let extra = good.to_string().replacen('{', &format!("{{\"extra\":{deep},"), 1);
    assert_eq!(
        run(["review"], extra.as_bytes()).code,
        0,
        "what is not read may be as deep as it likes"
    );
}
