//! The groups of runs, by table and by property.

mod leader;
mod recorded;
mod split;

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::{Value, json};

use super::*;
use crate::systems;
use crate::systems::coschedule::family::root;
use crate::systems::coschedule::kinds::CoscheduleView as _;
use crate::systems::coschedule::kinds::pipeline_run::claim_name;
use crate::systems::coschedule::resources::{CLAIM, PIPELINE_RUN};
use crate::view::View;

const UID: &str = "uid-1";

fn view(objects: impl IntoIterator<Item = Value>) -> View {
    let mut view = View::default();
    for object in objects {
        view.apply(systems::object(object).unwrap().unwrap());
    }
    view
}

fn template(name: &str, mode: &str) -> Value {
    json!({"name": name, "volumeClaimTemplate": {"spec": {"accessModes": [mode], "storageClassName": "fast"}}})
}

fn bound(name: &str, claim: &str) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": claim}})
}

fn task(name: &str, workspaces: &[&str]) -> Value {
    let workspaces: Vec<Value> =
        workspaces.iter().map(|of| json!({"name": "w", "workspace": of})).collect();
    json!({"name": name, "workspaces": workspaces})
}

fn run(workspaces: &[Value], tasks: &[Value]) -> Value {
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": "run", "namespace": "ci", "uid": UID, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"workspaces": workspaces, "pipelineSpec": {"tasks": tasks}},
    })
}

fn claim(name: &str, mode: &str, volume: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "ci"},
        "spec": {"accessModes": [mode], "volumeName": volume},
    })
}

/// A volume that only nodes with this label mount.
fn volume(name: &str, key: &str, value: &str) -> Value {
    let term = json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
    })
}

fn policy(mode: &str) -> Policy {
    Policy::from_yaml(&format!("coschedule: {{mode: {mode}}}")).unwrap()
}

fn groups_in(view: &View, mode: &str) -> Groups {
    let (name, run) = view.run_by_uid(UID).unwrap();
    of_run(name, run, view, &policy(mode)).unwrap()
}

fn groups(run: Value, others: &[Value], mode: &str) -> Groups {
    groups_in(&view(others.iter().cloned().chain([run])), mode)
}

/// Groups in short: `key: claims / tasks`, where `@` is a claim of the run's own.
fn summarize(groups: &Groups) -> Vec<String> {
    groups
        .groups
        .iter()
        .map(|group| {
            let claims = group.claims.iter().map(|claim| match claim.template {
                true => "@".to_owned(),
                false => claim.name.to_string(),
            });
            let tasks = group.tasks.iter().flatten().map(AsRef::as_ref).collect::<Vec<_>>();
            let derived = if group.derived { "?" } else { "" };
            format!(
                "{}: {}{derived} / {}",
                group.key,
                claims.collect::<Vec<_>>().join(" "),
                tasks.join(" ")
            )
        })
        .collect()
}

const RWO: &str = "ReadWriteOnce";

const RWX: &str = "ReadWriteMany";

#[test]
fn in_workspaces_mode_claims_used_by_one_task_are_one_group() {
    for (what, run, expected) in [
        ("no workspace", run(&[], &[task("a", &[])]), vec![]),
        (
            "nothing that a node matters to",
            run(
                &[
                    json!({"name": "ws", "emptyDir": {}}),
                    json!({"name": "s", "secret": {"secretName": "s"}}),
                ],
                &[task("a", &["ws", "s"])],
            ),
            vec![],
        ),
        (
            "one (finally and retries are tasks like others)",
            json!({
                "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
                "metadata": {"name": "run", "namespace": "ci", "uid": UID},
                "spec": {"workspaces": [template("source", RWO)], "pipelineSpec": {
                    "tasks": [task("fetch", &["source"]), {"name": "test", "matrix": {"params": []},
                        "workspaces": [{"name": "source"}]}, task("free", &[])],
                    "finally": [task("clean", &["source"])]}},
            }),
            vec!["source: @ / clean fetch test"],
        ),
        (
            "two that no task joins",
            run(
                &[template("a", RWO), bound("b", "c1"), json!({"name": "e", "emptyDir": {}})],
                &[task("1", &["a"]), task("2", &["b"]), task("3", &["e"])],
            ),
            vec!["a: @ / 1", "b: c1 / 2"],
        ),
        (
            "a task with two",
            run(
                &[template("source", RWO), bound("cache", "c1")],
                &[task("fetch", &["source"]), task("build", &["source", "cache"])],
            ),
            vec!["source: @ c1 / build fetch"],
        ),
        (
            "a chain",
            run(
                &[template("a", RWO), template("b", RWO), template("c", RWO), template("d", RWO)],
                &[task("1", &["c", "b"]), task("2", &["a", "b"]), task("3", &["d"])],
            ),
            vec!["a: @ @ @ / 1 2", "d: @ / 3"],
        ),
        (
            "one claim in two workspaces",
            run(&[bound("a", "c1"), bound("b", "c1")], &[task("1", &["a"]), task("2", &["b"])]),
            vec!["a: c1 / 1 2"],
        ),
        (
            "claims of many nodes neither bind nor join",
            run(
                &[template("x", RWX), template("a", RWO), template("b", RWO)],
                &[task("1", &["x", "a"]), task("2", &["x", "b"]), task("3", &["x"])],
            ),
            vec!["a: @ / 1", "b: @ / 2"],
        ),
        (
            "a claim of one pod is left alone",
            run(
                &[template("p", "ReadWriteOncePod"), template("a", RWO)],
                &[task("1", &["p", "a"]), task("2", &["p"])],
            ),
            vec!["a: @ / 1"],
        ),
        (
            "a result's claim",
            run(
                &[bound("w", "$(tasks.a-task.results.claim)"), template("a", RWO)],
                &[task("1", &["w"]), task("2", &["a"]), task("3", &["w"])],
            ),
            vec!["w: ? / 1 3", "a: @ / 2"],
        ),
        (
            "a workspace that no task uses",
            run(&[template("a", RWO), template("unused", RWO)], &[task("1", &["a"])]),
            vec!["a: @ / 1", "unused: @ / "],
        ),
        (
            "a workspace that the run does not bind",
            run(&[template("a", RWO)], &[task("1", &["a", "optional"])]),
            vec!["a: @ / 1"],
        ),
    ] {
        let c1 = claim("c1", RWO, None);
        assert_eq!(summarize(&groups(run, &[c1], "workspaces")), expected, "{what}");
    }
}

#[test]
fn per_run_modes_have_one_group_with_all_mountable_claims() {
    let document = run(
        &[
            template("a", RWO),
            bound("b", "c1"),
            template("x", RWX),
            template("p", "ReadWriteOncePod"),
        ],
        &[task("1", &["a"]), task("2", &["b"]), task("3", &[])],
    );
    for mode in ["pipelineruns", "isolate-pipelinerun"] {
        let made = groups(document.clone(), &[claim("c1", RWO, None)], mode);
        assert_eq!(summarize(&made), [": @ c1 @ / 1 2 3"], "{mode}");
        assert_eq!(made.groups[0].isolated, mode == "isolate-pipelinerun");
        let empty = groups(run(&[], &[task("1", &[])]), &[], mode);
        assert_eq!(summarize(&empty), [":  / 1"], "{mode}");
        let Membership::Of(group) = empty.membership(Some("1"), &[], &[], |_| false) else {
            panic!("{mode}")
        };
        assert_eq!(*group.name, *keys::of_run(UID, ""));
    }
    let disabled = groups(document, &[], "disabled");
    assert_eq!((summarize(&disabled), disabled.awaited.len()), (vec![], 0));
    assert_eq!(disabled.membership(Some("1"), &["c1"], &[], |_| false), Membership::Free);
}

#[test]
fn the_claims_of_a_pod_decide_its_group() {
    let document = run(
        &[
            template("a", RWO),
            bound("b", "c1"),
            template("x", RWX),
            bound("w", "$(tasks.t.results.r)"),
        ],
        &[task("1", &["a"]), task("2", &["b"]), task("3", &["w"]), task("4", &["x"])],
    );
    let made = groups(document, &[claim("c1", RWO, None)], "workspaces");
    let of =
        |task: Option<&str>, claims: &[&str]| match made.membership(task, claims, &[], |_| false) {
            Membership::Free => "free".to_owned(),
            Membership::Of(group) => group.key.to_string(),
            Membership::Several(first, second) => format!("{} and {}", first.key, second.key),
        };
    let own = claim_name(None, "a", UID);
    let placed = keys::provisioned(&own, &keys::of_run(UID, "a"));
    let shared = claim_name(None, "x", UID);
    assert_eq!(of(Some("1"), &[&own]), "a");
    assert_eq!(of(None, &[&placed]), "a", "the placeholder's own claim (provision)");
    assert_eq!(of(Some("spoofed"), &["c1", "other"]), "b", "claims count, not labels");
    assert_eq!(of(Some("4"), &[&shared]), "free");
    assert_eq!(of(Some("3"), &["by-result"]), "w", "the name was unknown");
    assert_eq!(of(Some("4"), &["by-result"]), "free", "another task's own volume");
    assert_eq!(of(None, &["by-result"]), "free");
    assert_eq!(of(None, &[]), "free");
    assert_eq!(of(Some("1"), &[&own, "c1"]), "a and b");
}

/// By the time that its pod comes, the claim of a result is there and says how it may be mounted.
#[test]
fn a_result_claim_that_several_nodes_mount_restricts_no_pod() {
    let document = run(
        &[bound("w", "$(tasks.t.results.r)"), template("a", RWO)],
        &[task("1", &["w"]), task("2", &["w", "a"])],
    );
    let claims = [
        claim("many", RWX, None),
        claim("one-pod", "ReadWriteOncePod", None),
        claim("once", RWO, None),
    ];
    let view = view(claims.into_iter().chain([document]));
    let own = claim_name(None, "a", UID);
    for (mode, free) in [("workspaces", true), ("pipelineruns", false)] {
        let made = groups_in(&view, mode);
        for (claims, binds) in [
            (&["many"][..], false),
            (&["one-pod"], false),
            (&["many", "one-pod"], false),
            (&["once"], true),
            (&["not-delivered"], true),
            (&["many", "once"], true),
            (&["many", &own], true),
        ] {
            let found = made.membership(Some("1"), claims, &[], |claim| {
                view.claim(&Name::new("ci", claim))
                    .is_some_and(|of| !of.access_modes.need_one_node())
            });
            assert_eq!(found == Membership::Free, free && !binds, "{mode} {claims:?}");
        }
    }
}

#[test]
fn claims_of_an_inline_task_are_used() {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c1"}}]);
    let mounting = |name: &str| json!({"name": name, "taskSpec": {"volumes": volumes}});
    let document = run(
        &[template("a", RWO)],
        &[mounting("1"), mounting("2"), task("3", &["a"]), task("4", &[])],
    );
    let made = groups(document, &[claim("c1", RWO, None)], "workspaces");
    assert_eq!(summarize(&made), ["a: @ / 3", "claim/c1: c1 / 1 2"]);
    let mut of_a = mounting("1");
    of_a["workspaces"] = json!([{"name": "a"}]);
    let document = run(&[template("a", RWO)], &[of_a, mounting("2"), task("3", &["a"])]);
    let made = groups(document.clone(), &[claim("c1", RWO, None)], "workspaces");
    assert_eq!(summarize(&made), ["a: @ c1 / 1 2 3"]);
    let made = groups(document, &[claim("c1", RWX, None)], "workspaces");
    assert_eq!(summarize(&made), ["a: @ / 1 3"]);
}

/// Tekton replaces the run's own params in its workspaces before it does anything else.
#[test]
fn a_claim_named_by_a_param_of_the_run_is_found() {
    for (name, known) in [
        ("$(params.claim)", Some("c1")),
        ("$(params['claim'])", Some("c1")),
        ("$(params[\"claim\"])", Some("c1")),
        ("$(params.a)$(params['b.c'])", Some("c1")),
        ("$(params.unknown)", None),
        ("$(params.list)", None),
        ("$(params.claim", None),
        ("$(params.claim)-$(tasks.t.results.r)", None),
        ("$(finally.t.results.r)", None),
        ("$(params.open)", None),
        ("$(params.)", None),
        ("$(params['claim\"])", None),
        ("$(params.é)", None),
        ("$$(params.claim)", Some("$c1")),
    ] {
        let mut document = run(&[bound("w", name)], &[task("1", &["w"])]);
        document["spec"]["params"] = json!([
            {"name": "claim", "value": "c1"}, {"name": "a", "value": "c"}, {"name": "b.c", "value": "1"},
            {"name": "list", "value": ["c1"]}, {"name": "open", "value": "$(tasks.t.results.r)"},
            {"name": 7, "value": "c1"}, {"value": "c1"},
        ]);
        // What is wrong with a param says nothing of the pipeline.
        document["spec"]["params"].as_array_mut().unwrap().truncate(5);
        let made = groups(document, &[claim("c1", RWO, None)], "workspaces");
        let wanted = format!("w: {} / 1", known.unwrap_or("?"));
        assert_eq!(summarize(&made), [wanted], "{name}");
    }
    let mut document = run(&[bound("w", "$(params.empty)")], &[task("1", &["w"])]);
    document["spec"]["params"] = json!([{"name": "empty", "value": ""}]);
    assert_eq!(summarize(&groups(document, &[], "workspaces")).len(), 0, "it names none");
    let mut document = run(&[bound("w", "$(params.x)")], &[task("1", &["w"])]);
    for params in [json!(7), json!([7]), json!([{"name": [], "value": {}}]), json!({"x": "c1"})] {
        document["spec"]["params"] = params;
        let _ = groups(document.clone(), &[], "workspaces");
    }
}

#[test]
fn an_unknown_pipeline_has_one_group_of_all_claims_that_need_one_node() {
    let workspaces = [template("x", RWX), template("a", RWO), bound("b", "c1")];
    let with = |member: &str, value: Value| {
        let mut document = run(&workspaces, &[]);
        document["spec"].as_object_mut().unwrap().remove("pipelineSpec");
        document["spec"][member] = value;
        document
    };
    let c1 = claim("c1", RWO, None);
    for (what, document) in [
        ("a resolver", with("pipelineRef", json!({"resolver": "git", "params": []}))),
        ("a bundle (v1beta1)", with("pipelineRef", json!({"bundle": "b", "name": "p"}))),
        ("a Pipeline that is not delivered", with("pipelineRef", json!({"name": "p"}))),
        ("nothing at all", with("pipelineRef", Value::Null)),
        (
            "a pipeline in the pipeline",
            with("pipelineSpec", json!({"tasks": [{"name": "n", "pipelineRef": {"name": "q"}}]})),
        ),
        ("a pipeline that cannot be read", with("pipelineSpec", json!({"tasks": 7}))),
    ] {
        let made = groups(document, std::slice::from_ref(&c1), "workspaces");
        assert_eq!(summarize(&made), ["a: @ c1 / "], "{what}");
        let Membership::Of(_) = made.membership(None, &["c1"], &[], |_| false) else {
            panic!("{what}")
        };
        assert_eq!(
            made.membership(None, &["of-a-task"], &[], |_| false),
            Membership::Free,
            "{what}"
        );
        let awaited = made.awaited.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(awaited.is_empty(), !what.contains("delivered"), "{what}: {awaited:?}");
    }
    let pipeline = json!({
        "apiVersion": "tekton.dev/v1beta1", "kind": "Pipeline",
        "metadata": {"name": "p", "namespace": "ci"},
        "spec": {"tasks": [task("1", &["a"]), task("2", &["b"])]},
    });
    let named = with("pipelineRef", json!({"name": "p"}));
    let made = groups(named.clone(), &[c1.clone(), pipeline.clone()], "workspaces");
    assert_eq!(summarize(&made), ["a: @ / 1", "b: c1 / 2"]);

    // The placeholder was made before the Pipeline was known: what it has stays together.
    let set = placeholder("a", &[&claim_name(None, "a", UID), "c1"], &[], "workspaces");
    let made = groups(named, &[c1, pipeline, set], "workspaces");
    assert_eq!(summarize(&made), ["a: @ c1 / 1 2"]);
}

/// The placeholder of a group whose tasks were not known.
fn placeholder(key: &str, claims: &[&str], templates: &[&str], mode: &str) -> Value {
    let record = Record {
        key: key.into(),
        workspaces: [key.into()].into(),
        claims: claims.iter().chain(templates).map(|claim| (*claim).into()).collect(),
        ..Record::default()
    };
    placeholder_of(&record, claims, templates, mode)
}

/// The placeholders of these groups, as they are recorded.
fn placeholders_of(groups: &Groups) -> Vec<Value> {
    let placeholder = |group: &Group| {
        let claims: Vec<&str> = group.claims.iter().map(|claim| &*claim.name).collect();
        placeholder_of(&group.record(), &claims, &[], mode::word(groups.mode))
    };
    groups.groups.iter().map(placeholder).collect()
}

fn placeholder_of(record: &Record, claims: &[&str], templates: &[&str], mode: &str) -> Value {
    let name = keys::of_run(UID, &record.key);
    let volumes = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
    let templates = templates
        .iter()
        .map(|claim| json!({"metadata": {"name": keys::template(claim)}, "spec": {}}));
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "ci", "labels": {"stowplan.dev/placeholder": name},
            "annotations": {keys::RECORD: record.text(), keys::MODE: mode},
            "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "run", "uid": UID, "controller": true}]},
        "spec": {"selector": {}, "serviceName": "",
            "template": {"spec": {"containers": [], "volumes": volumes.collect::<Vec<_>>()}},
            "volumeClaimTemplates": templates.collect::<Vec<_>>()},
    })
}

#[test]
fn nested_pipelines_belong_to_one_run() {
    let child = |name: &str, uid: &str, parent: &str, workspaces: Value| {
        json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
            "metadata": {"name": name, "namespace": "ci", "uid": uid,
                "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": parent, "uid": parent, "controller": true}]},
            "spec": {"workspaces": workspaces, "pipelineSpec": {"tasks": [task("inner", &["w"])]}},
        })
    };
    let mut top = run(&[template("a", RWO)], &[]);
    top["spec"]["pipelineSpec"] = json!({"tasks": [{"name": "n", "pipelineSpec": {}}]});
    let own = claim_name(None, "a", UID);
    let inner = child("inner", "uid-2", UID, json!([bound("w", &own)]));
    let innermost = child("innermost", "uid-3", "uid-2", json!([template("t", RWO)]));
    let view = view([top, inner, innermost]);
    let made = groups_in(&view, "workspaces");
    // Of the root, whose placeholder can make it, and of the innermost run, whose claim stays.
    let below = claim_name(None, "t", "uid-3");
    assert_eq!(summarize(&made), [format!("a: @ {below} / ")]);
    let (name, run) = view.run_by_uid("uid-3").unwrap();
    let (name, _, missing) = root(name, run, &view);
    assert_eq!((&*name.name, missing), ("run", None));

    let orphan = child("orphan", "uid-9", "gone", json!([]));
    let lonely = tests::view([orphan]);
    let (name, run) = lonely.run_by_uid("uid-9").unwrap();
    assert_eq!(root(name, run, &lonely).2, Some(Key::new(PIPELINE_RUN, Name::new("ci", "gone"))));

    // Runs that own each other are no runs that an API server has for long; nothing hangs.
    let one = child("one", "one", "two", json!([]));
    let two = child("two", "two", "one", json!([]));
    let circle = tests::view([one, two]);
    let (name, run) = circle.run_by_uid("one").unwrap();
    assert_eq!(root(name, run, &circle).2, None);
}

#[test]
fn claims_of_pod_templates_count_like_workspaces() {
    let mut document = run(
        &[template("a", RWO), template("b", RWO)],
        &[task("1", &["a"]), task("2", &["b"]), task("3", &[])],
    );
    let volumes = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c1"}},
        {"name": "e", "emptyDir": {}}, {"name": "r", "persistentVolumeClaim": {"claimName": "$(x)"}}]});
    document["spec"]["taskRunSpecs"] =
        json!([{"pipelineTaskName": "3", "taskPodTemplate": volumes}]);
    let c1 = claim("c1", RWO, None);
    let made = groups(document.clone(), std::slice::from_ref(&c1), "workspaces");
    assert_eq!(summarize(&made), ["a: @ / 1", "b: @ / 2", "claim/c1: c1 / 3"]);
    document["spec"]["podTemplate"] = volumes;
    let made = groups(document, &[c1], "workspaces");
    assert_eq!(
        summarize(&made),
        ["a: @ @ c1 / 1 2 3"],
        "v1beta1 wrote the run's pod template there"
    );
}

#[test]
fn undelivered_claims_are_awaited_and_need_one_node() {
    let made = groups(run(&[bound("b", "c1")], &[task("1", &["b"])]), &[], "workspaces");
    assert_eq!(summarize(&made), ["b: c1 / 1"]);
    assert_eq!(made.awaited, [Key::new(CLAIM, Name::new("ci", "c1"))]);
    let made = groups(run(&[bound("b", "c1")], &[]), &[claim("c1", RWX, None)], "workspaces");
    assert_eq!((summarize(&made), made.awaited.len()), (vec![], 0));
}

#[test]
fn the_mode_is_that_of_the_run_else_of_its_pipeline_else_of_the_namespace_else_of_the_policy() {
    let annotated = |mut object: Value, mode: &str| {
        object["metadata"]["annotations"] = json!({"stowplan.dev/coschedule": mode});
        object
    };
    let mut document = run(&[template("a", RWO)], &[]);
    document["spec"].as_object_mut().unwrap().remove("pipelineSpec");
    document["spec"]["pipelineRef"] = json!({"name": "p"});
    let pipeline = json!({"apiVersion": "tekton.dev/v1", "kind": "Pipeline",
        "metadata": {"name": "p", "namespace": "ci"}, "spec": {"tasks": [task("1", &["a"])]}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ci"}});
    let of = |objects: &[Value]| {
        let view = view(objects.iter().cloned());
        let (name, run) = view.run_by_uid(UID).unwrap();
        of_run(name, run, &view, &policy("workspaces")).map(|groups| mode::word(groups.mode))
    };
    let in_isolation = annotated(namespace, "isolate-pipelinerun");
    let per_run = annotated(pipeline.clone(), "pipelineruns");
    let disabled = annotated(document.clone(), "disabled");
    assert_eq!(of(&[document.clone(), pipeline.clone()]), Ok("workspaces"));
    assert_eq!(of(&[document.clone(), pipeline, in_isolation.clone()]), Ok("isolate-pipelinerun"));
    assert_eq!(of(&[document.clone(), per_run.clone(), in_isolation.clone()]), Ok("pipelineruns"));
    assert_eq!(of(&[disabled, per_run, in_isolation.clone()]), Ok("disabled"));
    let bad = of(&[annotated(document, "Workspaces"), in_isolation]).unwrap_err();
    assert_eq!(bad.finding().subject, "stowplan.dev/coschedule of PipelineRun run");
}

/// A run of `tasks` tasks over `workspaces` workspaces, of which each task uses some.
fn any_run() -> impl Strategy<Value = (Vec<Value>, Vec<Value>)> {
    (1_usize..8, 0_usize..12).prop_flat_map(|(workspaces, tasks)| {
        let names: Vec<String> = (0..workspaces).map(|index| format!("w{index}")).collect();
        let source = prop_oneof![
            3 => Just(0), 1 => Just(1), 1 => Just(2), 1 => Just(3), 1 => Just(4), 1 => Just(5),
        ];
        let sources = proptest::collection::vec(source, workspaces);
        let uses =
            proptest::collection::vec(subsequence(names.clone(), 0..=workspaces.min(3)), tasks);
        (sources, uses).prop_map(move |(sources, uses)| {
            let workspaces = names.iter().zip(sources).map(|(name, source)| match source {
                0 => template(name, RWO),
                1 => template(name, RWX),
                2 => template(name, "ReadWriteOncePod"),
                3 => bound(name, "c1"),
                4 => bound(name, "$(tasks.a.results.b)"),
                _ => json!({"name": name, "emptyDir": {}}),
            });
            let tasks = uses.iter().enumerate().map(|(index, uses)| {
                task(&format!("t{index}"), &uses.iter().map(String::as_str).collect::<Vec<_>>())
            });
            (workspaces.collect(), tasks.collect())
        })
    })
}

proptest! {
    #[test]
    fn each_claim_of_one_node_is_in_one_group_and_so_is_each_task_that_uses_one(
        (workspaces, tasks) in any_run(),
        mode in prop_oneof![Just("workspaces"), Just("pipelineruns"), Just("isolate-pipelinerun")],
    ) {
        let made = groups(run(&workspaces, &tasks), &[claim("c1", RWO, None)], mode);
        let mut names: Vec<_> = made.groups.iter().map(|group| &group.name).collect();
        names.sort_unstable();
        names.dedup();
        prop_assert_eq!(names.len(), made.groups.len());
        for workspace in &workspaces {
            let name = workspace["name"].as_str().unwrap();
            let own = claim_name(None, name, UID);
            let modes = &workspace["volumeClaimTemplate"]["spec"]["accessModes"][0];
            let of = |claim: &str| made.groups.iter().filter(|group| group.has(claim)).count();
            if modes == RWO {
                prop_assert_eq!(of(&own), 1);
            }
            if modes == "ReadWriteOncePod" {
                prop_assert_eq!(of(&own), 0);
            }
            if workspace["persistentVolumeClaim"]["claimName"] == "c1" {
                prop_assert_eq!(of("c1"), 1);
            }
        }
        for task in &tasks {
            let name = task["name"].as_str().unwrap();
            let groups = made.groups.iter().filter(|group| group.tasks.as_ref().unwrap().contains(name));
            prop_assert!(groups.count() <= 1);
        }
        prop_assert!(made.conflicts.is_empty());
    }

    #[test]
    fn groups_do_not_depend_on_the_order_of_tasks_nor_their_claims_on_that_of_workspaces(
        (workspaces, tasks) in any_run(),
        mode in prop_oneof![Just("workspaces"), Just("pipelineruns")],
    ) {
        let c1 = [claim("c1", RWO, None)];
        let made = groups(run(&workspaces, &tasks), &c1, mode);
        let backwards: Vec<Value> = tasks.iter().rev().cloned().collect();
        prop_assert_eq!(&summarize(&groups(run(&workspaces, &backwards), &c1, mode)), &summarize(&made));
        let turned: Vec<Value> = workspaces.iter().rev().cloned().collect();
        let sets = |groups: &Groups| -> BTreeSet<BTreeSet<Box<str>>> {
            let names = |group: &Group| group.claims.iter().map(|claim| claim.name.clone()).collect();
            groups.groups.iter().map(names).collect()
        };
        prop_assert_eq!(sets(&groups(run(&turned, &tasks), &c1, mode)), sets(&made));
    }
}

#[test]
fn a_run_of_two_hundred_tasks_and_fifty_workspaces_has_its_groups() {
    let names: Vec<String> = (0..50).map(|index| format!("workspace-{index}")).collect();
    let workspaces: Vec<Value> = names.iter().map(|name| template(name, RWO)).collect();
    let tasks: Vec<Value> =
        (0..200).map(|index| task(&format!("task-{index}"), &[&names[index % 50]])).collect();
    let made = groups(run(&workspaces, &tasks), &[], "workspaces");
    assert_eq!(made.groups.len(), 50);
    assert!(made.groups.iter().all(|group| group.tasks.as_ref().unwrap().len() == 4));
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let joined: Vec<Value> = tasks.into_iter().chain([task("all", &all)]).collect();
    let made = groups(run(&workspaces, &joined), &[], "workspaces");
    assert_eq!((made.groups.len(), made.groups[0].claims.len()), (1, 50));
}

#[test]
fn names_at_their_limits_and_unusual_ones_are_read() {
    let long = "w".repeat(253);
    for name in ["", "é", "a b", "$(x)", &long, &"x".repeat(262_144)] {
        let document = run(&[template(name, RWO)], &[task("t", &[name])]);
        let made = groups(document, &[], "workspaces");
        assert_eq!(made.groups.len(), 1, "{name:.20}");
        assert_eq!(made.groups[0].name.len(), 29);
    }
    let twice = run(&[template("a", RWO), template("a", RWX)], &[task("t", &["a"])]);
    assert_eq!(groups(twice, &[], "workspaces").groups.len(), 1, "a name that occurs twice");
}
