//! The fields of a pod that a decision reads. Most are borrowed from the bytes that the API server sent.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Affinity, EphemeralVolumeSource, PodSchedulingGate, Toleration};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Value;

use super::object::{Members, Metadata, Object, Spec, decode_member};
use crate::kubernetes::creates_again;
use crate::wire::{Item, Text, TextMap, optional_object};

/// A pod that stowplan decides on.
#[derive(Debug)]
pub struct Pod<'a> {
    /// The namespace of the request; the one in the object's metadata may be missing or wrong.
    pub namespace: &'a str,
    /// Labels, annotations, owners.
    pub metadata: &'a Metadata<'a>,
    /// `spec.nodeName`, unless empty.
    pub node_name: Option<&'a str>,
    /// `spec.nodeSelector`; `None` for absent and for null.
    pub node_selector: Option<TextMap<'a>>,
    /// `spec.schedulingGates`; `None` for absent and for null.
    pub gates: Option<Vec<PodSchedulingGate>>,
    /// The claims among `spec.volumes`, in their order. One claim may occur more than once.
    pub claims: Vec<ClaimVolume<'a>>,
    /// The volumes whose claims are made with the pod.
    pub ephemeral: Vec<EphemeralVolume<'a>>,
    /// True if there is a spec at all; hand-written reviews may lack it.
    pub has_spec: bool,
    /// `spec.affinity`, typed: for reading.
    pub affinity: Affinity,
    /// `spec.affinity` as it was sent: for patching. Null when absent.
    pub affinity_document: Value,
    /// `spec.tolerations`; `None` for absent and for null.
    pub tolerations: Option<Vec<Toleration>>,
    /// The spec as it was sent: containers and volumes are decoded when a system reads them.
    pub(super) members: Members<'a>,
}

/// A volume of a pod that is a PersistentVolumeClaim.
#[derive(Debug, Eq, PartialEq)]
pub struct ClaimVolume<'a> {
    /// Its index in `spec.volumes`.
    pub index: usize,
    /// The name of the claim.
    pub claim: Text<'a>,
}

/// A volume of a pod whose claim is made with the pod, from a template.
#[derive(Debug, Eq, PartialEq)]
pub struct EphemeralVolume<'a> {
    /// The name of the volume.
    pub name: Text<'a>,
    /// The storage class, if the template names one.
    pub class: Option<String>,
}

/// A volume of any type; only a claim, or the template of one, is read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume<'a> {
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "optional_object")]
    persistent_volume_claim: Option<ClaimSource<'a>>,
    #[serde(default)]
    ephemeral: Option<EphemeralVolumeSource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSource<'a> {
    #[serde(borrow, default)]
    claim_name: Option<Text<'a>>,
}

impl<'a> Pod<'a> {
    /// Decodes the spec of `object`.
    ///
    /// # Errors
    /// The JSON error if a field that stowplan reads has the wrong type, as in no valid pod.
    pub fn decode(namespace: &'a str, object: &'a Object<'a>) -> Result<Self, serde_json::Error> {
        let spec = match object.spec {
            Spec::Absent => Members::default(),
            Spec::Members(members) => members,
            Spec::NoObject => return Err(serde_json::Error::custom("spec: not an object")),
        };
        let node_name = match decode_member(spec.node_name)? {
            Some(Text(Cow::Borrowed(name))) => Some(name).filter(|name| !name.is_empty()),
            // No node can have a name that JSON must escape.
            Some(Text(Cow::Owned(_))) => {
                return Err(serde_json::Error::custom("spec.nodeName: not a node name"));
            }
            None => None,
        };
        let gates: Option<Vec<Item<PodSchedulingGate>>> = decode_member(spec.scheduling_gates)?;
        let volumes: Option<Vec<Item<Volume<'a>>>> = decode_member(spec.volumes)?;
        let (mut claims, mut ephemeral) = (Vec::new(), Vec::new());
        for (index, Item(volume)) in volumes.into_iter().flatten().enumerate() {
            let claim = volume.persistent_volume_claim.and_then(|source| source.claim_name);
            claims.extend(claim.map(|claim| ClaimVolume { index, claim }));
            let template = volume.ephemeral.and_then(|source| source.volume_claim_template);
            if let (Some(name), Some(template)) = (volume.name, template) {
                ephemeral.push(EphemeralVolume { name, class: template.spec.storage_class_name });
            }
        }
        Ok(Self {
            namespace,
            metadata: &object.metadata,
            node_name,
            node_selector: decode_member(spec.node_selector)?,
            gates: gates.map(|gates| gates.into_iter().map(|Item(gate)| gate).collect()),
            claims,
            ephemeral,
            has_spec: !matches!(object.spec, Spec::Absent),
            affinity: decode_member(spec.affinity)?.unwrap_or_default(),
            affinity_document: decode_member(spec.affinity)?.unwrap_or_default(),
            tolerations: decode_member(spec.tolerations)?,
            members: spec,
        })
    }

    /// Returns true if the pod has a scheduling gate. Kubernetes then refuses a node name.
    #[must_use]
    pub fn is_gated(&self) -> bool {
        self.gates.as_ref().is_some_and(|gates| !gates.is_empty())
    }

    /// Returns true if the pod has this scheduling gate.
    #[must_use]
    pub fn has_gate(&self, name: &str) -> bool {
        self.gates.iter().flatten().any(|gate| gate.name == name)
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

    /// Returns true if the managing controller is of this kind.
    #[must_use]
    pub fn is_controlled_by(&self, kind: &str) -> bool {
        self.metadata.owner_references.iter().any(|owner| {
            owner.controller == Some(true)
                && owner.kind.as_ref().is_some_and(|k| k.as_str() == kind)
        })
    }

    /// Returns whether a controller of Kubernetes creates it again if it is deleted.
    #[must_use]
    pub(crate) fn is_created_again(&self) -> bool {
        self.metadata.controller().is_some_and(|owner| {
            let version = owner.api_version.as_ref().map_or("", Text::as_str);
            creates_again(version, owner.kind.as_ref().map_or("", Text::as_str))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_spec_is_decoded_with_the_pod_and_not_before() {
        assert!(serde_json::from_str::<Object<'_>>(r#"{"metadata":[]}"#).is_err());
        let specs = json!([
            ["n1", []], [], 7, -7, 7.5, true, "n1",
            {"nodeName": 7}, {"affinity": []}, {"nodeSelector": []}, {"nodeSelector": {"a": 1}},
            {"schedulingGates": {}}, {"schedulingGates": [["name"]]}, {"schedulingGates": [{"name": 7}]},
            {"volumes": {}}, {"volumes": [7]}, {"volumes": [[]]},
            {"volumes": [{"persistentVolumeClaim": "c"}]}, {"volumes": [{"persistentVolumeClaim": ["c"]}]},
            {"volumes": [{"persistentVolumeClaim": {"claimName": 7}}]},
        ]);
        let specs = specs.as_array().unwrap().iter().map(ToString::to_string);
        for spec in specs.chain([r#""\u0041""#.to_owned()]) {
            let json = format!(r#"{{"spec":{spec}}}"#);
            let object: Object<'_> = serde_json::from_str(&json).unwrap();
            assert!(Pod::decode("default", &object).is_err(), "{spec}");
        }
        let twice = serde_json::from_str::<Object<'_>>(r#"{"spec":{"volumes":null,"volumes":[]}}"#);
        assert!(twice.unwrap_err().to_string().contains("duplicate field `volumes`"));
    }
}
