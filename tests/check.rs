//! `stowplan check` as a user meets it: the real binary on a cluster that comes from a file.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "how a helper of tests fails; clippy.toml frees only the tests"
)]

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// What `stowplan check` says of `asked` in the cluster of these objects: exit code and both outputs.
fn said(objects: &[Value], asked: &str, more: &[&str]) -> (i32, String, String) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_stowplan"))
        .args(["check", asked, "--cluster", "-"])
        .args(more)
        .env_remove("KUBECONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The obstacles that are found, as `what -> remedy`.
fn obstacles(objects: &[Value], asked: &str) -> Vec<String> {
    let (code, out, err) = said(objects, asked, &["-o", "json"]);
    let told: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
    let mut found = Vec::new();
    collect(&told, &mut found);
    assert_eq!(code, i32::from(!found.is_empty()), "{out}");
    found
}

fn collect(told: &Value, found: &mut Vec<String>) {
    for obstacle in told["obstacles"].as_array().unwrap() {
        let word = |key: &str| obstacle[key].as_str().unwrap().to_owned();
        found.push(format!("{} -> {}", word("what"), word("remedy")));
    }
    for part in told["parts"].as_array().into_iter().flatten() {
        collect(part, found);
    }
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn pool(spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "stowplan.dev/v1alpha1", "kind": "HostPool",
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "generation": 1},
        "spec": spec, "status": status,
    })
}

/// The hash of the pool's UID, `u`.
const HASH: &str = "0bfe935e70";

fn ready(status: &str, reason: &str, message: &str) -> Value {
    json!([{"type": "Ready", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}])
}

fn member(index: u32, node: &str, state: &str) -> Value {
    json!({"index": index, "node": node, "uid": node, "state": state, "since": "2026-01-01T00:00:00Z"})
}

/// A pod of processing element `name` of job `j`, which the scheduler has found no node for.
fn waiting(name: &str, affinity: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name,
            "labels": {"streams.ibm.com/job": "j", "streams.ibm.com/pe": name}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "affinity": affinity},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/2 nodes are available",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

fn running(name: &str, node: &str, labels: Value) -> Value {
    let mut pod = waiting(name, &Value::Null);
    pod["spec"]["nodeName"] = json!(node);
    pod["status"] = json!({"phase": "Running"});
    pod["metadata"]["labels"] = labels;
    pod
}

fn on(term: &Value) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}})
}

fn near(key: &str, kind: &str) -> Value {
    json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchExpressions": [{"key": key, "operator": "In", "values": ["t"]}]}}]}})
}

#[test]
fn a_running_pod_has_nothing_in_its_way() {
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
fn the_named_node_is_in_the_way() {
    let pinned =
        on(&json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}));
    let pod = waiting("a", &pinned);
    let mut cordoned = node("n1");
    cordoned["spec"] = json!({"unschedulable": true});
    assert_eq!(
        obstacles(&[cordoned, node("n2"), pod.clone()], "pod/a"),
        ["node n1: cordoned -> kubectl uncordon n1"]
    );
    let mut tainted = node("n1");
    tainted["spec"] = json!({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]});
    assert_eq!(
        obstacles(&[tainted, node("n2"), pod.clone()], "pod/a"),
        [
            "node n1: tainted gpu=yes:NoSchedule, which it does not tolerate -> kubectl describe node n1"
        ]
    );
    let mut away = node("n1");
    away["status"] = json!({});
    assert_eq!(
        obstacles(&[away, node("n2"), pod.clone()], "pod/a"),
        ["node n1: not Ready -> kubectl describe node n1"]
    );
    assert_eq!(
        obstacles(&[node("n2"), pod], "pod/a"),
        [
            "its node affinity selects none of 1 node -> see what was decided, and the pod's own nodeSelector and nodeAffinity"
        ]
    );
}

#[test]
fn a_pools_member_is_in_the_way() {
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
        found[0].starts_with(&format!("it asks for the members of pool {HASH}, which is gone ->"))
    );
}

#[test]
fn a_pool_that_nobody_looks_at_says_so() {
    let found = obstacles(&[pool(&json!({"size": 1}), &json!({}))], "pool/p");
    assert!(found[0].starts_with("no controller has looked at it yet ->"), "{found:?}");
}

#[test]
fn the_groups_node_is_in_the_way() {
    let key = "streams.ibm.com/hostcolocation.X";
    let mut first = node("n1");
    first["spec"] = json!({"unschedulable": true});
    let pod = waiting("a", &near(key, "podAffinity"));
    let mate = running("b", "n1", json!({key: "t"}));
    assert_eq!(
        obstacles(&[first, node("n2"), pod, mate], "pod/a"),
        [
            "its colocation group (b) is on node n1: cordoned -> free that node, or move the whole group"
        ]
    );
}

#[test]
fn pods_that_it_must_not_meet_are_in_the_way() {
    let key = "streams.ibm.com/hostexlocation.X";
    let pod = waiting("a", &near(key, "podAntiAffinity"));
    let others = ["n1", "n2"].map(|n| running(&format!("on-{n}"), n, json!({key: "t"})));
    let objects = [node("n1"), node("n2"), pod.clone(), others[0].clone(), others[1].clone()];
    assert_eq!(
        obstacles(&objects, "pod/a"),
        [
            "every node that it may go to has a pod that it must not be with: on-n1 on n1, on-n2 on n2 -> add a node, or let one of those pods go"
        ]
    );
    let found = obstacles(&objects[..4], "pod/a");
    assert!(found[0].starts_with("nothing that stowplan knows of"), "n2 is free: {found:?}");
}

#[test]
fn several_schedulers_in_a_group_are_told() {
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
fn what_passed_without_us_is_told() {
    let mut pod = waiting("a", &Value::Null);
    pod["metadata"]["annotations"] = json!({"streams.ibm.com/host": "n1"});
    let found = obstacles(&[node("n1"), pod.clone()], "pod/a");
    assert!(
        found[0].starts_with("it was admitted without stowplan, and may lack: required node affinity metadata.name In [n1] ->"),
        "{found:?}"
    );
    let found = obstacles(&[node("n2"), pod], "pod/a");
    assert!(
        found[0].starts_with("made now, it would be refused: no node has the name"),
        "{found:?}"
    );
}

#[test]
fn what_is_not_there_is_said() {
    for (asked, why) in [
        ("pod/x", "namespace default has no pod x (another one: -n)"),
        ("pool/x", "namespace default has no HostPool x (another one: -n)"),
        (
            "job/x",
            "namespace default has no StreamsJob, and no pod with the label streams.ibm.com/job, x (another one: -n)",
        ),
    ] {
        let (code, out, err) = said(&[node("n1")], asked, &[]);
        assert_eq!((code, out.as_str(), err), (2, "", format!("stowplan: {why}\n")));
    }
    for (asked, why) in [
        ("pod", "write KIND/NAME, as pod/parallel-0"),
        ("pod/", "write KIND/NAME"),
        ("a/b", "KIND is one of pod, job and pool"),
        ("pod/a/b", "write KIND/NAME"),
    ] {
        let (code, _, err) = said(&[], asked, &[]);
        assert!(code == 2 && err.contains(why), "{asked}: {err}");
    }
}

#[test]
fn a_terminal_obeys_no_name() {
    let mut pod = running("a", "n1", json!({}));
    pod["metadata"]["annotations"] = json!({"streams.ibm.com/host": "\u{1b}[31mn1"});
    let (_, out, _) = said(&[node("n1"), pod], "pod/a", &[]);
    assert!(!out.contains('\u{1b}') && out.contains(r"\u{1b}[31mn1"), "{out}");
}
