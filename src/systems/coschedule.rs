//! Coscheduling: pods of a group on one node with all their volumes. The groups of Tekton's runs
//! (TEP-0135, done outside Tekton), and groups of any pods of a namespace.
//!
//! For each group the controller makes a placeholder: a pod that takes next to nothing and mounts all
//! claims of the group, so that the scheduler finds a node for them together. The group's pods follow
//! it. [`groups`] says what the groups of a run are, [`native`] what those of other pods are; [`member`]
//! is what a pod gets at admission, `claims` what a claim gets. [`family`] knows a run by all that it made. [`placeholder`] says what a placeholder
//! is made of, [`reconcile`] when it comes, moves and goes.

mod claims;
pub mod family;
pub mod groups;
pub mod keys;
pub mod member;
pub mod mode;
pub mod native;
pub mod placeholder;
pub mod reconcile;

use super::System;

pub use claims::sibling;
pub use keys::{GROUP, MODE};

/// The system.
pub const SYSTEM: System = System {
    name: NAME,
    keys: keys::ANNOTATIONS,
    request: Some(member::request),
    claim: Some(claims::request),
    concerns: Some(member::concerns),
    plan: Some(reconcile::plan),
    enabled: |policy| policy.coschedule.enabled,
};

const NAME: &str = "coschedule";
