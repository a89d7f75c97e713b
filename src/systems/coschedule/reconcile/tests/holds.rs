//! Placeholders are held to their members, and to no other pods.

use serde_json::json;

use super::simulator::World;
use super::{LONG, SOON, begun, is_held, reserved};
use crate::systems::coschedule::keys;
use crate::systems::coschedule::reconcile::reason;
use crate::systems::coschedule::resources::STATEFUL_SET;
use crate::systems::plan::Write;
use crate::view::resource::POD;

#[test]
fn a_label_alone_keeps_no_placeholder_on_its_node() {
    for of in ["no group", "another run", "another group"] {
        let mut world = reserved(&["n1", "n2"]);
        let own = world.placeholder("run");
        match of {
            "another run" => {
                world.run("other", &["c"], &[]);
                world.member("x", "other", 10);
            }
            "another group" => _ = world.native("x", "g"),
            _ => world.stranger("x", "n1", 10),
        }
        world.edit("Pod", "x")["metadata"]["labels"] = json!({keys::MEMBER: own});
        world.edit("Pod", "x")["spec"]["nodeName"] = json!("n1");
        world.cordon("n1", true);
        // The template lets it go first: the scheduler believes the label.
        let of_own = |world: &mut World| {
            let mut actions = world.plan().actions;
            actions.retain(|action| action.target.name.starts_with(&own));
            assert_eq!(actions.len(), 1, "{of}: {actions:?}");
            actions.remove(0)
        };
        let template = of_own(&mut world);
        assert!(matches!(template.write, Write::Patch(_)), "{of}: {template:?}");
        world.act(template);
        let moves = of_own(&mut world);
        assert!(matches!(moves.write, Write::Delete { .. }), "{of}: {moves:?}");
    }
}

/// A drain deletes it while its members run, and users can do the same. No group is split by that.
#[test]
fn a_deleted_placeholder_returns_to_its_members_or_waits_until_they_have_ended() {
    let mut world = begun(&["n1", "n2"]);
    assert_eq!((world.node_of("a"), world.place("run")), (Some("n1"), Some("n1")));
    let (writes, events) = (world.writes.len(), world.events.len());
    world.evict("run");
    world.settle(SOON);
    assert_eq!(world.place("run"), Some("n1"));
    world.cordon("n1", true);
    world.evict("run");
    world.member("b", "run", 100);
    world.settle(SOON);
    assert_eq!((world.place("run"), world.node_of("b")), (None, None));
    assert_eq!((world.writes.len(), world.events.len()), (writes, events));
    world.settle(LONG);
    assert_eq!((world.place("run"), world.node_of("b")), (None, None));
    assert_eq!(world.writes.len(), writes, "{:?}", world.writes);
    assert_eq!(world.reported(POD, "b"), [reason::WAITS_FOR_MEMBERS]);
    // The scheduler has forgotten it by then.
    world.finish("a");
    world.settle(SOON);
    assert_eq!((world.place("run"), world.node_of("b")), (Some("n2"), Some("n2")));
    assert_eq!(world.writes.len(), writes + 1, "woken: {:?}", world.writes);
}

/// It was to leave for those that found no room, and a small one came in before it had gone.
#[test]
fn a_placeholder_excluded_from_the_node_of_a_member_returns_to_it() {
    let mut world = begun(&["n1", "n2"]);
    world.finish("a");
    world.stranger("s", "n1", 500);
    world.member("large", "run", 700);
    world.settle(SOON);
    // The template says so, and the pod has not gone.
    while !world.writes.last().unwrap().starts_with("patch StatefulSet") {
        world.wait(1);
        world.plan().actions.into_iter().for_each(|action| world.act(action));
    }
    world.member("small", "run", 10);
    let placeholder = world.placeholder("run");
    let place = world.place("run").map(str::to_owned);
    assert_eq!(place.as_deref(), Some("n1"));
    world.edit("Pod", "small")["spec"]["nodeName"] = json!("n1");
    world.evict("run");
    world.settle(LONG);
    assert_eq!((world.place("run"), world.node_of("large")), (Some("n1"), None));
    world.finish("small");
    world.settle(LONG);
    assert_eq!((world.place("run"), world.node_of("large")), (Some("n2"), Some("n2")));
    assert!(is_held(&mut world, &placeholder));
}

/// The label of a stranger does not tear apart those that are placed.
#[test]
fn a_forged_label_beside_a_running_member_does_not_drop_the_hold() {
    let mut world = begun(&["n1", "n2", "n3"]);
    assert_eq!(world.node_of("a"), Some("n1"));
    let placeholder = world.placeholder("run");
    world.stranger("x", "n3", 10);
    world.edit("Pod", "x")["metadata"]["labels"] = json!({keys::MEMBER: placeholder});
    world.cordon("n1", true);
    world.cordon("n3", true);
    world.evict("run");
    world.member("b", "run", 100);
    world.settle(LONG);
    assert_eq!((world.place("run"), world.node_of("b")), (None, None));
    assert!(is_held(&mut world, &placeholder));
    world.finish("a");
    world.settle(SOON);
    assert_eq!((world.place("run"), world.node_of("b")), (Some("n2"), Some("n2")));
    assert!(is_held(&mut world, &placeholder), "to those that are there");
}

/// Pods of a native group may never end. A pod that has to leave is replaced first, as a disruption
/// budget requires.
#[test]
fn a_native_group_is_not_held_to_a_closed_node() {
    let mut world = World::new(&["n1", "n2"]);
    let placeholder = world.native("a", "g");
    let pod = format!("{placeholder}-0");
    world.settle(SOON);
    assert_eq!((world.node_of("a"), world.node_of(&pod)), (Some("n1"), Some("n1")));
    world.remove("Pod", &pod);
    world.settle(SOON);
    assert_eq!(world.node_of(&pod), Some("n1"));
    world.cordon("n1", true);
    world.native("b", "g");
    world.settle(LONG);
    assert_eq!(world.node_of("b"), None, "the placeholder stays with who runs");
    world.remove("Pod", &pod);
    world.settle(SOON);
    assert_eq!((world.node_of("b"), world.node_of(&pod)), (Some("n2"), Some("n2")));
    world.settle(SOON);
    assert!(is_held(&mut world, &placeholder), "to those that are there");
    world.finish("a");
    world.settle(LONG);
    assert_eq!(world.node_of(&pod), Some("n2"));
}

/// It came back there when the node was opened, by a template that names the node.
#[test]
fn a_native_group_leaves_a_node_that_its_template_names() {
    let mut world = World::new(&["n1", "n2"]);
    let placeholder = world.native("a", "g");
    let pod = format!("{placeholder}-0");
    world.settle(SOON);
    world.cordon("n1", true);
    world.remove("Pod", &pod);
    world.settle(SOON);
    assert_eq!(world.node_of(&pod), Some("n2"));
    world.cordon("n1", false);
    world.settle(SOON);
    assert_eq!(world.node_of(&pod), Some("n1"), "with its member");
    world.cordon("n1", true);
    world.native("b", "g");
    world.remove("Pod", &pod);
    world.settle(LONG);
    assert_eq!((world.node_of("b"), world.node_of(&pod)), (Some("n2"), Some("n2")));
}

/// The scheduler puts the small placeholder anywhere, and those who wait for it may not fit there.
#[test]
fn a_native_group_that_left_a_closed_node_waits_for_free_capacity() {
    for second in ["full", "cordoned", "lost"] {
        let mut world = World::new(&["n1", "n2", "n3"]);
        let placeholder = world.native("a", "g");
        let pod = format!("{placeholder}-0");
        world.settle(SOON);
        assert_eq!(world.node_of("a"), Some("n1"));
        if second == "full" {
            world.stranger("s", "n2", 950);
        }
        world.cordon("n1", true);
        world.remove("Pod", &pod);
        world.settle(SOON);
        assert_eq!(world.node_of(&pod), Some("n2"));
        match second {
            "cordoned" => world.cordon("n2", true),
            "lost" => world.ready("n2", false),
            _ => {}
        }
        world.native("b", "g");
        world.settle(LONG);
        let places = (world.node_of("a"), world.node_of("b"), world.node_of(&pod));
        assert_eq!(places, (Some("n1"), Some("n3"), Some("n3")), "{second}: {:?}", world.events);
    }
}

/// It came back to one of two nodes by name, and that one is closed again.
#[test]
fn a_native_group_leaves_a_closed_node_that_its_template_names_for_its_other_one() {
    let mut world = World::new(&["n1", "n2"]);
    let placeholder = world.native("a", "g");
    let pod = format!("{placeholder}-0");
    world.settle(SOON);
    world.cordon("n1", true);
    world.remove("Pod", &pod);
    world.settle(SOON);
    world.cordon("n1", false);
    world.settle(SOON);
    assert_eq!(world.node_of(&pod), Some("n1"), "by name");
    world.native("b", "g");
    world.edit("Pod", "b")["spec"]["nodeName"] = json!("n2");
    world.cordon("n1", true);
    world.native("c", "g");
    world.remove("Pod", &pod);
    world.settle(LONG);
    assert_eq!((world.node_of("c"), world.node_of(&pod)), (Some("n2"), Some("n2")));
    assert!(is_held(&mut world, &placeholder));
}

/// If one of its nodes takes no new pods, another one counts only if it has enough free capacity.
#[test]
fn a_native_group_on_a_closed_and_a_full_node_moves_to_a_third() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    let placeholder = world.native("a", "g");
    let pod = format!("{placeholder}-0");
    world.settle(SOON);
    world.native("b", "g");
    world.edit("Pod", "b")["spec"]["nodeName"] = json!("n2");
    world.stranger("s", "n1", 890);
    world.cordon("n2", true);
    world.remove("Pod", &pod);
    world.settle(SOON);
    assert_eq!(world.node_of(&pod), Some("n1"), "there was room for it");
    world.stranger("t", "n1", 10);
    world.native("c", "g");
    world.remove("Pod", &pod);
    world.stranger("u", "n1", 10);
    world.settle(LONG);
    assert_eq!((world.node_of("c"), world.node_of(&pod)), (Some("n3"), Some("n3")));
}

/// Only one pod is the placeholder's. The scheduler counts every one that says so.
#[test]
fn a_pod_with_both_labels_keeps_no_placeholder() {
    let mut world = World::with_run(&["n1", "n2"]);
    let placeholder = world.placeholder("run");
    world.stranger("x", "n2", 10);
    world.edit("Pod", "x")["metadata"]["labels"] =
        json!({keys::MEMBER: placeholder, keys::PLACEHOLDER: placeholder});
    world.cordon("n2", true);
    world.member("a", "run", 100);
    world.settle(SOON);
    assert_eq!((world.place("run"), world.node_of("a")), (Some("n1"), Some("n1")));
}

/// The scheduler has found a node for it, and binding it there failed: as long as members hold it there it can
/// be nowhere else.
#[test]
fn a_placeholder_that_cannot_be_bound_is_reported() {
    for forged in [false, true] {
        let mut world = begun(&["n1", "n2"]);
        let placeholder = world.placeholder("run");
        let pod = format!("{placeholder}-0");
        world.unbind(&pod);
        let since = world.store.timestamp();
        world.edit("Pod", &pod)["status"] = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulerError",
            "message": "running PreBind plugin \"VolumeBinding\": no", "lastTransitionTime": since}]});
        if forged {
            let ours = json!({"metadata": {"ownerReferences": null}});
            world.change("Pod", "a", ours);
        } else {
            world.member("b", "run", 100);
        }
        world.wait(60);
        let actions = world.plan().actions;
        let lets_go = actions.iter().any(|action| action.target.resource == STATEFUL_SET);
        let mut events = actions.iter().flat_map(|action| &action.events);
        let is_reported = events.any(|event| {
            event.reason == reason::WAITS_FOR_MEMBERS && event.note.contains("VolumeBinding")
        });
        assert_eq!((lets_go, is_reported), (forged, !forged), "{actions:#?}");
    }
}

/// Made before its pod bore the label of members, by which alone it can be the first of them.
#[test]
fn a_template_without_the_label_of_members_gets_it_with_the_affinity() {
    let mut world = begun(&["n1", "n2"]);
    let placeholder = world.placeholder("run");
    let unlabelled = json!({"metadata": {"labels": {keys::MEMBER: null}}});
    let template = json!({"spec": {"template": unlabelled}});
    world.change("StatefulSet", &placeholder, template);
    world.change("Pod", &format!("{placeholder}-0"), unlabelled);
    world.finish("a");
    world.cordon("n1", true);
    world.member("b", "run", 100);
    world.settle(SOON);
    assert_eq!((world.place("run"), world.node_of("b")), (Some("n2"), Some("n2")));
    assert!(is_held(&mut world, &placeholder));
}

/// For the scheduler no pod shares such a node's topology domain, whatever is on the others.
#[test]
fn a_node_without_a_hostname_label_causes_no_moves() {
    let mut world = World::new(&["n1", "n2"]);
    world.change("Node", "n2", json!({"metadata": {"labels": null}}));
    for number in 0..10 {
        world.stranger(&format!("s{number}"), "n1", 0);
    }
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.member("a", "run", 100);
    world.settle(LONG);
    assert_eq!(world.reported(POD, "a"), [reason::PLACEHOLDER_NOT_PLACED]);
    assert!(world.writes.len() < 30, "{:?}", world.writes);
    assert!(world.writes.iter().all(|write| !write.starts_with("delete")), "{:?}", world.writes);
    world.remove("Pod", "s0");
    world.remove("Pod", "s1");
    world.settle(LONG);
    assert_eq!((world.place("run"), world.node_of("a")), (Some("n1"), Some("n1")));
}

/// The scheduler cannot know that a kubelet will never end them, nor whose a label is.
#[test]
fn pods_that_stowplan_has_not_placed_do_not_keep_a_placeholder() {
    for what in ["lost", "forged", "bypassed"] {
        let mut world = begun(&["n1", "n2"]);
        assert_eq!(world.node_of("a"), Some("n1"));
        match what {
            "lost" => {
                world.mark_deleted("Pod", "a");
                world.ready("n1", false);
            }
            "forged" => {
                world.change("Pod", "a", json!({"metadata": {"ownerReferences": null}}));
                world.cordon("n1", true);
            }
            _ => {
                world.change("Pod", "a", json!({"spec": {"affinity": null}}));
                world.cordon("n1", true);
            }
        }
        world.evict("run");
        world.member("b", "run", 100);
        let writes = world.writes.len();
        world.settle(60);
        assert_eq!((world.place("run"), world.node_of("b")), (Some("n2"), Some("n2")), "{what}");
        assert_eq!(world.writes.len(), writes + 3, "let go, made anew, held: {:?}", world.writes);
        let place = world.place("run").map(str::to_owned);
        world.settle(LONG);
        assert_eq!(
            (world.place("run"), world.writes.len()),
            (place.as_deref(), writes + 3),
            "{what}"
        );
    }
}
