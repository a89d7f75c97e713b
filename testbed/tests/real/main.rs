//! Pods that run, on real nodes: the nodes themselves, MPI, groups, and stowplan in pods under load; and the image
//! of stowplan.
//!
//! These take minutes and need root, so they run only with `STOWPLAN_REAL_NODES=1`, and without it are
//! listed as left out.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a harness fails and prints as tests do"
)]

mod groups;
mod image;
mod mpi;
mod nodes;
mod service;
mod stowplan_image;
mod suite;

use std::process::ExitCode;

/// Runs the suites one after the other: a machine has one cluster of real nodes at a time.
fn main() -> ExitCode {
    let codes = [nodes::run(), mpi::run(), service::run()];
    codes.into_iter().find(|code| *code != ExitCode::SUCCESS).unwrap_or(ExitCode::SUCCESS)
}
