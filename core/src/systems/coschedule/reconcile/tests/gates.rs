//! Members that are bound to a node by name, and their gates.

use super::*;

/// The required node affinity to the node of this name.
fn requiring(node: &str) -> Value {
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    json!({REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}})
}

/// Carries out what is planned for one pod: its gate is removed, and the scheduler has not looked yet.
fn open_gate(world: &mut World, pod: &str) {
    let mut actions = world.plan().actions.into_iter();
    let action = actions.find(|action| *action.target.name == *pod).unwrap();
    world.act(action);
}

#[test]
fn gates_are_removed_when_the_placeholder_has_a_node() {
    let zone = json!([{"key": "zone", "operator": "In", "values": ["a"]}]);
    let own = json!({"key": "metadata.name", "operator": "NotIn", "values": ["n9"]});
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    for (terms, lifted) in [
        (Value::Null, json!([{"matchFields": [field]}])),
        (
            json!([{"matchExpressions": zone}, {"matchFields": [own]}, {}]),
            json!([
                {"matchExpressions": zone, "matchFields": [field]},
                {"matchFields": [own, field]},
                {},
            ]),
        ),
    ] {
        let mut world = World::with_run(&["n1", "n2"]);
        let gates = json!([{"name": "example.com/mine"}, {"name": keys::GATE}]);
        world.gated_with("a", "run", &terms, 100).carry_out_plan();
        world.edit("Pod", "a")["spec"]["schedulingGates"] = gates.clone();
        // Until others let it go, its placeholder may move.
        assert_eq!(world.settle(LONG).get("Pod", "a")["spec"]["schedulingGates"], gates);
        assert_eq!(world.deletions(), 0, "{:?}", world.writes);
        world.edit("Pod", "a")["spec"]["schedulingGates"] = json!([{"name": keys::GATE}]);
        let pod = &world.settle(SOON).get("Pod", "a")["spec"];
        assert_eq!(pod["schedulingGates"], Value::Null);
        assert_eq!(pod["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"], lifted);
    }
}

#[test]
fn placeholders_are_created_before_gates_are_removed() {
    let mut world = reserved(&["n1", "n2"]);
    world.gated("a", "run").claim("d").run("two", &["d"], &[]).gated("b", "two");
    let actions = world.plan().actions;
    let targets: Vec<_> = actions.iter().map(|action| &*action.target.name).collect();
    assert_eq!(targets, [&*world.placeholder("two"), "a"]);
}

#[test]
fn a_gate_without_a_placeholder_is_removed() {
    let mut world = World::with_run(&["n1"]);
    world.gated("a", "run").member("b", "run", 100).end("run").settle(SOON).expect("a:n1 b:");
    let gates = &world.get("Pod", "b")["spec"]["schedulingGates"];
    assert!(gates.as_array().is_none_or(Vec::is_empty), "{gates}");
    for (pod, effect) in [("a", "so it may run on any node"), ("b", "delete it")] {
        world.expect_events(POD, pod, &[reason::GATE_LIFTED]);
        let mut notes = world.events.iter().filter(|((_, name), _)| &**name == pod);
        assert!(notes.all(|(_, event)| event.note.contains(effect)), "{:?}", world.events);
    }
}

/// The binding is ours, so that it is ours to take back, whatever the policy says of other pods.
#[test]
fn a_member_that_requires_the_former_node_is_recreated() {
    for repair in [Repair::Report, Repair::RecreatePending] {
        for pace in [Pace::All, Pace::First, Pace::Last] {
            let mut world = reserved(&["n1", "n2"]);
            world.policy.repair = repair;
            world.pace = pace;
            // Its gate is removed at once, and then the node is full before the scheduler looks.
            open_gate(world.gated("a", "run").member("b", "run", 100), "a");
            world.stranger("s", "n1", 950).settle(LONG).expect("a:n2 b:n2 run:n2");
            world.expect_events(POD, "a", &[reason::RECREATED]);
            let deleted = world.writes.iter().filter(|write| *write == "delete Pod a").count();
            assert_eq!(deleted, 1, "{:?}", world.writes);
        }
    }
}

/// No controller creates it again, so it stays, and the others do not wait for it.
#[test]
fn a_member_without_a_task_run_that_requires_the_former_node_is_reported() {
    let mut world = grouped(&["n1", "n2"]);
    world.expect("a:n1").finish("a").native("bare", "g").native("follows", "g");
    world.edit("Pod", "bare")["spec"]["affinity"] = json!({"nodeAffinity": requiring("n1")});
    world.stranger("s", "n1", 950).settle(LONG).expect("bare: follows:n2");
    world.expect_events(POD, "bare", &[reason::BOUND_ELSEWHERE]);
    let (_, event) =
        world.events.iter().find(|(_, event)| event.reason == reason::BOUND_ELSEWHERE).unwrap();
    assert!(event.note.contains("it must be deleted and created again"), "{event:?}");
    assert!(world.has("Pod", "bare"), "{:?}", world.writes);

    // Alone it can only come in where it is bound to: nothing is moved for it, nor is it called.
    world.finish("follows").expect_rest();
}

/// A node that its author names is not ours to take back.
#[test]
fn a_member_whose_author_requires_a_node_is_not_recreated() {
    let mut world = reserved(&["n1", "n2"]);
    world.expect("run:n1").member("a", "run", 100);
    world.edit("Pod", "a")["spec"]["affinity"]["nodeAffinity"] = requiring("n2");
    world.settle(LONG).expect("a:n2 run:n2");
    assert!(!world.writes.contains(&"delete Pod a".to_owned()), "{:?}", world.writes);
}

/// A gate that is lifted to a node cannot be taken back: what the member itself says of nodes, and the
/// room there, come first.
#[test]
fn a_gate_is_removed_only_if_the_node_is_eligible() {
    let zone = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]);
    type Change = fn(&mut World);
    let cases: [(&str, Value, u32, Change); 4] = [
        ("its own terms", zone, 100, |_| {}),
        ("its selector", Value::Null, 100, |world| {
            world.edit("Pod", "a")["spec"]["nodeSelector"] = json!({"zone": "b"});
        }),
        ("a taint that the placeholder tolerates", Value::Null, 100, |world| {
            let taint = json!({"key": "k", "effect": "NoSchedule"});
            world.change("Node", "n1", json!({"spec": {"taints": [taint]}}));
        }),
        ("the room", Value::Null, 600, |world| _ = world.stranger("s", "n1", 500)),
    ];
    for (why, terms, cpu, change) in cases {
        let mut world = World::with_run(&["n1", "n2"]);
        world.template("run", &json!({"tolerations": [{"key": "k", "operator": "Exists"}]}));
        world.change("Node", "n2", json!({"metadata": {"labels": {"zone": "b"}}}));
        world.reserve("run").expect("run:n1");
        world.gated_with("a", "run", &terms, cpu).edit("Pod", "a")["spec"]["tolerations"] =
            Value::Null;
        change(&mut world);
        let spec = &world.settle(SOON).expect("a:").get("Pod", "a")["spec"];
        assert_eq!(spec["schedulingGates"].as_array().map(Vec::len), Some(1), "{why}: {spec}");
        world.settle(60).expect("a:n2 run:n2");
        assert!(!world.writes.contains(&"delete Pod a".to_owned()), "{why}: {:?}", world.writes);
    }
}

/// The placeholder's own requests are free once it has left. A member that still requires the node
/// would run there, apart from its group.
#[test]
fn members_that_require_a_node_are_recreated_before_their_group_leaves_it() {
    for is_cordoned in [false, true] {
        for pace in [Pace::All, Pace::First, Pace::Last] {
            let mut world = World::with_run(&["n1", "n2"]);
            world.pace = pace;
            world.template("run", &tolerating_all()).reserve("run");
            world.gated("a", "run").gated("b", "run");
            open_gate(&mut world, "a");
            open_gate(&mut world, "b");
            world.stranger("s", "n1", 900).cordon("n1", is_cordoned);
            world.settle(LONG).expect("a:n2 b:n2 run:n2");
        }
    }
}

/// A controller creates it again, so that it can follow its group.
#[test]
fn a_pod_of_a_replica_set_that_requires_a_node_by_name_follows_its_group() {
    for (kind, is_created_again) in [("ReplicaSet", true), ("Job", false)] {
        let mut world = grouped(&["n1", "n2"]);
        world.finish("a").remove("Pod", "a").settle(SOON).stranger("s", "n1", 950);
        let owner = json!([{"apiVersion": "apps/v1", "kind": kind, "name": "r", "uid": "r", "controller": true}]);
        world.native("b", "g");
        let mut pod = world.edit("Pod", "b");
        pod["metadata"]["ownerReferences"] = owner;
        pod["spec"]["affinity"] = json!({"nodeAffinity": requiring("n1")});
        pod["spec"]["schedulingGates"] = json!([]);
        drop(pod);
        world.settle(LONG);
        assert_eq!(!world.has("Pod", "b"), is_created_again, "{kind}: {:#?}", world.writes);
    }
}

/// The placeholder that they wait for gets neither another node nor other room.
#[test]
fn gates_are_lifted_where_coscheduling_is_switched_off() {
    let mut world = World::new(&["n1"]);
    world.stranger("s", "n1", 950).native("a", "g").settle(LONG).expect("a: g:");
    world.policy.coschedule.enabled = false;
    world.settle(LONG);
    let gates = &world.get("Pod", "a")["spec"]["schedulingGates"];
    assert!(gates.is_null(), "{:#?}", world.writes);
}
