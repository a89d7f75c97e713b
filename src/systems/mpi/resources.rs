//! The resources that MPI clusters read and write.

use crate::view::resource::Resource;

/// A Service.
pub(crate) const SERVICE: Resource = core("Service", "services");
/// A ConfigMap.
pub(crate) const CONFIG_MAP: Resource = core("ConfigMap", "configmaps");
/// A Secret.
pub(crate) const SECRET: Resource = core("Secret", "secrets");
/// A Job.
pub(crate) const JOB: Resource = in_group("batch", "Job", "jobs");
/// An EndpointSlice.
pub(crate) const ENDPOINT_SLICE: Resource =
    in_group("discovery.k8s.io", "EndpointSlice", "endpointslices");

const fn core(kind: &'static str, plural: &'static str) -> Resource {
    in_group("", kind, plural)
}

const fn in_group(group: &'static str, kind: &'static str, plural: &'static str) -> Resource {
    Resource { group, version: "v1", kind, plural, namespaced: true }
}
