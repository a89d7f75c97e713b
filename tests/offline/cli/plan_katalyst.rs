//! `stowplan plan`: the training job of `examples/` with NUMA affinity.

use std::fs;

use super::command::run;

fn plan(words: &str) -> super::command::Output {
    run(&format!("plan -f examples/katalyst.yaml --cluster examples/numa-nodes.yaml {words}"), "")
}

#[test]
fn the_training_job_is_admitted_and_waits_for_feasible_numa_nodes_where_they_are_enforced() {
    plan("").has_lines(0, &[]).lacks("numa-feasible");
    let placed = plan("-o yaml");
    assert_eq!(placed.stdout.matches("key: stowplan.dev/numa-zones").count(), 2, "{placed:?}");
    // The values are in the canonical form already.
    let written =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/katalyst.yaml"));
    let written = written.expect("the example");
    for line in written.lines().filter(|line| line.contains("microtopology_antiaffinity: '")) {
        let value = line.split('\'').nth(1).expect("a value in quotes").replace('"', "\\\"");
        placed.shows(0, &[&value]);
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let policy = folder.path().join("policy.yaml");
    fs::write(&policy, "katalyst: {mode: enforced, declaredLabels: [role]}").expect("a file");
    let enforced = plan(&format!("-o yaml --policy {}", policy.display()));
    enforced.has_lines(0, &[]);
    assert_eq!(enforced.stdout.matches("stowplan.dev/numa-feasible").count(), 2, "{enforced:?}");
}
