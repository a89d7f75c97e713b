//! MPI clusters on a real control plane: what is made for them, when launchers start, and the end.
//!
//! The pods run nothing (kwok reports them as Ready); what runs is tested on real nodes, in the testbed.
//! One control plane serves all of these tests, each in a namespace of its own.

mod cluster;

/// Clusters of each form, from their creation to their end.
pub(crate) mod life;
/// What cannot start, and what the events say.
pub(crate) mod problems;

use crate::harness::{Case, cases};

pub(crate) const CASES: &[Case] = cases! { mpi,
    life:
        a_job_and_a_stateful_set, an_indexed_job_that_is_suspended_and_resumed,
        a_launcher_that_is_a_worker, a_worker_comes_back_under_its_name,
        two_clusters_in_one_namespace, hundreds_of_workers;
    problems:
        a_foreign_secret_is_left_alone, a_deleted_secret_is_made_again, a_foreign_service_is_left_alone,
        pods_that_cannot_be_members_are_refused, what_keeps_a_cluster_from_starting,
        a_second_launcher_is_reported, a_worker_on_a_lost_node_is_reported;
};
