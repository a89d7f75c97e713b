//! The next step for a placeholder, as a table; and forged plans and records.

use serde_json::{Value, json};

use super::simulator::{NAMESPACE, World};
use super::{LONG, SOON, begun};
use crate::simulation::CONTROLLER;
use crate::systems::coschedule::keys::{PLAN, RECORD};
use crate::systems::coschedule::reconcile::next::{Next, Step};
use crate::systems::coschedule::reconcile::{Explained, explain};
use crate::view::Name;

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

/// Changes the StatefulSet of the run (RFC 7396).
fn change(world: &mut World, with: Value) -> &mut World {
    let name = world.placeholder("run");
    world.change("StatefulSet", &name, with)
}

/// Gives the StatefulSet this annotation.
fn mark<'w>(world: &'w mut World, key: &str, value: &str) -> &'w mut World {
    change(world, json!({"metadata": {"annotations": {key: value}}}))
}

/// Gives the template this plan; null: none, nor any other annotation.
fn forge<'w>(world: &'w mut World, plan: &Value) -> &'w mut World {
    let annotations = if plan.is_null() { Value::Null } else { json!({PLAN: plan}) };
    change(world, json!({"spec": {"template": {"metadata": {"annotations": annotations}}}}))
}

/// Gives the StatefulSet this record; null: none, nor any other annotation.
fn forge_record<'w>(world: &'w mut World, record: &Value) -> &'w mut World {
    let annotations = if record.is_null() { Value::Null } else { json!({RECORD: record}) };
    change(world, json!({"metadata": {"annotations": annotations}}))
}

/// Takes its node from the placeholder's pod.
fn unbind(world: &mut World) -> &mut World {
    let pod = world.placeholder_pod("run");
    world.unbind(&pod)
}

/// Has a quota refuse a pod of the run.
fn refuse(world: &mut World) -> &mut World {
    world.refuse_pod("b", "run")
}

#[test]
fn the_next_step_for_a_placeholder() {
    type Change = fn(&mut World) -> &mut World;
    let step_after = |change: &dyn Fn(&mut World)| {
        let mut world = begun(&["n1", "n2"]);
        change(&mut world);
        shown(&explained(&mut world))
    };
    // A plan in the template, and whether its member has ended.
    let fresh = r#"rewrite {"held":true,"claims":["c"]}"#;
    let except_n1 = json!(r#"{"except":["n1"],"held":true,"claims":["c"]}"#);
    for (plan, has_ended, expected) in [
        (Value::Null, false, fresh),
        (json!("{"), false, fresh),
        (json!("[".repeat(200_000)), false, fresh),
        (json!(r#"{"held":false,"claims":["c"]}"#), false, fresh),
        (except_n1.clone(), false, "nothing"),
        (except_n1, true, "recreate: waiting pods do not fit on node n1"),
        (json!(r#"{"held":true,"claims":[]}"#), true, fresh),
    ] {
        let step = step_after(&|world| {
            forge(world, &plan);
            if has_ended {
                world.finish("a");
            }
        });
        assert_eq!(step, expected, "plan {:.60}", plan.to_string());
    }
    let recorded = "mark coschedule.stowplan.dev/group";
    for (record, expected) in [
        (Value::Null, recorded),
        (json!("{"), recorded),
        (json!("[".repeat(262_144)), recorded),
        (json!(r#"{"key":"another"}"#), recorded),
        // Without claims, and a member runs there.
        (json!(r#"{"key":"c"}"#), "nothing"),
    ] {
        let step = step_after(&|world| _ = forge_record(world, &record));
        assert_eq!(step, expected, "record {:.60}", record.to_string());
    }
    let cases: &[(&str, Change, &str)] = &[
        ("a member runs beside it", |world| world, "nothing"),
        ("its size", |world| change(world, json!({"spec": {"replicas": 0}})), "resize"),
        ("an outdated mark", |world| mark(world, IDLE, "1"), "unmark stowplan.dev/idle-since"),
        ("a quota refuses a pod, and a member runs", refuse, "nothing"),
        ("a quota refuses a pod", |world| refuse(world).finish("a"), "nothing"),
        ("the same for long", |world| refuse(world).finish("a").wait(LONG), "step aside"),
        (
            "it has stepped aside",
            |world| {
                let since = world.store.now.as_second().to_string();
                mark(refuse(world).finish("a"), "stowplan.dev/aside-since", &since);
                change(world, json!({"spec": {"replicas": 0}}))
            },
            "nothing",
        ),
        (
            "its node is cordoned, and a member runs there",
            |world| world.cordon("n1", true).member("b", "run", 100),
            "nothing; WaitsForMembers",
        ),
        ("cordon", |world| world.cordon("n1", true).finish("a"), "recreate: node n1 is cordoned"),
        ("NotReady", |world| world.ready("n1", false).finish("a"), "force: node n1 is NotReady"),
        ("no node", |world| world.remove("Node", "n1").finish("a"), "force: node n1 was deleted"),
        (
            "its pod has no node, and another plan than its template",
            |world| unbind(forge(world, &json!(r#"{"only":"n2","held":true,"claims":["c"]}"#))),
            "recreate",
        ),
        ("its pod has no node", unbind, "nothing"),
        ("a gated member", |world| world.gated("b", "run"), "nothing; b admitted to n1"),
    ];
    for (what, change, expected) in cases {
        assert_eq!(step_after(&|world| _ = change(world)), *expected, "{what}");
    }
}

/// Whatever somebody writes there: the group stays on one node, its next member runs, and it comes to rest. A
/// record that is not valid is written again.
#[test]
fn a_forged_plan_or_record_splits_no_group_and_causes_no_loop() {
    let forged_plans = [
        json!(r#"{"only":"no-such-node","held":true,"claims":["c"]}"#),
        json!(r#"{"except":["n1"],"held":true,"claims":["c"]}"#),
        json!(r#"{"held":false,"claims":["another"]}"#),
        json!(r#"{"held":true,"claims":["no/name"]}"#),
    ];
    let forged_records = [
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
