use serde_json::{Value, json};

use super::*;
use crate::placement::object::Object;
use crate::systems;
use crate::systems::coschedule::owner::concerns;
use crate::systems::coschedule::resources::TASK_RUN;
use crate::systems::test_objects::{controlled_by, view_of};
use crate::view::ControllerState;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const BY_NODE: &str = "coschedule: {binding: node}";
const GATED: &str = "label, scheduling gate stowplan.dev/placeholder";

fn admit(pod: &Value, view: &View, policy: &str) -> Outcome {
    let text = pod.to_string();
    let object: Object<'_> = serde_json::from_str(&text).unwrap();
    let pod = Pod::decode("ci", &object).unwrap();
    request(&pod, view, &Policy::from_yaml(policy).unwrap())
}

/// The changes to a pod, and `warning` for each warning.
fn summary(outcome: &Outcome) -> String {
    let changes = outcome.intents.iter().map(|intent| match &intent.change {
        Change::Label { .. } => "label".to_owned(),
        Change::PodAffinity(_) => "term".to_owned(),
        Change::NodeAffinity(_) => "node".to_owned(),
        change => change.to_string(),
    });
    let warnings = outcome.warnings.iter().map(|_| "warning".to_owned());
    changes.chain(warnings).collect::<Vec<_>>().join(", ")
}

fn grouped(spec: &Value) -> Value {
    json!({"metadata": {"annotations": {"stowplan.dev/coschedule-group": "g"}}, "spec": spec})
}

/// The placeholder of the group, on the node `n1`.
fn placeholder_pod() -> Value {
    let name = keys::of_native("ci", "g");
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("{name}-0"), "namespace": "ci", "labels": {"stowplan.dev/placeholder": name}},
        "spec": {"nodeName": "n1", "containers": []}})
}

/// The node `n1`.
fn node(cordoned: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"arch": "amd64"}},
        "spec": {"unschedulable": cordoned}})
}

fn with_a_term() -> Value {
    let term = json!({"labelSelector": {}, "topologyKey": "zone"});
    json!({"affinity": {"podAffinity": {REQUIRED: [term]}}})
}

#[test]
fn without_a_controller_no_pod_waits_for_it() {
    let (plain, with_a_term) = (grouped(&json!({})), grouped(&with_a_term()));
    let cordon = json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"});
    let tolerant = grouped(&json!({"tolerations": [cordon]}));
    let not_n1 =
        json!([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}]);
    let not_n1 = json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": not_n1}}});
    let elsewhere = grouped(&json!({"affinity": not_n1}));
    let mut placed = grouped(&json!({"schedulingGates": [{"name": keys::GATE}]}));
    placed["metadata"]["labels"] = json!({keys::MEMBER: keys::of_native("ci", "g")});
    let on = |cordoned: bool| vec![node(cordoned), placeholder_pod()];
    let waiting = "coschedule: {controllerAbsent: wait}";
    for (what, pod, objects, policy, expected) in [
        ("no placeholder", &plain, vec![], "", "warning"),
        ("nor a gate", &with_a_term, vec![], "", "warning"),
        ("a placeholder on a cordoned node", &plain, on(true), "", "warning"),
        ("a placeholder on a node", &plain, on(false), "", "label, term"),
        ("by node too", &with_a_term, on(false), "", "label, node"),
        ("a cordoned node that the pod tolerates", &tolerant, on(true), "", "label, term"),
        ("an ineligible node, which needs the controller", &elsewhere, on(false), "", "warning"),
        ("nor would a gate be removed", &elsewhere, on(false), BY_NODE, "warning"),
        ("the policy makes pods wait", &plain, vec![], waiting, "label, term"),
        ("gated", &with_a_term, vec![], waiting, GATED),
        ("placed earlier", &placed, vec![], "", ""),
    ] {
        let mut view = view_of(objects);
        view.set_controller_present(false);
        assert_eq!(summary(&admit(pod, &view, policy)), expected, "{what}");
    }
    // With a controller.
    let view = View::default();
    assert_eq!(summary(&admit(&with_a_term, &view, "")), GATED);
    let gated = "label, term, scheduling gate stowplan.dev/placeholder";
    assert_eq!(summary(&admit(&plain, &view, "")), gated);
    assert_eq!(summary(&admit(&plain, &view_of(on(true)), "")), "label, term");
    // The placeholder holds room, which only a controller takes from it.
    let mut holds = placeholder_pod();
    holds["spec"]["containers"] =
        json!([{"name": "pause", "resources": {"requests": {"cpu": "1"}}}]);
    let mut view = view_of([node(false), holds]);
    assert_eq!(summary(&admit(&plain, &view, "")), gated);
    assert_eq!(summary(&admit(&with_a_term, &view, "")), GATED);
    view.set_controller_present(false);
    assert_eq!(summary(&admit(&plain, &view, "")), "label, term");
}

/// The pod's own claim is never bound, but the placeholder's claim may exist.
#[test]
fn without_a_controller_parked_claims_are_still_replaced() {
    let claim = systems::coschedule::kinds::pipeline_run::claim_name(None, "w", "r");
    let mut view = view_of([
        json!({"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": {"name": "t", "namespace": "ci", "uid": "t",
            "ownerReferences": controlled_by("PipelineRun", "r", "r")}}),
        json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "r", "namespace": "ci", "uid": "r"},
            "spec": {"workspaces": [{"name": "w", "volumeClaimTemplate": {}}], "pipelineSpec": {"tasks": []}}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim, "namespace": "ci"},
            "spec": {"storageClassName": keys::PARKED}}),
    ]);
    view.set_controller_present(false);
    let mut spec = with_a_term();
    spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    let owner = controlled_by("TaskRun", "t", "t");
    let outcome = admit(&json!({"metadata": {"ownerReferences": owner}, "spec": spec}), &view, "");
    let [Intent { change: Change::ClaimName { from, to }, .. }] = &*outcome.intents else {
        panic!("{:?}", outcome.intents)
    };
    assert_eq!((from, to), (&claim, &keys::provisioned(&claim, &keys::of_run("r", "w"))));
    assert_eq!((outcome.warnings.len(), outcome.holds.len()), (1, 0));
}

/// The claims of its run are replaced only once the run is known.
#[test]
fn a_pod_of_a_native_group_waits_for_its_unknown_run_if_a_claim_may_be_parked() {
    let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
    let mut pod = grouped(&json!({"volumes": [volume]}));
    pod["metadata"]["ownerReferences"] = controlled_by("TaskRun", "t", "u");
    let task_run = Key::new(TASK_RUN, Name::new("ci", "t"));
    let provision = "coschedule: {volumes: provision}";
    for (class, policy, waits) in [
        (Some(keys::PARKED), "", true),
        (Some(keys::PARKED), provision, true),
        (Some("fast"), "", false),
        (Some("fast"), provision, false),
        (None, "", false),
        (None, provision, true),
    ] {
        let claim = class.map(|class| {
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": "c", "namespace": "ci"}, "spec": {"storageClassName": class}})
        });
        let outcome = admit(&pod, &view_of(claim), policy);
        assert_eq!(outcome.awaited.contains(&task_run), waits, "{class:?}, {policy}");
    }
}

/// A placeholder whose template says otherwise than its pod leaves its node soon.
#[test]
fn a_pod_does_not_require_a_node_that_its_placeholder_leaves() {
    let name = keys::of_native("ci", "g");
    let plan = |text: &str| json!({"labels": {"stowplan.dev/placeholder": name, keys::MEMBER: name}, "annotations": {keys::PLAN: text}});
    let mut pod = placeholder_pod();
    json_patch::merge(&mut pod["metadata"], &plan(r#"{"held":false,"claims":["c"]}"#));
    for (template, expected) in [
        (r#"{"held":false,"claims":["c"]}"#, "label, node"),
        (r#"{"held":true,"claims":["c"]}"#, "label, node"),
        (r#"{"avoid":["n1","n2"],"held":false,"claims":["c"]}"#, "label, node"),
        (r#"{"only":"n1","held":false,"claims":["c"]}"#, "label, node"),
        (r#"{"avoid":["n2","n1"],"held":false,"claims":["c"]}"#, GATED),
        (r#"{"only":"n2","held":false,"claims":["c"]}"#, GATED),
        (r#"{"held":false,"claims":["c","d"]}"#, GATED),
        ("malformed", "label, node"),
    ] {
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": name, "namespace": "ci", "labels": {"stowplan.dev/placeholder": name}},
            "spec": {"serviceName": "", "selector": {}, "template": {"metadata": plan(template)}}});
        let view = view_of([node(false), pod.clone(), set]);
        let outcome = admit(&grouped(&json!({})), &view, BY_NODE);
        assert_eq!(summary(&outcome), expected, "{template}");
    }
}

#[test]
fn without_tektons_kinds_no_pod_belongs_to_a_run() {
    let pod = json!({"metadata": {"ownerReferences": controlled_by("TaskRun", "t", "u")}});
    let text = pod.to_string();
    let object: Object<'_> = serde_json::from_str(&text).unwrap();
    let mut view = View::default();
    assert!(concerns("ci", &object.metadata, &view));
    assert_eq!(admit(&pod, &view, "").awaited, [Key::new(TASK_RUN, Name::new("ci", "t"))]);
    assert!(view.set_served(&TASK_RUN, false), "a View begins with it");
    assert!(!concerns("ci", &object.metadata, &view));
    assert!(admit(&pod, &view, "").awaited.is_empty());
}

#[test]
fn an_entry_of_the_record_names_its_placeholder() {
    assert_eq!(placeholder_in("coschedule-group=g: p"), Some("p"));
    assert_eq!(placeholder_in("workspaces a: b of PipelineRun r: p, node n1"), Some("p"));
    for entry in ["", "p", ": ", "é"] {
        assert_ne!(placeholder_in(entry), Some("p"), "{entry}");
    }
}

#[test]
fn the_warning_says_whether_a_controller_has_led() {
    for (state, said) in [
        (ControllerState::NotYet, "no controller of stowplan has led yet"),
        (ControllerState::Stopped, "has stopped renewing its Lease"),
    ] {
        let mut view = View::default();
        view.set_controller(state);
        let outcome = admit(&grouped(&json!({"containers": []})), &view, "");
        let [warning] = &*outcome.warnings else { panic!("{:?}", outcome.warnings) };
        assert!(warning.as_str().contains(said), "{warning:?}");
    }
}
