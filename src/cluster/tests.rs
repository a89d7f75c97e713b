use k8s_openapi::api::core::v1::Node;
use serde_json::json;

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
