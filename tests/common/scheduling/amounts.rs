//! Features about what pods request and what nodes have.

use serde_json::{Value, json};

use super::super::{Draw, Question, RUNTIME_CLASS, container, overhead};

pub(super) fn amounts(draw: &mut Draw, cpu: &[&str], memory: &[&str]) -> Value {
    let mut amounts = json!({});
    if draw.chance(80) {
        amounts["cpu"] = json!(draw.pick(cpu));
    }
    if draw.chance(50) {
        amounts["memory"] = json!(draw.pick(memory));
    }
    amounts
}

pub(super) const CPU: [&str; 7] = ["0", "500m", "1", "1.5", "2", "2500m", "3"];
pub(super) const MEMORY: [&str; 5] = ["512Mi", "1Gi", "2Gi", "3G", "4Gi"];
const LITTLE_CPU: [&str; 4] = ["0", "250m", "500m", "1"];

/// Places pods that use part of their nodes.
pub(super) fn fill(question: &mut Question, draw: &mut Draw) {
    for node in 0..3 {
        if draw.chance(5) {
            let resource = draw.pick(&["cpu", "memory"]);
            question.nodes[node]["status"]["allocatable"][resource] = json!("0");
        }
        for _ in 0..draw.below(3) {
            let requests = amounts(draw, &CPU, &MEMORY);
            question.place(node)["spec"]["containers"][0]["resources"]["requests"] = requests;
        }
    }
}

/// Has the first container of the pod request these amounts, unless it requests something already.
pub(super) fn request(question: &mut Question, requests: Value) {
    let own = &mut question.pod["spec"]["containers"][0]["resources"]["requests"];
    if own.is_null() {
        *own = requests;
    }
}

pub(super) fn requests(question: &mut Question, draw: &mut Draw) {
    fill(question, draw);
    request(question, amounts(draw, &CPU, &MEMORY));
    if draw.chance(40) {
        let mut second = container("d");
        second["resources"]["requests"] = amounts(draw, &LITTLE_CPU, &MEMORY);
        question.pod["spec"]["containers"].as_array_mut().unwrap().push(second);
    }
}

/// Draws init containers, of which some are sidecars.
fn draw_init_containers(draw: &mut Draw) -> Value {
    let containers = (0..1 + draw.below(3)).map(|index| {
        let mut init = container(&format!("i{index}"));
        init["resources"]["requests"] = amounts(draw, &CPU, &MEMORY);
        if draw.chance(40) {
            init["restartPolicy"] = json!("Always");
            init["resources"]["requests"] = amounts(draw, &LITTLE_CPU, &MEMORY);
        }
        init
    });
    containers.collect()
}

pub(super) fn init_containers(question: &mut Question, draw: &mut Draw) {
    fill(question, draw);
    question.pod["spec"]["initContainers"] = draw_init_containers(draw);
    request(question, amounts(draw, &LITTLE_CPU, &MEMORY));
    for placed in &mut question.placed {
        if draw.chance(30) {
            placed["spec"]["initContainers"] = draw_init_containers(draw);
        }
    }
}

pub(super) fn other_resources(question: &mut Question, draw: &mut Draw) {
    for (name, have, want) in [
        ("example.com/gpu", ["0", "1", "2", "4"], ["0", "1", "2"]),
        ("hugepages-2Mi", ["0", "2Mi", "4Mi", "8Mi"], ["0", "2Mi", "4Mi"]),
        ("ephemeral-storage", ["0", "1Gi", "2Gi", "9Gi"], ["0", "1Gi", "2G"]),
    ] {
        if draw.chance(40) {
            continue;
        }
        let limited = |of: &mut Value, amount: &str| {
            let resources = &mut of["spec"]["containers"][0]["resources"];
            resources["requests"][name] = json!(amount);
            resources["limits"][name] = json!(amount);
            if resources["requests"]["cpu"].is_null() {
                resources["requests"]["cpu"] = json!("100m");
            }
        };
        for node in 0..3 {
            if draw.chance(80) {
                question.nodes[node]["status"]["allocatable"][name] = json!(draw.pick(&have));
            }
            if draw.chance(40) {
                limited(question.place(node), draw.pick(&want));
            }
        }
        limited(&mut question.pod, draw.pick(&want));
    }
}

/// Has a pod request resources as a whole, which are at least those of its containers.
fn request_as_pod(pod: &mut Value, draw: &mut Draw) {
    let mut only = container("c");
    only["resources"]["requests"] = amounts(draw, &LITTLE_CPU, &["512Mi", "1Gi"]);
    pod["spec"]["containers"] = json!([only]);
    pod["spec"].as_object_mut().unwrap().remove("initContainers");
    let requests = amounts(draw, &["1", "2", "3", "4"], &["1Gi", "2Gi", "4Gi", "8Gi"]);
    let field = draw.pick(&["requests", "requests", "limits"]);
    if requests != json!({}) {
        pod["spec"]["resources"][field] = requests;
    }
}

pub(super) fn pod_requests(question: &mut Question, draw: &mut Draw) {
    fill(question, draw);
    request_as_pod(&mut question.pod, draw);
    for placed in question.some_placed(30, draw) {
        request_as_pod(placed, draw);
    }
}

pub(super) fn pod_overhead(question: &mut Question, draw: &mut Draw) {
    fill(question, draw);
    request(question, amounts(draw, &CPU, &MEMORY));
    let pods = question.placed.iter_mut().chain([&mut question.pod]);
    for pod in pods.filter(|_| draw.chance(70)) {
        pod["spec"]["runtimeClassName"] = json!(RUNTIME_CLASS);
        pod["spec"]["overhead"] = overhead();
    }
}

/// The kubelets of some pods have given them other resources than they request now.
pub(super) fn resized(question: &mut Question, draw: &mut Draw) {
    fill(question, draw);
    request(question, amounts(draw, &CPU, &MEMORY));
    for placed in question.some_placed(80, draw) {
        if draw.chance(30) && placed["spec"]["resources"].is_null() {
            let mut second = container("d");
            second["resources"]["requests"] = amounts(draw, &LITTLE_CPU, &MEMORY);
            placed["spec"]["containers"].as_array_mut().unwrap().push(second);
        }
        let mut report = |of: &Value| {
            let mut status = json!({
                "name": of["name"], "image": "example.com/image", "imageID": "", "ready": true,
                "restartCount": 0, "state": {"running": {}},
            });
            if draw.chance(80) {
                status["resources"]["requests"] = amounts(draw, &CPU, &MEMORY);
            }
            if draw.chance(50) {
                status["allocatedResources"] = amounts(draw, &CPU, &MEMORY);
            }
            status
        };
        let of = |list: &Value| list.as_array().cloned().unwrap_or_default();
        let [containers, init] =
            ["containers", "initContainers"].map(|list| of(&placed["spec"][list]));
        let containers: Vec<_> = containers.iter().map(&mut report).collect();
        let init: Vec<_> = init.iter().map(&mut report).collect();
        let mut status = json!({"phase": "Running", "containerStatuses": containers});
        if !init.is_empty() {
            status["initContainerStatuses"] = json!(init);
        }
        if draw.chance(30) {
            let reason = draw.pick(&["Infeasible", "Deferred"]);
            status["conditions"] =
                json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
        }
        placed["status"] = status;
    }
}

pub(super) fn pod_limit(question: &mut Question, draw: &mut Draw) {
    for node in 0..3 {
        let limit = draw.pick(&["0", "1", "1", "2", "3"]);
        question.nodes[node]["status"]["allocatable"]["pods"] = json!(limit);
        for _ in 0..draw.below(3) {
            question.place(node);
        }
    }
}
