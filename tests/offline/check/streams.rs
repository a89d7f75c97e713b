//! Pods, jobs and pools of Streams.

use serde_json::{Value, json};

use super::objects::*;

#[test]
fn a_running_pod_has_no_obstacle() {
    let annotations = json!({"streams.ibm.com/host": "n1",
        "stowplan.dev/placement": r#"{"v":1,"streams":["host=n1: node n1"],"more":0}"#});
    let placed =
        json!({"metadata": {"annotations": annotations}, "spec": {"affinity": pinned("n1")}});
    let output = check(&[node("n1"), with(running("a", "n1", json!({})), &placed)], "pod/a");
    let text = "Pod default/a\n  placed     node n1\n  asked      streams.ibm.com/host: n1\n  \
                decided    host=n1: node n1\n  obstacle   none\n";
    assert_eq!((output.code, &*output.stdout, &*output.stderr), (0, text, ""));
}

#[test]
fn the_named_node_is_an_obstacle() {
    let pod = waiting("a", &pinned("n1"));
    let tolerant = with(
        pod.clone(),
        &json!({"spec": {"tolerations": [
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]}}),
    );
    let taint = json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"});
    let unknown = with(node("n1"), &json!({"status": null}));
    for (n1, pod, expected) in [
        (cordoned(node("n1")), &pod, "node n1 is cordoned -> kubectl uncordon n1"),
        (cordoned(node("n1")), &tolerant, "nothing that stowplan knows of…"),
        (
            tainted(node("n1"), &[taint]),
            &pod,
            "node n1 has the taint gpu=yes:NoSchedule, which it does not tolerate -> kubectl describe node n1",
        ),
        (unknown, &pod, "node n1 is NotReady -> kubectl describe node n1"),
        (
            node("n2"),
            &pod,
            "its node selector and node affinity match none of 1 node -> see what was decided, and the pod's own nodeSelector and nodeAffinity",
        ),
    ] {
        obstacles(&[n1, node("n2"), pod.clone()], "pod/a").is(expected);
    }
}

#[test]
fn a_member_of_a_pool_is_an_obstacle() {
    let label = format!("pool.stowplan.node-restriction.kubernetes.io/{HASH}");
    let of_pool = json!({"matchExpressions": [{"key": label, "operator": "In", "values": ["1"]}]});
    let pod = waiting("a", &on(&of_pool));
    let (one, two) = (json!({"size": 1}), json!({"size": 2}));
    let lost = json!({
        "conditions": ready("False", "InsufficientNodes", "place 1 is vacant, and no node is able"),
        "members": [member(0, "n1", "Ready"), member(1, "gone", "Vacant")],
    });
    let full = json!({"conditions": ready("True", "Allocated", ""), "members": [member(0, "n1", "Ready")]});
    let labelled = with(node("n1"), &json!({"metadata": {"labels": {&label: "0"}}}));
    obstacles(&[node("n1"), pool(&two, &lost), pod.clone()], "pod/a")
        .begin("HostPool p: member 1 is vacant: node gone was lost ->…");
    obstacles(&[labelled.clone(), pool(&two, &lost)], "pool/p")
        .are(&["place 1 is vacant, and no node is able -> add or free nodes…", "…"]);
    obstacles(&[labelled.clone(), pool(&one, &full)], "pool/p").are(&[]);
    obstacles(&[node("n1"), pool(&one, &full)], "pool/p")
        .begin("member 0, node n1, is without the pool's label ->…");
    obstacles(&[node("n1"), pod], "pod/a")
        .begin(&format!("it asks for the members of pool {HASH}, which does not exist ->…"));
    obstacles(&[pool(&one, &json!({}))], "pool/p").begin("no controller has looked at it yet ->…");

    obstacles(&[cordoned(labelled.clone()), pool(&one, &full)], "pool/p")
        .is("member 0, node n1, is cordoned -> kubectl uncordon n1");
    let unready = with(labelled, &json!({"status": null}));
    obstacles(&[unready, pool(&one, &full)], "pool/p")
        .is("member 0, node n1, is NotReady -> repair the node (`kubectl describe node n1`), or delete it: the pool gets another");
}

#[test]
fn pods_that_must_be_together_or_apart_are_obstacles() {
    let together = "streams.ibm.com/hostcolocation.X";
    let pod = waiting("a", &near(together, "podAffinity"));
    let mate = running("b", "n1", json!({together: "t"}));
    obstacles(&[cordoned(node("n1")), node("n2"), pod, mate], "pod/a")
        .is("its colocation group (b) is on node n1, which is cordoned -> free that node, or move the group");

    let apart = "streams.ibm.com/hostexlocation.X";
    let pod = waiting("a", &near(apart, "podAntiAffinity"));
    let others = ["n1", "n2"].map(|n| running(&format!("on-{n}"), n, json!({apart: "t"})));
    let objects = [&[node("n1"), node("n2"), pod][..], &others].concat();
    obstacles(&objects, "pod/a")
        .is("every eligible node has a pod that it must not be with: on-n1 on n1, on-n2 on n2 -> add a node, or delete one of those pods");
    // n2 is free.
    obstacles(&objects[..4], "pod/a").is("nothing that stowplan knows of…");

    let labels = json!({"streams.ibm.com/job": "j", "streams.ibm.com/pe": "x", together: "t"});
    let a = running("a", "n1", labels.clone());
    let other = json!({"spec": {"schedulerName": "other"}});
    let objects = [node("n1"), a, with(running("b", "n1", labels), &other)];
    let schedulers =
        "pods of its colocation group name different schedulers: default-scheduler, other ->…";
    obstacles(&objects, "pod/a").is(schedulers);
    obstacles(&objects, "job/j").are(&[schedulers, schedulers]);
}

#[test]
fn a_pod_that_was_admitted_without_stowplan_is_reported() {
    let host = json!({"metadata": {"annotations": {"streams.ibm.com/host": "n1"}}});
    for (name, expected) in [
        (
            "n1",
            "it was admitted without stowplan, and may lack: required node affinity metadata.name In [n1] ->…",
        ),
        ("n2", "created now, it would be refused: no node has the name…"),
    ] {
        obstacles(&[node(name), with(waiting("a", &Value::Null), &host)], "pod/a").begin(expected);
    }
}

#[test]
fn an_object_that_does_not_exist_is_an_error() {
    for (asked, what) in [
        ("pr/x", "PipelineRun"),
        ("pod/x", "pod"),
        ("pool/x", "HostPool"),
        ("job/x", "StreamsJob and no Job"),
    ] {
        check(&[node("n1")], asked)
            .fails(&format!("namespace default has no {what} x (-n names another namespace)"));
    }
    let kinds = "…KIND is one of pod, job, pool, pipelinerun, group, mpi, deployment, statefulset and node…";
    for (asked, why) in [
        ("pod", "…write KIND/NAME, as pod/parallel-0…"),
        ("pod/", "…write KIND/NAME…"),
        ("a/b", kinds),
        ("pod/a/b", "…write KIND/NAME…"),
    ] {
        let output = check(&[], asked);
        assert!(output.code == 2 && agrees(&output.stderr, why), "{asked}: {output:?}");
    }
}

#[test]
fn control_characters_are_escaped() {
    let host = json!({"metadata": {"annotations": {"streams.ibm.com/host": "\u{1b}[31mn1"}}});
    let pod = with(running("a", "n1", json!({})), &host);
    let output = check(&[node("n1"), pod], "pod/a");
    assert!(output.stdout.contains(r"\u{1b}[31mn1"), "{output:?}");
    output.lacks("\u{1b}");
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// A StreamsJob with one pool, `P`, and these conditions.
fn job(conditions: &[Value]) -> Value {
    json!({"apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob",
        "metadata": {"name": "j", "namespace": "default", "uid": "j", "generation": 1},
        "spec": {"pools": [{"name": "P", "size": 1}]}, "status": {"conditions": conditions}})
}

#[test]
fn a_job_that_waits_for_a_pool_names_it() {
    let waiting = job(&[
        condition("Accepted", "True", "Accepted", ""),
        condition("Ready", "False", "WaitingForPools", "P: 1 node is being reserved (Reserving)"),
    ]);
    let waits = "P: 1 node is being reserved (Reserving) -> wait";
    obstacles(&[node("n1"), waiting.clone()], "job/j")
        .is(&format!("{waits}: the controller creates the pools"));

    let name = "j-p-5c62e";
    let status = json!({"conditions": ready("False", "Reserving", "1 node is being reserved")});
    let owned = with(
        pool(&json!({"size": 1}), &status),
        &json!({"metadata": {"name": name, "ownerReferences": [{"apiVersion": "stowplan.dev/v1alpha1",
            "kind": "StreamsJob", "name": "j", "uid": "j", "controller": true}]}}),
    );
    obstacles(&[node("n1"), waiting, owned], "job/j").are(&[
        &format!(
            "{waits}, or see why the pool is not ready: `stowplan check pool/{name} -n default`"
        ),
        "1 node is being reserved -> wait: the nodes are being prepared",
    ]);
}

#[test]
fn a_message_that_ends_in_a_remedy_has_no_other() {
    let taken =
        "j-p exists and is not owned by the job: delete it, or rename the pool in a new job";
    let refused = "pool \"P\" needs 1 nodes, and the cluster has 0; add nodes";
    for (conditions, expected) in [
        (
            [
                condition("Accepted", "True", "Accepted", ""),
                condition("Ready", "False", "PoolNameTaken", taken),
            ],
            taken,
        ),
        (
            [
                condition("Accepted", "False", "NoTaggedNode", refused),
                condition("Ready", "False", "NotAccepted", "see the condition Accepted"),
            ],
            refused,
        ),
    ] {
        let objects = [node("n1"), job(&conditions)];
        obstacles(&objects, "job/j").is(&format!("{expected} -> "));
        check(&objects, "job/j").lacks("remedy");
    }
}

/// A pod with the record and the node affinity of `entry`, a decision about one node.
fn bound(kind: &str, key: &str, entry: &str, node: &str) -> Value {
    let record = json!({"v": 1, "streams": [entry], "more": 0}).to_string();
    let record = Some(record).filter(|_| !entry.is_empty());
    with(
        waiting("a", &near(key, kind)),
        &json!({"metadata": {"annotations": {"stowplan.dev/placement": record}},
            "spec": {"affinity": pinned(node)}}),
    )
}

#[test]
fn a_pod_that_chose_a_node_can_only_choose_another() {
    let found = |pod: Value, key: &str| {
        let other = running("b", "n1", json!({key: "t"}));
        obstacles(&[node("n1"), node("n2"), pod, other], "pod/a")
    };
    let apart = |entry: &str, remedy: &str| {
        let key = "streams.ibm.com/hostexlocation.X";
        found(bound("podAntiAffinity", key, entry, "n1"), key).is(&format!(
            "every eligible node has a pod that it must not be with: b on n1 -> {remedy}"
        ));
    };
    let together = |entry: &str, remedy: &str| {
        let key = "streams.ibm.com/hostcolocation.X";
        found(bound("podAffinity", key, entry, "n2"), key)
            .is(&format!("its colocation group (b) is on node n1, which does not match the node affinity -> {remedy}"));
    };
    for (entry, what) in [
        ("host=n1: node n1", "host"),
        ("host-pool=p[0]: node n1", "pool member"),
        ("host-pool=p: node n1", "pool"),
    ] {
        apart(
            entry,
            &format!(
                "ask for another {what}, or remove the constraint that keeps these pods apart"
            ),
        );
        together(
            entry,
            &format!("ask for one {what} in all pods of the group, and create them again"),
        );
    }
    // Nodes with the tags of a pool can be added.
    apart("host-pool=p: nodes tagged ib", "add a node, or delete one of those pods");
    // Neither host nor pool, but its own node affinity.
    together("", "ask for nodes for all pods of the group alike");
}
