//! Groups that share a node: the placeholder, its node, its claims and its members.

use serde_json::{Value, json};

use super::objects::*;

#[test]
fn the_node_of_the_placeholder_is_an_obstacle() {
    let member = of_run("image-clone-pod", None, "1");
    let nodes = [cordoned(room("n1", "4")), room("n2", "4"), member];
    let found = obstacles(&standing(Some("n1"), &nodes), "pr/image");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("node n1 is cordoned; the controller moves the placeholder ->"),
        "{found:?}"
    );

    let busy = of_run("image-x-pod", Some("n1"), "1");
    let mut objects = standing(Some("n1"), &nodes);
    objects.push(busy);
    assert_eq!(
        obstacles(&objects, "pr/image"),
        [
            "node n1 is cordoned, and pod image-x-pod of the group still runs on n1: the group moves when that pod has ended -> wait until that pod has ended, or kubectl uncordon n1"
        ]
    );

    let mut objects = standing(Some("n1"), &nodes);
    objects.extend(claim("cache", &["n1"]));
    assert_eq!(
        obstacles(&objects, "pr/image"),
        [
            "node n1 is cordoned, and volume pv-cache of claim cache can be mounted on no node but n1: the group cannot move -> kubectl uncordon n1"
        ]
    );
    assert_eq!(obstacles(&standing(Some("n1"), &nodes[..2]), "pr/image").len(), 0, "no pod waits");
}

#[test]
fn a_placeholder_without_a_node_names_the_nodes_that_refuse_it() {
    let mut objects = standing(None, &[cordoned(node("n1")), node("n2")]);
    objects.extend(claim("cache", &["n1"]));
    // A check of the placeholder's pod itself finds the same.
    for asked in ["pr/image".to_owned(), format!("pod/{PLACEHOLDER}-0")] {
        assert_eq!(
            obstacles(&objects, &asked),
            [
                "node n1 is cordoned; volume pv-cache of claim cache can be mounted only on n1 -> kubectl uncordon n1"
            ]
        );
    }
    objects.extend(claim(CLAIM, &["n2"]));
    let found = obstacles(&objects, "pr/image");
    assert!(
        found.iter().any(|row| row
            .contains("volume pv-cache of claim cache can be mounted only on n1, volume pv-pvc-e93bac4dbe of claim pvc-e93bac4dbe can be mounted only on n2: no node can mount all of them")),
        "{found:?}"
    );
    let mut objects = standing(None, &[node("n1")]);
    objects.extend(claim("cache", &["gone"]));
    let found = obstacles(&objects, "pr/image");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("volume pv-cache can be mounted on none of the nodes ->"));
    let found = obstacles(&standing(None, &[node("n1")]), "pr/image");
    assert!(found[0].starts_with("node n1 could take it as far as stowplan can see"), "{found:?}");
}

#[test]
fn a_placeholder_that_does_not_match_the_nodes_of_its_volume_is_reported() {
    let mut ssd = node("n1");
    ssd["metadata"]["labels"]["disk"] = json!("ssd");
    let mut objects = standing(None, &[ssd, node("n2")]);
    let name = format!("{PLACEHOLDER}-0");
    let pod = objects.iter_mut().find(|object| object["metadata"]["name"] == name).unwrap();
    pod["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    objects.extend(claim("cache", &["n2"]));
    assert_eq!(
        obstacles(&objects, "pr/image"),
        [
            "volume pv-cache of claim cache can be mounted only on n2, which its node selector and node affinity do not match -> let the run's pod template ask for nodes that reach the volumes, or use other claims"
        ]
    );
}

/// It must be where members run: other nodes are not mentioned.
#[test]
fn a_placeholder_is_held_where_a_member_runs() {
    let running = of_run("image-clone-pod", Some("n1"), "1");
    let waiting = of_run("image-build-pod", None, "1");
    let obstacles_with = |n1: Value| {
        let nodes = [n1, room("n2", "4"), running.clone(), waiting.clone()];
        obstacles(&standing(None, &nodes), "pr/image")
    };
    assert_eq!(
        obstacles_with(cordoned(room("n1", "4"))),
        [
            "placeholder affinity-assistant-d4b820ff28 has no node (0/2 nodes are available), and pod image-clone-pod of the group still runs on n1: the group moves when that pod has ended; node n1 is cordoned -> wait until that pod has ended, or kubectl uncordon n1"
        ]
    );
    let mut full = room("n1", "4");
    full["status"]["allocatable"]["pods"] = json!("1");
    assert_eq!(
        obstacles_with(full),
        [
            "placeholder affinity-assistant-d4b820ff28 has no node (0/2 nodes are available), and pod image-clone-pod of the group still runs on n1: the group moves when that pod has ended; node n1 has too many pods (the limit is 1) -> wait until that pod has ended, or free room on node n1"
        ]
    );
    let found = obstacles_with(room("n1", "4"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("pod image-clone-pod of the group still runs on n1: the group moves")
            && found[0]
                .contains("-> wait until that pod has ended, or see why the scheduler refuses"),
        "{found:?}"
    );

    // Neither a pod with the label alone holds it, nor a deleted pod on a dead node.
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
fn isolated_runs_use_every_node() {
    let name = "affinity-assistant-0123456789";
    let mut other = placeholder(Some("n1"));
    other["metadata"]["name"] = json!(format!("{name}-0"));
    other["metadata"]["labels"] = json!({"stowplan.dev/placeholder": name});
    let mut objects = standing(None, &[node("n1"), other]);
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
            "node n1 is used by another run alone -> wait until one of those runs has ended, or add a node (runs are isolated)"
        ]
    );
    // By default, runs are isolated from those of their own namespace.
    let is_other = |object: &&mut Value| object["metadata"]["name"] == format!("{name}-0");
    let other = objects.iter_mut().find(is_other).unwrap();
    other["metadata"]["namespace"] = json!("elsewhere");
    let found = obstacles(&objects, "pr/image");
    assert!(found.iter().all(|of| !of.contains("used by another run")), "{found:?}");
}

#[test]
fn a_member_that_is_not_beside_its_placeholder_has_a_reason() {
    let big = of_run("image-build-pod", None, "6");
    let found = obstacles(
        &standing(Some("n1"), &[room("n1", "4"), room("n2", "8"), big.clone()]),
        "pr/image",
    );
    assert_eq!(
        found,
        [
            "node n1, where its group is, has insufficient cpu (4000m of 6000m) -> wait: after 30s the controller moves the group to a node with room, as n2"
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
        found[0].starts_with("its own node selector or node affinity does not match node n1"),
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

/// It may be elsewhere while its pods run on a node that is closed to new pods.
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
    let obstacles_with = |n1: Value| {
        let mut placeholder_pod = as_native(placeholder(None));
        placeholder_pod["metadata"]["annotations"] =
            json!({"coschedule.stowplan.dev/plan": plan(&[])});
        let pods = [of_group("old", Some("n1")), of_group("new", None), placeholder_pod];
        obstacles(&[&[set.clone(), n1, room("n2", "4")], &pods[..]].concat(), "pod/new").remove(0)
    };
    let open = obstacles_with(room("n1", "4"));
    assert!(open.contains("pod old of the group still runs on n1: the group moves"), "{open}");
    let closed = obstacles_with(cordoned(room("n1", "4")));
    assert!(closed.starts_with("node n2 could take it"), "{closed}");
}

/// What creates a pod again, and where its requirements are written, depends on the pod's
/// controller.
#[test]
fn the_remedy_for_a_member_depends_on_its_controller() {
    let set = native_set();
    let mut placeholder_pod = placeholder(Some("n1"));
    placeholder_pod["metadata"]["name"] = json!(format!("{NATIVE}-0"));
    placeholder_pod["metadata"]["labels"] = json!({"stowplan.dev/placeholder": NATIVE,
        "stowplan.dev/coschedule-member": NATIVE});
    placeholder_pod["metadata"]["annotations"] = json!({"coschedule.stowplan.dev/plan": plan(&[])});
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
            "kubectl delete pod report -n default: its ReplicaSet creates it again",
            "for all pods of the group alike, in the pod template of what made ReplicaSet made",
        ),
        (
            of("Job"),
            "kubectl delete pod report -n default: its Job creates it again",
            "for all pods of the group alike, in the pod template of Job made",
        ),
    ] {
        let mut pod = native(owners.clone());
        pod["spec"]["affinity"] = bound.clone();
        let objects = [set.clone(), placeholder_pod.clone(), node("n1"), node("n2"), pod];
        let found = obstacles(&objects, "pod/report");
        assert!(found.iter().any(|row| row.ends_with(&format!("-> {remade}"))), "{found:?}");

        let mut pod = native(owners.clone());
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n2"});
        let objects = [set.clone(), placeholder_pod.clone(), node("n1"), node("n2"), pod];
        let found = obstacles(&objects, "pod/report");
        let ask = format!("-> ask for nodes {alike}");
        assert!(found.iter().any(|row| row.ends_with(&ask)), "{found:?}");

        // The placeholder tolerates what its pod does not.
        let mut placeholder_pod = placeholder_pod.clone();
        placeholder_pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        let objects = [set.clone(), placeholder_pod, tainted(), node("n2"), native(owners)];
        let found = obstacles(&objects, "pod/report");
        let give = format!("-> give the same tolerations {alike}");
        assert!(found.iter().any(|row| row.ends_with(&give)), "{found:?}");
    }

    placeholder_pod["spec"].as_object_mut().unwrap().remove("nodeName");
    placeholder_pod["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    placeholder_pod["status"] = json!({"phase": "Pending"});
    let found = obstacles(&[set, placeholder_pod, node("n1"), native(json!([]))], "pod/report");
    assert!(
        found
            .iter()
            .any(|row| row
                .ends_with("they are those of the group's pods, without nodes that were full")),
        "{found:?}"
    );

    let mut pod = of_run("image-build-pod", None, "1");
    pod["spec"]["affinity"] = bound;
    let found = obstacles(&standing(Some("n1"), &[node("n1"), node("n2"), pod]), "pr/image");
    let released = "it requires node n2, which its group has left: the controller deletes it, and its TaskRun creates it again -> wait a moment";
    assert!(found.iter().any(|row| row.starts_with(released)), "{found:?}");
}

#[test]
fn claims_that_do_not_exist_or_are_used_elsewhere_are_reported() {
    let mut objects = vec![run(), task_run(false)];
    objects.extend(claim(CLAIM, &[]));
    objects.push(class());
    let found = obstacles(&objects, "pr/image");
    let missing = ["it does not exist -> create it, or let the run name another"];
    assert_eq!(found, missing);
    let mut waiting = objects.clone();
    waiting.push(of_run("image-build-pod", None, "1"));
    let found = obstacles(&waiting, "pod/image-build-pod");
    assert!(found.contains(&missing[0].to_owned()), "{found:?}");

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
