//! The controller on a real control plane: pools, jobs and pending pods, and the faults and outages
//! that it survives.
//!
//! One control plane serves all of these tests, each in a namespace and on nodes of its own.

pub(crate) mod nodes;
pub(crate) mod pool;

/// The report of `check` about an installation, also as the test of the chart.
pub(crate) mod installation;
/// StreamsJobs: accepted, refused, changed.
pub(crate) mod jobs;
/// Controllers that are killed, paused or replaced, and an API server that answers badly.
pub(crate) mod outages;
/// Pods that were admitted without placement, or that the scheduler has to look at again.
pub(crate) mod pods;
/// The policy in its ConfigMap.
pub(crate) mod policy;
/// Host pools: their nodes, marks and statuses.
pub(crate) mod pools;
/// Remedies of `check` and of refusals, tried.
pub(crate) mod remedies;
/// Backups that are restored, and versions of the API.
pub(crate) mod restore;
/// Tekton that is installed late, or in an old version.
pub(crate) mod tekton;
/// StreamsJobs that are placed as a whole.
pub(crate) mod whole;

use crate::harness::{Case, Suite, cases};
use crate::world::World;
use testbed::control_plane::{Install, NodeSpec};
use testbed::tools::Kubernetes;

pub(crate) const CASES: &[Case] = cases! { controller,
    jobs:
        two_groups_keep_apart_in_every_order, a_jobs_pools_are_its_own,
        exlocated_elements_roll_out_on_as_many_nodes;
    whole:
        a_full_reserved_node_is_replaced, a_pod_without_a_workload_stays_with_an_event,
        a_job_is_placed_as_a_whole_before_its_pods,
        a_job_without_a_placement_is_refused_with_what_contradicts;
    pools:
        a_sized_exclusive_pool_has_its_nodes_alone, exclusive_pools_share_no_node,
        an_index_stays_with_its_node,
        a_waiting_pod_follows_its_pool_to_a_new_member,
        a_pool_grows_by_the_nodes_that_waiting_pods_need;
    pods: a_drained_group_runs_again;
    remedies:
        a_cordoned_host_is_uncordoned, a_cordoned_node_without_the_other_pod_is_uncordoned,
        a_taint_is_removed, a_group_is_scaled_to_the_pods_that_have_room,
        suspended_and_missing_workers_are_made, a_full_host_gets_free_capacity,
        a_node_gets_the_hostname_label, a_pool_without_a_node_gets_one,
        a_pod_that_was_not_placed_is_created_again;
};

/// These stop stowplan, change the policy or definitions, or take any node. The first one soon waits
/// for a minute, without holding the installation.
const ALONE: &[Case] = cases! { controller,
    pods: pods_admitted_meanwhile_are_reported_and_recreated;
    pools: the_six_forms_of_the_design, a_pool_that_cannot_be_met_waits_for_nodes;
    restore:
        pools_and_jobs_are_restored, a_restored_status_is_written_anew, a_second_version_is_stored;
    outages:
        a_killed_leader_is_followed, a_paused_leader_does_no_harm_when_it_wakes,
        what_went_while_it_was_away_is_swept, every_fault_ends_in_the_same_state,
        a_pool_costs_few_writes;
    policy: an_edited_policy_is_in_force_in_webhook_and_controller;
    installation: the_charts_test_finds_a_working_installation, what_is_broken_is_named;
};

/// Serves another version of Tekton's kinds.
const TEKTON: &[Case] = cases! { controller,
    tekton: a_tekton_that_serves_v1beta1_alone;
};

pub(crate) fn suite_alone() -> Suite {
    Suite {
        cases: TEKTON.to_vec(),
        alone: ALONE.to_vec(),
        at_once: 3,
        kubernetes: Kubernetes::Newest,
        start: || Box::pin(World::start(NodeSpec::numbered(2), repairing)),
    }
}

/// Nodes for pods that ask for nothing: stowplan's own, and the trial pod of the testbed. `remedies`
/// and `pods` need pods to be recreated.
pub(crate) fn repairing(install: Install) -> Install {
    install.value("policy.repair", "recreatePending")
}
