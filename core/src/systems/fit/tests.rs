//! Tests of all obstacles, and of the lists of checks.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::systems::test_objects::{node, view_of, watch};
use crate::view::resource::POD;
use crate::view::{Name, Scope};

/// A View with eligible nodes `n1` to `n3`, each with 4 cores, 8 GiB and 3 pods; `change` is merged
/// into `n1`. On `n1` are pods that request 3 cores and 1 GiB each.
fn view(change: &Value, pods: usize) -> View {
    let mut view = View::default();
    for name in ["n1", "n2", "n3"] {
        let amounts = json!({"cpu": "4", "memory": "8Gi", "pods": "3", "example.com/gpu": "1"});
        let metadata = json!({"labels": {"disk": "ssd"}});
        let mut node =
            node(name, &json!({"metadata": metadata, "status": {"allocatable": amounts}}));
        if name == "n1" {
            json_patch::merge(&mut node, change);
        }
        watch(&mut view, node, Scope::Controller);
    }
    (0..pods).for_each(|index| watch(&mut view, there(index, "n1"), Scope::Controller));
    view
}

/// A pod on this node.
fn there(index: usize, node: &str) -> Value {
    let mut spec = requests(&json!({"cpu": "3", "memory": "1Gi"}));
    spec["nodeName"] = json!(node);
    let metadata = json!({"name": format!("there-{index}"), "namespace": "ns"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
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

fn requests(amounts: &Value) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": amounts}}]})
}

fn terms(terms: &Value) -> Value {
    json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

fn needs_cpu(milli_cpu: i64) -> PodNeeds<'static> {
    let requests = Resources { milli_cpu, ..Resources::default() };
    PodNeeds { requests: Some(Cow::Owned(requests)), ..PodNeeds::default() }
}

const TOO_MANY: &str = "has too many pods (the limit is 3)";
const LITTLE_CPU: &str = "has insufficient cpu (900m of 1000m)";

#[test]
fn each_obstacle_is_found_by_itself_and_named_in_the_words_of_kubernetes() {
    let taint =
        |effect: &str| json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    let none = || json!({});
    let cordon = || json!({"spec": {"unschedulable": true}});
    let mut closed = taint("NoExecute");
    closed["spec"]["unschedulable"] = json!(true);
    let tolerant = || json!({"tolerations": [{"operator": "Exists"}]});
    let tolerates = |toleration: Value| json!({"tolerations": [toleration]});
    let any = |key: &str| tolerates(json!({"key": key, "operator": "Exists"}));
    let only_cordon = any("node.kubernetes.io/unschedulable");
    let own = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
    let unknown = json!({"key": "k", "operator": "Gt", "value": "v"});
    let other_value = json!({"key": "k", "operator": "Equal", "value": "w"});
    let other_effect = json!({"operator": "Exists", "effect": "NoExecute"});
    let tainted = "has the taint k=v:NoSchedule";
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let unnamed = json!({"metadata": {"labels": {"kubernetes.io/hostname": null}}});
    let full = json!({"status": {"allocatable": {"pods": "0"}}});
    let not_ready = json!({"status": {"conditions": []}});
    let on_disk = |disk: &str| json!({"nodeSelector": {"disk": disk}});
    let of_arm =
        json!([{"matchExpressions": [{"key": "arch", "operator": "In", "values": ["arm"]}]}]);
    let cpu = |cpu: &str| requests(&json!({"cpu": cpu}));
    for (what, node, spec, expected) in [
        ("open", none(), none(), ""),
        ("deleted", deleted, tolerant(), "is being deleted"),
        ("not ready", not_ready, tolerant(), "is NotReady"),
        ("cordoned", cordon(), none(), "is cordoned"),
        ("tolerated cordon", cordon(), tolerant(), ""),
        ("tainted", taint("NoSchedule"), none(), tainted),
        ("evicting", taint("NoExecute"), none(), "has the taint k=v:NoExecute"),
        ("avoided", taint("PreferNoSchedule"), none(), ""),
        ("tolerated taint", taint("NoSchedule"), tolerant(), ""),
        ("tolerated with any value", taint("NoSchedule"), any("k"), ""),
        ("tolerated with its value", taint("NoSchedule"), tolerates(own), ""),
        ("another key tolerated", taint("NoSchedule"), any("other"), tainted),
        ("another value tolerated", taint("NoSchedule"), tolerates(other_value), tainted),
        ("no value tolerated", taint("NoSchedule"), tolerates(json!({"key": "k"})), tainted),
        ("another effect tolerated", taint("NoSchedule"), tolerates(other_effect), tainted),
        ("an empty toleration", taint("NoSchedule"), tolerates(json!({})), tainted),
        ("an unknown operator", taint("NoSchedule"), tolerates(unknown), tainted),
        ("only a taint tolerated", cordon(), any("k"), "is cordoned"),
        ("only the cordon tolerated", closed, only_cordon, "has the taint k=v:NoExecute"),
        ("no hostname", unnamed, tolerant(), "lacks the label kubernetes.io/hostname"),
        ("selected", none(), on_disk("ssd"), ""),
        ("not selected", none(), on_disk("hdd"), "does not match the node selector"),
        ("other terms", none(), terms(&of_arm), "does not match the node affinity"),
        ("empty term", none(), terms(&json!([{}])), "does not match the node affinity"),
        ("pod limit", full, none(), "has too many pods (the limit is 0)"),
        ("cpu", none(), cpu("5"), "has insufficient cpu (4000m of 5000m, with no pod on it)"),
        ("all of the cpu", none(), cpu("4"), ""),
    ] {
        assert_eq!(found(&view(&node, 0), &spec, ALL).join(", "), expected, "{what}");
    }
}

#[test]
fn each_list_of_checks_finds_only_its_obstacles() {
    let closed = json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {"kubernetes.io/hostname": null}},
        "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"conditions": [], "allocatable": {"cpu": "0", "pods": "0"}},
    });
    let closed = view(&closed, 0);
    let mut spec = requests(&json!({"cpu": "1"}));
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
fn a_node_lacks_only_its_hostname_label_if_it_has_all_else() {
    let unlabelled = json!({"metadata": {"labels": {"kubernetes.io/hostname": null}}});
    let asks = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    let host = asks("kubernetes.io/hostname", "n1");
    for (change, required, expected) in [
        (&unlabelled, json!([&host]), true),
        (&unlabelled, json!([&host, asks("disk", "ssd")]), true),
        (&unlabelled, json!([&host, asks("disk", "hdd")]), false),
        (&json!({}), json!([&host]), false),
        (&json!({}), json!([&host, asks("disk", "hdd")]), false),
    ] {
        let (view, pod) = (view(change, 0), pod(&terms(&json!([{"matchExpressions": required}]))));
        let needs = PodNeeds::of_spec(pod.spec.as_ref().unwrap());
        let question = Question::new(Candidate::find("n1", &view).unwrap(), &needs);
        assert_eq!(lacks_only_hostname(&question), expected, "{change} {required}");
    }
}

#[test]
fn an_unknown_property_of_a_node_is_no_obstacle() {
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "labels": {"disk": "hdd"}}});
    let view = view_of([node]);
    let mut spec = requests(&json!({"cpu": "64"}));
    spec["nodeSelector"] = json!({"disk": "ssd"});
    let bare = Node { details: None, ..view.node("n1").unwrap().clone() };
    let pod = pod(&spec);
    let needs = PodNeeds::of_spec(pod.spec.as_ref().unwrap());
    let candidate = Candidate { name: "n1", node: &bare, view: &view, usage: None };
    assert_eq!(first_obstacle(&Question::new(candidate, &needs), ALL), None);
}

/// Then nothing on it can be freed.
#[test]
fn a_node_that_is_too_small_is_told_from_one_that_is_full() {
    let node = json!({"status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "9"}}});
    for (cpu, memory, is_too_small) in
        [("4", "4Gi", false), ("5", "1", true), ("4", "5Gi", true), ("5", "5Gi", true)]
    {
        let spec = requests(&json!({"cpu": cpu, "memory": memory}));
        let pod = pod(&spec);
        let needs = PodNeeds::of_spec(pod.spec.as_ref().unwrap());
        let view = view(&node, 1);
        let candidate = Candidate::find("n1", &view).unwrap();
        let found = first_obstacle(&Question::new(candidate, &needs), ALL).unwrap();
        assert_eq!(found.is_too_small(), is_too_small, "{cpu} {memory}: {found}");
        assert_eq!(found.to_string().contains("with no pod on it"), is_too_small, "{found}");
    }
}

/// A resource that the pod does not request may be overcommitted.
#[test]
fn only_requested_resources_can_be_insufficient() {
    let view = view(&json!({"status": {"allocatable": {"memory": "1Mi"}}}), 1);
    assert!(found(&view, &requests(&json!({"cpu": "1"})), ALL).is_empty());
    let spec = requests(&json!({"cpu": "2", "memory": "1", "example.com/gpu": "2"}));
    let insufficient = "has insufficient cpu (1000m of 2000m) and memory (0 MiB of 1 MiB) and example.com/gpu (1 of 2, with no pod on it)";
    assert_eq!(found(&view, &spec, ALL), [insufficient]);
}

#[test]
fn a_pod_uses_resources_of_its_node_until_it_is_forgotten() {
    let mut view = view(&json!({}), 2);
    watch(&mut view, there(1, "n2"), Scope::Controller);
    let cores = |view: &View| {
        ["n1", "n2"].map(|node| view.node_usage(node).map(|of| (of.pods, of.requested.milli_cpu)))
    };
    assert_eq!(cores(&view), [Some((1, 3000)), Some((1, 3000))]);
    view.forget(&POD, &Name::new("ns", "there-1"));
    assert_eq!(cores(&view), [Some((1, 3000)), None]);
}

/// The placeholder and one member count together: two pods, and the requests of both.
#[test]
fn a_group_needs_capacity_for_its_placeholder_and_each_waiting_pod() {
    let n2 = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]});
    let terms: Vec<NodeSelectorTerm> =
        serde_json::from_value(json!([{"matchExpressions": [n2]}])).unwrap();
    let on_n2 = || -> Volumes<'_> {
        [Volume { claim: "a".into(), name: "pv-a", terms: &terms }].into_iter().collect()
    };
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n2"]});
    let fields: Vec<NodeSelectorTerm> =
        serde_json::from_value(json!([{"matchFields": [field]}])).unwrap();
    let by_field = [Volume { claim: "a".into(), name: "pv-a", terms: &fields }];
    let joining = |milli_cpu| Joining { needs: needs_cpu(milli_cpu), ..Joining::default() };
    let group = |waiting: &[i64]| Group {
        placeholder: needs_cpu(100),
        waiting: waiting.iter().map(|milli_cpu| joining(*milli_cpu)).collect(),
        volumes: Volumes::default(),
    };
    let picky = || PodNeeds { node_selector: vec![("disk", "hdd")], ..needs_cpu(100) };
    let elsewhere = || Group { placeholder: picky(), ..group(&[]) };
    let bound = || Group { volumes: on_n2(), ..group(&[]) };
    let by_field = Group { volumes: by_field.into_iter().collect(), ..group(&[]) };
    let beside = Group { waiting: vec![Joining { volumes: on_n2(), ..joining(1) }], ..group(&[]) };
    let empty = |waiting: usize| Group {
        waiting: (0..waiting).map(|_| Joining::default()).collect(),
        ..Group::default()
    };
    let selector = Some("does not match the node selector");
    let conflict = Some("has a volume node affinity conflict with pv-a of claim a");
    for (what, pods, group, has_placeholder, expected) in [
        ("nothing waits", 1, group(&[]), false, None),
        ("each of them alone", 1, group(&[900, 900]), false, None),
        ("one is too large", 1, group(&[900, 1000]), false, Some(LITTLE_CPU)),
        ("the placeholder is part of the usage", 1, group(&[1000]), true, None),
        ("the placeholder's nodes", 1, elsewhere(), false, selector),
        ("the scheduler has placed it there", 1, elsewhere(), true, None),
        ("a volume", 1, bound(), false, conflict),
        (
            "a volume of a node by its name, at which Kubernetes does not look",
            1,
            by_field,
            false,
            None,
        ),
        ("a volume of a placeholder that is there", 1, bound(), true, conflict),
        ("a volume that the placeholder does not mount", 1, beside, true, conflict),
        ("two pods of three", 2, empty(1), false, Some(TOO_MANY)),
        ("two pods of three with the placeholder", 2, empty(1), true, None),
        ("only the placeholder", 2, empty(0), false, None),
    ] {
        let view = view(&json!({}), pods);
        let candidate = Candidate::find("n1", &view).unwrap();
        let found = group.obstacle(candidate, has_placeholder).map(|found| found.to_string());
        assert_eq!(found.as_deref(), expected, "{what}");
    }
}

#[test]
fn a_node_name_that_stowplan_added_is_not_a_requirement_of_the_pod() {
    let bound =
        json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]});
    let mut also = bound.clone();
    also["matchExpressions"] = json!([{"key": "disk", "operator": "Exists"}]);
    for (term, left) in [(bound, 0), (also, 1)] {
        let terms: Vec<NodeSelectorTerm> = serde_json::from_value(json!([term])).unwrap();
        let node_terms = unbound_terms(&terms);
        assert_eq!(node_terms.as_deref().map_or(0, <[_]>::len), left);
        let needs = PodNeeds { node_terms, ..PodNeeds::default() };
        let view = view(&json!({}), 0);
        let candidate = Candidate::find("n1", &view).unwrap();
        assert_eq!(first_obstacle(&Question::new(candidate, &needs), ALL), None);
    }
}
