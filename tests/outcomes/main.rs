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
#[path = "../common/histories.rs"]
mod histories;
#[path = "../common/planned_cases.rs"]
mod planned_cases;
#[path = "../common/scheduling.rs"]
mod scheduling_questions;
#[path = "../common/streams_cases.rs"]
mod streams_cases;
#[path = "../common/streams_oracle.rs"]
mod streams_oracle;
mod world;

mod certificates;
mod cluster;
mod controller;
mod coschedule;
mod elastic;
mod katalyst;
mod memory;
mod mpi;
mod oldest;
mod queue;
mod scheduler;
mod streams_jobs;
mod teardown;

use std::process::ExitCode;

use anyhow::Result;
use testbed::control_plane::{NodeSpec, Options};
use testbed::tools::Kubernetes;

use harness::{Part, Suite};
use world::World;

/// One control plane for all cases that can share it: each works in namespaces and on nodes of its
/// own. Another one is needed only where a case takes stowplan, the policy or the nodes from under the
/// others, or needs other flags; each says why.
fn main() -> ExitCode {
    let shared = [coschedule::CASES, controller::CASES, katalyst::CASES, mpi::CASES].concat();
    // Each holds the installation alone, so they take turns on a control plane of their own.
    let groups_alone = [coschedule::ALONE, katalyst::ALONE].concat();
    let [oldest_cluster, oldest_others] = oldest::suites();
    let [queue, queue_ready] = queue::suites();
    // In the order in which they get a control plane. Those that take longest come first.
    harness::run(vec![
        Part::Suite(Suite {
            cases: Vec::new(),
            alone: groups_alone,
            at_once: 1,
            kubernetes: Kubernetes::Newest,
            start: || Box::pin(start()),
        }),
        Part::Suite(Suite {
            cases: shared,
            alone: Vec::new(),
            at_once: 12,
            kubernetes: Kubernetes::Newest,
            start: || Box::pin(start()),
        }),
        Part::Suite(controller::suite_alone()),
        Part::Lone("memory::many_and_large_objects_fit_into_the_memory_limit", || {
            Box::pin(memory::many_and_large_objects_fit_into_the_memory_limit())
        }),
        Part::Suite(elastic::suite()),
        Part::Suite(queue),
        Part::Suite(queue_ready),
        Part::Suite(streams_jobs::suite()),
        Part::Suite(certificates::suite()),
        Part::Suite(cluster::suite()),
        Part::Lone("teardown::what_stowplan_has_left_is_removed_and_nothing_else", || {
            Box::pin(teardown::what_stowplan_has_left_is_removed_and_nothing_else())
        }),
        Part::Lone("scheduler::random_questions_are_answered_as_predicted", || {
            Box::pin(scheduler::newest())
        }),
        Part::Lone("oldest::scheduler::random_questions_are_answered_as_predicted", || {
            Box::pin(scheduler::oldest())
        }),
        Part::Suite(oldest_others),
        Part::Suite(oldest_cluster),
    ])
}

/// Starts what the suites of coscheduling, controller, Katalyst and MPI need, which have nothing of
/// the policy in common.
async fn start() -> Result<World> {
    // The numbered ones are for the workers of MPI clusters. Volumes need to know a node's zone.
    let workers = NodeSpec::numbered(12).into_iter().map(|node| node.zone("east"));
    let nodes = coschedule::nodes().into_iter().chain(workers).collect();
    let options = Options { nodes, ..Options::default() };
    let change = |install| katalyst::rig::enforced(controller::repairing(install));
    let world = coschedule::start_with(options, change).await?;
    // Defined after the controller has started.
    testbed::katalyst::define(&world.client).await?;
    Ok(world)
}
