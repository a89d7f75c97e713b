//! Claims and volumes: mounted, parked, made and deleted.

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::simulator::World;
use super::{LONG, SOON};
use crate::policy::Repair;
use crate::systems::coschedule::keys;
use crate::systems::coschedule::policy::Volumes;
use crate::systems::coschedule::reconcile::reason;
use crate::systems::coschedule::resources::{PIPELINE_RUN, TASK_RUN};
use crate::systems::plan::Write;
use crate::view::resource::POD;

/// Their nodes were unknown when the placeholder was created: their class binds at once.
#[test]
fn volumes_without_a_common_node_split_an_existing_group() {
    let mut world = World::new(&["n1", "n2"]);
    world.run("run", &[], &["a", "b"]);
    world.annotate("PipelineRun", "run", keys::MODE, "pipelineruns");
    let uid = world.get("PipelineRun", "run")["metadata"]["uid"].as_str().unwrap().to_owned();
    let [first, second] = ["", "b"].map(|key| keys::of_run(&uid, key));
    let [a, b] = ["a", "b"]
        .map(|name| crate::systems::coschedule::kinds::pipeline_run::claim_name(None, name, &uid));
    for (name, claim) in [("x", &a), ("y", &b)] {
        world.member_of(name, "run", &first, 100);
        world.mount(name, claim);
    }
    let plan = world.plan();
    plan.actions.into_iter().for_each(|action| world.act(action));
    assert_eq!(world.names("StatefulSet"), [&*first]);
    world.pin(&a, &["n1"]);
    world.pin(&b, &["n2"]);
    world.settle(LONG);
    assert_eq!(world.node_of("x"), Some("n1"), "{:?}", world.writes);
    assert_eq!(world.reported(POD, "y"), [reason::RECREATED]);
    world.member_of("y", "run", &second, 100);
    world.mount("y", &b);
    world.settle(LONG);
    assert_eq!(world.node_of("y"), Some("n2"), "{:?}", world.writes);
    for (name, claim) in [(&first, &a), (&second, &b)] {
        let volumes = &world.get("StatefulSet", name)["spec"]["template"]["spec"]["volumes"];
        let claims: Vec<_> = volumes.as_array().unwrap().iter().collect();
        assert_eq!(claims.len(), 1, "{volumes}");
        assert_eq!(claims[0]["persistentVolumeClaim"]["claimName"], **claim);
    }
}

/// Capacity is not the reason: the events are about volumes alone.
#[test]
fn a_task_whose_volumes_share_no_node_is_not_said_to_be_too_large() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    world.claim("a");
    world.claim("b");
    world.run("run", &["a", "b"], &[]);
    world.member("x", "run", 0);
    world.clear("Pod");
    world.settle(SOON);
    world.member("x", "run", 0);
    let volumes = ["a", "b"]
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
    world.edit("Pod", "x")["spec"]["volumes"] = json!(volumes);
    world.pin("a", &["n1", "n2"]);
    world.pin("b", &["n3"]);
    world.settle(LONG);
    assert_eq!(world.node_of("x"), None);
    assert_eq!(
        world.reported(PIPELINE_RUN, "run"),
        [reason::GROUP_CONFLICT, reason::PLACEHOLDER_MOVED, reason::VOLUME_PINS_NODE]
    );
    let (_, last) = world.events.last().unwrap();
    assert_eq!(
        last.note,
        "waiting pods do not fit on node n1, and volume volume-of-a of claim a can be mounted only on n1, n2, \
         volume volume-of-b of claim b can be mounted only on n3"
    );
}

#[test]
fn an_event_names_the_volume_whose_nodes_are_all_closed() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    world.claim("c");
    world.pin("c", &["n2"]);
    world.cordon("n2", true);
    world.run("run", &["c"], &[]);
    world.member("a", "run", 100);
    world.settle(LONG);
    assert_eq!(world.reported(PIPELINE_RUN, "run"), [reason::PLACEHOLDER_NOT_PLACED]);
    let mut notes = world.events.iter().map(|(_, event)| event.note.as_str());
    let wanted = "of claim c can be mounted only on n2; the scheduler says: ";
    assert!(notes.all(|note| note.contains(wanted)), "{:?}", world.events);
}

#[test]
fn a_volume_that_is_on_one_node_keeps_its_group_there() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.pin("c", &["n2"]);
    world.run("run", &["c"], &[]);
    world.member("a", "run", 100);
    world.clear("Pod");
    world.settle(SOON);
    assert_eq!(world.place("run"), Some("n2"));
    let writes = world.writes.len();
    world.cordon("n2", true);
    world.member("b", "run", 100);
    world.settle(LONG);
    assert_eq!((world.node_of("b"), world.place("run")), (None, Some("n2")));
    assert_eq!(world.reported(POD, "b"), [reason::VOLUME_PINS_NODE]);
    assert_eq!(world.reported(TASK_RUN, "b"), [reason::VOLUME_PINS_NODE]);
    assert_eq!(world.reported(PIPELINE_RUN, "run"), [reason::VOLUME_PINS_NODE]);
    let (_, event) = &world.events[0];
    let named = "volume volume-of-c of claim c can be mounted on no node but n2";
    assert!(event.note.ends_with(named), "{event:?}");
    assert_eq!(world.writes.len(), writes, "{:?}", world.writes);
    world.cordon("n2", false);
    world.settle(SOON);
    assert_eq!(world.node_of("b"), Some("n2"));
}

#[test]
fn a_claim_that_becomes_known_later_is_mounted_while_no_member_runs() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.claim("later");
    world.pin("later", &["n2"]);
    world.run("run", &["c"], &[]);
    world.member("a", "run", 100);
    world.settle(SOON);
    world.member("b", "run", 100);
    world.mount("b", "later");
    world.settle(LONG);
    assert_eq!((world.node_of("b"), world.place("run")), (None, Some("n1")), "a runs");
    world.finish("a");
    world.settle(SOON);
    assert_eq!((world.node_of("b"), world.place("run")), (Some("n2"), Some("n2")));
    let volumes =
        &world.get("StatefulSet", &world.placeholder("run"))["spec"]["template"]["spec"]["volumes"];
    assert_eq!(volumes.as_array().unwrap().len(), 2);
}

/// What Tekton does with claims at the end of a run, and nothing with those of others.
#[test]
fn template_claims_are_deleted_at_the_end_if_tekton_would_delete_them() {
    for (annotation, is_deleted) in [
        (Some("true"), true),
        (Some("false"), false),
        (Some("yes"), false),
        (Some(""), false),
        (None, false),
    ] {
        let mut world = World::new(&["n1"]);
        world.claim("c");
        world.run("run", &["c"], &["source"]);
        let annotations = json!({"metadata": {"annotations": {keys::AUTO_CLEANUP: annotation}}});
        world.change("PipelineRun", "run", annotations);
        world.member("a", "run", 100);
        let own = world.own_claim();
        world.mount("a", &own);
        world.settle(SOON);
        world.end("run");
        world.settle(SOON);
        assert!(
            world.get("PersistentVolumeClaim", &own)["metadata"]["deletionTimestamp"].is_null(),
            "a continues"
        );
        world.finish("a");
        world.settle(SOON);
        let claim = &world.get("PersistentVolumeClaim", &own)["metadata"];
        assert_eq!(!claim["deletionTimestamp"].is_null(), is_deleted, "{annotation:?}");
        let finalizers = if is_deleted {
            json!(["example.com/other"])
        } else {
            json!(["example.com/other", "kubernetes.io/pvc-protection"])
        };
        assert_eq!(claim["finalizers"], finalizers, "{annotation:?}");
        assert!(world.get("PersistentVolumeClaim", "c")["metadata"]["deletionTimestamp"].is_null());
    }
}

#[test]
fn a_placeholders_own_claims_replace_those_of_the_run() {
    let mut world = World::new(&["n1"]);
    world.policy.coschedule.volumes = Volumes::Provision;
    world.run("run", &[], &["source"]);
    let claim = world.own_claim();
    world.change(
        "PersistentVolumeClaim",
        &claim,
        json!({"spec": {"storageClassName": keys::PARKED}}),
    );
    world.member("a", "run", 100);
    world.settle(SOON);
    let set = &world.get("StatefulSet", &world.placeholder("run"))["spec"];
    assert_eq!(set["volumeClaimTemplates"][0]["metadata"]["name"], *claim);
    assert_eq!(set["template"]["spec"]["volumes"], json!([]), "the parked one is never mounted");
    // Another policy does not change existing placeholders.
    world.policy.coschedule.volumes = Volumes::Adopt;
    let writes = world.writes.len();
    world.settle(LONG);
    assert_eq!(world.writes.len(), writes, "{:?}", world.writes);
}

/// Each placeholder would make a volume of its own of it, and the tasks of one would not see what those of
/// another wrote.
#[test]
fn a_claim_for_several_nodes_is_not_replaced() {
    let mut world = World::new(&["n1"]);
    world.policy.coschedule.volumes = Volumes::Provision;
    world.run("run", &[], &["w"]);
    let claim = world.own_claim();
    let many = json!({"accessModes": ["ReadWriteMany"]});
    let of_arch = |task: &str, arch: &str| json!({"pipelineTaskName": task, "podTemplate": {"nodeSelector": {"arch": arch}}});
    let uses_it =
        |task: &str| json!({"name": task, "workspaces": [{"name": "w"}], "taskRef": {"name": "t"}});
    let change = json!({
        "metadata": {"annotations": {keys::MODE: "pipelineruns"}},
        "spec": {
            "workspaces": [{"name": "w", "volumeClaimTemplate": {"spec": many}}],
            "taskRunSpecs": [of_arch("x", "amd64"), of_arch("y", "arm64")],
            "pipelineSpec": {"tasks": [uses_it("x"), uses_it("y")]},
        },
    });
    world.change("PipelineRun", "run", change);
    world.change("PersistentVolumeClaim", &claim, json!({"spec": many}));
    world.member("a", "run", 100);
    world.clear("Pod");
    for is_known in [true, false] {
        world.clear("StatefulSet");
        if !is_known {
            world.clear("PersistentVolumeClaim");
        }
        world.settle(SOON);
        assert_eq!(world.count("StatefulSet"), 2, "{:?}", world.writes);
        for set in world.all("StatefulSet") {
            assert!(set["spec"]["volumeClaimTemplates"].as_array().is_none_or(Vec::is_empty));
            let volume = &set["spec"]["template"]["spec"]["volumes"][0];
            assert_eq!(volume["persistentVolumeClaim"]["claimName"], *claim);
        }
    }
}

/// Its placeholder and pods keep the claim's name, and a webhook cannot know of the first run.
#[test]
fn a_run_with_parked_claims_that_tektons_assistant_places_is_reported() {
    for is_parked in [true, false] {
        let mut world = World::new(&["n1"]);
        world.policy.coschedule.volumes = Volumes::Provision;
        world.run("run", &[], &["source"]);
        if is_parked {
            world.class(keys::PARKED);
        }
        world.member("a", "run", 100);
        for kind in ["TaskRun", "Pod"] {
            world.annotate(kind, "a", keys::ASSISTANT, "affinity-assistant-1");
        }
        world.settle(LONG);
        assert!(world.writes.is_empty(), "{:?}", world.writes);
        assert_eq!(world.reported(PIPELINE_RUN, "run"), [reason::ASSISTANT_IS_ON]);
        let note = &world.events[0].1.note;
        assert_eq!(note.contains("create the run again"), is_parked, "{note}");
    }
}

/// The webhook was unavailable: the volumes of a pod cannot be changed, and the claim is never bound.
#[test]
fn a_pod_that_mounts_a_parked_claim_is_recreated() {
    let change = |world: &mut World, with: &Value| {
        world.change("Pod", "a", with.clone());
    };
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let assisted = json!({"metadata": {"annotations": {keys::ASSISTANT: "a"}}});
    let ignored = json!({"metadata": {"labels": {"stowplan.dev/ignore": "true"}}});
    for (what, pod, is_parked, is_deleted) in [
        ("as it came", json!({}), true, true),
        ("gated", json!({"spec": {"schedulingGates": [{"name": "example.com/mine"}]}}), true, true),
        ("the claim is a claim", json!({}), false, false),
        ("bound", json!({"spec": {"nodeName": "n1"}}), true, false),
        ("ended", json!({"status": {"phase": "Failed"}}), true, false),
        ("going", deleted, true, false),
        ("Tekton's", assisted, true, false),
        ("left alone", ignored, true, false),
        ("without an owner", json!({"metadata": {"ownerReferences": null}}), true, false),
        ("pointed to the other", json!({"spec": {"volumes": null}}), true, false),
    ] {
        for repair in [Repair::Report, Repair::RecreatePending] {
            let mut world = World::new(&["n1"]);
            world.policy.repair = repair;
            world.policy.coschedule.volumes = Volumes::Provision;
            world.run("run", &[], &["source"]);
            let claim = world.own_claim();
            let class = if is_parked { keys::PARKED } else { "fast" };
            let class = json!({"spec": {"storageClassName": class}});
            world.change("PersistentVolumeClaim", &claim, class);
            world.member("a", "run", 100);
            world.mount("a", &claim);
            change(&mut world, &json!({"metadata": {"labels": null}, "spec": {"affinity": null}}));
            change(&mut world, &pod);
            let made_again = |world: &mut World| {
                let actions = world.plan().actions;
                let of_pod = actions.into_iter().filter(|action| *action.target.name == *"a");
                let mut writes = of_pod.filter(|action| action.write != Write::None);
                writes.next().is_some_and(|action| {
                    let version = world.get("Pod", "a")["metadata"]["resourceVersion"].as_str();
                    let version = version.map(Into::into);
                    assert_eq!(action.write, Write::Delete { grace: None, version }, "{what}");
                    assert_eq!(action.events[0].reason, reason::RECREATED);
                    true
                })
            };
            assert_eq!(made_again(&mut world), is_deleted, "{what}, {repair:?}");
            // Created again with the same name while the webhook is still unavailable: not deleted at once.
            world.wait(20);
            let now = world.store.now.to_string();
            change(&mut world, &json!({"metadata": {"uid": "again", "creationTimestamp": now}}));
            assert!(!made_again(&mut world), "{what}");
            world.wait(19);
            assert_eq!(world.plan().recheck_at.is_some(), is_deleted, "{what}");
            assert!(!made_again(&mut world), "{what}");
            world.wait(1);
            assert_eq!(made_again(&mut world), is_deleted, "{what}");
            // However long it takes, a minute is enough.
            world.store.now += SignedDuration::from_hours(2);
            let now = world.store.now.to_string();
            change(&mut world, &json!({"metadata": {"creationTimestamp": now}}));
            assert!(!made_again(&mut world), "{what}");
            world.wait(60);
            assert_eq!(made_again(&mut world), is_deleted, "{what}");
            world.end("run");
            assert!(!made_again(&mut world), "{what}, and the run has ended");
        }
    }
}

/// They are the run's, and not controlled by it: the StatefulSet controller copies what the template says.
/// What counts is the mode that the run had, whatever is in force when it has ended.
#[test]
fn a_placeholders_claims_are_deleted_at_the_end_of_its_run() {
    for (mode, is_deleted) in
        [("pipelineruns", true), ("isolate-pipelinerun", true), ("workspaces", false)]
    {
        for (cleanup, marked) in [(false, true), (true, true), (true, false), (false, false)] {
            let mut world = World::new(&["n1"]);
            world.policy.coschedule.volumes = Volumes::Provision;
            world.namespace_mode(mode);
            world.run("run", &[], &["source"]);
            world.annotate("PipelineRun", "run", keys::AUTO_CLEANUP, &cleanup.to_string());
            world.class(keys::PARKED);
            world.member("a", "run", 100);
            world.settle(SOON);
            let set = world.all("StatefulSet").next().unwrap();
            let template = set["spec"]["volumeClaimTemplates"][0]["metadata"].clone();
            assert!(template["ownerReferences"][0]["controller"].is_null());
            assert_eq!(template["annotations"], json!({keys::MODE: mode}));
            world.claim("own");
            let mut made = json!({"metadata": template});
            made["metadata"]["name"] = json!("own");
            if !marked {
                made["metadata"]["annotations"] = Value::Null;
            }
            world.change("PersistentVolumeClaim", "own", made);
            world.finish("a");
            world.end("run");
            // While its placeholder exists, and after that.
            let others = ["pipelineruns", "workspaces", "isolate-pipelinerun", "disabled", "none"];
            for other in others {
                world.namespace_mode(other);
                if let Some(mode) = crate::systems::coschedule::mode::read(other) {
                    world.policy.coschedule.mode = mode;
                }
                world.settle(SOON);
            }
            let deleted =
                &world.get("PersistentVolumeClaim", "own")["metadata"]["deletionTimestamp"];
            let is_deleted = marked && (is_deleted || cleanup);
            assert_eq!(!deleted.is_null(), is_deleted, "{mode}, {cleanup}, {marked}");
            let parked = world.all("PersistentVolumeClaim").filter(|claim| {
                claim["spec"]["storageClassName"] == keys::PARKED
                    && claim["metadata"]["deletionTimestamp"].is_null()
            });
            assert_eq!(parked.count(), 0, "a parked claim is of no use after the end");
        }
    }
}

/// Its author has asked for that, whatever mode is in force after the end: what is left of a run that was
/// ours is seen to, and one that was not is left alone.
#[test]
fn template_claims_are_deleted_by_the_mode_at_their_creation() {
    for was_ours in [true, false] {
        let mut world = World::new(&["n1"]);
        world.run("run", &[], &["source"]);
        world.annotate("PipelineRun", "run", keys::AUTO_CLEANUP, "true");
        world.member("a", "run", 100);
        let own = world.own_claim();
        world.mount("a", &own);
        if !was_ours {
            world.namespace_mode("disabled");
            world.edit("Pod", "a")["metadata"]["labels"] = json!({});
            world.edit("Pod", "a")["spec"]["affinity"] = json!({});
        }
        world.settle(SOON);
        world.end("run");
        world.settle(SOON);
        assert!(world.count("StatefulSet") == 0);
        for mode in ["disabled", "of-no-kind"] {
            world.namespace_mode(mode);
            world.settle(SOON);
        }
        world.finish("a");
        world.settle(SOON);
        let claim = &world.get("PersistentVolumeClaim", &own)["metadata"];
        assert_eq!(!claim["deletionTimestamp"].is_null(), was_ours);
        let protected = claim["finalizers"].to_string().contains("pvc-protection");
        assert_eq!(protected, !was_ours);
    }
}

/// A pod that still uses a volume loses no data.
#[test]
fn a_claim_is_kept_while_any_active_pod_mounts_it() {
    for is_placed in [true, false] {
        let mut world = World::new(&["n1"]);
        world.run("run", &[], &["source"]);
        world.annotate("PipelineRun", "run", keys::AUTO_CLEANUP, "true");
        world.member("a", "run", 100);
        let own = world.own_claim();
        world.mount("a", &own);
        world.settle(SOON);
        world.stranger("debug", "n1", 10);
        world.mount("debug", &own);
        if !is_placed {
            world.unbind("debug");
            let mut debug = world.edit("Pod", "debug");
            debug["spec"]["schedulingGates"] = json!([{"name": keys::GATE}]);
            debug["status"] = json!({"phase": "Pending"});
        }
        world.finish("a");
        world.end("run");
        world.settle(LONG);
        assert!(
            world.get("PersistentVolumeClaim", &own)["metadata"]["deletionTimestamp"].is_null()
        );
        // Somebody deletes it by hand: it is protected all the same.
        let deleted = json!({"metadata": {"deletionTimestamp": world.store.now.to_string()}});
        world.change("PersistentVolumeClaim", &own, deleted);
        world.settle(LONG);
        let finalizers = |world: &World| {
            world.get("PersistentVolumeClaim", &own)["metadata"]["finalizers"].clone()
        };
        assert_eq!(finalizers(&world).as_array().unwrap().len(), 2);
        world.finish("debug");
        let plan = world.plan();
        let patch = plan.actions.iter().find(|action| *action.target.name == *own).unwrap();
        let version = &world.get("PersistentVolumeClaim", &own)["metadata"]["resourceVersion"];
        let Write::Patch(operations) = &patch.write else { panic!("{patch:?}") };
        let operations = serde_json::to_value(operations).unwrap();
        assert_eq!(operations[1]["path"], "/metadata/resourceVersion");
        assert_eq!(operations[1]["value"], *version);
        world.settle(SOON);
        assert_eq!(finalizers(&world), json!(["example.com/other"]));
    }
}
