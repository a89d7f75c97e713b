//! A simulated cluster with Tekton's objects, and the rules that every write of the reconciler keeps.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::LONG;
use crate::kubernetes::REQUIRED;
use crate::policy::Period;
pub(super) use crate::simulation::testing::NAMESPACE;
use crate::simulation::{ALL, CONTROLLER, Event as Step, Id, Outcome, Pace, Simulation, Store};
use crate::systems::coschedule::kinds::pipeline_run::claim_name;
use crate::systems::coschedule::pod_plan::PodPlan;
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::coschedule::{keys, mode};
use crate::systems::plan::{Action, Event, Plan, Write};
use crate::systems::policy::Policy;
use crate::systems::test_objects::node;
use crate::systems::{TABLES, View};
use crate::view::resource::Resource;

/// A simulation, and the records of the reconciler in short.
#[derive(Debug)]
pub(super) struct World {
    simulation: Simulation,
    pub(super) pace: Pace,
    /// About whom, and what: each once.
    pub(super) events: Vec<((Resource, String), Event)>,
    /// `verb kind name`.
    pub(super) writes: Vec<String>,
}

impl Deref for World {
    type Target = Simulation;

    fn deref(&self) -> &Simulation {
        &self.simulation
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Simulation {
        &mut self.simulation
    }
}

impl World {
    /// Creates an object, and replaces one of its name.
    pub(super) fn create(&mut self, kind: &str, name: &str, mut document: Value) -> &mut Self {
        let id = Id::in_tests(kind, name);
        let mut resources = TABLES.iter().map(|table| &table.kind().resource);
        let version = resources.find(|of| of.kind == kind).unwrap().api_version();
        let namespace = Some(&*id.namespace).filter(|namespace| !namespace.is_empty());
        let metadata = json!({"name": name, "namespace": namespace});
        let identity = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
        json_patch::merge(&mut document, &identity);
        self.store.remove(&id);
        self.store.create(document).unwrap();
        self
    }

    /// Changes an object (RFC 7396).
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the change is written where it is asked for"
    )]
    pub(super) fn change(&mut self, kind: &str, name: &str, with: Value) -> &mut Self {
        self.merge(kind, name, &with);
        self
    }

    pub(super) fn remove(&mut self, kind: &str, name: &str) -> &mut Self {
        self.take(kind, name);
        self
    }

    /// These nodes, each of one core, 8 GiB and ten pods.
    pub(super) fn new(nodes: &[&str]) -> Self {
        let mut policy = Policy::default();
        policy.coschedule.placeholder.image = "stowplan:1".to_owned();
        // Most tests are about other things, and some wait for hours.
        policy.coschedule.keep_node_for = Period::from_secs(1_000 * 3_600);
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let simulation = Simulation::new(policy, now).with_planner(plan).with_admission(admit);
        let mut world =
            Self { simulation, pace: Pace::All, events: Vec::new(), writes: Vec::new() };
        world.create("Namespace", NAMESPACE, json!({}));
        for node in nodes {
            world.node(node);
        }
        world
    }

    /// A world as from [`Self::new`], and a run with one claim.
    pub(super) fn with_run(nodes: &[&str]) -> Self {
        let mut world = Self::new(nodes);
        world.claim("c").run("run", &["c"], &[]);
        world
    }

    pub(super) fn node(&mut self, name: &str) -> &mut Self {
        let allocatable = json!({"cpu": "1", "memory": "8Gi", "pods": "10"});
        let node = node(name, &json!({"status": {"allocatable": allocatable}}));
        self.create("Node", name, node)
    }

    /// A node as from [`Self::node`] in a zone.
    pub(super) fn node_in(&mut self, zone: &str, name: &str) -> &mut Self {
        let labels = json!({"topology.kubernetes.io/zone": zone});
        self.node(name).change("Node", name, json!({"metadata": {"labels": labels}}))
    }

    /// The annotation of the namespace.
    pub(super) fn namespace_mode(&mut self, mode: &str) -> &mut Self {
        let annotations = json!({"metadata": {"annotations": {keys::MODE: mode}}});
        self.change("Namespace", NAMESPACE, annotations)
    }

    pub(super) fn cordon(&mut self, node: &str, cordoned: bool) -> &mut Self {
        self.change("Node", node, json!({"spec": {"unschedulable": cordoned}}))
    }

    /// Says whether a node answers, with the taints that the node lifecycle controller gives one that
    /// does not.
    pub(super) fn ready(&mut self, node: &str, ready: bool) -> &mut Self {
        let status = if ready { "True" } else { "Unknown" };
        let conditions = json!([{"type": "Ready", "status": status}]);
        let taint =
            |effect: &str| json!({"key": "node.kubernetes.io/unreachable", "effect": effect});
        let taints = (!ready).then(|| ["NoSchedule", "NoExecute"].map(taint));
        let change = json!({"spec": {"taints": taints}, "status": {"conditions": conditions}});
        self.change("Node", node, change)
    }

    /// A run with workspaces of existing claims and of claim templates, all used by one task.
    pub(super) fn run(&mut self, name: &str, claims: &[&str], templates: &[&str]) -> &mut Self {
        let spec = json!({"spec": {"accessModes": ["ReadWriteOnce"]}});
        let bound =
            |name: &&str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        let made = |name: &&str| json!({"name": name, "volumeClaimTemplate": spec});
        let workspaces = claims.iter().map(bound).chain(templates.iter().map(made));
        let workspaces: Vec<Value> = workspaces.collect();
        let used = claims.iter().chain(templates).map(|name| json!({"name": name}));
        let used: Vec<Value> = used.collect();
        let run = json!({"spec": {
            "workspaces": workspaces,
            "pipelineSpec": {"tasks": [{"name": "task", "workspaces": used, "taskRef": {"name": "t"}}]},
        }});
        self.create("PipelineRun", name, run);
        let uid = self.uid("PipelineRun", name);
        for template in templates {
            let claim = claim_name(None, template, &uid);
            self.claim(&claim);
            let owners = json!([self.owner("PipelineRun", name)]);
            self.edit("PersistentVolumeClaim", &claim)["metadata"]["ownerReferences"] = owners;
        }
        self
    }

    pub(super) fn uid(&self, kind: &str, name: &str) -> String {
        self.get(kind, name)["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// A reference to an object that controls another one.
    pub(super) fn owner(&self, kind: &str, name: &str) -> Value {
        let uid = self.uid(kind, name);
        json!({"apiVersion": "tekton.dev/v1", "kind": kind, "name": name, "uid": uid, "controller": true})
    }

    pub(super) fn claim(&mut self, name: &str) -> &mut Self {
        let claim = json!({
            "metadata": {"finalizers": ["example.com/other", "kubernetes.io/pvc-protection"]},
            "spec": {"accessModes": ["ReadWriteOnce"]},
        });
        self.create("PersistentVolumeClaim", name, claim)
    }

    /// The only claim that a run makes.
    pub(super) fn own_claim(&self) -> String {
        let mut claims = self.all("PersistentVolumeClaim");
        let own = claims.find(|of| of["metadata"]["ownerReferences"].is_array()).unwrap();
        own["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// Binds a claim to a volume that only `nodes` can mount.
    pub(super) fn pin(&mut self, claim: &str, nodes: &[&str]) -> &mut Self {
        let volume = format!("volume-of-{claim}");
        let on_nodes = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": nodes});
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": [on_nodes]}]});
        let spec = json!({"nodeAffinity": {"required": required}});
        self.create("PersistentVolume", &volume, json!({"spec": spec}));
        let bound = json!({"spec": {"volumeName": volume}, "status": {"phase": "Bound"}});
        self.change("PersistentVolumeClaim", claim, bound)
    }

    /// Gives all claims this storage class.
    pub(super) fn class(&mut self, class: &str) -> &mut Self {
        for claim in self.names("PersistentVolumeClaim") {
            let spec = json!({"spec": {"storageClassName": class}});
            self.change("PersistentVolumeClaim", &claim, spec);
        }
        self
    }

    /// The name of the placeholder of the only group of a run, or of a native group.
    pub(super) fn placeholder(&self, of: &str) -> String {
        if !self.has("PipelineRun", of) {
            return keys::of_native(NAMESPACE, of);
        }
        let run = self.get("PipelineRun", of);
        let by_policy = self.policy.coschedule.mode == CoscheduleMode::Workspaces;
        let by_namespace = &self.get("Namespace", NAMESPACE)["metadata"]["annotations"][keys::MODE];
        let by_namespace = by_namespace.as_str().filter(|mode| mode::read(mode).is_some());
        let is_per_run = by_namespace.map_or(!by_policy, |mode| mode != "workspaces");
        let first = run["spec"]["workspaces"][0]["name"].as_str().unwrap_or_default();
        keys::of_run(&self.uid("PipelineRun", of), if is_per_run { "" } else { first })
    }

    /// The node affinity in the pod template of a placeholder.
    pub(super) fn node_affinity(&self, of: &str) -> String {
        let set = self.get("StatefulSet", &self.placeholder(of));
        set["spec"]["template"]["spec"]["affinity"]["nodeAffinity"].to_string()
    }

    /// The name of the pod of a placeholder.
    pub(super) fn placeholder_pod(&self, of: &str) -> String {
        format!("{}-0", self.placeholder(of))
    }

    pub(super) fn task_run(&mut self, name: &str, run: &str) -> &mut Self {
        let owners = json!([self.owner("PipelineRun", run)]);
        self.create("TaskRun", name, json!({"metadata": {"ownerReferences": owners}}))
    }

    /// A TaskRun of a run with its pod, as it comes from the webhook: with the pod-affinity term, and with the
    /// gate while the placeholder has no node. It requests `cpu` thousandths of a core.
    pub(super) fn member(&mut self, name: &str, run: &str, cpu: u32) -> &mut Self {
        let placeholder = self.placeholder(run);
        self.member_of(name, run, &placeholder, cpu)
    }

    /// Gives the placeholder of a run a node: a member that requests nothing has run and ended.
    pub(super) fn reserve(&mut self, run: &str) -> &mut Self {
        let first = format!("{run}-first");
        self.member(&first, run, 0).settle(super::SOON).finish(&first)
    }

    /// A TaskRun of a run that a quota refuses its pod.
    pub(super) fn refuse_pod(&mut self, name: &str, run: &str) -> &mut Self {
        self.task_run(name, run);
        let conditions = json!([{"type": "Succeeded", "status": "Unknown",
            "reason": "ExceededResourceQuota", "lastTransitionTime": self.store.timestamp()}]);
        self.change("TaskRun", name, json!({"status": {"conditions": conditions}}))
    }

    /// A member as from [`Self::member`], of a group that is not the run's only one. `group`: its placeholder.
    pub(super) fn member_of(&mut self, name: &str, run: &str, group: &str, cpu: u32) -> &mut Self {
        self.task_run(name, run);
        self.pod_of(name, group, cpu);
        let owners = json!([self.owner("TaskRun", name)]);
        let template = &self.get("PipelineRun", run)["spec"]["taskRunTemplate"]["podTemplate"];
        let spec = json!({"tolerations": template["tolerations"]});
        self.change("Pod", name, json!({"metadata": {"ownerReferences": owners}, "spec": spec}))
    }

    /// Sets a run's pod template, which its placeholder and its pods get.
    pub(super) fn template(&mut self, run: &str, template: &Value) -> &mut Self {
        let spec = json!({"spec": {"taskRunTemplate": {"podTemplate": template}}});
        self.change("PipelineRun", run, spec)
    }

    /// Has Tekton's own affinity assistant place a TaskRun.
    pub(super) fn assist(&mut self, task_run: &str) -> &mut Self {
        self.annotate("TaskRun", task_run, keys::ASSISTANT, "affinity-assistant-1")
    }

    pub(super) fn annotate(&mut self, kind: &str, name: &str, key: &str, value: &str) -> &mut Self {
        self.change(kind, name, json!({"metadata": {"annotations": {key: value}}}))
    }

    /// Removes the gate of a pod that somebody else placed.
    pub(super) fn ungate(&mut self, name: &str) -> &mut Self {
        self.change("Pod", name, json!({"spec": {"schedulingGates": null}}))
    }

    /// Lets a member require the label of members instead of its placeholder.
    pub(super) fn beside_others(&mut self, name: &str) -> &mut Self {
        let mut pod = self.edit("Pod", name);
        let labels = pod["metadata"]["labels"].clone();
        let term = json!({"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"});
        pod["spec"]["affinity"] = json!({"podAffinity": {REQUIRED: [term]}});
        pod["spec"]["schedulingGates"] = Value::Null;
        drop(pod);
        self
    }

    /// A member with the gate instead of the term.
    pub(super) fn gated(&mut self, name: &str, run: &str) -> &mut Self {
        self.gated_with(name, run, &Value::Null, 100)
    }

    /// A member as from [`Self::gated`], with these required node terms and this request. Tekton creates it again by its name if it
    /// is deleted.
    pub(super) fn gated_with(
        &mut self,
        name: &str,
        run: &str,
        terms: &Value,
        cpu: u32,
    ) -> &mut Self {
        self.member(name, run, cpu);
        let mut affinity = json!({});
        if !terms.is_null() {
            affinity["nodeAffinity"] = json!({REQUIRED: {"nodeSelectorTerms": terms}});
        }
        let mut pod = self.edit("Pod", name);
        pod["spec"]["affinity"] = affinity;
        pod["spec"]["schedulingGates"] = Value::Null;
        let created = pod.clone();
        pod["spec"]["schedulingGates"] = json!([{"name": keys::GATE}]);
        drop(pod);
        self.recreate(created);
        self
    }

    /// A pod of a native group.
    pub(super) fn native(&mut self, name: &str, group: &str) -> &mut Self {
        self.pod_of(name, &keys::of_native(NAMESPACE, group), 100);
        self.annotate("Pod", name, keys::GROUP, group)
    }

    fn pod_of(&mut self, name: &str, placeholder: &str, cpu: u32) {
        let term = json!({
            "labelSelector": {"matchLabels": {
                keys::COMPONENT: keys::COMPONENT_VALUE, keys::INSTANCE: placeholder,
            }},
            "topologyKey": "kubernetes.io/hostname",
        });
        let requests = json!({"cpu": format!("{cpu}m")});
        let gates = match self.node_of(&format!("{placeholder}-0")) {
            Some(_) => json!([]),
            None => json!([{"name": keys::GATE}]),
        };
        let pod = json!({
            "metadata": {"labels": {keys::MEMBER: placeholder}},
            "spec": {
                "schedulingGates": gates,
                "containers": [{"name": "c", "resources": {"requests": requests}}],
                "affinity": {"podAffinity": {REQUIRED: [term]}},
            },
            "status": {"phase": "Pending"},
        });
        self.create("Pod", name, pod);
    }

    /// Somebody else's pod, bound to a node.
    pub(super) fn stranger(&mut self, name: &str, node: &str, cpu: u32) -> &mut Self {
        let requests = json!({"cpu": format!("{cpu}m")});
        let pod = json!({
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": requests}}]},
            "status": {"phase": "Running"},
        });
        self.create("Pod", name, pod)
    }

    pub(super) fn mount(&mut self, pod: &str, claim: &str) -> &mut Self {
        let volume = json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
        let mut pod = self.edit("Pod", pod);
        match pod["spec"]["volumes"].as_array_mut() {
            Some(volumes) => volumes.push(volume),
            None => pod["spec"]["volumes"] = json!([volume]),
        }
        drop(pod);
        self
    }

    /// Gives a pod these labels alone.
    pub(super) fn label(&mut self, pod: &str, labels: Value) -> &mut Self {
        self.edit("Pod", pod)["metadata"]["labels"] = labels;
        self
    }

    /// Takes its owner from a pod.
    pub(super) fn disown(&mut self, pod: &str) -> &mut Self {
        self.change("Pod", pod, json!({"metadata": {"ownerReferences": null}}))
    }

    /// Binds a pod to a node, whatever the scheduler would do.
    pub(super) fn put_on(&mut self, node: &str, pod: &str) -> &mut Self {
        self.change("Pod", pod, json!({"spec": {"nodeName": node}}))
    }

    /// Takes its node from a pod.
    pub(super) fn unbind(&mut self, pod: &str) -> &mut Self {
        self.edit("Pod", pod)["spec"].as_object_mut().unwrap().remove("nodeName");
        self
    }

    pub(super) fn finish(&mut self, pod: &str) -> &mut Self {
        let conditions = json!([{"type": "Ready", "status": "False", "reason": "PodCompleted",
            "lastTransitionTime": self.store.timestamp()}]);
        let status = json!({"phase": "Succeeded", "conditions": conditions});
        self.change("Pod", pod, json!({"status": status}))
    }

    /// Marks an object as being deleted. It remains, as one does whose finalizers are not removed.
    pub(super) fn mark_deleted(&mut self, kind: &str, name: &str) -> &mut Self {
        let metadata = json!({"deletionTimestamp": self.store.timestamp(), "finalizers": ["a/b"]});
        self.change(kind, name, json!({"metadata": metadata}))
    }

    pub(super) fn end(&mut self, run: &str) -> &mut Self {
        let conditions = json!([{"type": "Succeeded", "status": "True"}]);
        self.change("PipelineRun", run, json!({"status": {"conditions": conditions}}))
    }

    pub(super) fn node_of(&self, pod: &str) -> Option<&str> {
        self.find("Pod", pod)?["spec"]["nodeName"].as_str()
    }

    /// The node of the placeholder of a run or of a native group.
    pub(super) fn place(&self, of: &str) -> Option<&str> {
        self.node_of(&self.placeholder_pod(of))
    }

    /// Checks where pods are, as in `a:n1 run:n2 b:`: the pod `a` on the node `n1`, the placeholder of `run` on
    /// `n2`, and `b` on no node.
    #[track_caller]
    pub(super) fn expect(&mut self, places: &str) -> &mut Self {
        let place = |word: &str| {
            let of = word.split_once(':').expect("a colon").0;
            let is_pod = self.has("Pod", of);
            let node = if is_pod { self.node_of(of) } else { self.place(of) };
            format!("{of}:{}", node.unwrap_or_default())
        };
        let found: Vec<_> = places.split(' ').map(place).collect();
        assert_eq!(found.join(" "), places, "{:#?}\n{:#?}", self.writes, self.events);
        self
    }

    /// Checks the reasons of the events about an object.
    #[track_caller]
    pub(super) fn expect_events(&self, kind: Resource, about: &str, reasons: &[&str]) {
        assert_eq!(self.reported(kind, about), reasons, "{kind} {about}: {:#?}", self.events);
    }

    /// Checks that nothing more is written, however long it takes.
    #[track_caller]
    pub(super) fn expect_rest(&mut self) -> &mut Self {
        let writes = self.writes.len();
        self.settle(LONG);
        assert_eq!(self.writes[writes..], [""; 0]);
        self
    }

    /// Checks that pods are where they are, however long it takes.
    #[track_caller]
    pub(super) fn expect_stays(&mut self, places: &str) -> &mut Self {
        self.settle(LONG).expect(places)
    }

    /// Returns how often pods were deleted.
    pub(super) fn deletions(&self) -> usize {
        self.writes.iter().filter(|write| write.starts_with("delete Pod")).count()
    }

    /// Deletes the pod of a placeholder, as a drain does.
    pub(super) fn evict(&mut self, of: &str) -> &mut Self {
        let pod = self.placeholder_pod(of);
        self.remove("Pod", &pod)
    }

    /// Lets time pass, in which nobody does anything.
    pub(super) fn wait(&mut self, seconds: i64) -> &mut Self {
        self.store.now += SignedDuration::from_secs(seconds);
        self
    }

    pub(super) fn reported(&self, kind: Resource, about: &str) -> Vec<&'static str> {
        let own = self.events.iter().filter(|((of, name), _)| *of == kind && name == about);
        own.map(|(_, event)| event.reason).collect()
    }

    /// Returns the View of the reconciler.
    pub(super) fn view(&mut self) -> &View {
        self.catch_up(CONTROLLER);
        self.view_of(CONTROLLER)
    }

    /// Lets everything take its course until nothing happens any more, at most for `seconds`.
    pub(super) fn settle(&mut self, seconds: i64) -> &mut Self {
        let end = self.store.now + SignedDuration::from_secs(seconds);
        let (pace, writes) = (self.pace, self.simulation.writes.len());
        let rest = self.simulation.run(ALL, end, |simulation, events| {
            let event = pace.choose(simulation, events)?;
            if let Step::Write(at) = event {
                check(&simulation.store, &simulation.actions()[at]);
            }
            Some(event)
        });
        self.record();
        assert_eq!(rest, Ok(()), "{:#?}", self.writes);
        let made = self.simulation.writes.len() - writes;
        assert!(made < 2_000, "no rest: {:#?}", &self.writes[self.writes.len() - 20..]);
        self.store.now = end;
        self
    }

    /// Carries out one action.
    pub(super) fn act(&mut self, action: Action) -> &mut Self {
        check(&self.store, &action);
        self.carry_out(action);
        self.record();
        self
    }

    /// Carries out one plan.
    pub(super) fn carry_out_plan(&mut self) {
        self.plan().actions.into_iter().for_each(|action| _ = self.act(action));
    }

    fn record(&mut self) {
        for written in &self.simulation.writes[self.writes.len()..] {
            let target = &written.target;
            self.writes.push(format!("{} {} {}", written.verb, target.resource, target.name));
            let kind = written.target.resource.kind;
            let is_refused = written.verb == "resize" && !self.simulation.resizes
                || written.verb == "create" && self.simulation.forbidden.contains(&kind);
            // Those of other fields are carried out.
            let may_be_refused = written.verb == "patch" && self.simulation.keeps_templates;
            let is_done = written.outcome == Outcome::Done;
            assert!(is_done != is_refused || may_be_refused, "{written:?}");
        }
        for (target, event) in &self.simulation.events {
            let record = ((target.resource, target.name.to_string()), event.clone());
            if !self.events.contains(&record) {
                self.events.push(record);
            }
        }
    }
}

fn plan(view: &View, policy: &Policy, now: Timestamp) -> Plan {
    let plan = super::super::plan(view, policy, now);
    let targets: BTreeSet<_> = plan.actions.iter().map(|action| &action.target).collect();
    assert_eq!(targets.len(), plan.actions.len(), "one action an object: {plan:#?}");
    plan
}

/// The webhook, which binds a pod that Tekton creates again to the node of its placeholder, or gates it.
fn admit(store: &Store, pod: &mut Value) {
    let placeholder = pod["metadata"]["labels"][keys::MEMBER].as_str().unwrap();
    let find = |kind, name: &str| store.get(&Id::in_tests(kind, name)).unwrap_or(&Value::Null);
    let plan_of = |of: &Value| PodPlan::parse(of["metadata"]["annotations"][keys::PLAN].as_str()?);
    let template = plan_of(&find("StatefulSet", placeholder)["spec"]["template"]);
    let beside = find("Pod", &format!("{placeholder}-0"));
    let stays = |node: &&str| {
        let leaves = |of: &PodPlan| of.is_to_leave(plan_of(beside).as_ref(), node);
        beside["metadata"]["deletionTimestamp"].is_null() && !template.as_ref().is_some_and(leaves)
    };
    let place = beside["spec"]["nodeName"].as_str().filter(stays);
    match place.filter(|_| pod["spec"]["affinity"]["nodeAffinity"].is_null()) {
        Some(node) => {
            let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
            pod["spec"]["affinity"]["nodeAffinity"] =
                json!({REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}});
        }
        None => pod["spec"]["schedulingGates"] = json!([{"name": keys::GATE}]),
    }
}

/// Returns true if a pod is a member of a group, and not its placeholder's.
pub(super) fn is_member(pod: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    !labels[keys::MEMBER].is_null() && labels[keys::PLACEHOLDER].is_null()
}

/// Checks what holds for each write, whatever the order of events.
fn check(store: &Store, action: &Action) {
    let target = &action.target;
    let (kind, name) = (target.resource.kind, &*target.name);
    if let Write::Patch(operations) | Write::Part(_, operations) = &action.write {
        assert_eq!(operations[0].path().as_str(), "/metadata/uid");
        // The index of its finalizer is that of a version.
        let version = operations[1].path().as_str() == "/metadata/resourceVersion";
        assert!(kind != "PersistentVolumeClaim" || version, "{operations:?}");
    }
    match (kind, &action.write) {
        ("StatefulSet", Write::Create(set)) => {
            let owner = &set["metadata"]["ownerReferences"][0];
            if let Some(run) = owner["name"].as_str() {
                let run = store.get(&Id::in_tests("PipelineRun", run)).expect("a run that exists");
                assert_eq!(run["metadata"]["uid"], owner["uid"]);
                assert!(run["status"]["conditions"].is_null(), "made for a run that has ended");
            }
            assert!(!set.to_string().contains("$("), "{set}");
        }
        ("Pod", Write::Delete { grace, version }) => {
            check_deletion(store, name, *grace, version.as_deref())
        }
        ("StatefulSet" | "PersistentVolumeClaim", Write::Patch(_) | Write::Delete { .. })
        | ("Pod", Write::Patch(_)) => {}
        ("Pod", Write::Part("status", _)) => {
            let pod = store.get(&Id::in_tests("Pod", name)).expect("a pod that exists");
            assert!(is_member(pod) && pod["spec"]["nodeName"].is_null(), "{name} is nominated");
        }
        ("Pod", Write::Part(_, operations)) => {
            let pod = store.get(&Id::in_tests("Pod", name)).expect("a pod that exists");
            assert!(!is_member(pod), "{name} is changed");
            let paths = operations[1..].iter().map(|of| of.path().as_str().rsplit('/').next());
            let paths: Vec<_> = paths.flatten().collect();
            assert_eq!(paths, ["cpu", "memory"], "the API server resizes these alone");
            assert!(
                pod["spec"]["nodeName"].is_string(),
                "{name} gives its room away before it has a node"
            );
        }
        (kind, write) => panic!("{write:?} of {kind}"),
    }
}

/// No member that runs is killed, and no placeholder is deleted while one runs beside it.
fn check_deletion(store: &Store, name: &str, grace: Option<u32>, version: Option<&str>) {
    let pod = store.get(&Id::in_tests("Pod", name)).expect("a pod that exists");
    let node = pod["spec"]["nodeName"].as_str();
    let is_ready = |node: &str| {
        let node = store.get(&Id::in_tests("Node", node));
        node.is_some_and(|node| node["status"]["conditions"][0]["status"] == "True")
    };
    if is_member(pod) {
        assert_eq!(node, None, "{name} runs, and is killed");
        assert_eq!(version, pod["metadata"]["resourceVersion"].as_str());
    } else if let Some(node) = node {
        let placeholder = name.strip_suffix("-0").unwrap();
        let runs = |pod: &&Value| {
            let is_deleting = !pod["metadata"]["deletionTimestamp"].is_null();
            is_member(pod)
                && pod["metadata"]["labels"][keys::MEMBER] == *placeholder
                && pod["status"]["phase"] != "Succeeded"
                && pod["spec"]["nodeName"] == *node
                && (is_ready(node) || !is_deleting)
        };
        let running = store.all("Pod").find(runs);
        assert!(running.is_none(), "{name} is deleted while {running:#?} runs beside it");
    }
    let is_dead = node.is_some_and(|node| !is_ready(node));
    assert!(grace != Some(0) || is_dead, "{name} is killed on a node that lives");
}
