//! The identity and version of the object that a projection was read from.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

/// The identity of an object, and its version. Versions are not compared: rows that differ in nothing
/// else show the same.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// `metadata.uid`; empty for an object from a file without one.
    pub uid: Box<str>,
    /// `metadata.resourceVersion` unchanged, as a precondition for writes.
    pub resource_version: Box<str>,
    /// `metadata.generation`; 0 if it is absent.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// True if `metadata.deletionTimestamp` is set.
    pub deleting: bool,
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        let Self { uid, resource_version: _, generation, created, deleting } = self;
        (uid, generation, created, deleting)
            == (&other.uid, &other.generation, &other.created, &other.deleting)
    }
}

impl Eq for Identity {}

impl Identity {
    /// Returns true if `other` is the same object in a later version. Versions are compared as numbers,
    /// which Kubernetes guarantees since 1.35; if one is not a number, the result is false.
    #[must_use]
    pub fn is_older_than(&self, other: &Self) -> bool {
        let version = |identity: &Self| identity.resource_version.parse::<u64>().ok();
        self.uid == other.uid
            && match (version(self), version(other)) {
                (Some(own), Some(other)) => own < other,
                _ => false,
            }
    }
}

impl From<&ObjectMeta> for Identity {
    fn from(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            resource_version: metadata.resource_version.as_deref().unwrap_or_default().into(),
            generation: metadata.generation.unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}
