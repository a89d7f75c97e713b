//! `stowplan check` calls a node eligible exactly where the reconciler does, and a group moves in its
//! answer exactly if the reconciler moves it.

use serde_json::{Value, json};

use super::objects::*;

/// What keeps the placeholder's pod, which has no node, out of `n1`.
fn out_of(n1: Value) -> Vec<String> {
    obstacles(&without_node(&[n1]), "pr/image")
}

fn without_node(more: &[Value]) -> Vec<Value> {
    standing(None, more)
}

#[test]
fn a_node_without_the_hostname_label_takes_no_group() {
    let mut nameless = room("n1", "4");
    nameless["metadata"]["labels"] = json!({"disk": "ssd"});
    assert_eq!(
        out_of(nameless),
        [
            "node n1 lacks the label kubernetes.io/hostname -> kubectl label node n1 kubernetes.io/hostname=n1"
        ]
    );
}

#[test]
fn a_node_that_is_being_deleted_takes_no_group() {
    let mut leaving = room("n1", "4");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let found = out_of(leaving);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("node n1 is being deleted ->"), "{found:?}");
}

/// The group moves only to a node that takes the placeholder and a member: two pods.
#[test]
fn a_node_with_space_for_one_more_pod_is_none_to_move_to() {
    let waiting = of_run("image-build-pod", None, "6");
    let mut small = room("n2", "8");
    small["status"]["allocatable"]["pods"] = json!("1");
    let found = obstacles(
        &standing(Some("n1"), &[room("n1", "4"), small.clone(), waiting.clone()]),
        "pr/image",
    );
    assert!(
        found[0].ends_with("-> no node has room for it: free or add one, or let it request less"),
        "{found:?}"
    );
    small["status"]["allocatable"]["pods"] = json!("2");
    let found = obstacles(&standing(Some("n1"), &[room("n1", "4"), small, waiting]), "pr/image");
    assert!(found[0].ends_with("to a node with room, as n2"), "{found:?}");
}

/// Each volume reaches a further node, and no further node reaches both.
#[test]
fn volumes_that_pin_a_node_together_keep_the_group_there() {
    let member = of_run("image-clone-pod", None, "1");
    let nodes = [cordoned(room("n1", "4")), room("n2", "4"), room("n3", "4"), member];
    let mut objects = standing(Some("n1"), &nodes);
    objects.extend(claim("cache", &["n1", "n2"]));
    objects.extend(claim(CLAIM, &["n1", "n3"]));
    let found = obstacles(&objects, "pr/image");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("can be mounted together on no node but n1"), "{found:?}");
    assert!(found[0].ends_with("-> kubectl uncordon n1"), "{found:?}");
}

/// A group moves where the placeholder and each waiting member fit, whoever of them is asked about.
#[test]
fn a_node_that_takes_one_member_and_not_another_is_none_to_move_to() {
    let big = of_run("image-build-pod", None, "6");
    let mut picky = of_run("image-test-pod", None, "6");
    picky["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    let mut n1 = room("n1", "4");
    n1["metadata"]["labels"]["disk"] = json!("ssd");
    let objects = standing(Some("n1"), &[n1, room("n2", "8"), big, picky]);
    let found = obstacles(&objects, "pod/image-build-pod");
    assert!(found.iter().all(|found| !found.contains("to a node with room, as n2")), "{found:?}");
}

/// A pod that must be near others is near none on a node without the label.
#[test]
fn a_pod_with_pod_affinity_needs_the_hostname_label() {
    let mut nameless = node("n1");
    nameless["metadata"]["labels"] = json!({});
    let pod = waiting("a", &near("streams.ibm.com/hostcolocation.X", "podAffinity"));
    let found = obstacles(&[nameless.clone(), pod], "pod/a");
    assert!(found[0].starts_with("node n1 lacks the label kubernetes.io/hostname ->"), "{found:?}");
    let found = obstacles(&[nameless, waiting("a", &Value::Null)], "pod/a");
    assert!(found[0].starts_with("nothing that stowplan knows of"), "{found:?}");
}

/// A run that follows this one still uses the volume there.
#[test]
fn a_pod_of_another_group_with_the_same_claim_keeps_the_group_on_its_node() {
    let mut other = running(
        "other",
        "n1",
        json!({"stowplan.dev/coschedule-member": "affinity-assistant-0123456789"}),
    );
    other["spec"]["volumes"] =
        json!([{"name": "v", "persistentVolumeClaim": {"claimName": "cache"}}]);
    let member = of_run("image-clone-pod", None, "1");
    let nodes = [cordoned(room("n1", "4")), room("n2", "4"), member, other];
    assert_eq!(
        obstacles(&standing(Some("n1"), &nodes), "pr/image"),
        [
            "node n1 is cordoned, and pod other of another group still runs on n1 with claim cache: the group moves when that pod has ended -> wait until that pod has ended, or kubectl uncordon n1"
        ]
    );
}

/// The reconciler leaves such a node when members have waited for the grace period, and only for
/// another one.
#[test]
fn a_group_leaves_a_node_without_the_hostname_label_if_another_takes_it() {
    let mut nameless = room("n1", "4");
    nameless["metadata"]["labels"] = json!({});
    let member = of_run("image-clone-pod", None, "1");
    let found = obstacles(
        &standing(Some("n1"), &[nameless.clone(), room("n2", "4"), member.clone()]),
        "pr/image",
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with(
            "node n1 lacks the label kubernetes.io/hostname; the controller moves the placeholder ->"
        ),
        "{found:?}"
    );
    let found = obstacles(&standing(Some("n1"), &[nameless, member]), "pr/image");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with(
            "node n1 lacks the label kubernetes.io/hostname; no node can take pod image-clone-pod"
        ),
        "{found:?}"
    );
    assert!(found[0].ends_with("-> kubectl label node n1 kubernetes.io/hostname=n1"), "{found:?}");
}
