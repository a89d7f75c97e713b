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
        obstacles(&[cordoned.clone(), node("n2"), pod.clone()], "pod/a"),
        ["node n1: cordoned -> kubectl uncordon n1"]
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
        ("pr/x", "namespace default has no PipelineRun x (another one: -n)"),
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
        ("a/b", "KIND is one of pod, job, pool and pipelinerun"),
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

// ---- runs ----------------------------------------------------------------------------------------

/// The placeholder of the run's only group, and the claim that Tekton makes for it.
const PLACEHOLDER: &str = "affinity-assistant-d4b820ff28";
const CLAIM: &str = "pvc-e93bac4dbe";

fn room(name: &str, cpu: &str) -> Value {
    let mut node = node(name);
    node["status"]["allocatable"] = json!({"cpu": cpu, "memory": "8Gi", "pods": "110"});
    node
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": "tekton.dev/v1", "kind": kind, "name": name, "uid": uid, "controller": true}])
}

/// A run of `clone`, which uses a claim of a template, and `build`, which uses claim `cache` too.
fn run() -> Value {
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": "image", "namespace": "default", "uid": "run-uid",
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "pipelineSpec": {"tasks": [
                {"name": "clone", "workspaces": [{"name": "source"}]},
                {"name": "build", "workspaces": [{"name": "source"}, {"name": "cache"}]},
            ]},
            "workspaces": [
                {"name": "source", "volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}},
                {"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}},
            ],
        },
    })
}

fn task_run(assisted: bool) -> Value {
    let mut run = json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
        "metadata": {"name": "image-clone", "namespace": "default", "uid": "task-uid",
            "labels": {"tekton.dev/pipelineTask": "clone"},
            "ownerReferences": owner("PipelineRun", "image", "run-uid")},
    });
    if assisted {
        run["metadata"]["annotations"] =
            json!({"pipeline.tekton.dev/affinity-assistant": "affinity-assistant-0123456789"});
    }
    run
}

/// A claim of class `zonal`; bound to a volume where it has nodes.
fn claim(name: &str, nodes: &[&str]) -> Vec<Value> {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "zonal"},
    });
    if nodes.is_empty() {
        return vec![claim];
    }
    claim["spec"]["volumeName"] = json!(format!("pv-{name}"));
    claim["status"] = json!({"phase": "Bound"});
    let term = json!({"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]});
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("pv-{name}")},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
    });
    vec![claim, volume]
}

fn class() -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "zonal"},
        "provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"})
}

fn stateful_set(mode: &str, claims: &[&str]) -> Value {
    let volume =
        |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": PLACEHOLDER, "namespace": "default", "uid": "set",
            "labels": {"stowplan.dev/placeholder": PLACEHOLDER},
            "annotations": {"stowplan.dev/coschedule": mode},
            "ownerReferences": owner("PipelineRun", "image", "run-uid")},
        "spec": {"selector": {}, "template": {"spec": {"containers": [],
            "volumes": claims.iter().map(volume).collect::<Vec<_>>()}}},
    })
}

/// The placeholder's pod, on a node or nowhere.
fn placeholder(node: Option<&str>) -> Value {
    let mut pod = waiting(
        &format!("{PLACEHOLDER}-0"),
        &json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"stowplan.dev/coschedule-member": PLACEHOLDER}}}]}}),
    );
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
        pod["status"] = json!({"phase": "Running"});
    }
    pod["metadata"]["labels"] = json!({"stowplan.dev/placeholder": PLACEHOLDER,
        "stowplan.dev/coschedule-member": PLACEHOLDER,
        "app.kubernetes.io/component": "affinity-assistant", "app.kubernetes.io/instance": PLACEHOLDER});
    pod
}

/// A pod of the run, as the webhook admits it.
fn of_run(name: &str, node: Option<&str>, cpu: &str) -> Value {
    let mut pod = waiting(
        name,
        &json!({"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "affinity-assistant",
                "app.kubernetes.io/instance": PLACEHOLDER}}}]}}),
    );
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
        pod["status"] = json!({"phase": "Running"});
    }
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod["metadata"]["labels"] = json!({"stowplan.dev/coschedule-member": PLACEHOLDER});
    pod["metadata"]["ownerReferences"] = owner("TaskRun", "image-clone", "task-uid");
    pod
}

/// The run, its TaskRun, its claims and its placeholder, with `more`.
fn standing(node: Option<&str>, more: &[Value]) -> Vec<Value> {
    let mut objects = vec![run(), task_run(false), class()];
    objects.extend(claim(CLAIM, &[]));
    objects.extend(claim("cache", &[]));
    objects.extend([stateful_set("workspaces", &[CLAIM, "cache"]), placeholder(node)]);
    objects.extend_from_slice(more);
    objects
}

fn cordoned(mut node: Value) -> Value {
    node["spec"] = json!({"unschedulable": true});
    node
}

#[test]
fn a_run_that_goes_on_has_nothing_in_its_way() {
    let objects =
        standing(Some("n1"), &[room("n1", "4"), of_run("image-clone-pod", Some("n1"), "1")]);
    for asked in ["pipelinerun/image", "run/image", "pr/image", "pod/image-clone-pod"] {
        assert!(obstacles(&objects, asked).is_empty(), "{asked}");
    }
    let (_, out, _) = said(&objects, "pr/image", &[]);
    assert!(out.contains(&format!("StatefulSet default/{PLACEHOLDER}\n    placed     node n1\n    asked      one node for tasks build, clone\n")), "{out}");
    let mut ended = objects;
    ended[0]["status"] = json!({"completionTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Succeeded", "status": "True"}]});
    let (code, out, _) = said(&ended, "pr/image", &[]);
    assert_eq!(code, 0);
    assert!(out.contains("it has ended"), "{out}");
}

#[test]
fn a_mode_that_is_none_and_one_that_does_nothing() {
    let mut odd = run();
    odd["metadata"]["annotations"] = json!({"stowplan.dev/coschedule": "workspace"});
    assert_eq!(
        obstacles(&[odd.clone()], "pr/image"),
        [
            "stowplan.dev/coschedule of PipelineRun image: \"workspace\" is no mode -> write one of disabled, workspaces, pipelineruns, isolate-pipelinerun"
        ]
    );
    odd["metadata"]["annotations"] = json!({"stowplan.dev/coschedule": "disabled"});
    let (code, out, _) = said(&[odd], "pr/image", &[]);
    assert_eq!(code, 0);
    assert!(out.contains("mode disabled, by its annotation stowplan.dev/coschedule"), "{out}");
}

#[test]
fn who_should_make_the_placeholder_is_told() {
    let found = obstacles(&[run(), task_run(true)], "pr/image");
    assert!(found[0].starts_with("Tekton's own affinity assistant places this run"), "{found:?}");
    assert_eq!(found.len(), 1);

    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "stowplan-controller", "namespace": "stowplan"}, "spec": {"holderIdentity": ""}});
    let found = obstacles(&[run(), task_run(false), lease], "pr/image");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("no controller of stowplan renews its Lease"), "{found:?}");

    // Of what was not given, nothing is said to be missing.
    assert!(obstacles(&[run(), task_run(false)], "pr/image").is_empty());
    let mut other = stateful_set("workspaces", &[]);
    for path in ["/metadata/name", "/metadata/labels/stowplan.dev~1placeholder"] {
        *other.pointer_mut(path).unwrap() = json!("affinity-assistant-0123456789");
    }
    other["metadata"]["ownerReferences"] = owner("PipelineRun", "other", "other");
    let found = obstacles(&[run(), task_run(false), other], "pr/image");
    assert!(found[0].starts_with("it is not there: the controller has not made it"), "{found:?}");
    let set = stateful_set("workspaces", &[]);
    let found = obstacles(
        &[run(), task_run(false), set, node("n1"), running("x", "n1", json!({}))],
        "pr/image",
    );
    assert!(found[0].starts_with("it has no pod: a quota, Pod Security"), "{found:?}");
    let mut lone = task_run(false);
    lone["metadata"]["ownerReferences"] = json!([]);
    let found = obstacles(&[run(), lone], "pr/image");
    assert!(found[0].starts_with("Tekton has made no TaskRun of it yet"), "{found:?}");
}

#[test]
fn the_placeholders_node_is_in_the_way() {
    let member = of_run("image-clone-pod", None, "1");
    let nodes = [cordoned(room("n1", "4")), room("n2", "4"), member];
    let found = obstacles(&standing(Some("n1"), &nodes), "pr/image");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("node n1: cordoned; the controller moves the placeholder ->"),
        "{found:?}"
    );

    let busy = of_run("image-x-pod", Some("n1"), "1");
    let mut objects = standing(Some("n1"), &nodes);
    objects.push(busy);
    assert_eq!(
        obstacles(&objects, "pr/image"),
        [
            "node n1: cordoned; pod image-x-pod still runs there, and the group moves when it has ended -> wait for pod image-x-pod, or kubectl uncordon n1"
        ]
    );

    let mut objects = standing(Some("n1"), &nodes);
    objects.extend(claim("cache", &["n1"]));
    assert_eq!(
        obstacles(&objects, "pr/image"),
        [
            "node n1: cordoned; claim cache can be used on no other node, so that the group cannot move -> kubectl uncordon n1"
        ]
    );
    assert_eq!(obstacles(&standing(Some("n1"), &nodes[..2]), "pr/image").len(), 0, "nobody waits");
}

#[test]
fn a_placeholder_without_a_node_says_which_nodes_there_are() {
    let mut objects = standing(None, &[cordoned(node("n1")), node("n2")]);
    objects.extend(claim("cache", &["n1"]));
    // Whoever looks at the placeholder's pod itself is told the same.
    for asked in ["pr/image".to_owned(), format!("pod/{PLACEHOLDER}-0")] {
        assert_eq!(
            obstacles(&objects, &asked),
            ["node n1: cordoned; claim cache can be used on no other node -> kubectl uncordon n1"]
        );
    }
    objects.extend(claim(CLAIM, &["n2"]));
    let found = obstacles(&objects, "pr/image");
    assert!(
        found.iter().any(|told| told
            .contains("claim cache can be used on node n1, claim pvc-e93bac4dbe on node n2: no node reaches both")),
        "{found:?}"
    );
    let mut objects = standing(None, &[node("n1")]);
    objects.extend(claim("cache", &["gone"]));
    let found = obstacles(&objects, "pr/image");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("volume pv-cache can be used on no node that is there ->"));
    let found = obstacles(&standing(None, &[node("n1")]), "pr/image");
    assert!(found[0].starts_with("node n1 could take it as far as stowplan can see"), "{found:?}");
}

/// It must be where members run, and is not told what other nodes could do for it.
#[test]
fn a_placeholder_is_held_where_a_member_runs() {
    let running = of_run("image-clone-pod", Some("n1"), "1");
    let waiting = of_run("image-build-pod", None, "1");
    let told = |n1: Value| {
        let nodes = [n1, room("n2", "4"), running.clone(), waiting.clone()];
        obstacles(&standing(None, &nodes), "pr/image")
    };
    assert_eq!(
        told(cordoned(room("n1", "4"))),
        [
            "node n1: cordoned; pod image-clone-pod still runs there, and the group moves when it has ended -> wait for pod image-clone-pod, or kubectl uncordon n1"
        ]
    );
    let mut full = room("n1", "4");
    full["status"]["allocatable"]["pods"] = json!("1");
    assert_eq!(
        told(full),
        [
            "node n1: it has 1 pod, and takes no more; pod image-clone-pod still runs there, and the group moves when it has ended -> wait for pod image-clone-pod, or free room on node n1"
        ]
    );
    let found = told(room("n1", "4"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("it must be on node n1, where pod image-clone-pod runs"),
        "{found:?}"
    );

    // Neither who bears the label alone, nor who is never let go of by a dead node.
    for of in [json!({"ownerReferences": []}), json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})]
    {
        let mut stranger = running.clone();
        for (key, value) in of.as_object().unwrap() {
            stranger["metadata"][key] = value.clone();
        }
        let mut dead = room("n1", "4");
        dead["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
        let found = obstacles(
            &standing(None, &[dead, room("n2", "4"), stranger, waiting.clone()]),
            "pr/image",
        );
        assert!(found[0].starts_with("node n2 could take it"), "{of}: {found:?}");
    }
}

#[test]
fn isolated_runs_hold_every_node() {
    let name = "affinity-assistant-0123456789";
    let mut other = placeholder(Some("n1"));
    other["metadata"]["name"] = json!(format!("{name}-0"));
    other["metadata"]["namespace"] = json!("elsewhere");
    other["metadata"]["labels"] = json!({"stowplan.dev/placeholder": name});
    let mut objects = standing(None, &[node("n1"), other]);
    objects[5] = stateful_set("isolate-pipelinerun", &[]);
    // The claims are those that it mounts; the group's name is that of the whole run.
    let mut set = stateful_set("isolate-pipelinerun", &[]);
    let own = "affinity-assistant-e9afff6d08";
    set["metadata"]["name"] = json!(own);
    set["metadata"]["labels"] = json!({"stowplan.dev/placeholder": own});
    objects[5] = set;
    objects[6]["metadata"]["name"] = json!(format!("{own}-0"));
    objects[6]["metadata"]["labels"] = json!({"stowplan.dev/placeholder": own});
    assert_eq!(
        obstacles(&objects, "pr/image"),
        [
            "node n1: it is another run's alone -> wait until one of those runs has ended, or add a node (runs are isolated)"
        ]
    );
}

#[test]
fn a_member_that_does_not_come_in_says_why() {
    let big = of_run("image-build-pod", None, "6");
    let found = obstacles(
        &standing(Some("n1"), &[room("n1", "4"), room("n2", "8"), big.clone()]),
        "pr/image",
    );
    assert_eq!(
        found,
        [
            "node n1, where its group is: it has too little free of what the pod requests: cpu 4000m of 6000m -> wait: after 30s the controller moves the group to a node with room, as n2"
        ]
    );
    let found = obstacles(&standing(Some("n1"), &[room("n1", "4"), big.clone()]), "pr/image");
    assert!(
        found[0].ends_with("-> no node has room for it: free or add one, or let it request less"),
        "{found:?}"
    );
    let mut picky = big.clone();
    picky["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n2"});
    let found =
        obstacles(&standing(Some("n1"), &[room("n1", "8"), room("n2", "8"), picky]), "pr/image");
    assert!(
        found[0].starts_with("its own node selector or node affinity does not let it on node n1"),
        "{found:?}"
    );
    let mut gated = big;
    gated["spec"]["schedulingGates"] =
        json!([{"name": "stowplan.dev/placeholder"}, {"name": "example.com/quota"}]);
    let objects = standing(Some("n1"), &[room("n1", "8"), gated]);
    assert_eq!(
        obstacles(&objects, "pr/image"),
        ["scheduling gates hold it: example.com/quota -> whoever set them lifts them"]
    );
    let found = obstacles(&objects, "pod/image-build-pod");
    assert!(found[0].starts_with("the gate stowplan.dev/placeholder holds it until"), "{found:?}");
    assert!(found[1].starts_with("scheduling gates hold it: example.com/quota ->"), "{found:?}");
}

/// The placeholder of group `nightly` in `default`.
const NATIVE: &str = "affinity-assistant-88b1e3553f";

fn native_set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": NATIVE, "namespace": "default", "uid": "set",
            "labels": {"stowplan.dev/placeholder": NATIVE},
            "annotations": {"stowplan.dev/coschedule-group": "nightly"}},
        "spec": {"selector": {}, "template": {"spec": {"containers": []}}},
    })
}

/// It may be elsewhere while its pods run where nobody comes in any more.
#[test]
fn the_placeholder_of_a_native_group_is_not_held_to_a_closed_node() {
    let as_native = |mut pod: Value| {
        let text = pod.to_string().replace(PLACEHOLDER, NATIVE);
        pod = serde_json::from_str(&text).unwrap();
        pod
    };
    let set = native_set();
    let of_group = |name: &str, node: Option<&str>| {
        let mut pod = as_native(of_run(name, node, "1"));
        pod["metadata"]["annotations"] = json!({"stowplan.dev/coschedule-group": "nightly"});
        pod["metadata"]["ownerReferences"] = json!([]);
        pod
    };
    let told = |n1: Value| {
        let pods =
            [of_group("old", Some("n1")), of_group("new", None), as_native(placeholder(None))];
        obstacles(&[&[set.clone(), n1, room("n2", "4")], &pods[..]].concat(), "pod/new").remove(0)
    };
    let open = told(room("n1", "4"));
    assert!(open.starts_with("it must be on node n1, where pod old runs"), "{open}");
    let closed = told(cordoned(room("n1", "4")));
    assert!(closed.starts_with("node n2 could take it"), "{closed}");
}

/// Who makes a pod again, and where to say what it asks, depends on what made it.
#[test]
fn the_remedy_for_a_member_is_that_of_what_made_it() {
    let set = native_set();
    let mut stands = placeholder(Some("n1"));
    stands["metadata"]["name"] = json!(format!("{NATIVE}-0"));
    stands["metadata"]["labels"] = json!({"stowplan.dev/placeholder": NATIVE});
    let native = |owners: Value| {
        let mut pod = waiting("report", &Value::Null);
        pod["metadata"]["annotations"] = json!({"stowplan.dev/coschedule-group": "nightly"});
        pod["metadata"]["labels"] = json!({"stowplan.dev/coschedule-member": NATIVE});
        pod["metadata"]["ownerReferences"] = owners;
        pod
    };
    let of = |kind: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "made", "uid": "u", "controller": true}]);
    let tainted = || {
        let mut node = node("n1");
        node["spec"] = json!({"taints": [{"key": "team", "value": "ci", "effect": "NoSchedule"}]});
        node
    };
    let bound = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]}}});
    for (owners, remade, alike) in [
        (
            json!([]),
            "kubectl delete pod report -n default, and create it again: it has no controller",
            "for all pods of the group alike",
        ),
        (
            of("ReplicaSet"),
            "kubectl delete pod report -n default: its ReplicaSet makes it again",
            "for all pods of the group alike, in the pod template of what made ReplicaSet made",
        ),
        (
            of("Job"),
            "kubectl delete pod report -n default: its Job makes it again",
            "for all pods of the group alike, in the pod template of Job made",
        ),
    ] {
        let mut pod = native(owners.clone());
        pod["spec"]["affinity"] = bound.clone();
        let objects = [set.clone(), stands.clone(), node("n1"), node("n2"), pod];
        let found = obstacles(&objects, "pod/report");
        assert!(found.iter().any(|told| told.ends_with(&format!("-> {remade}"))), "{found:?}");

        let mut pod = native(owners.clone());
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n2"});
        let objects = [set.clone(), stands.clone(), node("n1"), node("n2"), pod];
        let found = obstacles(&objects, "pod/report");
        let ask = format!("-> ask for nodes {alike}");
        assert!(found.iter().any(|told| told.ends_with(&ask)), "{found:?}");

        // The placeholder tolerates what its pod does not.
        let mut stands = stands.clone();
        stands["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        let objects = [set.clone(), stands, tainted(), node("n2"), native(owners)];
        let found = obstacles(&objects, "pod/report");
        let give = format!("-> give the same tolerations {alike}");
        assert!(found.iter().any(|told| told.ends_with(&give)), "{found:?}");
    }

    stands["spec"].as_object_mut().unwrap().remove("nodeName");
    stands["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    stands["status"] = json!({"phase": "Pending"});
    let found = obstacles(&[set, stands, node("n1"), native(json!([]))], "pod/report");
    assert!(
        found.iter().any(|told| told
            .ends_with("they are those of the group's pods, without nodes that were full")),
        "{found:?}"
    );

    let mut pod = of_run("image-build-pod", None, "1");
    pod["spec"]["affinity"] = bound;
    let found = obstacles(&standing(Some("n1"), &[node("n1"), node("n2"), pod]), "pr/image");
    let remade = "kubectl delete pod image-build-pod -n default: its TaskRun makes it again";
    assert!(found.iter().any(|told| told.ends_with(remade)), "{found:?}");
}

#[test]
fn claims_that_are_not_there_or_used_elsewhere_are_told() {
    let mut objects = vec![run(), task_run(false)];
    objects.extend(claim(CLAIM, &[]));
    objects.push(class());
    let found = obstacles(&objects, "pr/image");
    assert_eq!(found, ["it is not there -> make it, or let the run name another"]);

    let mut other = running("other", "n2", json!({}));
    other["spec"]["volumes"] =
        json!([{"name": "v", "persistentVolumeClaim": {"claimName": "cache"}}]);
    let found = obstacles(&standing(Some("n1"), &[node("n1"), node("n2"), other]), "pr/image");
    assert_eq!(
        found,
        [
            "pod other uses it on node n2, and one node uses it at a time -> wait until pod other has ended"
        ]
    );
}

#[test]
fn an_earlier_run_with_the_same_claim_goes_first() {
    let mut earlier = run();
    earlier["metadata"]["name"] = json!("first");
    earlier["metadata"]["uid"] = json!("other-uid");
    earlier["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
    let found = obstacles(&[run(), task_run(false), earlier.clone()], "pr/image");
    let waits = found.iter().any(|found| found.contains("is also used"));
    assert!(!waits, "one that has not begun holds up nobody: {found:?}");
    let mut begun = task_run(false);
    begun["metadata"]["name"] = json!("first-clone");
    begun["metadata"]["uid"] = json!("first-clone");
    begun["metadata"]["ownerReferences"][0]["name"] = json!("first");
    begun["metadata"]["ownerReferences"][0]["uid"] = json!("other-uid");
    let found = obstacles(&[run(), task_run(false), earlier.clone(), begun.clone()], "pr/image");
    assert_eq!(
        found,
        [
            "claim cache is also used by the earlier PipelineRun first, whose placeholder has no node yet -> stowplan check pipelinerun/first -n default"
        ]
    );
    let mut isolated = run();
    isolated["metadata"]["annotations"] = json!({"stowplan.dev/coschedule": "isolate-pipelinerun"});
    let found = obstacles(&[isolated, task_run(false), earlier, begun], "pr/image");
    assert!(
        found[0].starts_with(
            "claim cache is also used by the earlier PipelineRun first, and runs are isolated ->"
        ),
        "{found:?}"
    );
}

#[test]
fn a_run_that_names_a_group_has_none_of_its_own() {
    let mut run = run();
    run["metadata"]["annotations"] = json!({"stowplan.dev/coschedule-group": "nightly"});
    let (code, out, _) = said(&[run, task_run(false)], "pr/image", &[]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("its pods are of group nightly"), "{out}");
}

#[test]
fn tasks_that_ask_for_different_nodes_contradict_each_other() {
    let mut run = run();
    let task = |name: &str, arch: &str| {
        json!({"pipelineTaskName": name,
        "podTemplate": {"nodeSelector": {"kubernetes.io/arch": arch}}})
    };
    run["spec"]["taskRunSpecs"] = json!([task("clone", "amd64"), task("build", "arm64")]);
    let found = obstacles(&[run, task_run(false)], "pr/image");
    assert_eq!(found.len(), 1);
    assert!(
        found[0].contains("kubernetes.io/arch=amd64")
            && found[0].contains("kubernetes.io/arch=arm64"),
        "{found:?}"
    );
}

#[test]
fn a_pipeline_that_is_not_there_or_not_known_is_told() {
    let other = json!({"apiVersion": "tekton.dev/v1", "kind": "Pipeline", "metadata": {"name": "other"}, "spec": {}});
    let mut named = run();
    let spec = named["spec"].as_object_mut().unwrap();
    spec.remove("pipelineSpec");
    spec.insert("pipelineRef".to_owned(), json!({"name": "build"}));
    let found = obstacles(&[named, task_run(false), other], "pr/image");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("Pipeline build is not there; until it is, all claims"),
        "{found:?}"
    );
    let mut resolved = run();
    let spec = resolved["spec"].as_object_mut().unwrap();
    spec.remove("pipelineSpec");
    spec.insert("pipelineRef".to_owned(), json!({"resolver": "git"}));
    let (code, out, _) = said(&[resolved, task_run(false)], "pr/image", &[]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("its pipeline is a resolver's, so all claims"), "{out}");
}

#[test]
fn the_example_of_a_waiting_run_says_why() {
    let output = Command::new(env!("CARGO_BIN_EXE_stowplan"))
        .args(["check", "pipelinerun/image", "--cluster", "examples/waiting-run.yaml"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains(
            "obstacle   node node-1: cordoned; claim build-cache-pvc can be used on no other node"
        ),
        "{text}"
    );
    assert!(text.contains("remedy     kubectl uncordon node-1"), "{text}");
}
