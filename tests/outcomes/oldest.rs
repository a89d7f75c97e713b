//! The oldest Kubernetes that stowplan serves: a part of the other suites on its API server, its
//! scheduler and its controller manager, with the chart and its admission policies.
//!
//! The other suites run on the newest. What is chosen here uses the API in every way that stowplan
//! does: both webhooks, the rules of the definitions, node and pod affinity, labels and taints of nodes,
//! the removal of scheduling gates, placeholders with claims.

pub(crate) mod release;

use crate::harness::{Case, Suite, cases};
use crate::world::World;
use testbed::control_plane::{Install, NodeSpec, Options};
use testbed::tools::Kubernetes;

/// Without a controller, because these create pools that it would serve.
const CLUSTER: &[Case] = cases! { cluster as "oldest::cluster",
    streams:
        host_by_name_and_address, tagged_pools, literal_pool_and_index, colocation_of_three,
        exlocation_of_three_and_a_fourth, isolation_when_the_isolated_comes_last,
        node_name_is_released;
    admission:
        refusals_and_warnings_reach_kubectl, dry_run_shows_the_patch,
        the_stored_pod_sent_again_gets_no_patch;
    kinds: the_schema_of_host_pools_and_its_rules, the_schema_of_streams_jobs_and_its_rules;
};

const RELEASE: &[Case] = cases! { oldest,
    release:
        the_api_server_is_the_oldest, no_expression_of_the_chart_has_a_warning,
        the_policies_of_the_chart_hold;
};

const CONTROLLER: &[Case] = cases! { controller as "oldest::controller",
    installation: the_charts_test_finds_a_working_installation;
    pools: a_sized_exclusive_pool_has_its_nodes_alone;
    whole: a_job_is_placed_as_a_whole_before_its_pods;
};

const COSCHEDULE: &[Case] = cases! { coschedule as "oldest::coschedule",
    runs: runs_that_share_a_claim_share_a_node;
    native: any_pods_can_be_a_group, the_example_of_the_first_page_shares_a_node;
    constraints: a_members_own_pod_affinity_is_kept;
};

/// Changes the policy.
const ALONE: &[Case] = cases! { coschedule as "oldest::coschedule",
    constraints: members_bound_by_node;
};

fn options(nodes: Vec<NodeSpec>) -> Options {
    Options { nodes, kubernetes: Kubernetes::Oldest, ..Options::default() }
}

/// Two control planes, with the nodes and values of the suites that the cases are from.
pub(crate) fn suites() -> [Suite; 2] {
    [
        Suite {
            cases: CLUSTER.to_vec(),
            alone: Vec::new(),
            at_once: 2,
            kubernetes: Kubernetes::Oldest,
            start: || {
                let options = options(crate::cluster::nodes());
                Box::pin(World::start_with(options, Install::without_controller))
            },
        },
        Suite {
            cases: [RELEASE, CONTROLLER, COSCHEDULE].concat(),
            alone: ALONE.to_vec(),
            at_once: 4,
            kubernetes: Kubernetes::Oldest,
            start: || {
                let options = options(crate::coschedule::nodes());
                Box::pin(crate::coschedule::start_with(options, |install| install))
            },
        },
    ]
}
