use serde_json::json;

use super::*;
use crate::systems::check::{Cluster, Context};
use crate::systems::policy::Policy;

/// The map of one node with one pod.
fn written(node: &str, width: usize, coloured: bool) -> String {
    let mut cluster = Cluster::default();
    cluster.add_node(serde_json::from_value(json!({"metadata": {"name": node}})).unwrap());
    let pod = json!({
        "metadata": {"name": "p", "labels": {"streams.ibm.com/job": "j"}},
        "spec": {"nodeName": node, "containers": []},
    });
    cluster.add_pod(serde_json::from_value(pod).unwrap());
    let now = "2026-11-24T00:00:00Z".parse().unwrap();
    let (policy, pods) = (Policy::default(), crate::cli::check::POD_CHECKS);
    let context = Context { cluster: &cluster, policy: &policy, now, pods };
    format(&Map::new(&context, None), width, coloured)
}

#[test]
fn colours_add_nothing_but_escape_sequences() {
    let plain = written("n1", 60, false);
    assert!(plain.contains("\n  n1  NotReady\n      A p\n"), "{plain}");
    let coloured = written("n1", 60, true);
    assert!(coloured.contains("\u{1b}["), "{coloured:?}");
    assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
}

#[test]
fn a_narrow_terminal_gets_narrow_lines() {
    for width in [0, 1, 40, 60] {
        let text = written(&"a-very-long-name".repeat(10), width, false);
        assert!(text.lines().all(|line| columns(line) <= width.max(NARROWEST)), "{text}");
    }
}
