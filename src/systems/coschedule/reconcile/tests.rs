mod simulator;

use std::collections::BTreeSet;

use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::reason;
use crate::policy::{CoscheduleMode, Repair, Volumes};
use crate::systems::coschedule::keys;
use crate::systems::plan::{Kind, Write};
use crate::view::Name;
use simulator::{NAMESPACE, Pace, World, is_member};

/// Long enough for everything that is waited for.
const LONG: i64 = 3_600;

/// Time to make and to schedule, and none to become impatient.
const SOON: i64 = 5;

/// A world with these nodes, in which a run with one claim has begun: its first member has been placed.
fn begun(nodes: &[&str]) -> World {
    let mut world = World::new(nodes);
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.member("a", "run", 100);
    world.settle(SOON);
    world
}

#[test]
fn a_run_has_a_placeholder_from_its_first_task_to_its_end() {
    let mut world = World::new(&["n1", "n2"]);
    world.run("run", &[], &["source", "cache"]);
    world.settle(SOON);
    assert!(world.sets.is_empty(), "no task yet");
    world.member("a", "run", 100);
    world.settle(SOON);
    world.member("b", "run", 100);
    world.settle(SOON);
    assert_eq!((world.node_of("a"), world.node_of("b")), (world.place("run"), world.place("run")));
    assert!(world.place("run").is_some());
    let set = &world.sets[&world.placeholder("run")];
    let volumes = set["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    assert_eq!(volumes.len(), 2);
    assert_eq!(world.writes.len(), 1, "{:?}", world.writes);
    world.finish("a");
    world.finish("b");
    world.end("run");
    world.settle(LONG);
    assert!(world.sets.is_empty());
    assert_eq!(world.writes.len(), 2, "{:?}", world.writes);
    assert!(world.events.is_empty(), "{:?}", world.events);
}

#[test]
fn a_class_that_stays_is_told_where_it_matters() {
    let class = |name: &str, kind: &str, mode: &str| {
        json!({
            "metadata": {"name": name}, "provisioner": "example.com/disk",
            "parameters": {"kind": kind}, "volumeBindingMode": mode,
        })
    };
    for (of_claim, templates, told) in [
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
        world.classes = vec![
            class("alone", "1", "Immediate"),
            class("has-sibling", "2", "Immediate"),
            class("waits", "2", "WaitForFirstConsumer"),
            class("mapped", "3", "Immediate"),
            class("mapped-to-nothing", "4", "Immediate"),
        ];
        let map = [("mapped", "waits"), ("mapped-to-nothing", "no-such-class")];
        world.policy.coschedule.class_map =
            map.map(|(from, to)| (from.to_owned(), to.to_owned())).into();
        world.run("run", &[], templates);
        for claim in world.claims.values_mut() {
            World::change(claim, json!({"spec": {"storageClassName": of_claim}}));
        }
        world.member("a", "run", 100);
        world.settle(SOON);
        let wanted: &[_] = if told { &[reason::CLASS_BINDS_AT_ONCE] } else { &[] };
        assert_eq!(
            world.told(Kind::PipelineRun, "run"),
            wanted,
            "{of_claim}, {templates:?}: {:?}",
            world.events
        );
    }
}

#[test]
fn nothing_is_made_for_who_does_not_want_it() {
    let mut world = World::new(&["n1"]);
    world.run("off", &["c"], &[]);
    world.run("assisted", &["c"], &[]);
    world.run("free", &[], &[]);
    world.run("wrong", &["c"], &[]);
    world.run("ended", &["c"], &[]);
    world.run("going", &["c"], &[]);
    for run in ["off", "assisted", "wrong", "ended", "going"] {
        world.member(&format!("{run}-pod"), run, 100);
        world.pods.clear();
    }
    let annotate = |world: &mut World, run: &str, mode: &str| {
        World::change(
            world.runs.get_mut(run).unwrap(),
            json!({"metadata": {"annotations": {keys::MODE: mode}}}),
        );
    };
    annotate(&mut world, "off", "disabled");
    annotate(&mut world, "wrong", "pipeline-runs");
    world.end("ended");
    World::change(
        world.runs.get_mut("going").unwrap(),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    let task = world.task_runs.get_mut("assisted-pod").unwrap();
    World::change(
        task,
        json!({"metadata": {"annotations": {keys::ASSISTANT: "affinity-assistant-1"}}}),
    );
    world.settle(LONG);
    assert!(world.writes.is_empty(), "{:?}", world.writes);
    assert_eq!(world.told(Kind::PipelineRun, "assisted"), [reason::ASSISTANT_IS_ON]);
    assert_eq!(world.told(Kind::PipelineRun, "wrong"), ["InvalidMode"]);
    assert_eq!(world.events.len(), 2);

    annotate(&mut world, "off", "workspaces");
    world.policy.coschedule.enabled = false;
    world.settle(LONG);
    assert!(world.writes.is_empty(), "the policy turns it off");
    world.policy.coschedule.enabled = true;
    world.policy.excluded_namespaces.insert(NAMESPACE.to_owned());
    world.settle(LONG);
    assert!(world.writes.is_empty(), "the namespace is left alone");
    world.policy.excluded_namespaces.clear();
    world.settle(SOON);
    assert_eq!(world.sets.len(), 1);
}

#[test]
fn a_cordoned_node_is_left_unless_a_member_runs() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.member("a", "run", 100);
    world.pods.clear();
    world.settle(SOON);
    assert_eq!(world.place("run"), Some("n1"));
    world.cordon("n1", true);
    world.settle(SOON);
    assert_eq!(world.place("run"), Some("n2"), "before the first pod");
    assert_eq!(world.told(Kind::PipelineRun, "run"), [reason::PLACEHOLDER_MOVED]);

    world.member("b", "run", 100);
    world.settle(SOON);
    world.cordon("n1", false);
    world.cordon("n2", true);
    world.member("d", "run", 100);
    world.settle(LONG);
    assert_eq!(
        (world.node_of("b"), world.place("run")),
        (Some("n2"), Some("n2")),
        "nothing is killed"
    );
    assert_eq!(world.node_of("d"), None);
    assert!(world.told(Kind::Pod, "d").contains(&reason::WAITS_FOR_MEMBERS), "{:?}", world.events);
    world.finish("b");
    world.settle(SOON);
    assert_eq!((world.node_of("d"), world.place("run")), (Some("n1"), Some("n1")));
}

/// The scheduler places members beside a placeholder that it has not bound yet, and may bind elsewhere; and
/// anybody can delete it.
#[test]
fn a_placeholder_that_is_apart_from_its_members_comes_to_them() {
    let mut world = begun(&["n1", "n2"]);
    assert_eq!((world.node_of("a"), world.place("run")), (Some("n1"), Some("n1")));
    let placeholder = format!("{}-0", world.placeholder("run"));
    world.pods.get_mut(&placeholder).unwrap()["spec"]["nodeName"] = json!("n2");
    world.settle(SOON);
    assert_eq!((world.node_of("a"), world.place("run")), (Some("n1"), Some("n1")));
    assert_eq!(world.told(Kind::PipelineRun, "run"), [reason::PLACEHOLDER_MOVED]);
    world.member("b", "run", 100);
    world.settle(SOON);
    assert_eq!(world.node_of("b"), Some("n1"));

    // Where it cannot come to them it stays, and goes on with the next ones.
    world.cordon("n1", true);
    world.pods.get_mut(&placeholder).unwrap()["spec"]["nodeName"] = json!("n2");
    let moves = world.told(Kind::PipelineRun, "run").len();
    world.settle(LONG);
    assert_eq!(world.place("run"), Some("n2"));
    assert_eq!(world.told(Kind::PipelineRun, "run").len(), moves);
    world.finish("a");
    world.finish("b");
    world.end("run");
    world.settle(LONG);
    assert!(world.sets.is_empty());
}

#[test]
fn a_taint_that_the_placeholder_does_not_tolerate_is_like_a_cordon() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.member("a", "run", 100);
    world.pods.clear();
    world.settle(SOON);
    let taint =
        |effect: &str| json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    World::change(world.nodes.get_mut("n1").unwrap(), taint("PreferNoSchedule"));
    let plan = world.plan();
    assert!(plan.actions.is_empty(), "{plan:?}");
    World::change(world.nodes.get_mut("n1").unwrap(), taint("NoExecute"));
    world.settle(SOON);
    assert_eq!(world.place("run"), Some("n2"));
    assert!(
        world.events.iter().any(|(_, event)| event.note.contains("taint k=v:NoExecute")),
        "{:?}",
        world.events
    );
}

#[test]
fn on_a_node_that_is_gone_or_says_nothing_the_placeholder_is_not_waited_for() {
    for is_gone in [true, false] {
        let mut world = begun(&["n1", "n2"]);
        let lose = |world: &mut World| match is_gone {
            true => _ = world.nodes.remove("n1"),
            false => world.ready("n1", false),
        };
        lose(&mut world);
        world.member("b", "run", 100);
        world.settle(LONG);
        assert_eq!(world.place("run"), Some("n1"), "a member runs there, as far as is known");
        let deleted = json!({"metadata": {"deletionTimestamp": world.now.to_string()}});
        World::change(world.pods.get_mut("a").unwrap(), deleted.clone());
        // Somebody has deleted the placeholder's pod, too: its kubelet does not answer.
        let pod = format!("{}-0", world.placeholder("run"));
        World::change(world.pods.get_mut(&pod).unwrap(), deleted);
        world.settle(SOON);
        assert_eq!((world.place("run"), world.node_of("b")), (Some("n2"), Some("n2")));
        assert!(world.writes.contains(&format!("kill Pod {pod}")), "{:?}", world.writes);
    }
}

#[test]
fn a_full_node_is_left_for_one_where_the_largest_fits() {
    let mut world = begun(&["n1", "n2", "n3", "n4"]);
    assert_eq!(world.place("run"), Some("n1"));
    for (node, cpu) in [("n1", 500), ("n2", 500), ("n3", 700), ("n4", 300)] {
        world.stranger(&format!("stranger-{node}"), node, cpu);
    }
    world.member("large", "run", 600);
    world.member("small", "run", 10);
    world.settle(LONG);
    assert_eq!(world.node_of("large"), None, "a still runs");
    assert_eq!(world.told(Kind::Pod, "large"), [reason::WAITS_FOR_MEMBERS]);
    world.finish("a");
    world.finish("small");
    world.settle(LONG);
    let n4 = Some("n4");
    assert_eq!((world.node_of("large"), world.place("run")), (n4, n4), "{:?}", world.writes);
    let moves = world.writes.iter().filter(|write| write.starts_with("delete Pod")).count();
    assert_eq!(moves, 1, "at once to where it fits: {:?}", world.writes);
}

#[test]
fn a_node_at_its_pod_limit_is_full() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.member("a", "run", 0);
    world.pods.clear();
    world.settle(SOON);
    for number in 0..9 {
        world.stranger(&format!("s{number}"), "n1", 0);
    }
    world.member("b", "run", 0);
    world.settle(LONG);
    assert_eq!((world.node_of("b"), world.place("run")), (Some("n2"), Some("n2")));
}

#[test]
fn where_no_node_fits_it_waits_gives_its_node_up_and_takes_the_first_that_does() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.member("a", "run", 2_000);
    world.settle(100);
    assert_eq!(world.place("run"), Some("n1"));
    assert_eq!(world.told(Kind::PipelineRun, "run"), [reason::NO_NODE_FITS]);
    world.settle(LONG);
    assert_eq!(world.place("run"), None, "for the autoscaler: {:?}", world.writes);
    let writes = world.writes.len();
    world.settle(LONG);
    assert_eq!(world.writes.len(), writes, "it rests: {:?}", world.writes);
    let large = json!({"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}});
    World::change(world.nodes.get_mut("n2").unwrap(), large);
    world.settle(SOON);
    assert_eq!((world.node_of("a"), world.place("run")), (Some("n2"), Some("n2")));
}

#[test]
fn a_node_that_joins_takes_who_waits() {
    let mut world = World::new(&["n1"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.member("a", "run", 900);
    world.stranger("s", "n1", 500);
    world.settle(LONG);
    assert_eq!(world.node_of("a"), None);
    world.node("n2");
    world.settle(60);
    assert_eq!(
        (world.node_of("a"), world.place("run")),
        (Some("n2"), Some("n2")),
        "{:?}",
        world.writes
    );
}

#[test]
fn what_the_scheduler_alone_knows_moves_the_group_too_and_not_for_ever() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.member("a", "run", 100);
    // Nobody but the scheduler reads this: no two of those with the label on a node.
    let term = json!({"labelSelector": {"matchLabels": {"of": "strangers"}}, "topologyKey": "kubernetes.io/hostname"});
    let pod = world.pods.get_mut("a").unwrap();
    pod["spec"]["affinity"]["podAntiAffinity"] = json!({simulator::REQUIRED: [term]});
    for node in ["n1", "n2"] {
        world.stranger(node, node, 0);
        world.pods.get_mut(node).unwrap()["metadata"]["labels"] = json!({"of": "strangers"});
    }
    world.settle(LONG);
    assert_eq!(
        (world.node_of("a"), world.place("run")),
        (Some("n3"), Some("n3")),
        "{:?}",
        world.writes
    );
    let moves = world.writes.iter().filter(|write| write.starts_with("delete Pod")).count();
    assert!(moves <= 2, "{:?}", world.writes);
}

/// The scheduler would put it back at once, and each time it is another pod.
#[test]
fn a_placeholder_that_tolerates_all_stays_on_a_cordoned_node_and_is_kept_out_of_a_lost_one() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.template("run", &json!({"tolerations": [{"operator": "Exists"}]}));
    world.member("a", "run", 100);
    world.pods.clear();
    world.settle(SOON);
    assert_eq!(world.place("run"), Some("n1"));
    let writes = world.writes.len();
    world.cordon("n1", true);
    world.member("b", "run", 100);
    world.settle(LONG);
    assert_eq!((world.node_of("b"), world.place("run")), (Some("n1"), Some("n1")));
    assert_eq!(world.writes.len(), writes, "{:?}", world.writes);
    world.finish("b");
    world.ready("n1", false);
    world.settle(LONG);
    assert_eq!(world.place("run"), Some("n2"));
    assert_eq!(world.writes.len(), writes + 2, "kept out, and killed: {:?}", world.writes);
    // Nowhere to go: it waits, and comes back when the node answers.
    world.ready("n2", false);
    world.settle(LONG);
    assert_eq!(world.place("run"), None, "{:?}", world.writes);
    let writes = world.writes.len();
    world.settle(LONG);
    assert_eq!(world.writes.len(), writes, "it rests: {:?}", world.writes);
    world.ready("n1", true);
    world.settle(SOON);
    assert_eq!(world.place("run"), Some("n1"));
}

/// It takes its own part of the node that it goes to.
#[test]
fn who_asks_for_all_that_is_free_beside_no_placeholder_fits_nowhere() {
    for (cpu, fits) in [(1_000, false), (991, false), (990, true)] {
        let mut world = World::new(&["n1", "n2", "n3"]);
        world.claim("c");
        world.run("run", &["c"], &[]);
        world.member("first", "run", 100);
        world.pods.clear();
        world.settle(SOON);
        world.stranger("s", "n1", 500);
        world.member("a", "run", cpu);
        world.settle(LONG);
        assert_eq!(world.node_of("a"), if fits { Some("n2") } else { None }, "{cpu}");
        let told = world.told(Kind::Pod, "a").contains(&reason::NO_NODE_FITS);
        assert_eq!(told, !fits, "{cpu}: {:?}", world.events);
        let moves = world.writes.iter().filter(|write| write.starts_with("delete Pod")).count();
        assert_eq!(moves, 1, "{cpu}: {:?}", world.writes);
    }
}

#[test]
fn a_node_that_the_placeholder_may_not_be_on_is_none_to_move_to() {
    let zone = json!([{"key": "zone", "operator": "In", "values": ["a"]}]);
    for template in [
        json!({"nodeSelector": {"zone": "a"}}),
        json!({"affinity": {"nodeAffinity": {simulator::REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": zone}]}}}}),
    ] {
        let mut world = World::new(&["n1", "n2"]);
        let label = json!({"metadata": {"labels": {"zone": "a"}}});
        World::change(world.nodes.get_mut("n1").unwrap(), label);
        world.claim("c");
        world.run("run", &["c"], &[]);
        world.template("run", &template);
        world.member("first", "run", 100);
        world.pods.clear();
        world.settle(SOON);
        assert_eq!(world.place("run"), Some("n1"));
        world.stranger("s", "n1", 500);
        world.member("a", "run", 600);
        world.settle(100);
        assert_eq!(world.place("run"), Some("n1"), "{:?}", world.writes);
        assert_eq!(world.told(Kind::Pod, "a"), [reason::NO_NODE_FITS]);
    }
}

/// What the scheduler alone knows may hold everywhere: each node is tried once, and then it rests.
#[test]
fn what_keeps_members_out_everywhere_is_told_and_not_tried_for_ever() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.member("a", "run", 100);
    world.mount("a", "missing");
    let moves =
        |world: &World| world.writes.iter().filter(|write| write.starts_with("delete Pod")).count();
    world.settle(31);
    for (kind, name) in [(Kind::Pod, "a"), (Kind::TaskRun, "a"), (Kind::PipelineRun, "run")] {
        let told = world.told(kind, name);
        assert!(told.contains(&reason::MEMBERS_UNSCHEDULABLE), "{kind:?}: {told:?}");
    }
    world.settle(250);
    assert_eq!(moves(&world), 2, "one round: {:?}", world.writes);
    world.settle(LONG);
    // A round of three nodes and a rest are 330 seconds at least.
    assert!((3..=3 * 12).contains(&moves(&world)), "{:?}", world.writes);
    world.claim("missing");
    world.settle(SOON);
    assert!(world.node_of("a").is_some());
}

/// By kube-downscaler, or by hand.
#[test]
fn the_size_of_a_placeholder_is_restored() {
    let mut world = World::new(&["n1"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.member("a", "run", 100);
    world.pods.clear();
    world.settle(SOON);
    for size in [0, 2] {
        let placeholder = world.placeholder("run");
        world.sets.get_mut(&placeholder).unwrap()["spec"]["replicas"] = json!(size);
        let writes = world.writes.len();
        world.settle(LONG);
        assert_eq!(world.sets[&placeholder]["spec"]["replicas"], 1);
        assert_eq!(world.place("run"), Some("n1"));
        assert_eq!(world.writes.len(), writes + 1, "{:?}", world.writes);
        assert!(world.events.is_empty(), "{:?}", world.events);
    }
}

/// Nobody knew where they would be when the placeholder was made: their class binds at once.
#[test]
fn volumes_that_turn_out_to_lie_apart_split_a_group_that_stands() {
    let mut world = World::new(&["n1", "n2"]);
    world.run("run", &[], &["a", "b"]);
    let annotations = json!({"metadata": {"annotations": {keys::MODE: "pipelineruns"}}});
    World::change(world.runs.get_mut("run").unwrap(), annotations);
    let uid = world.runs["run"]["metadata"]["uid"].as_str().unwrap().to_owned();
    let [first, second] = ["", "b"].map(|key| keys::of_run(&uid, key));
    let [a, b] = ["a", "b"].map(|name| crate::view::pipeline_run::claim_name(None, name, &uid));
    for (name, claim) in [("x", &a), ("y", &b)] {
        world.member_of(name, "run", &first, 100);
        world.mount(name, claim);
    }
    let plan = world.plan();
    plan.actions.into_iter().for_each(|action| world.act(action));
    assert_eq!(world.sets.keys().collect::<Vec<_>>(), [&first]);
    world.pin(&a, "n1");
    world.pin(&b, "n2");
    world.settle(LONG);
    assert_eq!(world.node_of("x"), Some("n1"), "{:?}", world.writes);
    assert_eq!(world.told(Kind::Pod, "y"), [reason::RECREATED]);
    world.member_of("y", "run", &second, 100);
    world.mount("y", &b);
    world.settle(LONG);
    assert_eq!(world.node_of("y"), Some("n2"), "{:?}", world.writes);
    for (name, claim) in [(&first, &a), (&second, &b)] {
        let volumes = &world.sets[name]["spec"]["template"]["spec"]["volumes"];
        let claims: Vec<_> = volumes.as_array().unwrap().iter().collect();
        assert_eq!(claims.len(), 1, "{volumes}");
        assert_eq!(claims[0]["persistentVolumeClaim"]["claimName"], **claim);
    }
}

#[test]
fn a_volume_that_is_on_one_node_keeps_its_group_there() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.pin("c", "n2");
    world.run("run", &["c"], &[]);
    world.member("a", "run", 100);
    world.pods.clear();
    world.settle(SOON);
    assert_eq!(world.place("run"), Some("n2"));
    let writes = world.writes.len();
    world.cordon("n2", true);
    world.member("b", "run", 100);
    world.settle(LONG);
    assert_eq!((world.node_of("b"), world.place("run")), (None, Some("n2")));
    assert_eq!(world.told(Kind::Pod, "b"), [reason::VOLUME_PINS_NODE]);
    assert_eq!(world.told(Kind::TaskRun, "b"), [reason::VOLUME_PINS_NODE]);
    assert_eq!(world.told(Kind::PipelineRun, "run"), [reason::VOLUME_PINS_NODE]);
    let (_, event) = &world.events[0];
    let named = "volume volume-of-c of claim c can be mounted on no node but n2";
    assert!(event.note.ends_with(named), "{event:?}");
    assert_eq!(world.writes.len(), writes, "{:?}", world.writes);
    world.cordon("n2", false);
    world.settle(SOON);
    assert_eq!(world.node_of("b"), Some("n2"));
}

#[test]
fn gates_are_lifted_with_the_placeholders_node() {
    let zone = |zone: &str| json!([{"key": "zone", "operator": "In", "values": [zone]}]);
    let field = |node: &str| json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let own = json!({"key": "metadata.name", "operator": "NotIn", "values": ["n9"]});
    for (terms, lifted) in [
        (Value::Null, json!([{"matchFields": [field("n1")]}])),
        (
            json!([{"matchExpressions": zone("a")}, {"matchFields": [own]}]),
            json!([
                {"matchExpressions": zone("a"), "matchFields": [field("n1")]},
                {"matchFields": [own, field("n1")]},
            ]),
        ),
        (json!([{}, {"matchFields": [own]}]), json!([{}, {"matchFields": [own, field("n1")]}])),
    ] {
        let mut world = World::new(&["n1", "n2"]);
        world.claim("c");
        world.run("run", &["c"], &[]);
        world.gated("a", "run", &terms);
        world.settle(SOON);
        let pod = &world.pods["a"]["spec"];
        assert_eq!(pod["schedulingGates"], json!([{"name": "example.com/mine"}]));
        let present = &pod["affinity"]["nodeAffinity"][simulator::REQUIRED]["nodeSelectorTerms"];
        assert_eq!(*present, lifted);
    }
}

#[test]
fn a_gate_whose_group_is_gone_is_lifted_too() {
    let mut world = World::new(&["n1"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.gated("a", "run", &Value::Null);
    world.end("run");
    world.settle(SOON);
    assert_eq!(world.node_of("a"), Some("n1"));
    assert_eq!(world.told(Kind::Pod, "a"), [reason::GATE_LIFTED]);
}

/// The binding is ours, so that it is ours to take back, whatever the policy says of other pods.
#[test]
fn who_was_bound_by_name_is_not_left_behind() {
    for repair in [Repair::Report, Repair::RecreatePending] {
        for pace in [Pace::Whole, Pace::First, Pace::Last] {
            let mut world = World::new(&["n1", "n2"]);
            world.policy.repair = repair;
            world.pace = pace;
            world.claim("c");
            world.run("run", &["c"], &[]);
            world.member("first", "run", 100);
            world.pods.clear();
            world.settle(SOON);
            world.gated("a", "run", &Value::Null);
            world.member("b", "run", 100);
            // Lifted at once, and then the node is full before the scheduler looks.
            let lifted =
                world.plan().actions.into_iter().find(|of| &*of.target.name == "a").unwrap();
            world.act(lifted);
            world.stranger("s", "n1", 950);
            world.settle(LONG);
            assert_eq!(world.told(Kind::Pod, "a"), [reason::RECREATED], "{:?}", world.events);
            let n2 = Some("n2");
            assert_eq!((world.node_of("a"), world.node_of("b"), world.place("run")), (n2, n2, n2));
            let deleted = world.writes.iter().filter(|write| *write == "delete Pod a").count();
            assert_eq!(deleted, 1, "{:?}", world.writes);
        }
    }
}

/// Nobody makes it again, so that it stays, and the others do not wait for it.
#[test]
fn who_was_bound_by_name_and_is_of_no_task_run_is_told_and_holds_nobody_up() {
    let mut world = World::new(&["n1", "n2"]);
    world.native("a", "group");
    world.native("b", "group");
    world.settle(SOON);
    assert_eq!((world.node_of("a"), world.node_of("b")), (Some("n1"), Some("n1")));
    world.finish("a");
    world.finish("b");
    for name in ["bare", "follows"] {
        world.native(name, "group");
    }
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    let bound = json!({simulator::REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}});
    world.pods.get_mut("bare").unwrap()["spec"]["affinity"] = json!({"nodeAffinity": bound});
    world.stranger("s", "n1", 950);
    world.settle(LONG);
    assert_eq!((world.node_of("bare"), world.node_of("follows")), (None, Some("n2")));
    assert_eq!(world.told(Kind::Pod, "bare"), [reason::BOUND_ELSEWHERE], "{:?}", world.events);
    let (_, event) =
        world.events.iter().find(|(_, event)| event.reason == reason::BOUND_ELSEWHERE).unwrap();
    assert!(event.note.contains("whoever made it must make it again"), "{event:?}");
    assert!(world.pods.contains_key("bare"), "{:?}", world.writes);

    // Alone it can only come in where it is bound to: nothing is moved for it, nor is it called.
    world.finish("follows");
    let writes = world.writes.len();
    world.settle(LONG);
    assert_eq!(world.writes.len(), writes, "{:?}", world.writes);
}

/// A node that its author names is not ours to take back.
#[test]
fn a_member_that_names_a_node_itself_is_not_made_again_for_it() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.member("first", "run", 100);
    world.pods.clear();
    world.settle(SOON);
    assert_eq!(world.place("run"), Some("n1"));
    world.member("a", "run", 100);
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n2"]});
    world.pods.get_mut("a").unwrap()["spec"]["affinity"]["nodeAffinity"] =
        json!({simulator::REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}});
    world.settle(LONG);
    assert_eq!((world.node_of("a"), world.place("run")), (Some("n2"), Some("n2")));
    assert!(!world.writes.contains(&"delete Pod a".to_owned()), "{:?}", world.writes);
}

/// A gate that is lifted to a node cannot be taken back: what the member itself says of nodes, and the
/// room there, come first.
#[test]
fn a_gate_is_lifted_only_where_the_member_can_be() {
    let zone = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]);
    type Change = fn(&mut World);
    let cases: [(&str, Value, u32, Change); 4] = [
        ("its own terms", zone, 100, |_| {}),
        ("its selector", Value::Null, 100, |world| {
            world.pods.get_mut("a").unwrap()["spec"]["nodeSelector"] = json!({"zone": "b"});
        }),
        ("a taint that the placeholder tolerates", Value::Null, 100, |world| {
            let taint = json!({"key": "k", "effect": "NoSchedule"});
            World::change(world.nodes.get_mut("n1").unwrap(), json!({"spec": {"taints": [taint]}}));
        }),
        ("the room", Value::Null, 600, |world| world.stranger("s", "n1", 500)),
    ];
    for (why, terms, cpu, change) in cases {
        let mut world = World::new(&["n1", "n2"]);
        world.claim("c");
        world.run("run", &["c"], &[]);
        world.template("run", &json!({"tolerations": [{"key": "k", "operator": "Exists"}]}));
        let label = json!({"metadata": {"labels": {"zone": "b"}}});
        World::change(world.nodes.get_mut("n2").unwrap(), label);
        world.member("first", "run", 100);
        world.pods.clear();
        world.settle(SOON);
        assert_eq!(world.place("run"), Some("n1"));
        world.gated_with("a", "run", &terms, cpu);
        world.pods.get_mut("a").unwrap()["spec"]["tolerations"] = Value::Null;
        change(&mut world);
        world.settle(SOON);
        assert_eq!(world.node_of("a"), None, "{why}");
        let spec = &world.pods["a"]["spec"];
        assert_eq!(spec["schedulingGates"].as_array().map(Vec::len), Some(2), "{why}: {spec}");
        world.settle(60);
        assert_eq!((world.node_of("a"), world.place("run")), (Some("n2"), Some("n2")), "{why}");
        assert!(!world.writes.contains(&"delete Pod a".to_owned()), "{why}: {:?}", world.writes);
    }
}

#[test]
fn two_runs_with_one_claim_share_a_node_or_wait_for_each_other() {
    for mode in [CoscheduleMode::Workspaces, CoscheduleMode::IsolatePipelinerun] {
        let mut world = World::new(&["n1", "n2"]);
        world.policy.coschedule.mode = mode;
        world.claim("c");
        world.run("first", &["c"], &[]);
        world.now += SignedDuration::from_secs(1);
        world.run("second", &["c"], &[]);
        let key = if mode == CoscheduleMode::Workspaces { "c" } else { "" };
        let name = |world: &World, run: &str| {
            keys::of_run(world.runs[run]["metadata"]["uid"].as_str().unwrap(), key)
        };
        let (first, second) = (name(&world, "first"), name(&world, "second"));
        world.member("a", "first", 100);
        world.member("b", "second", 100);
        world.pods.clear();
        world.settle(LONG);
        let place =
            |world: &World, name: &str| world.node_of(&format!("{name}-0")).map(str::to_owned);
        assert_eq!(place(&world, &first).as_deref(), Some("n1"));
        if mode == CoscheduleMode::IsolatePipelinerun {
            assert!(!world.sets.contains_key(&second));
            assert_eq!(world.told(Kind::PipelineRun, "second"), [reason::SHARED_CLAIM]);
            world.member_of("d", "second", &second, 100);
            world.settle(SOON);
            assert_eq!(world.told(Kind::TaskRun, "d"), [reason::SHARED_CLAIM]);
            assert_eq!(world.told(Kind::Pod, "d"), [reason::SHARED_CLAIM]);
            world.pods.remove("d");
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
            "nobody leads it: {:?}",
            world.writes
        );
    }
}

/// Else the later run's pods would be on one node with the claim, and the earlier one's on another.
#[test]
fn who_leads_does_not_leave_while_a_follower_uses_the_claim() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.run("first", &["c"], &[]);
    world.now += SignedDuration::from_secs(1);
    world.run("second", &["c"], &[]);
    world.member("a", "first", 100);
    world.pods.clear();
    world.settle(SOON);
    world.member("b", "second", 100);
    world.mount("b", "c");
    world.settle(SOON);
    assert_eq!((world.place("first"), world.node_of("b")), (Some("n1"), Some("n1")));
    world.cordon("n1", true);
    world.member("d", "first", 100);
    world.settle(LONG);
    assert_eq!((world.place("first"), world.place("second")), (Some("n1"), Some("n1")));
    assert!(world.told(Kind::Pod, "d").contains(&reason::WAITS_FOR_MEMBERS), "{:?}", world.events);
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
        world.pods.clear();
    }
    world.settle(LONG);
    let place = |world: &World, run: &str| {
        let name = keys::of_run(world.runs[run]["metadata"]["uid"].as_str().unwrap(), "");
        world.node_of(&format!("{name}-0")).map(str::to_owned)
    };
    let places = ["r1", "r2", "r3"].map(|run| place(&world, run));
    assert_eq!(places.iter().flatten().collect::<BTreeSet<_>>().len(), 2);
    let waits = ["r1", "r2", "r3"].into_iter().find(|run| place(&world, run).is_none()).unwrap();
    assert_eq!(world.told(Kind::PipelineRun, waits), [reason::PLACEHOLDER_NOT_PLACED]);
    let runs = ["r1", "r2", "r3"].into_iter().find(|run| *run != waits).unwrap();
    world.end(runs);
    world.settle(SOON);
    assert!(place(&world, waits).is_some());
}

#[test]
fn a_claim_that_becomes_known_later_is_mounted_while_no_member_runs() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.claim("later");
    world.pin("later", "n2");
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
    let volumes = &world.sets[&world.placeholder("run")]["spec"]["template"]["spec"]["volumes"];
    assert_eq!(volumes.as_array().unwrap().len(), 2);
}

#[test]
fn a_native_group_outlives_its_last_pod_for_a_while() {
    let mut world = World::new(&["n1"]);
    let name = world.native("a", "group");
    world.settle(SOON);
    assert_eq!(world.node_of("a"), Some("n1"));
    world.finish("a");
    world.settle(60);
    assert!(world.sets.contains_key(&name), "the next pod may come");
    world.native("b", "group");
    world.settle(LONG);
    assert!(world.sets.contains_key(&name));
    assert_eq!(world.node_of("b"), Some("n1"));
    world.pods.remove("b");
    world.settle(299);
    assert!(world.sets.contains_key(&name), "{:?}", world.sets);
    world.settle(10);
    assert!(world.sets.is_empty());
    assert_eq!(world.writes.len(), 5, "made, idle, not idle, idle, removed: {:?}", world.writes);
}

#[test]
fn a_label_alone_makes_no_group() {
    let mut world = World::new(&["n1"]);
    world.native("a", "group");
    world.pods.get_mut("a").unwrap()["metadata"]["labels"][keys::MEMBER] =
        json!("affinity-assistant-0000000000");
    world.settle(LONG);
    assert!(world.writes.is_empty(), "{:?}", world.writes);
}

#[test]
fn what_belongs_to_nobody_goes_and_what_is_not_ours_stays() {
    let mut world = World::new(&["n1"]);
    let own = json!({"spec": {"template": {"metadata": {}, "spec": {"containers": []}}, "selector": {}, "serviceName": ""}});
    for (number, name) in ["affinity-assistant-0000000000", "mine"].into_iter().enumerate() {
        let mut set = own.clone();
        set["metadata"] = json!({"name": name, "namespace": NAMESPACE, "uid": format!("set-{number}"),
            "labels": {keys::PLACEHOLDER: name}});
        world.sets.insert(name.to_owned(), set);
    }
    world.settle(SOON);
    assert_eq!(world.sets.keys().collect::<Vec<_>>(), ["mine"]);
}

#[test]
fn a_run_that_is_made_again_under_its_name_has_a_placeholder_of_its_own() {
    let mut world = begun(&["n1"]);
    let old = world.placeholder("run");
    world.pods.remove("a");
    world.runs.remove("run");
    world.run("run", &["c"], &[]);
    world.member("b", "run", 100);
    world.settle(SOON);
    assert_ne!(world.placeholder("run"), old);
    assert_eq!(world.sets.keys().collect::<Vec<_>>(), [&world.placeholder("run")]);
    assert_eq!(world.node_of("b"), Some("n1"));
}

/// U25, U26: what Tekton does with claims at the end of a run, and nothing with those of others.
#[test]
fn claims_of_templates_go_at_the_end_where_tekton_would_delete_them() {
    for (annotation, goes) in [
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
        World::change(world.runs.get_mut("run").unwrap(), annotations);
        world.member("a", "run", 100);
        let own = world.claims.keys().find(|name| *name != "c").unwrap().clone();
        world.mount("a", &own);
        world.settle(SOON);
        world.end("run");
        world.settle(SOON);
        assert!(world.claims[&own]["metadata"]["deletionTimestamp"].is_null(), "a goes on");
        world.finish("a");
        world.settle(SOON);
        let claim = &world.claims[&own]["metadata"];
        assert_eq!(!claim["deletionTimestamp"].is_null(), goes, "{annotation:?}");
        let finalizers = if goes {
            json!(["example.com/other"])
        } else {
            json!(["example.com/other", "kubernetes.io/pvc-protection"])
        };
        assert_eq!(claim["finalizers"], finalizers, "{annotation:?}");
        assert!(world.claims["c"]["metadata"]["deletionTimestamp"].is_null());
    }
}

#[test]
fn a_placeholders_own_claims_take_the_place_of_the_runs() {
    let mut world = World::new(&["n1"]);
    world.policy.coschedule.volumes = Volumes::Provision;
    world.run("run", &[], &["source"]);
    let claim = world.claims.keys().next().unwrap().clone();
    World::change(
        world.claims.get_mut(&claim).unwrap(),
        json!({"spec": {"storageClassName": keys::PARKED}}),
    );
    world.member("a", "run", 100);
    world.settle(SOON);
    let set = &world.sets[&world.placeholder("run")]["spec"];
    assert_eq!(set["volumeClaimTemplates"][0]["metadata"]["name"], *claim);
    assert_eq!(set["template"]["spec"]["volumes"], json!([]), "the parked one is never mounted");
    // Another policy changes nothing of what stands.
    world.policy.coschedule.volumes = Volumes::Adopt;
    let writes = world.writes.len();
    world.settle(LONG);
    assert_eq!(world.writes.len(), writes, "{:?}", world.writes);
}

/// Each placeholder would make a volume of its own of it, and the tasks of one would not see what those of
/// another wrote.
#[test]
fn what_many_nodes_mount_is_tektons_claim_for_all_placeholders() {
    let mut world = World::new(&["n1"]);
    world.policy.coschedule.volumes = Volumes::Provision;
    world.run("run", &[], &["w"]);
    let claim = world.claims.keys().next().unwrap().clone();
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
    World::change(world.runs.get_mut("run").unwrap(), change);
    World::change(world.claims.get_mut(&claim).unwrap(), json!({"spec": many}));
    world.member("a", "run", 100);
    world.pods.clear();
    for is_known in [true, false] {
        world.sets.clear();
        if !is_known {
            world.claims.clear();
        }
        world.settle(SOON);
        assert_eq!(world.sets.len(), 2, "{:?}", world.writes);
        for set in world.sets.values() {
            assert!(set["spec"]["volumeClaimTemplates"].as_array().is_none_or(Vec::is_empty));
            let volume = &set["spec"]["template"]["spec"]["volumes"][0];
            assert_eq!(volume["persistentVolumeClaim"]["claimName"], *claim);
        }
    }
}

/// Its placeholder and pods keep the claim's name, and a webhook cannot know of the first run.
#[test]
fn a_run_with_a_parked_claim_that_tektons_own_assistant_places_is_to_be_made_again() {
    for is_parked in [true, false] {
        let mut world = World::new(&["n1"]);
        world.policy.coschedule.volumes = Volumes::Provision;
        world.run("run", &[], &["source"]);
        if is_parked {
            for claim in world.claims.values_mut() {
                World::change(claim, json!({"spec": {"storageClassName": keys::PARKED}}));
            }
        }
        world.member("a", "run", 100);
        let annotations = json!({keys::ASSISTANT: "affinity-assistant-1"});
        for assisted in [world.task_runs.get_mut("a").unwrap(), world.pods.get_mut("a").unwrap()] {
            World::change(assisted, json!({"metadata": {"annotations": annotations}}));
        }
        world.settle(LONG);
        assert!(world.writes.is_empty(), "{:?}", world.writes);
        assert_eq!(world.told(Kind::PipelineRun, "run"), [reason::ASSISTANT_IS_ON]);
        let note = &world.events[0].1.note;
        assert_eq!(note.contains("make the run again"), is_parked, "{note}");
    }
}

/// The webhook was away: what a pod mounts does not change any more, and the claim is never bound.
#[test]
fn a_pod_that_mounts_a_parked_claim_is_made_again() {
    let change = |world: &mut World, with: &Value| {
        World::change(world.pods.get_mut("a").unwrap(), with.clone());
    };
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let assisted = json!({"metadata": {"annotations": {keys::ASSISTANT: "a"}}});
    let ignored = json!({"metadata": {"labels": {"stowplan.dev/ignore": "true"}}});
    for (what, pod, is_parked, goes) in [
        ("as it came", json!({}), true, true),
        ("gated", json!({"spec": {"schedulingGates": [{"name": "example.com/mine"}]}}), true, true),
        ("the claim is a claim", json!({}), false, false),
        ("bound", json!({"spec": {"nodeName": "n1"}}), true, false),
        ("ended", json!({"status": {"phase": "Failed"}}), true, false),
        ("going", deleted, true, false),
        ("Tekton's", assisted, true, false),
        ("left alone", ignored, true, false),
        ("nobody's", json!({"metadata": {"ownerReferences": null}}), true, false),
        ("pointed to the other", json!({"spec": {"volumes": null}}), true, false),
    ] {
        for repair in [Repair::Report, Repair::RecreatePending] {
            let mut world = World::new(&["n1"]);
            world.policy.repair = repair;
            world.policy.coschedule.volumes = Volumes::Provision;
            world.run("run", &[], &["source"]);
            let claim = world.claims.keys().next().unwrap().clone();
            let class = if is_parked { keys::PARKED } else { "fast" };
            let class = json!({"spec": {"storageClassName": class}});
            World::change(world.claims.get_mut(&claim).unwrap(), class);
            world.member("a", "run", 100);
            world.mount("a", &claim);
            change(&mut world, &json!({"metadata": {"labels": null}, "spec": {"affinity": null}}));
            change(&mut world, &pod);
            let made_again = |world: &World| {
                let actions = world.plan().actions;
                let of_pod = actions.into_iter().filter(|action| *action.target.name == *"a");
                let mut writes = of_pod.filter(|action| action.write != Write::None);
                writes.next().is_some_and(|action| {
                    let version = world.pods["a"]["metadata"]["resourceVersion"].as_str();
                    let version = version.map(Into::into);
                    assert_eq!(action.write, Write::Delete { grace: None, version }, "{what}");
                    assert_eq!(action.events[0].reason, reason::RECREATED);
                    true
                })
            };
            assert_eq!(made_again(&world), goes, "{what}, {repair:?}");
            // Made again by the same name, and the webhook is away still: it is not deleted at once.
            world.now += SignedDuration::from_secs(20);
            let now = world.now.to_string();
            change(&mut world, &json!({"metadata": {"uid": "again", "creationTimestamp": now}}));
            assert!(!made_again(&world), "{what}");
            world.now += SignedDuration::from_secs(19);
            assert_eq!(world.plan().recheck_at.is_some(), goes, "{what}");
            assert!(!made_again(&world), "{what}");
            world.now += SignedDuration::from_secs(1);
            assert_eq!(made_again(&world), goes, "{what}");
            // However long it takes, a minute is enough.
            world.now += SignedDuration::from_hours(2);
            let now = world.now.to_string();
            change(&mut world, &json!({"metadata": {"creationTimestamp": now}}));
            assert!(!made_again(&world), "{what}");
            world.now += SignedDuration::from_secs(60);
            assert_eq!(made_again(&world), goes, "{what}");
            world.end("run");
            assert!(!made_again(&world), "{what}, and the run has ended");
        }
    }
}

/// They are the run's, and not controlled by it: the StatefulSet controller copies what the template says.
/// What counts is the mode that the run had, whatever is in force when it has ended.
#[test]
fn claims_that_a_placeholder_made_go_with_a_whole_run() {
    for (mode, goes) in
        [("pipelineruns", true), ("isolate-pipelinerun", true), ("workspaces", false)]
    {
        for (cleanup, marked) in [(false, true), (true, true), (true, false), (false, false)] {
            let mut world = World::new(&["n1"]);
            world.policy.coschedule.volumes = Volumes::Provision;
            world.namespace_mode = Some(mode.to_owned());
            world.run("run", &[], &["source"]);
            let annotations =
                json!({"metadata": {"annotations": {keys::AUTO_CLEANUP: cleanup.to_string()}}});
            World::change(world.runs.get_mut("run").unwrap(), annotations);
            for claim in world.claims.values_mut() {
                World::change(claim, json!({"spec": {"storageClassName": keys::PARKED}}));
            }
            world.member("a", "run", 100);
            world.settle(SOON);
            let set = world.sets.values().next().unwrap();
            let template = set["spec"]["volumeClaimTemplates"][0]["metadata"].clone();
            assert!(template["ownerReferences"][0]["controller"].is_null());
            assert_eq!(template["annotations"], json!({keys::MODE: mode}));
            world.claim("own");
            let mut made = json!({"metadata": template});
            made["metadata"]["name"] = json!("own");
            if !marked {
                made["metadata"]["annotations"] = Value::Null;
            }
            World::change(world.claims.get_mut("own").unwrap(), made);
            world.finish("a");
            world.end("run");
            // While its placeholder still stands, and after that.
            let others = ["pipelineruns", "workspaces", "isolate-pipelinerun", "disabled", "none"];
            for other in others {
                world.namespace_mode = Some(other.to_owned());
                if let Some(mode) = crate::systems::coschedule::mode::read(other) {
                    world.policy.coschedule.mode = mode;
                }
                world.settle(SOON);
            }
            let deleted = &world.claims["own"]["metadata"]["deletionTimestamp"];
            let goes = marked && (goes || cleanup);
            assert_eq!(!deleted.is_null(), goes, "{mode}, {cleanup}, {marked}");
        }
    }
}

/// Its author has asked for that, whatever mode is in force after the end: what is left of a run that was
/// ours is seen to, and one that was not is left alone.
#[test]
fn claims_of_templates_go_whatever_mode_comes_later() {
    for was_ours in [true, false] {
        let mut world = World::new(&["n1"]);
        world.run("run", &[], &["source"]);
        let annotations = json!({"metadata": {"annotations": {keys::AUTO_CLEANUP: "true"}}});
        World::change(world.runs.get_mut("run").unwrap(), annotations);
        world.member("a", "run", 100);
        let own = world.claims.keys().next().unwrap().clone();
        world.mount("a", &own);
        if !was_ours {
            world.namespace_mode = Some("disabled".to_owned());
            world.pods.get_mut("a").unwrap()["metadata"]["labels"] = json!({});
            world.pods.get_mut("a").unwrap()["spec"]["affinity"] = json!({});
        }
        world.settle(SOON);
        world.end("run");
        world.settle(SOON);
        assert!(world.sets.is_empty());
        for mode in ["disabled", "of-no-kind"] {
            world.namespace_mode = Some(mode.to_owned());
            world.settle(SOON);
        }
        world.finish("a");
        world.settle(SOON);
        let claim = &world.claims[&own]["metadata"];
        assert_eq!(!claim["deletionTimestamp"].is_null(), was_ours);
        let protected = claim["finalizers"].to_string().contains("pvc-protection");
        assert_eq!(protected, !was_ours);
    }
}

/// Whoever looks into a volume, or goes on with it, loses nothing.
#[test]
fn a_claim_is_kept_for_as_long_as_any_pod_mounts_it() {
    for is_placed in [true, false] {
        let mut world = World::new(&["n1"]);
        world.run("run", &[], &["source"]);
        let annotations = json!({"metadata": {"annotations": {keys::AUTO_CLEANUP: "true"}}});
        World::change(world.runs.get_mut("run").unwrap(), annotations);
        world.member("a", "run", 100);
        let own = world.claims.keys().next().unwrap().clone();
        world.mount("a", &own);
        world.settle(SOON);
        world.stranger("debug", "n1", 10);
        world.mount("debug", &own);
        if !is_placed {
            let debug = world.pods.get_mut("debug").unwrap();
            debug["spec"].as_object_mut().unwrap().remove("nodeName");
            debug["spec"]["schedulingGates"] = json!([{"name": keys::GATE}]);
            debug["status"] = json!({"phase": "Pending"});
        }
        world.finish("a");
        world.end("run");
        world.settle(LONG);
        assert!(world.claims[&own]["metadata"]["deletionTimestamp"].is_null());
        // Somebody deletes it by hand: it is protected all the same.
        let deleted = json!({"metadata": {"deletionTimestamp": world.now.to_string()}});
        World::change(world.claims.get_mut(&own).unwrap(), deleted);
        world.settle(LONG);
        let finalizers = |world: &World| world.claims[&own]["metadata"]["finalizers"].clone();
        assert_eq!(finalizers(&world).as_array().unwrap().len(), 2);
        world.finish("debug");
        let plan = world.plan();
        let patch = plan.actions.iter().find(|action| *action.target.name == *own).unwrap();
        let version = &world.claims[&own]["metadata"]["resourceVersion"];
        let Write::Patch(operations) = &patch.write else { panic!("{patch:?}") };
        let told = serde_json::to_value(operations).unwrap();
        assert_eq!(told[1]["path"], "/metadata/resourceVersion");
        assert_eq!(told[1]["value"], *version);
        world.settle(SOON);
        assert_eq!(finalizers(&world), json!(["example.com/other"]));
    }
}

/// In Tekton's default mode only the TaskRuns say so that use a claim; and Tekton's flag may change while
/// a run goes on.
#[test]
fn who_was_admitted_before_tektons_assistant_was_seen_has_a_placeholder() {
    for stands in [true, false] {
        let mut world = World::new(&["n1"]);
        world.claim("c");
        world.run("run", &["c"], &[]);
        world.member("a", "run", 100);
        if stands {
            world.settle(SOON);
            assert_eq!(world.node_of("a"), Some("n1"));
        }
        world.task_run("b", "run");
        world.assist("b");
        world.settle(SOON);
        assert_eq!(world.node_of("a"), Some("n1"));
        assert_eq!(world.told(Kind::PipelineRun, "run"), [reason::ASSISTANT_IS_ON]);
        // One that comes meanwhile, too; one that has ended says it as well.
        let ended = json!({"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}});
        World::change(world.task_runs.get_mut("b").unwrap(), ended);
        world.member("d", "run", 100);
        world.settle(SOON);
        assert_eq!(world.node_of("d"), Some("n1"));
        assert_eq!(world.sets.len(), 1);
        world.finish("a");
        world.finish("d");
        world.settle(SOON);
        assert!(world.sets.is_empty(), "nobody needs it any more");
        let writes = world.writes.len();
        world.settle(LONG);
        assert_eq!(world.writes.len(), writes);
    }
}

/// An earlier run that is pending, waits for approval, is deleted, is placed by Tekton or has a placeholder
/// that cannot be made holds up nobody.
#[test]
fn nobody_waits_for_a_run_that_never_begins() {
    for mode in [CoscheduleMode::PipelineRuns, CoscheduleMode::IsolatePipelinerun] {
        for what in ["pending", "deleted", "assisted", "group", "failed"] {
            let mut world = World::new(&["n1", "n2"]);
            world.policy.coschedule.mode = mode;
            world.claim("c");
            world.run("first", &["c"], &[]);
            let run = world.runs.get_mut("first").unwrap();
            match what {
                "deleted" => World::change(
                    run,
                    json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
                ),
                "group" => {
                    World::change(run, json!({"metadata": {"annotations": {keys::GROUP: "g"}}}))
                }
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
                assert_eq!(world.sets.len(), 1);
            }
            world.now += SignedDuration::from_secs(1);
            world.run("second", &["c"], &[]);
            world.task_run("u", "second");
            world.settle(SOON);
            let uid = world.runs["second"]["metadata"]["uid"].as_str().unwrap();
            let second = keys::of_run(uid, "");
            assert!(world.sets.contains_key(&second), "{mode:?}, {what}");
            assert_eq!(world.told(Kind::PipelineRun, "second"), [""; 0], "{mode:?}, {what}");
            assert_eq!(world.sets.len(), 1 + usize::from(what == "failed"));
        }
    }
}

/// Who was there first stays where it is, and who was made earlier and begins later comes to it.
#[test]
fn a_run_that_begins_late_goes_where_the_claim_is() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.run("first", &["c"], &[]);
    world.now += SignedDuration::from_secs(1);
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
    assert!(world.told(Kind::PipelineRun, "second").is_empty(), "{:?}", world.events);
}

/// Its pods carry the annotation as well, and are of that group.
#[test]
fn a_run_that_names_a_group_has_one_placeholder() {
    let mut world = World::new(&["n1"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    let annotations = json!({"metadata": {"annotations": {keys::GROUP: "g"}}});
    World::change(world.runs.get_mut("run").unwrap(), annotations);
    world.task_run("t", "run");
    let native = world.native("a", "g");
    world.mount("a", "c");
    world.settle(SOON);
    assert_eq!(world.sets.keys().collect::<Vec<_>>(), [&native]);
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
        world.now += SignedDuration::from_secs(1);
        // Where it would go by itself.
        let other = world.native("b", "g");
        world.mount("b", "c");
        if !is_run_first {
            world.settle(SOON);
            world.run("run", &["c"], &[]);
            world.member("a", "run", 100);
            world.mount("a", "c");
        }
        let set = world.sets.get_mut(&other);
        assert_eq!(set.is_some(), !is_run_first);
        world.settle(LONG);
        let follower = if is_run_first { other.clone() } else { world.placeholder("run") };
        let bound = &world.sets[&follower]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
        assert!(bound.to_string().contains("n1"), "{bound}");
        assert_eq!((world.node_of("a"), world.node_of("b")), (Some("n1"), Some("n1")));
        let leads = if is_run_first { world.placeholder("run") } else { other.clone() };
        let leading = &world.sets[&leads]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
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
    assert_eq!(world.sets.values().filter(bound).count(), 1, "the second to the first's node");
}

/// An owner reference and a label are their authors' words.
#[test]
fn what_claims_to_be_a_runs_in_another_namespace_changes_nothing_of_it() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.member("a", "run", 100);
    world.pods.clear();
    let uid = world.runs["run"]["metadata"]["uid"].clone();
    let own = world.placeholder("run");
    for (namespace, name) in [("evil", &*own), (NAMESPACE, "affinity-assistant-0000000000")] {
        let set = json!({
            "metadata": {
                "name": name, "namespace": namespace, "uid": format!("forged-{namespace}"),
                "labels": {keys::PLACEHOLDER: name},
                "annotations": {keys::MODE: "disabled", keys::GROUP_KEY: "c"},
                "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "run",
                    "uid": uid, "controller": true}],
            },
            "spec": {"template": {"metadata": {}, "spec": {"containers": []}}, "selector": {}, "serviceName": ""},
        });
        world.sets.insert(format!("{namespace}/{name}"), set);
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
    let mut world = World::new(&["n1"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.task_run("t", "run");
    World::change(
        world.task_runs.get_mut("t").unwrap(),
        json!({"metadata": {"namespace": "evil"}}),
    );
    world.assist("t");
    world.settle(SOON);
    assert!(world.writes.is_empty() && world.events.is_empty(), "{:?}", world.events);
}

#[test]
fn a_label_alone_holds_no_placeholder_where_it_is() {
    for of in ["nobody", "another run", "another group"] {
        let mut world = World::new(&["n1", "n2"]);
        world.claim("c");
        world.run("run", &["c"], &[]);
        world.member("a", "run", 100);
        world.pods.clear();
        world.settle(SOON);
        let own = world.placeholder("run");
        match of {
            "another run" => {
                world.run("other", &["c"], &[]);
                world.member("x", "other", 10);
            }
            "another group" => _ = world.native("x", "g"),
            _ => world.stranger("x", "n1", 10),
        }
        let pod = world.pods.get_mut("x").unwrap();
        pod["metadata"]["labels"] = json!({keys::MEMBER: own});
        pod["spec"]["nodeName"] = json!("n1");
        world.cordon("n1", true);
        // The template lets it go first: the scheduler believes the label.
        let of_own = |world: &mut World| {
            let mut actions = world.plan().actions;
            actions.retain(|action| action.target.name.starts_with(&own));
            assert_eq!(actions.len(), 1, "{of}: {actions:?}");
            actions.remove(0)
        };
        let template = of_own(&mut world);
        assert!(matches!(template.write, Write::Patch(_)), "{of}: {template:?}");
        world.act(template);
        let moves = of_own(&mut world);
        assert!(matches!(moves.write, Write::Delete { .. }), "{of}: {moves:?}");
    }
}

/// A drain deletes it under its members, and so may anybody. No group is torn apart by that.
#[test]
fn a_placeholder_that_is_deleted_comes_back_to_its_members_or_waits_for_their_end() {
    let mut world = begun(&["n1", "n2"]);
    assert_eq!((world.node_of("a"), world.place("run")), (Some("n1"), Some("n1")));
    let (writes, events) = (world.writes.len(), world.events.len());
    world.evict("run");
    world.settle(SOON);
    assert_eq!(world.place("run"), Some("n1"));
    world.cordon("n1", true);
    world.evict("run");
    world.member("b", "run", 100);
    world.settle(SOON);
    assert_eq!((world.place("run"), world.node_of("b")), (None, None));
    assert_eq!((world.writes.len(), world.events.len()), (writes, events));
    world.settle(LONG);
    assert_eq!((world.place("run"), world.node_of("b")), (None, None));
    assert_eq!(world.writes.len(), writes, "{:?}", world.writes);
    assert_eq!(world.told(Kind::Pod, "b"), [reason::WAITS_FOR_MEMBERS]);
    // The scheduler has forgotten it by then.
    world.finish("a");
    world.settle(SOON);
    assert_eq!((world.place("run"), world.node_of("b")), (Some("n2"), Some("n2")));
    assert_eq!(world.writes.len(), writes + 1, "woken: {:?}", world.writes);
}

/// Whether the template of a run's placeholder holds it where members are.
fn is_held(world: &World, placeholder: &str) -> bool {
    let name = Name::new(NAMESPACE, placeholder);
    world.view().placeholder(&name).unwrap().estate.as_ref().unwrap().held
}

/// It was to leave for those that found no room, and a small one came in before it had gone.
#[test]
fn a_placeholder_that_is_kept_from_the_node_of_a_member_comes_back_all_the_same() {
    let mut world = begun(&["n1", "n2"]);
    world.finish("a");
    world.stranger("s", "n1", 500);
    world.member("large", "run", 700);
    world.settle(SOON);
    // The template says so, and the pod has not gone.
    while !world.writes.last().unwrap().starts_with("patch StatefulSet") {
        world.now += SignedDuration::from_secs(1);
        world.plan().actions.into_iter().for_each(|action| world.act(action));
    }
    world.member("small", "run", 10);
    let placeholder = world.placeholder("run");
    let place = world.place("run").map(str::to_owned);
    assert_eq!(place.as_deref(), Some("n1"));
    world.pods.get_mut("small").unwrap()["spec"]["nodeName"] = json!("n1");
    world.evict("run");
    world.settle(LONG);
    assert_eq!((world.place("run"), world.node_of("large")), (Some("n1"), None));
    world.finish("small");
    world.settle(LONG);
    assert_eq!((world.place("run"), world.node_of("large")), (Some("n2"), Some("n2")));
    assert!(is_held(&world, &placeholder));
}

/// The label of a stranger does not tear apart those that are placed.
#[test]
fn a_forged_label_beside_a_member_that_runs_lets_nothing_go() {
    let mut world = begun(&["n1", "n2", "n3"]);
    assert_eq!(world.node_of("a"), Some("n1"));
    let placeholder = world.placeholder("run");
    world.stranger("x", "n3", 10);
    world.pods.get_mut("x").unwrap()["metadata"]["labels"] = json!({keys::MEMBER: placeholder});
    world.cordon("n1", true);
    world.cordon("n3", true);
    world.evict("run");
    world.member("b", "run", 100);
    world.settle(LONG);
    assert_eq!((world.place("run"), world.node_of("b")), (None, None));
    assert!(is_held(&world, &placeholder));
    world.finish("a");
    world.settle(SOON);
    assert_eq!((world.place("run"), world.node_of("b")), (Some("n2"), Some("n2")));
    assert!(is_held(&world, &placeholder), "to those that are there");
}

/// Nobody knows whether pods of a native group ever end. One that must go can be replaced first, as a
/// budget for disruptions asks for.
#[test]
fn a_native_group_is_not_held_to_a_node_that_takes_nobody() {
    let mut world = World::new(&["n1", "n2"]);
    let placeholder = world.native("a", "g");
    let pod = format!("{placeholder}-0");
    world.settle(SOON);
    assert_eq!((world.node_of("a"), world.node_of(&pod)), (Some("n1"), Some("n1")));
    world.pods.remove(&pod);
    world.settle(SOON);
    assert_eq!(world.node_of(&pod), Some("n1"));
    world.cordon("n1", true);
    world.native("b", "g");
    world.settle(LONG);
    assert_eq!(world.node_of("b"), None, "the placeholder stays with who runs");
    world.pods.remove(&pod);
    world.settle(SOON);
    assert_eq!((world.node_of("b"), world.node_of(&pod)), (Some("n2"), Some("n2")));
    world.settle(SOON);
    assert!(is_held(&world, &placeholder), "to those that are there");
    world.finish("a");
    world.settle(LONG);
    assert_eq!(world.node_of(&pod), Some("n2"));
}

/// It came back there when the node was opened, by a template that names the node.
#[test]
fn a_native_group_leaves_a_node_that_its_template_names() {
    let mut world = World::new(&["n1", "n2"]);
    let placeholder = world.native("a", "g");
    let pod = format!("{placeholder}-0");
    world.settle(SOON);
    world.cordon("n1", true);
    world.pods.remove(&pod);
    world.settle(SOON);
    assert_eq!(world.node_of(&pod), Some("n2"));
    world.cordon("n1", false);
    world.settle(SOON);
    assert_eq!(world.node_of(&pod), Some("n1"), "with its member");
    world.cordon("n1", true);
    world.native("b", "g");
    world.pods.remove(&pod);
    world.settle(LONG);
    assert_eq!((world.node_of("b"), world.node_of(&pod)), (Some("n2"), Some("n2")));
}

/// The scheduler puts the small placeholder anywhere, and those who wait for it may not fit there.
#[test]
fn a_native_group_that_has_left_a_closed_node_goes_on_until_there_is_room() {
    for second in ["full", "cordoned", "lost"] {
        let mut world = World::new(&["n1", "n2", "n3"]);
        let placeholder = world.native("a", "g");
        let pod = format!("{placeholder}-0");
        world.settle(SOON);
        assert_eq!(world.node_of("a"), Some("n1"));
        if second == "full" {
            world.stranger("s", "n2", 950);
        }
        world.cordon("n1", true);
        world.pods.remove(&pod);
        world.settle(SOON);
        assert_eq!(world.node_of(&pod), Some("n2"));
        match second {
            "cordoned" => world.cordon("n2", true),
            "lost" => world.ready("n2", false),
            _ => {}
        }
        world.native("b", "g");
        world.settle(LONG);
        let places = (world.node_of("a"), world.node_of("b"), world.node_of(&pod));
        assert_eq!(places, (Some("n1"), Some("n3"), Some("n3")), "{second}: {:?}", world.events);
    }
}

/// It came back to one of two nodes by name, and that one is closed again.
#[test]
fn a_native_group_leaves_a_closed_node_that_its_template_names_for_its_other_one() {
    let mut world = World::new(&["n1", "n2"]);
    let placeholder = world.native("a", "g");
    let pod = format!("{placeholder}-0");
    world.settle(SOON);
    world.cordon("n1", true);
    world.pods.remove(&pod);
    world.settle(SOON);
    world.cordon("n1", false);
    world.settle(SOON);
    assert_eq!(world.node_of(&pod), Some("n1"), "by name");
    world.native("b", "g");
    world.pods.get_mut("b").unwrap()["spec"]["nodeName"] = json!("n2");
    world.cordon("n1", true);
    world.native("c", "g");
    world.pods.remove(&pod);
    world.settle(LONG);
    assert_eq!((world.node_of("c"), world.node_of(&pod)), (Some("n2"), Some("n2")));
    assert!(is_held(&world, &placeholder));
}

/// Where one of its nodes takes nobody, another one counts only if it has room.
#[test]
fn a_native_group_on_a_closed_and_a_full_node_goes_on_on_a_third() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    let placeholder = world.native("a", "g");
    let pod = format!("{placeholder}-0");
    world.settle(SOON);
    world.native("b", "g");
    world.pods.get_mut("b").unwrap()["spec"]["nodeName"] = json!("n2");
    world.stranger("s", "n1", 890);
    world.cordon("n2", true);
    world.pods.remove(&pod);
    world.settle(SOON);
    assert_eq!(world.node_of(&pod), Some("n1"), "there was room for it");
    world.stranger("t", "n1", 10);
    world.native("c", "g");
    world.pods.remove(&pod);
    world.stranger("u", "n1", 10);
    world.settle(LONG);
    assert_eq!((world.node_of("c"), world.node_of(&pod)), (Some("n3"), Some("n3")));
}

/// Only one pod is the placeholder's. The scheduler counts every one that says so.
#[test]
fn another_pod_with_both_labels_holds_no_placeholder() {
    let mut world = World::new(&["n1", "n2"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    let placeholder = world.placeholder("run");
    world.stranger("x", "n2", 10);
    world.pods.get_mut("x").unwrap()["metadata"]["labels"] =
        json!({keys::MEMBER: placeholder, keys::PLACEHOLDER: placeholder});
    world.cordon("n2", true);
    world.member("a", "run", 100);
    world.settle(SOON);
    assert_eq!((world.place("run"), world.node_of("a")), (Some("n1"), Some("n1")));
}

/// The scheduler has found a node for it, and binding it there failed: as long as members hold it there it can
/// be nowhere else.
#[test]
fn a_placeholder_that_cannot_be_bound_is_told_too() {
    for forged in [false, true] {
        let mut world = begun(&["n1", "n2"]);
        let placeholder = world.placeholder("run");
        let pod = world.pods.get_mut(&format!("{placeholder}-0")).unwrap();
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
        pod["status"] = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "SchedulerError", "message": "running PreBind plugin \"VolumeBinding\": no",
            "lastTransitionTime": world.now.to_string()}]});
        if forged {
            let ours = json!({"metadata": {"ownerReferences": null}});
            World::change(world.pods.get_mut("a").unwrap(), ours);
        } else {
            world.member("b", "run", 100);
        }
        world.now += SignedDuration::from_secs(60);
        let actions = world.plan().actions;
        let lets_go = actions.iter().any(|action| action.target.kind == Kind::StatefulSet);
        let mut told = actions.iter().flat_map(|action| &action.events);
        let told = told.any(|event| {
            event.reason == reason::WAITS_FOR_MEMBERS && event.note.contains("VolumeBinding")
        });
        assert_eq!((lets_go, told), (forged, !forged), "{actions:#?}");
    }
}

/// Made before its pod bore the label of members, by which alone it can be the first of them.
#[test]
fn a_template_without_the_label_of_members_gets_it_with_the_affinity() {
    let mut world = begun(&["n1", "n2"]);
    let placeholder = world.placeholder("run");
    let set = world.sets.get_mut(&placeholder).unwrap();
    let template = &mut set["spec"]["template"];
    template["metadata"]["labels"].as_object_mut().unwrap().remove(keys::MEMBER);
    let pod = world.pods.get_mut(&format!("{placeholder}-0")).unwrap();
    pod["metadata"]["labels"].as_object_mut().unwrap().remove(keys::MEMBER);
    world.finish("a");
    world.cordon("n1", true);
    world.member("b", "run", 100);
    world.settle(SOON);
    assert_eq!((world.place("run"), world.node_of("b")), (Some("n2"), Some("n2")));
    assert!(is_held(&world, &placeholder));
}

/// To the scheduler nobody is beside such a node, whatever is on the others.
#[test]
fn a_node_without_a_hostname_makes_no_placeholder_restless() {
    let mut world = World::new(&["n1", "n2"]);
    World::change(world.nodes.get_mut("n2").unwrap(), json!({"metadata": {"labels": null}}));
    for number in 0..10 {
        world.stranger(&format!("s{number}"), "n1", 0);
    }
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.member("a", "run", 100);
    world.settle(LONG);
    assert_eq!(world.told(Kind::Pod, "a"), [reason::PLACEHOLDER_NOT_PLACED]);
    assert!(world.writes.len() < 30, "{:?}", world.writes);
    assert!(world.writes.iter().all(|write| !write.starts_with("delete")), "{:?}", world.writes);
    world.pods.remove("s0");
    world.pods.remove("s1");
    world.settle(LONG);
    assert_eq!((world.place("run"), world.node_of("a")), (Some("n1"), Some("n1")));
}

/// The scheduler cannot know that a kubelet will never end them, nor whose a label is.
#[test]
fn pods_that_say_nothing_of_where_a_group_is_do_not_hold_its_placeholder() {
    for what in ["lost", "forged", "bypassed"] {
        let mut world = begun(&["n1", "n2"]);
        assert_eq!(world.node_of("a"), Some("n1"));
        let pod = world.pods.get_mut("a").unwrap();
        match what {
            "lost" => {
                World::change(
                    pod,
                    json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
                );
                world.ready("n1", false);
            }
            "forged" => {
                World::change(pod, json!({"metadata": {"ownerReferences": null}}));
                world.cordon("n1", true);
            }
            _ => {
                World::change(pod, json!({"spec": {"affinity": null}}));
                world.cordon("n1", true);
            }
        }
        world.evict("run");
        world.member("b", "run", 100);
        let writes = world.writes.len();
        world.settle(60);
        assert_eq!((world.place("run"), world.node_of("b")), (Some("n2"), Some("n2")), "{what}");
        assert_eq!(world.writes.len(), writes + 3, "let go, made anew, held: {:?}", world.writes);
        let place = world.place("run").map(str::to_owned);
        world.settle(LONG);
        assert_eq!(
            (world.place("run"), world.writes.len()),
            (place.as_deref(), writes + 3),
            "{what}"
        );
    }
}

#[test]
fn who_waits_for_a_placeholder_that_cannot_be_made_is_told_and_made_again_without() {
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
        let view = world.view();
        let name = Name::new(NAMESPACE, &world.placeholder("run"));
        assert!(view.placeholder(&name).unwrap().failed, "for the webhook");
        assert_eq!(world.told(Kind::PipelineRun, "run"), [reason::PLACEHOLDER_NOT_MADE]);
        assert_eq!(world.pods.contains_key("a"), repair == Repair::Report);
        let writes = world.writes.len();
        assert!(writes <= 4, "{:?}", world.writes);
        // The quota is raised.
        world.makes_pods = true;
        world.settle(LONG);
        assert!(!world.view().placeholder(&name).unwrap().failed);
        assert_eq!(world.writes.len(), writes + 1);
    }
}

/// A claim of the placeholder's own is made with it: there is nothing to come back with.
#[test]
fn who_needs_a_claim_of_a_placeholder_that_cannot_be_made_is_told_and_stays() {
    let mut world = World::new(&["n1"]);
    world.policy.repair = Repair::RecreatePending;
    world.policy.coschedule.volumes = Volumes::Provision;
    world.makes_pods = false;
    world.run("run", &[], &["source"]);
    let claims: Vec<String> = world.claims.keys().cloned().collect();
    for claim in world.claims.values_mut() {
        World::change(claim, json!({"spec": {"storageClassName": keys::PARKED}}));
    }
    world.member("a", "run", 100);
    world.mount("a", &keys::provisioned(&claims[0], &world.placeholder("run")));
    let uid = world.pods["a"]["metadata"]["uid"].clone();
    world.settle(LONG);
    assert_eq!(world.told(Kind::Pod, "a"), [reason::PLACEHOLDER_NOT_MADE]);
    assert_eq!(world.pods["a"]["metadata"]["uid"], uid);
    assert!(world.writes.len() <= 3, "{:?}", world.writes);
}

#[test]
fn who_was_forgotten_is_woken_where_there_is_room() {
    let mut world = World::new(&["n1"]);
    world.claim("c");
    world.run("run", &["c"], &[]);
    world.member("a", "run", 100);
    world.member("large", "run", 2_000);
    world.settle(SOON);
    // The scheduler has not looked again.
    for name in ["a", "large"] {
        let pod = world.pods.get_mut(name).unwrap();
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
        pod["status"] = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "lastTransitionTime": world.now.to_string()}]});
    }
    world.now += SignedDuration::from_secs(11);
    assert!(world.plan().actions.is_empty(), "the scheduler's own turn");
    world.now += SignedDuration::from_secs(1);
    let plan = world.plan();
    let woken: Vec<_> = plan.actions.iter().map(|action| &*action.target.name).collect();
    assert_eq!(woken, ["a"]);
    assert_eq!(plan.actions[0].events[0].reason, "Woken");
}

/// What may happen while runs go on.
#[derive(Clone, Debug)]
enum Happening {
    Task(usize, u32),
    Gated(usize, u32),
    Native,
    Finish(usize),
    Cordon(usize, bool),
    Ready(usize, bool),
    Stranger(usize, u32),
    Leave(usize),
    Gone(usize),
    Evicted(usize),
    Joins,
    Time(i64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (0..3_usize, 1..=1_000_u32).prop_map(|(run, cpu)| Happening::Task(run, cpu)),
        2 => (0..3_usize, 1..=1_000_u32).prop_map(|(run, cpu)| Happening::Gated(run, cpu)),
        2 => Just(Happening::Native),
        3 => (0..8_usize).prop_map(Happening::Finish),
        2 => (0..4_usize, any::<bool>()).prop_map(|(node, yes)| Happening::Cordon(node, yes)),
        2 => (0..4_usize, any::<bool>()).prop_map(|(node, yes)| Happening::Ready(node, yes)),
        2 => (0..4_usize, 100..900_u32).prop_map(|(node, cpu)| Happening::Stranger(node, cpu)),
        1 => (0..4_usize).prop_map(Happening::Leave),
        1 => (0..4_usize).prop_map(Happening::Gone),
        2 => (0..4_usize).prop_map(Happening::Evicted),
        1 => Just(Happening::Joins),
        2 => (1..200_i64).prop_map(Happening::Time),
    ]
}

const RUNS: [&str; 3] = ["r0", "r1", "r2"];

/// A native group beside them. Its pods may be on two nodes, while one of them takes nobody.
const GROUP: &str = "g";

fn happen(world: &mut World, happening: &Happening, number: usize) {
    let node = |world: &World, which: usize| world.nodes.keys().nth(which).cloned();
    match *happening {
        Happening::Task(run, cpu) => world.member(&format!("m{number}"), RUNS[run], cpu),
        Happening::Gated(run, cpu) => {
            world.gated_with(&format!("m{number}"), RUNS[run], &Value::Null, cpu);
        }
        Happening::Native => _ = world.native(&format!("m{number}"), GROUP),
        Happening::Finish(which) => {
            let runs = |pod: &Value| !pod["spec"]["nodeName"].is_null() && is_member(pod);
            let name = world
                .pods
                .iter()
                .filter(|(_, pod)| runs(pod))
                .nth(which)
                .map(|(name, _)| name.clone());
            if let Some(name) = name {
                world.finish(&name);
            }
        }
        Happening::Cordon(which, yes) => {
            node(world, which).iter().for_each(|node| world.cordon(node, yes))
        }
        Happening::Ready(which, yes) => {
            node(world, which).iter().for_each(|node| world.ready(node, yes))
        }
        Happening::Stranger(which, cpu) => {
            node(world, which)
                .iter()
                .for_each(|node| world.stranger(&format!("s{number}"), node, cpu));
        }
        Happening::Leave(which) => {
            let name = world.pods.keys().filter(|name| name.starts_with('s')).nth(which).cloned();
            name.iter().for_each(|name| _ = world.pods.remove(name));
        }
        Happening::Gone(which) => {
            let Some(gone) = node(world, which).filter(|_| world.nodes.len() > 1) else { return };
            world.nodes.remove(&gone);
            // The garbage collector of pods; the members' TaskRuns fail.
            world.pods.retain(|_, pod| pod["spec"]["nodeName"] != *gone);
        }
        Happening::Evicted(which) => match RUNS.get(which) {
            Some(run) => world.evict(run),
            None => _ = world.pods.remove(&format!("{}-0", keys::of_native(NAMESPACE, GROUP))),
        },
        Happening::Joins => world.node(&format!("new{number}")),
        Happening::Time(seconds) => world.now += SignedDuration::from_secs(seconds),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever happens, at whatever pace the plan is carried out, nothing is killed (the simulator sees
    /// to that), everybody comes in once there is room, each group is on one node, and at the end
    /// nothing is left.
    #[test]
    fn it_comes_to_rest(
        happenings in prop::collection::vec((happening(), any::<bool>()), 1..25),
        pace in prop_oneof![Just(Pace::Whole), Just(Pace::First), Just(Pace::Last)],
        shared in any::<bool>(),
    ) {
        let mut world = World::new(&["n0", "n1", "n2", "n3"]);
        world.pace = pace;
        world.claim("c");
        world.run("r0", &["c"], &[]);
        world.run("r1", &[], &["source", "cache"]);
        world.claim("d");
        world.run("r2", &[if shared { "c" } else { "d" }], &[]);
        world.template("r2", &json!({"tolerations": [{"operator": "Exists"}]}));
        for (number, (what, settles)) in happenings.iter().enumerate() {
            happen(&mut world, what, number);
            if *settles {
                world.settle(SOON);
            }
        }
        // Room for all: the nodes answer again, and a large one has joined.
        for name in world.nodes.keys().cloned().collect::<Vec<_>>() {
            world.ready(&name, true);
            world.cordon(&name, false);
        }
        // Members that were on a dead node and are bound go on there.
        for name in ["x0", "x1", "x2"] {
            world.node(name);
            let large = json!({"status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}}});
            World::change(world.nodes.get_mut(name).unwrap(), large);
        }
        for round in 0.. {
            world.settle(LONG);
            for run in RUNS {
                let placeholder = world.placeholder(run);
                let nodes: BTreeSet<_> = world
                    .pods
                    .values()
                    .filter(|pod| is_member(pod))
                    .filter(|pod| pod["metadata"]["labels"][keys::MEMBER] == *placeholder)
                    .filter(|pod| pod["status"]["phase"] != "Succeeded")
                    .filter_map(|pod| pod["spec"]["nodeName"].as_str())
                    .collect();
                prop_assert!(nodes.len() < 2, "{} is on {:?}: {:#?}", run, nodes, world.writes);
            }
            // Members run to their ends; those that waited for them come in.
            let goes_on = |pod: &Value| is_member(pod) && pod["status"]["phase"] != "Succeeded";
            let running: Vec<String> = world.pods.iter()
                .filter(|(_, pod)| goes_on(pod) && !pod["spec"]["nodeName"].is_null())
                .map(|(name, _)| name.clone())
                .collect();
            if running.is_empty() {
                let waiting: Vec<_> = world.pods.iter().filter(|(_, pod)| goes_on(pod)).collect();
                // Who has gone first may be where the other does not fit: a run ends after its last task.
                let is_over = |run: &&str| {
                    let placeholder = world.placeholder(run);
                    let of_run = |pod: &Value| pod["metadata"]["labels"][keys::MEMBER] == *placeholder;
                    world.runs[*run]["status"].is_null() && !waiting.iter().any(|(_, pod)| of_run(pod))
                };
                if let Some(over) = RUNS.into_iter().find(is_over).filter(|_| shared && !waiting.is_empty()) {
                    world.end(over);
                    continue;
                }
                prop_assert!(waiting.is_empty(), "{waiting:#?}\n{:#?}\n{:#?}", world.writes, world.events);
                break;
            }
            prop_assert!(round < 50);
            running.iter().for_each(|name| world.finish(name));
        }
        for run in RUNS {
            world.end(run);
        }
        world.settle(LONG);
        prop_assert!(world.sets.is_empty());
        let writes = world.writes.len();
        world.settle(LONG);
        prop_assert_eq!(world.writes.len(), writes);
    }
}
