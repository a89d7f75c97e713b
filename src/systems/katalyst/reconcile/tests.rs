//! The reconciler, plan by plan, on clusters of a few nodes.

mod simulator;

use serde_json::{Value, json};

use super::*;
use crate::simulation::{CONTROLLER, Id, Outcome, Simulation};
use crate::systems::katalyst::keys::{
    AFFINITY, ANTI_AFFINITY, GATE, LEADER_OF, LET_GO, MEMORY_ENHANCEMENT, NUMA_ZONES, QOS_LEVEL,
};
use crate::systems::plan::Write;
use crate::view::Name;

/// The creation of the first pod. Pod `n` is created `n` seconds later.
const START: &str = "2026-01-01T00:00:00Z";

fn at(seconds: i64) -> Timestamp {
    let start: Timestamp = START.parse().unwrap();
    Timestamp::from_second(start.as_second() + seconds).unwrap()
}

fn policy(text: &str) -> Policy {
    Policy::from_yaml(&format!("katalyst: {{declaredLabels: [role], {text}}}")).unwrap()
}

fn enforced() -> Policy {
    policy("mode: enforced")
}

/// A simulation, of which the controller has seen everything.
#[derive(Debug)]
struct Cluster(Simulation);

impl Default for Cluster {
    fn default() -> Self {
        Self(Simulation::new(Policy::default(), at(0)).with_planner(plan))
    }
}

impl Cluster {
    fn apply(&mut self, document: Value) {
        self.0.store.put(document);
        self.0.catch_up(CONTROLLER);
    }

    fn view(&self) -> &View {
        self.0.view_of(CONTROLLER)
    }

    fn remove(&mut self, kind: &str, name: &str) {
        let namespace = if kind == "Pod" { "ns" } else { "" };
        self.0.store.remove(&Id::new(kind, namespace, name));
        self.0.catch_up(CONTROLLER);
    }

    /// A cluster of the same objects.
    fn copy(&self) -> Self {
        let mut copy = Self::default();
        for kind in ["Node", "CustomNodeResource", "Pod"] {
            self.0.store.all(kind).for_each(|document| copy.apply(document.clone()));
        }
        copy
    }

    fn node(&mut self, name: &str) {
        self.apply(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name, NUMA_ZONES: "2"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }));
    }

    /// A report of two sockets with one NUMA node each, with the pods on each (`name/uid`).
    fn report(&mut self, node: &str, zones: [&[&str]; 2]) {
        let zones = zones.iter().enumerate().map(|(zone, pods)| {
            let pods = pods.iter().map(|pod| json!({"consumer": format!("ns/{pod}")}));
            json!({"type": "Socket", "name": zone.to_string(), "children": [
                {"type": "Numa", "name": zone.to_string(), "allocations": pods.collect::<Vec<_>>()}]})
        });
        self.apply(json!({
            "apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource",
            "metadata": {"name": node, "uid": node},
            "status": {"topologyZone": zones.collect::<Vec<_>>()},
        }));
    }

    /// A gated pod with the role, that asks for one role and avoids another.
    fn pod(&mut self, number: i64, role: &str, affinity: &str, anti_affinity: &str) {
        let mut annotations = json!({
            QOS_LEVEL: "dedicated_cores", MEMORY_ENHANCEMENT: r#"{"numa_binding":"true"}"#,
        });
        for (key, other) in [(AFFINITY, affinity), (ANTI_AFFINITY, anti_affinity)] {
            if !other.is_empty() {
                let selector = json!({"matchLabels": {"role": other}, "zone": "numa"});
                annotations[key] = json!({"required": [selector]}).to_string().into();
            }
        }
        let created = at(number).to_string();
        self.apply(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("p{number}"), "namespace": "ns", "uid": format!("u{number}"),
                "resourceVersion": "1", "creationTimestamp": created,
                "labels": {"role": role}, "annotations": annotations},
            "spec": {"containers": [], "schedulingGates": [{"name": GATE}], "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [
                        {"key": NUMA_ZONES, "operator": "Exists"}]}]}}}},
        }));
    }

    /// The pod or the node of this name.
    fn id(&self, name: &str) -> Id {
        let pod = Id::new("Pod", "ns", name);
        let is_pod = self.0.store.get(&pod).is_some();
        if is_pod { pod } else { Id::new("Node", "", name) }
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let id = self.id(name);
        change(&mut self.0.store.edit(&id).unwrap());
        self.0.catch_up(CONTROLLER);
    }

    /// The scheduler binds a pod.
    fn bind(&mut self, pod: &str, node: &str, time: Timestamp) {
        self.change(pod, |pod| {
            pod["spec"]["nodeName"] = node.into();
            pod["spec"]["schedulingGates"] = json!([]);
            pod["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "True",
                "lastTransitionTime": time.to_string()}]});
        });
    }

    fn plan(&mut self, policy: &Policy, now: Timestamp) -> Plan {
        self.0.policy = policy.clone();
        self.0.store.now = now;
        self.0.make_plan()
    }

    /// Carries out a plan. Returns its events as `object: reason`.
    fn carry_out(&mut self, policy: &Policy, now: Timestamp) -> Vec<String> {
        let mut events = Vec::new();
        for action in self.plan(policy, now).actions {
            let name = &action.target.name;
            events.extend(action.events.iter().map(|event| format!("{name}: {}", event.reason)));
            assert_eq!(self.0.carry_out(action), Outcome::Done);
        }
        self.0.catch_up(CONTROLLER);
        events
    }

    fn pod_now(&self, name: &str) -> &Value {
        self.0.store.get(&self.id(name)).unwrap()
    }

    fn gates(&self, name: &str) -> usize {
        self.pod_now(name)["spec"]["schedulingGates"].as_array().map_or(0, Vec::len)
    }
}

/// Two nodes without pods.
fn two_nodes() -> Cluster {
    let mut cluster = Cluster::default();
    for node in ["n1", "n2"] {
        cluster.node(node);
        cluster.report(node, [&[], &[]]);
    }
    cluster
}

/// One node without pods.
fn one_node() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.node("n1");
    cluster.report("n1", [&[], &[]]);
    cluster
}

fn label(cluster: &Cluster) -> Option<&str> {
    cluster.0.store.all("Node").next().unwrap()["metadata"]["labels"][NUMA_ZONES].as_str()
}

#[test]
fn the_label_of_a_node_follows_its_report() {
    let advisory = policy("mode: advisory");
    let now = at(0);
    let mut cluster = one_node();
    cluster.change("n1", |node| node["metadata"]["labels"] = json!({"a": "b"}));
    cluster.carry_out(&advisory, now);
    assert_eq!(label(&cluster), Some("2"));
    assert!(cluster.plan(&advisory, now).actions.is_empty(), "nothing is left to do");
    cluster.change("n1", |node| node["metadata"]["labels"][NUMA_ZONES] = json!("7"));
    cluster.carry_out(&advisory, now);
    assert_eq!(label(&cluster), Some("2"));

    cluster.carry_out(&policy("requireStrictTopology: true"), now);
    assert_eq!(label(&cluster), None, "the topology policy is not strict");
    cluster.carry_out(&advisory, now);
    cluster.carry_out(&policy("mode: disabled"), now);
    assert_eq!(label(&cluster), None);
    cluster.change("n1", |node| node["metadata"]["labels"] = Value::Null);
    cluster.carry_out(&advisory, now);
    assert_eq!(label(&cluster), Some("2"), "the node had no labels");
    cluster.remove("CustomNodeResource", "n1");
    cluster.carry_out(&advisory, now);
    assert_eq!(label(&cluster), None);
    cluster.remove("Node", "n1");
    assert!(cluster.plan(&advisory, now).actions.is_empty());
}

#[test]
fn a_report_that_cannot_be_read_whole_is_reported_at_its_node() {
    let mut cluster = one_node();
    cluster.report("n1", [&["p1"], &[]]);
    assert_eq!(cluster.carry_out(&policy("mode: advisory"), at(0)), ["n1: UnreadableNodeResource"]);
}

#[test]
fn a_gate_is_removed_when_a_numa_node_is_feasible() {
    let enforced = enforced();
    let mut cluster = one_node();
    cluster.pod(1, "worker", "", "ps");
    for (number, zone) in [(2, 0), (3, 1)] {
        cluster.pod(number, "ps", "", "none");
        cluster.bind(&format!("p{number}"), "n1", at(0));
        let pods = ["p2/u2", "p3/u3"];
        cluster.report("n1", if zone == 0 { [&pods[..1], &[]] } else { [&pods[..1], &pods[1..]] });
    }
    cluster.carry_out(&enforced, at(10));
    assert_eq!(cluster.carry_out(&enforced, at(10)), ["p1: NumaWaiting"]);
    let plan = cluster.plan(&enforced, at(10));
    assert_eq!(plan.recheck_at, Some(at(601)), "the deadline of the gate");
    let note = &plan.actions[0].events[0].note;
    assert!(note.contains("2 NUMA nodes on 1 node (2, such as: the pod avoids ns/p2, which is there, by role=ps (numa))"), "{note}");

    cluster.change("p3", |pod| pod["status"]["phase"] = "Succeeded".into());
    assert_eq!(cluster.carry_out(&enforced, at(11)), ["p1: NumaFeasible"]);
    let pod = cluster.pod_now("p1");
    assert_eq!(pod["spec"]["schedulingGates"], Value::Null);
    assert_eq!(pod["metadata"]["annotations"][LET_GO], at(11).to_string());
    assert!(pod["metadata"]["annotations"][ANTI_AFFINITY].is_string());
    assert!(cluster.carry_out(&enforced, at(12)).is_empty());
}

#[test]
fn a_wrong_uid_or_a_pod_that_is_gone_forbids_nothing() {
    let enforced = enforced();
    let mut cluster = one_node();
    cluster.pod(1, "worker", "", "ps");
    cluster.pod(2, "ps", "", "none");
    cluster.bind("p2", "n1", at(0));
    cluster.report("n1", [&["p2/other", "gone/u9"], &["p2/other"]]);
    // It is bound and not reported, so it counts everywhere until the deadline.
    cluster.carry_out(&enforced, at(119));
    assert_eq!(cluster.carry_out(&enforced, at(119)), ["p1: NumaWaiting"]);
    assert_eq!(cluster.plan(&enforced, at(119)).recheck_at, Some(at(120)));
    assert_eq!(cluster.carry_out(&enforced, at(120)), ["p1: NumaFeasible"]);
}

#[test]
fn pods_that_exclude_each_other_go_one_after_the_other() {
    let enforced = enforced();
    let mut cluster = one_node();
    for number in [1, 2, 3] {
        cluster.pod(number, "ps", "", "ps");
    }
    assert_eq!(cluster.carry_out(&enforced, at(5))[..2], ["p1: NumaFeasible", "p2: NumaWaiting"]);
    assert_eq!([cluster.gates("p1"), cluster.gates("p2"), cluster.gates("p3")], [0, 1, 1]);
    assert_eq!(cluster.carry_out(&enforced, at(6)), ["p2: NumaWaiting", "p3: NumaWaiting"]);
    cluster.bind("p1", "n1", at(7));
    assert_eq!(
        cluster.carry_out(&enforced, at(8)),
        ["p2: NumaWaiting", "p3: NumaWaiting"],
        "not reported"
    );
    cluster.report("n1", [&["p1/u1"], &[]]);
    assert_eq!(cluster.carry_out(&enforced, at(9)), ["p2: NumaFeasible", "p3: NumaWaiting"]);
    cluster.bind("p2", "n1", at(9));
    cluster.report("n1", [&["p1/u1"], &["p2/u2"]]);
    assert_eq!(cluster.carry_out(&enforced, at(10)), ["p3: NumaWaiting"], "no NUMA node is left");
}

#[test]
fn a_pod_without_a_node_counts_on_the_nodes_that_it_may_choose() {
    let enforced = enforced();
    let mut cluster = two_nodes();
    for number in [1, 2] {
        cluster.pod(number, "ps", "", "ps");
        cluster.change(&format!("p{number}"), |pod| {
            let node = format!("n{number}");
            pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
        });
    }
    assert_eq!(cluster.carry_out(&enforced, at(5)), ["p1: NumaFeasible", "p2: NumaFeasible"]);
}

#[test]
fn only_nodes_that_the_scheduler_may_choose_are_feasible() {
    let enforced = enforced();
    let mut cluster = one_node();
    cluster.pod(1, "ps", "", "ps");
    cluster.change("n1", |node| node["spec"] = json!({"unschedulable": true}));
    cluster.carry_out(&enforced, at(5));
    let plan = cluster.plan(&enforced, at(5));
    let note = &plan.actions[0].events[0].note;
    assert!(note.contains("2: the scheduler cannot choose the node"), "{note}");
    cluster.change("n1", |node| node["spec"] = json!({}));
    assert_eq!(cluster.carry_out(&enforced, at(6)), ["p1: NumaFeasible"]);

    // What is on other nodes is not the reason.
    let mut cluster = two_nodes();
    cluster.pod(1, "worker", "ps", "");
    cluster.change("p1", |pod| {
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n1"});
    });
    cluster.carry_out(&enforced, at(5));
    let plan = cluster.plan(&enforced, at(5));
    let note = &plan.actions[0].events[0].note;
    let why =
        "(2: no pod that the affinity asks for is there, 2: the scheduler cannot choose the node)";
    assert!(note.contains(why), "{note}");

    let mut cluster = Cluster::default();
    cluster.node("n1");
    cluster.pod(1, "ps", "", "ps");
    let plan = cluster.plan(&enforced, at(5));
    let note = &plan.actions.iter().find_map(|action| action.events.first()).unwrap().note;
    assert!(note.contains("no node has a CustomNodeResource"), "{note}");
}

#[test]
fn the_default_scheduler_is_left_the_feasible_nodes() {
    const TERMS: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let enforced = enforced();
    for (scheduler, is_restricted) in [(None, true), (Some("katalyst-scheduler"), false)] {
        let mut cluster = two_nodes();
        cluster.pod(9, "ps", "", "none");
        cluster.bind("p9", "n1", at(0));
        cluster.report("n1", [&["p9/u9"], &["p9/u9"]]);
        for number in [1, 2] {
            cluster.pod(number, "worker", "", "ps");
            cluster.change(&format!("p{number}"), |pod| {
                pod["spec"]["schedulerName"] = json!(scheduler);
                pod["spec"]["affinity"] = json!({"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchExpressions": [{"key": NUMA_ZONES, "operator": "Exists"}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n7"]}]},
                        {},
                    ]}}});
            });
        }
        let events = cluster.carry_out(&enforced, at(5));
        assert_eq!(events, ["p1: NumaFeasible", "p2: NumaFeasible"]);
        assert!(cluster.plan(&enforced, at(6)).actions.is_empty());
        let [first, terms] = ["p1", "p2"].map(|pod| cluster.pod_now(pod).pointer(TERMS).unwrap());
        assert_eq!(first, terms);
        let on_n2 = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]});
        let found = [&terms[0]["matchExpressions"][1], &terms[1]["matchExpressions"][0], &terms[2]];
        let nothing = Value::Null;
        let wanted = if is_restricted {
            [&on_n2, &on_n2, &json!({})]
        } else {
            [&nothing, &nothing, &json!({})]
        };
        assert_eq!(found, wanted, "{scheduler:?}");
    }
}

#[test]
fn the_first_pod_of_a_group_leads() {
    let enforced = enforced();
    let mut cluster = one_node();
    for number in [1, 2, 3] {
        cluster.pod(number, "ring", "ring", "");
    }
    let affinity = cluster.pod_now("p1")["metadata"]["annotations"][AFFINITY].clone();
    let events = cluster.carry_out(&enforced, at(5));
    assert_eq!(events, ["p1: NumaLeader", "p2: NumaWaiting", "p3: NumaWaiting"]);
    let annotations = &cluster.pod_now("p1")["metadata"]["annotations"];
    assert_eq!((&annotations[AFFINITY], &annotations[LEADER_OF]), (&Value::Null, &affinity));
    let waiting = ["p2: NumaWaiting", "p3: NumaWaiting"];
    assert_eq!(cluster.carry_out(&enforced, at(300)), waiting, "it may still be bound");
    cluster.bind("p1", "n1", at(301));
    assert_eq!(cluster.carry_out(&enforced, at(302)), waiting, "it is not reported");
    cluster.report("n1", [&[], &["p1/u1"]]);
    assert_eq!(cluster.carry_out(&enforced, at(303)), ["p2: NumaFeasible", "p3: NumaFeasible"]);
}

#[test]
fn another_pod_leads_after_a_leader_that_is_gone_or_never_reported() {
    let enforced = enforced();
    for is_deleted in [true, false] {
        let mut cluster = one_node();
        for number in [1, 2, 3] {
            cluster.pod(number, "ring", "ring", "");
        }
        cluster.carry_out(&enforced, at(5));
        if is_deleted {
            cluster.remove("Pod", "p1");
        } else {
            cluster.bind("p1", "n1", at(6));
        }
        let wait = if is_deleted { 7 } else { 126 };
        assert_eq!(cluster.carry_out(&enforced, at(wait)), ["p2: NumaLeader", "p3: NumaWaiting"]);
    }
}

#[test]
fn no_pod_leads_where_another_may_serve_the_group() {
    let enforced = enforced();
    let mut cluster = one_node();
    // A pod of the role that needs no other: it goes as soon as a NUMA node is feasible for it.
    cluster.pod(1, "ring", "ring", "");
    cluster.pod(2, "ring", "", "none");
    assert_eq!(cluster.carry_out(&enforced, at(5)), ["p1: NumaWaiting", "p2: NumaFeasible"]);
    cluster.bind("p2", "n1", at(6));
    cluster.report("n1", [&["p2/u2"], &[]]);
    assert_eq!(cluster.carry_out(&enforced, at(7)), ["p1: NumaFeasible"]);
    // An affinity to another group has no leader.
    cluster.pod(3, "worker", "nobody", "");
    assert_eq!(cluster.carry_out(&enforced, at(8)), ["p3: NumaWaiting"]);
}

#[test]
fn a_gate_is_removed_at_its_deadline_with_a_warning() {
    let policy = policy("mode: enforced, gateDeadline: 30s");
    let mut cluster = one_node();
    cluster.pod(1, "worker", "ps", "");
    cluster.carry_out(&policy, at(30));
    assert_eq!(cluster.gates("p1"), 1);
    assert_eq!(cluster.carry_out(&policy, at(31)), ["p1: NumaDeadline"]);
    assert_eq!(cluster.gates("p1"), 0);
}

#[test]
fn gates_are_removed_where_nothing_is_enforced_any_more() {
    for off in ["mode: advisory", "mode: disabled"] {
        let mut cluster = Cluster::default();
        cluster.pod(1, "worker", "ps", "");
        assert_eq!(cluster.carry_out(&policy(off), at(5)), ["p1: GateLifted"], "{off}");
    }
    let excluded = "excludedNamespaces: [ns]\nkatalyst: {mode: enforced, declaredLabels: [role]}";
    let mut cluster = Cluster::default();
    cluster.pod(1, "worker", "ps", "");
    assert_eq!(cluster.carry_out(&Policy::from_yaml(excluded).unwrap(), at(5)), ["p1: GateLifted"]);
    cluster.pod(2, "worker", "", "");
    assert_eq!(cluster.carry_out(&enforced(), at(5)), ["p2: GateLifted"], "without selectors");
}

#[test]
fn a_group_that_missed_its_deadline_starts_nevertheless() {
    let enforced = enforced();
    let mut cluster = one_node();
    cluster.change("n1", |node| node["spec"] = json!({"unschedulable": true}));
    for number in [1, 2] {
        cluster.pod(number, "ring", "ring", "");
    }
    // The first one has lost its affinity, and the other one waits for it.
    assert_eq!(cluster.carry_out(&enforced, at(601)), ["p1: NumaLeader", "p2: NumaWaiting"]);
    assert!(cluster.pod_now("p1")["metadata"]["annotations"][AFFINITY].is_null());

    // A pod of the group that never had a gate may wait for ever.
    let mut cluster = one_node();
    cluster.pod(1, "ring", "ring", "");
    cluster.change("p1", |pod| pod["spec"]["schedulingGates"] = json!([]));
    cluster.pod(2, "ring", "ring", "");
    assert_eq!(cluster.carry_out(&enforced, at(50)), ["p2: NumaWaiting"]);
    assert_eq!(cluster.carry_out(&enforced, at(121)), ["p2: NumaLeader"]);

    // So may one on a machine that this one may not choose.
    let mut cluster = two_nodes();
    cluster.pod(1, "ring", "", "none");
    cluster.bind("p1", "n2", at(1));
    cluster.report("n2", [&["p1/u1"], &[]]);
    cluster.pod(2, "ring", "ring", "");
    cluster.change("p2", |pod| {
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n1"});
    });
    assert_eq!(cluster.carry_out(&enforced, at(5)), ["p2: NumaLeader"]);
}

#[test]
fn the_oldest_pod_leads_whatever_the_order_of_arrival() {
    let enforced = enforced();
    let mut cluster = one_node();
    cluster.pod(3, "ring", "ring", "");
    let plan = cluster.plan(&enforced, at(4));
    assert_eq!(plan.actions[0].events[0].reason, "NumaWaiting");
    assert_eq!(plan.recheck_at, Some(at(5)), "another one of its second may come");
    cluster.pod(2, "ring", "ring", "");
    assert_eq!(cluster.carry_out(&enforced, at(5)), ["p2: NumaLeader", "p3: NumaWaiting"]);
}

#[test]
fn a_clock_that_is_ahead_and_a_forged_time_change_nothing() {
    let enforced = enforced();
    let mut cluster = one_node();
    cluster.pod(1, "ps", "", "ps");
    cluster.pod(2, "ps", "", "ps");
    // Bound in the future of this clock, long after its creation.
    cluster.bind("p1", "n1", at(301));
    assert_eq!(cluster.carry_out(&enforced, at(300)), ["p2: NumaWaiting"]);
    // Without a node, a time in the future is no time of the controller.
    cluster.pod(1, "ps", "", "ps");
    cluster.change("p1", |pod| {
        pod["spec"]["schedulingGates"] = json!([]);
        pod["metadata"]["annotations"][LET_GO] = at(9_999).to_string().into();
    });
    assert_eq!(cluster.carry_out(&enforced, at(300)), ["p2: NumaFeasible"]);
}

#[test]
fn a_pod_that_was_never_let_go_keeps_no_other_waiting() {
    let enforced = enforced();
    let mut cluster = one_node();
    cluster.pod(1, "ps", "", "ps");
    cluster.change("p1", |pod| pod["spec"]["schedulingGates"] = json!([]));
    cluster.pod(2, "ps", "", "ps");
    assert_eq!(cluster.carry_out(&enforced, at(5)), ["p2: NumaFeasible"]);
}

#[test]
fn a_pod_with_other_gates_waits_until_they_are_removed() {
    let enforced = enforced();
    let mut cluster = one_node();
    cluster.pod(1, "ps", "", "ps");
    let own = json!([{"name": GATE}]);
    cluster.change("p1", |pod| {
        pod["spec"]["schedulingGates"] = json!([{"name": "other"}, {"name": GATE}]);
    });
    assert_eq!(cluster.carry_out(&enforced, at(5)), ["p1: NumaWaiting"]);
    cluster.change("p1", |pod| pod["spec"]["schedulingGates"] = own);
    assert_eq!(cluster.carry_out(&enforced, at(6)), ["p1: NumaFeasible"]);
}

#[test]
fn pods_that_only_wait_for_reports_get_a_second_deadline() {
    let enforced = enforced();
    let mut cluster = one_node();
    for number in [1, 2] {
        cluster.pod(number, "ps", "", "ps");
    }
    // No controller ran before.
    let events = cluster.carry_out(&enforced, at(700));
    assert_eq!(events, ["p1: NumaFeasible", "p2: NumaWaiting"]);
    assert_eq!(cluster.carry_out(&enforced, at(1_202)), ["p2: NumaFeasible"], "p1 is not reported");
}

#[test]
fn pods_that_exclude_their_own_kind_share_the_machines() {
    let enforced = enforced();
    let mut cluster = Cluster::default();
    for node in 10..30 {
        let node = format!("n{node}");
        cluster.node(&node);
        cluster.report(&node, [&[], &[]]);
    }
    for number in 1..=5 {
        cluster.pod(number, "ps", "", "ps");
    }
    let events = cluster.carry_out(&enforced, at(9));
    let feasible = events.iter().filter(|event| event.ends_with("NumaFeasible")).count();
    assert_eq!((events.len(), feasible), (5, 5), "each is left four of twenty nodes: {events:?}");
}

/// Left only the second node, which may lack CPUs for all of them, one of the workers would stay Pending.
#[test]
fn pods_wait_for_reports_that_may_give_them_more_nodes() {
    let enforced = enforced();
    let mut cluster = two_nodes();
    cluster.pod(1, "ps", "", "worker");
    assert_eq!(cluster.carry_out(&enforced, at(2)), ["p1: NumaFeasible"]);
    cluster.bind("p1", "n1", at(2));
    for number in [2, 3, 4] {
        cluster.pod(number, "worker", "", "ps");
    }
    // On n1 it may be on either NUMA node.
    let waiting = ["p2: NumaWaiting", "p3: NumaWaiting", "p4: NumaWaiting"];
    assert_eq!(cluster.carry_out(&enforced, at(5)), waiting);
    let mut late = cluster.copy();
    cluster.report("n1", [&["p1/u1"], &[]]);
    let feasible = ["p2: NumaFeasible", "p3: NumaFeasible", "p4: NumaFeasible"];
    assert_eq!(cluster.carry_out(&enforced, at(6)), feasible);
    let text = cluster.pod_now("p2").to_string();
    assert!(text.contains(r#""values":["n1","n2"]"#), "{text}");
    // No report comes: they do not wait for long.
    assert_eq!(late.carry_out(&enforced, at(20)), feasible);
    let text = late.pod_now("p2").to_string();
    assert!(text.contains(r#""values":["n2"]"#), "{text}");
}
