//! `check` of workloads, nodes, groups and a namespace.

use serde_json::{Value, json};
use stowplan_core::systems::streams::kinds::host_pool::EXCLUSIVE_TAINT;

use super::objects::*;
use super::situations;

fn owned(pod: Value, kind: &str, name: &str) -> Value {
    let version = match kind {
        "Job" => "batch/v1",
        "ReplicationController" => "v1",
        _ => "apps/v1",
    };
    let owner =
        json!({"apiVersion": version, "kind": kind, "name": name, "uid": "o", "controller": true});
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
    let mut found = Findings::default();
    for (word, version, kind, owner) in [
        ("deployment", "apps/v1", "Deployment", ("ReplicaSet", "w-5d4f")),
        ("rs", "apps/v1", "ReplicaSet", ("ReplicaSet", "w")),
        ("daemonset", "apps/v1", "DaemonSet", ("DaemonSet", "w")),
        ("rc", "v1", "ReplicationController", ("ReplicationController", "w")),
        ("statefulset", "apps/v1", "StatefulSet", ("StatefulSet", "w")),
        ("job", "batch/v1", "Job", ("Job", "w")),
        ("jobs.batch", "batch/v1", "Job", ("Job", "w")),
    ] {
        let asked = format!("{word}/w");
        let pod = owned(running("p", "n1", json!({})), owner.0, owner.1);
        let other = owned(running("q", "n1", json!({})), owner.0, "x-5d4f");
        let objects = [node("n1"), pod, workload(version, kind, &json!({})), other];
        found.show(&format!("{asked} and another"), &objects, &asked);
        found.show(&format!("only the pod of {asked}"), &objects[..2], &asked);
        // The pods are missing, and the webhook is why.
        let host = json!({"streams.ibm.com/host": "n9"});
        let objects = [node("n1"), workload(version, kind, &host)];
        found.show(&format!("{asked} without pods"), &objects, &asked);
    }
    let of_job = json!({"metadata": {"labels": {"streams.ibm.com/job": "w"}}});
    let pe = with(waiting("pe", &Value::Null), &of_job);
    let objects = [node("n1"), workload("batch/v1", "Job", &json!({})), pe];
    found.show("a StreamsJob and a Job of one name", &objects, "job/w");
    let ended = json!({"status": {"phase": "Succeeded"}});
    let pod = with(running("p", "n1", json!({})), &ended);
    found.show("a pod that has ended", &[node("n1"), pod], "pod/p");
    found.compare("workloads");
}

#[test]
fn an_object_that_another_one_has_made_is_diagnosed_with_it() {
    let mut found = Findings::default();
    let host = json!({"streams.ibm.com/host": "n9"});
    let made = |version: &str, kind: &str, name: &str, owner: &str| {
        let owners = json!([{"apiVersion": version, "kind": owner, "name": "w", "uid": "o", "controller": true}]);
        let metadata = json!({"metadata": {"name": name, "ownerReferences": owners}});
        with(workload(version, kind, &host), &metadata)
    };
    let sets = [
        node("n1"),
        workload("apps/v1", "Deployment", &host),
        made("apps/v1", "ReplicaSet", "w-5d4f", "Deployment"),
        owned(running("p", "n1", json!({})), "ReplicaSet", "w-5d4f"),
    ];
    found.show("a Deployment in its namespace", &sets, "").show(
        "its ReplicaSet",
        &sets,
        "rs/w-5d4f",
    );
    let template = workload("batch/v1", "Job", &host)["spec"]["template"].clone();
    let every_night = json!({"spec": {"schedule": "0 0 * * *", "replicas": null, "parallelism": null,
        "template": null, "jobTemplate": {"spec": {"template": template}}}});
    let jobs = [
        node("n1"),
        with(workload("batch/v1", "CronJob", &json!({})), &every_night),
        made("batch/v1", "Job", "w-1", "CronJob"),
        owned(waiting("w-1-x", &Value::Null), "Job", "w-1"),
        made("batch/v1", "Job", "w-2", "CronJob"),
    ];
    found.show("a CronJob", &jobs, "cronjob/w").show("a CronJob in its namespace", &jobs, "");
    found.compare("makers");
}

#[test]
fn pods_that_are_equal_but_for_their_names_share_a_block() {
    let mut found = Findings::default();
    let mut pods: Vec<Value> = (0..7)
        .map(|number| {
            let name = format!("w-{number}");
            let mut pod = owned(waiting(&name, &Value::Null), "StatefulSet", "w");
            let since = format!("2026-01-01T00:00:0{number}Z");
            pod["status"]["conditions"][0]["lastTransitionTime"] = since.into();
            pod
        })
        .collect();
    let host = json!({"metadata": {"annotations": {"streams.ibm.com/host": "n1"}}});
    pods[2] = with(pods[2].clone(), &host);
    pods.push(node("n1"));
    pods.push(owned(running("w-7", "n1", json!({})), "StatefulSet", "w"));
    let ended = json!({"status": {"phase": "Succeeded"}});
    for name in ["w-8", "w-9"] {
        pods.push(with(owned(running(name, "n1", json!({})), "StatefulSet", "w"), &ended));
    }
    found.show("the pods of a workload", &pods, "statefulset/w");
    pods.truncate(8);
    pods.iter_mut().for_each(|pod| pod["metadata"]["ownerReferences"] = json!([]));
    found.show("the pods of a namespace", &pods, "-n default");
    let member = json!({"base": "group-pod", "metadata": {"name": "a", "uid": "a"},
        "spec": {"nodeName": "n1"}, "status": {"phase": "Succeeded"}});
    let group = json!([{"base": "node"}, {"base": "native-set"}, member]);
    found.show("a member that has ended", &situations::objects(group), "group/nightly");
    found.compare("equal_pods");
}

#[test]
fn a_node_shows_its_obstacles_and_its_pools() {
    let mut found = Findings::default();
    let pool = pool(
        &json!({"size": 1, "exclusivity": "Exclusive"}),
        &json!({"members": [member(0, "n1", "Ready")], "conditions": ready("True", "Allocated", "")}),
    );
    let objects = [cordoned(node("n1")), pool.clone(), running("p", "n1", json!({}))];
    found.show("cordoned", &objects, "node/n1").show("another", &objects, "node/n2");

    let taint = json!({"key": EXCLUSIVE_TAINT, "value": HASH, "effect": "NoSchedule"});
    let other = json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"});
    let marked = || tainted(node("n1"), std::slice::from_ref(&taint));
    found.show("the taint of its pool", &[marked(), pool.clone()], "node/n1");
    let left = with(pool.clone(), &json!({"status": null}));
    found.add("the taint of a pool that does not have it", &[marked(), left], "node/n1");
    let objects = [tainted(node("n1"), &[taint.clone(), other]), pool];
    found.add("another taint, too", &objects, "node/n1");
    found.compare("nodes");
}

#[test]
fn a_group_or_a_namespace_shows_what_has_an_obstacle_and_counts_the_rest() {
    let mut found = Findings::default();
    let pod = json!({"base": "group-pod", "metadata": {"name": "a", "uid": "a"}});
    let objects = situations::objects(json!([{"base": "node"}, {"base": "native-set"}, pod]));
    found.show("a group", &objects, "group/nightly").show("no group", &objects, "group/other");

    let mut lone = waiting("waits", &Value::Null);
    lone["metadata"]["labels"] = json!({});
    let of_job = owned(running("of-job", "n1", json!({})), "Job", "w");
    let job = || workload("batch/v1", "Job", &json!({}));
    let mut objects = vec![node("n1"), job(), of_job, lone];
    objects.extend((0..16).map(|number| running(&format!("r{number}"), "n1", json!({}))));
    found.show("a namespace", &objects, "-n default").show("an empty one", &objects[..1], "");
    // The pod of a placeholder is shown with its group only.
    let run = situations::objects(json!(["run", {"base": "placeholder"}, {"base": "node"}]));
    found.show("a namespace with a run", &run, "");

    // The parts with an obstacle come first, with a total; in a namespace the others are only counted.
    let of = |pod: Value| owned(pod, "Job", "w");
    let mut objects = vec![node("n1"), job()];
    objects.extend((0..3).map(|number| of(running(&format!("r{number}"), "n1", json!({})))));
    objects.push(of(waiting("z", &Value::Null)));
    found.show("a Job", &objects, "jobs.batch/w").show("a namespace with a Job", &objects, "");
    found.compare("groups_and_namespaces");
}

/// It is read as a label only.
#[test]
fn an_opt_out_that_is_an_annotation_of_a_namespace_is_reported() {
    let mut found = Findings::default();
    let namespace = |field: &str| {
        json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "n", (field): {"stowplan.dev/ignore": "true"}}})
    };
    for field in ["annotations", "labels"] {
        found.add(field, &[namespace(field)], "-n n").show(field, &[namespace(field)], "-A");
    }
    found.compare("opt_out");
}

/// A run shows it too, but there may be none.
#[test]
fn a_mode_of_a_namespace_that_does_not_apply_is_reported() {
    let mut found = Findings::default();
    let namespace = |labels: Value, mode: &str| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata":
            {"name": "n", "labels": labels, "annotations": {"stowplan.dev/coschedule": mode}}})
    };
    for (label, labels, mode) in [
        ("no mode", json!({}), "pipeline-runs"),
        ("ignored", json!({"stowplan.dev/ignore": "true"}), "pipeline-runs"),
        ("a mode", json!({}), "workspaces"),
    ] {
        let objects = [namespace(labels, mode)];
        found.add(label, &objects, "-n n").show(label, &objects, "-A");
    }
    found.compare("mode_of_a_namespace");
}
