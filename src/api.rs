//! The objects of our own API group, `stowplan.dev`.
//!
//! The chart carries their definitions as `stowplan crds` prints them; a test compares the two.

pub mod condition;
pub mod host_pool;
pub mod streams_job;

pub use condition::Condition;
pub use host_pool::HostPool;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
pub use streams_job::StreamsJob;

/// Group and version of our objects.
pub const VERSION: &str = "stowplan.dev/v1alpha1";

/// The definitions of all our objects.
#[must_use]
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![host_pool::definition(HostPool::crd()), streams_job::definition(StreamsJob::crd())]
}
