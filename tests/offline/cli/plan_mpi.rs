//! `stowplan plan`: MPI clusters, from the manifests of their workloads.

use super::command::{Folder, Shown};

/// A workload; `spec` in flow style, without its braces.
fn workload(kind: &str, role: &str, spec: &str) -> String {
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    format!(
        "apiVersion: {version}
kind: {kind}
metadata: {{name: {role}}}
spec: {{{spec}, template: {{
  metadata: {{annotations: {{mpi.stowplan.dev/cluster: pi, mpi.stowplan.dev/role: {role}}}}},
  spec: {{restartPolicy: Never,
    containers: [{{name: main, image: mpi, securityContext: {{runAsUser: 0}}}}]}}}}}}
---
"
    )
}

fn launcher() -> String {
    workload("Job", "launcher", "backoffLimit: 0")
}

/// An Indexed Job of three workers.
fn workers(parallelism: u32) -> String {
    let spec = format!("completionMode: Indexed, completions: 3, parallelism: {parallelism}");
    workload("Job", "worker", &spec)
}

#[test]
fn a_cluster_is_shown_as_a_whole_or_refused_if_it_never_starts() {
    let mut shown = Shown::default();
    let other = "mpi: {clusterDomain: kube.local, sshPort: 2200, sshDir: /keys, secrets: false}";
    let many = workload("StatefulSet", "worker", "replicas: 20000");
    let folder = Folder::new(&[
        ("mpi.yaml", &(workers(3) + &launcher())),
        ("few.yaml", &(workers(2) + &launcher())),
        ("many.yaml", &(many + &launcher())),
        ("alone.yaml", &launcher()),
        ("workers.yaml", &workers(3)),
        ("off.yaml", "mpi: {enabled: false}"),
        ("other.yaml", other),
    ]);
    for words in [
        "mpi.yaml -n demo",
        "few.yaml",
        "many.yaml",
        // What is missing may be elsewhere.
        "alone.yaml",
        "workers.yaml",
        "few.yaml -o patch",
        "mpi.yaml --policy off.yaml",
        // The administrator makes Secrets.
        "mpi.yaml --policy other.yaml -o json",
    ] {
        shown.add(words, &folder.plan(&format!("-f {words}")));
    }
    shown.compare("plan_mpi");
    let whole = &folder.plan("-f mpi.yaml -n demo -o json").json()["wholes"][0];
    assert!(!whole.to_string().contains("privatekey"), "no plan has keys: {whole}");

    // The templates in the output are those of the input with the changes, and nothing is added twice.
    let placed = folder.plan("-f mpi.yaml -n demo -o yaml");
    assert_eq!(placed.code, 0, "{placed:?}");
    folder.plan_of("-n demo", placed.stdout).shows(0, &["2 objects: 2 unchanged"]);
}
