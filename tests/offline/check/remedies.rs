//! Each remedy leads out of its situation: a table of what `check` says, and of the objects after the
//! remedy, for which it says nothing.

use serde_json::{Value, json};

use super::objects::{node, obstacles, pinned};

const TOGETHER: &str = "streams.ibm.com/hostcolocation.9034FF9E2B8F00B47A44DFAF3C2A37176C101E2A";
const APART: &str = "streams.ibm.com/hostexlocation.B76ADE163D874CC5BC0F408D70CFC165667EEC5F";

fn term(rules: &[(&str, &str, &str)]) -> Value {
    let rule = |(key, operator, value): &(&str, &str, &str)| json!({"key": key, "operator": operator, "values": [value]});
    let rules: Vec<Value> = rules.iter().map(rule).collect();
    json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": rules}})
}

/// An element of job `j` with a colocation token and, if `is_apart`, an exlocation token.
fn element(name: &str, is_apart: bool, node: Option<&str>) -> Value {
    let job = ("streams.ibm.com/job", "In", "j");
    let near = term(&[(TOGETHER, "In", "together"), job]);
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name,
            "labels": {"streams.ibm.com/job": "j", "streams.ibm.com/pe": name, TOGETHER: "together"},
            "annotations": {"streams.ibm.com/host-colocation": "together",
                "stowplan.dev/placement": r#"{"v":1,"streams":["host-colocation=together: one node for all"],"more":0}"#}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}],
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}},
    });
    if is_apart {
        let far = term(&[(APART, "In", "apart"), job, ("streams.ibm.com/pe", "NotIn", name)]);
        pod["metadata"]["labels"][APART] = json!("apart");
        pod["metadata"]["annotations"]["streams.ibm.com/host-exlocation"] = json!("apart");
        pod["spec"]["affinity"]["podAntiAffinity"] =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": [far]});
        pod["spec"]["affinity"]["nodeAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}]}});
    }
    if node.is_none() {
        pod["status"] = unschedulable();
    }
    pod
}

fn unschedulable() -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/2 nodes are available"}]})
}

/// A pod with `host: n1`, on `node` or waiting; `is_placed` by the webhook.
fn hosted(is_placed: bool, node: Option<&str>) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "p",
            "annotations": {"streams.ibm.com/host": "n1"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    });
    if is_placed {
        pod["metadata"]["annotations"]["stowplan.dev/placement"] =
            json!(r#"{"v":1,"streams":["host=n1: node n1"],"more":0}"#);
        pod["spec"]["affinity"] = pinned("n1");
    }
    if node.is_none() {
        pod["status"] = unschedulable();
    }
    pod
}

/// A StreamsJob, with its condition Accepted.
fn job(accepted: &str, reason: &str) -> Value {
    let condition = |kind: &str| {
        json!({"type": kind, "status": accepted, "reason": reason, "message": "as it is",
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({
        "apiVersion": "stowplan.dev/v1alpha1", "kind": "StreamsJob",
        "metadata": {"name": "j", "namespace": "default", "uid": "j", "generation": 1},
        "spec": {}, "status": {"conditions": [condition("Accepted"), condition("Ready")]},
    })
}

#[test]
fn each_remedy_leads_out() {
    let beside = element("p", true, Some("n1"));
    for (asked, before, found, after) in [
        // Two elements that must share a node and must not.
        (
            "pod/q",
            vec![beside.clone(), element("q", true, None)],
            &[
                "created now, it would be refused: keeps the pod off the node of pod p, and \
                 streams.ibm.com/host-colocation puts both on one node -> remove one of the two…",
                "it must be with the pods of its group, and not with p on n1 -> remove one of the two…",
            ][..],
            vec![beside, element("q", false, Some("n1"))],
        ),
        // A pod that the webhook did not see, on a node of the scheduler's choice.
        (
            "pod/p",
            vec![hosted(false, Some("n2"))],
            &["it was admitted without stowplan, and may lack: required node affinity \
               metadata.name In [n1] -> delete the pod and create it again…"],
            vec![hosted(true, Some("n1"))],
        ),
        // A pod whose only node is full.
        (
            "pod/p",
            vec![hosted(true, None)],
            &["its constraints leave only node n1, which default-scheduler does not take: see \
               what it says -> free there what the scheduler names…"],
            vec![hosted(true, Some("n1"))],
        ),
        // A job that can never be placed.
        (
            "job/j",
            vec![job("False", "NoCommonHost")],
            &["as it is -> delete it, and create it again with another spec…"],
            vec![job("True", "Accepted")],
        ),
    ] {
        let nodes = [node("n1"), node("n2")];
        obstacles(&[&nodes[..], &before].concat(), asked).are(found);
        obstacles(&[&nodes[..], &after].concat(), asked).are(&[]);
    }
}
