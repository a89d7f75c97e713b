//! Katalyst NUMA affinity: the vocabulary. Serving it is a later release's; until then a pod that
//! carries a key is admitted with a warning.

use super::System;
use crate::policy::KatalystMode;

/// NUMA nodes or sockets to share with other pods.
pub const AFFINITY: &str = "katalyst.kubewharf.io/microtopology_affinity";
/// NUMA nodes or sockets to keep away from.
pub const ANTI_AFFINITY: &str = "katalyst.kubewharf.io/microtopology_antiaffinity";

/// The system.
pub const SYSTEM: System = System {
    name: "katalyst",
    keys: &[AFFINITY, ANTI_AFFINITY],
    request: None,
    claim: None,
    concerns: None,
    plan: None,
    enabled: |policy| policy.katalyst.mode != KatalystMode::Disabled,
};
