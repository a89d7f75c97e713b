//! Placeholders leave nodes that are closed, lost or full.

use super::*;

/// The scheduler places members beside a placeholder that it has not bound yet, and may bind to another
/// node; and users can delete it.
#[test]
fn a_placeholder_on_another_node_than_its_members_moves_to_them() {
    let mut world = begun(&["n1", "n2"]);
    let placeholder = world.placeholder_pod("run");
    world.expect("a:n1 run:n1").put_on("n2", &placeholder).settle(SOON).expect("a:n1 run:n1");
    world.expect_events(PIPELINE_RUN, "run", &[reason::PLACEHOLDER_MOVED]);
    world.member("b", "run", 100).settle(SOON).expect("b:n1");

    // If it cannot move to them, it stays and continues with the next ones.
    let moves = world.reported(PIPELINE_RUN, "run").len();
    world.cordon("n1", true).put_on("n2", &placeholder).settle(LONG).expect("run:n2");
    assert_eq!(world.reported(PIPELINE_RUN, "run").len(), moves);
    world.finish("a").finish("b").end("run").settle(LONG);
    assert_eq!(world.count("StatefulSet"), 0);
}

/// A node that was without power returns: pods there that are being deleted are no reason to leave a
/// healthy node.
#[test]
fn a_placeholder_does_not_follow_members_that_are_being_deleted() {
    let mut world = begun(&["n1", "n2"]);
    let placeholder = world.placeholder_pod("run");
    world.put_on("n2", &placeholder).mark_deleted("Pod", "a").settle(SOON).expect("a:n1 run:n2");
    world.expect_events(PIPELINE_RUN, "run", &[]);
}

#[test]
fn a_full_node_is_left_for_one_where_the_largest_fits() {
    let mut world = begun(&["n1", "n2", "n3", "n4"]);
    for (node, cpu) in [("n1", 500), ("n2", 500), ("n3", 700), ("n4", 300)] {
        world.stranger(&format!("stranger-{node}"), node, cpu);
    }
    world.expect("run:n1").member("large", "run", 600).member("small", "run", 10);
    world.settle(LONG).expect("large:").expect_events(POD, "large", &[reason::WAITS_FOR_MEMBERS]);
    world.finish("a").finish("small").settle(LONG).expect("large:n4 run:n4");
    assert_eq!(world.deletions(), 1, "at once to where it fits: {:?}", world.writes);
}

/// The scheduler binds no pod that is being deleted, and a label is its author's word.
#[test]
fn a_full_node_is_left_only_for_waiting_members_that_are_to_run() {
    type Change = fn(&mut World) -> &mut World;
    let changes: [(Change, &str); 3] = [
        (|world| world, "run:n2"),
        (|world| world.mark_deleted("Pod", "a"), "run:n1"),
        (|world| world.disown("a"), "run:n1"),
    ];
    for (change, places) in changes {
        let mut world = reserved(&["n1", "n2"]);
        world.expect("run:n1").stranger("s", "n1", 500).member("a", "run", 600);
        change(&mut world).settle(LONG).expect(places);
        let reported = !world.reported(PIPELINE_RUN, "run").is_empty();
        assert_eq!(reported, places == "run:n2", "{:?}", world.events);
    }
}

/// Returns a cluster whose node n1 is full, and on it a placeholder that is about to leave: its template asks for more
/// room, and its pod is not deleted yet.
fn about_to_leave() -> World {
    let mut world = reserved(&["n1", "n2"]);
    world.stranger("large", "n1", 950).member("a", "run", 100).settle(SOON).expect("a: run:n1");
    world.wait(60).carry_out_plan();
    let plan = known(&mut world, "run").plan.clone().unwrap_or_default();
    assert!(plan.room.is_some(), "{:?}", world.writes);
    world
}

/// The scheduler may need longer than the grace period, and bind a member while its group is about to move.
#[test]
fn a_node_is_not_left_if_a_member_is_bound_there_after_all() {
    let mut world = about_to_leave();
    world.remove("Pod", "large").put_on("n1", "a").settle(SOON).expect("a:n1 run:n1");
    world.finish("a").settle(SOON).member("b", "run", 100).settle(SOON).expect("b:n1 run:n1");
    assert_eq!(world.deletions(), 0, "{:?}", world.writes);
}

#[test]
fn a_node_is_not_left_if_all_members_fit_there_after_all() {
    let mut world = about_to_leave();
    world.remove("Pod", "large").settle(LONG).expect("a:n1 run:n1").expect_rest();
    assert_eq!(world.deletions(), 0, "{:?}", world.writes);
}

/// Pods of a native group run side by side: the first would keep the group where the last does not fit.
#[test]
fn a_node_with_room_for_two_of_three_members_is_left() {
    let mut world = World::new(&["n1", "n2"]);
    world.stranger("s", "n1", 740).cordon("n1", true).cordon("n2", true);
    world.native("a", "g").settle(SOON).expect("a: g:");
    // The template asks for room for all, and the pod is bound before it is deleted.
    world.native("b", "g").native("c", "g").carry_out_plan();
    let placeholder = world.placeholder_pod("g");
    world.put_on("n1", &placeholder).cordon("n1", false).cordon("n2", false);
    world.settle(LONG).expect("a:n2 b:n2 c:n2 g:n2").expect_rest();
}

#[test]
fn without_a_fitting_node_it_waits_and_takes_the_first_that_fits() {
    let mut world = World::with_run(&["n1", "n2"]);
    // For the autoscaler.
    world.member("a", "run", 2_000).settle(LONG).expect("run:").expect_rest();
    world.expect_events(PIPELINE_RUN, "run", &[reason::PLACEHOLDER_NOT_PLACED]);
    let large = json!({"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}});
    world.change("Node", "n2", large).settle(SOON).expect("a:n2 run:n2");
}

/// The scheduler would put it back at once, and each time it is another pod.
#[test]
fn a_placeholder_that_tolerates_all_stays_on_a_cordoned_node_but_not_on_a_lost_one() {
    let mut world = World::with_run(&["n1", "n2"]);
    world.template("run", &tolerating_all()).reserve("run").expect("run:n1");
    let writes = world.writes.len();
    world.cordon("n1", true).member("b", "run", 100).settle(LONG).expect("b:n1 run:n1");
    assert_eq!(world.writes.len(), writes, "{:?}", world.writes);
    world.finish("b").ready("n1", false).settle(LONG).expect("run:n2");
    assert_eq!(world.writes.len(), writes + 2, "kept out, and killed: {:?}", world.writes);
    // Nowhere to go: it waits for a node that answers.
    world.ready("n2", false).settle(LONG).expect("run:n2").expect_rest();
    world.ready("n1", true).settle(SOON).expect("run:n1");
}

/// The placeholder itself takes capacity on the new node.
#[test]
fn a_member_that_needs_a_whole_node_fits_on_none_beside_its_placeholder() {
    for (cpu, place) in [(1_000, "a:"), (991, "a:"), (990, "a:n2")] {
        let mut world = reserved(&["n1", "n2", "n3"]);
        world.stranger("s", "n1", 500).member("a", "run", cpu).settle(LONG).expect(place);
        let reported = world.reported(PIPELINE_RUN, "run");
        let is_reported = reported.contains(&reason::PLACEHOLDER_NOT_PLACED);
        assert_eq!(is_reported, place == "a:", "{cpu}: {:?}", world.events);
        assert_eq!(world.deletions(), 1, "{cpu}: {:?}", world.writes);
    }
}

#[test]
fn a_placeholder_does_not_move_to_an_ineligible_node() {
    let zone = json!([{"key": "zone", "operator": "In", "values": ["a"]}]);
    for template in [
        json!({"nodeSelector": {"zone": "a"}}),
        json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": zone}]}}}}),
    ] {
        let mut world = World::with_run(&["n1", "n2"]);
        world.change("Node", "n1", json!({"metadata": {"labels": {"zone": "a"}}}));
        world.template("run", &template).reserve("run").expect("run:n1");
        world.stranger("s", "n1", 500).member("a", "run", 600).settle(LONG).expect("a: run:");
        let reasons = [reason::PLACEHOLDER_MOVED, reason::PLACEHOLDER_NOT_PLACED];
        world.expect_events(PIPELINE_RUN, "run", &reasons);
    }
}

/// An obstacle that only the scheduler knows may hold everywhere: each node is tried, and then it rests.
#[test]
fn a_reason_that_applies_to_all_nodes_is_reported_and_not_retried_for_ever() {
    let mut world = World::with_run(&["n1", "n2", "n3"]);
    world.member("a", "run", 100).mount("a", "missing").settle(31);
    for (kind, name) in [(POD, "a"), (TASK_RUN, "a"), (PIPELINE_RUN, "run")] {
        let reported = world.reported(kind, name);
        assert!(reported.contains(&reason::MEMBERS_UNSCHEDULABLE), "{kind:?}: {reported:?}");
    }
    world.settle(250);
    assert_eq!(world.deletions(), 3, "one round: {:?}", world.writes);
    world.settle(LONG);
    // It rests for 300 seconds each time.
    assert!((4..=3 + 12).contains(&world.deletions()), "{:?}", world.writes);
    world.claim("missing").settle(SOON);
    assert!(world.node_of("a").is_some());
}

/// Each group fits on a small node by itself. The scheduler of the simulator takes the first node that
/// fits: a placeholder that requests less than its largest member would join the other there.
#[test]
fn groups_that_fill_a_node_together_get_a_node_each() {
    let mut world = World::new(&["n0", "n1", "n2", "n3"]);
    for (run, claim) in [("r1", "c"), ("r2", "d")] {
        world.claim(claim).run(run, &[claim], &[]);
        world.gated_with(&format!("{run}-large"), run, &Value::Null, 981);
        world.member(&format!("{run}-small"), run, 1);
    }
    world.settle(SOON).expect("r1-large:n0 r1-small:n0 r2-large:n1 r2-small:n1");
    assert_eq!(world.deletions(), 0, "{:?}", world.writes);
}
