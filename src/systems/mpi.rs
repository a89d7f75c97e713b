//! MPI clusters (the MPI operator's v2 design): only the vocabulary. This release does not act on
//! it: a pod with one of the keys is admitted with a warning.

pub(crate) mod policy;

use super::{Prefix, System, Traces};

/// The annotations of pod templates.
pub(crate) const KEYS: &[&str] = &[
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

pub(crate) const SYSTEM: System = System {
    name: "mpi",
    keys: KEYS,
    prefixes: &[Prefix::own("mpi.stowplan.dev/")],
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
    checks: &[],
    check_pod: None,
    check_node: None,
    together: &[],
    contradictions: None,
    enabled: |policy| policy.mpi.enabled,
};
