//! The oldest Kubernetes that stowplan serves: a part of the other suites on its API server, its
//! scheduler and its controller manager, with the chart and its admission policies.
//!
//! The other suites run on the newest. What is chosen here uses the API in every way that stowplan
//! does: both webhooks, the rules of the definitions, node and pod affinity, labels and taints of nodes,
//! the removal of scheduling gates, placeholders with claims.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a harness fails and prints as tests do"
)]

#[path = "common/harness.rs"]
mod harness;
#[path = "common/world.rs"]
mod world;

#[path = "cluster/admission.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod admission;
#[path = "coschedule/constraints.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod constraints;
#[path = "coschedule/group.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod group;
#[path = "cluster/host_pool.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod host_pool;
#[path = "cluster/hosts.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod hosts;
#[path = "coschedule/modes.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod modes;
#[path = "coschedule/native.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod native;
#[path = "controller/nodes.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod nodes;
#[path = "coschedule/pipeline.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod pipeline;
#[path = "controller/pool.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod pool;
#[path = "controller/pools.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod pools;
#[path = "controller/ready.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod ready;
#[path = "oldest/release.rs"]
mod release;
#[path = "coschedule/runs.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod runs;
#[path = "cluster/streams.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod streams;
#[path = "cluster/streams_job.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod streams_job;
#[path = "controller/whole.rs"]
#[allow(dead_code, reason = "a part of a suite")]
mod whole;

/// The cases are called as in their suites.
mod oldest {
    pub(crate) use crate::release;
}

mod cluster {
    pub(crate) use crate::{admission, host_pool, streams, streams_job};
}

mod controller {
    pub(crate) use crate::{pools, ready, whole};
}

mod coschedule {
    pub(crate) use crate::{constraints, modes, native, runs};
}

use std::process::ExitCode;

use harness::{Case, cases};
use testbed::control_plane::{Install, NodeSpec, Options};
use testbed::tekton::Tekton;
use testbed::tools::Kubernetes;
use testbed::volumes::Volumes;
use world::World;

/// Without a controller, because these create pools that it would serve.
const CLUSTER: &[Case] = cases! { cluster,
    streams:
        host_by_name, host_by_address, tagged_pool, literal_pool_and_index, colocation_of_three,
        exlocation_of_three_and_a_fourth, isolation_when_the_isolated_comes_last, node_name_is_released;
    admission:
        refusals_reach_kubectl, dry_run_shows_the_patch, the_stored_pod_sent_again_gets_no_patch,
        warnings_reach_the_client, pods_of_workloads_are_placed;
    host_pool: the_schema_and_its_rules;
    streams_job: the_schema_and_its_rules;
};

const RELEASE: &[Case] = cases! { oldest,
    release: the_api_server_is_the_oldest, no_expression_of_the_chart_has_a_warning,
        the_policies_of_the_chart_hold;
};

const CONTROLLER: &[Case] = cases! { controller,
    ready: the_charts_test_finds_a_working_installation;
    pools: a_sized_exclusive_pool_has_its_nodes_alone;
    whole:
        a_pool_leaves_the_node_that_another_element_names, an_isolated_element_finds_its_node_free;
};

/// Each looks in the end whether any node has a mark of stowplan, so there are no pools beside them.
const COSCHEDULE: &[Case] = cases! { coschedule,
    modes: workspaces_that_meet_in_a_task_share_a_node;
    runs: runs_that_share_a_claim_share_a_node;
    native: any_pods_can_be_a_group, the_example_of_the_first_page_shares_a_node;
    constraints: a_members_own_pod_affinity_is_kept, members_bound_by_node;
};

fn options(nodes: Vec<NodeSpec>) -> Options {
    Options { nodes, kubernetes: Kubernetes::Oldest, ..Options::default() }
}

/// Three control planes, one after the other.
fn main() -> ExitCode {
    let placed = harness::run(CLUSTER, || {
        World::start_with(options(hosts::nodes()), Install::without_controller)
    });
    let served = harness::run_side_by_side(&[RELEASE, CONTROLLER].concat(), 6, || {
        World::start_with(options(NodeSpec::numbered(2)), |install| install)
    });
    // The values as in the suite of coscheduling.
    let quick = |install: Install| {
        install
            .value("policy.coschedule.gracePeriod", "12s")
            .value("policy.coschedule.groupTTL", "3s")
    };
    let grouped = harness::run_side_by_side(COSCHEDULE, 6, async || {
        let nodes = ["east", "west"].map(|zone| NodeSpec::new(zone).zone(zone));
        let mut world = World::start_with(options(nodes.to_vec()), quick).await?;
        world.helpers.push(Box::new(Volumes::start(&world.client).await?));
        world.helpers.push(Box::new(Tekton::start(&world.client).await?));
        pipeline::noticed(&world).await?;
        Ok(world)
    });
    let failed = [placed, served, grouped].into_iter().find(|code| *code != ExitCode::SUCCESS);
    failed.unwrap_or(ExitCode::SUCCESS)
}
