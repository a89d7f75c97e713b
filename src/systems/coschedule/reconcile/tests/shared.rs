//! Groups that share claims or nodes with others.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::simulator::{NAMESPACE, World};
use super::{LONG, SOON};
use crate::systems::coschedule::keys;
use crate::systems::coschedule::policy::CoscheduleMode;
use crate::systems::coschedule::reconcile::reason;
use crate::systems::coschedule::resources::{PIPELINE_RUN, TASK_RUN};
use crate::systems::plan::Write;
use crate::view::resource::POD;

#[test]
fn two_runs_with_one_claim_share_a_node_or_wait_for_each_other() {
    for mode in [CoscheduleMode::Workspaces, CoscheduleMode::IsolatePipelinerun] {
        let mut world = World::new(&["n1", "n2"]);
        world.policy.coschedule.mode = mode;
        world.claim("c");
        world.run("first", &["c"], &[]);
        world.wait(1);
        world.run("second", &["c"], &[]);
        let key = if mode == CoscheduleMode::Workspaces { "c" } else { "" };
        let name = |world: &World, run: &str| {
            keys::of_run(world.get("PipelineRun", run)["metadata"]["uid"].as_str().unwrap(), key)
        };
        let (first, second) = (name(&world, "first"), name(&world, "second"));
        world.member("a", "first", 100);
        world.member("b", "second", 100);
        world.clear("Pod");
        world.settle(LONG);
        let place =
            |world: &World, name: &str| world.node_of(&format!("{name}-0")).map(str::to_owned);
        assert_eq!(place(&world, &first).as_deref(), Some("n1"));
        if mode == CoscheduleMode::IsolatePipelinerun {
            assert!(!world.has("StatefulSet", &second));
            assert_eq!(world.reported(PIPELINE_RUN, "second"), [reason::SHARED_CLAIM]);
            world.member_of("d", "second", &second, 100);
            world.settle(SOON);
            assert_eq!(world.reported(TASK_RUN, "d"), [reason::SHARED_CLAIM]);
            assert_eq!(world.reported(POD, "d"), [reason::SHARED_CLAIM]);
            world.remove("Pod", "d");
            world.end("first");
            world.settle(SOON);
            assert!(place(&world, &second).is_some());
            continue;
        }
        assert_eq!(place(&world, &second).as_deref(), Some("n1"));
        world.cordon("n1", true);
        world.settle(LONG);
        assert_eq!(place(&world, &first).as_deref(), Some("n2"));
        assert_eq!(place(&world, &second).as_deref(), Some("n2"), "it follows: {:?}", world.writes);
        world.end("first");
        world.settle(SOON);
        world.cordon("n1", false);
        world.cordon("n2", true);
        world.settle(LONG);
        assert_eq!(
            place(&world, &second).as_deref(),
            Some("n1"),
            "no run leads it: {:?}",
            world.writes
        );
    }
}

/// Else the later run's pods would be on one node with the claim, and the earlier one's on another.
#[test]
fn a_leader_does_not_leave_while_a_follower_uses_the_claim() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.run("first", &["c"], &[]);
    world.wait(1);
    world.run("second", &["c"], &[]);
    world.member("a", "first", 100);
    world.clear("Pod");
    world.settle(SOON);
    world.member("b", "second", 100);
    world.mount("b", "c");
    world.settle(SOON);
    assert_eq!((world.place("first"), world.node_of("b")), (Some("n1"), Some("n1")));
    world.cordon("n1", true);
    world.member("d", "first", 100);
    world.settle(LONG);
    assert_eq!((world.place("first"), world.place("second")), (Some("n1"), Some("n1")));
    assert!(world.reported(POD, "d").contains(&reason::WAITS_FOR_MEMBERS), "{:?}", world.events);
    world.finish("b");
    world.settle(SOON);
    assert_eq!((world.place("first"), world.node_of("d")), (Some("n2"), Some("n2")));
    world.settle(LONG);
    assert_eq!(world.place("second"), Some("n2"), "it follows");
}

#[test]
fn isolated_runs_never_share_a_node_and_the_last_waits() {
    let mut world = World::new(&["n1", "n2"]);
    world.policy.coschedule.mode = CoscheduleMode::IsolatePipelinerun;
    for run in ["r1", "r2", "r3"] {
        world.run(run, &[], &[]);
        world.member(run, run, 10);
        world.clear("Pod");
    }
    world.settle(LONG);
    let place = |world: &World, run: &str| {
        let name =
            keys::of_run(world.get("PipelineRun", run)["metadata"]["uid"].as_str().unwrap(), "");
        world.node_of(&format!("{name}-0")).map(str::to_owned)
    };
    let places = ["r1", "r2", "r3"].map(|run| place(&world, run));
    assert_eq!(places.iter().flatten().collect::<BTreeSet<_>>().len(), 2);
    let waits = ["r1", "r2", "r3"].into_iter().find(|run| place(&world, run).is_none()).unwrap();
    assert_eq!(world.reported(PIPELINE_RUN, waits), [reason::PLACEHOLDER_NOT_PLACED]);
    let runs = ["r1", "r2", "r3"].into_iter().find(|run| *run != waits).unwrap();
    world.end(runs);
    world.settle(SOON);
    assert!(place(&world, waits).is_some());
}

/// In Tekton's default mode only the TaskRuns say so that use a claim; and Tekton's flag may change while
/// a run continues.
#[test]
fn members_admitted_before_tektons_assistant_was_detected_have_a_placeholder() {
    for exists in [true, false] {
        let mut world = World::with_run(&["n1"]);
        world.member("a", "run", 100);
        if exists {
            world.settle(SOON);
            assert_eq!(world.node_of("a"), Some("n1"));
        }
        world.task_run("b", "run");
        world.assist("b");
        world.settle(SOON);
        assert_eq!(world.node_of("a"), Some("n1"));
        assert_eq!(world.reported(PIPELINE_RUN, "run"), [reason::ASSISTANT_IS_ON]);
        // One that comes meanwhile, too; one that has ended says it as well.
        let ended = json!({"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}});
        world.change("TaskRun", "b", ended);
        world.member("d", "run", 100);
        world.settle(SOON);
        assert_eq!(world.node_of("d"), Some("n1"));
        assert_eq!(world.count("StatefulSet"), 1);
        world.finish("a");
        world.finish("d");
        world.settle(SOON);
        assert!(world.count("StatefulSet") == 0, "no run needs it any more");
        let writes = world.writes.len();
        world.settle(LONG);
        assert_eq!(world.writes.len(), writes);
    }
}

/// An earlier run that is pending, waits for approval, is deleted, is placed by Tekton or has a placeholder
/// that cannot be created delays no other run.
#[test]
fn a_run_that_never_starts_delays_no_other() {
    for mode in [CoscheduleMode::PipelineRuns, CoscheduleMode::IsolatePipelinerun] {
        for what in ["pending", "deleted", "assisted", "group", "failed"] {
            let mut world = World::new(&["n1", "n2"]);
            world.policy.coschedule.mode = mode;
            world.claim("c");
            world.run("first", &["c"], &[]);
            match what {
                "deleted" => world.mark_deleted("PipelineRun", "first"),
                "group" => world.annotate("PipelineRun", "first", keys::GROUP, "g"),
                _ => {}
            }
            if what != "pending" {
                world.task_run("t", "first");
            }
            if what == "assisted" {
                world.assist("t");
            }
            if what == "failed" {
                world.makes_pods = false;
                world.settle(LONG);
                assert_eq!(world.count("StatefulSet"), 1);
            }
            world.wait(1);
            world.run("second", &["c"], &[]);
            world.task_run("u", "second");
            world.settle(SOON);
            let uid = world.get("PipelineRun", "second")["metadata"]["uid"].as_str().unwrap();
            let second = keys::of_run(uid, "");
            assert!(world.has("StatefulSet", &second), "{mode:?}, {what}");
            assert_eq!(world.reported(PIPELINE_RUN, "second"), [""; 0], "{mode:?}, {what}");
            assert_eq!(world.count("StatefulSet"), 1 + usize::from(what == "failed"));
        }
    }
}

/// Who was there first stays where it is, and who was made earlier and begins later comes to it.
#[test]
fn a_run_that_starts_late_follows_the_claim() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.run("first", &["c"], &[]);
    world.wait(1);
    world.run("second", &["c"], &[]);
    world.member("b", "second", 100);
    world.mount("b", "c");
    world.settle(SOON);
    assert_eq!(world.place("second"), Some("n1"));
    world.stranger("s", "n2", 10);
    world.member("a", "first", 100);
    world.settle(SOON);
    assert_eq!((world.place("first"), world.node_of("a")), (Some("n1"), Some("n1")));
    assert_eq!(world.place("second"), Some("n1"));
    assert!(world.reported(PIPELINE_RUN, "second").is_empty(), "{:?}", world.events);
}

/// Its pods carry the annotation as well, and are of that group.
#[test]
fn a_run_that_names_a_group_has_one_placeholder() {
    let mut world = World::with_run(&["n1"]);
    world.annotate("PipelineRun", "run", keys::GROUP, "g");
    world.task_run("t", "run");
    let native = world.native("a", "g");
    world.mount("a", "c");
    world.settle(SOON);
    assert_eq!(world.names("StatefulSet"), [native]);
    assert_eq!(world.node_of("a"), Some("n1"));
}

#[test]
fn a_native_group_and_a_run_with_one_claim_share_a_node() {
    for is_run_first in [true, false] {
        let mut world = World::new(&["n1", "n2"]);
        world.claim("c");
        if is_run_first {
            world.run("run", &["c"], &[]);
            world.member("a", "run", 100);
            world.mount("a", "c");
            world.settle(SOON);
        }
        world.wait(1);
        // Where it would go by itself.
        let other = world.native("b", "g");
        world.mount("b", "c");
        if !is_run_first {
            world.settle(SOON);
            world.run("run", &["c"], &[]);
            world.member("a", "run", 100);
            world.mount("a", "c");
        }
        assert_eq!(world.has("StatefulSet", &other), !is_run_first);
        world.settle(LONG);
        let follower = if is_run_first { other.clone() } else { world.placeholder("run") };
        let bound = &world.get("StatefulSet", &follower)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
        assert!(bound.to_string().contains("n1"), "{bound}");
        assert_eq!((world.node_of("a"), world.node_of("b")), (Some("n1"), Some("n1")));
        let leads = if is_run_first { world.placeholder("run") } else { other.clone() };
        let leading = &world.get("StatefulSet", &leads)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
        assert!(leading.is_null(), "{leading}");
    }
}

#[test]
fn two_native_groups_with_one_claim_share_a_node_from_the_start() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    for (pod, group) in [("a", "g"), ("b", "h")] {
        world.native(pod, group);
        world.mount(pod, "c");
    }
    world.settle(LONG);
    assert_eq!((world.node_of("a"), world.node_of("b")), (Some("n1"), Some("n1")));
    assert_eq!(world.writes.len(), 2, "{:?}", world.writes);
    let bound = |set: &&Value| {
        let affinity = &set["spec"]["template"]["spec"]["affinity"];
        affinity["nodeAffinity"].to_string().contains("n1")
    };
    assert_eq!(world.all("StatefulSet").filter(bound).count(), 1, "the second to the first's node");
}

/// An owner reference and a label are their authors' words.
#[test]
fn forged_owner_references_in_another_namespace_have_no_effect() {
    let mut world = World::with_run(&["n1", "n2"]);
    world.member("a", "run", 100);
    world.clear("Pod");
    let uid = world.get("PipelineRun", "run")["metadata"]["uid"].clone();
    let own = world.placeholder("run");
    for (namespace, name) in [("evil", &*own), (NAMESPACE, "affinity-assistant-0000000000")] {
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {
                "name": name, "namespace": namespace,
                "labels": {keys::PLACEHOLDER: name},
                "annotations": {keys::MODE: "disabled", keys::RECORD: r#"{"key":"c"}"#},
                "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "run",
                    "uid": uid, "controller": true}],
            },
            "spec": {"template": {"metadata": {}, "spec": {"containers": []}}, "selector": {}, "serviceName": ""},
        });
        world.store.create(set).unwrap();
    }
    let plan = world.plan();
    let made: Vec<_> = plan
        .actions
        .iter()
        .filter(|action| matches!(action.write, Write::Create(_)))
        .map(|action| (&*action.target.namespace, &*action.target.name))
        .collect();
    assert_eq!(made, [(NAMESPACE, &*own)]);

    // A TaskRun of another namespace neither begins nor assists a run.
    let mut world = World::with_run(&["n1"]);
    world.task_run("t", "run");
    world.assist("t");
    let mut forged = world.get("TaskRun", "t").clone();
    world.remove("TaskRun", "t");
    forged["metadata"]["namespace"] = json!("evil");
    world.store.create(forged).unwrap();
    world.settle(SOON);
    assert!(world.writes.is_empty() && world.events.is_empty(), "{:?}", world.events);
}
