//! Members that are lost, replaced or waited for, and marks that are restored.

use k8s_openapi::jiff::SignedDuration;
use serde_json::json;

use super::labels;
use super::simulator::World;
use crate::systems::streams::resources::HOST_POOL;
use crate::view::resource::NODE;

#[test]
fn many_lost_members_share_one_event() {
    let mut world = World::sized(12);
    world.pool("p", json!({"size": 12}));
    world.settle();
    world.events.clear();
    world.nodes.clear();
    world.settle();
    assert_eq!(
        world.event_reasons("p"),
        ["MemberLost"; 6].into_iter().chain(["InsufficientNodes"]).collect::<Vec<_>>()
    );
    assert_eq!(world.events[5].1.note, "and 7 more members");
    assert_eq!(
        world.ready("p"),
        "False InsufficientNodes: members 0, 1, 2, 3, 4 and 7 more are vacant; \
         needs 12 nodes, 0 are eligible"
    );
}

#[test]
fn a_lost_member_is_replaced_in_two_status_writes_and_the_others_stay() {
    for is_deleted in [true, false] {
        for exclusivity in ["Shared", "Exclusive"] {
            let mut world = World::sized(4);
            world.pool("p", json!({"size": 3, "exclusivity": exclusivity}));
            world.settle();
            let before = world.document("p")["status"]["members"].clone();
            world.writes.clear();
            world.events.clear();
            world.now += SignedDuration::from_hours(1);
            world.nodes.remove("n01");
            if !is_deleted {
                // Another node with the name, which already has the label.
                world.node("n01", json!({"spec": {"unschedulable": true}}));
                let label =
                    format!("pool.stowplan.node-restriction.kubernetes.io/{}", world.hash("p"));
                world.change_node("n01", labels(json!({label: "1"})));
            }
            world.settle();
            assert_eq!(world.members("p"), ["0 n00 Ready", "1 n03 Ready", "2 n02 Ready"]);
            let after = world.document("p")["status"]["members"].clone();
            assert_eq!((&before[0], &before[2]), (&after[0], &after[2]));
            assert_ne!(before[1]["since"], after[1]["since"]);
            assert_eq!(world.labelled("p").len(), 3);
            let patches = if exclusivity == "Shared" { 1 } else { 2 } + usize::from(!is_deleted);
            assert_eq!((world.take_count(HOST_POOL), world.take_count(NODE)), (2, patches));
            assert_eq!(world.event_reasons("p"), ["MemberLost", "MemberReplaced", "Allocated"]);
            let why = if is_deleted { "was deleted" } else { "was deleted and created again" };
            assert_eq!(world.events[0].1.note, format!("node n01, member 1, {why}"));
        }
    }
}

#[test]
fn a_member_for_which_no_node_is_eligible_stays_vacant() {
    let mut world = World::sized(3);
    world.pool("p", json!({"size": 3}));
    world.settle();
    world.nodes.remove("n01");
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Ready", "1 n01 Vacant", "2 n02 Ready"]);
    assert_eq!(
        world.ready("p"),
        "False InsufficientNodes: member 1 is vacant; needs 1 more node, 0 are eligible"
    );
    let vacant = world.document("p")["status"]["members"][1].clone();
    assert!(vacant["uid"].is_null());
    world.now += SignedDuration::from_hours(1);
    world.nodes.remove("n02");
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Ready", "1 n01 Vacant", "2 n02 Vacant"]);
    assert_eq!(world.document("p")["status"]["members"][1], vacant);
    world.node("n09", json!({}));
    world.settle();
    assert_eq!(
        world.members("p"),
        ["0 n00 Ready", "1 n09 Ready", "2 n02 Vacant"],
        "members are replaced independently"
    );
    assert_eq!(
        world.ready("p"),
        "False InsufficientNodes: member 2 is vacant; needs 1 more node, 0 are eligible"
    );
    world.node("n02", json!({}));
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Ready", "1 n09 Ready", "2 n02 Ready"]);
}

#[test]
fn a_lost_member_is_not_replaced_while_a_pod_of_it_runs() {
    let mut world = World::sized(3);
    world.pool("p", json!({"size": 2}));
    world.settle();
    world.pod_of("zero", "n00", "p", Some(0));
    world.pod_of("any", "n01", "p", None);
    world.nodes.remove("n00");
    world.nodes.remove("n01");
    world.node("n08", json!({}));
    world.node("n09", json!({}));
    world.settle();
    assert_eq!(world.members("p"), ["0 n00 Vacant", "1 n02 Ready"]);
    assert_eq!(
        world.ready("p"),
        "False InsufficientNodes: \
         member 0 is vacant until pod ns/zero, which asked for it, leaves node n00"
    );
    let mut recreated = world.clone();
    recreated.node("n00", json!({}));
    recreated.settle();
    assert_eq!(recreated.members("p"), ["0 n00 Ready", "1 n02 Ready"], "the node of the pod");

    world.pods.get_mut("zero").unwrap()["status"]["phase"] = json!("Failed");
    world.settle();
    assert_eq!(world.members("p"), ["0 n08 Ready", "1 n02 Ready"]);
}

#[test]
fn members_that_temporarily_accept_no_pods_stay_members() {
    let mut world = World::sized(4);
    world.pool("p", json!({"size": 3}));
    world.settle();
    world.change_node("n00", json!({"spec": {"unschedulable": true}}));
    world.change_node("n01", json!({"status": {"conditions": []}}));
    world.change_node("n02", json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}));
    assert!(world.plan().actions.is_empty());
}

#[test]
fn missing_marks_of_a_ready_member_are_restored() {
    let mut world = World::sized(1);
    world.pool("p", json!({"size": 1, "exclusivity": "Exclusive"}));
    world.settle();
    let state = world.state();
    let label = format!("pool.stowplan.node-restriction.kubernetes.io/{}", world.hash("p"));
    world.writes.clear();
    for with in [
        json!({"metadata": {"labels": {&label: null}}}),
        json!({"metadata": {"labels": {&label: "7"}}}),
        json!({"metadata": {"labels": {&label: "00"}}}),
        json!({"spec": {"taints": null}}),
        json!({"metadata": {"labels": {&label: null}}, "spec": {"taints": null}}),
    ] {
        world.change_node("n00", with);
        world.settle();
        assert_eq!(world.state(), state);
        assert_eq!((world.take_count(HOST_POOL), world.take_count(NODE)), (0, 1));
    }
    // A taint with this key that belongs to no pool is replaced.
    let foreign = json!([{"key": "stowplan.dev/exclusive", "value": "x", "effect": "NoSchedule"}]);
    world.change_node("n00", json!({"spec": {"taints": foreign}}));
    world.settle();
    assert_eq!(world.state(), state);
}
