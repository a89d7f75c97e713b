//! The rules of the API server, and the readers' lag.

mod explore;

use serde_json::{Value, json};

use super::testing::NAMESPACE;
use super::*;
use crate::systems::plan::operation::{add, test, test_uid};
use k8s_openapi::jiff::SignedDuration;

fn simulation() -> Simulation {
    Simulation::new(Policy::default(), Timestamp::UNIX_EPOCH)
}

fn node(name: &str) -> Value {
    systems::test_objects::node(name, &json!({}))
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"},
        "spec": {"containers": [{"name": "c"}]}})
}

fn id(name: &str) -> Id {
    Id::new("Pod", "ns", name)
}

#[test]
fn a_write_whose_precondition_does_not_hold_changes_nothing() {
    let mut store = simulation().store;
    let created = store.create(pod("p")).unwrap().clone();
    assert_eq!(store.create(pod("p")), Err(Answer::Exists));
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    let label = || add(&["metadata", "labels"], json!({"a": "b"}));
    assert_eq!(store.patch(&id("p"), &[test_uid("x"), label()], false), Err(Answer::Conflict));
    let of_label = [add(&["metadata", "labels", "a"], "b")];
    assert_eq!(store.patch(&id("p"), &of_label, false), Err(Answer::Invalid));
    assert_eq!(store.get(&id("p")), Some(&created));

    // An absent field has the value null.
    let absent = test(&["metadata", "labels"], Value::Null);
    let patched = store.patch(&id("p"), &[test_uid(uid), absent, label()], false).unwrap();
    assert_ne!(patched["metadata"]["resourceVersion"], *version);
    let outdated = plan::operation::replace_status(uid, version, &json!({}));
    assert_eq!(store.patch(&id("p"), &outdated, true), Err(Answer::Conflict));
    let is_deleted =
        |store: &mut Store, uid, version| store.delete_if(&id("p"), uid, version, None);
    assert_eq!(is_deleted(&mut store, "x", None), Err(Answer::Conflict));
    assert_eq!(is_deleted(&mut store, uid, Some(version)), Err(Answer::Conflict));
    assert_eq!(is_deleted(&mut store, uid, None), Ok(()));
    assert_eq!(is_deleted(&mut store, uid, None), Err(Answer::NotFound));
    assert_eq!(store.patch(&id("p"), &[label()], false), Err(Answer::NotFound));
}

#[test]
fn a_pod_that_runs_and_an_object_with_finalizers_remain_for_a_while() {
    let mut simulation = simulation();
    simulation.store.create(node("n")).unwrap();
    let mut held = pod("held");
    held["metadata"]["finalizers"] = json!(["a/b"]);
    for pod in [pod("runs"), pod("killed"), held] {
        simulation.store.create(pod).unwrap();
    }
    for name in ["runs", "killed"] {
        simulation.apply(Event::Bind(id(name), "n".to_owned()));
    }
    let uid = simulation.get("Pod", "killed")["metadata"]["uid"].as_str().unwrap().to_owned();
    simulation.store.delete_if(&id("killed"), &uid, None, Some(0)).unwrap();
    ["runs", "held"].iter().for_each(|name| simulation.store.delete(&id(name)));
    assert_eq!(simulation.names("Pod"), ["held", "runs"]);
    let mut kubelets = simulation.possible(&[Part::Kubelets]).collect::<Vec<_>>();
    assert_eq!(kubelets, [Event::End(id("runs"))]);
    simulation.apply(kubelets.remove(0));
    simulation.edit("Pod", "held")["metadata"]["finalizers"] = json!([]);
    assert_eq!(simulation.count("Pod"), 0);
}

#[test]
fn each_reader_sees_a_change_when_it_is_delivered() {
    let mut simulation = simulation();
    let webhook = simulation.add_reader(Scope::Admission);
    simulation.store.create(node("n")).unwrap();
    simulation.apply(Event::Deliver { reader: webhook, kind: "Node".into() });
    let sees = |simulation: &Simulation, reader| simulation.view_of(reader).node("n").is_some();
    assert_eq!([sees(&simulation, CONTROLLER), sees(&simulation, webhook)], [false, true]);
    let left = [Event::Deliver { reader: CONTROLLER, kind: "Node".into() }];
    assert_eq!(simulation.possible(&[Part::Watches]).collect::<Vec<_>>(), left);
    simulation.catch_up(CONTROLLER);
    simulation.lose_node("n");
    assert_eq!([sees(&simulation, CONTROLLER), sees(&simulation, webhook)], [true, true]);
    simulation.catch_up(CONTROLLER);
    assert_eq!([sees(&simulation, CONTROLLER), sees(&simulation, webhook)], [false, true]);
}

/// It expects of a new node what a Ready one of the group has.
#[test]
fn an_autoscaler_makes_a_node_where_a_pod_would_fit_on_an_empty_one() {
    let taint = |key: &str| json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}});
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let state = "status-taint.cluster-autoscaler.kubernetes.io/a";
    let selects = json!({"nodeSelector": {"a": "b"}});
    let gated = json!({"schedulingGates": [{"name": "example.com/mine"}]});
    for (what, first, spec, made) in [
        ("the first is full", json!({}), json!({}), 1),
        ("only the first has the label", labels, selects.clone(), 3),
        ("no node has the label", json!({}), selects, 0),
        ("a taint", taint("a"), json!({}), 0),
        ("a taint of a state", taint(state), json!({}), 1),
        ("a gate", json!({}), gated, 0),
    ] {
        let mut simulation = simulation();
        let shape = json!({"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}}});
        let group = systems::test_objects::node("g", &shape);
        let mut node = systems::test_objects::node("g-0", &shape);
        json_patch::merge(&mut node, &first);
        simulation.store.create(node).unwrap();
        simulation.node_groups = vec![NodeGroup { name: "g".to_owned(), node: group, most: 4 }];
        for (name, node) in [("fills", json!("g-0")), ("waits", Value::Null)] {
            let mut pod = pod(name);
            pod["spec"]["nodeName"] = node;
            pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "800m"}});
            if name == "waits" {
                json_patch::merge(&mut pod["spec"], &spec);
            }
            simulation.store.create(pod).unwrap();
        }
        simulation.run(ALL, Timestamp::UNIX_EPOCH, |_, events| events.next()).unwrap();
        assert_eq!(simulation.count("Node"), 1 + made, "{what}");
        let is_placed = simulation.get("Pod", "waits")["spec"]["nodeName"].is_string();
        assert_eq!(is_placed, made == 1, "{what}");
    }
}

#[test]
fn an_autoscaler_removes_a_node_whose_pods_can_go_elsewhere_and_may_be_evicted() {
    let set = json!({"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s"}]});
    let mut kept = set.clone();
    kept["annotations"] = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"});
    for (what, metadata, cpu, is_removed) in [
        ("of a StatefulSet", set.clone(), "100m", true),
        ("kept", kept, "100m", false),
        ("nothing creates it again", json!({}), "100m", false),
        ("the node is used", set, "600m", false),
    ] {
        let mut simulation = simulation();
        let shape = json!({"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}}});
        let group = systems::test_objects::node("g", &shape);
        for name in ["g-0", "other"] {
            simulation.store.create(systems::test_objects::node(name, &shape)).unwrap();
        }
        simulation.node_groups = vec![NodeGroup { name: "g".to_owned(), node: group, most: 4 }];
        let mut there = pod("p");
        json_patch::merge(&mut there["metadata"], &metadata);
        there["spec"]["nodeName"] = json!("g-0");
        there["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        simulation.store.create(there).unwrap();
        assert_eq!(simulation.shrink().as_deref(), is_removed.then_some("g-0"), "{what}");
    }
}

/// The node `g-0` of four cores, an autoscaler that makes more like it, and stowplan with its webhook.
struct Scaled {
    simulation: Simulation,
    webhook: usize,
}

impl Scaled {
    fn new(most: usize) -> Self {
        let mut policy = Policy::from_yaml("streams: {unmet: wait}").unwrap();
        policy.coschedule.placeholder.image = "stowplan:1".to_owned();
        let mut simulation = Simulation::new(policy, "2026-01-01T00:00:00Z".parse().unwrap());
        let shape = json!({"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}});
        let node = |name| systems::test_objects::node(name, &shape);
        simulation.store.create(node("g-0")).unwrap();
        simulation.node_groups = vec![NodeGroup { name: "g".to_owned(), node: node("g"), most }];
        let webhook = simulation.add_reader(Scope::Admission);
        Self { simulation, webhook }
    }

    fn with_nodes(mut self, names: &[&str]) -> Self {
        for name in names {
            let mut node = self.simulation.get("Node", "g-0").clone();
            node["metadata"] = json!({"name": name, "labels": {crate::kubernetes::HOSTNAME: name}});
            self.simulation.store.create(node).unwrap();
        }
        self
    }

    fn settle(&mut self) -> &mut Self {
        let end = self.simulation.store.now + SignedDuration::from_secs(600);
        self.simulation.run(ALL, end, |_, events| events.next()).unwrap();
        self.simulation.store.now = end;
        self
    }

    fn create(&mut self, kind: &str, name: &str, spec: &Value) -> &mut Self {
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let object = json!({"apiVersion": crate::api::VERSION, "kind": kind, "metadata": metadata, "spec": spec});
        self.simulation.store.create(object).unwrap();
        self
    }

    /// Creates a pod of three cores by way of the webhook.
    fn pod(&mut self, name: &str, metadata: &Value) -> &mut Self {
        let mut pod = pod(name);
        json_patch::merge(&mut pod["metadata"], metadata);
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3"}});
        self.simulation.catch_up(self.webhook);
        self.simulation.admit(self.webhook, pod);
        self
    }

    fn nodes_of(&self, pods: &[&str]) -> Vec<Value> {
        let node = |pod: &&str| self.simulation.get("Pod", pod)["spec"]["nodeName"].clone();
        pods.iter().map(node).collect()
    }
}

/// The node of the pool, with its taint, is the one that the autoscaler expects new ones to be like.
#[test]
fn an_exclusive_pool_does_not_keep_pods_of_others_from_getting_nodes() {
    let mut cluster = Scaled::new(8);
    cluster.create("HostPool", "p", &json!({"size": 1, "exclusivity": "Exclusive"})).settle();
    assert!(cluster.simulation.get("Node", "g-0")["spec"]["taints"].is_array());
    cluster.pod("ordinary", &json!({})).settle();
    assert_eq!(cluster.nodes_of(&["ordinary"]), ["g-1"]);
    assert_eq!(cluster.simulation.names("Node"), ["g-0", "g-1"]);
}

/// A new node is none of the pool.
#[test]
fn no_node_is_made_for_a_pod_of_a_pool_that_is_full() {
    let mut cluster = Scaled::new(8);
    cluster.create("HostPool", "p", &json!({"size": 1})).settle();
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true});
    let asks =
        json!({"annotations": {"streams.ibm.com/host-pool": "p"}, "ownerReferences": [owner]});
    cluster.pod("first", &asks).settle().pod("second", &asks).settle();
    assert_eq!(cluster.nodes_of(&["first", "second"]), [json!("g-0"), Value::Null]);
    assert_eq!(cluster.simulation.names("Node"), ["g-0"]);
}

#[test]
fn a_job_that_waits_for_nodes_gets_as_many_as_it_lacks() {
    let names = ["e0", "e1", "e2", "e3"];
    let mut cluster = Scaled::new(2);
    let elements = names.map(
        |name| json!({"name": name, "operators": [{"name": name, "hostExlocation": ["apart"]}]}),
    );
    cluster.create("StreamsJob", "j", &json!({"processingElements": elements})).settle();
    for name in names {
        cluster.pod(name, &of_element(name));
    }
    // The autoscaler may make no more. It removes none of these, although no pod of the job is there yet.
    cluster.settle();
    assert_eq!(cluster.nodes_of(&names), vec![Value::Null; 4]);
    assert_eq!(cluster.simulation.names("Node"), ["g-0", "g-1"]);
    assert_eq!(cluster.simulation.shrink(), None);
    cluster.simulation.node_groups[0].most = 8;
    cluster.settle();
    let mut nodes = cluster.nodes_of(&names);
    nodes.sort_by_key(Value::to_string);
    assert_eq!(nodes, ["g-0", "g-1", "g-2", "g-3"]);
    assert_eq!(cluster.simulation.names("Node"), ["g-0", "g-1", "g-2", "g-3"]);
    assert_eq!(cluster.simulation.count("StatefulSet"), 0);
}

fn two_pools() -> Value {
    let element = |name: &str, pool: &str| json!({"name": name, "operators": [{"name": name, "host": {"pool": pool}}]});
    json!({
        "pools": [{"name": "P", "size": 1, "exclusivity": "Exclusive"}, {"name": "Q", "size": 1}],
        "processingElements": [element("e0", "P"), element("e1", "Q")],
    })
}

fn of_element(element: &str) -> Value {
    json!({"labels": {"app": "streams", "streams.ibm.com/job": "j", "streams.ibm.com/pe": element}})
}

#[test]
fn a_job_with_two_pools_gets_nodes_for_them() {
    let mut cluster = Scaled::new(3);
    cluster.create("StreamsJob", "j", &two_pools()).settle();
    cluster.pod("e0", &of_element("e0")).pod("e1", &of_element("e1")).settle();
    assert_eq!(cluster.nodes_of(&["e0", "e1"]), ["g-0", "g-1"]);
    assert_eq!(cluster.simulation.names("Node"), ["g-0", "g-1"]);
}

/// It runs outside of its pool, and the other one does not wait for its end.
#[test]
fn a_job_is_placed_beside_a_pod_that_the_webhook_did_not_see() {
    let mut cluster = Scaled::new(3).with_nodes(&["g-1", "g-2"]);
    let mut unseen = pod("e0");
    json_patch::merge(&mut unseen["metadata"], &of_element("e0"));
    unseen["spec"]["nodeName"] = json!("g-0");
    unseen["status"] = json!({"phase": "Running"});
    cluster.simulation.store.create(unseen).unwrap();
    cluster.create("StreamsJob", "j", &two_pools()).settle();
    cluster.pod("e1", &of_element("e1")).settle();
    let job = &cluster.simulation.get("StreamsJob", "j")["status"]["conditions"];
    assert!(cluster.nodes_of(&["e1"]).iter().all(Value::is_string), "{job}");
}

/// The pods of a pool with listed hosts require these, and no label. No controller creates this one again.
#[test]
fn a_pod_that_waits_for_a_full_node_of_a_listed_pool_gets_another_one() {
    let mut cluster = Scaled::new(3).with_nodes(&["g-1", "g-2"]);
    let element = |name: &str, pool: &str, is_alone: bool| {
        let operator = json!({"name": name, "host": {"pool": pool}, "hostIsolation": is_alone});
        json!({"name": name, "operators": [operator]})
    };
    let spec = json!({
        "pools": [
            {"name": "Two", "hosts": ["g-0", "g-1"]}, {"name": "All", "hosts": ["g-0", "g-1", "g-2"]},
        ],
        "processingElements": [
            element("e0", "Two", true), element("e1", "All", false), element("e2", "All", false),
        ],
    });
    cluster.create("StreamsJob", "j", &spec).settle();
    let placement = &cluster.simulation.get("StreamsJob", "j")["status"]["witness"];
    let full = placement["nodes"][0]["name"].clone();
    let mut other = pod("other");
    other["spec"]["nodeName"] = full;
    other["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3"}});
    cluster.simulation.store.create(other).unwrap();
    cluster.pod("e0", &of_element("e0")).settle();
    let reasons = ["NodesReservedAnew", "StrandedByItsNode"];
    for reason in reasons {
        let events = &cluster.simulation.events;
        assert!(events.iter().any(|(_, event)| event.reason == reason), "{reason}: {events:?}");
    }
}

#[test]
fn pods_leave_the_gate_of_a_job_that_ends_or_is_not_served_any_more() {
    type Change = fn(&mut Simulation);
    let ends: Change = |simulation| {
        let mut job = simulation.edit("StreamsJob", "j");
        job["metadata"]["finalizers"] = json!(["example.com/mine"]);
        job["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    };
    let is_disabled: Change = |simulation| simulation.policy.streams.enabled = false;
    let nothing: Change = |_| {};
    for (change, is_gated) in [(nothing, true), (ends, false), (is_disabled, false)] {
        let mut cluster = Scaled::new(1);
        let elements = ["e0", "e1"].map(
            |name| json!({"name": name, "operators": [{"name": name, "hostExlocation": ["apart"]}]}),
        );
        cluster.create("StreamsJob", "j", &json!({"processingElements": elements})).settle();
        let labels =
            json!({"app": "streams", "streams.ibm.com/job": "j", "streams.ibm.com/pe": "e0"});
        cluster.pod("e0", &json!({"labels": labels})).settle();
        change(&mut cluster.simulation);
        cluster.settle();
        let gates = &cluster.simulation.get("Pod", "e0")["spec"]["schedulingGates"];
        assert_eq!(gates.is_array(), is_gated, "{gates}");
    }
}

/// Returns the nodes `a` and `b` that a pod of this spec may be bound to, beside these objects.
fn nodes_for(spec: &Value, others: &[Value]) -> Vec<String> {
    let mut simulation = simulation();
    let shape = json!({"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}});
    for name in ["a", "b"] {
        simulation.store.create(systems::test_objects::node(name, &shape)).unwrap();
    }
    for other in others {
        simulation.store.put(other.clone());
    }
    let mut pending = pod("pending");
    pending["metadata"]["labels"] = json!({"app": "x"});
    json_patch::merge(&mut pending["spec"], spec);
    simulation.find_nodes(&pending).unwrap()
}

/// A pod with the label `app: x` on a node.
fn placed(name: &str, node: &str, with: &Value) -> Value {
    let mut placed = pod(name);
    placed["metadata"]["labels"] = json!({"app": "x"});
    placed["spec"]["nodeName"] = json!(node);
    json_patch::merge(&mut placed, with);
    placed
}

fn terms(kind: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": "x"}},
        "topologyKey": "kubernetes.io/hostname"});
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

/// Terms about pods see nodes by the label with their hostname.
#[test]
fn pods_on_a_node_without_the_label_of_its_hostname_are_near_to_no_pod() {
    let host = |name: &str, host: Value| {
        let labels = json!({"metadata": {"labels": {"kubernetes.io/hostname": host}}});
        systems::test_objects::node(name, &labels)
    };
    let unnamed = || host("a", Value::Null);
    let on_a = || placed("p", "a", &json!({}));
    let toward = terms("podAffinity");
    let from = terms("podAntiAffinity");
    let apart = placed("p", "a", &json!({"spec": from}));
    for (what, spec, others, expected) in [
        ("affinity", &toward, vec![on_a()], &["a"] as &[&str]),
        ("affinity, and no other pod has a hostname", &toward, vec![on_a(), unnamed()], &["b"]),
        (
            "affinity, and two nodes share it",
            &toward,
            vec![on_a(), host("b", json!("a"))],
            &["a", "b"],
        ),
        ("anti-affinity", &from, vec![on_a()], &["b"]),
        ("anti-affinity without a hostname", &from, vec![on_a(), unnamed()], &["a", "b"]),
        ("anti-affinity, and two nodes share it", &from, vec![on_a(), host("b", json!("a"))], &[]),
        ("anti-affinity of the other", &json!({}), vec![apart.clone()], &["b"]),
        ("the same without a hostname", &json!({}), vec![apart, unnamed()], &["a", "b"]),
    ] {
        assert_eq!(nodes_for(spec, &others), expected, "{what}");
    }
}

#[test]
fn a_pod_counts_with_what_its_node_has_given_it() {
    let spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]});
    let given = json!({"spec": spec, "status": {"phase": "Running", "containerStatuses": [
        {"name": "c", "resources": {"requests": {"cpu": "3"}}}]}});
    assert_eq!(nodes_for(&spec, &[placed("p", "a", &json!({"spec": spec}))]), ["a", "b"]);
    assert_eq!(nodes_for(&spec, &[placed("p", "a", &given)]), ["b"]);
}

/// Kubernetes does the same: see `nominate_two` in `tests/outcomes/scheduler`.
#[test]
fn an_attempt_that_fails_ends_a_nomination() {
    let mut simulation = simulation();
    let shape = json!({"status": {"allocatable": {"cpu": "4", "pods": "9"}}});
    simulation.store.create(systems::test_objects::node("a", &shape)).unwrap();
    for name in ["first", "second"] {
        let mut pod = pod(name);
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3"}});
        simulation.store.create(pod).unwrap();
        simulation.merge("Pod", name, &json!({"status": {"nominatedNodeName": "a"}}));
    }
    let refused = || Event::Reject(id("first"));
    let events: Vec<_> = simulation.scheduler_events().collect();
    assert_eq!(events, [refused(), Event::Reject(id("second"))], "each keeps the room");
    for _ in 0..2 {
        // Also at the second attempt, which finds the same.
        simulation.merge("Pod", "first", &json!({"status": {"nominatedNodeName": "a"}}));
        simulation.apply(refused());
        assert!(simulation.get("Pod", "first")["status"]["nominatedNodeName"].is_null());
    }
    let events: Vec<_> = simulation.scheduler_events().collect();
    assert_eq!(events, [Event::Bind(id("second"), "a".to_owned())]);
}

#[test]
fn a_claim_that_cannot_be_mounted_keeps_a_pod_from_all_nodes() {
    let mounts = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
    let claim = |with: Value| {
        let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c", "namespace": "ns"},
            "spec": {"volumeName": "v", "accessModes": ["ReadWriteOnce"]},
            "status": {"phase": "Bound"}});
        json_patch::merge(&mut claim, &with);
        claim
    };
    let volume = |terms: Value| {
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
            "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [terms]}}}})
    };
    let needs = |field: &str, key: &str| {
        volume(json!({field: [{"key": key, "operator": "In", "values": ["b"]}]}))
    };
    let by_label = || needs("matchExpressions", "kubernetes.io/hostname");
    // Of the terms of a volume, only labels count.
    let by_field = needs("matchFields", "metadata.name");
    let once = || claim(json!({"spec": {"accessModes": ["ReadWriteOncePod"]}}));
    let user = |namespace: &str, phase: &str| {
        placed(
            "user",
            "a",
            &json!({"metadata": {"namespace": namespace, "uid": "u"},
            "spec": mounts, "status": {"phase": phase}}),
        )
    };
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    for (what, others, expected) in [
        ("no claim", vec![], &[] as &[&str]),
        ("no volume", vec![claim(json!({}))], &[]),
        ("a volume of a node", vec![claim(json!({})), by_label()], &["b"]),
        ("a field", vec![claim(json!({})), by_field], &["a", "b"]),
        ("lost", vec![claim(json!({"status": {"phase": "Lost"}})), by_label()], &[]),
        ("being deleted", vec![claim(deleted), by_label()], &[]),
        ("for one pod", vec![once(), by_label()], &["b"]),
        ("in use", vec![once(), by_label(), user("ns", "Running")], &[]),
        ("in use by a pod that has ended", vec![once(), by_label(), user("ns", "Failed")], &["b"]),
        ("in use elsewhere", vec![once(), by_label(), user("other", "Running")], &["b"]),
    ] {
        assert_eq!(nodes_for(&mounts, &others), expected, "{what}");
    }
}
