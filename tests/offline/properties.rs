//! Properties of every pod, claim, View and policy: the patch applies, a second round changes
//! nothing, no field of the user's is lost, and the pod is left the nodes that the constraint
//! means.

pub(crate) mod cases;
pub(crate) mod cluster;
pub(crate) mod coschedule;
pub(crate) mod job;
pub(crate) mod pod;

use std::collections::{BTreeMap, BTreeSet};

use self::cases::{CASES, changed_case, claim, each_change, review};
use self::cluster::{cluster, policy};
use self::coschedule::{GATE, PLACEHOLDER, member_changes, member_term, merged};
use self::job::job;
use self::pod::{REQUIRED, any_pod, pod};
use crate::fixtures::case::Case;
use crate::pods::{
    Kind, decide_bytes, decide_pod, keeps, patch_of, patched, touched_by_others, typed, view_of,
};
use json_patch::PatchOperation;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use stowplan_core::admission::Decision;
use stowplan_core::placement::claim::{self as claims, Claim};
use stowplan_core::placement::intent::{Change, Intent};
use stowplan_core::placement::object::Object;
use stowplan_core::placement::reason::Reason;
use stowplan_core::systems;
use stowplan_core::systems::View;
use stowplan_core::systems::policy::Policy;

/// The object after the patch; fails if that loses a field, or is no longer valid.
fn applied(kind: Kind, object: &Value, patch: &[PatchOperation]) -> Result<Value, TestCaseError> {
    let result = patched(object, patch).map_err(TestCaseError::fail)?;
    keeps(object, &result).map_err(TestCaseError::fail)?;
    kind.check(&result).map_err(TestCaseError::fail)?;
    Ok(result)
}

/// Fails if an object that is sent back is changed again.
fn must_be_the_last(
    kind: Kind,
    namespace: &str,
    object: &Value,
    view: &View,
    policy: &Policy,
) -> Result<(), TestCaseError> {
    let again = kind.decide(namespace, object, view, policy).unwrap();
    prop_assert_eq!(patch_of(&again), Ok(Vec::new()), "sent back: {}", object);
    Ok(())
}

/// Fails if the answer to the case with this object does not apply, loses a field, or is changed
/// again when it is sent back.
fn keeps_everything_and_is_decided_once(
    case: &Case,
    view: &View,
    object: &Value,
) -> Result<(), TestCaseError> {
    let Case { kind, namespace, policy, .. } = case;
    let Ok(decision) = kind.decide(namespace, object, view, policy) else { return Ok(()) };
    let Ok(patch) = patch_of(&decision) else { return Ok(()) };
    if kind.check(object).is_err() {
        // No API server sends it. If stowplan could read it, the answer applies.
        patched(object, &patch).map_err(TestCaseError::fail)?;
        return Ok(());
    }
    let result = applied(*kind, object, &patch)?;
    for sent_back in [&result, &kind.touched_by_others(&result)] {
        must_be_the_last(*kind, namespace, sent_back, view, policy)?;
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_patch_applies_keeps_everything_and_is_the_last(pod in any_pod(), cluster in cluster(), policy in policy()) {
        let view = cluster.view();
        let decision = decide_pod("default", &pod, &view, &policy).unwrap();
        let again = decide_pod("default", &pod, &view, &policy).unwrap();
        prop_assert_eq!(format!("{decision:?}"), format!("{again:?}"), "not deterministic");
        let Ok(patch) = patch_of(&decision) else { return Ok(()) };
        let result = applied(Kind::Pod, &pod, &patch)?;
        for sent_back in [&result, &touched_by_others(&result)] {
            must_be_the_last(Kind::Pod, "default", sent_back, &view, &policy)?;
        }
        let placed = matches!(&decision, Decision::Admit(admission) if admission.findings.is_empty());
        // A pool of any node leaves no mark, so the decision cannot be recognised.
        let marked = pod["metadata"]["annotations"]["streams.ibm.com/host-pool"] != "any";
        if placed && marked && policy.record_placement {
            must_be_the_last(Kind::Pod, "default", &result, &View::default(), &policy)?;
        }
    }

    #[test]
    fn a_changed_case_keeps_everything_and_is_decided_once((index, object) in changed_case()) {
        let case = &CASES[index];
        keeps_everything_and_is_decided_once(case, &case.view().unwrap(), &object)?;
    }

    #[test]
    fn the_pods_of_a_job_are_all_placed_once_or_all_refused((spec, objects) in job(), policy in policy()) {
        let view = view_of(objects);
        let elements = spec["processingElements"].as_array().unwrap();
        let mut outcomes = BTreeSet::new();
        for element in elements {
            let labels = json!({"app": "streams", "streams.ibm.com/job": "j", "streams.ibm.com/pe": element["name"]});
            let pod = json!({"metadata": {"name": "p", "labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
            let decision = decide_pod("default", &pod, &view, &policy).unwrap();
            outcomes.insert(decision.outcome());
            let Decision::Admit(admission) = &decision else { continue };
            let result = patched(&pod, &admission.patch.operations()).map_err(TestCaseError::fail)?;
            typed(&result).map_err(TestCaseError::fail)?;
            let required = result.pointer(&format!("/spec/affinity/podAffinity/{REQUIRED}"));
            prop_assert!(required.and_then(Value::as_array).is_none_or(|terms| terms.len() == 1), "{result}");
            let mut views = vec![&view];
            let empty = View::default();
            // A placed pod stays placed after its job is deleted; a warning depends on the View.
            if policy.record_placement && admission.findings.is_empty() {
                views.push(&empty);
            }
            for view in views {
                for sent_back in [&result, &touched_by_others(&result)] {
                    must_be_the_last(Kind::Pod, "default", sent_back, view, &policy)?;
                }
            }
        }
        let together = outcomes.is_subset(&["placed", "unchanged"].into())
            || outcomes.is_subset(&["refused", "unplaced"].into());
        prop_assert!(together, "{outcomes:?} of {spec}");
    }

    #[test]
    fn what_is_left_is_what_is_meant(pod in any_pod(), cluster in cluster()) {
        let annotations = &pod["metadata"]["annotations"];
        // A forged record beside a forged term counts as an earlier decision.
        prop_assume!(annotations.get(crate::pods::RECORD).is_none());
        let policy = Policy::default();
        let decision = decide_pod("default", &pod, &cluster.view(), &policy).unwrap();
        match patch_of(&decision) {
            Ok(patch) => {
                let result = patched(&pod, &patch).map_err(TestCaseError::fail)?;
                let wanted = &cluster.allowed(&pod) & &cluster.meant(&pod);
                prop_assert_eq!(cluster.allowed(&result), wanted, "{}", result);
            }
            Err(_) => {
                let Decision::Refuse(refusal) = &decision else { panic!("{decision:?}") };
                // Refused for this alone: then no node is left.
                if refusal.findings.iter().all(|finding| finding.reason == Reason::NodeAffinityConflict) {
                    let wanted = &cluster.allowed(&pod) & &cluster.meant(&pod);
                    prop_assert!(wanted.is_empty(), "{wanted:?}");
                }
            }
        }
    }

    #[test]
    fn a_members_changes_are_merged_once_or_found_to_conflict(pod in any_pod(), changes in member_changes()) {
        let (result, takes) = merged(&pod, &changes);
        let wants_term = changes.contains(&Change::PodAffinity(member_term()));
        let result = match result {
            Ok(result) => result,
            Err(findings) => {
                for finding in findings {
                    match finding.reason {
                        Reason::PodAffinityConflict => prop_assert!(wants_term && !takes),
                        Reason::NodeNameConflict => prop_assert!(changes.contains(&Change::Gate(GATE)) && pod["spec"]["nodeName"].is_string()),
                        Reason::NodeAffinityConflict => {}
                        reason => prop_assert!(false, "{reason}"),
                    }
                }
                return Ok(());
            }
        };
        keeps(&pod, &result).map_err(TestCaseError::fail)?;
        typed(&result).map_err(TestCaseError::fail)?;
        let spec = &result["spec"];
        let has_gate = |pod: &Value| pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| gates.iter().any(|gate| gate["name"] == GATE));
        prop_assert_eq!(has_gate(&result), has_gate(&pod) || changes.contains(&Change::Gate(GATE)));
        if has_gate(&result) && !has_gate(&pod) {
            prop_assert!(spec["nodeName"].as_str().is_none_or(str::is_empty), "{}", spec);
        }
        let required = spec["affinity"]["podAffinity"][REQUIRED].as_array().map_or(0, Vec::len);
        let own = pod["spec"]["affinity"]["podAffinity"][REQUIRED].as_array().map_or(0, Vec::len);
        prop_assert_eq!(required, own.max(usize::from(wants_term)));
        for volume in spec["volumes"].as_array().into_iter().flatten() {
            let left = volume["persistentVolumeClaim"]["claimName"].as_str();
            prop_assert!(!changes.iter().any(|change| matches!(change, Change::ClaimName { from, .. } if left == Some(&**from))), "{}", volume);
        }
        for sent_back in [&result, &touched_by_others(&result)] {
            let (again, _) = merged(sent_back, &changes);
            prop_assert_eq!(again.as_ref(), Ok(sent_back));
        }
    }

    #[test]
    fn a_claims_class_is_changed_once_and_nothing_else(object in claim(), class in select(vec!["fast", "wait", "other"])) {
        let change = Change::StorageClass(class.to_owned());
        let intents = [Intent { system: "coschedule", key: "k", why: String::new(), change }];
        let moved = |object: &Value| {
            let text = object.to_string();
            let read: Object<'_> = serde_json::from_str(&text).unwrap();
            let claim = Claim::decode("default", &read).unwrap();
            let patch = claims::merge(&claim, &intents).operations();
            (patched(object, &patch).expect("the patch applies"), claim.class().map(str::to_owned))
        };
        let (result, _) = moved(&object);
        keeps(&object, &result).map_err(TestCaseError::fail)?;
        Kind::Claim.check(&result).map_err(TestCaseError::fail)?;
        let (again, counts) = moved(&result);
        prop_assert_eq!(again, result);
        prop_assert_eq!(counts.as_deref(), Some(class));
    }

    #[test]
    fn a_claim_is_refused_for_nothing_but_a_key_on_it(object in claim(), policy in policy()) {
        let decision = Kind::Claim.decide("default", &object, &View::default(), &policy).unwrap();
        if let Decision::Refuse(refusal) = &decision {
            let keys = object["metadata"]["annotations"].as_object().unwrap();
            prop_assert!(refusal.findings.iter().all(|finding| keys.contains_key(&finding.subject)), "{refusal:?}");
            return Ok(());
        }
        let result = applied(Kind::Claim, &object, &patch_of(&decision).unwrap())?;
        for sent_back in [&result, &Kind::Claim.touched_by_others(&result)] {
            must_be_the_last(Kind::Claim, "default", sent_back, &View::default(), &policy)?;
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..400)) {
        let _ = decide_bytes(&bytes, &View::default(), &Policy::default());
    }

    #[test]
    fn a_spoilt_review_is_read_or_refused(
        review in review(),
        cluster in cluster(),
        cuts in vec((any::<Index>(), 0..6_u8, any::<u8>(), 1..20_usize), 1..4),
    ) {
        let mut bytes = review.to_string().into_bytes();
        for (at, kind, byte, length) in cuts {
            let at = at.index(bytes.len());
            let end = (at + length).min(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => drop(bytes.drain(at..end)),
                2 => bytes.insert(at, byte),
                3 => {
                    let copy = bytes[at..end].to_vec();
                    bytes.splice(at..at, copy).for_each(drop);
                }
                4 => bytes[at] = b"{}[]\",:0n\\"[usize::from(byte) % 10],
                _ => bytes[at..end].rotate_left(1),
            }
            if bytes.is_empty() {
                break;
            }
        }
        let Ok(decision) = decide_bytes(&bytes, &cluster.view(), &Policy::default()) else { return Ok(()) };
        // If stowplan could read it, the API server can apply the answer.
        let Ok(document) = serde_json::from_slice::<Value>(&bytes) else { return Ok(()) };
        if let Ok(patch) = patch_of(&decision) {
            patched(&document["request"]["object"], &patch).map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn any_object_is_taken_into_a_view_or_refused(pod in pod(), kind in select(vec!["Pod", "Node", "Namespace", "HostPool", "StreamsJob"])) {
        let mut object = pod;
        object["kind"] = json!(kind);
        if matches!(kind, "HostPool" | "StreamsJob") {
            object["apiVersion"] = json!("stowplan.dev/v1alpha1");
        }
        let _ = systems::object(object);
    }
}

#[test]
fn each_case_that_lacks_an_outer_field_keeps_everything_and_is_decided_once() {
    for case in CASES.iter() {
        let view = case.view().unwrap();
        for (place, object) in each_change(&case.object) {
            if let Err(error) = keeps_everything_and_is_decided_once(case, &view, &object) {
                panic!("{} with {place}: {error}", case.name);
            }
        }
    }
}

#[test]
fn the_clusters_and_pods_reach_every_outcome() {
    // A property over inputs that never reach its subject would prove nothing.
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut placed, mut crossed, mut reasons) = (0, 0, BTreeSet::new());
    for _ in 0..3_000 {
        let (pod, cluster) = (any_pod(), cluster()).new_tree(&mut runner).unwrap().current();
        let is_crossed =
            |operation: &PatchOperation| operation.path().as_str().ends_with("nodeSelectorTerms");
        match decide_pod("default", &pod, &cluster.view(), &Policy::default()).unwrap() {
            Decision::Refuse(refusal) => {
                reasons.extend(refusal.findings.iter().map(|finding| finding.reason.as_str()))
            }
            Decision::Admit(admission) => {
                placed += usize::from(!admission.patch.is_empty());
                crossed += usize::from(admission.patch.operations().iter().any(is_crossed));
            }
            _ => {}
        }
    }
    let mut by_system = BTreeMap::new();
    for _ in 0..2_000 {
        let (index, object) = changed_case().new_tree(&mut runner).unwrap().current();
        let Case { name, kind, namespace, policy, .. } = &CASES[index];
        let decision = kind.decide(namespace, &object, &CASES[index].view().unwrap(), policy);
        if decision.is_ok_and(|decision| patch_of(&decision).is_ok_and(|of| !of.is_empty())) {
            *by_system.entry(name.split('/').next().unwrap()).or_insert(0) += 1;
        }
    }
    for system in ["coschedule", "katalyst", "mpi", "streams"] {
        assert!(by_system.get(system).is_some_and(|count| *count > 20), "{by_system:?}");
    }
    let (mut gated, mut renamed, mut terms, mut conflicts) = (0, 0, 0, 0);
    for _ in 0..1_000 {
        let (pod, changes) = (any_pod(), member_changes()).new_tree(&mut runner).unwrap().current();
        let (Ok(result), _) = merged(&pod, &changes) else {
            conflicts += 1;
            continue;
        };
        let count = |what: &str| {
            result.to_string().matches(what).count() - pod.to_string().matches(what).count()
        };
        gated += count(GATE);
        renamed += count(&format!("-{PLACEHOLDER}-0"));
        terms += count("app.kubernetes.io/instance");
    }
    let counts = [gated, renamed, terms, conflicts];
    assert!(counts.iter().all(|count| *count > 50), "gated, renamed, terms, conflicts: {counts:?}");
    assert!(placed > 300, "{placed} placed");
    assert!(crossed > 30, "{crossed} crossed");
    let expected = "AmbiguousHost Contradiction GroupElsewhere IndexOutOfRange InvalidEnforcement \
        InvalidOperator InvalidPool MissingLabel NoTaggedNode NodeAffinityConflict \
        NodeNameConflict PodAffinityConflict PoolNotReady SeveralTokens UnknownHost UnknownPool";
    for reason in expected.split(' ') {
        assert!(reasons.contains(reason), "{reason} was never reached: {reasons:?}");
    }
}
