//! The objects of a large cluster in use, as documents: of the API server, of Tekton and of users.
//! Pods have what stowplan's decision gives them, because the bench puts them past its admission.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::{Timestamp, Unit};
use serde_json::{Value, json};
use stowplan::testing::admission::{Decision, Review, answer, decide};
use stowplan::testing::systems;
use stowplan::testing::systems::coschedule::kinds::pipeline_run::claim_name;
use stowplan::testing::systems::plan::{Plan, Write};
use stowplan::testing::systems::policy::Policy;
use stowplan::testing::view::{Scope, View};

use crate::answers;

/// The namespaces of runs, of jobs and of all other pods.
pub(crate) const NAMESPACES: [&str; 3] = [RUNS, JOBS, OTHERS];
const RUNS: &str = "ci";
const JOBS: &str = "streams-apps";
const OTHERS: &str = "services";

/// The class of all claims: its volumes are made where their first pod is.
pub(crate) const CLASS: &str = "fast-wait";
const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const ZONES: [&str; 3] = ["zone-0", "zone-1", "zone-2"];

/// The tasks of a run, each with a TaskRun and a pod.
const TASKS: [&str; 5] = ["unit", "integration", "lint", "package", "scan"];
/// The workspaces of a run, each a claim. All tasks use both.
const WORKSPACES: [&str; 2] = ["source", "cache"];

/// The elements of a job, each with a pod.
const ELEMENTS: usize = 10;
/// One job in so many has a pool, of so many nodes.
const WITH_POOL: usize = 10;
const POOL: usize = 4;
/// The element that runs on the pool.
const ON_POOL: usize = 8;

/// How large a cluster is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) nodes: usize,
    /// All pods, except placeholders.
    pub(crate) pods: usize,
    pub(crate) runs: usize,
    pub(crate) jobs: usize,
}

impl Extent {
    pub(crate) fn divided_by(self, divisor: usize) -> Self {
        Self {
            nodes: self.nodes / divisor,
            pods: self.pods / divisor,
            runs: self.runs / divisor,
            jobs: self.jobs / divisor,
        }
    }

    /// The pods of neither runs nor jobs.
    pub(crate) fn others(self) -> usize {
        let pool_pods = self.jobs.div_ceil(WITH_POOL);
        self.pods.saturating_sub(self.runs * TASKS.len() + self.jobs * ELEMENTS - pool_pods)
    }
}

/// The cluster as the controller sees it.
pub(crate) struct World {
    extent: Extent,
    pub(crate) view: View,
    pub(crate) policy: Policy,
    pub(crate) now: Timestamp,
    objects: u64,
}

impl World {
    /// With its nodes and namespaces.
    pub(crate) fn new(extent: Extent) -> anyhow::Result<Self> {
        let mut policy = Policy::default();
        policy.coschedule.placeholder.image = "stowplan:1".to_owned();
        // The API server has whole seconds.
        let now = Timestamp::from_second(Timestamp::now().as_second())?;
        let view = systems::view();
        let mut world = Self { extent, view, policy, now, objects: 0 };
        for namespace in NAMESPACES {
            world.show(&json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
            }))?;
        }
        world.show(&class())?;
        for index in 0..extent.nodes {
            let node = world.node(index);
            let node: core::Node = serde_json::from_value(node)?;
            let node = systems::project(&node, Scope::Controller);
            world.view.apply(node.context("a node")?);
        }
        Ok(world)
    }

    /// The plan of all systems, as the controller makes it.
    pub(crate) fn plan(&self) -> Plan {
        systems::plan(&self.view, &self.policy, self.now)
    }

    fn show(&mut self, document: &Value) -> anyhow::Result<()> {
        let object = systems::object(document.clone()).map_err(anyhow::Error::msg)?;
        self.view.apply(object.context("a kind that no View holds")?);
        Ok(())
    }

    fn show_pod(&mut self, pod: &Value) -> anyhow::Result<()> {
        let pod: core::Pod = serde_json::from_value(pod.clone())?;
        // A pod that uses nothing on its node is kept too.
        self.view.apply(systems::project(&pod, Scope::Controller).context("a pod")?);
        Ok(())
    }

    fn metadata(&mut self, namespace: &str, name: &str) -> Value {
        self.objects += 1;
        json!({
            "name": name, "namespace": namespace, "resourceVersion": self.objects.to_string(),
            "uid": format!("{:08x}-0000-4000-8000-{:012x}", self.objects >> 32, self.objects),
            "creationTimestamp": self.now.round(Unit::Second).map_or_else(
                |_| self.now.to_string(), |now| now.to_string(),
            ),
            "generation": 1,
        })
    }

    fn node(&mut self, index: usize) -> Value {
        let name = node_name(index);
        let mut metadata = self.metadata("", &name);
        metadata["labels"] = json!({
            "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux", ZONE: zone(index),
        });
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": metadata,
            "spec": {},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "Hostname", "address": name}],
                "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            },
        })
    }

    /// The node of a run; jobs and other pods are spread over all nodes.
    fn seat(&self, number: usize) -> usize {
        number % self.extent.nodes
    }

    /// A run that is under way: its claims with their volumes, its TaskRuns, and their pods, which
    /// run on one node.
    pub(crate) fn run(&mut self, index: usize) -> anyhow::Result<Vec<Value>> {
        let name = format!("build-of-application-{index}");
        let seat = self.seat(index);
        let mut documents = Vec::new();
        let metadata = self.metadata(RUNS, &name);
        let run_uid = metadata["uid"].as_str().context("a UID")?.to_owned();
        let owner = owner("PipelineRun", &metadata);
        let mut claims = Vec::new();
        let mut workspaces = Vec::new();
        for workspace in WORKSPACES {
            let spec = json!({
                "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
                "resources": {"requests": {"storage": "1Gi"}},
            });
            workspaces.push(json!({"name": workspace, "volumeClaimTemplate": {"spec": spec}}));
            let claim = claim_name(None, workspace, &run_uid);
            documents.extend(self.claim(&claim, seat, &owner));
            claims.push(claim);
        }
        let used: Vec<Value> = WORKSPACES
            .iter()
            .map(|workspace| json!({"name": workspace, "workspace": workspace}))
            .collect();
        let task = |task: &str| {
            let steps = json!([{"name": "work", "image": "example.com/builder", "script": "make"}]);
            json!({"name": task, "workspaces": used, "taskSpec": {"steps": steps}})
        };
        documents.push(json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": metadata,
            "spec": {
                "workspaces": workspaces, "pipelineSpec": {"tasks": TASKS.map(task)},
                "taskRunTemplate": {"serviceAccountName": "default"},
            },
        }));
        let mut pods = Vec::new();
        for task in TASKS {
            let mut metadata = self.metadata(RUNS, &format!("{name}-{task}"));
            metadata["labels"] =
                json!({"tekton.dev/pipelineTask": task, "tekton.dev/pipelineRun": name});
            metadata["ownerReferences"] = json!([owner]);
            pods.push(self.member(&metadata, &claims));
            documents.push(json!({
                "apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": metadata,
                "spec": {"taskSpec": {"steps": [{"name": "work", "image": "example.com/builder"}]}},
            }));
        }
        for document in &documents {
            self.show(document)?;
        }
        for pod in pods {
            documents.push(self.admit(pod, seat)?);
        }
        Ok(documents)
    }

    /// A claim and its volume, which the nodes of one zone can mount.
    fn claim(&mut self, name: &str, seat: usize, owner: &Value) -> [Value; 2] {
        let volume_name = format!("volume-of-{name}");
        let mut metadata = self.metadata(RUNS, name);
        metadata["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
        metadata["ownerReferences"] = json!([owner]);
        metadata["annotations"] = json!({
            "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
        });
        let mut volume = self.metadata("", &volume_name);
        volume.as_object_mut().map(|metadata| metadata.remove("namespace"));
        volume["annotations"] = json!({"pv.kubernetes.io/provisioned-by": "example.com/disk"});
        let expression = json!({"key": ZONE, "operator": "In", "values": [zone(seat)]});
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": volume,
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "storageClassName": CLASS, "persistentVolumeReclaimPolicy": "Retain",
                "csi": {"driver": "example.com", "volumeHandle": volume_name},
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": RUNS,
                    "name": name, "uid": metadata["uid"],
                },
                "nodeAffinity": {"required": required},
            },
            "status": {"phase": "Bound"},
        });
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
                "resources": {"requests": {"storage": "1Gi"}}, "volumeName": volume_name,
            },
            "status": {
                "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            },
        });
        [volume, claim]
    }

    /// The pod of a TaskRun as Tekton creates it. Its steps end in a day.
    fn member(&mut self, task_run: &Value, claims: &[String]) -> Value {
        let name = task_run["name"].as_str().unwrap_or_default();
        let mut metadata = self.metadata(RUNS, &format!("{name}-pod"));
        metadata["labels"] = task_run["labels"].clone();
        metadata["annotations"] = json!({testbed::tekton::DURATION: "24h"});
        metadata["ownerReferences"] = json!([owner("TaskRun", task_run)]);
        let volumes = claims.iter().enumerate().map(|(index, claim)| {
            json!({"name": format!("ws-{index}"), "persistentVolumeClaim": {"claimName": claim}})
        });
        let volumes: Vec<Value> = volumes.collect();
        pod(&metadata, "500m", &json!({"volumes": volumes, "restartPolicy": "Never"}))
    }

    /// A job, and its pods, which run.
    pub(crate) fn job(&mut self, index: usize) -> anyhow::Result<Vec<Value>> {
        let name = format!("analysis-{index}");
        let has_pool = index.is_multiple_of(WITH_POOL);
        let element = |number: usize| {
            let mut operator = json!({"name": format!("Op{number}")});
            match number {
                0..=4 => operator["hostExlocation"] = json!(["apart"]),
                5 | 6 => operator["hostColocation"] = json!(["together"]),
                7 => operator["hostIsolation"] = json!(true),
                ON_POOL if has_pool => operator["host"] = json!({"pool": "Workers"}),
                _ => {}
            }
            json!({"name": element_name(number), "operators": [operator]})
        };
        let elements: Vec<Value> = (0..ELEMENTS).map(element).collect();
        let mut spec = json!({"processingElements": elements});
        if has_pool {
            spec["pools"] = json!([{"name": "Workers", "size": POOL}]);
        }
        let job = json!({
            "apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob",
            "metadata": self.metadata(JOBS, &name), "spec": spec,
        });
        self.show(&job)?;
        let mut documents = vec![job];
        // Until the pool has its nodes, a pod on it would be refused.
        for number in (0..ELEMENTS).filter(|number| !(has_pool && *number == ON_POOL)) {
            let mut metadata = self.metadata(JOBS, &format!("{name}-{}", element_name(number)));
            metadata["labels"] = json!({
                "app": "streams", "streams.ibm.com/job": name,
                "streams.ibm.com/pe": element_name(number),
            });
            // Those of the colocation group are on one node.
            let seat = self.seat(index * ELEMENTS + if number == 6 { 5 } else { number });
            let pod = pod(&metadata, "200m", &json!({}));
            documents.push(self.admit(pod, seat)?);
        }
        Ok(documents)
    }

    /// A pod that is nobody's.
    pub(crate) fn other(&mut self, index: usize) -> anyhow::Result<Value> {
        let mut metadata = self.metadata(OTHERS, &format!("service-{index}-7c9f8d5b6-x2x4z"));
        metadata["labels"] = json!({"app": format!("service-{}", index / 10)});
        let seat = self.seat(index);
        let pod = self.bind(pod(&metadata, "100m", &json!({})), seat);
        self.show_pod(&pod)?;
        Ok(pod)
    }

    /// Gives a pod what stowplan's webhook gives it, and binds it to a node.
    fn admit(&mut self, mut pod: Value, seat: usize) -> anyhow::Result<Value> {
        let metadata = &pod["metadata"];
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE",
                "namespace": metadata["namespace"], "name": metadata["name"],
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "object": pod,
            },
        });
        let review = serde_json::to_vec(&review)?;
        let review = Review::parse(&review)?;
        let decision = decide(&review, &self.view, &self.policy)?.at_once();
        ensure!(!matches!(decision, Decision::Refuse(_)), "{pod}: {decision:?}");
        let answer = String::from_utf8(answer::write(&review, &decision))?;
        if let Some(patch) = answers::patch_of(&answer)? {
            json_patch::patch(&mut pod, &serde_json::from_slice::<json_patch::Patch>(&patch)?)?;
        }
        let pod = self.bind(pod, seat);
        self.show_pod(&pod)?;
        Ok(pod)
    }

    fn bind(&self, mut pod: Value, seat: usize) -> Value {
        pod["spec"]["nodeName"] = json!(node_name(seat));
        let time = &pod["metadata"]["creationTimestamp"];
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time});
        let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
        let container = &pod["spec"]["containers"][0];
        let container = json!({
            "name": container["name"], "image": container["image"], "imageID": "", "ready": true,
            "started": true, "restartCount": 0, "state": {"running": {"startedAt": time}},
        });
        let status = json!({
            "phase": "Running", "conditions": conditions, "startTime": time,
            "podIP": "10.128.0.1", "podIPs": [{"ip": "10.128.0.1"}],
            "containerStatuses": [container],
        });
        pod["status"] = status;
        pod
    }

    /// Creates the placeholders that are planned, each with its pod on a node of the plan, as the
    /// StatefulSet controller and the scheduler do. Returns how many there are.
    pub(crate) fn place(&mut self) -> anyhow::Result<usize> {
        let mut placed = 0;
        for action in self.plan().actions {
            let ("StatefulSet", Write::Create(mut set)) =
                (action.target.resource.kind, action.write)
            else {
                continue;
            };
            let name = action.target.name.to_string();
            let owner = set["metadata"]["ownerReferences"][0]["name"].as_str();
            let run = owner.and_then(|name| name.rsplit_once('-')?.1.parse().ok());
            let seat = self.seat(run.context("the number of a run")?);
            let template = set["spec"]["template"].clone();
            for (key, value) in self.metadata(RUNS, &name).as_object().into_iter().flatten() {
                set["metadata"][key] = value.clone();
            }
            let mut metadata = self.metadata(RUNS, &format!("{name}-0"));
            metadata["labels"] = template["metadata"]["labels"].clone();
            metadata["annotations"] = template["metadata"]["annotations"].clone();
            let pod = json!({"metadata": metadata, "spec": template["spec"]});
            let pod = self.bind(pod, seat);
            self.show_pod(&pod)?;
            self.show(&set)?;
            placed += 1;
        }
        Ok(placed)
    }
}

/// The storage class of the claims.
pub(crate) fn class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
        "provisioner": "example.com/disk", "volumeBindingMode": "WaitForFirstConsumer",
    })
}

/// A pod as the API server has defaulted it.
fn pod(metadata: &Value, cpu: &str, more: &Value) -> Value {
    // Without these it would be evicted as soon as its node is NotReady.
    let tolerations = ["not-ready", "unreachable"].map(|taint| {
        json!({
            "key": format!("node.kubernetes.io/{taint}"), "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": 300,
        })
    });
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {
            "containers": [{
                "name": "main", "image": "example.com/image:1", "imagePullPolicy": "IfNotPresent",
                "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "securityContext": {},
            "schedulerName": "default-scheduler", "enableServiceLinks": true,
            "tolerations": tolerations,
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

/// The owner reference to what has this metadata.
fn owner(kind: &str, of: &Value) -> Value {
    json!({
        "apiVersion": "tekton.dev/v1", "kind": kind, "name": of["name"], "uid": of["uid"],
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// As `NodeSpec::numbered` names them.
pub(crate) fn node_name(index: usize) -> String {
    format!("node-{}", index + 1)
}

fn element_name(number: usize) -> String {
    format!("pe-{number}")
}

fn zone(node: usize) -> &'static str {
    ZONES[node % ZONES.len()]
}
