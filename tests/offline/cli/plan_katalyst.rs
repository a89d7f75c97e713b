//! `stowplan plan`: the training job of `examples/` with NUMA affinity.

use super::command::{Folder, run};

const JOB: &str = "examples/katalyst.yaml";
const NODES: &str = "examples/numa-nodes.yaml";

fn plan(words: &str) -> super::command::Output {
    run(["plan", "-f", JOB].into_iter().chain(words.split_whitespace()), b"")
}

#[test]
fn the_training_job_is_admitted_with_the_default_policy() {
    let output = plan(&format!("--cluster {NODES}"));
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    assert!(!output.stdout.contains("numa-feasible"), "{}", output.stdout);
    let placed = plan(&format!("--cluster {NODES} -o yaml"));
    assert_eq!(placed.stdout.matches("key: stowplan.dev/numa-zones").count(), 2, "{placed:?}");
    for line in
        ["8 of 8 NUMA nodes feasible, on 2 nodes", "socket 1  | NUMA 2  | yes", "node numa-2"]
    {
        assert!(output.stdout.contains(line), "{line}: {}", output.stdout);
    }
    // The values are in the canonical form already.
    let written =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/katalyst.yaml"));
    let written = written.expect("the example");
    for line in written.lines().filter(|line| line.contains("microtopology_antiaffinity: '")) {
        let value = line.split('\'').nth(1).expect("a value in quotes");
        let value = value.replace('"', "\\\"");
        assert!(placed.stdout.contains(&value), "{value}: {}", placed.stdout);
    }
}

#[test]
fn the_training_job_waits_for_feasible_numa_nodes_where_they_are_enforced() {
    let policy = "katalyst: {mode: enforced, declaredLabels: [role]}";
    let folder = Folder::new(&[("policy.yaml", policy)]);
    let policy = folder.0.path().join("policy.yaml");
    let output = plan(&format!("--cluster {NODES} --policy {} -o yaml", policy.display()));
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    assert_eq!(output.stdout.matches("stowplan.dev/numa-feasible").count(), 2, "{output:?}");
}
