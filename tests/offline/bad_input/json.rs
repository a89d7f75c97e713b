//! The JSON of a review: nulls, duplicate keys, nesting, encodings, numbers and wrong types.

use serde_json::{Value, json};
use stowplan_core::admission::{Decision, ParseError, Pass};
use stowplan_core::placement::reason::Reason;

use super::input::{
    HOST, SMALL, SPEC, annotated, decide, decided, error, extended, pointers, reason,
    refused_under_each_key, spoilt,
};
use crate::pods::{decide_bytes, keeps, patch_of, patched, review_of};
use crate::properties::cases::CASES;

#[test]
fn empty_and_null_parents_get_the_placement_of_absent_ones() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let placed = |labels: Option<Value>, affinity: Option<Value>| {
        let mut pod = annotated(HOST, "n1");
        for (key, token) in [("colocation", "together"), ("exlocation", "apart")] {
            pod["metadata"]["annotations"][format!("streams.ibm.com/host-{key}")] = json!(token);
        }
        labels.into_iter().for_each(|labels| pod["metadata"]["labels"] = labels);
        affinity.into_iter().for_each(|affinity| pod["spec"]["affinity"] = affinity);
        let decision = decide(&pod);
        let mut result = patched(&pod, &patch_of(&decision).unwrap()).unwrap();
        // Merged into nothing: without the members that are null.
        let mut spec = Value::Null;
        json_patch::merge(&mut spec, &result["spec"]);
        (result["metadata"].take(), spec)
    };
    let absent = placed(None, None);
    assert!(absent.1["affinity"]["nodeAffinity"].is_object(), "{absent:?}");
    for affinity in [
        json!(null),
        json!({}),
        json!({"nodeAffinity": null, "podAffinity": null, "podAntiAffinity": null}),
        json!({"nodeAffinity": {}, "podAffinity": {}, "podAntiAffinity": {}}),
        json!({"podAffinity": {required: []}, "podAntiAffinity": {required: []}}),
        json!({
            "nodeAffinity": {required: null}, "podAffinity": {required: null},
            "podAntiAffinity": {required: null},
        }),
    ] {
        assert_eq!(placed(None, Some(affinity.clone())), absent, "{affinity}");
    }
    let without_labels = placed(Some(json!({})), None);
    assert_eq!(placed(Some(json!(null)), None), without_labels);
    assert_eq!(without_labels.0["labels"].as_object().unwrap().len(), 2);
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
            // A null in a list is not an absent item; another test shows that nothing panics.
            _ => continue,
        }
        let decision = |pod: &Value| {
            let decision = decide(pod);
            format!("{} {:?}", decision.outcome(), patch_of(&decision))
        };
        if pointer == format!("/metadata/annotations/{}", HOST.replace('/', "~1")) {
            // The API has no null annotations: the value has the wrong type.
            assert!(decided(review_of("default", &nulled).to_string().as_bytes()).is_err());
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
    for text in [
        extended(r#""uid":"u-1""#, r#""uid":"u-2""#),
        extended(r#""namespace":"default""#, r#""namespace":"other""#),
        extended(r#""operation":"CREATE""#, r#""operation":"UPDATE""#),
        extended(r#""streams.ibm.com/host":"n1""#, r#""streams.ibm.com/host":"n2""#),
        extended(r#""streams.ibm.com/host":"n1""#, r#""streams.ibm.com\/host":"n2""#),
        extended(r#""annotations":{"streams.ibm.com/host":"n1"}"#, r#""annotations":{}"#),
        extended(r#""annotations":{"streams.ibm.com/host":"n1"}"#, r#""labels":{"a":"b","a":"c"}"#),
        extended(r#""spec":{"containers":[{"name":"c"}]}"#, r#""spec":{}"#),
        extended(r#""status":{}"#, r#""metadata":{}"#),
        extended(r#""dryRun":false"#, r#""object":null"#),
        extended(r#""kind":"AdmissionReview""#, r#""kind":"AdmissionReview""#),
        extended(SPEC, r#""nodeName":"n1","nodeName":"n2""#),
        extended(SPEC, r#""affinity":{},"affinity":{}"#),
    ] {
        assert!(error(text.as_bytes()).to_string().contains("duplicate"), "{text}");
    }
    // Fields that stowplan does not read are not checked.
    assert!(decided(extended(r#""status":{}"#, r#""status":{}"#).as_bytes()).is_ok());
}

#[test]
fn keys_in_another_case_are_other_keys() {
    for (from, to) in
        [("annotations", "Annotations"), ("metadata", "METADATA"), ("metadata", "Metadata")]
    {
        let decision = decided(spoilt(&format!("{from:?}"), &format!("{to:?}")).as_bytes());
        assert!(matches!(decision, Ok(Decision::Pass(Pass::NoKeys))), "{to}");
    }
    let decision = decided(spoilt(r#""operation""#, r#""Operation""#).as_bytes());
    assert!(matches!(decision, Ok(Decision::Pass(Pass::OutOfScope))));
    let text = spoilt(r#""spec""#, r#""SPEC""#);
    let decision = decided(text.as_bytes()).unwrap();
    let object: Value = serde_json::from_str(&text).unwrap();
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
                // Skipped in fields that stowplan does not read …
                for (member, skipped) in [
                    (r#""status":{}"#, format!(r#""unknown":{bomb}"#)),
                    (r#""dryRun":false"#, format!(r#""unknown":{bomb}"#)),
                    (SPEC, format!(r#""hostAliases":{bomb}"#)),
                    (SPEC, format!(r#""volumes":[{{"emptyDir":{bomb}}}]"#)),
                ] {
                    assert!(decided(extended(member, &skipped).as_bytes()).is_ok());
                }
                // … and an error in those that it reads.
                for read in [
                    format!(r#""affinity":{bomb}"#),
                    format!(r#""affinity":{{"nodeAffinity":{bomb}}}"#),
                    format!(r#""affinity":{{"futureAffinity":{bomb}}}"#),
                    format!(r#""nodeName":{bomb}"#),
                    format!(r#""volumes":{bomb}"#),
                    format!(r#""volumes":[{{"persistentVolumeClaim":{{"claimName":{bomb}}}}}]"#),
                ] {
                    error(extended(SPEC, &read).as_bytes());
                }
                let labels = format!(r#""labels":{bomb},"annotations""#);
                error(spoilt(r#""annotations""#, &labels).as_bytes());
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
    let is_invalid = |bytes: &[u8]| matches!(error(bytes), ParseError::Json(_));
    // Invalid UTF-8, in a value that is read, in a key, and in the spec.
    for from in ["n1\"}", "streams.ibm.com/host\"", "u-1", "c\"}]"] {
        assert!([&b"\xff"[..], b"\xed\xa0\x80"].iter().all(|bytes| is_invalid(&with(from, bytes))));
    }
    // Half a surrogate pair; a control character that is not escaped; a byte order mark.
    for from in ["n1\"}", "u-1"] {
        for bytes in [&br"\ud800"[..], b"\n", br"\x41"] {
            assert!(is_invalid(&with(from, bytes)), "{from}: {bytes:?}");
        }
    }
    assert!(is_invalid(&with("{\"kind", b"\xef\xbb\xbf")));
    // In fields that are not read: invalid UTF-8 is an error there too; half a pair is skipped.
    let skipped = |bytes: &[u8]| {
        let member = [br#""managedFields":[""#, bytes, br#""],"#].concat();
        with("\"annotations\"", &member)
    };
    assert!(is_invalid(&skipped(b"\xff")));
    assert!(decided(&skipped(br"\ud800")).is_ok());
    let utf16: Vec<u8> = SMALL.encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(is_invalid(&utf16));
}

#[test]
fn control_characters_in_a_value_are_refused_and_told_escaped() {
    for value in ["a\u{0}b", "a\r\nb: c", "\u{1b}[31mred", "a\u{7f}b", "a\u{85}b"] {
        refused_under_each_key(value);
    }
    // In a key that is not known: the warning names it, escaped.
    let pod = annotated("stowplan.dev/\u{1b}[31m\n", "x");
    let decision = decide(&pod);
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
    let largest = decide(&annotated("streams.ibm.com/host-pool", "pair[4294967295]"));
    assert_eq!(reason(&largest), Some(Reason::IndexOutOfRange));
    // They pass in fields that are not read; in the affinity they are an error.
    for number in ["1e999", "-0", "123456789012345678901234567890"] {
        let priority = format!(r#""priority":{number}"#);
        assert!(decided(extended(SPEC, &priority).as_bytes()).is_ok());
    }
    let affinity = r#""affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1e999,"preference":{}}]}}"#;
    error(extended(SPEC, affinity).as_bytes());
}

/// Any one value of a review replaced by a value of another type: an error, or an answer whose patch
/// applies.
#[test]
fn wrong_types_everywhere_are_an_error_or_an_answer_that_applies() {
    let wrong = json!([null, true, 7, "x", [], {}, [[]], {"": {}}, ["n1", {}]]);
    let (mut answers, mut errors) = (0, 0);
    for name in [
        "streams/all-constraints",
        "streams/literal-pool-on-user-terms",
        "streams/host-outside-the-own-node-selector",
        "streams/node-name-equal-with-a-gate",
        "coschedule/gates-of-others",
        "coschedule/recorded-two-claims",
        "coschedule/claim-recorded",
        "coschedule/claim-by-the-beta-annotation-beside-a-class",
        "katalyst/affinity-beside-the-pod-affinity-of-the-pod",
        "mpi/worker-with-its-own-server",
        "mpi/launcher-with-its-own-variables",
    ] {
        let case = CASES.iter().find(|case| case.name == name).expect(name);
        let review: Value = serde_json::from_slice(&case.review).unwrap();
        let view = case.view().unwrap();
        for pointer in pointers(&review) {
            for wrong in wrong.as_array().unwrap() {
                let mut spoilt = review.clone();
                *spoilt.pointer_mut(&pointer).unwrap() = wrong.clone();
                match decide_bytes(spoilt.to_string().as_bytes(), &view, &case.policy) {
                    Err(error) => {
                        assert!(error.to_string().len() < 1024, "{name} {pointer} {wrong}");
                        errors += 1;
                    }
                    Ok(decision) => {
                        answers += 1;
                        if let Ok(patch) = patch_of(&decision) {
                            let object = &spoilt["request"]["object"];
                            let kept = patched(object, &patch).and_then(|it| keeps(object, &it));
                            assert_eq!(kept, Ok(()), "{name} {pointer} {wrong}");
                        }
                    }
                }
            }
        }
    }
    assert!(answers > 1000 && errors > 1000, "{answers} answers, {errors} errors");
}
