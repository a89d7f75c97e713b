//! The resources that MPI clusters read and write.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::view::resource::Resource;

/// A Service.
pub(crate) const SERVICE: Resource = Resource::namespaced::<core::Service>();
/// A ConfigMap.
pub(crate) const CONFIG_MAP: Resource = Resource::namespaced::<core::ConfigMap>();
/// A Secret.
pub(crate) const SECRET: Resource = Resource::namespaced::<core::Secret>();
/// A Job.
pub(crate) const JOB: Resource = Resource::namespaced::<Job>();
/// An EndpointSlice.
pub(crate) const ENDPOINT_SLICE: Resource = Resource::namespaced::<EndpointSlice>();
