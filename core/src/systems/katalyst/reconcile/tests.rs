//! The reconciler, plan by plan, on clusters of a few nodes.

mod simulator;

use serde_json::{Value, json};

use super::*;
use crate::simulation::{CONTROLLER, Outcome, Simulation};
use crate::systems::katalyst::keys::{
    AFFINITY, ANTI_AFFINITY, GATE, LET_GO, MEMORY_ENHANCEMENT, NUMA_ZONES, QOS_LEVEL,
};
use crate::systems::plan::Write;
use crate::systems::test_objects;
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

/// A simulation, of which the controller has seen everything. Gates are enforced.
#[derive(Debug)]
struct Cluster(Simulation);

impl Default for Cluster {
    fn default() -> Self {
        Self(Simulation::new(policy("mode: enforced"), at(0)).with_planner(plan))
    }
}

impl Cluster {
    /// Nodes without pods, and gated pods with these roles, affinities and anti-affinities ([`Self::pod`]).
    fn new(nodes: &[&str], pods: &[[&str; 3]]) -> Self {
        let mut cluster = Self::default();
        for node in nodes {
            cluster.node(node).report(node, [&[], &[]]);
        }
        for (number, [role, affinity, anti_affinity]) in (1..).zip(pods) {
            cluster.pod(number, role, affinity, anti_affinity);
        }
        cluster
    }

    fn apply(&mut self, document: Value) -> &mut Self {
        self.0.store.put(document);
        self.0.catch_up(CONTROLLER);
        self
    }

    fn view(&self) -> &View {
        self.0.view_of(CONTROLLER)
    }

    fn remove(&mut self, kind: &str, name: &str) -> &mut Self {
        self.0.take(kind, name);
        self.0.catch_up(CONTROLLER);
        self
    }

    /// Applies another policy ([`policy`]).
    fn govern(&mut self, text: &str) -> &mut Self {
        self.0.policy = policy(text);
        self
    }

    fn node(&mut self, name: &str) -> &mut Self {
        let metadata = json!({"uid": name, "labels": {NUMA_ZONES: "2"}});
        self.apply(test_objects::node(name, &json!({"metadata": metadata})))
    }

    /// A report of two sockets with one NUMA node each, with the pods on each (`name/uid`).
    fn report(&mut self, node: &str, zones: [&[&str]; 2]) -> &mut Self {
        let zones = zones.iter().enumerate().map(|(zone, pods)| {
            let pods = pods.iter().map(|pod| json!({"consumer": format!("ns/{pod}")}));
            json!({"type": "Socket", "name": zone.to_string(), "children": [
                {"type": "Numa", "name": zone.to_string(), "allocations": pods.collect::<Vec<_>>()}]})
        });
        self.apply(json!({
            "apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource",
            "metadata": {"name": node, "uid": node},
            "status": {"topologyZone": zones.collect::<Vec<_>>()},
        }))
    }

    /// A gated pod with the role, that asks for one role and avoids another.
    fn pod(&mut self, number: i64, role: &str, affinity: &str, anti_affinity: &str) -> &mut Self {
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
        }))
    }

    /// Changes the pod or the node of this name.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Value)) -> &mut Self {
        let kind = if self.0.has("Pod", name) { "Pod" } else { "Node" };
        change(&mut self.0.edit(kind, name));
        self.0.catch_up(CONTROLLER);
        self
    }

    /// Lets a pod run only on this node.
    fn select(&mut self, pod: &str, node: &str) -> &mut Self {
        let selector = json!({"kubernetes.io/hostname": node});
        self.change(pod, |pod| pod["spec"]["nodeSelector"] = selector)
    }

    /// Replaces the gates of a pod.
    fn gate(&mut self, pod: &str, gates: &[&str]) -> &mut Self {
        let gates: Value = gates.iter().map(|name| json!({"name": name})).collect();
        self.change(pod, |pod| pod["spec"]["schedulingGates"] = gates)
    }

    fn cordon(&mut self, node: &str, cordoned: bool) -> &mut Self {
        self.change(node, |node| node["spec"] = json!({"unschedulable": cordoned}))
    }

    /// The scheduler binds a pod.
    fn bind(&mut self, pod: &str, node: &str, second: i64) -> &mut Self {
        self.gate(pod, &[]).change(pod, |pod| {
            pod["spec"]["nodeName"] = node.into();
            pod["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "True",
                "lastTransitionTime": at(second).to_string()}]});
        })
    }

    fn plan(&mut self, second: i64) -> Plan {
        self.0.store.now = at(second);
        self.0.make_plan()
    }

    /// The first note of a plan.
    fn note(&mut self, second: i64) -> String {
        let plan = self.plan(second);
        let mut events = plan.actions.iter().flat_map(|action| &action.events);
        events.next().unwrap().note.clone()
    }

    /// Carries out a plan. Returns its events as `object: reason`.
    fn carry_out(&mut self, second: i64) -> Vec<String> {
        let mut events = Vec::new();
        for action in self.plan(second).actions {
            let name = &action.target.name;
            events.extend(action.events.iter().map(|event| format!("{name}: {}", event.reason)));
            assert_eq!(self.0.carry_out(action), Outcome::Done);
        }
        self.0.catch_up(CONTROLLER);
        events
    }

    /// Carries out a plan that has these events.
    #[track_caller]
    fn expect(&mut self, second: i64, events: &[&str]) -> &mut Self {
        assert_eq!(self.carry_out(second), events);
        self
    }

    fn pod_now(&self, name: &str) -> &Value {
        self.0.get("Pod", name)
    }

    /// Carries out a plan, and checks the label of the only node.
    #[track_caller]
    fn expect_label(&mut self, label: Option<&str>) -> &mut Self {
        self.carry_out(0);
        let node = self.0.store.all("Node").next().unwrap();
        assert_eq!(node["metadata"]["labels"][NUMA_ZONES].as_str(), label);
        self
    }
}

#[test]
fn the_label_of_a_node_follows_its_report() {
    let mut cluster = Cluster::new(&["n1"], &[]);
    cluster.change("n1", |node| node["metadata"]["labels"] = json!({"a": "b"}));
    cluster.govern("mode: advisory").expect_label(Some("2"));
    assert!(cluster.plan(0).actions.is_empty(), "nothing is left to do");
    cluster.change("n1", |node| node["metadata"]["labels"][NUMA_ZONES] = json!("7"));
    cluster.expect_label(Some("2"));
    // The topology policy is not strict.
    cluster.govern("requireStrictTopology: true").expect_label(None);
    cluster.govern("mode: advisory").expect_label(Some("2"));
    cluster.govern("mode: disabled").expect_label(None);
    // The node has no labels.
    cluster.change("n1", |node| node["metadata"]["labels"] = Value::Null);
    cluster.govern("mode: advisory").expect_label(Some("2"));
    cluster.remove("CustomNodeResource", "n1").expect_label(None);
    assert!(cluster.remove("Node", "n1").plan(0).actions.is_empty());
}

#[test]
fn a_report_that_cannot_be_read_whole_is_reported_at_its_node() {
    let mut cluster = Cluster::new(&["n1"], &[]);
    cluster.report("n1", [&["p1"], &[]]).govern("mode: advisory");
    cluster.expect(0, &["n1: UnreadableNodeResource"]);
}

#[test]
fn a_pod_that_has_ended_is_not_avoided() {
    let pods = [["worker", "", "ps"], ["ps", "", "none"], ["ps", "", "none"]];
    let mut cluster = Cluster::new(&["n1"], &pods);
    cluster.bind("p2", "n1", 0).bind("p3", "n1", 0).report("n1", [&["p2/u2"], &["p3/u3"]]);
    cluster.carry_out(10);
    cluster.expect(10, &["p1: NumaWaiting"]);
    assert_eq!(cluster.plan(10).recheck_at, Some(at(601)), "the deadline of the gate");
    cluster.change("p3", |pod| pod["status"]["phase"] = "Succeeded".into());
    let pod = cluster.expect(11, &["p1: NumaFeasible"]).pod_now("p1");
    assert_eq!(pod["metadata"]["annotations"][LET_GO], at(11).to_string());
    cluster.expect(12, &[]);
}

#[test]
fn a_wrong_uid_or_a_pod_that_is_gone_forbids_nothing() {
    let mut cluster = Cluster::new(&["n1"], &[["worker", "", "ps"], ["ps", "", "none"]]);
    cluster.bind("p2", "n1", 0).report("n1", [&["p2/other", "gone/u9"], &["p2/other"]]);
    // It is bound and not reported, so it counts everywhere until the deadline.
    cluster.carry_out(119);
    cluster.expect(119, &["p1: NumaWaiting"]);
    assert_eq!(cluster.plan(119).recheck_at, Some(at(120)));
    cluster.expect(120, &["p1: NumaFeasible"]);
}

#[test]
fn a_pod_without_a_node_counts_on_the_nodes_that_it_may_choose() {
    let mut cluster = Cluster::new(&["n1", "n2"], &[["ps", "", "ps"]; 2]);
    cluster.select("p1", "n1").select("p2", "n2");
    cluster.expect(5, &["p1: NumaFeasible", "p2: NumaFeasible"]);
}

#[test]
fn only_nodes_that_the_scheduler_may_choose_are_feasible() {
    let mut cluster = Cluster::new(&["n1"], &[["ps", "", "ps"]]);
    cluster.cordon("n1", true).carry_out(5);
    let note = cluster.note(5);
    assert!(note.contains("2: the scheduler cannot choose the node"), "{note}");
    cluster.cordon("n1", false).expect(6, &["p1: NumaFeasible"]);

    // What is on other nodes is not the reason.
    let mut cluster = Cluster::new(&["n1", "n2"], &[["worker", "ps", ""]]);
    cluster.select("p1", "n1").carry_out(5);
    let note = cluster.note(5);
    let why =
        "(2: no pod that the affinity asks for is there, 2: the scheduler cannot choose the node)";
    assert!(note.contains(why), "{note}");

    let mut cluster = Cluster::default();
    let note = cluster.node("n1").pod(1, "ps", "", "ps").note(5);
    assert!(note.contains("no node has a CustomNodeResource"), "{note}");
}

#[test]
fn the_default_scheduler_is_left_the_feasible_nodes() {
    const TERMS: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    for (scheduler, is_restricted) in [(None, true), (Some("katalyst-scheduler"), false)] {
        let mut cluster = Cluster::new(&["n1", "n2"], &[["worker", "", "ps"]]);
        cluster.pod(9, "ps", "", "none").bind("p9", "n1", 0);
        cluster.report("n1", [&["p9/u9"], &["p9/u9"]]).change("p1", |pod| {
            pod["spec"]["schedulerName"] = json!(scheduler);
            *pod.pointer_mut(TERMS).unwrap() = json!([
                {"matchExpressions": [{"key": NUMA_ZONES, "operator": "Exists"}]},
                {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n7"]}]},
                {},
            ]);
        });
        cluster.expect(5, &["p1: NumaFeasible"]);
        assert!(cluster.plan(6).actions.is_empty());
        let terms = cluster.pod_now("p1").pointer(TERMS).unwrap();
        let on_n2 = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]});
        let added = if is_restricted { on_n2 } else { Value::Null };
        let found = [&terms[0]["matchExpressions"][1], &terms[1]["matchExpressions"][0], &terms[2]];
        assert_eq!(found, [&added, &added, &json!({})], "{scheduler:?}");
    }
}

#[test]
fn another_pod_leads_after_a_leader_that_is_gone_or_never_reported() {
    for is_deleted in [true, false] {
        let mut cluster = Cluster::new(&["n1"], &[["ring", "ring", ""]; 3]);
        cluster.carry_out(5);
        let second = if is_deleted {
            cluster.remove("Pod", "p1");
            7
        } else {
            // Until it is bound it may come to run at any time.
            let waiting = ["p2: NumaWaiting", "p3: NumaWaiting"];
            cluster.expect(300, &waiting).bind("p1", "n1", 301);
            421
        };
        cluster.expect(second, &["p2: NumaLeader", "p3: NumaWaiting"]);
    }
}

#[test]
fn no_pod_leads_where_another_may_serve_the_group() {
    // A pod of the role that needs no other: it goes as soon as a NUMA node is feasible for it.
    let mut cluster = Cluster::new(&["n1"], &[["ring", "ring", ""], ["ring", "", "none"]]);
    cluster.expect(5, &["p1: NumaWaiting", "p2: NumaFeasible"]).bind("p2", "n1", 6);
    cluster.report("n1", [&["p2/u2"], &[]]).expect(7, &["p1: NumaFeasible"]);
    // An affinity to another group has no leader.
    cluster.pod(3, "worker", "nobody", "").expect(8, &["p3: NumaWaiting"]);
}

#[test]
fn gates_are_removed_where_nothing_is_enforced_any_more() {
    let mut cluster = Cluster::new(&[], &[["worker", "ps", ""]]);
    cluster.govern("mode: disabled").expect(5, &["p1: GateLifted"]);
    let mut cluster = Cluster::new(&[], &[["worker", "ps", ""]]);
    cluster.0.policy.excluded_namespaces.insert("ns".to_owned());
    cluster.expect(5, &["p1: GateLifted"]);
    // Without selectors.
    Cluster::new(&[], &[["worker", "", ""]]).expect(5, &["p1: GateLifted"]);
}

#[test]
fn a_group_that_missed_its_deadline_starts_nevertheless() {
    let mut cluster = Cluster::new(&["n1"], &[["ring", "ring", ""]; 2]);
    // The first one has lost its affinity, and the other one waits for it.
    cluster.cordon("n1", true).expect(601, &["p1: NumaLeader", "p2: NumaWaiting"]);
    assert!(cluster.pod_now("p1")["metadata"]["annotations"][AFFINITY].is_null());

    // A pod of the group that never had a gate may wait for ever.
    let mut cluster = Cluster::new(&["n1"], &[["ring", "ring", ""]; 2]);
    cluster.gate("p1", &[]).expect(50, &["p2: NumaWaiting"]).expect(121, &["p2: NumaLeader"]);

    // So may one on a machine that this one may not choose.
    let mut cluster = Cluster::new(&["n1", "n2"], &[["ring", "", "none"], ["ring", "ring", ""]]);
    cluster.bind("p1", "n2", 1).report("n2", [&["p1/u1"], &[]]).select("p2", "n1");
    cluster.expect(5, &["p2: NumaLeader"]);
}

#[test]
fn the_oldest_pod_leads_whatever_the_order_of_arrival() {
    let mut cluster = Cluster::new(&["n1"], &[]);
    let plan = cluster.pod(3, "ring", "ring", "").plan(4);
    assert_eq!(plan.actions[0].events[0].reason, "NumaWaiting");
    assert_eq!(plan.recheck_at, Some(at(5)), "another one of its second may come");
    cluster.pod(2, "ring", "ring", "").expect(5, &["p2: NumaLeader", "p3: NumaWaiting"]);
}

#[test]
fn a_clock_that_is_ahead_and_a_forged_time_change_nothing() {
    let mut cluster = Cluster::new(&["n1"], &[["ps", "", "ps"]; 2]);
    // Bound in the future of this clock, long after its creation.
    cluster.bind("p1", "n1", 301).expect(300, &["p2: NumaWaiting"]);
    // Without a node, a time in the future is no time of the controller.
    cluster.pod(1, "ps", "", "ps").gate("p1", &[]).change("p1", |pod| {
        pod["metadata"]["annotations"][LET_GO] = at(9_999).to_string().into();
    });
    cluster.expect(300, &["p2: NumaFeasible"]);
}

#[test]
fn a_pod_that_was_never_let_go_keeps_no_other_waiting() {
    let mut cluster = Cluster::new(&["n1"], &[["ps", "", "ps"]; 2]);
    cluster.gate("p1", &[]).expect(5, &["p2: NumaFeasible"]);
}

#[test]
fn a_pod_with_other_gates_waits_until_they_are_removed() {
    let mut cluster = Cluster::new(&["n1"], &[["ps", "", "ps"]]);
    cluster.gate("p1", &["other", GATE]).expect(5, &["p1: NumaWaiting"]);
    cluster.gate("p1", &[GATE]).expect(6, &["p1: NumaFeasible"]);
}

#[test]
fn pods_that_only_wait_for_reports_get_a_second_deadline() {
    let mut cluster = Cluster::new(&["n1"], &[["ps", "", "ps"]; 2]);
    // No controller ran before.
    cluster.expect(700, &["p1: NumaFeasible", "p2: NumaWaiting"]);
    // The first one is not reported.
    cluster.expect(1_202, &["p2: NumaFeasible"]);
}

#[test]
fn pods_that_exclude_their_own_kind_share_the_machines() {
    let nodes: Vec<String> = (10..30).map(|node| format!("n{node}")).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let events = Cluster::new(&nodes, &[["ps", "", "ps"]; 5]).carry_out(9);
    let feasible = events.iter().filter(|event| event.ends_with("NumaFeasible")).count();
    assert_eq!((events.len(), feasible), (5, 5), "each is left four of twenty nodes: {events:?}");
}

/// Left only the second node, which may lack CPUs for all of them, one of the workers would stay Pending.
#[test]
fn pods_wait_for_reports_that_may_give_them_more_nodes() {
    for (is_reported, second, left) in [(true, 6, r#"["n1","n2"]"#), (false, 20, r#"["n2"]"#)] {
        let mut cluster = Cluster::new(&["n1", "n2"], &[["ps", "", "worker"]]);
        cluster.expect(2, &["p1: NumaFeasible"]).bind("p1", "n1", 2);
        [2, 3, 4].iter().for_each(|number| _ = cluster.pod(*number, "worker", "", "ps"));
        // On n1 it may be on either NUMA node.
        cluster.expect(5, &["p2: NumaWaiting", "p3: NumaWaiting", "p4: NumaWaiting"]);
        if is_reported {
            cluster.report("n1", [&["p1/u1"], &[]]);
        }
        // If no report comes, they do not wait for long.
        let feasible = ["p2: NumaFeasible", "p3: NumaFeasible", "p4: NumaFeasible"];
        let pod = cluster.expect(second, &feasible).pod_now("p2");
        assert!(pod.to_string().contains(&format!(r#""values":{left}"#)), "{pod}");
    }
}
