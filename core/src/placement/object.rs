//! An object of any kind as a request carries it: metadata decoded, the spec left as raw slices.
//!
//! Only members that stowplan reads are decoded. Everything else is skipped, so fields of newer
//! Kubernetes releases pass through untouched. Each byte is scanned once: the members of the spec
//! that a placement may need are kept as raw slices, and decoded only if the object has one of
//! stowplan's keys, which nearly none has.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::wire::{Text, TextMap, null_is_default, object_or_default};

/// The fields that objects of every kind have.
#[derive(Debug, Default, Deserialize)]
pub struct Object<'a> {
    /// Empty if absent; an API server always sends it.
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
    /// False for absent and for null: a patch must create the parent then.
    #[serde(skip, default = "present")]
    pub is_present: bool,
    /// Absent until the API server has generated it from `generateName`.
    #[serde(borrow, default)]
    pub name: Option<Text<'a>>,
    /// `None` for absent and for null: a patch must create the parent then.
    #[serde(borrow, default)]
    pub labels: Option<TextMap<'a>>,
    /// `None` for absent and for null: a patch must create the parent then.
    #[serde(borrow, default)]
    pub annotations: Option<TextMap<'a>>,
    /// The owners.
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    pub owner_references: Vec<OwnerReference<'a>>,
}

/// Returns the value of `is_present` for metadata that was decoded.
fn present() -> bool {
    true
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
/// The API server checks that all fields but `controller` are present and not empty. It does not
/// check that the owner exists: the author of the object can write anything.
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
    /// True if this owner is the managing controller.
    #[serde(default)]
    pub controller: Option<bool>,
}

impl OwnerReference<'_> {
    /// Returns true if the owner is of this kind in this API group, whatever the version. The core group is
    /// empty.
    #[must_use]
    pub fn is(&self, group: &str, kind: &str) -> bool {
        let version = self.api_version.as_ref().map_or("", Text::as_str);
        let own = version.split_once('/').map_or("", |(group, _)| group);
        own == group && self.kind.as_ref().is_some_and(|own| own.as_str() == kind)
    }
}

/// A spec: the members that a placement changes or must respect, as raw slices.
///
/// Any JSON value is accepted; the members are decoded only for objects that stowplan decides on.
#[expect(
    clippy::large_enum_variant,
    reason = "one is on the stack at a time, and a box costs each review"
)]
#[derive(Debug, Default)]
pub enum Spec<'a> {
    /// Absent or null; hand-written reviews may lack it.
    #[default]
    Absent,
    /// An object.
    Members(Members<'a>),
    /// A list, a string, a number or a boolean: invalid for every kind that stowplan reads.
    NoObject,
}

impl Spec<'_> {
    /// Returns true if a pod may tolerate a taint with this key. Reads no other member, and decodes nothing.
    #[must_use]
    pub fn may_tolerate(&self, key: &str) -> bool {
        match self {
            Self::Members(members) => members.tolerations.is_some_and(|it| it.get().contains(key)),
            Self::Absent | Self::NoObject => false,
        }
    }
}

/// Undecoded members of a spec. A null is read as an absent member.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Members<'a> {
    /// A pod's `affinity`.
    #[serde(borrow, default)]
    pub affinity: Option<&'a RawValue>,
    /// A pod's `containers`.
    #[serde(borrow, default)]
    pub containers: Option<&'a RawValue>,
    /// A pod's `dnsConfig`.
    #[serde(borrow, default)]
    pub dns_config: Option<&'a RawValue>,
    /// A pod's `dnsPolicy`.
    #[serde(borrow, default)]
    pub dns_policy: Option<&'a RawValue>,
    /// A pod's `hostNetwork`.
    #[serde(borrow, default)]
    pub host_network: Option<&'a RawValue>,
    /// A pod's `hostname`.
    #[serde(borrow, default)]
    pub hostname: Option<&'a RawValue>,
    /// A pod's `initContainers`.
    #[serde(borrow, default)]
    pub init_containers: Option<&'a RawValue>,
    /// A pod's `nodeName`.
    #[serde(borrow, default)]
    pub node_name: Option<&'a RawValue>,
    /// A pod's `nodeSelector`.
    #[serde(borrow, default)]
    pub node_selector: Option<&'a RawValue>,
    /// A pod's `schedulingGates`.
    #[serde(borrow, default)]
    pub scheduling_gates: Option<&'a RawValue>,
    /// A pod's `securityContext`.
    #[serde(borrow, default)]
    pub security_context: Option<&'a RawValue>,
    /// A pod's `subdomain`.
    #[serde(borrow, default)]
    pub subdomain: Option<&'a RawValue>,
    /// A pod's `tolerations`.
    #[serde(borrow, default)]
    pub tolerations: Option<&'a RawValue>,
    /// A pod's `volumes`.
    #[serde(borrow, default)]
    pub volumes: Option<&'a RawValue>,
    /// A claim's `accessModes`.
    #[serde(borrow, default)]
    pub access_modes: Option<&'a RawValue>,
    /// A claim's `selector`.
    #[serde(borrow, default)]
    pub selector: Option<&'a RawValue>,
    /// A claim's `storageClassName`.
    #[serde(borrow, default)]
    pub storage_class_name: Option<&'a RawValue>,
    /// A claim's `volumeName`.
    #[serde(borrow, default)]
    pub volume_name: Option<&'a RawValue>,
}

/// Decodes a raw member; `None` for absent and for null.
///
/// # Errors
/// If it has the wrong type.
pub(crate) fn decode_member<'a, T: Deserialize<'a>>(
    member: Option<&'a RawValue>,
) -> Result<Option<T>, serde_json::Error> {
    member.map_or(Ok(None), |raw| serde_json::from_str(raw.get()))
}

impl<'de: 'a, 'a> Deserialize<'de> for Spec<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Spec<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a spec")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Members::deserialize(MapAccessDeserializer::new(map)).map(Spec::Members)
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
