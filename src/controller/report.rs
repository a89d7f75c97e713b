//! Reports pods that have stowplan's keys but were admitted without its webhook, because the
//! webhook was unavailable and its failurePolicy admits pods then.
//!
//! The watch of pods passes each pod here before it is projected. If a pod has no record of a
//! decision, the function that the webhook calls decides it again, and only the result is kept. An
//! event on the pod lists what it lacks. Under the policy `repair: recreatePending` a pending pod
//! is deleted if its owner creates a replacement, which then passes the webhook. An owner of a
//! system's kind may fail if its pod is deleted while running; then the pod is deleted only in the
//! version in which it is known to be unbound.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::admission::Decision;
use crate::admission::stored::decide_creation;
use crate::cluster::PodChange;
use crate::placement::record;
use crate::policy::Repair;
use crate::systems::plan::{Action, Event, Plan, Target, Write};
use crate::systems::policy::Policy;
use crate::systems::vocabulary::{Meaning, meaning};
use crate::systems::{PodOwner, SYSTEMS, System};
use crate::view::resource::POD;
use crate::view::{Identity, Name, View};

/// The minimum age of a pending pod that is recreated. If no pod of an owner reaches the webhook,
/// this limits the recreation to one pod per minute.
const PATIENCE: SignedDuration = SignedDuration::from_mins(1);

/// Kinds of Kubernetes that replace a deleted pod. The systems know further ones.
const REPLACING_OWNERS: [&str; 5] =
    ["ReplicaSet", "StatefulSet", "Job", "ReplicationController", "DaemonSet"];

/// The pods that may have been admitted without the webhook.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pods: Mutex<BTreeMap<Name, Seen>>,
}

/// A pod without a record of a decision.
#[derive(Debug)]
struct Seen {
    identity: Identity,
    /// The pod is unbound, and its owner replaces it if it is deleted.
    is_replaceable: bool,
    /// The owner that fails if the pod is deleted while running.
    fragile_owner: Option<PodOwner>,
    /// The webhook would refuse the pod.
    is_refused: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The pod to be decided: the View was not complete when the pod arrived.
    Undecided(Box<Value>),
    /// Decided; the text describes what the pod lacks.
    Unplaced(String),
}

impl Report {
    /// Processes a change that the watch of pods reports.
    pub(crate) fn see(&self, passing: PodChange<'_>) {
        match passing {
            PodChange::Current(pod) => self.observe(pod),
            PodChange::Deleted(name) => {
                self.pods().remove(name);
            }
            PodChange::Relisting => self.pods().clear(),
        }
    }

    fn observe(&self, pod: &Pod) {
        let Some(name) = name_of(pod) else { return };
        let mut pods = self.pods();
        if !may_lack_placement(pod) {
            pods.remove(&name);
            return;
        }
        let identity = Identity::from(&pod.metadata);
        let is_replaceable = is_replaceable(pod);
        let fragile_owner = find_owner(pod).filter(|owner| owner.fails_with_pod);
        match pods.get_mut(&name).filter(|seen| seen.identity.uid == identity.uid) {
            Some(seen) => {
                seen.is_replaceable = is_replaceable && !seen.is_refused;
                seen.identity = identity;
            }
            None => {
                let Ok(document) = serde_json::to_value(pod) else { return };
                let state = State::Undecided(Box::new(document));
                pods.insert(
                    name,
                    Seen { identity, is_replaceable, fragile_owner, is_refused: false, state },
                );
            }
        }
    }

    /// The number of pods that are known to lack their placement.
    #[must_use]
    pub(crate) fn unplaced(&self) -> usize {
        let pods = self.pods();
        pods.values().filter(|seen| matches!(seen.state, State::Unplaced(_))).count()
    }

    /// Plans an event for each pod that lacks its placement, and the deletion of those to be
    /// recreated.
    #[must_use]
    pub(crate) fn plan(&self, view: &View, policy: &Policy, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let mut pods = self.pods();
        pods.retain(|name, seen| match &seen.state {
            State::Unplaced(_) => true,
            State::Undecided(pod) => match missing(&name.namespace, pod, view, policy) {
                Some((missing, can_be_met)) => {
                    // A replacement would be refused, so that no pod would run at all.
                    seen.is_replaceable &= can_be_met;
                    seen.is_refused = !can_be_met;
                    seen.state = State::Unplaced(missing);
                    true
                }
                None => false,
            },
        });
        for (name, seen) in pods.iter() {
            let State::Unplaced(missing) = &seen.state else { continue };
            let (write, event) = seen.remedy(missing, policy, now, &mut plan);
            let target = Target::new(POD, name, &seen.identity.uid);
            plan.actions.push(Action::new(target, write, vec![event]));
        }
        plan
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<Name, Seen>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn remedy(
        &self,
        missing: &str,
        policy: &Policy,
        now: Timestamp,
        plan: &mut Plan,
    ) -> (Write, Event) {
        let may_delete = policy.repair == Repair::RecreatePending && self.is_replaceable;
        let due = self.identity.created.and_then(|created| created.checked_add(PATIENCE).ok());
        if may_delete && due.is_none_or(|due| due <= now) {
            let note = format!("{missing}; deleted, so that its owner creates it again");
            let version = self.fragile_owner.map(|_| self.identity.resource_version.clone());
            return (
                Write::Delete { grace: None, version },
                Event { warning: true, reason: "Recreated", note },
            );
        }
        if let Some(due) = due.filter(|_| may_delete) {
            plan.recheck_by(due);
        }
        let remedy = match self.fragile_owner.filter(|_| !self.is_replaceable) {
            Some(owner) => format!("deleting the pod now would fail its {}", owner.kind),
            None => "delete the pod so that it is created again".to_owned(),
        };
        let note = format!("{missing}; {remedy}");
        (Write::None, Event { warning: true, reason: "NotPlaced", note })
    }
}

fn name_of(pod: &Pod) -> Option<Name> {
    let metadata = &pod.metadata;
    Some(Name::new(metadata.namespace.as_deref()?, metadata.name.as_deref()?))
}

/// Whether a pod that has not finished may need a placement and has no record of a decision.
fn may_lack_placement(pod: &Pod) -> bool {
    let metadata = &pod.metadata;
    let annotations = metadata.annotations.as_ref();
    let has_record = annotations.is_some_and(|annotations| annotations.contains_key(record::KEY));
    let has_key = annotations.is_some_and(|annotations| {
        annotations.keys().any(|key| matches!(meaning(key), Meaning::Known(_)))
    });
    let concerns = |system: &System| system.may_concern.is_some_and(|concerns| concerns(metadata));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    (has_key || SYSTEMS.iter().any(concerns))
        && !has_record
        && metadata.deletion_timestamp.is_none()
        && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_replaceable(pod: &Pod) -> bool {
    let unbound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let is_replacing = |owner: &OwnerReference| {
        owner.controller == Some(true) && REPLACING_OWNERS.contains(&owner.kind.as_str())
    };
    unbound && (find_owner(pod).is_some() || owners.any(is_replacing))
}

/// Finds the owner of a pod, if it is of a kind that a system knows.
fn find_owner(pod: &Pod) -> Option<PodOwner> {
    SYSTEMS.iter().find_map(|system| (system.pod_owner?)(&pod.metadata))
}

/// Decides a pod again. Returns a text that describes what the pod lacks, and whether the webhook
/// would admit it now. `None`: the pod lacks nothing, or stowplan does not decide about it.
fn missing(namespace: &str, pod: &Value, view: &View, policy: &Policy) -> Option<(String, bool)> {
    match decide_creation(&POD, namespace, pod, view, policy).ok()? {
        Decision::Refuse(refusal) => {
            let first = refusal.first();
            let text =
                format!("was admitted without stowplan's webhook, which would refuse it: {first}");
            Some((text, false))
        }
        // With findings, the policy admits the pod without its placement: its author got a warning.
        Decision::Admit(admission)
            if admission.findings.is_empty() && !admission.patch.is_empty() =>
        {
            let mut changes = admission.intents.iter().map(|intent| intent.change.to_string());
            let first = changes.next()?;
            let more = changes.count();
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            let text = format!("was admitted without stowplan's webhook and lacks: {first}{more}");
            Some((text, true))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::systems;
    use crate::view::Scope;

    fn pod(name: &str, annotations: &Value, owner: Option<&str>) -> Pod {
        let owners: Vec<Value> = owner
            .map(|kind| json!({"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true}))
            .into_iter()
            .collect();
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": name, "ownerReferences": owners,
                "annotations": annotations, "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }))
        .unwrap()
    }

    fn view() -> View {
        let mut view = View::default();
        let node: k8s_openapi::api::core::v1::Node =
            serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
        view.apply(systems::project(&node, Scope::Admission).unwrap());
        view
    }

    fn after(seconds: i64) -> Timestamp {
        "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
    }

    fn planned(
        report: &Report,
        policy: &Policy,
        seconds: i64,
    ) -> Vec<(Write, &'static str, String)> {
        let plan = report.plan(&view(), policy, after(seconds));
        let planned = plan.actions.into_iter().map(|action| {
            let [event] = <[Event; 1]>::try_from(action.events).unwrap();
            (action.write, event.reason, event.note)
        });
        planned.collect()
    }

    #[test]
    fn a_pod_without_its_placement_is_reported() {
        let report = Report::default();
        report.observe(&pod("p", &json!({"streams.ibm.com/host": "n1"}), None));
        let planned = planned(&report, &Policy::default(), 1);
        let [(Write::None, "NotPlaced", note)] = planned.as_slice() else { panic!("{planned:?}") };
        assert_eq!(
            note,
            "was admitted without stowplan's webhook and lacks: required node affinity \
             metadata.name In [n1]; delete the pod so that it is created again"
        );
        assert_eq!(report.unplaced(), 1);
        report.see(PodChange::Deleted(&Name::new("ns", "p")));
        assert_eq!(report.unplaced(), 0);
    }

    #[test]
    fn a_pod_that_would_be_refused_is_reported_with_the_reason() {
        let report = Report::default();
        report.observe(&pod("p", &json!({"streams.ibm.com/host": "n7"}), Some("Job")));
        let planned = planned(&report, &Policy::default(), 1);
        let [(Write::None, "NotPlaced", note)] = planned.as_slice() else { panic!("{planned:?}") };
        assert!(
            note.contains("which would refuse it: streams.ibm.com/host: no node has"),
            "{note}"
        );
    }

    #[test]
    fn placed_pods_and_pods_without_keys_are_not_reported() {
        let report = Report::default();
        report.observe(&pod(
            "record",
            &json!({"streams.ibm.com/host": "n1", record::KEY: "{}"}),
            None,
        ));
        report.observe(&pod("foreign", &json!({"a/b": "n1"}), None));
        let mut bound = pod("bound", &json!({"streams.ibm.com/host": "n1"}), None);
        bound.spec.as_mut().unwrap().affinity = serde_json::from_value(json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}}))
        .unwrap();
        report.observe(&bound);
        let policy = Policy { record_placement: false, ..Policy::default() };
        assert!(planned(&report, &policy, 1).is_empty());
        assert_eq!(report.unplaced(), 0);
    }

    #[test]
    fn a_pending_pod_is_recreated_under_the_policy_recreate_pending() {
        let policy = Policy { repair: Repair::RecreatePending, ..Policy::default() };
        let report = Report::default();
        let request = &json!({"streams.ibm.com/host": "n1"});
        report.observe(&pod("owned", request, Some("ReplicaSet")));
        report.observe(&pod("single", request, None));
        report.observe(&pod("refused", &json!({"streams.ibm.com/host": "n7"}), Some("ReplicaSet")));
        let mut bound = pod("bound", request, Some("ReplicaSet"));
        bound.spec.as_mut().unwrap().node_name = Some("n2".to_owned());
        report.observe(&bound);

        let early = report.plan(&view(), &policy, after(59));
        assert!(early.actions.iter().all(|action| action.write == Write::None));
        assert_eq!(early.recheck_at, Some(after(60)));
        let late = planned(&report, &policy, 60);
        assert!(
            late.iter()
                .all(|(write, _, note)| *write == Write::None || !note.contains("would refuse")),
            "{late:?}"
        );
        let deleted = late.iter().filter(|(write, reason, _)| {
            matches!(write, Write::Delete { .. }) && *reason == "Recreated"
        });
        assert_eq!(deleted.count(), 1, "{late:?}");
        assert!(
            planned(&report, &Policy::default(), 60)
                .iter()
                .all(|(write, ..)| *write == Write::None)
        );
    }

    /// A View with a run of one task that mounts a claim, and the task's pod.
    fn run() -> (View, Pod) {
        let mut view = view();
        let owner = |kind: &str| json!([{"apiVersion": "tekton.dev/v1", "kind": kind, "name": "run", "uid": kind, "controller": true}]);
        let workspace = json!({"name": "source", "persistentVolumeClaim": {"claimName": "c"}});
        let task =
            json!({"name": "t", "workspaces": [{"name": "source"}], "taskRef": {"name": "t"}});
        for document in [
            json!({
                "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
                "metadata": {"name": "run", "namespace": "ns", "uid": "PipelineRun"},
                "spec": {"workspaces": [workspace], "pipelineSpec": {"tasks": [task]}},
            }),
            json!({
                "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
                "metadata": {"name": "run", "namespace": "ns", "uid": "TaskRun", "ownerReferences": owner("PipelineRun")},
            }),
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": "c", "namespace": "ns", "uid": "c"},
                "spec": {"accessModes": ["ReadWriteOnce"]},
            }),
        ] {
            view.apply(systems::object(document).unwrap().unwrap());
        }
        let pod = json!({
            "metadata": {"name": "run-pod", "namespace": "ns", "uid": "pod", "resourceVersion": "7",
                "ownerReferences": owner("TaskRun"), "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            },
        });
        (view, serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn the_pod_of_a_task_run_is_recreated_only_while_it_is_unbound() {
        let (view, mut pod) = run();
        let report = Report::default();
        report.observe(&pod);
        let plan = |policy: &Policy| {
            let [action] =
                <[Action; 1]>::try_from(report.plan(&view, policy, after(60)).actions).unwrap();
            (action.write, action.events[0].note.clone())
        };
        let (write, note) = plan(&Policy::default());
        assert_eq!(write, Write::None);
        assert!(note.contains("lacks: label stowplan.dev/coschedule-member"), "{note}");
        let repairs = Policy { repair: Repair::RecreatePending, ..Policy::default() };
        assert_eq!(plan(&repairs).0, Write::Delete { grace: None, version: Some("7".into()) });

        // Another version, still unbound.
        pod.metadata.resource_version = Some("8".to_owned());
        report.observe(&pod);
        assert_eq!(plan(&repairs).0, Write::Delete { grace: None, version: Some("8".into()) });
        pod.spec.as_mut().unwrap().node_name = Some("n1".to_owned());
        report.observe(&pod);
        let (write, note) = plan(&repairs);
        assert_eq!(write, Write::None);
        assert!(note.ends_with("deleting the pod now would fail its TaskRun"), "{note}");
    }

    #[test]
    fn the_pod_of_a_task_run_without_a_group_is_not_reported() {
        let (view, mut pod) = run();
        pod.spec.as_mut().unwrap().volumes = None;
        let report = Report::default();
        report.observe(&pod);
        assert!(report.plan(&view, &Policy::default(), after(60)).actions.is_empty());
        assert_eq!(report.unplaced(), 0);
        // The owner has another UID: labels and names do not make it the run's pod.
        let (_, mut forged) = run();
        forged.metadata.owner_references.as_mut().unwrap()[0].uid = "other".to_owned();
        report.observe(&forged);
        assert!(report.plan(&view, &Policy::default(), after(60)).actions.is_empty());
    }
}
