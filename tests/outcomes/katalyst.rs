//! Katalyst NUMA affinity on a real control plane: the labels of nodes, when pods start, and what the
//! command line shows.
//!
//! Katalyst does not run: the tests write the CustomNodeResources of its agents, whose definition is
//! installed after the controller has started. One control plane serves all of these tests, each with a
//! namespace, nodes and labels of its own: Katalyst knows no namespaces.

pub(crate) mod rig;

/// The training job of `examples/`.
pub(crate) mod example;
/// Pods that wait for a feasible NUMA node.
pub(crate) mod gates;
/// Groups whose affinity selects themselves.
pub(crate) mod groups;
/// The labels of nodes.
pub(crate) mod labels;
/// Deadlines and modes of the policy.
pub(crate) mod policy;
/// `plan` and `check`.
pub(crate) mod shown;

use crate::harness::{Case, cases};

pub(crate) const CASES: &[Case] = cases! { katalyst,
    labels:
        the_label_follows_the_report, a_node_that_loses_its_report_is_not_chosen,
        rubbish_in_a_report_is_reported;
    gates:
        a_pod_waits_until_a_numa_node_is_feasible, the_scheduler_is_left_the_feasible_nodes,
        conflicting_pods_start_one_after_the_other,
        a_pod_with_another_uid_is_ignored, null_is_refused;
    groups:
        the_leader_of_three_starts_first, a_deleted_leader_is_replaced;
    shown: plan_and_check_show_the_numa_nodes;
    example: the_training_job_keeps_its_roles_apart;
};

/// These change the policy.
pub(crate) const ALONE: &[Case] = cases! { katalyst,
    policy: deadlines_end_the_wait, a_mode_that_does_not_enforce_removes_the_gates;
};
