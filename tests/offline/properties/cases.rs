//! Pods and claims of the fixtures, with annotations of each other, and with parts that are missing.

use std::path::Path;
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use crate::bad_input::input::pointers;
use crate::fixtures::FIXTURES;
use crate::fixtures::case::{Case, Suite};
use crate::pods::Kind;

/// The cases of the fixtures that have an object.
pub(crate) static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let suite = Suite::read(Path::new(FIXTURES)).unwrap_or_else(|problems| panic!("{problems}"));
    suite.cases.into_iter().filter(|case| case.object.is_object()).collect()
});

/// A change of a part of an object.
#[derive(Clone, Copy, Debug)]
enum Change {
    Null,
    Empty,
    Remove,
}

/// The index of a case, and its object after some changes.
pub(crate) fn changed_case() -> impl Strategy<Value = (usize, Value)> {
    changed((0..CASES.len()).collect())
}

/// The claim of a case, after some changes, as an API server could decode it.
pub(crate) fn claim() -> impl Strategy<Value = Value> {
    let is_claim = |index: &usize| matches!(CASES[*index].kind, Kind::Claim);
    let claims = (0..CASES.len()).filter(is_claim).collect();
    let objects = changed(claims).prop_map(|(_, object)| object);
    objects.prop_filter("not a claim", |object| Kind::Claim.check(object).is_ok())
}

/// The review of a changed pod or claim.
pub(crate) fn review() -> impl Strategy<Value = Value> {
    changed_case().prop_map(|(index, object)| CASES[index].kind.review_of("default", &object))
}

fn changed(of: Vec<usize>) -> impl Strategy<Value = (usize, Value)> {
    let change = prop_oneof![Just(Change::Null), Just(Change::Empty), Just(Change::Remove)];
    let others = prop::option::weighted(0.3, 0..CASES.len());
    (select(of), others, vec((any::<Index>(), change), 0..4)).prop_map(|(index, other, changes)| {
        let mut object = CASES[index].object.clone();
        let others = other.and_then(|other| CASES[other].object.pointer("/metadata/annotations"));
        for (key, value) in others.and_then(Value::as_object).into_iter().flatten() {
            object["metadata"]["annotations"][key] = value.clone();
        }
        for (at, change) in changes {
            let pointers = pointers(&object);
            if !pointers.is_empty() {
                change_at(&mut object, &pointers[at.index(pointers.len())], change);
            }
        }
        (index, object)
    })
}

/// Returns the object without one of its outer fields, for each of them and each way to lack it,
/// with the place. Patches add to these fields, so they are the ones whose absence matters.
pub(crate) fn each_change(object: &Value) -> impl Iterator<Item = (String, Value)> {
    let changes = [Change::Null, Change::Empty, Change::Remove];
    let is_outer = |pointer: &String| pointer.matches('/').count() <= 2;
    pointers(object).into_iter().filter(is_outer).flat_map(move |pointer| {
        changes.map(|change| {
            let mut changed = object.clone();
            change_at(&mut changed, &pointer, change);
            (format!("{change:?} at {pointer}"), changed)
        })
    })
}

fn change_at(object: &mut Value, pointer: &str, change: Change) {
    let value = object.pointer_mut(pointer).expect("a pointer to a value");
    match change {
        Change::Null => *value = Value::Null,
        Change::Empty => {
            *value = match value {
                Value::Object(_) => json!({}),
                Value::Array(_) => json!([]),
                _ => json!(""),
            }
        }
        Change::Remove => {
            let patch = json!([{"op": "remove", "path": pointer}]);
            let patch: json_patch::Patch = serde_json::from_value(patch).expect("a patch");
            json_patch::patch(object, &patch).expect("it was there");
        }
    }
}
