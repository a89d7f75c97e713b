//! Placeholders leave nodes that are closed, lost or full.

use serde_json::{Value, json};

use super::simulator::World;
use super::{LONG, SOON, begun, reserved};
use crate::kubernetes::REQUIRED;
use crate::systems::coschedule::reconcile::reason;
use crate::systems::coschedule::resources::{PIPELINE_RUN, TASK_RUN};
use crate::view::resource::POD;

#[test]
fn a_cordoned_node_is_left_unless_a_member_runs() {
    let mut world = reserved(&["n1", "n2"]);
    assert_eq!(world.place("run"), Some("n1"));
    world.cordon("n1", true);
    world.settle(SOON);
    assert_eq!(world.place("run"), Some("n2"), "before the first pod");
    assert_eq!(world.reported(PIPELINE_RUN, "run"), [reason::PLACEHOLDER_MOVED]);

    world.member("b", "run", 100);
    world.settle(SOON);
    world.cordon("n1", false);
    world.cordon("n2", true);
    world.member("d", "run", 100);
    world.settle(LONG);
    assert_eq!(
        (world.node_of("b"), world.place("run")),
        (Some("n2"), Some("n2")),
        "nothing is killed"
    );
    assert_eq!(world.node_of("d"), None);
    assert!(world.reported(POD, "d").contains(&reason::WAITS_FOR_MEMBERS), "{:?}", world.events);
    world.finish("b");
    world.settle(SOON);
    assert_eq!((world.node_of("d"), world.place("run")), (Some("n1"), Some("n1")));
}

/// The scheduler places members beside a placeholder that it has not bound yet, and may bind to another
/// node; and users can delete it.
#[test]
fn a_placeholder_on_another_node_than_its_members_moves_to_them() {
    let mut world = begun(&["n1", "n2"]);
    assert_eq!((world.node_of("a"), world.place("run")), (Some("n1"), Some("n1")));
    let placeholder = format!("{}-0", world.placeholder("run"));
    world.edit("Pod", &placeholder)["spec"]["nodeName"] = json!("n2");
    world.settle(SOON);
    assert_eq!((world.node_of("a"), world.place("run")), (Some("n1"), Some("n1")));
    assert_eq!(world.reported(PIPELINE_RUN, "run"), [reason::PLACEHOLDER_MOVED]);
    world.member("b", "run", 100);
    world.settle(SOON);
    assert_eq!(world.node_of("b"), Some("n1"));

    // If it cannot move to them, it stays and continues with the next ones.
    world.cordon("n1", true);
    world.edit("Pod", &placeholder)["spec"]["nodeName"] = json!("n2");
    let moves = world.reported(PIPELINE_RUN, "run").len();
    world.settle(LONG);
    assert_eq!(world.place("run"), Some("n2"));
    assert_eq!(world.reported(PIPELINE_RUN, "run").len(), moves);
    world.finish("a");
    world.finish("b");
    world.end("run");
    world.settle(LONG);
    assert!(world.count("StatefulSet") == 0);
}

/// A node that was without power returns: pods there that are being deleted are no reason to leave a
/// healthy node.
#[test]
fn a_placeholder_does_not_follow_members_that_are_being_deleted() {
    let mut world = begun(&["n1", "n2"]);
    let placeholder = format!("{}-0", world.placeholder("run"));
    world.edit("Pod", &placeholder)["spec"]["nodeName"] = json!("n2");
    world.mark_deleted("Pod", "a");
    world.settle(SOON);
    assert_eq!((world.node_of("a"), world.place("run")), (Some("n1"), Some("n2")));
    assert!(world.reported(PIPELINE_RUN, "run").is_empty());
}

#[test]
fn a_taint_that_the_placeholder_does_not_tolerate_is_like_a_cordon() {
    let mut world = reserved(&["n1", "n2"]);
    let taint =
        |effect: &str| json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    world.change("Node", "n1", taint("PreferNoSchedule"));
    let plan = world.plan();
    assert!(plan.actions.is_empty(), "{plan:?}");
    world.change("Node", "n1", taint("NoExecute"));
    world.settle(SOON);
    assert_eq!(world.place("run"), Some("n2"));
    assert!(
        world.events.iter().any(|(_, event)| event.note.contains("taint k=v:NoExecute")),
        "{:?}",
        world.events
    );
}

#[test]
fn a_placeholder_on_a_deleted_or_not_ready_node_is_replaced() {
    for is_gone in [true, false] {
        let mut world = begun(&["n1", "n2"]);
        match is_gone {
            true => world.remove("Node", "n1"),
            false => world.ready("n1", false),
        }
        world.member("b", "run", 100);
        world.settle(LONG);
        assert_eq!(world.place("run"), Some("n1"), "a member runs there, as far as is known");
        world.mark_deleted("Pod", "a");
        // Somebody has deleted the placeholder's pod, too: its kubelet does not answer.
        let pod = format!("{}-0", world.placeholder("run"));
        let deleted = json!({"metadata": {"deletionTimestamp": world.store.timestamp()}});
        world.change("Pod", &pod, deleted);
        world.settle(SOON);
        assert_eq!((world.place("run"), world.node_of("b")), (Some("n2"), Some("n2")));
        assert!(world.writes.contains(&format!("kill Pod {pod}")), "{:?}", world.writes);
    }
}

#[test]
fn a_full_node_is_left_for_one_where_the_largest_fits() {
    let mut world = begun(&["n1", "n2", "n3", "n4"]);
    assert_eq!(world.place("run"), Some("n1"));
    for (node, cpu) in [("n1", 500), ("n2", 500), ("n3", 700), ("n4", 300)] {
        world.stranger(&format!("stranger-{node}"), node, cpu);
    }
    world.member("large", "run", 600);
    world.member("small", "run", 10);
    world.settle(LONG);
    assert_eq!(world.node_of("large"), None, "a still runs");
    assert_eq!(world.reported(POD, "large"), [reason::WAITS_FOR_MEMBERS]);
    world.finish("a");
    world.finish("small");
    world.settle(LONG);
    let n4 = Some("n4");
    assert_eq!((world.node_of("large"), world.place("run")), (n4, n4), "{:?}", world.writes);
    let moves = world.writes.iter().filter(|write| write.starts_with("delete Pod")).count();
    assert_eq!(moves, 1, "at once to where it fits: {:?}", world.writes);
}

/// The member that runs is not the reason: when it has ended, the pod still fits nowhere.
#[test]
fn a_pod_that_is_too_large_for_every_node_is_reported_while_members_run() {
    let mut world = begun(&["n1", "n2"]);
    world.member("large", "run", 2_000);
    world.settle(100);
    assert_eq!(world.reported(POD, "large"), [reason::WAITS_FOR_MEMBERS, reason::NO_NODE_FITS]);
    world.member("other", "run", 950);
    world.settle(100);
    assert_eq!(
        world.reported(POD, "other").last(),
        Some(&reason::NO_NODE_FITS),
        "the largest decides"
    );
    let mut world = begun(&["n1", "n2"]);
    world.member("next", "run", 950);
    world.settle(100);
    assert_eq!(world.reported(POD, "next"), [reason::WAITS_FOR_MEMBERS], "an empty node takes it");
}

#[test]
fn a_node_at_its_pod_limit_is_full() {
    let mut world = reserved(&["n1", "n2"]);
    for number in 0..9 {
        world.stranger(&format!("s{number}"), "n1", 0);
    }
    world.member("b", "run", 0);
    world.settle(LONG);
    assert_eq!((world.node_of("b"), world.place("run")), (Some("n2"), Some("n2")));
}

#[test]
fn without_a_fitting_node_it_waits_then_leaves_and_takes_the_first_that_fits() {
    let mut world = World::with_run(&["n1", "n2"]);
    world.member("a", "run", 2_000);
    world.settle(100);
    assert_eq!(world.place("run"), Some("n1"));
    assert_eq!(world.reported(PIPELINE_RUN, "run"), [reason::NO_NODE_FITS]);
    world.settle(LONG);
    assert_eq!(world.place("run"), None, "for the autoscaler: {:?}", world.writes);
    let writes = world.writes.len();
    world.settle(LONG);
    assert_eq!(world.writes.len(), writes, "it rests: {:?}", world.writes);
    let large = json!({"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}});
    world.change("Node", "n2", large);
    world.settle(SOON);
    assert_eq!((world.node_of("a"), world.place("run")), (Some("n2"), Some("n2")));
}

#[test]
fn a_new_node_takes_waiting_members() {
    let mut world = World::with_run(&["n1"]);
    world.member("a", "run", 900);
    world.stranger("s", "n1", 500);
    world.settle(LONG);
    assert_eq!(world.node_of("a"), None);
    world.node("n2");
    world.settle(60);
    assert_eq!(
        (world.node_of("a"), world.place("run")),
        (Some("n2"), Some("n2")),
        "{:?}",
        world.writes
    );
}

#[test]
fn members_refused_for_an_unknown_reason_move_the_group_a_limited_number_of_times() {
    let mut world = World::with_run(&["n1", "n2", "n3"]);
    world.member("a", "run", 100);
    // Only the scheduler reads this: no two of those with the label on a node.
    let term = json!({"labelSelector": {"matchLabels": {"of": "strangers"}}, "topologyKey": "kubernetes.io/hostname"});
    world.edit("Pod", "a")["spec"]["affinity"]["podAntiAffinity"] = json!({REQUIRED: [term]});
    for node in ["n1", "n2"] {
        world.stranger(node, node, 0);
        world.edit("Pod", node)["metadata"]["labels"] = json!({"of": "strangers"});
    }
    world.settle(LONG);
    assert_eq!(
        (world.node_of("a"), world.place("run")),
        (Some("n3"), Some("n3")),
        "{:?}",
        world.writes
    );
    let moves = world.writes.iter().filter(|write| write.starts_with("delete Pod")).count();
    assert!(moves <= 2, "{:?}", world.writes);
}

/// The scheduler would put it back at once, and each time it is another pod.
#[test]
fn a_placeholder_that_tolerates_all_stays_on_a_cordoned_node_but_not_on_a_lost_one() {
    let mut world = World::with_run(&["n1", "n2"]);
    world.template("run", &json!({"tolerations": [{"operator": "Exists"}]}));
    world.member("a", "run", 100);
    world.clear("Pod");
    world.settle(SOON);
    assert_eq!(world.place("run"), Some("n1"));
    let writes = world.writes.len();
    world.cordon("n1", true);
    world.member("b", "run", 100);
    world.settle(LONG);
    assert_eq!((world.node_of("b"), world.place("run")), (Some("n1"), Some("n1")));
    assert_eq!(world.writes.len(), writes, "{:?}", world.writes);
    world.finish("b");
    world.ready("n1", false);
    world.settle(LONG);
    assert_eq!(world.place("run"), Some("n2"));
    assert_eq!(world.writes.len(), writes + 2, "kept out, and killed: {:?}", world.writes);
    // Nowhere to go: it waits, and comes back when the node answers.
    world.ready("n2", false);
    world.settle(LONG);
    assert_eq!(world.place("run"), None, "{:?}", world.writes);
    let writes = world.writes.len();
    world.settle(LONG);
    assert_eq!(world.writes.len(), writes, "it rests: {:?}", world.writes);
    world.ready("n1", true);
    world.settle(SOON);
    assert_eq!(world.place("run"), Some("n1"));
}

/// The placeholder itself takes capacity on the new node.
#[test]
fn a_member_that_needs_a_whole_node_fits_on_none_beside_its_placeholder() {
    for (cpu, fits) in [(1_000, false), (991, false), (990, true)] {
        let mut world = reserved(&["n1", "n2", "n3"]);
        world.stranger("s", "n1", 500);
        world.member("a", "run", cpu);
        world.settle(LONG);
        assert_eq!(world.node_of("a"), if fits { Some("n2") } else { None }, "{cpu}");
        let is_reported = world.reported(POD, "a").contains(&reason::NO_NODE_FITS);
        assert_eq!(is_reported, !fits, "{cpu}: {:?}", world.events);
        let moves = world.writes.iter().filter(|write| write.starts_with("delete Pod")).count();
        assert_eq!(moves, 1, "{cpu}: {:?}", world.writes);
    }
}

#[test]
fn a_placeholder_does_not_move_to_an_ineligible_node() {
    let zone = json!([{"key": "zone", "operator": "In", "values": ["a"]}]);
    for template in [
        json!({"nodeSelector": {"zone": "a"}}),
        json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": zone}]}}}}),
    ] {
        let mut world = World::new(&["n1", "n2"]);
        let label = json!({"metadata": {"labels": {"zone": "a"}}});
        world.change("Node", "n1", label);
        world.claim("c");
        world.run("run", &["c"], &[]);
        world.template("run", &template);
        world.member("first", "run", 100);
        world.clear("Pod");
        world.settle(SOON);
        assert_eq!(world.place("run"), Some("n1"));
        world.stranger("s", "n1", 500);
        world.member("a", "run", 600);
        world.settle(100);
        assert_eq!(world.place("run"), Some("n1"), "{:?}", world.writes);
        assert_eq!(world.reported(POD, "a"), [reason::NO_NODE_FITS]);
    }
}

/// What the scheduler alone knows may hold everywhere: each node is tried once, and then it rests.
#[test]
fn a_reason_that_applies_to_all_nodes_is_reported_and_not_retried_for_ever() {
    let mut world = World::with_run(&["n1", "n2", "n3"]);
    world.member("a", "run", 100);
    world.mount("a", "missing");
    let moves =
        |world: &World| world.writes.iter().filter(|write| write.starts_with("delete Pod")).count();
    world.settle(31);
    for (kind, name) in [(POD, "a"), (TASK_RUN, "a"), (PIPELINE_RUN, "run")] {
        let reported = world.reported(kind, name);
        assert!(reported.contains(&reason::MEMBERS_UNSCHEDULABLE), "{kind:?}: {reported:?}");
    }
    world.settle(250);
    assert_eq!(moves(&world), 2, "one round: {:?}", world.writes);
    world.settle(LONG);
    // A round of three nodes and a rest are 330 seconds at least.
    assert!((3..=3 * 12).contains(&moves(&world)), "{:?}", world.writes);
    world.claim("missing");
    world.settle(SOON);
    assert!(world.node_of("a").is_some());
}

/// Each group fits on a small node by itself. The scheduler of the simulator takes the first node that
/// fits, so that both come to the same one.
#[test]
fn groups_that_fill_a_node_together_do_not_follow_each_other() {
    let mut world = World::new(&["n0", "n1", "n2", "n3"]);
    for (run, claim) in [("r1", "c"), ("r2", "d")] {
        world.claim(claim);
        world.run(run, &[claim], &[]);
        world.gated_with(&format!("{run}-large"), run, &Value::Null, 981);
        world.member(&format!("{run}-small"), run, 1);
    }
    world.settle(SOON);
    assert_eq!((world.place("r1"), world.place("r2")), (Some("n0"), Some("n0")));
    world.finish("r1-small");
    world.finish("r2-small");
    let writes = world.writes.len();
    world.settle(LONG);
    let nodes = ["r1-large", "r2-large"].map(|pod| world.node_of(pod));
    assert!(nodes.iter().all(Option::is_some) && nodes[0] != nodes[1], "{nodes:?}");
    assert!(world.writes.len() <= writes + 4, "{:?}", &world.writes[writes..]);
}
