//! Plans the changes that the controller makes for Streams: it judges each job as a whole, allocates
//! nodes to pools, creates the pools of jobs, holds the pods of jobs to the nodes that are reserved for
//! them, asks autoscalers for the nodes that are missing, and wakes pods that the scheduler does not try
//! again.

pub(crate) mod jobs;
mod placements;
mod pods;
mod pools;
mod scaling;
mod wake;

use k8s_openapi::jiff::Timestamp;

use crate::systems::plan::Plan;
use crate::systems::policy::Policy;
use crate::view::View;

/// Plans the changes that are due at `now`.
#[must_use]
pub fn plan(view: &View, policy: &Policy, now: Timestamp) -> Plan {
    let placements = placements::Placements::new(view, policy, now);
    let (mut plan, pools) = pools::plan(view, policy, &placements, now);
    plan.extend(jobs::plan(view, policy, &placements, now));
    plan.extend(pods::plan(view, policy, now));
    plan.extend(wake::plan(view, now));
    plan.extend(scaling::plan(view, policy, &placements, &pools));
    placements.recheck_at.into_iter().for_each(|at| plan.recheck_by(at));
    plan
}
