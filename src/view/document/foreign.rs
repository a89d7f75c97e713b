//! [`Foreign`]: an object of a kind that another project defines, as a client of the API server
//! reads it.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicResourceScope;
use kube::core::discovery::ApiResource;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer as _, MapAccess,
    Visitor,
};

use super::{Document, Field, Members};

/// A projection of the documents of a kind.
pub(crate) trait Shaped: Clone + fmt::Debug + Send + Sync + 'static {
    /// The fields of the document, besides `metadata`, that the projection reads.
    const FIELDS: &'static [Field];
}

/// An object with the fields that the projection `T` reads.
#[derive(Clone, Debug)]
pub(crate) struct Foreign<T> {
    /// Without `managedFields`.
    pub(crate) metadata: ObjectMeta,
    /// The other fields.
    pub(crate) document: Document,
    projection: PhantomData<fn() -> T>,
}

impl<T: Shaped> kube::Resource for Foreign<T> {
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

impl<'de, T: Shaped> Deserialize<'de> for Foreign<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<fn() -> T>);

impl<'de, T: Shaped> Visitor<'de> for ObjectVisitor<T> {
    type Value = Foreign<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut metadata = ObjectMeta::default();
        let mut values = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            match T::FIELDS.iter().find(|(name, _)| *name == key) {
                Some((name, shape)) => {
                    values.push((Cow::Borrowed(*name), map.next_value_seed(shape)?));
                }
                None if key == "metadata" => metadata = map.next_value_seed(Metadata)?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let document = Document::Object(Members::sorted(Some(T::FIELDS), values));
        Ok(Foreign { metadata, document, projection: PhantomData })
    }
}

/// Reads `metadata` without `managedFields`, which list every field of the object.
struct Metadata;

impl<'de> DeserializeSeed<'de> for Metadata {
    type Value = ObjectMeta;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ObjectMeta, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Metadata {
    type Value = ObjectMeta;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("struct ObjectMeta")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ObjectMeta, A::Error> {
        ObjectMeta::deserialize(MapAccessDeserializer::new(Unmanaged(map)))
    }
}

/// A map without its key `managedFields`.
struct Unmanaged<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Unmanaged<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.0.next_key::<String>()? {
            if key == "managedFields" {
                self.0.next_value::<IgnoredAny>()?;
            } else {
                return seed.deserialize(key.into_deserializer()).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Shape;
    use super::*;

    #[derive(Clone, Debug)]
    struct Spec;

    impl Shaped for Spec {
        const FIELDS: &'static [Field] = &[("spec", Shape::Whole)];
    }

    fn read(object: &Value) -> Result<Foreign<Spec>, serde_json::Error> {
        serde_json::from_str(&object.to_string())
    }

    #[test]
    fn an_object_is_read_without_managed_fields_and_without_unlisted_fields() {
        let read = read(&json!({
            "apiVersion": "example.com/v1", "kind": "A", "status": {"a": "b"}, "spec": {"c": "d"},
            "metadata": {"name": "n", "managedFields": [7], "labels": {"l": "m"}},
        }))
        .unwrap();
        assert_eq!(json!(read.metadata), json!({"name": "n", "labels": {"l": "m"}}));
        assert_eq!(Value::from(&read.document), json!({"spec": {"c": "d"}}));
    }

    #[test]
    fn an_object_without_metadata_is_read_and_one_with_wrong_metadata_is_an_error() {
        assert_eq!(read(&json!({})).unwrap().metadata, ObjectMeta::default());
        let wrong = json!([
            {"metadata": null}, {"metadata": []}, {"metadata": {"name": 7}},
            {"metadata": {"labels": {"a": 7}}}, [], "text", null,
        ]);
        for object in wrong.as_array().unwrap() {
            assert!(read(object).is_err(), "{object}");
        }
    }
}
