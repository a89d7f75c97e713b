//! MPI clusters on plain Jobs and StatefulSets (the MPI operator's v2 design): ssh instead of exec,
//! stable hostnames behind a headless Service, a static hostfile, and a launcher that starts when its
//! workers are ready.
//!
//! Pods belong to a cluster by the annotations of their pod template:
//!
//! 1. [`request`] parses the annotations, and [`container`] finds the container that they are about.
//! 2. [`member`] decides the changes to a pod: names, keys, the hostfile, the environment, the command of
//!    a worker, and the gate of a launcher.
//! 3. [`cluster`] derives the state of a cluster from its workloads and pods, with its hosts and what is
//!    wrong; [`config`] writes the files for its hosts.
//! 4. [`reconcile`] plans the objects of clusters, the removal of gates, and the end.
//! 5. [`preview`] shows a cluster for the command `plan`, and [`check`] diagnoses it.

mod check;
mod cluster;
mod config;
mod container;
pub(crate) mod keys;
pub(crate) mod kinds;
mod map;
mod member;
pub(crate) mod policy;
pub(crate) mod preview;
mod reconcile;
pub(crate) mod request;
mod resources;
mod server;

use super::check::installation::Installation;
use super::check::words::check_command;
use super::{Diagnostics, Gate, Prefix, Reconciler, System, Traces};
use crate::view::resource::{NAMESPACE, NODE, POD, STATEFUL_SET};
use resources::{CONFIG_MAP, ENDPOINT_SLICE, JOB, SERVICE};

const NAME: &str = "mpi";

/// The system.
pub(crate) const SYSTEM: System = System {
    name: NAME,
    keys: keys::ANNOTATIONS,
    prefixes: &[Prefix::own(keys::PREFIX)],
    gates: &[Gate {
        name: keys::GATE,
        until: "all workers of its MPI cluster are Ready and have DNS names",
        is_last: false,
        remedy: |pod| format!("see the workers: {}", check_command("mpi", keys::CLUSTER, pod)),
    }],
    request: member::request,
    claim: None,
    concerns: None,
    traces: Traces::NONE,
    together: &[],
    enabled: |policy| policy.mpi.enabled,
};

/// The system for the controller.
pub(crate) const RECONCILER: Reconciler = Reconciler {
    name: NAME,
    plan: reconcile::plan,
    reads: &[NODE, NAMESPACE, POD, STATEFUL_SET, JOB, SERVICE, CONFIG_MAP, ENDPOINT_SLICE],
};

/// The system for the command line.
pub(crate) const DIAGNOSTICS: Diagnostics = Diagnostics {
    system: &SYSTEM,
    previews: &[],
    checks: check::KINDS,
    check_pod: None,
    check_node: None,
    map: map::map,
    installation: Installation { sent_by: &["'mpi.stowplan.dev/'"], ..Installation::NONE },
};
