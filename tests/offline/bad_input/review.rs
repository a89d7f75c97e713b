//! The review around the object: versions, operations, resources, the request and its uid.

use serde_json::{Value, json};
use stowplan_core::admission::{Decision, ParseError, Pass, Review, answer};

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
    let uids = [r#""uid":7"#, r#""uid":{}"#, r#""uid":["u"]"#];
    let uids = uids.map(|uid| spoilt(r#""uid":"u-1""#, uid));
    let requests = ["7", "\"x\"", "[]", r#"["u-1"]"#];
    let requests = requests.map(|request| format!("{head},\"request\":{request}}}"));
    for text in uids.into_iter().chain(requests) {
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
    let review = |member: &str, value: &Value| {
        let mut review = review_of("default", &annotated(HOST, "n1"));
        review["request"][member] = value.clone();
        decided(review.to_string().as_bytes()).unwrap()
    };
    let resource = |(group, plural): (&str, &str)| {
        ("resource", json!({"group": group, "version": "v1", "resource": plural}))
    };
    let operations = ["UPDATE", "DELETE", "CONNECT", "create", "", "PATCH"];
    let subresources =
        ["binding", "ephemeralcontainers", "eviction", "exec", "log", "resize", "status"];
    let resources = [
        ("", "persistentvolumes"),
        ("apps", "persistentvolumeclaims"),
        ("apps", "deployments"),
        ("metrics.k8s.io", "pods"),
    ];
    let others = operations.map(|operation| ("operation", json!(operation))).into_iter();
    let others = others.chain(subresources.map(|name| ("subResource", json!(name))));
    let others = others.chain(resources.map(resource));
    for (member, value) in others.chain([("resource", Value::Null)]) {
        let decision = review(member, &value);
        assert!(matches!(decision, Decision::Pass(Pass::OutOfScope)), "{member}: {value}");
    }
    let (member, claims) = resource(("", "persistentvolumeclaims"));
    let claim = review(member, &claims);
    assert!(
        matches!(&claim, Decision::Admit(admission) if admission.patch.is_empty()),
        "{claim:?}"
    );
}

#[test]
fn what_is_no_claim_is_an_error_that_says_so() {
    let claim = |spec: &Value| {
        let object =
            json!({"metadata": {"annotations": {"stowplan.dev/future": "x"}}, "spec": spec});
        Kind::Claim.review_of("default", &object).to_string()
    };
    let start = "request.object is not a valid PersistentVolumeClaim: ";
    let long = "é".repeat(128 * 1024);
    for spec in [json!([]), json!({"storageClassName": 7}), json!({"accessModes": long})] {
        let text = error(claim(&spec).as_bytes()).to_string();
        assert!(text.starts_with(start), "{text}");
    }
    let (once, class) = (claim(&json!({"storageClassName": "a"})), r#""storageClassName":"a""#);
    let twice = once.replace(class, &format!("{class},{class}"));
    assert!(error(twice.as_bytes()).to_string().contains("duplicate field `storageClassName`"));
}
