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
use serde_json::{Value, json};

use crate::api;
use crate::systems::View;
use crate::systems::plan::Plan;
use crate::systems::policy::Policy;
use crate::systems::streams::kinds::{PendingPod, PodDetails};
use crate::view::{Identity, Name, Resource};

/// Plans the changes that are due at `now`.
#[must_use]
pub fn plan<'v>(view: &'v View, policy: &'v Policy, now: Timestamp) -> Plan {
    let placements = placements::Placements::new(view, policy, now);
    let (mut plan, pools) = pools::plan(view, policy, &placements, now);
    plan.extend(jobs::plan(view, policy, &placements, now));
    plan.extend(pods::plan(view, policy, now));
    plan.extend(wake::plan(view, now));
    plan.extend(scaling::plan(view, policy, &placements, &pools));
    placements.recheck_at.into_iter().for_each(|at| plan.recheck_by(at));
    plan
}

/// Returns the pods that have no node, and may still get one.
fn pending_pods(view: &View) -> impl Iterator<Item = (&Name, &PodDetails, &PendingPod)> {
    let pods = view.pods().filter(|(_, pod)| !pod.finished && !pod.identity.deleting);
    pods.filter_map(|(name, pod)| Some((name, pod, pod.pending.as_deref()?)))
}

/// A colocation group: the namespace, and the key and the value of its label.
type Group<'v> = (&'v str, &'v str, &'v str);

/// Returns the colocation groups of a pod.
fn groups<'v>(name: &'v Name, pod: &'v PodDetails) -> impl Iterator<Item = Group<'v>> {
    pod.groups.iter().map(|(key, value)| (&*name.namespace, &**key, &**value))
}

/// Builds the owner references of an object that belongs to this one. Without `blockOwnerDeletion`, which
/// would require more permissions.
fn controlled_by(owner: Resource, name: &Name, identity: &Identity) -> Value {
    json!([{
        "apiVersion": api::VERSION,
        "kind": owner.kind,
        "name": *name.name,
        "uid": identity.uid,
        "controller": true,
    }])
}
