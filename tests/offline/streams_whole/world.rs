//! A cluster of documents in memory, in which the controller's plans are carried out and the webhook
//! decides on pods and jobs as on a real one.

use std::collections::BTreeMap;

use json_patch::PatchOperation;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stowplan::testing::admission::validate::validate;
use stowplan::testing::admission::{Decision, Review};
use stowplan::testing::systems::plan::{Action, Confirmation, Plan, Write};
use stowplan::testing::systems::policy::Policy;
use stowplan::testing::systems::streams::api::host_pool::HostPool;
use stowplan::testing::systems::streams::api::streams_job::StreamsJob;
use stowplan::testing::systems::{self};
use stowplan::testing::view::{Scope, View};

use crate::pods::{decide_pod, patch_of, patched};
use crate::streams_cases::{
    OTHERS_TAGS, element_name, job_spec, node_labels, node_name, pool_name,
};
use crate::streams_oracle::{Model, Others, Placement};

const VERSION: &str = "stowplan.dev/v1alpha1";
/// The job's namespace and its name, and the namespace of others.
const NAMESPACE: &str = "default";
const JOB: &str = "j";
const OTHERS: &str = "others";

/// The objects of each resource, by namespace and name.
type Objects = BTreeMap<(String, String), Value>;

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) policy: Policy,
    pub(crate) now: Timestamp,
    pub(crate) objects: BTreeMap<&'static str, Objects>,
    counter: u64,
}

impl World {
    /// The cluster of a model, with the pods and pools of others.
    pub(crate) fn new(model: &Model) -> Self {
        let mut world = Self {
            policy: Policy::default(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            objects: BTreeMap::new(),
            counter: 0,
        };
        for (number, node) in model.nodes.iter().enumerate() {
            let name = node_name(number);
            let mut labels = node_labels(node);
            labels["kubernetes.io/hostname"] = json!(name);
            world.create(
                "nodes",
                "",
                &name,
                json!({
                    "apiVersion": "v1", "kind": "Node",
                    "metadata": {"labels": labels},
                    "spec": {},
                    "status": {
                        "conditions": [{"type": "Ready", "status": "True"}],
                        "addresses": [{"type": "Hostname", "address": name}],
                    },
                }),
            );
        }
        for (number, node) in model.nodes.iter().enumerate() {
            let pool =
                |spec: Value| json!({"apiVersion": VERSION, "kind": "HostPool", "spec": spec});
            let name = format!("of-{}", node_name(number));
            match node.others {
                Others::Nobody => {}
                Others::Pod => world.create("pods", OTHERS, &name, json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {"labels": {"app": "streams", "streams.ibm.com/job": "other"}},
                    "spec": {"nodeName": node_name(number), "containers": [{"name": "c", "image": "i"}]},
                    "status": {"phase": "Running"},
                })),
                Others::SharedPool => {
                    // The pools choose in the order of names, each another node of these tags.
                    let size = model.nodes.iter().filter(|of| of.others == Others::SharedPool).count();
                    let spec = json!({"size": size, "tags": OTHERS_TAGS});
                    world.create("hostpools", OTHERS, "shared", pool(spec));
                }
                Others::ExclusivePool => {
                    let spec = json!({"hosts": [node_name(number)], "exclusivity": "Exclusive"});
                    world.create("hostpools", OTHERS, &name, pool(spec));
                }
            }
        }
        world.settle();
        world
    }

    /// Creates an object; one with this name is replaced.
    fn create(&mut self, plural: &'static str, namespace: &str, name: &str, mut object: Value) {
        self.counter += 1;
        let created = self.now + SignedDuration::from_millis(self.counter.cast_signed());
        let metadata = &mut object["metadata"];
        metadata["name"] = json!(name);
        metadata["uid"] = json!(format!("uid-{}", self.counter));
        metadata["resourceVersion"] = json!(self.counter.to_string());
        metadata["generation"] = json!(1);
        metadata["creationTimestamp"] = json!(in_seconds(created));
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        let key = (namespace.to_owned(), name.to_owned());
        self.objects.entry(plural).or_default().insert(key, object);
    }

    pub(crate) fn all(&self, plural: &str) -> impl Iterator<Item = &Value> {
        self.objects.get(plural).into_iter().flat_map(BTreeMap::values)
    }

    pub(crate) fn node(&self, name: &str) -> Option<&Value> {
        self.objects.get("nodes")?.get(&(String::new(), name.to_owned()))
    }

    /// The pods of the job.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Value> {
        self.all("pods").filter(|pod| pod["metadata"]["namespace"] == NAMESPACE)
    }

    pub(crate) fn pod_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.objects.get_mut("pods")?.get_mut(&(NAMESPACE.to_owned(), name.to_owned()))
    }

    /// A View with what webhook or controller keep.
    fn view(&self, scope: Scope) -> View {
        let mut view = View::default();
        let mut add = |object| view.apply(object);
        for node in self.all("nodes") {
            let node: core::Node = serde_json::from_value(node.clone()).unwrap();
            systems::project(&node, scope).into_iter().for_each(&mut add);
        }
        for pool in self.all("hostpools") {
            let pool: HostPool = serde_json::from_value(pool.clone()).unwrap();
            systems::project(&pool, scope).into_iter().for_each(&mut add);
        }
        for job in self.all("streamsjobs") {
            let job: StreamsJob = serde_json::from_value(job.clone()).unwrap();
            systems::project(&job, scope).into_iter().for_each(&mut add);
        }
        for pod in self.all("pods") {
            let pod: core::Pod = serde_json::from_value(pod.clone()).unwrap();
            systems::project(&pod, scope).into_iter().for_each(&mut add);
        }
        view
    }

    pub(crate) fn plan(&self) -> Plan {
        systems::plan(&self.view(Scope::Controller), &self.policy, self.now)
    }

    /// Plans and acts until there is nothing to do, now and later.
    fn settle(&mut self) {
        for _ in 0..100 {
            let plan = self.plan();
            match (plan.actions.is_empty(), plan.recheck_at) {
                (true, None) => return,
                (true, Some(at)) => self.now = at,
                (false, _) => plan.actions.into_iter().for_each(|action| self.act(action)),
            }
        }
        panic!("the plans do not end: {:#?}", self.plan());
    }

    /// Carries out one action; one whose precondition does not hold any more is left out.
    pub(crate) fn act(&mut self, action: Action) {
        let Action { target, write, confirmation, .. } = action;
        let plural = target.resource.plural;
        let key = (target.namespace.to_string(), target.name.to_string());
        self.counter += 1;
        let version = self.counter.to_string();
        if let Write::Create(object) = write {
            if !self.objects.get(plural).is_some_and(|of| of.contains_key(&key)) {
                self.create(plural, &key.0, &key.1, object);
            }
            return;
        }
        let listed: Vec<Value> = match &confirmation {
            Some(Confirmation::List(of)) => self.all(of.resource.plural).cloned().collect(),
            _ => Vec::new(),
        };
        let Some(objects) = self.objects.get_mut(plural) else { return };
        let Some(object) = objects.get_mut(&key) else { return };
        if object["metadata"]["uid"] != *target.uid {
            return;
        }
        match write {
            Write::Status { resource_version, status } => {
                if object["metadata"]["resourceVersion"] == *resource_version {
                    object["status"] = status;
                    object["metadata"]["resourceVersion"] = json!(version);
                }
            }
            Write::Patch(operations) => {
                let operations = match &confirmation {
                    Some(Confirmation::List(of)) => (of.reduce)(&listed, &target, &operations),
                    _ => Some(operations),
                };
                if operations.is_some_and(|operations| patch(object, &operations)) {
                    object["metadata"]["resourceVersion"] = json!(version);
                }
            }
            Write::Delete { .. } => _ = objects.remove(&key),
            Write::None | Write::Create(_) => {}
        }
    }

    /// What `/validate` answers to the job of a model: the texts of a refusal.
    pub(crate) fn validate(&self, model: &Model) -> Result<(), Vec<String>> {
        let object = json!({
            "apiVersion": VERSION, "kind": "StreamsJob",
            "metadata": {"name": JOB, "namespace": NAMESPACE, "uid": "u"}, "spec": job_spec(model, node_name),
        });
        let review = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "r",
                "resource": {"group": "stowplan.dev", "version": "v1alpha1", "resource": "streamsjobs"},
                "namespace": NAMESPACE, "operation": "CREATE", "object": object,
            },
        });
        let bytes = review.to_string();
        let review = Review::parse(bytes.as_bytes()).unwrap();
        match validate(&review, &self.view(Scope::Admission), &self.policy).unwrap() {
            Decision::Refuse(refusal) => {
                let texts = refusal.findings.iter();
                Err(texts
                    .map(|of| format!("{}: {}; {}", of.reason, of.problem, of.remedy))
                    .collect())
            }
            Decision::Admit(admission) => {
                assert!(admission.warnings.is_empty(), "{:?}", admission.warnings);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn create_job(&mut self, model: &Model) {
        let spec = job_spec(model, node_name);
        let job = json!({"apiVersion": VERSION, "kind": "StreamsJob", "spec": spec});
        self.create("streamsjobs", NAMESPACE, JOB, job);
    }

    pub(crate) fn job(&self) -> &Value {
        self.all("streamsjobs").next().expect("there is a job")
    }

    /// Creates the pod of an element as its workload does.
    ///
    /// # Errors
    /// If the webhook refuses it.
    pub(crate) fn create_pod(&mut self, element: usize) -> Result<String, String> {
        let name = format!("{}-{}", element_name(element), self.counter);
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": element_name(element), "uid": "r",
            "controller": true,
        });
        let labels = json!({
            "app": "streams", "streams.ibm.com/job": JOB, "streams.ibm.com/pe": element_name(element),
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        let decision = decide_pod(NAMESPACE, &pod, &self.view(Scope::Admission), &self.policy);
        let pod = patched(&pod, &patch_of(&decision.unwrap())?)?;
        self.create("pods", NAMESPACE, &name, pod);
        Ok(name)
    }

    /// The pods of a node are gone with it.
    pub(crate) fn lose_node(&mut self, name: &str) {
        self.objects.get_mut("nodes").unwrap().remove(&(String::new(), name.to_owned()));
        let pods = self.objects.entry("pods").or_default();
        pods.retain(|_, pod| pod["spec"]["nodeName"] != name);
    }

    /// The nodes of the pods and pools of the job. A member counts once it is recorded: it is kept while its
    /// node exists.
    pub(crate) fn placement(&self, model: &Model) -> Placement {
        let nodes: BTreeMap<String, usize> =
            (0..model.nodes.len()).map(|node| (node_name(node), node)).collect();
        let mut placement = Placement::empty(model);
        for pod in self.pods() {
            let Some(node) = pod["spec"]["nodeName"].as_str() else { continue };
            placement.elements[element_of(pod)] = Some(nodes[node]);
        }
        for (pool, members) in placement.pools.iter_mut().enumerate().filter(|(pool, _)| {
            matches!(model.pools[*pool].form, crate::streams_oracle::Form::Sized(..))
        }) {
            let prefix = format!("j-{}-", pool_name(pool).to_lowercase());
            let found = self.all("hostpools").filter(|found| {
                found["metadata"]["namespace"] == NAMESPACE
                    && found["metadata"]["name"]
                        .as_str()
                        .is_some_and(|name| name.starts_with(&prefix))
            });
            for member in
                found.flat_map(|found| found["status"]["members"].as_array().into_iter().flatten())
            {
                let (Some(index), Some(node)) = (member["index"].as_u64(), member["node"].as_str())
                else {
                    continue;
                };
                if member["state"] != "Vacant" && self.node(node).is_some() {
                    members[usize::try_from(index).unwrap()] = Some(nodes[node]);
                }
            }
        }
        placement
    }
}

/// The element of a pod.
pub(crate) fn element_of(pod: &Value) -> usize {
    let name = pod["metadata"]["labels"]["streams.ibm.com/pe"].as_str().unwrap();
    name.strip_prefix('e').unwrap().parse().unwrap()
}

/// Applies operations as the API server does, where a missing value passes a test for null. Returns whether
/// they apply.
fn patch(document: &mut Value, operations: &[PatchOperation]) -> bool {
    let mut patched = document.clone();
    for operation in operations {
        if let PatchOperation::Test(test) = operation
            && test.value.is_null()
            && test.path.resolve(&patched).is_err()
        {
            continue;
        }
        if json_patch::patch(&mut patched, std::slice::from_ref(operation)).is_err() {
            return false;
        }
    }
    // Empty lists are absent when they are read again.
    if let Some(spec) = patched["spec"].as_object_mut() {
        spec.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
    }
    *document = patched;
    true
}

pub(crate) fn in_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap().to_string()
}
