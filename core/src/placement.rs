//! The placement of a pod or a claim: intents, how they are combined with what it has, and the patch.
//!
//! Read [`intent`] first (the vocabulary), then [`merge`](merge::merge) (the rules), then [`patch`]
//! (how it is written). Nothing here does I/O, reads a clock or knows a system.

pub mod affinity;
pub mod claim;
pub(crate) mod container;
pub mod intent;
pub mod merge;
pub mod object;
pub(crate) mod patch;
pub mod pod;
pub mod reason;
pub mod record;
pub(crate) mod toleration;
