//! The groups of runs, by table and by property.

mod leader;
mod recorded;
mod split;

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::*;
use crate::systems::View;
use crate::systems::coschedule::family::root;
use crate::systems::coschedule::kinds::pipeline_run::claim_name;
use crate::systems::test_objects::{controlled_by, view_of};

const UID: &str = "uid-1";

fn access_mode(word: &str) -> &'static str {
    match word {
        "many" => "ReadWriteMany",
        "pod" => "ReadWriteOncePod",
        _ => "ReadWriteOnce",
    }
}

fn template(name: &str, mode: &str) -> Value {
    let spec = json!({"accessModes": [access_mode(mode)], "storageClassName": "fast"});
    json!({"name": name, "volumeClaimTemplate": {"spec": spec}})
}

/// Workspaces as in `a x:many p:pod e:empty b=c1`: claims of the run's own that one node, many nodes and
/// one pod mount, an `emptyDir`, and the existing claim `c1`.
fn workspaces(text: &str) -> Value {
    let workspace = |word: &str| match (word.split_once('='), word.split_once(':')) {
        (Some((name, claim)), _) => {
            json!({"name": name, "persistentVolumeClaim": {"claimName": claim}})
        }
        (None, Some((name, "secret"))) => json!({"name": name, "secret": {"secretName": "s"}}),
        (None, Some((name, "empty"))) => json!({"name": name, "emptyDir": {}}),
        (None, Some((name, mode))) => template(name, mode),
        (None, None) => template(word, "one"),
    };
    text.split_whitespace().map(workspace).collect()
}

/// Tasks as in `1:a,b 2`: the task `1` uses the workspaces `a` and `b`, and `2` none.
fn tasks(text: &str) -> Value {
    let task = |word: &str| {
        let (name, used) = word.split_once(':').unwrap_or((word, ""));
        let used = used.split(',').filter(|of| !of.is_empty());
        let used: Value = used.map(|of| json!({"name": "w", "workspace": of})).collect();
        json!({"name": name, "workspaces": used})
    };
    text.split_whitespace().map(task).collect()
}

/// A run with these [`workspaces`] and [`tasks`].
fn run(of: &str, used_by: &str) -> Value {
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": "run", "namespace": "ci", "uid": UID, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"workspaces": workspaces(of), "pipelineSpec": {"tasks": tasks(used_by)}},
    })
}

/// A run of the Pipeline `p`.
fn run_of_p(of: &str) -> Value {
    let mut run = run(of, "");
    run["spec"] = json!({"workspaces": workspaces(of), "pipelineRef": {"name": "p"}});
    run
}

/// The Pipeline `p`.
fn pipeline(used_by: &str) -> Value {
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "Pipeline", "metadata": {"name": "p", "namespace": "ci"},
        "spec": {"tasks": tasks(used_by)},
    })
}

/// The `taskRunSpecs` of tasks that run on nodes of an architecture.
fn on_arch(of: &[(&str, &str)]) -> Value {
    let spec = |(task, arch): &(&str, &str)| json!({"pipelineTaskName": task, "podTemplate": {"nodeSelector": {"arch": arch}}});
    of.iter().map(spec).collect()
}

/// The TaskRun of a task, with claims in its workspaces.
fn task_run(task: &str, claims: &[&str]) -> Value {
    let bound = claims.iter().map(|claim| format!("w={claim}")).collect::<Vec<_>>().join(" ");
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
        "metadata": {"name": format!("run-{task}"), "namespace": "ci", "uid": task,
            "labels": {(keys::PIPELINE_TASK): task},
            "ownerReferences": controlled_by("PipelineRun", "run", UID)},
        "spec": {"workspaces": workspaces(&bound)},
    })
}

/// Claims and volumes as in `c1@v1 x:many v1=a`: `c1` is bound to the volume `v1`, many nodes mount `x`,
/// and only nodes in the zone `a` mount `v1`.
fn storage(text: &str) -> Vec<Value> {
    let object = |word: &str| {
        if let Some((volume, zone)) = word.split_once('=') {
            let term =
                json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
            return json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
                "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
            });
        }
        let (claim, volume) = word.split_once('@').unzip();
        let claim = claim.unwrap_or(word);
        let (name, mode) = claim.split_once(':').unwrap_or((claim, "one"));
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "ci"},
            "spec": {"accessModes": [access_mode(mode)], "volumeName": volume},
        })
    };
    text.split_whitespace().map(object).collect()
}

fn policy(mode: &str) -> Policy {
    Policy::from_yaml(&format!("coschedule: {{mode: {mode}}}")).unwrap()
}

fn groups_in(view: &View, mode: &str) -> Groups {
    let (name, run) = view.run_by_uid(UID).unwrap();
    of_run(name, run, view, &policy(mode)).unwrap()
}

fn groups(run: &Value, others: &[Value], mode: &str) -> Groups {
    groups_in(&view_of(others.iter().chain([run]).cloned()), mode)
}

/// Groups in short: `key: claims / tasks; …`, where `@` is a claim of the run's own.
fn summarize(groups: &Groups) -> String {
    let summary = |group: &Group| {
        let claims = group.claims.iter().map(|claim| match claim.template {
            true => "@".to_owned(),
            false => claim.name.to_string(),
        });
        let claims = claims.collect::<Vec<_>>().join(" ");
        let tasks = group.tasks.iter().flatten().map(AsRef::as_ref).collect::<Vec<_>>().join(" ");
        let derived = if group.has_unknown_claims { "?" } else { "" };
        format!("{}: {claims}{derived} / {tasks}", group.key).trim_end().to_owned()
    };
    groups.groups.iter().map(summary).collect::<Vec<_>>().join("; ")
}

fn summary(run: &Value, others: &[Value], mode: &str) -> String {
    summarize(&groups(run, others, mode))
}

/// The key of the group of a pod with this task, these claims and this node selector; or `free`.
fn group_of(
    groups: &Groups,
    task: Option<&str>,
    claims: &[&str],
    selector: &[(&str, &str)],
) -> String {
    match groups.membership(task, claims, selector, |_| false) {
        Membership::Free => "free".to_owned(),
        Membership::Of(group) => group.key.to_string(),
        Membership::Several(first, second) => format!("{} and {}", first.key, second.key),
    }
}

fn conflicts(groups: &Groups) -> Vec<String> {
    groups.conflicts.iter().map(ToString::to_string).collect()
}

#[test]
fn in_workspaces_mode_claims_used_by_one_task_are_one_group() {
    for (what, workspaces, tasks, expected) in [
        ("no workspace", "", "a", ""),
        ("nothing that a node matters to", "e:empty s:secret", "a:e,s", ""),
        ("one", "source", "fetch:source test:source free", "source: @ / fetch test"),
        ("two that no task joins", "a b=c1 e:empty", "1:a 2:b 3:e", "a: @ / 1; b: c1 / 2"),
        ("a task with two", "s cache=c1", "fetch:s build:s,cache", "s: @ c1 / build fetch"),
        ("a chain", "a b c d", "1:c,b 2:a,b 3:d", "a: @ @ @ / 1 2; d: @ / 3"),
        ("claims of many nodes", "x:many a b", "1:x,a 2:x,b 3:x", "a: @ / 1; b: @ / 2"),
        ("a claim of one pod", "p:pod a", "1:p,a 2:p", "a: @ / 1"),
        ("a result's", "w=$(tasks.t.results.r) a", "1:w 2:a 3:w", "w: ? / 1 3; a: @ / 2"),
        ("a workspace that no task uses", "a unused", "1:a", "a: @ / 1; unused: @ /"),
        ("a workspace that the run does not bind", "a", "1:a,optional", "a: @ / 1"),
    ] {
        let document = run(workspaces, tasks);
        assert_eq!(summary(&document, &storage("c1"), "workspaces"), expected, "{what}");
    }
}

#[test]
fn per_run_modes_have_one_group_with_all_mountable_claims() {
    let document = run("a b=c1 x:many p:pod", "1:a 2:b 3");
    for mode in ["pipelineruns", "isolate-pipelinerun"] {
        let made = groups(&document, &storage("c1"), mode);
        assert_eq!(summarize(&made), ": @ c1 @ / 1 2 3", "{mode}");
        assert_eq!(made.groups[0].isolated, mode == "isolate-pipelinerun");
        let empty = groups(&run("", "1"), &[], mode);
        assert_eq!(summarize(&empty), ":  / 1", "{mode}");
        assert_eq!(group_of(&empty, Some("1"), &[], &[]), "", "{mode}");
        assert_eq!(*empty.groups[0].name, *keys::of_run(UID, ""));
    }
    let disabled = groups(&document, &[], "disabled");
    assert_eq!((summarize(&disabled), disabled.awaited.len()), (String::new(), 0));
    assert_eq!(group_of(&disabled, Some("1"), &["c1"], &[]), "free");
}

#[test]
fn the_claims_of_a_pod_decide_its_group() {
    let document = run("a b=c1 x:many w=$(tasks.t.results.r)", "1:a 2:b 3:w 4:x");
    let made = groups(&document, &storage("c1"), "workspaces");
    let own = claim_name(None, "a", UID);
    let placed = keys::provisioned(&own, &keys::of_run(UID, "a"));
    for (what, task, claims, group) in [
        ("its own", Some("1"), &[&*own][..], "a"),
        ("the placeholder's own claim (provision)", None, &[&placed], "a"),
        ("claims count, not labels", Some("spoofed"), &["c1", "other"], "b"),
        ("the name was unknown", Some("3"), &["by-result"], "w"),
        ("another task's own volume", Some("4"), &["by-result"], "free"),
        ("of no task", None, &["by-result"], "free"),
        ("two groups", Some("1"), &[&own, "c1"], "a and b"),
    ] {
        assert_eq!(group_of(&made, task, claims, &[]), group, "{what}");
    }
}

/// By the time that its pod comes, the claim of a result is there and says how it may be mounted.
#[test]
fn a_result_claim_that_several_nodes_mount_restricts_no_pod() {
    let document = run("w=$(tasks.t.results.r) a", "1:w 2:w,a");
    let view = view_of(storage("many:many one-pod:pod once").into_iter().chain([document]));
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
            let found = made.membership(Some("1"), claims, &[], needs_no_node("ci", &view));
            assert_eq!(found == Membership::Free, free && !binds, "{mode} {claims:?}");
        }
    }
}

#[test]
fn claims_of_an_inline_task_are_used() {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c1"}}]);
    for (uses, claim, expected) in [
        ("1 2 3:a 4", "c1", "a: @ / 3; claim/c1: c1 / 1 2"),
        ("1:a 2 3:a", "c1", "a: @ c1 / 1 2 3"),
        ("1:a 2 3:a", "c1:many", "a: @ / 1 3"),
    ] {
        let mut document = run("a", uses);
        for task in [0, 1] {
            document["spec"]["pipelineSpec"]["tasks"][task]["taskSpec"] =
                json!({"volumes": volumes});
        }
        assert_eq!(summary(&document, &storage(claim), "workspaces"), expected, "{uses} {claim}");
    }
}

/// Tekton replaces the run's own params in its workspaces before it does anything else.
#[test]
fn a_claim_named_by_a_param_of_the_run_is_found() {
    let params = json!([
        {"name": "claim", "value": "c1"}, {"name": "a", "value": "c"}, {"name": "b.c", "value": "1"},
        {"name": "list", "value": ["c1"]}, {"name": "open", "value": "$(tasks.t.results.r)"},
        {"name": "empty", "value": ""},
    ]);
    let with = |name: &str, params: &Value| {
        let mut document = run(&format!("w={name}"), "1:w");
        document["spec"]["params"] = params.clone();
        summary(&document, &storage("c1"), "workspaces")
    };
    for (name, expected) in [
        ("$(params.claim)", "w: c1 / 1"),
        ("$(params['claim'])", "w: c1 / 1"),
        ("$(params[\"claim\"])", "w: c1 / 1"),
        ("$(params.a)$(params['b.c'])", "w: c1 / 1"),
        ("$(params.unknown)", "w: ? / 1"),
        ("$(params.list)", "w: ? / 1"),
        ("$(params.claim", "w: ? / 1"),
        ("$(params.claim)-$(tasks.t.results.r)", "w: ? / 1"),
        ("$(finally.t.results.r)", "w: ? / 1"),
        ("$(params.open)", "w: ? / 1"),
        ("$(params.)", "w: ? / 1"),
        ("$(params['claim\"])", "w: ? / 1"),
        ("$(params.é)", "w: ? / 1"),
        ("$$(params.claim)", "w: $c1 / 1"),
        ("$(params.empty)", ""),
    ] {
        assert_eq!(with(name, &params), expected, "{name}");
    }
    // Of a run that cannot be read, no task is known.
    for (params, expected) in [
        (json!(7), "w: ? /"),
        (json!([7]), "w: ? /"),
        (json!({"x": "c1"}), "w: ? /"),
        (json!([{"name": [], "value": {}}]), "w: ? / 1"),
    ] {
        assert_eq!(with("$(params.x)", &params), expected, "{params}");
    }
}

/// Tekton replaces params in pod templates for each TaskRun. A value that is not known yet must not get
/// into the node selector of the placeholder, which the API server would refuse.
#[test]
fn a_node_selector_has_only_values_that_are_known() {
    let params = json!([{"name": "arch", "value": "arm64"}, {"name": "list", "value": ["arm64"]}]);
    let selected = |value: &str, task: &Value| {
        let mut document = run("w", "1:w 2:w");
        document["spec"]["params"] = params.clone();
        document["spec"]["taskRunSpecs"] = on_arch(&[("1", value)]);
        document["spec"]["pipelineSpec"]["params"] = json!([
            {"name": "default", "default": "s390x"}, {"name": "arch", "default": "s390x"},
        ]);
        let own = &mut document["spec"]["pipelineSpec"]["tasks"][0];
        for (key, value) in task.as_object().into_iter().flatten() {
            own[key] = value.clone();
        }
        let of = |groups: &Groups| {
            assert_eq!(conflicts(groups), [""; 0], "{value}");
            let labels = groups.groups[0].node_selector.iter();
            labels.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        let by_task = of(&groups(&document, &[], "workspaces"));
        let by_run = of(&groups(&document, &[], "pipelineruns"));
        assert_eq!(by_task, by_run, "{value}");
        document["spec"]["pipelineRef"] = json!({"resolver": "git"});
        document["spec"].as_object_mut().unwrap().remove("pipelineSpec");
        (by_task, of(&groups(&document, &[], "workspaces")))
    };
    let matrix = |matrix: Value| json!({"matrix": matrix});
    let listed = |value: Value| matrix(json!({"params": [{"name": "arch", "value": value}]}));
    let of = |name: &str| json!({"params": [{"name": name, "value": "x"}]});
    let include = matrix(json!({"include": [of("arch")]}));
    let not_all = matrix(json!({"include": [of("arch"), of("other")]}));
    let beside =
        matrix(json!({"params": [{"name": "a", "value": ["b"]}], "include": [of("arch")]}));
    let long = json!({"params": [{"name": "arch", "value": "x".repeat(254)}]});
    let another = json!({"params": [{"name": "arch", "value": "$(params.other)"}]});
    let own = json!({"params": [{"name": "arch", "value": "amd64"}]});
    let handed_on = json!({"params": [{"name": "arch", "value": "$(params.arch)"}]});
    for (value, task, expected, by_unknown_tasks) in [
        ("amd64", &Value::Null, "arch=amd64", "arch=amd64"),
        ("$(params.arch)", &Value::Null, "arch=arm64", ""),
        ("$(params['arch'])", &handed_on, "arch=arm64", ""),
        ("$(params.arch)", &listed(json!(["amd64"])), "arch=amd64", ""),
        ("$(params.arch)", &listed(json!(["amd64", "$(tasks.2.results.r)"])), "", ""),
        ("$(params.arch)", &listed(json!("$(params.list[*])")), "", ""),
        ("$(params.arch)", &listed(json!([])), "", ""),
        ("$(params.arch)", &listed(json!([7, null, {}])), "", ""),
        ("$(params.arch)", &include, "arch=x", ""),
        ("$(params.arch)", &not_all, "", ""),
        ("$(params.arch)", &beside, "", ""),
        ("$(params.arch)", &long, "", ""),
        ("$(params.arch)", &another, "", ""),
        ("$(params.arch)", &own, "arch=amd64", ""),
        ("on-$(params.arch)", &own, "", ""),
        ("on-$(params.arch)", &Value::Null, "arch=on-arm64", ""),
        ("$(params.default)", &Value::Null, "arch=s390x", ""),
        ("on-$(params.default)", &Value::Null, "", ""),
        ("$(params.list[0])", &Value::Null, "", ""),
        ("$(params.missing)", &Value::Null, "", ""),
        ("$(context.pipelineRun.name)", &Value::Null, "", ""),
        ("$(params.arch)-$(tasks.2.results.r)", &Value::Null, "", ""),
    ] {
        let found = selected(value, task);
        assert_eq!(found, (expected.to_owned(), by_unknown_tasks.to_owned()), "{value} {task}");
    }
}

/// A matrix makes TaskRuns that select different nodes.
#[test]
fn the_values_of_a_matrix_contradict_each_other() {
    let mut document = run("w", "build:w other:w alone");
    document["spec"]["taskRunSpecs"] =
        on_arch(&[("build", "$(params.arch)"), ("alone", "$(params.arch)")]);
    let matrix = json!({"params": [{"name": "arch", "value": ["amd64", "arm64", "amd64"]}]});
    document["spec"]["pipelineSpec"]["tasks"][0]["matrix"] = matrix.clone();
    let made = groups(&document, &[], "workspaces");
    let shared = "task build asks for nodes with arch=amd64 and by its matrix also for arch=arm64, and they share a claim that one node mounts at a time";
    assert_eq!(conflicts(&made), [shared]);
    assert!(made.groups[0].node_selector.is_empty());

    // In a run that is one group, the TaskRuns of the first value are in it.
    document["spec"]["workspaces"] = workspaces("w:many");
    document["spec"]["pipelineSpec"]["tasks"][2]["matrix"] = matrix;
    document["spec"]["pipelineSpec"]["tasks"][0]["matrix"] = Value::Null;
    let made = groups(&document, &[], "pipelineruns");
    assert_eq!(summarize(&made), ": @ / build other");
    let alone = "task alone asks for nodes with arch=amd64 and by its matrix also for arch=arm64, and the second is placed without the group of the run";
    assert_eq!(conflicts(&made), [alone]);
    for (arch, group) in [("amd64", ""), ("arm64", "free")] {
        assert_eq!(group_of(&made, Some("alone"), &[], &[("arch", arch)]), group, "{arch}");
    }
}

/// A claim of a pod template is found by the run's params, too, unless the task has its own.
#[test]
fn a_claim_of_a_pod_template_is_found_by_the_params_of_the_run() {
    let volumes = |claim: &str| json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]});
    for (claim, matrix, expected) in [
        ("$(params.claim)", Value::Null, "claim/c1: c1 / 1 2"),
        (
            "$(params.claim)",
            json!({"params": [{"name": "claim", "value": ["a"]}]}),
            "claim/a: a / 1; claim/c1: c1 / 2",
        ),
        ("$(params.other)", Value::Null, ""),
    ] {
        let mut document = run("", "1 2");
        document["spec"]["params"] = json!([{"name": "claim", "value": "c1"}]);
        document["spec"]["pipelineSpec"]["tasks"][0]["matrix"] = matrix;
        let mut of_run = document.clone();
        of_run["spec"]["taskRunTemplate"]["podTemplate"] = volumes(claim);
        assert_eq!(summary(&of_run, &storage("c1"), "workspaces"), expected, "{claim}");
        document["spec"]["taskRunSpecs"] = json!([
            {"pipelineTaskName": "1", "podTemplate": volumes(claim)},
            {"pipelineTaskName": "2", "podTemplate": volumes(claim)},
        ]);
        assert_eq!(summary(&document, &storage("c1"), "workspaces"), expected, "{claim}");
    }
}

/// The namespace's administrator is to blame, and the run's author can do nothing about it.
#[test]
fn a_mode_of_the_namespace_that_cannot_be_used_gives_way_to_that_of_the_policy() {
    let namespace = |mode: &str| {
        json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "ci", "annotations": {(keys::MODE): mode}}})
    };
    for (mode, expected) in [
        ("Workspaces", "stowplan.dev/coschedule of Namespace ci: \"Workspaces\" is not a mode"),
        (
            "disabled",
            "stowplan.dev/coschedule of Namespace ci: the policy does not allow \"disabled\"",
        ),
    ] {
        let mut policy = policy("pipelineruns");
        policy.coschedule.allowed_modes = [CoscheduleMode::Workspaces].into();
        let view = view_of([run("a", "1:a"), namespace(mode)]);
        let (name, known) = view.run_by_uid(UID).unwrap();
        let made = of_run(name, known, &view, &policy).unwrap();
        assert_eq!(made.mode, CoscheduleMode::PipelineRuns, "{mode}");
        let finding = made.unused_mode.unwrap().finding();
        assert_eq!(format!("{}: {}", finding.subject, finding.problem), expected);
        // The run's own mode is refused as before, and so is its Pipeline's.
        let mut own = run("a", "1:a");
        own["metadata"]["annotations"] = json!({(keys::MODE): mode});
        let view = view_of([own, namespace("workspaces")]);
        let (name, known) = view.run_by_uid(UID).unwrap();
        assert!(of_run(name, known, &view, &policy).is_err(), "{mode}");
    }
}

#[test]
fn an_unknown_pipeline_has_one_group_of_all_claims_that_need_one_node() {
    let of = "x:many a b=c1";
    let mut bundle = run_of_p(of);
    bundle["spec"]["pipelineRef"]["bundle"] = json!("b");
    let mut nested = run(of, "");
    nested["spec"]["pipelineSpec"] =
        json!({"finally": [{"name": "n", "pipelineRef": {"name": "q"}}]});
    for (what, document, is_awaited) in [
        ("a bundle (v1beta1)", bundle, false),
        ("a Pipeline that is not delivered", run_of_p(of), true),
        ("a pipeline in the pipeline", nested, false),
    ] {
        let made = groups(&document, &storage("c1"), "workspaces");
        assert_eq!(summarize(&made), "a: @ c1 /", "{what}");
        assert_eq!(group_of(&made, None, &["c1"], &[]), "a", "{what}");
        assert_eq!(group_of(&made, None, &["of-a-task"], &[]), "free", "{what}");
        assert_eq!(!made.awaited.is_empty(), is_awaited, "{what}");
    }
    let mut pipeline = pipeline("1:a 2:b");
    pipeline["apiVersion"] = json!("tekton.dev/v1beta1");
    let known = [storage("c1"), vec![pipeline]].concat();
    let named = run_of_p(of);
    assert_eq!(summary(&named, &known, "workspaces"), "a: @ / 1; b: c1 / 2");

    // The placeholder was made before the Pipeline was known: what it has stays together.
    let set = placeholder("a", &[&claim_name(None, "a", UID), "c1"], &[]);
    assert_eq!(summary(&named, &[known, vec![set]].concat(), "workspaces"), "a: @ c1 / 1 2");
}

/// The placeholder of a group whose tasks were not known.
fn placeholder(key: &str, claims: &[&str], templates: &[&str]) -> Value {
    let record = Record {
        key: key.into(),
        workspaces: [key.into()].into(),
        claims: claims.iter().chain(templates).map(|claim| (*claim).into()).collect(),
        ..Record::default()
    };
    placeholder_of(&record, claims, templates, "workspaces")
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
    let volume =
        |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    let template = |claim: &&str| json!({"metadata": {"name": keys::template(claim)}, "spec": {}});
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "ci", "labels": {"stowplan.dev/placeholder": name},
            "annotations": {keys::RECORD: record.text(), keys::MODE: mode},
            "ownerReferences": controlled_by("PipelineRun", "run", UID)},
        "spec": {"selector": {}, "serviceName": "",
            "template": {"spec": {"containers": [], "volumes": claims.iter().map(volume).collect::<Value>()}},
            "volumeClaimTemplates": templates.iter().map(template).collect::<Value>()},
    })
}

#[test]
fn nested_pipelines_belong_to_one_run() {
    let child = |name: &str, uid: &str, parent: &str, of: &str| {
        let mut run = run(of, "inner:w");
        run["metadata"] = json!({"name": name, "namespace": "ci", "uid": uid,
            "ownerReferences": controlled_by("PipelineRun", parent, parent)});
        run
    };
    let mut top = run("a", "");
    top["spec"]["pipelineSpec"] = json!({"tasks": [{"name": "n", "pipelineSpec": {}}]});
    let inner = child("inner", "uid-2", UID, &format!("w={}", claim_name(None, "a", UID)));
    let nested = view_of([top, inner, child("innermost", "uid-3", "uid-2", "t")]);
    // Of the root, whose placeholder can make it, and of the innermost run, whose claim stays.
    let below = claim_name(None, "t", "uid-3");
    assert_eq!(summarize(&groups_in(&nested, "workspaces")), format!("a: @ {below} /"));

    // Runs that own each other are no runs that an API server has for long; nothing hangs.
    let circle = view_of([child("one", "one", "two", ""), child("two", "two", "one", "")]);
    let root_of = |uid: &str, view: &View| {
        let (name, run) = view.run_by_uid(uid).unwrap();
        let (name, _, missing) = root(name, run, view);
        (name.name.to_string(), missing)
    };
    assert_eq!(root_of("uid-3", &nested), ("run".to_owned(), None));
    assert_eq!(root_of("one", &circle).1, None);
}

#[test]
fn claims_of_pod_templates_count_like_workspaces() {
    let mut document = run("a b", "1:a 2:b 3");
    let volumes = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c1"}},
        {"name": "e", "emptyDir": {}}, {"name": "r", "persistentVolumeClaim": {"claimName": "$(x)"}}]});
    document["spec"]["taskRunSpecs"] =
        json!([{"pipelineTaskName": "3", "taskPodTemplate": volumes}]);
    let found = summary(&document, &storage("c1"), "workspaces");
    assert_eq!(found, "a: @ / 1; b: @ / 2; claim/c1: c1 / 3");
    // Here v1beta1 has the run's pod template.
    document["spec"]["podTemplate"] = volumes;
    assert_eq!(summary(&document, &storage("c1"), "workspaces"), "a: @ @ c1 / 1 2 3");
}

/// The other sources: `fixtures/coschedule/mode-*`.
#[test]
fn the_mode_of_a_run_takes_precedence_over_that_of_its_pipeline() {
    let mut objects = [run_of_p("a"), pipeline("1:a")];
    for (object, mode) in objects.iter_mut().zip(["pipelineruns", "disabled"]) {
        object["metadata"]["annotations"] = json!({keys::MODE: mode});
    }
    let [run, pipeline] = objects;
    assert_eq!(groups(&run, &[pipeline], "workspaces").mode, CoscheduleMode::PipelineRuns);
}

/// The names and sources of [`workspaces`], and [`tasks`] of which each uses some of them.
fn any_run() -> impl Strategy<Value = (Vec<(String, &'static str)>, Vec<String>)> {
    (1_usize..8, 0_usize..12).prop_flat_map(|(workspaces, tasks)| {
        let names: Vec<String> = (0..workspaces).map(|index| format!("w{index}")).collect();
        let rare = vec![":many", ":pod", "=c1", "=$(tasks.a.results.b)", ":empty"];
        let source = prop_oneof![3 => Just(""), 5 => select(rare)];
        let used = subsequence(names.clone(), 0..=workspaces.min(3));
        let all_used = proptest::collection::vec(used, tasks);
        let sources = proptest::collection::vec(source, workspaces);
        (sources, all_used).prop_map(move |(sources, all_used)| {
            let task = |(index, used): (usize, Vec<String>)| format!("t{index}:{}", used.join(","));
            let workspaces = names.iter().cloned().zip(sources).collect();
            (workspaces, all_used.into_iter().enumerate().map(task).collect())
        })
    })
}

#[test]
fn a_workspace_that_occurs_twice_is_in_one_group() {
    assert_eq!(groups(&run("a a:many", "t:a"), &[], "workspaces").groups.len(), 1);
}

proptest! {
    #[test]
    fn each_claim_of_one_node_is_in_one_group_in_any_order_of_tasks_and_workspaces(
        (mut workspaces, mut tasks) in any_run(),
        mode in prop_oneof![Just("workspaces"), Just("pipelineruns"), Just("isolate-pipelinerun")],
    ) {
        let of = |workspaces: &[(String, &str)], tasks: &[String]| {
            let joined: String = workspaces.iter().map(|(name, source)| format!("{name}{source} ")).collect();
            groups(&run(&joined, &tasks.join(" ")), &storage("c1"), mode)
        };
        let made = of(&workspaces, &tasks);
        prop_assert!(made.conflicts.is_empty());
        let names: BTreeSet<_> = made.groups.iter().map(|group| &group.name).collect();
        prop_assert_eq!(names.len(), made.groups.len());
        for (name, source) in &workspaces {
            let own = claim_name(None, name, UID);
            let of = |claim: &str| made.groups.iter().filter(|group| group.has(claim)).count();
            match *source {
                "" => prop_assert_eq!(of(&own), 1),
                ":pod" => prop_assert_eq!(of(&own), 0),
                "=c1" => prop_assert_eq!(of("c1"), 1),
                _ => {}
            }
        }
        for task in &tasks {
            let name = task.split(':').next().unwrap();
            let has = |group: &&Group| group.tasks.as_ref().unwrap().contains(name);
            prop_assert!(made.groups.iter().filter(has).count() <= 1, "{task}");
        }
        tasks.reverse();
        prop_assert_eq!(summarize(&of(&workspaces, &tasks)), summarize(&made));
        workspaces.reverse();
        let sets = |groups: &Groups| -> BTreeSet<BTreeSet<Box<str>>> {
            let names = |group: &Group| group.claims.iter().map(|claim| claim.name.clone()).collect();
            groups.groups.iter().map(names).collect()
        };
        prop_assert_eq!(sets(&of(&workspaces, &tasks)), sets(&made));
    }
}
