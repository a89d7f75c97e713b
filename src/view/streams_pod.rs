//! What is kept of a Streams pod: its group labels, its job and where it is.

use k8s_openapi::api::core::v1 as core;

use super::estate::PodEstate;

/// The label that names a pod's job.
pub const JOB: &str = "streams.ibm.com/job";
/// The label that every Streams pod carries, and its value.
pub const APP: &str = "app";
/// The value of [`APP`] on a Streams pod.
pub const APP_VALUE: &str = "streams";
/// The prefix of the label key of a colocation token; its SHA-1 follows.
pub const COLOCATION_PREFIX: &str = "streams.ibm.com/hostcolocation.";

/// The label of the pods that a StreamsJob puts on one host; its value names the group.
pub const GROUP: &str = "stowplan.dev/colocation-group";
/// The label that names a pod's processing element.
pub const PROCESSING_ELEMENT: &str = "streams.ibm.com/pe";
/// The label by whose change the scheduler looks at a waiting pod again: when it was last woken, in
/// seconds since 1970.
pub const WAKE: &str = "stowplan.dev/wake";

/// When a pod was last woken, in seconds since 1970.
pub(super) fn woken(pod: &core::Pod) -> Option<i64> {
    pod.metadata.labels.as_ref()?.get(WAKE)?.parse().ok()
}

/// A pod of a Streams job.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StreamsPod {
    /// The label `streams.ibm.com/job`.
    pub job: Option<Box<str>>,
    /// The node it is bound to.
    pub node: Option<Box<str>>,
    /// Whether it has ended: it holds no place any more.
    pub finished: bool,
    /// Its colocation labels: key and value.
    pub colocation: Box<[(Box<str>, Box<str>)]>,
    /// What only the controller keeps.
    pub estate: Option<Box<PodEstate>>,
}

impl From<&core::Pod> for StreamsPod {
    fn from(pod: &core::Pod) -> Self {
        let labels = pod.metadata.labels.as_ref();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        Self {
            job: labels.and_then(|labels| labels.get(JOB)).map(|job| job.as_str().into()),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).map(Into::into),
            finished: matches!(phase, Some("Succeeded" | "Failed")),
            colocation: labels
                .into_iter()
                .flatten()
                .filter(|(key, _)| key.starts_with(COLOCATION_PREFIX) || *key == GROUP)
                .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                .collect(),
            estate: None,
        }
    }
}
