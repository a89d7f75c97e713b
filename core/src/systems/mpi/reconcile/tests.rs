//! Plans for the states of a cluster.

use serde_json::{Value, json};

use super::*;
use crate::simulation::{CONTROLLER, Outcome, Simulation};
use crate::systems::mpi::config::{HOSTFILE, SSH_CONFIG};
use crate::systems::mpi::keys::{CLEANED_AFTER, GATE, KEY_STATE};
use crate::systems::plan::{Confirmation, IfTaken};
use crate::systems::test_objects;

const NOW: &str = "2026-01-01T01:00:00Z";

/// A simulation with one MPI cluster `c` in namespace `ns`, of which the controller has seen everything.
struct World(Simulation);

impl World {
    fn new() -> Self {
        let simulation = Simulation::new(Policy::default(), NOW.parse().unwrap());
        let mut world = Self(simulation.with_planner(plan));
        world.0.store.set_uids(|id, _| format!("uid-{}", id.name));
        ["n1", "n2"].iter().for_each(|node| _ = world.node(node, true));
        world
    }

    fn add(&mut self, document: Value) -> &mut Self {
        self.0.store.put(document);
        self.0.catch_up(CONTROLLER);
        self
    }

    /// A text in the ConfigMap of the cluster.
    fn data(&self, key: &str) -> &str {
        self.0.get("ConfigMap", "c-mpi")["data"][key].as_str().unwrap()
    }

    fn node(&mut self, name: &str, ready: bool) -> &mut Self {
        let ready = json!({"type": "Ready", "status": if ready { "True" } else { "Unknown" }});
        let with = json!({"metadata": {"uid": name}, "status": {"conditions": [ready]}});
        self.add(test_objects::node(name, &with))
    }

    fn job(
        &mut self,
        name: &str,
        role: &str,
        annotations: &[(&str, &str)],
        with: &Value,
    ) -> &mut Self {
        self.add(workload("Job", name, role, annotations, with))
    }

    /// A StatefulSet of workers with this spec.
    fn set(&mut self, name: &str, spec: &Value) -> &mut Self {
        self.add(workload("StatefulSet", name, "worker", &[], &json!({"spec": spec})))
    }

    /// A launcher Job with these annotations and its gated pod.
    fn launched(annotations: &[(&str, &str)]) -> Self {
        let mut world = Self::new();
        world.job("launch", "launcher", annotations, &json!({}));
        world.launcher("launch-x", "launch", true);
        world
    }

    /// A cluster with a launcher and an Indexed Job of workers that are Ready and have records.
    fn complete(workers: u32) -> Self {
        let mut world = Self::launched(&[]);
        world.job("w", "worker", &[("slots", "2")], &indexed(workers));
        (0..workers).for_each(|index| _ = world.worker("w", index, true));
        world.records("c", "w", workers);
        world
    }

    /// A pod of a worker.
    fn worker(&mut self, workload: &str, index: u32, ready: bool) -> &mut Self {
        let condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
        let container = json!({"name": "a", "image": "", "imageID": "", "ready": ready,
            "restartCount": 0, "state": {"running": {}}});
        let with = json!({
            "spec": {"hostname": format!("{workload}-{index}"), "nodeName": "n1"},
            "status": {"phase": "Running", "conditions": [condition], "containerStatuses": [container]},
        });
        self.add(pod(&format!("{workload}-{index}-x"), "worker", workload, &with))
    }

    /// A pod of a launcher, gated or running on node n2.
    fn launcher(&mut self, name: &str, workload: &str, gated: bool) -> &mut Self {
        let spec = match gated {
            true => json!({"schedulingGates": [{"name": "other"}, {"name": GATE}]}),
            false => json!({"nodeName": "n2"}),
        };
        let with = json!({"spec": spec, "status": {"phase": "Pending"}});
        self.add(pod(name, "launcher", workload, &with))
    }

    /// The DNS records that a Service has of the first pods of a workload.
    fn records(&mut self, service: &str, workload: &str, count: u32) -> &mut Self {
        let hostnames = (0..count).map(|index| format!("{workload}-{index}"));
        let endpoints: Vec<Value> = hostnames
            .map(|hostname| json!({"addresses": ["10.0.0.1"], "hostname": hostname}))
            .collect();
        self.add(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": format!("{service}-1"), "namespace": "ns", "uid": service,
                "labels": {"kubernetes.io/service-name": service}},
            "endpoints": endpoints,
        }))
    }

    /// Applies the creations of a plan, as the API server answers them.
    fn apply(&mut self, plan: &Plan) -> &mut Self {
        for action in plan.actions.iter().filter(|of| matches!(of.write, Write::Create(_))) {
            assert_eq!(self.0.carry_out(action.clone()), Outcome::Done);
        }
        self.0.catch_up(CONTROLLER);
        self
    }

    /// Sets the annotation of the ConfigMap that stowplan has made.
    fn key_state(&mut self, state: &str) -> &mut Self {
        self.0.edit("ConfigMap", "c-mpi")["metadata"]["annotations"] = json!({KEY_STATE: state});
        self.0.catch_up(CONTROLLER);
        self
    }

    fn plan(&self) -> Plan {
        self.0.make_plan()
    }

    /// Returns true if the launcher's gate is removed.
    fn lifts(&self) -> bool {
        writes(&self.plan()).contains(&"patch pods launch-x".to_owned())
    }

    /// The note of the first event with this reason; empty if there is none.
    fn note(&self, reason: &str) -> String {
        let plan = self.plan();
        let mut events = plan.actions.iter().flat_map(|action| &action.events);
        events.find(|of| of.reason == reason).map(|of| of.note.clone()).unwrap_or_default()
    }

    /// Checks the writes of a plan.
    #[track_caller]
    fn expect(&mut self, expected: &[&str]) -> &mut Self {
        assert_eq!(writes(&self.plan()), expected);
        self
    }

    /// Checks the events of a plan.
    #[track_caller]
    fn expect_events(&mut self, expected: &[&str]) -> &mut Self {
        assert_eq!(events(&self.plan()), expected);
        self
    }

    /// The complete state: the objects are made, and the Secret too.
    fn with_objects(mut self) -> Self {
        self.apply(&self.plan());
        self.key_state("uid-secret");
        self
    }
}

fn indexed(count: u32) -> Value {
    json!({"spec": {"completionMode": "Indexed", "completions": count, "parallelism": count}})
}

/// A Job or StatefulSet, changed by the merge patch `with` (RFC 7396).
fn workload(
    kind: &str,
    name: &str,
    role: &str,
    annotations: &[(&str, &str)],
    with: &Value,
) -> Value {
    let mut template = json!({
        "metadata": {"annotations": {
            "mpi.stowplan.dev/cluster": "c", "mpi.stowplan.dev/role": role}},
        "spec": {"containers": [{"name": "a"}], "restartPolicy": "Never"},
    });
    for (key, value) in annotations {
        template["metadata"]["annotations"][format!("mpi.stowplan.dev/{key}")] = json!(value);
    }
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    let mut document = json!({
        "apiVersion": version, "kind": kind,
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        // A StatefulSet has a selector and a Service.
        "spec": {"template": template, "selector": {}, "serviceName": ""},
    });
    json_patch::merge(&mut document, with);
    document
}

/// A pod of a Job, changed by the merge patch `with`.
fn pod(name: &str, role: &str, workload: &str, with: &Value) -> Value {
    let mut document = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "7",
            "labels": {"mpi.stowplan.dev/cluster": "c", "mpi.stowplan.dev/role": role},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": workload,
                "uid": workload, "controller": true}]},
        "spec": {"containers": [{"name": "a"}]},
    });
    json_patch::merge(&mut document, with);
    document
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

    world.key_state("u").expect(&["patch pods launch-x"]);
}

#[test]
fn no_secret_is_made_where_the_policy_forbids_it() {
    let mut world = World::complete(1);
    world.0.policy.mpi.secrets = false;
    let plan = world.plan();
    assert!(plan.actions.iter().all(|action| action.confirmation.is_none()));
    world.apply(&plan).expect(&["patch pods launch-x"]);
}

#[test]
fn a_deleted_secret_is_noticed_by_a_pod_that_hangs_and_made_again() {
    let mut world = World::complete(1).with_objects();
    let hang = |seconds: u32| {
        let at = format!("2026-01-01T00:{:02}:{:02}Z", 59 - seconds / 60, 59 - seconds % 60);
        let conditions =
            json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]);
        json!({"spec": {"hostname": "w-0", "nodeName": "n1"},
            "status": {"phase": "Pending", "conditions": conditions}})
    };
    for (seconds, is_tried) in [(1, false), (15, false), (21, true), (30, false), (42, true)] {
        world.add(pod("w-0-x", "worker", "w", &hang(seconds)));
        let plan = world.plan();
        assert!(plan.recheck_at.is_some(), "{seconds}");
        assert_eq!(writes(&plan) == ["patch configmaps c-mpi"], is_tried, "{seconds}");
        if is_tried {
            let (trial, _) = creation(&plan);
            assert_eq!((trial.is_trial, trial.if_taken), (true, IfTaken::Keep));
        }
    }
    // A kubelet that does not answer starts no pod, with a Secret or without.
    world.node("n1", false);
    assert!(writes(&world.plan()).is_empty());
    world.node("n1", true).key_state("making again").expect_events(&["KeyReplaced Job w"]);
    assert!(!creation(&world.plan()).0.is_trial);
    assert!(world.note("KeyReplaced").contains("kubectl delete pods -n ns -l"));
}

#[test]
fn a_launcher_starts_when_all_workers_are_ready_and_have_records() {
    let mut world = World::complete(3).with_objects();
    assert!(world.lifts());
    assert_eq!(world.note("WorkersReady"), "all 3 workers are Ready and have DNS names");
    let Some(action) = world.plan().actions.pop() else { panic!("no action") };
    let Write::Patch(operations) = action.write else { panic!("{:?}", action.write) };
    let operations = json!(operations);
    assert_eq!(operations[1]["value"], "7", "the index is that of this version");
    assert_eq!(operations[3], json!({"op": "remove", "path": "/spec/schedulingGates/1"}));

    assert!(!world.worker("w", 2, false).lifts(), "not Ready");
    assert!(world.worker("w", 2, true).lifts());
    assert!(!world.records("c", "w", 2).lifts(), "no record");
    // Of another workload with the same hostname.
    let other = json!({"spec": {"hostname": "w-2"}, "status": {
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    world.records("c", "w", 3).add(pod("w-2-x", "worker", "x", &other));
    assert!(!world.lifts(), "another owner");
}

#[test]
fn a_launcher_waits_for_its_files_too() {
    let mut world = World::complete(2).with_objects();
    let is_launched = |world: &World| !world.note("WorkersReady").is_empty();
    assert!(is_launched(&world));
    for (kind, name) in [("ConfigMap", "c-mpi"), ("Service", "c")] {
        world.0.take(kind, name);
        world.0.catch_up(CONTROLLER);
        assert!(!is_launched(&world), "{kind}");
        world = world.with_objects();
        assert!(is_launched(&world), "{kind}");
    }
}

#[test]
fn workers_of_a_stateful_set_have_the_names_of_its_own_service() {
    let mut world = World::launched(&[("slots", "3")]);
    world.set("mpi-workers", &json!({"replicas": 2, "serviceName": "mpi-workers"}));
    let mut world = world.with_objects();
    assert_eq!(
        world.data(HOSTFILE),
        "mpi-workers-0.mpi-workers.ns.svc.cluster.local slots=3\nmpi-workers-1.mpi-workers.ns.svc.cluster.local slots=3\n"
    );
    world.worker("mpi-workers", 0, true).worker("mpi-workers", 1, true);
    world.records("c", "mpi-workers", 2).expect(&[]).expect_events(&["NoDnsNames Pod launch-x"]);
    let remedy =
        "create StatefulSet mpi-workers again with serviceName: c, the Service that stowplan makes";
    assert!(world.note("NoDnsNames").contains(remedy), "{}", world.note("NoDnsNames"));
    world.records("mpi-workers", "mpi-workers", 2).expect(&["patch pods launch-x"]);
}

#[test]
fn ssh_asks_the_port_that_the_command_of_the_workers_gives() {
    let mut with = indexed(1);
    let container =
        json!({"name": "a", "command": ["/usr/sbin/sshd", "-D"], "args": ["-p", "2200"]});
    with["spec"]["template"] = json!({"spec": {"containers": [container]}});
    let mut world = World::launched(&[]);
    world.job("w", "worker", &[], &with);
    let world = world.with_objects();
    assert!(world.data(SSH_CONFIG).contains("  Port 2200\n"), "{}", world.data(SSH_CONFIG));
}

#[test]
fn a_launcher_waits_while_its_workers_are_scaled_to_0() {
    let mut world = World::launched(&[]);
    let scaled = |replicas: u32| json!({"replicas": replicas, "serviceName": "c"});
    world.set("w", &scaled(1)).worker("w", 0, true).records("c", "w", 1);
    let mut world = world.with_objects();
    assert!(world.lifts());
    assert!(!world.set("w", &scaled(0)).lifts());
    let scale = "kubectl scale statefulset w -n ns --replicas=1: or more, as many workers";
    assert!(world.note("NoWorkers").contains(scale), "{}", world.note("NoWorkers"));
    let asks = [("launcher-as-worker", "true")];
    assert!(world.job("launch", "launcher", &asks, &json!({})).lifts(), "it is a host itself");
}

#[test]
fn a_launcher_may_be_the_only_host() {
    let world = World::launched(&[("launcher-as-worker", "true"), ("slots", "4")]).with_objects();
    assert_eq!(world.data(HOSTFILE), "c-launcher.c.ns.svc.cluster.local slots=4\n");
}

#[test]
fn what_keeps_a_cluster_from_starting_is_reported() {
    let job = |annotations: &[(&str, &str)], parallelism: u32| {
        let spec =
            json!({"completionMode": "Indexed", "completions": 3, "parallelism": parallelism});
        workload("Job", "w", "worker", annotations, &json!({"spec": spec}))
    };
    let set = |replicas: u32| {
        workload("StatefulSet", "w", "worker", &[], &json!({"spec": {"replicas": replicas}}))
    };
    let unordered = workload("Job", "w", "worker", &[], &json!({"spec": {"completions": 3}}));
    let mut suspended = job(&[], 3);
    suspended["spec"]["suspend"] = json!(true);
    for (reason, workers, text) in [
        ("NoWorkers", None, "no workload of the namespace makes its workers"),
        ("NoWorkers", Some(set(0)), "StatefulSet w makes no workers: it is scaled to 0"),
        ("NoWorkers", Some(unordered), "Job w makes no workers: it has no completions, or is not"),
        (
            "NoWorkers",
            Some(suspended),
            "Job w is suspended; unless a queue resumes it: kubectl patch",
        ),
        ("WorkersDiffer", Some(job(&[("workers", "4")], 3)), "says 4, and the workloads make 3"),
        ("WorkersNotAtOnce", Some(job(&[], 2)), "Job w runs 2 of its 3 workers at once"),
        ("HostfileTooLong", Some(set(20_000)), "the files for 20000 hosts have at least 1"),
        ("HostfileTooLong", Some(set(2_147_483_647)), "the files for 2147483647 hosts"),
    ] {
        let mut world = World::launched(&[]);
        workers.into_iter().for_each(|workers| _ = world.add(workers));
        let of = |object: &str| format!("{reason} {object}");
        world.expect_events(&[&of("Job launch"), &of("Pod launch-x")]);
        assert!(world.note(reason).contains(text), "{}", world.note(reason));
        assert!(!world.lifts(), "{reason}");
        let actions = world.plan().actions;
        let mut states = actions.iter().filter(|action| matches!(action.write, Write::None));
        assert!(states.all(|action| action.lasting.contains(&reason)), "{reason}");
    }
}

#[test]
fn workers_wait_for_their_launcher_without_an_event() {
    let mut world = World::new();
    world.job("w", "worker", &[("workers", "4")], &indexed(3)).expect_events(&[]);
}

#[test]
fn two_launchers_are_reported_and_retries_are_not() {
    let mut world = World::complete(1).with_objects();
    let newer = json!({"metadata": {"creationTimestamp": "2026-01-01T00:30:00Z"}});
    world.job("later", "launcher", &[], &newer);
    let events = events(&world.plan());
    assert!(events.contains(&"SeveralLaunchers Job later".to_owned()), "{events:?}");
    let over = json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}});
    world.job("launch", "launcher", &[], &over);
    assert_eq!(world.note("SeveralLaunchers"), "");

    // A retry waits until the pod before it has ended, unless the node is NotReady: then it may never end.
    let mut world = World::complete(1).with_objects();
    let failed = json!({"spec": {"nodeName": "n2"}, "status": {"phase": "Failed"}});
    let failed = pod("launch-before", "launcher", "launch", &failed);
    world.launcher("launch-before", "launch", false).expect(&[]).add(failed);
    world.expect(&["patch pods launch-x"]);
    world.launcher("launch-before", "launch", false).expect(&[]).node("n2", false);
    world.expect(&["patch pods launch-x"]);
}

#[test]
fn a_worker_of_a_stateful_set_on_a_lost_node_is_reported() {
    let mut world = World::new();
    world.job("launch", "launcher", &[], &json!({}));
    world.set("w", &json!({"replicas": 1, "serviceName": "s"})).worker("w", 0, true);
    let mut world = world.with_objects();
    world.expect_events(&[]).node("n1", false).expect_events(&["WorkerLost StatefulSet w"]);
    assert!(world.note("WorkerLost").contains("kubectl delete pod w-0-x -n ns --force"));
}

#[test]
fn workers_are_stopped_once_after_the_end_if_asked() {
    let over = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
    let stops = |world: &World| writes(&world.plan()).contains(&"patch jobs w".to_owned());
    let asks = [("clean-up", "workers")];
    let mut world = World::complete(1).with_objects();
    assert!(!stops(world.job("launch", "launcher", &[], &over)), "not asked");
    assert!(!stops(world.job("launch", "launcher", &asks, &json!({}))), "not over");
    assert!(stops(world.job("launch", "launcher", &asks, &over)));
    let changed = |world: &World| {
        let plan = world.plan();
        let stop =
            plan.actions.iter().find(|of| *of.target.name == *"w").map(|of| of.write.clone());
        let Some(Write::Patch(operations)) = stop else { panic!("{plan:?}") };
        operations[1].path().to_string()
    };
    assert_eq!(changed(&world), "/spec/suspend");
    let mut of_set = World::launched(&asks);
    of_set.set("w", &json!({"replicas": 1})).job("launch", "launcher", &asks, &over);
    assert_eq!(changed(&of_set.with_objects()), "/spec/replicas");

    // A user who starts them again keeps them.
    let mut resumed = indexed(1);
    resumed["metadata"] = json!({"annotations": {CLEANED_AFTER: "launch"}});
    assert!(!stops(world.job("w", "worker", &[], &resumed)));
    let newer = json!({"creationTimestamp": "2026-01-01T00:30:00Z"});
    world.job("next", "launcher", &asks, &json!({"metadata": newer}));
    assert!(!stops(&world), "the next launcher has not ended");
    let mut ended = over;
    ended["metadata"] = newer;
    assert!(stops(world.job("next", "launcher", &asks, &ended)));
}

/// After a clean-up nothing is reported until a user creates the launcher again.
#[test]
fn stopped_workers_are_reported_once_a_launcher_waits_for_them() {
    let over = json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}});
    let mut suspended = indexed(1);
    suspended["spec"]["suspend"] = json!(true);
    let job = workload("Job", "w", "worker", &[], &suspended);
    let set = workload("StatefulSet", "w", "worker", &[], &json!({"spec": {"replicas": 0}}));
    for workers in [job, set] {
        let mut world = World::launched(&[("clean-up", "workers")]);
        world.add(workers).job("launch", "launcher", &[], &over).expect_events(&[]);
        world.job("launch", "launcher", &[], &json!({}));
        world.expect_events(&["NoWorkers Job launch", "NoWorkers Pod launch-x"]);
        assert!(world.note("NoWorkers").contains("kubectl "), "{}", world.note("NoWorkers"));
    }
}

#[test]
fn gates_are_removed_where_clusters_are_not_served() {
    let mut world = World::complete(1);
    world.worker("w", 0, false);
    world.0.policy.mpi.enabled = false;
    world.expect(&["patch pods launch-x"]).expect_events(&["GateLifted Pod launch-x"]);
    world.0.policy.mpi.enabled = true;
    world.0.policy.mpi.namespaces.insert("mpi".to_owned(), "yes".to_owned());
    world.expect(&["patch pods launch-x"]);
    world.0.policy.mpi.namespaces.clear();
    world.0.policy.excluded_namespaces.insert("ns".to_owned());
    world.expect(&["patch pods launch-x"]);
}

#[test]
fn objects_that_were_changed_are_restored() {
    let mut world = World::complete(1).with_objects();
    world.0.edit("Service", "c")["spec"]["selector"] = json!({"app": "x"});
    world.0.catch_up(CONTROLLER);
    assert!(writes(&world.plan()).contains(&"patch services c".to_owned()));

    // Another worker, and another owner.
    let mut world = World::complete(1).with_objects();
    world.job("w2", "worker", &[], &indexed(1));
    world.expect(&["patch configmaps c-mpi", "patch services c"]);
}

#[test]
fn workers_are_counted_from_the_first_ordinal() {
    let mut world = World::launched(&[]);
    let spec = json!({"replicas": 2, "serviceName": "c", "ordinals": {"start": 9}});
    world.set("w", &spec).worker("w", 9, true).worker("w", 10, true);
    let mut world = world.with_objects();
    let name = |index: u32| format!("w-{index}.c.ns.svc.cluster.local slots=1\n");
    assert_eq!(world.data(HOSTFILE), name(9) + &name(10));
    assert!(!world.records("c", "w", 10).lifts(), "w-10 has no record");
    assert!(world.records("c", "w", 11).lifts());
}
