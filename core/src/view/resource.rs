//! Names a kind of objects as the API server does.

use std::fmt;

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope, Resource as BuiltIn};
use kube_core::GroupVersionKind;
use kube_core::discovery::ApiResource;

/// A kind of objects at the API server. Resources are ordered by their groups and plural names.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The plural name in paths and metrics, such as `statefulsets`.
    pub plural: &'static str,
    /// The version for writes and references, such as `v1`.
    pub version: &'static str,
    /// The kind, such as `StatefulSet`.
    pub kind: &'static str,
    /// True if the objects are in namespaces.
    pub namespaced: bool,
}

pub const NODE: Resource = Resource::cluster_wide::<core::Node>();
pub const NAMESPACE: Resource = Resource::cluster_wide::<core::Namespace>();
pub const POD: Resource = Resource::namespaced::<core::Pod>();
pub const STATEFUL_SET: Resource = Resource::namespaced::<apps::StatefulSet>();

impl Resource {
    /// The resource of a kind of Kubernetes whose objects are in namespaces.
    #[must_use]
    pub(crate) const fn namespaced<K: BuiltIn<Scope = NamespaceResourceScope>>() -> Self {
        Self { namespaced: true, ..Self::built_in::<K>() }
    }

    /// The resource of a kind of Kubernetes whose objects are in no namespace.
    #[must_use]
    pub(crate) const fn cluster_wide<K: BuiltIn<Scope = ClusterResourceScope>>() -> Self {
        Self::built_in::<K>()
    }

    const fn built_in<K: BuiltIn>() -> Self {
        Self {
            group: K::GROUP,
            version: K::VERSION,
            kind: K::KIND,
            plural: K::URL_PATH_SEGMENT,
            namespaced: false,
        }
    }

    /// `apiVersion` as in objects, such as `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The resource for a client of the API server.
    #[must_use]
    pub fn api_resource(&self) -> ApiResource {
        let of_version = GroupVersionKind::gvk(self.group, self.version, self.kind);
        ApiResource::from_gvk_with_plural(&of_version, self.plural)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind)
    }
}
