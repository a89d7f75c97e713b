//! The reconciler of NUMA affinity: keeps the label of nodes true, and removes the gates of pods for which
//! a NUMA node is feasible.
//!
//! [`label`]: the nodes. [`gates`]: the pods, under the mode enforced.

mod gates;
mod label;
#[cfg(test)]
mod tests;

use k8s_openapi::jiff::Timestamp;

use crate::systems::View;
use crate::systems::plan::Plan;
use crate::systems::policy::Policy;

/// The reasons of events, stable words.
mod reason {
    /// The gate is removed: a NUMA node is feasible.
    pub(super) const FEASIBLE: &str = "NumaFeasible";
    /// The gate is removed: the pod is the first of its group.
    pub(super) const LEADER: &str = "NumaLeader";
    /// No NUMA node is feasible yet.
    pub(super) const WAITING: &str = "NumaWaiting";
    /// The gate is removed although no NUMA node is feasible.
    pub(super) const DEADLINE: &str = "NumaDeadline";
    /// The gate is removed: the policy does not ask for it any more.
    pub(super) const GATE_LIFTED: &str = "GateLifted";
    /// A node loses its label although it has a CustomNodeResource.
    pub(super) const UNUSABLE: &str = "NumaUnusable";
    /// A part of a CustomNodeResource cannot be read.
    pub(super) const UNREADABLE: &str = "UnreadableNodeResource";
}

/// The reasons of events about states.
const LASTING: &[&str] = &[reason::WAITING, reason::UNREADABLE];

/// Plans the changes for all nodes and pods.
pub(super) fn plan(view: &View, policy: &Policy, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    label::plan(view, policy, &mut plan);
    gates::plan(view, policy, now, &mut plan);
    plan
}
