//! [`Shape`]: which parts of a document are kept when it is read from JSON.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use super::{Document, Field, Members};

/// The part of a value that is kept. A value of another type is kept without its own parts, so that
/// its type can be reported.
#[derive(Debug)]
pub(crate) enum Shape {
    /// The complete value.
    Whole,
    /// A string, number or boolean; of lists and objects only that they are there.
    Scalar,
    /// These fields of an object.
    Object(&'static [Field]),
    /// This part of each item of a list.
    List(&'static Self),
    /// A value that is computed from the complete one, which is dropped.
    Computed(fn(&Document) -> Document),
}

impl<'de> DeserializeSeed<'de> for &'static Shape {
    type Value = Document;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Document, D::Error> {
        match self {
            Shape::Computed(compute) => {
                let whole: &'static Shape = &Shape::Whole;
                Ok(compute(&whole.deserialize(deserializer)?))
            }
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for &'static Shape {
    type Value = Document;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Document, E> {
        Ok(Document::Null)
    }

    fn visit_none<E>(self) -> Result<Document, E> {
        Ok(Document::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Document, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
        Ok(Document::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Document, E> {
        Ok(Document::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Document, E> {
        Ok(Document::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Document, E> {
        Ok(Number::from_f64(value).map_or(Document::Null, Document::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Document, E> {
        Ok(Document::Text(match self {
            Shape::Object(_) | Shape::List(_) => Box::default(),
            Shape::Whole | Shape::Scalar | Shape::Computed(_) => text.into(),
        }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Document, A::Error> {
        let of_items: &'static Shape = match self {
            Shape::Whole => self,
            Shape::List(of_items) => of_items,
            Shape::Scalar | Shape::Object(_) | Shape::Computed(_) => {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Document::List(Box::default()));
            }
        };
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(of_items)? {
            items.push(item);
        }
        Ok(Document::List(items.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
        let mut values = Vec::new();
        let fields = match self {
            Shape::Whole => {
                while let Some(key) = map.next_key::<String>()? {
                    values.push((Cow::Owned(key), map.next_value_seed(self)?));
                }
                None
            }
            Shape::Object(fields) => {
                while let Some(field) = map.next_key_seed(Key(fields))? {
                    match field {
                        Some((key, shape)) => {
                            values.push((Cow::Borrowed(*key), map.next_value_seed(shape)?));
                        }
                        None => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Some(*fields)
            }
            Shape::Scalar | Shape::List(_) | Shape::Computed(_) => {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                None
            }
        };
        Ok(Document::Object(Members::sorted(fields, values)))
    }
}

/// Reads a key; `None` if it is none of these fields.
struct Key(&'static [Field]);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<&'static Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<&'static Field>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|(name, _)| *name == key))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SHAPE: Shape = Shape::Object(&[
        ("whole", Shape::Whole),
        ("scalar", Shape::Scalar),
        ("list", Shape::List(&Shape::Object(&[("name", Shape::Scalar)]))),
        ("count", Shape::Computed(|value| Document::Number(value.texts().count().into()))),
    ]);

    fn keep(text: &str) -> Result<Document, serde_json::Error> {
        let shape: &'static Shape = &SHAPE;
        shape.deserialize(&mut serde_json::Deserializer::from_str(text))
    }

    #[test]
    fn only_the_fields_of_the_shape_are_kept() {
        let long = "é".repeat(131_072);
        let whole = json!({"whole": {"a": [1, -2, 0.5, true, null, {"é": "z"}]}});
        let mut more = whole.clone();
        more["other"] = json!([[{"a": "b"}]]);
        let named = json!({"list": [{"name": long}, null, 7, [], ""]});
        let scripted = json!({"list": [{"name": long, "script": long}, null, 7, [], "text"]});
        for (given, kept) in [
            (json!({}), json!({})),
            (json!(null), json!(null)),
            (json!(["a"]), json!([])),
            (json!("text"), json!("")),
            (more, whole),
            (scripted, named),
            (json!({"list": {"name": "a"}}), json!({"list": {}})),
            (json!({"list": [{"name": {"a": "b"}}]}), json!({"list": [{"name": {}}]})),
            (json!({"scalar": ["a"], "count": null}), json!({"scalar": [], "count": 0})),
            (json!({"count": {"a": ["b", {"c": "d"}], "e": 7}}), json!({"count": 2})),
        ] {
            assert_eq!(Value::from(&keep(&given.to_string()).unwrap()), kept);
            // Also if a parser has buffered the document.
            let shape: &'static Shape = &SHAPE;
            assert_eq!(Value::from(&shape.deserialize(given).unwrap()), kept);
        }
    }

    #[test]
    fn of_a_key_that_occurs_twice_the_last_value_is_kept() {
        let found = keep(r#"{"scalar": 1, "whole": {"a": 1, "b": 2, "a": 3}, "scalar": 2}"#);
        assert_eq!(Value::from(&found.unwrap()), json!({"scalar": 2, "whole": {"a": 3, "b": 2}}));
    }

    #[test]
    fn a_dropped_part_must_still_be_json() {
        assert!(keep(r#"{"other": {"a": }}"#).is_err());
        assert!(keep(r#"{"other": 1"#).is_err());
        // However deep it is: it is skipped without recursion.
        let deep = format!(r#"{{"other": {}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(Value::from(&keep(&deep).unwrap()), json!({}));
    }

    #[test]
    #[should_panic(expected = "drops the field \"other\"")]
    fn a_field_that_the_shape_drops_is_not_read() {
        keep("{}").unwrap().at(&["other"]);
    }
}
