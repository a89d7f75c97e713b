//! The next step for a placeholder, as a table; and forged plans and records.

use serde_json::{Value, json};

use super::simulator::{NAMESPACE, World};
use super::{LONG, SOON, begun};
use crate::simulation::{CONTROLLER, Edit};
use crate::systems::coschedule::keys::{PLAN, RECORD};
use crate::systems::coschedule::reconcile::next::{Next, Step};
use crate::systems::coschedule::reconcile::{Explained, explain};
use crate::view::Name;

fn explained(world: &mut World) -> Explained {
    let name = Name::new(NAMESPACE, &world.placeholder("run"));
    world.view();
    explain(world.view_of(CONTROLLER), &world.policy, world.store.now, &name).unwrap()
}

/// A decision in short: what is next, the reasons of those that wait, and the steps of members.
fn shown(Explained { next, waits, members, .. }: &Explained) -> String {
    let mut shown = match next {
        Next::Nothing => "nothing".to_owned(),
        Next::Unmark(marks) => format!("unmark {}", marks.join(", ")),
        Next::Mark(mark, _) => format!("mark {mark}"),
        Next::Resize => "resize".to_owned(),
        Next::Rewrite(plan) => format!("rewrite {}", plan.text()),
        Next::Wake => "wake".to_owned(),
        Next::StepAside => "step aside".to_owned(),
        Next::Recreate { why: None, .. } => "recreate".to_owned(),
        Next::Recreate { why: Some(why), is_forced } => {
            format!("{}: {why}", if *is_forced { "force" } else { "recreate" })
        }
    };
    waits.iter().for_each(|why| shown += &format!("; {}", why.reason()));
    for (name, step) in members {
        let step = match step {
            Step::Admit(node) => format!("admitted to {node}"),
            Step::Wake => "woken".to_owned(),
            Step::Release(_) => "released".to_owned(),
            Step::Strand(..) => "stranded".to_owned(),
        };
        shown += &format!("; {} {step}", name.name);
    }
    shown
}

fn placeholder(world: &mut World) -> Edit<'_> {
    let name = world.placeholder("run");
    world.edit("StatefulSet", &name)
}

/// Gives the template this plan; null: none, nor any other annotation.
fn forge(world: &mut World, plan: &Value) {
    let mut set = placeholder(world);
    let annotations = if plan.is_null() { Value::Null } else { json!({PLAN: plan}) };
    set["spec"]["template"]["metadata"]["annotations"] = annotations;
}

/// Gives the StatefulSet this record; null: none, nor any other annotation.
fn forge_record(world: &mut World, record: &Value) {
    let mut set = placeholder(world);
    match record {
        Value::Null => set["metadata"]["annotations"] = Value::Null,
        record => set["metadata"]["annotations"][RECORD] = record.clone(),
    }
}

/// Takes its node from the placeholder's pod.
fn unbind(world: &mut World) {
    let pod = format!("{}-0", world.placeholder("run"));
    world.unbind(&pod);
}

#[test]
fn the_next_step_for_a_placeholder() {
    type Change = fn(&mut World);
    let fresh = r#"rewrite {"held":true,"claims":["c"]}"#;
    let recorded = "mark coschedule.stowplan.dev/group";
    let cases: &[(&str, Change, &str)] = &[
        ("a member runs beside it", |_| {}, "nothing"),
        (
            "another number of replicas",
            |world| {
                let mut set = placeholder(world);
                set["spec"]["replicas"] = json!(0);
            },
            "resize",
        ),
        (
            "an annotation that is no longer true",
            |world| {
                let mut set = placeholder(world);
                set["metadata"]["annotations"]["stowplan.dev/idle-since"] = json!("1");
            },
            "unmark stowplan.dev/idle-since",
        ),
        ("no plan", |world| forge(world, &Value::Null), fresh),
        ("a malformed plan", |world| forge(world, &json!("{")), fresh),
        ("an oversized plan", |world| forge(world, &json!("[".repeat(200_000))), fresh),
        (
            "a plan that does not hold it",
            |world| forge(world, &json!(r#"{"held":false,"claims":["c"]}"#)),
            fresh,
        ),
        ("no record", |world| forge_record(world, &Value::Null), recorded),
        ("a malformed record", |world| forge_record(world, &json!("{")), recorded),
        ("an oversized record", |world| forge_record(world, &json!("[".repeat(262_144))), recorded),
        (
            "the record of another group",
            |world| forge_record(world, &json!(r#"{"key":"another"}"#)),
            recorded,
        ),
        (
            "a record without claims, and a member runs there",
            |world| forge_record(world, &json!(r#"{"key":"c"}"#)),
            "nothing",
        ),
        (
            "a plan that excludes its node, and a member runs there",
            |world| forge(world, &json!(r#"{"except":["n1"],"held":true,"claims":["c"]}"#)),
            "nothing",
        ),
        (
            "the same, and no member runs",
            |world| {
                forge(world, &json!(r#"{"except":["n1"],"held":true,"claims":["c"]}"#));
                world.finish("a");
            },
            "recreate: waiting pods do not fit on node n1",
        ),
        (
            "a plan without its claim, and no member runs",
            |world| {
                forge(world, &json!(r#"{"held":true,"claims":[]}"#));
                world.finish("a");
            },
            fresh,
        ),
        (
            "a quota refuses a pod of its run, and a member runs",
            |world| world.refuse_pod("b", "run"),
            "nothing",
        ),
        (
            "the same, and no member runs",
            |world| {
                world.refuse_pod("b", "run");
                world.finish("a");
            },
            "nothing",
        ),
        (
            "the same for longer than the grace period",
            |world| {
                world.refuse_pod("b", "run");
                world.finish("a");
                world.wait(LONG);
            },
            "step aside",
        ),
        (
            "it has stepped aside",
            |world| {
                world.refuse_pod("b", "run");
                world.finish("a");
                let since = world.store.now.as_second().to_string();
                let mut set = placeholder(world);
                set["metadata"]["annotations"]["stowplan.dev/aside-since"] = json!(since);
                set["spec"]["replicas"] = json!(0);
            },
            "nothing",
        ),
        (
            "its node is cordoned, and a member runs there",
            |world| {
                world.cordon("n1", true);
                world.member("b", "run", 100);
            },
            "nothing; WaitsForMembers",
        ),
        (
            "its node is cordoned",
            |world| {
                world.cordon("n1", true);
                world.finish("a");
            },
            "recreate: node n1 is cordoned",
        ),
        (
            "its node is NotReady",
            |world| {
                world.ready("n1", false);
                world.finish("a");
            },
            "force: node n1 is NotReady",
        ),
        (
            "its node was deleted",
            |world| {
                world.remove("Node", "n1");
                world.finish("a");
            },
            "force: node n1 was deleted",
        ),
        (
            "its pod has no node, and another plan than its template",
            |world| {
                forge(world, &json!(r#"{"only":"n2","held":true,"claims":["c"]}"#));
                unbind(world);
            },
            "recreate",
        ),
        ("its pod has no node", unbind, "nothing"),
        (
            "a gated member",
            |world| world.gated("b", "run", &Value::Null),
            "nothing; b admitted to n1",
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
    let forged_plans = [
        Value::Null,
        json!(""),
        json!("null"),
        json!(r#"{"only":"no-such-node","held":true,"claims":["c"]}"#),
        json!(r#"{"except":["n1"],"held":true,"claims":["c"]}"#),
        json!(r#"{"held":false,"claims":["another"]}"#),
        json!(r#"{"held":true,"claims":["no/name"]}"#),
    ];
    let forged_records = [
        (Value::Null, true),
        (json!(""), true),
        (json!("null"), true),
        (json!(r#"{"key":"another"}"#), true),
        (json!(r#"{"key":"c","more":1}"#), true),
        (json!(r#"{"key":"c","claims":["another"],"tasks":["gone"]}"#), false),
        (json!(r#"{"key":"c","nodeSelector":{"a":"b"}}"#), false),
    ];
    let plans = forged_plans.into_iter().map(|plan| (plan, None));
    let records =
        forged_records.into_iter().map(|(record, is_restored)| (record, Some(is_restored)));
    for (forged, is_restored) in plans.chain(records) {
        let mut world = begun(&["n1", "n2"]);
        let writes = world.writes.len();
        let record = |world: &World| {
            let set = world.get("StatefulSet", &world.placeholder("run"));
            set["metadata"]["annotations"][RECORD].clone()
        };
        let valid = record(&world);
        match is_restored {
            None => forge(&mut world, &forged),
            Some(_) => forge_record(&mut world, &forged),
        }
        world.settle(LONG);
        world.member("b", "run", 100);
        world.settle(SOON);
        assert_eq!((world.node_of("a"), world.node_of("b")), (Some("n1"), Some("n1")), "{forged}");
        if let Some(is_restored) = is_restored {
            assert_eq!(record(&world), if is_restored { valid } else { forged.clone() });
        }
        world.finish("a");
        world.finish("b");
        world.settle(LONG);
        world.member("d", "run", 100);
        world.settle(LONG);
        assert_eq!(world.node_of("d"), world.place("run"), "{forged}");
        assert!(world.place("run").is_some(), "{forged}: {:?}", world.writes);
        assert!(world.writes.len() <= writes + 4, "{forged}: {:?}", world.writes);
    }
}
