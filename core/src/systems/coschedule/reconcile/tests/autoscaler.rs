//! Groups in a cluster that is full, and whose autoscaler makes nodes.

use super::room::{begin, requesting, with_device, with_tasks};
use super::*;
use crate::simulation::NodeGroup;
use crate::systems::test_objects::node;

/// Groups of nodes: their names, and what is special about each. Without that, a node has one core.
fn scaled(mut world: World, groups: &[(&str, Value)]) -> World {
    let full: Vec<String> = world.names("Node");
    for node in &full {
        world.stranger(&format!("fills-{node}"), node, 1_000);
    }
    for (name, special) in groups {
        let allocatable = json!({"cpu": "1", "memory": "8Gi", "pods": "10"});
        let mut node = node(name, &json!({"status": {"allocatable": allocatable}}));
        json_patch::merge(&mut node, special);
        let group = NodeGroup { name: (*name).to_owned(), node, most: 9 };
        world.node_groups.push(group);
    }
    world
}

fn with(resource: &str, amount: &str) -> Value {
    json!({"status": {"allocatable": {resource: amount}}})
}

/// The nodes that the autoscaler has made.
fn made(world: &World) -> Vec<String> {
    let is_made = |name: &String| world.node_groups.iter().any(|of| name.starts_with(&of.name));
    world.names("Node").into_iter().filter(is_made).collect()
}

#[test]
fn a_group_gets_a_node_for_its_largest_task_at_once() {
    for (what, later, groups, expected) in [
        ("cores", json!({"cpu": "1500m"}), [("s", json!({})), ("l", with("cpu", "4"))], "l-0"),
        ("a core", json!({"cpu": "600m"}), [("s", json!({})), ("l", with("cpu", "4"))], "s-0"),
        (
            "a device",
            json!({"example.com/gpu": "1"}),
            [("s", with("cpu", "4")), ("d", with("example.com/gpu", "1"))],
            "d-0",
        ),
    ] {
        let mut task = requesting("b", "100m");
        task["taskSpec"]["steps"][0]["computeResources"]["requests"] = later.clone();
        let mut world = scaled(with_tasks(&[task]), &groups);
        begin(&mut world, "a", 100);
        world.expect(&format!("a:{expected} run:{expected}")).finish("a").settle(SOON);
        let label = json!({"metadata": {"labels": {keys::PIPELINE_TASK: "b"}}});
        world.member("b", "run", 100).change("TaskRun", "b", label);
        let containers = json!([{"name": "c", "resources": {"requests": later}}]);
        world.change("Pod", "b", json!({"spec": {"containers": containers}}));
        world.settle(SOON).expect(&format!("b:{expected} run:{expected}"));
        assert_eq!(made(&world), [expected], "{what}");
    }
}

#[test]
fn groups_that_begin_together_get_as_many_nodes_as_they_fill() {
    let names: Vec<String> = (0..6).map(|number| format!("r{number}")).collect();
    let mut world = World::new(&["n1"]);
    for name in &names {
        world.claim(name).run(name, &[&**name], &[]);
    }
    let mut world = scaled(world, &[("s", json!({}))]);
    for name in &names {
        world.member(&format!("a-{name}"), name, 400);
    }
    world.settle(60);
    let used = |world: &World, task: &str| -> Vec<String> {
        let place = |name| world.node_of(&format!("{task}-{name}")).map(ToOwned::to_owned);
        let mut used: Vec<String> = names.iter().filter_map(place).collect();
        assert_eq!(used.len(), names.len(), "every pod runs");
        used.sort_unstable();
        used.dedup();
        used
    };
    assert_eq!(used(&world, "a"), ["s-0", "s-1", "s-2"]);
    assert_eq!(made(&world), used(&world, "a"), "no node is useless");
    for name in &names {
        world.finish(&format!("a-{name}")).settle(1).member(&format!("b-{name}"), name, 400);
    }
    world.settle(60);
    assert_eq!(made(&world), used(&world, "b"));
    assert_eq!(made(&world).len(), 3);
    world.expect_rest();
}

/// The volume is in the zone of a node that no longer exists.
#[test]
fn a_group_gets_a_node_in_the_zone_of_its_volume() {
    let zone = |zone: &str| json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}});
    let mut world = World::new(&[]);
    world.node_in("a", "n1").claim("c").run("run", &["c"], &[]);
    world.member("a", "run", 100).mount("a", "c").settle(SOON).expect("a:n1 run:n1");
    world.finish("a").remove("Node", "n1");
    let mut world = scaled(world, &[("b", zone("b")), ("a", zone("a"))]);
    world.member("d", "run", 100).mount("d", "c").settle(LONG).expect("d:a-0 run:a-0");
    assert_eq!(made(&world), ["a-0"]);
}

#[test]
fn the_node_of_a_group_is_not_removed_between_two_tasks() {
    let mut world = scaled(with_tasks(&[requesting("b", "200m")]), &[("s", json!({}))]);
    begin(&mut world, "a", 100);
    world.finish("a").settle(60).expect("run:s-0");
    // The placeholder could go there, and its node is little used.
    world.node("n9");
    assert_eq!(world.shrink(), None);
    begin(&mut world, "b", 200);
    world.expect("b:s-0").finish("b").end("run").settle(60);
    assert_eq!(world.shrink().as_deref(), Some("s-0"));
}

/// Its placeholder holds a device that no new node has: an autoscaler can do nothing, and does nothing.
#[test]
fn no_node_is_made_where_none_would_help() {
    let mut world = scaled(World::with_run(&["n1"]), &[("s", json!({}))]);
    world.member("a", "run", 100);
    with_device(&mut world, "a");
    world.settle(LONG).expect("a: run:");
    assert!(made(&world).is_empty());
    world.expect_events(PIPELINE_RUN, "run", &[reason::PLACEHOLDER_NOT_PLACED]);
}
