//! Placeholders are made, missed and deleted.

use serde_json::json;

use super::simulator::{NAMESPACE, World};
use super::{LONG, SOON, begun, reserved};
use crate::policy::Repair;
use crate::systems::coschedule::keys;
use crate::systems::coschedule::kinds::CoscheduleView as _;
use crate::systems::coschedule::policy::Volumes;
use crate::systems::coschedule::reconcile::reason;
use crate::systems::coschedule::resources::PIPELINE_RUN;
use crate::view::Name;
use crate::view::resource::POD;

#[test]
fn a_run_has_a_placeholder_from_its_first_task_to_its_end() {
    let mut world = World::new(&["n1", "n2"]);
    world.run("run", &[], &["source", "cache"]);
    world.settle(SOON);
    assert!(world.count("StatefulSet") == 0, "no task yet");
    world.member("a", "run", 100);
    world.settle(SOON);
    world.member("b", "run", 100);
    world.settle(SOON);
    assert_eq!((world.node_of("a"), world.node_of("b")), (world.place("run"), world.place("run")));
    assert!(world.place("run").is_some());
    let set = &world.get("StatefulSet", &world.placeholder("run"));
    let volumes = set["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    assert_eq!(volumes.len(), 2);
    assert_eq!(world.writes.len(), 1, "{:?}", world.writes);
    world.finish("a");
    world.finish("b");
    world.end("run");
    world.settle(LONG);
    assert!(world.count("StatefulSet") == 0);
    assert_eq!(world.writes.len(), 2, "{:?}", world.writes);
    assert!(world.events.is_empty(), "{:?}", world.events);
}

#[test]
fn a_kept_class_that_binds_at_once_is_reported_if_it_matters() {
    for (of_claim, templates, is_reported) in [
        ("alone", &["a", "b"][..], true),
        // Volumes cannot lie apart where there is one.
        ("alone", &["a"], false),
        ("has-sibling", &["a", "b"], false),
        ("waits", &["a", "b"], false),
        ("mapped", &["a", "b"], false),
        ("mapped-to-nothing", &["a"], true),
        ("unknown", &["a", "b"], false),
    ] {
        let mut world = World::new(&["n1"]);
        for (name, kind, mode) in [
            ("alone", "1", "Immediate"),
            ("has-sibling", "2", "Immediate"),
            ("waits", "2", "WaitForFirstConsumer"),
            ("mapped", "3", "Immediate"),
            ("mapped-to-nothing", "4", "Immediate"),
        ] {
            let class = json!({"provisioner": "example.com/disk", "parameters": {"kind": kind},
                "volumeBindingMode": mode});
            world.create("StorageClass", name, class);
        }
        let map = [("mapped", "waits"), ("mapped-to-nothing", "no-such-class")];
        world.policy.coschedule.class_map =
            map.map(|(from, to)| (from.to_owned(), to.to_owned())).into();
        world.run("run", &[], templates);
        world.class(of_claim);
        world.member("a", "run", 100);
        world.settle(SOON);
        let wanted: &[_] = if is_reported { &[reason::CLASS_BINDS_AT_ONCE] } else { &[] };
        assert_eq!(
            world.reported(PIPELINE_RUN, "run"),
            wanted,
            "{of_claim}, {templates:?}: {:?}",
            world.events
        );
    }
}

#[test]
fn no_placeholder_is_created_for_runs_that_opt_out() {
    let mut world = World::new(&["n1"]);
    world.run("off", &["c"], &[]);
    world.run("assisted", &["c"], &[]);
    world.run("free", &[], &[]);
    world.run("wrong", &["c"], &[]);
    world.run("ended", &["c"], &[]);
    world.run("going", &["c"], &[]);
    for run in ["off", "assisted", "wrong", "ended", "going"] {
        world.member(&format!("{run}-pod"), run, 100);
        world.clear("Pod");
    }
    world.annotate("PipelineRun", "off", keys::MODE, "disabled");
    world.annotate("PipelineRun", "wrong", keys::MODE, "pipeline-runs");
    world.end("ended");
    world.mark_deleted("PipelineRun", "going");
    world.assist("assisted-pod");
    world.settle(LONG);
    assert!(world.writes.is_empty(), "{:?}", world.writes);
    assert_eq!(world.reported(PIPELINE_RUN, "assisted"), [reason::ASSISTANT_IS_ON]);
    assert_eq!(world.reported(PIPELINE_RUN, "wrong"), ["InvalidMode"]);
    assert_eq!(world.events.len(), 2);

    world.annotate("PipelineRun", "off", keys::MODE, "workspaces");
    world.policy.coschedule.enabled = false;
    world.settle(LONG);
    assert!(world.writes.is_empty(), "the policy turns it off");
    world.policy.coschedule.enabled = true;
    world.policy.excluded_namespaces.insert(NAMESPACE.to_owned());
    world.settle(LONG);
    assert!(world.writes.is_empty(), "the namespace is left alone");
    world.policy.excluded_namespaces.clear();
    world.settle(SOON);
    assert_eq!(world.count("StatefulSet"), 1);
}

/// By kube-downscaler, or by hand.
#[test]
fn the_size_of_a_placeholder_is_restored() {
    let mut world = reserved(&["n1"]);
    for size in [0, 2] {
        let placeholder = world.placeholder("run");
        world.edit("StatefulSet", &placeholder)["spec"]["replicas"] = json!(size);
        let writes = world.writes.len();
        world.settle(LONG);
        assert_eq!(world.get("StatefulSet", &placeholder)["spec"]["replicas"], 1);
        assert_eq!(world.place("run"), Some("n1"));
        assert_eq!(world.writes.len(), writes + 1, "{:?}", world.writes);
        assert!(world.events.is_empty(), "{:?}", world.events);
    }
}

#[test]
fn a_native_group_outlives_its_last_pod_for_a_while() {
    let mut world = World::new(&["n1"]);
    let name = world.native("a", "group");
    world.settle(SOON);
    assert_eq!(world.node_of("a"), Some("n1"));
    world.finish("a");
    world.settle(60);
    assert!(world.has("StatefulSet", &name), "the next pod may come");
    world.native("b", "group");
    world.settle(LONG);
    assert!(world.has("StatefulSet", &name));
    assert_eq!(world.node_of("b"), Some("n1"));
    world.remove("Pod", "b");
    world.settle(299);
    assert!(world.has("StatefulSet", &name), "{:?}", world.names("StatefulSet"));
    world.settle(10);
    assert!(world.count("StatefulSet") == 0);
    assert_eq!(world.writes.len(), 5, "made, idle, not idle, idle, removed: {:?}", world.writes);
}

/// `kubectl delete -f` of a group with its claim must not wait until the placeholder is no longer kept.
#[test]
fn a_claim_that_is_being_deleted_ends_a_group_without_pods_at_once() {
    let mut world = World::new(&["n1"]);
    let name = world.native("a", "group");
    world.claim("c");
    let volume = json!({"spec": {"volumes": [
        {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}});
    world.change("Pod", "a", volume);
    world.settle(SOON);
    assert_eq!(world.node_of("a"), Some("n1"));
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    world.change("PersistentVolumeClaim", "c", deleted);
    world.settle(SOON);
    assert!(world.has("StatefulSet", &name), "its pod still runs");
    world.finish("a");
    world.settle(SOON);
    assert!(world.count("StatefulSet") == 0, "{:?}", world.names("StatefulSet"));
}

#[test]
fn a_label_alone_creates_no_group() {
    let mut world = World::new(&["n1"]);
    world.native("a", "group");
    world.edit("Pod", "a")["metadata"]["labels"][keys::MEMBER] =
        json!("affinity-assistant-0000000000");
    world.settle(LONG);
    assert!(world.writes.is_empty(), "{:?}", world.writes);
}

#[test]
fn placeholders_without_an_owner_are_deleted_and_foreign_objects_kept() {
    let mut world = World::new(&["n1"]);
    let own = json!({"spec": {"template": {"metadata": {}, "spec": {"containers": []}}, "selector": {}, "serviceName": ""}});
    for name in ["affinity-assistant-0000000000", "mine"] {
        let mut set = own.clone();
        set["metadata"] = json!({"labels": {keys::PLACEHOLDER: name}});
        world.create("StatefulSet", name, set);
    }
    world.settle(SOON);
    assert_eq!(world.names("StatefulSet"), ["mine"]);
}

#[test]
fn a_recreated_run_of_the_same_name_has_a_new_placeholder() {
    let mut world = begun(&["n1"]);
    let old = world.placeholder("run");
    world.remove("Pod", "a");
    world.remove("PipelineRun", "run");
    world.run("run", &["c"], &[]);
    world.member("b", "run", 100);
    world.settle(SOON);
    assert_ne!(world.placeholder("run"), old);
    assert_eq!(world.names("StatefulSet"), [world.placeholder("run")]);
    assert_eq!(world.node_of("b"), Some("n1"));
}

#[test]
fn members_of_a_failed_placeholder_are_reported_and_recreated() {
    for repair in [Repair::Report, Repair::RecreatePending] {
        let mut world = World::new(&["n1"]);
        world.policy.repair = repair;
        world.makes_pods = false;
        world.claim("c");
        world.run("run", &["c"], &[]);
        world.member("a", "run", 100);
        world.settle(50);
        assert!(world.events.is_empty(), "{:?}", world.events);
        world.settle(LONG);
        let name = Name::new(NAMESPACE, &world.placeholder("run"));
        assert!(world.view().placeholder(&name).unwrap().failed, "for the webhook");
        assert_eq!(world.reported(PIPELINE_RUN, "run"), [reason::PLACEHOLDER_NOT_MADE]);
        // Whatever the policy's `repair` is: it would run without stowplan.
        assert!(!world.has("Pod", "a"), "{repair:?}");
        assert_eq!(world.reported(POD, "a"), [reason::PLACEHOLDER_NOT_MADE, reason::RECREATED]);
        let writes = world.writes.len();
        assert!(writes <= 4, "{:?}", world.writes);
        // The quota is raised.
        world.makes_pods = true;
        world.settle(LONG);
        assert!(!world.view().placeholder(&name).unwrap().failed);
        assert_eq!(world.writes.len(), writes + 1);
    }
}

/// A controller of Kubernetes creates a pod again as a TaskRun does; a bare one is not created again.
#[test]
fn members_of_a_native_group_without_a_placeholder_get_a_way_on() {
    for owner in ["ReplicaSet", "Example", ""] {
        let mut world = World::new(&["n1"]);
        world.makes_pods = false;
        world.native("a", "g");
        if !owner.is_empty() {
            let owner = json!({"apiVersion": "v1", "kind": owner, "name": "o", "uid": "o", "controller": true});
            world.edit("Pod", "a")["metadata"]["ownerReferences"] = json!([owner]);
        }
        let grace = i64::try_from(world.policy.coschedule.grace_period.length().as_secs()).unwrap();
        // 30 s to the first mark, 30 s to the second.
        world.settle(60 + grace - 1);
        assert!(world.has("Pod", "a"), "{owner}");
        world.settle(LONG);
        assert_eq!(world.has("Pod", "a"), owner != "ReplicaSet", "{owner}");
        let notes: Vec<_> = world.events.iter().map(|(_, event)| &*event.note).collect();
        let said = match owner {
            "ReplicaSet" => "deleted, so that its owner creates it again",
            _ => "delete it and create it without annotation stowplan.dev/coschedule-group",
        };
        assert!(notes.iter().any(|note| note.ends_with(said)), "{notes:?}");
    }
}

/// If the webhook does not see that there is no placeholder, the new pods wait, too.
#[test]
fn members_that_come_back_are_released_with_growing_pauses() {
    let mut world = World::new(&["n1"]);
    world.makes_pods = false;
    let mut released = 0;
    for minute in 0..240 {
        if !world.has("Pod", "a") {
            world.native("a", "g");
            let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "o", "controller": true});
            world.edit("Pod", "a")["metadata"]["ownerReferences"] = json!([owner]);
            released += u32::from(minute > 0);
        }
        world.settle(60);
    }
    assert!((3..=9).contains(&released), "{released}: {:?}", world.writes);
}

/// Its own pod has taken the last place of a quota.
#[test]
fn a_placeholder_steps_aside_for_pods_that_a_quota_refuses() {
    let mut world = World::new(&["n1", "n2"]);
    for (run, claim) in [("one", "c"), ("two", "d")] {
        world.claim(claim);
        world.run(run, &[claim], &[]);
        world.refuse_pod(&format!("{run}-a"), run);
    }
    let pods = |world: &World| {
        ["one", "two"].map(|run| world.has("Pod", &format!("{}-0", world.placeholder(run))))
    };
    let grace = i64::try_from(world.policy.coschedule.grace_period.length().as_secs()).unwrap();
    world.settle(grace - 1);
    assert_eq!(pods(&world), [true, true]);
    // One at a time: its place may be enough.
    world.settle(2);
    assert_eq!(pods(&world).iter().filter(|it| **it).count(), 1);
    let (first, second) = if pods(&world)[0] { ("two", "one") } else { ("one", "two") };
    assert_eq!(world.reported(PIPELINE_RUN, first), [reason::PLACEHOLDER_STEPPED_ASIDE]);
    let name = Name::new(NAMESPACE, &world.placeholder(first));
    assert!(world.view().placeholder(&name).unwrap().failed, "for the webhook");
    world.settle(grace);
    assert_eq!(pods(&world), [false, false]);
    assert_eq!(world.reported(PIPELINE_RUN, second), [reason::PLACEHOLDER_STEPPED_ASIDE]);
    // Nothing else is written until the runs end.
    let writes = world.writes.len();
    for task_run in world.names("TaskRun") {
        world.change("TaskRun", &task_run, json!({"status": {"conditions": null}}));
    }
    world.settle(LONG);
    assert_eq!(world.writes.len(), writes, "{:?}", world.writes);
    world.end("one");
    world.end("two");
    world.settle(SOON);
    assert!(world.count("StatefulSet") == 0);
}

/// A claim of the placeholder's own is made with it: there is nothing to come back with.
#[test]
fn members_that_need_a_claim_of_a_failed_placeholder_are_reported_and_kept() {
    let mut world = World::new(&["n1"]);
    world.policy.repair = Repair::RecreatePending;
    world.policy.coschedule.volumes = Volumes::Provision;
    world.makes_pods = false;
    world.run("run", &[], &["source"]);
    let claim = world.own_claim();
    world.class(keys::PARKED);
    world.member("a", "run", 100);
    world.mount("a", &keys::provisioned(&claim, &world.placeholder("run")));
    let uid = world.get("Pod", "a")["metadata"]["uid"].clone();
    world.settle(LONG);
    assert_eq!(world.reported(POD, "a"), [reason::PLACEHOLDER_NOT_MADE]);
    assert_eq!(world.get("Pod", "a")["metadata"]["uid"], uid);
    assert!(world.writes.len() <= 3, "{:?}", world.writes);
}

#[test]
fn a_forgotten_member_is_woken_if_it_fits() {
    let mut world = World::with_run(&["n1"]);
    world.member("a", "run", 100);
    world.member("large", "run", 2_000);
    world.settle(SOON);
    // The scheduler has not looked again.
    for name in ["a", "large"] {
        world.unbind(name);
        let since = world.store.timestamp();
        world.edit("Pod", name)["status"] = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled",
            "status": "False", "reason": "Unschedulable", "lastTransitionTime": since}]});
    }
    world.wait(11);
    assert!(world.plan().actions.is_empty(), "the scheduler's own turn");
    world.wait(1);
    let plan = world.plan();
    let woken: Vec<_> = plan.actions.iter().map(|action| &*action.target.name).collect();
    assert_eq!(woken, ["a"]);
    assert_eq!(plan.actions[0].events[0].reason, "Woken");
}
