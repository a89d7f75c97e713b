//! The nodes on which the Kubernetes scheduler may bind a pod, by what the pod's spec says: gates, taints,
//! node affinity, and the affinities between pods of one namespace on one node.

use serde_json::{Value, json};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// The names of the nodes that a pod without a node may be bound to. `None`: a gate holds it.
pub(crate) fn find_nodes<'w>(
    pod: &Value,
    nodes: impl Iterator<Item = &'w Value>,
    pods: &[&Value],
) -> Option<Vec<&'w str>> {
    let gates = pod["spec"]["schedulingGates"].as_array();
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return None;
    }
    let bound: Vec<&Value> = pods
        .iter()
        .copied()
        .filter(|of| {
            of["spec"]["nodeName"].is_string()
                && of["metadata"]["namespace"] == pod["metadata"]["namespace"]
        })
        .collect();
    let allowed = nodes.filter(|node| {
        tolerates(pod, node) && is_selected(pod, node) && agrees_with_pods(pod, node, &bound)
    });
    Some(allowed.filter_map(|node| node["metadata"]["name"].as_str()).collect())
}

fn list<'v>(value: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn tolerates(pod: &Value, node: &Value) -> bool {
    let is_tolerated = |taint: &Value| {
        list(pod, "/spec/tolerations").any(|of| {
            let matches = match of["operator"].as_str() {
                Some("Exists") => of["key"].is_null() || of["key"] == taint["key"],
                _ => of["key"] == taint["key"] && of["value"] == taint["value"],
            };
            matches && (of["effect"].is_null() || of["effect"] == taint["effect"])
        })
    };
    let mut taints = list(node, "/spec/taints").filter(|of| of["effect"] != "PreferNoSchedule");
    taints.all(is_tolerated)
}

fn is_selected(pod: &Value, node: &Value) -> bool {
    let Some(required) = pod.pointer(&format!("/spec/affinity/nodeAffinity/{REQUIRED}")) else {
        return true;
    };
    let fields = json!({"metadata.name": node["metadata"]["name"]});
    list(required, "/nodeSelectorTerms").any(|term| {
        let is_empty = list(term, "/matchFields").next().is_none()
            && list(term, "/matchExpressions").next().is_none();
        !is_empty
            && list(term, "/matchFields").all(|of| holds(of, &fields))
            && list(term, "/matchExpressions").all(|of| holds(of, &node["metadata"]["labels"]))
    })
}

/// Whether labels satisfy a requirement of a selector.
fn holds(requirement: &Value, labels: &Value) -> bool {
    let own = requirement["key"].as_str().and_then(|key| labels.get(key));
    let is_listed = own.is_some_and(|own| list(requirement, "/values").any(|value| value == own));
    match requirement["operator"].as_str() {
        Some("In") => is_listed,
        Some("NotIn") => !is_listed,
        Some("Exists") => own.is_some(),
        Some("DoesNotExist") => own.is_none(),
        operator => panic!("{operator:?}"),
    }
}

/// Whether a term of a pod affinity or anti-affinity selects a pod.
fn selects(term: &Value, pod: &Value) -> bool {
    assert_eq!(term["topologyKey"], "kubernetes.io/hostname");
    let selector = &term["labelSelector"];
    assert!(selector["matchLabels"].is_null() && selector.is_object(), "{selector}");
    list(selector, "/matchExpressions").all(|of| holds(of, &pod["metadata"]["labels"]))
}

fn terms<'p>(pod: &'p Value, kind: &str) -> Vec<&'p Value> {
    list(pod, &format!("/spec/affinity/{kind}/{REQUIRED}")).collect()
}

fn agrees_with_pods(pod: &Value, node: &Value, bound: &[&Value]) -> bool {
    let is_here = |of: &&&Value| of["spec"]["nodeName"] == node["metadata"]["name"];
    let here: Vec<&Value> = bound.iter().filter(is_here).copied().collect();
    let together = terms(pod, "podAffinity");
    let all = |of: &Value| together.iter().all(|term| selects(term, of));
    // The first pod of a group has nobody to be with, and may go anywhere.
    let is_first = !bound.iter().any(|of| all(of)) && all(pod);
    let is_together = together.is_empty() || is_first || here.iter().any(|of| all(of));
    let apart = terms(pod, "podAntiAffinity");
    let is_apart = !apart.iter().any(|term| here.iter().any(|of| selects(term, of)));
    let is_let_in =
        here.iter().all(|of| !terms(of, "podAntiAffinity").iter().any(|term| selects(term, pod)));
    is_together && is_apart && is_let_in
}
