//! Nodes keep the taint of an earlier release only while a pod waits that tolerates no other.

use serde_json::{Value, json};

use super::exclusive;
use super::simulator::World;
use crate::systems::streams::keys::{EXCLUSIVE_TAINT, FORMER_EXCLUSIVE_TAINT};

impl World {
    /// A pod of pool `p` that an earlier release admitted, and that waits.
    fn older_pod_waits(&mut self) -> &mut Self {
        let hash = self.hash("p");
        let toleration =
            json!({"key": FORMER_EXCLUSIVE_TAINT, "value": hash, "effect": "NoSchedule"});
        let waiting = json!({
            "spec": {"nodeName": null, "tolerations": [toleration]},
            "status": {"phase": "Pending"},
        });
        self.pod_of("older", "", "p", None).change_pod("older", waiting)
    }

    /// Gives a node these taints in place of its own.
    fn taint_as(&mut self, node: &str, taints: Value) -> &mut Self {
        self.change_node(node, json!({"spec": {"taints": taints}}))
    }

    /// The keys of a node's taints.
    fn taint_keys(&self, node: &str) -> Vec<String> {
        let taints = self.taints(node).into_iter();
        taints.map(|taint| taint.split('=').next().unwrap().to_owned()).collect()
    }
}

#[test]
fn a_taint_of_an_earlier_release_is_renamed_in_place() {
    let mut world = World::settled(1, [("p", exclusive(1))]);
    let hash = world.hash("p");
    let added = "2025-01-01T00:00:00Z";
    let other = json!({"key": "other", "effect": "NoSchedule"});
    let mut taint = json!({
        "key": FORMER_EXCLUSIVE_TAINT, "value": hash, "effect": "NoSchedule", "timeAdded": added,
    });
    world.taint_as("n00", json!([taint, other]));
    world.take_counts();
    world.settle().expect_counts(0, 1).expect_nodes("p", "n00");
    taint["key"] = json!(EXCLUSIVE_TAINT);
    assert_eq!(world.get("Node", "n00")["spec"]["taints"], json!([taint, other]));
}

#[test]
fn the_former_taint_stays_while_a_pod_waits_that_tolerates_no_other() {
    // Created after the upgrade, while an older webhook still answered.
    let mut world = World::sized(2);
    world.pool("p", exclusive(1)).older_pod_waits().settle().expect_nodes("p", "n00");
    assert_eq!(world.taint_keys("n00"), [FORMER_EXCLUSIVE_TAINT]);
    world.change_pod("older", json!({"spec": {"nodeName": "n00"}})).settle();
    assert_eq!(world.taint_keys("n00"), [EXCLUSIVE_TAINT], "it tolerates what it runs beside");
    // A pod of another namespace is not the pool's, whatever it tolerates.
    world.older_pod_waits().move_pod("older", "elsewhere", &json!({}));
    world.take_counts();
    world.settle().expect_counts(0, 0);
    world.older_pod_waits().settle();
    assert_eq!(world.taint_keys("n00"), [FORMER_EXCLUSIVE_TAINT], "or it could never run");
}

#[test]
fn of_two_taints_of_a_pool_the_former_is_removed() {
    // An earlier release, to which an administrator went back, adds its own.
    for keys in
        [[EXCLUSIVE_TAINT, FORMER_EXCLUSIVE_TAINT], [FORMER_EXCLUSIVE_TAINT, EXCLUSIVE_TAINT]]
    {
        let mut world = World::settled(1, [("p", exclusive(1))]);
        let hash = world.hash("p");
        let taints = keys.map(|key| json!({"key": key, "value": hash, "effect": "NoSchedule"}));
        world.taint_as("n00", json!(taints)).settle();
        assert_eq!(world.taint_keys("n00"), [EXCLUSIVE_TAINT]);
        world.delete_pool("p").settle();
        assert!(world.is_unmarked("n00"));
    }
}
