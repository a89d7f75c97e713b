//! The fields of a PersistentVolumeClaim that a decision reads, and the one change that it can get.
//!
//! The storage class of a claim can be chosen only when the claim is created: later it is immutable.
//! No other field of a claim is changed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use super::intent::{Change, Intent};
use super::object::{Members, Metadata, Object, Spec, decode_member};
use super::patch::{Editor, Patch};
use crate::wire::Text;

/// The annotation that named the class before there was a field. If present, even empty, it has
/// precedence over the field (Kubernetes, `GetPersistentVolumeClaimClass`).
pub const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// A claim that stowplan decides on.
#[derive(Debug)]
pub struct Claim<'a> {
    /// The namespace of the request; the one in the object's metadata may be missing or wrong.
    pub namespace: &'a str,
    /// Labels, annotations, owners.
    pub metadata: &'a Metadata<'a>,
    /// `spec.accessModes`, for example `ReadWriteOnce`.
    pub access_modes: Vec<Text<'a>>,
    /// `spec.volumeName`, unless empty: the volume that the claim's author has chosen.
    pub volume_name: Option<Text<'a>>,
    /// True if there is a `spec.selector`. Such a claim binds only to an existing volume.
    pub has_selector: bool,
    /// `spec.storageClassName`; `None` for absent and for null.
    storage_class_name: Option<Text<'a>>,
    /// True if there is a spec at all; hand-written reviews may lack it.
    has_spec: bool,
}

impl<'a> Claim<'a> {
    /// Decodes the spec of `object`.
    ///
    /// # Errors
    /// The JSON error if a field that stowplan reads has the wrong type, as in no valid claim.
    pub fn decode(namespace: &'a str, object: &'a Object<'a>) -> Result<Self, serde_json::Error> {
        let nothing = Members::default();
        let (spec, has_spec) = match &object.spec {
            Spec::Absent => (&nothing, false),
            Spec::Members(members) => (members, true),
            Spec::NoObject => return Err(serde::de::Error::custom("spec: not an object")),
        };
        let volume_name: Option<Text<'a>> = decode_member(spec.volume_name)?;
        let selector: Option<LabelSelector> = decode_member(spec.selector)?;
        Ok(Self {
            namespace,
            metadata: &object.metadata,
            access_modes: decode_member(spec.access_modes)?.unwrap_or_default(),
            volume_name: volume_name.filter(|name| !name.as_str().is_empty()),
            has_selector: selector.is_some(),
            storage_class_name: decode_member(spec.storage_class_name)?,
            has_spec,
        })
    }

    /// The effective storage class. Empty requests a volume without a class. `None`: the cluster has no
    /// default class, else it would have been filled in already.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        let field = self.storage_class_name.as_ref().map(Text::as_str);
        self.metadata.annotation(CLASS_ANNOTATION).or(field)
    }
}

/// The operations that give `claim` the changes in `intents`. Of several classes the first counts.
#[must_use]
pub fn merge(claim: &Claim<'_>, intents: &[Intent]) -> Patch {
    let mut editor = Editor::new(outline(claim));
    let wanted = intents.iter().find_map(|intent| match &intent.change {
        Change::StorageClass(class) => Some(class),
        _ => None,
    });
    if let Some(class) = wanted.filter(|class| claim.class() != Some(class)) {
        if claim.metadata.annotation(CLASS_ANNOTATION).is_some() {
            editor.set(&["metadata", "annotations", CLASS_ANNOTATION], class.as_str());
        }
        editor.set(&["spec", "storageClassName"], class.as_str());
    }
    editor.into_patch()
}

/// The part of the claim that operations can touch, without the values of annotations.
fn outline(claim: &Claim<'_>) -> Value {
    let mut document = json!({"metadata": {"annotations": {}}});
    if claim.has_spec {
        document["spec"] = json!({});
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_may_be_missing() {
        let objects = json!([
            {}, {"metadata": null, "spec": null}, {"spec": {"volumeName": ""}},
            {"spec": {"accessModes": null, "selector": null, "volumeName": null}},
        ]);
        for object in objects.as_array().unwrap() {
            let text = object.to_string();
            let object: Object<'_> = serde_json::from_str(&text).unwrap();
            let claim = Claim::decode("ci", &object).unwrap();
            assert_eq!(claim.class(), None, "{text}");
            assert!(claim.access_modes.is_empty() && !claim.has_selector);
            assert_eq!(claim.volume_name, None);
        }
    }

    #[test]
    fn a_wrong_type_is_an_error() {
        for spec in [
            json!({"storageClassName": ["fast"]}),
            json!({"accessModes": [7]}),
            json!({"volumeName": {}}),
            json!({"selector": []}),
        ] {
            let text = json!({"spec": spec}).to_string();
            let object: Object<'_> = serde_json::from_str(&text).unwrap();
            assert!(Claim::decode("ci", &object).is_err(), "{spec}");
        }
    }
}
