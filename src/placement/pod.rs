//! What a decision reads of a pod, borrowed from the bytes that the API server sent.
//!
//! Only the fields that stowplan looks at are decoded; everything else is skipped, so that fields of
//! newer Kubernetes releases pass through untouched. Each byte is scanned once: what a placement reads
//! of the spec is set aside as raw slices, and decoded only where a key of ours has been seen, because
//! nearly every pod has none.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::api::core::v1::{Affinity, Toleration};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
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
    pub spec: Spec<'a>,
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

/// A spec, of which the fields that a pod's placement touches or must respect are set aside.
///
/// Anything is taken: what the fields hold is looked at only for a pod that carries a key of ours.
#[derive(Debug, Default)]
pub enum Spec<'a> {
    /// Absent or null; hand-written reviews may lack it.
    #[default]
    Absent,
    /// An object. Null members count as absent.
    Members {
        /// `nodeName`.
        node_name: Option<&'a RawValue>,
        /// `affinity`.
        affinity: Option<&'a RawValue>,
        /// `schedulingGates`.
        scheduling_gates: Option<&'a RawValue>,
        /// `tolerations`.
        tolerations: Option<&'a RawValue>,
    },
    /// A list, a string, a number or a boolean: no pod's.
    NoObject,
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
    /// `spec.tolerations`; `None` for absent and for null.
    pub tolerations: Option<Vec<Toleration>>,
}

impl<'a> Pod<'a> {
    /// Decodes the spec of `object`.
    ///
    /// # Errors
    /// The JSON error where a field that we read has the wrong type; a pod like that is not valid in
    /// any Kubernetes.
    pub fn decode(namespace: &'a str, object: &'a Object<'a>) -> Result<Self, serde_json::Error> {
        let (node_name, affinity, gates, tolerations) = match &object.spec {
            Spec::Absent => (None, None, None, None),
            Spec::Members { node_name, affinity, scheduling_gates, tolerations } => {
                (*node_name, *affinity, *scheduling_gates, *tolerations)
            }
            Spec::NoObject => return Err(serde_json::Error::custom("spec: not an object")),
        };
        let (affinity, affinity_document) = match affinity {
            Some(raw) => (serde_json::from_str(raw.get())?, serde_json::from_str(raw.get())?),
            None => (Affinity::default(), Value::Null),
        };
        let gates: Vec<&RawValue> = match gates {
            Some(raw) => serde_json::from_str(raw.get())?,
            None => Vec::new(),
        };
        let tolerations = tolerations.map(|raw| serde_json::from_str(raw.get())).transpose()?;
        let node_name = match node_name.map(|raw| serde_json::from_str(raw.get())).transpose()? {
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
            gated: !gates.is_empty(),
            has_spec: !matches!(object.spec, Spec::Absent),
            affinity,
            affinity_document,
            tolerations,
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
            owner.controller == Some(true)
                && owner.kind.as_ref().is_some_and(|k| k.as_str() == kind)
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Spec<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Spec<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a spec")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut node_name, mut affinity) = (None, None);
                let (mut scheduling_gates, mut tolerations) = (None, None);
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    let member = match key.as_str() {
                        "nodeName" => &mut node_name,
                        "affinity" => &mut affinity,
                        "schedulingGates" => &mut scheduling_gates,
                        "tolerations" => &mut tolerations,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    let earlier = member.replace(map.next_value::<Option<&'de RawValue>>()?);
                    if earlier.is_some() {
                        return Err(A::Error::custom(format_args!(
                            "duplicate field `{}`",
                            key.as_str()
                        )));
                    }
                }
                Ok(Spec::Members {
                    node_name: node_name.flatten(),
                    affinity: affinity.flatten(),
                    scheduling_gates: scheduling_gates.flatten(),
                    tolerations: tolerations.flatten(),
                })
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Spec::Absent)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Spec::NoObject)
            }

            fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
                Ok(Spec::NoObject)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(Spec::NoObject)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
                Ok(Spec::NoObject)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
                Ok(Spec::NoObject)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
                Ok(Spec::NoObject)
            }
        }

        deserializer.deserialize_any(Members)
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

        fn visit_some<D: Deserializer<'de>>(
            self,
            deserializer: D,
        ) -> Result<Self::Value, D::Error> {
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
            assert!(matches!(object.spec, Spec::Absent), "{json}");
        }
    }

    #[test]
    fn a_list_is_no_object() {
        assert!(serde_json::from_str::<Object<'_>>(r#"{"metadata":[]}"#).is_err());
        for spec in [r#"["n1",[]]"#, "[]", "7", "-7", "7.5", "true", r#""n1""#, r#""\u0041""#] {
            let json = format!(r#"{{"spec":{spec}}}"#);
            let object: Object<'_> = serde_json::from_str(&json).unwrap();
            assert!(Pod::decode("default", &object).is_err(), "{spec}");
        }
    }

    #[test]
    fn only_a_pod_that_is_placed_has_its_spec_looked_at() {
        for spec in [r#"{"nodeName":7}"#, r#"{"affinity":[]}"#, r#"{"schedulingGates":{}}"#] {
            let json = format!(r#"{{"spec":{spec}}}"#);
            let object: Object<'_> = serde_json::from_str(&json).unwrap();
            assert!(Pod::decode("default", &object).is_err(), "{spec}");
        }
        let json = r#"{"spec":{"nodeName":null,"affinity":null,"schedulingGates":null,"containers":[{}]}}"#;
        let object: Object<'_> = serde_json::from_str(json).unwrap();
        let pod = Pod::decode("default", &object).unwrap();
        assert!(
            pod.has_spec
                && !pod.gated
                && pod.node_name.is_none()
                && pod.affinity_document.is_null()
        );
        let twice =
            serde_json::from_str::<Object<'_>>(r#"{"spec":{"nodeName":"a","nodeName":"b"}}"#);
        assert!(twice.unwrap_err().to_string().contains("duplicate field `nodeName`"));
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
        assert!(matches!(object.spec, Spec::Absent));
    }
}
