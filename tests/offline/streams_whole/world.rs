//! A cluster of documents in memory, in which the controller's plans are carried out and the webhook
//! decides on pods and jobs as on a real one.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use stowplan_core::admission::validate::validate;
use stowplan_core::admission::{Decision, Review};
use stowplan_core::simulation::{CONTROLLER, CONTROLLER_ALONE, Event, Id, Simulation};
use stowplan_core::systems::policy::Policy;
use stowplan_core::view::Scope;

use crate::pods::{decide_pod, patch_of, patched, review_of};
use crate::streams_cases::{
    OTHERS_TAGS, element_name, job_spec, node_labels, node_name, pool_name,
};
use crate::streams_oracle::{Form, Model, Others, Placement};

const VERSION: &str = "stowplan.dev/v1alpha1";
/// The job's namespace and its name, and the namespace of others.
const NAMESPACE: &str = "default";
const JOB: &str = "j";
const OTHERS: &str = "others";

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) simulation: Simulation,
    webhook: usize,
    pods: u32,
}

impl World {
    /// The cluster of a model, with the pods and pools of others.
    pub(crate) fn new(model: &Model) -> Self {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut simulation = Simulation::new(Policy::default(), now);
        let webhook = simulation.add_reader(Scope::Admission);
        let mut world = Self { simulation, webhook, pods: 0 };
        for (number, node) in model.nodes.iter().enumerate() {
            let name = node_name(number);
            let mut labels = node_labels(node);
            labels["kubernetes.io/hostname"] = json!(name);
            world.create(json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": labels},
                "spec": {},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "addresses": [{"type": "Hostname", "address": name}],
                },
            }));
        }
        let mut is_shared = false;
        for (number, node) in model.nodes.iter().enumerate() {
            let name = format!("of-{}", node_name(number));
            match node.others {
                Others::Nobody => {}
                Others::Pod => world.create(json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": name, "namespace": OTHERS,
                        "labels": {"app": "streams", "streams.ibm.com/job": "other"}},
                    "spec": {"nodeName": node_name(number), "containers": [{"name": "c", "image": "i"}]},
                    "status": {"phase": "Running"},
                })),
                // The pools choose in the order of names, each another node of these tags.
                Others::SharedPool if is_shared => {}
                Others::SharedPool => {
                    is_shared = true;
                    let size = model.nodes.iter().filter(|of| of.others == Others::SharedPool).count();
                    world.create_pool("shared", &json!({"size": size, "tags": OTHERS_TAGS}));
                }
                Others::ExclusivePool => {
                    let hosts = [node_name(number)];
                    world.create_pool(&name, &json!({"hosts": hosts, "exclusivity": "Exclusive"}));
                }
            }
        }
        world.settle();
        world
    }

    /// Carries out the plans of the controller until there is nothing left to do.
    pub(crate) fn settle(&mut self) {
        let controller = |_: &Simulation, events: &mut dyn Iterator<Item = Event>| events.next();
        self.simulation.run(CONTROLLER_ALONE, Timestamp::MAX, controller).unwrap();
    }

    /// Labels a node.
    pub(crate) fn label_node(&mut self, node: usize, key: &str, value: &str) {
        let id = Id::new("Node", "", &node_name(node));
        let mut node = self.simulation.store.edit(&id).expect("there is such a node");
        node["metadata"]["labels"][key] = json!(value);
    }

    fn create(&mut self, object: Value) {
        self.simulation.store.create(object).unwrap();
    }

    /// Creates a pool of others.
    pub(crate) fn create_pool(&mut self, name: &str, spec: &Value) {
        let metadata = json!({"name": name, "namespace": OTHERS});
        self.create(
            json!({"apiVersion": VERSION, "kind": "HostPool", "metadata": metadata, "spec": spec}),
        );
    }

    /// The pods of the job.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Value> {
        let pods = self.simulation.store.all("Pod");
        pods.filter(|pod| pod["metadata"]["namespace"] == NAMESPACE)
    }

    /// Validates the job of a model as `/validate` does. An error has the texts of the refusal.
    pub(crate) fn validate(&mut self, model: &Model) -> Result<(), Vec<String>> {
        let mut object = job_of(model);
        object["metadata"]["uid"] = json!("u");
        let mut review = review_of(NAMESPACE, &object);
        review["request"]["resource"] =
            json!({"group": "stowplan.dev", "version": "v1alpha1", "resource": "streamsjobs"});
        let bytes = review.to_string();
        let review = Review::parse(bytes.as_bytes()).unwrap();
        self.simulation.catch_up(self.webhook);
        let view = self.simulation.view_of(self.webhook);
        match validate(&review, view, &self.simulation.policy).unwrap() {
            Decision::Refuse(refusal) => {
                let texts = refusal.findings.iter();
                Err(texts
                    .map(|of| format!("{}: {}; {}", of.reason, of.problem, of.remedy))
                    .collect())
            }
            Decision::Admit(admission) => {
                assert_eq!(
                    admission.warnings.len(),
                    unused_pools(&object),
                    "{:?}",
                    admission.warnings
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn create_job(&mut self, model: &Model) {
        self.create(job_of(model));
    }

    pub(crate) fn job(&self) -> &Value {
        self.simulation.store.all("StreamsJob").next().expect("there is a job")
    }

    /// Has the controller make a plan. Returns the number of its actions.
    pub(crate) fn plan(&mut self) -> usize {
        self.simulation.catch_up(CONTROLLER);
        self.simulation.apply(Event::Plan);
        self.simulation.actions().len()
    }

    /// Creates the pod of an element as its workload does.
    ///
    /// # Errors
    /// If the webhook refuses it.
    pub(crate) fn create_pod(&mut self, element: usize) -> Result<String, String> {
        self.pods += 1;
        let name = format!("{}-{}", element_name(element), self.pods);
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
        self.simulation.catch_up(self.webhook);
        let view = self.simulation.view_of(self.webhook);
        let decision = decide_pod(NAMESPACE, &pod, view, &self.simulation.policy);
        let pod = patched(&pod, &patch_of(&decision.unwrap())?)?;
        self.create(pod);
        Ok(name)
    }

    /// The scheduler binds a pod, or finds no node for it, and its kubelet starts it.
    pub(crate) fn schedule(&mut self, pod: &str, node: Option<&str>) {
        let id = Id::new("Pod", NAMESPACE, pod);
        match node {
            Some(node) => {
                self.simulation.apply(Event::Bind(id.clone(), node.to_owned()));
                self.simulation.apply(Event::Start(id));
            }
            None => self.simulation.apply(Event::Reject(id)),
        }
    }

    /// The nodes of the pods and pools of the job. A member counts once it is recorded: it is kept while its
    /// node exists.
    pub(crate) fn placement(&self, model: &Model) -> Placement {
        let store = &self.simulation.store;
        let nodes: BTreeMap<String, usize> =
            (0..model.nodes.len()).map(|node| (node_name(node), node)).collect();
        let mut placement = Placement::empty(model);
        for pod in self.pods() {
            let Some(node) = pod["spec"]["nodeName"].as_str() else { continue };
            placement.elements[element_of(pod)] = Some(nodes[node]);
        }
        let is_sized = |pool: &usize| matches!(model.pools[*pool].form, Form::Sized(..));
        for pool in (0..model.pools.len()).filter(is_sized) {
            let prefix = format!("j-{}-", pool_name(pool).to_lowercase());
            let found = store.all("HostPool").filter(|found| {
                let name = found["metadata"]["name"].as_str().unwrap();
                found["metadata"]["namespace"] == NAMESPACE && name.starts_with(&prefix)
            });
            let members = found.filter_map(|found| found["status"]["members"].as_array()).flatten();
            for member in members.filter(|member| member["state"] != "Vacant") {
                let Some(node) = member["node"].as_str() else { continue };
                if store.get(&Id::new("Node", "", node)).is_some() {
                    let index = usize::try_from(member["index"].as_u64().unwrap()).unwrap();
                    placement.pools[pool][index] = Some(nodes[node]);
                }
            }
        }
        placement
    }
}

/// The job of a model.
fn job_of(model: &Model) -> Value {
    let metadata = json!({"name": JOB, "namespace": NAMESPACE});
    let spec = job_spec(model, node_name);
    json!({"apiVersion": VERSION, "kind": "StreamsJob", "metadata": metadata, "spec": spec})
}

/// Counts the exclusive pools with hosts of a job that no operator uses.
fn unused_pools(job: &Value) -> usize {
    let list = |of: &Value, field: &str| of[field].as_array().cloned().unwrap_or_default();
    let elements = list(&job["spec"], "processingElements");
    let operators: Vec<Value> = elements.iter().flat_map(|of| list(of, "operators")).collect();
    let is_used = |pool: &Value| operators.iter().any(|of| of["host"]["pool"] == pool["name"]);
    let pools = list(&job["spec"], "pools");
    pools.iter().filter(|pool| pool["exclusivity"] == "Exclusive" && !is_used(pool)).count()
}

/// The element of a pod.
pub(crate) fn element_of(pod: &Value) -> usize {
    let name = pod["metadata"]["labels"]["streams.ibm.com/pe"].as_str().unwrap();
    name.strip_prefix('e').unwrap().parse().unwrap()
}
