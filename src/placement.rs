//! What a pod or a claim should get: intents, how they join with what it has, and the patch that says
//! so.
//!
//! Read [`intent`] first (the vocabulary), then [`merge`](merge::merge) (the rules), then [`patch`]
//! (how it is written). Nothing in here does I/O, reads a clock or knows a system.

pub mod affinity;
pub mod claim;
pub mod intent;
pub mod json;
pub mod merge;
pub mod patch;
pub mod pod;
pub mod reason;
pub mod record;
pub mod toleration;
