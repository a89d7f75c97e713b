//! The changes that coscheduling requests of a pod.

use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::Value;
use stowplan_core::placement::intent::{Change, Enforcement, Intent, PodTerm, Selector, on_node};
use stowplan_core::placement::merge::{merge, takes_pod_term};
use stowplan_core::placement::object::Object;
use stowplan_core::placement::pod::Pod;
use stowplan_core::placement::reason::Finding;

use crate::pods::patched;

pub(crate) const GATE: &str = "stowplan.dev/placeholder";

pub(crate) const PLACEHOLDER: &str = "affinity-assistant-0123456789";

pub(crate) fn member_term() -> PodTerm {
    let labels = [
        ("app.kubernetes.io/component", "affinity-assistant"),
        ("app.kubernetes.io/instance", PLACEHOLDER),
    ];
    let labels = labels.map(|(key, value)| (key, value.to_owned())).into();
    PodTerm { enforcement: Enforcement::Required, selector: Selector::Labels(labels) }
}

/// The changes that may be requested for a member of a group, in any combination and order.
pub(crate) fn member_changes() -> impl Strategy<Value = Vec<Change>> {
    let renames = ["pvc-1", "pvc-2", "pvc-9"].map(|from| Change::ClaimName {
        from: from.to_owned(),
        to: format!("{from}-{PLACEHOLDER}-0"),
    });
    let long = Change::ClaimName {
        from: "p".repeat(63),
        to: format!("{}-0123456789-{PLACEHOLDER}-0", "p".repeat(52)),
    };
    let label = Change::Label {
        key: "stowplan.dev/coschedule-member".to_owned(),
        value: PLACEHOLDER.to_owned(),
    };
    let others = [
        long,
        label,
        Change::Gate(GATE),
        Change::PodAffinity(member_term()),
        Change::NodeAffinity(vec![on_node("n1")]),
    ];
    let all: Vec<_> = renames.into_iter().chain(others).collect();
    let count = all.len();
    subsequence(all, 0..=count).prop_shuffle()
}

/// `pod` with `changes` merged in, and whether it could take a required pod-affinity term before.
pub(crate) fn merged(pod: &Value, changes: &[Change]) -> (Result<Value, Vec<Finding>>, bool) {
    let intent = |change: &Change| Intent {
        system: "coschedule",
        key: "stowplan.dev/coschedule-group",
        why: "coschedule-group=g".to_owned(),
        change: change.clone(),
    };
    let intents: Vec<_> = changes.iter().map(intent).collect();
    let text = pod.to_string();
    let object: Object<'_> = serde_json::from_str(&text).unwrap();
    let decoded = Pod::decode("default", &object).unwrap();
    let takes = takes_pod_term(&decoded, &member_term());
    let result = merge(&decoded, &intents, None)
        .map(|patch| patched(pod, &patch.operations()).expect("the patch applies"));
    (result, takes)
}
