//! Coscheduling: pods of a group on one node with all their volumes. The groups of Tekton's runs
//! (TEP-0135, done outside Tekton), and groups of any pods of a namespace.

pub mod groups;
pub mod keys;
pub mod mode;

use super::System;

pub use keys::{GROUP, MODE};

/// The system.
pub const SYSTEM: System = System {
    name: "coschedule",
    keys: keys::ANNOTATIONS,
    request: None,
    claim: None,
    concerns: None,
    plan: None,
    enabled: |policy| policy.coschedule.enabled,
};
