//! Placeholders are made, missed and deleted.

use super::*;

/// The grace period of the default policy.
pub(super) const GRACE: i64 = 30;

/// The classes that are kept: `fixtures/coschedule/claim-*`.
#[test]
fn a_kept_class_that_binds_at_once_is_reported_if_it_matters() {
    let classes = [
        ("alone", "1", "Immediate"),
        ("has-sibling", "2", "Immediate"),
        ("waits", "2", "WaitForFirstConsumer"),
        ("mapped-to-nothing", "3", "Immediate"),
    ];
    for (of_claim, templates, is_reported) in [
        ("alone", &["a", "b"][..], true),
        // Volumes cannot lie apart where there is one.
        ("alone", &["a"], false),
        ("has-sibling", &["a", "b"], false),
        ("mapped-to-nothing", &["a"], true),
    ] {
        let mut world = World::new(&["n1"]);
        for (name, kind, mode) in classes {
            let class = json!({"provisioner": "example.com/disk", "parameters": {"kind": kind},
                "volumeBindingMode": mode});
            world.create("StorageClass", name, class);
        }
        world.policy.coschedule.class_map =
            [("mapped-to-nothing".to_owned(), "no-such-class".to_owned())].into();
        world.run("run", &[], templates).class(of_claim).member("a", "run", 100).settle(SOON);
        let wanted: &[_] = if is_reported { &[reason::CLASS_BINDS_AT_ONCE] } else { &[] };
        assert_eq!(world.reported(PIPELINE_RUN, "run"), wanted, "{of_claim}, {templates:?}");
    }
}

#[test]
fn no_placeholder_is_created_for_runs_that_opt_out() {
    let mut world = World::new(&["n1"]);
    world.run("free", &[], &[]);
    for run in ["off", "assisted", "wrong", "ended", "going"] {
        world.run(run, &["c"], &[]).task_run(&format!("{run}-pod"), run);
    }
    world.annotate("PipelineRun", "off", keys::MODE, "disabled");
    world.annotate("PipelineRun", "wrong", keys::MODE, "pipeline-runs");
    world.end("ended").mark_deleted("PipelineRun", "going").assist("assisted-pod").settle(LONG);
    assert!(world.writes.is_empty(), "{:?}", world.writes);
    world.expect_events(PIPELINE_RUN, "assisted", &[reason::ASSISTANT_IS_ON]);
    world.expect_events(PIPELINE_RUN, "wrong", &["InvalidMode"]);
    assert_eq!(world.events.len(), 2);

    world.annotate("PipelineRun", "off", keys::MODE, "workspaces");
    world.policy.coschedule.enabled = false;
    world.expect_rest();
    world.policy.coschedule.enabled = true;
    world.policy.excluded_namespaces.insert(NAMESPACE.to_owned());
    world.expect_rest();
    world.policy.excluded_namespaces.clear();
    world.member("a", "off", 100).settle(SOON);
    assert_eq!(world.count("StatefulSet"), 1);
}

/// The policy's mode applies, because the author of a run cannot mend its namespace.
#[test]
fn a_mode_of_the_namespace_that_is_none_is_reported_and_does_not_count() {
    let mut world = World::new(&["n1"]);
    world.run("run", &["c"], &[]);
    world.namespace_mode("pipeline-runs");
    world.member("a", "run", 100).settle(SOON);
    assert_eq!(world.count("StatefulSet"), 1);
    assert_eq!(world.reported(PIPELINE_RUN, "run"), ["InvalidMode"]);
}

/// A quota of StatefulSets, or a policy about them.
#[test]
fn the_members_of_a_refused_placeholder_run_on_one_node_without_it() {
    let mut world = World::with_run(&["n1", "n2"]);
    world.forbidden.push("StatefulSet");
    world.member("a", "run", 100).member("b", "run", 100).settle(SOON).expect("a:n1 b:n1");
    assert_eq!(world.reported(PIPELINE_RUN, "run"), [reason::PLACEHOLDER_NOT_MADE]);
    assert_eq!(world.reported(POD, "a"), [reason::PLACEHOLDER_NOT_MADE]);
    // The next task waits behind its gate for a moment.
    world.finish("a").member("c", "run", 100).settle(SOON).expect("c:n1");
    world.finish("b").finish("c");
    world.cordon("n1", true).member("d", "run", 100).expect_stays("d:n2");

    // Once it can be created, the placeholder joins them, and members follow it as ever.
    world.cordon("n1", false).forbidden.clear();
    world.member("e", "run", 100).settle(SOON).expect("d:n2 e:n2 run:n2");
    let labels = &world.get("Pod", "e")["metadata"]["labels"];
    assert!(labels[keys::INSTANCE].is_null(), "{labels}");
    world.finish("d").finish("e").end("run").settle(LONG);
    assert_eq!(world.count("StatefulSet"), 0);
}

/// Its anti-affinity selects the label that they have as well.
#[test]
fn an_isolated_placeholder_joins_members_that_run_without_it() {
    let mut world = World::with_run(&["n1", "n2"]);
    world.namespace_mode("isolate-pipelinerun");
    world.forbidden.push("StatefulSet");
    world.member("a", "run", 100).settle(SOON).expect("a:n1");
    world.forbidden.clear();
    // Another run keeps away from them.
    world.claim("other").run("later", &["other"], &[]).member("z", "later", 100);
    world.member("b", "run", 100).settle(SOON).expect("a:n1 run:n1 b:n1 later:n2 z:n2");
}

/// One at a time, because nothing else shows where the first will be.
#[test]
fn members_that_are_bound_by_name_go_where_the_first_is_if_the_placeholder_is_refused() {
    let mut world = World::with_run(&["n1", "n2"]);
    world.forbidden.push("StatefulSet");
    world.gated("a", "run").gated("b", "run").settle(SOON).expect("a:n1 b:n1");
    let gates = world.writes.iter().filter(|write| *write == "patch Pod b").count();
    assert_eq!(gates, 1);
    // On a closed node it would wait for ever.
    world.cordon("n1", true).gated("c", "run").settle(LONG).expect("c:");
    world.finish("a").finish("b").settle(SOON).expect("c:n2");
}

#[test]
fn a_refused_placeholder_lets_in_only_those_that_can_run_without_it() {
    let other = json!({"metadata": {"labels": {keys::INSTANCE: "shop"}}});
    let mut world = World::new(&["n1"]);
    world.forbidden.push("StatefulSet");
    // A ReplicaSet may know its pods by the label, and would replace one that has lost it.
    world.native("a", "g").change("Pod", "a", other.clone()).expect_stays("a:");
    // Tekton does not.
    world.claim("c").run("run", &["c"], &[]).member("b", "run", 100).change("Pod", "b", other);
    world.settle(SOON).expect("b:n1");
    // Only the StatefulSet makes the claim.
    world.policy.coschedule.volumes = Volumes::Provision;
    world.run("made", &[], &["t"]);
    let (claim, placeholder) = (world.own_claim(), world.placeholder("made"));
    world.class(keys::PARKED).member("d", "made", 100);
    world.mount("d", &keys::provisioned(&claim, &placeholder)).expect_stays("d:");
    assert!(world.events.iter().any(|(_, event)| event.note.contains("but for those")));
}

#[test]
fn groups_that_share_a_claim_share_a_node_without_placeholders() {
    let mut world = World::with_run(&["n1", "n2"]);
    world.forbidden.push("StatefulSet");
    world.run("later", &["c"], &[]).member("a", "run", 100).settle(SOON).expect("a:n1");
    world.member("z", "later", 100).settle(SOON).expect("a:n1 z:n1");
    // By the node's name: its own pod affinity would let it run on any.
    assert!(world.get("Pod", "z")["spec"].to_string().contains("metadata.name"));
    world.forbidden.clear();
    world.member("y", "later", 100).settle(SOON).expect("run:n1 later:n1 y:n1");
}

/// The groups that a refused creation does not concern.
#[test]
fn members_that_wait_for_leaders_stay_behind_their_gates() {
    let mut world = World::with_run(&["n1", "n2"]);
    world.member("a", "run", 100).settle(SOON).expect("run:n1").evict("run");
    world.cordon("n1", true).cordon("n2", true);
    world.forbidden.push("StatefulSet");
    world.run("later", &["c"], &[]).member("z", "later", 100).expect_stays("z:");
    world.expect_events(PIPELINE_RUN, "later", &[reason::SHARED_CLAIM]);
}

/// By kube-downscaler, or by hand.
#[test]
fn the_size_of_a_placeholder_is_restored() {
    let mut world = reserved(&["n1"]);
    for size in [0, 2] {
        let placeholder = world.placeholder("run");
        let writes = world.writes.len();
        world.change("StatefulSet", &placeholder, json!({"spec": {"replicas": size}}));
        world.settle(LONG).expect("run:n1");
        assert_eq!(world.get("StatefulSet", &placeholder)["spec"]["replicas"], 1);
        assert_eq!(world.writes.len(), writes + 1, "{:?}", world.writes);
        assert!(world.events.is_empty(), "{:?}", world.events);
    }
}

#[test]
fn a_native_group_outlives_its_last_pod_for_a_while() {
    let mut world = grouped(&["n1"]);
    world.expect("a:n1").finish("a").settle(60);
    assert_eq!(world.count("StatefulSet"), 1, "the next pod may come");
    world.native("b", "g").settle(LONG).expect("b:n1");
    world.remove("Pod", "b").settle(299);
    assert_eq!(world.count("StatefulSet"), 1);
    world.settle(10);
    assert_eq!(world.count("StatefulSet"), 0);
    let writes = &world.writes;
    assert_eq!(writes.len(), 7, "made, shrunk, let in, idle, not idle, idle, removed: {writes:?}");
}

/// `kubectl delete -f` of a group with its claim must not wait until the placeholder is no longer kept.
#[test]
fn a_claim_that_is_being_deleted_ends_a_group_without_pods_at_once() {
    let mut world = World::new(&["n1"]);
    world.claim("c").native("a", "g").mount("a", "c").settle(SOON).expect("a:n1");
    world.mark_deleted("PersistentVolumeClaim", "c").settle(SOON);
    assert_eq!(world.count("StatefulSet"), 1, "its pod still runs");
    world.finish("a").settle(SOON);
    assert_eq!(world.count("StatefulSet"), 0);
}

#[test]
fn a_label_alone_creates_no_group() {
    let mut world = World::new(&["n1"]);
    let label = json!({keys::MEMBER: "affinity-assistant-0000000000"});
    world.native("a", "g").ungate("a").label("a", label).expect_rest();
}

#[test]
fn placeholders_without_an_owner_are_deleted_and_foreign_objects_kept() {
    let mut world = World::new(&["n1"]);
    for name in ["affinity-assistant-0000000000", "mine"] {
        let set = json!({"metadata": {"labels": {keys::PLACEHOLDER: name}}, "spec": {"selector": {}, "serviceName": "",
            "template": {"metadata": {}, "spec": {"containers": []}}}});
        world.create("StatefulSet", name, set);
    }
    world.settle(SOON);
    assert_eq!(world.names("StatefulSet"), ["mine"]);
}

#[test]
fn members_of_a_failed_placeholder_are_reported_and_recreated() {
    for repair in [Repair::Report, Repair::RecreatePending] {
        let mut world = World::with_run(&["n1"]);
        world.policy.repair = repair;
        world.makes_pods = false;
        world.member("a", "run", 100).settle(30);
        assert!(world.events.is_empty(), "{:?}", world.events);
        world.settle(LONG);
        assert!(known(&mut world, "run").failed);
        world.expect_events(PIPELINE_RUN, "run", &[reason::PLACEHOLDER_NOT_MADE]);
        // Whatever the policy's `repair` is: it would run without stowplan.
        assert!(!world.has("Pod", "a"), "{repair:?}");
        world.expect_events(POD, "a", &[reason::PLACEHOLDER_NOT_MADE, reason::RECREATED]);
        let writes = world.writes.len();
        assert!(writes <= 5, "{:?}", world.writes);
        // The quota is raised.
        world.makes_pods = true;
        world.settle(LONG);
        assert!(!known(&mut world, "run").failed);
        assert_eq!(world.writes.len(), writes + 1);
    }
}

/// A controller of Kubernetes creates a pod again as a TaskRun does; a bare one is not created again.
#[test]
fn members_of_a_native_group_without_a_placeholder_get_a_way_on() {
    for owner in ["ReplicaSet", "Example", ""] {
        let mut world = World::new(&["n1"]);
        world.makes_pods = false;
        let owners = if owner.is_empty() { Value::Null } else { controlled_by(owner) };
        world.native("a", "g").change("Pod", "a", json!({"metadata": {"ownerReferences": owners}}));
        // 5 s with room, 30 s without.
        assert!(world.settle(35 + GRACE - 1).has("Pod", "a"), "{owner}");
        assert_eq!(world.settle(LONG).has("Pod", "a"), owner != "ReplicaSet", "{owner}");
        let said = match owner {
            "ReplicaSet" => "deleted, so that its owner creates it again",
            _ => "delete it and create it again, so that it needs none",
        };
        let mut events = world.events.iter();
        assert!(events.any(|(_, event)| event.note.ends_with(said)), "{:?}", world.events);
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
            let owners = controlled_by("ReplicaSet");
            world.native("a", "g").edit("Pod", "a")["metadata"]["ownerReferences"] = owners;
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
        world.claim(claim).run(run, &[claim], &[]).reserve(run);
    }
    world.refuse_pod("one-a", "one").refuse_pod("two-a", "two");
    let pods =
        |world: &World| ["one", "two"].map(|run| world.has("Pod", &world.placeholder_pod(run)));
    assert_eq!(pods(world.settle(GRACE - 1)), [true, true]);
    // One at a time: its place may be enough.
    world.settle(2);
    assert_eq!(pods(&world).iter().filter(|it| **it).count(), 1);
    let (first, second) = if pods(&world)[0] { ("two", "one") } else { ("one", "two") };
    world.expect_events(PIPELINE_RUN, first, &[reason::PLACEHOLDER_STEPPED_ASIDE]);
    assert!(known(&mut world, first).failed);
    assert_eq!(pods(world.settle(GRACE)), [false, false]);
    world.expect_events(PIPELINE_RUN, second, &[reason::PLACEHOLDER_STEPPED_ASIDE]);
    // Nothing else is written until the runs end.
    for task_run in world.names("TaskRun") {
        world.change("TaskRun", &task_run, json!({"status": {"conditions": null}}));
    }
    world.expect_rest().end("one").end("two").settle(SOON);
    assert_eq!(world.count("StatefulSet"), 0);
}

/// As the webhook admits them then: they require the label of members, which they have themselves.
#[test]
fn members_without_a_placeholder_stay_together_and_are_woken() {
    let mut world = reserved(&["n1", "n2"]);
    world.policy.repair = Repair::RecreatePending;
    world.refuse_pod("refused", "run").settle(2 * GRACE).remove("TaskRun", "refused");
    assert!(known(&mut world, "run").failed);
    for (name, cpu) in [("a", 600), ("b", 300), ("large", 800)] {
        world.member(name, "run", cpu).beside_others(name);
    }
    world.settle(LONG).expect("a:n1 b:n1 large:").finish("a").settle(LONG).expect("large:");
    // The scheduler does not try it again by itself.
    world.finish("b").settle(60);
    assert!(world.node_of("large").is_some(), "{:?}", world.writes);
    assert!(!world.writes.iter().any(|write| write.starts_with("delete")), "{:?}", world.writes);
}

/// A wake-up does not help as long as the scheduler counts the pod on the lost node.
#[test]
fn a_member_is_not_woken_while_one_on_a_lost_node_still_exists() {
    let mut world = reserved(&["n1", "n2"]);
    world.policy.repair = Repair::RecreatePending;
    world.refuse_pod("refused", "run").settle(2 * GRACE).remove("TaskRun", "refused");
    world.member("a", "run", 600).beside_others("a").settle(SOON).expect("a:n1");
    world.ready("n1", false).mark_deleted("Pod", "a");
    world.member("b", "run", 300).beside_others("b");
    let before = world.writes.len();
    world.settle(LONG).expect("a:n1 b:");
    assert_eq!(world.writes[before..], [] as [String; 0]);
    world.remove("Pod", "a").settle(60);
    assert!(world.node_of("b").is_some(), "{:?}", world.writes);
}

/// A claim of the placeholder's own is made with it: there is nothing to come back with.
#[test]
fn members_that_need_a_claim_of_a_failed_placeholder_are_reported_and_kept() {
    let mut world = World::new(&["n1"]);
    world.policy.repair = Repair::RecreatePending;
    world.policy.coschedule.volumes = Volumes::Provision;
    world.makes_pods = false;
    world.run("run", &[], &["source"]).class(keys::PARKED).member("a", "run", 100);
    let claim = keys::provisioned(&world.own_claim(), &world.placeholder("run"));
    let uid = world.mount("a", &claim).uid("Pod", "a");
    world.settle(LONG).expect_events(POD, "a", &[reason::PLACEHOLDER_NOT_MADE]);
    assert_eq!(world.uid("Pod", "a"), uid);
    assert!(world.writes.len() <= 4, "{:?}", world.writes);
}

#[test]
fn a_forgotten_member_is_woken_if_it_fits() {
    let mut world = World::with_run(&["n1"]);
    world.member("a", "run", 100).settle(SOON).member("large", "run", 2_000).settle(SOON);
    // The scheduler has not looked again.
    for name in ["a", "large"] {
        let since = world.store.timestamp();
        world.unbind(name).edit("Pod", name)["status"] = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since}]});
    }
    assert!(world.wait(11).plan().actions.is_empty(), "the scheduler's own turn");
    let plan = world.wait(1).plan();
    let woken: Vec<_> = plan.actions.iter().map(|action| &*action.target.name).collect();
    assert_eq!(woken, ["a"]);
    assert_eq!(plan.actions[0].events[0].reason, "Woken");
}
