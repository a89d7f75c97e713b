//! The rules of the API server, the readers' lag, the order of events, and the time.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::*;
use crate::systems::plan::Write;
use crate::systems::plan::operation::{add, test, test_uid};
use crate::view::Name;
use crate::view::resource::POD;

fn simulation() -> Simulation {
    Simulation::new(Policy::default(), Timestamp::UNIX_EPOCH)
}

fn node(name: &str) -> Value {
    systems::test_objects::node(name, &json!({}))
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"},
        "spec": {"containers": [{"name": "c"}]}})
}

fn id(name: &str) -> Id {
    Id::new("Pod", "ns", name)
}

#[test]
fn a_write_whose_precondition_does_not_hold_changes_nothing() {
    let mut store = simulation().store;
    let created = store.create(pod("p")).unwrap().clone();
    assert_eq!(store.create(pod("p")), Err(Answer::Exists));
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    let label = || add(&["metadata", "labels"], json!({"a": "b"}));
    assert_eq!(store.patch(&id("p"), &[test_uid("x"), label()], false), Err(Answer::Conflict));
    let of_label = [add(&["metadata", "labels", "a"], "b")];
    assert_eq!(store.patch(&id("p"), &of_label, false), Err(Answer::Invalid));
    assert_eq!(store.get(&id("p")), Some(&created));

    // An absent field has the value null.
    let absent = test(&["metadata", "labels"], Value::Null);
    let patched = store.patch(&id("p"), &[test_uid(uid), absent, label()], false).unwrap();
    assert_ne!(patched["metadata"]["resourceVersion"], *version);
    let outdated = plan::operation::replace_status(uid, version, &json!({}));
    assert_eq!(store.patch(&id("p"), &outdated, true), Err(Answer::Conflict));
    let is_deleted =
        |store: &mut Store, uid, version| store.delete_if(&id("p"), uid, version, None);
    assert_eq!(is_deleted(&mut store, "x", None), Err(Answer::Conflict));
    assert_eq!(is_deleted(&mut store, uid, Some(version)), Err(Answer::Conflict));
    assert_eq!(is_deleted(&mut store, uid, None), Ok(()));
    assert_eq!(is_deleted(&mut store, uid, None), Err(Answer::NotFound));
    assert_eq!(store.patch(&id("p"), &[label()], false), Err(Answer::NotFound));
}

#[test]
fn a_pod_that_runs_and_an_object_with_finalizers_remain_for_a_while() {
    let mut simulation = simulation();
    simulation.store.create(node("n")).unwrap();
    let mut held = pod("held");
    held["metadata"]["finalizers"] = json!(["a/b"]);
    for pod in [pod("runs"), pod("killed"), held] {
        simulation.store.create(pod).unwrap();
    }
    for name in ["runs", "killed"] {
        simulation.apply(Event::Bind(id(name), "n".to_owned()));
    }
    let uid = |name: &str, store: &Store| {
        store.get(&id(name)).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    for (name, grace) in [("runs", None), ("killed", Some(0)), ("held", Some(0))] {
        let uid = uid(name, &simulation.store);
        simulation.store.delete_if(&id(name), &uid, None, grace).unwrap();
    }
    let names = |simulation: &Simulation| {
        simulation.store.all("Pod").map(|pod| Id::of(pod).name).collect::<Vec<_>>()
    };
    assert_eq!(names(&simulation), ["held", "runs"]);
    let mut kubelets = simulation.possible(&[Part::Kubelets]).collect::<Vec<_>>();
    assert_eq!(kubelets, [Event::End(id("runs"))]);
    simulation.apply(kubelets.remove(0));
    simulation.store.edit(&id("held")).unwrap()["metadata"]["finalizers"] = json!([]);
    assert!(names(&simulation).is_empty());
}

#[test]
fn each_reader_sees_a_change_when_it_is_delivered() {
    let mut simulation = simulation();
    let webhook = simulation.add_reader(Scope::Admission);
    simulation.store.create(node("n")).unwrap();
    simulation.apply(Event::Deliver { reader: webhook, kind: "Node".to_owned() });
    let sees = |simulation: &Simulation, reader| simulation.view_of(reader).node("n").is_some();
    assert_eq!([sees(&simulation, CONTROLLER), sees(&simulation, webhook)], [false, true]);
    let left = [Event::Deliver { reader: CONTROLLER, kind: "Node".to_owned() }];
    assert_eq!(simulation.possible(&[Part::Watches]).collect::<Vec<_>>(), left);
    simulation.catch_up(CONTROLLER);
    simulation.lose_node("n");
    assert_eq!([sees(&simulation, CONTROLLER), sees(&simulation, webhook)], [true, true]);
    simulation.catch_up(CONTROLLER);
    assert_eq!([sees(&simulation, CONTROLLER), sees(&simulation, webhook)], [false, true]);
}

#[test]
fn the_caller_chooses_the_order() {
    for (chosen, nodes) in [(0, ["n1", "n1"]), (1, ["n2", "n1"])] {
        let mut simulation = simulation();
        for object in [node("n1"), node("n2"), pod("a"), pod("b")] {
            simulation.store.create(object).unwrap();
        }
        let possible: Vec<Event> = simulation.possible(&[Part::Scheduler]).collect();
        assert_eq!(possible.len(), 4);
        simulation.apply(possible[chosen].clone());
        let now = simulation.store.now;
        simulation.run(ALL, now, |_, events| events.next()).unwrap();
        let node_of = |pod: &Value| pod["spec"]["nodeName"].as_str().unwrap().to_owned();
        assert_eq!(simulation.store.all("Pod").map(node_of).collect::<Vec<_>>(), nodes);
    }
}

/// Deletes each pod ten seconds after the beginning.
fn delete_later(view: &View, _: &Policy, now: Timestamp) -> Plan {
    let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(10);
    let mut plan = Plan::default();
    if now < at {
        plan.recheck_by(at);
    } else if view.node_usage("n").is_some() {
        let target = Target::new(POD, &Name::new("ns", "p"), "uid-2");
        let write = Write::Delete { grace: None, version: None };
        plan.actions.push(Action::new(target, write, Vec::new()));
    }
    plan
}

#[test]
fn the_time_advances_when_nothing_else_is_left() {
    let mut simulation = simulation().with_planner(delete_later);
    simulation.store.create(node("n")).unwrap();
    simulation.store.create(pod("p")).unwrap();
    let mut before = Vec::new();
    let end = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(60);
    let choose = |simulation: &Simulation, events: &mut dyn Iterator<Item = Event>| {
        let event = events.next()?;
        before.push((simulation.store.now.as_second(), event.clone()));
        Some(event)
    };
    simulation.run(ALL, end, choose).unwrap();
    let of_pod: Vec<_> = before
        .into_iter()
        .filter(|(_, event)| !matches!(event, Event::Deliver { .. } | Event::Plan))
        .collect();
    assert_eq!(
        of_pod,
        [
            (0, Event::Bind(id("p"), "n".to_owned())),
            (0, Event::Start(id("p"))),
            (10, Event::Write(0)),
            (10, Event::End(id("p"))),
        ]
    );
    assert_eq!(simulation.writes.len(), 1);
    assert_eq!(simulation.writes[0].outcome, Outcome::Done);
}
