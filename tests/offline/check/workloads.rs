//! `check` of workloads, nodes, groups and a namespace.

use serde_json::{Value, json};

use super::objects::*;

fn owned(pod: Value, kind: &str, name: &str) -> Value {
    let owner =
        json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": "o", "controller": true});
    let mut pod = with(pod, &json!({"metadata": {"ownerReferences": [owner]}}));
    pod["metadata"]["labels"] = json!({"pod-template-hash": "5d4f"});
    pod
}

fn workload(version: &str, kind: &str, annotations: &Value) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": "w", "namespace": "default"},
        "spec": {"replicas": 1, "parallelism": 1, "template": {"metadata": {"annotations": annotations},
            "spec": {"containers": []}}}})
}

#[test]
fn the_pods_of_a_workload_are_its_parts() {
    for (word, version, kind, owner) in [
        ("deployment", "apps/v1", "Deployment", ("ReplicaSet", "w-5d4f")),
        ("statefulset", "apps/v1", "StatefulSet", ("StatefulSet", "w")),
        ("job", "batch/v1", "Job", ("Job", "w")),
        ("jobs.batch", "batch/v1", "Job", ("Job", "w")),
    ] {
        let asked = format!("{word}/w");
        let pod = owned(running("p", "n1", json!({})), owner.0, owner.1);
        let other = owned(running("q", "n1", json!({})), owner.0, "x-5d4f");
        let objects = [node("n1"), workload(version, kind, &json!({})), pod, other];
        check(&objects, &asked)
            .shows(0, &[&format!("\n{kind} default/w\n"), "Pod default/p"])
            .lacks("default/q");
        // Without the object itself, its pods show it.
        check(&[objects[0].clone(), objects[2].clone()], &asked).shows(0, &["Pod default/p"]);
        // The pods are missing, and the webhook is why.
        let host = json!({"streams.ibm.com/host": "n9"});
        check(&[node("n1"), workload(version, kind, &host)], &asked)
            .shows(1, &["its pods are refused: streams.ibm.com/host: no node has"]);
    }
}

#[test]
fn a_name_that_a_streams_job_and_a_batch_job_have_is_called_so() {
    let of_job = json!({"metadata": {"labels": {"streams.ibm.com/job": "w"}}});
    let pe = with(waiting("pe", &Value::Null), &of_job);
    let output = check(&[node("n1"), workload("batch/v1", "Job", &json!({})), pe], "job/w");
    assert!(output.stdout.starts_with("StreamsJob default/w\n"), "{output:?}");
    let also = "stowplan: namespace default also has a Job w: stowplan check jobs.batch/w\n";
    assert_eq!(output.stderr, also);
}

#[test]
fn a_node_shows_its_obstacles_and_its_pools() {
    let pool = pool(
        &json!({"size": 1, "exclusivity": "Exclusive"}),
        &json!({"members": [member(0, "n1", "Ready")], "conditions": ready("True", "Allocated", "")}),
    );
    let objects = [cordoned(node("n1")), pool.clone(), running("p", "n1", json!({}))];
    check(&objects, "node/n1").shows(
        1,
        &[
            "\nNode n1\n",
            "\n  decided    member 0 of HostPool default/p, exclusive, Ready\n",
            "\n  obstacle   it is cordoned\n  remedy     kubectl uncordon n1\n",
        ],
    );
    check(&objects, "node/n2").fails("the cluster has no node n2");

    let taint = json!({"key": "stowplan.dev/exclusive", "value": HASH, "effect": "NoSchedule"});
    let other = json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"});
    let marked = || tainted(node("n1"), std::slice::from_ref(&taint));
    // The taint of a pool that has the node is no obstacle.
    let fact = format!(
        "taint stowplan.dev/exclusive={HASH}:NoSchedule: only pods of HostPool default/p run here"
    );
    check(&[marked(), pool.clone()], "node/n1").shows(0, &[&fact]);
    // It is left over where the pool does not have the node, and others are obstacles as before.
    let left = with(pool.clone(), &json!({"status": null}));
    obstacles(&[marked(), left], "node/n1").is("it has the taint stowplan.dev/exclusive…");
    obstacles(&[tainted(node("n1"), &[taint.clone(), other]), pool], "node/n1")
        .is("it has the taint gpu=yes…");
}

#[test]
fn a_pod_that_has_ended_is_called_so() {
    let ended = json!({"status": {"phase": "Succeeded"}});
    let pod = with(running("p", "n1", json!({})), &ended);
    check(&[node("n1"), pod], "pod/p").shows(0, &["it has ended: Succeeded"]);
}

#[test]
fn a_group_is_found_by_its_name() {
    let mut pod = waiting("a", &Value::Null);
    pod["metadata"]["labels"] = json!({"stowplan.dev/coschedule-member": NATIVE});
    pod["metadata"]["annotations"] = json!({"stowplan.dev/coschedule-group": "nightly"});
    let objects = [node("n1"), native_set(), pod];
    let set = format!("StatefulSet default/{NATIVE}");
    check(&objects, "group/nightly")
        .shows(1, &["\nGroup default/nightly\n", "one node for 1 pod", &set, "Pod default/a"]);
    assert_eq!(check(&objects, "group/other").code, 2);
}

#[test]
fn a_namespace_shows_what_has_an_obstacle_and_counts_the_rest() {
    let mut lone = waiting("waits", &Value::Null);
    lone["metadata"]["labels"] = json!({});
    let of_job = owned(running("of-job", "n1", json!({})), "Job", "w");
    let mut objects = vec![node("n1"), workload("batch/v1", "Job", &json!({})), of_job, lone];
    objects.extend((0..16).map(|number| running(&format!("r{number}"), "n1", json!({}))));
    let output = check(&objects, "-n default");
    let start = "Namespace default: 1 object with an obstacle, 17 without\n  Pod default/waits\n";
    assert!(output.stdout.starts_with(start), "{output:?}");
    let end = "  without an obstacle: 1 Job, 16 Pods\n";
    assert!(output.stdout.ends_with(end), "{output:?}");
    output.shows(1, &[]).lacks("default/r1");
    let output = check(&[node("n1")], "");
    assert_eq!((output.code, &*output.stdout), (0, "Namespace default: nothing to check\n"));
    // The pod of a placeholder is shown with its group only.
    check(&standing(None, &[node("n1")]), "")
        .shows(1, &["  PipelineRun default/image\n"])
        .lacks(&format!("Pod default/{PLACEHOLDER}-0"));
}

#[test]
fn the_parts_with_an_obstacle_come_first_with_a_total() {
    let of = |pod: Value| owned(pod, "Job", "w");
    let mut objects = vec![node("n1"), workload("batch/v1", "Job", &json!({}))];
    objects.extend((0..3).map(|number| of(running(&format!("r{number}"), "n1", json!({})))));
    objects.push(of(waiting("z", &Value::Null)));
    check(&objects, "jobs.batch/w")
        .shows(1, &["  pods       4, 1 with an obstacle\n  Pod default/z\n", "Pod default/r1\n"]);
    // In a namespace the others are only counted.
    check(&objects, "")
        .shows(1, &["    pods       4, 1 with an obstacle\n    Pod default/z\n"])
        .lacks("default/r1");
}
