mod handled;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use serde_json::json;

use super::*;
use stowplan_core::systems::test_objects::{controlled_by, node, view_of};

fn pod(name: &str, annotations: &Value, owner: Option<&str>) -> Pod {
    let owners = owner.map(|kind| {
        json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true}])
    });
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "ownerReferences": owners,
            "annotations": annotations, "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }))
    .unwrap()
}

/// A pod that asks for the node n1.
fn asking(name: &str, owner: Option<&str>) -> Pod {
    pod(name, &json!({"streams.ibm.com/host": "n1"}), owner)
}

/// The pod on a node.
fn bound(mut pod: Pod, node: &str) -> Pod {
    pod.spec.as_mut().unwrap().node_name = Some(node.to_owned());
    pod
}

/// The pod with the affinity that asking for the node n1 leads to.
fn placed(mut pod: Pod) -> Pod {
    pod.spec.as_mut().unwrap().affinity = serde_json::from_value(json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}}))
    .unwrap();
    pod
}

fn report(pods: &[Pod]) -> Report {
    let report = Report::default();
    for pod in pods {
        report.observe(pod);
    }
    report
}

fn recreating() -> Policy {
    Policy { repair: Repair::RecreatePending, ..Policy::default() }
}

fn view() -> View {
    view_of([node("n1", &json!({}))])
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

/// The note of the only event, which has this reason and comes without a write.
fn noted(report: &Report, policy: &Policy, seconds: i64, reason: &str) -> String {
    let planned = planned(report, policy, seconds);
    let [(Write::None, of, note)] = planned.as_slice() else { panic!("{planned:?}") };
    assert_eq!(*of, reason);
    note.clone()
}

/// A process that does not lead must not keep whole pods.
#[test]
fn of_a_decided_pod_only_the_result_is_kept() {
    let mut large = asking("p", None);
    large.metadata.managed_fields = Some(vec![Default::default()]);
    large.status = Some(Default::default());
    let report = report(&[large, pod("q", &json!({"example.com/a": "b"}), None)]);
    let state = |report: &Report| {
        format!("{:?}", report.state().pods.values().map(|seen| &seen.state).collect::<Vec<_>>())
    };
    let kept = state(&report);
    let parts = ["Undecided", "managedFields", "status"].map(|part| kept.contains(part));
    assert_eq!(parts, [true, false, false], "{kept}");
    report.decide(&view(), &Policy::default());
    let kept = state(&report);
    assert!(kept.contains("Unplaced") && !kept.contains("Undecided"), "{kept}");
    assert_eq!(planned(&report, &Policy::default(), 1).len(), 1);
}

#[test]
fn a_pod_without_its_placement_is_reported() {
    let report = Report::default();
    let lacking = asking("p", None);
    assert!(report.observe(&lacking), "a plan has to report it");
    assert_eq!(
        noted(&report, &Policy::default(), 1, "NotPlaced"),
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

#[test]
fn the_note_names_why_the_pod_was_not_placed() {
    let refused = pod("p", &json!({"streams.ibm.com/host": "n7"}), Some("Job"));
    let note = noted(&report(&[refused]), &Policy::default(), 1, "NotPlaced");
    assert!(note.contains("which would refuse it: streams.ibm.com/host: no node has"), "{note}");
    let policy = Policy { match_conditions: ["mine".to_owned()].into(), ..Policy::default() };
    let note = noted(&report(&[asking("p", None)]), &policy, 60, "NotPlaced");
    assert!(note.contains("excluded by its match condition mine)"), "{note}");
    // The node that the scheduler chose is not the pod's fault.
    let report = report(&[bound(asking("p", None), "n9")]);
    let note = noted(&report, &Policy::default(), 1, "NotPlaced");
    assert!(note.contains("lacks: required node affinity metadata.name In [n1]"), "{note}");
    assert!(!note.contains("nodeName"), "{note}");
}

#[test]
fn placed_and_excluded_pods_and_pods_without_keys_are_not_reported() {
    let record = json!({"streams.ibm.com/host": "n1", record::KEY: "{}"});
    let foreign = pod("foreign", &json!({"a/b": "n1"}), None);
    let unreported =
        report(&[pod("record", &record, None), foreign, placed(asking("placed", None))]);
    let policy = Policy { record_placement: false, ..Policy::default() };
    let excluded = report(&[asking("p", Some("ReplicaSet"))]);
    let mut excludes = recreating();
    excludes.excluded_namespaces.insert("ns".to_owned());
    for (report, policy, seconds) in [(unreported, policy, 1), (excluded, excludes, 60)] {
        assert_eq!(planned(&report, &policy, seconds), []);
        assert_eq!(report.unplaced(), 0);
    }
}

/// By a webhook that is called after stowplan's and writes an affinity of its own.
#[test]
fn a_pod_whose_placement_was_removed_is_reported_and_kept() {
    let record = r#"{"v":1,"streams":["host=n1: node n1"],"more":0}"#;
    let annotations = json!({"streams.ibm.com/host": "n1", record::KEY: record});
    let stripped = pod("p", &annotations, Some("ReplicaSet"));
    let report = report(std::slice::from_ref(&stripped));
    let note = noted(&report, &recreating(), 100, "PlacementRemoved");
    assert!(note.starts_with("spec.affinity") && note.contains("later webhook"), "{note}");
    assert_eq!((report.unplaced(), report.stripped()), (0, 1));
    // It is still wrong on its node.
    let bound = bound(stripped.clone(), "n2");
    report.observe(&bound);
    assert_eq!(report.stripped(), 1);

    let report = self::report(&[placed(stripped)]);
    assert_eq!(planned(&report, &recreating(), 100), []);
    // A controller that starts later sees neither an affinity nor a missing one of a bound pod.
    report.observe(&bound);
    assert_eq!(planned(&report, &recreating(), 100), []);
    // A record that names no decision of a system promises nothing.
    let forged = json!({"streams.ibm.com/host": "n1", record::KEY: "{}"});
    report.observe(&pod("forged", &forged, None));
    assert_eq!(planned(&report, &recreating(), 100), []);
    assert_eq!((report.unplaced(), report.stripped()), (0, 0));
}

#[test]
fn a_pending_pod_is_recreated_under_the_policy_recreate_pending() {
    let refused = pod("refused", &json!({"streams.ibm.com/host": "n7"}), Some("ReplicaSet"));
    let owned = |name| asking(name, Some("ReplicaSet"));
    let single = asking("single", None);
    let report = report(&[owned("owned"), single, refused, bound(owned("bound"), "n2")]);

    let early = report.plan(&view(), &recreating(), after(59));
    assert!(early.actions.iter().all(|action| action.write == Write::None));
    assert_eq!(early.recheck_at, Some(after(60)));
    let late = planned(&report, &recreating(), 60);
    let (kept, deleted): (Vec<_>, Vec<_>) =
        late.iter().partition(|(write, ..)| *write == Write::None);
    let [(Write::Delete { .. }, "Recreated", note)] = deleted[..] else { panic!("{deleted:?}") };
    assert!(!note.contains("would refuse"), "{note}");
    assert_eq!(kept.len(), 3, "{kept:?}");
    let planned = planned(&report, &Policy::default(), 60);
    assert!(planned.iter().all(|(write, ..)| *write == Write::None));
}

/// A View with a run of one task that mounts a claim, and the task's pod.
fn run() -> (View, Pod) {
    let owner = |kind: &str| controlled_by(kind, "run", kind);
    let metadata = |name: &str, uid: &str, owners: Value| json!({"name": name, "namespace": "ns", "uid": uid, "ownerReferences": owners});
    let workspace = json!({"name": "source", "persistentVolumeClaim": {"claimName": "c"}});
    let task = json!({"name": "t", "workspaces": [{"name": "source"}], "taskRef": {"name": "t"}});
    let view = view_of([
        node("n1", &json!({})),
        json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
            "metadata": metadata("run", "PipelineRun", json!([])),
            "spec": {"workspaces": [workspace], "pipelineSpec": {"tasks": [task]}}}),
        json!({"apiVersion": "tekton.dev/v1", "kind": "TaskRun",
            "metadata": metadata("run", "TaskRun", owner("PipelineRun"))}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": metadata("c", "c", json!([])), "spec": {"accessModes": ["ReadWriteOnce"]}}),
    ]);
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
    let report = report(std::slice::from_ref(&pod));
    let plan = |policy: &Policy| {
        let [action] =
            <[Action; 1]>::try_from(report.plan(&view, policy, after(60)).actions).unwrap();
        (action.write, action.events[0].note.clone())
    };
    let (write, note) = plan(&Policy::default());
    assert_eq!(write, Write::None);
    // In the first seconds after an installation the webhook admits members without their group.
    let start = "was admitted without stowplan's webhook, or while no controller led, and lacks: \
                 label stowplan.dev/coschedule-member";
    assert!(note.starts_with(start), "{note}");
    assert!(note.ends_with("delete the pod, so that its owner creates it again"), "{note}");
    assert_eq!(plan(&recreating()).0, Write::Delete { grace: None, version: Some("7".into()) });

    // Another version, still unbound.
    pod.metadata.resource_version = Some("8".to_owned());
    report.observe(&pod);
    assert_eq!(plan(&recreating()).0, Write::Delete { grace: None, version: Some("8".into()) });
    report.observe(&bound(pod, "n1"));
    let (write, note) = plan(&recreating());
    assert_eq!(write, Write::None);
    assert!(note.ends_with("deleting the pod now would fail its TaskRun"), "{note}");
}

#[test]
fn the_pod_of_a_task_run_without_a_group_is_not_reported() {
    let (view, mut pod) = run();
    pod.spec.as_mut().unwrap().volumes = None;
    let report = report(&[pod]);
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
    let (policy, report) = (recreating(), Report::default());
    let mut seconds = 0;
    let observe = |name: &str, created: i64| {
        let mut pod = asking(name, Some("ReplicaSet"));
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
    let note = noted(&report, &policy, seconds + 100_000, "NotPlaced");
    assert!(note.contains("recreating its owner's pods did not help"), "{note}");

    // An hour without such pods, and the next outage is a new one.
    report.see(PodChange::Deleted(&Name::new("ns", "last")));
    assert_eq!(deletions(seconds + 200_000), 0);
    observe("later", seconds + 300_000);
    assert_eq!(deletions(seconds + 300_060), 1);
}
