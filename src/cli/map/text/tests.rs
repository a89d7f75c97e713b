use serde_json::json;

use super::*;
use crate::systems::check::{Cluster, Context};
use crate::systems::policy::Policy;

fn written(coloured: bool) -> String {
    let mut cluster = Cluster::default();
    let node = json!({"metadata": {"name": "n1"}});
    cluster.add_node(serde_json::from_value(node).unwrap());
    let pod = json!({
        "metadata": {"name": "p", "labels": {"streams.ibm.com/job": "j"}},
        "spec": {"nodeName": "n1", "containers": []},
    });
    cluster.add_pod(serde_json::from_value(pod).unwrap());
    let policy = Policy::default();
    let now = "2026-11-24T00:00:00Z".parse().unwrap();
    let pods = crate::cli::check::POD_CHECKS;
    let context = Context { cluster: &cluster, policy: &policy, now, pods };
    format(&Map::new(&context, None), 60, coloured)
}

#[test]
fn colours_add_nothing_but_escape_sequences() {
    let plain = written(false);
    assert!(plain.contains("\n  n1  NotReady\n      A p\n"), "{plain}");
    let coloured = written(true);
    assert!(coloured.contains("\u{1b}["), "{coloured:?}");
    assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
}

#[test]
fn a_narrow_terminal_gets_narrow_lines() {
    for width in [0, 1, 40, 60] {
        let mut cluster = Cluster::default();
        let name = "a-very-long-name".repeat(10);
        let node = json!({"metadata": {"name": name}});
        cluster.add_node(serde_json::from_value(node).unwrap());
        let policy = Policy::default();
        let now = "2026-11-24T00:00:00Z".parse().unwrap();
        let pods = crate::cli::check::POD_CHECKS;
        let context = Context { cluster: &cluster, policy: &policy, now, pods };
        let text = format(&Map::new(&context, None), width, false);
        assert!(text.lines().all(|line| columns(line) <= width.max(NARROWEST)), "{text}");
    }
}
