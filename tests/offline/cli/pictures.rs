//! The situations of which `docs/pictures` has maps, and large clusters to draw.

use serde_json::{Value, json};

use crate::check::objects::{self, with};

/// For each picture its name, which is that of its file without the extension; what follows `--cluster`:
/// files, or `-` for standard input; and the number of nodes of the cluster on standard input.
pub(super) const SITUATIONS: [(&str, &str, usize); 6] = [
    ("job", "examples/map-job.yaml", 0),
    ("run", RUN, 0),
    ("mpi", "examples/map-mpi.yaml", 0),
    ("numa", "examples/numa-busy.yaml --policy examples/numa-policy.yaml", 0),
    ("nodes", "-", 200),
    ("zones", "-", 1000),
];

pub(super) const RUN: &str = "examples/waiting-run.yaml";

/// Returns a cluster of so many nodes in three zones, some of them without one, with pods of jobs and
/// others, and with nodes that jobs have reserved. It is always the same one.
pub(super) fn cluster(nodes: usize) -> Value {
    // A linear congruential generator: the numbers only have to look irregular.
    let mut state = 20_261_124_u64;
    let mut below = move |limit: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 40).unwrap_or_default() % limit
    };
    let jobs = (nodes / 40).max(1);
    let mut items = Vec::new();
    for index in 0..nodes {
        let has_zone = index < nodes - nodes / 20;
        let zone = ["zone-a", "zone-b", "zone-c"][index % 3];
        items.push(node(index, has_zone.then_some(zone)));
        for number in 0..below(5) {
            items.push(pod(index, number, (below(2) == 0).then(|| below(jobs) + 1)));
        }
    }
    items.extend((1..=nodes / 40).map(job));
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn node(index: usize, zone: Option<&str>) -> Value {
    let ready = if index % 61 == 17 { "False" } else { "True" };
    let fields = json!({
        "metadata": {"labels": {"topology.kubernetes.io/zone": zone}},
        "spec": {"unschedulable": index % 37 == 5},
        "status": {
            "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    });
    with(objects::node(&format!("node-{index}")), &fields)
}

/// Returns a pod on a node: of a job, or one with which stowplan has nothing to do.
fn pod(node: usize, number: usize, job: Option<usize>) -> Value {
    let element = format!("pe-{node}-{number}");
    let name = match job {
        Some(job) => format!("job-{job}-{element}"),
        None => format!("web-{node}-{number}"),
    };
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "default", "name": name, "uid": name},
        "spec": {"nodeName": format!("node-{node}"), "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    });
    if let Some(job) = job {
        pod["metadata"]["annotations"] =
            json!({"stowplan.dev/placement": r#"{"v":1,"streams":["any"],"more":0}"#});
        pod["metadata"]["labels"] = json!({
            "app": "streams", "streams.ibm.com/job": format!("job-{job}"),
            "streams.ibm.com/pe": element,
        });
    }
    pod
}

/// Returns a StreamsJob that reserves nodes for two elements.
fn job(number: usize) -> Value {
    let name = format!("job-{number}");
    let late = [7 * number, 7 * number + 3];
    let elements = late.map(|node| json!({"name": format!("late-{node}")}));
    let reserved = late.map(|node| {
        json!({"name": format!("node-{node}"), "processingElements": [format!("late-{node}")]})
    });
    json!({
        "apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob",
        "metadata": {"name": name, "namespace": "default", "uid": name, "generation": 1},
        "spec": {"processingElements": elements},
        "status": {
            "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted",
                "message": "the job can be placed as a whole", "observedGeneration": 1,
                "lastTransitionTime": "2026-11-22T04:30:00Z"}],
            "witness": {"since": "2026-11-22T04:30:00Z", "nodes": reserved},
        },
    })
}
