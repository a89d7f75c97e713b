//! The systems that stowplan serves. Each is a vertical slice in a folder of its own: its
//! vocabulary, its typed request, its intents.
//!
//! Adding a system is adding a folder and one line in [`SYSTEMS`].

pub mod coschedule;
pub mod katalyst;
pub mod mpi;
pub mod plan;
pub mod streams;
pub mod vocabulary;
pub mod wake;

use crate::placement::claim::Claim;
use crate::placement::intent::Intent;
use crate::placement::pod::{Metadata, Pod};
use crate::placement::reason::{Finding, Warning};
use crate::policy::Policy;
use crate::view::{Key, View};
use k8s_openapi::jiff::Timestamp;
use plan::Plan;

/// A system: its keys, and what it makes of pods and claims.
#[derive(Debug)]
pub struct System {
    /// Its name in records, plans and metrics.
    pub name: &'static str,
    /// The annotation keys that it knows.
    pub keys: &'static [&'static str],
    /// What it makes of a pod. `None`: this release knows the keys but does not act on them; a pod
    /// that carries one is admitted with a warning.
    pub request: Option<fn(&Pod<'_>, &View, &Policy) -> Outcome>,
    /// What it makes of a PersistentVolumeClaim. `None`: it leaves claims alone; one that carries a key
    /// of a system that places pods is admitted with a warning.
    pub claim: Option<fn(&Claim<'_>, &View, &Policy) -> Outcome>,
    /// Whether an object in this namespace that carries none of its keys is its business all the same.
    /// Asked of everything of a kind that it serves, so that it costs a look at the labels or owners and
    /// no more. `None`: never.
    pub concerns: Option<fn(&str, &Metadata<'_>, &View) -> bool>,
    /// What it wants changed in the cluster. `None`: nothing.
    pub plan: Option<fn(&View, &Policy, Timestamp) -> Plan>,
    /// Whether the policy turns it on.
    pub enabled: fn(&Policy) -> bool,
}

/// What a system makes of a pod or a claim.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What it should have.
    pub intents: Vec<Intent>,
    /// What holds once it has that: entries of the record. A claim bears none.
    pub holds: Vec<String>,
    /// Whether the record of an earlier round stays as it is, with what it has left out for its length.
    pub keeps_record: bool,
    /// Why it cannot.
    pub findings: Vec<Finding>,
    /// What its author should know.
    pub warnings: Vec<Warning>,
    /// Objects that the watches have not delivered, and that could change the outcome.
    pub awaited: Vec<Key>,
}

/// What all systems want changed in the cluster. A system that the policy turns off still plans: what
/// it has written before must be taken back.
#[must_use]
pub fn plan(view: &View, policy: &Policy, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for system in &SYSTEMS {
        if let Some(of_system) = system.plan {
            plan.extend(of_system(view, policy, now));
        }
    }
    plan
}

/// Every system, in the order in which their findings are told.
pub static SYSTEMS: [System; 4] =
    [streams::SYSTEM, coschedule::SYSTEM, mpi::SYSTEM, katalyst::SYSTEM];
