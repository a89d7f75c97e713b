//! The rules of the API server, and the readers' lag.

use serde_json::{Value, json};

use super::*;
use crate::systems::plan::operation::{add, test, test_uid};

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
    let uid = simulation.get("Pod", "killed")["metadata"]["uid"].as_str().unwrap().to_owned();
    simulation.store.delete_if(&id("killed"), &uid, None, Some(0)).unwrap();
    ["runs", "held"].iter().for_each(|name| simulation.store.delete(&id(name)));
    assert_eq!(simulation.names("Pod"), ["held", "runs"]);
    let mut kubelets = simulation.possible(&[Part::Kubelets]).collect::<Vec<_>>();
    assert_eq!(kubelets, [Event::End(id("runs"))]);
    simulation.apply(kubelets.remove(0));
    simulation.edit("Pod", "held")["metadata"]["finalizers"] = json!([]);
    assert_eq!(simulation.count("Pod"), 0);
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
