//! `stowplan plan`: pools and jobs of the input, with the members that the controller would choose.

use serde_json::json;

use super::command::Folder;

/// Nodes n1 to n`count`, Ready, with the tag `ib`.
fn nodes(count: u32) -> String {
    let node = |number: u32| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: n{number}, uid: n{number}, labels: \
             {{kubernetes.io/hostname: n{number}, streams.ibm.com/hostpool: ib}}}}\n\
             status: {{conditions: [{{type: Ready, status: 'True'}}]}}\n---\n"
        )
    };
    (1..=count).map(node).collect()
}

fn pool(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: stowplan.dev/v1alpha1\nkind: HostPool\nmetadata: {{name: {name}}}\nspec: {spec}\n---\n"
    )
}

fn pod(name: &str, pool: &str) -> String {
    super::command::pod(name, &format!("streams.ibm.com/host-pool: '{pool}'")) + "---\n"
}

const JOB: &str = "
apiVersion: stowplan.dev/v1alpha1
kind: StreamsJob
metadata: {name: j}
spec:
  pools:
  - {name: own, size: 2, tags: [ib], exclusivity: Exclusive}
  - {name: all, tags: [ib]}
  processingElements:
  - {name: e1, operators: [{name: A, host: {pool: own, index: 1}}]}
  - {name: e2, operators: [{name: B, host: {pool: own}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: e1, labels: {streams.ibm.com/job: j, streams.ibm.com/pe: e1}}
spec: {containers: [{name: pe, image: streams-runtime}]}
---
apiVersion: v1
kind: Pod
metadata: {name: e2, labels: {streams.ibm.com/job: j, streams.ibm.com/pe: e2}}
spec: {containers: [{name: pe, image: streams-runtime}]}
";

#[test]
fn a_pool_of_the_input_gets_the_members_that_the_controller_would_choose() {
    let folder = Folder::new(&[("nodes.yaml", &nodes(3))]);
    let text = pool("edge", "{size: 2, tags: [ib], exclusivity: Exclusive}")
        + &pool("rest", "{size: 1}")
        + &pod("a", "edge[1]")
        + &pod("b", "rest");
    let output = folder.plan_with("-f - --cluster nodes.yaml", text.as_bytes());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    for line in [
        "HostPool default/edge: accepted: it can be placed",
        "  members: n1, n2 (the controller would choose them now)",
        "  members: n3 (the controller would choose it now)",
        "Pod default/a: placed",
        "Pod default/b: placed",
        "4 objects: 2 placed, 2 accepted",
    ] {
        assert!(output.stdout.lines().any(|it| it == line), "{line}\n{}", output.stdout);
    }
    assert!(!output.stdout.contains("not ready"), "{}", output.stdout);
    // The hash of a UID that does not exist yet is not shown.
    assert!(output.stdout.contains("<hash of HostPool default/edge>"), "{}", output.stdout);
    let list = folder.plan_with("-f - --cluster nodes.yaml -o json", text.as_bytes()).json();
    assert_eq!(list["items"][0]["pools"][0]["members"], json!(["n1", "n2"]), "{list}");
}

#[test]
fn a_pool_that_gets_no_members_refuses_its_pods_with_the_reason() {
    let folder = Folder::new(&[("nodes.yaml", &nodes(1))]);
    let text = pool("edge", "{size: 2}") + &pod("a", "edge");
    let output = folder.plan_with("-f - --cluster nodes.yaml", text.as_bytes());
    assert_eq!(output.code, 1, "{output:?}");
    let unready = "HostPool default/edge: accepted\n  not ready: needs 2 nodes";
    assert!(output.stdout.contains(unready), "{}", output.stdout);
    assert!(output.stdout.contains("PoolNotReady"), "{}", output.stdout);
}

#[test]
fn a_job_of_the_input_has_its_pools_and_the_pods_join_it() {
    let folder = Folder::new(&[("nodes.yaml", &nodes(3))]);
    let output = folder.plan_with("-f - --cluster nodes.yaml", JOB.as_bytes());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    let line = "  pool own: n1, n2 (the controller would choose them now)";
    assert!(output.stdout.lines().any(|it| it == line), "{}", output.stdout);
    assert!(output.stdout.ends_with("3 objects: 2 placed, 1 accepted\n"), "{}", output.stdout);
    assert!(!output.stdout.contains("not ready"), "{}", output.stdout);
}

#[test]
fn a_pod_without_constraints_of_its_job_is_placed_by_its_record_only() {
    let folder = Folder::new(&[("nodes.yaml", &nodes(1))]);
    let text = "
apiVersion: stowplan.dev/v1alpha1
kind: StreamsJob
metadata: {name: j}
spec: {processingElements: [{name: e}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {streams.ibm.com/job: j, streams.ibm.com/pe: e}}
spec: {containers: [{name: pe, image: streams-runtime}]}
";
    let output = folder.plan_with("-f - --cluster nodes.yaml", text.as_bytes());
    let line = "Pod default/p: placed: nothing constrains its node, only its record changes";
    assert!(output.stdout.lines().any(|it| it == line), "{output:?}");
}

#[test]
fn nodes_of_older_pools_of_the_cluster_are_not_given_again() {
    let older = pool("older", "{size: 2, exclusivity: Exclusive}").replace(
        "{name: older}",
        "{name: older, uid: u1, creationTimestamp: '2026-01-01T00:00:00Z'}",
    );
    let folder = Folder::new(&[("cluster/nodes.yaml", &nodes(3)), ("cluster/pool.yaml", &older)]);
    let text = pool("new", "{size: 1}") + &pod("a", "new") + &pod("b", "older");
    let output = folder.plan_with("-f - --cluster cluster", text.as_bytes());
    let line = "  members: n3 (the controller would choose it now)";
    assert!(output.stdout.lines().any(|it| it == line), "{output:?}");
    assert!(output.stdout.contains("Pod default/a: placed"), "{output:?}");
}

/// A patch with the hash of a UID that does not exist yet would bind the pod to no node.
#[test]
fn no_patch_is_written_that_depends_on_a_uid_which_does_not_exist_yet() {
    let folder = Folder::new(&[("nodes.yaml", &nodes(2))]);
    let text = pool("edge", "{size: 1}") + &pod("a", "edge") + &pod("b", "edge");
    for format in ["yaml", "patch"] {
        let words = format!("-f - --cluster nodes.yaml -o {format}");
        let output = folder.plan_with(&words, text.as_bytes());
        assert_eq!(output.code, 1, "{output:?}");
        assert!(!output.stdout.contains("affinity"), "{output:?}");
        let notice = "stowplan: Pod default/a: not placed: the patch needs the UID of HostPool default/edge: \
                      create that first, then plan with --live\n";
        assert!(output.stderr.contains(notice), "{output:?}");
    }
}

#[test]
fn the_pools_of_the_examples_are_served() {
    let words = "plan -f examples/streams-job-pools.yaml examples/streams-job-pools-pods.yaml \
                 --cluster examples/nodes.yaml --cluster examples/pool-nodes.yaml";
    let output = super::command::run(words.split_whitespace(), b"");
    assert_eq!(output.code, 0, "{}\n{}", output.stdout, output.stderr);
    assert!(output.stdout.ends_with("11 objects: 10 placed, 1 accepted\n"), "{}", output.stdout);
    assert!(!output.stdout.contains("not ready"), "{}", output.stdout);
}
