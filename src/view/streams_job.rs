//! What is kept of a StreamsJob.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::estate::Identity;
use crate::api;
use crate::api::streams_job::{StreamsJobSpec, StreamsJobStatus};

/// A StreamsJob as a decision sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamsJob {
    /// Who it is.
    pub identity: Identity,
    /// What it asks for, or why that cannot be read.
    pub spec: Result<StreamsJobSpec, String>,
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
            status: StreamsJobStatus::default(),
        }
    }
}

impl From<&api::StreamsJob> for StreamsJob {
    fn from(job: &api::StreamsJob) -> Self {
        Self {
            identity: Identity::from(&job.metadata),
            spec: Ok(job.spec.clone()),
            status: job.status.clone().unwrap_or_default(),
        }
    }
}
