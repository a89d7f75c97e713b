//! Values, lists and maps that are far too long.

use serde_json::{Value, json};
use stowplan_core::admission::Decision;
use stowplan_core::placement::reason::Reason;

use super::input::{HOST, annotated, decide, reason, refused_under_each_key};
use crate::pods::{self, keeps, patch_of, patched, typed};

#[test]
fn values_of_256_kib_are_refused_in_few_words() {
    let long = 256 * 1024;
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
        refused_under_each_key(&value);
    }
    // The record may be anything.
    let mut pod = annotated(HOST, "n1");
    pod["metadata"]["annotations"][pods::RECORD] = json!("x".repeat(long));
    let decision = decide(&pod);
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
            let decision = decide(&pod);
            assert_eq!(reason(&decision), Some(expected), "{key}: {value:.20}");
        }
    }
}

#[test]
fn a_list_of_ten_thousand_is_refused() {
    let list = |count: usize| {
        let items: Vec<String> = (0..count).map(|index| format!("t{index}")).collect();
        serde_json::to_string(&items).unwrap()
    };
    for (value, outcome, expected) in [
        (list(10_000), "refused", Some(Reason::InvalidToken)),
        (list(65), "refused", Some(Reason::InvalidToken)),
        (list(64), "placed", None),
        (vec!["t"; 10_000].join(","), "refused", Some(Reason::InvalidToken)),
    ] {
        let decision = decide(&annotated("streams.ibm.com/host-exlocation", &value));
        assert_eq!((decision.outcome(), reason(&decision)), (outcome, expected), "{value:.20}");
    }
}

#[test]
fn a_thousand_annotations_are_one_warning() {
    let mut pod = annotated(HOST, "n1");
    for index in 0..1_000 {
        pod["metadata"]["annotations"][format!("example.com/{index}")] = json!("x");
        pod["metadata"]["annotations"][format!("stowplan.dev/future-{index}")] = json!("x");
    }
    let decision = decide(&pod);
    let Decision::Admit(admission) = &decision else { panic!("{decision:?}") };
    assert_eq!((admission.patch.operations().len(), admission.warnings.len()), (2, 1));
    let mut typos = annotated("example.com/x", "y");
    for index in 0..1_000 {
        typos["metadata"]["annotations"]
            [format!("streams.ibm.com/h{}ost-pol", "-".repeat(index % 7))] = json!("x");
        typos["metadata"]["annotations"]
            [format!("streams.ibm.com/host{}pool", "_".repeat(index % 30))] = json!("x");
    }
    let decision = decide(&typos);
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
    let decision = decide(&pod);
    let result = patched(&pod, &patch_of(&decision).unwrap()).unwrap();
    keeps(&pod, &result).unwrap();
    typed(&result).unwrap();
    let again = decide(&result);
    assert!(patch_of(&again).unwrap().is_empty());

    // A pool multiplies them, up to 256.
    for (count, outcome) in [(128, "placed"), (129, "refused"), (1_000, "refused")] {
        let pod = with_terms("streams.ibm.com/host-pool", "pair", count);
        let decision = decide(&pod);
        assert_eq!(decision.outcome(), outcome, "{count}");
        assert!(outcome == "placed" || reason(&decision) == Some(Reason::NodeAffinityConflict));
    }
}
