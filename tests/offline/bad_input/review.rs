//! The review around the object: versions, operations, resources, the request and its uid.

use serde_json::{Value, json};
use stowplan::testing::admission::{Decision, ParseError, Pass, Review, answer};

use super::input::{HOST, SMALL, annotated, decided, error, spoilt};
use crate::pods::{Kind, patch_of, review_of};

#[test]
fn a_review_that_ends_anywhere_is_an_error() {
    let decision = decided(SMALL.as_bytes()).unwrap();
    assert_eq!(patch_of(&decision).unwrap().len(), 2);
    for bytes in [&b""[..], b" ", b"\n\t\r "] {
        assert_eq!(error(bytes), ParseError::Empty);
    }
    for end in 1..SMALL.len() {
        assert!(matches!(error(&SMALL.as_bytes()[..end]), ParseError::Json(_)), "{end}");
    }
}

#[test]
fn what_is_no_json_object_is_an_error() {
    let (twice, trailing) = (format!("{SMALL}{SMALL}"), format!("{SMALL}x"));
    let others = ["hello", "<xml/>", "[]", "\"AdmissionReview\"", "7", "true", "{]", "'{}'"];
    for text in others.into_iter().chain([&*twice, &trailing]) {
        assert!(matches!(error(text.as_bytes()), ParseError::Json(_)), "{text}");
    }
    // A list is not an object whose members come in order.
    let list = format!(
        r#"["admission.k8s.io/v1","AdmissionReview",{}]"#,
        &SMALL[SMALL.find(r#"{"uid"#).unwrap()..SMALL.len() - 1]
    );
    assert!(matches!(error(list.as_bytes()), ParseError::Json(_)));
    assert!(decided(format!("\n {SMALL}\r\n").as_bytes()).is_ok());
}

#[test]
fn other_versions_and_kinds_are_not_served() {
    for (text, named) in [
        (spoilt("k8s.io/v1", "k8s.io/v1beta1"), "admission.k8s.io/v1beta1"),
        (spoilt("k8s.io/v1", "k8s.io/v2"), "admission.k8s.io/v2"),
        (spoilt("AdmissionReview", "ConversionReview"), "ConversionReview"),
        (spoilt(r#""kind":"AdmissionReview","#, ""), "(none)"),
        (spoilt(r#""apiVersion":"admission.k8s.io/v1","#, ""), "(none)"),
        (spoilt(r#""kind":"AdmissionReview""#, r#""Kind":"AdmissionReview""#), "(none)"),
        ("null".to_owned(), "(none)"),
        ("{}".to_owned(), "(none)"),
        (spoilt("AdmissionReview", &"x".repeat(1_000_000)), "xxx"),
        (spoilt("AdmissionReview", r"a\u001b[31m\r\nb"), r"a\u{1b}[31m\r\nb"),
    ] {
        let error = error(text.as_bytes());
        assert!(matches!(error, ParseError::Version(_)), "{error}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[test]
fn a_review_without_a_request_or_a_uid_cannot_be_answered() {
    let head = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1""#;
    assert_eq!(error(format!("{head}}}").as_bytes()), ParseError::NoRequest);
    assert_eq!(error(format!("{head},\"request\":null}}").as_bytes()), ParseError::NoRequest);
    let long = format!(r#""uid":"{}""#, "u".repeat(1 << 20));
    for uid in [r#""uid":null"#, r#""uid":"""#, r#""UID":"u-1""#, r#""x":0"#, &long] {
        let error = error(spoilt(r#""uid":"u-1""#, uid).as_bytes());
        assert!(matches!(error, ParseError::Uid(_)), "{error}");
    }
    for uid in [r#""uid":7"#, r#""uid":{}"#, r#""uid":["u"]"#] {
        assert!(
            matches!(error(spoilt(r#""uid":"u-1""#, uid).as_bytes()), ParseError::Json(_)),
            "{uid}"
        );
    }
    for request in ["7", "\"x\"", "[]", r#"["u-1"]"#] {
        let text = format!("{head},\"request\":{request}}}");
        assert!(matches!(error(text.as_bytes()), ParseError::Json(_)), "{text}");
    }
}

#[test]
fn a_uid_comes_back_as_it_was() {
    for uid in [
        "u",
        "a\"b\\c",
        "two\nlines\r\n",
        "\u{0}\u{1b}[31m",
        "é 漢 \u{1f600}",
        &"u".repeat(128),
        "</script>",
    ] {
        let review = json!({"uid": uid}).to_string();
        let text = spoilt(r#""uid":"u-1""#, &review[1..review.len() - 1]);
        let review = Review::parse(text.as_bytes()).unwrap();
        let bytes = answer::write(&review, &decided(text.as_bytes()).unwrap());
        assert!(!bytes.iter().any(u8::is_ascii_control), "{uid:?}");
        let answer: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(answer["response"]["uid"], uid);
        assert_eq!(answer["response"]["allowed"], true);
    }
}

#[test]
fn nothing_but_the_creation_of_a_pod_or_a_claim_is_decided() {
    let review = |members: &[(&str, Value)]| {
        let mut review = review_of("default", &annotated(HOST, "n1"));
        for (member, value) in members {
            review["request"][*member] = value.clone();
        }
        decided(review.to_string().as_bytes()).unwrap()
    };
    let resource = |group: &str, plural: &str| {
        ("resource", json!({"group": group, "version": "v1", "resource": plural}))
    };
    let operations = ["UPDATE", "DELETE", "CONNECT", "create", "", "PATCH"];
    let subresources =
        ["binding", "ephemeralcontainers", "eviction", "exec", "log", "resize", "status"];
    let claims = resource("", "persistentvolumeclaims");
    let others = [
        resource("", "persistentvolumes"),
        resource("apps", "persistentvolumeclaims"),
        resource("apps", "deployments"),
        resource("metrics.k8s.io", "pods"),
        ("resource", json!(null)),
    ];
    let deleted = [
        ("oldObject", annotated(HOST, "n1")),
        ("object", Value::Null),
        ("operation", json!("DELETE")),
    ];
    let mut out_of_scope = vec![
        deleted.to_vec(),
        vec![claims.clone(), ("operation", json!("UPDATE"))],
        vec![claims.clone(), ("subResource", json!("status"))],
    ];
    out_of_scope.extend(operations.map(|operation| vec![("operation", json!(operation))]));
    out_of_scope.extend(subresources.map(|name| vec![("subResource", json!(name))]));
    out_of_scope.extend(others.map(|other| vec![other]));
    for members in out_of_scope {
        let decision = review(&members);
        assert!(matches!(decision, Decision::Pass(Pass::OutOfScope)), "{members:?}");
    }
    let claim = review(&[claims]);
    assert!(
        matches!(&claim, Decision::Admit(admission) if admission.patch.is_empty()),
        "{claim:?}"
    );
}

#[test]
fn what_is_no_claim_is_an_error_that_says_so() {
    let claim = |spec: Value| {
        let object =
            json!({"metadata": {"annotations": {"stowplan.dev/future": "x"}}, "spec": spec});
        error(Kind::Claim.review_of("default", &object).to_string().as_bytes())
    };
    for spec in
        [json!([]), json!("fast"), json!({"storageClassName": 7}), json!({"accessModes": {}})]
    {
        let text = claim(spec.clone()).to_string();
        assert!(
            text.starts_with("request.object is not a valid PersistentVolumeClaim: "),
            "{spec}: {text}"
        );
    }
    let long = "é".repeat(128 * 1024);
    claim(json!({"accessModes": long}));
    let twice =
        Kind::Claim.review_of("default", &json!({"spec": {"storageClassName": "a"}})).to_string();
    let twice = twice
        .replace(r#""storageClassName":"a""#, r#""storageClassName":"a","storageClassName":"b""#);
    assert!(error(twice.as_bytes()).to_string().contains("duplicate field `storageClassName`"));
}
