//! The annotation keys, label keys and taints of IBM Streams on Kubernetes.

pub(crate) use crate::systems::streams::kinds::host_pool::{
    EXCLUSIVE_EFFECT, EXCLUSIVE_TAINT, EXCLUSIVE_TAINTS, FORMER_EXCLUSIVE_TAINT, POOL_LABEL_PREFIX,
    pool_label,
};
pub(crate) use crate::systems::streams::kinds::scaling::{SCALES_FOR, SCALING};
pub(crate) use crate::systems::streams::kinds::streams_pod::{
    COLOCATION_PREFIX as COLOCATION_LABEL_PREFIX, GROUP, JOB, PROCESSING_ELEMENT,
};

/// The prefix of the annotations of IBM Streams.
pub(crate) const PREFIX: &str = "streams.ibm.com/";

/// `host("name")`, `host("address")`.
pub(crate) const HOST: &str = "streams.ibm.com/host";
/// `host(Pool)`, `host(Pool[5])`.
pub(crate) const HOST_POOL: &str = "streams.ibm.com/host-pool";
/// `hostColocation("token")`.
pub(crate) const HOST_COLOCATION: &str = "streams.ibm.com/host-colocation";
/// `hostExlocation("token")`.
pub(crate) const HOST_EXLOCATION: &str = "streams.ibm.com/host-exlocation";
/// `hostIsolation`, on the operator that the value names.
pub(crate) const HOST_ISOLATION: &str = "streams.ibm.com/host-isolation";
/// The enforcement of colocation, exlocation and isolation: required or preferred.
pub(crate) const HOST_ENFORCEMENT: &str = "streams.ibm.com/host-enforcement";
/// The StreamsJob that a pod's constraints come from.
pub(crate) const STREAMS_JOB: &str = "stowplan.dev/streams-job";

/// The beginning of the entry in a pod's record that says how its job's reserved nodes restrict it.
pub(crate) const RESERVED: &str = "reserved=";
/// The beginnings of the entries in a pod's record that say that it is kept apart from others.
pub(crate) const EXLOCATED: &str = "host-exlocation=";
pub(crate) const ISOLATED: &str = "host-isolation=";

/// The scheduling gate of pods of a StreamsJob that has no recorded placement yet.
pub(crate) const GATE: &str = "stowplan.dev/streams-job";

/// Every annotation of a pod that this system reads. The constraints come first.
pub(crate) const ANNOTATIONS: &[&str] = &[
    HOST,
    HOST_POOL,
    HOST_COLOCATION,
    HOST_EXLOCATION,
    HOST_ISOLATION,
    HOST_ENFORCEMENT,
    STREAMS_JOB,
];

/// The prefix of the label key of an exlocation token; its SHA-1 follows.
pub(crate) const EXLOCATION_LABEL_PREFIX: &str = "streams.ibm.com/hostexlocation.";
/// The prefix of the label key by which `compat: upstream` keeps the other elements of a job off
/// the node of an isolated operator; the SHA-1 of the operator's name follows.
pub(crate) const ISOLATION_LABEL_PREFIX: &str = "streams.ibm.com/hostisolation.";
