//! The controller on a real control plane: pools, jobs and pending pods, and the faults and outages
//! that it survives.
//!
//! One control plane serves all of these tests, each in a namespace and on nodes of its own.

mod nodes;
mod pool;

/// Requests that the API server fails, delays or answers wrongly.
pub(crate) mod faults;
/// Installations that are broken, and what `check` says about them.
pub(crate) mod installation;
/// StreamsJobs: accepted, refused, changed.
pub(crate) mod jobs;
/// Controllers that are killed, paused or replaced.
pub(crate) mod outages;
/// The policy in its ConfigMap.
pub(crate) mod policy;
/// Host pools: their nodes, marks and statuses.
pub(crate) mod pools;
/// The test of the chart, `helm test`.
pub(crate) mod ready;
/// Remedies of `check` and of refusals, tried.
pub(crate) mod remedies;
/// Pods that were admitted without placement.
pub(crate) mod repair;
/// Backups that are restored, and versions of the API.
pub(crate) mod restore;
/// Tekton that is installed late, or in an old version.
pub(crate) mod tekton;
/// Pools and the pods that wait for their hosts.
pub(crate) mod waiting;
/// Unschedulable pods that the scheduler has to look at again.
pub(crate) mod wake;
/// StreamsJobs that are placed as a whole.
pub(crate) mod whole;

use crate::harness::{Case, Suite, cases};
use crate::world::World;
use testbed::control_plane::{Install, NodeSpec};

pub(crate) const CASES: &[Case] = cases! { controller,
    jobs:
        two_groups_keep_apart_in_every_order, a_jobs_pools_are_its_own,
        a_chain_of_tokens_is_one_group_in_every_order, a_group_goes_where_one_of_it_must_go,
        an_impossible_job_is_refused_at_once, exlocated_elements_roll_out_on_as_many_nodes;
    whole:
        a_full_reserved_node_is_replaced, a_pod_without_a_workload_stays_with_an_event,
        a_pool_leaves_the_node_that_another_element_names, a_pool_is_the_node_to_which_its_element_is_bound,
        an_isolated_element_finds_its_node_free,
        a_job_without_a_placement_is_refused_with_what_contradicts,
        a_lost_node_is_replaced_before_its_pod_comes, the_pools_of_a_job_get_all_of_their_nodes_or_none;
    pools:
        a_sized_exclusive_pool_has_its_nodes_alone, exclusive_pools_share_no_node,
        an_index_stays_with_its_node, a_pool_that_cannot_be_met_waits_for_nodes,
        a_literal_exclusive_pool_takes_its_hosts, unknown_hosts_are_reported_in_status;
    waiting:
        a_pool_grows_by_the_nodes_that_waiting_pods_need,
        an_exclusive_pool_leaves_the_node_that_another_pod_names;
    wake:
        a_drained_group_runs_again;
    remedies:
        a_cordoned_host_is_uncordoned, a_full_host_gets_free_capacity, a_node_gets_the_hostname_label,
        a_pool_without_a_node_gets_one, a_pod_that_was_not_placed_is_created_again,
        a_group_on_a_cordoned_node_continues_there;
};

/// These stop stowplan, change the policy or definitions, or take any node. The first one soon waits
/// for a minute, without holding the installation.
const ALONE: &[Case] = cases! { controller,
    repair:
        pods_admitted_meanwhile_are_reported_and_recreated;
    ready:
        the_charts_test_finds_a_working_installation;
    pools:
        the_six_forms_of_the_design, an_untagged_exclusive_pool;
    restore:
        pools_and_jobs_are_restored, a_restored_status_is_written_anew, a_second_version_is_stored;
    outages:
        a_killed_leader_is_followed, a_paused_leader_does_no_harm_when_it_wakes,
        what_went_while_it_was_away_is_swept;
    faults:
        every_fault_ends_in_the_same_state, a_pool_costs_few_writes;
    policy:
        an_edited_policy_is_in_force_in_webhook_and_controller;
    installation:
        what_is_broken_is_named;
};

/// Serves another version of Tekton's kinds.
const TEKTON: &[Case] = cases! { controller, tekton: a_tekton_that_serves_v1beta1_alone };

pub(crate) fn suite_alone() -> Suite {
    Suite {
        cases: TEKTON.to_vec(),
        alone: ALONE.to_vec(),
        at_once: 3,
        start: || Box::pin(World::start(NodeSpec::numbered(2), repairing)),
    }
}

/// Nodes for pods that ask for nothing: stowplan's own, and the trial pod of the testbed. `remedies`
/// and `repair` need pods to be recreated.
pub(crate) fn repairing(install: Install) -> Install {
    install.value("policy.repair", "recreatePending")
}
