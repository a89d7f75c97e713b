//! `check` of workloads, nodes, groups and a namespace.

use serde_json::{Value, json};

use super::objects::{
    HASH, NATIVE, PLACEHOLDER, cordoned, member, native_set, node, obstacles, pool, ready, running,
    said, standing, waiting,
};

fn owned(mut pod: Value, kind: &str, name: &str) -> Value {
    pod["metadata"]["labels"] = json!({"pod-template-hash": "5d4f"});
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": "o", "controller": true}]);
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
        let pod = owned(running("p", "n1", json!({})), owner.0, owner.1);
        let other = owned(running("q", "n1", json!({})), owner.0, "x-5d4f");
        let objects = [node("n1"), workload(version, kind, &json!({})), pod, other];
        let (code, out, err) = said(&objects, &format!("{word}/w"), &[]);
        assert_eq!(code, 0, "{out}{err}");
        assert!(out.starts_with(&format!("{kind} default/w\n")), "{out}");
        assert!(out.contains("Pod default/p") && !out.contains("default/q"), "{out}");
        // Without the object itself, its pods show it.
        let (code, out, err) = said(&objects[..3], &format!("{word}/w"), &[]);
        assert_eq!(code, 0, "{out}{err}");
        // The pods are missing, and the webhook is why.
        let host = json!({"streams.ibm.com/host": "n9"});
        let objects = [node("n1"), workload(version, kind, &host)];
        let (code, out, _) = said(&objects, &format!("{word}/w"), &[]);
        assert_eq!(code, 1, "{out}");
        assert!(out.contains("its pods are refused: streams.ibm.com/host: no node has"), "{out}");
    }
}

#[test]
fn a_name_that_a_streams_job_and_a_batch_job_have_is_called_so() {
    let mut pe = waiting("pe", &Value::Null);
    pe["metadata"]["labels"]["streams.ibm.com/job"] = json!("w");
    let objects = [node("n1"), workload("batch/v1", "Job", &json!({})), pe];
    let (_, out, err) = said(&objects, "job/w", &[]);
    assert!(out.starts_with("StreamsJob default/w\n"), "{out}");
    assert_eq!(err, "stowplan: namespace default also has a Job w: stowplan check jobs.batch/w\n");
    let (code, _, err) = said(&objects, "job/none", &[]);
    assert_eq!(code, 2);
    let missing =
        "namespace default has no StreamsJob and no Job none (-n names another namespace)";
    assert!(err.contains(missing), "{err}");
}

#[test]
fn a_node_shows_its_obstacles_and_its_pools() {
    let pool = pool(
        &json!({"size": 1, "exclusivity": "Exclusive"}),
        &json!({"members": [member(0, "n1", "Ready")], "conditions": ready("True", "Allocated", "")}),
    );
    let objects = [cordoned(node("n1")), pool, running("p", "n1", json!({}))];
    let (code, out, _) = said(&objects, "node/n1", &[]);
    assert_eq!(code, 1, "{out}");
    for line in [
        "Node n1",
        "  decided    member 0 of HostPool default/p, exclusive, Ready",
        "  obstacle   it is cordoned",
        "  remedy     kubectl uncordon n1",
    ] {
        assert!(out.lines().any(|it| it == line), "{line}\n{out}");
    }
    let (code, _, err) = said(&objects, "node/n2", &[]);
    assert_eq!((code, err.as_str()), (2, "stowplan: the cluster has no node n2\n"));
}

#[test]
fn the_taint_of_a_pool_that_has_the_node_is_no_obstacle() {
    let exclusive = json!({"size": 1, "exclusivity": "Exclusive"});
    let has = json!({"members": [member(0, "n1", "Ready")], "conditions": ready("True", "Allocated", "")});
    let mut tainted = node("n1");
    let taint = json!({"key": "stowplan.dev/exclusive", "value": HASH, "effect": "NoSchedule"});
    tainted["spec"] = json!({"taints": [taint]});
    let (code, out, _) = said(&[tainted.clone(), pool(&exclusive, &has)], "node/n1", &[]);
    let fact = format!(
        "taint stowplan.dev/exclusive={HASH}:NoSchedule: only pods of HostPool default/p run here"
    );
    assert!(code == 0 && out.contains(&fact), "{out}");

    // Its taint is left over where the pool does not have the node, and others are obstacles as before.
    let left = pool(&exclusive, &json!({}));
    let found = obstacles(&[tainted.clone(), left], "node/n1");
    assert!(found[0].starts_with("it has the taint stowplan.dev/exclusive"), "{found:?}");
    let other = json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"});
    tainted["spec"] = json!({"taints": [taint, other]});
    let found = obstacles(&[tainted, pool(&exclusive, &has)], "node/n1");
    assert!(found.len() == 1 && found[0].starts_with("it has the taint gpu=yes"), "{found:?}");
}

#[test]
fn a_pod_that_has_ended_is_called_so() {
    let mut pod = running("p", "n1", json!({}));
    pod["status"] = json!({"phase": "Succeeded"});
    let (code, out, _) = said(&[node("n1"), pod], "pod/p", &[]);
    assert!(code == 0 && out.contains("it has ended: Succeeded"), "{out}");
}

#[test]
fn a_group_is_found_by_its_name() {
    let mut pod = waiting("a", &Value::Null);
    pod["metadata"]["labels"] = json!({"stowplan.dev/coschedule-member": NATIVE});
    pod["metadata"]["annotations"] = json!({"stowplan.dev/coschedule-group": "nightly"});
    let objects = [node("n1"), native_set(), pod];
    let (code, out, err) = said(&objects, "group/nightly", &[]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.starts_with("Group default/nightly\n"), "{out}");
    for word in ["one node for 1 pod", &format!("StatefulSet default/{NATIVE}"), "Pod default/a"] {
        assert!(out.contains(word), "{word}\n{out}");
    }
    let (code, _, err) = said(&objects, "group/other", &[]);
    assert_eq!(code, 2, "{err}");
}

/// The objects of a namespace: `count` pods that run, and one that waits.
fn busy(count: usize) -> Vec<Value> {
    let mut objects = vec![node("n1"), workload("batch/v1", "Job", &json!({}))];
    objects.push(owned(running("of-job", "n1", json!({})), "Job", "w"));
    objects.extend((0..count).map(|number| running(&format!("r{number}"), "n1", json!({}))));
    let mut lone = waiting("waits", &Value::Null);
    lone["metadata"]["labels"] = json!({});
    objects.insert(3, lone);
    objects
}

#[test]
fn a_namespace_shows_what_has_an_obstacle_and_counts_the_rest() {
    let (code, out, err) = said(&busy(16), "", &["-n", "default"]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(
        out.starts_with(
            "Namespace default: 1 object with an obstacle, 17 without\n  Pod default/waits\n"
        ),
        "{out}"
    );
    assert!(out.ends_with("  without an obstacle: 1 Job, 16 Pods\n"), "{out}");
    assert!(!out.contains("default/r1"), "{out}");
    let (code, out, _) = said(&[node("n1")], "", &[]);
    assert_eq!((code, out.as_str()), (0, "Namespace default: nothing to check\n"));
}

#[test]
fn the_pod_of_a_placeholder_is_shown_with_its_group_only() {
    let (code, out, err) = said(&standing(None, &[node("n1")]), "", &[]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("  PipelineRun default/image\n"), "{out}");
    assert!(!out.contains(&format!("Pod default/{PLACEHOLDER}-0")), "{out}");
}

#[test]
fn the_parts_with_an_obstacle_come_first_with_a_total() {
    let of = |pod: Value| owned(pod, "Job", "w");
    let mut objects = vec![node("n1"), workload("batch/v1", "Job", &json!({}))];
    objects.extend((0..3).map(|number| of(running(&format!("r{number}"), "n1", json!({})))));
    objects.push(of(waiting("z", &Value::Null)));
    let (code, out, _) = said(&objects, "jobs.batch/w", &[]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("  pods       4, 1 with an obstacle\n  Pod default/z\n"), "{out}");
    assert!(out.contains("Pod default/r1\n"), "{out}");
    // In a namespace the others are only counted.
    let (_, out, _) = said(&objects, "", &[]);
    assert!(out.contains("    pods       4, 1 with an obstacle\n    Pod default/z\n"), "{out}");
    assert!(!out.contains("default/r1"), "{out}");
}
