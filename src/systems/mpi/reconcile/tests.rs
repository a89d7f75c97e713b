//! What is planned for the states of a cluster.

use serde_json::{Value, json};

use super::*;
use crate::simulation::{CONTROLLER, Id, Outcome, Simulation};
use crate::systems::mpi::config::HOSTFILE;
use crate::systems::mpi::keys::{CLEANED_AFTER, GATE, KEY_STATE};
use crate::systems::plan::{Confirmation, IfTaken};

const NOW: &str = "2026-01-01T01:00:00Z";

/// A simulation with one MPI cluster `c` in namespace `ns`, of which the controller has seen everything.
struct World(Simulation);

impl World {
    fn new() -> Self {
        let simulation = Simulation::new(Policy::default(), NOW.parse().unwrap());
        let mut world = Self(simulation.with_planner(plan));
        world.0.store.set_uids(|id, _| format!("uid-{}", id.name));
        for node in ["n1", "n2"] {
            world.node(node, true);
        }
        world
    }

    fn add(&mut self, document: Value) {
        self.0.store.put(document);
        self.0.catch_up(CONTROLLER);
    }

    fn remove(&mut self, kind: &str, name: &str) {
        self.0.store.remove(&Id::new(kind, "ns", name));
        self.0.catch_up(CONTROLLER);
    }

    /// A text in the ConfigMap of the cluster.
    fn data(&self, key: &str) -> &str {
        let map = self.0.store.get(&Id::new("ConfigMap", "ns", "c-mpi")).unwrap();
        map["data"][key].as_str().unwrap()
    }

    fn node(&mut self, name: &str, ready: bool) {
        let status = if ready { "True" } else { "Unknown" };
        self.add(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        }));
    }

    fn job(&mut self, name: &str, role: &str, annotations: &[(&str, &str)], rest: &Value) {
        self.add(workload("batch/v1", "Job", name, role, annotations, rest));
    }

    fn set(&mut self, name: &str, annotations: &[(&str, &str)], rest: &Value) {
        self.add(workload("apps/v1", "StatefulSet", name, "worker", annotations, rest));
    }

    /// A launcher Job with a gated pod, and an Indexed Job of workers that are Ready and have records.
    fn complete(workers: u32) -> Self {
        let mut world = Self::new();
        world.job("launch", "launcher", &[], &json!({}));
        world.launcher("launch-x", "launch", true);
        world.job("w", "worker", &[("slots", "2")], &indexed(workers));
        for index in 0..workers {
            world.worker("w", index, true);
        }
        world.records("c", (0..workers).map(|index| format!("w-{index}")));
        world
    }

    /// A pod of a worker.
    fn worker(&mut self, workload: &str, index: u32, ready: bool) {
        let status = if ready { "True" } else { "False" };
        self.add(pod(
            &format!("{workload}-{index}-x"),
            "worker",
            workload,
            &json!({"hostname": format!("{workload}-{index}"), "nodeName": "n1"}),
            &json!({
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": status}],
                "containerStatuses": [{"name": "a", "image": "", "imageID": "", "ready": ready,
                    "restartCount": 0, "state": {"running": {}}}],
            }),
        ));
    }

    /// A pod of a launcher, gated or running on node n2.
    fn launcher(&mut self, name: &str, workload: &str, gated: bool) {
        let spec = match gated {
            true => json!({"schedulingGates": [{"name": "other"}, {"name": GATE}]}),
            false => json!({"nodeName": "n2"}),
        };
        self.add(pod(name, "launcher", workload, &spec, &json!({"phase": "Pending"})));
    }

    /// The DNS records of a Service.
    fn records(&mut self, service: &str, hostnames: impl Iterator<Item = String>) {
        let endpoints: Vec<Value> = hostnames
            .map(|hostname| json!({"addresses": ["10.0.0.1"], "hostname": hostname}))
            .collect();
        self.add(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": format!("{service}-1"), "namespace": "ns", "uid": service,
                "labels": {"kubernetes.io/service-name": service}},
            "endpoints": endpoints,
        }));
    }

    /// Applies the creations of a plan, as the API server answers them.
    fn apply(&mut self, plan: &Plan) {
        for action in &plan.actions {
            if let Write::Create(_) = &action.write {
                assert_eq!(self.0.carry_out(action.clone()), Outcome::Done);
            }
        }
        self.0.catch_up(CONTROLLER);
    }

    /// Sets the annotation of the ConfigMap that stowplan has made.
    fn key_state(&mut self, state: &str) {
        let mut map = self.0.store.edit(&Id::new("ConfigMap", "ns", "c-mpi")).unwrap();
        map["metadata"]["annotations"] = json!({KEY_STATE: state});
        drop(map);
        self.0.catch_up(CONTROLLER);
    }

    fn plan(&self) -> Plan {
        self.0.make_plan()
    }

    /// The complete state: the objects are made, and the Secret too.
    fn with_objects(mut self) -> Self {
        self.apply(&self.plan());
        self.key_state("uid-secret");
        self
    }
}

fn indexed(count: u32) -> Value {
    json!({"completionMode": "Indexed", "completions": count, "parallelism": count})
}

fn workload(
    version: &str,
    kind: &str,
    name: &str,
    role: &str,
    annotations: &[(&str, &str)],
    rest: &Value,
) -> Value {
    let mut template = json!({
        "metadata": {"annotations": {
            "mpi.stowplan.dev/cluster": "c", "mpi.stowplan.dev/role": role}},
        "spec": {"containers": [{"name": "a"}], "restartPolicy": "Never"},
    });
    for (key, value) in annotations {
        template["metadata"]["annotations"][format!("mpi.stowplan.dev/{key}")] = json!(value);
    }
    let mut document = json!({
        "apiVersion": version, "kind": kind,
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"template": template},
    });
    if kind == "StatefulSet" {
        document["spec"]["selector"] = json!({});
        document["spec"]["serviceName"] = json!("");
    }
    for (key, value) in rest.as_object().into_iter().flatten() {
        match key.as_str() {
            "status" | "metadata" => {
                for (field, value) in value.as_object().into_iter().flatten() {
                    document[key][field] = value.clone();
                }
            }
            _ => document["spec"][key] = value.clone(),
        }
    }
    document
}

fn pod(name: &str, role: &str, workload: &str, rest: &Value, status: &Value) -> Value {
    let mut spec = json!({"containers": [{"name": "a"}]});
    for (key, value) in rest.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "7",
            "labels": {"mpi.stowplan.dev/cluster": "c", "mpi.stowplan.dev/role": role},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Job", "name": workload,
                "uid": workload, "controller": true}]},
        "spec": spec, "status": status,
    })
}

/// The actions of a plan, as `verb kind name`.
fn writes(plan: &Plan) -> Vec<String> {
    let writes = plan.actions.iter().filter(|action| !matches!(action.write, Write::None));
    let mut writes: Vec<String> = writes
        .map(|it| format!("{} {} {}", it.verb(), it.target.resource.plural, it.target.name))
        .collect();
    writes.sort();
    writes
}

/// The events of a plan, as `reason kind name`.
fn events(plan: &Plan) -> Vec<String> {
    let of_action = |action: &Action| {
        let Target { resource, name, .. } = &action.target;
        let texts =
            action.events.iter().map(|of| format!("{} {} {name}", of.reason, resource.kind));
        texts.collect::<Vec<_>>()
    };
    let mut events: Vec<String> = plan.actions.iter().flat_map(of_action).collect();
    events.sort();
    events
}

fn note(plan: &Plan, reason: &str) -> String {
    let mut events = plan.actions.iter().flat_map(|action| &action.events);
    events.find(|event| event.reason == reason).map(|event| event.note.clone()).unwrap_or_default()
}

fn creation(plan: &Plan) -> (&crate::systems::plan::Creation, &Action) {
    let found = plan.actions.iter().find_map(|action| match &action.confirmation {
        Some(Confirmation::Creation(creation)) => Some((&**creation, action)),
        _ => None,
    });
    found.expect("an action creates something before its write")
}

#[test]
fn the_objects_are_made_in_steps() {
    let mut world = World::complete(2);
    let first = world.plan();
    assert_eq!(writes(&first), ["create configmaps c-mpi", "create services c"]);
    let (trial, action) = creation(&first);
    assert_eq!((trial.is_trial, trial.if_taken), (true, IfTaken::Refuse));
    assert_eq!(trial.object["metadata"]["name"], "c-ssh");
    assert_eq!(trial.object["immutable"], true);
    let Write::Create(map) = &action.write else { panic!("{action:?}") };
    assert_eq!(map["metadata"]["annotations"][KEY_STATE], "making");
    assert_eq!(
        map["data"][HOSTFILE],
        "w-0.c.ns.svc.cluster.local slots=2\nw-1.c.ns.svc.cluster.local slots=2\n"
    );
    let owners = map["metadata"]["ownerReferences"].as_array().unwrap();
    let names: Vec<_> = owners.iter().map(|owner| owner["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["launch", "w"]);

    world.apply(&first);
    let second = world.plan();
    // The launcher starts as soon as the workers are there: they cannot be without the Secret.
    assert_eq!(writes(&second), ["patch configmaps c-mpi", "patch pods launch-x"]);
    let (made, action) = creation(&second);
    assert_eq!((made.is_trial, made.if_taken), (false, IfTaken::Send));
    assert!(
        made.content.is_some() && made.object["stringData"]["ssh-privatekey"] == "generated later"
    );
    assert_eq!(made.object["metadata"]["ownerReferences"][0]["uid"], "uid-c-mpi");
    let Write::Patch(operations) = &action.write else { panic!("{action:?}") };
    let recorded = |answer: Option<&Value>| {
        let operations = made.record.unwrap()(answer, operations);
        serde_json::to_value(operations).unwrap()[2]["value"].clone()
    };
    assert_eq!(recorded(Some(&json!({"metadata": {"uid": "u"}}))), "u");
    assert_eq!(recorded(None), "made", "an earlier attempt created it");

    world.key_state("u");
    assert_eq!(writes(&world.plan()), ["patch pods launch-x"]);
}

#[test]
fn no_secret_is_made_where_the_policy_forbids_it() {
    let mut world = World::complete(1);
    world.0.policy.mpi.secrets = false;
    let plan = world.plan();
    assert!(plan.actions.iter().all(|action| action.confirmation.is_none()));
    world.apply(&plan);
    assert_eq!(writes(&world.plan()), ["patch pods launch-x"]);
}

#[test]
fn a_deleted_secret_is_noticed_by_a_pod_that_hangs_and_made_again() {
    let mut world = World::complete(1).with_objects();
    let hang = |seconds: u32| {
        let at = format!("2026-01-01T00:{:02}:{:02}Z", 59 - seconds / 60, 59 - seconds % 60);
        json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]})
    };
    let spec = json!({"hostname": "w-0", "nodeName": "n1"});
    for (seconds, is_tried) in [(1, false), (15, false), (21, true), (30, false), (42, true)] {
        world.add(pod("w-0-x", "worker", "w", &spec, &hang(seconds)));
        let plan = world.plan();
        assert!(plan.recheck_at.is_some(), "{seconds}");
        assert_eq!(writes(&plan) == ["patch configmaps c-mpi"], is_tried, "{seconds}");
        if is_tried {
            let (trial, _) = creation(&plan);
            assert_eq!((trial.is_trial, trial.if_taken), (true, IfTaken::Keep));
        }
    }
    world.key_state("making again");
    let plan = world.plan();
    assert!(!creation(&plan).0.is_trial);
    assert_eq!(events(&plan), ["KeyReplaced Job w"]);
    assert!(note(&plan, "KeyReplaced").contains("kubectl delete pods -n ns -l"));
}

#[test]
fn a_launcher_starts_when_all_workers_are_ready_and_have_records() {
    let lifts = |world: &World| writes(&world.plan()).contains(&"patch pods launch-x".to_owned());
    let world = World::complete(3).with_objects();
    assert!(lifts(&world));
    assert_eq!(note(&world.plan(), "WorkersReady"), "all 3 workers are Ready and have DNS names");
    let Some(action) = world.plan().actions.pop() else { panic!("no action") };
    let Write::Patch(operations) = action.write else { panic!("{:?}", action.write) };
    let operations = serde_json::to_value(operations).unwrap();
    assert_eq!(operations[1]["value"], "7", "the index is that of this version");
    assert_eq!(operations[3], json!({"op": "remove", "path": "/spec/schedulingGates/1"}));

    let mut world = World::complete(3).with_objects();
    world.worker("w", 2, false);
    assert!(!lifts(&world), "not Ready");
    world.worker("w", 2, true);
    assert!(lifts(&world));
    world.records("c", ["w-0".to_owned(), "w-1".to_owned()].into_iter());
    assert!(!lifts(&world), "no record");
    // Of another workload with the same hostname.
    world.records("c", (0..3).map(|index| format!("w-{index}")));
    world.add(pod(
        "w-2-x",
        "worker",
        "x",
        &json!({"hostname": "w-2"}),
        &json!({
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
    ));
    assert!(!lifts(&world), "another owner");
}

#[test]
fn a_launcher_waits_for_its_files_too() {
    let mut world = World::complete(2).with_objects();
    let is_launched =
        |world: &World| events(&world.plan()).iter().any(|it| it.contains("WorkersReady"));
    assert!(is_launched(&world));
    for (kind, name) in [("ConfigMap", "c-mpi"), ("Service", "c")] {
        world.remove(kind, name);
        assert!(!is_launched(&world), "{kind}");
        world = world.with_objects();
        assert!(is_launched(&world), "{kind}");
    }
}

#[test]
fn workers_of_a_stateful_set_have_the_names_of_its_own_service() {
    let mut world = World::new();
    world.job("launch", "launcher", &[("slots", "3")], &json!({}));
    world.launcher("launch-x", "launch", true);
    world.set("mpi-workers", &[], &json!({"replicas": 2, "serviceName": "mpi-workers"}));
    let mut world = world.with_objects();
    assert_eq!(
        world.data(HOSTFILE),
        "mpi-workers-0.mpi-workers.ns.svc.cluster.local slots=3\nmpi-workers-1.mpi-workers.ns.svc.cluster.local slots=3\n"
    );
    for index in 0..2 {
        world.worker("mpi-workers", index, true);
    }
    let names = || (0..2).map(|index| format!("mpi-workers-{index}"));
    world.records("c", names());
    let plan = world.plan();
    assert_eq!(
        (writes(&plan), events(&plan)),
        (vec![], vec!["NoDnsNames Pod launch-x".to_owned()])
    );
    assert!(note(&plan, "NoDnsNames").contains("Service mpi-workers must exist"));
    world.records("mpi-workers", names());
    assert_eq!(writes(&world.plan()), ["patch pods launch-x"]);
}

#[test]
fn a_launcher_that_is_a_host_comes_first() {
    let mut world = World::new();
    let annotations = [("launcher-as-worker", "true"), ("slots", "4")];
    world.job("launch", "launcher", &annotations, &json!({}));
    world.launcher("launch-x", "launch", true);
    let lines = |world: &World| {
        let plan = world.plan();
        let map = plan.actions.iter().find_map(|action| match &action.write {
            Write::Create(document) if document["kind"] == "ConfigMap" => Some(document.clone()),
            _ => None,
        });
        map.unwrap()["data"][HOSTFILE].as_str().unwrap().to_owned()
    };
    assert_eq!(lines(&world), "c-launcher.c.ns.svc.cluster.local slots=4\n", "no worker at all");
    world.job("w", "worker", &[("slots", "1")], &indexed(1));
    assert_eq!(
        lines(&world),
        "c-launcher.c.ns.svc.cluster.local slots=4\nw-0.c.ns.svc.cluster.local slots=1\n"
    );
}

#[test]
fn what_keeps_a_cluster_from_starting_is_reported() {
    type Change = fn(&mut World);
    let cases: [(&str, Change, &str); 5] = [
        ("NoWorkers", |_| {}, "no workload of the namespace makes its workers"),
        (
            "WorkersDiffer",
            |world| world.job("w", "worker", &[("workers", "4")], &indexed(3)),
            "says 4, and the workloads make 3",
        ),
        (
            "WorkersNotAtOnce",
            |world| {
                let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 2});
                world.job("w", "worker", &[], &spec);
            },
            "Job w runs 2 of its 3 workers at once",
        ),
        (
            "HostfileTooLong",
            |world| world.set("w", &[], &json!({"replicas": 20_000})),
            "the files for 20000 hosts have at least 1",
        ),
        (
            "HostfileTooLong",
            |world| world.set("w", &[], &json!({"replicas": 2_147_483_647})),
            "the files for 2147483647 hosts",
        ),
    ];
    for (reason, change, text) in cases {
        let mut world = World::new();
        world.job("launch", "launcher", &[], &json!({}));
        world.launcher("launch-x", "launch", true);
        change(&mut world);
        let plan = world.plan();
        assert_eq!(
            events(&plan),
            [format!("{reason} Job launch"), format!("{reason} Pod launch-x")]
        );
        assert!(note(&plan, reason).contains(text), "{}", note(&plan, reason));
        assert!(!writes(&plan).contains(&"patch pods launch-x".to_owned()), "{reason}");
        let states = plan.actions.iter().filter(|action| matches!(action.write, Write::None));
        assert!(states.into_iter().all(|action| action.lasting.contains(&reason)), "{reason}");
    }
}

#[test]
fn workers_wait_for_their_launcher_without_an_event() {
    let mut world = World::new();
    world.job("w", "worker", &[("workers", "4")], &indexed(3));
    assert_eq!(events(&world.plan()), [""; 0]);
}

#[test]
fn two_launchers_are_reported_and_retries_are_not() {
    let mut world = World::complete(1).with_objects();
    world.job(
        "later",
        "launcher",
        &[],
        &json!({"metadata": {"creationTimestamp": "2026-01-01T00:30:00Z"}}),
    );
    let plan = world.plan();
    assert!(events(&plan).contains(&"SeveralLaunchers Job later".to_owned()), "{plan:?}");
    let over = json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}});
    world.job("launch", "launcher", &[], &over);
    assert!(!events(&world.plan()).iter().any(|event| event.starts_with("SeveralLaunchers")));

    // A retry waits until the pod before it has ended.
    let mut world = World::complete(1).with_objects();
    world.launcher("launch-before", "launch", false);
    assert_eq!(writes(&world.plan()), [""; 0]);
    world.node("n2", false);
    assert_eq!(writes(&world.plan()), ["patch pods launch-x"], "it may never end");
}

#[test]
fn a_worker_of_a_stateful_set_on_a_lost_node_is_reported() {
    let mut world = World::new();
    world.job("launch", "launcher", &[], &json!({}));
    world.set("w", &[], &json!({"replicas": 1, "serviceName": "s"}));
    world.worker("w", 0, true);
    let mut world = world.with_objects();
    assert_eq!(events(&world.plan()), [""; 0]);
    world.node("n1", false);
    let plan = world.plan();
    assert_eq!(events(&plan), ["WorkerLost StatefulSet w"]);
    assert!(note(&plan, "WorkerLost").contains("kubectl delete pod w-0-x -n ns --force"));
}

#[test]
fn workers_are_stopped_once_after_the_end_if_asked() {
    let over = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
    let stop = |plan: &Plan, name: &str| {
        let action = plan.actions.iter().find(|action| *action.target.name == *name)?;
        let Write::Patch(operations) = &action.write else { return None };
        Some(serde_json::to_value(operations).unwrap())
    };
    let mut world = World::complete(1).with_objects();
    world.job("launch", "launcher", &[], &over);
    assert_eq!(stop(&world.plan(), "w"), None, "not asked");
    world.job("launch", "launcher", &[("clean-up", "workers")], &json!({}));
    assert_eq!(stop(&world.plan(), "w"), None, "not over");
    world.job("launch", "launcher", &[("clean-up", "workers")], &over);
    world.set("s", &[], &json!({"replicas": 2}));
    let plan = world.plan();
    let of_job = stop(&plan, "w").unwrap();
    assert_eq!(of_job[1], json!({"op": "add", "path": "/spec/suspend", "value": true}));
    assert_eq!(of_job[2]["value"][CLEANED_AFTER], "launch");
    let of_set = stop(&plan, "s").unwrap();
    assert_eq!(of_set[1], json!({"op": "add", "path": "/spec/replicas", "value": 0}));
    assert!(events(&plan).contains(&"WorkersStopped Job w".to_owned()));

    // A user who starts them again keeps them.
    let mark = json!({"annotations": {CLEANED_AFTER: "launch"}});
    let mut resumed = indexed(1);
    resumed["metadata"] = mark.clone();
    world.job("w", "worker", &[], &resumed);
    assert_eq!(stop(&world.plan(), "w"), None);
    let newer = json!({"creationTimestamp": "2026-01-01T00:30:00Z"});
    world.job("next", "launcher", &[("clean-up", "workers")], &json!({"metadata": newer}));
    assert_eq!(stop(&world.plan(), "w"), None, "the next launcher has not ended");
    let mut ended = over;
    ended["metadata"] = newer;
    world.job("next", "launcher", &[("clean-up", "workers")], &ended);
    assert!(stop(&world.plan(), "w").is_some());
}

#[test]
fn gates_are_removed_where_clusters_are_not_served() {
    let mut world = World::complete(1);
    world.worker("w", 0, false);
    world.0.policy.mpi.enabled = false;
    let plan = world.plan();
    assert_eq!(writes(&plan), ["patch pods launch-x"]);
    assert_eq!(events(&plan), ["GateLifted Pod launch-x"]);
    world.0.policy.mpi.enabled = true;
    world.0.policy.mpi.namespaces.insert("mpi".to_owned(), "yes".to_owned());
    assert_eq!(writes(&world.plan()), ["patch pods launch-x"]);
    world.0.policy.mpi.namespaces.clear();
    world.0.policy.excluded_namespaces.insert("ns".to_owned());
    assert_eq!(writes(&world.plan()), ["patch pods launch-x"]);
}

#[test]
fn objects_that_were_changed_are_restored() {
    let mut world = World::complete(1).with_objects();
    world.add(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "c", "namespace": "ns", "uid": "s",
            "labels": {"mpi.stowplan.dev/made-for": "c"},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "w", "uid": "w"},
                {"apiVersion": "batch/v1", "kind": "Job", "name": "launch", "uid": "launch"}]},
        "spec": {"selector": {"app": "x"}},
    }));
    let plan = world.plan();
    assert!(writes(&plan).contains(&"patch services c".to_owned()));

    // Another worker, and another owner.
    let mut world = World::complete(1).with_objects();
    world.job("w2", "worker", &[], &indexed(1));
    assert_eq!(writes(&world.plan()), ["patch configmaps c-mpi", "patch services c"]);
}

#[test]
fn a_thousand_workers_need_no_more_writes_than_one() {
    let mut world = World::complete(1_000);
    let mut writes_made = 0;
    for state in ["making", "uid"] {
        let plan = world.plan();
        writes_made += writes(&plan).len();
        world.apply(&plan);
        world.key_state(state);
    }
    let last = world.plan();
    assert_eq!(writes(&last), ["patch pods launch-x"]);
    assert_eq!(note(&last, "WorkersReady"), "all 1000 workers are Ready and have DNS names");
    assert!(writes_made <= 5, "{writes_made}");
}
