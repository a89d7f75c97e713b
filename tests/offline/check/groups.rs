//! Groups that share a node: the placeholder, its node, its claims and its members.

use serde_json::{Value, json};

use super::objects::*;

/// What keeps the run's group, whose placeholder is on this node, from its progress.
fn group(node: Option<&str>, more: &[Value]) -> Found {
    obstacles(&standing(node, more), "pr/image")
}

#[test]
fn the_node_of_the_placeholder_is_an_obstacle() {
    let member = of_run("image-clone-pod", None, "1");
    let nodes = [cordoned(room("n1", "4")), room("n2", "4"), member];
    let with = |more: &[Value]| group(Some("n1"), &[&nodes[..], more].concat());
    with(&[]).is("node n1 is cordoned; the controller moves the placeholder ->…");
    with(&[of_run("image-x-pod", Some("n1"), "1")])
        .is("node n1 is cordoned, and pod image-x-pod of the group still runs on n1: the group moves when that pod has ended -> wait until that pod has ended, or kubectl uncordon n1");
    with(&claim("cache", &["n1"]))
        .is("node n1 is cordoned, and volume pv-cache of claim cache can be mounted on no node but n1: the group cannot move -> kubectl uncordon n1");
    // Where no pod waits, there is none.
    group(Some("n1"), &nodes[..2]).are(&[]);
}

#[test]
fn a_placeholder_without_a_node_names_the_nodes_that_refuse_it() {
    let mut objects = standing(None, &[cordoned(node("n1")), node("n2")]);
    objects.extend(claim("cache", &["n1"]));
    // A check of the placeholder's pod itself finds the same.
    for asked in ["pr/image".to_owned(), format!("pod/{PLACEHOLDER}-0")] {
        obstacles(&objects, &asked)
            .is("node n1 is cordoned; volume pv-cache of claim cache can be mounted only on n1 -> kubectl uncordon n1");
    }
    objects.extend(claim(CLAIM, &["n2"]));
    obstacles(&objects, "pr/image")
        .has("…volume pv-cache of claim cache can be mounted only on n1, volume pv-pvc-e93bac4dbe of claim pvc-e93bac4dbe can be mounted only on n2: no node can mount all of them…");
    group(None, &[vec![node("n1")], claim("cache", &["gone"])].concat())
        .is("volume pv-cache can be mounted on none of the nodes ->…");
    group(None, &[node("n1")]).is("node n1 could take it as far as stowplan can see…");
}

#[test]
fn a_placeholder_that_does_not_match_the_nodes_of_its_volume_is_reported() {
    let disk = json!({"disk": "ssd"});
    let ssd = with(node("n1"), &json!({"metadata": {"labels": disk}}));
    let mut objects = standing(None, &[ssd, node("n2")]);
    objects[6]["spec"]["nodeSelector"] = disk;
    objects.extend(claim("cache", &["n2"]));
    obstacles(&objects, "pr/image")
        .is("volume pv-cache of claim cache can be mounted only on n2, which its node selector and node affinity do not match -> let the run's pod template ask for nodes that reach the volumes, or use other claims");
}

/// It must be where members run: other nodes are not mentioned.
#[test]
fn a_placeholder_is_held_where_a_member_runs() {
    let running = of_run("image-clone-pod", Some("n1"), "1");
    let waiting = of_run("image-build-pod", None, "1");
    let full = json!({"status": {"allocatable": {"pods": "1"}}});
    for (n1, expected) in [
        (
            cordoned(room("n1", "4")),
            "; node n1 is cordoned -> wait until that pod has ended, or kubectl uncordon n1",
        ),
        (
            with(room("n1", "4"), &full),
            "; node n1 has too many pods (the limit is 1) -> wait until that pod has ended, or free room on node n1",
        ),
        (room("n1", "4"), "…-> wait until that pod has ended, or see why the scheduler refuses…"),
    ] {
        group(None, &[n1, room("n2", "4"), running.clone(), waiting.clone()]).is(&format!(
            "placeholder {PLACEHOLDER} has no node (0/2 nodes are available), and pod image-clone-pod of the group still runs on n1: the group moves when that pod has ended{expected}"
        ));
    }
    // Neither a pod with the label alone holds it, nor a deleted pod on a dead node.
    for of in [json!({"ownerReferences": []}), json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})]
    {
        let stranger = with(running.clone(), &json!({"metadata": of}));
        let dead = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        let nodes = [with(room("n1", "4"), &dead), room("n2", "4")];
        group(None, &[&nodes[..], &[stranger, waiting.clone()]].concat())
            .is("node n2 could take it…");
    }
}

#[test]
fn isolated_runs_use_every_node() {
    let name = "affinity-assistant-0123456789";
    let renamed = |object: Value, name: &str| {
        serde_json::from_str(&object.to_string().replace(PLACEHOLDER, name)).unwrap()
    };
    let mut objects = standing(None, &[node("n1")]);
    // The claims are those that it mounts; the group's name is that of the whole run.
    let own = "affinity-assistant-e9afff6d08";
    objects[5] = renamed(stateful_set("isolate-pipelinerun", &[]), own);
    objects[6] = renamed(placeholder(None), own);
    // By default, runs are isolated from those of their own namespace.
    for (namespace, is_used) in [("default", true), ("elsewhere", false)] {
        let other = renamed(placeholder(Some("n1")), name);
        let other = with(other, &json!({"metadata": {"namespace": namespace}}));
        let found = obstacles(&[&objects[..], &[other]].concat(), "pr/image");
        match is_used {
            true => found.is("node n1 is used by another run alone -> wait until one of those runs has ended, or add a node (runs are isolated)"),
            false => found.lacks("used by another run"),
        }
    }
}

#[test]
fn a_member_that_is_not_beside_its_placeholder_has_a_reason() {
    let big = of_run("image-build-pod", None, "6");
    group(Some("n1"), &[room("n1", "4"), room("n2", "8"), big.clone()])
        .is("node n1, where its group is, has insufficient cpu (4000m of 6000m) -> wait: after 30s the controller moves the group to a node with room, as n2");
    group(Some("n1"), &[room("n1", "4"), big.clone()])
        .is("…-> no node has room for it: free or add one, or let it request less");
    let elsewhere = json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "n2"}}});
    group(Some("n1"), &[room("n1", "8"), room("n2", "8"), with(big.clone(), &elsewhere)])
        .is("its own node selector or node affinity does not match node n1…");
    let gates = json!([{"name": "stowplan.dev/placeholder"}, {"name": "example.com/quota"}]);
    let gated = with(big, &json!({"spec": {"schedulingGates": gates}}));
    let objects = standing(Some("n1"), &[room("n1", "8"), gated]);
    obstacles(&objects, "pr/image")
        .is("scheduling gates hold it: example.com/quota -> whoever set them lifts them");
    obstacles(&objects, "pod/image-build-pod").are(&[
        "the gate stowplan.dev/placeholder holds it until…",
        "scheduling gates hold it: example.com/quota ->…",
    ]);
}

/// It may be elsewhere while its pods run on a node that is closed to new pods.
#[test]
fn the_placeholder_of_a_native_group_is_not_held_to_a_closed_node() {
    let as_native = |pod: Value, annotations: &Value| -> Value {
        let pod = serde_json::from_str(&pod.to_string().replace(PLACEHOLDER, NATIVE)).unwrap();
        with(pod, &json!({"metadata": {"annotations": annotations}}))
    };
    let of_group = |name: &str, node: Option<&str>| {
        let group = json!({"stowplan.dev/coschedule-group": "nightly"});
        let pod = as_native(of_run(name, node, "1"), &group);
        with(pod, &json!({"metadata": {"ownerReferences": []}}))
    };
    for (n1, expected) in [
        (room("n1", "4"), "…pod old of the group still runs on n1: the group moves…"),
        (cordoned(room("n1", "4")), "node n2 could take it…"),
    ] {
        let plan = json!({"coschedule.stowplan.dev/plan": plan(&[])});
        let placeholder = as_native(placeholder(None), &plan);
        let pods = [of_group("old", Some("n1")), of_group("new", None), placeholder];
        let nodes = [native_set(), n1, room("n2", "4")];
        obstacles(&[nodes, pods].concat(), "pod/new").is(expected);
    }
}

/// What creates a pod again, and where its requirements are written, depends on the pod's
/// controller.
#[test]
fn the_remedy_for_a_member_depends_on_its_controller() {
    let placeholder_pod = with(
        placeholder(Some("n1")),
        &json!({"metadata": {
            "name": format!("{NATIVE}-0"),
            "labels": {"stowplan.dev/placeholder": NATIVE, "stowplan.dev/coschedule-member": NATIVE,
                "app.kubernetes.io/component": null, "app.kubernetes.io/instance": null},
            "annotations": {"coschedule.stowplan.dev/plan": plan(&[])}}}),
    );
    let native = |owners: &Value| {
        let mut pod = waiting("report", &Value::Null);
        pod["metadata"]["annotations"] = json!({"stowplan.dev/coschedule-group": "nightly"});
        pod["metadata"]["labels"] = json!({"stowplan.dev/coschedule-member": NATIVE});
        pod["metadata"]["ownerReferences"] = owners.clone();
        pod
    };
    let of = |kind: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "made", "uid": "u", "controller": true}]);
    let bound = json!({"spec": {"affinity": pinned("n2")}});
    let report = |placeholder: &Value, n1: Value, pod: Value| {
        obstacles(&[native_set(), placeholder.clone(), n1, node("n2"), pod], "pod/report")
    };
    for (owners, remade, alike) in [
        (json!([]), ", and create it again: it has no controller", ""),
        (
            of("ReplicaSet"),
            ": its ReplicaSet creates it again",
            ", in the pod template of what made ReplicaSet made",
        ),
        (of("Job"), ": its Job creates it again", ", in the pod template of Job made"),
    ] {
        report(&placeholder_pod, node("n1"), with(native(&owners), &bound))
            .has(&format!("…-> kubectl delete pod report -n default{remade}"));
        let elsewhere = json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "n2"}}});
        report(&placeholder_pod, node("n1"), with(native(&owners), &elsewhere))
            .has(&format!("…-> ask for nodes for all pods of the group alike{alike}"));
        // The placeholder tolerates what its pod does not.
        let tolerant = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        let taint = json!({"key": "team", "value": "ci", "effect": "NoSchedule"});
        let tolerant = with(placeholder_pod.clone(), &tolerant);
        report(&tolerant, tainted(node("n1"), &[taint]), native(&owners))
            .has(&format!("…-> give the same tolerations for all pods of the group alike{alike}"));
    }

    let nowhere = json!({"spec": {"nodeName": null, "nodeSelector": {"disk": "ssd"}},
        "status": {"phase": "Pending"}});
    let nowhere = with(placeholder_pod, &nowhere);
    obstacles(&[native_set(), nowhere, node("n1"), native(&json!([]))], "pod/report")
        .has("…they are those of the group's pods, without nodes that were full");

    let mut pod = of_run("image-build-pod", None, "1");
    pod["spec"]["affinity"] = pinned("n2");
    group(Some("n1"), &[node("n1"), node("n2"), pod])
        .has("it requires node n2, which its group has left: the controller deletes it, and its TaskRun creates it again -> wait a moment…");
}

#[test]
fn claims_that_do_not_exist_or_are_used_elsewhere_are_reported() {
    let missing = "it does not exist -> create it, or let the run name another";
    let mut objects = [vec![run(), task_run(false), class()], claim(CLAIM, &[])].concat();
    obstacles(&objects, "pr/image").is(missing);
    objects.push(of_run("image-build-pod", None, "1"));
    obstacles(&objects, "pod/image-build-pod").has(missing);
    let other = with_cache(running("other", "n2", json!({})));
    group(Some("n1"), &[node("n1"), node("n2"), other])
        .is("pod other uses it on node n2, and one node uses it at a time -> wait until pod other has ended");
}
