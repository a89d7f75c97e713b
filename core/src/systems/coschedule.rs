//! Coscheduling: places the pods of a group on one node that can mount all their volumes. Groups are
//! those of Tekton's runs (TEP-0135, implemented outside Tekton), and native groups of any pods of a
//! namespace.
//!
//! For each group the controller creates a placeholder: a StatefulSet with one pod, which mounts all claims
//! of the group and reserves the room of its later pods, so that the scheduler finds a node for all of them.
//! The group's pods, its members, follow it.
//!
//! [`groups`] finds the groups of a run, [`native`] those of other pods. [`member`] decides about pods
//! at admission, `claims` about claims. [`family`] finds the objects that belong to a run.
//! [`placeholder`] writes the StatefulSet by a [`pod_plan`], with the [`record`] of its group. [`reconcile`]
//! creates, moves and deletes it.

pub(crate) mod check;
mod claims;
pub(crate) mod family;
pub(crate) mod groups;
mod installation;
pub mod keys;
pub mod kinds;
mod map;
pub(crate) mod member;
pub(crate) mod mode;
pub(crate) mod native;
pub(crate) mod one_node;
pub(crate) mod owner;
pub(crate) mod placeholder;
pub(crate) mod pod_plan;
pub(crate) mod policy;
mod preview;
pub(crate) mod reconcile;
pub(crate) mod record;
pub mod resources;
pub(crate) mod volumes;

pub use volumes::of_claims;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Diagnostics, Gate, PodOwner, Reconciler, System, Traces};
use crate::view::Owner;
use crate::view::resource::{NAMESPACE, NODE, POD, STATEFUL_SET};
use resources::{CLAIM, PIPELINE, PIPELINE_RUN, STORAGE_CLASS, TASK, TASK_RUN, VOLUME};

/// The system.
pub(crate) const SYSTEM: System = System {
    name: NAME,
    keys: keys::ANNOTATIONS,
    prefixes: &[],
    gates: &[
        Gate {
            name: keys::GATE,
            until: "its placeholder has a node",
            is_last: false,
            remedy: |_| {
                "see the placeholder, below; stowplan's controller lifts the gate".to_owned()
            },
        },
        Gate {
            name: keys::CLAIMS_GATE,
            until: "the pods that mount its claims are on one node",
            is_last: false,
            remedy: |_| "see its claims, below; stowplan's controller removes the gate".to_owned(),
        },
    ],
    request: member::request,
    claim: Some(claims::request),
    concerns: Some(owner::concerns),
    traces: Traces { objects: &[(STATEFUL_SET, keys::PLACEHOLDER)], ..Traces::NONE },
    together: &[keys::MEMBER, keys::CLAIM_PREFIX],
    enabled: |policy| policy.coschedule.enabled,
};

/// The system for the controller.
pub(crate) const RECONCILER: Reconciler = Reconciler {
    name: NAME,
    plan: reconcile::plan,
    reads: &[
        NODE,
        NAMESPACE,
        POD,
        STATEFUL_SET,
        PIPELINE_RUN,
        PIPELINE,
        TASK_RUN,
        TASK,
        CLAIM,
        VOLUME,
        STORAGE_CLASS,
    ],
};

/// The system for the command line.
pub(crate) const DIAGNOSTICS: Diagnostics = Diagnostics {
    system: &SYSTEM,
    previews: preview::KINDS,
    checks: check::KINDS,
    check_pod: Some(check::check_pod),
    check_node: None,
    map: map::map,
    installation: installation::INSTALLATION,
};

pub(crate) const NAME: &str = "coschedule";

/// Finds the TaskRun of a pod. Such a pod has none of stowplan's keys, but can belong to a group.
pub fn find_pod_owner(metadata: &ObjectMeta) -> Option<PodOwner> {
    let kind = TASK_RUN.kind;
    Owner::of_tekton(metadata, kind).map(|_| PodOwner { kind, fails_with_pod: true })
}
