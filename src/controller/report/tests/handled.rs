//! Random clusters with objects of all systems, in which pods are admitted by the webhook's decision, and the
//! controller, the scheduler and the cluster change them and everything else afterwards: no pod that has
//! passed the webhook is reported, counted or recreated at any time, and each that has not is.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

use super::*;
use stowplan_core::admission::stored::Unreviewed;
use stowplan_core::admission::{Admission, Decision};
use stowplan_core::simulation::testing::NAMESPACE;
use stowplan_core::simulation::{
    ALL, CONTROLLER, CONTROLLER_ALONE, Event as Happening, Id, Simulation, patch,
};
use stowplan_core::view::Scope;

/// Policies that admit pods in different ways.
const POLICIES: [&str; 7] = [
    "",
    "recordPlacement: false",
    "coschedule: {binding: node}",
    "coschedule: {binding: auto, volumes: provision}",
    "streams: {compat: upstream}",
    "streams: {unmet: wait}",
    "katalyst: {mode: enforced, declaredLabels: [role]}",
];

/// Nodes of the cluster from its beginning, and others that join.
const NODES: [&str; 11] = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "bare", "late"];

/// The next step.
#[derive(Clone, Debug)]
enum Step {
    /// Somebody creates an object, or deletes it.
    Object(Index, bool),
    /// A workload creates a pod, which passes the webhook.
    Admit(Index),
    /// A pod is deleted, or ends.
    End(Index, bool),
    /// Programs of the cluster do what they can next, in this order.
    Run(Vec<Index>),
    /// They do all that they can.
    Settle,
    /// The MPI workers that run become Ready, with DNS names.
    Serve,
    Node(Index, Change),
    /// Lets a quota allow or forbid the StatefulSet controller to create pods.
    Quota(bool),
    Wait(i64),
}

#[derive(Clone, Debug)]
enum Change {
    Join,
    Lose,
    Cordon(bool),
    Ready(bool),
    Tag(bool),
    /// Katalyst reports its NUMA nodes, or nothing any more.
    Numa(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let change = prop_oneof![
        2 => Just(Change::Join),
        1 => Just(Change::Lose),
        2 => any::<bool>().prop_map(Change::Cordon),
        2 => any::<bool>().prop_map(Change::Ready),
        2 => any::<bool>().prop_map(Change::Tag),
        2 => any::<bool>().prop_map(Change::Numa),
    ];
    prop_oneof![
        2 => (any::<Index>(), prop::bool::weighted(0.6)).prop_map(|(of, is_new)| Step::Object(of, is_new)),
        8 => any::<Index>().prop_map(Step::Admit),
        1 => (any::<Index>(), any::<bool>()).prop_map(|(of, ends)| Step::End(of, ends)),
        6 => prop::collection::vec(any::<Index>(), 1..12).prop_map(Step::Run),
        2 => Just(Step::Settle),
        1 => Just(Step::Serve),
        3 => (any::<Index>(), change).prop_map(|(node, change)| Step::Node(node, change)),
        1 => any::<bool>().prop_map(Step::Quota),
        1 => (1..90_i64).prop_map(Step::Wait),
    ]
}

fn node(name: &str) -> Value {
    let number = NODES.iter().position(|of| *of == name).unwrap();
    let mut labels = json!({"kubernetes.io/hostname": name});
    if name == "bare" {
        labels = json!({});
    }
    if number < 2 {
        labels["streams.ibm.com/hostpool"] = json!("ib");
    }
    super::node(
        name,
        &json!({
            "metadata": {"labels": labels},
            "status": {
                "addresses": [{"type": "InternalIP", "address": format!("10.0.0.{number}")}],
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "20"},
            },
        }),
    )
}

fn topology(node: &str) -> Value {
    let socket = |zone: u8| {
        json!({"type": "Socket", "name": zone.to_string(), "children": [
            {"type": "Numa", "name": zone.to_string(), "allocations": []}]})
    };
    json!({
        "apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource",
        "metadata": {"name": node}, "status": {"topologyZone": [socket(0), socket(1)]},
    })
}

/// The objects besides nodes and pods.
fn objects() -> Vec<Value> {
    let object = |version: &str, kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": version, "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
    };
    let pool = |name: &str, spec: Value| object("stowplan.dev/v1alpha1", "HostPool", name, spec);
    let element = |name: &str, with: Value| {
        let mut operator = json!({"name": format!("Op-{name}")});
        json_patch::merge(&mut operator, &with);
        json!({"name": name, "operators": [operator]})
    };
    let job = json!({
        "pools": [{"name": "P", "size": 2}, {"name": "E", "size": 1, "exclusivity": "Exclusive"}],
        "processingElements": [
            element("a", json!({"host": {"name": "n1"}, "hostExlocation": ["x"]})),
            element("b", json!({"host": {"pool": "P"}, "hostColocation": ["t"]})),
            element("c", json!({"hostColocation": ["t"], "hostExlocation": ["x"]})),
            element("d", json!({"host": {"pool": "E", "index": 0}})),
            element("e", json!({"hostExlocation": ["x"]})),
            element("f", json!({})),
        ],
    });
    let claim = || json!({"accessModes": ["ReadWriteOnce"]});
    let mounted = json!({"name": "w", "persistentVolumeClaim": {"claimName": "c"}});
    let used = json!([{"name": "w", "workspace": "w"}]);
    let task = |name: &str, used: &Value| json!({"name": name, "taskRef": {"name": "t"}, "workspaces": used});
    let run = json!({
        "workspaces": [mounted],
        "pipelineSpec": {"workspaces": [{"name": "w"}],
            "tasks": [task("one", &used), task("two", &used), task("free", &json!([]))]},
    });
    let template = |role: &str| {
        json!({"metadata": {"annotations": {"mpi.stowplan.dev/cluster": "c", "mpi.stowplan.dev/role": role}},
            "spec": {"containers": [{"name": "a", "image": "i"}], "restartPolicy": "Never"}})
    };
    let indexed = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2,
        "selector": {}, "template": template("worker")});
    vec![
        pool("sized", json!({"size": 2})),
        pool("own", json!({"size": 1, "exclusivity": "Exclusive"})),
        pool("tagged", json!({"tags": ["ib"]})),
        pool("few", json!({"size": 1, "tags": ["ib"]})),
        pool("listed", json!({"hosts": ["n0", "10.0.0.2"]})),
        pool("kept", json!({"hosts": ["n3"], "exclusivity": "Exclusive"})),
        pool("any", json!({})),
        object("stowplan.dev/v1alpha1", "StreamsJob", "j", job),
        object("v1", "PersistentVolumeClaim", "c", claim()),
        object("v1", "PersistentVolumeClaim", "g", claim()),
        object("tekton.dev/v1", "PipelineRun", "run", run),
        object(
            "batch/v1",
            "Job",
            "launch",
            json!({"selector": {}, "template": template("launcher")}),
        ),
        object("batch/v1", "Job", "work", indexed),
    ]
}

/// The pods that workloads create.
fn pods() -> Vec<Value> {
    let owned = |kind: &str, name: &str| {
        let version = match kind {
            "Job" => "batch/v1",
            "TaskRun" => "tekton.dev/v1",
            _ => "apps/v1",
        };
        json!([{"apiVersion": version, "kind": kind, "name": name, "uid": name, "controller": true}])
    };
    let pod = |name: &str, annotations: Value, with: Value| {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {},
                "ownerReferences": owned("ReplicaSet", "w")},
            "spec": {"containers": [{"name": "a", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        });
        json_patch::merge(&mut pod["metadata"]["annotations"], &annotations);
        json_patch::merge(&mut pod, &with);
        pod
    };
    let streams = |name: &str, key: &str, value: &str| {
        let labels =
            json!({"app": "streams", "streams.ibm.com/job": "k", "streams.ibm.com/pe": name});
        pod(
            name,
            json!({format!("streams.ibm.com/{key}"): value}),
            json!({"metadata": {"labels": labels}}),
        )
    };
    let of_job = |element: &str| {
        let labels =
            json!({"app": "streams", "streams.ibm.com/job": "j", "streams.ibm.com/pe": element});
        pod(&format!("j-{element}"), json!({}), json!({"metadata": {"labels": labels}}))
    };
    let with_claim =
        |claim: &str| json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    let of_run = |task: &str, spec: Value| {
        let mut pod = pod(
            &format!("run-{task}-pod"),
            json!({}),
            json!({"metadata": {"ownerReferences": owned("TaskRun", &format!("run-{task}"))}}),
        );
        json_patch::merge(&mut pod["spec"], &spec);
        pod
    };
    let beside = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}]}});
    let grouped = |name: &str, with: Value| {
        let mut pod = pod(name, json!({"stowplan.dev/coschedule-group": "g"}), json!({}));
        json_patch::merge(&mut pod, &with);
        pod
    };
    let mpi = |name: &str, role: &str, job: &str, hostname: Option<&str>| {
        let index = hostname.and_then(|of| of.rsplit('-').next());
        pod(
            name,
            json!({"mpi.stowplan.dev/cluster": "c", "mpi.stowplan.dev/role": role,
                "batch.kubernetes.io/job-completion-index": index}),
            json!({"metadata": {"ownerReferences": owned("Job", job)}, "spec": {"hostname": hostname}}),
        )
    };
    let numa = |name: &str, role: &str, side: &str, other: &str| {
        let selector = json!({"required": [{"matchLabels": {"role": other}, "zone": "numa"}]});
        pod(
            name,
            json!({
                "katalyst.kubewharf.io/qos_level": "dedicated_cores",
                "katalyst.kubewharf.io/memory_enhancement": r#"{"numa_binding":"true"}"#,
                format!("katalyst.kubewharf.io/microtopology_{side}"): selector.to_string(),
            }),
            json!({"metadata": {"labels": {"role": role}}}),
        )
    };
    let both = |mut pod: Value, name: &str, key: &str, value: &str| {
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["annotations"][key] = json!(value);
        pod
    };
    let mut bare = streams("bare", "host-pool", "sized");
    bare["metadata"]["ownerReferences"] = json!([]);
    vec![
        streams("host", "host", "n1"),
        streams("address", "host", "10.0.0.2"),
        streams("sized-0", "host-pool", "sized[0]"),
        streams("sized", "host-pool", "sized"),
        streams("own", "host-pool", "own"),
        streams("tagged", "host-pool", "tagged"),
        streams("few", "host-pool", "few"),
        streams("listed", "host-pool", "listed"),
        streams("listed-1", "host-pool", "listed[1]"),
        streams("kept", "host-pool", "kept"),
        streams("any", "host-pool", "any"),
        streams("together", "host-colocation", "t"),
        streams("apart", "host-exlocation", "x"),
        streams("alone", "host-isolation", "Sink"),
        bare,
        of_job("a"),
        of_job("b"),
        of_job("c"),
        of_job("d"),
        of_job("e"),
        of_job("f"),
        both(of_job("b"), "j-b-grouped", "stowplan.dev/coschedule-group", "h"),
        of_run("one", json!({"volumes": with_claim("c")})),
        of_run("two", json!({"volumes": with_claim("c"), "affinity": beside})),
        of_run("free", json!({})),
        grouped("g-0", json!({"spec": {"volumes": with_claim("g")}})),
        grouped("g-1", json!({"spec": {"affinity": beside}})),
        grouped("g-2", json!({"metadata": {"ownerReferences": []}})),
        both(grouped("g-3", json!({})), "g-3", "streams.ibm.com/host-pool", "tagged"),
        both(streams("g-4", "host-exlocation", "y"), "g-4", "stowplan.dev/coschedule-group", "i"),
        mpi("launch-x", "launcher", "launch", None),
        mpi("work-0-x", "worker", "work", Some("work-0")),
        mpi("work-1-x", "worker", "work", Some("work-1")),
        both(
            mpi("work-0-y", "worker", "work", Some("work-0")),
            "work-0-y",
            "streams.ibm.com/host-pool",
            "sized",
        ),
        numa("ring", "ring", "affinity", "ring"),
        numa("ps", "ps", "antiaffinity", "worker"),
        numa("worker", "worker", "affinity", "ps"),
        both(
            numa("few-ps", "ps", "antiaffinity", "ps"),
            "few-ps",
            "streams.ibm.com/host-pool",
            "few",
        ),
    ]
}

struct World {
    simulation: Simulation,
    webhook: usize,
    /// The report of a controller that has seen every version of every pod.
    report: Report,
    /// The versions of pods that it has seen.
    seen: BTreeMap<Name, String>,
    /// The pods with which the webhook had nothing to do.
    unchanged: BTreeSet<String>,
}

impl World {
    fn new(policy: &str) -> Self {
        let mut policy = Policy::from_yaml(policy).unwrap();
        policy.repair = Repair::RecreatePending;
        policy.coschedule.placeholder.image = "stowplan:1".to_owned();
        let mut simulation = Simulation::new(policy, "2026-01-01T00:00:00Z".parse().unwrap());
        simulation.store.set_uids(|id, number| match &*id.kind {
            // The pods name their owners.
            "Job" | "TaskRun" => id.name.to_string(),
            _ => format!("uid-{number}"),
        });
        let webhook = simulation.add_reader(Scope::Admission);
        let mut world = Self {
            simulation,
            webhook,
            report: Report::default(),
            seen: BTreeMap::new(),
            unchanged: BTreeSet::new(),
        };
        world.create(
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        );
        NODES[..9].iter().for_each(|name| world.create(&node(name)));
        ["n0", "n1"].iter().for_each(|name| world.create(&topology(name)));
        world
    }

    fn create(&mut self, document: &Value) {
        // Nothing if it exists.
        if self.simulation.store.create(document.clone()).is_err() {
            return;
        }
        if document["kind"] == "PipelineRun" {
            let uid = self.simulation.get("PipelineRun", "run")["metadata"]["uid"].clone();
            let owners = controlled_by("PipelineRun", "run", uid.as_str().unwrap());
            for task in ["one", "two", "free"] {
                self.create(&json!({
                    "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
                    "metadata": {"name": format!("run-{task}"), "namespace": NAMESPACE,
                        "labels": {"tekton.dev/pipelineTask": task}, "ownerReferences": owners},
                }));
            }
        }
    }

    /// Decides about a pod as the webhook does. `None`: it is refused.
    fn decide(&mut self, pod: &Value) -> Option<Admission> {
        self.simulation.catch_up(self.webhook);
        let view = self.simulation.view_of(self.webhook);
        let (resource, namespace, policy) = (&POD, NAMESPACE, &self.simulation.policy);
        let created = Unreviewed { resource, namespace, object: pod, view, policy };
        match created.decide_creation().unwrap() {
            Decision::Admit(admission) => Some(admission),
            Decision::Pass(_) => Some(Admission::default()),
            _ => None,
        }
    }

    fn admit(&mut self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap();
        if self.simulation.has("Pod", name) {
            return;
        }
        let Some(admission) = self.decide(pod) else { return };
        let mut admitted = pod.clone();
        patch(&mut admitted, &admission.patch.operations()).unwrap();
        match admission.patch.is_empty() {
            true => self.unchanged.insert(name.to_owned()),
            false => self.unchanged.remove(name),
        };
        self.simulation.store.create(admitted).unwrap();
    }

    fn take(&mut self, step: &Step) {
        let pods = pods();
        match step {
            Step::Object(of, true) => self.create(of.get(&objects())),
            Step::Object(of, false) => {
                let id = Id::of(of.get(&objects()));
                self.simulation.store.delete(&id);
            }
            Step::Admit(of) => self.admit(of.get(&pods)),
            Step::End(of, ends) => {
                let id = Id::of(of.get(&pods));
                match ends {
                    false => self.simulation.store.delete(&id),
                    true => {
                        if let Some(mut pod) = self.simulation.store.edit(&id) {
                            pod["status"]["phase"] = json!("Succeeded");
                        }
                    }
                }
            }
            Step::Run(choices) => {
                for choice in choices {
                    let possible: Vec<_> = self.simulation.possible(ALL).collect();
                    let Some(len) = (!possible.is_empty()).then_some(possible.len()) else {
                        return;
                    };
                    self.simulation.apply(possible[choice.index(len)].clone());
                    self.check();
                }
            }
            Step::Settle => self.settle(),
            Step::Serve => self.serve(),
            Step::Node(of, change) => self.change(NODES[of.index(NODES.len())], change),
            Step::Quota(has_room) => self.simulation.makes_pods = *has_room,
            Step::Wait(seconds) => {
                let now = &mut self.simulation.store.now;
                *now = now.checked_add(SignedDuration::from_secs(*seconds)).unwrap();
                self.simulation.apply(Happening::Plan);
            }
        }
    }

    /// Everything that is possible happens, at most a number of times: some states never end.
    fn settle(&mut self) {
        for _ in 0..150 {
            let Some(event) = self.simulation.possible(ALL).next() else { return };
            self.simulation.apply(event);
            self.check();
        }
    }

    /// The controller does all that it can.
    fn settle_controller(&mut self) {
        for _ in 0..150 {
            let Some(event) = self.simulation.possible(CONTROLLER_ALONE).next() else { return };
            self.simulation.apply(event);
            self.check();
        }
    }

    fn serve(&mut self) {
        let workers: Vec<Value> = self
            .simulation
            .all("Pod")
            .filter(|pod| pod["spec"]["subdomain"] == "c" && pod["status"]["phase"] == "Running")
            .cloned()
            .collect();
        let endpoint = |pod: &Value| {
            json!({"addresses": ["10.1.0.1"], "hostname": pod["spec"]["hostname"],
            "targetRef": {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}})
        };
        let endpoints: Vec<Value> = workers.iter().map(endpoint).collect();
        for worker in &workers {
            let mut pod = self.simulation.store.edit(&Id::of(worker)).unwrap();
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
            pod["status"]["containerStatuses"] = json!([{"name": "a", "image": "", "imageID": "",
                "ready": true, "restartCount": 0, "state": {"running": {}}}]);
        }
        self.simulation.store.put(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "c-1", "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": "c"}},
            "endpoints": endpoints,
        }));
    }

    fn change(&mut self, name: &str, change: &Change) {
        let id = Id::new("Node", "", name);
        match change {
            Change::Join => return self.create(&node(name)),
            Change::Lose => return self.simulation.lose_node(name),
            Change::Numa(true) => return self.create(&topology(name)),
            Change::Numa(false) => {
                self.simulation.store.remove(&Id::new("CustomNodeResource", "", name));
                return;
            }
            _ => {}
        }
        let Some(mut node) = self.simulation.store.edit(&id) else { return };
        match change {
            Change::Cordon(cordoned) => node["spec"]["unschedulable"] = json!(cordoned),
            Change::Ready(ready) => {
                let status = if *ready { "True" } else { "Unknown" };
                node["status"]["conditions"] = json!([{"type": "Ready", "status": status}]);
            }
            Change::Tag(true) => {
                node["metadata"]["labels"]["streams.ibm.com/hostpool"] = json!("ib")
            }
            Change::Tag(false) => {
                node["metadata"]["labels"]
                    .as_object_mut()
                    .unwrap()
                    .remove("streams.ibm.com/hostpool");
            }
            _ => {}
        }
    }

    /// The pods that the webhook has changed, and those of placeholders.
    fn pods(&self) -> impl Iterator<Item = (Name, &Value)> {
        let name = |pod: &Value| Name::new(NAMESPACE, pod["metadata"]["name"].as_str().unwrap());
        let pods = self.simulation.all("Pod").map(move |pod| (name(pod), pod));
        pods.filter(|(name, _)| !self.unchanged.contains(&*name.name))
    }

    /// Nothing is reported, counted or recreated by the controller that has seen everything, nor of the pods
    /// that have just changed by one that starts now.
    #[track_caller]
    fn check(&mut self) {
        let version = |pod: &Value| pod["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let versions: BTreeMap<Name, String> =
            self.pods().map(|(name, pod)| (name, version(pod))).collect();
        self.seen.keys().filter(|name| !versions.contains_key(name)).for_each(|name| {
            self.report.see(PodChange::Deleted(name));
        });
        let starting = Report::default();
        for (name, pod) in self.pods().filter(|(name, _)| versions.get(name) != self.seen.get(name))
        {
            let pod: Pod =
                serde_json::from_value(pod.clone()).unwrap_or_else(|of| panic!("{name:?}: {of}"));
            self.report.see(PodChange::Current(&pod));
            starting.see(PodChange::Current(&pod));
        }
        self.seen = versions;
        self.judge("the same controller", &self.report);
        self.judge("a new one", &starting);
    }

    /// Checks all pods with a controller that starts now.
    #[track_caller]
    fn check_all(&self) {
        let starting = Report::default();
        for (_, pod) in self.pods() {
            starting.see(PodChange::Current(&serde_json::from_value(pod.clone()).unwrap()));
        }
        self.judge("a new one", &starting);
    }

    #[track_caller]
    fn judge(&self, who: &str, report: &Report) {
        let Simulation { policy, store, .. } = &self.simulation;
        let actions = report.plan(self.simulation.view_of(CONTROLLER), policy, store.now).actions;
        if let Some(action) = actions.first() {
            let pod = self.simulation.get("Pod", &action.target.name);
            panic!("{who}: {:?} of {pod:#}", action.events);
        }
        assert_eq!((report.unplaced(), report.stripped()), (0, 0), "{who}");
    }
}

/// Fewer cases than proptest's 256, which would take minutes, unless `PROPTEST_CASES` says another number.
fn config() -> ProptestConfig {
    let config = ProptestConfig::default();
    let cases = if config.cases == 256 { 60 } else { config.cases };
    ProptestConfig { cases, max_shrink_time: 60_000, ..config }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_pod_that_has_passed_the_webhook_is_reported(
        policy in prop::sample::select(&POLICIES[..]),
        first in subsequence((0..objects().len()).collect::<Vec<_>>(), 5..objects().len()),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut world = World::new(policy);
        let all = objects();
        first.into_iter().for_each(|of| world.create(&all[of]));
        world.settle();
        for step in &steps {
            world.take(step);
            world.check();
            world.check_all();
        }
    }
}

/// The property above could fail: of each kind of pod, the one that has not passed the webhook is reported and
/// counted, and deleted if it is pending and its owner creates it again.
#[test]
fn each_pod_that_has_not_passed_the_webhook_is_reported() {
    for policy in POLICIES {
        let mut world = World::new(policy);
        objects().iter().for_each(|of| world.create(of));
        world.settle();
        let mut reported = BTreeSet::new();
        let all = pods();
        for pod in &all {
            let Some(admission) = world.decide(pod) else { continue };
            // It would get nothing but a record.
            if admission.intents.is_empty() {
                continue;
            }
            let name = pod["metadata"]["name"].as_str().unwrap();
            let created = world.simulation.store.create(pod.clone()).unwrap().clone();
            world.simulation.catch_up(CONTROLLER);
            let report = Report::default();
            report.see(PodChange::Current(&serde_json::from_value(created.clone()).unwrap()));
            let Simulation { policy: of, store, .. } = &world.simulation;
            let later = store.now.checked_add(SignedDuration::from_mins(2)).unwrap();
            let plan = report.plan(world.simulation.view_of(CONTROLLER), of, later);
            // Without records it is not known which pods were decided about.
            if !of.record_placement {
                assert_eq!((report.unplaced(), plan.actions.len()), (0, 0), "{name}");
                continue;
            }
            let is_deleted =
                matches!(plan.actions[..], [Action { write: Write::Delete { .. }, .. }]);
            let is_owned =
                pod["metadata"]["ownerReferences"].as_array().is_some_and(|of| !of.is_empty());
            assert_eq!((report.unplaced(), is_deleted), (1, is_owned), "{policy}: {name}");
            reported.insert(name);
            world.simulation.remove_pod(&Id::of(pod));
        }
        let fewest = if world.simulation.policy.record_placement { all.len() - 6 } else { 0 };
        assert!(reported.len() >= fewest, "{policy}: {reported:?}");
    }
}

/// A change that a decision makes now, and did not make at the pod's admission, was not removed since.
#[test]
fn a_pod_is_compared_with_what_was_decided_then() {
    let pod = |name: &str| pods().into_iter().find(|of| of["metadata"]["name"] == *name).unwrap();
    let object = |kind: &str, name: &str| {
        let mut all = objects().into_iter();
        all.find(|of| of["kind"] == *kind && of["metadata"]["name"] == *name).unwrap()
    };

    // A node with NUMA nodes joins.
    let mut world = World::new("");
    NODES.iter().for_each(|node| world.change(node, &Change::Numa(false)));
    world.settle();
    world.admit(&pod("ps"));
    world.change("n5", &Change::Numa(true));
    world.settle_controller();
    let view = world.simulation.view_of(CONTROLLER);
    assert!(view.node_label("n5", "stowplan.dev/numa-zones").flatten().is_some());
    world.check_all();

    // The gate of a pod is removed without a node, as where its group has no placeholder, and that gets one.
    let mut world = World::new("");
    world.admit(&pod("g-1"));
    world.simulation.edit("Pod", "g-1")["spec"]["schedulingGates"] = Value::Null;
    world.settle();
    world.check_all();

    // A job comes to serve a pod of an MPI cluster.
    let mut world = World::new("");
    let mut launcher = pod("launch-x");
    launcher["metadata"]["labels"] = pod("j-b")["metadata"]["labels"].clone();
    world.admit(&launcher);
    world.create(&object("StreamsJob", "j"));
    world.settle_controller();
    world.check_all();

    // Without records, a launcher whose workers are ready.
    let mut world = World::new("recordPlacement: false");
    ["launch", "work"].iter().for_each(|job| world.create(&object("Job", job)));
    ["launch-x", "work-0-x", "work-1-x"].iter().for_each(|name| world.admit(&pod(name)));
    world.settle();
    world.serve();
    world.settle();
    assert!(world.simulation.get("Pod", "launch-x")["spec"]["schedulingGates"].is_null());
    world.check_all();
}
