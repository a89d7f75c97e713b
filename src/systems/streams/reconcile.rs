//! What Streams wants changed in the cluster: the nodes of pools, the pools of jobs, and pods that
//! the scheduler has forgotten.

pub mod jobs;
mod pools;
mod wake;

use k8s_openapi::jiff::Timestamp;

use crate::policy::Policy;
use crate::systems::plan::Plan;
use crate::view::View;

/// What is to be done now.
#[must_use]
pub fn plan(view: &View, policy: &Policy, now: Timestamp) -> Plan {
    let mut plan = pools::plan(view, policy, now);
    plan.extend(jobs::plan(view, policy, now));
    plan.extend(wake::plan(view, now));
    plan
}
