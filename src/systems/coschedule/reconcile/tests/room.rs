//! The room that placeholders reserve for their members.

use super::*;

/// The requests of the pod of a placeholder, and those of the template.
fn requested(world: &World, of: &str) -> [String; 2] {
    let pod = world.get("Pod", &world.placeholder_pod(of));
    let set = world.get("StatefulSet", &world.placeholder(of));
    [&pod["spec"], &set["spec"]["template"]["spec"]]
        .map(|spec| spec["containers"][0]["resources"]["requests"]["cpu"].to_string())
}

#[test]
fn a_group_gets_a_node_on_which_its_largest_pod_fits() {
    let mut world = World::with_run(&["n1", "n2"]);
    world.stranger("s", "n1", 500).member("a", "run", 100).member("b", "run", 600);
    world.settle(SOON).expect("a:n2 b:n2 run:n2");
    assert_eq!(requested(&world, "run"), ["\"10m\"", "\"610m\""]);
    assert!(world.events.is_empty(), "{:?}", world.events);
    world.expect_rest();
}

#[test]
fn a_group_waits_for_a_node_with_room() {
    let mut world = World::with_run(&["n1", "n2"]);
    world.stranger("s", "n1", 950).stranger("t", "n2", 950).member("a", "run", 100);
    world.settle(LONG).expect("a: run:");
    assert_eq!(requested(&world, "run"), ["\"110m\"", "\"110m\""]);
    world.expect_events(PIPELINE_RUN, "run", &[reason::PLACEHOLDER_NOT_PLACED]);
    world.remove("Pod", "t").settle(LONG).expect("a:n2 run:n2");
    assert_eq!(world.count("Pod"), 3, "{:?}", world.writes);
}

/// A run of the task `a`, then of these.
fn with_tasks(more: &[Value]) -> World {
    let mut world = World::with_run(&["n1", "n2", "n3"]);
    let first = json!({"name": "a", "workspaces": [{"name": "c"}], "taskSpec": {"steps": [{}]}});
    let tasks: Vec<&Value> = [&first].into_iter().chain(more).collect();
    let spec = json!({"pipelineRef": null, "pipelineSpec": {"tasks": tasks}});
    world.change("PipelineRun", "run", json!({"spec": spec}));
    world
}

/// A task of the run begins.
fn begin(world: &mut World, task: &str, cpu: u32) {
    let label = json!({"metadata": {"labels": {keys::PIPELINE_TASK: task}}});
    world.member(task, "run", cpu).change("TaskRun", task, label).settle(SOON);
}

fn requesting(name: &str, cpu: &str) -> Value {
    json!({"name": name, "workspaces": [{"name": "c"}],
        "taskSpec": {"steps": [{"computeResources": {"requests": {"cpu": cpu}}}]}})
}

#[test]
fn a_group_gets_a_node_on_which_its_later_tasks_fit() {
    let mut world = with_tasks(&[requesting("b", "600m"), requesting("c", "200m")]);
    begin(world.stranger("s", "n1", 500), "a", 100);
    world.expect("a:n2 run:n2");
    assert_eq!(requested(&world, "run"), ["\"10m\"", "\"610m\""]);
    // Without a node it asks for what is still to come.
    begin(world.finish("a"), "b", 600);
    world.expect("b:n2").finish("b");
    world.remove("Node", "n2").remove("Pod", "b").stranger("t", "n3", 700);
    world.settle(LONG).expect("run:n1");
    assert_eq!(requested(&world, "run"), ["\"10m\"", "\"210m\""]);
}

/// The tasks of other groups do not count, nor those that only Tekton can find.
#[test]
fn the_requests_of_later_tasks_are_those_of_their_tasks() {
    let reference = |reference: Value| json!({"name": "b", "workspaces": [{"name": "c"}], "taskRef": reference});
    let of_run = |cpu: &str| json!([{"pipelineTaskName": "b", "computeResources": {"requests": {"cpu": cpu}}}]);
    let mut elsewhere = requesting("b", "700m");
    elsewhere["workspaces"] = Value::Null;
    for (what, task, specs, expected) in [
        ("a Task", reference(json!({"name": "large"})), Value::Null, 810),
        ("of that kind", reference(json!({"name": "large", "kind": "Task"})), Value::Null, 810),
        ("no such Task", reference(json!({"name": "none"})), Value::Null, 110),
        ("a resolver", reference(json!({"name": "large", "resolver": "git"})), Value::Null, 110),
        (
            "a custom task",
            reference(json!({"name": "large", "kind": "Approval"})),
            Value::Null,
            110,
        ),
        ("the run says more", reference(json!({"name": "large"})), of_run("700m"), 810),
        ("the run says less", requesting("b", "700m"), of_run("300m"), 310),
        ("another group", elsewhere, Value::Null, 110),
    ] {
        let mut world = with_tasks(&[task]);
        world.change("PipelineRun", "run", json!({"spec": {"taskRunSpecs": specs}}));
        let steps = json!([{"computeResources": {"requests": {"cpu": "300m"}}}]);
        let sidecars = json!([{"computeResources": {"requests": {"cpu": "500m"}}}]);
        let spec = json!({"steps": steps, "sidecars": sidecars});
        let large = json!({"apiVersion": "tekton.dev/v1", "kind": "Task", "spec": spec});
        begin(world.create("Task", "large", large), "a", 100);
        let [_, template] = requested(&world, "run");
        let expected = if what == "the run says more" { 1210 } else { expected };
        assert_eq!(template, format!("\"{expected}m\""), "{what}");
    }
}

#[test]
fn a_larger_member_makes_a_pending_placeholder_larger() {
    let mut world = World::with_run(&["n1", "n2"]);
    world.stranger("s", "n1", 950).stranger("t", "n2", 950).member("a", "run", 100).settle(SOON);
    world.member("b", "run", 600).settle(SOON);
    assert_eq!(requested(&world, "run"), ["\"610m\"", "\"610m\""]);
    // And smaller again when that one no longer waits.
    world.remove("TaskRun", "b").remove("Pod", "b").settle(LONG);
    assert_eq!(requested(&world, "run"), ["\"110m\"", "\"110m\""]);
}

#[test]
fn a_full_node_is_left_for_one_with_room() {
    let mut world = begun(&["n1", "n2"]);
    world.expect("a:n1").stranger("s", "n1", 800).finish("a").member("b", "run", 600);
    world.settle(LONG).expect("b:n2 run:n2");
    assert_eq!(world.node_affinity("run"), "null");
    world.expect_events(PIPELINE_RUN, "run", &[reason::PLACEHOLDER_MOVED]);
}

/// The API server has no subresource `resize`, or the node cannot: the pod is created again on its node.
#[test]
fn a_pod_that_keeps_its_room_is_created_again() {
    for is_fixed in [false, true] {
        let mut world = World::with_run(&["n1"]);
        world.resizes = is_fixed;
        world.member("a", "run", 600);
        let gates = json!([{"name": "example.com/mine"}, {"name": keys::GATE}]);
        world.change("Pod", "a", json!({"spec": {"schedulingGates": gates}})).settle(SOON);
        if is_fixed {
            let pod = world.placeholder_pod("run");
            let pending =
                json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
            world.change("Pod", &pod, json!({"status": {"conditions": pending}}));
        }
        world.settle(60).ungate("a").settle(SOON).expect("a:n1 run:n1");
        assert_eq!(requested(&world, "run"), ["\"10m\"", "\"10m\""]);
        assert_eq!(world.deletions(), 1, "{:?}", world.writes);
        world.expect_rest();
    }
}

/// The pods of a group without Tekton run side by side.
#[test]
fn a_group_gets_a_node_on_which_all_its_pods_fit() {
    let mut world = World::new(&["n1", "n2"]);
    world.stranger("s", "n1", 800).native("a", "g").native("b", "g").native("c", "g");
    world.settle(SOON).expect("a:n2 b:n2 c:n2 g:n2");
}

#[test]
fn a_group_that_fits_on_no_node_as_a_whole_begins_without_some() {
    let mut world = World::new(&["n1", "n2"]);
    world.stranger("s", "n1", 900).stranger("t", "n2", 700);
    world.native("a", "g").native("b", "g").native("c", "g").settle(SOON);
    let reserved = format!("{:?}", requested(&world, "g"));
    assert!(reserved.contains("310m"), "{reserved}");
    world.settle(60);
    let reserved = format!("{:?}", requested(&world, "g"));
    assert!(!reserved.contains("310m"), "{reserved}");
    assert!(world.place("g").is_some());
}
