//! Input that nobody should send, and the documented answer to each.
//!
//! Bytes that are no review are an error (the server answers 400, and the cluster's failurePolicy
//! decides); a review whose pod asks for something malformed is refused by name; what is not ours is
//! passed on. Nothing panics, and no answer or error grows with what was sent.

#[path = "common/pods.rs"]
mod pods;

use std::fmt::Write as _;

use pods::{Kind, decide_bytes, decide_pod, keeps, patch_of, patched, review_of, typed, view_of};
use serde_json::{Value, json};
use stowplan::admission::{Decision, ParseError, Pass, Review, answer};
use stowplan::placement::reason::Reason;
use stowplan::policy::Policy;
use stowplan::view::{Object, View};

const HOST: &str = "streams.ibm.com/host";

/// A small valid review, as text to be spoilt.
const SMALL: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","resource":{"group":"","version":"v1","resource":"pods"},"namespace":"default","operation":"CREATE","object":{"metadata":{"annotations":{"streams.ibm.com/host":"n1"}},"spec":{"containers":[{"name":"c"}]},"status":{}},"dryRun":false}}"#;

fn cluster() -> View {
    view_of([
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}}),
        json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
            "metadata": {"name": "pair", "namespace": "default"}, "spec": {"hosts": ["n1", "n2"]},
        }),
    ])
}

fn decided(bytes: &[u8]) -> Result<Decision, ParseError> {
    decide_bytes(bytes, &cluster(), &Policy::default())
}

/// The error for bytes that are no review. Its text stays short, whatever was sent.
fn error(bytes: &[u8]) -> ParseError {
    let error = decided(bytes).expect_err("no review");
    let text = error.to_string();
    assert!(text.len() < 1024, "{} bytes", text.len());
    assert!(!text.chars().any(char::is_control), "{text:?}");
    error
}

fn spoilt(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    SMALL.replacen(from, to, 1)
}

fn annotated(key: &str, value: &str) -> Value {
    json!({
        "metadata": {
            "name": "p",
            "labels": {"streams.ibm.com/job": "j", "streams.ibm.com/pe": "j-0"},
            "annotations": {key: value},
        },
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

fn reason(decision: &Decision) -> Option<Reason> {
    match decision {
        Decision::Refuse(refusal) => {
            assert!(refusal.message().len() < 2048, "{} bytes", refusal.message().len());
            assert!(!refusal.message().chars().any(char::is_control), "{:?}", refusal.message());
            Some(refusal.first().reason)
        }
        _ => None,
    }
}

#[test]
fn the_small_review_is_valid() {
    let decision = decided(SMALL.as_bytes()).unwrap();
    assert_eq!(patch_of(&decision).unwrap().len(), 2);
}

#[test]
fn nothing_was_sent() {
    for bytes in [&b""[..], b" ", b"\n\t\r "] {
        assert_eq!(error(bytes), ParseError::Empty);
    }
}

#[test]
fn a_review_that_ends_anywhere_is_an_error() {
    for end in 1..SMALL.len() {
        assert!(matches!(error(&SMALL.as_bytes()[..end]), ParseError::Json(_)), "{end}");
    }
}

#[test]
fn what_is_no_json_object_is_an_error() {
    let twice = format!("{SMALL}{SMALL}");
    let trailing = format!("{SMALL}x");
    for text in [
        "hello",
        "<xml/>",
        "[]",
        "\"AdmissionReview\"",
        "7",
        "true",
        "{]",
        "'{}'",
        &twice,
        &trailing,
    ] {
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
fn null_is_absent_everywhere() {
    let full = json!({
        "metadata": {
            "name": "p", "generateName": "p-", "labels": {"a": "b"}, "annotations": {HOST: "n1"},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true},
            ],
            "finalizers": ["f"],
        },
        "spec": {
            "nodeName": "n1", "schedulingGates": [], "tolerations": [], "nodeSelector": {},
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            "affinity": {"nodeAffinity": {}, "podAffinity": {}, "podAntiAffinity": {}},
            "containers": [{"name": "c", "image": "i"}],
        },
        "status": {},
    });
    for pointer in pointers(&full) {
        let (mut nulled, mut absent) = (full.clone(), full.clone());
        *nulled.pointer_mut(&pointer).unwrap() = Value::Null;
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        let member = member.replace("~1", "/").replace("~0", "~");
        match absent.pointer_mut(parent) {
            Some(Value::Object(members)) => drop(members.remove(&member)),
            // A null in a list is no absent item; that nothing panics is seen elsewhere.
            _ => continue,
        }
        let decision =
            |pod: &Value| match decide_pod("default", pod, &cluster(), &Policy::default()) {
                Ok(decision) => format!("{} {:?}", decision.outcome(), patch_of(&decision)),
                Err(error) => panic!("{pointer}: {error}"),
            };
        if pointer == format!("/metadata/annotations/{}", HOST.replace('/', "~1")) {
            // The API knows no null among annotations: it is the value's type that is wrong.
            assert!(decide_pod("default", &nulled, &cluster(), &Policy::default()).is_err());
            continue;
        }
        if pointer.starts_with("/metadata/labels/") {
            continue;
        }
        assert_eq!(decision(&nulled), decision(&absent), "{pointer}");
    }
    for member in ["oldObject", "options", "dryRun", "subResource", "userInfo", "name"] {
        let mut review = review_of("default", &full);
        review["request"][member] = Value::Null;
        let decision = decided(review.to_string().as_bytes()).unwrap();
        assert_eq!(decision.outcome(), "placed", "{member}");
    }
    let mut review = review_of("default", &full);
    review["request"]["object"] = Value::Null;
    assert!(matches!(
        decided(review.to_string().as_bytes()).unwrap(),
        Decision::Pass(Pass::OutOfScope)
    ));
}

#[test]
fn a_key_that_occurs_twice_is_an_error() {
    let doubled = |text: &str, with: &str| spoilt(text, &format!("{text},{with}"));
    for text in [
        doubled(r#""uid":"u-1""#, r#""uid":"u-2""#),
        doubled(r#""namespace":"default""#, r#""namespace":"other""#),
        doubled(r#""operation":"CREATE""#, r#""operation":"UPDATE""#),
        doubled(r#""streams.ibm.com/host":"n1""#, r#""streams.ibm.com/host":"n2""#),
        doubled(r#""streams.ibm.com/host":"n1""#, r#""streams.ibm.com\/host":"n2""#),
        doubled(r#""annotations":{"streams.ibm.com/host":"n1"}"#, r#""annotations":{}"#),
        doubled(r#""annotations":{"streams.ibm.com/host":"n1"}"#, r#""labels":{"a":"b","a":"c"}"#),
        doubled(r#""spec":{"containers":[{"name":"c"}]}"#, r#""spec":{}"#),
        doubled(r#""status":{}"#, r#""metadata":{}"#),
        doubled(r#""dryRun":false"#, r#""object":null"#),
        doubled(r#""kind":"AdmissionReview""#, r#""kind":"AdmissionReview""#),
        doubled(r#""containers":[{"name":"c"}]"#, r#""nodeName":"n1","nodeName":"n2""#),
        doubled(r#""containers":[{"name":"c"}]"#, r#""affinity":{},"affinity":{}"#),
    ] {
        assert!(error(text.as_bytes()).to_string().contains("duplicate"), "{text}");
    }
    // What nobody here reads may be as it likes.
    assert!(decided(doubled(r#""status":{}"#, r#""status":{}"#).as_bytes()).is_ok());
}

#[test]
fn keys_in_another_case_are_other_keys() {
    for (from, to) in [
        (r#""annotations""#, r#""Annotations""#),
        (r#""metadata""#, r#""METADATA""#),
        (r#""metadata""#, r#""Metadata""#),
    ] {
        let decision = decided(spoilt(from, to).as_bytes()).unwrap();
        assert!(matches!(decision, Decision::Pass(Pass::NoKeys)), "{to}");
    }
    let decision = decided(spoilt(r#""operation""#, r#""Operation""#).as_bytes()).unwrap();
    assert!(matches!(decision, Decision::Pass(Pass::OutOfScope)));
    let decision = decided(spoilt(r#""spec""#, r#""SPEC""#).as_bytes()).unwrap();
    let object: Value = serde_json::from_str(&spoilt(r#""spec""#, r#""SPEC""#)).unwrap();
    let result = patched(&object["request"]["object"], &patch_of(&decision).unwrap()).unwrap();
    assert!(result["spec"]["affinity"].is_object() && result["SPEC"].is_object());
}

#[test]
fn deep_nesting_does_not_reach_the_stack() {
    let check = || {
        for depth in [200, 1_500_000] {
            let open = "[".repeat(depth);
            let closed = format!("{open}{}", "]".repeat(depth));
            let flat = depth.min(100_000);
            let objects = format!("{}1{}", "{\"a\":".repeat(flat), "}".repeat(flat));
            for bomb in [&closed, &objects] {
                // Skipped where nobody reads it …
                for from in [r#""status":{}"#, r#""dryRun":false"#] {
                    let with = format!("{from},\"unknown\":{bomb}");
                    assert!(decided(spoilt(from, &with).as_bytes()).is_ok());
                }
                let spec = r#""containers":[{"name":"c"}]"#;
                for skipped in [
                    format!(r#""hostAliases":{bomb}"#),
                    format!(r#""volumes":[{{"emptyDir":{bomb}}}]"#),
                ] {
                    assert!(decided(spoilt(spec, &format!("{spec},{skipped}")).as_bytes()).is_ok());
                }
                // … and an error where somebody does.
                for affinity in [
                    format!(r#""affinity":{bomb}"#),
                    format!(r#""affinity":{{"nodeAffinity":{bomb}}}"#),
                    format!(r#""affinity":{{"futureAffinity":{bomb}}}"#),
                    format!(r#""nodeName":{bomb}"#),
                    format!(r#""volumes":{bomb}"#),
                    format!(r#""volumes":[{{"persistentVolumeClaim":{{"claimName":{bomb}}}}}]"#),
                ] {
                    error(spoilt(spec, &format!("{spec},{affinity}")).as_bytes());
                }
                error(
                    spoilt(r#""annotations":{"#, &format!(r#""labels":{bomb},"annotations":{{"#))
                        .as_bytes(),
                );
                error(spoilt(r#""uid":"u-1""#, &format!(r#""uid":{bomb}"#)).as_bytes());
                error(bomb.as_bytes());
            }
            error(spoilt(r#""status":{}"#, &format!(r#""status":{open}"#)).as_bytes());
            error(open.as_bytes());
        }
    };
    // A quarter of what a thread of the server has.
    let thread = std::thread::Builder::new().stack_size(512 * 1024).spawn(check).unwrap();
    thread.join().unwrap();
}

#[test]
fn broken_text_is_an_error() {
    let with = |from: &str, bytes: &[u8]| {
        let at = SMALL.find(from).unwrap();
        [&SMALL.as_bytes()[..at], bytes, &SMALL.as_bytes()[at..]].concat()
    };
    // Invalid UTF-8, in a value that is read, in a key, and in the spec.
    for from in ["n1\"}", "streams.ibm.com/host\"", "u-1", "c\"}]"] {
        assert!(matches!(error(&with(from, b"\xff")), ParseError::Json(_)), "{from}");
        assert!(matches!(error(&with(from, b"\xed\xa0\x80")), ParseError::Json(_)), "{from}");
    }
    // Half a surrogate pair; a control character that is not escaped; a byte order mark.
    for from in ["n1\"}", "u-1"] {
        assert!(matches!(error(&with(from, br"\ud800")), ParseError::Json(_)), "{from}");
        assert!(matches!(error(&with(from, b"\n")), ParseError::Json(_)), "{from}");
        assert!(matches!(error(&with(from, br"\x41")), ParseError::Json(_)), "{from}");
    }
    assert!(matches!(error(&with("{\"kind", b"\xef\xbb\xbf")), ParseError::Json(_)));
    // Where nobody reads: bytes that are no text are an error there too; half a pair is skipped.
    let skipped = |bytes: &[u8]| {
        let member = [br#""managedFields":[""#, bytes, br#""],"#].concat();
        with("\"annotations\"", &member)
    };
    assert!(matches!(error(&skipped(b"\xff")), ParseError::Json(_)));
    assert!(decided(&skipped(br"\ud800")).is_ok());
    let utf16: Vec<u8> = SMALL.encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(matches!(error(&utf16), ParseError::Json(_)));
}

#[test]
fn control_characters_in_a_value_are_refused_and_told_escaped() {
    for key in [
        "host",
        "host-pool",
        "host-colocation",
        "host-exlocation",
        "host-isolation",
        "host-enforcement",
    ] {
        for value in ["a\u{0}b", "a\r\nb: c", "\u{1b}[31mred", "a\u{7f}b", "a\u{85}b"] {
            let pod = annotated(&format!("streams.ibm.com/{key}"), value);
            let decision = decide_pod("default", &pod, &cluster(), &Policy::default()).unwrap();
            assert_eq!(
                reason(&decision).map(|reason| reason.stage().code()),
                Some(422),
                "{key} {value:?}"
            );
        }
    }
    // In a key that is not known: the warning names it, escaped.
    let pod = annotated("stowplan.dev/\u{1b}[31m\n", "x");
    let decision = decide_pod("default", &pod, &cluster(), &Policy::default()).unwrap();
    let Decision::Admit(admission) = decision else { panic!("{decision:?}") };
    assert_eq!(admission.warnings.len(), 1);
    assert!(!admission.warnings[0].as_str().chars().any(char::is_control));
}

#[test]
fn numbers_are_no_text_and_never_wrap() {
    for number in ["1e999", "-0", "9223372036854775808", "1.5", "0x10", "01"] {
        let text = spoilt(r#":"n1""#, &format!(":{number}"));
        let error = error(text.as_bytes());
        assert!(matches!(error, ParseError::Json(_)), "{number}");
        if !matches!(number, "01" | "0x10" | "1e999") {
            assert!(error.to_string().contains(HOST), "{error}");
        }
    }
    for index in [
        "1e3",
        "-0",
        "-1",
        "+1",
        "01",
        "4294967296",
        "9223372036854775808",
        "99999999999999999999",
        "0x1",
        "1.0",
        "٣",
    ] {
        let pod = annotated("streams.ibm.com/host-pool", &format!("pair[{index}]"));
        let decision = decide_pod("default", &pod, &cluster(), &Policy::default()).unwrap();
        assert_eq!(reason(&decision), Some(Reason::InvalidPoolReference), "{index}");
    }
    let pod = annotated("streams.ibm.com/host-pool", "pair[4294967295]");
    let decision = decide_pod("default", &pod, &cluster(), &Policy::default()).unwrap();
    assert_eq!(reason(&decision), Some(Reason::IndexOutOfRange));
    // Where nobody reads them they pass; in the affinity they are an error.
    for number in ["1e999", "-0", "123456789012345678901234567890"] {
        let spec = r#""containers":[{"name":"c"}]"#;
        assert!(
            decided(spoilt(spec, &format!(r#"{spec},"priority":{number}"#)).as_bytes()).is_ok()
        );
    }
    let spec = r#""containers":[{"name":"c"}]"#;
    let affinity = r#""affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1e999,"preference":{}}]}}"#;
    error(spoilt(spec, &format!("{spec},{affinity}")).as_bytes());
}

/// Any one value of a full review replaced by a value of another type: an error, or an answer whose
/// patch applies.
#[test]
fn wrong_types_everywhere_are_an_error_or_an_answer_that_applies() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let pod = json!({
        "metadata": {
            "name": "p", "generateName": "p-", "labels": {"streams.ibm.com/job": "j", "streams.ibm.com/pe": "j-0"},
            "annotations": {
                HOST: "n1", "streams.ibm.com/host-colocation": "together", "streams.ibm.com/host-exlocation": "apart",
                "streams.ibm.com/host-isolation": "Sink", "stowplan.dev/placement": "forged",
            },
            "ownerReferences": [
                {"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "name": "r", "uid": "u", "controller": true},
            ],
        },
        "spec": {
            "nodeName": "n1",
            "nodeSelector": {"a": "b"},
            "schedulingGates": [{"name": "g"}],
            "volumes": [
                {"name": "v", "emptyDir": {}},
                {"name": "w", "persistentVolumeClaim": {"claimName": "c", "readOnly": true}},
            ],
            "affinity": {
                "nodeAffinity": {required: {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
                    {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}]},
                ]}},
                "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {
                    "labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}}]},
                "podAntiAffinity": {required: [{
                    "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}, "topologyKey": "zone"}]},
            },
            "containers": [{"name": "c", "image": "i"}],
        },
    });
    let claim = json!({
        "metadata": {
            "name": "c", "labels": {"a": "b"},
            "annotations": {
                "stowplan.dev/coschedule-group": "g",
                "volume.beta.kubernetes.io/storage-class": "fast",
            },
            "ownerReferences": [
                {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "r", "uid": "u", "controller": true},
            ],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeName": "v",
            "selector": {"matchLabels": {"a": "b"}}, "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    for (kind, object) in [(Kind::Pod, pod), (Kind::Claim, claim)] {
        let review = kind.review_of("default", &object);
        let (mut answers, mut errors) = (0, 0);
        for pointer in pointers(&review) {
            for wrong in [
                json!(null),
                json!(true),
                json!(7),
                json!("x"),
                json!([]),
                json!({}),
                json!([[]]),
                json!({"": {}}),
                json!(["n1", {}]),
            ] {
                let mut spoilt = review.clone();
                *spoilt.pointer_mut(&pointer).unwrap() = wrong.clone();
                match decided(spoilt.to_string().as_bytes()) {
                    Err(error) => {
                        assert!(error.to_string().len() < 1024, "{pointer} {wrong}");
                        errors += 1;
                    }
                    Ok(decision) => {
                        answers += 1;
                        if let Ok(patch) = patch_of(&decision) {
                            let object = &spoilt["request"]["object"];
                            let result = patched(object, &patch)
                                .unwrap_or_else(|error| panic!("{pointer} {wrong}: {error}"));
                            keeps(object, &result)
                                .unwrap_or_else(|error| panic!("{pointer} {wrong}: {error}"));
                        }
                    }
                }
            }
        }
        assert!(answers > 100 && errors > 100, "{kind:?}: {answers} answers, {errors} errors");
    }
}

#[test]
fn nothing_but_the_creation_of_a_pod_or_a_claim_is_decided() {
    let review = |change: &dyn Fn(&mut Value)| {
        let mut review = review_of("default", &annotated(HOST, "n1"));
        change(&mut review["request"]);
        decided(review.to_string().as_bytes()).unwrap()
    };
    for operation in ["UPDATE", "DELETE", "CONNECT", "create", "", "PATCH"] {
        let decision = review(&|request| request["operation"] = json!(operation));
        assert!(matches!(decision, Decision::Pass(Pass::OutOfScope)), "{operation}");
    }
    for subresource in
        ["binding", "ephemeralcontainers", "eviction", "exec", "log", "resize", "status"]
    {
        let decision = review(&|request| request["subResource"] = json!(subresource));
        assert!(matches!(decision, Decision::Pass(Pass::OutOfScope)), "{subresource}");
    }
    for resource in [
        json!({"group": "", "version": "v1", "resource": "persistentvolumes"}),
        json!({"group": "apps", "version": "v1", "resource": "persistentvolumeclaims"}),
        json!({"group": "apps", "version": "v1", "resource": "deployments"}),
        json!({"group": "metrics.k8s.io", "version": "v1", "resource": "pods"}),
        json!(null),
    ] {
        let decision = review(&|request| request["resource"] = resource.clone());
        assert!(matches!(decision, Decision::Pass(Pass::OutOfScope)), "{resource}");
    }
    let claims = json!({"group": "", "version": "v1", "resource": "persistentvolumeclaims"});
    let claim = review(&|request| request["resource"] = claims.clone());
    assert!(
        matches!(&claim, Decision::Admit(admission) if admission.patch.is_empty()),
        "{claim:?}"
    );
    for (member, value) in [("operation", "UPDATE"), ("subResource", "status")] {
        let decision = review(&|request| {
            request["resource"] = claims.clone();
            request[member] = json!(value);
        });
        assert!(matches!(decision, Decision::Pass(Pass::OutOfScope)), "{member} {value}");
    }
    let deletion = review(&|request| {
        request["oldObject"] = request["object"].take();
        request["operation"] = json!("DELETE");
    });
    assert!(matches!(deletion, Decision::Pass(Pass::OutOfScope)));
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

#[test]
fn a_dry_run_gets_the_same_patch() {
    let patch = |dry: bool| {
        let mut review = review_of("default", &annotated(HOST, "n1"));
        review["request"]["dryRun"] = json!(dry);
        serde_json::to_string(&patch_of(&decided(review.to_string().as_bytes()).unwrap()).unwrap())
            .unwrap()
    };
    assert_eq!(patch(true), patch(false));
    assert_ne!(patch(true), "[]");
}

#[test]
fn values_of_256_kib_are_refused_in_few_words() {
    let long = 256 * 1024;
    for key in [
        "host",
        "host-pool",
        "host-colocation",
        "host-exlocation",
        "host-isolation",
        "host-enforcement",
    ] {
        for value in [
            "x".repeat(long),
            "é".repeat(long / 2),
            "[".repeat(long),
            "1.".repeat(long / 2),
            ":".repeat(long),
            format!("p[{}]", "1".repeat(long)),
            format!("[{}\"z\"]", "\"a\",".repeat(long / 4)),
            "(a+)+$".repeat(long / 6),
        ] {
            let pod = annotated(&format!("streams.ibm.com/{key}"), &value);
            let decision = decide_pod("default", &pod, &cluster(), &Policy::default()).unwrap();
            assert_eq!(
                reason(&decision).map(|reason| reason.stage().code()),
                Some(422),
                "{key}: {value:.20}"
            );
        }
    }
    // The record may be anything.
    let mut pod = annotated(HOST, "n1");
    pod["metadata"]["annotations"][pods::RECORD] = json!("x".repeat(long));
    let decision = decide_pod("default", &pod, &cluster(), &Policy::default()).unwrap();
    assert_eq!(decision.outcome(), "placed");
}

#[test]
fn a_mode_or_a_group_of_256_kib_is_refused_in_few_words() {
    let long = 256 * 1024;
    for value in ["x".repeat(long), "é".repeat(long / 2), "\n".repeat(long), "a.".repeat(long / 2)]
    {
        for (key, expected) in [
            ("stowplan.dev/coschedule", Reason::InvalidMode),
            ("stowplan.dev/coschedule-group", Reason::InvalidGroup),
        ] {
            let mut pod = annotated(key, &value);
            pod["metadata"]["ownerReferences"] = json!([
                {"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "name": "t", "uid": "u", "controller": true},
            ]);
            let decision = decide_pod("default", &pod, &cluster(), &Policy::default()).unwrap();
            assert_eq!(reason(&decision), Some(expected), "{key}: {value:.20}");
        }
    }
}

/// A run of two tasks with all that is read of it, and the pod of the second.
fn run_and_pod() -> (Vec<Value>, Value) {
    let owner = |kind: &str, name: &str| json!([{"apiVersion": "tekton.dev/v1", "kind": kind, "name": name, "uid": name, "controller": true}]);
    let pipeline = json!({
        "tasks": [
            {"name": "a", "workspaces": [{"name": "w", "workspace": "source"}]},
            {"name": "b", "workspaces": [{"name": "source"}, {"name": "cache"}],
                "taskSpec": {"steps": [{"script": "$(workspaces.cache.path)"}], "workspaces": [{"name": "w"}]}},
        ],
        "finally": [{"name": "z", "workspaces": [{"name": "cache"}]}],
    });
    let run = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": "r", "namespace": "default", "uid": "r", "annotations": {"example.com/a": "b"}},
        "spec": {
            "pipelineSpec": pipeline,
            "workspaces": [
                {"name": "source", "volumeClaimTemplate": {"metadata": {"name": "own"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}}},
                {"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}},
            ],
            "taskRunTemplate": {"serviceAccountName": "s", "podTemplate": {"nodeSelector": {"a": "b"},
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "extra"}}]}},
            "taskRunSpecs": [{"pipelineTaskName": "b", "podTemplate": {"nodeSelector": {"a": "c"}}}],
        },
        "status": {"conditions": [{"type": "Succeeded", "status": "Unknown"}]},
    });
    let task_run = json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
        "metadata": {"name": "t", "namespace": "default", "uid": "t", "labels": {"tekton.dev/pipelineTask": "b"},
            "ownerReferences": owner("PipelineRun", "r")},
        "spec": {}, "status": {"conditions": []},
    });
    let pod = json!({
        "metadata": {"name": "p", "ownerReferences": owner("TaskRun", "t")},
        "spec": {
            "volumes": [{"name": "ws-0", "persistentVolumeClaim": {"claimName": "cache"}}],
            "containers": [{"name": "c", "image": "i"}],
        },
    });
    (vec![run, task_run], pod)
}

#[test]
fn runs_of_every_wrong_shape_are_read_and_their_pods_get_a_patch_that_applies() {
    let (objects, pod) = run_and_pod();
    for mode in ["workspaces", "pipelineruns", "isolate-pipelinerun"] {
        let policy = Policy::from_yaml(&format!("coschedule: {{mode: {mode}}}")).unwrap();
        let (mut placed, mut unreadable) = (0, 0);
        for (index, whole) in objects.iter().enumerate() {
            for pointer in pointers(whole) {
                if pointer.is_empty() || pointer == "/kind" || pointer == "/apiVersion" {
                    continue;
                }
                for wrong in [
                    json!(null),
                    json!(true),
                    json!(-7),
                    json!("é\n$("),
                    json!([]),
                    json!({}),
                    json!([[], null, 7]),
                    json!({"": {}}),
                    json!("x".repeat(100_000)),
                ] {
                    let mut spoilt = objects.clone();
                    *spoilt[index].pointer_mut(&pointer).unwrap() = wrong;
                    let mut view = View::default();
                    for object in spoilt {
                        match Object::from_document(object) {
                            Ok(object) => object.into_iter().for_each(|object| view.apply(object)),
                            // Only metadata, which an API server writes itself.
                            Err(_) => {
                                assert!(pointer.starts_with("/metadata"), "{pointer}");
                                unreadable += 1;
                            }
                        }
                    }
                    let decision = decide_pod("default", &pod, &view, &policy).unwrap();
                    let patch = patch_of(&decision).unwrap();
                    let result = patched(&pod, &patch).unwrap();
                    keeps(&pod, &result).unwrap();
                    placed += usize::from(!patch.is_empty());
                }
            }
        }
        assert!(
            placed > 300 && unreadable > 10,
            "{mode}: {placed} placed, {unreadable} unreadable"
        );
    }
}

#[test]
fn a_run_as_large_as_an_object_may_be_is_decided_on() {
    let (mut objects, pod) = run_and_pod();
    let names: Vec<String> = (0..10_000).map(|index| format!("w{index}")).collect();
    let spec = &mut objects[0]["spec"];
    spec["workspaces"] = names
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
        .chain([json!({"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}})])
        .collect();
    spec["pipelineSpec"]["tasks"] = names
        .iter()
        .map(|name| json!({"name": name, "workspaces": [{"name": name}, {"name": "cache"}]}))
        .collect();
    spec["taskRunSpecs"] = names
        .iter()
        .map(|name| json!({"pipelineTaskName": name, "podTemplate": {"nodeSelector": {"a": name}}}))
        .collect();
    for mode in ["workspaces", "isolate-pipelinerun"] {
        let policy = Policy::from_yaml(&format!("coschedule: {{mode: {mode}}}")).unwrap();
        let decision = decide_pod("default", &pod, &view_of(objects.clone()), &policy).unwrap();
        assert_eq!(decision.outcome(), "placed", "{mode}");
    }
    // Nothing is shared any more: each task asks for a node of its own.
    let spec = &mut objects[0]["spec"];
    spec["workspaces"] = json!([]);
    let policy = Policy::from_yaml("coschedule: {mode: pipelineruns}").unwrap();
    let decision = decide_pod("default", &pod, &view_of(objects), &policy).unwrap();
    assert_eq!(decision.outcome(), "placed");
}

#[test]
fn a_list_of_ten_thousand_is_refused() {
    let list = |count: usize| {
        let items: Vec<String> = (0..count).map(|index| format!("t{index}")).collect();
        serde_json::to_string(&items).unwrap()
    };
    let decision = |value: &str| {
        let pod = annotated("streams.ibm.com/host-exlocation", value);
        let decision = decide_pod("default", &pod, &cluster(), &Policy::default()).unwrap();
        (reason(&decision), decision.outcome())
    };
    assert_eq!(decision(&list(10_000)).0, Some(Reason::InvalidToken));
    assert_eq!(decision(&list(65)).0, Some(Reason::InvalidToken));
    assert_eq!(decision(&list(64)), (None, "placed"));
    let commas = vec!["t"; 10_000].join(",");
    assert_eq!(decision(&commas).0, Some(Reason::InvalidToken));
}

#[test]
fn a_thousand_annotations_are_one_warning() {
    let mut pod = annotated(HOST, "n1");
    for index in 0..1_000 {
        pod["metadata"]["annotations"][format!("example.com/{index}")] = json!("x");
        pod["metadata"]["annotations"][format!("stowplan.dev/future-{index}")] = json!("x");
    }
    let decision = decide_pod("default", &pod, &cluster(), &Policy::default()).unwrap();
    let Decision::Admit(admission) = &decision else { panic!("{decision:?}") };
    assert_eq!((admission.patch.operations().len(), admission.warnings.len()), (2, 1));
    let mut typos = annotated("example.com/x", "y");
    for index in 0..1_000 {
        typos["metadata"]["annotations"]
            [format!("streams.ibm.com/h{}ost-pol", "-".repeat(index % 7))] = json!("x");
        typos["metadata"]["annotations"]
            [format!("streams.ibm.com/host{}pool", "_".repeat(index % 30))] = json!("x");
    }
    let decision = decide_pod("default", &typos, &cluster(), &Policy::default()).unwrap();
    assert_eq!(reason(&decision), Some(Reason::UnknownKey));
}

#[test]
fn a_thousand_node_terms_are_the_users_own() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let with_terms = |key: &str, value: &str, count: usize| {
        let mut pod = annotated(key, value);
        let terms: Vec<Value> = (0..count)
            .map(|index| json!({"matchExpressions": [{"key": "rack", "operator": "In", "values": [index.to_string()]}]}))
            .collect();
        pod["spec"]["affinity"] = json!({"nodeAffinity": {required: {"nodeSelectorTerms": terms}}});
        pod
    };
    let pod = with_terms(HOST, "n1", 1_000);
    let decision = decide_pod("default", &pod, &cluster(), &Policy::default()).unwrap();
    let result = patched(&pod, &patch_of(&decision).unwrap()).unwrap();
    keeps(&pod, &result).unwrap();
    typed(&result).unwrap();
    let again = decide_pod("default", &result, &cluster(), &Policy::default()).unwrap();
    assert!(patch_of(&again).unwrap().is_empty());

    // Multiplying them is ours, and ends at 256.
    for (count, outcome) in [(128, "placed"), (129, "refused"), (1_000, "refused")] {
        let pod = with_terms("streams.ibm.com/host-pool", "pair", count);
        let decision = decide_pod("default", &pod, &cluster(), &Policy::default()).unwrap();
        assert_eq!(decision.outcome(), outcome, "{count}");
        assert!(outcome == "placed" || reason(&decision) == Some(Reason::NodeAffinityConflict));
    }
}

/// The pointers to every value in a document but itself.
fn pointers(document: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), document)];
    while let Some((path, value)) = open.pop() {
        let mut child = |token: &str, value| {
            let mut path = path.clone();
            write!(path, "/{}", token.replace('~', "~0").replace('/', "~1"))
                .expect("a String grows");
            found.push(path.clone());
            open.push((path, value));
        };
        match value {
            Value::Object(members) => members.iter().for_each(|(key, value)| child(key, value)),
            Value::Array(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(index, value)| child(&index.to_string(), value));
            }
            _ => {}
        }
    }
    found
}
