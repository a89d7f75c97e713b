//! Katalyst NUMA affinity: only the vocabulary. This release does not act on it: a pod with one of
//! the keys is admitted with a warning.

pub(crate) mod policy;

use super::{Prefix, System, Traces};
use policy::KatalystMode;

/// Affinity: a pod shares NUMA nodes or sockets with other pods.
pub(crate) const AFFINITY: &str = "katalyst.kubewharf.io/microtopology_affinity";
/// Anti-affinity: a pod avoids the NUMA nodes or sockets of other pods.
pub(crate) const ANTI_AFFINITY: &str = "katalyst.kubewharf.io/microtopology_antiaffinity";

pub(crate) const SYSTEM: System = System {
    name: "katalyst",
    keys: &[AFFINITY, ANTI_AFFINITY],
    prefixes: &[Prefix::own("katalyst.kubewharf.io/microtopology_")],
    gates: &[],
    request: None,
    claim: None,
    concerns: None,
    traces: Traces::NONE,
    needs_controller: false,
    may_concern: None,
    pod_owner: None,
    plan: None,
    validations: &[],
    settled: &[],
    previews: &[],
    whole: None,
    checks: &[],
    check_pod: None,
    check_node: None,
    together: &[],
    contradictions: None,
    enabled: |policy| policy.katalyst.mode != KatalystMode::Disabled,
};
