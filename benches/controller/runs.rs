//! Clusters with coscheduled Tekton runs to plan on, without a control plane: documents as Tekton
//! and the API server give them, and placeholders as the plan itself makes them.

use anyhow::{Context as _, ensure};
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};
use stowplan::testing::systems;
use stowplan::testing::systems::coschedule::keys;
use stowplan::testing::systems::coschedule::kinds::pipeline_run::claim_name;
use stowplan::testing::systems::plan::Write;
use stowplan::testing::systems::policy::Policy;
use stowplan::testing::view::Scope;

use crate::world::Scene;

/// The namespace of every run.
const NAMESPACE: &str = "ci";
/// The tasks of a run, which may all begin at once: as many TaskRuns and pods.
const TASKS: [&str; 5] = ["unit", "integration", "lint", "package", "scan"];
/// The workspaces of a run, each a claim. All tasks use both.
const WORKSPACES: [&str; 2] = ["source", "cache"];
/// The claim that all runs use where they use one.
const SHARED: &str = "shared";
/// The class of the claims: its volumes are made where their first pod is.
const CLASS: &str = "fast-wait";
/// Volumes and nodes are in one of so many zones.
const ZONES: usize = 3;
/// What a node offers, in thousandths of a CPU.
const NODE_CPU: u32 = 16_000;
/// What a task asks for.
const TASK_CPU: u32 = 500;
/// What a full node has left: enough for a placeholder, and for no task.
const LEFT_CPU: u32 = 200;
/// How long members wait that wait for long: longer than the grace period, and not yet so long that
/// their placeholders give their nodes up.
const LONG: SignedDuration = SignedDuration::from_secs(60);

/// How large a cluster is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Extent {
    pub(crate) nodes: usize,
    pub(crate) runs: usize,
}

/// What there is to do in a cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    /// Every run has its placeholder, and its members run beside it: nothing.
    Steady,
    /// No run has been seen before: a placeholder each.
    New,
    /// Every run has its placeholder, and its members wait because every node is full: no write
    /// would help, and each gets an event.
    Full,
    /// All runs use one claim, so that they are on one node, where their members run: nothing.
    OneClaim,
}

/// A cluster in this state; an error if the plan on it is not what the state implies.
pub(crate) fn scene(state: State, extent: Extent) -> anyhow::Result<Scene> {
    let mut policy = Policy::default();
    policy.coschedule.placeholder.image = "stowplan:1".to_owned();
    let now = "2026-01-01T00:00:00Z".parse()?;
    let mut making = Making { state, extent, scene: Scene::new(policy, now), versions: 0 };
    making.make()?;
    let Making { scene, .. } = making;
    let planned = scene.plan().actions;
    let events = planned.iter().filter(|action| action.write == Write::None).count();
    let written = planned.len() - events;
    let wanted = match state {
        State::Steady | State::OneClaim => (0, 0),
        State::New => (extent.runs, 0),
        // The run, and of each task the TaskRun and the pod.
        State::Full => (0, extent.runs * (1 + 2 * TASKS.len())),
    };
    ensure!(
        (written, events) == wanted,
        "{state:?}: planned {written} writes and {events} events instead of {wanted:?}"
    );
    Ok(scene)
}

/// A cluster in the making.
struct Making {
    state: State,
    extent: Extent,
    scene: Scene,
    versions: u64,
}

impl Making {
    fn make(&mut self) -> anyhow::Result<()> {
        self.show(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
        }))?;
        self.show(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
            "provisioner": "example.com/disk", "volumeBindingMode": "WaitForFirstConsumer",
        }))?;
        for index in 0..self.extent.nodes {
            self.node(index)?;
        }
        if self.state == State::OneClaim {
            self.claim(SHARED, &self.zone(0), &Value::Null)?;
        }
        for run in 0..self.extent.runs {
            self.run(run)?;
        }
        if self.state != State::New {
            self.place()?;
        }
        if self.state == State::Full {
            self.scene.now = self.scene.now.checked_add(LONG)?;
        }
        Ok(())
    }

    /// Shows a document that the controller reads as decisions do.
    fn show(&mut self, document: Value) -> anyhow::Result<()> {
        let object = systems::object(document).map_err(anyhow::Error::msg)?;
        self.scene.view.apply(object.context("a kind that no View holds")?);
        Ok(())
    }

    fn show_pod(&mut self, pod: Value) -> anyhow::Result<()> {
        let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod)?;
        self.scene
            .view
            .apply(systems::project(&pod, Scope::Controller).context("a pod that is somebody's")?);
        Ok(())
    }

    fn metadata(&mut self, name: &str) -> Value {
        self.versions += 1;
        json!({
            "name": name, "namespace": NAMESPACE, "uid": uid(&format!("{name}-{}", self.versions)),
            "resourceVersion": self.versions.to_string(),
            "creationTimestamp": self.scene.now.to_string(),
        })
    }

    fn node(&mut self, index: usize) -> anyhow::Result<()> {
        let name = node_name(index);
        let node = json!({
            "metadata": {
                "name": name, "uid": uid(&name), "resourceVersion": "1",
                "labels": {
                    "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64",
                    "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": zone_name(index),
                },
            },
            "spec": {},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "Hostname", "address": name}],
                "allocatable": {"cpu": cpu(NODE_CPU), "memory": "64Gi", "pods": "110"},
            },
        });
        let node: k8s_openapi::api::core::v1::Node = serde_json::from_value(node)?;
        self.scene.view.apply(systems::project(&node, Scope::Controller).context("a node")?);
        if self.state == State::Full {
            let metadata = self.metadata(&format!("database-{index}"));
            let requests = json!({"cpu": cpu(NODE_CPU - LEFT_CPU)});
            self.show_pod(json!({
                "metadata": metadata,
                "spec": {
                    "nodeName": name,
                    "containers": [{"name": "database", "resources": {"requests": requests}}],
                },
                "status": {"phase": "Running"},
            }))?;
        }
        Ok(())
    }

    /// The node of a run.
    fn seat(&self, run: usize) -> usize {
        if self.state == State::OneClaim { 0 } else { run % self.extent.nodes }
    }

    fn zone(&self, run: usize) -> String {
        zone_name(self.seat(run))
    }

    /// A claim with its volume, which the nodes of one zone can mount. Those of new runs wait for
    /// their first pod.
    fn claim(&mut self, name: &str, zone: &str, owner: &Value) -> anyhow::Result<()> {
        let is_bound = self.state != State::New;
        let mut metadata = self.metadata(name);
        metadata["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
        if !owner.is_null() {
            metadata["ownerReferences"] = json!([owner]);
        }
        let volume = format!("volume-of-{name}");
        self.show(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
                "volumeName": if is_bound { &volume } else { "" },
            },
            "status": {"phase": if is_bound { "Bound" } else { "Pending" }},
        }))?;
        if is_bound {
            let expression = json!(
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
            );
            let required = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
            self.show(json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
                "spec": {"nodeAffinity": {"required": required}},
            }))?;
        }
        Ok(())
    }

    /// A run with its claims, its TaskRuns and their pods.
    fn run(&mut self, index: usize) -> anyhow::Result<()> {
        let name = format!("build-of-application-{index}");
        let metadata = self.metadata(&name);
        let run_uid = metadata["uid"].as_str().context("a UID")?.to_owned();
        let owner = owner("PipelineRun", &metadata);
        let mut workspaces = Vec::new();
        let mut claims = Vec::new();
        if self.state == State::OneClaim {
            let claim = json!({"claimName": SHARED});
            workspaces.push(json!({"name": WORKSPACES[0], "persistentVolumeClaim": claim}));
            claims.push(SHARED.to_owned());
        } else {
            for workspace in WORKSPACES {
                let spec = json!({
                    "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
                    "resources": {"requests": {"storage": "1Gi"}},
                });
                workspaces.push(json!({"name": workspace, "volumeClaimTemplate": {"spec": spec}}));
                let claim = claim_name(None, workspace, &run_uid);
                self.claim(&claim, &self.zone(index), &owner)?;
                claims.push(claim);
            }
        }
        let used: Vec<Value> = workspaces
            .iter()
            .map(|workspace| json!({"name": workspace["name"], "workspace": workspace["name"]}))
            .collect();
        let tasks =
            TASKS.map(|task| json!({"name": task, "taskRef": {"name": task}, "workspaces": used}));
        self.show(json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": metadata,
            "spec": {
                "workspaces": workspaces, "pipelineSpec": {"tasks": tasks},
                "taskRunTemplate": {"serviceAccountName": "default"},
            },
        }))?;
        let placeholder = keys::of_run(&run_uid, WORKSPACES[0]);
        for task in TASKS {
            let mut metadata = self.metadata(&format!("{name}-{task}"));
            metadata["labels"] = json!({"tekton.dev/pipelineTask": task});
            metadata["ownerReferences"] = json!([owner]);
            let pod = self.member(index, &metadata, &placeholder, &claims);
            self.show(json!(
                {"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": metadata}
            ))?;
            self.show_pod(pod)?;
        }
        Ok(())
    }

    /// The pod of a TaskRun as it comes from the webhook: with the label and the pod-affinity term.
    fn member(
        &mut self,
        run: usize,
        task_run: &Value,
        placeholder: &str,
        claims: &[String],
    ) -> Value {
        let name = task_run["name"].as_str().unwrap_or_default();
        let mut metadata = self.metadata(&format!("{name}-pod"));
        metadata["labels"] = json!({keys::MEMBER: placeholder});
        metadata["ownerReferences"] = json!([owner("TaskRun", task_run)]);
        let term = json!({
            "labelSelector": {"matchLabels": {
                keys::COMPONENT: keys::COMPONENT_VALUE, keys::INSTANCE: placeholder,
            }},
            "topologyKey": "kubernetes.io/hostname",
        });
        let volumes = claims.iter().enumerate().map(|(index, claim)| {
            json!({"name": format!("ws-{index}"), "persistentVolumeClaim": {"claimName": claim}})
        });
        let requests = json!({"cpu": cpu(TASK_CPU), "memory": "256Mi"});
        let mut pod = json!({
            "metadata": metadata,
            "spec": {
                "containers": [{"name": "step-work", "resources": {"requests": requests}}],
                "volumes": volumes.collect::<Vec<_>>(),
                "affinity": {"podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [term],
                }},
            },
        });
        if matches!(self.state, State::Steady | State::OneClaim) {
            pod["spec"]["nodeName"] = json!(node_name(self.seat(run)));
            pod["status"] = json!({"phase": "Running"});
        } else {
            pod["status"] = json!({"phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 node(s) didn't match pod affinity rules.",
                "lastTransitionTime": self.scene.now.to_string(),
            }]});
        }
        pod
    }

    /// Carries out what is planned until every run has its placeholder, each with its pod on the
    /// node of its run.
    fn place(&mut self) -> anyhow::Result<()> {
        let mut made = 0;
        // Of those that use one claim the first comes first, and all others after it.
        while made < self.extent.runs {
            let before = made;
            for action in self.scene.plan().actions {
                match (action.target.resource.kind, action.write) {
                    ("StatefulSet", Write::Create(set)) => {
                        self.placeholder(&action.target.name, set)?;
                        made += 1;
                    }
                    // Each run after the first gets an event: it waits for the first.
                    (_, Write::None) => {}
                    (kind, write) => anyhow::bail!("{kind}: {write:?} is not for here"),
                }
            }
            ensure!(made > before, "{made} placeholders of {} are made", self.extent.runs);
        }
        Ok(())
    }

    fn placeholder(&mut self, name: &str, mut set: Value) -> anyhow::Result<()> {
        let owner = &set["metadata"]["ownerReferences"][0]["name"];
        let run = owner.as_str().and_then(|name| name.rsplit_once('-')?.1.parse().ok());
        let node = node_name(self.seat(run.context("a run's")?));
        let mut metadata = self.metadata(name);
        let Value::Object(known) = metadata.take() else { unreachable!("it is made as one") };
        set["metadata"].as_object_mut().context("metadata")?.extend(known);
        let template = &set["spec"]["template"];
        let mut metadata = self.metadata(&format!("{name}-0"));
        metadata["labels"] = template["metadata"]["labels"].clone();
        // With the plan that the pod was made by: one without it is outdated.
        metadata["annotations"] = template["metadata"]["annotations"].clone();
        let mut spec = template["spec"].clone();
        spec["nodeName"] = json!(node);
        let conditions = json!([{
            "type": "PodScheduled", "status": "True",
            "lastTransitionTime": self.scene.now.to_string(),
        }]);
        self.show_pod(json!({
            "metadata": metadata, "spec": spec,
            "status": {"phase": "Running", "conditions": conditions},
        }))?;
        self.show(set)
    }
}

/// The owner reference to what has this metadata.
fn owner(kind: &str, of: &Value) -> Value {
    json!({
        "apiVersion": "tekton.dev/v1", "kind": kind, "name": of["name"], "uid": of["uid"],
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn node_name(index: usize) -> String {
    format!("node-{index}")
}

fn zone_name(node: usize) -> String {
    format!("zone-{}", node % ZONES)
}

fn cpu(thousandths: u32) -> String {
    format!("{thousandths}m")
}

/// A UID as long as the API server's.
fn uid(of: &str) -> String {
    format!("{of:0>36}")
}
