//! Autoscalers leave the node of a group alone while it has work to do, and for a time while it waits.

use super::*;
use crate::systems::pause::KEEPS_NODE;

const PERIOD: i64 = 600;

/// The annotations of the placeholder's pod that autoscalers read.
fn kept(world: &World, of: &str) -> [Value; 2] {
    let pod = world.get("Pod", &world.placeholder_pod(of));
    KEEPS_NODE.map(|(key, _)| pod["metadata"]["annotations"][key].clone())
}

fn own() -> [Value; 2] {
    KEEPS_NODE.map(|(_, value)| json!(value))
}

const NONE: [Value; 2] = [Value::Null, Value::Null];

fn with_period(mut world: World) -> World {
    world.policy.coschedule.keep_node_for = Period::from_secs(PERIOD.unsigned_abs());
    world
}

#[test]
fn the_node_is_kept_while_a_member_runs_and_for_a_while_afterwards() {
    let mut world = with_period(begun(&["n1"]));
    let writes = world.writes.len();
    assert_eq!(kept(world.settle(LONG), "run"), own(), "a member runs");
    assert_eq!(kept(world.finish("a").settle(PERIOD - 1), "run"), own(), "it has just ended");
    assert_eq!(world.writes.len(), writes);
    assert_eq!(kept(world.settle(LONG), "run"), NONE);
    assert_eq!(kept(world.member("b", "run", 100).settle(SOON), "run"), own(), "another runs");
    assert_eq!(world.writes.len(), writes + 2, "{:?}", world.writes);
}

#[test]
fn a_member_that_waits_keeps_the_node_no_longer_than_the_period() {
    let mut world = with_period(begun(&["n1"]));
    // It does not move meanwhile.
    world.policy.coschedule.grace_period = Period::from_secs(10 * PERIOD.unsigned_abs());
    world.finish("a").member("large", "run", 90_000).settle(PERIOD - 1);
    assert_eq!(kept(&world, "run"), own());
    assert_eq!(kept(world.settle(PERIOD), "run"), NONE);
}

/// Somebody wants this placeholder evicted.
#[test]
fn values_of_others_stay() {
    let mut world = with_period(begun(&["n1"]));
    let (key, _) = KEEPS_NODE[0];
    let pod = world.placeholder_pod("run");
    world.annotate("Pod", &pod, key, "true").settle(SOON);
    assert_eq!(kept(&world, "run"), [json!("true"), own()[1].clone()]);
    world.finish("a").settle(LONG);
    assert_eq!(kept(&world, "run"), [json!("true"), Value::Null]);
}

/// The pods of a Deployment are evicted and created again, with their group.
#[test]
fn a_group_that_never_ends_keeps_no_node() {
    for (kind, is_kept) in [("ReplicaSet", false), ("StatefulSet", false), ("Job", true)] {
        let expected = if is_kept { own() } else { NONE };
        let mut world = with_period(World::new(&["n1"]));
        world.native("a", "g").edit("Pod", "a")["metadata"]["ownerReferences"] =
            controlled_by(kind);
        let writes = world.settle(SOON).writes.len();
        assert_eq!(
            (kept(&world, "g"), writes),
            (expected.clone(), 3),
            "made, shrunk, let in: {kind}: {:?}",
            world.writes
        );

        let mut world = with_period(grouped(&["n1"]));
        assert_eq!(kept(&world, "g"), own());
        world.native("b", "g").edit("Pod", "b")["metadata"]["ownerReferences"] =
            controlled_by(kind);
        assert_eq!(kept(world.settle(SOON), "g"), expected, "{kind} joins");
    }
}

#[test]
fn the_policy_turns_it_off_and_on() {
    let mut world = World::with_run(&["n1"]);
    world.policy.coschedule.keep_node_for = Period::from_secs(0);
    world.member("a", "run", 100).settle(SOON);
    assert_eq!(kept(&world, "run"), NONE);
    let mut world = with_period(world);
    assert_eq!(kept(world.settle(SOON), "run"), own());
    world.policy.coschedule.keep_node_for = Period::from_secs(0);
    assert_eq!(kept(world.settle(SOON), "run"), NONE);
    // Nor is a placeholder changed whose namespace opts out.
    let mut world = with_period(world);
    world.policy.excluded_namespaces.insert(NAMESPACE.to_owned());
    assert_eq!(kept(world.settle(SOON), "run"), NONE);
}
