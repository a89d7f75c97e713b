//! The scheduler's report that it finds no node for a pod.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::Timestamp;

use crate::kubernetes::condition;

/// The part of the scheduler's message that says that required pod affinity was not met.
const NO_AFFINITY_MATCH: &str = "didn't match pod affinity rules";

/// Since when and why the scheduler finds no node for a pod.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Unschedulable {
    pub since: Timestamp,
    /// The scheduler's message.
    pub message: Box<str>,
}

impl Unschedulable {
    /// Reads the condition `PodScheduled` of a pod. `None` for a gated pod.
    pub(crate) fn read(pod: &core::Pod) -> Option<Self> {
        Self::with_reason(pod, &["Unschedulable"])
    }

    /// Reads it also if the scheduler found a node but could not bind the pod to it, usually because
    /// of a claim's volume.
    pub(crate) fn read_with_errors(pod: &core::Pod) -> Option<Self> {
        Self::with_reason(pod, &["Unschedulable", "SchedulerError"])
    }

    /// Returns true if some node was refused because the pod's required pod affinity was not met.
    pub(crate) fn lacks_affinity_match(&self) -> bool {
        self.message.contains(NO_AFFINITY_MATCH)
    }

    fn with_reason(pod: &core::Pod, reasons: &[&str]) -> Option<Self> {
        let condition = condition(pod, "PodScheduled")?;
        let reason = condition.reason.as_deref().unwrap_or_default();
        let has_reason = condition.status == "False" && reasons.contains(&reason);
        let since = condition.last_transition_time.as_ref().filter(|_| has_reason)?.0;
        Some(Self { since, message: condition.message.as_deref().unwrap_or_default().into() })
    }
}
