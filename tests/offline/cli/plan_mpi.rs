//! `stowplan plan`: MPI clusters, from the manifests of their workloads.

use serde_json::json;

use super::command::Folder;

fn workload(kind: &str, name: &str, role: &str, spec: &str) -> String {
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    format!(
        "apiVersion: {version}
kind: {kind}
metadata: {{name: {name}}}
spec:
  {spec}
  template:
    metadata:
      annotations: {{mpi.stowplan.dev/cluster: pi, mpi.stowplan.dev/role: {role}}}
    spec:
      restartPolicy: Never
      containers: [{{name: main, image: mpi, securityContext: {{runAsUser: 0}}}}]
---
"
    )
}

fn launcher() -> String {
    workload("Job", "launch", "launcher", "backoffLimit: 0")
}

const INDEXED: &str = "{completionMode: Indexed, completions: 3, parallelism: 3}";

fn workers(spec: &str) -> String {
    workload("Job", "w", "worker", spec.trim_matches(['{', '}']).replace(", ", "\n  ").as_str())
}

#[test]
fn a_cluster_is_shown_as_a_whole() {
    let both = workers(INDEXED) + &launcher();
    let folder = Folder::new(&[("mpi.yaml", &both)]);
    let output = folder.plan("-f mpi.yaml -n demo");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    for line in [
        "MpiCluster demo/pi:\n",
        "      w-2.pi.demo.svc.cluster.local slots=1\n",
        "  makes Secret pi-ssh: an Ed25519 key pair\n",
        "  the launcher starts when all 3 workers are Ready and have DNS names\n",
    ] {
        assert!(output.stdout.contains(line), "{line}: {}", output.stdout);
    }
    let list = folder.plan("-f mpi.yaml -n demo -o json").json();
    let whole = &list["wholes"][0];
    assert_eq!((&whole["kind"], &whole["name"]), (&json!("MpiCluster"), &json!("pi")), "{list}");
    let makes = whole["makes"].as_array().expect("what it makes");
    let kinds: Vec<_> = makes.iter().filter_map(|object| object["kind"].as_str()).collect();
    assert_eq!(kinds, ["ConfigMap", "Secret", "Service"]);
    assert!(!whole.to_string().contains("privatekey"), "no plan has keys: {whole}");
    assert_eq!(whole["problem"], json!(null));

    // The templates in the output are those of the input with the changes, and nothing is added twice.
    let placed = folder.plan("-f mpi.yaml -n demo -o yaml");
    assert_eq!(placed.code, 0, "{placed:?}");
    let again = folder.plan_with("-f - -n demo", placed.stdout.as_bytes());
    assert!(again.stdout.contains("2 objects: 2 unchanged"), "{}", again.stdout);
}

#[test]
fn a_cluster_that_never_starts_is_refused() {
    let folder = Folder::new(&[
        (
            "few.yaml",
            &(workers("{completionMode: Indexed, completions: 3, parallelism: 2}") + &launcher()),
        ),
        ("many.yaml", &(workload("StatefulSet", "w", "worker", "replicas: 20000") + &launcher())),
        ("alone.yaml", &launcher()),
        ("workers.yaml", &workers(INDEXED)),
    ]);
    for (file, code, text) in [
        ("few.yaml", 1, "WorkersNotAtOnce: does not start: Job w runs 2 of its 3 workers at once"),
        ("many.yaml", 1, "HostfileTooLong: does not start: the files for 20000 hosts"),
        // What is missing may be elsewhere.
        ("alone.yaml", 0, "the launcher waits for workers: no workload here makes any"),
        ("workers.yaml", 0, "3 workers without a launcher"),
    ] {
        let output = folder.plan(&format!("-f {file}"));
        assert_eq!(output.code, code, "{file}: {output:?}");
        assert!(output.stdout.contains(text), "{file}: {}", output.stdout);
    }
    let output = folder.plan("-f few.yaml -o yaml");
    assert_eq!(output.code, 1);
    assert!(
        output.stderr.contains("MpiCluster default/pi: does not start: Job w"),
        "{}",
        output.stderr
    );
}

#[test]
fn the_policy_decides_about_clusters() {
    let folder = Folder::new(&[
        ("mpi.yaml", &(workers(INDEXED) + &launcher())),
        ("off.yaml", "mpi: {enabled: false}"),
        (
            "other.yaml",
            "mpi: {clusterDomain: kube.local, sshPort: 2200, sshDir: /keys, secrets: false}",
        ),
    ]);
    let output = folder.plan("-f mpi.yaml --policy off.yaml");
    assert!(!output.stdout.contains("MpiCluster"), "{}", output.stdout);
    let list = folder.plan("-f mpi.yaml --policy other.yaml -o json").json();
    let makes = list["wholes"][0]["makes"].as_array().expect("what it makes");
    let kinds: Vec<_> = makes.iter().filter_map(|object| object["kind"].as_str()).collect();
    assert_eq!(kinds, ["ConfigMap", "Service"], "the administrator makes Secrets");
    let data = &makes[0]["data"];
    let hostfile = data["hostfile"].as_str().expect("a hostfile");
    assert!(hostfile.starts_with("w-0.pi.default.svc.kube.local slots=1\n"), "{hostfile}");
    let options = data["ssh_config"].as_str().expect("options of ssh");
    assert!(options.contains("Port 2200\n") && options.contains("/keys/id_ed25519"), "{options}");
    let text = list["items"].to_string();
    assert!(text.contains("\"/keys\"") && text.contains("AuthorizedKeysFile=/keys"), "{text}");
}
