//! Placeholders are held to their members, and to no other pods.

use super::*;

#[test]
fn a_label_alone_keeps_no_placeholder_on_its_node() {
    for of in ["no group", "another run", "another group"] {
        let mut world = reserved(&["n1", "n2"]);
        match of {
            "another run" => world.run("other", &["c"], &[]).member("x", "other", 10),
            "another group" => world.native("x", "g"),
            _ => world.stranger("x", "n1", 10),
        };
        let own = world.placeholder("run");
        world.label("x", json!({keys::MEMBER: own})).put_on("n1", "x").cordon("n1", true);
        // The template lets it go first: the scheduler believes the label.
        let of_own = |world: &mut World| {
            let mut actions = world.plan().actions;
            actions.retain(|action| action.target.name.starts_with(&own));
            assert_eq!(actions.len(), 1, "{of}: {actions:?}");
            actions.remove(0)
        };
        let template = of_own(&mut world);
        assert!(matches!(template.write, Write::Patch(_)), "{of}: {template:?}");
        let moves = of_own(world.act(template));
        assert!(matches!(moves.write, Write::Delete { .. }), "{of}: {moves:?}");
    }
}

/// It was to leave for those that found no room, and a small one came in before it had gone.
#[test]
fn a_placeholder_excluded_from_the_node_of_a_member_returns_to_it() {
    let mut world = begun(&["n1", "n2"]);
    world.finish("a").stranger("s", "n1", 500).member("large", "run", 700).settle(SOON);
    // The template says so, and the pod has not gone.
    while !world.writes.last().unwrap().starts_with("patch StatefulSet") {
        world.wait(1).carry_out_plan();
    }
    world.member("small", "run", 10).expect("run:n1").put_on("n1", "small").evict("run");
    world.settle(LONG).expect("run:n1 large:");
    world.finish("small").settle(LONG).expect("run:n2 large:n2");
    assert!(is_held(&mut world, "run"));
}

/// The label of a stranger does not tear apart those that are placed.
#[test]
fn a_forged_label_beside_a_running_member_does_not_drop_the_hold() {
    let mut world = begun(&["n1", "n2", "n3"]);
    let label = json!({keys::MEMBER: world.placeholder("run")});
    world.expect("a:n1").stranger("x", "n3", 10).label("x", label);
    world.cordon("n1", true).cordon("n3", true).evict("run").member("b", "run", 100);
    world.settle(LONG).expect("run: b:");
    assert!(is_held(&mut world, "run"));
    world.finish("a").settle(SOON).expect("run:n2 b:n2");
    assert!(is_held(&mut world, "run"), "to those that are there");
}

/// It came back there when the node was opened, by a template that names the node. Then it leaves for any
/// node, or for the group's other one.
#[test]
fn a_native_group_leaves_a_closed_node_that_its_template_names() {
    for is_on_two in [false, true] {
        let mut world = grouped(&["n1", "n2"]);
        world.cordon("n1", true).evict("g").settle(SOON).expect("g:n2");
        world.cordon("n1", false).settle(SOON).expect("g:n1");
        if is_on_two {
            world.native("b", "g").put_on("n2", "b");
        }
        world.cordon("n1", true).native("c", "g").evict("g");
        world.settle(LONG).expect("c:n2 g:n2");
        assert!(!is_on_two || is_held(&mut world, "g"));
    }
}

/// The scheduler puts the small placeholder anywhere, and those who wait for it may not fit there.
#[test]
fn a_native_group_that_left_a_closed_node_waits_for_free_capacity() {
    for second in ["full", "cordoned", "lost"] {
        let mut world = grouped(&["n1", "n2", "n3"]);
        if second == "full" {
            world.stranger("s", "n2", 950);
        }
        world.expect("a:n1").cordon("n1", true).evict("g").settle(SOON).expect("g:n2");
        match second {
            "cordoned" => _ = world.cordon("n2", true),
            "lost" => _ = world.ready("n2", false),
            _ => {}
        }
        world.native("b", "g").settle(LONG).expect("a:n1 b:n3 g:n3");
    }
}

/// If one of its nodes takes no new pods, another one counts only if it has enough free capacity.
#[test]
fn a_native_group_on_a_closed_and_a_full_node_moves_to_a_third() {
    let mut world = grouped(&["n1", "n2", "n3"]);
    world.native("b", "g").put_on("n2", "b").stranger("s", "n1", 890);
    // There is room for it.
    world.cordon("n2", true).evict("g").settle(SOON).expect("g:n1");
    world.stranger("t", "n1", 10).native("c", "g").evict("g").stranger("u", "n1", 10);
    world.settle(LONG).expect("c:n3 g:n3");
}

/// Only one pod is the placeholder's. The scheduler counts every one that says so.
#[test]
fn a_pod_with_both_labels_keeps_no_placeholder() {
    let mut world = World::with_run(&["n1", "n2"]);
    let own = world.placeholder("run");
    world.stranger("x", "n2", 10).label("x", json!({keys::MEMBER: own, keys::PLACEHOLDER: own}));
    world.cordon("n2", true).member("a", "run", 100).settle(SOON).expect("run:n1 a:n1");
}

/// The scheduler has found a node for it, and binding it there failed: as long as members hold it there it can
/// be nowhere else.
#[test]
fn a_placeholder_that_cannot_be_bound_is_reported() {
    for forged in [false, true] {
        let mut world = World::with_run(&["n1", "n2"]);
        world.member("a", "run", 0).settle(SOON);
        let pod = world.placeholder_pod("run");
        let since = world.store.timestamp();
        world.unbind(&pod).edit("Pod", &pod)["status"] = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulerError",
            "message": "running PreBind plugin \"VolumeBinding\": no", "lastTransitionTime": since}]});
        if forged {
            world.disown("a");
        } else {
            world.member("b", "run", 100);
        }
        let actions = world.wait(60).plan().actions;
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
    let (set, pod) = (world.placeholder("run"), world.placeholder_pod("run"));
    let unlabelled = json!({"metadata": {"labels": {keys::MEMBER: null}}});
    world.change("StatefulSet", &set, json!({"spec": {"template": unlabelled}}));
    world.change("Pod", &pod, unlabelled).finish("a").cordon("n1", true);
    world.member("b", "run", 100).settle(SOON).expect("run:n2 b:n2");
    assert!(is_held(&mut world, "run"));
}

/// For the scheduler no pod shares such a node's topology domain, whatever is on the others.
#[test]
fn a_node_without_a_hostname_label_causes_no_moves() {
    let mut world = World::with_run(&["n1", "n2"]);
    world.change("Node", "n2", json!({"metadata": {"labels": null}}));
    for number in 0..10 {
        world.stranger(&format!("s{number}"), "n1", 0);
    }
    world.member("a", "run", 100).settle(LONG);
    world.expect_events(POD, "a", &[reason::PLACEHOLDER_NOT_PLACED]);
    assert!(world.writes.len() < 30, "{:?}", world.writes);
    assert!(world.writes.iter().all(|write| !write.starts_with("delete")), "{:?}", world.writes);
    world.remove("Pod", "s0").remove("Pod", "s1").settle(LONG).expect("run:n1 a:n1");
}

/// Its pod is deleted first: until then members can join it there.
#[test]
fn a_placeholder_that_leaves_a_lost_node_returns_if_a_member_joined_it_meanwhile() {
    let mut world = begun(&["n1", "n2"]);
    world.expect("a:n1 run:n1").mark_deleted("Pod", "a").ready("n1", false);
    world.member("b", "run", 100).member("c", "run", 100);
    let deletes = |action: &Action| matches!(action.write, Write::Delete { .. });
    while !world.wait(1).plan().actions.iter().any(deletes) {
        world.carry_out_plan();
    }
    assert!(is_held(&mut world, "run"));
    // The kubelet answers again before that write.
    let pod = world.placeholder_pod("run");
    world.ready("n1", true).finish("a").put_on("n1", "b").remove("Pod", &pod);
    world.settle(LONG).expect("run:n1 b:n1 c:n1");
}

/// The scheduler cannot know that a kubelet will never end them, nor whose a label is.
#[test]
fn pods_that_stowplan_has_not_placed_do_not_keep_a_placeholder() {
    type Change = fn(&mut World) -> &mut World;
    let changes: [Change; 3] = [
        |world| world.mark_deleted("Pod", "a").ready("n1", false),
        |world| world.disown("a").cordon("n1", true),
        |world| world.change("Pod", "a", json!({"spec": {"affinity": null}})).cordon("n1", true),
    ];
    for change in changes {
        let mut world = begun(&["n1", "n2"]);
        let writes = world.writes.len();
        change(world.expect("a:n1")).evict("run").member("b", "run", 100);
        world.settle(60).expect("run:n2 b:n2");
        let more = &world.writes[writes..];
        assert_eq!(more.len(), 5, "let go, made anew, shrunk, let in, held: {more:?}");
        world.expect_rest().expect("run:n2");
    }
}
