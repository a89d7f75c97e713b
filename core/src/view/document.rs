//! Reads documents with a foreign schema, which a newer release may have written: a field of another
//! type than expected counts as absent and is reported, and the rest of the object is still read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::DynamicResourceScope;
use kube_core::discovery::ApiResource;
use serde::de::Error as _;
use serde::de::value::MapDeserializer;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The row of an object of a kind that another project defines.
pub(crate) trait ForeignRow: Clone + Debug + Send + Sync + 'static {
    /// Reads the fields of an object.
    fn read(metadata: &ObjectMeta, spec: Value, status: Value) -> Self;
}

/// An object of such a kind, as a client of the API server reads it. Only its row is kept: the
/// documents of users may have more than a megabyte.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Document", bound(deserialize = "R: ForeignRow"))]
pub(crate) struct Foreign<R> {
    /// Without `managedFields`.
    metadata: ObjectMeta,
    pub(crate) row: R,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Document {
    #[serde(deserialize_with = "read_metadata")]
    metadata: ObjectMeta,
    #[serde(deserialize_with = "read_part")]
    spec: Value,
    #[serde(deserialize_with = "read_part")]
    status: Value,
}

/// Reads metadata without `managedFields`, which list every field of the object and are nested as it is.
fn read_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let text = Box::<RawValue>::deserialize(deserializer)?;
    let fields: Result<BTreeMap<String, &RawValue>, _> = serde_json::from_str(text.get());
    let mut fields = fields.map_err(D::Error::custom)?;
    fields.remove("managedFields");
    ObjectMeta::deserialize(MapDeserializer::new(fields.into_iter())).map_err(D::Error::custom)
}

/// Reads a part of an object that its author may nest as deeply as an API server allows, which is deeper than a
/// [`Value`] can be. An error here would keep the other objects of a list from being read, so a value that is too
/// deep is replaced by a text, which counts as an object of another type.
fn read_part<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let text = Box::<RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(text.get()).unwrap_or_else(|error| error.to_string().into()))
}

impl<R: ForeignRow> From<Document> for Foreign<R> {
    fn from(Document { metadata, spec, status }: Document) -> Self {
        let row = R::read(&metadata, spec, status);
        Self { metadata, row }
    }
}

impl<R: ForeignRow> kube_core::Resource for Foreign<R> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&of.kind)
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&of.group)
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&of.version)
    }

    fn api_version(of: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&of.api_version)
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&of.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Returns the items of a list; none of any other value.
pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Returns the items of a list that are objects.
pub(crate) fn objects(list: &Value) -> impl Iterator<Item = &Value> {
    items(list).filter(|item| item.is_object())
}

/// Returns a string, unless it is empty.
pub(crate) fn filled(text: &Value) -> Option<&str> {
    text.as_str().filter(|text| !text.is_empty())
}

/// Finds the first field whose type is another one than in `example`, and returns its path and the problem.
/// `example` has one item in each list. The key `*` stands for all keys of a map of strings.
pub(crate) fn problem(name: &str, value: &Value, example: &Value) -> Option<Box<str>> {
    unexpected(value, example).map(|rest| format!("{name}{rest}").into())
}

fn unexpected(value: &Value, example: &Value) -> Option<String> {
    let is_not = |expected: &str| Some(format!(": is not {expected}"));
    match (example, value) {
        (_, Value::Null) | (Value::String(_), Value::String(_)) => None,
        (Value::Array(of), Value::Array(items)) if of[0].is_string() => {
            if items.iter().all(Value::is_string) { None } else { is_not("a list of strings") }
        }
        (Value::Array(of), Value::Array(items)) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| Some(format!("[{index}]{}", unexpected(item, &of[0])?))),
        (Value::Object(of), Value::Object(fields)) if of.contains_key("*") => {
            if fields.values().all(Value::is_string) { None } else { is_not("a map of strings") }
        }
        (Value::Object(of), Value::Object(fields)) => of
            .iter()
            .find_map(|(key, of)| Some(format!(".{key}{}", unexpected(fields.get(key)?, of)?))),
        (Value::Object(_), Value::String(_)) => is_not("an object, or is nested too deeply"),
        (Value::Array(_), _) => is_not("a list"),
        (Value::Object(_), _) => is_not("an object"),
        _ => is_not("a string"),
    }
}

#[cfg(test)]
mod tests {
    use kube_core::{ObjectList, WatchEvent};
    use serde_json::json;

    use super::*;

    #[derive(Clone, Debug)]
    struct Read(Value);

    impl ForeignRow for Read {
        fn read(_: &ObjectMeta, spec: Value, _: Value) -> Self {
            Self(spec)
        }
    }

    fn read(object: &Value) -> Result<Foreign<Read>, serde_json::Error> {
        serde_json::from_str(&object.to_string())
    }

    #[test]
    fn an_object_is_read_without_managed_fields() {
        let read = read(&json!({
            "apiVersion": "example.com/v1", "kind": "A", "status": {"a": "b"}, "spec": {"c": "d"},
            "metadata": {"name": "n", "managedFields": [{}], "labels": {"l": "m"}},
        }))
        .unwrap();
        assert_eq!(json!(read.metadata), json!({"name": "n", "labels": {"l": "m"}}));
        assert_eq!(read.row.0, json!({"c": "d"}));
    }

    #[test]
    fn a_deep_object_does_not_hide_the_others_of_a_list() {
        let deep = format!("{}{}", "[".repeat(9_000), "]".repeat(9_000));
        let object = |field: &str| format!(r#"{{"metadata": {{"name": "n"}}, "{field}": {deep}}}"#);
        let managed = format!(r#"{{"metadata": {{"managedFields": [{{"fieldsV1": {deep}}}]}}}}"#);
        let of = [object("spec"), object("status"), object("other"), managed];
        let list = format!(r#"{{"metadata": {{}}, "items": [{}]}}"#, of.join(","));
        let list: ObjectList<Foreign<Read>> = serde_json::from_str(&list).unwrap();
        let specs: Vec<_> = list.items.iter().map(|of| of.row.0.is_null()).collect();
        assert_eq!(specs, [false, true, true, true]);
        let problem = problem("spec", &list.items[0].row.0, &json!({"a": ""})).unwrap();
        assert_eq!(&*problem, "spec: is not an object, or is nested too deeply");
        let event = format!(r#"{{"type": "ADDED", "object": {}}}"#, object("spec"));
        assert!(serde_json::from_str::<WatchEvent<Foreign<Read>>>(&event).is_ok());
    }

    #[test]
    fn an_object_without_metadata_is_read_and_one_with_wrong_metadata_is_an_error() {
        assert_eq!(read(&json!({})).unwrap().metadata, ObjectMeta::default());
        let wrong = json!([
            {"metadata": null}, {"metadata": []}, {"metadata": {"name": 7}},
            {"metadata": {"labels": {"a": 7}}}, "text", null,
        ]);
        for object in wrong.as_array().unwrap() {
            assert!(read(object).is_err(), "{object}");
        }
    }

    #[test]
    fn the_first_field_of_another_type_is_found() {
        let example = json!({"list": [{"name": ""}], "map": {"*": ""}, "part": {}, "texts": [""]});
        let long = "é".repeat(131_072);
        for (value, found) in [
            (json!(null), ""),
            (json!({"other": 7, "list": [], "map": {}, "part": {"a": [7]}, "texts": null}), ""),
            (json!({"list": [{"name": long}, null, {}], "map": {"é": ""}, "texts": [""]}), ""),
            (json!([]), "x: is not an object"),
            (json!({"list": {}}), "x.list: is not a list"),
            (json!({"list": [null, {"name": ""}, 7]}), "x.list[2]: is not an object"),
            (json!({"list": [{"name": 7}], "map": 7}), "x.list[0].name: is not a string"),
            (json!({"map": []}), "x.map: is not an object"),
            (json!({"map": {"a": null}}), "x.map: is not a map of strings"),
            (json!({"part": ""}), "x.part: is not an object, or is nested too deeply"),
            (json!({"part": 7}), "x.part: is not an object"),
            (json!({"texts": ""}), "x.texts: is not a list"),
            (json!({"texts": ["", null]}), "x.texts: is not a list of strings"),
        ] {
            let problem = problem("x", &value, &example);
            assert_eq!(problem.as_deref().unwrap_or_default(), found, "{value:.200}");
        }
    }

    #[test]
    fn a_value_of_another_type_counts_as_absent() {
        for none in [json!(null), json!({"a": "b"}), json!("a"), json!(7), json!([])] {
            assert_eq!(items(&none).count(), 0, "{none}");
        }
        let list = json!([7, {"text": "a"}, null, [], {"text": 7}, {"text": ""}]);
        let texts: Vec<_> = objects(&list).map(|item| filled(&item["text"])).collect();
        assert_eq!(texts, [Some("a"), None, None]);
        assert_eq!(filled(&list[0]["text"]), None);
    }
}
