//! Pods that carry keys of ours and were admitted without us: the webhook was away, and its
//! failurePolicy lets pods pass then.
//!
//! Each pod is looked at as it passes the watch, before it is projected; one without a record of our
//! decision is decided again by the very function that the webhook calls, and only the verdict is
//! kept. What is missing is told in an event on the pod. Under the policy `repair: recreatePending` a
//! pod that still waits, and whose owner makes a new one, is deleted: the new one is sent to the
//! webhook again. A TaskRun does so too, but fails with a pod that is deleted once it runs: such a pod is
//! deleted only in the version in which it had no node.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::admission::Decision;
use crate::admission::stored::{PODS, decide_creation};
use crate::cluster::Passing;
use crate::placement::record;
use crate::policy::{Policy, Repair};
use crate::systems::plan::{Action, Event, Kind, Plan, Target, Write};
use crate::systems::vocabulary::{Meaning, meaning};
use crate::view::streams_pod::JOB;
use crate::view::{Identity, Name, Owner, View};

/// How old a waiting pod must be before it is made again: an owner whose pods never pass us makes one
/// a minute, and not a storm.
const PATIENCE: SignedDuration = SignedDuration::from_mins(1);

/// Kinds of owners that make a pod again when it is deleted.
const MAKERS: [&str; 6] =
    ["ReplicaSet", "StatefulSet", "Job", "ReplicationController", "DaemonSet", TASK_RUN];

/// Tekton's: its pods carry no key of ours, and belong to groups all the same.
const TASK_RUN: &str = "TaskRun";

/// The pods that may have passed without us.
#[derive(Debug, Default)]
pub struct Report {
    pods: Mutex<BTreeMap<Name, Seen>>,
}

/// A pod without a record of our decision.
#[derive(Debug)]
struct Seen {
    identity: Identity,
    /// It has no node yet, and its owner makes a new one when it goes.
    is_replaceable: bool,
    /// Its owner fails with it once it has a node.
    is_tasks: bool,
    /// What it asks for cannot be met.
    is_refused: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not decided yet: the View was not complete when it passed.
    Whole(Box<Value>),
    /// What is missing.
    Unplaced(String),
}

impl Report {
    /// Sees what passes the watch of pods.
    pub fn see(&self, passing: Passing<'_>) {
        match passing {
            Passing::Pod(pod) => self.look(pod),
            Passing::Gone(name) => {
                self.pods().remove(name);
            }
            Passing::Relisting => self.pods().clear(),
        }
    }

    fn look(&self, pod: &Pod) {
        let Some(name) = name_of(pod) else { return };
        let mut pods = self.pods();
        if !may_be_missed(pod) {
            pods.remove(&name);
            return;
        }
        let identity = Identity::from(&pod.metadata);
        let is_replaceable = is_replaceable(pod);
        let is_tasks = Owner::of_tekton(&pod.metadata, TASK_RUN).is_some();
        match pods.get_mut(&name).filter(|seen| seen.identity.uid == identity.uid) {
            Some(seen) => {
                seen.is_replaceable = is_replaceable && !seen.is_refused;
                seen.identity = identity;
            }
            None => {
                let Ok(whole) = serde_json::to_value(pod) else { return };
                let state = State::Whole(Box::new(whole));
                pods.insert(
                    name,
                    Seen { identity, is_replaceable, is_tasks, is_refused: false, state },
                );
            }
        }
    }

    /// How many pods are known to be without their placement.
    #[must_use]
    pub fn unplaced(&self) -> usize {
        let pods = self.pods();
        pods.values().filter(|seen| matches!(seen.state, State::Unplaced(_))).count()
    }

    /// What is to be told of them, and done.
    #[must_use]
    pub fn plan(&self, view: &View, policy: &Policy, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        let mut pods = self.pods();
        pods.retain(|name, seen| match &seen.state {
            State::Unplaced(_) => true,
            State::Whole(pod) => match missing(&name.namespace, pod, view, policy) {
                Some((missing, can_be_met)) => {
                    // Made again it would be refused, and nothing would run at all.
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
            plan.actions.push(Action {
                target: Target {
                    kind: Kind::Pod,
                    namespace: name.namespace.clone(),
                    name: name.name.clone(),
                    uid: seen.identity.uid.clone(),
                },
                write,
                events: vec![event],
            });
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
        let may_go = policy.repair == Repair::RecreatePending && self.is_replaceable;
        let due = self.identity.created.and_then(|created| created.checked_add(PATIENCE).ok());
        if may_go && due.is_none_or(|due| due <= now) {
            let note = format!("{missing}; deleted, so that its owner makes it again");
            let version = self.is_tasks.then(|| self.identity.resource_version.clone());
            return (
                Write::Delete { grace: None, version },
                Event { warning: true, reason: "Recreated", note },
            );
        }
        if let Some(due) = due.filter(|_| may_go) {
            plan.recheck_by(due);
        }
        let remedy = match self.is_tasks && !self.is_replaceable {
            true => "deleting the pod now would fail its TaskRun",
            false => "delete the pod to have it made again",
        };
        let note = format!("{missing}; {remedy}");
        (Write::None, Event { warning: true, reason: "NotPlaced", note })
    }
}

fn name_of(pod: &Pod) -> Option<Name> {
    let metadata = &pod.metadata;
    Some(Name::new(metadata.namespace.as_deref()?, metadata.name.as_deref()?))
}

/// Whether a pod asks for something of ours, lives, and bears no record of a decision.
fn may_be_missed(pod: &Pod) -> bool {
    let metadata = &pod.metadata;
    let annotations = metadata.annotations.as_ref();
    let has_record = annotations.is_some_and(|annotations| annotations.contains_key(record::KEY));
    let has_key = annotations.is_some_and(|annotations| {
        annotations.keys().any(|key| matches!(meaning(key), Meaning::Known(_)))
    });
    let has_job = metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(JOB));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_tasks = || Owner::of_tekton(metadata, TASK_RUN).is_some();
    (has_key || has_job || is_tasks())
        && !has_record
        && metadata.deletion_timestamp.is_none()
        && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_replaceable(pod: &Pod) -> bool {
    let unbound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
    let mut owners = pod.metadata.owner_references.iter().flatten();
    unbound
        && owners
            .any(|owner| owner.controller == Some(true) && MAKERS.contains(&owner.kind.as_str()))
}

/// What a pod lacks, and whether it would get that now; `None` where it has all it should, or is
/// none of our business.
fn missing(namespace: &str, pod: &Value, view: &View, policy: &Policy) -> Option<(String, bool)> {
    match decide_creation(PODS, namespace, pod, view, policy).ok()? {
        Decision::Refuse(refusal) => {
            let first = refusal.first();
            let text = format!("was admitted while stowplan was away, which refuses it: {first}");
            Some((text, false))
        }
        // One that the policy admits as it is has been told so.
        Decision::Admit(admission)
            if admission.findings.is_empty() && !admission.patch.is_empty() =>
        {
            let mut wishes = admission.intents.iter().map(|intent| intent.wish.to_string());
            let first = wishes.next()?;
            let more = wishes.count();
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            let text = format!("was admitted while stowplan was away, and lacks: {first}{more}");
            Some((text, true))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::view::Object;

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
        let node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
        view.apply(Object::node(&node).unwrap());
        view
    }

    fn after(seconds: i64) -> Timestamp {
        "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
    }

    fn told(report: &Report, policy: &Policy, seconds: i64) -> Vec<(Write, &'static str, String)> {
        let plan = report.plan(&view(), policy, after(seconds));
        let told = plan.actions.into_iter().map(|action| {
            let [event] = <[Event; 1]>::try_from(action.events).unwrap();
            (action.write, event.reason, event.note)
        });
        told.collect()
    }

    #[test]
    fn what_is_missing_is_told() {
        let report = Report::default();
        report.look(&pod("p", &json!({"streams.ibm.com/host": "n1"}), None));
        let told = told(&report, &Policy::default(), 1);
        let [(Write::None, "NotPlaced", note)] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!(
            note,
            "was admitted while stowplan was away, and lacks: required node affinity \
             metadata.name In [n1]; delete the pod to have it made again"
        );
        assert_eq!(report.unplaced(), 1);
        report.see(Passing::Gone(&Name::new("ns", "p")));
        assert_eq!(report.unplaced(), 0);
    }

    #[test]
    fn what_would_be_refused_is_told_with_the_reason() {
        let report = Report::default();
        report.look(&pod("p", &json!({"streams.ibm.com/host": "n7"}), Some("Job")));
        let told = told(&report, &Policy::default(), 1);
        let [(Write::None, "NotPlaced", note)] = told.as_slice() else { panic!("{told:?}") };
        assert!(note.contains("which refuses it: streams.ibm.com/host: no node has"), "{note}");
    }

    #[test]
    fn placed_pods_and_those_of_others_are_left_alone() {
        let report = Report::default();
        report.look(&pod(
            "record",
            &json!({"streams.ibm.com/host": "n1", record::KEY: "{}"}),
            None,
        ));
        report.look(&pod("foreign", &json!({"a/b": "n1"}), None));
        let mut bound = pod("bound", &json!({"streams.ibm.com/host": "n1"}), None);
        bound.spec.as_mut().unwrap().affinity = serde_json::from_value(json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}}))
        .unwrap();
        report.look(&bound);
        let policy = Policy { record_placement: false, ..Policy::default() };
        assert!(told(&report, &policy, 1).is_empty());
        assert_eq!(report.unplaced(), 0);
    }

    #[test]
    fn a_waiting_pod_is_made_again_where_the_policy_says_so() {
        let policy = Policy { repair: Repair::RecreatePending, ..Policy::default() };
        let report = Report::default();
        let wish = &json!({"streams.ibm.com/host": "n1"});
        report.look(&pod("owned", wish, Some("ReplicaSet")));
        report.look(&pod("single", wish, None));
        report.look(&pod("refused", &json!({"streams.ibm.com/host": "n7"}), Some("ReplicaSet")));
        let mut bound = pod("bound", wish, Some("ReplicaSet"));
        bound.spec.as_mut().unwrap().node_name = Some("n2".to_owned());
        report.look(&bound);

        let early = report.plan(&view(), &policy, after(59));
        assert!(early.actions.iter().all(|action| action.write == Write::None));
        assert_eq!(early.recheck_at, Some(after(60)));
        let late = told(&report, &policy, 60);
        assert!(
            late.iter().all(|(write, _, note)| *write == Write::None || !note.contains("refuses")),
            "{late:?}"
        );
        let gone = late.iter().filter(|(write, reason, _)| {
            matches!(write, Write::Delete { .. }) && *reason == "Recreated"
        });
        assert_eq!(gone.count(), 1, "{late:?}");
        assert!(
            told(&report, &Policy::default(), 60).iter().all(|(write, ..)| *write == Write::None)
        );
    }

    /// A run with one claim, and a pod of its task.
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
            view.apply(Object::from_document(document).unwrap().unwrap());
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
    fn the_pod_of_a_task_is_made_again_only_while_it_has_no_node() {
        let (view, mut pod) = run();
        let report = Report::default();
        report.look(&pod);
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

        // Another version, still without a node.
        pod.metadata.resource_version = Some("8".to_owned());
        report.look(&pod);
        assert_eq!(plan(&repairs).0, Write::Delete { grace: None, version: Some("8".into()) });
        pod.spec.as_mut().unwrap().node_name = Some("n1".to_owned());
        report.look(&pod);
        let (write, note) = plan(&repairs);
        assert_eq!(write, Write::None);
        assert!(note.ends_with("deleting the pod now would fail its TaskRun"), "{note}");
    }

    #[test]
    fn the_pod_of_a_task_without_a_group_lacks_nothing() {
        let (view, mut pod) = run();
        pod.spec.as_mut().unwrap().volumes = None;
        let report = Report::default();
        report.look(&pod);
        assert!(report.plan(&view, &Policy::default(), after(60)).actions.is_empty());
        assert_eq!(report.unplaced(), 0);
        // Its UID is another run's: labels and names count for nothing.
        let (_, mut forged) = run();
        forged.metadata.owner_references.as_mut().unwrap()[0].uid = "other".to_owned();
        report.look(&forged);
        assert!(report.plan(&view, &Policy::default(), after(60)).actions.is_empty());
    }
}
