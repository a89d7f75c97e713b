//! Pods, jobs and pools of Streams.

use serde_json::{Value, json};

use super::objects::*;

#[test]
fn the_named_node_is_an_obstacle() {
    let mut found = Findings::default();
    let taint = json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"});
    for (label, n1) in [("tainted", tainted(node("n1"), &[taint])), ("absent", node("n2"))] {
        found.add(label, &[n1, node("n2"), waiting("a", &pinned("n1"))], "pod/a");
    }
    found.compare("named_node");
}

#[test]
fn a_member_of_a_pool_is_an_obstacle() {
    let mut found = Findings::default();
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
    let unknown = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    let unready = with(labelled.clone(), &unknown);
    for (label, objects, asked) in [
        ("a member is lost: its pod", vec![node("n1"), pool(&two, &lost), pod.clone()], "pod/a"),
        ("a member is lost: the pool", vec![labelled.clone(), pool(&two, &lost)], "pool/p"),
        ("ready", vec![labelled.clone(), pool(&one, &full)], "pool/p"),
        ("the label is missing", vec![node("n1"), pool(&one, &full)], "pool/p"),
        ("the pool is deleted", vec![node("n1"), pod], "pod/a"),
        ("no controller", vec![pool(&one, &json!({}))], "pool/p"),
        ("cordoned", vec![cordoned(labelled), pool(&one, &full)], "pool/p"),
        ("NotReady", vec![unready, pool(&one, &full)], "pool/p"),
    ] {
        found.add(label, &objects, asked);
    }
    found.compare("member_of_a_pool");
}

#[test]
fn a_host_that_another_pool_has_is_an_obstacle() {
    let mut found = Findings::default();
    let tag = json!({"metadata": {"labels": {"streams.ibm.com/hostpool": "source"}}});
    let key = "status-taint.cluster-autoscaler.kubernetes.io/stowplan-exclusive";
    let taint = json!({"key": key, "value": HASH, "effect": "NoSchedule"});
    let n1 = with(tainted(node("n1"), &[taint]), &tag);
    let of_pool = "pool.stowplan.node-restriction.kubernetes.io/";
    let n1 = with(n1, &json!({"metadata": {"labels": {format!("{of_pool}{HASH}"): "0"}}}));
    let has = json!({"conditions": ready("True", "Allocated", ""), "members": [member(0, "n1", "Ready")]});
    let fast = pool(&json!({"size": 1, "exclusivity": "Exclusive"}), &has);
    let fast = with(fast, &json!({"metadata": {"namespace": "other", "name": "fast"}}));
    let named = |name: &str, spec: Value, message: &str| {
        let status = json!({"conditions": ready("False", "InsufficientNodes", message)});
        with(pool(&spec, &status), &json!({"metadata": {"name": name, "uid": name}}))
    };
    let none = "the pool has none of the nodes with the tags: 1 is exclusive to a pool of another namespace";
    let ingest = named("ingest", json!({"tags": ["source"]}), none);
    let none = "the pool has none of the hosts that it lists: 1 is exclusive to a pool of another namespace";
    let names = named("names", json!({"hosts": ["n1", "n9"]}), none);
    let few = "needs 1 node, 0 are eligible; 1 belongs to HostPool ingest";
    let own = named("own", json!({"size": 1, "exclusivity": "Exclusive"}), few);
    let source = json!({"key": "streams.ibm.com/hostpool", "operator": "In", "values": ["source"]});
    let pod = waiting("a", &on(&json!({"matchExpressions": [source]})));
    let all = [n1, node("n2"), fast, ingest, names, own, pod];
    for asked in ["pool/ingest", "pool/names", "pool/own", "pod/a"] {
        found.show(asked, &all, asked);
    }
    found.show("pool/fast", &all, "pool/fast -n other");
    found.compare("hosts_of_others");
}

#[test]
fn pods_that_must_be_together_or_apart_are_obstacles() {
    let mut found = Findings::default();
    let together = "streams.ibm.com/hostcolocation.X";
    let pod = waiting("a", &near(together, "podAffinity"));
    let mate = running("b", "n1", json!({together: "t"}));
    found.add("together", &[cordoned(node("n1")), node("n2"), pod, mate], "pod/a");

    let apart = "streams.ibm.com/hostexlocation.X";
    let pod = waiting("a", &near(apart, "podAntiAffinity"));
    let others = ["n1", "n2"].map(|n| running(&format!("on-{n}"), n, json!({apart: "t"})));
    let objects = [&[node("n1"), node("n2"), pod][..], &others].concat();
    found.add("apart", &objects, "pod/a").add("apart, n2 is free", &objects[..4], "pod/a");

    let labels = json!({"streams.ibm.com/job": "j", "streams.ibm.com/pe": "x", together: "t"});
    let a = running("a", "n1", labels.clone());
    let other = json!({"spec": {"schedulerName": "other"}});
    let objects = [node("n1"), a, with(running("b", "n1", labels), &other)];
    found.add("several schedulers: a pod", &objects, "pod/a");
    found.add("several schedulers: the job", &objects, "job/j");
    found.compare("together_or_apart");
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
}

#[test]
fn control_characters_are_escaped() {
    let host = json!({"metadata": {"annotations": {"streams.ibm.com/host": "\u{1b}[31mn1"}}});
    let pod = with(running("a", "n1", json!({})), &host);
    let output = check(&[node("n1"), pod], "pod/a");
    assert!(output.stdout.contains(r"\u{1b}[31mn1"), "{output:?}");
    output.lacks("\u{1b}");
}

#[test]
fn a_job_names_what_it_waits_for_and_no_remedy_is_given_twice() {
    let mut found = Findings::default();
    let accepted = || condition("Accepted", "True", "Accepted", "");
    let reserving = "P: 1 node is being reserved (Reserving)";
    let waiting =
        streams_job(&[accepted(), condition("Ready", "False", "WaitingForPools", reserving)]);
    let status = json!({"conditions": ready("False", "Reserving", "1 node is being reserved")});
    let owned = with(
        pool(&json!({"size": 1}), &status),
        &json!({"metadata": {"name": "j-p-5c62e", "ownerReferences": [{"apiVersion": "stowplan.dev/v1alpha1",
            "kind": "StreamsJob", "name": "j", "uid": "j", "controller": true}]}}),
    );
    found.add("the pool does not exist", &[node("n1"), waiting.clone()], "job/j");
    found.add("the pool is not ready", &[node("n1"), waiting, owned], "job/j");
    // A message that ends in a remedy has no other.
    let taken =
        "j-p exists and is not owned by the job: delete it, or rename the pool in a new job";
    let refused = "pool \"P\" needs 1 nodes, and the cluster has 0; add nodes";
    for conditions in [
        [accepted(), condition("Ready", "False", "PoolNameTaken", taken)],
        [
            condition("Accepted", "False", "NoTaggedNode", refused),
            condition("Ready", "False", "NotAccepted", "see the condition Accepted"),
        ],
    ] {
        let objects = [node("n1"), streams_job(&conditions)];
        found.add(conditions[1]["reason"].as_str().unwrap(), &objects, "job/j");
        check(&objects, "job/j").lacks("remedy");
    }
    found.compare("job");
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
    let mut found = Findings::default();
    let (apart, together) = ("podAntiAffinity", "podAffinity");
    for (kind, entry, on) in [
        (apart, "host=n1: node n1", "n1"),
        (apart, "host-pool=p[0]: node n1", "n1"),
        (apart, "host-pool=p: node n1", "n1"),
        // Nodes with the tags of a pool can be added.
        (apart, "host-pool=p: nodes tagged ib", "n1"),
        (together, "host=n1: node n1", "n2"),
        (together, "host-pool=p[0]: node n1", "n2"),
        (together, "host-pool=p: node n1", "n2"),
        // Neither host nor pool, but its own node affinity.
        (together, "", "n2"),
    ] {
        let token = if kind == apart { "hostexlocation" } else { "hostcolocation" };
        let key = &*format!("streams.ibm.com/{token}.X");
        let pods = [bound(kind, key, entry, on), running("b", "n1", json!({key: "t"}))];
        let objects = [&[node("n1"), node("n2")][..], &pods].concat();
        found.add(&format!("{kind}, {entry:?}"), &objects, "pod/a");
    }
    found.compare("another_node");
}

#[test]
fn a_job_that_lacks_nodes_names_those_that_are_closed() {
    let mut found = Findings::default();
    let taint = json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"});
    let nodes = [node("n1"), cordoned(node("n2")), tainted(node("n3"), &[taint])];
    for reason in ["InsufficientNodes", "Contradiction"] {
        let accepted = condition("Accepted", "False", reason, "the job needs 2 nodes");
        let objects = [&nodes[..], &[streams_job(&[accepted])]].concat();
        found.add(reason, &objects, "job/j");
    }
    found.compare("closed_for_jobs");
}
