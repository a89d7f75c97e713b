//! Pools choose members with regard to what waiting pods need: it changes the order, and nothing else.

use serde_json::json;

use super::simulator::World;
use super::{exclusive, labels, shared};
use crate::systems::streams::keys::COLOCATION_LABEL_PREFIX;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

impl World {
    /// Takes the node from a pod.
    fn unbind(&mut self, pod: &str) -> &mut Self {
        let with = json!({"spec": {"nodeName": null}, "status": {"phase": "Pending"}});
        self.change_pod(pod, with)
    }

    /// A Streams pod that has no node and asks for a pool, or for one member of it.
    fn waits_for(&mut self, name: &str, pool: &str, index: Option<u32>) -> &mut Self {
        self.pod_of(name, "", pool, index).unbind(name)
    }

    /// A pod that waits for pool `p`, or for one member of it, and names a node.
    fn waits_on(&mut self, name: &str, index: Option<u32>, node: &str) -> &mut Self {
        self.waits_for(name, "p", index).name_node(name, node)
    }

    /// Adds a requirement to the pod's required node affinity, as the webhook does.
    fn require(&mut self, pod: &str, kind: &str, key: &str, values: &[&str]) -> &mut Self {
        let mut pod = self.edit("Pod", pod);
        let terms = &mut pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"];
        if terms.is_null() {
            *terms = json!([{}]);
        }
        for term in terms.as_array_mut().unwrap() {
            let mut requirements = term[kind].as_array().cloned().unwrap_or_default();
            // Before what the webhook adds.
            requirements.insert(0, json!({"key": key, "operator": "In", "values": values}));
            term[kind] = json!(requirements);
        }
        drop(pod);
        self
    }

    /// Lets the pod name this node.
    fn name_node(&mut self, pod: &str, node: &str) -> &mut Self {
        self.require(pod, "matchFields", "metadata.name", &[node])
    }

    /// Colocates the pod with the others of its job that have the token A, and prefers them too.
    fn colocate(&mut self, pod: &str) -> &mut Self {
        let key = format!("{COLOCATION_LABEL_PREFIX}A");
        let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [
            {"key": key, "operator": "In", "values": ["t"]},
            {"key": "streams.ibm.com/job", "operator": "In", "values": ["other"]},
        ]}});
        let preferred = json!([{"weight": 100, "podAffinityTerm": term}]);
        let affinity = json!({"podAffinity": {REQUIRED: [term], PREFERRED: preferred}});
        let labels = json!({key: "t"});
        self.change_pod(
            pod,
            json!({"metadata": {"labels": labels}, "spec": {"affinity": affinity}}),
        )
    }
}

#[test]
fn a_pool_takes_the_node_of_the_group_of_a_pod_that_waits_for_it() {
    let none = || json!({});
    let preferred = json!({"spec": {"affinity": {"podAffinity": {REQUIRED: null}}}});
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let ended = json!({"status": {"phase": "Succeeded"}});
    let second = || labels(json!({"streams.ibm.com/job": "second"}));
    let named = json!({"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["n03"]}]}]});
    let named = json!({"spec": {"nodeName": null, "affinity": {"nodeAffinity": {REQUIRED: named}},
        "schedulingGates": [{"name": "example.com/wait"}]}, "status": {"phase": "Pending"}});
    let upstream = "streams: {compat: upstream}";
    for (what, mate, own, policy, expected) in [
        ("the group is on n03", none(), none(), "", "n03, n00"),
        ("it is only preferred", none(), preferred, "", "n00, n01"),
        ("the waiting pod is being deleted", none(), deleted, "", "n00, n01"),
        ("the other pod has ended", ended, none(), "", "n00, n01"),
        ("the other pod is of another job", second(), none(), "", "n00, n01"),
        ("jobs share their tokens", second(), none(), upstream, "n03, n00"),
        ("the other pod waits, and names n03", named, none(), "", "n03, n00"),
    ] {
        let mut world = World::sized(4);
        world.set_policy(policy).pool("p", shared(2)).pod("mate", "n03").colocate("mate");
        world.change_pod("mate", mate).waits_for("a", "p", None).colocate("a");
        world.change_pod("a", own).settle();
        assert_eq!(world.nodes_of("p"), expected, "{what}");
    }
    let mut world = World::sized(4);
    world.pool("p", exclusive(1));
    // The mate is of the pool, too: it was admitted when the node was in it.
    world.pod_of("mate", "n02", "p", None).colocate("mate").waits_for("a", "p", None).colocate("a");
    world.settle().expect_nodes("p", "n02");
}

#[test]
fn a_group_has_a_node_until_the_last_of_its_pods_there_is_deleted_or_ends() {
    let mut world = World::sized(4);
    ["deleted", "ends"].iter().for_each(|mate| _ = world.pod(mate, "n03").colocate(mate));
    world.settle().take("Pod", "deleted");
    world.pool("p", shared(1)).waits_for("a", "p", None).colocate("a");
    world.settle().expect_nodes("p", "n03").take("Pod", "a");
    world.change_pod("ends", json!({"status": {"phase": "Succeeded"}})).pool("q", shared(1));
    world.waits_for("b", "q", None).colocate("b").settle().expect_nodes("q", "n00");
}

#[test]
fn a_pool_takes_the_node_that_a_pod_which_waits_for_it_names() {
    let (name, hostname) = ("metadata.name", "kubernetes.io/hostname");
    let selects = json!({"spec": {"nodeSelector": {hostname: "h3"}}});
    let unlabelled = labels(json!({"app": null, "streams.ibm.com/job": null}));
    for (what, index, key, values, with, expected) in [
        ("a name", None, name, &["n03"][..], json!({}), "n03, n00"),
        ("two names", None, name, &["n02", "n03"], json!({}), "n00, n01"),
        ("another index than the pool has", Some(7), name, &["n03"], json!({}), "n00, n01"),
        ("a hostname", None, hostname, &["h3"], json!({}), "n03, n00"),
        ("a selector", None, "", &[], selects, "n03, n00"),
        ("a name, without the labels of Streams", None, name, &["n03"], unlabelled, "n03, n00"),
    ] {
        let mut world = World::sized(4);
        world.change_node("n03", labels(json!({hostname: "h3"}))).pool("p", shared(2));
        world.waits_for("a", "p", index);
        let kind = if key == name { "matchFields" } else { "matchExpressions" };
        if !key.is_empty() {
            world.require("a", kind, key, values);
        }
        world.change_pod("a", with).settle();
        assert_eq!(world.nodes_of("p"), expected, "{what}");
    }
}

#[test]
fn the_node_that_more_pods_need_comes_first() {
    let mut world = World::sized(4);
    world.pool("p", shared(1));
    world.waits_on("a", None, "n01").waits_on("b", None, "n03").waits_on("c", None, "n03");
    world.settle().expect_nodes("p", "n03").grow("p", 3).settle();
    world.expect_nodes("p", "n03, n01, n00");
}

#[test]
fn a_member_gets_the_node_where_the_pod_that_asks_for_it_must_be() {
    let mut world = World::sized(5);
    world.pool("p", shared(3)).waits_on("second", Some(2), "n00").pod("mate", "n04");
    world.colocate("mate").waits_for("first", "p", Some(1)).colocate("first").settle();
    world.expect_nodes("p", "n01, n04, n00");

    // Likewise if members are replaced: the one with a lower index does not take the node.
    world.clear("Pod").delete_nodes(&["n01", "n04"]).waits_on("again", Some(1), "n02").settle();
    world.expect_nodes("p", "n03, n02, n00");
}

#[test]
fn a_vacant_member_gets_the_only_node_rather_than_another_one() {
    let mut world = World::settled(2, [("p", shared(2))]);
    world.clear("Node").waits_on("a", Some(1), "n05").settle().node("n05", json!({})).settle();
    let problem = "member 0 is vacant; needs 1 more node, 0 are eligible";
    world.expect("p", "n00 Vacant, n05", &format!("False InsufficientNodes: {problem}"));
}

#[test]
fn no_member_takes_the_node_of_a_pod_that_runs_for_another_one() {
    let mut world = World::settled(2, [("p", shared(2))]);
    world.clear("Node").settle();
    // The node of the pod is back, as another one, and it is the only one.
    world.pod_of("runs", "n01", "p", Some(1)).node("n01", json!({})).waits_on("a", None, "n01");
    world.settle().expect_nodes("p", "n00 Vacant, n01");
}

#[test]
fn an_exclusive_pool_takes_nodes_that_others_name_last() {
    for (spec, expected) in [
        (exclusive(2), "n03, n01"),
        // No node becomes ineligible.
        (exclusive(4), "n03, n01, n02, n00"),
        // Others may be there, too.
        (shared(2), "n03, n00"),
    ] {
        let mut world = World::sized(4);
        world.pool("p", spec.clone()).pod("foreign", "").unbind("foreign");
        world.name_node("foreign", "n00");
        // It asks for the pool itself, so the pool may have its node.
        world.waits_on("own", None, "n03").settle();
        assert_eq!(world.nodes_of("p"), expected, "{spec}");
    }
}

#[test]
fn a_pod_of_another_pool_or_namespace_is_another_one() {
    let mut world = World::sized(4);
    world.pool("old", exclusive(1)).pool("p", shared(1)).waits_on("a", None, "n00");
    // It asks for the pool of a namespace that is not its own.
    world.waits_for("stranger", "old", None).name_node("stranger", "n01");
    world.move_pod("stranger", "else", &json!({})).settle();
    assert_eq!((&*world.nodes_of("old"), &*world.nodes_of("p")), ("n02", "n00"));
}

#[test]
fn what_pods_need_makes_no_node_eligible_and_moves_no_member() {
    let mut world = World::sized(4);
    world.change_node("n02", json!({"spec": {"unschedulable": true}})).pool("p", shared(1));
    world.waits_on("a", None, "n02").settle().expect_nodes("p", "n00");

    world.waits_on("b", None, "n03").waits_on("c", Some(0), "n01");
    world.writes.clear();
    world.settle();
    assert!(world.writes.is_empty(), "the pool keeps its member: {:?}", world.writes);
    world.grow("p", 2).settle().expect_nodes("p", "n00, n03").grow("p", 4).settle();
    let few = "needs 2 more nodes, 1 is eligible; 1 is cordoned";
    assert_eq!(world.ready("p"), format!("False InsufficientNodes: {few}"));
}
