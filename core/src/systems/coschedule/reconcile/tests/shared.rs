//! Groups that share claims or nodes with others.

use std::collections::BTreeSet;

use super::*;
use crate::systems::coschedule::policy::CoscheduleMode;

/// Two nodes, and two runs with one claim, of which the one named `first` was created a second earlier.
fn two_runs(mode: CoscheduleMode) -> World {
    let mut world = World::new(&["n1", "n2"]);
    world.policy.coschedule.mode = mode;
    world.claim("c").run("first", &["c"], &[]).wait(1).run("second", &["c"], &[]);
    world
}

#[test]
fn a_run_follows_the_earlier_one_with_its_claim() {
    let mut world = two_runs(CoscheduleMode::Workspaces);
    world.reserve("first").reserve("second").expect("first:n1 second:n1");
    world.cordon("n1", true).settle(LONG).expect("first:n2 second:n2");
    // No run leads it any more.
    world.end("first").settle(SOON).cordon("n1", false).cordon("n2", true);
    world.settle(LONG).expect("second:n1");
}

#[test]
fn isolated_runs_with_one_claim_wait_for_each_other() {
    let mut world = two_runs(CoscheduleMode::IsolatePipelinerun);
    world.reserve("first").member("d", "second", 100).settle(LONG).expect("first:n1");
    assert_eq!(world.names("StatefulSet"), [world.placeholder("first")]);
    world.expect_events(PIPELINE_RUN, "second", &[reason::SHARED_CLAIM]);
    world.expect_events(TASK_RUN, "d", &[reason::SHARED_CLAIM]);
    world.expect_events(POD, "d", &[reason::SHARED_CLAIM]);
    world.end("first").settle(SOON);
    assert!(world.node_of("d").is_some());
}

/// Else the later run's pods would be on one node with the claim, and the earlier one's on another.
#[test]
fn a_leader_does_not_leave_while_a_follower_uses_the_claim() {
    let mut world = two_runs(CoscheduleMode::Workspaces);
    world.reserve("first").member("b", "second", 100).mount("b", "c");
    world.settle(SOON).expect("first:n1 b:n1").cordon("n1", true).member("d", "first", 100);
    world.settle(LONG).expect("first:n1 second:n1");
    assert!(world.reported(POD, "d").contains(&reason::WAITS_FOR_MEMBERS), "{:?}", world.events);
    world.finish("b").settle(SOON).expect("first:n2 d:n2");
    world.settle(LONG).expect("second:n2");
}

/// Two runs with a claim each, one on `n1` and one on `n2`; and one with both claims.
#[test]
fn a_run_that_shares_claims_with_runs_on_two_nodes_waits_until_one_has_ended() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    world.claim("x").claim("y").run("first", &["x"], &[]).run("second", &["y"], &[]);
    world.member("a", "first", 100).mount("a", "x").settle(SOON).expect("a:n1");
    world.cordon("n1", true).member("b", "second", 100).mount("b", "y").settle(SOON);
    world.expect("b:n2").cordon("n1", false).wait(1).run("both", &["x", "y"], &[]);
    world.member("d", "both", 100).mount("d", "x").mount("d", "y").settle(LONG).expect("d:");
    world.expect_events(POD, "d", &[reason::SHARED_CLAIM]);
    // The run has ended, but its pod still mounts the claim.
    world.end("first").settle(LONG).expect("a:n1 d:").finish("a").settle(SOON).expect("d:n2");
    world.expect_rest();
}

/// Three runs with two claims each, of which one is the next one's: `r0` has `k0` and `k1`, and so on. Their members
/// `m0` to `m2` fill more than half a node, and the nodes are in two zones.
fn chain(order: [usize; 3]) -> World {
    let mut world = World::new(&[]);
    world.node_in("a", "n1").node_in("b", "n2").claim("k0").claim("k1").claim("k2").claim("k3");
    for run in order {
        world.run(&format!("r{run}"), &[&*format!("k{run}"), &*format!("k{}", run + 1)], &[]);
    }
    world
}

fn begin_run(world: &mut World, run: usize) {
    let name = format!("m{run}");
    world.member(&name, &format!("r{run}"), 600);
    world.mount(&name, &format!("k{run}")).mount(&name, &format!("k{}", run + 1));
}

/// Ends each run whose member has a node. Returns how many.
fn end_those_that_run(world: &mut World) -> usize {
    let runs = (0..3).filter(|run| {
        world.node_of(&format!("m{run}")).is_some()
            && world.get("PipelineRun", &format!("r{run}"))["status"].is_null()
    });
    let runs: Vec<usize> = runs.collect();
    for run in &runs {
        world.finish(&format!("m{run}")).end(&format!("r{run}"));
    }
    runs.len()
}

/// Else the one in the middle could never run: its claims would have volumes in two zones.
#[test]
fn the_volumes_of_runs_that_share_claims_in_a_chain_are_made_in_one_zone() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut world = chain(order);
        order.iter().for_each(|run| begin_run(&mut world, *run));
        let mut ended = 0;
        while ended < 3 {
            world.settle(LONG);
            let more = end_those_that_run(&mut world);
            assert!(more > 0, "{order:?}: {:#?}\n{:#?}", world.writes, world.events);
            ended += more;
        }
    }
}

/// It began when the others had already got their volumes. The events say so.
#[test]
fn a_run_between_two_zones_is_told_of_its_volumes() {
    let mut world = chain([0, 2, 1]);
    begin_run(&mut world, 0);
    begin_run(&mut world, 2);
    world.settle(LONG);
    let nodes: BTreeSet<_> = ["m0", "m2"].iter().filter_map(|pod| world.node_of(pod)).collect();
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    begin_run(&mut world, 1);
    world.settle(LONG).expect("m1:");
    end_those_that_run(&mut world);
    world.settle(LONG).expect("m1:");
    let reasons = world.reported(PIPELINE_RUN, "r1");
    assert!(reasons.contains(&reason::GROUP_CONFLICT), "{reasons:?}");
    world.expect_rest();
}

/// The earlier one could use any node, and its new volume would be made where the later one cannot be.
#[test]
fn a_run_whose_claim_has_a_volume_chooses_the_node_before_an_earlier_one_without() {
    let mut world = World::new(&[]);
    world.node_in("b", "n1").node_in("a", "n2").claim("x").claim("y").pin("x", &["n2"]);
    world.run("old", &["y"], &[]).wait(1).run("new", &["x", "y"], &[]);
    world.member("a", "old", 100).mount("a", "y");
    world.member("d", "new", 100).mount("d", "x").mount("d", "y").settle(LONG).expect("a:n2 d:n2");
}

/// A sidecar runs for some time after its TaskRun has ended.
#[test]
fn a_run_does_not_use_a_claim_elsewhere_while_a_pod_of_an_ended_run_mounts_it() {
    for mode in [CoscheduleMode::Workspaces, CoscheduleMode::IsolatePipelinerun] {
        let mut world = two_runs(mode);
        world.member("a", "first", 100).mount("a", "c").settle(SOON).expect("a:n1");
        world.end("first").settle(SOON).cordon("n1", true).member("d", "second", 100);
        world.mount("d", "c").settle(LONG).expect("a:n1 d:");
        let is_isolated = mode == CoscheduleMode::IsolatePipelinerun;
        assert_eq!(world.reported(POD, "d").contains(&reason::SHARED_CLAIM), is_isolated);
        world.finish("a").settle(LONG).expect("d:n2 second:n2");
        world.expect_rest();
    }
}

/// The earlier run goes where a pod of the later one mounts the claim, too.
#[test]
fn a_placeholder_comes_back_to_the_node_on_which_the_claim_is_in_use() {
    let mut world = two_runs(CoscheduleMode::Workspaces);
    world.reserve("first").member("b", "second", 100).mount("b", "c").settle(SOON).expect("b:n1");
    world.cordon("n1", true).evict("first").settle(LONG).expect("first: b:n1");
    world.finish("b").settle(LONG).expect("first:n2 second:n2");
}

/// Its kubelet may never report that it has ended.
#[test]
fn a_pod_that_is_being_deleted_on_a_lost_node_uses_no_claim() {
    let mut world = two_runs(CoscheduleMode::Workspaces);
    world.member("a", "first", 100).mount("a", "c").settle(SOON).expect("a:n1").end("first");
    world.ready("n1", false).mark_deleted("Pod", "a").member("d", "second", 100);
    world.settle(LONG).expect("a:n1 d:n2");
}

/// In Tekton's default mode only the TaskRuns say so that use a claim; and Tekton's flag may change while
/// a run continues. What has been placed by then stays until it has ended.
#[test]
fn members_admitted_before_tektons_assistant_was_detected_keep_their_placeholder() {
    let mut world = begun(&["n1"]);
    world.task_run("b", "run").assist("b").settle(SOON).expect("a:n1 run:n1");
    world.expect_events(PIPELINE_RUN, "run", &[reason::ASSISTANT_IS_ON]);
    world.finish("a").settle(SOON);
    assert_eq!(world.count("StatefulSet"), 0, "no run needs it any more");
    world.expect_rest();
}

/// Its pods carry the annotation as well, and are of that group.
#[test]
fn a_run_that_names_a_group_has_one_placeholder() {
    let mut world = World::with_run(&["n1"]);
    world.annotate("PipelineRun", "run", keys::GROUP, "g").task_run("t", "run");
    world.native("a", "g").mount("a", "c").settle(SOON).expect("a:n1");
    assert_eq!(world.names("StatefulSet"), [world.placeholder("g")]);
}

#[test]
fn a_native_group_and_a_run_with_one_claim_share_a_node() {
    for is_run_first in [true, false] {
        let mut world = World::new(&["n1", "n2"]);
        world.claim("c");
        if is_run_first {
            world.run("run", &["c"], &[]).member("a", "run", 100).mount("a", "c").settle(SOON);
        }
        // Where it would go by itself.
        world.wait(1).native("b", "g").mount("b", "c");
        if !is_run_first {
            world.settle(SOON).run("run", &["c"], &[]).member("a", "run", 100).mount("a", "c");
        }
        assert_eq!(world.has("StatefulSet", &world.placeholder("g")), !is_run_first);
        world.settle(LONG).expect("a:n1 b:n1");
        let (leads, follows) = if is_run_first { ("run", "g") } else { ("g", "run") };
        assert!(world.node_affinity(follows).contains("n1"), "{}", world.node_affinity(follows));
        assert_eq!(world.node_affinity(leads), "null");
    }
}

#[test]
fn two_native_groups_with_one_claim_share_a_node_from_the_start() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c").native("a", "g").mount("a", "c").native("b", "h").mount("b", "c");
    world.settle(LONG).expect("a:n1 b:n1");
    assert_eq!(world.writes.len(), 5, "two made, one shrunk, both let in: {:?}", world.writes);
    let bound = ["g", "h"].into_iter().filter(|of| world.node_affinity(of).contains("n1"));
    assert_eq!(bound.count(), 1, "the second to the first's node");
}

/// An owner reference and a label are their authors' words.
#[test]
fn forged_owner_references_in_another_namespace_have_no_effect() {
    let mut world = World::with_run(&["n1", "n2"]);
    let own = world.member("a", "run", 100).placeholder("run");
    for (namespace, name) in [("evil", &*own), (NAMESPACE, "affinity-assistant-0000000000")] {
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {
                "name": name, "namespace": namespace,
                "labels": {keys::PLACEHOLDER: name},
                "annotations": {keys::MODE: "disabled", keys::RECORD: r#"{"key":"c"}"#},
                "ownerReferences": [world.owner("PipelineRun", "run")],
            },
            "spec": {"template": {"metadata": {}, "spec": {"containers": []}}, "selector": {}, "serviceName": ""},
        });
        world.store.create(set).unwrap();
    }
    let plan = world.plan();
    let made = plan.actions.iter().filter(|action| matches!(action.write, Write::Create(_)));
    let made: Vec<_> =
        made.map(|action| (&*action.target.namespace, &*action.target.name)).collect();
    assert_eq!(made, [(NAMESPACE, &*own)]);
}

/// Asks for one node for the pods of each claim.
fn ask_for_one_node(world: &mut World) {
    let labels = json!({"metadata": {"labels": {keys::ONE_NODE_CLAIMS: "true"}}});
    world.change("Namespace", NAMESPACE, labels);
}

/// Without the label of the namespace, pods of no group do not count: nothing would make them follow.
#[test]
fn a_group_goes_where_a_pod_of_no_group_mounts_its_claim_if_the_namespace_asks() {
    for (asks, places) in [(false, "first:n1"), (true, "first:n2")] {
        let mut world = World::new(&["n1", "n2"]);
        if asks {
            ask_for_one_node(&mut world);
        }
        world.claim("c").stranger("app", "n2", 100).mount("app", "c");
        world.run("first", &["c"], &[]).reserve("first").settle(SOON).expect(places);
    }
}

/// The pod `app` of no group, which has waited for others, with these claims, gates and node selector.
fn waited(world: &mut World, claims: &[&str], gates: &[&str], selector: &Value) {
    let gates: Vec<Value> = gates.iter().map(|gate| json!({"name": gate})).collect();
    let pod = json!({
        "metadata": {"labels": {keys::ONE_NODE_CLAIMS: keys::WAITED}},
        "spec": {"containers": [], "schedulingGates": gates, "nodeSelector": selector},
        "status": {"phase": "Pending"},
    });
    world.create("Pod", "app", pod);
    claims.iter().for_each(|claim| _ = world.mount("app", claim));
}

/// The scheduler binds no pod that is being deleted.
#[test]
fn a_group_waits_for_a_pod_on_its_way_to_a_node_unless_that_is_being_deleted() {
    for (is_deleting, places) in [(false, "app: first: a:"), (true, "app: first:n1 a:n1")] {
        let mut world = World::new(&["n1"]);
        ask_for_one_node(&mut world);
        world.claim("c").run("first", &["c"], &[]);
        waited(&mut world, &["c"], &[], &json!({"pool": "none"}));
        if is_deleting {
            world.mark_deleted("Pod", "app");
        }
        world.member("a", "first", 100).settle(LONG).expect(places);
        let reported = world.reported(POD, "a");
        assert_eq!(reported.contains(&reason::SHARED_CLAIM), !is_deleting, "{reported:?}");
    }
}

/// Without a pod, a placeholder may be bound to any node.
#[test]
fn a_pod_with_several_claims_waits_for_the_placeholder_of_one_only_while_that_has_no_pod() {
    for has_ended in [false, true] {
        let mut world = World::new(&["n1", "n2"]);
        ask_for_one_node(&mut world);
        world.claim("c").claim("d").run("first", &["c"], &[]).cordon("n1", true);
        world.reserve("first").settle(SOON).expect("first:n2");
        let placeholder = world.placeholder_pod("first");
        if has_ended {
            world.finish(&placeholder);
        }
        waited(&mut world, &["c", "d"], &[keys::CLAIMS_GATE], &Value::Null);
        world.cordon("n1", false).settle(SOON);
        let reported = world.reported(POD, "app");
        assert_eq!(reported.contains(&reason::SHARED_CLAIM), has_ended, "{reported:?}");
        if has_ended {
            world.expect("app:").cordon("n1", true).evict("first").settle(SOON);
        }
        world.expect("first:n2 app:n2");
    }
}

/// So that pods of no group follow the group, also between two of its tasks.
#[test]
fn the_pods_of_groups_and_their_placeholders_get_the_labels_of_their_claims() {
    let mut world = World::new(&["n1", "n2"]);
    ask_for_one_node(&mut world);
    world.claim("c").run("first", &["c"], &[]).member("d", "first", 100).mount("d", "c");
    world.settle(SOON);
    let label = keys::of_claim("c");
    for pod in ["d".to_owned(), world.placeholder_pod("first")] {
        assert_eq!(world.get("Pod", &pod)["metadata"]["labels"][&label], "true", "{pod}");
    }
    world.expect_rest();
}

/// It would come back at once, and leave again.
#[test]
fn a_group_that_has_to_be_on_a_full_node_waits_there() {
    let mut world = two_runs(CoscheduleMode::Workspaces);
    world.reserve("first").stranger("s", "n1", 850).member("d", "second", 500);
    world.settle(LONG).expect("d: first:n1 second:n1");
    let writes = world.writes.len();
    world.settle(LONG);
    assert_eq!(world.writes[writes..], [""; 0]);
    assert_eq!(world.deletions(), 0, "{:#?}", world.writes);
    let (_, last) = world.events.last().unwrap();
    assert!(last.note.contains("shares a claim"), "{last:?}");
    world.end("first").settle(LONG).expect("d:n2 second:n2");
}
