//! Scheduling gates of others, such as Kueue's, on members and on placeholders.

use super::life::GRACE;
use super::*;

const KUEUE: &str = "kueue.x-k8s.io/admission";

/// Adds a gate of Kueue's to a pod.
fn hold(world: &mut World, pod: &str) {
    let gates = &mut world.edit("Pod", pod)["spec"]["schedulingGates"];
    match gates.as_array_mut() {
        Some(gates) => gates.push(json!({"name": KUEUE})),
        None => *gates = json!([{"name": KUEUE}]),
    }
}

/// Removes Kueue's gate from a pod.
fn release(world: &mut World, pod: &str) {
    let mut pod = world.edit("Pod", pod);
    let gates = pod["spec"]["schedulingGates"].as_array_mut().unwrap();
    gates.retain(|gate| gate["name"] != KUEUE);
}

/// Removes Kueue's gate from a pod, which then needs a node with this label.
fn admit(world: &mut World, pod: &str, label: &str) {
    release(world, pod);
    let mut pod = world.edit("Pod", pod);
    pod["spec"]["nodeSelector"] = json!({"pool": label});
    pod["spec"]["tolerations"] = json!([{"key": "pool", "operator": "Exists"}]);
}

/// Nodes of two pools, the second of which is tainted, and a run with a claim.
fn pools() -> World {
    let mut world = World::with_run(&["n1", "n2"]);
    for (node, pool) in [("n1", "one"), ("n2", "two")] {
        world.change("Node", node, json!({"metadata": {"labels": {"pool": pool}}}));
    }
    let taint = json!({"key": "pool", "effect": "NoSchedule"});
    world.change("Node", "n2", json!({"spec": {"taints": [taint]}}));
    world
}

/// A pod of a run or of a native group behind a gate of Kueue's.
fn held(world: &mut World, name: &str, of: &str) {
    match world.has("PipelineRun", of) {
        true => world.member(name, of, 100),
        false => world.native(name, of),
    };
    hold(world, name);
}

/// A volume would be made where the placeholder is, and Kueue adds node selectors when it admits a pod.
#[test]
fn a_placeholder_is_made_for_the_first_pod_that_gates_of_others_release() {
    for of in ["run", "g"] {
        let mut world = pools();
        held(&mut world, "a", of);
        held(&mut world, "b", of);
        world.expect_rest();
        assert_eq!((world.count("StatefulSet"), &*world.events), (0, &[][..]), "{of}");
        admit(&mut world, "b", "two");
        world.settle(SOON).expect(&format!("{of}:n2 a: b:n2"));
        admit(&mut world, "a", "two");
        world.settle(SOON).expect(&format!("{of}:n2 a:n2"));
    }
}

/// Kueue may admit the pods of two tasks to two pools.
#[test]
fn the_labels_that_others_have_added_for_a_task_do_not_bind_the_next_one() {
    let mut world = pools();
    held(&mut world, "a", "run");
    admit(&mut world, "a", "two");
    world.settle(SOON).expect("run:n2 a:n2").finish("a");
    held(&mut world, "b", "run");
    admit(&mut world, "b", "one");
    world.settle(LONG).expect("run:n1 b:n1");
}

/// The pod template of the run says other things of nodes.
#[test]
fn what_others_have_added_counts_beside_the_template_of_the_run() {
    let mut world = pools();
    for node in ["n1", "n2"] {
        world.change("Node", node, json!({"metadata": {"labels": {"arch": "x"}}}));
    }
    world.template("run", &json!({"nodeSelector": {"arch": "x"}}));
    held(&mut world, "a", "run");
    admit(&mut world, "a", "two");
    world.settle(SOON).expect("run:n2 a:n2");
}

/// The usual order of pools: the first has no taint, the second has one.
#[test]
fn the_tolerations_that_others_have_added_are_those_of_the_placeholder() {
    let mut world = pools();
    held(&mut world, "a", "run");
    admit(&mut world, "a", "one");
    world.settle(SOON).expect("run:n1 a:n1").finish("a");
    held(&mut world, "b", "run");
    admit(&mut world, "b", "two");
    world.settle(LONG).expect("run:n2 b:n2");
}

/// A pool may have quota and no nodes. Kueue then takes the pod back, and admits another one elsewhere.
#[test]
fn a_placeholder_without_a_node_follows_what_others_add() {
    let mut world = pools();
    held(&mut world, "a", "run");
    admit(&mut world, "a", "three");
    world.settle(LONG).expect("run: a:").remove("Pod", "a");
    world.settle(LONG).expect("run:");
    held(&mut world, "b", "run");
    world.settle(LONG).expect("run: b:");
    admit(&mut world, "b", "two");
    world.settle(SOON).expect("run:n2 b:n2");
}

/// It kept the selector, the tolerations and the terms of a pod that was gone.
#[test]
fn the_placeholder_of_a_native_group_follows_its_members() {
    let mut world = pools();
    world.native("a", "g");
    world.change("Pod", "a", json!({"spec": {"nodeSelector": {"pool": "three"}}}));
    world.settle(LONG).expect("g: a:").remove("Pod", "a").native("b", "g");
    let two = json!([{"key": "pool", "operator": "In", "values": ["two"]}]);
    let terms = json!({REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": two}]}});
    let tolerations = json!([{"key": "pool", "operator": "Exists"}]);
    let spec = json!({"affinity": {"nodeAffinity": terms}, "tolerations": tolerations});
    world.change("Pod", "b", json!({"spec": spec}));
    world.settle(SOON).expect("g:n2 b:n2");
}

/// Its nodes were those of whichever pod was the oldest.
#[test]
fn the_placeholder_of_a_native_group_keeps_what_a_member_has() {
    let mut world = pools();
    world.native("a", "g");
    world.change("Pod", "a", json!({"spec": {"nodeSelector": {"pool": "one"}}}));
    world.settle(SOON).expect("g:n1 a:n1");
    // No node takes this one, and pods of other groups with the label are none of this one.
    world.native("b", "g").change("Pod", "b", json!({"spec": {"nodeSelector": {"pool": "three"}}}));
    world.native("c", "g");
    world.change("Pod", "c", json!({"spec": {"nodeSelector": {"pool": "one"}}}));
    world.remove("Pod", "a").settle(LONG).expect("g:n1 b: c:n1");
}

/// Releases before this one wrote the requirements into the template, and nothing into the plan.
#[test]
fn a_native_placeholder_of_an_earlier_release_follows_its_members() {
    let mut world = pools();
    world.native("a", "g");
    world.change("Pod", "a", json!({"spec": {"nodeSelector": {"pool": "three"}}}));
    world.settle(LONG).expect("g: a:");
    let set = world.names("StatefulSet").remove(0);
    let mut edited = world.edit("StatefulSet", &set);
    let annotation = &mut edited["spec"]["template"]["metadata"]["annotations"][keys::PLAN];
    let mut plan: Value = serde_json::from_str(annotation.as_str().unwrap()).unwrap();
    plan.as_object_mut().unwrap().remove("added").unwrap();
    *annotation = json!(plan.to_string());
    drop(edited);
    world.remove("Pod", "a").native("b", "g");
    world.change("Pod", "b", json!({"spec": {"nodeSelector": {"pool": "one"}}}));
    world.settle(LONG).expect("g:n1 b:n1");
}

#[test]
fn a_group_that_gates_of_others_hold_delays_no_other() {
    let mut world = pools();
    held(&mut world, "a", "run");
    world.run("later", &["c"], &[]).member("z", "later", 100);
    world.settle(SOON).expect("later:n1 z:n1 run: a:");
    assert_eq!((world.count("StatefulSet"), world.events.len()), (1, 0));
    admit(&mut world, "a", "one");
    world.settle(SOON).expect("run:n1 a:n1");
}

#[test]
fn a_pod_that_only_gates_of_others_hold_does_not_wait_for_stowplan() {
    let mut world = World::with_run(&["n1"]);
    world.member("a", "run", 100).settle(SOON).expect("run:n1 a:n1");
    world.member("b", "run", 100).member("c", "run", 100);
    hold(&mut world, "b");
    world.stranger("s", "n1", 850).cordon("n1", true).settle(LONG).expect("b: c:");
    world.expect_events(POD, "b", &[]);
    assert!(!world.reported(POD, "c").is_empty());
}

/// A group of a run or of a native group, whose first pod is there, and whose placeholder's pod a queue holds.
fn queued(of: &str) -> World {
    let mut world = World::new(&[]);
    world.claim("c").run("run", &["c"], &[]);
    add(&mut world, "a", of);
    world.settle(1);
    let pod = world.placeholder_pod(of);
    hold(&mut world, &pod);
    let condition = json!({"type": "PodScheduled", "status": "False",
        "reason": "SchedulingGated", "lastTransitionTime": world.store.timestamp()});
    let labels = json!({"labels": {"kueue.x-k8s.io/managed": "true"}});
    world.change("Pod", &pod, json!({"metadata": labels, "status": {"conditions": [condition]}}));
    world
}

/// A group of a run or of a native group, whose first pod runs, on the first of two nodes.
fn placed(of: &str) -> World {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c").run("run", &["c"], &[]);
    add(&mut world, "a", of);
    world.settle(SOON).expect(&format!("{of}:n1 a:n1"));
    world
}

/// Adds a pod of a run or of a native group.
fn add(world: &mut World, name: &str, of: &str) {
    match of {
        "run" => _ = world.member(name, of, 100),
        _ => _ = world.native(name, of),
    }
}

/// Kueue counts a pod that is created again as a new one.
#[test]
fn a_placeholder_behind_a_gate_of_others_is_left_alone() {
    for of in ["run", "g"] {
        let mut world = queued(of);
        hold(&mut world, "a");
        let pod = world.placeholder_pod(of);
        let (uid, writes) = (world.uid("Pod", &pod), world.writes.len());
        world.node("n1").node("n2");
        // The room that they need together is more than the placeholder has asked for.
        for name in ["b", "d"] {
            add(&mut world, name, of);
            hold(&mut world, name);
        }
        world.claim("late").mount("b", "late");
        for _ in 0..10 {
            world.settle(60).expect(&format!("{of}: a: b: d:"));
        }
        assert_eq!(world.uid("Pod", &pod), uid);
        let pods = world.writes[writes..].iter().filter(|write| write.contains(" Pod "));
        assert_eq!((pods.count(), &*world.events), (0, &[][..]), "{:?}", world.writes);
        for pod in [&*pod, "a", "b", "d"] {
            release(&mut world, pod);
        }
        world.settle(LONG).expect(&format!("{of}:n1 a:n1 b:n1 d:n1"));
    }
}

/// The pod has the last quota of its queue, and would wait for its placeholder for ever.
#[test]
fn a_placeholder_steps_aside_for_a_pod_that_its_queue_has_released() {
    for of in ["run", "g"] {
        let mut world = queued(of);
        world.node("n1").node("n2");
        let pod = world.placeholder_pod(of);
        let (uid, set) = (world.uid("Pod", "a"), world.placeholder(of));
        let counted = world.uid("StatefulSet", &set);
        world.settle(GRACE - 3).expect(&format!("{of}: a:"));
        world.settle(4).expect("a:n1");
        // The pod keeps its place in the queue.
        assert_eq!((world.uid("Pod", "a"), world.has("Pod", &pod)), (uid, false));
        let told = if of == "run" { (PIPELINE_RUN, of) } else { (POD, "a") };
        world.expect_events(told.0, told.1, &[reason::PLACEHOLDER_STEPPED_ASIDE]);
        // The queue may count it although it has no pod any more.
        world.settle(SOON);
        assert_ne!(world.uid("StatefulSet", &set), counted);
        assert!(known(&mut world, of).failed);
        add(&mut world, "b", of);
        world.settle(SOON).expect("a:n1 b:n1").expect_rest();
        world.finish("a").finish("b");
        add(&mut world, "d", of);
        world.settle(SOON);
        assert!(world.node_of("d").is_some(), "{:?}", world.writes);
    }
}

/// Kueue takes a StatefulSet in a queue for one workload, whose template stays as it was created.
#[test]
fn a_placeholder_whose_template_cannot_be_changed_steps_aside() {
    for of in ["run", "g"] {
        let mut world = placed(of);
        world.keeps_templates = true;
        // Others take the node, so that the next pod does not fit there.
        world.finish("a").stranger("s", "n1", 950);
        add(&mut world, "b", of);
        world.settle(LONG).expect("b:n2");
        let told = if of == "run" { (PIPELINE_RUN, of) } else { (POD, "b") };
        assert!(
            world.reported(told.0, told.1).contains(&reason::PLACEHOLDER_STEPPED_ASIDE),
            "{:?}",
            world.events
        );
        world.expect_rest();
    }
}

/// Kueue counts what the placeholder has requested at first, and has nothing left for a pod of its group.
#[test]
fn a_placeholder_steps_aside_for_a_pod_that_waits_in_its_queue() {
    for of in ["run", "g"] {
        let mut world = placed(of);
        add(&mut world, "b", of);
        hold(&mut world, "b");
        // No queue counts the placeholder, so that it keeps nothing from the pod.
        world.settle(LONG).expect(&format!("{of}:n1 a:n1 b:"));
        let pod = world.placeholder_pod(of);
        world.change(
            "Pod",
            &pod,
            json!({"metadata": {"labels": {"kueue.x-k8s.io/managed": "true"}}}),
        );
        world.settle(1);
        assert!(!world.has("Pod", &pod) && known(&mut world, of).failed, "{of}");
        // Those that run have no labels of a placeholder yet.
        world.settle(SOON);
        release(&mut world, "b");
        world.settle(SOON).expect("a:n1 b:n1").expect_rest();
    }
}

/// Nothing else would say that the placeholder is not to be made again.
#[test]
fn a_placeholder_that_has_stepped_aside_is_made_once_for_pods_that_keep_their_labels() {
    let mut world = queued("g");
    world.node("n1").node("n2");
    let own =
        json!({"labels": {keys::INSTANCE: "shop"}, "ownerReferences": controlled_by("ReplicaSet")});
    world.change("Pod", "a", json!({"metadata": own}));
    world.settle(LONG);
    let made = world.writes.iter().filter(|write| write.starts_with("create StatefulSet"));
    assert_eq!((made.count(), world.has("Pod", "a")), (1, false), "{:?}", world.writes);
}

/// One of them is held, and then another one runs that the webhook has admitted beside the group.
#[test]
fn pods_of_a_group_without_a_placeholder_find_each_other_whatever_their_terms() {
    let mut world = queued("g");
    world.node("n1").node("n2");
    add(&mut world, "c", "g");
    hold(&mut world, "c");
    world.settle(GRACE + SOON).expect("a:n1 c:").finish("a");
    add(&mut world, "b", "g");
    world.beside_others("b");
    world.settle(SOON);
    release(&mut world, "c");
    world.settle(SOON);
    assert_eq!(world.node_of("b"), world.node_of("c"), "{:?}", world.writes);
    assert!(world.node_of("b").is_some());
}

/// It does not look for the labels that it cannot have, so another pod in its place would wait as long.
#[test]
fn a_pod_that_keeps_its_labels_and_follows_no_placeholder_is_not_made_again() {
    let mut world = queued("g");
    world.node("n1");
    let own =
        json!({"labels": {keys::INSTANCE: "shop"}, "ownerReferences": controlled_by("ReplicaSet")});
    // It has the gate instead of the term, and no node takes it.
    let spec = json!({"affinity": null, "nodeSelector": {"pool": "none"}});
    world.change("Pod", "a", json!({"metadata": own, "spec": spec})).settle(LONG);
    assert!(world.has("Pod", "a"), "{:?}", world.writes);
    let gates = &world.get("Pod", "a")["spec"]["schedulingGates"];
    assert!(gates.as_array().is_none_or(Vec::is_empty), "{gates}");
    assert!(known(&mut world, "g").failed, "{:?}", world.writes);
}
