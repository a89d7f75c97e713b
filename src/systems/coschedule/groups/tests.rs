//! The groups of runs, by table and by property. Cases of the reference list are marked with their
//! number there (U: upstream's unit tests, P: probes of upstream's faults).

use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::{Value, json};

use super::*;
use crate::view::Object;
use crate::view::pipeline_run::claim_name;

const UID: &str = "uid-1";

fn view(objects: impl IntoIterator<Item = Value>) -> View {
    let mut view = View::default();
    for object in objects {
        view.apply(Object::from_document(object).unwrap().unwrap());
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
fn told(groups: &Groups) -> Vec<String> {
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
fn in_workspaces_mode_claims_belong_together_where_a_task_uses_both() {
    for (what, run, expected) in [
        ("no workspace (U13)", run(&[], &[task("a", &[])]), vec![]),
        (
            "nothing that a node matters to (U13)",
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
            "one (U10, P15: finally and retries are tasks like others)",
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
            "two that no task joins (U11, U35)",
            run(
                &[template("a", RWO), bound("b", "c1"), json!({"name": "e", "emptyDir": {}})],
                &[task("1", &["a"]), task("2", &["b"]), task("3", &["e"])],
            ),
            vec!["a: @ / 1", "b: c1 / 2"],
        ),
        (
            "a task with two (U33)",
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
            "claims of many nodes neither bind nor join (P09)",
            run(
                &[template("x", RWX), template("a", RWO), template("b", RWO)],
                &[task("1", &["x", "a"]), task("2", &["x", "b"]), task("3", &["x"])],
            ),
            vec!["a: @ / 1", "b: @ / 2"],
        ),
        (
            "a claim of one pod is left alone (P09)",
            run(
                &[template("p", "ReadWriteOncePod"), template("a", RWO)],
                &[task("1", &["p", "a"]), task("2", &["p"])],
            ),
            vec!["a: @ / 1"],
        ),
        (
            "a result's claim (P07, U37)",
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
        assert_eq!(told(&groups(run, &[c1], "workspaces")), expected, "{what}");
    }
}

#[test]
fn per_run_modes_have_one_group_that_mounts_all_it_may() {
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
        assert_eq!(told(&made), [": @ c1 @ / 1 2 3"], "{mode} (U12)");
        assert_eq!(made.groups[0].isolated, mode == "isolate-pipelinerun");
        let empty = groups(run(&[], &[task("1", &[])]), &[], mode);
        assert_eq!(told(&empty), [":  / 1"], "{mode} (U13)");
        let Membership::Of(group) = empty.membership(Some("1"), &[], &[], |_| false) else {
            panic!("{mode}")
        };
        assert_eq!(*group.name, *keys::of_run(UID, ""));
    }
    let disabled = groups(document, &[], "disabled");
    assert_eq!((told(&disabled), disabled.awaited.len()), (vec![], 0), "U14");
    assert_eq!(disabled.membership(Some("1"), &["c1"], &[], |_| false), Membership::Free);
}

#[test]
fn what_a_pod_mounts_says_where_it_belongs() {
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
    assert_eq!(of(Some("3"), &["by-result"]), "w", "nobody knew the name");
    assert_eq!(of(Some("4"), &["by-result"]), "free", "another task's own volume");
    assert_eq!(of(None, &["by-result"]), "free");
    assert_eq!(of(None, &[]), "free");
    assert_eq!(of(Some("1"), &[&own, "c1"]), "a and b");
}

/// By the time that its pod comes, the claim of a result is there and says how it may be mounted.
#[test]
fn a_claim_of_a_result_that_many_nodes_mount_binds_nobody() {
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
fn what_a_task_that_is_written_out_mounts_is_its_claim() {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c1"}}]);
    let mounting = |name: &str| json!({"name": name, "taskSpec": {"volumes": volumes}});
    let document = run(
        &[template("a", RWO)],
        &[mounting("1"), mounting("2"), task("3", &["a"]), task("4", &[])],
    );
    let made = groups(document, &[claim("c1", RWO, None)], "workspaces");
    assert_eq!(told(&made), ["a: @ / 3", "claim/c1: c1 / 1 2"]);
    let mut of_a = mounting("1");
    of_a["workspaces"] = json!([{"name": "a"}]);
    let document = run(&[template("a", RWO)], &[of_a, mounting("2"), task("3", &["a"])]);
    let made = groups(document.clone(), &[claim("c1", RWO, None)], "workspaces");
    assert_eq!(told(&made), ["a: @ c1 / 1 2 3"]);
    let made = groups(document, &[claim("c1", RWX, None)], "workspaces");
    assert_eq!(told(&made), ["a: @ / 1 3"]);
}

/// Tekton replaces the run's own params in its workspaces before it does anything else.
#[test]
fn a_claim_that_a_param_of_the_run_names_is_known() {
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
        assert_eq!(told(&made), [wanted], "{name}");
    }
    let mut document = run(&[bound("w", "$(params.empty)")], &[task("1", &["w"])]);
    document["spec"]["params"] = json!([{"name": "empty", "value": ""}]);
    assert_eq!(told(&groups(document, &[], "workspaces")).len(), 0, "it names none");
    let mut document = run(&[bound("w", "$(params.x)")], &[task("1", &["w"])]);
    for params in [json!(7), json!([7]), json!([{"name": [], "value": {}}]), json!({"x": "c1"})] {
        document["spec"]["params"] = params;
        let _ = groups(document.clone(), &[], "workspaces");
    }
}

#[test]
fn a_pipeline_that_nobody_knows_makes_one_group_of_all_claims_of_one_node() {
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
        assert_eq!(told(&made), ["a: @ c1 / "], "{what}");
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
    assert_eq!(told(&made), ["a: @ / 1", "b: c1 / 2"]);

    // The placeholder was made before the Pipeline was known: what it has stays together.
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": keys::of_run(UID, "a"), "namespace": "ci",
            "labels": {"stowplan.dev/placeholder": keys::of_run(UID, "a")},
            "annotations": {keys::GROUP_KEY: "a"},
            "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "run", "uid": UID, "controller": true}]},
        "spec": {"selector": {}, "serviceName": "", "template": {"spec": {"containers": [], "volumes": [
            {"name": "workspace-0", "persistentVolumeClaim": {"claimName": claim_name(None, "a", UID)}},
            {"name": "workspace-1", "persistentVolumeClaim": {"claimName": "c1"}}]}}},
    });
    let made = groups(named, &[c1, pipeline, set], "workspaces");
    assert_eq!(told(&made), ["a: @ c1 / 1 2"]);
}

fn placeholder(key: &str, claims: &[&str], templates: &[&str], mode: &str) -> Value {
    let name = keys::of_run(UID, key);
    let volumes = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
    let templates = templates
        .iter()
        .map(|claim| json!({"metadata": {"name": keys::template(claim)}, "spec": {}}));
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "ci", "labels": {"stowplan.dev/placeholder": name},
            "annotations": {keys::GROUP_KEY: key, keys::MODE: mode},
            "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "run", "uid": UID, "controller": true}]},
        "spec": {"selector": {}, "serviceName": "",
            "template": {"spec": {"containers": [], "volumes": volumes.collect::<Vec<_>>()}},
            "volumeClaimTemplates": templates.collect::<Vec<_>>()},
    })
}

/// A Pipeline that is deleted, or made again, while its run goes on: members still go to the placeholders
/// that stand, and nobody waits for it.
#[test]
fn where_the_pipeline_is_gone_the_placeholders_that_stand_say_what_the_groups_are() {
    let own = |workspace: &str| claim_name(None, workspace, UID);
    let mut document =
        run(&[template("a", RWO), template("b", RWO), bound("c", "c1"), template("x", RWX)], &[]);
    document["spec"].as_object_mut().unwrap().remove("pipelineSpec");
    document["spec"]["pipelineRef"] = json!({"name": "p"});
    let pipeline = json!({
        "apiVersion": "tekton.dev/v1", "kind": "Pipeline", "metadata": {"name": "p", "namespace": "ci"},
        "spec": {"tasks": [task("1", &["a"]), task("2", &["b", "c"]), task("3", &["x"])]},
    });
    let c1 = claim("c1", RWO, None);
    let sets = [
        placeholder("a", &[&own("a")], &[], "workspaces"),
        placeholder("b", &["c1"], &[&own("b")], "workspaces"),
    ];
    let names = |made: &Groups| -> Vec<_> {
        made.groups.iter().map(|group| (group.key.clone(), group.name.clone())).collect()
    };
    let with = |others: &[Value]| {
        let others: Vec<Value> = others.iter().chain([&c1]).cloned().collect();
        groups(document.clone(), &others, "workspaces")
    };
    let known = with(&[pipeline, sets[0].clone(), sets[1].clone()]);
    assert_eq!(told(&known), ["a: @ / 1", "b: @ c1 / 2"]);
    let gone = with(&sets);
    assert_eq!(told(&gone), ["a: @ / ", "b: @ c1 / "]);
    assert_eq!((names(&gone), gone.awaited.len()), (names(&known), 0));
    for (claims, key) in
        [(vec![own("a")], "a"), (vec![own("b")], "b"), (vec!["c1".to_owned()], "b")]
    {
        let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
        let Membership::Of(group) = gone.membership(None, &claims, &[], |_| false) else {
            panic!("{key}")
        };
        assert_eq!(&*group.key, key);
    }
    assert_eq!(gone.membership(Some("3"), &[&own("x")], &[], |_| false), Membership::Free);
    // What stands for nothing of it is a group by itself.
    let some = with(&sets[..1]);
    assert_eq!(told(&some), ["a: @ / ", "b: @ c1 / "]);
    assert_eq!(some.awaited.len(), 0);
    // Of a result that is known by now: the placeholder mounts its claim.
    let mut derived = document.clone();
    derived["spec"]["workspaces"] = json!([template("a", RWO), bound("w", "$(tasks.1.results.r)")]);
    let made = groups(
        derived,
        &[
            placeholder("a", &[&own("a")], &[], "workspaces"),
            placeholder("w", &["by-result"], &[], "workspaces"),
            claim("by-result", RWO, None),
        ],
        "workspaces",
    );
    assert_eq!(told(&made), ["a: @ / ", "w: by-result? / "]);
    for claim in ["by-result", "another-result"] {
        let Membership::Of(group) = made.membership(None, &[claim], &[], |_| false) else {
            panic!("{claim}")
        };
        assert_eq!(&*group.key, "w", "{claim}");
    }
    // Nobody's, by its name.
    let mut forged = placeholder("a", &[&own("a"), "c1"], &[], "workspaces");
    forged["metadata"]["annotations"][keys::GROUP_KEY] = json!("b");
    let none = with(&[forged]);
    assert_eq!((told(&none), none.awaited.len()), (vec!["a: @ @ c1 / ".to_owned()], 1));
}

#[test]
fn where_the_pipeline_is_gone_a_run_of_two_architectures_keeps_its_parts() {
    let of_arch = |task: &str, arch: &str| json!({"pipelineTaskName": task, "podTemplate": {"nodeSelector": {"arch": arch}}});
    let mut document = run(&[template("x", RWX), template("a", RWO)], &[]);
    document["spec"].as_object_mut().unwrap().remove("pipelineSpec");
    document["spec"]["pipelineRef"] = json!({"name": "p"});
    document["spec"]["taskRunSpecs"] = json!([of_arch("1", "amd64"), of_arch("2", "arm64")]);
    let pipeline = json!({
        "apiVersion": "tekton.dev/v1", "kind": "Pipeline", "metadata": {"name": "p", "namespace": "ci"},
        "spec": {"tasks": [task("1", &["x"]), task("2", &["x", "a"])]},
    });
    let (x, a) = (claim_name(None, "x", UID), claim_name(None, "a", UID));
    let sets = [
        placeholder("arch=amd64", &[&x], &[], "pipelineruns"),
        placeholder("arch=arm64", &[&x, &a], &[], "pipelineruns"),
    ];
    let known = groups(document.clone(), &[pipeline], "pipelineruns");
    let gone = groups(document, &sets, "pipelineruns");
    assert_eq!(told(&known), ["arch=amd64: @ / 1", "arch=arm64: @ @ / 2"]);
    assert_eq!(
        (told(&gone), gone.awaited.len()),
        (vec!["arch=amd64: @ / ".to_owned(), "arch=arm64: @ @ / ".to_owned()], 0)
    );
    for (before, after) in known.groups.iter().zip(&gone.groups) {
        assert_eq!((&before.name, &before.node_selector), (&after.name, &after.node_selector));
        assert_eq!(before.claims, after.claims);
    }
    for (claims, arch) in [
        (&[&*x][..], "amd64"),
        (&[&x], "arm64"),
        (&[&x, &a], "arm64"),
        (&[], "amd64"),
        (&[], "arm64"),
    ] {
        let selector = [("arch", arch)];
        let Membership::Of(group) = gone.membership(None, claims, &selector, |_| false) else {
            panic!("{claims:?}")
        };
        assert_eq!(*group.key, *format!("arch={arch}"), "{claims:?}");
    }
}

fn keys_and_names(made: &Groups) -> Vec<(Box<str>, Box<str>)> {
    made.groups.iter().map(|group| (group.key.clone(), group.name.clone())).collect()
}

/// What is bound to a place by and by does not say who is first.
#[test]
fn a_group_keeps_its_name_when_its_volume_is_made() {
    let own = claim_name(None, "a", UID);
    let document = run(
        &[template("a", RWO), bound("b", "b1"), bound("c", "c1")],
        &[task("1", &["b"]), task("2", &["a", "c"]), task("3", &["a", "c"])],
    );
    let with = |volume_of_a: Option<&str>| {
        let others = [
            claim("b1", RWO, Some("vb")),
            claim("c1", RWO, Some("vc")),
            claim(&own, RWO, volume_of_a),
            volume("va", "zone", "2"),
            volume("vb", "zone", "1"),
            volume("vc", "zone", "2"),
        ];
        groups(document.clone(), &others, "pipelineruns")
    };
    let (before, after) = (with(None), with(Some("va")));
    assert_eq!(told(&before), [": @ c1 / 2 3", "b: b1 / 1"]);
    assert_eq!(told(&after), told(&before));
    assert_eq!(keys_and_names(&after), keys_and_names(&before));
}

/// Of what was made for a run under one name nothing is found under another.
#[test]
fn what_a_placeholder_stands_for_keeps_its_name() {
    // That many nodes mount the claim which gave the group its key is known later.
    let source = claim_name(None, "source", UID);
    let document = run(
        &[bound("cache", "shared"), template("source", RWO)],
        &[task("1", &["source"]), task("2", &["cache", "source"])],
    );
    let before = groups(document.clone(), &[], "workspaces");
    assert_eq!(told(&before), ["cache: shared @ / 1 2"]);
    for set in [
        placeholder("cache", &["shared"], &[&source], "workspaces"),
        placeholder("cache", &["shared", &source], &[], "workspaces"),
    ] {
        let after = groups(document.clone(), &[claim("shared", RWX, None), set], "workspaces");
        assert_eq!(told(&after), ["cache: @ / 1 2"]);
        assert_eq!(keys_and_names(&after), keys_and_names(&before));
    }

    // A Pipeline that is changed while the run goes on, as Tekton runs what it began with.
    let own = ["a", "b"].map(|workspace| claim_name(None, workspace, UID));
    let mut document = run(&[template("a", RWO), template("b", RWO)], &[]);
    document["spec"].as_object_mut().unwrap().remove("pipelineSpec");
    document["spec"]["pipelineRef"] = json!({"name": "p"});
    let pipeline = |tasks: &[Value]| {
        json!({
            "apiVersion": "tekton.dev/v1", "kind": "Pipeline",
            "metadata": {"name": "p", "namespace": "ci"}, "spec": {"tasks": tasks},
        })
    };
    let apart = pipeline(&[task("1", &["a"]), task("2", &["b"])]);
    let joined = pipeline(&[task("1", &["a", "b"]), task("2", &["b"])]);
    for mode in ["workspaces", "isolate-pipelinerun"] {
        let before = groups(document.clone(), std::slice::from_ref(&apart), "workspaces");
        let sets = [
            placeholder("a", &[], &[&own[0]], "workspaces"),
            placeholder("b", &[&own[1]], &[], "workspaces"),
        ];
        let others = [joined.clone(), sets[0].clone(), sets[1].clone()];
        let after = groups(document.clone(), &others, mode);
        assert_eq!(told(&after), ["a: @ / 1", "b: @ / 2"]);
        assert_eq!(keys_and_names(&after), keys_and_names(&before));
        assert_eq!(after.owner_of(&own[1]).map(|group| &*group.key), Some("b"));
    }
    assert_eq!(told(&groups(document, &[joined], "workspaces")), ["a: @ @ / 1 2"]);
}

#[test]
fn pipelines_in_pipelines_are_one_run() {
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
    assert_eq!(told(&made), [format!("a: @ {below} / ")]);
    let (name, run) = view.run_by_uid("uid-3").unwrap();
    let (name, _, missing) = root(name, run, &view);
    assert_eq!((&*name.name, missing), ("run", None));

    let orphan = child("orphan", "uid-9", "gone", json!([]));
    let lonely = tests::view([orphan]);
    let (name, run) = lonely.run_by_uid("uid-9").unwrap();
    assert_eq!(root(name, run, &lonely).2, Some(Key::PipelineRun(Name::new("ci", "gone"))));

    // Runs that own each other are no runs that an API server has for long; nothing hangs.
    let one = child("one", "one", "two", json!([]));
    let two = child("two", "two", "one", json!([]));
    let circle = tests::view([one, two]);
    let (name, run) = circle.run_by_uid("one").unwrap();
    assert_eq!(root(name, run, &circle).2, None);
}

#[test]
fn claims_whose_volumes_share_no_node_are_split() {
    let zone = "topology.kubernetes.io/zone";
    let volumes = [
        volume("v1", zone, "a"),
        volume("v2", zone, "b"),
        volume("v3", "kubernetes.io/hostname", "n1"),
    ];
    let claims = ["v1", "v2", "v3"].map(|of| claim(&format!("c{}", &of[1..]), RWO, Some(of)));
    let others: Vec<Value> = volumes.into_iter().chain(claims).collect();
    let workspaces = [bound("1", "c1"), bound("2", "c2"), bound("3", "c3"), template("4", RWO)];
    let both =
        run(&workspaces, &[task("x", &["1"]), task("y", &["2"]), task("z", &["1", "2", "4"])]);

    let made = groups(both.clone(), &others, "workspaces");
    assert_eq!(told(&made), ["1: c1 @ / x z", "2: c2 / y", "3: c3 / "]);
    let conflicts: Vec<String> = made.conflicts.iter().map(ToString::to_string).collect();
    assert_eq!(conflicts, ["no node can mount both claims c1 and c2, and task z uses both"]);
    let Membership::Several(..) = made.membership(Some("z"), &["c1", "c2"], &[], |_| false) else {
        panic!("a task that uses both is in neither")
    };
    let standing = ["1", "2"].map(|key| placeholder(key, &[&format!("c{key}")], &[], "workspaces"));
    let of_both = [&others[..], &standing].concat();
    assert_eq!(groups(both.clone(), &of_both, "workspaces").conflicts, made.conflicts);

    let made = groups(both, &others, "pipelineruns");
    assert_eq!(told(&made), [": c1 c3 @ / x z", "2: c2 / y"]);
    assert_ne!(made.groups[0].name, made.groups[1].name);
    // What may be anywhere goes with whoever it is used with.
    let with = run(&workspaces, &[task("x", &["1", "2"]), task("y", &["2", "4"])]);
    assert_eq!(
        told(&groups(with, &others, "workspaces")),
        ["1: c1 / x", "2: c2 @ / y", "3: c3 / "]
    );
    // Volumes that some node may reach together are not split: nodes come and go.
    let apart = run(&workspaces, &[task("z", &["1", "3"])]);
    assert!(groups(apart, &others, "workspaces").conflicts.is_empty());
    // Who names its volume but is not bound yet, or whose volume nobody knows, may be anywhere.
    let made = groups(
        run(&[bound("1", "c1"), bound("2", "c9")], &[task("z", &["1", "2"])]),
        &[claim("c9", RWO, Some("v9")), claim("c1", RWO, Some("v1"))],
        "workspaces",
    );
    assert_eq!(told(&made), ["1: c1 c9 / z"]);
}

#[test]
fn tasks_that_ask_for_different_nodes_are_split_where_no_claim_stands_against_it() {
    let selector = |task: &str, arch: &str| json!({"pipelineTaskName": task, "podTemplate": {"nodeSelector": {"arch": arch}}});
    let document = |workspaces: &[Value], tasks: &[Value]| {
        let mut run = run(workspaces, tasks);
        run["spec"]["taskRunSpecs"] = json!([selector("x", "amd64"), selector("y", "arm64")]);
        run
    };
    // P12: nothing but a claim of many nodes is shared.
    let shared = document(
        &[template("w", RWX), template("a", RWO)],
        &[task("x", &["w"]), task("y", &["w", "a"]), task("z", &["a"]), task("free", &[])],
    );
    let made = groups(shared.clone(), &[], "pipelineruns");
    assert_eq!(told(&made), ["arch=amd64: @ / free x", "arch=arm64: @ @ / y z"]);
    assert!(made.conflicts.is_empty());
    let of = |task: Option<&str>, selector: &[(&str, &str)]| {
        let Membership::Of(group) = made.membership(task, &[], selector, |_| false) else {
            panic!("{task:?}")
        };
        group.key.to_string()
    };
    assert_eq!(of(Some("x"), &[("arch", "amd64")]), "arch=amd64");
    let many = claim_name(None, "w", UID);
    let Membership::Of(group) = made.membership(Some("y"), &[&many], &[], |_| false) else {
        panic!()
    };
    assert_eq!(&*group.key, "arch=arm64", "a claim of many nodes says nothing");
    let Membership::Of(group) = made.membership(None, &[&many], &[("arch", "arm64")], |_| false)
    else {
        panic!()
    };
    assert_eq!(&*group.key, "arch=arm64");
    assert_eq!(of(None, &[("arch", "arm64")]), "arch=arm64");
    assert_eq!(of(None, &[("arch", "s390x")]), "arch=amd64", "the first, for want of a better one");
    assert_eq!(of(Some("free"), &[]), "arch=amd64");
    assert_eq!(told(&groups(shared, &[], "workspaces")), ["a: @ / y z"]);

    // P12: a claim of one node is.
    let bound_together = document(&[template("a", RWO)], &[task("x", &["a"]), task("y", &["a"])]);
    for mode in ["workspaces", "pipelineruns", "isolate-pipelinerun"] {
        let made = groups(bound_together.clone(), &[], mode);
        assert_eq!(made.groups.len(), 1, "{mode}");
        let told: Vec<String> = made.conflicts.iter().map(ToString::to_string).collect();
        let [conflict] = told.as_slice() else { panic!("{mode}: {told:?}") };
        assert!(
            conflict.starts_with("task x asks for nodes with arch=amd64 and task y for arch=arm64")
        );
        assert!(made.groups[0].node_selector.is_empty());
    }

    // What all ask for together is what the placeholder asks for; a task's own takes the place of all.
    let mut one = document(&[template("a", RWO)], &[task("x", &["a"]), task("z", &["a"])]);
    one["spec"]["taskRunTemplate"] = json!({"podTemplate": {"nodeSelector": {"os": "linux"}}});
    let made = groups(one, &[], "workspaces");
    let labels: Vec<_> =
        made.groups[0].node_selector.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(labels, ["arch=amd64", "os=linux"]);
}

#[test]
fn what_pod_templates_mount_counts_like_a_workspace() {
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
    assert_eq!(told(&made), ["a: @ / 1", "b: @ / 2", "claim/c1: c1 / 3"]);
    document["spec"]["podTemplate"] = volumes;
    let made = groups(document, &[c1], "workspaces");
    assert_eq!(told(&made), ["a: @ @ c1 / 1 2 3"], "v1beta1 wrote the run's pod template there");
}

#[test]
fn claims_that_are_not_delivered_are_waited_for_and_count_as_of_one_node() {
    let made = groups(run(&[bound("b", "c1")], &[task("1", &["b"])]), &[], "workspaces");
    assert_eq!(told(&made), ["b: c1 / 1"]);
    assert_eq!(made.awaited, [Key::Claim(Name::new("ci", "c1"))]);
    let made = groups(run(&[bound("b", "c1")], &[]), &[claim("c1", RWX, None)], "workspaces");
    assert_eq!((told(&made), made.awaited.len()), (vec![], 0));
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

#[test]
fn two_runs_that_share_a_claim_go_where_the_earlier_one_is() {
    let of = |name: &str, second: u32, done: bool| {
        let mut document =
            run(&[bound("w", "c1"), bound("x", "c2")], &[task("1", &["w"]), task("2", &["x"])]);
        document["metadata"] = json!({"name": name, "namespace": "ci", "uid": name,
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")});
        let status = if done { "True" } else { "Unknown" };
        document["status"] = json!({"conditions": [{"type": "Succeeded", "status": status}]});
        document
    };
    let leader_of = |runs: &[Value]| {
        let claims = [claim("c1", RWO, None), claim("c2", RWX, None)];
        let view = view(runs.iter().cloned().chain(claims).chain(runs.iter().map(first_task)));
        let (name, run) = view.run_by_uid("b").unwrap();
        let made = of_run(name, run, &view, &policy("workspaces")).unwrap();
        assert_eq!(told(&made), ["w: c1 / 1"]);
        leader(name, run, &made.groups[0], &view, &policy("workspaces"))
            .map(|leader| (leader.who, leader.placeholder, leader.claim.to_string()))
    };
    let led_by = |name: &str| {
        let who = Who::Run(Name::new("ci", name));
        Some((who, keys::of_run(name, "w").into(), "c1".to_owned()))
    };
    assert_eq!(leader_of(&[of("b", 2, false)]), None);
    assert_eq!(leader_of(&[of("b", 2, false), of("a", 3, false)]), None, "the later one");
    assert_eq!(leader_of(&[of("b", 2, false), of("a", 1, true)]), None, "it has ended");
    assert_eq!(leader_of(&[of("b", 2, false), of("a", 1, false)]), led_by("a"));
    assert_eq!(leader_of(&[of("b", 2, false), of("a", 2, false)]), led_by("a"), "by UID");
    assert_eq!(leader_of(&[of("b", 3, false), of("a", 2, false), of("z", 1, false)]), led_by("z"));
    // Of one whose pod template of a task mounts it, and of one that writes a task with it out.
    let mounting =
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c1"}}]});
    for (member, value) in [
        ("taskRunSpecs", json!([{"pipelineTaskName": "2", "podTemplate": mounting}])),
        ("pipelineSpec", json!({"tasks": [{"name": "2", "taskSpec": mounting}]})),
    ] {
        let mut other = of("a", 1, false);
        other["spec"] = json!({"pipelineSpec": {"tasks": [{"name": "2"}]}});
        other["spec"][member] = value;
        let found = leader_of(&[of("b", 2, false), other]).expect(member);
        assert_eq!(found.1, keys::of_run("a", "claim/c1").into(), "{member}");
    }
    // Of a run whose claim of its own another one mounts.
    let mut owner = run(&[template("t", RWO)], &[task("1", &["t"])]);
    owner["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut guest = run(&[bound("w", &claim_name(None, "t", UID))], &[task("1", &["w"])]);
    guest["metadata"] = json!({"name": "b", "namespace": "ci", "uid": "b", "creationTimestamp": "2026-01-01T00:00:09Z"});
    let tasks = [first_task(&owner), first_task(&guest)];
    let view = view([owner, guest].into_iter().chain(tasks));
    let (name, run) = view.run_by_uid("b").unwrap();
    let made = of_run(name, run, &view, &policy("workspaces")).unwrap();
    let leader = leader(name, run, &made.groups[0], &view, &policy("workspaces")).unwrap();
    assert_eq!(leader.who, Who::Run(Name::new("ci", "run")));
    assert_eq!(&*leader.placeholder, &*keys::of_run(UID, "t"));
}

/// The TaskRun with which a run begins.
fn first_task(run: &Value) -> Value {
    let name = run["metadata"]["name"].as_str().unwrap();
    json!({"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": {
        "name": format!("{name}-first"), "namespace": run["metadata"]["namespace"], "uid": format!("{name}-first"),
        "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": name,
            "uid": run["metadata"]["uid"], "controller": true}],
    }})
}

/// A run that shares a claim with others, as far as it matters to who goes first.
#[derive(Clone, Debug)]
struct Sharer {
    created: u32,
    done: bool,
    deleting: bool,
    group: bool,
    task: Option<bool>,
    /// When its placeholder was made, and whether that has failed.
    placeholder: Option<(u32, bool)>,
    claims: BTreeSet<usize>,
}

fn sharer() -> impl Strategy<Value = Sharer> {
    let rarely = || prop::bool::weighted(0.15);
    let task = prop::option::weighted(0.7, rarely());
    let placeholder = prop::option::weighted(0.5, (0..4_u32, rarely()));
    let claims = prop::collection::btree_set(0..3_usize, 1..3);
    (0..4_u32, rarely(), rarely(), rarely(), task, placeholder, claims).prop_map(
        |(created, done, deleting, group, task, placeholder, claims)| Sharer {
            created,
            done,
            deleting,
            group,
            task,
            placeholder,
            claims,
        },
    )
}

fn at(second: u32) -> String {
    format!("2026-01-01T00:00:{second:02}Z")
}

fn documents_of(name: &str, sharer: &Sharer) -> Vec<Value> {
    let claims: Vec<String> = sharer.claims.iter().map(|claim| format!("c{claim}")).collect();
    let workspaces: Vec<Value> = claims.iter().map(|claim| bound(claim, claim)).collect();
    let mut document = run(&workspaces, &[]);
    document["metadata"] = json!({"name": name, "namespace": "ci", "uid": name, "creationTimestamp": at(sharer.created)});
    if sharer.group {
        document["metadata"]["annotations"] = json!({keys::GROUP: "g"});
    }
    if sharer.deleting {
        document["metadata"]["deletionTimestamp"] = json!(at(9));
    }
    if sharer.done {
        document["status"] = json!({"conditions": [{"type": "Succeeded", "status": "True"}]});
    }
    let mut documents = vec![document];
    if let Some(assisted) = sharer.task {
        let mut task = first_task(&documents[0]);
        if assisted {
            task["metadata"]["annotations"] = json!({keys::ASSISTANT: "a"});
        }
        documents.push(task);
    }
    if let Some((created, failed)) = sharer.placeholder {
        let placeholder = keys::of_run(name, "");
        let mut annotations = json!({keys::MODE: "pipelineruns", keys::GROUP_KEY: ""});
        if failed {
            annotations[keys::FAILED] = json!("true");
        }
        documents.push(json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {
            "name": placeholder, "namespace": "ci", "uid": placeholder, "creationTimestamp": at(created),
            "labels": {keys::PLACEHOLDER: placeholder}, "annotations": annotations,
            "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": name,
                "uid": name, "controller": true}],
        }}));
    }
    documents
}

proptest! {
    /// Of those that share a claim and have begun exactly one leads, and nobody follows who follows him.
    #[test]
    fn of_those_that_share_a_claim_one_leads(sharers in prop::collection::vec(sharer(), 1..7)) {
        let names: Vec<String> = (0..sharers.len()).map(|index| format!("r{index}")).collect();
        let documents = names.iter().zip(&sharers).flat_map(|(name, of)| documents_of(name, of));
        let claims = (0..3).map(|index| claim(&format!("c{index}"), RWO, None));
        let view = view(documents.chain(claims));
        let policy = policy("pipelineruns");
        let leads = |of: &Sharer| {
            let stands = of.placeholder.is_some_and(|(_, failed)| !failed);
            let begins = of.placeholder.is_none() && of.task == Some(false);
            !of.done && !of.deleting && !of.group && (stands || begins)
        };
        let mut follows = BTreeMap::new();
        for (name, of) in names.iter().zip(&sharers).filter(|(_, of)| !of.done && !of.group) {
            let (key, run) = view.run_by_uid(name).unwrap();
            let made = of_run(key, run, &view, &policy).unwrap();
            prop_assert_eq!(made.groups.len(), 1);
            let leader = leader(key, run, &made.groups[0], &view, &policy);
            let shared = |other: &Sharer| !other.claims.is_disjoint(&of.claims);
            let others = names.iter().zip(&sharers).filter(|(other, _)| *other != name);
            let candidates: Vec<_> = others.filter(|(_, of)| leads(of) && shared(of)).collect();
            match leader {
                None => {
                    if !leads(of) {
                        prop_assert!(candidates.is_empty(), "{name} follows nobody");
                    }
                }
                Some(Leader { who: Who::Run(other), .. }) => {
                    let known = candidates.iter().any(|(known, _)| ***known == *other.name);
                    prop_assert!(known, "{name} follows {other:?}");
                    follows.insert(name.clone(), other.name.to_string());
                }
                Some(other) => prop_assert!(false, "{other:?}"),
            }
        }
        for claim in 0..3 {
            let users = names.iter().zip(&sharers);
            let users: Vec<_> =
                users.filter(|(_, of)| leads(of) && of.claims.contains(&claim)).collect();
            let inside = |name: &String| {
                follows.get(name).is_some_and(|other| users.iter().any(|(of, _)| *of == other))
            };
            let first = users.iter().filter(|(name, _)| !inside(name)).count();
            let apart = users.iter().any(|(_, of)| of.claims.len() > 1);
            prop_assert!(users.is_empty() || first >= 1);
            prop_assert!(apart || users.is_empty() || first == 1, "claim {claim}: {follows:?}");
        }
        for start in &names {
            let mut at = start;
            for _ in 0..=names.len() {
                match follows.get(at) {
                    Some(next) => at = next,
                    None => break,
                }
            }
            prop_assert!(!follows.contains_key(at), "{start} follows in a circle: {follows:?}");
        }
    }
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
        prop_assert_eq!(&told(&groups(run(&workspaces, &backwards), &c1, mode)), &told(&made));
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
fn names_at_their_limits_and_strange_ones_are_read() {
    let long = "w".repeat(253);
    for name in ["", "é", "a b", "$(x)", &long, &"x".repeat(262_144)] {
        let document = run(&[template(name, RWO)], &[task("t", &[name])]);
        let made = groups(document, &[], "workspaces");
        assert_eq!(made.groups.len(), 1, "{name:.20}");
        assert_eq!(made.groups[0].name.len(), 29);
    }
    let twice = run(&[template("a", RWO), template("a", RWX)], &[task("t", &["a"])]);
    assert_eq!(groups(twice, &[], "workspaces").groups.len(), 1, "a name that stands twice");
}
