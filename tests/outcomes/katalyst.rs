//! Katalyst NUMA affinity on a real control plane: the labels of nodes, when pods start, and what the
//! command line shows.
//!
//! Katalyst does not run: the tests write the CustomNodeResources of its agents, whose definition is
//! installed after the controller has started. One control plane serves all of these tests, each with a
//! namespace, nodes and labels of its own: Katalyst knows no namespaces.

pub(crate) mod rig;

/// Labels of nodes, pods that wait for a feasible NUMA node, and what the policy says about them.
pub(crate) mod numa;

use crate::harness::{Case, cases};

pub(crate) const CASES: &[Case] = cases! { katalyst,
    numa:
        the_label_follows_the_report, a_pod_waits_until_a_numa_node_is_feasible,
        the_scheduler_is_left_the_feasible_nodes, the_leader_of_three_starts_first;
};

/// These change the policy.
pub(crate) const ALONE: &[Case] = cases! { katalyst,
    numa: deadlines_end_the_wait, a_mode_that_does_not_enforce_removes_the_gates;
};
