//! Reports pods that have stowplan's keys but were admitted without its webhook, because the
//! webhook was unavailable and its failurePolicy admits pods then.
//!
//! The watch of pods passes each pod here before it is projected. If a pod has no record of a
//! decision, the function that the webhook calls decides it again, and only the result is kept. An
//! event on the pod lists what it lacks. Under the policy `repair: recreatePending` a pending pod
//! is deleted if its owner creates a replacement, which then passes the webhook. An owner of a
//! system's kind may fail if its pod is deleted while running; then the pod is deleted only in the
//! version in which it is known to be unbound. [`Rounds`] bounds the recreation for each owner.
//!
//! A pod with a record is decided again once, before it has a node: another webhook, or an admission
//! policy, may have removed what the webhook added. The pod would get the same again, so it is only
//! reported.

mod rounds;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::cluster::PodChange;
use rounds::Rounds;
use stowplan_core::admission::stored::{Lack, find_lack};
use stowplan_core::kubernetes::{controller, is_created_again};
use stowplan_core::placement::record;
use stowplan_core::policy::Repair;
use stowplan_core::systems::plan::{Action, Event, Plan, Target, Write};
use stowplan_core::systems::policy::Policy;
use stowplan_core::systems::vocabulary::{Meaning, meaning};
use stowplan_core::systems::{PodOwner, View, WITH_CONTROLLER, find_pod_owner, may_concern};
use stowplan_core::view::resource::POD;
use stowplan_core::view::{Identity, Name};

/// The end of the event on a pod whose owner's pods never reach the webhook.
const GIVEN_UP: &str = "recreating its owner's pods did not help: see why the webhook does not get \
                        them (`kubectl describe mutatingwebhookconfiguration`), then delete the pod";

/// The pods that may have been admitted without the webhook, or lost what it added.
#[derive(Debug, Default)]
pub(crate) struct Report {
    state: Mutex<Pods>,
}

#[derive(Debug, Default)]
struct Pods {
    pods: BTreeMap<Name, Seen>,
    rounds: Rounds,
}

/// A pod that may lack its placement, with a record of a decision or without one.
#[derive(Debug)]
struct Seen {
    identity: Identity,
    /// The UID of its owner.
    owner: Option<Box<str>>,
    /// How often the owner's pods had been recreated when this one was seen first.
    round: u32,
    /// The pod is unbound, and its owner replaces it if it is deleted.
    is_replaceable: bool,
    /// The owner that fails if the pod is deleted while running.
    fragile_owner: Option<PodOwner>,
    /// The webhook would refuse the pod.
    is_refused: bool,
    /// The pod has a record of a decision.
    is_recorded: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The pod to be decided: the View was not complete when the pod arrived.
    Undecided(Box<str>),
    /// Decided; the text describes what the pod lacks.
    Unplaced(String),
    /// Decided: the pod has what its record says. Forgotten when the pod has a node.
    Placed,
}

impl Report {
    /// Processes a change that the watch of pods reports. Returns whether the next plan may differ.
    pub(crate) fn see(&self, change: PodChange<'_>) -> bool {
        match change {
            PodChange::Current(pod) => self.observe(pod),
            PodChange::Deleted(name) => self.state().pods.remove(name).is_some(),
            PodChange::Relisting => {
                self.state().pods.clear();
                true
            }
        }
    }

    fn observe(&self, pod: &Pod) -> bool {
        let Some(name) = name_of(pod) else { return false };
        let mut state = self.state();
        let Pods { pods, rounds } = &mut *state;
        let Some(is_recorded) = may_lack_placement(pod) else {
            return pods.remove(&name).is_some();
        };
        let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        if is_recorded && is_bound {
            // Only one that was seen before is still reported.
            if pods.get(&name).is_none_or(|seen| !matches!(seen.state, State::Unplaced(_))) {
                return pods.remove(&name).is_some();
            }
        }
        let identity = Identity::from(&pod.metadata);
        let is_replaceable = is_replaceable(pod) && !is_recorded;
        let fragile_owner = find_pod_owner(&pod.metadata).filter(|owner| owner.fails_with_pod);
        match pods.get_mut(&name).filter(|seen| seen.identity.uid == identity.uid) {
            Some(seen) => {
                seen.is_replaceable = is_replaceable && !seen.is_refused;
                seen.identity = identity;
                !matches!(seen.state, State::Placed)
            }
            None => {
                let owner = controller(&pod.metadata).map(|owner| owner.uid.as_str().into());
                let seen = Seen {
                    identity,
                    round: rounds.of(owner.as_deref()),
                    owner,
                    is_replaceable,
                    fragile_owner,
                    is_refused: false,
                    is_recorded,
                    state: State::Undecided(text_of(pod)),
                };
                pods.insert(name, seen);
                true
            }
        }
    }

    /// The number of pods that were admitted without their placement.
    #[must_use]
    pub(crate) fn unplaced(&self) -> usize {
        self.count(false)
    }

    /// The number of pods whose placement was removed after their admission.
    #[must_use]
    pub(crate) fn stripped(&self) -> usize {
        self.count(true)
    }

    fn count(&self, is_recorded: bool) -> usize {
        let state = self.state();
        let lacking = state.pods.values().filter(|seen| matches!(seen.state, State::Unplaced(_)));
        lacking.filter(|seen| seen.is_recorded == is_recorded).count()
    }

    /// Plans an event for each pod that lacks its placement, and the deletion of those to be
    /// recreated.
    #[must_use]
    pub(crate) fn plan(&self, view: &View, policy: &Policy, now: Timestamp) -> Plan {
        self.decide(view, policy);
        let mut plan = Plan::default();
        let mut state = self.state();
        let Pods { pods, rounds } = &mut *state;
        for (name, seen) in pods.iter() {
            let State::Unplaced(missing) = &seen.state else { continue };
            let (write, event) = seen.plan_remedy(missing, policy, now, rounds, &mut plan);
            let target = Target::new(POD, name, &seen.identity.uid);
            plan.actions.push(Action::new(target, write, vec![event]));
        }
        rounds.forget(now, |owner| pods.values().any(|seen| seen.owner.as_deref() == Some(owner)));
        plan
    }

    /// Decides the pods that have arrived since the last call, and keeps only the results. A
    /// process that does not lead calls it too: it would otherwise keep every complete pod until it
    /// leads.
    pub(crate) fn decide(&self, view: &View, policy: &Policy) {
        self.state().pods.retain(|name, seen| {
            let State::Undecided(text) = &seen.state else { return true };
            let pod: Value = serde_json::from_str(text).expect("`text_of` wrote JSON");
            let lack = find_lack(&name.namespace, &pod, view, policy);
            seen.is_refused = matches!(lack, Some(Lack::Refused(_)));
            // A replacement would be refused, so that no pod would run at all.
            seen.is_replaceable &= !seen.is_refused;
            match lack.and_then(|lack| describe(&lack, seen.is_recorded, policy)) {
                Some(text) => seen.state = State::Unplaced(text),
                None if seen.is_recorded => seen.state = State::Placed,
                None => return false,
            }
            true
        });
    }

    fn state(&self) -> MutexGuard<'_, Pods> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pod as JSON text, which takes a third of the memory of a value, without the parts that no
/// decision reads.
fn text_of(pod: &Pod) -> Box<str> {
    let Pod { metadata, spec, .. } = pod;
    let metadata = ObjectMeta { managed_fields: None, ..metadata.clone() };
    let pod = Pod { metadata, spec: spec.clone(), status: None };
    serde_json::to_string(&pod).expect("a pod is JSON").into()
}

impl Seen {
    /// Plans the deletion of the pod, or nothing, and the event about it.
    fn plan_remedy(
        &self,
        missing: &str,
        policy: &Policy,
        now: Timestamp,
        rounds: &mut Rounds,
        plan: &mut Plan,
    ) -> (Write, Event) {
        if self.is_recorded {
            let event =
                Event { warning: true, reason: "PlacementRemoved", note: missing.to_owned() };
            return (Write::None, event);
        }
        let may_delete = policy.repair == Repair::RecreatePending && self.is_replaceable;
        let report = |remedy: &str| {
            let note = format!("{missing}; {remedy}");
            (Write::None, Event { warning: true, reason: "NotPlaced", note })
        };
        match rounds::pause(self.round).filter(|_| may_delete) {
            Some(pause) => {
                let created = self.identity.created;
                let due = created.and_then(|created| created.checked_add(pause).ok());
                if due.is_none_or(|due| due <= now) {
                    rounds.count(self.owner.as_deref(), self.round, now);
                    let note = format!("{missing}; deleted, so that its owner creates it again");
                    let version =
                        self.fragile_owner.map(|_| self.identity.resource_version.clone());
                    return (
                        Write::Delete { grace: None, version },
                        Event { warning: true, reason: "Recreated", note },
                    );
                }
                due.into_iter().for_each(|due| plan.recheck_by(due));
            }
            None if may_delete => return report(GIVEN_UP),
            None => {}
        }
        let again = match self.owner {
            Some(_) => "delete the pod, so that its owner creates it again",
            None => "delete the pod and create it again",
        };
        match self.fragile_owner.filter(|_| !self.is_replaceable) {
            Some(owner) => report(&format!("deleting the pod now would fail its {}", owner.kind)),
            // The problem has a remedy of its own; the same pod would be refused until then.
            None if self.is_refused => report(&format!("then {again}")),
            None => report(again),
        }
    }
}

fn name_of(pod: &Pod) -> Option<Name> {
    let metadata = &pod.metadata;
    Some(Name::new(metadata.namespace.as_deref()?, metadata.name.as_deref()?))
}

/// Returns `Some` if a pod that has not finished may lack a placement, with whether it has a record of a
/// decision.
fn may_lack_placement(pod: &Pod) -> Option<bool> {
    let metadata = &pod.metadata;
    let annotations = metadata.annotations.as_ref();
    let has_record = annotations.is_some_and(|annotations| annotations.contains_key(record::KEY));
    let has_key = annotations.is_some_and(|annotations| {
        annotations.keys().any(|key| matches!(meaning(key), Meaning::Known(_)))
    });
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_active =
        metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"));
    let is_concerned = has_record || has_key || may_concern(metadata);
    (is_active && is_concerned).then_some(has_record)
}

fn is_replaceable(pod: &Pod) -> bool {
    let unbound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
    unbound && (find_pod_owner(&pod.metadata).is_some() || is_created_again(&pod.metadata))
}

/// Describes how a pod without a record was admitted. The webhook may have been unavailable, or a
/// condition of the administrator kept the pod from it: these conditions are not evaluated here.
fn describe_admission(policy: &Policy) -> String {
    let names: Vec<&str> = policy.match_conditions.iter().map(String::as_str).collect();
    match names.is_empty() {
        true => "was admitted without stowplan's webhook".to_owned(),
        false => format!(
            "was admitted without stowplan's webhook (unavailable, or excluded by its match \
             condition {})",
            names.join(" or ")
        ),
    }
}

/// Describes what a pod lacks. `None`: nothing, or nothing that stowplan can say without a record of a
/// decision. Of a pod with a record only what was removed from it since counts.
fn describe(lack: &Lack, is_recorded: bool, policy: &Policy) -> Option<String> {
    match lack {
        Lack::Removed(field) if is_recorded => Some(format!(
            "{field} has less than the annotation {} says: a later webhook or admission policy removed what stowplan's webhook had added; find it (kubectl get \
             mutatingwebhookconfigurations,mutatingadmissionpolicies) and exclude the pod there",
            record::KEY
        )),
        _ if is_recorded => None,
        Lack::Refused(refusal) if policy.record_placement => Some(format!(
            "{}, which would refuse it: {}",
            describe_admission(policy),
            refusal.first()
        )),
        Lack::Changes(intents) => {
            let needs_controller =
                intents.iter().all(|intent| WITH_CONTROLLER.contains(&intent.system));
            let mut changes = intents.iter().map(|intent| intent.change.to_string());
            let first = changes.next()?;
            let more = changes.count();
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            let or = if needs_controller { ", or while no controller led," } else { "" };
            Some(format!("{}{or} and lacks: {first}{more}", describe_admission(policy)))
        }
        _ => None,
    }
}
