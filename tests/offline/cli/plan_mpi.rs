//! `stowplan plan`: MPI clusters, from the manifests of their workloads.

use serde_json::{Value, json};

use super::command::Folder;

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

fn kinds(whole: &Value) -> Vec<&str> {
    let makes = whole["makes"].as_array().expect("what it makes");
    makes.iter().filter_map(|object| object["kind"].as_str()).collect()
}

#[test]
fn a_cluster_is_shown_as_a_whole() {
    let folder = Folder::new(&[("mpi.yaml", &(workers(3) + &launcher()))]);
    folder.plan("-f mpi.yaml -n demo").has_lines(
        0,
        &[
            "MpiCluster demo/pi:",
            "      worker-2.pi.demo.svc.cluster.local slots=1",
            "  makes Secret pi-ssh: an Ed25519 key pair",
            "  the launcher starts when all 3 workers are Ready and have DNS names",
        ],
    );
    let whole = &folder.plan("-f mpi.yaml -n demo -o json").json()["wholes"][0];
    assert_eq!((&whole["kind"], &whole["name"]), (&json!("MpiCluster"), &json!("pi")), "{whole}");
    assert_eq!(kinds(whole), ["ConfigMap", "Secret", "Service"]);
    assert!(!whole.to_string().contains("privatekey"), "no plan has keys: {whole}");
    assert_eq!(whole["problem"], json!(null));

    // The templates in the output are those of the input with the changes, and nothing is added twice.
    let placed = folder.plan("-f mpi.yaml -n demo -o yaml");
    assert_eq!(placed.code, 0, "{placed:?}");
    folder.plan_of("-n demo", placed.stdout).shows(0, &["2 objects: 2 unchanged"]);
}

#[test]
fn a_cluster_that_never_starts_is_refused() {
    let many = workload("StatefulSet", "worker", "replicas: 20000");
    let folder = Folder::new(&[
        ("few.yaml", &(workers(2) + &launcher())),
        ("many.yaml", &(many + &launcher())),
        ("alone.yaml", &launcher()),
        ("workers.yaml", &workers(3)),
    ]);
    for (file, code, text) in [
        ("few", 1, "WorkersNotAtOnce: does not start: Job worker runs 2 of its 3 workers at once"),
        ("many", 1, "HostfileTooLong: does not start: the files for 20000 hosts"),
        // What is missing may be elsewhere.
        ("alone", 0, "the launcher waits for workers: no workload here makes any"),
        ("workers", 0, "3 workers without a launcher"),
    ] {
        folder.plan(&format!("-f {file}.yaml")).shows(code, &[text]);
    }
    folder
        .plan("-f few.yaml -o yaml")
        .shows(1, &[])
        .warns(&["MpiCluster default/pi: does not start: Job worker"]);
}

#[test]
fn the_policy_decides_about_clusters() {
    let other = "mpi: {clusterDomain: kube.local, sshPort: 2200, sshDir: /keys, secrets: false}";
    let folder = Folder::new(&[
        ("mpi.yaml", &(workers(3) + &launcher())),
        ("off.yaml", "mpi: {enabled: false}"),
        ("other.yaml", other),
    ]);
    folder.plan("-f mpi.yaml --policy off.yaml").lacks("MpiCluster");
    let list = folder.plan("-f mpi.yaml --policy other.yaml -o json").json();
    let whole = &list["wholes"][0];
    assert_eq!(kinds(whole), ["ConfigMap", "Service"], "the administrator makes Secrets");
    let data = &whole["makes"][0]["data"];
    let hostfile = data["hostfile"].as_str().expect("a hostfile");
    assert!(hostfile.starts_with("worker-0.pi.default.svc.kube.local slots=1\n"), "{hostfile}");
    let options = data["ssh_config"].as_str().expect("options of ssh");
    assert!(options.contains("Port 2200\n") && options.contains("/keys/id_ed25519"), "{options}");
    let text = list["items"].to_string();
    assert!(text.contains("\"/keys\"") && text.contains("AuthorizedKeysFile=/keys"), "{text}");
}
