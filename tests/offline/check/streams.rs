//! Pods, jobs and pools of Streams.

use serde_json::{Value, json};

use super::objects::*;

#[test]
fn a_running_pod_has_no_obstacle() {
    let mut pod = running("a", "n1", json!({}));
    pod["metadata"]["annotations"] = json!({
        "streams.ibm.com/host": "n1",
        "stowplan.dev/placement": r#"{"v":1,"streams":["host=n1: node n1"],"more":0}"#,
    });
    pod["spec"]["affinity"] = on(&json!({"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["n1"]}]}));
    let (code, out, err) = said(&[node("n1"), pod], "pod/a", &[]);
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (
            0,
            "Pod default/a\n  placed     node n1\n  asked      streams.ibm.com/host: n1\n  \
             decided    host=n1: node n1\n  obstacle   none\n",
            ""
        )
    );
}

#[test]
fn the_named_node_is_an_obstacle() {
    let pinned =
        on(&json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}));
    let pod = waiting("a", &pinned);
    let mut cordoned = node("n1");
    cordoned["spec"] = json!({"unschedulable": true});
    assert_eq!(
        obstacles(&[cordoned.clone(), node("n2"), pod.clone()], "pod/a"),
        ["node n1 is cordoned -> kubectl uncordon n1"]
    );
    let mut tolerant = pod.clone();
    tolerant["spec"]["tolerations"] = json!([
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]);
    let found = obstacles(&[cordoned, node("n2"), tolerant], "pod/a");
    assert!(found[0].starts_with("nothing that stowplan knows of"), "{found:?}");
    let mut tainted = node("n1");
    tainted["spec"] = json!({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]});
    assert_eq!(
        obstacles(&[tainted, node("n2"), pod.clone()], "pod/a"),
        [
            "node n1 has the taint gpu=yes:NoSchedule, which it does not tolerate -> kubectl describe node n1"
        ]
    );
    let mut unknown = node("n1");
    unknown["status"] = json!({});
    assert_eq!(
        obstacles(&[unknown, node("n2"), pod.clone()], "pod/a"),
        ["node n1 is NotReady -> kubectl describe node n1"]
    );
    assert_eq!(
        obstacles(&[node("n2"), pod], "pod/a"),
        [
            "its node selector and node affinity match none of 1 node -> see what was decided, and the pod's own nodeSelector and nodeAffinity"
        ]
    );
}

#[test]
fn a_member_of_a_pool_is_an_obstacle() {
    let label = format!("pool.stowplan.node-restriction.kubernetes.io/{HASH}");
    let pod = waiting(
        "a",
        &on(&json!({"matchExpressions": [{"key": label, "operator": "In", "values": ["1"]}]})),
    );
    let status = json!({
        "conditions": ready("False", "InsufficientNodes", "place 1 is vacant, and no node is able"),
        "members": [member(0, "n1", "Ready"), member(1, "gone", "Vacant")],
    });
    let found = obstacles(&[node("n1"), pool(&json!({"size": 2}), &status), pod.clone()], "pod/a");
    assert!(
        found[0].starts_with("HostPool p: member 1 is vacant: node gone was lost ->"),
        "{found:?}"
    );

    let mut bare = node("n1");
    bare["metadata"]["labels"][&label] = json!("0");
    let found = obstacles(&[bare.clone(), pool(&json!({"size": 2}), &status)], "pool/p");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("place 1 is vacant, and no node is able -> add or free nodes"));

    let status = json!({"conditions": ready("True", "Allocated", ""), "members": [member(0, "n1", "Ready")]});
    assert!(obstacles(&[bare, pool(&json!({"size": 1}), &status)], "pool/p").is_empty());
    let found = obstacles(&[node("n1"), pool(&json!({"size": 1}), &status)], "pool/p");
    assert!(found[0].starts_with("member 0, node n1, is without the pool's label ->"), "{found:?}");

    let found = obstacles(&[node("n1"), pod], "pod/a");
    assert!(
        found[0].starts_with(&format!(
            "it asks for the members of pool {HASH}, which does not exist ->"
        ))
    );
}

#[test]
fn a_pool_without_conditions_has_no_controller() {
    let found = obstacles(&[pool(&json!({"size": 1}), &json!({}))], "pool/p");
    assert!(found[0].starts_with("no controller has looked at it yet ->"), "{found:?}");
}

#[test]
fn the_node_of_a_colocation_group_is_an_obstacle() {
    let key = "streams.ibm.com/hostcolocation.X";
    let mut first = node("n1");
    first["spec"] = json!({"unschedulable": true});
    let pod = waiting("a", &near(key, "podAffinity"));
    let mate = running("b", "n1", json!({key: "t"}));
    assert_eq!(
        obstacles(&[first, node("n2"), pod, mate], "pod/a"),
        [
            "its colocation group (b) is on node n1, which is cordoned -> free that node, or move the group"
        ]
    );
}

#[test]
fn pods_with_the_same_exlocation_token_are_obstacles() {
    let key = "streams.ibm.com/hostexlocation.X";
    let pod = waiting("a", &near(key, "podAntiAffinity"));
    let others = ["n1", "n2"].map(|n| running(&format!("on-{n}"), n, json!({key: "t"})));
    let objects = [node("n1"), node("n2"), pod.clone(), others[0].clone(), others[1].clone()];
    assert_eq!(
        obstacles(&objects, "pod/a"),
        [
            "every eligible node has a pod that it must not be with: on-n1 on n1, on-n2 on n2 -> add a node, or delete one of those pods"
        ]
    );
    let found = obstacles(&objects[..4], "pod/a");
    assert!(found[0].starts_with("nothing that stowplan knows of"), "n2 is free: {found:?}");
}

#[test]
fn several_schedulers_in_a_group_are_reported() {
    let key = "streams.ibm.com/hostcolocation.X";
    let labels = json!({"streams.ibm.com/job": "j", "streams.ibm.com/pe": "x", key: "t"});
    let a = running("a", "n1", labels.clone());
    let mut b = running("b", "n1", labels);
    b["spec"]["schedulerName"] = json!("other");
    let found = obstacles(&[node("n1"), a.clone(), b.clone()], "pod/a");
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with(
        "pods of its colocation group name different schedulers: default-scheduler, other ->"
    ));
    assert_eq!(obstacles(&[node("n1"), a, b], "job/j").len(), 2, "both pods of the job");
}

#[test]
fn a_pod_that_was_admitted_without_stowplan_is_reported() {
    let mut pod = waiting("a", &Value::Null);
    pod["metadata"]["annotations"] = json!({"streams.ibm.com/host": "n1"});
    let found = obstacles(&[node("n1"), pod.clone()], "pod/a");
    assert!(
        found[0].starts_with("it was admitted without stowplan, and may lack: required node affinity metadata.name In [n1] ->"),
        "{found:?}"
    );
    let found = obstacles(&[node("n2"), pod], "pod/a");
    assert!(
        found[0].starts_with("created now, it would be refused: no node has the name"),
        "{found:?}"
    );
}

#[test]
fn an_object_that_does_not_exist_is_an_error() {
    for (asked, why) in [
        ("pr/x", "namespace default has no PipelineRun x (-n names another namespace)"),
        ("pod/x", "namespace default has no pod x (-n names another namespace)"),
        ("pool/x", "namespace default has no HostPool x (-n names another namespace)"),
        ("job/x", "namespace default has no StreamsJob and no Job x (-n names another namespace)"),
    ] {
        let (code, out, err) = said(&[node("n1")], asked, &[]);
        assert_eq!((code, out.as_str(), err), (2, "", format!("stowplan: {why}\n")));
    }
    for (asked, why) in [
        ("pod", "write KIND/NAME, as pod/parallel-0"),
        ("pod/", "write KIND/NAME"),
        (
            "a/b",
            "KIND is one of pod, job, pool, pipelinerun, group, mpi, deployment, statefulset and node",
        ),
        ("pod/a/b", "write KIND/NAME"),
    ] {
        let (code, _, err) = said(&[], asked, &[]);
        assert!(code == 2 && err.contains(why), "{asked}: {err}");
    }
}

#[test]
fn control_characters_are_escaped() {
    let mut pod = running("a", "n1", json!({}));
    pod["metadata"]["annotations"] = json!({"streams.ibm.com/host": "\u{1b}[31mn1"});
    let (_, out, _) = said(&[node("n1"), pod], "pod/a", &[]);
    assert!(!out.contains('\u{1b}') && out.contains(r"\u{1b}[31mn1"), "{out}");
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
    let said = "P: 1 node is being reserved (Reserving) -> wait";
    let found = obstacles(&[node("n1"), waiting.clone()], "job/j");
    assert_eq!(found, [format!("{said}: the controller creates the pools")]);

    let status = json!({"conditions": ready("False", "Reserving", "1 node is being reserved")});
    let mut owned = pool(&json!({"size": 1}), &status);
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "stowplan.dev/v1alpha1",
        "kind": "StreamsJob", "name": "j", "uid": "j", "controller": true}]);
    let name = "j-p-5c62e";
    owned["metadata"]["name"] = json!(name);
    let found = obstacles(&[node("n1"), waiting, owned], "job/j");
    let command = format!("stowplan check pool/{name} -n default");
    assert_eq!(
        found,
        [
            format!("{said}, or see why the pool is not ready: `{command}`"),
            "1 node is being reserved -> wait: the nodes are being prepared".to_owned(),
        ]
    );
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
        let job = job(&conditions);
        assert_eq!(obstacles(&[node("n1"), job.clone()], "job/j"), [format!("{expected} -> ")]);
        let (_, out, _) = said(&[node("n1"), job], "job/j", &[]);
        assert!(!out.contains("remedy"), "{out}");
    }
}

#[test]
fn a_cordoned_member_of_a_pool_is_uncordoned() {
    let status = json!({"conditions": ready("True", "Allocated", ""), "members": [member(0, "n1", "Ready")]});
    let mut first = node("n1");
    first["metadata"]["labels"][format!("pool.stowplan.node-restriction.kubernetes.io/{HASH}")] =
        json!("0");
    let objects = |node: Value| [node, pool(&json!({"size": 1}), &status)];
    let found = obstacles(&objects(cordoned(first.clone())), "pool/p");
    assert_eq!(found, ["member 0, node n1, is cordoned -> kubectl uncordon n1"]);
    first["status"] = json!({});
    let found = obstacles(&objects(first), "pool/p");
    assert_eq!(
        found,
        [
            "member 0, node n1, is NotReady -> repair the node (`kubectl describe node n1`), or delete it: the pool gets another"
        ]
    );
}

/// A pod with the record and the node affinity of `entry`, a decision about one node.
fn bound(mut pod: Value, entry: &str, node: &str) -> Value {
    let record = json!({"v": 1, "streams": [entry], "more": 0}).to_string();
    pod["metadata"]["annotations"]["stowplan.dev/placement"] = json!(record);
    let pin = on(&json!({"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": [node]}]}));
    pod["spec"]["affinity"]["nodeAffinity"] = pin["nodeAffinity"].clone();
    pod
}

#[test]
fn a_pod_that_chose_a_node_can_only_choose_another() {
    let apart = "streams.ibm.com/hostexlocation.X";
    let together = "streams.ibm.com/hostcolocation.X";
    let said = |pod: Value, key: &str| {
        let other = running("b", "n1", json!({key: "t"}));
        obstacles(&[node("n1"), node("n2"), pod, other], "pod/a")
    };
    let taken = "every eligible node has a pod that it must not be with: b on n1";
    let elsewhere =
        "its colocation group (b) is on node n1, which does not match the node affinity";
    for (entry, what) in [
        ("host=n1: node n1", "host"),
        ("host-pool=p[0]: node n1", "pool member"),
        ("host-pool=p: node n1", "pool"),
    ] {
        let pod = bound(waiting("a", &near(apart, "podAntiAffinity")), entry, "n1");
        let remedy =
            format!("ask for another {what}, or remove the constraint that keeps these pods apart");
        assert_eq!(said(pod, apart), [format!("{taken} -> {remedy}")], "{entry}");
        let pod = bound(waiting("a", &near(together, "podAffinity")), entry, "n2");
        let remedy = format!("ask for one {what} in all pods of the group, and create them again");
        assert_eq!(said(pod, together), [format!("{elsewhere} -> {remedy}")], "{entry}");
    }
    // Nodes with the tags of a pool can be added.
    let pod =
        bound(waiting("a", &near(apart, "podAntiAffinity")), "host-pool=p: nodes tagged ib", "n1");
    let found = said(pod, apart);
    assert_eq!(found, [format!("{taken} -> add a node, or delete one of those pods")]);
    // Neither host nor pool, but its own node affinity.
    let mut pod = bound(waiting("a", &near(together, "podAffinity")), "", "n2");
    pod["metadata"]["annotations"] = json!({});
    let remedy = "ask for nodes for all pods of the group alike";
    assert_eq!(said(pod, together), [format!("{elsewhere} -> {remedy}")]);
}
