//! `stowplan check` calls a node eligible exactly where the reconciler does, and a group moves in its
//! answer exactly if the reconciler moves it.

use serde_json::{Value, json};

use super::objects::*;

/// What keeps the run's group, whose placeholder is on this node, from its progress.
fn group(node: Option<&str>, more: &[Value]) -> Found {
    obstacles(&standing(node, more), "pr/image")
}

#[test]
fn a_node_that_the_placeholder_cannot_use_is_an_obstacle() {
    group(None, &[nameless(room("n1", "4"))])
        .is("node n1 lacks the label kubernetes.io/hostname -> kubectl label node n1 kubernetes.io/hostname=n1");
    let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    group(None, &[with(room("n1", "4"), &leaving)]).is("node n1 is being deleted ->…");
}

/// The group moves only to a node that takes the placeholder and a member: two pods.
#[test]
fn a_node_with_space_for_one_more_pod_is_none_to_move_to() {
    for (pods, remedy) in [
        ("1", "…-> no node has room for it: free or add one, or let it request less"),
        ("2", "…to a node with room, as n2"),
    ] {
        let small = json!({"status": {"allocatable": {"pods": pods}}});
        let waiting = of_run("image-build-pod", None, "6");
        group(Some("n1"), &[room("n1", "4"), with(room("n2", "8"), &small), waiting]).is(remedy);
    }
}

/// Each volume reaches a further node, and no further node reaches both.
#[test]
fn volumes_that_pin_a_node_together_keep_the_group_there() {
    let member = of_run("image-clone-pod", None, "1");
    let mut more = vec![cordoned(room("n1", "4")), room("n2", "4"), room("n3", "4"), member];
    more.extend(claim("cache", &["n1", "n2"]));
    more.extend(claim(CLAIM, &["n1", "n3"]));
    group(Some("n1"), &more)
        .is("…can be mounted together on no node but n1…-> kubectl uncordon n1");
}

/// A group moves where the placeholder and each waiting member fit, whoever of them is asked about.
#[test]
fn a_node_that_takes_one_member_and_not_another_is_none_to_move_to() {
    let disk = json!({"disk": "ssd"});
    let big = of_run("image-build-pod", None, "6");
    let picky = of_run("image-test-pod", None, "6");
    let picky = with(picky, &json!({"spec": {"nodeSelector": disk}}));
    let n1 = with(room("n1", "4"), &json!({"metadata": {"labels": disk}}));
    let objects = standing(Some("n1"), &[n1, room("n2", "8"), big, picky]);
    obstacles(&objects, "pod/image-build-pod").lacks("to a node with room, as n2");
}

/// A pod that must be near others is near none on a node without the label.
#[test]
fn a_pod_with_pod_affinity_needs_the_hostname_label() {
    let near = near("streams.ibm.com/hostcolocation.X", "podAffinity");
    for (affinity, expected) in [
        (near, "node n1 lacks the label kubernetes.io/hostname ->…"),
        (Value::Null, "nothing that stowplan knows of…"),
    ] {
        obstacles(&[nameless(node("n1")), waiting("a", &affinity)], "pod/a").is(expected);
    }
}

/// A run that follows this one still uses the volume there.
#[test]
fn a_pod_of_another_group_with_the_same_claim_keeps_the_group_on_its_node() {
    let labels = json!({"stowplan.dev/coschedule-member": "affinity-assistant-0123456789"});
    let other = with_cache(running("other", "n1", labels));
    let member = of_run("image-clone-pod", None, "1");
    group(Some("n1"), &[cordoned(room("n1", "4")), room("n2", "4"), member, other])
        .is("node n1 is cordoned, and pod other of another group still runs on n1 with claim cache: the group moves when that pod has ended -> wait until that pod has ended, or kubectl uncordon n1");
}

/// The reconciler leaves such a node when members have waited for the grace period, and only for
/// another one.
#[test]
fn a_group_leaves_a_node_without_the_hostname_label_if_another_takes_it() {
    let (n1, member) = (nameless(room("n1", "4")), of_run("image-clone-pod", None, "1"));
    group(Some("n1"), &[n1.clone(), room("n2", "4"), member.clone()]).is(
        "node n1 lacks the label kubernetes.io/hostname; the controller moves the placeholder ->…",
    );
    group(Some("n1"), &[n1, member])
        .is("node n1 lacks the label kubernetes.io/hostname; no node can take pod image-clone-pod…-> kubectl label node n1 kubernetes.io/hostname=n1");
}
