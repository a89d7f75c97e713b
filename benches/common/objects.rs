//! The objects of a cluster in use, as documents: of the API server, of Tekton and of users. Pods have
//! what stowplan's decision gives them, because benches put them past its admission.

use anyhow::{Context as _, ensure};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use stowplan_core::admission::{Decision, Review, answer, decide};
use stowplan_core::systems;
use stowplan_core::systems::coschedule::kinds::pipeline_run::claim_name;
use stowplan_core::systems::plan::{Plan, Write};
use stowplan_core::systems::policy::Policy;
use stowplan_core::systems::{Object, View};
use stowplan_core::view::Scope;

use super::answers;

/// The namespaces of runs, of jobs and of all other pods.
pub(crate) const NAMESPACES: [&str; 3] = [RUNS, JOBS, OTHERS];
const RUNS: &str = "ci";
const JOBS: &str = "streams-apps";
const OTHERS: &str = "services";

/// The class of all claims: its volumes are made where their first pod is.
pub(crate) const CLASS: &str = "fast-wait";
const ZONE: &str = "topology.kubernetes.io/zone";
const ZONES: [&str; 3] = ["zone-0", "zone-1", "zone-2"];

/// The tasks of a run, which may all begin at once: each has a TaskRun and a pod.
pub(crate) const TASKS: [&str; 5] = ["unit", "integration", "lint", "package", "scan"];
/// The workspaces of a run, each a claim. All tasks use both.
const WORKSPACES: [&str; 2] = ["source", "cache"];
/// The claim that all runs use where they use one.
const SHARED: &str = "shared";

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
        let Self { nodes, pods, runs, jobs } = self;
        let [nodes, pods, runs, jobs] = [nodes, pods, runs, jobs].map(|count| count / divisor);
        Self { nodes, pods, runs, jobs }
    }

    /// How many items there are: runs, jobs, and pods of neither.
    pub(crate) fn items(self) -> usize {
        let pool_pods = self.jobs.div_ceil(WITH_POOL);
        let of_items = self.runs * TASKS.len() + self.jobs * ELEMENTS - pool_pods;
        self.runs + self.jobs + self.pods.saturating_sub(of_items)
    }
}

/// How far the runs of a cluster are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    /// The members of each run are on one node.
    Steady,
    /// No run has been seen before: neither its claims nor its members have a node.
    New,
    /// The members of each run wait, because every node is full.
    Full,
    /// All runs use one claim, so that all members are on one node.
    OneClaim,
}

/// A document as the View keeps it.
pub(crate) fn read(document: &Value, scope: Scope) -> anyhow::Result<Object> {
    let read = Object::from_document(document.clone(), scope);
    read.map_err(anyhow::Error::msg)?.with_context(|| format!("no View holds {document}"))
}

/// A cluster as the controller sees it, with its policy and the time.
pub(crate) struct Scene {
    pub(crate) view: View,
    pub(crate) policy: Policy,
    pub(crate) now: Timestamp,
}

impl Scene {
    /// An empty cluster under the default policy.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let now = "2026-01-01T00:00:00Z".parse()?;
        Ok(Self { view: View::default(), policy: Policy::default(), now })
    }

    /// Adds a document as the controller keeps it.
    pub(crate) fn show(&mut self, document: &Value) -> anyhow::Result<()> {
        self.view.apply(read(document, Scope::Controller)?);
        Ok(())
    }

    /// The plan of all systems, as the controller makes it.
    pub(crate) fn plan(&self) -> Plan {
        systems::plan(&self.view, &self.policy, self.now)
    }
}

/// A cluster in use.
pub(crate) struct World {
    state: State,
    extent: Extent,
    pub(crate) scene: Scene,
    objects: u64,
}

impl World {
    /// With its nodes and namespaces.
    pub(crate) fn new(state: State, extent: Extent) -> anyhow::Result<Self> {
        let mut policy = Policy::default();
        policy.coschedule.placeholder.image = "stowplan:1".to_owned();
        // The API server has whole seconds.
        let now = Timestamp::from_second(Timestamp::now().as_second())?;
        let scene = Scene { view: View::default(), policy, now };
        let mut world = Self { state, extent, scene, objects: 0 };
        for namespace in NAMESPACES {
            world.scene.show(&json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
            }))?;
        }
        world.scene.show(&class())?;
        if state == State::OneClaim {
            for document in world.claim(SHARED, 0, None) {
                world.scene.show(&document)?;
            }
        }
        for index in 0..extent.nodes {
            let name = node_name(index);
            let mut node = node(&name, ZONE, zone(index));
            json_patch::merge(&mut node["metadata"], &world.metadata("", &name));
            node["status"]["allocatable"] = json!({"cpu": "16", "memory": "64Gi", "pods": "110"});
            world.scene.show(&node)?;
            if state == State::Full {
                let metadata = world.metadata(OTHERS, &format!("database-{index}"));
                // What is left is enough for a placeholder, and for no task.
                let pod = world.bind(pod(&metadata, "15800m"), index);
                world.scene.show(&pod)?;
            }
        }
        Ok(world)
    }

    fn metadata(&mut self, namespace: &str, name: &str) -> Value {
        self.objects += 1;
        json!({
            "name": name, "namespace": namespace, "resourceVersion": self.objects.to_string(),
            "uid": format!("{:08x}-0000-4000-8000-{:012x}", self.objects >> 32, self.objects),
            "creationTimestamp": self.scene.now.to_string(), "generation": 1,
        })
    }

    /// The node of a run; jobs and other pods are spread over all nodes.
    fn seat(&self, number: usize) -> usize {
        if self.state == State::OneClaim { 0 } else { number % self.extent.nodes }
    }

    /// Adds the item of this number: the runs come first, then the jobs, then the other pods. Returns
    /// its documents.
    pub(crate) fn add(&mut self, number: usize) -> anyhow::Result<Vec<Value>> {
        match number.checked_sub(self.extent.runs) {
            None => self.run(number),
            Some(job) if job < self.extent.jobs => self.job(job),
            Some(other) => self.other(other - self.extent.jobs),
        }
    }

    /// A run: its claims with their volumes, its TaskRuns, and their pods.
    fn run(&mut self, index: usize) -> anyhow::Result<Vec<Value>> {
        let name = format!("build-of-application-{index}");
        let seat = self.seat(index);
        let metadata = self.metadata(RUNS, &name);
        let run_uid = metadata["uid"].as_str().context("a UID")?.to_owned();
        let owner = owner("PipelineRun", &metadata);
        let (mut documents, mut claims, mut workspaces) = (Vec::new(), Vec::new(), Vec::new());
        if self.state == State::OneClaim {
            let claim = json!({"claimName": SHARED});
            workspaces.push(json!({"name": WORKSPACES[0], "persistentVolumeClaim": claim}));
            claims.push(SHARED.to_owned());
        } else {
            for workspace in WORKSPACES {
                let template = json!({"spec": claim_spec()});
                workspaces.push(json!({"name": workspace, "volumeClaimTemplate": template}));
                let claim = claim_name(None, workspace, &run_uid);
                documents.extend(self.claim(&claim, seat, Some(&owner)));
                claims.push(claim);
            }
        }
        let used = workspaces.iter().map(|it| json!({"name": it["name"], "workspace": it["name"]}));
        let used: Vec<Value> = used.collect();
        let step = json!({"name": "work", "image": "example.com/builder", "script": "make"});
        let task_spec = json!({"steps": [step]});
        let task = |task: &str| json!({"name": task, "workspaces": used, "taskSpec": task_spec});
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
                "spec": {"taskSpec": task_spec},
            }));
        }
        for document in &documents {
            self.scene.show(document)?;
        }
        for pod in pods {
            documents.push(self.admit(pod, seat)?);
        }
        Ok(documents)
    }

    /// A claim and its volume, which the nodes of one zone can mount. Claims of new runs wait for
    /// their first pod.
    fn claim(&mut self, name: &str, seat: usize, owner: Option<&Value>) -> Vec<Value> {
        let volume_name = format!("volume-of-{name}");
        let mut metadata = self.metadata(RUNS, name);
        metadata["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
        metadata["ownerReferences"] = owner.into_iter().cloned().collect();
        let mut claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
            "spec": claim_spec(), "status": {"phase": "Pending"},
        });
        if self.state == State::New {
            return vec![claim];
        }
        claim["spec"]["volumeName"] = json!(volume_name);
        claim["status"] = json!({
            "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        });
        claim["metadata"]["annotations"] = json!({
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
        vec![volume, claim]
    }

    /// The pod of a TaskRun as Tekton creates it. Its steps end in a day.
    fn member(&mut self, task_run: &Value, claims: &[String]) -> Value {
        let name = task_run["name"].as_str().unwrap_or_default();
        let mut metadata = self.metadata(RUNS, &format!("{name}-pod"));
        metadata["labels"] = task_run["labels"].clone();
        metadata["annotations"] = json!({testbed::tekton::DURATION: "24h"});
        metadata["ownerReferences"] = json!([owner("TaskRun", task_run)]);
        let volume = |(index, claim)| json!({"name": format!("ws-{index}"), "persistentVolumeClaim": {"claimName": claim}});
        let mut pod = pod(&metadata, "500m");
        pod["spec"]["volumes"] = claims.iter().enumerate().map(volume).collect();
        pod["spec"]["restartPolicy"] = json!("Never");
        pod
    }

    /// A job, and its pods, which run.
    fn job(&mut self, index: usize) -> anyhow::Result<Vec<Value>> {
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
        self.scene.show(&job)?;
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
            documents.push(self.admit(pod(&metadata, "200m"), seat)?);
        }
        Ok(documents)
    }

    /// A pod without a system.
    fn other(&mut self, index: usize) -> anyhow::Result<Vec<Value>> {
        let mut metadata = self.metadata(OTHERS, &format!("service-{index}-7c9f8d5b6-x2x4z"));
        metadata["labels"] = json!({"app": format!("service-{}", index / 10)});
        let pod = self.bind(pod(&metadata, "100m"), self.seat(index));
        self.scene.show(&pod)?;
        Ok(vec![pod])
    }

    /// Gives a pod what stowplan's webhook gives it, and binds it to a node unless pods wait.
    fn admit(&mut self, mut pod: Value, seat: usize) -> anyhow::Result<Value> {
        let review = serde_json::to_vec(&answers::review(&pod))?;
        let review = Review::parse(&review)?;
        let decision = decide(&review, &self.scene.view, &self.scene.policy)?.at_once();
        ensure!(!matches!(decision, Decision::Refuse(_)), "{pod}: {decision:?}");
        if let Some(patch) = answers::patch_of(&answer::write(&review, &decision))? {
            json_patch::patch(&mut pod, &serde_json::from_slice::<json_patch::Patch>(&patch)?)?;
        }
        if matches!(self.state, State::Steady | State::OneClaim) {
            pod = self.bind(pod, seat);
        } else {
            pod["status"] = json!({"phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 node(s) didn't match pod affinity rules.",
                "lastTransitionTime": self.scene.now.to_string(),
            }]});
        }
        self.scene.show(&pod)?;
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
        pod["status"] = json!({
            "phase": "Running", "conditions": conditions, "startTime": time,
            "podIP": "10.128.0.1", "podIPs": [{"ip": "10.128.0.1"}],
            "containerStatuses": [container],
        });
        pod
    }

    /// Creates the placeholders that are planned, each with its pod on the node of its run, as the
    /// StatefulSet controller and the scheduler do, until each run has one.
    pub(crate) fn place(&mut self) -> anyhow::Result<()> {
        let mut placed = 0;
        // Of the runs that use one claim the first comes first, and all others after it.
        while placed < self.extent.runs {
            let before = placed;
            for action in self.scene.plan().actions {
                if let ("StatefulSet", Write::Create(set)) =
                    (action.target.resource.kind, action.write)
                {
                    self.placeholder(&action.target.name, set)?;
                    placed += 1;
                }
            }
            ensure!(placed > before, "{placed} placeholders for {} runs", self.extent.runs);
        }
        Ok(())
    }

    fn placeholder(&mut self, name: &str, mut set: Value) -> anyhow::Result<()> {
        let owner = set["metadata"]["ownerReferences"][0]["name"].as_str();
        let run = owner.and_then(|name| name.rsplit_once('-')?.1.parse().ok());
        let seat = self.seat(run.context("the number of a run")?);
        json_patch::merge(&mut set["metadata"], &self.metadata(RUNS, name));
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod"});
        // With the plan that the pod was made by: one without it is outdated.
        json_patch::merge(&mut pod, &set["spec"]["template"]);
        json_patch::merge(&mut pod["metadata"], &self.metadata(RUNS, &format!("{name}-0")));
        let pod = self.bind(pod, seat);
        self.scene.show(&pod)?;
        self.scene.show(&set)
    }
}

/// The specification of a claim.
fn claim_spec() -> Value {
    json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
        "resources": {"requests": {"storage": "1Gi"}},
    })
}

/// The storage class of the claims.
pub(crate) fn class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
        "provisioner": "example.com/disk", "volumeBindingMode": "WaitForFirstConsumer",
    })
}

/// A node as a kubelet registers it, with one more label.
pub(crate) fn node(name: &str, key: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux", key: value,
            },
        },
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "Hostname", "address": name}],
        },
    })
}

/// A pod as the API server has defaulted it.
fn pod(metadata: &Value, cpu: &str) -> Value {
    // Without these it would be evicted as soon as its node is NotReady.
    let tolerations = ["not-ready", "unreachable"].map(|taint| {
        json!({
            "key": format!("node.kubernetes.io/{taint}"), "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": 300,
        })
    });
    json!({
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
    })
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

pub(crate) fn zone(node: usize) -> &'static str {
    ZONES[node % ZONES.len()]
}
