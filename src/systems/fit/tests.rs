//! Tests of all obstacles, and of the lists of checks.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Pod, Toleration};
use serde_json::{Value, json};

use super::*;
use crate::systems;
use crate::view::Scope;

/// A View with eligible nodes `n1` to `n3`, each with 4 cores, 8 GiB and 3 pods; `change` is merged
/// into `n1`.
fn view(change: &Value) -> View {
    let mut view = View::default();
    for name in ["n1", "n2", "n3"] {
        let mut node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "disk": "ssd"}},
            "spec": {},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "3", "example.com/gpu": "1"},
            },
        });
        if name == "n1" {
            json_patch::merge(&mut node, change);
        }
        let node: k8s_openapi::api::core::v1::Node = serde_json::from_value(node).unwrap();
        view.apply(systems::project(&node, Scope::Controller).unwrap());
    }
    view
}

/// Adds a pod that requests 3 cores on `n1`.
fn add_pod(view: &mut View, name: &str) {
    let pod = json!({
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"nodeName": "n1", "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]},
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    view.apply(systems::project(&pod, Scope::Controller).unwrap());
}

fn pod(spec: &Value) -> Pod {
    let mut document = json!({"spec": {"containers": []}});
    json_patch::merge(&mut document["spec"], spec);
    serde_json::from_value(document).unwrap()
}

/// All obstacles that `checks` find for a pod of this spec on `n1`.
fn found(view: &View, spec: &Value, checks: &[Check]) -> Vec<String> {
    let pod = pod(spec);
    let needs = PodNeeds::of_spec(pod.spec.as_ref().unwrap());
    let question = Question::new(Candidate::find("n1", view).unwrap(), &needs);
    obstacles(&question, checks).map(|obstacle| obstacle.to_string()).collect()
}

fn requests(cpu: &str) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]})
}

fn terms(terms: &Value) -> Value {
    json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

#[test]
fn each_obstacle_is_found_by_itself_and_named_in_the_words_of_kubernetes() {
    let taint =
        |effect: &str| json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    let none = json!({});
    let tolerant = json!({"tolerations": [{"operator": "Exists"}]});
    let of_arm =
        json!([{"matchExpressions": [{"key": "arch", "operator": "In", "values": ["arm"]}]}]);
    for (what, node, spec, expected) in [
        ("open", none.clone(), none.clone(), None),
        (
            "deleted",
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            tolerant.clone(),
            Some("is being deleted"),
        ),
        ("not ready", json!({"status": {"conditions": []}}), tolerant.clone(), Some("is NotReady")),
        ("cordoned", json!({"spec": {"unschedulable": true}}), none.clone(), Some("is cordoned")),
        ("tolerated cordon", json!({"spec": {"unschedulable": true}}), tolerant.clone(), None),
        ("tainted", taint("NoSchedule"), none.clone(), Some("has the taint k=v:NoSchedule")),
        ("evicting", taint("NoExecute"), none.clone(), Some("has the taint k=v:NoExecute")),
        ("avoided", taint("PreferNoSchedule"), none.clone(), None),
        ("tolerated taint", taint("NoSchedule"), tolerant.clone(), None),
        (
            "no hostname",
            json!({"metadata": {"labels": {"kubernetes.io/hostname": null}}}),
            tolerant,
            Some("lacks the label kubernetes.io/hostname"),
        ),
        ("selected", none.clone(), json!({"nodeSelector": {"disk": "ssd"}}), None),
        (
            "not selected",
            none.clone(),
            json!({"nodeSelector": {"disk": "hdd"}}),
            Some("does not match the node selector"),
        ),
        ("other terms", none.clone(), terms(&of_arm), Some("does not match the node affinity")),
        ("empty term", none.clone(), terms(&json!([{}])), Some("does not match the node affinity")),
        (
            "pod limit",
            json!({"status": {"allocatable": {"pods": "0"}}}),
            none.clone(),
            Some("has too many pods (the limit is 0)"),
        ),
        ("cpu", none.clone(), requests("5"), Some("has insufficient cpu (4000m of 5000m)")),
        ("all of the cpu", none, requests("4"), None),
    ] {
        let expected: Vec<&str> = expected.into_iter().collect();
        assert_eq!(found(&view(&node), &spec, ALL), expected, "{what}");
    }
}

#[test]
fn each_list_of_checks_finds_only_its_obstacles() {
    let closed = view(&json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {"kubernetes.io/hostname": null}},
        "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"conditions": [], "allocatable": {"cpu": "0", "pods": "0"}},
    }));
    let mut spec = requests("1");
    spec["nodeSelector"] = json!({"disk": "hdd"});
    let count = |checks| found(&closed, &spec, checks).len();
    assert_eq!(count(ALL), 8);
    assert_eq!(count(POOL), 5, "no labels that the pod asks for, no free resources");
    assert_eq!(count(WEBHOOK), 2, "cordon and node selector");
    assert_eq!(count(SCHEDULER), 4, "neither the deletion nor the missing label, nor capacity");
    assert_eq!(count(STAY), 5, "no capacity, no labels that the pod asks for");
    assert_eq!(count(JOIN), 5, "STAY covers the rest of the node");
}

/// The webhook keeps few labels and no details.
#[test]
fn an_unknown_property_of_a_node_is_no_obstacle() {
    let mut view = View::default();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    view.apply(systems::object(node).unwrap().unwrap());
    let mut spec = requests("64");
    spec["nodeSelector"] = json!({"disk": "ssd"});
    let bare = Node { details: None, ..view.node("n1").unwrap().clone() };
    let pod = pod(&spec);
    let needs = PodNeeds::of_spec(pod.spec.as_ref().unwrap());
    let candidate = Candidate { name: "n1", node: &bare, view: &view, usage: None };
    assert_eq!(first_obstacle(&Question::new(candidate, &needs), ALL), None);
}

#[test]
fn pods_that_are_assigned_first_reduce_the_free_capacity() {
    let mut view = view(&json!({}));
    add_pod(&mut view, "there");
    let needs = |cpu: i64| PodNeeds {
        requests: Some(Cow::Owned(Resources { milli_cpu: cpu, ..Resources::default() })),
        ..PodNeeds::default()
    };
    let obstacle = |own: i64, first: (usize, i64)| {
        let before = Resources { milli_cpu: first.1, ..Resources::default() };
        let needs = needs(own);
        let question = Question {
            before: Before { pods: first.0, requests: Some(&before) },
            ..Question::new(Candidate::find("n1", &view).unwrap(), &needs)
        };
        first_obstacle(&question, ALL).map(|obstacle| obstacle.to_string())
    };
    assert_eq!(obstacle(1000, (0, 0)), None);
    assert_eq!(obstacle(900, (1, 100)), None);
    let cpu = "has insufficient cpu (900m of 1000m)";
    assert_eq!(obstacle(1000, (1, 100)).as_deref(), Some(cpu));
    let limit = "has too many pods (the limit is 3)";
    assert_eq!(obstacle(0, (2, 0)).as_deref(), Some(limit), "one on the node, two before it");
    assert_eq!(obstacle(0, (1, 0)), None);
}

/// A resource that the pod does not request may be overcommitted.
#[test]
fn only_requested_resources_can_be_insufficient() {
    let mut view = view(&json!({"status": {"allocatable": {"memory": "1Mi"}}}));
    add_pod(&mut view, "there");
    assert_eq!(found(&view, &requests("1"), ALL), Vec::<String>::new());
    let spec = json!({"containers": [{"name": "c", "resources": {"requests": {
        "cpu": "2", "memory": "1", "example.com/gpu": "2"}}}]});
    assert_eq!(
        found(&view, &spec, ALL),
        [
            "has insufficient cpu (1000m of 2000m) and memory (0 MiB of 1 MiB) and example.com/gpu (1 of 2)"
        ]
    );
}

/// Node affinity terms of a volume that the nodes `on` can mount.
fn terms_of_volume(on: &[&str]) -> Vec<NodeSelectorTerm> {
    let hostname = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": on});
    serde_json::from_value(json!([{"matchExpressions": [hostname]}])).unwrap()
}

fn volume<'v>(claim: &str, name: &'v str, terms: &'v [NodeSelectorTerm]) -> Volume<'v> {
    Volume { claim: claim.into(), name, terms }
}

#[test]
fn volumes_pin_a_pod_to_a_node_alone_or_together() {
    let view = view(&json!({}));
    let [a, b, c] = [&["n1", "n2"][..], &["n1", "n3"], &["n1"]].map(terms_of_volume);
    let [a, b, c] = [volume("a", "pv-a", &a), volume("b", "pv-b", &b), volume("c", "pv-c", &c)];
    let pin = |volumes: &[&Volume<'_>]| {
        let volumes: Volumes<'_> = volumes.iter().map(|of| (*of).clone()).collect();
        volumes.pin_to("n1", &view).map(|pin| pin.to_string())
    };
    assert_eq!(pin(&[]), None);
    assert_eq!(pin(&[&a]), None);
    assert_eq!(
        pin(&[&a, &b]).as_deref(),
        Some(
            "the volumes pv-a of claim a, pv-b of claim b can be mounted together on no node but n1"
        )
    );
    assert_eq!(
        pin(&[&a, &c]).as_deref(),
        Some("volume pv-c of claim c can be mounted on no node but n1")
    );
}

/// The placeholder and one member count together: two pods, and the requests of both.
#[test]
fn a_group_needs_capacity_for_its_placeholder_and_each_waiting_pod() {
    let mut view = view(&json!({}));
    add_pod(&mut view, "there");
    let terms = terms_of_volume(&["n2"]);
    let cpu = |milli_cpu| PodNeeds {
        requests: Some(Cow::Owned(Resources { milli_cpu, ..Resources::default() })),
        ..PodNeeds::default()
    };
    let obstacle = |group: &Group<'_>, has_placeholder| {
        let candidate = Candidate::find("n1", &view).unwrap();
        group.obstacle(candidate, has_placeholder).map(|obstacle| obstacle.to_string())
    };
    let joining = |milli_cpu| Joining { needs: cpu(milli_cpu), ..Joining::default() };
    let group = |waiting: &[i64]| Group {
        placeholder: cpu(100),
        waiting: waiting.iter().map(|milli_cpu| joining(*milli_cpu)).collect(),
        volumes: Volumes::default(),
    };
    assert_eq!(obstacle(&group(&[]), false), None);
    assert_eq!(obstacle(&group(&[900, 900]), false), None, "each of them alone");
    let short = Some("has insufficient cpu (900m of 1000m)".to_owned());
    assert_eq!(obstacle(&group(&[900, 1000]), false), short);
    assert_eq!(obstacle(&group(&[1000]), true), None, "the placeholder is part of the usage");
    let picky = PodNeeds { node_selector: vec![("disk", "hdd")], ..cpu(100) };
    let elsewhere = Group { placeholder: picky, ..group(&[]) };
    assert_eq!(obstacle(&elsewhere, false).as_deref(), Some("does not match the node selector"));
    assert_eq!(obstacle(&elsewhere, true), None, "the scheduler has placed it there");
    let volumes = [volume("a", "pv-a", &terms)].into_iter().collect();
    let own =
        Joining { volumes: [volume("a", "pv-a", &terms)].into_iter().collect(), ..joining(1) };
    let bound = Group { volumes, ..group(&[]) };
    let beside = Group { waiting: vec![own], ..group(&[]) };
    let conflict = Some("has a volume node affinity conflict with pv-a of claim a".to_owned());
    assert_eq!(obstacle(&bound, false), conflict);
    assert_eq!(obstacle(&bound, true), conflict);
    assert_eq!(obstacle(&beside, true), conflict, "a volume that the placeholder does not mount");

    // Two pods are on the node, and the limit is three.
    add_pod(&mut view, "second");
    let candidate = Candidate::find("n1", &view).unwrap();
    let many = |waiting: usize, has_placeholder| {
        let waiting = (0..waiting).map(|_| Joining::default()).collect();
        let group = Group { waiting, ..Group::default() };
        group.obstacle(candidate, has_placeholder).map(|found| found.to_string())
    };
    let limit = Some("has too many pods (the limit is 3)".to_owned());
    assert_eq!(many(1, false), limit);
    assert_eq!(many(1, true), None);
    assert_eq!(many(0, false), None);
}

#[test]
fn a_node_name_that_stowplan_added_is_not_a_requirement_of_the_pod() {
    let bound =
        json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]);
    let mut also = bound.clone();
    also[0]["matchExpressions"] = json!([{"key": "disk", "operator": "Exists"}]);
    for (terms_of_pod, left) in [(&bound, 0), (&also, 1)] {
        let terms: Vec<NodeSelectorTerm> = serde_json::from_value(terms_of_pod.clone()).unwrap();
        let node_terms = unbound_terms(&terms);
        assert_eq!(node_terms.as_deref().map_or(0, <[_]>::len), left);
        let needs = PodNeeds { node_terms, ..PodNeeds::default() };
        let view = view(&json!({}));
        let candidate = Candidate::find("n1", &view).unwrap();
        assert_eq!(first_obstacle(&Question::new(candidate, &needs), ALL), None);
    }
}

/// A pod tolerates a cordon by tolerating the cordon's taint.
#[test]
fn a_node_is_closed_by_a_cordon_or_a_taint() {
    let view = view(&json!({"spec": {"unschedulable": true,
        "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}}));
    let node = view.node("n1").unwrap().details.as_deref().unwrap();
    let tolerations =
        |text: &Value| -> Vec<Toleration> { serde_json::from_value(text.clone()).unwrap() };
    let cordon = json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"});
    let taint = json!({"key": "k", "operator": "Exists"});
    for (tolerated, expected) in [
        (json!([]), Some("is cordoned")),
        (json!([taint]), Some("is cordoned")),
        (json!([cordon]), Some("has the taint k=v:NoExecute")),
        (json!([cordon, taint]), None),
    ] {
        let found = closed_by(node, &tolerations(&tolerated)).map(|found| found.to_string());
        assert_eq!(found.as_deref(), expected, "{tolerated}");
    }
}
