//! The vocabulary of IBM Streams on Kubernetes.

pub use crate::view::host_pool::{EXCLUSIVE_TAINT, POOL_LABEL_PREFIX};
pub use crate::view::streams_pod::{
    COLOCATION_PREFIX as COLOCATION_LABEL_PREFIX, GROUP, JOB, PROCESSING_ELEMENT, WAKE,
};

/// What the annotations begin with.
pub const PREFIX: &str = "streams.ibm.com/";

/// `host("name")`, `host("address")`.
pub const HOST: &str = "streams.ibm.com/host";
/// `host(Pool)`, `host(Pool[5])`.
pub const HOST_POOL: &str = "streams.ibm.com/host-pool";
/// `hostColocation("token")`.
pub const HOST_COLOCATION: &str = "streams.ibm.com/host-colocation";
/// `hostExlocation("token")`.
pub const HOST_EXLOCATION: &str = "streams.ibm.com/host-exlocation";
/// `hostIsolation`, on the operator that the value names.
pub const HOST_ISOLATION: &str = "streams.ibm.com/host-isolation";
/// Whether colocation, exlocation and isolation are required or preferred.
pub const HOST_ENFORCEMENT: &str = "streams.ibm.com/host-enforcement";
/// The StreamsJob that a pod's constraints come from.
pub const STREAMS_JOB: &str = "stowplan.dev/streams-job";

/// All annotations.
pub const ANNOTATIONS: &[&str] = &[
    HOST,
    HOST_POOL,
    HOST_COLOCATION,
    HOST_EXLOCATION,
    HOST_ISOLATION,
    HOST_ENFORCEMENT,
    STREAMS_JOB,
];

/// The prefix of the label key of an exlocation token; its SHA-1 follows.
pub const EXLOCATION_LABEL_PREFIX: &str = "streams.ibm.com/hostexlocation.";
/// The prefix of the label key by which `compat: upstream` keeps the other elements of a job away from an
/// isolated operator; the SHA-1 of the operator's name follows.
pub const ISOLATION_LABEL_PREFIX: &str = "streams.ibm.com/hostisolation.";
