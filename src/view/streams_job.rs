//! What is kept of a StreamsJob: its spec, and what follows from it alone.

pub mod closure;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::estate::Identity;
use crate::api;
use crate::api::streams_job::{StreamsJobSpec, StreamsJobStatus};
pub use closure::Closure;

/// A StreamsJob as a decision sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamsJob {
    /// Who it is.
    pub identity: Identity,
    /// What it asks for, or why that cannot be read.
    pub spec: Result<StreamsJobSpec, String>,
    /// Which of its processing elements share a host, and what each of them is asked of: made once
    /// here, so that the admission of a pod only looks it up.
    pub closure: Closure,
    /// What the controller last wrote.
    pub status: StreamsJobStatus,
}

impl StreamsJob {
    /// One that does not decode.
    #[must_use]
    pub fn unreadable(metadata: &ObjectMeta, problem: &str) -> Self {
        Self {
            identity: Identity::from(metadata),
            spec: Err(format!("cannot be read: {problem}")),
            closure: Closure::default(),
            status: StreamsJobStatus::default(),
        }
    }
}

impl From<&api::StreamsJob> for StreamsJob {
    fn from(job: &api::StreamsJob) -> Self {
        let identity = Identity::from(&job.metadata);
        let name = job.metadata.name.as_deref().unwrap_or_default();
        Self {
            closure: Closure::of(name, &identity.uid, &job.spec),
            identity,
            spec: Ok(job.spec.clone()),
            status: job.status.clone().unwrap_or_default(),
        }
    }
}
