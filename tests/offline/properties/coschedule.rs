//! The changes that coscheduling requests of a pod, and claims of any shape.

use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};
use stowplan::testing::placement::claim::CLASS_ANNOTATION;
use stowplan::testing::placement::intent::{
    Change, Enforcement, Intent, PodTerm, Selector, on_node,
};
use stowplan::testing::placement::merge::{merge, takes_pod_term};
use stowplan::testing::placement::object::Object;
use stowplan::testing::placement::pod::Pod;
use stowplan::testing::placement::reason::Finding;

use super::pod::{annotations, object, perhaps, pod};
use crate::pods::{Kind, patched, review_of};

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

/// A claim of any shape.
pub(crate) fn claim() -> impl Strategy<Value = Value> {
    let class = || perhaps(select(vec!["fast", "wait"]).prop_map(Value::from), json!(""));
    let owner = json!([{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "run", "uid": "1", "controller": true}]);
    let spec = (
        class(),
        perhaps(Just(json!(["ReadWriteOnce"])), json!([])),
        perhaps(Just(json!("pv-1")), json!("")),
        perhaps(Just(json!({"matchLabels": {"a": "b"}})), json!({})),
        any::<bool>(),
    );
    let spec = spec.prop_map(|(class, modes, volume, selector, future)| {
        object(vec![
            ("storageClassName", class),
            ("accessModes", modes),
            ("volumeName", volume),
            ("selector", selector),
            ("futureField", future.then(|| json!([1]))),
        ])
    });
    let keys = subsequence(vec!["stowplan.dev/coschedul-group", "stowplan.dev/future"], 0..2);
    let annotations = (annotations(), of(select(vec!["fast", "wait", ""])), keys).prop_map(
        |(mut annotations, class, keys)| {
            annotations.extend(class.map(|class| (CLASS_ANNOTATION.to_owned(), json!(class))));
            annotations.extend(keys.into_iter().map(|key| (key.to_owned(), json!("g"))));
            Value::Object(annotations)
        },
    );
    (perhaps(annotations, json!({})), perhaps(Just(owner), json!([])), perhaps(spec, json!({})))
        .prop_map(|(annotations, owners, spec)| {
            let metadata = object(vec![("annotations", annotations), ("ownerReferences", owners)]);
            let mut claim = object(vec![("spec", spec)]);
            claim["metadata"] = metadata;
            claim
        })
}

/// The review of a pod or a claim. Boxed: unoptimised, the strategies of both overflow the stack.
pub(crate) fn review() -> impl Strategy<Value = Value> {
    prop_oneof![
        pod().prop_map(|pod| review_of("default", &pod)).boxed(),
        claim().prop_map(|claim| Kind::Claim.review_of("default", &claim)).boxed(),
    ]
}
