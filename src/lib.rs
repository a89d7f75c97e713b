//! stowplan: placement of batch and streaming workloads on Kubernetes with the stock scheduler.
//!
//! Decisions are in the package `stowplan-core`; here is what reads a cluster, answers the API server
//! and carries out the plans.
//!
//! # Dependency rule
//! `cli → server, controller → cluster, tls → telemetry`. Nothing points back.
//! `tests/offline/purity.rs` checks it.

#![allow(
    missing_docs,
    reason = "the crate is a program: nothing but tests uses what `testing` lets out"
)]

mod cli;
mod cluster;
mod controller;
mod server;
mod telemetry;
#[doc(hidden)]
pub mod testing;
mod tls;

pub use cli::run;
