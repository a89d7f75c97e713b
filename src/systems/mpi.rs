//! MPI clusters (the MPI operator's v2 design): the vocabulary. Serving it is a later release's;
//! until then a pod that carries a key is admitted with a warning.

use super::System;

/// The annotations on pod templates.
pub const KEYS: &[&str] = &[
    "mpi.stowplan.dev/cluster",
    "mpi.stowplan.dev/role",
    "mpi.stowplan.dev/workers",
    "mpi.stowplan.dev/slots",
    "mpi.stowplan.dev/implementation",
    "mpi.stowplan.dev/ssh-dir",
    "mpi.stowplan.dev/ssh-port",
    "mpi.stowplan.dev/container",
    "mpi.stowplan.dev/launcher-as-worker",
];

/// The system.
pub const SYSTEM: System = System {
    name: "mpi",
    keys: KEYS,
    request: None,
    claim: None,
    concerns: None,
    plan: None,
    enabled: |policy| policy.mpi.enabled,
};
