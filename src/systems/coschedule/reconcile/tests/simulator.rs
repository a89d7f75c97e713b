//! A simulated cluster of documents: the API server that carries out plans, the StatefulSet
//! controller, a scheduler, and the part of Tekton that creates pods.

pub(super) mod scheduler;

use std::collections::{BTreeMap, BTreeSet};

use json_patch::PatchOperation;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::kubernetes::REQUIRED;
use crate::placement::toleration::tolerates;
use crate::systems;
use crate::systems::coschedule::keys;
use crate::systems::coschedule::kinds::pipeline_run::claim_name;
use crate::systems::coschedule::pod_plan::PodPlan;
use crate::systems::plan::{Action, Event, Plan, Write};
use crate::systems::policy::Policy;
use crate::systems::wake::WAKE;
use crate::view::resource::Resource;
use crate::view::resources::Resources;
use crate::view::{Scope, View, selector};

use scheduler::is_member;

pub(super) const NAMESPACE: &str = "ns";

/// How much of a plan is carried out before the next is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    Whole,
    First,
    Last,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) policy: Policy,
    pub(super) pace: Pace,
    /// Whether a quota lets the StatefulSet controller make pods.
    pub(super) makes_pods: bool,
    /// The annotation of the namespace.
    pub(super) namespace_mode: Option<String>,
    counter: u64,
    pub(super) nodes: BTreeMap<String, Value>,
    pub(super) runs: BTreeMap<String, Value>,
    pub(super) task_runs: BTreeMap<String, Value>,
    pub(super) claims: BTreeMap<String, Value>,
    pub(super) classes: Vec<Value>,
    pub(super) volumes: BTreeMap<String, Value>,
    pub(super) sets: BTreeMap<String, Value>,
    pub(super) pods: BTreeMap<String, Value>,
    /// About whom, and what: each once.
    pub(super) events: Vec<((Resource, String), Event)>,
    /// The members that are placed by node, as Tekton makes them.
    by_node: BTreeMap<String, Value>,
    /// Those of them that were deleted: Tekton makes them again.
    deleted: BTreeSet<String>,
    /// `verb kind name`.
    pub(super) writes: Vec<String>,
}

impl World {
    /// These nodes, each of one core, 8 GiB and ten pods.
    pub(super) fn new(nodes: &[&str]) -> Self {
        let mut policy = Policy::default();
        policy.coschedule.placeholder.image = "stowplan:1".to_owned();
        let mut world = Self {
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            policy,
            pace: Pace::Whole,
            makes_pods: true,
            namespace_mode: None,
            counter: 0,
            nodes: BTreeMap::new(),
            runs: BTreeMap::new(),
            task_runs: BTreeMap::new(),
            claims: BTreeMap::new(),
            classes: Vec::new(),
            volumes: BTreeMap::new(),
            sets: BTreeMap::new(),
            pods: BTreeMap::new(),
            events: Vec::new(),
            by_node: BTreeMap::new(),
            deleted: BTreeSet::new(),
            writes: Vec::new(),
        };
        nodes.iter().for_each(|name| world.node(name));
        world
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn metadata(&mut self, name: &str) -> Value {
        let number = self.next();
        json!({
            "name": name, "namespace": NAMESPACE, "uid": format!("uid-{number}"),
            "resourceVersion": number.to_string(), "creationTimestamp": self.now.to_string(),
        })
    }

    pub(super) fn node(&mut self, name: &str) {
        let mut metadata = self.metadata(name);
        metadata["labels"] = json!({"kubernetes.io/hostname": name});
        let node = json!({
            "metadata": metadata,
            "spec": {},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": {"cpu": "1", "memory": "8Gi", "pods": "10"},
            },
        });
        self.nodes.insert(name.to_owned(), node);
    }

    /// Changes an object (RFC 7396).
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the change is written where it is asked for"
    )]
    pub(super) fn change(object: &mut Value, with: Value) {
        json_patch::merge(object, &with);
    }

    pub(super) fn cordon(&mut self, node: &str, cordoned: bool) {
        Self::change(
            self.nodes.get_mut(node).unwrap(),
            json!({"spec": {"unschedulable": cordoned}}),
        );
    }

    /// Says whether a node answers, with the taints that the node lifecycle controller gives one that
    /// does not.
    pub(super) fn ready(&mut self, node: &str, ready: bool) {
        let status = if ready { "True" } else { "Unknown" };
        let conditions = json!([{"type": "Ready", "status": status}]);
        let key = "node.kubernetes.io/unreachable";
        let taints =
            ["NoSchedule", "NoExecute"].map(|effect| json!({"key": key, "effect": effect}));
        let taints = if ready { Value::Null } else { json!(taints) };
        Self::change(
            self.nodes.get_mut(node).unwrap(),
            json!({"spec": {"taints": taints}, "status": {"conditions": conditions}}),
        );
    }

    /// A run with workspaces of existing claims and of claim templates, all used by one task.
    pub(super) fn run(&mut self, name: &str, claims: &[&str], templates: &[&str]) {
        let metadata = self.metadata(name);
        let uid = metadata["uid"].as_str().unwrap().to_owned();
        let mut workspaces = Vec::new();
        for claim in claims {
            workspaces.push(json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
        }
        for template in templates {
            let spec = json!({"accessModes": ["ReadWriteOnce"]});
            workspaces.push(json!({"name": template, "volumeClaimTemplate": {"spec": spec}}));
            let claim = claim_name(None, template, &uid);
            self.claim(&claim);
            let owner = json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": name, "uid": uid, "controller": true});
            self.claims.get_mut(&claim).unwrap()["metadata"]["ownerReferences"] = json!([owner]);
        }
        let used: Vec<Value> =
            workspaces.iter().map(|workspace| json!({"name": workspace["name"]})).collect();
        let run = json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": metadata,
            "spec": {
                "workspaces": workspaces,
                "pipelineSpec": {"tasks": [{"name": "task", "workspaces": used, "taskRef": {"name": "t"}}]},
            },
        });
        self.runs.insert(name.to_owned(), run);
    }

    pub(super) fn claim(&mut self, name: &str) {
        let mut metadata = self.metadata(name);
        metadata["finalizers"] = json!(["example.com/other", "kubernetes.io/pvc-protection"]);
        let claim = json!({"metadata": metadata, "spec": {"accessModes": ["ReadWriteOnce"]}});
        self.claims.insert(name.to_owned(), claim);
    }

    /// Binds a claim to a volume that only `node` can mount.
    pub(super) fn pin(&mut self, claim: &str, node: &str) {
        let volume = format!("volume-of-{claim}");
        let terms = json!([{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
        ]}]);
        let document = json!({
            "metadata": {"name": volume},
            "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
        });
        self.volumes.insert(volume.clone(), document);
        let claim = self.claims.get_mut(claim).unwrap();
        Self::change(claim, json!({"spec": {"volumeName": volume}, "status": {"phase": "Bound"}}));
    }

    /// The name of the placeholder of the only group of a run.
    pub(super) fn placeholder(&self, run: &str) -> String {
        let run = &self.runs[run];
        let key = run["spec"]["workspaces"][0]["name"].as_str().unwrap_or_default();
        keys::of_run(run["metadata"]["uid"].as_str().unwrap(), key)
    }

    pub(super) fn task_run(&mut self, name: &str, run: &str) -> Value {
        let mut metadata = self.metadata(name);
        let uid = &self.runs[run]["metadata"]["uid"];
        metadata["ownerReferences"] = json!([{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": run, "uid": uid, "controller": true}]);
        let owner = json!({"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "name": name, "uid": metadata["uid"], "controller": true});
        let task_run =
            json!({"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": metadata});
        self.task_runs.insert(name.to_owned(), task_run);
        owner
    }

    /// A TaskRun of a run with its pod, as it comes from the webhook: with the pod-affinity term.
    pub(super) fn member(&mut self, name: &str, run: &str, milli_cpu: u32) {
        let placeholder = self.placeholder(run);
        self.member_of(name, run, &placeholder, milli_cpu);
    }

    /// A TaskRun of a run that a quota refuses its pod.
    pub(super) fn refuse_pod(&mut self, name: &str, run: &str) {
        self.task_run(name, run);
        let conditions = json!([{"type": "Succeeded", "status": "Unknown",
            "reason": "ExceededResourceQuota", "lastTransitionTime": self.now.to_string()}]);
        let task_run = self.task_runs.get_mut(name).unwrap();
        Self::change(task_run, json!({"status": {"conditions": conditions}}));
    }

    /// The same of a group that is not the run's only one.
    pub(super) fn member_of(&mut self, name: &str, run: &str, placeholder: &str, milli_cpu: u32) {
        let owner = self.task_run(name, run);
        self.pod_of(name, placeholder, milli_cpu);
        let template = &self.runs[run]["spec"]["taskRunTemplate"]["podTemplate"];
        let pod = self.pods.get_mut(name).unwrap();
        pod["metadata"]["ownerReferences"] = json!([owner]);
        pod["spec"]["tolerations"] = template["tolerations"].clone();
    }

    /// What a run's pod template says, which its placeholder and its pods get.
    pub(super) fn template(&mut self, run: &str, template: &Value) {
        let spec = json!({"spec": {"taskRunTemplate": {"podTemplate": template}}});
        Self::change(self.runs.get_mut(run).unwrap(), spec);
    }

    /// Has Tekton's own affinity assistant place a TaskRun.
    pub(super) fn assist(&mut self, task_run: &str) {
        let annotations = json!({keys::ASSISTANT: "affinity-assistant-1"});
        let task_run = self.task_runs.get_mut(task_run).unwrap();
        Self::change(task_run, json!({"metadata": {"annotations": annotations}}));
    }

    /// The same with the gate instead of the term, and with these required node terms.
    pub(super) fn gated(&mut self, name: &str, run: &str, terms: &Value) {
        self.gated_with(name, run, terms, 100);
    }

    /// The same, and it asks for this much.
    pub(super) fn gated_with(&mut self, name: &str, run: &str, terms: &Value, milli_cpu: u32) {
        self.member(name, run, milli_cpu);
        let pod = self.pods.get_mut(name).unwrap();
        let spec = &mut pod["spec"];
        spec["affinity"] = json!({});
        if !terms.is_null() {
            spec["affinity"]["nodeAffinity"] = json!({REQUIRED: {"nodeSelectorTerms": terms}});
        }
        self.by_node.insert(name.to_owned(), pod.clone());
        pod["spec"]["schedulingGates"] =
            json!([{"name": "example.com/mine"}, {"name": keys::GATE}]);
    }

    /// Tekton, which makes a pod again by its name that was deleted before it had a node; and the
    /// webhook, which binds it to the node of its placeholder, or gates it.
    fn recreate(&mut self) {
        for name in std::mem::take(&mut self.deleted) {
            let mut pod = self.by_node[&name].clone();
            let placeholder = pod["metadata"]["labels"][keys::MEMBER].as_str().unwrap().to_owned();
            let number = self.next();
            let metadata = json!({"uid": format!("uid-{number}"), "resourceVersion": number.to_string(),
                "creationTimestamp": self.now.to_string()});
            Self::change(&mut pod["metadata"], metadata);
            let beside = self.pods.get(&format!("{placeholder}-0"));
            let plan = |metadata: &Value| {
                PodPlan::parse(metadata["annotations"][keys::PLAN].as_str().unwrap_or_default())
            };
            let template =
                self.sets.get(&placeholder).map(|set| &set["spec"]["template"]["metadata"]);
            let stays = |beside: &&Value| {
                let node = beside["spec"]["nodeName"].as_str().unwrap_or_default();
                let of_pod = plan(&beside["metadata"]);
                !template.and_then(plan).is_some_and(|of| of.is_to_leave(of_pod.as_ref(), node))
            };
            let place = beside
                .filter(|beside| beside["metadata"]["deletionTimestamp"].is_null())
                .filter(stays)
                .and_then(|beside| beside["spec"]["nodeName"].as_str());
            match place.filter(|_| pod["spec"]["affinity"]["nodeAffinity"].is_null()) {
                Some(node) => {
                    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
                    pod["spec"]["affinity"]["nodeAffinity"] =
                        json!({REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}});
                }
                None => pod["spec"]["schedulingGates"] = json!([{"name": keys::GATE}]),
            }
            self.pods.insert(name, pod);
        }
    }

    pub(super) fn native(&mut self, name: &str, group: &str) -> String {
        let placeholder = keys::of_native(NAMESPACE, group);
        self.pod_of(name, &placeholder, 100);
        let annotations = json!({keys::GROUP: group});
        self.pods.get_mut(name).unwrap()["metadata"]["annotations"] = annotations;
        placeholder
    }

    fn pod_of(&mut self, name: &str, placeholder: &str, milli_cpu: u32) {
        let mut metadata = self.metadata(name);
        metadata["labels"] = json!({keys::MEMBER: placeholder});
        let term = json!({
            "labelSelector": {"matchLabels": {
                keys::COMPONENT: keys::COMPONENT_VALUE, keys::INSTANCE: placeholder,
            }},
            "topologyKey": "kubernetes.io/hostname",
        });
        let requests = json!({"cpu": format!("{milli_cpu}m")});
        let pod = json!({
            "metadata": metadata,
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": requests}}],
                "affinity": {"podAffinity": {REQUIRED: [term]}},
            },
            "status": {"phase": "Pending"},
        });
        self.pods.insert(name.to_owned(), pod);
    }

    /// Somebody else's pod, bound to a node.
    pub(super) fn stranger(&mut self, name: &str, node: &str, milli_cpu: u32) {
        let metadata = self.metadata(name);
        let requests = json!({"cpu": format!("{milli_cpu}m")});
        let pod = json!({
            "metadata": metadata,
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": requests}}]},
            "status": {"phase": "Running"},
        });
        self.pods.insert(name.to_owned(), pod);
    }

    pub(super) fn mount(&mut self, pod: &str, claim: &str) {
        let volume = json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
        self.pods.get_mut(pod).unwrap()["spec"]["volumes"] = json!([volume]);
    }

    pub(super) fn finish(&mut self, pod: &str) {
        Self::change(self.pods.get_mut(pod).unwrap(), json!({"status": {"phase": "Succeeded"}}));
    }

    pub(super) fn end(&mut self, run: &str) {
        let conditions = json!([{"type": "Succeeded", "status": "True"}]);
        Self::change(
            self.runs.get_mut(run).unwrap(),
            json!({"status": {"conditions": conditions}}),
        );
    }

    pub(super) fn node_of(&self, pod: &str) -> Option<&str> {
        self.pods.get(pod)?["spec"]["nodeName"].as_str()
    }

    /// The node of a run's placeholder.
    pub(super) fn place(&self, run: &str) -> Option<&str> {
        let placeholder = self.placeholder(run);
        self.node_of(&format!("{placeholder}-0"))
    }

    /// Deletes the pod of a run's placeholder, as a drain does.
    pub(super) fn evict(&mut self, run: &str) {
        let placeholder = self.placeholder(run);
        self.pods.remove(&format!("{placeholder}-0"));
    }

    pub(super) fn reported(&self, kind: Resource, about: &str) -> Vec<&'static str> {
        let own = self.events.iter().filter(|((of, name), _)| *of == kind && name == about);
        own.map(|(_, event)| event.reason).collect()
    }

    pub(super) fn view(&self) -> View {
        let mut view = View::default();
        for node in self.nodes.values() {
            let node: core::Node = serde_json::from_value(node.clone()).unwrap();
            view.apply(systems::project(&node, Scope::Controller).unwrap());
        }
        let mode = self.namespace_mode.as_ref().map(|mode| json!({keys::MODE: mode}));
        let namespace = json!({"metadata": {"name": NAMESPACE, "annotations": mode}});
        let namespace: core::Namespace = serde_json::from_value(namespace).unwrap();
        view.apply(systems::project(&namespace, Scope::Admission).unwrap());
        for run in self.runs.values() {
            view.apply(systems::object(run.clone()).unwrap().unwrap());
        }
        for run in self.task_runs.values() {
            view.apply(systems::object(run.clone()).unwrap().unwrap());
        }
        for claim in self.claims.values() {
            let claim: core::PersistentVolumeClaim = serde_json::from_value(claim.clone()).unwrap();
            view.apply(systems::project(&claim, Scope::Controller).unwrap());
        }
        for class in &self.classes {
            let class: k8s_openapi::api::storage::v1::StorageClass =
                serde_json::from_value(class.clone()).unwrap();
            view.apply(systems::project(&class, Scope::Admission).unwrap());
        }
        for volume in self.volumes.values() {
            let volume: core::PersistentVolume = serde_json::from_value(volume.clone()).unwrap();
            view.apply(systems::project(&volume, Scope::Controller).unwrap());
        }
        for set in self.sets.values() {
            let set: k8s_openapi::api::apps::v1::StatefulSet =
                serde_json::from_value(set.clone()).unwrap();
            view.apply(systems::project(&set, Scope::Controller).unwrap());
        }
        for pod in self.pods.values() {
            let pod: core::Pod = serde_json::from_value(pod.clone()).unwrap();
            if let Some(object) = systems::project(&pod, Scope::Controller) {
                view.apply(object);
            }
        }
        view
    }

    pub(super) fn plan(&self) -> Plan {
        let plan = super::super::plan(&self.view(), &self.policy, self.now);
        let targets: BTreeSet<_> = plan.actions.iter().map(|action| &action.target).collect();
        assert_eq!(targets.len(), plan.actions.len(), "one action an object: {plan:#?}");
        plan
    }

    /// Lets everything take its course until nothing happens any more, at most for `seconds`.
    pub(super) fn settle(&mut self, seconds: i64) {
        let end = self.now + SignedDuration::from_secs(seconds);
        let writes = self.writes.len();
        for _ in 0..10_000 {
            self.make_pods();
            self.recreate();
            let scheduled = self.schedule();
            let Plan { mut actions, recheck_at } = self.plan();
            for action in actions.extract_if(.., |action| action.write == Write::None) {
                self.record(&action);
            }
            match self.pace {
                Pace::Whole => {}
                Pace::First => actions.truncate(1),
                Pace::Last => actions = actions.split_off(actions.len().saturating_sub(1)),
            }
            if actions.is_empty() && !scheduled {
                match recheck_at.filter(|at| *at <= end) {
                    None => {
                        self.now = end;
                        return;
                    }
                    Some(at) => {
                        assert!(at > self.now, "a plan that asks for now has something to do");
                        self.now = at;
                    }
                }
            }
            actions.into_iter().for_each(|action| self.act(action));
            let made = self.writes.len() - writes;
            assert!(made < 2_000, "no rest: {:#?}", &self.writes[self.writes.len() - 20..]);
        }
        panic!("no end: {:#?}", self.plan());
    }

    fn record(&mut self, action: &Action) {
        for event in &action.events {
            let about = (action.target.resource, action.target.name.to_string());
            let event = (about, event.clone());
            if !self.events.contains(&event) {
                self.events.push(event);
            }
        }
    }

    /// Carries one action out.
    pub(super) fn act(&mut self, action: Action) {
        self.record(&action);
        let Action { target, write, .. } = action;
        let name = target.name.to_string();
        let verb = match &write {
            Write::Create(_) => "create",
            Write::Patch(_) => "patch",
            Write::Delete { grace: Some(0), .. } => "kill",
            Write::Delete { .. } => "delete",
            other => panic!("{other:?}"),
        };
        self.writes.push(format!("{verb} {} {name}", target.resource));
        match (target.resource.kind, write) {
            ("StatefulSet", Write::Create(mut set)) => {
                let owner = set["metadata"]["ownerReferences"][0].clone();
                if !owner.is_null() {
                    let run = &self.runs[owner["name"].as_str().unwrap()];
                    assert_eq!(run["metadata"]["uid"], owner["uid"]);
                    assert!(run["status"]["conditions"].is_null(), "made for a run that has ended");
                }
                let metadata = self.metadata(&name);
                Self::change(&mut set, json!({"metadata": metadata}));
                assert!(!set.to_string().contains("$("), "{set}");
                assert!(self.sets.insert(name, set).is_none(), "made twice");
            }
            ("StatefulSet", Write::Patch(operations)) => {
                let version = self.next().to_string();
                patch(self.sets.get_mut(&name).unwrap(), &operations, &target.uid, &version)
                    .unwrap();
            }
            ("StatefulSet", Write::Delete { .. }) => {
                assert_eq!(self.sets[&name]["metadata"]["uid"], *target.uid);
                self.sets.remove(&name);
                self.pods.remove(&format!("{name}-0"));
            }
            ("Pod", Write::Patch(operations)) => {
                let version = self.next().to_string();
                patch(self.pods.get_mut(&name).unwrap(), &operations, &target.uid, &version)
                    .unwrap();
            }
            ("Pod", Write::Delete { grace, version }) => {
                self.delete_pod(&name, &target.uid, grace, version.as_deref())
            }
            ("PersistentVolumeClaim", Write::Delete { .. }) => {
                let claim = self.claims.get_mut(&name).unwrap();
                assert_eq!(claim["metadata"]["uid"], *target.uid);
                claim["metadata"]["deletionTimestamp"] = json!(self.now.to_string());
            }
            ("PersistentVolumeClaim", Write::Patch(operations)) => {
                let version = self.next().to_string();
                let claim = self.claims.get_mut(&name).unwrap();
                patch(claim, &operations, &target.uid, &version).unwrap();
            }
            (kind, write) => panic!("{write:?} of {kind}"),
        }
    }

    fn delete_pod(&mut self, name: &str, uid: &str, grace: Option<u32>, version: Option<&str>) {
        let pod = &self.pods[name];
        assert_eq!(pod["metadata"]["uid"], *uid);
        let node = pod["spec"]["nodeName"].as_str().map(str::to_owned);
        if is_member(pod) {
            assert_eq!(node, None, "{name} runs, and is killed");
            assert_eq!(version, pod["metadata"]["resourceVersion"].as_str());
        } else {
            let placeholder = name.strip_suffix("-0").unwrap();
            let runs = |pod: &&Value| {
                let on_live_node =
                    pod["spec"]["nodeName"].as_str().is_some_and(|node| self.is_ready(node));
                let is_deleting = !pod["metadata"]["deletionTimestamp"].is_null();
                is_member(pod)
                    && pod["metadata"]["labels"][keys::MEMBER] == *placeholder
                    && pod["status"]["phase"] != "Succeeded"
                    && pod["spec"]["nodeName"].as_str() == node.as_deref()
                    && (on_live_node || !is_deleting)
            };
            let running = self.pods.values().find(runs).filter(|_| node.is_some());
            assert!(running.is_none(), "{name} is deleted while {running:#?} runs beside it");
        }
        let is_dead = node.is_some_and(|node| !self.is_ready(&node));
        if is_dead && grace != Some(0) {
            self.pods.get_mut(name).unwrap()["metadata"]["deletionTimestamp"] =
                json!(self.now.to_string());
        } else {
            assert!(grace != Some(0) || is_dead, "{name} is killed on a node that lives");
            self.pods.remove(name);
            if self.by_node.contains_key(name) {
                self.deleted.insert(name.to_owned());
            }
        }
    }

    fn is_ready(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| node["status"]["conditions"][0]["status"] == "True")
    }

    /// The StatefulSet controller.
    fn make_pods(&mut self) {
        for name in self.sets.keys().cloned().collect::<Vec<_>>() {
            let pod_name = format!("{name}-0");
            if self.sets[&name]["spec"]["replicas"] == 0 {
                self.pods.remove(&pod_name);
                continue;
            }
            if self.pods.contains_key(&pod_name) || !self.makes_pods {
                continue;
            }
            let template = self.sets[&name]["spec"]["template"].clone();
            let mut metadata = self.metadata(&pod_name);
            metadata["labels"] = template["metadata"]["labels"].clone();
            metadata["annotations"] = template["metadata"]["annotations"].clone();
            let pod = json!({"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}});
            self.pods.insert(pod_name, pod);
        }
    }
}

/// Applies operations as the API server does: there, what is absent tests as null.
fn patch(
    document: &mut Value,
    operations: &[PatchOperation],
    uid: &str,
    version: &str,
) -> Result<(), String> {
    assert_eq!(document["metadata"]["uid"], *uid);
    assert_eq!(operations[0].path().as_str(), "/metadata/uid");
    let mut patched = document.clone();
    for operation in operations {
        if let PatchOperation::Test(test) = operation
            && test.value.is_null()
            && test.path.resolve(&patched).is_err()
        {
            continue;
        }
        json_patch::patch(&mut patched, std::slice::from_ref(operation))
            .map_err(|error| format!("{error}: {operation:?}"))?;
    }
    patched["metadata"]["resourceVersion"] = json!(version);
    *document = patched;
    Ok(())
}

/// Whether one of `terms` selects the node of this name with these labels.
fn selects(
    terms: &[core::NodeSelectorTerm],
    name: &str,
    labels: &BTreeMap<Box<str>, Box<str>>,
) -> bool {
    selector::may_select(terms, name, |key| Some(labels.get(key).map(AsRef::as_ref)))
}
