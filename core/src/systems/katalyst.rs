//! Katalyst's NUMA-level affinity between pods: its annotations are checked and made canonical before
//! they reach a scheduler or a node, the scheduler gets what it can follow, and pods wait until a NUMA node
//! is feasible.
//!
//! The builds of Katalyst that read the annotations (katalyst-core, pull request 347) fail on some values,
//! ignore others, and their agent and scheduler plugin disagree. Whether a cluster runs such a build cannot
//! be seen from outside, so the policy says how far the nodes enforce the annotations.
//!
//! 1. [`selector`] parses an annotation and writes it in its canonical form; [`qos`] reads whether
//!    Katalyst looks at a pod at all.
//! 2. [`member`] decides about a pod at admission.
//! 3. [`feasibility`] decides which NUMA nodes a pod can use; [`machines`] are those of the cluster.
//! 4. [`reconcile`] plans the label of nodes and the removal of gates.
//! 5. [`explain`] shows the NUMA nodes for the command `plan`, and [`check`] diagnoses pods and nodes.

mod check;
pub(crate) mod explain;
mod feasibility;
mod installation;
pub(crate) mod keys;
pub(crate) mod kinds;
mod machines;
mod map;
mod member;
pub(crate) mod policy;
mod qos;
mod reconcile;
mod resources;
mod selector;

use super::{Diagnostics, Gate, Prefix, Reconciler, System, Traces};
use crate::view::resource::{NAMESPACE, NODE, POD};
use policy::KatalystMode;
use resources::CUSTOM_NODE_RESOURCE;

const NAME: &str = "katalyst";

/// The system.
pub(crate) const SYSTEM: System = System {
    name: NAME,
    keys: keys::ANNOTATIONS,
    prefixes: &[Prefix::own(keys::PREFIX)],
    gates: &[Gate {
        name: keys::GATE,
        until: "a NUMA node is feasible for it",
        is_last: true,
        remedy: |_| "see its events, and the pods on the NUMA nodes: stowplan map".to_owned(),
    }],
    request: member::request,
    claim: None,
    concerns: None,
    traces: Traces { node_labels: Some(keys::NUMA_ZONES), taints: &[], objects: &[] },
    together: &[],
    enabled: |policy| policy.katalyst.mode != KatalystMode::Disabled,
};

/// The system for the controller.
pub(crate) const RECONCILER: Reconciler = Reconciler {
    name: NAME,
    plan: reconcile::plan,
    reads: &[NODE, NAMESPACE, POD, CUSTOM_NODE_RESOURCE],
};

/// The system for the command line.
pub(crate) const DIAGNOSTICS: Diagnostics = Diagnostics {
    system: &SYSTEM,
    previews: &[],
    checks: &[],
    check_pod: Some(check::check_pod),
    check_node: Some(check::check_node),
    map: map::map,
    installation: installation::INSTALLATION,
};
