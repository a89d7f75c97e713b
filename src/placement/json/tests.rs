use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

use super::write;

fn text(value: &(impl Serialize + ?Sized)) -> String {
    let mut json = Vec::new();
    write(&mut json, value).unwrap();
    String::from_utf8(json).unwrap()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sample {
    a_text: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    absent: Option<u8>,
    others: (bool, i64, (), Option<Unit>, Wrapped),
    variants: Vec<Variant>,
    map: BTreeMap<&'static str, f64>,
}

#[derive(Serialize)]
struct Unit;

#[derive(Serialize)]
struct Wrapped(char);

#[derive(Serialize)]
enum Variant {
    Plain,
    With(u64),
    Several(u8, u8),
    Named { a: u8 },
}

#[test]
fn every_form_is_written_as_serde_json_writes_it() {
    let sample = Sample {
        a_text: "é \"quoted\"\n\u{1}\\",
        absent: None,
        others: (true, i64::MIN, (), Some(Unit), Wrapped('"')),
        variants: vec![Variant::Plain, Variant::With(u64::MAX)],
        map: [("k\"", 1.5), ("", f64::NAN)].into(),
    };
    assert_eq!(text(&sample), serde_json::to_string(&sample).unwrap());
    for value in [json!([]), json!({}), json!([{}, [], null]), json!(1.0), json!(-1), json!("")] {
        assert_eq!(text(&value), value.to_string());
    }
}

#[test]
fn values_that_stowplan_does_not_write_are_errors() {
    let raw = serde_json::value::RawValue::from_string("{}".to_owned()).unwrap();
    assert!(write(&mut Vec::new(), &Variant::Several(1, 2)).is_err());
    assert!(write(&mut Vec::new(), &Variant::Named { a: 1 }).is_err());
    assert!(write(&mut Vec::new(), &BTreeMap::from([(1, "a number as a key")])).is_err());
    assert!(write(&mut Vec::new(), &raw).is_err());
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "(?s).{0,40}".prop_map(Value::from),
        "[ -~]{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map("(?s).{0,9}", inner, 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_is_written_as_serde_json_writes_it(value in any_value()) {
        prop_assert_eq!(text(&value), value.to_string());
    }
}
