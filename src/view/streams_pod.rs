//! What is kept of a Streams pod: its group labels, its job and where it is.

use k8s_openapi::api::core::v1 as core;

/// The label that names a pod's job.
pub const JOB: &str = "streams.ibm.com/job";
/// The label that every Streams pod carries, and its value.
pub const APP: &str = "app";
/// The value of [`APP`] on a Streams pod.
pub const APP_VALUE: &str = "streams";
/// The prefix of the label key of a colocation token; its SHA-1 follows.
pub const COLOCATION_PREFIX: &str = "streams.ibm.com/hostcolocation.";

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
                .filter(|(key, _)| key.starts_with(COLOCATION_PREFIX))
                .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                .collect(),
        }
    }
}
