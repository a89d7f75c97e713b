//! The situations of which `docs/pictures` has maps, and large clusters to draw.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A cluster, and how `stowplan map` is asked to draw it.
#[derive(Debug)]
pub struct Situation {
    /// The name of the picture's file, without its extension.
    pub name: &'static str,
    /// Files of the workspace with the cluster's objects.
    pub files: &'static [&'static str],
    /// The policy file.
    pub policy: Option<&'static str>,
    /// Makes the cluster if there are no files.
    pub make: Option<fn() -> Value>,
}

impl Situation {
    /// The arguments of `stowplan map`. The cluster without files is on standard input.
    #[must_use]
    pub fn arguments(&self) -> Vec<&'static str> {
        let mut arguments = vec!["map", "--cluster"];
        match self.make {
            Some(_) => arguments.push("-"),
            None => arguments.extend(self.files),
        }
        if let Some(policy) = self.policy {
            arguments.extend(["--policy", policy]);
        }
        arguments
    }

    /// What is on standard input.
    #[must_use]
    pub fn input(&self) -> Vec<u8> {
        self.make.map(|make| make().to_string().into_bytes()).unwrap_or_default()
    }
}

/// The situations.
pub const SITUATIONS: &[Situation] = &[
    Situation { name: "job", files: &["examples/map-job.yaml"], policy: None, make: None },
    Situation { name: "run", files: &["examples/waiting-run.yaml"], policy: None, make: None },
    Situation { name: "mpi", files: &["examples/map-mpi.yaml"], policy: None, make: None },
    Situation {
        name: "numa",
        files: &["examples/numa-busy.yaml"],
        policy: Some("examples/numa-policy.yaml"),
        make: None,
    },
    Situation { name: "nodes", files: &[], policy: None, make: Some(|| cluster(200)) },
    Situation { name: "zones", files: &[], policy: None, make: Some(|| cluster(1000)) },
];

/// The number of pods on a node is at most this.
const PODS: usize = 5;

/// A cluster of so many nodes in three zones, some of them without one: jobs, groups with placeholders and
/// MPI clusters, and pods with which stowplan has nothing to do. Always the same one.
#[must_use]
pub fn cluster(nodes: usize) -> Value {
    let mut items = Vec::new();
    let mut random = Random(20_261_124);
    for index in 0..nodes {
        items.push(node(index, nodes));
        for number in 0..random.below(PODS) {
            items.push(pod(index, number, nodes, &mut random));
        }
    }
    items.extend((0..nodes / 40).map(job));
    items.extend((0..nodes / 20).flat_map(|number| group(number, nodes)));
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// A linear congruential generator: the numbers only have to look irregular.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 40).unwrap_or_default() % limit.max(1)
    }
}

fn node_name(index: usize) -> String {
    format!("node-{}", index + 1)
}

fn node(index: usize, nodes: usize) -> Value {
    let name = node_name(index);
    let ready = if index % 61 == 17 { "False" } else { "True" };
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"unschedulable": index % 37 == 5},
        "status": {
            "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    });
    // The last ones have no zone.
    if index < nodes - nodes / 20 {
        let zone = ["zone-a", "zone-b", "zone-c"][index % 3];
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = zone.into();
    }
    node
}

fn pod(node: usize, number: usize, nodes: usize, random: &mut Random) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "default", "uid": format!("p{node}-{number}"),
            "annotations": {"stowplan.dev/placement": r#"{"v":1,"streams":["any"],"more":0}"#},
        },
        "spec": {"nodeName": node_name(node), "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    });
    let name = match random.below(6) {
        kind @ 0..=2 => {
            let job = (random.below(nodes) + kind) % (nodes / 40).max(1);
            let element = format!("pe-{node}-{number}");
            pod["metadata"]["labels"] = json!({
                "app": "streams", "streams.ibm.com/job": format!("job-{}", job + 1),
                "streams.ibm.com/pe": element,
            });
            format!("job-{}-{element}", job + 1)
        }
        3 => {
            let cluster = random.below((nodes / 50).max(1)) + 1;
            pod["metadata"]["labels"] = json!({
                "mpi.stowplan.dev/cluster": format!("ring-{cluster}"),
                "mpi.stowplan.dev/role": "worker",
            });
            pod["spec"]["hostname"] = format!("ring-{cluster}-{node}-{number}").into();
            format!("ring-{cluster}-{node}-{number}")
        }
        _ => {
            if let Some(metadata) = pod["metadata"].as_object_mut() {
                metadata.remove("annotations");
            }
            format!("web-{node}-{number}")
        }
    };
    pod["metadata"]["name"] = name.into();
    pod
}

/// A StreamsJob that reserves nodes for two elements.
fn job(index: usize) -> Value {
    let name = format!("job-{}", index + 1);
    let reserved = |number: usize| {
        json!({"name": node_name(index * 7 + number * 3),
            "processingElements": [format!("late-{number}")]})
    };
    json!({
        "apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob",
        "metadata": {"name": name, "namespace": "default", "uid": name, "generation": 1},
        "spec": {"processingElements": [{"name": "late-0"}, {"name": "late-1"}]},
        "status": {
            "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted",
                "message": "the job can be placed as a whole", "observedGeneration": 1,
                "lastTransitionTime": "2026-11-22T04:30:00Z"}],
            "witness": {"since": "2026-11-22T04:30:00Z", "nodes": [reserved(0), reserved(1)]},
        },
    })
}

/// A group of pods with its placeholder. Every fourth one waits: its placeholder has no node.
fn group(number: usize, nodes: usize) -> Vec<Value> {
    let group = format!("build-{}", number + 1);
    // As stowplan derives it from the namespace and the group.
    let digest = Sha256::digest(format!("native/builds/{group}"));
    let digest: String = digest[..5].iter().map(|byte| format!("{byte:02x}")).collect();
    let placeholder = format!("affinity-assistant-{digest}");
    let is_waiting = number % 4 == 3;
    let node = (!is_waiting).then(|| node_name((number * 19 + 4) % nodes));
    let pod = |name: &str, metadata: Value| {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": if is_waiting { "Pending" } else { "Running" }},
        });
        pod["metadata"]["name"] = name.into();
        pod["metadata"]["namespace"] = "builds".into();
        pod["metadata"]["uid"] = name.into();
        if is_waiting {
            pod["status"]["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "no node", "lastTransitionTime": "2026-11-22T04:31:07Z",
            }]);
        }
        pod
    };
    let member = |number: usize| {
        let name = format!("{group}-{number}");
        let mut pod = pod(
            &name,
            json!({
                "labels": {"stowplan.dev/coschedule-member": placeholder},
                "annotations": {
                    "stowplan.dev/coschedule-group": group,
                    "stowplan.dev/placement": r#"{"v":1,"coschedule":["a group"],"more":0}"#,
                },
            }),
        );
        let labels = json!({
            "app.kubernetes.io/component": "affinity-assistant",
            "app.kubernetes.io/instance": placeholder,
        });
        pod["spec"]["affinity"]["podAffinity"] = json!({
            "requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname",
            }],
        });
        pod
    };
    let mut reserving = pod(
        &format!("{placeholder}-0"),
        json!({"labels": {
            "stowplan.dev/placeholder": placeholder, "stowplan.dev/coschedule-member": placeholder,
            "app.kubernetes.io/component": "affinity-assistant",
            "app.kubernetes.io/instance": placeholder,
        }}),
    );
    if is_waiting {
        reserving["spec"]["nodeSelector"] = json!({"disk": "fast"});
    }
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {
            "name": placeholder, "namespace": "builds", "uid": placeholder,
            "labels": {"stowplan.dev/placeholder": placeholder},
            "annotations": {"stowplan.dev/coschedule-group": group},
        },
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    vec![set, reserving, member(0), member(1)]
}
