//! Small clusters as they run: the faults that happen in them, and the checks of every state.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::scope::{CLUSTER, Nodes, Scope, empty_node, run};
use crate::admission::Decision;
use crate::simulation::reader::Reader;
use crate::simulation::testing::NAMESPACE;
use crate::simulation::{CONTROLLER, Event, Id, NodeGroup, Part, Simulation};
use crate::systems::coschedule::keys;
use crate::systems::plan::{Action, Write};
use crate::systems::streams::policy::Unmet;
use crate::view;

/// A fault that happens once at most, at any moment.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Fault {
    /// The controller ends between two writes, and another one takes over.
    Crash,
    /// A node and its pods are lost at once.
    LoseNode,
    /// A node is cordoned, and stays so.
    Cordon,
    /// Somebody deletes a placeholder's pod.
    DropPlaceholder,
    /// Somebody deletes a pod of the group, which its owner creates again.
    DropMember,
    /// Somebody deletes the StatefulSet of a placeholder.
    DropSet,
    /// A gate of others holds a placeholder's pod and is never removed, as that of a queue without quota.
    HoldPlaceholder,
    /// Somebody writes a label of their own to a pod or to a placeholder's StatefulSet.
    Touch,
    /// The controller sees each change alone, and plans between any two of them.
    Late,
    /// A watch of the controller begins again: it lists what there is, and shows no change before. Until it has the
    /// whole list, what no longer exists stays known.
    Relist,
    /// A pod is admitted by a webhook that has seen nothing since the beginning.
    LateWebhook,
    /// A pod is created while the webhook is unavailable, with the failure policy `Ignore`.
    Unseen,
    /// A pod of others takes most of a node.
    Fill,
    /// A kubelet stops for good, and the pods of its node are evicted, which it does not report.
    StopKubelet,
    /// A kubelet answers again after any time. Meanwhile the pods of its node may be evicted.
    PauseKubelet,
}

pub(super) const FAULTS: [Fault; 15] = [
    Fault::Crash,
    Fault::LoseNode,
    Fault::Cordon,
    Fault::DropPlaceholder,
    Fault::DropMember,
    Fault::DropSet,
    Fault::HoldPlaceholder,
    Fault::Touch,
    Fault::Late,
    Fault::Relist,
    Fault::LateWebhook,
    Fault::Unseen,
    Fault::Fill,
    Fault::StopKubelet,
    Fault::PauseKubelet,
];

/// The name of the pod that fills a node.
const OTHER: &str = "other";

/// The key of the taints of a node whose kubelet does not answer.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The shortest time for which an autoscaler finds a node little used before it removes it: that of Karpenter. Cluster
/// Autoscaler waits for ten minutes.
const IDLE: SignedDuration = SignedDuration::from_secs(15);

/// The label of pods that the webhook did not see.
const UNSEEN: &str = "example.com/unseen";

#[derive(Clone, Debug)]
pub(super) enum Step {
    Cluster(Event),
    /// The controller sees everything and plans.
    Plan,
    /// The owner of the pod of this number creates it, by way of the webhook.
    Create(usize),
    /// The kubelet reports that the pod of this number is Ready.
    Ready(usize),
    /// The names of the pods of an MPI cluster become those that have a node.
    Publish,
    /// The time advances to the next plan that the controller has asked for.
    Pass,
    /// A watch that has begun again has the whole list.
    Listed,
    /// The autoscaler removes a node that is little used, after a time in which nothing else could happen.
    Shrink,
    /// The pods of the node whose kubelet does not answer are evicted.
    Evict,
    /// The kubelet answers again.
    Return,
    /// One of the faults that are due happens, to the object of this number.
    Fault(Fault, usize),
}

/// A simulation, and the faults that have not happened yet.
#[derive(Clone)]
pub(super) struct World {
    pub(super) simulation: Simulation,
    pub(super) due: Vec<Fault>,
    /// The objects that the controller knows and that are not in the list that a watch of it reads.
    pub(super) unlisted: Vec<Id>,
    /// The node whose kubelet does not answer for a while, and true if its pods have been evicted.
    pub(super) away: Option<(String, bool)>,
    scope: Scope,
    /// True once a run may have no placeholder for long: a queue holds it.
    may_be_bare: bool,
    /// True once a kubelet answers again: pods of its node may still end there.
    has_returned: bool,
    /// A webhook that has seen the beginning.
    beginning: Arc<Reader>,
}

impl World {
    /// Makes the cluster of a scope. With `is_scaled`, an autoscaler makes its nodes. It may make three, and one more
    /// than the pods need.
    pub(super) fn new(scope: Scope, is_scaled: bool, faults: &[Fault]) -> Self {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut simulation = Simulation::new(scope.policy(), now);
        // The hash of a pool is that of its UID.
        simulation.store.set_uids(|id, number| match &*id.kind {
            "HostPool" => format!("<{}>", id.name),
            _ => format!("<{number}>"),
        });
        let mut nodes = Vec::new();
        if is_scaled {
            // Otherwise a pod of a pool without nodes is refused, and nothing asks for a node.
            simulation.policy.streams.unmet = Unmet::Wait;
            let (name, node) = ("n".to_owned(), empty_node("n"));
            simulation.node_groups =
                vec![NodeGroup { name, node, most: 3.max(scope.needed_nodes() + 1) }];
        } else {
            nodes.extend((0..scope.nodes()).map(|number| empty_node(&format!("n-{number}"))));
        }
        for object in nodes.into_iter().chain(scope.objects()) {
            // Objects that are owners of others have UIDs already.
            if object["metadata"]["uid"].is_null() {
                simulation.store.create(object).unwrap();
            } else {
                simulation.store.put(object);
            }
        }
        simulation.catch_up(CONTROLLER);
        let beginning = Arc::new(Reader::of(&simulation.store, view::Scope::Admission));
        Self {
            simulation,
            due: faults.to_vec(),
            unlisted: Vec::new(),
            away: None,
            scope,
            may_be_bare: false,
            has_returned: false,
            beginning,
        }
    }

    /// The names of the pods.
    fn members(&self) -> &'static [&'static str] {
        self.scope.members()
    }

    /// The StatefulSets of placeholders.
    fn sets(&self) -> Vec<Id> {
        self.simulation.all("StatefulSet").map(Id::of).collect()
    }

    /// Returns true if the placeholder of the run of this number is on this node.
    fn is_held(&self, number: usize, node: &str) -> bool {
        let is_own = |set: &Value| set["metadata"]["labels"][keys::SERVED_RUN] == run(number);
        let set = self.simulation.all("StatefulSet").find(|set| is_own(set));
        let name = set.and_then(|set| set["metadata"]["name"].as_str());
        name.is_some_and(|name| self.node_of(&format!("{name}-0")) == Some(node))
    }

    /// The pods of placeholders.
    fn placeholders(&self) -> Vec<&Value> {
        let others = self.members().iter().chain([&OTHER]);
        let is_other = |pod: &&Value| others.clone().any(|name| pod["metadata"]["name"] == *name);
        self.simulation.all("Pod").filter(|pod| !is_other(pod)).collect()
    }

    /// The names of the nodes.
    fn nodes(&self) -> Vec<String> {
        self.simulation.names("Node")
    }

    /// The nodes on which another pod can take the place of three.
    fn roomy(&self) -> Vec<String> {
        let count = |node: &str| {
            self.simulation.all("Pod").filter(|pod| pod["spec"]["nodeName"] == *node).count()
        };
        let mut nodes = self.nodes();
        nodes.retain(|node| count(node) < 2);
        nodes
    }

    /// Returns true while a watch of the controller reads a list. No watch shows a change meanwhile.
    fn is_listing(&self) -> bool {
        !self.unlisted.is_empty()
    }

    /// Returns true if the controller's next plan sees all changes before it, whichever the controller has seen.
    pub(super) fn sees_all(&self) -> bool {
        let is_partial = |fault| matches!(fault, &Fault::Late | &Fault::Relist);
        !self.is_listing() && !self.due.iter().any(is_partial)
    }

    /// Returns true if the controller's next plan may differ from the latest one.
    pub(super) fn is_stale(&self) -> bool {
        let is_late = self.is_listing() || self.due.contains(&Fault::Late);
        self.simulation.is_stale || !is_late && !self.unseen().is_empty()
    }

    /// The kinds with changes that the controller has not seen.
    fn unseen(&self) -> Vec<Arc<str>> {
        let controller = &self.simulation.readers[CONTROLLER];
        controller.unseen(&self.simulation.store).cloned().collect()
    }

    /// The pods of placeholders that a queue can hold.
    fn unplaced(&self) -> Vec<Id> {
        let placeholders = self.placeholders().into_iter();
        placeholders.filter(|pod| pod["spec"]["nodeName"].is_null()).map(Id::of).collect()
    }

    /// The numbers of the pods that their owners create.
    fn missing(&self) -> Vec<usize> {
        let is_missing = |number: &usize| !self.simulation.has("Pod", self.members()[*number]);
        (0..self.members().len()).filter(is_missing).collect()
    }

    /// The numbers of the missing pods that a webhook does not refuse. `None`: one that sees everything.
    fn admitted(&self, webhook: Option<&Reader>) -> Vec<usize> {
        let mut missing = self.missing();
        if !missing.is_empty() {
            let mut simulation = self.simulation.clone();
            let fresh = || Reader::of(&self.simulation.store, view::Scope::Admission);
            simulation.readers.push(webhook.cloned().unwrap_or_else(fresh));
            let webhook = simulation.readers.len() - 1;
            let is_refused = |number: usize| {
                let decision = simulation.decide(webhook, &self.scope.pod(number));
                matches!(decision, Decision::Refuse(_))
            };
            missing.retain(|number| !is_refused(*number));
        }
        missing
    }

    /// The objects to which others write.
    fn touched(&self) -> Vec<Id> {
        self.simulation.all("Pod").map(Id::of).chain(self.sets()).collect()
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        use Part::{Autoscaler, Collector, Kubelets, Scheduler, Workloads, Writes};
        let parts = &[Writes, Workloads, Kubelets, Scheduler, Collector, Autoscaler];
        let mut steps: Vec<Step> = self.simulation.possible(parts).map(Step::Cluster).collect();
        steps.extend(self.admitted(None).into_iter().map(Step::Create));
        if self.scope == Scope::Mpi {
            steps.extend(self.unready().into_iter().map(Step::Ready));
            let is_late = self.published() != self.addressed();
            let has_service = self.simulation.has("Service", CLUSTER);
            steps.extend((has_service && is_late).then_some(Step::Publish));
        }
        if self.is_listing() {
            steps.push(Step::Listed);
            steps.extend(self.is_stale().then_some(Step::Cluster(Event::Plan)));
        } else if self.due.contains(&Fault::Late) {
            steps.extend(self.simulation.possible(&[Part::Watches]).map(Step::Cluster));
            steps.extend(self.is_stale().then_some(Step::Cluster(Event::Plan)));
        } else if self.is_stale() {
            steps.push(Step::Plan);
        }
        if steps.is_empty() {
            let recheck = self.simulation.recheck_at;
            let is_soon = recheck.is_some_and(|at| at < self.simulation.store.now + IDLE);
            let is_scaled = !self.simulation.node_groups.is_empty();
            let shrinks = !is_soon && is_scaled && self.simulation.clone().shrink().is_some();
            steps.extend(shrinks.then_some(Step::Shrink));
            steps.extend(recheck.is_some().then_some(Step::Pass));
        }
        if let Some((_, is_evicted)) = self.away {
            steps.extend((!is_evicted).then_some(Step::Evict));
            steps.push(Step::Return);
        }
        for fault in &self.due {
            steps.extend((0..self.targets(*fault)).map(|which| Step::Fault(*fault, which)));
        }
        steps
    }

    /// The numbers of the pods that have a node and are not Ready yet.
    fn unready(&self) -> Vec<usize> {
        let is_unready = |number: &usize| {
            self.simulation.find("Pod", self.members()[*number]).is_some_and(|pod| {
                let is_there = pod["spec"]["nodeName"].as_str();
                is_there.is_some_and(|node| self.simulation.is_ready(node))
                    && pod["metadata"]["deletionTimestamp"].is_null()
                    && pod["status"]["containerStatuses"].is_null()
            })
        };
        (0..self.members().len()).filter(is_unready).collect()
    }

    /// The hostnames that have an address by DNS.
    fn published(&self) -> Vec<Value> {
        let slice = self.simulation.find("EndpointSlice", CLUSTER);
        let endpoints = slice.and_then(|slice| slice["endpoints"].as_array());
        endpoints.into_iter().flatten().map(|of| of["hostname"].clone()).collect()
    }

    /// The hostnames of the pods that have a node.
    fn addressed(&self) -> Vec<Value> {
        let placed = self.members().iter().filter(|name| self.node_of(name).is_some());
        placed.map(|name| self.simulation.get("Pod", name)["spec"]["hostname"].clone()).collect()
    }

    /// Returns the number of objects to which a fault may happen now.
    fn targets(&self, fault: Fault) -> usize {
        match fault {
            Fault::Crash => 1,
            Fault::Late => usize::from(!self.is_listing()),
            Fault::Relist => self.unseen().len(),
            Fault::LoseNode | Fault::Cordon | Fault::StopKubelet | Fault::PauseKubelet => {
                self.nodes().len()
            }
            Fault::DropPlaceholder => self.placeholders().len(),
            Fault::HoldPlaceholder => self.unplaced().len(),
            Fault::DropSet => self.sets().len(),
            Fault::DropMember => self.members().len() - self.missing().len(),
            Fault::Touch => self.touched().len(),
            Fault::Unseen => self.missing().len(),
            Fault::LateWebhook => self.admitted(Some(&self.beginning)).len(),
            Fault::Fill => self.roomy().len(),
        }
    }

    pub(super) fn apply(&mut self, step: &Step) {
        match step {
            Step::Cluster(Event::Bind(pod, node)) => {
                self.simulation.apply(Event::Bind(pod.clone(), node.clone()));
                // No decision depends on whether it runs already.
                self.simulation.apply(Event::Start(pod.clone()));
            }
            Step::Cluster(event) => {
                if let Event::Write(at) = event {
                    self.check_write(&self.simulation.actions[*at]);
                }
                self.simulation.apply(event.clone());
            }
            Step::Plan => {
                self.simulation.catch_up(CONTROLLER);
                self.simulation.apply(Event::Plan);
            }
            Step::Listed => {
                let unlisted = std::mem::take(&mut self.unlisted);
                let controller = &mut self.simulation.readers[CONTROLLER];
                unlisted.iter().for_each(|id| controller.forget(id));
                self.simulation.is_stale = true;
            }
            Step::Create(number) => {
                let webhook = Reader::of(&self.simulation.store, view::Scope::Admission);
                self.create(*number, webhook);
            }
            Step::Ready(number) => {
                let mut pod = self.simulation.edit("Pod", self.members()[*number]);
                pod["status"]["containerStatuses"] =
                    json!([{"name": "c", "state": {"running": {}}}]);
                let conditions = pod["status"]["conditions"].as_array_mut().expect("it was bound");
                conditions.push(json!({"type": "Ready", "status": "True"}));
            }
            Step::Publish => {
                let hostnames = self.addressed().into_iter();
                let endpoints: Vec<Value> = hostnames
                    .map(|hostname| json!({"addresses": ["10.0.0.1"], "hostname": hostname}))
                    .collect();
                let labels = json!({"kubernetes.io/service-name": CLUSTER});
                self.simulation.store.put(json!({
                    "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                    "metadata": {"name": CLUSTER, "namespace": NAMESPACE, "uid": CLUSTER, "labels": labels},
                    "endpoints": endpoints,
                }));
            }
            Step::Pass => {
                let at = self.simulation.recheck_at.expect("a time");
                assert!(at > self.simulation.store.now, "a plan asks for another one at once");
                self.simulation.store.now = at;
                self.simulation.is_stale = true;
            }
            Step::Evict => {
                let (node, is_evicted) = self.away.as_mut().expect("a node");
                *is_evicted = true;
                let node = node.clone();
                self.evict(&node);
            }
            Step::Return => {
                let (name, _) = self.away.take().expect("a node");
                self.has_returned = true;
                // Somebody may have removed it.
                if self.simulation.has("Node", &name) {
                    let mut node = self.simulation.edit("Node", &name);
                    node["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
                    let taints = node["spec"]["taints"].as_array_mut().expect("it has some");
                    taints.retain(|taint| taint["key"] != UNREACHABLE);
                    if taints.is_empty() {
                        node["spec"]["taints"].take();
                    }
                }
            }
            Step::Shrink => _ = self.simulation.shrink().expect("a node"),
            Step::Fault(fault, which) => self.fail(*fault, *which),
        }
    }

    fn fail(&mut self, fault: Fault, which: usize) {
        let at = self.due.iter().position(|of| *of == fault).expect("a fault that is due");
        self.due.remove(at);
        self.may_be_bare |= fault == Fault::HoldPlaceholder;
        match fault {
            Fault::Late => self.simulation.catch_up(CONTROLLER),
            Fault::Crash => {
                self.simulation.actions.clear();
                self.simulation.readers[CONTROLLER] = Reader::new(view::Scope::Controller);
                self.unlisted.clear();
                self.simulation.recheck_at = None;
                self.simulation.is_stale = true;
            }
            Fault::Relist => {
                let kind = self.unseen().swap_remove(which);
                let controller = &mut self.simulation.readers[CONTROLLER];
                self.unlisted = controller.relist(&self.simulation.store, &kind);
                self.simulation.is_stale = true;
            }
            Fault::LoseNode => self.simulation.lose_node(&self.nodes()[which]),
            Fault::Cordon => {
                let name = self.nodes().swap_remove(which);
                self.simulation.edit("Node", &name)["spec"]["unschedulable"] = json!(true);
            }
            Fault::DropPlaceholder => {
                let id = Id::of(self.placeholders()[which]);
                self.simulation.store.delete(&id);
            }
            Fault::DropMember => {
                let present = self.members().iter().filter(|name| self.simulation.has("Pod", name));
                let id = present.map(|name| Id::in_tests("Pod", name)).nth(which);
                self.simulation.store.delete(&id.expect("one of them"));
            }
            Fault::DropSet => {
                let id = self.sets().swap_remove(which);
                self.simulation.store.delete(&id);
            }
            Fault::HoldPlaceholder => {
                let id = self.unplaced().swap_remove(which);
                let mut pod = self.simulation.store.edit(&id).expect("it exists");
                pod["spec"]["schedulingGates"] = json!([{"name": "example.com/quota"}]);
                pod["metadata"]["labels"]["example.com/queue"] = json!("q");
            }
            Fault::Touch => {
                let id = self.touched().swap_remove(which);
                let mut object = self.simulation.store.edit(&id).expect("it exists");
                object["metadata"]["labels"]["example.com/touched"] = json!("true");
            }
            Fault::LateWebhook => {
                let number = self.admitted(Some(&self.beginning))[which];
                self.create(number, (*self.beginning).clone());
            }
            Fault::Unseen => {
                let mut pod = self.scope.pod(self.missing()[which]);
                pod["metadata"]["labels"][UNSEEN] = json!("true");
                self.simulation.store.create(pod).expect("it is missing");
            }
            Fault::StopKubelet => {
                let node = self.nodes().swap_remove(which);
                self.silence(&node);
                self.evict(&node);
            }
            Fault::PauseKubelet => {
                let node = self.nodes().swap_remove(which);
                self.silence(&node);
                self.away = Some((node, false));
            }
            Fault::Fill => {
                let requests = json!({"requests": {"cpu": "2500m"}});
                let pod = json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": OTHER, "namespace": NAMESPACE},
                    "spec": {
                        "nodeName": self.roomy()[which],
                        "containers": [{"name": "c", "image": "i", "resources": requests}],
                    },
                    "status": {"phase": "Running"},
                });
                self.simulation.store.create(pod).expect("there is one at most");
            }
        }
    }

    /// The kubelet of a node no longer answers.
    fn silence(&mut self, name: &str) {
        let taint = |effect: &str| json!({"key": UNREACHABLE, "effect": effect});
        let mut node = self.simulation.edit("Node", name);
        node["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
        let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.extend([taint("NoSchedule"), taint("NoExecute")]);
        node["spec"]["taints"] = taints.into();
    }

    fn evict(&mut self, node: &str) {
        let is_there = |pod: &&Value| pod["spec"]["nodeName"] == *node;
        let pods: Vec<Id> = self.simulation.all("Pod").filter(is_there).map(Id::of).collect();
        pods.iter().for_each(|pod| self.simulation.store.delete(pod));
    }

    /// Creates a pod by way of a webhook.
    fn create(&mut self, number: usize, webhook: Reader) {
        let readers = &mut self.simulation.readers;
        readers.push(webhook);
        let webhook = readers.len() - 1;
        let is_changed = self.simulation.admit(webhook, self.scope.pod(number));
        assert!(is_changed, "{} is in no group", self.members()[number]);
        self.simulation.readers.pop();
    }

    fn node_of(&self, name: &str) -> Option<&str> {
        self.simulation.find("Pod", name)?["spec"]["nodeName"].as_str()
    }

    /// Fails if pods that must share a node, or must not, are on the wrong nodes. A group may run on two nodes
    /// while pods of it end on one that takes no pods any more, or whose kubelet has answered again. A pod that the
    /// webhook did not see may be anywhere. Two runs may meet once a queue keeps the placeholder of one, unless a
    /// placeholder is there.
    pub(super) fn check(&self) {
        let may_end = |number: usize, node: &str| {
            let is_left = !self.is_open(node) || self.has_returned && self.is_ending(number);
            matches!(self.scope, Scope::Pair | Scope::Trio) && is_left
        };
        let seen = self.members().iter().enumerate().filter(|(_, name)| !self.is_unseen(name));
        let bound = seen.filter_map(|(number, name)| Some((number, self.node_of(name)?)));
        let bound: Vec<_> = bound.filter(|(number, node)| !may_end(*number, node)).collect();
        let different: HashSet<&str> = bound.iter().map(|(_, node)| *node).collect();
        let may_meet = self.scope == Scope::Apart
            && self.may_be_bare
            && !bound.iter().any(|(number, node)| self.is_held(*number, node));
        match self.scope.relation() {
            Nodes::Same => assert!(different.len() < 2, "on two nodes: {bound:?}"),
            Nodes::Different => {
                let are_apart = different.len() == bound.len();
                assert!(are_apart || may_meet, "both are on one node: {bound:?}");
            }
            Nodes::Any => {}
        }
    }

    /// Fails if a write deletes a pod that runs and is no placeholder.
    fn check_write(&self, action: &Action) {
        let is_deletion = matches!(action.write, Write::Delete { .. });
        if is_deletion && self.members().contains(&&*action.target.name) {
            let pod = self.simulation.find("Pod", &action.target.name);
            let runs = pod.is_some_and(|pod| {
                pod["status"]["phase"] == "Running" && pod["metadata"]["uid"] == *action.target.uid
            });
            assert!(!runs, "{} runs and is deleted", action.target.name);
        }
    }

    /// Fails if a pod does not run, where nothing is possible any more and a node takes pods. Pods wait for one of their group that runs on
    /// a node that takes no pods any more. Of pods that must be apart those wait for which no node is left, or whose node
    /// in a pool takes no pods.
    pub(super) fn check_rest(&self) {
        let nodes: Vec<_> = self.members().iter().map(|name| self.node_of(name)).collect();
        let waiting = nodes.iter().filter(|node| node.is_none()).count();
        let takes_pods = |node: &str| self.is_open(node) && !self.is_full(node);
        let all = self.nodes();
        let closed = all.iter().filter(|node| !takes_pods(node)).count();
        let most = self.simulation.node_groups.iter().map(|group| group.most).sum::<usize>();
        let open = all.len().max(most) - closed;
        let may_wait = match self.scope {
            _ if open == 0 => self.members().len(),
            // The members of a pool are replaced when they are deleted, and not before.
            Scope::Pools => closed,
            // A job is placed as a whole.
            Scope::Exlocated if open < self.scope.needed_nodes() => self.members().len(),
            // A worker that the webhook did not see is none of the cluster, and the launcher waits for another one.
            Scope::Mpi if self.is_unseen(self.members()[1]) => 1,
            of if of.relation() == Nodes::Different => of.needed_nodes().saturating_sub(open),
            _ if nodes.iter().flatten().any(|node| !takes_pods(node)) => self.members().len() - 1,
            _ => 0,
        };
        assert!(waiting <= may_wait, "a pod waits: {nodes:?}");
    }

    /// Returns true if the pod of this number is being deleted.
    fn is_ending(&self, number: usize) -> bool {
        let pod = self.simulation.find("Pod", self.members()[number]);
        pod.is_some_and(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
    }

    /// Returns true if the webhook did not see the pod of this name.
    fn is_unseen(&self, name: &str) -> bool {
        let pod = self.simulation.find("Pod", name);
        pod.is_some_and(|pod| !pod["metadata"]["labels"][UNSEEN].is_null())
    }

    fn is_open(&self, node: &str) -> bool {
        self.simulation.is_ready(node)
            && self.simulation.get("Node", node)["spec"]["unschedulable"] != true
    }

    fn is_full(&self, node: &str) -> bool {
        self.node_of(OTHER) == Some(node)
    }
}
