//! What a decision reads of a pod, borrowed from the bytes that the API server sent.
//!
//! Only the fields that stowplan looks at are decoded; everything else is skipped, so that fields of
//! newer Kubernetes releases pass through untouched. The spec stays one raw slice until a key of
//! ours has been seen, because nearly every pod has none.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::api::core::v1::Affinity;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// An object of any kind, as far as every kind is alike.
#[derive(Debug, Default, Deserialize)]
pub struct Object<'a> {
    /// Absent in no object that an API server sends; absent means empty here.
    #[serde(borrow, default, deserialize_with = "object_or_default")]
    pub metadata: Metadata<'a>,
    /// The undecoded spec.
    #[serde(borrow, default)]
    pub spec: Option<&'a RawValue>,
}

/// The part of `metadata` that identity and constraints come from.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata<'a> {
    /// Absent while the API server has still to generate it.
    #[serde(borrow, default)]
    pub name: Option<Text<'a>>,
    /// The prefix of the name to come.
    #[serde(borrow, default)]
    pub generate_name: Option<Text<'a>>,
    /// `None` for absent and for null: a patch must create the parent then.
    #[serde(borrow, default)]
    pub labels: Option<TextMap<'a>>,
    /// `None` for absent and for null: a patch must create the parent then.
    #[serde(borrow, default)]
    pub annotations: Option<TextMap<'a>>,
    /// Who made the object.
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    pub owner_references: Vec<OwnerReference<'a>>,
}

/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference<'a> {
    /// Kind of the owner, for example `DaemonSet`.
    #[serde(borrow, default)]
    pub kind: Option<Text<'a>>,
    /// Whether this owner is the managing controller.
    #[serde(default)]
    pub controller: Option<bool>,
}

/// The part of a pod's spec that a placement touches or must respect.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow, default)]
    node_name: Option<Text<'a>>,
    #[serde(borrow, default)]
    affinity: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    scheduling_gates: Vec<&'a RawValue>,
}

/// A pod that carries a key of ours, decoded as far as a decision needs it.
#[derive(Debug)]
pub struct Pod<'a> {
    /// The namespace of the request: the object's own may be missing or false.
    pub namespace: &'a str,
    /// Labels, annotations, owners.
    pub metadata: &'a Metadata<'a>,
    /// `spec.nodeName`, where something was set.
    pub node_name: Option<&'a str>,
    /// Whether scheduling gates hold the pod: then it may not have a node name.
    pub gated: bool,
    /// Whether there is a spec at all; hand-written reviews may lack it.
    pub has_spec: bool,
    /// `spec.affinity`, typed: for reading.
    pub affinity: Affinity,
    /// `spec.affinity` as it was sent: for patching. Null when absent.
    pub affinity_document: Value,
}

impl<'a> Pod<'a> {
    /// Decodes the spec of `object`.
    ///
    /// # Errors
    /// The JSON error where a field that we read has the wrong type; a pod like that is not valid in
    /// any Kubernetes.
    pub fn decode(namespace: &'a str, object: &'a Object<'a>) -> Result<Self, serde_json::Error> {
        let spec: Spec<'a> = match object.spec {
            Some(raw) => object_or_default(&mut serde_json::Deserializer::from_str(raw.get()))?,
            None => Spec::default(),
        };
        let (affinity, affinity_document) = match spec.affinity {
            Some(raw) => (serde_json::from_str(raw.get())?, serde_json::from_str(raw.get())?),
            None => (Affinity::default(), Value::Null),
        };
        let node_name = match spec.node_name {
            Some(Text(Cow::Borrowed(name))) => Some(name).filter(|name| !name.is_empty()),
            // A node name with an escape in it is no name that any node can have.
            Some(Text(Cow::Owned(_))) => {
                return Err(serde_json::Error::custom("spec.nodeName: not a node name"));
            }
            None => None,
        };
        Ok(Self {
            namespace,
            metadata: &object.metadata,
            node_name,
            gated: !spec.scheduling_gates.is_empty(),
            has_spec: object.spec.is_some(),
            affinity,
            affinity_document,
        })
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key)
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key)
    }

    /// Whether the managing controller is of this kind.
    #[must_use]
    pub fn is_controlled_by(&self, kind: &str) -> bool {
        self.metadata.owner_references.iter().any(|owner| {
            owner.controller == Some(true) && owner.kind.as_ref().is_some_and(|k| k.as_str() == kind)
        })
    }
}

/// A string that is borrowed where JSON allows it (no escapes) and owned otherwise.
#[derive(Clone, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl Text<'_> {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// Text orders as str does, as `Borrow` asks for: both look at the characters alone.
impl Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A map of strings, as labels and annotations are.
///
/// A key that occurs twice is an error: which of two values counts must not depend on the reader.
/// (An API server never sends one: it keeps the last before it calls.)
#[derive(Debug, Default)]
pub struct TextMap<'a>(BTreeMap<Text<'a>, Text<'a>>);

impl TextMap<'_> {
    /// The value under `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(Text::as_str)
    }

    /// All pairs, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for TextMap<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = TextMap<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    let value: Text<'de> = map.next_value().map_err(|error| {
                        A::Error::custom(format_args!("{:.100}: {error}", key.0.escape_debug()))
                    })?;
                    if let Some(_earlier) = entries.insert(key.clone(), value) {
                        return Err(A::Error::custom(format_args!(
                            "duplicate key `{:.100}`",
                            key.0.escape_debug()
                        )));
                    }
                }
                Ok(TextMap(entries))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

/// Reads an object, and null as `None`. Nothing else: a derived reader would take a list for the
/// members in their order, and an operation on such an "object" would not apply.
pub(crate) fn optional_object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Members<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
        type Value = Option<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            deserializer.deserialize_map(self)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }

    deserializer.deserialize_option(Members(PhantomData))
}

/// Reads an object, and null as the default.
pub(crate) fn object_or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(optional_object(deserializer)?.unwrap_or_default())
}

/// Reads an explicit null as the default: JSON writers in other languages send both for "nothing".
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_absent_are_the_same() {
        for json in [
            r#"{}"#,
            r#"{"metadata":null,"spec":null}"#,
            r#"{"metadata":{"labels":null,"annotations":null,"ownerReferences":null}}"#,
        ] {
            let object: Object<'_> = serde_json::from_str(json).unwrap();
            assert!(object.metadata.labels.is_none(), "{json}");
            assert!(object.metadata.owner_references.is_empty(), "{json}");
            assert!(object.spec.is_none(), "{json}");
        }
    }

    #[test]
    fn a_list_is_no_object() {
        assert!(serde_json::from_str::<Object<'_>>(r#"{"metadata":[]}"#).is_err());
        let object: Object<'_> = serde_json::from_str(r#"{"spec":["n1"]}"#).unwrap();
        assert!(Pod::decode("default", &object).is_err());
    }

    #[test]
    fn a_key_that_occurs_twice_is_an_error_that_names_it() {
        let json = r#"{"metadata":{"annotations":{"a":"1","b":"2","a":"3"}}}"#;
        let error = serde_json::from_str::<Object<'_>>(json).unwrap_err().to_string();
        assert!(error.contains("duplicate key `a`"), "{error}");
    }

    #[test]
    fn a_value_that_is_no_string_is_an_error_that_names_the_key() {
        let json = r#"{"metadata":{"annotations":{"streams.ibm.com/host":7}}}"#;
        let error = serde_json::from_str::<Object<'_>>(json).unwrap_err().to_string();
        assert!(error.contains("streams.ibm.com/host: invalid type: integer `7`"), "{error}");
    }

    #[test]
    fn escapes_are_decoded_and_plain_text_is_borrowed() {
        let json = r#"{"metadata":{"labels":{"p":"plain","e":"\u0041\n"}}}"#;
        let object: Object<'_> = serde_json::from_str(json).unwrap();
        let labels = object.metadata.labels.unwrap();
        assert_eq!(labels.get("e"), Some("A\n"));
        assert!(labels.0.values().any(|v| matches!(v.0, Cow::Borrowed("plain"))));
    }

    #[test]
    fn keys_in_another_case_are_other_keys() {
        let object: Object<'_> =
            serde_json::from_str(r#"{"Metadata":{"labels":{"a":"b"}},"SPEC":{}}"#).unwrap();
        assert!(object.metadata.labels.is_none());
        assert!(object.spec.is_none());
    }
}
