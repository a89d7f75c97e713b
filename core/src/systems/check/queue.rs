//! Kueue's Workloads, which say whether a queue admits pods, and why not.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::Deserialize;

use crate::kubernetes::{domain, gates};

/// The API group of Kueue's kinds.
pub const GROUP: &str = "kueue.x-k8s.io";

/// The versions in which Workloads are read, the preferred one first.
pub const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// The kind of the objects.
pub const KIND: &str = "Workload";

/// The labels of a pod that name its Workload: that of a group of pods, or one that is made in advance.
const NAMED_BY: [&str; 2] =
    ["kueue.x-k8s.io/prebuilt-workload-name", "kueue.x-k8s.io/pod-group-name"];

/// The conditions that keep a Workload from running, with the status with which they do.
const OBSTACLES: [(&str, &str); 4] =
    [("QuotaReserved", "False"), ("Admitted", "False"), ("Evicted", "True"), ("Requeued", "False")];

/// An object that Kueue admits as a whole: a pod, or a group of pods.
#[derive(Debug, Default, Deserialize)]
pub struct Workload {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    queue_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Status {
    conditions: Option<Vec<Condition>>,
}

impl Workload {
    /// Returns true if a pod is part of it.
    pub(super) fn has(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.as_ref();
        let named = NAMED_BY.iter().find_map(|key| labels?.get(*key));
        let mut owners = self.metadata.owner_references.iter().flatten();
        let default = Some("default");
        let of = |metadata: &ObjectMeta| metadata.namespace.clone();
        of(&self.metadata).as_deref().or(default) == of(&pod.metadata).as_deref().or(default)
            && (named.is_some() && named == self.metadata.name.as_ref()
                || owners.any(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref()))
    }

    /// Returns its name.
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns the newest of the conditions that keep it from running.
    fn obstacle(&self) -> Option<&Condition> {
        let all = self.status.conditions.iter().flatten();
        let keeps = |of: &&Condition| OBSTACLES.contains(&(&*of.type_, &*of.status));
        all.filter(keeps).max_by_key(|of| of.last_transition_time.0)
    }
}

impl fmt::Display for Workload {
    /// Formats its name, its queue and the condition that keeps it from running.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{KIND} {}", self.name())?;
        if let Some(queue) = &self.spec.queue_name {
            write!(formatter, " in queue {queue}")?;
        }
        match self.obstacle() {
            Some(Condition { type_, status, message, .. }) => {
                write!(formatter, ": {type_} is {status}: {message}")
            }
            None => formatter.write_str(": no condition keeps it from running"),
        }
    }
}

/// Returns true if a gate of Kueue's holds a pod.
#[must_use]
pub fn is_queued(pod: &Pod) -> bool {
    gates(pod).any(|gate| domain(gate) == Some(GROUP))
}
