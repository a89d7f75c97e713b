use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
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

fn planned(report: &Report, policy: &Policy, seconds: i64) -> Vec<(Write, &'static str, String)> {
    let plan = report.plan(&view(), policy, after(seconds));
    let planned = plan.actions.into_iter().map(|action| {
        let [event] = <[Event; 1]>::try_from(action.events).unwrap();
        (action.write, event.reason, event.note)
    });
    planned.collect()
}

/// A process that does not lead must not keep whole pods.
#[test]
fn of_a_decided_pod_only_the_result_is_kept() {
    let report = Report::default();
    let mut large = pod("p", &json!({"streams.ibm.com/host": "n1"}), None);
    large.metadata.managed_fields = Some(vec![Default::default()]);
    large.status = Some(Default::default());
    report.observe(&large);
    report.observe(&pod("q", &json!({"example.com/a": "b"}), None));
    let state = |report: &Report| {
        format!("{:?}", report.state().pods.values().map(|seen| &seen.state).collect::<Vec<_>>())
    };
    let kept = state(&report);
    assert!(
        kept.contains("Undecided") && !kept.contains("managedFields") && !kept.contains("status"),
        "{kept}"
    );
    report.decide(&view(), &Policy::default());
    let kept = state(&report);
    assert!(kept.contains("Unplaced") && !kept.contains("Undecided"), "{kept}");
    assert_eq!(planned(&report, &Policy::default(), 1).len(), 1);
}

#[test]
fn a_pod_without_its_placement_is_reported() {
    let report = Report::default();
    let lacking = pod("p", &json!({"streams.ibm.com/host": "n1"}), None);
    assert!(report.observe(&lacking), "a plan has to report it");
    let planned = planned(&report, &Policy::default(), 1);
    let [(Write::None, "NotPlaced", note)] = planned.as_slice() else { panic!("{planned:?}") };
    assert_eq!(
        note,
        "was admitted without stowplan's webhook and lacks: required node affinity \
         metadata.name In [n1]; delete the pod and create it again"
    );
    assert_eq!(report.unplaced(), 1);
    assert!(report.observe(&lacking), "its version is in the plan");
    let deleted = Name::new("ns", "p");
    assert!(report.see(PodChange::Deleted(&deleted)));
    assert_eq!(report.unplaced(), 0);
    assert!(!report.see(PodChange::Deleted(&deleted)), "it was forgotten before");
    assert!(!report.observe(&pod("other", &json!({}), None)), "stowplan has nothing to do with it");
}

/// In the first seconds after an installation the webhook admits members without their group.
#[test]
fn a_pod_that_was_admitted_without_its_group_is_reported_or_recreated() {
    let report = Report::default();
    let group = json!({"stowplan.dev/coschedule-group": "g"});
    report.observe(&pod("p", &group, Some("ReplicaSet")));
    let planned_now = planned(&report, &Policy::default(), 70);
    let [(Write::None, "NotPlaced", note)] = planned_now.as_slice() else {
        panic!("{planned_now:?}")
    };
    let start = "was admitted without stowplan's webhook, or while no controller led, and lacks: ";
    assert!(note.starts_with(start), "{note}");
    assert!(note.ends_with("delete the pod, so that its owner creates it again"), "{note}");
    let repair = Policy { repair: Repair::RecreatePending, ..Policy::default() };
    let planned = planned(&report, &repair, 70);
    let [(Write::Delete { .. }, "Recreated", _)] = planned.as_slice() else {
        panic!("{planned:?}")
    };
}

#[test]
fn a_pod_that_would_be_refused_is_reported_with_the_reason() {
    let report = Report::default();
    report.observe(&pod("p", &json!({"streams.ibm.com/host": "n7"}), Some("Job")));
    let planned = planned(&report, &Policy::default(), 1);
    let [(Write::None, "NotPlaced", note)] = planned.as_slice() else { panic!("{planned:?}") };
    assert!(note.contains("which would refuse it: streams.ibm.com/host: no node has"), "{note}");
}

#[test]
fn placed_pods_and_pods_without_keys_are_not_reported() {
    let report = Report::default();
    report.observe(&pod("record", &json!({"streams.ibm.com/host": "n1", record::KEY: "{}"}), None));
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

/// By a webhook that is called after stowplan's and writes an affinity of its own.
#[test]
fn a_pod_whose_placement_was_removed_is_reported_and_kept() {
    let record = r#"{"v":1,"streams":["host=n1: node n1"],"more":0}"#;
    let annotations = json!({"streams.ibm.com/host": "n1", record::KEY: record});
    let repair = Policy { repair: Repair::RecreatePending, ..Policy::default() };
    let report = Report::default();
    let stripped = pod("p", &annotations, Some("ReplicaSet"));
    report.observe(&stripped);
    let planned_now = planned(&report, &repair, 100);
    let [(Write::None, "PlacementRemoved", note)] = planned_now.as_slice() else {
        panic!("{planned_now:?}")
    };
    assert!(note.starts_with("spec.affinity") && note.contains("later webhook"), "{note}");
    assert_eq!((report.unplaced(), report.stripped()), (0, 1));
    // It is still wrong on its node.
    let mut bound = stripped.clone();
    bound.spec.as_mut().unwrap().node_name = Some("n2".to_owned());
    report.observe(&bound);
    assert_eq!(report.stripped(), 1);

    let mut whole = pod("p", &annotations, Some("ReplicaSet"));
    whole.spec.as_mut().unwrap().affinity = serde_json::from_value(json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}}))
    .unwrap();
    let report = Report::default();
    report.observe(&whole);
    assert!(planned(&report, &repair, 100).is_empty());
    // A controller that starts later sees neither an affinity nor a missing one of a bound pod.
    report.observe(&bound);
    assert!(planned(&report, &repair, 100).is_empty());
    // A record that names no decision of a system promises nothing.
    let forged = json!({"streams.ibm.com/host": "n1", record::KEY: "{}"});
    report.observe(&pod("forged", &forged, None));
    assert!(planned(&report, &repair, 100).is_empty());
    assert_eq!((report.unplaced(), report.stripped()), (0, 0));
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
        late.iter().all(|(write, _, note)| *write == Write::None || !note.contains("would refuse")),
        "{late:?}"
    );
    let deleted = late.iter().filter(|(write, reason, _)| {
        matches!(write, Write::Delete { .. }) && *reason == "Recreated"
    });
    assert_eq!(deleted.count(), 1, "{late:?}");
    assert!(
        planned(&report, &Policy::default(), 60).iter().all(|(write, ..)| *write == Write::None)
    );
}

/// A View with a run of one task that mounts a claim, and the task's pod.
fn run() -> (View, Pod) {
    let mut view = view();
    let owner = |kind: &str| json!([{"apiVersion": "tekton.dev/v1", "kind": kind, "name": "run", "uid": kind, "controller": true}]);
    let workspace = json!({"name": "source", "persistentVolumeClaim": {"claimName": "c"}});
    let task = json!({"name": "t", "workspaces": [{"name": "source"}], "taskRef": {"name": "t"}});
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

#[test]
fn recreation_is_bounded_for_each_owner_with_growing_pauses() {
    let policy = Policy { repair: Repair::RecreatePending, ..Policy::default() };
    let report = Report::default();
    let request = &json!({"streams.ibm.com/host": "n1"});
    let mut seconds = 0;
    let observe = |name: &str, created: i64| {
        let mut pod = pod(name, request, Some("ReplicaSet"));
        pod.metadata.creation_timestamp = Some(Time(after(created)));
        report.observe(&pod);
    };
    let deletions = |seconds: i64| {
        let planned = planned(&report, &policy, seconds);
        planned.iter().filter(|(write, ..)| matches!(write, Write::Delete { .. })).count()
    };
    // Two pods of the outage, then their replacements, which miss the webhook too.
    for (round, pause) in [60, 120, 240, 480, 960].into_iter().enumerate() {
        let names = [format!("a{round}"), format!("b{round}")];
        names.iter().for_each(|name| observe(name, seconds));
        assert_eq!(deletions(seconds + pause - 1), 0, "round {round}");
        assert_eq!(deletions(seconds + pause), 2, "round {round}");
        // The executor has not carried it out yet: planned again, and counted once.
        assert_eq!(deletions(seconds + pause + 1), 2, "round {round}");
        for name in names {
            report.see(PodChange::Deleted(&Name::new("ns", &name)));
        }
        seconds += pause;
    }
    observe("last", seconds);
    let late = planned(&report, &policy, seconds + 100_000);
    let [(Write::None, "NotPlaced", note)] = late.as_slice() else { panic!("{late:?}") };
    assert!(note.contains("recreating its owner's pods did not help"), "{note}");

    // An hour without such pods, and the next outage is a new one.
    report.see(PodChange::Deleted(&Name::new("ns", "last")));
    assert_eq!(deletions(seconds + 200_000), 0);
    observe("later", seconds + 300_000);
    assert_eq!(deletions(seconds + 300_060), 1);
}

#[test]
fn pods_in_excluded_namespaces_are_neither_reported_nor_recreated() {
    let mut policy = Policy { repair: Repair::RecreatePending, ..Policy::default() };
    policy.excluded_namespaces.insert("ns".to_owned());
    let report = Report::default();
    report.observe(&pod("p", &json!({"streams.ibm.com/host": "n1"}), Some("ReplicaSet")));
    assert!(planned(&report, &policy, 60).is_empty());
    assert_eq!(report.unplaced(), 0);
}

#[test]
fn conditions_that_may_exclude_a_pod_are_named() {
    let policy = Policy { match_conditions: ["mine".to_owned()].into(), ..Policy::default() };
    let report = Report::default();
    report.observe(&pod("p", &json!({"streams.ibm.com/host": "n1"}), None));
    let planned = planned(&report, &policy, 60);
    assert!(planned[0].2.contains("excluded by its match condition mine)"), "{planned:?}");
}

#[test]
fn a_bound_pod_is_not_blamed_for_the_node_that_the_scheduler_chose() {
    let report = Report::default();
    let mut bound = pod("p", &json!({"streams.ibm.com/host": "n1"}), None);
    bound.spec.as_mut().unwrap().node_name = Some("n9".to_owned());
    report.observe(&bound);
    let planned = planned(&report, &Policy::default(), 1);
    let [(Write::None, "NotPlaced", note)] = planned.as_slice() else { panic!("{planned:?}") };
    assert!(note.contains("lacks: required node affinity metadata.name In [n1]"), "{note}");
    assert!(!note.contains("nodeName"), "{note}");
}
