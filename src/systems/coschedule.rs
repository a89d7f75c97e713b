//! Tekton coscheduling (TEP-0135) and native groups: the vocabulary. Serving it is a later
//! release's; until then a pod that carries a key is admitted with a warning.

use super::System;

/// Puts pods of one namespace into one group.
pub const GROUP: &str = "stowplan.dev/coschedule-group";
/// The mode of a run, copied to its pods by Tekton.
pub const MODE: &str = "stowplan.dev/coschedule";

/// The system.
pub const SYSTEM: System = System {
    name: "coschedule",
    keys: &[GROUP, MODE],
    request: None,
    claim: None,
    concerns: None,
    plan: None,
    enabled: |policy| policy.coschedule.enabled,
};
