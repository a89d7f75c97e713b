//! Clusters that grow: pods that wait for a node get one from Karpenter, and it is of the right size.
//!
//! The real Karpenter runs, with its provider of simulated nodes, so these cases are not part of a plain
//! `cargo test`: `STOWPLAN_AUTOSCALER=1` adds those that end within seconds, `STOWPLAN_AUTOSCALER=all` all of
//! them. The policy is the default one, but for `streams.unmet: wait`: what a user waits for, they wait for.

mod lane;

/// Groups of pods, with and without Tekton.
pub(crate) mod groups;
/// Pods with host constraints, and MPI clusters.
pub(crate) mod hosts;
/// Many runs at once, and nodes that are removed again.
pub(crate) mod long;

use anyhow::Result;
use testbed::control_plane::{Install, Options};
use testbed::karpenter;
use testbed::tools::Kubernetes;

use crate::coschedule;
use crate::harness::{Case, Suite, cases};
use crate::world::World;

const CASES: &[Case] = cases! { elastic,
    groups:
        a_run_gets_one_node, a_run_on_an_empty_cluster_gets_one_node,
        a_task_that_is_larger_than_the_node, a_task_that_is_larger_than_all_nodes,
        an_isolated_run_gets_a_node_of_its_own, two_deployments_of_a_group,
        the_node_is_in_the_zone_of_the_claim;
    hosts:
        a_job_that_lacks_nodes, a_pool_that_lacks_nodes, elements_apart, an_element_alone,
        workers_and_their_launcher;
};

const LONG: &[Case] = cases! { elastic,
    hosts: an_exclusive_pool_and_other_pods;
    long:
        many_runs_at_once, a_group_whose_node_is_lost, a_group_keeps_its_node_between_two_tasks,
        a_task_is_not_evicted_to_save_a_node;
};

/// On a control plane of its own: Karpenter answers every pod that waits for a node.
pub(crate) fn suite() -> Suite {
    let cases = match std::env::var("STOWPLAN_AUTOSCALER").as_deref() {
        Ok("all") => [CASES, LONG].concat(),
        Ok("" | "0") | Err(_) => Vec::new(),
        Ok(_) => CASES.to_vec(),
    };
    Suite {
        cases,
        alone: Vec::new(),
        at_once: 4,
        kubernetes: Kubernetes::Newest,
        start: || Box::pin(start()),
    }
}

async fn start() -> Result<World> {
    let options = Options { nodes: coschedule::nodes(), ..Options::default() };
    let unmet = |install: Install| install.value("policy.streams.unmet", "wait");
    let world = coschedule::with_tekton(World::start_with(options, unmet).await?).await?;
    karpenter::start(&world.plane).await?;
    Ok(world)
}
