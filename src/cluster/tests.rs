use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use super::*;
use crate::telemetry::Metrics;

fn node(name: &str) -> Node {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

/// The watch of nodes.
fn store_of_nodes(cluster: &Cluster) -> Arc<Store> {
    let of_nodes = |store: &&Arc<Store>| store.tables.contains(&TableType::Nodes);
    Arc::clone(cluster.stores.iter().find(of_nodes).unwrap())
}

#[test]
fn a_change_is_one_of_what_the_view_shows_or_of_what_the_observer_keeps() {
    let cluster = Cluster::following(Scope::Admission, Arc::new(Metrics::default()));
    let store = store_of_nodes(&cluster);
    let (mut changes, mut versions) = (cluster.changes(), cluster.versions());
    let mut reported = Reported::default();
    let mut notified = |event, is_observed| {
        reported.is_observed = is_observed;
        cluster.take(&store, Ok(event), &mut reported, |object: &Node| store.read(object));
        let [changed, renewed] = [&mut changes, &mut versions].map(|it| it.has_changed().unwrap());
        changes.mark_unchanged();
        versions.mark_unchanged();
        (changed, renewed)
    };
    assert_eq!(notified(Event::Apply(node("a")), false), (true, false), "it is new");
    assert_eq!(notified(Event::Apply(node("a")), false), (false, true), "its kubelet reports");
    assert_eq!(notified(Event::Apply(node("a")), true), (true, false), "the observer keeps it");
    assert_eq!(notified(Event::Delete(node("a")), false), (true, false));
}

/// The API server has forgotten the version that the watch asked for (410), and objects were deleted
/// meanwhile.
#[test]
fn a_list_that_is_read_again_removes_what_was_deleted_meanwhile() {
    let cluster = Cluster::following(Scope::Admission, Arc::new(Metrics::default()));
    let store = store_of_nodes(&cluster);
    let mut reported = Reported::default();
    let mut take = |event| {
        cluster.take(&store, Ok(event), &mut reported, |object: &Node| store.read(object));
    };
    let known = || {
        let view = cluster.view();
        let names = ["a", "b", "c", "d"].into_iter();
        names.filter(|name| view.node(name).is_some()).collect::<String>()
    };
    take(Event::Init);
    take(Event::InitApply(node("a")));
    take(Event::InitApply(node("b")));
    assert!(cluster.unsynced().contains(&store.name()));
    take(Event::InitDone);
    assert!(!cluster.unsynced().contains(&store.name()));
    take(Event::Apply(node("c")));
    assert_eq!(known(), "abc");

    take(Event::Init);
    take(Event::InitApply(node("b")));
    take(Event::InitApply(node("d")));
    assert_eq!(known(), "abcd", "a decision while the list is read sees no gap");
    take(Event::InitDone);
    assert_eq!(known(), "bd");
    take(Event::Delete(node("d")));
    assert_eq!(known(), "b");
}

/// A pod gets the label of its job: it moves from one watch of pods to the other, and the two report that
/// in any order.
#[test]
fn an_object_that_moves_between_two_watches_of_a_table_stays_in_it() {
    let pod = |version: &str, labels: Value| -> Pod {
        let metadata = json!({
            "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": version, "labels": labels,
        });
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    };
    let before = pod("5", json!({"app": "streams"}));
    let after = pod("6", json!({"app": "streams", "streams.ibm.com/job": "j"}));
    let added = ("pods of jobs", vec![Event::Apply(after.clone())]);
    let listed =
        ("pods of jobs", vec![Event::Init, Event::InitApply(after.clone()), Event::InitDone]);
    let deleted = ("pods without a job", vec![Event::Delete(before.clone())]);
    let not_listed = ("pods without a job", vec![Event::Init, Event::InitDone]);
    let late =
        ("pods without a job", vec![Event::Apply(before.clone()), Event::Delete(before.clone())]);
    let listed_late = (
        "pods without a job",
        vec![
            Event::Init,
            Event::InitApply(before.clone()),
            Event::InitDone,
            Event::Delete(before.clone()),
        ],
    );
    for steps in [
        [&deleted, &added],
        [&added, &deleted],
        [&added, &not_listed],
        [&listed, &deleted],
        [&listed, &not_listed],
        [&added, &late],
        [&listed, &late],
        [&added, &listed_late],
        [&listed, &listed_late],
    ] {
        let cluster = Cluster::following(Scope::Admission, Arc::new(Metrics::default()));
        let known = || cluster.view().counts().find(|(kind, _)| *kind == "pods").unwrap().1;
        let mut of_stores: Vec<_> =
            cluster.stores.iter().map(|store| (store, Reported::default())).collect();
        let mut take = |(name, events): &(&str, Vec<Event<Pod>>)| {
            let (store, reported) =
                of_stores.iter_mut().find(|(store, _)| store.name() == *name).unwrap();
            for event in events.clone() {
                cluster.take(store, Ok(event), reported, |pod: &Pod| store.read(pod));
            }
        };
        take(&("pods without a job", vec![Event::Apply(before.clone())]));
        assert_eq!(known(), 1);
        steps.into_iter().for_each(&mut take);
        assert_eq!(known(), 1, "{steps:?}");
        let view = format!("{:?}", *cluster.view());
        assert!(view.contains(r#"job: Some("j")"#), "{steps:?}: {view}");
        take(&("pods of jobs", vec![Event::Delete(after.clone())]));
        assert_eq!(known(), 0, "{steps:?}");
    }
}
