//! Outcomes on a real control plane: workloads go through the real API server to the installed
//! webhook, and the real scheduler places them. Each test asserts on the nodes of its pods.
//!
//! `cargo test --test outcomes coschedule::moves` runs a part; the control planes that it does not
//! need are not started.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a harness fails and prints as tests do"
)]

#[path = "../common/crowd.rs"]
mod crowd;
mod harness;
#[path = "../common/streams_cases.rs"]
mod streams_cases;
#[path = "../common/streams_oracle.rs"]
mod streams_oracle;
mod world;

mod certificates;
mod cluster;
mod controller;
mod coschedule;
mod katalyst;
mod memory;
mod mpi;
mod oldest;
mod streams_jobs;
mod teardown;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut suites = vec![
        coschedule::suite(),
        controller::suite(),
        cluster::suite(),
        certificates::suite(),
        mpi::suite(),
        katalyst::suite(),
        streams_jobs::suite(),
    ];
    suites.extend(oldest::suites());
    harness::run(
        suites,
        &[
            ("teardown::what_stowplan_has_left_is_removed_and_nothing_else", || {
                Box::pin(teardown::what_stowplan_has_left_is_removed_and_nothing_else())
            }),
            ("memory::many_and_large_objects_fit_into_the_memory_limit", || {
                Box::pin(memory::many_and_large_objects_fit_into_the_memory_limit())
            }),
        ],
    )
}
