//! The room that placeholders reserve for their members.

use super::*;
use crate::systems::coschedule::policy::Reserve;

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
pub(super) fn with_tasks(more: &[Value]) -> World {
    let mut world = World::with_run(&["n1", "n2", "n3"]);
    let first = json!({"name": "a", "workspaces": [{"name": "c"}], "taskSpec": {"steps": [{}]}});
    let tasks: Vec<&Value> = [&first].into_iter().chain(more).collect();
    let spec = json!({"pipelineRef": null, "pipelineSpec": {"tasks": tasks}});
    world.change("PipelineRun", "run", json!({"spec": spec}));
    world
}

/// A task of the run begins.
pub(super) fn begin(world: &mut World, task: &str, cpu: u32) {
    let label = json!({"metadata": {"labels": {keys::PIPELINE_TASK: task}}});
    world.member(task, "run", cpu).change("TaskRun", task, label).settle(SOON);
}

pub(super) fn requesting(name: &str, cpu: &str) -> Value {
    json!({"name": name, "workspaces": [{"name": "c"}],
        "taskSpec": {"steps": [{"computeResources": {"requests": {"cpu": cpu}}}]}})
}

#[test]
fn a_group_gets_a_node_on_which_its_later_tasks_fit() {
    let mut world = with_tasks(&[requesting("b", "600m"), requesting("c", "200m")]);
    begin(world.stranger("s", "n1", 500), "a", 100);
    world.expect("a:n2 run:n2");
    assert_eq!(requested(&world, "run"), ["\"610m\"", "\"610m\""]);
    // Without a node it asks for what is still to come.
    begin(world.finish("a"), "b", 600);
    world.expect("b:n2").finish("b");
    world.remove("Node", "n2").stranger("t", "n3", 700);
    world.settle(LONG).expect("run:n1");
    assert_eq!(requested(&world, "run"), ["\"210m\"", "\"210m\""]);
}

/// Checks whether a node takes a pod that requests so much.
fn takes(world: &World, node: &str, cpu: u32) -> bool {
    let requests = json!({"cpu": format!("{cpu}m")});
    let containers = json!([{"name": "c", "resources": {"requests": requests}}]);
    let pod = json!({"metadata": {"name": "s", "namespace": NAMESPACE}, "spec": {"containers": containers}});
    world.find_nodes(&pod).unwrap().iter().any(|of| of == node)
}

#[test]
fn a_placeholder_keeps_the_room_of_later_tasks_on_its_node() {
    for (reserve, held) in [
        (Reserve::Place, [0, 0, 0]),
        (Reserve::Largest, [600, 200, 0]),
        (Reserve::Peak, [600, 200, 0]),
    ] {
        let after = |task: &str, mut of: Value| {
            of["runAfter"] = json!([task]);
            of
        };
        let [b, d] = [requesting("b", "600m"), requesting("d", "200m")];
        let mut world = with_tasks(&[after("a", b), after("b", d)]);
        world.policy.coschedule.reserve = reserve;
        for ((task, cpu), room) in [("a", 100), ("b", 600), ("d", 200)].into_iter().zip(held) {
            begin(&mut world, task, cpu);
            world.settle(SOON).expect(&format!("{task}:n1 run:n1"));
            let [pod, _] = requested(&world, "run");
            assert_eq!(pod, format!("\"{}m\"", 10 + room), "{reserve:?} beside {task}");
            // Between the tasks, too.
            world.finish(task).settle(SOON);
            assert!(!takes(&world, "n1", 991 - room), "{reserve:?} after {task}");
            assert!(takes(&world, "n1", 990 - room), "{reserve:?} after {task}");
        }
        assert_eq!(world.deletions(), 0, "{reserve:?}: {:?}", world.writes);
        world.expect_rest();
    }
}

/// The node is full while a task runs beside the room of the next one: the kubelet defers that.
#[test]
fn the_room_of_a_later_task_is_requested_before_the_earlier_one_has_ended() {
    let mut world = with_tasks(&[requesting("b", "900m")]);
    world.member("a", "run", 800).settle(2).expect("a:n1 run:n1");
    // Not at once: other groups may look for a node at the same time.
    assert_eq!(requested(&world, "run")[0], "\"200m\"");
    world.settle(SOON);
    assert_eq!(requested(&world, "run")[0], "\"910m\"");
    world.finish("a").settle(SOON);
    assert!(!takes(&world, "n1", 100));
    begin(&mut world, "b", 900);
    world.expect("b:n1 run:n1");
    assert_eq!(requested(&world, "run")[0], "\"10m\"");
}

/// The kubelet would give it the room at once, and refuse a pod that the scheduler has just bound there.
#[test]
fn room_that_a_node_has_is_not_requested() {
    let mut world = with_tasks(&[requesting("b", "600m")]);
    begin(
        world.stranger("s", "n1", 100).stranger("t", "n2", 300).stranger("u", "n3", 300),
        "a",
        500,
    );
    world.expect("a:n1 run:n1");
    assert_eq!(requested(&world, "run")[0], "\"610m\"");
    world.finish("a").settle(SOON);
    assert_eq!(requested(&world, "run")[0], "\"610m\"");
    let mut world = with_tasks(&[requesting("b", "600m")]);
    world.stranger("s", "n1", 100).stranger("t", "n2", 300).stranger("u", "n3", 300);
    world.member("a", "run", 500).settle(2).finish("a").settle(LONG);
    assert_eq!(requested(&world, "run")[0], "\"400m\"");
    // Now it has not, and the kubelet would wait.
    world.stranger("v", "n1", 400).settle(SOON);
    assert_eq!(requested(&world, "run")[0], "\"610m\"");
}

#[test]
fn a_quota_that_refuses_a_pod_of_a_run_ends_what_its_namespace_reserves() {
    let mut world = with_tasks(&[requesting("b", "600m")]);
    begin(&mut world, "a", 100);
    world.settle(SOON);
    assert_eq!(requested(&world, "run")[0], "\"610m\"");
    world.claim("other").run("other", &["other"], &[]).refuse_pod("x", "other").settle(SOON);
    assert_eq!(requested(&world, "run")[0], "\"10m\"");
}

#[test]
fn tasks_that_may_run_at_the_same_time_have_room_together_if_the_policy_says_so() {
    for (reserve, node) in [(Reserve::Largest, "n1"), (Reserve::Peak, "n2")] {
        let mut world = with_tasks(&[requesting("b", "300m"), requesting("d", "300m")]);
        world.policy.coschedule.reserve = reserve;
        begin(world.stranger("s", "n1", 500), "a", 100);
        assert_eq!(world.place("run"), Some(node), "{reserve:?}");
    }
    // Where it fits nowhere, the largest has to do.
    let mut world = with_tasks(&[requesting("b", "600m"), requesting("d", "600m")]);
    world.policy.coschedule.reserve = Reserve::Peak;
    begin(&mut world, "a", 100);
    assert_eq!(world.place("run"), None);
    assert!(world.settle(60).place("run").is_some());
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

/// Adds a device to what a pod requests.
pub(super) fn with_device(world: &mut World, pod: &str) {
    let requests = json!({"cpu": "100m", "example.com/gpu": "1"});
    let containers = json!([{"name": "c", "resources": {"requests": requests}}]);
    world.change("Pod", pod, json!({"spec": {"containers": containers}}));
}

/// Two nodes, of which the second has a device.
fn add_device(world: &mut World, node: &str) {
    let device = json!({"status": {"allocatable": {"example.com/gpu": "1"}}});
    world.change("Node", node, device);
}

/// Devices cannot be given up in place: the placeholder is created again on its node.
#[test]
fn a_group_gets_a_node_with_the_device_of_a_later_task() {
    let mut world = with_later_device();
    world.expect("a:n2 run:n2");
    let resources = |world: &World| {
        let pod = world.get("Pod", &world.placeholder_pod("run"));
        pod["spec"]["containers"][0]["resources"].clone()
    };
    let held = resources(&world);
    assert_eq!(
        [&held["requests"]["example.com/gpu"], &held["limits"]["example.com/gpu"]],
        ["1", "1"]
    );
    world.finish("a").settle(SOON);
    let label = json!({"metadata": {"labels": {keys::PIPELINE_TASK: "b"}}});
    world.member("b", "run", 100).change("TaskRun", "b", label);
    with_device(&mut world, "b");
    world.settle(SOON).expect("b:n2 run:n2");
    assert_eq!(resources(&world)["requests"]["example.com/gpu"], Value::Null);
    assert_eq!(world.deletions(), 1, "{:?}", world.writes);
    world.expect_rest();
}

/// Pods without devices would keep the placeholder as it is until they have ended.
#[test]
fn a_device_is_given_up_before_any_member_is_let_in() {
    let mut world = World::new(&["n1", "n2"]);
    add_device(&mut world, "n2");
    world.native("a", "g").native("b", "g").native("c", "g");
    with_device(&mut world, "b");
    world.settle(LONG).expect("a:n2 b:n2 c:n2 g:n2").expect_rest();
}

/// A member that needs one while others run waits for these, and the events name one.
#[test]
fn a_device_is_not_taken_from_below_a_running_member() {
    let mut world = with_later_device();
    let label = json!({"metadata": {"labels": {keys::PIPELINE_TASK: "b"}}});
    world.member("b", "run", 100).change("TaskRun", "b", label);
    with_device(&mut world, "b");
    world.settle(LONG).expect("a:n2 b: run:n2");
    world.expect_events(POD, "b", &[reason::WAITS_FOR_MEMBERS]);
    world.finish("a").settle(SOON).expect("b:n2 run:n2");
}

/// A run of the task `a`, then of `b`, which requests a device that only the second node has.
fn with_later_device() -> World {
    let mut later = requesting("b", "100m");
    later["taskSpec"]["steps"][0]["computeResources"]["limits"] = json!({"example.com/gpu": 1});
    let mut world = with_tasks(&[later]);
    add_device(&mut world, "n2");
    begin(&mut world, "a", 100);
    world
}

/// The device is free for a moment while the placeholder is created again.
#[test]
fn a_pod_of_others_does_not_get_the_device_that_is_given_up_for_a_member() {
    let mut world = with_later_device();
    let waits = json!({"spec": {"nodeName": null}, "status": {"phase": "Pending"}});
    with_device(world.stranger("0", "n2", 100), "0");
    world.change("Pod", "0", waits).settle(SOON).expect("0: a:n2 run:n2").finish("a").settle(SOON);
    let label = json!({"metadata": {"labels": {keys::PIPELINE_TASK: "b"}}});
    world.member("b", "run", 100).change("TaskRun", "b", label);
    with_device(&mut world, "b");
    world.settle(SOON).expect("0: b:n2 run:n2");
}

/// A quota may count devices, too.
#[test]
fn a_quota_that_refuses_a_pod_ends_the_reservation_of_devices() {
    let mut world = with_later_device();
    world.claim("other").run("other", &["other"], &[]).refuse_pod("x", "other").settle(SOON);
    let resources = |world: &World| {
        let pod = world.get("Pod", &world.placeholder_pod("run"));
        pod["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"].clone()
    };
    assert_eq!(resources(&world), "1", "a member runs");
    world.finish("a").settle(SOON).expect("run:n2");
    assert_eq!(resources(&world), Value::Null);
}

/// The API server would refuse the placeholder; it refuses the pod of that task alone.
#[test]
fn resources_that_no_pod_can_request_are_not_reserved() {
    let mut later = requesting("b", "600m");
    later["taskSpec"]["steps"][0]["computeResources"]["limits"] =
        json!({"gpu": 1, "A/b": 1, "a/é": 1, "a/b": -1, "hugepages-x": 1, "hugepages-2Mi": "3Mi"});
    let mut world = with_tasks(&[later]);
    begin(&mut world, "a", 100);
    world.expect("a:n1 run:n1");
    assert_eq!(requested(&world, "run")[0], "\"610m\"");
    let pod = world.get("Pod", &world.placeholder_pod("run"));
    assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"], json!({}));
}

/// A quota that has refused the room may have been raised, and another node may be able to give it up.
#[test]
fn a_group_reserves_room_again_on_another_node() {
    let mut world = with_tasks(&[requesting("b", "600m")]);
    world.resizes = false;
    begin(&mut world, "a", 100);
    world.settle(60).finish("a").settle(60);
    let label = json!({"metadata": {"labels": {keys::PIPELINE_TASK: "b"}}});
    world.member("b", "run", 600).change("TaskRun", "b", label).settle(60).expect("b:n1");
    world.finish("b").settle(SOON).cordon("n1", true).stranger("s", "n2", 800);
    world.member("d", "run", 500).settle(LONG).expect("d:n3 run:n3");
    assert!(!world.reported(PIPELINE_RUN, "run").contains(&reason::PLACEHOLDER_NOT_PLACED));
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

/// The StatefulSet controller may be later than the controller, which took that for a quota.
#[test]
fn a_placeholder_that_moves_keeps_its_room_while_it_has_no_pod() {
    let mut world = begun(&["n1", "n2"]);
    world.expect("a:n1").stranger("s", "n1", 800).finish("a").member("b", "run", 600);
    world.makes_pods = false;
    let pod = world.placeholder_pod("run");
    while world.has("Pod", &pod) {
        world.settle(1);
    }
    world.settle(3);
    world.makes_pods = true;
    world.settle(SOON).expect("b:n2 run:n2");
    assert_eq!(requested(&world, "run")[1], "\"610m\"");
}

/// The API server has no subresource `resize`, or the node cannot: the pod is created again on its node.
#[test]
fn a_pod_that_keeps_its_room_is_created_again() {
    for is_fixed in [false, true] {
        let mut world = World::with_run(&["n1"]);
        world.resizes = is_fixed;
        world.member("a", "run", 600).carry_out_plan();
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

/// Returns the node on which the scheduler keeps room for a pod.
fn nominated(world: &World, pod: &str) -> Value {
    world.get("Pod", pod)["status"]["nominatedNodeName"].clone()
}

/// It has waited for longer than the member, and the scheduler takes it first.
#[test]
fn a_pod_of_others_does_not_get_the_room_that_is_given_up_for_a_member() {
    let mut world = with_tasks(&[requesting("b", "600m")]);
    begin(&mut world, "a", 100);
    let on_n1 = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    let terms = json!({REQUIRED: {"nodeSelectorTerms": [{"matchFields": [on_n1]}]}});
    let waits = json!({"spec": {"nodeName": null, "affinity": {"nodeAffinity": terms}}, "status": {"phase": "Pending"}});
    world.stranger("0", "n1", 700).change("Pod", "0", waits).settle(SOON).expect("0:");
    begin(world.finish("a"), "b", 600);
    world.expect("0: b:n1 run:n1");
    let nominations = world.writes.iter().filter(|write| *write == "status Pod b").count();
    assert_eq!(nominations, 1, "{:?}", world.writes);
    world.finish("b").settle(SOON);
    world.expect_rest();
}

/// The scheduler goes on counting what the node has not yet given up.
#[test]
fn a_member_is_let_in_when_its_node_has_given_up_the_room() {
    let mut world = with_tasks(&[requesting("b", "600m")]);
    begin(&mut world, "a", 100);
    let pod = world.placeholder_pod("run");
    let given =
        json!([{"name": keys::COMPONENT_VALUE, "resources": {"requests": {"cpu": "610m"}}}]);
    world.change("Pod", &pod, json!({"status": {"containerStatuses": given}}));
    world.finish("a").settle(SOON);
    let label = json!({"metadata": {"labels": {keys::PIPELINE_TASK: "b"}}});
    world.member("b", "run", 600).change("TaskRun", "b", label);
    world.change("Pod", "b", json!({"spec": {"schedulingGates": [{"name": keys::GATE}]}}));
    world.carry_out_plan();
    world.carry_out_plan();
    assert_eq!(requested(&world, "run")[0], "\"400m\"", "{:?}", world.writes);
    let gates = |world: &World| world.get("Pod", "b")["spec"]["schedulingGates"].clone();
    assert_eq!(gates(&world), json!([{"name": keys::GATE}]));
    assert_eq!(nominated(&world, "b"), json!("n1"));
    // It has reported that, but of an earlier change.
    let given =
        json!([{"name": keys::COMPONENT_VALUE, "resources": {"requests": {"cpu": "400m"}}}]);
    let generation = world.get("Pod", &pod)["metadata"]["generation"].as_i64().unwrap();
    for (seen, gates_then) in [(generation - 1, gates(&world)), (generation, Value::Null)] {
        let status = json!({"containerStatuses": given, "observedGeneration": seen});
        world.change("Pod", &pod, json!({"status": status}));
        world.carry_out_plan();
        assert_eq!(gates(&world), gates_then);
    }
    world.settle(SOON).expect("b:n1 run:n1");
}

/// The node has not yet given up what the placeholder no longer requests.
#[test]
fn room_is_kept_again_after_an_attempt_in_vain() {
    let mut world = with_tasks(&[requesting("b", "600m")]);
    begin(&mut world, "a", 100);
    begin(world.finish("a"), "b", 600);
    let waits = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let waits = json!({"phase": "Pending", "conditions": [waits], "nominatedNodeName": null});
    world.change("Pod", "b", json!({"spec": {"nodeName": null}, "status": waits}));
    for (given, node) in [("610m", json!("n1")), ("10m", Value::Null)] {
        let given =
            json!([{"name": keys::COMPONENT_VALUE, "resources": {"requests": {"cpu": given}}}]);
        let pod = world.placeholder_pod("run");
        world.change("Pod", &pod, json!({"status": {"containerStatuses": given}}));
        world.change("Pod", "b", json!({"status": {"nominatedNodeName": null}}));
        world.carry_out_plan();
        assert_eq!(nominated(&world, "b"), node);
    }
}

#[test]
fn room_is_kept_only_on_the_node_of_the_placeholder() {
    let mut world = with_tasks(&[requesting("b", "600m")]);
    begin(&mut world, "a", 100);
    world.finish("a").member("b", "run", 600).change(
        "Pod",
        "b",
        json!({"status": {"nominatedNodeName": "n3"}}),
    );
    world.carry_out_plan();
    assert_eq!(nominated(&world, "b"), "");
}

/// A task that has become known only now is larger than the node.
#[test]
fn room_that_a_node_can_never_give_is_not_requested() {
    let mut world = with_tasks(&[requesting("b", "600m"), requesting("d", "1200m")]);
    begin(&mut world, "a", 100);
    world.expect("run:");
    let mut world = with_tasks(&[requesting("b", "600m")]);
    begin(&mut world, "a", 100);
    let [first, b, d] =
        [requesting("a", "100m"), requesting("b", "600m"), requesting("d", "1200m")];
    let spec = json!({"pipelineSpec": {"tasks": [first, b, d]}});
    world.change("PipelineRun", "run", json!({"spec": spec})).settle(SOON);
    assert_eq!(requested(&world, "run")[0], "\"10m\"");
}

/// Another obstacle than its room holds a member up, and a second one comes.
#[test]
fn a_pod_that_has_given_up_room_is_not_created_again() {
    let mut world = with_tasks(&[requesting("b", "300m"), requesting("d", "600m")]);
    begin(&mut world, "a", 100);
    let label = json!({"metadata": {"labels": {keys::PIPELINE_TASK: "b"}}});
    world.member("b", "run", 300).change("TaskRun", "b", label);
    world.change("Pod", "b", json!({"spec": {"nodeSelector": {"x": "y"}}}));
    world.settle(15).expect("b: run:n1");
    assert_eq!(requested(&world, "run")[0], "\"600m\"");
    begin(&mut world, "d", 600);
    world.expect("d:n1 run:n1");
    assert_eq!(world.deletions(), 0, "{:?}", world.writes);
}

/// The containers that webhooks of others add to the placeholder's pod are none of its room.
#[test]
fn containers_that_others_add_are_left_alone() {
    let mut world = begun(&["n1", "n2"]);
    let name = world.placeholder_pod("run");
    let proxy = json!({"name": "proxy", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}});
    for at in [0, 1] {
        let mut pod = world.edit("Pod", &name);
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        containers.retain(|of| of["name"] != "proxy");
        containers.insert(at, proxy.clone());
        drop(pod);
        let writes = world.writes.len();
        world.settle(LONG);
        let resizes = world.writes[writes..].iter().filter(|of| of.starts_with("resize")).count();
        assert!(resizes < 2, "{:#?}", world.writes);
        let pod = world.get("Pod", &name);
        assert_eq!(pod["spec"]["containers"][at], proxy);
    }
    // And its group leaves a node that is full.
    world.finish("a").settle(SOON).stranger("s", "n1", 700).member("b", "run", 500);
    world.settle(LONG).expect("b:n2 run:n2");
}
