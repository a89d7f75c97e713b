use k8s_openapi::api::core::v1 as core;
use serde_json::{Value, json};

use super::*;
use crate::placement::object::Object;
use crate::systems;
use crate::systems::coschedule::owner::concerns;
use crate::systems::coschedule::resources::TASK_RUN;
use crate::view::{ControllerState, Scope};

fn admit(pod: &Value, view: &View, policy: &str) -> Outcome {
    let text = pod.to_string();
    let object: Object<'_> = serde_json::from_str(&text).unwrap();
    let pod = Pod::decode("ci", &object).unwrap();
    request(&pod, view, &Policy::from_yaml(policy).unwrap())
}

fn summary(outcome: &Outcome) -> (Vec<String>, usize) {
    let changes = outcome.intents.iter().map(|intent| match &intent.change {
        Change::Label { .. } => "label".to_owned(),
        Change::PodAffinity(_) => "term".to_owned(),
        Change::NodeAffinity(_) => "node".to_owned(),
        change => change.to_string(),
    });
    (changes.collect(), outcome.warnings.len())
}

fn grouped(spec: &Value) -> Value {
    json!({"metadata": {"annotations": {"stowplan.dev/coschedule-group": "g"}}, "spec": spec})
}

/// A View without a controller and, where there is one, with the group's placeholder on a node.
fn abandoned(node: Option<(&str, bool)>) -> View {
    let mut view = View::default();
    view.set_controller_present(false);
    let name = keys::of_native("ci", "g");
    if let Some((node, cordoned)) = node {
        for object in [
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": {"unschedulable": cordoned}}),
            json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("{name}-0"), "namespace": "ci", "labels": {"stowplan.dev/placeholder": name}},
                "spec": {"nodeName": node, "containers": []}}),
        ] {
            view.apply(systems::object(object).unwrap().unwrap());
        }
    }
    view
}

#[test]
fn without_a_controller_no_pod_waits_for_it() {
    let plain = grouped(&json!({}));
    let term = json!({"labelSelector": {}, "topologyKey": "zone"});
    let with_a_term = grouped(&json!({"affinity": {"podAffinity":
        {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}));
    let of_all_nodes = grouped(&json!({"tolerations": [
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]}));
    let elsewhere = grouped(&json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}]}}}}));
    let nothing = (vec![], 1);
    let changes = |of: &[&str]| (of.iter().map(|&change| change.to_owned()).collect(), 0);
    let gate = "scheduling gate stowplan.dev/placeholder";
    for (what, pod, view, policy, expected) in [
        ("no placeholder", &plain, abandoned(None), "", nothing.clone()),
        ("nor a gate", &with_a_term, abandoned(None), "", nothing.clone()),
        (
            "a placeholder on a cordoned node",
            &plain,
            abandoned(Some(("n1", true))),
            "",
            nothing.clone(),
        ),
        (
            "a placeholder on a node",
            &plain,
            abandoned(Some(("n1", false))),
            "",
            changes(&["label", "term"]),
        ),
        (
            "by node too",
            &with_a_term,
            abandoned(Some(("n1", false))),
            "",
            changes(&["label", "node"]),
        ),
        (
            "a cordoned node that the pod tolerates",
            &of_all_nodes,
            abandoned(Some(("n1", true))),
            "",
            changes(&["label", "term"]),
        ),
        (
            "an ineligible node, which only the controller can change",
            &elsewhere,
            abandoned(Some(("n1", false))),
            "",
            nothing.clone(),
        ),
        (
            "nor would a gate be removed",
            &elsewhere,
            abandoned(Some(("n1", false))),
            "coschedule: {binding: node}",
            nothing,
        ),
        (
            "the policy makes pods wait",
            &plain,
            abandoned(None),
            "coschedule: {controllerAbsent: wait}",
            changes(&["label", "term"]),
        ),
        (
            "gated",
            &with_a_term,
            abandoned(None),
            "coschedule: {controllerAbsent: wait}",
            changes(&["label", gate]),
        ),
        ("the controller is running", &with_a_term, View::default(), "", changes(&["label", gate])),
    ] {
        assert_eq!(summary(&admit(pod, &view, policy)), expected, "{what}");
    }
}

/// The pod's own claim is never bound, but the placeholder's claim may exist.
#[test]
fn without_a_controller_parked_claims_are_still_replaced() {
    let mut view = abandoned(None);
    let claim = systems::coschedule::kinds::pipeline_run::claim_name(None, "w", "r");
    for object in [
        json!({"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": {"name": "t", "namespace": "ci", "uid": "t",
            "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "r", "uid": "r", "controller": true}]}}),
        json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "r", "namespace": "ci", "uid": "r"},
            "spec": {"workspaces": [{"name": "w", "volumeClaimTemplate": {}}], "pipelineSpec": {"tasks": []}}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim, "namespace": "ci"},
            "spec": {"storageClassName": keys::PARKED}}),
    ] {
        view.apply(systems::object(object).unwrap().unwrap());
    }
    let term = json!({"labelSelector": {}, "topologyKey": "zone"});
    let pod = json!({
        "metadata": {"ownerReferences": [
            {"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "name": "t", "uid": "t", "controller": true}]},
        "spec": {
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        },
    });
    let outcome = admit(&pod, &view, "");
    let [Intent { change: Change::ClaimName { from, to }, .. }] = &*outcome.intents else {
        panic!("{:?}", outcome.intents)
    };
    assert_eq!((from, to), (&claim, &keys::provisioned(&claim, &keys::of_run("r", "w"))));
    assert_eq!((outcome.warnings.len(), outcome.holds.len()), (1, 0));
}

/// A pod that requires an ineligible node would wait for ever, whereas a gate waits until the placeholder
/// has moved.
#[test]
fn a_pod_requires_by_name_only_an_eligible_node() {
    let name = keys::of_native("ci", "g");
    let change_on = |node: Option<Value>, spec: &Value| {
        let mut view = View::default();
        let placeholder = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{name}-0"), "namespace": "ci", "labels": {"stowplan.dev/placeholder": name}},
            "spec": {"nodeName": "n1", "containers": []}});
        view.apply(systems::object(placeholder).unwrap().unwrap());
        if let Some(node) = node {
            let node: core::Node = serde_json::from_value(node).unwrap();
            view.apply(systems::project(&node, Scope::Controller).unwrap());
        }
        let (changes, warnings) =
            summary(&admit(&grouped(spec), &view, "coschedule: {binding: node}"));
        assert_eq!((&*changes[0], changes.len(), warnings), ("label", 2, 0));
        changes[1].clone()
    };
    let node = |cordoned: bool| {
        Some(
            json!({"metadata": {"name": "n1", "labels": {"arch": "amd64"}}, "spec": {"unschedulable": cordoned}}),
        )
    };
    let terms = |terms: &Value| {
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    };
    let of_arch = |arch: &str| json!({"matchExpressions": [{"key": "arch", "operator": "In", "values": [arch]}]});
    let tolerates = |effect: &str| {
        json!({"tolerations": [
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": effect}]})
    };
    let gate = "scheduling gate stowplan.dev/placeholder";
    for (what, node, spec, wanted) in [
        ("open", node(false), json!({}), "node"),
        ("not known", None, json!({}), gate),
        ("cordoned", node(true), json!({}), gate),
        ("cordoned and tolerated", node(true), tolerates("NoSchedule"), "node"),
        ("cordoned, and only NoExecute is tolerated", node(true), tolerates("NoExecute"), gate),
        ("its node selector", node(false), json!({"nodeSelector": {"arch": "amd64"}}), "node"),
        ("another arch", node(false), json!({"nodeSelector": {"arch": "arm64"}}), gate),
        ("an unknown label", node(false), json!({"nodeSelector": {"disk": "ssd"}}), gate),
        (
            "one of its terms",
            node(false),
            terms(&json!([of_arch("arm64"), of_arch("amd64")])),
            "node",
        ),
        ("none of its terms", node(false), terms(&json!([of_arch("arm64")])), gate),
        ("terms that select no node", node(false), terms(&json!([{}])), "node"),
    ] {
        assert_eq!(change_on(node, &spec), wanted, "{what}");
    }
}

/// A placeholder whose template says otherwise than its pod leaves its node soon.
#[test]
fn a_pod_does_not_require_a_node_that_its_placeholder_leaves() {
    let name = keys::of_native("ci", "g");
    let gate = "scheduling gate stowplan.dev/placeholder";
    let plan = |text: &str| json!({"labels": {"stowplan.dev/placeholder": name, keys::MEMBER: name}, "annotations": {keys::PLAN: text}});
    for (template, wanted) in [
        (r#"{"held":false,"claims":["c"]}"#, "node"),
        (r#"{"held":true,"claims":["c"]}"#, "node"),
        (r#"{"except":["n2"],"held":false,"claims":["c"]}"#, "node"),
        (r#"{"only":"n1","held":false,"claims":["c"]}"#, "node"),
        (r#"{"except":["n1","n2"],"held":false,"claims":["c"]}"#, gate),
        (r#"{"only":"n2","held":false,"claims":["c"]}"#, gate),
        (r#"{"held":false,"claims":["c","d"]}"#, gate),
        ("malformed", "node"),
    ] {
        let mut view = View::default();
        let mut pod = plan(r#"{"held":false,"claims":["c"]}"#);
        json_patch::merge(&mut pod, &json!({"name": format!("{name}-0"), "namespace": "ci"}));
        for object in [
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": pod,
                "spec": {"nodeName": "n1", "containers": []}}),
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
                "metadata": {"name": name, "namespace": "ci", "labels": {"stowplan.dev/placeholder": name}},
                "spec": {"serviceName": "", "selector": {}, "template": {"metadata": plan(template)}}}),
        ] {
            view.apply(systems::object(object).unwrap().unwrap());
        }
        let outcome = admit(&grouped(&json!({})), &view, "coschedule: {binding: node}");
        assert_eq!(summary(&outcome).0, ["label", wanted], "{template}");
    }
}

#[test]
fn only_some_node_labels_are_kept() {
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "labels": {"arch": "amd64"}}});
    let mut view = View::default();
    view.apply(systems::object(node).unwrap().unwrap());
    assert_eq!(view.node_label("n1", "arch"), None);
}

#[test]
fn a_placed_pod_is_unchanged_without_a_controller() {
    let placeholder = keys::of_native("ci", "g");
    let mut pod = grouped(&json!({"schedulingGates": [{"name": keys::GATE}]}));
    pod["metadata"]["labels"] = json!({keys::MEMBER: placeholder});
    assert_eq!(summary(&admit(&pod, &abandoned(None), "")), (vec![], 0));
}

#[test]
fn without_tektons_kinds_no_pod_belongs_to_a_run() {
    let pod = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "name": "t", "uid": "u", "controller": true}]}});
    let text = pod.to_string();
    let object: Object<'_> = serde_json::from_str(&text).unwrap();
    let mut view = systems::view();
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
        let warnings = format!("{:?}", outcome.warnings);
        assert!(warnings.contains(said), "{warnings}");
    }
}
