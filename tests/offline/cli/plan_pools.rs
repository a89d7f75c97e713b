//! `stowplan plan`: the members of pools in its JSON, and the pools of the examples. `sessions.rs` shows the rest.

use serde_json::json;

use super::command::{Folder, nodes, run};

#[test]
fn the_members_that_the_controller_would_choose_are_in_the_json() {
    let pool = "apiVersion: stowplan.dev/v1alpha1\nkind: HostPool\nmetadata: {name: edge}\nspec: {size: 2, tags: [ib], exclusivity: Exclusive}\n";
    let folder = Folder::new(&[("nodes.yaml", &nodes(3))]);
    let entry = folder.plan_of("--cluster nodes.yaml -o json", pool).first();
    assert_eq!(entry["pools"][0]["members"], json!(["n1", "n2"]), "{entry}");
}

#[test]
fn the_pools_of_the_examples_are_served() {
    let words = "plan -f examples/streams-job-pools.yaml examples/streams-job-pools-pods.yaml \
                 --cluster examples/nodes.yaml --cluster examples/pool-nodes.yaml";
    run(words, "").shows(0, &["\n11 objects: 10 placed, 1 accepted\n"]).lacks("not ready");
}
