//! The features of questions: each function changes an open cluster, so that some nodes may take the pod and
//! others not.

mod amounts;

use serde_json::{Value, json};

use super::{Draw, HOSTNAME, MISSING, Question};
use amounts::{
    CPU, MEMORY, amounts, fill, init_containers, other_resources, pod_limit, pod_overhead,
    pod_requests, request, requests, resized,
};

/// A name, and how it changes a question.
pub(crate) type Feature = (&'static str, fn(&mut Question, &mut Draw));

pub(crate) const FEATURES: &[Feature] = &[
    ("taints", taints),
    ("cordons", cordons),
    ("node selector", node_selector),
    ("node affinity", node_affinity),
    ("pod affinity", pod_affinity),
    ("pod anti-affinity", pod_anti_affinity),
    ("anti-affinity of placed pods", anti_affinity_of_placed),
    ("requests", requests),
    ("init containers and sidecars", init_containers),
    ("extended and other resources", other_resources),
    ("requests of the pod", pod_requests),
    ("overhead", pod_overhead),
    ("resized pods", resized),
    ("limit of pods", pod_limit),
    ("volumes", volumes),
    ("gates", gates),
    // These change what the others have made.
    ("pods that have ended", ended),
    ("pods that are being deleted", deleting),
    ("nodes without or with a shared hostname", hostnames),
];

const CORDON: &str = "node.kubernetes.io/unschedulable";

fn taints(question: &mut Question, draw: &mut Draw) {
    for node in &mut question.nodes {
        let mut taints: Vec<Value> = Vec::new();
        for key in ["a", "b"] {
            if draw.chance(40) {
                let value = draw.pick(&["", "x", "y"]);
                let effect = draw.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule"]);
                taints.push(json!({"key": key, "value": value, "effect": effect}));
            }
        }
        node["spec"]["taints"] = json!(taints);
    }
    tolerate(question, draw, &["a", "b", "a", "b", "c", ""]);
}

/// Gives the pod up to three tolerations of these keys.
fn tolerate(question: &mut Question, draw: &mut Draw, keys: &[&str]) {
    let mut tolerations = question.pod["spec"]["tolerations"].take();
    if tolerations.is_null() {
        tolerations = json!([]);
    }
    for _ in 0..draw.below(4) {
        let key = draw.pick(keys);
        let mut toleration = json!({});
        if !key.is_empty() {
            toleration["key"] = json!(key);
        }
        if key.is_empty() || draw.chance(40) {
            toleration["operator"] = json!("Exists");
        } else {
            if draw.chance(50) {
                toleration["operator"] = json!("Equal");
            }
            toleration["value"] = json!(draw.pick(&["", "x", "y"]));
        }
        let effect = draw.pick(&["", "", "NoSchedule", "NoExecute", "PreferNoSchedule"]);
        if !effect.is_empty() {
            toleration["effect"] = json!(effect);
        }
        if effect == "NoExecute" && draw.chance(50) {
            toleration["tolerationSeconds"] = json!(3600);
        }
        tolerations.as_array_mut().unwrap().push(toleration);
    }
    question.pod["spec"]["tolerations"] = tolerations;
}

/// A cordoned node has the taint, too: a controller adds it.
fn cordons(question: &mut Question, draw: &mut Draw) {
    for node in &mut question.nodes {
        if draw.chance(60) {
            node["spec"]["unschedulable"] = json!(true);
            let taint = json!({"key": CORDON, "effect": "NoSchedule"});
            node["spec"]["taints"].as_array_mut().unwrap().push(taint);
        }
    }
    tolerate(question, draw, &[CORDON, CORDON, "a", ""]);
}

/// Gives nodes random labels.
fn label_nodes(question: &mut Question, draw: &mut Draw) {
    for node in &mut question.nodes {
        let labels = &mut node["metadata"]["labels"];
        for (key, values) in [
            ("zone", &["z0", "z1", ""] as &[&str]),
            ("disk", &["ssd", "hdd"]),
            ("cpus", &["4", "8", "016", "0", "many", "1_0", "99999999999999999999", ""]),
        ] {
            if labels[key].is_null() && draw.chance(70) {
                labels[key] = json!(draw.pick(values));
            }
        }
        labels.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    }
}

fn node_selector(question: &mut Question, draw: &mut Draw) {
    label_nodes(question, draw);
    let mut selector = json!({"disk": draw.pick(&["ssd", "hdd"])});
    if draw.chance(40) {
        selector["zone"] = json!(draw.pick(&["z0", ""]));
    }
    if draw.chance(20) {
        selector[HOSTNAME] = question.nodes[draw.below(3)]["metadata"]["name"].clone();
    }
    question.pod["spec"]["nodeSelector"] = selector;
}

/// Draws terms of a node affinity. With `has_all`, also such that select by the name of the node, and
/// such that select nothing.
pub(super) fn node_terms(draw: &mut Draw, nodes: &[String], has_all: bool) -> Vec<Value> {
    let count = 1 + draw.below(3);
    (0..count)
        .map(|_| {
            let mut term = json!({});
            let expressions = match has_all {
                true => draw.below(3),
                false => 1 + draw.below(2),
            };
            if expressions > 0 {
                let all: Vec<_> = (0..expressions).map(|_| requirement(draw, nodes)).collect();
                term["matchExpressions"] = json!(all);
            }
            if has_all && draw.chance(30) {
                let (operator, name) =
                    (draw.pick(&["In", "NotIn", "NotIn"]), &nodes[draw.below(3)]);
                let field = json!({"key": "metadata.name", "operator": operator, "values": [name]});
                term["matchFields"] = json!([field]);
            }
            term
        })
        .collect()
}

fn requirement(draw: &mut Draw, nodes: &[String]) -> Value {
    let key = draw.pick(&["zone", "disk", "cpus", "cpus", HOSTNAME, "other"]);
    let operator = match key {
        "cpus" => draw.pick(&["Gt", "Lt", "Gt", "Lt", "In", "NotIn", "Exists"]),
        _ => draw.pick(&["In", "In", "NotIn", "Exists", "DoesNotExist", "Gt"]),
    };
    let mut value = || match key {
        "zone" => draw.pick(&["z0", "z1", ""]).to_owned(),
        "disk" => draw.pick(&["ssd", "hdd"]).to_owned(),
        HOSTNAME => nodes[draw.below(3)].clone(),
        _ => draw.pick(&["4", "4", "7", "016", "many", "1_0", "99999999999999999999"]).to_owned(),
    };
    match operator {
        "Exists" | "DoesNotExist" => json!({"key": key, "operator": operator}),
        "In" | "NotIn" => json!({"key": key, "operator": operator, "values": [value(), value()]}),
        _ => json!({"key": key, "operator": operator, "values": [value()]}),
    }
}

fn node_affinity(question: &mut Question, draw: &mut Draw) {
    label_nodes(question, draw);
    let terms = node_terms(draw, &question.names(), true);
    question.pod["spec"]["affinity"]["nodeAffinity"] = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    });
}

fn pod_labels(draw: &mut Draw) -> Value {
    let mut labels = json!({});
    for (key, values) in [("app", ["a", "b"]), ("tier", ["1", ""])] {
        if draw.chance(75) {
            labels[key] = json!(draw.pick(&values));
        }
    }
    labels
}

/// Draws a term about pods of the same namespace on the same node.
fn pod_term(draw: &mut Draw) -> Value {
    let mut term = json!({"topologyKey": HOSTNAME});
    if draw.chance(4) {
        return term;
    }
    let mut selector = json!({});
    if draw.chance(70) {
        selector["matchLabels"] = json!({"app": draw.pick(&["a", "a", "b"])});
    }
    if draw.chance(40) {
        let (key, values) =
            draw.pick(&[("app", ["a", "c"]), ("tier", ["1", "2"]), ("tier", ["", "1"])]);
        let expression = match draw.pick(&["In", "In", "NotIn", "Exists", "DoesNotExist"]) {
            operator @ ("In" | "NotIn") => {
                json!({"key": key, "operator": operator, "values": values})
            }
            operator => json!({"key": key, "operator": operator}),
        };
        selector["matchExpressions"] = json!([expression]);
    }
    term["labelSelector"] = selector;
    if draw.chance(10) && !term["labelSelector"].to_string().contains("tier") {
        term["matchLabelKeys"] = json!(["tier"]);
    }
    term
}

/// Draws an affinity of this kind, with one or two terms.
fn pod_terms(draw: &mut Draw) -> Value {
    let terms: Vec<_> = (0..1 + draw.below(5) / 4).map(|_| pod_term(draw)).collect();
    json!({"requiredDuringSchedulingIgnoredDuringExecution": terms})
}

/// Places pods with labels, which may have what `extend` gives them.
fn crowd(question: &mut Question, draw: &mut Draw, extend: impl Fn(&mut Value, &mut Draw)) {
    for node in 0..3 {
        for _ in 0..draw.pick(&[0, 0, 1, 1, 2]) {
            let labels = pod_labels(draw);
            let placed = question.place(node);
            placed["metadata"]["labels"] = labels;
            extend(placed, draw);
        }
    }
    if question.pod["metadata"]["labels"].is_null() {
        question.pod["metadata"]["labels"] = pod_labels(draw);
    }
}

fn pod_affinity(question: &mut Question, draw: &mut Draw) {
    crowd(question, draw, |_, _| {});
    question.pod["spec"]["affinity"]["podAffinity"] = pod_terms(draw);
}

fn pod_anti_affinity(question: &mut Question, draw: &mut Draw) {
    crowd(question, draw, |_, _| {});
    question.pod["spec"]["affinity"]["podAntiAffinity"] = pod_terms(draw);
}

fn anti_affinity_of_placed(question: &mut Question, draw: &mut Draw) {
    crowd(question, draw, |placed, draw| {
        if draw.chance(50) {
            placed["spec"]["affinity"]["podAntiAffinity"] = pod_terms(draw);
        }
    });
}

fn volumes(question: &mut Question, draw: &mut Draw) {
    label_nodes(question, draw);
    let names: Vec<String> = question
        .claims
        .iter()
        .map(|claim| claim["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    let mut volumes = Vec::new();
    let mut mount = |claim: &str| {
        volumes.push(json!({"name": format!("v{}", volumes.len()),
            "persistentVolumeClaim": {"claimName": claim}}));
    };
    mount(&names[draw.below(names.len())]);
    if draw.chance(20) {
        mount(&names[draw.below(names.len())]);
    }
    if draw.chance(4) {
        mount(MISSING);
    }
    volumes.insert(0, json!({"name": "e", "emptyDir": {}}));
    for node in 0..3 {
        if draw.chance(25) {
            question.place(node)["spec"]["volumes"] = json!(volumes);
        }
    }
    question.pod["spec"]["volumes"] = json!(volumes);
}

fn gates(question: &mut Question, draw: &mut Draw) {
    if draw.chance(70) {
        question.pod["spec"]["schedulingGates"] = json!([{"name": "example.com/gate"}]);
    }
}

/// Makes sure that some pods are there.
fn ensure_placed(question: &mut Question, draw: &mut Draw) {
    if question.placed.is_empty() {
        fill(question, draw);
        request(question, amounts(draw, &CPU, &MEMORY));
    }
}

fn ended(question: &mut Question, draw: &mut Draw) {
    ensure_placed(question, draw);
    for placed in question.some_placed(60, draw) {
        let mut status = placed["status"].take();
        status["phase"] = json!(draw.pick(&["Succeeded", "Failed"]));
        placed["status"] = status;
    }
}

fn deleting(question: &mut Question, draw: &mut Draw) {
    ensure_placed(question, draw);
    for placed in question.some_placed(60, draw) {
        // One that has ended would be removed at once.
        if !["Succeeded", "Failed"]
            .contains(&placed["status"]["phase"].as_str().unwrap_or_default())
        {
            placed["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
    }
}

fn hostnames(question: &mut Question, draw: &mut Draw) {
    if !question.features.iter().any(|of| of.contains("affinity")) {
        let change = draw.pick(&[pod_affinity, pod_anti_affinity, anti_affinity_of_placed]);
        change(question, draw);
    }
    let shared = question.nodes[0]["metadata"]["name"].clone();
    for node in &mut question.nodes {
        let labels = &mut node["metadata"]["labels"];
        match draw.below(10) {
            0..=3 => _ = labels.as_object_mut().unwrap().remove(HOSTNAME),
            4..=5 => labels[HOSTNAME] = shared.clone(),
            _ => {}
        }
    }
}
