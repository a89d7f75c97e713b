//! The next step for a placeholder, as a table; and forged plans and records.

use super::*;
use crate::simulation::CONTROLLER;
use crate::systems::coschedule::keys::{PLAN, RECORD};

const IDLE: &str = "stowplan.dev/idle-since";

fn explained(world: &mut World) -> Explained {
    let name = Name::new(NAMESPACE, &world.placeholder("run"));
    world.view();
    explain(world.view_of(CONTROLLER), &world.policy, world.store.now, &name).unwrap()
}

/// A decision in short: what is next, the reasons of those that wait, and the steps of members.
fn shown(Explained { next, waits, members, .. }: &Explained) -> String {
    let mut shown = match next {
        Next::Nothing => "nothing".to_owned(),
        Next::Delete => "delete".to_owned(),
        Next::Unmark(marks) => format!("unmark {}", marks.join(", ")),
        Next::Mark(mark, _) => format!("mark {mark}"),
        Next::Scale => "scale".to_owned(),
        Next::Resize(room) => format!("resize to {room}"),
        Next::Rewrite(plan) => format!("rewrite {}", plan.text()),
        Next::Wake => "wake".to_owned(),
        Next::StepAside(_) => "step aside".to_owned(),
        Next::LetIn => "let in".to_owned(),
        Next::Recreate { why: None } => "recreate".to_owned(),
        Next::Recreate { why: Some(why) } => {
            format!("{}: {why}", if why.is_lost() { "force" } else { "recreate" })
        }
    };
    waits.iter().for_each(|why| shown += &format!("; {}", why.reason()));
    members.iter().for_each(|(name, step)| shown += &format!("; {} {step:?}", name.name));
    shown
}

/// Changes the StatefulSet of the run (RFC 7396).
fn change(world: &mut World, with: Value) -> &mut World {
    let name = world.placeholder("run");
    world.change("StatefulSet", &name, with)
}

/// Gives the StatefulSet this annotation; null: removes it.
fn mark<'w>(world: &'w mut World, key: &str, value: &Value) -> &'w mut World {
    change(world, json!({"metadata": {"annotations": {key: value}}}))
}

/// Gives the template this plan; null: none.
fn forge<'w>(world: &'w mut World, plan: &Value) -> &'w mut World {
    change(world, json!({"spec": {"template": {"metadata": {"annotations": {PLAN: plan}}}}}))
}

/// Sends the placeholder away from its node by its template.
fn send_away(world: &mut World) -> &mut World {
    forge(world, &json!(r#"{"avoid":["n1"],"held":true,"claims":["c"]}"#))
}

/// Takes its node from the placeholder's pod.
fn unbind(world: &mut World) -> &mut World {
    let pod = world.placeholder_pod("run");
    world.unbind(&pod)
}

/// Gives the node of the placeholder a taint that it does not tolerate.
fn taint<'w>(world: &'w mut World, effect: &str) -> &'w mut World {
    let taints = json!([{"key": "k", "value": "v", "effect": effect}]);
    world.change("Node", "n1", json!({"spec": {"taints": taints}}))
}

/// Has a quota refuse a pod of the run.
fn refuse(world: &mut World) -> &mut World {
    world.refuse_pod("b", "run")
}

#[test]
fn the_next_step_for_a_placeholder() {
    type Change = fn(&mut World) -> &mut World;
    let restored = r#"rewrite {"held":true,"claims":["c"]}"#;
    let as_its_pod = r#"rewrite {"held":true,"claims":["c"],"room":{"milliCpu":100,"memory":0}}"#;
    let recorded = "mark coschedule.stowplan.dev/group";
    let cases: &[(&str, Change, &str)] = &[
        ("no plan", |world| forge(world, &Value::Null), restored),
        ("a plan that is cut off", |world| forge(world, &json!("{")), restored),
        ("a deep plan", |world| forge(world, &json!("[".repeat(200_000))), restored),
        ("no hold", |world| forge(world, &json!(r#"{"held":false,"claims":["c"]}"#)), restored),
        ("sent away from its node, and a member was bound there", send_away, as_its_pod),
        (
            "sent away from its node",
            |world| send_away(world).finish("a"),
            "recreate: waiting pods do not fit on node n1",
        ),
        (
            "a plan without its claim",
            |world| forge(world, &json!(r#"{"held":true,"claims":[]}"#)).finish("a"),
            restored,
        ),
        ("no record", |world| mark(world, RECORD, &Value::Null), recorded),
        ("a record that is cut off", |world| mark(world, RECORD, &json!("{")), recorded),
        ("a deep record", |world| mark(world, RECORD, &json!("[".repeat(262_144))), recorded),
        (
            "a record of another key",
            |world| mark(world, RECORD, &json!(r#"{"key":"b"}"#)),
            recorded,
        ),
        (
            "a record without claims, and a member runs",
            |world| mark(world, RECORD, &json!(r#"{"key":"c"}"#)),
            "nothing",
        ),
        ("a member runs beside it", |world| world, "nothing"),
        ("its size", |world| change(world, json!({"spec": {"replicas": 0}})), "scale"),
        ("an old mark", |world| mark(world, IDLE, &json!("1")), "unmark stowplan.dev/idle-since"),
        ("a quota refuses a pod, and a member runs", refuse, "nothing"),
        ("a quota refuses a pod", |world| refuse(world).finish("a"), "nothing"),
        ("the same for long", |world| refuse(world).finish("a").wait(LONG), "step aside"),
        (
            "it has stepped aside",
            |world| {
                let since = json!(world.store.now.as_second().to_string());
                mark(refuse(world).finish("a"), FAILED, &since);
                change(world, json!({"spec": {"replicas": 0}}))
            },
            "let in",
        ),
        (
            "its node is cordoned, and a member runs there",
            |world| world.cordon("n1", true).member("b", "run", 100),
            "nothing; WaitsForMembers",
        ),
        ("cordon, and less room is needed", |world| world.cordon("n1", true).finish("a"), restored),
        (
            "cordon",
            |world| {
                forge(
                    world.cordon("n1", true).finish("a"),
                    &json!(r#"{"held":true,"claims":["c"]}"#),
                )
            },
            "recreate: node n1 is cordoned",
        ),
        (
            "a taint",
            |world| {
                let world = taint(world, "NoExecute").finish("a");
                forge(world, &json!(r#"{"held":true,"claims":["c"]}"#))
            },
            "recreate: node n1 has the taint k=v:NoExecute",
        ),
        ("a taint for others", |world| taint(world, "PreferNoSchedule").finish("a"), "nothing"),
        (
            "NotReady, and its pod is being deleted",
            |world| {
                let pod = world.placeholder_pod("run");
                world.mark_deleted("Pod", &pod).ready("n1", false).finish("a")
            },
            "force: node n1 is NotReady",
        ),
        (
            "no node",
            |world| world.wait(60).remove("Node", "n1").finish("a"),
            "force: node n1 was deleted",
        ),
        (
            "a new pod on a node that the watch has not shown yet",
            |world| world.remove("Node", "n1").finish("a"),
            "nothing",
        ),
        (
            "its pod has no node, and another plan than its template",
            |world| unbind(forge(world, &json!(r#"{"only":"n2","held":true,"claims":["c"]}"#))),
            "recreate",
        ),
        ("its pod has no node", unbind, "nothing"),
        ("a gated member", |world| world.gated("b", "run"), r#"nothing; b Admit(Some("n1"))"#),
        (
            "a gated member that follows",
            |world| {
                let gates = json!({"spec": {"schedulingGates": [{"name": keys::GATE}]}});
                world.member("b", "run", 100).change("Pod", "b", gates)
            },
            "nothing; b Admit(None)",
        ),
    ];
    for (what, change, expected) in cases {
        let mut world = begun(&["n1", "n2"]);
        change(&mut world);
        assert_eq!(shown(&explained(&mut world)), *expected, "{what}");
    }
}

/// Whatever somebody writes there: the group stays on one node, its next member runs, and it comes to rest. A
/// record that is not valid is written again.
#[test]
fn a_forged_plan_or_record_splits_no_group_and_causes_no_loop() {
    // Plans, and records with whether they are written again.
    for (forged, is_restored) in [
        (json!(r#"{"only":"no-such-node","held":true,"claims":["c"]}"#), None),
        (json!(r#"{"avoid":["n1"],"held":true,"claims":["c"]}"#), None),
        (json!(r#"{"held":false,"claims":["another"]}"#), None),
        (json!(r#"{"held":true,"claims":["no/name"]}"#), None),
        (json!(r#"{"key":"c","more":1}"#), Some(true)),
        (json!(r#"{"key":"c","claims":["another"],"tasks":["gone"]}"#), Some(false)),
        (json!(r#"{"key":"c","nodeSelector":{"a":"b"}}"#), Some(false)),
    ] {
        let mut world = begun(&["n1", "n2"]);
        let writes = world.writes.len();
        let record = |world: &World| {
            let set = world.get("StatefulSet", &world.placeholder("run"));
            set["metadata"]["annotations"][RECORD].clone()
        };
        let valid = record(&world);
        match is_restored {
            None => forge(&mut world, &forged),
            Some(_) => mark(&mut world, RECORD, &forged),
        };
        world.settle(LONG).member("b", "run", 100).settle(SOON).expect("a:n1 b:n1");
        if let Some(is_restored) = is_restored {
            assert_eq!(record(&world), if is_restored { valid } else { forged.clone() });
        }
        world.finish("a").finish("b").settle(LONG).member("d", "run", 100).settle(LONG);
        assert_eq!(world.node_of("d"), world.place("run"), "{forged}");
        assert!(world.place("run").is_some(), "{forged}: {:?}", world.writes);
        assert!(world.writes.len() <= writes + 4, "{forged}: {:?}", world.writes);
    }
}
