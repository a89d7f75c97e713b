//! Members that are lost, replaced or waited for, and marks that are restored.

use k8s_openapi::jiff::SignedDuration;
use serde_json::json;

use super::simulator::{World, pool_label};
use super::{exclusive, labels, shared, tainted};
use crate::systems::streams::keys::EXCLUSIVE_TAINT;

#[test]
fn many_lost_members_share_one_event() {
    let mut world = World::settled(12, [("p", shared(12))]);
    world.events.clear();
    world.clear("Node").settle();
    let events = [&["MemberLost"; 6][..], &["InsufficientNodes"]].concat();
    assert_eq!(world.event_reasons("p"), events);
    assert_eq!(world.events[5].1.note, "and 7 more members");
    let vacant = "members 0, 1, 2, 3, 4 and 7 more are vacant; needs 12 nodes, 0 are eligible";
    assert_eq!(world.ready("p"), format!("False InsufficientNodes: {vacant}"));
}

#[test]
fn a_lost_member_is_replaced_in_two_status_writes_and_the_others_stay() {
    for (is_deleted, spec, patches) in [
        (true, shared(3), 1),
        (true, exclusive(3), 2),
        (false, shared(3), 2),
        (false, exclusive(3), 3),
    ] {
        let mut world = World::settled(4, [("p", spec)]);
        let before = world.document("p")["status"]["members"].clone();
        world.writes.clear();
        world.events.clear();
        world.store.now += SignedDuration::from_hours(1);
        world.delete_nodes(&["n01"]);
        if !is_deleted {
            // Another node with the name, which already has the label.
            world.node("n01", json!({"spec": {"unschedulable": true}}));
            let label = pool_label(&world.hash("p"));
            world.change_node("n01", labels(json!({label: "1"})));
        }
        world.settle().expect_nodes("p", "n00, n03, n02");
        let after = world.document("p")["status"]["members"].clone();
        assert_eq!((&before[0], &before[2]), (&after[0], &after[2]));
        assert_ne!(before[1]["since"], after[1]["since"]);
        assert_eq!(world.labelled("p").len(), 3);
        world.expect_counts(2, patches);
        world.expect_events("p", &["MemberLost", "MemberReplaced", "Allocated"]);
        let why = if is_deleted { "was deleted" } else { "was deleted and created again" };
        assert_eq!(world.events[0].1.note, format!("node n01, member 1, {why}"));
    }
}

#[test]
fn a_member_for_which_no_node_is_eligible_stays_vacant() {
    let problem = |member: u32| {
        let more = "needs 1 more node, 0 are eligible";
        format!("False InsufficientNodes: member {member} is vacant; {more}")
    };
    let mut world = World::settled(3, [("p", shared(3))]);
    world.delete_nodes(&["n01"]).settle().expect("p", "n00, n01 Vacant, n02", &problem(1));
    let vacant = world.document("p")["status"]["members"][1].clone();
    assert!(vacant["uid"].is_null());
    world.store.now += SignedDuration::from_hours(1);
    world.delete_nodes(&["n02"]).settle().expect_nodes("p", "n00, n01 Vacant, n02 Vacant");
    assert_eq!(world.document("p")["status"]["members"][1], vacant);
    // Members are replaced independently.
    world.node("n09", json!({})).settle().expect("p", "n00, n09, n02 Vacant", &problem(2));
    world.node("n02", json!({})).settle().expect_nodes("p", "n00, n09, n02");
}

#[test]
fn a_lost_member_is_not_replaced_while_a_pod_of_it_runs() {
    for is_recreated in [true, false] {
        let mut world = World::settled(3, [("p", shared(2))]);
        world.pod_of("zero", "n00", "p", Some(0)).pod_of("any", "n01", "p", None);
        world.delete_nodes(&["n00", "n01"]).node("n08", json!({})).node("n09", json!({})).settle();
        let vacant = "member 0 is vacant until pod ns/zero, which asked for it, leaves node n00";
        world.expect("p", "n00 Vacant, n02", &format!("False InsufficientNodes: {vacant}"));
        if is_recreated {
            // The node of the pod.
            world.node("n00", json!({})).settle().expect_nodes("p", "n00, n02");
        } else {
            world.change_pod("zero", json!({"status": {"phase": "Failed"}}));
            world.settle().expect_nodes("p", "n08, n02");
        }
    }
}

#[test]
fn members_that_temporarily_accept_no_pods_stay_members() {
    let mut world = World::settled(4, [("p", shared(3))]);
    world.change_node("n00", json!({"spec": {"unschedulable": true}}));
    world.change_node("n01", json!({"status": {"conditions": []}}));
    world.change_node("n02", tainted("a", "NoExecute"));
    assert!(world.plan().actions.is_empty());
}

#[test]
fn missing_marks_of_a_ready_member_are_restored() {
    let mut world = World::settled(1, [("p", exclusive(1))]);
    let marks = world.marks();
    let label = pool_label(&world.hash("p"));
    world.take_counts();
    let foreign = json!([{"key": EXCLUSIVE_TAINT, "value": "x", "effect": "NoSchedule"}]);
    for (with, patches) in [
        (labels(json!({&label: null})), 1),
        (labels(json!({&label: "7"})), 1),
        (labels(json!({&label: "00"})), 1),
        (json!({"spec": {"taints": null}}), 1),
        (json!({"metadata": {"labels": {&label: null}}, "spec": {"taints": null}}), 1),
        // A taint with this key that belongs to no pool is replaced.
        (json!({"spec": {"taints": foreign}}), 2),
    ] {
        world.change_node("n00", with).settle();
        assert_eq!(world.marks(), marks);
        world.expect_counts(0, patches);
    }
}
