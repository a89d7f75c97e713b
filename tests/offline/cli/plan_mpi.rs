//! `stowplan plan`: the MPI cluster of the examples. `sessions.rs` shows what else is printed of clusters.

use super::command::{plan_of, run};

#[test]
fn a_plan_of_a_cluster_has_no_keys_and_is_complete() {
    let plan = |form: &str| run(&format!("plan -f examples/mpi.yaml -n demo -o {form}"), "");
    let whole = &plan("json").json()["wholes"][0];
    assert!(whole.is_object() && !whole.to_string().contains("privatekey"), "{whole}");
    // The templates in the output are those of the input with the changes, and nothing is added twice.
    let placed = plan("yaml");
    assert_eq!(placed.code, 0, "{placed:?}");
    plan_of("-n demo", placed.stdout).shows(0, &["2 objects: 2 unchanged"]);
}
