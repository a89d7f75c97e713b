//! Random StreamsJobs on a real control plane, one after the other, each on nodes of its own: what is
//! possible runs whole, in whatever order its pods come and also after the loss of a node, and what is
//! impossible is refused with the reason. Decided by the oracle of the suite `streams_whole`.
//!
//! `STOWPLAN_JOBS` sets the number of jobs, `STOWPLAN_TEST_SEED` others than the default ones.

/// One job on its nodes.
pub(crate) mod living;
/// Random objects, planned and sent.
pub(crate) mod planned;
/// Random jobs.
pub(crate) mod random;

use crate::controller::repairing;
use crate::harness::{Case, Suite, cases};
use crate::world::World;
use testbed::control_plane::NodeSpec;
use testbed::tools::Kubernetes;

const CASES: &[Case] = cases! { streams_jobs,
    planned: plan_says_what_the_api_server_says;
    random: every_possible_job_runs_whole;
};

/// On a control plane of its own: its pools may take any node.
pub(crate) fn suite() -> Suite {
    Suite {
        cases: CASES.to_vec(),
        alone: Vec::new(),
        at_once: 1,
        kubernetes: Kubernetes::Newest,
        start: || Box::pin(World::start(NodeSpec::numbered(1), repairing)),
    }
}
