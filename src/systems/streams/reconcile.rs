//! Plans the changes that the controller makes for Streams: it allocates nodes to pools, creates
//! the pools of jobs, and wakes pods that the scheduler does not try again.

pub(crate) mod jobs;
mod pools;
mod wake;

use k8s_openapi::jiff::Timestamp;

use crate::systems::plan::Plan;
use crate::systems::policy::Policy;
use crate::view::View;

/// Plans the changes that are due at `now`.
#[must_use]
pub(crate) fn plan(view: &View, policy: &Policy, now: Timestamp) -> Plan {
    let mut plan = pools::plan(view, policy, now);
    plan.extend(jobs::plan(view, policy, now));
    plan.extend(wake::plan(view, now));
    plan
}
