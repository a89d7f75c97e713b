//! Members that are bound to a node by name, and their gates.

use serde_json::{Value, json};

use super::simulator::World;
use super::{LONG, SOON, reserved};
use crate::kubernetes::REQUIRED;
use crate::policy::Repair;
use crate::simulation::Pace;
use crate::systems::coschedule::keys;
use crate::systems::coschedule::reconcile::reason;
use crate::view::resource::POD;

#[test]
fn gates_are_removed_when_the_placeholder_has_a_node() {
    let zone = |zone: &str| json!([{"key": "zone", "operator": "In", "values": [zone]}]);
    let field = |node: &str| json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let own = json!({"key": "metadata.name", "operator": "NotIn", "values": ["n9"]});
    for (terms, lifted) in [
        (Value::Null, json!([{"matchFields": [field("n1")]}])),
        (
            json!([{"matchExpressions": zone("a")}, {"matchFields": [own]}]),
            json!([
                {"matchExpressions": zone("a"), "matchFields": [field("n1")]},
                {"matchFields": [own, field("n1")]},
            ]),
        ),
        (json!([{}, {"matchFields": [own]}]), json!([{}, {"matchFields": [own, field("n1")]}])),
    ] {
        let mut world = World::with_run(&["n1", "n2"]);
        world.gated("a", "run", &terms);
        let gates = json!([{"name": "example.com/mine"}, {"name": keys::GATE}]);
        world.edit("Pod", "a")["spec"]["schedulingGates"] = gates;
        world.settle(SOON);
        let pod = &world.get("Pod", "a")["spec"];
        assert_eq!(pod["schedulingGates"], json!([{"name": "example.com/mine"}]));
        let present = &pod["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"];
        assert_eq!(*present, lifted);
    }
}

#[test]
fn placeholders_are_created_before_gates_are_removed() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.claim("d");
    world.run("one", &["c"], &[]);
    world.member("running", "one", 100);
    world.settle(SOON);
    world.gated("a", "one", &Value::Null);
    world.run("two", &["d"], &[]);
    world.gated("b", "two", &Value::Null);
    let actions = world.plan().actions;
    let targets: Vec<_> = actions.iter().map(|action| &*action.target.name).collect();
    assert_eq!(targets, [&*world.placeholder("two"), "a"]);
}

#[test]
fn a_gate_without_a_placeholder_is_removed() {
    let mut world = World::with_run(&["n1"]);
    world.gated("a", "run", &Value::Null);
    world.end("run");
    world.settle(SOON);
    assert_eq!(world.node_of("a"), Some("n1"));
    assert_eq!(world.reported(POD, "a"), [reason::GATE_LIFTED]);
}

/// The binding is ours, so that it is ours to take back, whatever the policy says of other pods.
#[test]
fn a_member_that_requires_the_former_node_is_recreated() {
    for repair in [Repair::Report, Repair::RecreatePending] {
        for pace in [Pace::All, Pace::First, Pace::Last] {
            let mut world = World::new(&["n1", "n2"]);
            world.policy.repair = repair;
            world.pace = pace;
            world.claim("c");
            world.run("run", &["c"], &[]);
            world.member("first", "run", 100);
            world.clear("Pod");
            world.settle(SOON);
            world.gated("a", "run", &Value::Null);
            world.member("b", "run", 100);
            // Lifted at once, and then the node is full before the scheduler looks.
            let lifted =
                world.plan().actions.into_iter().find(|of| &*of.target.name == "a").unwrap();
            world.act(lifted);
            world.stranger("s", "n1", 950);
            world.settle(LONG);
            assert_eq!(world.reported(POD, "a"), [reason::RECREATED], "{:?}", world.events);
            let n2 = Some("n2");
            assert_eq!((world.node_of("a"), world.node_of("b"), world.place("run")), (n2, n2, n2));
            let deleted = world.writes.iter().filter(|write| *write == "delete Pod a").count();
            assert_eq!(deleted, 1, "{:?}", world.writes);
        }
    }
}

/// No controller creates it again, so it stays, and the others do not wait for it.
#[test]
fn a_member_without_a_task_run_that_requires_the_former_node_is_reported() {
    let mut world = World::new(&["n1", "n2"]);
    world.native("a", "group");
    world.native("b", "group");
    world.settle(SOON);
    assert_eq!((world.node_of("a"), world.node_of("b")), (Some("n1"), Some("n1")));
    world.finish("a");
    world.finish("b");
    for name in ["bare", "follows"] {
        world.native(name, "group");
    }
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    let bound = json!({REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}});
    world.edit("Pod", "bare")["spec"]["affinity"] = json!({"nodeAffinity": bound});
    world.stranger("s", "n1", 950);
    world.settle(LONG);
    assert_eq!((world.node_of("bare"), world.node_of("follows")), (None, Some("n2")));
    assert_eq!(world.reported(POD, "bare"), [reason::BOUND_ELSEWHERE], "{:?}", world.events);
    let (_, event) =
        world.events.iter().find(|(_, event)| event.reason == reason::BOUND_ELSEWHERE).unwrap();
    assert!(event.note.contains("it must be deleted and created again"), "{event:?}");
    assert!(world.has("Pod", "bare"), "{:?}", world.writes);

    // Alone it can only come in where it is bound to: nothing is moved for it, nor is it called.
    world.finish("follows");
    let writes = world.writes.len();
    world.settle(LONG);
    assert_eq!(world.writes.len(), writes, "{:?}", world.writes);
}

/// A node that its author names is not ours to take back.
#[test]
fn a_member_whose_author_requires_a_node_is_not_recreated() {
    let mut world = reserved(&["n1", "n2"]);
    assert_eq!(world.place("run"), Some("n1"));
    world.member("a", "run", 100);
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n2"]});
    world.edit("Pod", "a")["spec"]["affinity"]["nodeAffinity"] =
        json!({REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}});
    world.settle(LONG);
    assert_eq!((world.node_of("a"), world.place("run")), (Some("n2"), Some("n2")));
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
        ("the room", Value::Null, 600, |world| world.stranger("s", "n1", 500)),
    ];
    for (why, terms, cpu, change) in cases {
        let mut world = World::with_run(&["n1", "n2"]);
        world.template("run", &json!({"tolerations": [{"key": "k", "operator": "Exists"}]}));
        let label = json!({"metadata": {"labels": {"zone": "b"}}});
        world.change("Node", "n2", label);
        world.member("first", "run", 100);
        world.clear("Pod");
        world.settle(SOON);
        assert_eq!(world.place("run"), Some("n1"));
        world.gated_with("a", "run", &terms, cpu);
        world.edit("Pod", "a")["spec"]["tolerations"] = Value::Null;
        change(&mut world);
        world.settle(SOON);
        assert_eq!(world.node_of("a"), None, "{why}");
        let spec = &world.get("Pod", "a")["spec"];
        assert_eq!(spec["schedulingGates"].as_array().map(Vec::len), Some(1), "{why}: {spec}");
        world.settle(60);
        assert_eq!((world.node_of("a"), world.place("run")), (Some("n2"), Some("n2")), "{why}");
        assert!(!world.writes.contains(&"delete Pod a".to_owned()), "{why}: {:?}", world.writes);
    }
}

/// The placeholder's own requests are free once it has left. A member that still requires the node
/// would run there, apart from its group.
#[test]
fn members_that_require_a_node_are_recreated_before_their_group_leaves_it() {
    type Trouble = fn(&mut World);
    let troubles: [(&str, Trouble); 2] = [
        ("full", |world| world.stranger("s", "n1", 900)),
        ("cordoned", |world| {
            world.stranger("s", "n1", 900);
            world.cordon("n1", true);
        }),
    ];
    for (why, trouble) in troubles {
        for pace in [Pace::All, Pace::First, Pace::Last] {
            let mut world = World::new(&["n1", "n2"]);
            world.pace = pace;
            world.claim("c");
            world.run("run", &["c"], &[]);
            world.template("run", &json!({"tolerations": [{"operator": "Exists"}]}));
            world.member("first", "run", 100);
            world.clear("Pod");
            world.settle(SOON);
            world.gated("a", "run", &Value::Null);
            world.gated("b", "run", &Value::Null);
            for name in ["a", "b"] {
                let lifted = world.plan().actions.into_iter();
                let lifted = lifted.into_iter().find(|of| &*of.target.name == name).unwrap();
                world.act(lifted);
            }
            trouble(&mut world);
            world.settle(LONG);
            let nodes = (world.node_of("a"), world.node_of("b"), world.place("run"));
            let n2 = Some("n2");
            assert_eq!(nodes, (n2, n2, n2), "{why} {pace:?}: {:#?}", world.writes);
        }
    }
}
