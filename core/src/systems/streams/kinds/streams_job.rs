//! The table of StreamsJobs: each with its spec, and the closure that is derived from the spec.

pub mod closure;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::systems::streams::api;
use crate::systems::streams::api::streams_job::{StreamsJobSpec, StreamsJobStatus};
use crate::view::rows::{Rows, TableRow};
use crate::view::table::Definition;
use crate::view::{Identity, Kind, Scope};
use closure::Closure;

use crate::systems::streams::resources::STREAMS_JOB;

pub(crate) const STREAMS_JOBS: Kind = Kind {
    definition: Definition::Own,
    without: Some("decisions assume that there are no jobs"),
    across_namespaces: true,
    ..Kind::built_in(STREAMS_JOB)
};

/// The fields of a StreamsJob that decisions read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StreamsJob {
    pub identity: Identity,
    /// The spec, or why it cannot be read, as the end of a sentence that begins with the job.
    pub spec: Result<StreamsJobSpec, String>,
    /// The units of processing elements that share a host, and their constraints. Computed once
    /// here, so that the admission of a pod only looks them up.
    pub closure: Closure,
    pub status: StreamsJobStatus,
    /// The nodes that the status reserves, by the index of the unit.
    pub reserved: BTreeMap<usize, Box<str>>,
}

impl From<&api::StreamsJob> for StreamsJob {
    fn from(job: &api::StreamsJob) -> Self {
        let identity = Identity::from(&job.metadata);
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let closure = Closure::of(name, &identity.uid, &job.spec);
        let status = job.status.clone().unwrap_or_default();
        let mut reserved = BTreeMap::new();
        for node in status.witness.iter().flat_map(|witness| &witness.nodes) {
            let elements = node.processing_elements.iter();
            let units = elements.filter_map(|of| closure.unit_index(closure.element(of)?));
            reserved.extend(units.map(|unit| (unit, node.name.as_str().into())));
        }
        Self { closure, identity, spec: Ok(job.spec.clone()), status, reserved }
    }
}

pub(crate) type StreamsJobs = Rows<StreamsJob>;

impl TableRow for StreamsJob {
    type Object = api::StreamsJob;
    const KIND: &'static Kind = &STREAMS_JOBS;
    const COUNTED_AS: Option<&'static str> = Some("streamsjobs");

    fn from_object(job: &api::StreamsJob, _: Scope) -> Option<Self> {
        Some(Self::from(job))
    }

    fn from_unreadable(metadata: &ObjectMeta, problem: &str) -> Option<Self> {
        Some(Self {
            identity: Identity::from(metadata),
            spec: Err(format!("cannot be read: {problem}")),
            closure: Closure::default(),
            status: StreamsJobStatus::default(),
            reserved: BTreeMap::new(),
        })
    }

    fn identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }
}
