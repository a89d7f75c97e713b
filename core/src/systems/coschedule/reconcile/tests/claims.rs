//! Claims and volumes: mounted, parked, made and deleted.

use super::*;
use crate::systems::coschedule::groups;
use crate::systems::coschedule::kinds::pipeline_run::claim_name;

const CLAIM: &str = "PersistentVolumeClaim";

/// A node, and a run with a claim of its own, whose placeholder makes volumes or adopts those of claims.
fn with_own_claim(volumes: Volumes) -> (World, String) {
    let mut world = World::new(&["n1"]);
    world.policy.coschedule.volumes = volumes;
    let claim = world.run("run", &[], &["source"]).own_claim();
    (world, claim)
}

fn is_deleted(world: &World, claim: &str) -> bool {
    !world.get(CLAIM, claim)["metadata"]["deletionTimestamp"].is_null()
}

/// The names of the claims that the pod template of a StatefulSet mounts.
fn mounted(set: &Value) -> Vec<&str> {
    let volumes = set["spec"]["template"]["spec"]["volumes"].as_array().unwrap().iter();
    volumes.map(|of| of["persistentVolumeClaim"]["claimName"].as_str().unwrap()).collect()
}

/// Their nodes were unknown when the placeholder was created: their class binds at once.
#[test]
fn volumes_without_a_common_node_split_an_existing_group() {
    let mut world = World::new(&["n1", "n2"]);
    world.run("run", &[], &["a", "b"]).annotate("PipelineRun", "run", keys::MODE, "pipelineruns");
    let uid = world.uid("PipelineRun", "run");
    let [first, second] = ["", "b"].map(|key| keys::of_run(&uid, key));
    let [a, b] = ["a", "b"].map(|name| claim_name(None, name, &uid));
    world.member_of("x", "run", &first, 100).mount("x", &a);
    world.member_of("y", "run", &first, 100).mount("y", &b).carry_out_plan();
    assert_eq!(world.names("StatefulSet"), [&*first]);
    world.pin(&a, &["n1"]).pin(&b, &["n2"]).settle(LONG).expect("x:n1");
    world.expect_events(POD, "y", &[reason::RECREATED]);
    world.member_of("y", "run", &second, 100).mount("y", &b).settle(LONG).expect("y:n2");
    for (name, claim) in [(&first, &a), (&second, &b)] {
        assert_eq!(mounted(world.get("StatefulSet", name)), [claim]);
    }
}

/// Capacity is not the reason: the events are about volumes alone.
#[test]
fn a_task_whose_volumes_share_no_node_is_not_said_to_be_too_large() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    world.claim("a").claim("b").run("run", &["a", "b"], &[]).reserve("run");
    let volumes = ["a", "b"]
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
    world.member("x", "run", 0).edit("Pod", "x")["spec"]["volumes"] = json!(volumes);
    world.pin("a", &["n1", "n2"]).pin("b", &["n3"]).settle(LONG).expect("x:");
    let reasons = [reason::GROUP_CONFLICT, reason::PLACEHOLDER_MOVED, reason::VOLUME_PINS_NODE];
    world.expect_events(PIPELINE_RUN, "run", &reasons);
    let (_, last) = world.events.last().unwrap();
    assert_eq!(
        last.note,
        "waiting pods do not fit on node n1, and volume volume-of-a of claim a can be mounted only on nodes with \
         kubernetes.io/hostname In [n1, n2], volume volume-of-b of claim b can be mounted only on nodes with \
         kubernetes.io/hostname In [n3]"
    );
}

#[test]
fn an_event_names_the_volume_whose_nodes_are_all_closed() {
    let mut world = World::with_run(&["n1", "n2", "n3"]);
    world.pin("c", &["n2"]).cordon("n2", true).member("a", "run", 100).settle(LONG);
    world.expect_events(PIPELINE_RUN, "run", &[reason::PLACEHOLDER_NOT_PLACED]);
    let mut notes = world.events.iter().map(|(_, event)| event.note.as_str());
    let wanted =
        "can be mounted only on nodes with kubernetes.io/hostname In [n2]; the scheduler says: ";
    assert!(notes.all(|note| note.contains(wanted)), "{:?}", world.events);
}

#[test]
fn a_claim_that_becomes_known_later_is_mounted_while_no_member_runs() {
    let mut world = World::with_run(&["n1", "n2"]);
    world.claim("later").pin("later", &["n2"]).member("a", "run", 100).settle(SOON);
    world.member("b", "run", 100).mount("b", "later").settle(LONG).expect("b: run:n1");
    world.finish("a").settle(SOON).expect("b:n2 run:n2");
    assert_eq!(mounted(world.get("StatefulSet", &world.placeholder("run"))), ["c", "later"]);
}

/// Claims end with a run as with Tekton, and those of others stay. It matters whether the run was coscheduled,
/// whatever mode is in force after its end.
#[test]
fn template_claims_are_deleted_at_the_end_if_tekton_would_delete_them() {
    for (annotation, was_coscheduled, deletes) in [
        (Some("true"), true, true),
        (Some("true"), false, false),
        (Some("false"), true, false),
        (Some("yes"), true, false),
        (Some(""), true, false),
        (None, true, false),
    ] {
        let mut world = World::new(&["n1"]);
        let own = world.claim("c").run("run", &["c"], &["source"]).own_claim();
        let annotations = json!({"metadata": {"annotations": {keys::AUTO_CLEANUP: annotation}}});
        world.change("PipelineRun", "run", annotations).member("a", "run", 100).mount("a", &own);
        if !was_coscheduled {
            let unplaced = json!({"metadata": {"labels": null},
                "spec": {"affinity": null, "schedulingGates": null}});
            world.namespace_mode("disabled").change("Pod", "a", unplaced);
        }
        world.settle(SOON).end("run").settle(SOON);
        assert_eq!(world.count("StatefulSet"), 0);
        for mode in ["disabled", "of-no-kind"] {
            world.namespace_mode(mode).settle(SOON);
        }
        assert!(!is_deleted(&world, &own), "a continues");
        world.finish("a").settle(SOON);
        assert_eq!(is_deleted(&world, &own), deletes, "{annotation:?}, {was_coscheduled}");
        let finalizers = ["example.com/other", "kubernetes.io/pvc-protection"];
        let left = if deletes { &finalizers[..1] } else { &finalizers };
        assert_eq!(world.get(CLAIM, &own)["metadata"]["finalizers"], json!(left), "{annotation:?}");
        assert!(!is_deleted(&world, "c"));
    }
}

#[test]
fn a_placeholders_own_claims_replace_those_of_the_run() {
    let (mut world, claim) = with_own_claim(Volumes::Provision);
    world.class(keys::PARKED).member("a", "run", 100).settle(SOON);
    let set = world.get("StatefulSet", &world.placeholder("run"));
    assert_eq!(set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"], *claim);
    assert_eq!(mounted(set), [""; 0], "the parked one is never mounted");
    // Another policy does not change existing placeholders.
    world.policy.coschedule.volumes = Volumes::Adopt;
    world.expect_rest();
}

/// Each placeholder would make a volume of its own of it, and the tasks of one would not see what those of
/// another wrote.
#[test]
fn a_claim_for_several_nodes_is_not_replaced() {
    let many = json!({"accessModes": ["ReadWriteMany"]});
    let of_arch = |task: &str, arch: &str| json!({"pipelineTaskName": task, "podTemplate": {"nodeSelector": {"arch": arch}}});
    let uses_it = |task: &str| json!({"name": task, "workspaces": [{"name": "source"}], "taskRef": {"name": "t"}});
    let change = json!({
        "metadata": {"annotations": {keys::MODE: "pipelineruns"}},
        "spec": {
            "workspaces": [{"name": "source", "volumeClaimTemplate": {"spec": many}}],
            "taskRunSpecs": [of_arch("x", "amd64"), of_arch("y", "arm64")],
            "pipelineSpec": {"tasks": [uses_it("x"), uses_it("y")]},
        },
    });
    for is_known in [true, false] {
        let (mut world, claim) = with_own_claim(Volumes::Provision);
        world.change("PipelineRun", "run", change.clone());
        if is_known {
            world.change(CLAIM, &claim, json!({"spec": many}));
        } else {
            world.remove(CLAIM, &claim);
        }
        let policy = world.policy.clone();
        let view = world.view();
        let run = Name::new(NAMESPACE, "run");
        let groups = groups::of_run(&run, view.pipeline_run(&run).unwrap(), view, &policy).unwrap();
        for (number, group) in groups.groups.iter().enumerate() {
            world.member_of(&format!("m{number}"), "run", &group.name, 100);
        }
        world.settle(SOON);
        assert_eq!(world.count("StatefulSet"), 1, "{:?}", world.writes);
        for set in world.all("StatefulSet") {
            assert!(set["spec"]["volumeClaimTemplates"].as_array().is_none_or(Vec::is_empty));
            assert_eq!(mounted(set)[0], claim);
        }
    }
}

/// Its placeholder and pods keep the claim's name, and a webhook cannot know of the first run.
#[test]
fn a_run_with_parked_claims_that_tektons_assistant_places_is_reported() {
    for is_parked in [true, false] {
        let (mut world, _) = with_own_claim(Volumes::Provision);
        if is_parked {
            world.class(keys::PARKED);
        }
        world.member("a", "run", 100).assist("a").ungate("a");
        world.annotate("Pod", "a", keys::ASSISTANT, "affinity-assistant-1").expect_rest();
        world.expect_events(PIPELINE_RUN, "run", &[reason::ASSISTANT_IS_ON]);
        let note = &world.events[0].1.note;
        assert_eq!(note.contains("create the run again"), is_parked, "{note}");
    }
}

/// The webhook was unavailable: the volumes of a pod cannot be changed, and the claim is never bound.
#[test]
fn a_pod_that_mounts_a_parked_claim_is_recreated() {
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let assisted = json!({"metadata": {"annotations": {keys::ASSISTANT: "a"}}});
    let ignored = json!({"metadata": {"labels": {"stowplan.dev/ignore": "true"}}});
    let gated = json!({"spec": {"schedulingGates": [{"name": "example.com/mine"}]}});
    for (what, pod, class, is_deleted) in [
        ("as it came", json!({}), keys::PARKED, true),
        ("gated", gated, keys::PARKED, true),
        ("the claim is a claim", json!({}), "fast", false),
        ("bound", json!({"spec": {"nodeName": "n1"}}), keys::PARKED, false),
        ("ended", json!({"status": {"phase": "Failed"}}), keys::PARKED, false),
        ("going", deleted, keys::PARKED, false),
        ("Tekton's", assisted, keys::PARKED, false),
        ("left alone", ignored, keys::PARKED, false),
        ("without an owner", json!({"metadata": {"ownerReferences": null}}), keys::PARKED, false),
        ("pointed to the other", json!({"spec": {"volumes": null}}), keys::PARKED, false),
    ] {
        for repair in [Repair::Report, Repair::RecreatePending] {
            let (mut world, claim) = with_own_claim(Volumes::Provision);
            world.policy.repair = repair;
            world.class(class).member("a", "run", 100).mount("a", &claim);
            let unplaced = json!({"metadata": {"labels": null},
                "spec": {"affinity": null, "schedulingGates": null}});
            world.change("Pod", "a", unplaced).change("Pod", "a", pod.clone());
            let made_again = |world: &mut World| {
                let mut actions = world.plan().actions.into_iter();
                let action = actions.find(|it| *it.target.name == *"a" && it.write != Write::None);
                let version = world.get("Pod", "a")["metadata"]["resourceVersion"].as_str();
                let deletion = Write::Delete { grace: None, version: version.map(Into::into) };
                action.is_some_and(|it| {
                    assert_eq!((it.write, it.events[0].reason), (deletion, reason::RECREATED));
                    true
                })
            };
            assert_eq!(made_again(&mut world), is_deleted, "{what}, {repair:?}");
            // Created again with the same name while the webhook is still unavailable: not deleted at once.
            let now = world.wait(20).store.now.to_string();
            let again = json!({"metadata": {"uid": "again", "creationTimestamp": now}});
            assert!(!made_again(world.change("Pod", "a", again)), "{what}");
            assert_eq!(world.wait(19).plan().recheck_at.is_some(), is_deleted, "{what}");
            assert!(!made_again(&mut world), "{what}");
            assert_eq!(made_again(world.wait(1)), is_deleted, "{what}");
            // However long it takes, a minute is enough.
            let now = world.wait(7_200).store.now.to_string();
            let now = json!({"metadata": {"creationTimestamp": now}});
            assert!(!made_again(world.change("Pod", "a", now)), "{what}");
            assert_eq!(made_again(world.wait(60)), is_deleted, "{what}");
            assert!(!made_again(world.end("run")), "{what}, and the run has ended");
        }
    }
}

/// They are the run's, and not controlled by it: the StatefulSet controller copies what the template says.
/// The run's own mode decides, whatever mode is in force after its end.
#[test]
fn a_placeholders_claims_are_deleted_at_the_end_of_its_run() {
    for (mode, by_mode) in
        [("pipelineruns", true), ("isolate-pipelinerun", true), ("workspaces", false)]
    {
        for (cleanup, marked) in [(false, true), (true, true), (true, false), (false, false)] {
            let (mut world, parked) = with_own_claim(Volumes::Provision);
            world.namespace_mode(mode).class(keys::PARKED);
            world.annotate("PipelineRun", "run", keys::AUTO_CLEANUP, &cleanup.to_string());
            world.member("a", "run", 100).settle(SOON);
            let set = world.all("StatefulSet").next().unwrap();
            let template = set["spec"]["volumeClaimTemplates"][0]["metadata"].clone();
            let mut made = json!({"metadata": template});
            made["metadata"]["name"] = json!("own");
            if !marked {
                made["metadata"]["annotations"] = Value::Null;
            }
            world.claim("own").change(CLAIM, "own", made).finish("a").end("run");
            // While its placeholder exists, and after that.
            let others = ["pipelineruns", "workspaces", "isolate-pipelinerun", "disabled", "none"];
            for other in others {
                world.namespace_mode(other).settle(SOON);
            }
            let deletes = marked && (by_mode || cleanup);
            assert_eq!(is_deleted(&world, "own"), deletes, "{mode}, {cleanup}, {marked}");
            assert!(is_deleted(&world, &parked), "a parked claim is of no use after the end");
        }
    }
}

/// A pod that still uses a volume loses no data.
#[test]
fn a_claim_is_kept_while_any_active_pod_mounts_it() {
    for is_placed in [true, false] {
        let (mut world, own) = with_own_claim(Volumes::Adopt);
        world.annotate("PipelineRun", "run", keys::AUTO_CLEANUP, "true");
        world.member("a", "run", 100).mount("a", &own).settle(SOON);
        world.stranger("debug", "n1", 10).mount("debug", &own);
        if !is_placed {
            let gated = json!({"spec": {"schedulingGates": [{"name": keys::GATE}]},
                "status": {"phase": "Pending"}});
            world.unbind("debug").change("Pod", "debug", gated);
        }
        world.finish("a").end("run").settle(LONG);
        assert!(!is_deleted(&world, &own));
        // Somebody deletes it by hand: it is protected all the same.
        let deleted = json!({"metadata": {"deletionTimestamp": world.store.now.to_string()}});
        world.change(CLAIM, &own, deleted).settle(LONG);
        let metadata = |world: &World| world.get(CLAIM, &own)["metadata"].clone();
        assert_eq!(metadata(&world)["finalizers"].as_array().unwrap().len(), 2);
        world.finish("debug").settle(SOON);
        assert_eq!(metadata(&world)["finalizers"], json!(["example.com/other"]));
    }
}

/// Kubernetes checks no more of it than that it is not empty.
#[test]
fn a_claim_with_any_name_is_planned_for_once() {
    let mut world = World::new(&["n1"]);
    world.run("run", &["my_claim"], &[]).member("a", "run", 100).settle(LONG);
    let writes = world.writes.len();
    world.settle(LONG);
    assert_eq!(world.writes[writes..], [""; 0]);
}

/// Anybody who may edit a placeholder can write it.
#[test]
fn a_time_in_an_annotation_can_be_anything() {
    for time in ["253402207200", "-377705023201", "9223372036854775807", "soon", ""] {
        let mut world = grouped(&["n1"]);
        let placeholder = world.placeholder("g");
        world.annotate("StatefulSet", &placeholder, FAILED, time);
        world
            .evict("g")
            .native("b", "g")
            .label("b", json!({"app.kubernetes.io/instance": "x", keys::MEMBER: placeholder}));
        world.settle(LONG);
    }
}
