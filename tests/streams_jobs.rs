//! Random StreamsJobs on a real control plane, one after the other, each on nodes of its own: what is
//! possible runs whole, in whatever order its pods come and also after the loss of a node, and what is
//! impossible is refused with the reason. Decided by the oracle of the suite `streams_whole`.
//!
//! `STOWPLAN_JOBS` sets the number of jobs, `STOWPLAN_TEST_SEED` others than the default ones.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a harness fails and prints as tests do"
)]

#[path = "common/harness.rs"]
mod harness;
#[path = "common/streams_cases.rs"]
mod streams_cases;
#[path = "common/streams_oracle.rs"]
mod streams_oracle;
#[path = "common/world.rs"]
mod world;

mod streams_jobs {
    /// One job on its nodes.
    pub(crate) mod living;
    /// Random jobs.
    pub(crate) mod random;
}

use std::process::ExitCode;

use harness::{Case, cases};
use testbed::control_plane::{Install, NodeSpec};
use world::World;

const CASES: &[Case] = cases! { streams_jobs,
    random: every_possible_job_runs_whole;
};

fn main() -> ExitCode {
    let repairing = |install: Install| install.value("policy.repair", "recreatePending");
    harness::run(CASES, || World::start(NodeSpec::numbered(1), repairing))
}
