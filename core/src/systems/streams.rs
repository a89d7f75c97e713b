//! IBM Streams host constraints (Streams design, "Host Constraints", 2021): on which nodes a
//! processing element, which is one pod, may run.
//!
//! A pod's constraints come from its StreamsJob if it belongs to one, otherwise from its
//! annotations:
//!
//! 1. [`job`] finds the StreamsJob, and [`job::check`] decides whether all of it can be placed.
//! 2. [`request`] parses the annotations. Those of a job's pod must agree with the job.
//! 3. [`resolve`] finds the nodes of hosts and pools, and binds the pod to them.
//! 4. [`constraints`] creates the intents of colocation, exlocation and isolation.
//! 5. `contradiction` compares the intents of all systems with what other pods require.
//!
//! [`Placing`] is the state of these steps; each file adds the methods of its step to it.

pub mod api;
mod check;
mod constraints;
pub(crate) mod contradiction;
pub(crate) mod guard;
mod hostnames;
pub(crate) mod job;
pub(crate) mod keys;
pub mod kinds;
mod map;
mod obstacle;
mod owners;
pub(crate) mod policy;
mod preview;
mod reasons;
pub(crate) mod reconcile;
pub(crate) mod request;
pub(crate) mod resolve;
pub(crate) mod resources;
pub(crate) mod token;
pub(crate) mod validate;
pub(crate) mod witness;

use super::check::installation::Installation;
use super::check::words::check_command;
use super::{Diagnostics, Gate, Outcome, Prefix, Reconciler, System, Traces};
use crate::placement::intent::{Change, Intent};
use crate::placement::pod::Pod;
use crate::placement::reason::{Finding, Reason, Warning, escape, shorten};
use crate::placement::record;
use crate::systems::View;
use crate::systems::policy::Policy;
use crate::systems::streams::policy::Compat;
use crate::view::resource::{NAMESPACE, NODE, POD, STATEFUL_SET};

use request::{Request, Source};
use resources::{HOST_POOL, STREAMS_JOB};

/// The system.
pub(crate) const SYSTEM: System = System {
    name: NAME,
    keys: keys::ANNOTATIONS,
    // Other keys under streams.ibm.com belong to the Streams operator.
    prefixes: &[Prefix { own: "streams.ibm.com/host-", shared: keys::PREFIX }],
    gates: &[Gate {
        name: keys::GATE,
        until: "its StreamsJob has a recorded placement",
        is_last: false,
        remedy: |pod| {
            format!("see the conditions of the job: {}", check_command("job", keys::JOB, pod))
        },
    }],
    request: place_pod,
    claim: None,
    concerns: Some(job::concerns),
    traces: Traces {
        node_labels: Some(keys::POOL_LABEL_PREFIX),
        taints: &keys::EXCLUSIVE_TAINTS,
        objects: &[(STATEFUL_SET, keys::SCALING)],
    },
    together: &[keys::COLOCATION_LABEL_PREFIX, keys::GROUP],
    enabled: |policy| policy.streams.enabled,
};

/// The system for the controller.
pub(crate) const RECONCILER: Reconciler = Reconciler {
    name: NAME,
    plan: reconcile::plan,
    reads: &[NODE, NAMESPACE, POD, STATEFUL_SET, HOST_POOL, STREAMS_JOB],
};

/// The system for the command line.
pub(crate) const DIAGNOSTICS: Diagnostics = Diagnostics {
    system: &SYSTEM,
    previews: preview::KINDS,
    checks: check::KINDS,
    check_pod: Some(check::check_pod),
    check_node: Some(check::check_node),
    map: map::map,
    installation: Installation {
        sent_by: &["'streams.ibm.com/'", "'streams.ibm.com/job'", "'stowplan.dev/'"],
        trial: &[(keys::HOST_EXLOCATION, "stowplan-check")],
        ..Installation::NONE
    },
};

const NAME: &str = "streams";

/// Translates the constraints of a pod into intents.
fn place_pod(pod: &Pod<'_>, view: &View, policy: &Policy) -> Outcome {
    let mut placing = Placing { pod, view, policy, member: None, outcome: Outcome::default() };
    placing.check_tolerations();
    match job::find_reference(pod, view, policy) {
        Some(reference) => placing.place_by_job(&reference),
        None => placing.place_by_annotations(),
    }
    placing.outcome
}

/// The state of placing one pod.
struct Placing<'p> {
    pod: &'p Pod<'p>,
    view: &'p View,
    policy: &'p Policy,
    /// The StreamsJob and the processing element, if the constraints come from a job: they are then
    /// the subject of findings, in place of an annotation.
    member: Option<String>,
    outcome: Outcome,
}

impl Placing<'_> {
    fn place_by_annotations(&mut self) {
        let request = Request::parse(self.pod, Source::Annotations, &mut self.outcome);
        let node = self.resolve_location(&request);
        self.colocate(&request, node.as_deref());
        self.exlocate(&request.exlocation, request.enforcement, None);
        if let Some(operator) = &request.isolation {
            self.isolate(operator, request.enforcement);
        }
    }

    /// Returns true if the policy asks for `compat: upstream`: the literal forms of the Streams design.
    fn is_compatible(&self) -> bool {
        self.policy.streams.compat == Compat::Upstream
    }

    /// Refuses a toleration of the taint of a known pool of another namespace. A toleration without
    /// a value, as the pods of DaemonSets have, stays: it is for no pool in particular.
    fn check_tolerations(&mut self) {
        let own = self.pod.tolerations.iter().flatten();
        let mut tolerated = own
            .filter_map(|of| Some((of.key.as_deref()?, of.value.as_deref()?)))
            .filter(|(key, hash)| keys::EXCLUSIVE_TAINTS.contains(key) && !hash.is_empty());
        let is_foreign = |(_, hash): &(&str, &str)| {
            let pool = owners::pool_of_hash(hash, self.view);
            pool.is_some_and(|(name, _)| *name.namespace != *self.pod.namespace)
        };
        let Some((key, hash)) = tolerated.find(is_foreign) else { return };
        let problem = format!("{key}={hash} is the taint of a pool of another namespace");
        let remedy = "remove the toleration; stowplan adds those of the pod's own pools";
        let finding = Finding::new(Reason::PoolReserved, "spec.tolerations", problem, remedy);
        self.outcome.findings.push(finding);
    }

    fn change(&mut self, key: &'static str, value: &str, change: Change) {
        let why = format_cause(key, value);
        self.outcome.intents.push(Intent { system: NAME, key, why, change });
    }

    /// Returns what an earlier round has decided about a constraint, according to the pod's record.
    fn recorded(&self, key: &str, value: &str) -> Option<String> {
        let entries = record::entries(self.pod.annotation(record::KEY)?, NAME);
        let cause = format_cause(key, value);
        let decision =
            |entry: &String| Some(entry.strip_prefix(&cause)?.strip_prefix(": ")?.to_owned());
        entries.iter().find_map(decision)
    }

    /// Adds the decision about a constraint to the pod's record.
    fn record(&mut self, key: &'static str, value: &str, decision: &str) {
        self.outcome.holds.push([&format_cause(key, value), ": ", decision].concat());
    }

    fn report(&mut self, reason: Reason, key: &str, problem: String, remedy: &str) {
        let subject = self.subject(key);
        self.outcome.findings.push(Finding::new(reason, subject, problem, remedy));
    }

    /// Reports a finding. Returns `None`, because there is no result with it.
    fn refuse<T>(&mut self, reason: Reason, key: &str, problem: String, remedy: &str) -> Option<T> {
        self.report(reason, key, problem, remedy);
        None
    }

    /// The subject of a finding about a constraint: the pod's element in its job, otherwise the key
    /// of the annotation.
    fn subject(&self, key: &str) -> String {
        self.member.clone().unwrap_or_else(|| key.to_owned())
    }

    fn warn(&mut self, key: &str, text: &str) {
        self.outcome.warnings.push(Warning::new(key, text));
    }

    /// Warns if the pod has a node name: it bypasses the scheduler, which would enforce `key`.
    fn warn_about_node_name(&mut self, key: &str) {
        if self.pod.node_name.is_some() {
            self.warn(key, "spec.nodeName bypasses the scheduler, so nothing enforces it");
        }
    }
}

/// A constraint in short, as the record names it: `host-colocation=together`.
fn format_cause(key: &str, value: &str) -> String {
    let own = key.strip_prefix(keys::PREFIX).or_else(|| key.strip_prefix("stowplan.dev/"));
    let name = own.unwrap_or(key);
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'[' | b']');
    if value.len() <= 80 && value.bytes().all(plain) {
        return [name, "=", value].concat();
    }
    format!("{name}={}", escape(&shorten(value, 80)))
}
