//! Small clusters.

use serde_json::{Value, json};

use crate::api;
use crate::simulation::testing::NAMESPACE;
use crate::systems::coschedule::keys;
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::policy::Policy;
use crate::systems::test_objects::node;

/// A small cluster. Owners create the pods again that are missing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scope {
    /// A group of two pods, by the annotation.
    Pair,
    /// A group of three pods.
    Trio,
    /// Two runs of Tekton that must be on different nodes, each with a pod.
    Apart,
    /// A pod with a claim of one node, and one with that claim and another one.
    Claims,
    /// A StreamsJob with two pools of one node, one of them exclusive, and a pod for each.
    Pools,
    /// A StreamsJob with two pods that must be on different nodes, and an exclusive pool of one node for a third one
    /// that does not come.
    Exlocated,
    /// An MPI cluster: a launcher, and a worker for which it waits.
    Mpi,
}

pub(super) const SCOPES: [Scope; 7] = [
    Scope::Pair,
    Scope::Trio,
    Scope::Apart,
    Scope::Claims,
    Scope::Pools,
    Scope::Exlocated,
    Scope::Mpi,
];

/// The nodes of the pods of a scope.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Nodes {
    /// All pods must be on one node.
    Same,
    /// All pods must be on different nodes.
    Different,
    Any,
}

/// The names of pods.
const MEMBERS: [&str; 3] = ["m0", "m1", "m2"];

/// The claims of the pods, where they have any.
const CLAIMS: [&str; 2] = ["c0", "c1"];

/// The role of each pod of an MPI cluster, and the Job that creates it.
const MPI: [(&str, &str); 2] = [("launcher", "l"), ("worker", "w")];

/// The name of the MPI cluster, and of its Service.
pub(super) const CLUSTER: &str = "c";

fn annotations_of(role: &str) -> Value {
    json!({"mpi.stowplan.dev/cluster": CLUSTER, "mpi.stowplan.dev/role": role})
}

/// Returns the name of the PipelineRun of a pod.
pub(super) fn run(number: usize) -> String {
    format!("r{number}")
}

/// Returns a node with room for three pods.
pub(super) fn empty_node(name: &str) -> Value {
    node(name, &json!({"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}}))
}

impl Scope {
    /// Returns the names of its pods.
    pub(super) fn members(self) -> &'static [&'static str] {
        &MEMBERS[..if self == Self::Trio { 3 } else { 2 }]
    }

    /// Returns the number of nodes.
    pub(super) const fn nodes(self) -> usize {
        match self {
            Self::Pair | Self::Trio | Self::Apart | Self::Claims | Self::Mpi => 2,
            Self::Pools => 3,
            Self::Exlocated => 4,
        }
    }

    pub(super) fn policy(self) -> Policy {
        let mut policy = Policy::default();
        policy.coschedule.placeholder.image = "stowplan:1".to_owned();
        if self == Self::Apart {
            policy.coschedule.mode = CoscheduleMode::IsolatePipelinerun;
        }
        policy
    }

    /// Returns on which nodes the pods must be.
    pub(super) const fn relation(self) -> Nodes {
        match self {
            Self::Pair | Self::Trio | Self::Claims => Nodes::Same,
            Self::Apart | Self::Pools | Self::Exlocated => Nodes::Different,
            Self::Mpi => Nodes::Any,
        }
    }

    /// Returns how many nodes must take pods so that all pods can run.
    pub(super) const fn needed_nodes(self) -> usize {
        match self {
            Self::Pair | Self::Trio | Self::Claims | Self::Mpi => 1,
            Self::Apart | Self::Pools => 2,
            Self::Exlocated => 3,
        }
    }

    /// Returns what exists in the beginning beside nodes.
    pub(super) fn objects(self) -> Vec<Value> {
        let claims = CLAIMS.map(|name| {
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"accessModes": ["ReadWriteOnce"]},
            })
        });
        match self {
            Self::Pair | Self::Trio => Vec::new(),
            Self::Apart => {
                let of_tekton = |kind: &str, name: &str, with: Value| {
                    let mut object = json!({
                        "apiVersion": "tekton.dev/v1", "kind": kind,
                        "metadata": {"name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": "1"},
                    });
                    json_patch::merge(&mut object, &with);
                    object
                };
                let run_of = |(number, claim): (usize, &&str)| {
                    let workspaces =
                        json!([{"name": "w", "persistentVolumeClaim": {"claimName": claim}}]);
                    let task = json!({"name": "task", "taskRef": {"name": "t"}, "workspaces": [{"name": "w"}]});
                    let spec = json!({"spec": {"workspaces": workspaces, "pipelineSpec": {"tasks": [task]}}});
                    let name = run(number);
                    let owners = owned_by("tekton.dev/v1", "PipelineRun", &name);
                    let labels = json!({"tekton.dev/pipelineTask": "task"});
                    let task_run =
                        json!({"metadata": {"ownerReferences": owners, "labels": labels}});
                    [
                        of_tekton("PipelineRun", &name, spec),
                        of_tekton("TaskRun", &format!("t{number}"), task_run),
                    ]
                };
                claims.into_iter().chain(CLAIMS.iter().enumerate().flat_map(run_of)).collect()
            }
            Self::Claims => {
                let labels = json!({keys::ONE_NODE_CLAIMS: "true"});
                let metadata = json!({"name": NAMESPACE, "labels": labels});
                let namespace =
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
                claims.into_iter().chain([namespace]).collect()
            }
            Self::Pools => {
                let element = |name: &str, pool: &str| json!({"name": name, "operators": [{"name": name, "host": {"pool": pool}}]});
                vec![job(&json!({
                    "pools": [{"name": "P", "size": 1, "exclusivity": "Exclusive"}, {"name": "Q", "size": 1}],
                    "processingElements": [element("m0", "P"), element("m1", "Q")],
                }))]
            }
            Self::Mpi => MPI
                .iter()
                .map(|(role, job)| {
                    let template = json!({
                        "metadata": {"annotations": annotations_of(role)},
                        "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
                    });
                    json!({
                        "apiVersion": "batch/v1", "kind": "Job",
                        "metadata": {"name": job, "namespace": NAMESPACE, "uid": job, "resourceVersion": "1"},
                        "spec": {
                            "completionMode": "Indexed", "completions": 1, "parallelism": 1,
                            "template": template,
                        },
                    })
                })
                .collect(),
            Self::Exlocated => {
                let apart = |name: &str| json!({"name": name, "operators": [{"name": name, "hostExlocation": ["x"]}]});
                let third =
                    json!({"name": "m2", "operators": [{"name": "m2", "host": {"pool": "P"}}]});
                vec![job(&json!({
                    "pools": [{"name": "P", "size": 1, "exclusivity": "Exclusive"}],
                    "processingElements": [apart("m0"), apart("m1"), third],
                }))]
            }
        }
    }

    /// Returns a pod as its owner creates it.
    pub(super) fn pod(self, number: usize) -> Value {
        let name = MEMBERS[number];
        let claims = match self {
            Self::Apart => &CLAIMS[number..=number],
            Self::Claims => &CLAIMS[..=number],
            Self::Pair | Self::Trio | Self::Pools | Self::Exlocated | Self::Mpi => &[],
        };
        let volume =
            |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
        let volumes: Vec<Value> = claims.iter().map(volume).collect();
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": NAMESPACE, "labels": {"app": "m"},
                "ownerReferences": owned_by("apps/v1", "StatefulSet", "m"),
            },
            "spec": {
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                "volumes": volumes,
            },
            "status": {"phase": "Pending"},
        });
        json_patch::merge(&mut pod, &self.special(number));
        pod
    }

    /// Returns the fields in which the pods of this scope differ from others.
    fn special(self, number: usize) -> Value {
        match self {
            Self::Pair | Self::Trio => json!({"metadata": {"annotations": {keys::GROUP: "g"}}}),
            Self::Claims => json!({}),
            Self::Apart => {
                let task_run = format!("t{number}");
                let owners = owned_by("tekton.dev/v1", "TaskRun", &task_run);
                json!({"metadata": {"ownerReferences": owners}})
            }
            Self::Pools | Self::Exlocated => json!({"metadata": {"labels": {
                "app": "streams", "streams.ibm.com/job": "j", "streams.ibm.com/pe": MEMBERS[number],
            }}}),
            Self::Mpi => {
                let (role, job) = MPI[number];
                let mut annotations = annotations_of(role);
                annotations["batch.kubernetes.io/job-completion-index"] = json!("0");
                json!({
                    "metadata": {
                        "annotations": annotations, "ownerReferences": owned_by("batch/v1", "Job", job),
                    },
                    "spec": {"hostname": format!("{job}-0"), "restartPolicy": "Never"},
                })
            }
        }
    }
}

/// Returns the reference to the controller of an object, whose UID is its name.
fn owned_by(version: &str, kind: &str, name: &str) -> Value {
    json!([{"apiVersion": version, "kind": kind, "name": name, "uid": name, "controller": true}])
}

fn job(spec: &Value) -> Value {
    json!({
        "apiVersion": api::VERSION, "kind": "StreamsJob", "spec": spec,
        "metadata": {"name": "j", "namespace": NAMESPACE, "generation": 1},
    })
}
