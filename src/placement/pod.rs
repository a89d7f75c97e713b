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

impl Metadata<'_> {
    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key)
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key)
    }

    /// The owner that is the managing controller. An API server takes no more than one.
    #[must_use]
    pub fn controller(&self) -> Option<&OwnerReference<'_>> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }
}

/// One entry of `metadata.ownerReferences`.
///
/// An API server sees to it that all but `controller` are there and not empty. Whether the owner
/// exists nobody has checked: whoever makes the object writes what he likes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference<'a> {
    /// API group and version of the owner, for example `apps/v1`.
    #[serde(borrow, default)]
    pub api_version: Option<Text<'a>>,
    /// Kind of the owner, for example `DaemonSet`.
    #[serde(borrow, default)]
    pub kind: Option<Text<'a>>,
    /// Name of the owner, in the namespace of the object.
    #[serde(borrow, default)]
    pub name: Option<Text<'a>>,
    /// UID of the owner.
    #[serde(borrow, default)]
    pub uid: Option<Text<'a>>,
    /// Whether this owner is the managing controller.
    #[serde(default)]
    pub controller: Option<bool>,
}

impl OwnerReference<'_> {
    /// Whether the owner is of this kind in this API group, whatever the version. The core group is
    /// empty.
    #[must_use]
    pub fn is(&self, group: &str, kind: &str) -> bool {
        let version = self.api_version.as_ref().map_or("", Text::as_str);
        let own = version.split_once('/').map_or("", |(group, _)| group);
        own == group && self.kind.as_ref().is_some_and(|own| own.as_str() == kind)
    }
}

/// A spec, of which the fields that a placement touches or must respect are set aside.
///
/// Anything is taken: what the fields hold is looked at only for an object that is our business.
#[derive(Debug, Default)]
pub enum Spec<'a> {
    /// Absent or null; hand-written reviews may lack it.
    #[default]
    Absent,
    /// An object.
    Members(Members<'a>),
    /// A list, a string, a number or a boolean: no pod's and no claim's.
    NoObject,
}

/// Members of a spec, undecoded. A null stands as it is, and means what absence means.
#[derive(Debug, Default)]
pub struct Members<'a> {
    /// A pod's `affinity`.
    pub affinity: Option<&'a RawValue>,
    /// A pod's `nodeName`.
    pub node_name: Option<&'a RawValue>,
    /// A pod's `nodeSelector`.
    pub node_selector: Option<&'a RawValue>,
    /// A pod's `schedulingGates`.
    pub scheduling_gates: Option<&'a RawValue>,
    /// A pod's `tolerations`.
    pub tolerations: Option<&'a RawValue>,
    /// A pod's `volumes`.
    pub volumes: Option<&'a RawValue>,
    /// A claim's `accessModes`.
    pub access_modes: Option<&'a RawValue>,
    /// A claim's `selector`.
    pub selector: Option<&'a RawValue>,
    /// A claim's `storageClassName`.
    pub storage_class_name: Option<&'a RawValue>,
    /// A claim's `volumeName`.
    pub volume_name: Option<&'a RawValue>,
}

impl<'a> Members<'a> {
    /// Where the member of this name belongs, if it is one that is set aside.
    fn slot(&mut self, name: &str) -> Option<&mut Option<&'a RawValue>> {
        Some(match name {
            "accessModes" => &mut self.access_modes,
            "affinity" => &mut self.affinity,
            "nodeName" => &mut self.node_name,
            "nodeSelector" => &mut self.node_selector,
            "schedulingGates" => &mut self.scheduling_gates,
            "selector" => &mut self.selector,
            "storageClassName" => &mut self.storage_class_name,
            "tolerations" => &mut self.tolerations,
            "volumeName" => &mut self.volume_name,
            "volumes" => &mut self.volumes,
            _ => return None,
        })
    }
}

/// A member that was set aside, decoded; `None` for absent and for null.
///
/// # Errors
/// Where it has the wrong type.
pub(crate) fn decoded<'a, T: Deserialize<'a>>(
    member: Option<&'a RawValue>,
) -> Result<Option<T>, serde_json::Error> {
    member.map_or(Ok(None), |raw| serde_json::from_str(raw.get()))
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
    /// `spec.nodeSelector`; `None` for absent and for null.
    pub node_selector: Option<TextMap<'a>>,
    /// `spec.schedulingGates`; `None` for absent and for null.
    pub gates: Option<Vec<Gate<'a>>>,
    /// The claims among `spec.volumes`, in their order. A claim may be there more than once.
    pub claims: Vec<ClaimVolume<'a>>,
    /// Whether there is a spec at all; hand-written reviews may lack it.
    pub has_spec: bool,
    /// `spec.affinity`, typed: for reading.
    pub affinity: Affinity,
    /// `spec.affinity` as it was sent: for patching. Null when absent.
    pub affinity_document: Value,
    /// `spec.tolerations`; `None` for absent and for null.
    pub tolerations: Option<Vec<Toleration>>,
}

/// One entry of `spec.schedulingGates`.
#[derive(Debug, Default, Deserialize)]
pub struct Gate<'a> {
    /// Its name.
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    pub name: Text<'a>,
}

/// A volume of a pod that is a claim.
#[derive(Debug, Eq, PartialEq)]
pub struct ClaimVolume<'a> {
    /// Which one of `spec.volumes` it is.
    pub index: usize,
    /// The name of the claim.
    pub claim: Text<'a>,
}

/// A volume, as far as it may be a claim.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume<'a> {
    #[serde(borrow, default, deserialize_with = "optional_object")]
    persistent_volume_claim: Option<ClaimSource<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSource<'a> {
    #[serde(borrow, default)]
    claim_name: Option<Text<'a>>,
}

/// An item of a list: an object and nothing else, and null as the default.
struct Item<T>(T);

impl<'de, T: Default + Deserialize<'de>> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        object_or_default(deserializer).map(Self)
    }
}

impl<'a> Pod<'a> {
    /// Decodes the spec of `object`.
    ///
    /// # Errors
    /// The JSON error where a field that we read has the wrong type; a pod like that is not valid in
    /// any Kubernetes.
    pub fn decode(namespace: &'a str, object: &'a Object<'a>) -> Result<Self, serde_json::Error> {
        let nothing = Members::default();
        let spec = match &object.spec {
            Spec::Absent => &nothing,
            Spec::Members(members) => members,
            Spec::NoObject => return Err(serde_json::Error::custom("spec: not an object")),
        };
        let node_name = match decoded(spec.node_name)? {
            Some(Text(Cow::Borrowed(name))) => Some(name).filter(|name| !name.is_empty()),
            // A node name with an escape in it is no name that any node can have.
            Some(Text(Cow::Owned(_))) => {
                return Err(serde_json::Error::custom("spec.nodeName: not a node name"));
            }
            None => None,
        };
        let gates: Option<Vec<Item<Gate<'a>>>> = decoded(spec.scheduling_gates)?;
        let volumes: Option<Vec<Item<Volume<'a>>>> = decoded(spec.volumes)?;
        let claims =
            volumes.into_iter().flatten().enumerate().filter_map(|(index, Item(volume))| {
                Some(ClaimVolume { index, claim: volume.persistent_volume_claim?.claim_name? })
            });
        Ok(Self {
            namespace,
            metadata: &object.metadata,
            node_name,
            node_selector: decoded(spec.node_selector)?,
            gates: gates.map(|gates| gates.into_iter().map(|Item(gate)| gate).collect()),
            claims: claims.collect(),
            has_spec: !matches!(object.spec, Spec::Absent),
            affinity: decoded(spec.affinity)?.unwrap_or_default(),
            affinity_document: decoded(spec.affinity)?.unwrap_or_default(),
            tolerations: decoded(spec.tolerations)?,
        })
    }

    /// Whether scheduling gates hold the pod: then it may not have a node name.
    #[must_use]
    pub fn is_gated(&self) -> bool {
        self.gates.as_ref().is_some_and(|gates| !gates.is_empty())
    }

    /// Whether this scheduling gate holds the pod.
    #[must_use]
    pub fn has_gate(&self, name: &str) -> bool {
        self.gates.iter().flatten().any(|gate| gate.name.as_str() == name)
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.label(key)
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotation(key)
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
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Spec<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a spec")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Members::default();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    let Some(member) = members.slot(key.as_str()) else {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    };
                    if member.replace(map.next_value::<&'de RawValue>()?).is_some() {
                        return Err(A::Error::custom(format_args!(
                            "duplicate field `{}`",
                            key.as_str()
                        )));
                    }
                }
                Ok(Spec::Members(members))
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

        deserializer.deserialize_any(Reader)
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
        for spec in [
            r#"{"nodeName":7}"#,
            r#"{"affinity":[]}"#,
            r#"{"schedulingGates":{}}"#,
            r#"{"schedulingGates":[["name"]]}"#,
            r#"{"schedulingGates":[{"name":7}]}"#,
            r#"{"nodeSelector":[]}"#,
            r#"{"nodeSelector":{"a":1}}"#,
            r#"{"volumes":{}}"#,
            r#"{"volumes":[7]}"#,
            r#"{"volumes":[[]]}"#,
            r#"{"volumes":[{"persistentVolumeClaim":"c"}]}"#,
            r#"{"volumes":[{"persistentVolumeClaim":["c"]}]}"#,
            r#"{"volumes":[{"persistentVolumeClaim":{"claimName":7}}]}"#,
        ] {
            let json = format!(r#"{{"spec":{spec}}}"#);
            let object: Object<'_> = serde_json::from_str(&json).unwrap();
            assert!(Pod::decode("default", &object).is_err(), "{spec}");
        }
        let json = r#"{"spec":{"nodeName":null,"affinity":null,"schedulingGates":null,"volumes":null,"nodeSelector":null,"containers":[{}]}}"#;
        let object: Object<'_> = serde_json::from_str(json).unwrap();
        let pod = Pod::decode("default", &object).unwrap();
        assert!(
            pod.has_spec
                && !pod.is_gated()
                && pod.node_name.is_none()
                && pod.affinity_document.is_null()
                && pod.node_selector.is_none()
                && pod.gates.is_none()
                && pod.claims.is_empty()
        );
        let twice =
            serde_json::from_str::<Object<'_>>(r#"{"spec":{"nodeName":"a","nodeName":"b"}}"#);
        assert!(twice.unwrap_err().to_string().contains("duplicate field `nodeName`"));
        let twice = serde_json::from_str::<Object<'_>>(r#"{"spec":{"volumes":null,"volumes":[]}}"#);
        assert!(twice.unwrap_err().to_string().contains("duplicate field `volumes`"));
    }

    #[test]
    fn claims_are_read_with_their_places() {
        let json = r#"{"spec":{"volumes":[
            {"name":"t","projected":{"sources":[{"persistentVolumeClaim":{"claimName":"no"}}]}},
            {"name":"a","persistentVolumeClaim":{"claimName":"pvc-1","readOnly":true}},
            {"name":"b","ephemeral":{"volumeClaimTemplate":{}}},
            null,
            {"persistentVolumeClaim":{"claimName":"p\u00e9"}},
            {"name":"a","persistentVolumeClaim":{"claimName":"pvc-1"}}]}}"#;
        let object: Object<'_> = serde_json::from_str(json).unwrap();
        let pod = Pod::decode("default", &object).unwrap();
        let claims: Vec<_> = pod.claims.iter().map(|it| (it.index, it.claim.as_str())).collect();
        assert_eq!(claims, [(1, "pvc-1"), (4, "pé"), (5, "pvc-1")]);
        assert!(matches!(pod.claims[0].claim.0, Cow::Borrowed(_)));
    }

    #[test]
    fn the_managing_controller_is_known_by_group_and_kind() {
        let json = r#"{"metadata":{"ownerReferences":[
            {"apiVersion":"v1","kind":"Pod","name":"o","uid":"1"},
            {"apiVersion":"tekton.dev/v1","kind":"TaskRun","name":"r","uid":"2","controller":true}]}}"#;
        let object: Object<'_> = serde_json::from_str(json).unwrap();
        let owner = object.metadata.controller().unwrap();
        assert!(owner.is("tekton.dev", "TaskRun"));
        assert!(!owner.is("tekton.dev", "PipelineRun") && !owner.is("tekton", "TaskRun"));
        assert_eq!(owner.uid.as_ref().map(Text::as_str), Some("2"));
        assert!(object.metadata.owner_references[0].is("", "Pod"));
        for nobody in [r#"[]"#, "null", r#"[{}]"#, r#"[{"controller":null,"uid":null}]"#] {
            let json = format!(r#"{{"metadata":{{"ownerReferences":{nobody}}}}}"#);
            let object: Object<'_> = serde_json::from_str(&json).unwrap();
            assert!(object.metadata.controller().is_none(), "{nobody}");
        }
        let nameless = OwnerReference::default();
        assert!(!nameless.is("", "") && !nameless.is("tekton.dev", "TaskRun"));
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
