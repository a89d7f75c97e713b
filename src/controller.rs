//! The reconciler.

pub mod report;
