//! MPI clusters on a real control plane: what is made for them, when launchers start, and the end.
//!
//! The pods run nothing (kwok reports them as Ready); what runs is tested on real nodes, in the testbed.
//! One control plane serves all of these tests, each in a namespace of its own.

pub(crate) mod cluster;

/// Clusters of each form, from their creation to their end.
pub(crate) mod life;
use crate::harness::{Case, cases};

pub(crate) const CASES: &[Case] = cases! { mpi,
    life:
        a_job_and_a_stateful_set, an_indexed_job_that_is_suspended_and_resumed,
        two_clusters_in_one_namespace, hundreds_of_workers, a_foreign_secret_is_left_alone,
        a_foreign_service_is_left_alone, a_limit_range_admits_the_container_that_copies_the_keys,
        what_keeps_a_cluster_from_starting, the_jobs_of_a_job_set;
};
